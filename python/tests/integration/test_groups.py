"""Groups: jobs that run side by side, and the job after them that has all results. [X-FLOW-8]"""

from __future__ import annotations

import asyncio
import json
import re
import threading
import time
from collections.abc import Sequence
from contextlib import closing
from typing import Any

import pytest
from starlette.testclient import TestClient

from harness.servers import Server, wait_until
from jobwire import (
    App,
    Inspector,
    InvalidJob,
    MalformedPayload,
    ResultError,
    Unique,
    chain,
    group,
    previous,
    testing,
)
from jobwire.application.config import FetchMode
from jobwire.cli.inspect.details import one_job
from jobwire.protocol.groups import gathered, member_ids, start, to_gather
from jobwire.web import Visitor, WebApp
from tests.integration.clients import everything
from tests.workers import running

FETCH = pytest.mark.parametrize("fetch", ["reliable", "basic"])


class Jobs:
    """An application with `Double(n)`, which may wait or fail, and `Total(numbers, *more)`."""

    def __init__(self) -> None:
        self.app = App()
        self.open = threading.Event()
        self.open.set()
        self.broken: set[Any] = set()
        self.ran: list[Any] = []
        self.totals: list[Any] = []
        self.double = self.app.job(name="Double", retry=0)(self._double)
        self.total = self.app.job(name="Total")(self._total)

    def _double(self, n: Any) -> Any:
        self.ran.append(n)
        self.open.wait(60)
        if n in self.broken:
            raise ValueError(f"{n} is broken")
        return n * 2

    def _total(self, numbers: Sequence[int], more: int = 0) -> int:
        self.totals.append(numbers)
        return sum(numbers) + more


@FETCH
def test_the_next_job_gets_the_results_in_the_order_of_the_jobs(
    server: Server, fetch: FetchMode
) -> None:
    """X-FLOW-9, X-FLOW-11: whichever ends first."""
    its = Jobs()
    with running(its.app, server, fetch=fetch, concurrency=3):
        run = chain(
            its.double.s(1),
            group(its.double.s(previous), its.double.s(5), its.double.s(n=previous)),
            its.total.s(previous, 100),
        ).enqueue()
        assert run is not None
        result = run.result(timeout=60)
        assert result is not None
        assert result.get() == 4 + 10 + 4 + 100
        assert its.totals == [[4, 10, 4]]
        assert run.states() == ["done"] * 3
        assert run.group(1).states() == ["done"] * 3
        assert len(set(run.group(1))) == 3


@FETCH
@pytest.mark.parametrize("size", [0, 1, 3])
def test_a_map_has_any_size(server: Server, fetch: FetchMode, size: int) -> None:
    """X-FLOW-9: without a member, the group ends at once."""
    its = Jobs()
    with running(its.app, server, fetch=fetch):
        run = its.double.map(range(size)).enqueue()
        assert run is not None
        result = run.result(timeout=60)
        assert result is not None
        assert result.get() == [2 * n for n in range(size)]
        after = chain(group(its.double.s(n) for n in range(size)), its.total.s(previous)).enqueue()
        assert after is not None
        total = after.result(timeout=60)
    assert total is not None
    assert total.get() == sum(2 * n for n in range(size))


def payloads(server: Server, name: str) -> list[dict[str, Any]]:
    client: Any = server.client()
    texts = client.lrange(name, 0, -1) if name.startswith("queue:") else client.zrange(name, 0, -1)
    return [json.loads(text) for text in texts]


def test_the_payload_carries_the_members(server: Server) -> None:
    """X-FLOW-8: complete payloads with their own ids; results are kept as long as the batch."""
    its = Jobs()
    its.app.connect(server.url)
    low = its.double.options(queue="low", keep_result=5_000_000)
    run = chain(its.double.s(1), group(low.s(previous), its.double.s(2))).enqueue()
    assert run is not None
    (payload,) = payloads(server, "queue:default")
    (whole,) = payload["jw_next"]
    first, second = whole["jw_group"]
    assert whole["class"] == "Jobwire::Group"
    assert (whole["args"], whole["jw_takes"], whole["queue"]) == ([None], [0], "low")
    assert (first["args"], first["jw_takes"], first["queue"]) == ([None], [0], "low")
    assert (second["args"], second["queue"]) == ([2], "default")
    assert {"jw_takes", "enqueued_at", "jw_batch"}.isdisjoint(second)
    assert (first["jw_keep"], second["jw_keep"], whole["jw_keep"]) == (5_000_000, 2_592_000, 86_400)
    assert [payload["jid"], whole["jid"]] == list(run.jids)
    assert [first["jid"], second["jid"]] == list(run.group(1).jids)
    assert run.states() == ["open", "later"]
    its.app.close()


