"""Results: stored with the outcome, read and waited for by clients. [X-RESULT-1] to [X-RESULT-9]"""

from __future__ import annotations

import asyncio
import json
import logging
import statistics
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from harness.servers import Server, wait_until
from jobwire import App, AsyncClient, Client, ConfigError, Result, ResultError
from jobwire.application.config import FetchMode
from jobwire.protocol.results import MAX_RESULT_BYTES
from tests.integration.clients import push_job
from tests.workers import Workers, running

FETCH = pytest.mark.parametrize("fetch", ["reliable", "basic"])


def stored(server: Server, jid: str) -> dict[str, Any] | None:
    """Return the key of a result as JSON."""
    text: Any = server.client().get(f"jobwire:result:{jid}")
    return None if text is None else dict(json.loads(text))


@pytest.mark.parametrize(
    ("fetch", "kind"), [("reliable", "sync"), ("basic", "async"), ("reliable", "limited")]
)
def test_a_value_is_kept_with_the_outcome(server: Server, fetch: FetchMode, kind: str) -> None:
    """X-RESULT-1 to X-RESULT-3, X-RESULT-7: the value, its JSON form and its time to live."""
    app = App()
    value = {"n": 2**70, "half": 0.5, "list": [None, True, "ü"]}

    def work() -> Any:
        return value

    async def awork() -> Any:
        await asyncio.sleep(0)
        return value

    options: dict[str, Any] = {"timeout": 30} if kind == "limited" else {}
    job = app.job(name="Work", keep_result=3600, **options)(work if kind == "sync" else awork)
    with running(app, server, fetch=fetch):
        jid = job.enqueue() or ""
        result = job.result(jid, timeout=60)
    assert isinstance(result, Result)
    assert (result.jid, result.outcome, result.value, result.final) == (jid, "done", value, True)
    assert result.get() == value
    assert abs(result.at - time.time()) < 60
    assert 3500 < int(server.client().ttl(f"jobwire:result:{jid}")) <= 3600
    assert stored(server, jid) == {"outcome": "done", "at": result.at, "value": value}


def test_a_default_of_the_definition_serves_other_producers(server: Server) -> None:
    """X-RESULT-1: a job that a Ruby client pushed has no field jw_keep."""
    app = App()
    app.job(name="Work", keep_result=30.5)(lambda: "here")
    jid = "ab" * 12
    push_job(server, "Work")
    with running(app, server), Client(server.url) as client:
        result = client.result(jid, timeout=60)
    assert result is not None
    assert result.value == "here"
    assert 25 < int(server.client().ttl(f"jobwire:result:{jid}")) <= 31


@FETCH
def test_failures_are_kept(server: Server, fetch: FetchMode) -> None:
    """X-RESULT-4: class and message of a failure; `retry` is not final, `dead` is."""
    app = App()

    def fail(text: str) -> None:
        raise KeyError(text)

    again = app.job(name="Again", keep_result=60)(fail)
    buried = app.job(name="Buried", keep_result=60, retry=0)(fail)
    dropped = app.job(name="Dropped", keep_result=60, retry=False)(fail)
    with running(app, server, fetch=fetch):
        jids = [job.enqueue("a") or "" for job in (again, buried, dropped)]
        results = [app.client.result(jid, timeout=60) for jid in jids[1:]]
        wait_until(lambda: stored(server, jids[0]))
        first = again.result(jids[0], timeout=0.05)
    assert first is not None
    found = [(each.outcome, each.error_class, each.error_message) for each in (first, *results)]  # type: ignore[union-attr]
    assert found == [(word, "KeyError", "'a'") for word in ("retry", "dead", "discarded")]
    assert not first.final
    with pytest.raises(ResultError, match="its outcome is retry: KeyError: 'a'"):
        first.get()


