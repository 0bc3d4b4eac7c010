"""Chains: each job is pushed by the end of the one before, and may get its result. [X-FLOW-1]"""

from __future__ import annotations

import asyncio
import copy
import json
import random
import re
import threading
import time
from collections import Counter
from contextlib import closing
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from harness.servers import Server, wait_until
from jobwire import (
    App,
    ChainRun,
    DuplicateJob,
    Inspector,
    InvalidJob,
    MalformedPayload,
    Snooze,
    Unique,
    chain,
    previous,
    testing,
)
from jobwire.application.config import FetchMode
from jobwire.cli.inspect.details import one_job
from jobwire.protocol.chains import next_job, states, steps
from jobwire.web import Visitor, WebApp
from tests.integration.clients import everything, listening
from tests.workers import Workers, running

FETCH = pytest.mark.parametrize("fetch", ["reliable", "basic"])


class Adding:
    """An application with the jobs `Add(a, b)` and `Fail(how)`, which notes their arguments."""

    def __init__(self, **options: Any) -> None:
        self.app = App()
        self.calls: list[Any] = []
        self.fails: Any = ValueError("no")
        self.add = self.app.job(name="Add", **options)(self._add)
        self.fail = self.app.job(name="Fail", retry=0)(self._fail)

    def _add(self, a: Any, b: Any = 0) -> Any:
        self.calls.append((a, b))
        return a + b

    def _fail(self, a: Any = None) -> Any:
        self.calls.append(a)
        if self.fails is not None:
            raise self.fails
        return "mended"


def payloads(server: Server, name: str) -> list[dict[str, Any]]:
    client: Any = server.client()
    texts = client.lrange(name, 0, -1) if name.startswith("queue:") else client.zrange(name, 0, -1)
    return [json.loads(text) for text in texts]


def finished(run: ChainRun | None) -> ChainRun:
    assert run is not None
    wait_until(lambda: run.states()[-1] == "done", 60)
    return run


@FETCH
def test_each_job_gets_the_result_of_the_one_before(server: Server, fetch: FetchMode) -> None:
    """X-FLOW-1, X-FLOW-2, X-FLOW-3: where `previous` is, and in the order of the chain."""
    its = Adding()
    add = its.add
    with running(its.app, server, fetch=fetch):
        run = finished(chain(add.s(1, 2), add.s(previous, 10), add.s(5, b=previous)).enqueue())
        result = run.result(timeout=60)
    assert its.calls == [(1, 2), (3, 10), (5, 13)]
    assert result is not None
    assert (result.jid, result.get()) == (run.jids[-1], 18)
    assert list(run) == list(run.jids)


@FETCH
def test_a_death_ends_the_chain_and_its_retry_resumes_it(server: Server, fetch: FetchMode) -> None:
    """X-FLOW-4: the dead job has the rest, so that nothing is lost and nothing runs early."""
    its = Adding()
    with running(its.app, server, fetch=fetch), Inspector(server.url) as inspector:
        run = chain(its.add.s(1), its.fail.s(previous), its.add.s(previous, "!")).enqueue()
        assert run is not None
        wait_until(lambda: run.states() == ["done", "dead", "later"])
        (dead,) = payloads(server, "dead")
        assert [job["jid"] for job in dead["jw_next"]] == [run.jids[2]]
        assert its.calls == [(1, 0), 1]
        its.fails = None
        (entry,) = inspector.entries("dead")
        assert inspector.retry(entry)
        finished(run)
    assert its.calls == [(1, 0), 1, 1, ("mended", "!")]
    assert payloads(server, "dead") == []