@FETCH
def test_a_dead_member_holds_the_group_up_and_its_retry_resumes_it(
    server: Server, fetch: FetchMode
) -> None:
    """X-FLOW-10, X-BATCH-5: nothing hangs without a trace, and no other member runs again."""
    its = Jobs()
    its.broken = {2}
    with running(its.app, server, fetch=fetch), Inspector(server.url) as inspector:
        steps = chain(group(its.double.s(n) for n in (1, 2, 3)), its.total.s(previous))
        run = steps.enqueue()
        assert run is not None
        wait_until(lambda: run.group(0).states() == ["done", "dead", "done"])
        assert run.states() == ["dead", "later"]
        assert its.totals == []
        its.broken = set()
        (entry,) = inspector.entries("dead")
        assert inspector.retry(entry)
        wait_until(lambda: run.states() == ["done", "done"])
    assert its.totals == [[2, 4, 6]]
    assert sorted(its.ran) == [1, 2, 2, 3]
    assert payloads(server, "dead") == []


def test_people_see_the_jobs_of_a_group(server: Server) -> None:
    """On the page and in the terminal: from the group before its start, and from a member."""
    its = Jobs()
    its.broken = {2}
    its.app.connect(server.url)
    run = its.double.map([1, 2]).enqueue()
    assert run is not None
    one, two = run
    with Inspector(server.url) as inspector:
        waiting = inspector.find_job("default", run.jid)
        assert waiting is not None
        assert inspector.group_members(waiting.fields) == [(one, "later"), (two, "later")]
        with running(its.app, server):
            wait_until(lambda: run.states() == ["done", "dead"])
        (dead,) = inspector.entries("dead")
        members = inspector.group_members(dead.fields)
        assert members == [(one, "done"), (two, "dead")]
        shown = [row[1] for row in one_job(dead, None, time.time(), None, members).items]
        at = shown.index(f"1. {one} (done)")
        assert shown[at + 1] == f"2. {two} (dead, this job)"
        assert inspector.group_members({}) == []
        server.client().delete(f"jobwire:batch:{run.jid}")
        assert inspector.group_members(dead.fields) == []
    server.client().hset(f"jobwire:batch:{run.jid}", "on_success", f'{{"jw_gathers":["{two}"]}}')
    web = WebApp(server.url, authorize=lambda request: Visitor("ada", "operator"))
    with closing(web), TestClient(web) as browser:
        html = browser.get(f"/jobs/{two}").text
    assert re.search(rf'<li aria-current="step">.*{two}</a> dead, this job</li>', html)


def test_a_start_that_is_repeated_pushes_nothing(server: Server) -> None:
    """X-FLOW-9: the group is delivered twice, while its members wait and after they have ended."""
    its = Jobs()
    its.open.clear()
    client: Any = server.client()
    its.app.connect(server.url)
    run = chain(group(its.double.s(1), its.double.s(2)), its.total.s(previous)).enqueue()
    assert run is not None
    (text,) = client.lrange("queue:default", 0, -1)
    client.lpush("queue:default", text)
    with running(its.app, server, concurrency=3):
        wait_until(lambda: int(client.get("stat:processed") or 0) >= 2)
        its.open.set()
        wait_until(lambda: run.states() == ["done", "done"])
        client.lpush("queue:default", text)
        wait_until(lambda: client.llen("queue:default") == 0)
        wait_until(lambda: int(client.get("stat:processed") or 0) == 7)
    assert sorted(its.ran) == [1, 2]
    assert its.totals == [[2, 4]]


@FETCH
def test_a_group_is_cancelled_as_a_whole(server: Server, fetch: FetchMode) -> None:
    """X-FLOW-13: members that wait are dropped, and nothing follows."""
    its = Jobs()
    its.open.clear()
    with running(its.app, server, fetch=fetch, concurrency=1):
        steps = chain(group(its.double.s(n) for n in (1, 2, 3)), its.total.s(previous))
        run = steps.enqueue()
        assert run is not None
        wait_until(lambda: len(its.ran) == 1)
        run.cancel()
        its.open.set()
        waiting = steps.enqueue_in(3_600)
        assert waiting is not None
        assert waiting.cancel().place == "queued"
        wait_until(lambda: run.group(0).states().count("cancelled") == 2)
        wait_until(lambda: payloads(server, "queue:default") == [])
        assert run.states() == ["cancelled", "later"]
        assert waiting.states() == ["cancelled", "later"]
    assert len(its.ran) == 1
    assert its.totals == []


