"""Failed jobs in a running worker, with each way of fetching."""

from __future__ import annotations

import gc
import io
import json
import logging
import time
import weakref
from typing import Any

import pytest

from harness.servers import Server, wait_until
from jobwire import App
from jobwire.application.config import FetchMode
from jobwire.worker.execute.joblog import set_up
from tests.workers import brisk, running

FETCH = pytest.mark.parametrize("fetch", ["reliable", "basic"])
# Each way to fetch, and each kind of job, but not all four pairs: neither knows of the other.
WAYS = pytest.mark.parametrize(
    ("fetch", "is_async"), [("reliable", False), ("basic", True)], ids=["sync", "async-basic"]
)


# Basic fetch writes its counters with the beat.
TIMINGS = brisk(heartbeat_interval=0.02, first_poll_wait=lambda _, jitter: 0.0)


RETRY = ("retry", 0)
DEAD = ("dead", 0)


def failing_app(generation: Any = "auto") -> App:
    app = App(generation=generation)

    def fail(*_: object) -> None:
        raise ValueError("boom")

    app.job(name="Fail")(fail)
    app.job(name="Three", retry=3)(fail)
    app.job(name="Zero", retry=0)(fail)
    app.job(name="Never", retry=False)(fail)
    return app


def push(server: Server, *payloads: dict[str, Any], queue: str = "default") -> None:
    client = server.client()
    client.lpush(f"queue:{queue}", *(json.dumps(payload) for payload in payloads))


def stored(server: Server, key: str) -> dict[str, tuple[dict[str, Any], float]]:
    """Return jid -> (payload, score) of a sorted set."""
    members: Any = server.client().zrange(key, 0, -1, withscores=True)
    found = [(json.loads(text), score) for text, score in members]
    return {payload["jid"]: (payload, score) for payload, score in found}


def members(server: Server, key: str) -> list[bytes]:
    found: Any = server.client().zrange(key, 0, -1)
    return list(found)


def processed(server: Server) -> int:
    return int(server.client().get("stat:processed") or 0)


def run_all(app: App, server: Server, count: int, **settings: Any) -> None:
    """Run until this many executions are counted. The counters are the last thing written."""
    with running(app, server, timings=TIMINGS, **settings):
        wait_until(lambda: processed(server) >= count)
    assert processed(server) == count


class NoText(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not today")


class Unnamed(type):
    @property
    def __module__(cls) -> str:  # type: ignore[override]
        raise RuntimeError("it has no module")


class UnnamedError(Exception, metaclass=Unnamed):
    pass


@pytest.mark.parametrize("is_async", [False, True])
def test_a_failed_job_leaves_no_work_for_the_garbage_collector(
    server: Server, is_async: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error and the frame that handled it must not hold each other."""
    monkeypatch.setattr(logging.root, "handlers", [])  # pytest's keep the records
    monkeypatch.setattr(logging.root, "level", logging.root.level)
    set_up("human", "info", stream=(log := io.StringIO()))
    app = App()
    errors: list[weakref.ref[BaseException]] = []

    def throw() -> None:
        error = NoText()  # can have weak references, unlike the built-in ones
        errors.append(weakref.ref(error))
        try:
            raise error
        finally:
            del error

    async def athrow() -> None:
        throw()

    app.job(name="Raise")(athrow if is_async else throw)
    push(server, {"class": "Raise", "jid": "j", "retry": True, "args": []})
    gc.collect()
    gc.disable()
    try:
        with running(app, server, concurrency=1):
            wait_until(lambda: server.client().zcard("retry"))
            wait_until(lambda: errors[0]() is None)
    finally:
        gc.enable()
    assert "    raise error\n" in log.getvalue()


@WAYS
def test_a_failure_that_cannot_be_recorded_kills_the_job(
    server: Server, fetch: FetchMode, is_async: bool
) -> None:
    """RETRY-3, REL-2: with the error of that, and death handlers hear of it."""
    app = App()
    heard: list[str] = []

    def throw() -> None:
        raise UnnamedError

    async def athrow() -> None:
        raise UnnamedError

    app.job(name="Raise")(athrow if is_async else throw)
    app.on_death(lambda job, error: heard.append(f"{job.jid} {error}"))
    push(server, {"class": "Raise", "jid": "j", "retry": True, "args": []})
    with running(app, server, concurrency=1, fetch=fetch) as launcher:
        wait_until(lambda: heard)
        wait_until(lambda: not launcher.busy)
        assert not server.client().keys("jobwire:private:*")
    assert heard == ["j it has no module"]
    ((dead, _),) = stored(server, "dead").values()
    assert dead["error_class"] == "RuntimeError"
    assert dead["error_message"] == "its outcome cannot be recorded: it has no module"
    assert not server.client().exists("retry", "queue:default")


@FETCH
def test_the_dead_set_is_trimmed_at_each_burial(server: Server, fetch: FetchMode) -> None:
    """DEAD-2, DEAD-3: by age, inclusive, and to one less than the limit."""
    client = server.client()
    now = time.time()
    client.zadd("dead", {"old": now - 1001, **{f"n{i}": now - 500 + i for i in range(6)}})
    push(server, {"class": "Fail", "args": [], "jid": "x", "retry": 0})
    run_all(failing_app(), server, 1, fetch=fetch, dead_limit=5, dead_max_age=1000.0)
    found = members(server, "dead")
    assert found[:3] == [b"n3", b"n4", b"n5"]
    assert len(found) == 4
    assert json.loads(found[3])["jid"] == "x"


@FETCH
def test_a_worker_may_drop_unknown_classes_as_sidekiq_does(
    server: Server, fetch: FetchMode, caplog: pytest.LogCaptureFixture
) -> None:
    """RETRY-1: only without `retry`; the log does not blame the job."""
    app = failing_app()
    push(
        server,
        {"class": "Nobody", "jid": "missing"},
        {"class": "Nobody", "jid": "null", "retry": None},
        {"class": "Nobody", "jid": "true", "retry": True},
        {"class": "Fail", "jid": "known", "args": []},
    )
    run_all(app, server, 4, fetch=fetch, unknown_jobs="sidekiq")
    assert set(stored(server, "retry")) == {"true", "known"}
    assert "dropped, because its class is unknown and unknown_jobs is sidekiq" in caplog.text
    assert "as the job asks for" not in caplog.text


def test_the_error_of_an_unknown_class_names_only_that_class(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """EXEC-2, PAY-16: the wrapped class for ActiveJob; the registered ones are in the log."""
    caplog.set_level("DEBUG")
    wrapper = "Sidekiq::ActiveJob::Wrapper"
    push(
        server,
        {"class": wrapper, "wrapped": "WelcomeJob", "jid": "wrapped"},
        {"class": "Absent", "jid": "plain"},
    )
    run_all(failing_app(), server, 2)
    errors = {jid: each["error_message"] for jid, (each, _) in stored(server, "retry").items()}
    remedy = "; import its module: App(imports=[...])"
    assert errors == {
        "wrapped": f"no job is registered for class 'WelcomeJob', which {wrapper} wraps{remedy}",
        "plain": f"no job is registered for class 'Absent'{remedy}",
    }
    assert "registered classes: Fail, Never, Three, Zero" in caplog.text
    assert "did you mean" not in caplog.text


def test_the_log_suggests_a_class_with_a_similar_name(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """PAY-16: only the log; the payload does not name registered classes."""
    push(server, {"class": "Thre", "jid": "slip"})
    run_all(failing_app(), server, 1)
    [(payload, _)] = stored(server, "retry").values()
    assert "Three" not in json.dumps(payload)
    assert "did you mean 'Three'?" in caplog.text
