"""jobwire.worker.execute.failure: any exception can be described."""

from __future__ import annotations

import pytest

from jobwire.worker.execute.failure import describe


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


@pytest.mark.parametrize(
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
