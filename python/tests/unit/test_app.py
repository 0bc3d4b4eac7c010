"""jobwire.application.app: job definitions, and calls that `enqueue` refuses before sending."""

from __future__ import annotations

import asyncio
import contextvars
import re
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from datetime import date
from typing import Any
from uuid import UUID

import pytest

from jobwire import App, ConfigError, Cursor, InvalidJob, current_job, testing
from jobwire.application.current import running
from jobwire.application.jobtype import JobType
from jobwire.errors import JobwireError
from jobwire.protocol.payload import decode
from tests.rows import over

NOWHERE = "redis://127.0.0.1:1/0"  # no server listens: a call that connects was not refused


def sample(a: int, b: str = "x", *, flag: bool = False) -> tuple[int, str, bool]:
    """Return the arguments."""
    return a, b, flag


def sample_of_any(value): ...  # type: ignore[no-untyped-def]


def bound(job: JobType[..., Any], *args: Any, **kwargs: Any) -> list[Any]:
    return job.parameters.bind(args, kwargs)


def test_a_bare_decorator_takes_the_functions_name() -> None:
    app = App()
    job = app.job(sample)
    assert (job.name, job.defaults, job.is_async) == ("sample", {}, False)
    assert app.jobs == {"sample": job}
    assert job.__doc__ == "Return the arguments."
    assert repr(job) == "<JobType sample>"


def test_a_name_and_options() -> None:
    app = App()
    job = app.job(name="Reports::Monthly", queue="low", retry=3)(sample)
    assert (job.name, job.defaults) == ("Reports::Monthly", {"queue": "low", "retry": 3})
    assert list(app.jobs) == ["Reports::Monthly"]


def test_rules_choose_the_queue_of_a_job_that_names_none() -> None:
    """By class, tags and options; a queue of its own wins, and a worker serves them all."""

    def route(name: str, options: Mapping[str, Any]) -> str | None:
        if "slow" in options.get("tags", ()):
            return "slow"
        return "reports" if name.startswith("Reports::") else None

    app = App(queue="shop", route=route)
    queues = {
        "Reports::Monthly": app.job(name="Reports::Monthly")(sample).queue,
        "Reports::Yearly": app.job(name="Reports::Yearly", tags=["slow"])(sample).queue,
        "Reports::Own": app.job(name="Reports::Own", queue="own")(sample).queue,
        "Other": app.job(name="Other")(sample).queue,
    }
    assert [*queues.values()] == ["reports", "slow", "own", "shop"]
    assert {*app.queues} == {"default", *queues.values()}
    assert app.jobs["Other"].options(queue="x").queue == "x"
    assert App().job(sample).queue == "default"
    with testing.fake(app) as jobs:
        app.jobs["Reports::Monthly"].enqueue(1)
        (pushed,) = jobs.enqueued()
    assert pushed.queue == "reports"
    with pytest.raises(ConfigError, match=r"'Bad': route: .*queue"):
        App(route=lambda name, options: "").job(name="Bad")(sample)


def test_options_of_the_application_are_those_of_every_job() -> None:
    """The job's own win. `retry` and `retry_for` are two ways to say one thing."""
    app = App(backtrace=True, retry=5, queue="shop", tags=["shop"])
    assert app.job(sample).defaults == {
        "backtrace": True, "retry": 5, "queue": "shop", "tags": ["shop"],
    }  # fmt: skip
    own = app.job(name="Own", retry=False, queue="low", backtrace=10)(sample)
    assert own.defaults == {"backtrace": 10, "retry": False, "queue": "low", "tags": ["shop"]}
    limited = app.job(name="Limited", retry_for=60)(sample)
    assert limited.defaults == {
        "backtrace": True,
        "retry_for": 60,
        "queue": "shop",
        "tags": ["shop"],
    }

    @app.iterable(name="Touch", max_runtime=5)
    def touch(cursor: Cursor) -> Iterator[object]:
        yield cursor.value

    assert touch.defaults == app.defaults
    other = App(retry_for=60).job(name="Other", retry=3)(sample)
    assert other.defaults == {"retry": 3}
    with testing.fake(app) as jobs:
        app.jobs["sample"].enqueue(1)
        app.client.push("Foreign", [1])
        mine, foreign = jobs.enqueued()
    assert (mine["backtrace"], mine["retry"], mine.queue) == (True, 5, "shop")
    assert (foreign["retry"], foreign.queue, foreign.get("backtrace")) == (True, "default", None)


