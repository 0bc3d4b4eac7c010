"""Code of the application that the worker calls: hooks, handlers, events, wrappers."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import pytest

from harness.servers import Server, wait_until
from jobwire import App, JobType, TryAgain, current_job
from jobwire.active_job import GlobalID, Symbol
from jobwire.application.config import FetchMode
from jobwire.application.propagation import CurrentAttributes
from jobwire.connection import resources
from jobwire.errors import ConfigError, InvalidArgument
from jobwire.protocol.payload import Job
from tests.apps import isolated
from tests.integration.clients import push_job, scored
from tests.workers import running

FIXTURES = resources.path("fixtures")
# Each way to fetch, and each kind of job, but not all four pairs: neither knows of the other.
WAYS = pytest.mark.parametrize(
    ("fetch", "is_async"), [("reliable", False), ("basic", True)], ids=["sync", "async-basic"]
)
KIND = pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])


def failing(app: App, is_async: bool = False, **options: Any) -> JobType[[str], Any]:
    """Define a job that raises its argument."""
    if is_async:

        @app.job(name="Fail", **options)
        async def afail(text: str) -> None:
            raise ValueError(text)

        return afail

    @app.job(name="Fail", **options)
    def fail(text: str) -> None:
        raise ValueError(text)

    return fail


# -- retry_in


@pytest.mark.parametrize(
    ("choice", "least"),
    [
        *[(100, 100), (100.5, 100.5), (0, 15), (-5, 15), (None, 15), ("soon", 15)],
        *[(float("nan"), 15), (2**1024, 15), (2**20_000, 15), (True, 15)],
    ],
    ids=lambda value: f"{value!r:.20}" if not isinstance(value, int) or value < 1000 else "huge",
)
def test_a_hook_chooses_the_delay(server: Server, choice: Any, least: float) -> None:
    """RETRY-11, RETRY-24: seconds above 0 replace the formula's, and jitter is added."""
    app = App()
    fail = failing(app)
    seen: list[Any] = []

    @fail.retry_in
    def _(job: Job, error: BaseException, count: int) -> Any:
        seen.append((count, str(error), job.jid))
        return choice

    push_job(server, "Fail", "boom", retry=True)
    with running(app, server):
        ((payload, score),) = wait_until(lambda: scored(server, "retry"))
    assert seen == [(0, "boom", "ab" * 12)]
    delay = score - payload["failed_at"] / 1000
    assert least - 0.01 <= delay < least + 10.01


def test_the_exhausted_hook_keeps_a_job_out_of_the_grave(server: Server) -> None:
    """RETRY-28: death handlers are still called."""
    app = App()
    fail = failing(app)
    fail.exhausted(lambda job, error: "discard")
    deaths: list[Job] = []
    app.on_death(lambda job, error: deaths.append(job))
    push_job(server, "Fail", "boom", retry=0)
    with running(app, server):
        wait_until(lambda: deaths)
    assert "discarded_at" in deaths[0].fields
    assert scored(server, "dead") == []


# -- the end of a job