def test_the_last_outcome_wins(server: Server) -> None:
    """X-RESULT-8: a retry that succeeds replaces the failure."""
    app = App()
    runs: list[int] = []

    def work() -> int:
        runs.append(1)
        if len(runs) == 1:
            raise ValueError("first")
        return len(runs)

    job = app.job(name="Work", keep_result=60)(work)
    with running(app, server):
        jid = job.enqueue() or ""
        wait_until(lambda: (stored(server, jid) or {}).get("outcome") == "retry")
        client: Any = server.client()
        [(text, _)] = client.zrange("retry", 0, -1, withscores=True)
        client.zadd("retry", {text: 1})
        result = job.result(jid, timeout=60)
    assert result is not None
    assert (result.outcome, result.value, result.error_class) == ("done", 2, None)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (float("nan"), "nan has no JSON form"),
        ({1: 2}, "keys must be str"),
        ((1, 2), "is tuple, for which JSON has no type"),
        (object(), "for which JSON has no type"),
        ("x" * MAX_RESULT_BYTES, "the limit is 1,048,576"),
    ],
)
def test_a_value_that_cannot_be_kept_does_not_fail_the_job(
    server: Server, value: object, words: str
) -> None:
    """X-RESULT-5, X-RESULT-6: the work is done and must not run again; the reader learns why."""
    app = App()
    job = app.job(name="Work", keep_result=60)(lambda: value)
    with running(app, server):
        jid = job.enqueue() or ""
        result = job.result(jid, timeout=60)
        assert result is not None
        assert (result.outcome, result.value) == ("done", None)
        with pytest.raises(ResultError, match=words):
            result.get()
        wait_until(lambda: server.client().get("stat:processed") == b"1")
    assert not server.client().exists("retry", "dead", "stat:failed")


def test_middleware_does_not_hide_the_value(server: Server) -> None:
    """X-RESULT-3: the value of the function, not that of middleware."""
    app = App()

    @app.server_middleware.append
    def silent(job: Any, call_next: Any) -> None:
        call_next()

    job = app.job(name="Work", keep_result=60)(lambda: 5)
    with running(app, server):
        result = job.result(job.enqueue() or "", timeout=60)
    assert result is not None
    assert result.value == 5


def test_nothing_is_kept_unasked(server: Server) -> None:
    """X-RESULT-1: off by default, and no key is written."""
    app = App()
    job = app.job(name="Work")(lambda: 5)
    with running(app, server):
        jid = job.enqueue() or ""
        wait_until(lambda: server.client().get("stat:processed") == b"1")
        assert job.result(jid) is None
        assert job.result(jid, timeout=0.05) is None
    assert not server.client().keys("jobwire:result:*")


@pytest.mark.parametrize("keep", [0, -1, True, "60", 2e9])
def test_a_time_that_is_none_is_refused(keep: Any) -> None:
    """X-RESULT-1, PUSH-4."""
    with pytest.raises(ConfigError, match="keep_result"):
        App().job(name="Work", keep_result=keep)(lambda: 5)


def test_many_wait_over_one_connection(server: Server) -> None:
    """X-RESULT-7: threads and tasks wait for notices; nothing polls."""
    app = App()
    go = threading.Event()

    def work(number: int) -> int:
        go.wait(20)
        return number

    job = app.job(name="Work", keep_result=60)(work)
    with running(app, server, concurrency=5) as _, Client(server.url) as client:
        jids = [job.enqueue(number) or "" for number in range(30)]
        found: dict[str, Any] = {}
        threads = [
            threading.Thread(
                target=lambda jid=jid: found.update({jid: client.result(jid, timeout=60)})
            )
            for jid in jids
        ]
        for thread in threads:
            thread.start()
        plain: Any = server.client()

        def listeners() -> int:
            return sum("jobwire-notices" in each["name"] for each in plain.client_list())

        wait_until(lambda: listeners() == 1)
        before = plain.info("commandstats").get("cmdstat_get", {"calls": 0})["calls"]
        time.sleep(0.6)  # longer than a poll would pause
        after = plain.info("commandstats").get("cmdstat_get", {"calls": 0})["calls"]
        go.set()
        for thread in threads:
            thread.join(20)
    assert after - before <= 60  # the reads of those that began to wait meanwhile
    assert [found[jid].value for jid in jids] == list(range(30))


