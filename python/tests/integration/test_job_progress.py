"""Progress of jobs, from their code to its readers. [X-PROG-1]"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.servers import Server, wait_until
from jobwire import (
    App,
    AsyncClient,
    Client,
    Inspector,
    InvalidArgument,
    JobProgress,
    report_progress,
)
from jobwire.application.config import FetchMode
from jobwire.protocol import progress
from jobwire.protocol.iteration import Cursor
from jobwire.protocol.keys import Keys
from jobwire.testing import fake
from jobwire.worker.outcome.ended_progress import MAX_JOBS, EndedProgress
from tests.apps.isolated import app as isolated
from tests.rows import over
from tests.schemas import problems
from tests.workers import Workers, brisk, running

QUICK = brisk(heartbeat_interval=0.05)
FETCH = pytest.mark.parametrize("fetch", ["reliable", "basic"])


def stored(server: Server, jid: str) -> dict[str, Any]:
    """Return the key of a job's progress as JSON; an empty object if there is none."""
    text: Any = server.client().get(f"jobwire:progress:{jid}")
    return {} if text is None else dict(json.loads(text))


def reporter(kind: str, go: threading.Event) -> App:
    """Return an app with the job Work, which reports 1 of 2, waits for `go` and reports 2 of 2."""
    app = App()

    def work() -> None:
        report_progress(1, 2, "half")
        go.wait(60)
        report_progress(2, 2)

    async def awork() -> None:
        report_progress(1, 2, "half")
        while not go.is_set():
            await asyncio.sleep(0.01)
        report_progress(2, 2)

    def steps(cursor: Cursor) -> Iterator[object]:
        for number in range(cursor.value or 1, 3):
            yield number
            report_progress(number, 2, "half" if number == 1 else "")
            if number == 1:
                go.wait(60)

    if kind == "iterable":
        app.iterable(name="Work")(steps)
    else:
        app.job(name="Work")(work if kind == "sync" else awork)
    return app


@FETCH
@pytest.mark.parametrize("kind", ["sync", "async", "iterable"])
def test_a_report_is_written_with_the_heartbeat(
    server: Server, fetch: FetchMode, kind: str
) -> None:
    """X-PROG-1, X-PROG-3, X-PROG-5: and the last one after the end of the job."""
    go = threading.Event()
    app = reporter(kind, go)
    before = time.time()
    with running(app, server, fetch=fetch, timings=QUICK):
        jid = app.client.push("Work") or ""
        wait_until(lambda: stored(server, jid))
        half = stored(server, jid)
        assert problems("progress", "writer", half) == []
        assert {**half, "at": 0} == {"done": 1, "total": 2, "note": "half", "at": 0}
        assert before <= half["at"] <= time.time()
        assert 86_000 < int(server.client().ttl(f"jobwire:progress:{jid}")) <= 86_400
        with Inspector(server.url) as inspector:
            wait_until(lambda: inspector.works())
            [work] = inspector.works()
            assert work.progress is not None
            assert work.progress.summary == "1 of 2 (50 %): half"
            assert inspector.progress([jid, "other"]) == {jid: work.progress}
            assert app.client.progress("other") is None
        go.set()
        wait_until(lambda: stored(server, jid)["done"] == 2)


def test_a_stop_writes_the_last_report(server: Server) -> None:
    """X-PROG-5: of a job that ended after the last heartbeat; both clients read it."""
    go = threading.Event()
    go.set()
    app = reporter("sync", go)
    with running(app, server):  # beats every ten seconds
        jid = app.client.push("Work") or ""
        wait_until(lambda: server.client().get("stat:processed"))

    async def read() -> JobProgress | None:
        async with AsyncClient(server.url) as client:
            return await client.progress(jid)

    with Client(server.url) as client:
        told = client.progress(jid)
    assert told == asyncio.run(read())
    assert told is not None
    assert (told.done, told.fraction, told.summary) == (2, 1.0, "2 of 2 (100 %)")


def test_progress_costs_nothing_but_one_command_of_the_beat(server: Server) -> None:
    """X-PROG-4: and none for a job that reports none."""
    go = threading.Event()
    app = reporter("sync", go)

    @app.job(name="Silent")
    def silent() -> None:
        go.wait(60)

    client: Any = server.client()

    def commands(name: str) -> Counter[str]:
        """Return the commands of one beat while the job runs."""
        go.clear()
        with running(app, server, timings=QUICK) as launcher:
            app.client.push(name)
            wait_until(lambda: client.hlen(f"{launcher.identity}:work"))
            with client.monitor() as monitor:
                seen: list[str] = []
                for _ in range(2):
                    line = ""
                    while line != "PING":
                        line = monitor.next_command()["command"]
                        seen.append(line)
            go.set()
        beat = seen[seen.index("PING") + 1 :]
        return Counter("progress" if "jobwire:progress:" in one else one.split()[0] for one in beat)

    beat = commands("Silent")
    assert commands("Work") == beat + Counter(progress=1)


@pytest.mark.process
def test_an_isolated_job_reports_through_its_channel(server: Server, tmp_path: Path) -> None:
    """X-PROG-1, X-PROG-5: 100,000 reports are not sent one by one, and the last one comes."""
    gate = tmp_path / "gate"
    with running(isolated, server, timings=QUICK):
        jid = isolated.client.push("Reports", [str(gate)]) or ""
        wait_until(lambda: stored(server, jid).get("done") == 99_999)
        gate.touch()
        wait_until(lambda: stored(server, jid)["done"] == 100_000)