def test_a_retry_a_snooze_and_a_stop_keep_the_rest(server: Server) -> None:
    """X-FLOW-4: none of them is the end of the job."""
    its = Adding()
    patient = its.fail.options(retry=5)
    for error, place in ((ValueError("again"), "retry"), (Snooze(3_600), "schedule")):
        its.fails = error
        with running(its.app, server):
            run = chain(patient.s(), its.add.s(previous, "!")).enqueue()
            wait_until(lambda place=place: payloads(server, place))  # type: ignore[misc]
            (payload,) = payloads(server, place)
            assert [job["jid"] for job in payload["jw_next"]] == [run and run.jids[1]]
            its.fails = None
            client: Any = server.client()
            [text] = client.zrange(place, 0, -1)
            client.zadd(place, {text: 1})
            finished(run)
    assert [call for call in its.calls if call] == [("mended", "!")] * 2


@pytest.mark.parametrize(
    ("fetch", "value"),
    [("reliable", {1, 2}), ("basic", float("nan")), ("reliable", "x" * 1_048_600)],
)
def test_a_result_that_cannot_be_passed_on_is_a_failure(
    server: Server, fetch: FetchMode, value: Any
) -> None:
    """X-FLOW-6: only for a job that takes it; the rest stays with the job that failed."""
    app = App()
    job = app.job(name="Return", retry=0)(lambda _=None: value)
    with running(app, server, fetch=fetch):
        finished(chain(job.s(), job.s()).enqueue())
        run = chain(job.s(), job.s(previous)).enqueue()
        assert run is not None
        wait_until(lambda: run.states() == ["dead", "later"])
    (dead,) = payloads(server, "dead")
    assert dead["error_message"].startswith("the next job, Return, cannot get the result: ")
    assert dead["error_class"] == "jobwire.errors.ResultError"
    assert [job["jid"] for job in dead["jw_next"]] == [run.jids[1]]


@FETCH
def test_async_and_once_only_jobs_are_parts_of_chains(server: Server, fetch: FetchMode) -> None:
    """X-FLOW-3: each kind of job passes its result on."""
    app = App()

    @app.job
    async def later(text: str) -> str:
        await asyncio.sleep(0)
        return text + "a"

    @app.job(redeliver=False, retry=False)
    def once(text: str) -> str:
        return text + "o"

    steps = [later.s("."), once.s(previous), later.s(previous)]
    with running(app, server, fetch=fetch):
        result = finished(chain(*steps).enqueue()).result()
    assert result is not None
    assert result.get() == ".aoa"


def test_a_chain_from_asyncio(server: Server) -> None:
    its = Adding()

    async def scenario() -> tuple[Any, ...]:
        steps = chain(its.add.s(1, 2), its.add.s(previous, 3))
        run = await steps.aenqueue()
        assert run is not None
        result = await run.aresult(timeout=60)
        await steps.aenqueue_in(60)
        other = await steps.aenqueue_at(4_000_000_000)
        assert other is not None
        states = await other.astates()
        asked = await other.acancel()
        await its.app.aclient.close()
        return result and result.get(), states, asked.place

    with running(its.app, server):
        value, found, place = asyncio.run(scenario())
        wait_until(lambda: len(payloads(server, "schedule")) == 1)
    assert (value, found, place) == (6, ["open", "later"], "queued")


def test_a_chain_is_cancelled_as_a_whole(server: Server) -> None:
    """X-FLOW-4: a running job is asked to end; the jobs after it never start."""
    app = App()
    entered = threading.Event()
    ran: list[str] = []

    @app.job
    async def wait() -> None:
        entered.set()
        await asyncio.sleep(600)

    @app.job
    def after() -> None:
        ran.append("after")

    with running(app, server):
        run = chain(wait.s(), after.s()).enqueue()
        assert run is not None
        assert entered.wait(60)
        assert run.cancel().place == "running"
        wait_until(lambda: run.states() == ["cancelled", "later"])
        waiting = chain(wait.s(), after.s()).enqueue_in(3_600)
        assert waiting is not None
        assert waiting.cancel().place == "queued"
        assert waiting.states() == ["cancelled", "later"]
    assert ran == []
    assert payloads(server, "schedule") == payloads(server, "queue:default") == []


