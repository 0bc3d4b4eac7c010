"""Failed jobs in a running worker, with each way of fetching."""

from __future__ import annotations

import base64
import gc
import io
import json
import logging
import time
import weakref
import zlib
from typing import Any

import pytest

from harness.servers import Server, wait_until
from jobwire import App
from jobwire.application.config import FetchMode
from jobwire.worker.execute.joblog import set_up
from tests.workers import brisk, running

FETCH = pytest.mark.parametrize("fetch", ["reliable", "basic"])


# Basic fetch writes its counters with the beat.
TIMINGS = brisk(heartbeat_interval=0.02, first_poll_wait=lambda _, jitter: 0.0)


NOW = time.time()

RETRY = ("retry", 0)
DEAD = ("dead", 0)
GONE = ("gone", None)

# name: payload fields besides args -> (set, retry_count in it)
OUTCOMES: dict[str, tuple[dict[str, Any], tuple[str, int | None]]] = {
    "true": ({"retry": True}, RETRY),
    "true, last retry ahead": ({"retry": True, "retry_count": 23}, ("retry", 24)),
    "true, last retry failed": ({"retry": True, "retry_count": 24}, ("dead", 25)),
    "1, first run": ({"retry": 1}, RETRY),
    "1, second run": ({"retry": 1, "retry_count": 0}, ("dead", 1)),
    "3, third run": ({"retry": 3, "retry_count": 1}, ("retry", 2)),
    "3, fourth run": ({"retry": 3, "retry_count": 2}, ("dead", 3)),
    "30 is more than the default": ({"retry": 30, "retry_count": 28}, ("retry", 29)),
    "0": ({"retry": 0}, DEAD),
    "negative": ({"retry": -1}, DEAD),
    "false": ({"retry": False}, GONE),
    "null, defined": ({"retry": None}, RETRY),
    "missing, defined": ({}, RETRY),
    "missing, definition says 3": ({"class": "Three", "retry_count": 2}, ("dead", 3)),
    "null, definition says 3": ({"class": "Three", "retry": None}, RETRY),
    "missing, definition says 0": ({"class": "Zero"}, DEAD),
    "missing, definition says false": ({"class": "Never"}, GONE),
    "the payload has the last word": ({"class": "Never", "retry": True}, RETRY),
    "missing, unknown class": ({"class": "Nobody"}, RETRY),
    "null, unknown class": ({"class": "Nobody", "retry": None}, RETRY),
    "false, unknown class": ({"class": "Nobody", "retry": False}, GONE),
    "true, unknown class": ({"class": "Nobody", "retry": True}, RETRY),
    "text": ({"retry": "yes"}, RETRY),
    "text of a number": ({"retry": "3", "retry_count": 24}, ("dead", 25)),
    "empty text": ({"retry": ""}, RETRY),
    "1.0": ({"retry": 1.0, "retry_count": 5}, ("retry", 6)),
    "array": ({"retry": []}, RETRY),
    "object": ({"retry": {}}, RETRY),
    "count null is none": ({"retry": 1, "retry_count": None}, RETRY),
    "dead false": ({"retry": 0, "dead": False}, GONE),
    "dead false, not exhausted": ({"retry": True, "dead": False}, RETRY),
    "dead null": ({"retry": 0, "dead": None}, DEAD),
    "dead 0 is not false": ({"retry": 0, "dead": 0}, DEAD),
    "retry_for 0": ({"retry": True, "retry_for": 0}, DEAD),
    "retry_for begins": ({"retry": True, "retry_for": 60}, RETRY),
    "retry_for over, seconds": (
        {"retry": True, "retry_for": 60, "retry_count": 0, "failed_at": NOW - 61.5},
        ("dead", 1),
    ),
    "retry_for over, milliseconds": (
        {"retry": True, "retry_for": 60, "retry_count": 0, "failed_at": int(NOW * 1000) - 61_500},
        ("dead", 1),
    ),
    "retry_for replaces the count": (
        {"retry": 2, "retry_for": 3600, "retry_count": 90, "failed_at": NOW - 5.5},
        ("retry", 91),
    ),
    "retry_for replaces 0": ({"retry": 0, "retry_for": 3600}, RETRY),
    "retry_for null": ({"retry": 0, "retry_for": None}, DEAD),
    "retry_for false": ({"retry": 0, "retry_for": False}, DEAD),
}


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