def test_an_invalid_option_of_the_application_is_refused_at_once() -> None:
    with pytest.raises(ConfigError, match="App: qeue: no such option; did you mean 'queue'"):
        App(qeue="low")  # type: ignore[call-arg]
    with pytest.raises(ConfigError, match="App: retry: 'often'"):
        App(retry="often")  # type: ignore[arg-type]


def test_calling_a_job_runs_the_function() -> None:
    assert App().job(sample)(1, b="y") == (1, "y", False)


def test_async_functions_are_recognised() -> None:
    async def job() -> int:
        return 5

    defined = App().job(job)
    assert defined.is_async
    assert asyncio.run(defined()) == 5


@pytest.mark.parametrize("name", ["", " A", "A\n"])
def test_impossible_names_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="is not a class name"):
        App().job(name=name)(sample)


def test_a_name_is_given_once() -> None:
    app = App()
    app.job(sample)
    with pytest.raises(ConfigError, match=r"'sample' is defined twice, by .*sample and .*sample"):
        app.job(sample)


@pytest.mark.parametrize("options", [{"queue": ""}, {"retry": -1}, {"queu": "low"}])
def test_impossible_options_are_refused_when_defined(options: dict[str, Any]) -> None:
    """PUSH-4: the definition fails, and the error names the option."""
    with pytest.raises(ConfigError, match=r"job 'sample': \w+"):
        App().job(**options)(sample)


@pytest.mark.parametrize("version", [0, -1, True, "2", 1.5])
def test_a_version_is_a_whole_number_from_1(version: Any) -> None:
    with pytest.raises(ConfigError, match="is not a whole number from 1"):
        App().job(version=version)(sample)


def test_a_required_keyword_cannot_be_passed() -> None:
    def job(*, needed: int) -> None: ...

    with pytest.raises(ConfigError, match="parameter 'needed' is keyword-only"):
        App().job(job)


def test_options_make_a_copy() -> None:
    app = App()
    job = app.job(queue="low", retry=2)(sample)
    other = job.options(queue="high")
    assert other.defaults == {"queue": "high", "retry": 2}
    assert job.defaults == {"queue": "low", "retry": 2}
    assert app.jobs["sample"] is job
    with pytest.raises(InvalidJob) as caught:
        job.options(queue="")
    assert caught.value.rule == "PUSH-4"


@over(
    ("args", "kwargs", "wire"),
    [
        ((1,), {}, [1]),
        ((1, "y"), {}, [1, "y"]),
        ((1,), {"b": "y"}, [1, "y"]),
        ((), {"a": 1}, [1]),
        ((), {"b": "y", "a": 1}, [1, "y"]),
    ],
)
def test_arguments_become_a_list(
    args: tuple[Any, ...], kwargs: dict[str, Any], wire: list[Any]
) -> None:
    """EXEC-1: the payload has positional arguments, also for keyword arguments."""

    def job(a: int, b: str = "x") -> None: ...

    assert bound(App().job(job), *args, **kwargs) == wire


def test_a_gap_before_a_keyword_is_filled() -> None:
    """EXEC-1: the payload has no names, so the default is included."""

    def job(a: int = 1, b: int = 2, c: int = 3, d: object = object) -> None: ...

    assert bound(App().job(job), c=9) == [1, 2, 9]
    assert bound(App().job(job), a=9) == [9]