@pytest.mark.parametrize("middleware", ["stops the first", "stops the last"])
def test_middleware_stops_the_whole_chain(server: Server, middleware: str) -> None:
    number = 1 if middleware == "stops the first" else 2

    def stop(item: Any, call_next: Any) -> Any:
        return None if item["args"] == [number] else call_next()

    app = App(client_middleware=[stop])
    job = app.job(name="Work")(lambda n: n)
    app.connect(server.url)
    assert chain(job.s(1), job.s(2)).enqueue() is None
    assert everything(server) == {}
    app.close()


def test_only_the_first_job_takes_a_lock_with_the_push(server: Server) -> None:
    its = Adding()
    its.app.connect(server.url)
    alone = its.add.options(unique=60)
    calm = its.add.options(unique=Unique(60, scope="while_running"))
    with pytest.raises(InvalidJob, match="Add: job 1: unique: only the first job of a chain"):
        chain(its.add.s(1), alone.s(2)).enqueue()
    assert chain(alone.s(1), calm.s(2)).enqueue()
    with pytest.raises(DuplicateJob):
        chain(alone.s(1), calm.s(2)).enqueue()
    dropping = its.add.options(unique=Unique(60, duplicate="drop"))
    assert chain(dropping.s(1), calm.s(2)).enqueue() is None
    assert len(payloads(server, "queue:default")) == 1
    its.app.close()


def test_a_chain_refuses_what_cannot_work() -> None:
    """X-FLOW-1, X-FLOW-2: at the line that makes it, or pushes it."""
    its, other = Adding(), Adding()
    add: Any = its.add
    with pytest.raises(InvalidJob, match="chain: has no job"):
        chain()
    with pytest.raises(TypeError, match=r"chain: job 1: <JobType Add> is not .* write job.s"):
        chain(add.s(1), add)
    with pytest.raises(InvalidJob, match=r"Add: args\[1\]: previous is the result of the job bef"):
        chain(add.s(1, previous))
    with pytest.raises(InvalidJob, match=r"job 1: Add.s\(previous\) is for another application"):
        chain(add.s(1), other.add.s(previous))
    with pytest.raises(InvalidJob, match="has 1,001 jobs, and the limit is 1,000"):
        chain(*[add.s(1)] * 1_001)
    with pytest.raises(InvalidJob, match=r"Add: args\[0\]: previous is the result"):
        add.s(previous).enqueue()
    with pytest.raises(InvalidJob, match=r"Add: job 0: args\[0\]: previous is the result"):
        its.app.client.push_many([add.s(previous)])
    with pytest.raises(InvalidJob, match=r"args\[0\]\[0\].*for which JSON has no type"):
        add.s([previous])
    absent = pytest.raises(InvalidJob, match="previous is Previous, for which JSON has no type")
    with testing.fake(its.app), absent:
        add.enqueue(previous)
    with pytest.raises(TypeError, match="too many positional arguments"):
        add.s(previous, 1, 2)
    whole = chain(chain(add.s(1), add.s(previous)), add.s(previous, 2))
    assert repr(whole) == "chain(Add.s(1), Add.s(previous), Add.s(previous, 2))"
    assert copy.deepcopy(previous) is previous


def test_codecs_see_the_other_arguments_and_the_result() -> None:
    """X-FLOW-2: an annotation of the argument decodes the result when the job runs."""
    app = App()
    seen: list[Any] = []

    @app.job
    def day() -> str:
        return "2026-11-29"

    @app.job
    def both(first: date, second: date) -> None:
        seen.append((first, second))

    with testing.fake(app) as jobs:
        chain(day.s(), both.s(previous, date(2026, 1, 2))).enqueue()
        assert jobs.drain() == 2
    assert seen == [(date(2026, 11, 29), date(2026, 1, 2))]