@FETCH
def test_every_value_of_retry(server: Server, fetch: FetchMode) -> None:
    """RETRY-1, RETRY-2, RETRY-5, RETRY-6, DEAD-1, DEAD-4, EXEC-2."""
    payloads = [
        {"class": "Fail", "args": [1], "jid": name, "queue": "default", **fields}
        for name, (fields, _) in OUTCOMES.items()
    ]
    push(server, *payloads)
    began = time.time()
    run_all(failing_app(), server, len(payloads), fetch=fetch)

    in_retry, in_dead = stored(server, "retry"), stored(server, "dead")
    places = {
        **{name: ("retry", payload["retry_count"]) for name, (payload, _) in in_retry.items()},
        **{name: ("dead", payload["retry_count"]) for name, (payload, _) in in_dead.items()},
    }
    expected = {name: outcome for name, (_, outcome) in OUTCOMES.items()}
    assert {name: places.get(name, GONE) for name in OUTCOMES} == expected
    assert not in_retry.keys() & in_dead.keys()
    assert int(server.client().get("stat:failed") or 0) == len(payloads)
    for payload, score in in_retry.values():
        count = payload["retry_count"]  # RETRY-4
        least = min(count, 200) ** 4 + 15
        assert began + least <= score < time.time() + least + 10 * (count + 1)
    assert all(began <= score <= time.time() for _, score in in_dead.values())
    # The option that decided is stored, so that another worker decides alike. [RETRY-1]
    assert in_retry["missing, defined"][0]["retry"] is True
    assert in_dead["missing, definition says 3"][0]["retry"] == 3
    assert in_retry["true, unknown class"][0]["error_class"].endswith("UnknownJob")
    assert "Nobody" in in_retry["true, unknown class"][0]["error_message"]
    assert server.client().keys("jobwire:private:*") == []


@pytest.mark.parametrize("generation", [7, 8])
def test_times_are_those_of_the_generation(server: Server, generation: int) -> None:
    """RETRY-2: the first failure sets failed_at, later ones retried_at only. GEN-4."""
    push(
        server,
        {"class": "Fail", "args": [], "jid": "first", "retry": True},
        {"class": "Fail", "args": [], "jid": "later", "retry_count": 0, "failed_at": 1.5e9 + 0.25},
    )
    began = time.time()
    run_all(failing_app(generation), server, 2)
    found = stored(server, "retry")
    first, later = found["first"][0], found["later"][0]
    unit = 1 if generation == 7 else 1000
    assert type(first["failed_at"]) is (float if generation == 7 else int)
    assert began - 0.001 <= first["failed_at"] / unit <= time.time()
    assert "retried_at" not in first
    assert later["failed_at"] == 1.5e9 + 0.25
    assert began - 0.001 <= later["retried_at"] / unit <= time.time()


def test_stored_queue_is_retry_queue_or_where_it_was_fetched(server: Server) -> None:
    """RETRY-7: with any payload."""
    base = {"class": "Fail", "args": [], "retry": True}
    push(
        server,
        {**base, "jid": "named", "queue": "default", "retry_queue": "low"},
        {**base, "jid": "lies", "queue": "elsewhere"},
        {**base, "jid": "silent"},
        {**base, "jid": "null", "queue": "default", "retry_queue": None},
    )
    run_all(failing_app(), server, 4)
    queues = {jid: payload["queue"] for jid, (payload, _) in stored(server, "retry").items()}
    assert queues == {"named": "low", "lies": "default", "silent": "default", "null": "default"}


