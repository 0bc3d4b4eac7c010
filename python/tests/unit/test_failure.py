"""jobwire.worker.execute.failure: any exception can be described."""

from __future__ import annotations

import ast
import traceback
from typing import Any
from unittest.mock import Mock

import pytest

import jobwire
from jobwire import App, Job
from jobwire.errors import ConfigError, JobFailed, JobwireError
from jobwire.worker.execute import failure
from jobwire.worker.execute.compiled_job import JobTable
from jobwire.worker.execute.event_loop import AsyncLoop
from jobwire.worker.execute.failure import MAX_TRACE, MAX_TRACES, describe, trace_of, user_trace
from jobwire.worker.execute.iterating import Iterations
from tests.rows import over


class Odd(Exception):
    class Inner(Exception):
        pass


class Mute(Exception):
    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __str__(self) -> str:
        raise self.error


class NotText(Exception):
    def __str__(self) -> str:
        return 5  # type: ignore[return-value]


def raised(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as caught:  # noqa: BLE001 - for its traceback
        return caught


@over(
    ("error", "name"),
    [
        (ValueError("x"), "ValueError"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (Odd(), f"{__name__}.Odd"),
        (Odd.Inner(), f"{__name__}.Odd.Inner"),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"), "UnicodeDecodeError"),
    ],
)
def test_class_names_are_qualified_but_for_builtins(error: BaseException, name: str) -> None:
    """RETRY-3."""
    assert describe(error).error_class == name


@pytest.mark.parametrize("inner", [RuntimeError(), SystemExit(1), KeyboardInterrupt()])
def test_a_message_that_cannot_be_had(inner: BaseException) -> None:
    """RETRY-3: a `__str__` that raises is replaced by a text."""
    assert describe(Mute(inner)).message == "!!! ERROR MESSAGE THREW AN ERROR !!!"
    assert describe(NotText()).message == "!!! ERROR MESSAGE THREW AN ERROR !!!"


def test_the_backtrace_begins_where_it_was_raised() -> None:
    """RETRY-8: the form is Ruby's, file:line:in 'name'."""
    lines = list(describe(raised(ValueError())).backtrace)
    assert len(lines) == 1
    assert lines[0].endswith(":in 'raised'")
    assert f"{__file__}:" in lines[0]

    def outer() -> None:
        int("x")

    try:
        outer()
    except ValueError as error:
        lines = list(describe(error).backtrace)
    assert [line.rpartition(" ")[2] for line in lines[:2]] == [
        "'outer'",
        "'test_the_backtrace_begins_where_it_was_raised'",
    ]


def test_an_error_that_was_never_raised_has_none() -> None:
    """RETRY-8."""
    assert list(describe(ValueError("x")).backtrace) == []


def run(function: Any, *middleware: Any) -> BaseException:
    """Return the error of a job, as a worker gets it; of an unknown one if there is no function."""
    app = App(server_middleware=middleware)
    if function is not None:
        app.job(name="Fail")(function)
    loop = AsyncLoop()
    try:
        job = Job(b"{}", {"class": "Fail", "args": []}, "default")
        JobTable(app, loop, None, Mock(Iterations)).find(job).call(job)
    except BaseException as error:  # noqa: BLE001 - for the caller
        trace = error.__traceback__
        return error.with_traceback(trace.tb_next if trace else None)  # without this function
    finally:
        loop.close(app.aclose)
    raise AssertionError("no error")


def fail() -> None:
    raise ValueError("no")


async def afail() -> None:
    fail()


def around(job: Job, call_next: Any) -> Any:
    return call_next()


async def aaround(job: Job, call_next: Any) -> Any:
    return await call_next()


def calls(text: str) -> list[str]:
    return [line.rpartition(" in ")[2] for line in text.splitlines() if line.startswith("  File")]


@pytest.mark.parametrize("function", [fail, afail])
def test_a_traceback_begins_at_the_application_s_code(function: Any) -> None:
    error = run(function)
    text = trace_of(error)
    assert calls(text) == (["fail"] if function is fail else ["afail", "fail"])
    assert text.startswith("Traceback (most recent call last):\n  File ")
    assert text.endswith('    raise ValueError("no")\nValueError: no\n')
    middleware = aaround if function is afail else around
    inner = calls(trace_of(run(function, middleware)))
    assert inner[0] == middleware.__name__
    assert inner[-1] == "fail"


def test_a_traceback_is_python_s_own() -> None:
    """With causes, contexts, groups and notes."""

    def nested() -> None:
        try:
            fail()
        except ValueError as error:
            raise TypeError("outer") from error

    def handled() -> None:
        try:
            fail()
        except ValueError:
            raise TypeError("outer")  # noqa: B904 - the context is shown

    def hidden() -> None:
        try:
            fail()
        except ValueError:
            raise TypeError("outer") from None

    def grouped() -> None:
        raise ExceptionGroup("both", [ValueError("a"), ValueError("b")])

    def noted() -> None:
        error = ValueError("no")
        error.add_note("because")
        raise error

    def misspelt() -> None:
        ast.parse("a b", "file.py")

    def deep(depth: int = 50) -> None:
        deep(depth - 1) if depth else fail()

    for function in (nested, handled, hidden, grouped, noted, misspelt, deep, fail):
        error = run(function)
        for _ in range(2):
            assert trace_of(error) == "".join(
                traceback.format_exception(type(error), error, user_trace(error))
            )


@over(
    "error",
    [
        ValueError(),
        ValueError("None"),
        ValueError(None),
        ValueError("two\nlines"),
        KeyError("name"),
        Odd.Inner("inner"),
        NotText(),
        Mute(ValueError()),
        AttributeError("no", name="apend", obj=[]),
        NameError("no", name="prnt"),
        SyntaxError("no", ("file", 1, 2, "x = = 1", 1, 3)),
        OSError(2, "no", "file"),
        type("__main__", (ValueError,), {"__module__": "__main__"})("own"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_the_last_line_is_python_s_own(error: BaseException) -> None:
    assert trace_of(error) == "".join(traceback.format_exception_only(error))
    error.add_note("a note")
    assert trace_of(error) == "".join(traceback.format_exception_only(error))


def test_equal_failures_at_other_places_are_other_tracebacks() -> None:
    """The calls of a traceback are kept for the next failure at the same place."""
    source = "def fail(): 1 / 0"
    texts = []
    for file in ("one.py", "two.py"):
        scope: dict[str, Any] = {}
        exec(compile(source, file, "exec"), scope)
        texts += [trace_of(run(scope["fail"])) for _ in range(2)]
    assert texts[0] == texts[1] != texts[2] == texts[3]
    assert 'File "two.py", line 1, in fail' in texts[2]
    for number in range(MAX_TRACES + 5):
        scope = {}
        exec(compile(source, f"{number}.py", "exec"), scope)
        trace_of(run(scope["fail"]))
    assert 0 < len(failure._traces) <= MAX_TRACES


def test_an_error_of_jobwire_has_no_calls_of_its_own() -> None:
    def needs_one(one: object) -> None: ...

    unknown = run(None)
    assert trace_of(unknown) == f"jobwire.errors.UnknownJob: {unknown}\n"
    missing = trace_of(run(needs_one))
    assert jobwire.__file__.removesuffix("__init__.py") in missing
    assert "missing 1 required positional argument: 'one'" in missing


def test_an_error_of_an_enqueue_ends_with_the_call_of_the_application() -> None:
    """The message says all that the calls of jobwire could; middleware in between stays."""
    other = App("redis://127.0.0.1:1/0", generation=8)

    @other.job
    def mail(address: object) -> None: ...

    def unusable() -> None:
        mail.enqueue(object())

    async def aunreachable() -> None:
        await mail.aenqueue("x")

    def unreachable() -> None:
        mail.enqueue("x")

    for function in (unusable, aunreachable, unreachable):
        error = run(function)
        assert isinstance(error, JobwireError)
        text = trace_of(error)
        assert calls(text) == [function.__name__]
        assert text.endswith(f"{type(error).__module__}.{type(error).__name__}: {error}\n")
        assert len(describe(error).backtrace) > 3  # the payload and other handlers have all calls

    def refuse(*_: object) -> None:
        raise ConfigError("no")

    other.client_middleware.add(refuse)
    (first, *between, last) = calls(trace_of(run(unreachable)))
    assert (first, last) == ("unreachable", "refuse")
    assert between != []


def test_the_traceback_of_an_isolated_job_is_that_of_its_process() -> None:
    error = raised(JobFailed("ValueError", "no", traceback="Traceback...\nValueError: no\n"))
    assert trace_of(error) == "Traceback...\nValueError: no\n"
    assert "ValueError: no\nin the process of the job:\nTraceback..." in "".join(
        traceback.format_exception(error)
    )


def test_a_traceback_can_always_be_had() -> None:
    huge = trace_of(raised(ValueError("x" * 10_000_000)))
    assert len(huge) < MAX_TRACE + 100
    assert huge.startswith("Traceback (most recent call last):\n")
    assert huge.endswith("x\n")
    assert "<exception str() failed>" in trace_of(raised(Mute(SystemExit(1))))

    class Broken(Exception):
        @property
        def __cause__(self) -> None:  # type: ignore[override]
            raise KeyboardInterrupt

    assert trace_of(Broken()) == "(no traceback, because of KeyboardInterrupt)"