def test_tests_run_chains_without_redis() -> None:
    """X-FLOW-3: collected and inline, from a thread and from a loop."""
    its = Adding()
    steps = chain(its.add.s(1, 2), its.add.s(previous, 3), its.add.s(previous, 4))
    with testing.fake(its.app) as jobs:
        run = steps.enqueue()
        assert run is not None
        jobs.perform_one()
        assert [job.args for job in jobs] == [[3, 3]]
        assert run.states() == ["done", "open", "later"]
        assert jobs.drain() == 2
        result = run.result()
        assert result is not None
        assert result.get() == 10
        assert run.cancel().place == "unknown"
    with testing.inline(its.app):
        run = steps.enqueue()
        assert run is not None
        assert run.states() == ["done"] * 3

        async def scenario() -> None:
            assert (run := await steps.aenqueue()) is not None
            assert await run.astates() == ["done"] * 3
            assert (run := steps.enqueue()) is not None
            assert run.states() == ["done"] * 3

        asyncio.run(scenario())


@pytest.mark.parametrize(
    ("rest", "words"),
    [
        ("5", "Expected `array`, got `int`"),
        ("[5]", "Expected `object`, got `int`"),
        ('[{"jid":"b","queue":"q"}]', "missing required field `class`"),
        ('[{"class":"A","jid":"b","queue":"q","args":[],"jw_takes":[0]}]', r"names args\[0\]"),
        ('[{"class":"A","jid":"b","queue":"q","args":"zip","jw_takes":[0]}]', "Expected `array`"),
    ],
)
def test_a_rest_that_is_none_fails_the_job(rest: str, words: str) -> None:
    """X-FLOW-1 and X-FLOW-2: a chain that another program wrote."""
    text = f'{{"class":"A","jid":"a","jw_next":{rest}}}'.encode()
    with pytest.raises(MalformedPayload, match=words):
        next_job(text, 1, now=5)


def test_the_bytes_of_the_next_job_stay_as_they_are() -> None:
    """X-FLOW-3: numbers of any size, spellings of floats, unknown fields."""
    big = b"9" * 30
    text = (
        b'{"class":"A","jid":"a","jw_next":[{"class":"B","jid":"b","queue":"q","args":[1.50,null,'
        + big
        + b'],"x":1e5,"jw_takes":[1]},{"class":"C"}]}'
    )
    following = next_job(text, {"a": [1.5]}, now=5)
    assert following is not None
    assert following.queue == "q"
    assert following.text == (
        b'{"class":"B","jid":"b","queue":"q","args":[1.50,{"a":[1.5]},' + big + b'],"x":1e5,'
        b'"enqueued_at":5,"jw_next":[{"class":"C"}],"jw_before":[["a","A"]]}'
    )
    assert next_job(b'{"class":"A","jid":"a","jw_next":[]}', 1, now=5) is None


def test_states_of_a_chain_whose_results_are_forgotten() -> None:
    assert states([None, None]) == ["open", "later"]
    assert states([None, "retry", None]) == ["done", "retry", "later"]
    assert states([None, "done", None, None]) == ["done", "done", "open", "later"]
    assert states([None, "done"]) == ["done", "done"]


@FETCH
@pytest.mark.process
def test_isolated_jobs_are_parts_of_chains(
    server: Server, workers: Workers, tmp_path: Path, fetch: FetchMode
) -> None:
    """X-FLOW-3, X-FLOW-6: the child process sends the value, or the reason why there is none."""
    (tmp_path / "jobs.py").write_text(
        f"import jobwire\napp = jobwire.App({server.url!r})\n"
        "@app.job(name='Twice', isolated=True)\n"
        "def twice(number):\n"
        "    return 2 * number\n"
        "@app.job(name='Odd', isolated=True, retry=0)\n"
        "def odd():\n"
        "    return {1}\n"
    )
    app = App(server.url)
    twice = app.job(name="Twice")(lambda number: number)
    odd = app.job(name="Odd", retry=0)(lambda: None)
    run = chain(twice.s(2), twice.s(previous), twice.s(previous)).enqueue()
    failing = chain(odd.s(), twice.s(previous)).enqueue()
    assert failing is not None
    workers.start("jobs:app", "--fetch", fetch)
    result = finished(run).result()
    assert result is not None
    assert result.get() == 16
    wait_until(lambda: failing.states() == ["dead", "later"], 60)
    (dead,) = payloads(server, "dead")
    assert "cannot get the result: value" in dead["error_message"]
    app.close()