class NoText(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not today")


class NotEvenThat(Exception):
    def __str__(self) -> str:
        raise SystemExit(3)


class OddText(str):
    __slots__ = ()

    def __getitem__(self, index: Any) -> str:
        raise RuntimeError("not a part of it")


class OddError(Exception):
    def __str__(self) -> str:
        return OddText("odd")


class Unnamed(type):
    @property
    def __module__(cls) -> str:  # type: ignore[override]
        raise RuntimeError("it has no module")


class UnnamedError(Exception, metaclass=Unnamed):
    pass


ERRORS: dict[str, tuple[BaseException, str]] = {
    "plain": (ValueError("boom"), "boom"),
    "empty": (ValueError(), ""),
    "surrogate": (ValueError("a\ud800b"), "a\ufffdb"),
    "pair": (ValueError("\ud83d\ude00"), "\U0001f600"),
    "long": (ValueError("ä" * 20_000), "ä" * 10_000),
    "NUL and newline": (ValueError("a\0b\nc"), "a\0b\nc"),
    "raising str": (NoText(), "!!! ERROR MESSAGE THREW AN ERROR !!!"),
    "exiting str": (NotEvenThat(), "!!! ERROR MESSAGE THREW AN ERROR !!!"),
    "odd str": (OddError(), "odd"),
    "odd class": (type("Odd", (Exception,), {"__module__": "a\ud800b"})("boom"), "boom"),
}


def test_any_error_message_fits_into_the_payload(server: Server) -> None:
    """RETRY-3: 10,000 characters, valid UTF-8; error_class is the class's name."""
    app = App()

    @app.job(name="Raise")
    def throw(name: str) -> None:
        raise ERRORS[name][0]

    push(server, *({"class": "Raise", "args": [n], "jid": n, "retry": True} for n in ERRORS))
    run_all(app, server, len(ERRORS))
    found = stored(server, "retry")
    messages = {name: payload["error_message"] for name, (payload, _) in found.items()}
    assert messages == {name: message for name, (_, message) in ERRORS.items()}
    assert found["plain"][0]["error_class"] == "ValueError"
    assert found["raising str"][0]["error_class"] == f"{__name__}.NoText"
    assert found["odd class"][0]["error_class"] == "a\ufffdb.Odd"


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


@FETCH
@pytest.mark.parametrize("is_async", [False, True])
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


def test_backtrace_keeps_as_many_lines_as_asked(server: Server) -> None:
    """RETRY-8, RETRY-22: base64 of zlib of a JSON array, innermost call first."""
    app = App()

    def outer() -> None:
        raise ValueError("deep")

    @app.job(name="Deep")
    def deep() -> None:
        outer()

    wanted = {"true": True, "one": 1, "false": False, "null": None, "9": 9}
    push(
        server,
        *({"class": "Deep", "args": [], "jid": n, "backtrace": v} for n, v in wanted.items()),
    )
    run_all(app, server, len(wanted))
    found = {jid: payload for jid, (payload, _) in stored(server, "retry").items()}

    def lines(name: str) -> list[str]:
        packed = base64.b64decode(found[name]["error_backtrace"], validate=True)
        unpacked = json.loads(zlib.decompress(packed))
        assert isinstance(unpacked, list)
        return unpacked

    assert "in 'outer'" in lines("true")[0]
    assert "in 'deep'" in lines("true")[1]
    assert lines("one") == lines("true")[:1]
    assert lines("9") == lines("true")[:9]
    assert "error_backtrace" not in found["false"]
    assert "error_backtrace" not in found["null"]


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


def test_a_job_runs_once_more_than_its_retries(server: Server) -> None:
    """RETRY-5, RETRY-9: `retry: 2` is three runs, then the dead set; fields survive (PAY-7)."""
    app = App()
    runs: list[Any] = []

    @app.job(name="Thrice")
    def thrice(value: Any) -> None:
        runs.append(value)
        raise ValueError("again")

    number = 10**40
    text = f'{{"class":"Thrice","args":[{number}],"jid":"j","retry":2,"x":1.50,"jw_y":"\\u00e4"}}'
    client = server.client()
    client.lpush("queue:default", text)
    with running(app, server, poll_interval=0.02, timings=TIMINGS):
        for count in range(2):
            wait_until(lambda: client.zcard("retry"))
            (member,) = members(server, "retry")
            assert json.loads(member)["retry_count"] == count
            client.zadd("retry", {member.decode(): time.time()})
            wait_until(lambda count=count: len(runs) == count + 2)  # type: ignore[misc]
        wait_until(lambda: client.zcard("dead"))
    assert runs == [number] * 3
    (member,) = members(server, "dead")
    assert f'"args":[{number}]'.encode() in member
    assert b'"x":1.50' in member
    assert '"jw_y":"ä"'.encode() in member  # the spelling of Sidekiq, which finds members by it
    assert json.loads(member)["retry_count"] == 2


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