@WAYS
def test_an_error_that_the_job_foresaw_is_nobodys_business(
    server: Server, fetch: FetchMode, is_async: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """RETRY-2, RETRY-5: retried and logged below a warning; handlers see only its last try."""
    caplog.set_level(logging.INFO)

    class RateLimited(TryAgain):
        pass

    app = App()
    heard: list[Any] = []
    app.on_error(lambda job, error: heard.append((job.jid, str(error))))
    app.on_death(lambda job, error: heard.append((job.jid, "dead")))

    def work(text: str) -> None:
        raise RateLimited(text) if text == "later" else ValueError(text)

    async def awork(text: str) -> None:
        work(text)

    app.job(name="Fail")(awork if is_async else work)
    push_job(server, "Fail", "later", jid="first", retry=True)
    push_job(server, "Fail", "boom", jid="other", retry=True)
    push_job(server, "Fail", "later", jid="last", retry=1, retry_count=0)
    push_job(server, "Fail", "later", jid="only", retry=False)
    with running(app, server, concurrency=1, fetch=fetch):
        wait_until(lambda: len(heard) >= 5)  # the queue is empty earlier because of prefetching
    assert sorted(heard) == [
        ("last", "dead"), ("last", "later"), ("only", "dead"), ("only", "later"), ("other", "boom"),
    ]  # fmt: skip
    payloads = {payload["jid"]: payload for payload, _ in scored(server, "retry")}
    assert payloads.keys() == {"first", "other"}
    assert payloads["first"]["error_class"].endswith("RateLimited")
    assert payloads["first"]["error_message"] == "later"
    assert server.client().get("stat:failed") == b"4"
    fails = [record for record in caplog.records if "fail: " in record.getMessage()]
    levels = [record.levelname for record in fails]
    assert sorted(levels) == ["ERROR", "ERROR", "INFO", "WARNING"]
    assert [record.exc_info is None for record in fails] == [name == "INFO" for name in levels]


@pytest.mark.process
def test_what_an_isolated_job_foresaw(
    server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """RETRY-2: the process of the job reports whether the error is a TryAgain."""
    caplog.set_level(logging.INFO)
    app, heard = isolated.app, []
    monkeypatch.setattr(app, "error_handlers", [lambda job, error: heard.append(str(error))])
    for name in ("Later", "Raise"):
        push_job(server, "Fail", "boom", **{"class": name}, retry=True)
    with running(app, server):
        wait_until(lambda: len(scored(server, "retry")) == 2 and heard)
    assert heard == ["tests.apps.isolated.BrokenError: boom"]
    (line,) = [line for line in caplog.records if "RateLimitedError: boom" in line.getMessage()]
    assert line.levelname == "INFO"


@WAYS
def test_a_hook_that_exits_costs_neither_job_nor_thread(
    server: Server, fetch: FetchMode, is_async: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """RETRY-11, RETRY-13: SystemExit in a hook is an ordinary error."""
    app = App()
    fail = failing(app, is_async)
    heard: list[str] = []

    def leave(what: str) -> Any:
        heard.append(what)
        sys.exit(what)

    fail.retry_in(lambda job, error, count: leave("retry_in"))
    fail.exhausted(lambda job, error: leave("exhausted"))
    app.on_death(lambda job, error: leave("death"))
    app.on_error(lambda job, error: leave("error"))
    app.on("beat")(lambda: leave("beat"))
    for number in range(3):  # more jobs than threads
        push_job(server, "Fail", number, retry=5)
        push_job(server, "Fail", number, retry=0)
    with running(app, server, concurrency=1, fetch=fetch) as worker:
        wait_until(lambda: heard.count("error") == 6)
        wait_until(lambda: not worker.busy)
    assert heard.count("beat") >= 2  # at the start and at the end
    counts = {what: heard.count(what) for what in heard if what != "beat"}
    assert counts == {"retry_in": 3, "exhausted": 3, "death": 3, "error": 6}
    assert len(scored(server, "retry")) == len(scored(server, "dead")) == 3
    assert server.client().get("stat:failed") == b"6"
    assert server.client().llen("queue:default") == 0
    assert caplog.text.count("failed and is ignored") == 15


def test_a_job_that_others_recovered_has_no_death_here(server: Server) -> None:
    """RETRY-13, REL-2: its outcome was dropped, so no handler is called."""
    app = App()
    entered, go = threading.Event(), threading.Event()

    @app.job(name="Fail")
    def fail(text: str) -> None:
        entered.set()
        go.wait(60)
        raise ValueError(text)

    deaths: list[Job] = []
    app.on_death(lambda job, error: deaths.append(job))
    push_job(server, "Fail", "boom", retry=0)
    with running(app, server) as worker:
        assert entered.wait(60)
        server.client().delete(f"jobwire:private:{worker.identity}")
        go.set()
        wait_until(lambda: server.client().get("jobwire:stat:lost"))
    assert deaths == []
    assert scored(server, "dead") == []


def test_a_slow_error_handler_holds_up_no_outcome(server: Server) -> None:
    """REL-2: the retry is stored before any handler is called."""
    app = App()
    failing(app)
    stored = threading.Event()
    told: list[bool] = []
    app.on_error(lambda job, error: told.append(stored.wait(60)))
    push_job(server, "Fail", "boom", retry=True)
    with running(app, server):
        wait_until(lambda: scored(server, "retry"), timeout=60)
        stored.set()
        wait_until(lambda: told)
    assert told == [True]


# -- events


def test_events_come_in_order_and_the_last_ones_backwards(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """SIG-1, SIG-2, BEAT-1: a broken callback stops no other."""
    app = App()
    heard: list[str] = []
    for event in ("startup", "heartbeat", "beat", "quiet", "shutdown", "exit"):
        for number in (1, 2):
            app.on(event)(lambda event=event, number=number: heard.append(f"{event} {number}"))

    @app.on("beat")
    def _() -> None:
        raise LookupError

    @app.on("startup")
    async def _() -> None:
        await asyncio.sleep(0)
        heard.append("startup, async")

    with running(app, server) as worker:
        begun = heard.copy()
        worker.quiet()
        worker.quiet()
    assert begun[:3] == ["startup 1", "startup 2", "startup, async"]
    assert begun[3:7] == ["heartbeat 1", "heartbeat 2", "beat 1", "beat 2"]
    ends = [word for word in heard if word.split()[0] in ("quiet", "shutdown", "exit")]
    assert ends == ["quiet 2", "quiet 1", "shutdown 2", "shutdown 1", "exit 2", "exit 1"]
    assert "callback for beat failed" in caplog.text


def test_an_error_at_startup_ends_the_worker_before_it_takes_a_job(server: Server) -> None:
    """SIG-1: a worker that could not start completely does not run."""
    app = App()
    failing(app)
    app.on("startup")(lambda: 1 / 0)
    push_job(server, "Fail", "boom")
    with pytest.raises(ZeroDivisionError), running(app, server):
        pass
    assert server.client().llen("queue:default") == 1


def test_there_is_no_other_event() -> None:
    with pytest.raises(ConfigError, match="unknown event 'start'; expected one of startup, quiet"):
        App().on("start")  # type: ignore[arg-type]


# -- around each job


@KIND
def test_a_wrapper_surrounds_each_execution(server: Server, is_async: bool) -> None:
    """EXEC-6: inside middleware, in the job's thread or task; the wrapper sees errors."""
    app = App()
    steps: list[str] = []

    @app.wrap
    @contextmanager
    def _(job: Job) -> Iterator[None]:
        assert current_job() is job
        steps.append(f"in {job.args[0]}")
        try:
            yield
        except ValueError as error:
            steps.append(f"raised {error}")
            raise
        finally:
            steps.append("out")

    failing(app, is_async)
    push_job(server, "Fail", "boom", retry=False)
    with running(app, server):
        wait_until(lambda: server.client().get("stat:failed"))
    assert steps == ["in boom", "raised boom", "out"]


@KIND
@pytest.mark.parametrize("middleware", ["none", "sync", "async"])
def test_a_wrapper_may_stand_outside_of_middleware(
    server: Server, is_async: bool, middleware: str
) -> None:
    """EXEC-6: also outside of other wrappers, however the job and the middleware run."""
    app = App()
    steps: list[str] = []

    def named(name: str) -> Any:
        @contextmanager
        def around(job: Job) -> Iterator[None]:
            steps.append(f"{name} in")
            try:
                yield
            finally:
                steps.append(f"{name} out")

        return around

    def layer(job: Job, call_next: Any) -> Any:
        steps.append("middleware")
        return call_next()

    async def alayer(job: Job, call_next: Any) -> Any:
        steps.append("middleware")
        return await call_next()

    app.wrap(named("inner"))
    app.wrap(outermost=True)(named("outer"))
    if middleware != "none":
        app.server_middleware.add(layer if middleware == "sync" else alayer)
    failing(app, is_async)
    push_job(server, "Fail", "boom", retry=False)
    with running(app, server):
        wait_until(lambda: server.client().get("stat:failed"))
    between = [] if middleware == "none" else ["middleware"]
    assert steps == ["outer in", *between, "inner in", "inner out", "outer out"]


@KIND
def test_context_variables_travel_with_a_job(server: Server, is_async: bool) -> None:
    """PAY-7: they arrive with the job and end with it; fields of Ruby stay unchanged."""
    app = App(server.url)
    tenant: ContextVar[str] = ContextVar("tenant", default="none")
    locale: ContextVar[str] = ContextVar("locale")
    app.propagate(tenant=tenant, locale=locale)
    seen: list[Any] = []

    def note() -> None:
        job = current_job()
        assert job is not None
        seen.append((tenant.get(), locale.get("unset"), job.get("jw_context"), job.get("cattr")))

    if is_async:

        @app.job(name="Note")
        async def anote() -> None:
            note()
    else:
        app.job(name="Note")(note)
    token = tenant.set("acme")
    app.client.push("Note", fields={"cattr": {"user": 1}})
    tenant.reset(token)
    app.client.push("Note")
    with running(app, server, concurrency=1):
        wait_until(lambda: len(seen) == 2)
    assert seen == [
        ("acme", "unset", {"tenant": "acme"}, {"user": 1}),
        ("none", "unset", None, None),
    ]


def test_current_attributes_of_rails_arrive_and_stay_as_they_are(server: Server) -> None:
    """PAY-7, PAY-13: the recorded payloads of each version give their values, in both forms."""
    app = App(server.url)
    variables: dict[str, ContextVar[Any]] = {
        name: ContextVar(name, default="unset") for name in ("user_id", "tenant", "locale")
    }
    app.current_attributes(user_id=variables["user_id"], tenant=variables["tenant"])
    app.current_attributes("cattr_1", locale=variables["locale"])
    seen: dict[bytes, Any] = {}

    @app.job(name="CattrEchoJob")
    def fail(*_: Any) -> None:
        job = current_job()
        assert job is not None
        seen[job.text] = {name: var.get() for name, var in variables.items()}
        raise ValueError("to be retried")

    recorded = [
        entry["payload"].encode()
        for version in ("6.4.1", "7.3.2", "8.1.7")
        for entry in json.loads((FIXTURES / "sidekiq" / version / "payloads.json").read_text())
        if entry["scenario"].startswith("cattr") and entry["place"] == "queue:default"
    ]
    redis = server.client()
    redis.lpush("queue:default", *recorded)
    with running(app, server, concurrency=1):
        wait_until(lambda: redis.zcard("retry") == len(recorded))
    assert len(seen) == len(recorded)
    for text, values in seen.items():
        pairs: dict[str, Any] = {}
        for stored in map(json.loads(text).get, ("cattr", "cattr_1")):
            if isinstance(stored, dict):  # up to Sidekiq 7, and where the code gave the field
                pairs |= stored
            else:
                pairs |= {name["value"]: value for name, value in stored or ()}
        assert values == {name: pairs.get(name, "unset") for name in variables}

    def carried(payloads: Iterable[bytes]) -> list[Any]:
        fields = sorted(map(json.loads, payloads), key=lambda payload: str(payload["jid"]))
        return [(each["jid"], each.get("cattr"), each.get("cattr_1")) for each in fields]

    assert carried(redis.zrange("retry", 0, -1)) == carried(recorded)


def test_current_attributes_have_the_values_of_active_job() -> None:
    """PAY-13: a value of neither form sets nothing; pairs that cannot be read fail the job."""
    user: ContextVar[Any] = ContextVar("user", default="unset")

    def read(stored: object) -> Any:
        job = Job(b"", {"cattr": stored}, "default")
        with CurrentAttributes("cattr", {"user": user}).restore(job):
            return user.get()

    symbol = {"_aj_serialized": "ActiveJob::Serializers::SymbolSerializer", "value": "ada"}
    record = {"_aj_globalid": "gid://shop/User/7"}
    assert read([["user", symbol]]) == Symbol("ada")
    assert read([["user", record], [7, "not a name"]]) == GlobalID("gid://shop/User/7")
    assert read({"user": record}) == record, "Sidekiq 7 writes plain JSON"
    others: tuple[object, ...] = (None, 7, "user", {}, [])
    for neither in others:
        assert read(neither) == "unset"
    broken: tuple[object, ...] = ([7], ["user"], [["user", {"_aj_globalid": "x"}]], [["a", 1, 2]])
    for unreadable in broken:
        with pytest.raises(InvalidArgument, match="cattr"):
            read(unreadable)
    assert user.get() == "unset"


@KIND
@pytest.mark.parametrize("raises", [False, True])
def test_context_variables_of_a_job_do_not_reach_the_next_one(
    server: Server, is_async: bool, raises: bool
) -> None:
    """EXEC-1: also in the same thread, whether the first job failed or not."""
    app = App(server.url)
    tenant: ContextVar[str] = ContextVar("tenant", default="none")
    seen: list[str] = []

    def work(name: str) -> None:
        seen.append(tenant.get())
        tenant.set(name)
        if raises:
            raise ValueError(name)

    if is_async:

        @app.job(name="Work", retry=False)
        async def awork(name: str) -> None:
            work(name)
    else:
        app.job(name="Work", retry=False)(work)
    app.client.push_bulk("Work", [["acme"], ["globex"], ["initech"]], retry=False)
    with running(app, server, concurrency=1):
        wait_until(lambda: len(seen) == 3)
    assert seen == ["none"] * 3


# -- sync and async middleware


@pytest.mark.parametrize("job_is_async", [False, True], ids=["sync-job", "async-job"])
@pytest.mark.parametrize("kinds", ["s", "a", "sa", "as", "sas", "asa"])
def test_any_middleware_surrounds_any_job(server: Server, kinds: str, job_is_async: bool) -> None:
    """EXEC-6: in order, with the result of the job; an error passes through all of it."""
    app = App()
    steps: list[Any] = []

    def sync(name: str) -> Any:
        def middleware(job: Job, call_next: Any) -> Any:
            steps.append(name)
            try:
                result = call_next()
            finally:
                steps.append(f"/{name}")
            steps.append(result)
            return result

        return middleware

    def asynchronous(name: str) -> Any:
        async def middleware(job: Job, call_next: Any) -> Any:
            steps.append(name)
            try:
                result = await call_next()
            finally:
                steps.append(f"/{name}")
            steps.append(result)
            return result

        return middleware

    names = [f"{kind}{index}" for index, kind in enumerate(kinds)]
    app.server_middleware += [
        sync(name) if name[0] == "s" else asynchronous(name) for name in names
    ]
    jobs: list[Any] = []

    def work(fails: bool) -> str:
        jobs.append(current_job())
        if fails:
            raise ValueError
        return "result"

    if job_is_async:

        @app.job(name="Fail")
        async def awork(fails: bool) -> str:
            return work(fails)
    else:
        app.job(name="Fail")(work)

    push_job(server, "Fail", False)
    push_job(server, "Fail", True, retry=False)
    with running(app, server, concurrency=1):
        wait_until(lambda: server.client().get("stat:processed") == b"2")
    back = [f"/{name}" for name in reversed(names)]
    inward = [step for name in back for step in (name, "result")]
    assert steps == [*names, *inward, *names, *back]
    assert all(isinstance(job, Job) for job in jobs)


@KIND
def test_a_class_is_made_anew_for_each_job(server: Server, is_async: bool) -> None:
    """EXEC-6: so that an object can keep state about one job."""
    app = App()
    made: list[Any] = []

    class Keeping:
        def __init__(self, label: str) -> None:
            made.append((label, self))

        def __call__(self, job: Job, call_next: Any) -> Any:
            return call_next()

    app.server_middleware.add(Keeping, "x")
    failing(app, is_async)
    push_job(server, "Fail", "boom", retry=False)
    push_job(server, "Fail", "boom", retry=False)
    with running(app, server):
        wait_until(lambda: server.client().get("stat:processed") == b"2")
    assert [label for label, _ in made] == ["x", "x"]
    assert made[0][1] is not made[1][1]