@pytest.mark.parametrize(
    ("args", "kwargs", "problem"),
    [
        ((), {}, "sample: missing a required argument: 'a'"),
        ((1, "x", 3), {}, "sample: too many positional arguments"),
        ((1,), {"c": 2}, "sample: got an unexpected keyword argument 'c'"),
        ((1,), {"flag": True}, "sample: flag cannot be passed"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(
    args: tuple[Any, ...], kwargs: dict[str, Any], problem: str
) -> None:
    job: JobType[..., Any] = App(NOWHERE, generation=8).job(sample)
    with pytest.raises(TypeError, match=problem):
        job.enqueue(*args, **kwargs)


def test_values_that_json_lacks_are_refused() -> None:
    """PUSH-5: the error comes before any command is sent."""
    job: JobType[..., Any] = App(NOWHERE, generation=8).job(sample)
    with pytest.raises(InvalidJob, match=r"^sample: args\[0\]: \{1, 2\} is set"):
        job.enqueue({1, 2})


def test_an_error_of_a_push_is_one_exception() -> None:
    """PUSH-5: its traceback has the caller's line, and its text no id of a requirement."""
    app = App(NOWHERE, generation=8)

    @app.job
    def typed(number: UUID, label: str = "x") -> None: ...

    job: JobType[..., Any] = typed
    untyped: JobType[..., Any] = app.job(name="untyped")(sample_of_any)
    calls: list[Callable[[], object]] = [
        lambda: job.enqueue("no"),
        lambda: job.enqueue(UUID(int=1), "\ud800"),
        lambda: job.enqueue_bulk([["no"]]),
        lambda: job.enqueue(),
        lambda: job.options(retry=-1).enqueue(UUID(int=1)),
        lambda: untyped.enqueue({1}),
        lambda: untyped.enqueue(object()),
        lambda: untyped.enqueue(UUID(int=1)),
        lambda: untyped.enqueue(float("nan")),
        lambda: untyped.enqueue_bulk([[{1}]]),
        lambda: untyped.enqueue_in(float("nan"), 1),
        lambda: untyped.enqueue(1),  # no server
        lambda: App(NOWHERE, strict_args="off").client.push("X", [object()]),
        lambda: asyncio.run(untyped.aenqueue({1})),
    ]
    for call in calls:
        with pytest.raises((JobwireError, TypeError)) as caught:
            call()
        text = "".join(traceback.format_exception(caught.value))
        assert text.count("Traceback (most recent call last):") == 1, text
        assert __file__ in text
        assert not re.search(r"\b(?!UTF)[A-Z]+-\d+\b", str(caught.value)), text


def test_values_that_json_lacks_can_be_told_of_instead(caplog: pytest.LogCaptureFixture) -> None:
    """PUSH-5: the log line names job, path and value, and the job gets the JSON value."""
    app = App(NOWHERE, strict_args="warn")
    job: JobType[..., Any] = app.job(sample)
    with testing.fake(app) as jobs:
        job.enqueue(1, 2)
        assert caplog.text == ""
        job.enqueue((1, 2), {date(2026, 11, 20): 5})
        job.enqueue_bulk([[3], [UUID(int=7)]])
        with pytest.raises(InvalidJob, match=r"^sample: args: .*object"):
            job.enqueue(object())
        with pytest.raises(InvalidJob, match=r"^sample: args\[0\]: nan "):
            job.enqueue(float("nan"))
        pushed = [each.args[:2] for each in jobs.enqueued("sample")]
    assert pushed == [[1, 2], [[1, 2], {"2026-11-20": 5}], [3], [str(UUID(int=7))]]
    assert [(record.name, record.levelname) for record in caplog.records] == [
        ("jobwire.client", "WARNING")
    ] * 2
    first, second = caplog.messages
    assert first.startswith("sample: args[0]: (1, 2) is tuple, for which JSON has no type")
    assert second.startswith(f"sample: args[0]: {UUID(int=7)!r} is UUID")
    assert second.endswith("list or dict; it was converted")


@pytest.mark.parametrize(
    "settings", [{"generation": 6}, {"generation": "8"}, {"strict_args": "yes"}]
)
def test_impossible_settings_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="is not one of"):
        _ = App(NOWHERE, **settings).client


def test_there_is_one_client() -> None:
    app = App(NOWHERE, namespace="n:")
    assert app.client is app.client
    assert app.client.url == NOWHERE
    first = app.client
    app.connect("redis://127.0.0.1:2/0")
    assert app.client is not first
    assert app.client.url == "redis://127.0.0.1:2/0"


def test_jobs_go_via_another_redis_inside_of_a_block() -> None:
    other = "redis://127.0.0.1:2/0"
    app = App(NOWHERE, namespace="n:")
    default = app.client
    elsewhere: list[Any] = []
    with app.via(other):
        there = app.client
        with app.via("redis://127.0.0.1:3/0"):
            assert app.client.url == "redis://127.0.0.1:3/0"
        assert app.client is there
        thread = threading.Thread(target=lambda: elsewhere.append(app.client))
        thread.start()
        thread.join()
    assert (there.url, app.client, elsewhere) == (other, default, [default])
    with pytest.raises(ZeroDivisionError), app.via(other):
        1 / len(app.client.url[:0])
    assert app.client is default

    async def tasks() -> None:
        async def urls(url: str) -> tuple[str, str]:
            with app.via(url):
                await asyncio.sleep(0)
                return app.aclient.url, app.client.url

        both = await asyncio.gather(urls(other), urls(NOWHERE))
        assert list(both) == [(other,) * 2, (NOWHERE,) * 2]
        assert app.aclient.url == NOWHERE
        await app.aclose()

    asyncio.run(tasks())
    app.close()
    assert app.client is not default


MAIL, LOGS = "redis://127.0.0.1:2/0", "redis://127.0.0.1:3/0"


def test_a_job_type_has_a_redis_by_name() -> None:
    """The block of code is first, then the job type, then the application."""
    app = App(NOWHERE, redis={"mail": MAIL, "logs": LOGS})
    plain = app.job(name="Plain")(sample)
    mail = app.job(name="Mail", redis="mail")(sample)
    rails = app.active_job("Rails", redis="mail")(sample)

    @app.iterable(redis="logs")
    def rows(cursor: Cursor) -> Iterator[object]:
        yield cursor

    assert [job.redis for job in (plain, mail, rails, rows)] == ["", "mail", "mail", "logs"]
    urls = [app.client_of(app.choose(job.redis)).url for job in (plain, mail, rails, rows)]
    assert urls == [NOWHERE, MAIL, MAIL, LOGS]
    with app.via("logs"):
        assert app.client_of(app.choose(mail.redis)) is app.client
        assert app.client.url == LOGS
        assert app.client_of("").url == NOWHERE
    with app.via(LOGS):  # the URL of a name is that name
        assert app.client is app.client_of("logs")
    assert mail.options(queue="low").redis == "mail"
    app.close()


def test_a_worker_serves_the_jobs_of_one_redis() -> None:
    app = App(NOWHERE, redis={"mail": MAIL, "same": MAIL})
    app.periodic("@daily", args=[1])(app.job(name="Plain", queue="plain")(sample))
    app.periodic("@daily", args=[1])(app.job(name="Mail", queue="mail", redis="mail")(sample))
    app.job(name="Same", queue="same", redis="same")(sample)
    assert list(app.queues) == ["default", "plain"]
    assert [entry.name for entry in app.served_entries()] == ["Plain"]
    for url in ("mail", MAIL):
        app.serve(url)
        assert (app.served_url, list(app.queues)) == (MAIL, ["default", "mail", "same"])
        assert [entry.name for entry in app.served_entries()] == ["Mail"]
        assert app.client.url == NOWHERE
        app.served = ""
    app.serve(LOGS)
    assert (app.served_url, app.client.url) == (LOGS, LOGS)
    app.connect(MAIL)  # one server for all
    app.serve(MAIL)
    assert list(app.queues) == ["default", "plain", "mail", "same"]
    app.close()


@pytest.mark.parametrize(
    ("redis", "error"),
    [
        ({"": MAIL}, "'' is not a name of a Redis"),
        ({MAIL: MAIL}, "is not a name of a Redis"),
        ({"default": MAIL}, r"'default' is the Redis of url; write App\(URL"),
        ({"mail": "localhost"}, "'localhost' of 'mail' is not a URL"),
    ],
)
def test_impossible_names_of_servers_are_refused(redis: dict[str, str], error: str) -> None:
    with pytest.raises(ConfigError, match=error):
        App(NOWHERE, redis=redis)


def test_an_unknown_name_of_a_server_is_refused() -> None:
    app = App(NOWHERE, redis={"mail": MAIL})
    with pytest.raises(ConfigError, match=r"redis 'mial' is neither a URL nor .*names: mail"):
        app.via("mial").__enter__()
    with pytest.raises(ConfigError, match=r"job 'sample': redis 'mial' is not a name .*: mail"):
        app.job(redis="mial")(sample)
    with pytest.raises(ConfigError, match=r"job 'sample': redis .*its names: mail"):
        app.job(redis=MAIL)(sample)
    assert app.jobs == {}


def test_there_is_one_asyncio_client_for_each_loop() -> None:
    app = App(NOWHERE)

    async def twice() -> tuple[Any, Any]:
        return app.aclient, app.aclient

    (a, b), (c, _) = asyncio.run(twice()), asyncio.run(twice())
    assert a is b
    assert a is not c


def test_current_job_is_that_of_this_thread() -> None:
    assert current_job() is None
    job = decode(b'{"class":"A"}', "q")
    with running(job):
        assert current_job() is job
        assert contextvars.Context().run(current_job) is None
    assert current_job() is None


@pytest.mark.parametrize("name", ["delay", "apply_async", "perform_async"])
def test_names_of_other_libraries_lead_to_enqueue(name: str) -> None:
    job = App("redis://127.0.0.1:1/0").job(name="Job")(lambda: None)
    with pytest.raises(AttributeError, match=rf"no attribute '{name}'; use \.enqueue\(\.\.\.\)"):
        getattr(job, name)
    with pytest.raises(AttributeError, match=r"no attribute 'delayed'$"):
        _ = job.delayed  # type: ignore[attr-defined]  # reported by mypy, as the others are
    assert job.options(queue="low").defaults == {"queue": "low"}  # a copy