def test_asyncio_waits(server: Server) -> None:
    """X-RESULT-7: many tasks wait at once, and one waits in vain."""
    app = App()
    app.job(name="Work", keep_result=60)(lambda number: number)

    async def main() -> list[Any]:
        async with AsyncClient(server.url) as client:
            jids = [await client.push("Work", [number]) or "" for number in range(50)]
            none = client.result("0" * 24, timeout=0.3)
            return await asyncio.gather(*(client.result(jid, timeout=60) for jid in jids), none)

    with running(app, server):
        *results, none = asyncio.run(main())
    assert [each.value for each in results] == list(range(50))
    assert none is None


@pytest.mark.process
@pytest.mark.parametrize("count", [2_000, pytest.param(100_000, marks=pytest.mark.full)])
def test_a_reader_never_sees_an_outcome_without_its_value(server: Server, count: int) -> None:
    """X-RESULT-2: the reader looks at the counters and the results in one transaction."""
    app = App()
    job = app.job(name="Work", keep_result=600)(lambda number: number)
    app.connect(server.url)
    jids = job.enqueue_bulk([[number] for number in range(count)])
    client: Any = server.client()
    seen: list[int] = []
    with running(app, server, concurrency=5):
        while not seen or seen[-1] < count:
            pipe = client.pipeline(transaction=True)
            pipe.get("stat:processed")
            pipe.exists(*(f"jobwire:result:{jid}" for jid in jids))
            processed, kept = pipe.execute()
            assert kept == int(processed or 0)
            seen.append(kept)
    values = [json.loads(client.get(f"jobwire:result:{jid}"))["value"] for jid in jids]
    assert values == list(range(count))


SPEED = """
from jobwire import App
app = App()
app.job(name="Plain")(lambda number: number)
app.job(name="Kept", keep_result=600)(lambda number: number)
"""


@pytest.mark.process
@pytest.mark.timing
@FETCH
def test_jobs_that_keep_results_are_half_as_quick_or_better(
    server: Server, workers: Workers, tmp_path: Path, fetch: str
) -> None:
    """A2 of the acceptance: in turns, from one queue, in one worker process."""
    rates: dict[str, list[float]] = {"Plain": [], "Kept": []}
    (tmp_path / "jobs.py").write_text(SPEED)
    workers.start("jobs:app", "--redis", server.url, "--fetch", fetch, "--log-level", "error")
    client: Any = server.client()
    with Client(server.url) as producer:
        for turn in range(-1, 8):  # the first is for a warm worker, and not counted
            name = ("Plain", "Kept", "Kept", "Plain")[turn % 4]
            producer.push_bulk(name, [[number] for number in range(20_000)], queue="later")
            began = time.monotonic()
            client.rename("queue:later", "queue:default")  # all at once
            wait_until(lambda: not client.exists("queue:default"), 120)
            if turn >= 0:
                rates[name].append(20_000 / (time.monotonic() - began))
    wait_until(lambda: client.dbsize() > 80_000, 60, what="the results of four turns")
    plain, kept = (statistics.median(rates[name]) for name in ("Plain", "Kept"))
    figures = f"{fetch}: {plain:,.0f} jobs/s without results, {kept:,.0f} with: {kept / plain:.0%}"
    logging.getLogger(__name__).info(figures)  # shown by -o log_cli=true -o log_cli_level=INFO
    assert kept >= plain / 2, figures


def test_a_result_that_is_not_one(server: Server) -> None:
    """X-RESULT-7: a key that another program wrote may hold anything."""
    plain: Any = server.client()
    with Client(server.url) as client:
        for text in (b"", b"x", b"[]", b'{"outcome":"other"}', b"\xff", b"{}"):
            plain.set("jobwire:result:abc", text)
            assert client.result("abc") is None
        plain.set("jobwire:result:abc", b'{"outcome":"done","at":true,"error_class":5}')
        assert client.result("abc") == Result("abc", "done", 0.0)


def test_a_job_type_waits_in_asyncio(server: Server) -> None:
    """X-RESULT-3: like a client, through the client of the application for this event loop."""
    app = App(server.url)
    double = app.job(name="Double", keep_result=60)(lambda number: 2 * number)

    async def main() -> Any:
        try:
            jid = await double.aenqueue(21)
            assert jid is not None
            return await double.aresult(jid, timeout=60)
        finally:
            await app.aclient.close()

    with running(app, server):
        result = asyncio.run(main())
    assert result.get() == 42