def test_a_group_that_was_cancelled_does_not_start(server: Server) -> None:
    """X-FLOW-9: even if its start has begun when the mark comes."""
    its = Jobs()
    its.app.connect(server.url)
    run = its.double.map([1, 2]).enqueue()
    assert run is not None
    client: Any = server.client()
    client.zadd("jobwire:cancelled", {run.jid: 9e9})
    with running(its.app, server):
        wait_until(lambda: client.llen("queue:default") == 0)
        wait_until(lambda: not client.keys("jobwire:private:*"))
    assert its.ran == []
    assert not client.exists(f"jobwire:batch:{run.jid}")


@pytest.mark.parametrize(("fetch", "value"), [("reliable", {1, 2}), ("basic", "x" * 1_048_600)])
def test_a_member_whose_result_cannot_be_passed_on_fails(
    server: Server, fetch: FetchMode, value: Any
) -> None:
    """X-FLOW-12: it is the member that people see and mend."""
    app = App()
    job = app.job(name="Return", retry=0)(lambda _=None: value)
    with running(app, server, fetch=fetch):
        run = chain(group(job.s()), job.s(previous)).enqueue()
        assert run is not None
        wait_until(lambda: run.group(0).states() == ["dead"])
    (dead,) = payloads(server, "dead")
    assert dead["error_message"].startswith("its group cannot get the result: ")


def test_a_lost_result_fails_the_end_of_the_group(server: Server) -> None:
    """X-FLOW-12: a null in its place would be worse."""
    its = Jobs()
    its.broken = {2}
    client: Any = server.client()
    with running(its.app, server), Inspector(server.url) as inspector:
        run = chain(group(its.double.s(1), its.double.s(2)), its.total.s(previous)).enqueue()
        assert run is not None
        one, _ = run.group(0)
        wait_until(lambda: run.group(0).states() == ["done", "dead"])
        client.delete(f"jobwire:result:{one}")
        its.broken = set()
        (entry,) = inspector.entries("dead")
        assert inspector.retry(entry)
        wait_until(lambda: payloads(server, "retry"))
    (failed,) = payloads(server, "retry")
    assert failed["error_message"] == (
        f"the result of member 1 of the group, job {one}, cannot be passed on: it is not there; "
        "run the group again"
    )
    assert failed["jw_gathers"] == list(run.group(0))
    assert its.totals == []


def test_a_group_from_asyncio(server: Server) -> None:
    its = Jobs()

    async def scenario() -> tuple[Any, ...]:
        jobs = its.double.map([1, 2])
        run = await jobs.aenqueue()
        assert run is not None
        result = await run.aresult(timeout=60)
        await jobs.aenqueue_in(60)
        other = await jobs.aenqueue_at(4_000_000_000)
        assert other is not None
        asked = await other.acancel()
        found = await run.astates()
        await its.app.aclient.close()
        return result and result.get(), found, asked.place

    with running(its.app, server):
        assert asyncio.run(scenario()) == ([2, 4], ["done"] * 2, "queued")
        its.double.map([1]).enqueue_at(4_000_000_000)
    assert len(payloads(server, "schedule")) == 2


def test_groups_follow_groups(server: Server) -> None:
    """X-FLOW-9: the members of the second get the list of the first."""
    its = Jobs()
    with running(its.app, server):
        run = chain(
            its.double.map([1, 2]),
            group(its.total.s(previous), its.total.s(previous, 1)),
            its.total.s(previous),
        ).enqueue()
        assert run is not None
        result = run.result(timeout=60)
    assert result is not None
    assert result.get() == 6 + 7


def test_middleware_stops_the_whole_group(server: Server) -> None:
    def stop(item: Any, call_next: Any) -> Any:
        return None if item["args"] == [2] else call_next()

    app = App(client_middleware=[stop])
    job = app.job(name="Work")(lambda n: n)
    app.connect(server.url)
    assert job.map([1, 2]).enqueue() is None
    assert chain(job.s(1), job.map([1, 2])).enqueue() is None
    assert everything(server) == {}
    app.close()