@pytest.mark.process
def test_a_killed_worker_leaves_a_key_that_expires(
    server: Server, workers: Workers, tmp_path: Path
) -> None:
    """X-PROG-3: the progress of its last heartbeat."""
    (tmp_path / "killed.py").write_text(
        "import time\n"
        "from jobwire import App, report_progress\n"
        "app = App()\n"
        "@app.job(name='Work')\n"
        "def work() -> None:\n"
        "    report_progress(1, 2)\n"
        "    time.sleep(600)\n"
    )
    worker = workers.start("killed:app", "--redis", server.url)
    with Client(server.url) as client:
        jid = client.push("Work") or ""
        wait_until(lambda: stored(server, jid))
        worker.kill()
        assert (client.progress(jid) or JobProgress(0)).done == 1
    assert 86_000 < int(server.client().ttl(f"jobwire:progress:{jid}")) <= 86_400


def test_an_older_report_is_not_that_of_this_execution(server: Server) -> None:
    """X-PROG-7: as after a retry."""
    go = threading.Event()
    app = App()
    app.job(name="Silent")(lambda: go.wait(60) and None)
    with running(app, server, timings=QUICK), Inspector(server.url) as inspector:
        jid = app.client.push("Silent") or ""
        wait_until(lambda: inspector.works())
        for at, told in ((time.time() - 100, False), (time.time() + 1, True)):
            server.client().set(f"jobwire:progress:{jid}", json.dumps({"done": 1, "at": at}))
            [work] = inspector.works()
            assert (work.progress is not None) == told
        go.set()


def test_tests_see_what_a_job_reports() -> None:
    """X-PROG-6: without Redis."""
    go = threading.Event()
    go.set()
    app = reporter("sync", go)
    app.connect("redis://localhost:1/0")
    with fake(app) as jobs:
        jid = app.client.push("Work") or ""
        assert app.client.progress(jid) is None
        jobs.drain()
        told = app.client.progress(jid)
    assert told is not None
    assert told.done == 2


@over(
    ("text", "told"),
    [
        (b'{"done":3,"total":4,"note":"n","at":5}', JobProgress(3, 4, "n", 5.0)),
        (b'{"done":0.5,"total":"4","note":7,"at":true}', JobProgress(0.5)),
        (b'{"done":1,"total":-1}', JobProgress(1)),
        (b'{"done":"3"}', None),
        (b'{"done":-3}', None),
        (b'{"done":1e300}', None),
        (b"[3]", None),
        (b"\xff", None),
        (b"{", None),
        (None, None),
    ],
)
def test_reading_is_lenient(text: bytes | None, told: JobProgress | None) -> None:
    """X-PROG-6: another program may write anything."""
    assert progress.read(text) == told


@over(
    ("call", "problem"),
    [
        (lambda: report_progress(-1), "done is -1; pass a number"),
        (lambda: report_progress(1, float("nan")), "total is nan; pass a number"),
        (lambda: report_progress(True), "done is True; pass a number"),
        (lambda: report_progress(1, 2**54), "total is 18014398509481984; pass a number"),
        (lambda: report_progress(1, 2, None), "note is None; pass a string"),  # type: ignore[arg-type]
    ],
)
def test_a_report_of_another_type_or_range_is_refused(
    call: Callable[[], None], problem: str
) -> None:
    """X-PROG-2."""
    with pytest.raises(InvalidArgument, match=problem):
        call()


def test_what_is_written_has_the_schema() -> None:
    """X-PROG-2, X-PROG-3: a long note is cut, a lone surrogate is replaced."""
    told = progress.checked(0, 0, "x" * 199 + "\ud800yz", at=1.5)
    [step] = progress.writes(Keys(), {"j": told})
    assert step.args[:2] == ("SET", "jobwire:progress:j")
    assert step.args[3:] == ("EX", 86_400)
    fields = json.loads(step.args[2])  # type: ignore[arg-type]
    assert problems("progress", "writer", fields) == []
    assert fields["note"] == "x" * 199 + "\ufffd"
    assert (told.fraction, JobProgress(7, 5).fraction, JobProgress(7).fraction) == (1.0, 1.0, None)
    assert JobProgress(1999, 2000).summary == "1,999 of 2,000 (99 %)"
    assert JobProgress(0.5, note="n").summary == "0.5: n"


def test_reports_of_ended_jobs_are_bounded() -> None:
    """X-PROG-5: the newest ones are kept until they are written."""
    from jobwire.protocol.payload import decode

    ended = EndedProgress()
    for number in range(MAX_JOBS + 5):
        job = decode(json.dumps({"jid": f"j{number}"}).encode(), "q")
        job.progress = JobProgress(number)
        ended.add(job)
    waiting = ended.waiting()
    assert next(iter(waiting)) == "j5"
    assert len(waiting) == MAX_JOBS
    job.progress = JobProgress(1)  # of the next execution, while the heartbeat writes
    ended.add(job)
    ended.written(waiting)
    assert ended.waiting() == {job.jid: job.progress}