@pytest.mark.process
@pytest.mark.parametrize("kills", [2, pytest.param(20, marks=pytest.mark.full)])
def test_chains_survive_the_death_of_their_workers(
    server: Server, workers: Workers, tmp_path: Path, kills: int
) -> None:
    """X-FLOW-3: kill -9 at a random moment; every chain ends, and pushes each next job once."""
    (tmp_path / "jobs.py").write_text(
        "import time\nimport jobwire\nfrom jobwire.protocol.wire import command\n"
        f"app = jobwire.App({server.url!r})\n"
        "@app.job(name='Step')\n"
        "def step(chain, number):\n"
        "    app.client.redis.run(note(f'{chain}:{number}'))\n"
        "    time.sleep(0.01)\n"
        "    return number + 1\n"
        "def note(text):\n"
        "    yield command('RPUSH', 'effects', text)\n"
    )
    app = App(server.url)
    step = app.job(name="Step")(lambda chain, number: number)
    client: Any = server.client()
    rounds = random.Random(kills)
    runs: list[ChainRun] = []
    with listening(server) as heard:
        alive = workers.start("jobs:app")
        for number in range(kills):
            steps = [step.s(number, 0), *[step.s(number, previous)] * 49]
            run = chain(*steps).enqueue()
            assert run is not None
            runs.append(run)
            identity = alive.identity(client)
            begun = rounds.randrange(45)
            wait_until(
                lambda run=run, begun=begun: run.states()[begun] == "done",  # type: ignore[misc]
                what="a part of the chain",
            )
            alive.kill()
            client.delete(identity)  # its lease is over
            alive = workers.start("jobs:app")
        for run in runs:
            wait_until(lambda run=run: run.states() == ["done"] * 50, 120)  # type: ignore[misc]
        pushes = Counter(
            json.loads(text)["jid"]
            for line in heard()
            if line.name == "LPUSH"
            for text in line.words[2:]
        )
    effects = Counter(client.lrange("effects", 0, -1))
    assert set(effects) == {f"{n}:{at}".encode() for n in range(kills) for at in range(50)}
    assert pushes == {jid: 1 for run in runs for jid in run}
    app.close()


def test_the_page_and_the_commands_show_the_whole_chain(server: Server) -> None:
    """X-FLOW-7: the jobs before and after the one that is shown, with links."""
    its = Adding()
    with running(its.app, server):
        run = chain(its.add.s(1), its.fail.s(), its.add.s(previous, "!")).enqueue()
        assert run is not None
        wait_until(lambda: run.states()[1] == "dead")
    first, second, third = run.jids
    app = WebApp(server.url, authorize=lambda request: Visitor("ada", "operator"))
    with closing(app), TestClient(app) as page:
        html = page.get(f"/jobs/{second}").text.partition(">Chain<")[2].partition("</ol>")[0]
    assert re.findall(r'href="/jobs/(\w+)">(\w+)</a> (\w+)', html) == [
        (first, "Add", "done"),
        (third, "Add", "later"),
    ]
    assert '<li aria-current="step"><strong>Fail</strong> this job</li>' in html
    with Inspector(server.url) as inspector:
        entry = inspector.find("dead", second)
    assert entry is not None
    shown = [row[1] for row in one_job(entry, None, time.time()).items]
    at = shown.index(f"1. Add (done, {first})")
    assert shown[at : at + 3][1:] == ["2. Fail (this job)", f"3. Add (later, {third})"]


def test_a_chain_that_another_program_wrote_is_shown_as_far_as_it_goes() -> None:
    assert steps({"class": "A", "jw_next": 5, "jw_before": [[1], 5]}) == []
    shown = steps({"class": "W", "wrapped": "A", "jw_next": [5, {}], "jw_before": [["x", "B"]]})
    assert shown == [("done", "B", "x"), ("here", "A", ""), ("later", "", "")]