def test_a_group_refuses_what_cannot_work(server: Server) -> None:
    """X-FLOW-8: at the line that makes it, or pushes it."""
    its, other = Jobs(), Jobs()
    double: Any = its.double
    with pytest.raises(InvalidJob, match=r"group: has no job, so it has no application; write job"):
        group().enqueue()
    inside: Any
    for inside in (chain(double.s(1)), group(double.s(1)), double):
        with pytest.raises(TypeError, match=r"group: job 0: .* write job\.s"):
            group(inside, double.s(1))
    with pytest.raises(InvalidJob, match=r"group: has 1,001 jobs, and the limit is 1,000"):
        double.map(range(1_001))
    with pytest.raises(InvalidJob, match=r"job 1: Double.s\(2\) is for another application"):
        group(double.s(1), other.double.s(2))
    with pytest.raises(InvalidJob, match=r"group: args\[0\]: previous is the result of the job b"):
        group(double.s(previous)).enqueue()
    with pytest.raises(InvalidJob, match=r"group: args\[0\]: previous is the result of the job b"):
        chain(group(double.s(previous)))
    with pytest.raises(TypeError, match="missing a required argument"):
        its.app.job(name="Two")(lambda a, b: a).map([1])
    its.app.connect(server.url)
    with pytest.raises(InvalidJob, match="unique: a job with the scope until_done cannot be in a"):
        double.options(unique=60).map([1]).enqueue()
    assert double.options(unique=Unique(60, scope="while_running")).map([1]).enqueue()
    assert repr(chain(double.s(1), group(double.s(previous)))) == (
        "chain(Double.s(1), group(Double.s(previous)))"
    )
    assert repr(double.map([1, 2])) == "group(Double.s(1), Double.s(2))"
    its.app.close()


def test_tests_run_groups_without_redis() -> None:
    """X-FLOW-9, X-FLOW-11: collected and inline, from a thread and from a loop."""
    its = Jobs()
    steps = chain(its.double.s(1), group(its.double.s(previous), its.double.s(5)))
    steps = chain(steps, its.total.s(previous, 100))
    with testing.fake(its.app) as jobs:
        run = steps.enqueue()
        assert run is not None
        jobs.perform_one()
        jobs.perform_one()
        assert [job.args for job in jobs] == [[2], [5]]
        assert jobs.drain() == 4
        result = run.result()
        assert result is not None
        assert result.get() == 4 + 10 + 100
        assert run.states() == ["done"] * 3
        empty = its.double.map([]).enqueue()
        assert empty is not None
        jobs.drain()
        found = empty.result()
        assert found is not None
        assert found.get() == []
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
    ("members", "words"),
    [
        ("5", "Expected `array . null`, got `int`"),
        ("[5]", "Expected `object`, got `int`"),
        ('[{"jid":"b","queue":"q"}]', "missing required field `class`"),
        ('[{"class":"A","jid":"b","queue":"q","args":[],"jw_takes":[0]}]', r"names args\[0\]"),
    ],
)
def test_a_group_that_is_none_fails(members: str, words: str) -> None:
    """X-FLOW-8: a group that another program wrote."""
    text = f'{{"class":"Jobwire::Group","jid":"a","args":[],"jw_group":{members}}}'.encode()
    with pytest.raises(MalformedPayload, match=words):
        _ = to_gather(text) or start(text, "q", now=5, generation=8)


def test_parts_of_another_form() -> None:
    """X-FLOW-11, X-FLOW-12: fields that other programs may have written."""
    with pytest.raises(MalformedPayload, match="jw_group: is absent; a group has its jobs there"):
        to_gather(b'{"class":"Jobwire::Group","jid":"a","args":[]}')
    assert to_gather(b'{"jid":"a","jw_gathers":["b"]}') == ["b"]
    assert to_gather(b'{"jid":"a","jw_group":[]}') == []
    assert member_ids({"jw_gathers": ["b", 5]}) == ["b"]
    assert member_ids({"jw_group": [{"jid": "b"}, 5]}) == ["b"]
    assert member_ids({"jw_group": 5}) == member_ids({}) == []
    for text in (None, b"5", b'{"outcome":"dead"}', b'{"outcome":"done","problem":"no"}'):
        with pytest.raises(ResultError, match="member 1 of the group, job b, cannot be passed"):
            gathered(["b"], [text])


def test_the_bytes_of_results_stay_as_they_are() -> None:
    """X-FLOW-11: numbers of any size, and spellings of floats."""
    big = b"9" * 30
    texts = [b'{"outcome":"done","value":' + value + b"}" for value in (big, b"1.50", b"null")]
    assert gathered(["a", "b", "c"], texts) == b'"value":[' + big + b",1.50,null]"
