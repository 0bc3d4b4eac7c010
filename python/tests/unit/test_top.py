"""The parts of `jobwire top` that need no server: filters in one line, safe texts, bars, tabs."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobwire.console.ops.alerts import alerts
from jobwire.console.top.app import MAKERS
from jobwire.console.top.data_screen import TABS
from jobwire.console.top.filtering import parse, written
from jobwire.console.top.styled_text import (
    Cell,
    bar_chart,
    cells_wide,
    drawn,
    joined,
    one_line,
    shown,
)
from jobwire.console.top.threads import in_thread
from jobwire.errors import ConfigError
from jobwire.inspect.filters import Filter
from jobwire.inspect.fleet import Fleet
from jobwire.inspect.formats import seconds
from jobwire.inspect.summary import QueueSummary
from tests.rows import over


@over(
    ("line", "only"),
    [
        ("", Filter()),
        ("timeout", Filter(text="timeout")),
        ("two words", Filter(text="two words")),
        ("class:Invoice* older:2h", Filter(class_name="Invoice*", older_than=7200.0)),
        ('"error:not found" queue:mails', Filter(error="not found", queue="mails")),
        ("tag:x jid:abc text:7", Filter(tag="x", jid="abc", text="7")),
        ("class:Net::Job", Filter(class_name="Net::Job")),
        ("Net::SMTPError", Filter(text="Net::SMTPError")),
    ],
)
def test_a_filter_in_one_line(line: str, only: Filter) -> None:
    assert parse(line) == only
    assert parse(written(only)) == only


@over(
    ("line", "told"),
    [
        ("class:", "class: has no value"),
        ("class:A class:B", "class: appears twice"),
        ("text:a b", "cannot be combined"),
        ("older:soon", "'soon' is not a time span"),
        ('"open', "filter: No closing quotation"),
    ],
)
def test_a_wrong_filter_says_what_is_wrong(line: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        parse(line)


@pytest.mark.process
@given(st.text(min_size=1))
def test_every_text_can_be_written_and_read(text: str) -> None:
    only = Filter(error=text, text=text)
    assert parse(written(only)) == only


@given(st.text())
def test_a_shown_text_is_printable_and_short(text: str) -> None:
    """SEC-5, SEC-6."""
    assert shown(text, 50).isprintable()
    assert len(shown(text, 50)) <= 50
    assert one_line([text, {text: text}], 50).isprintable()


def test_a_large_value_is_cut_before_it_is_escaped() -> None:
    assert shown("\x00" * 1_000_000, 9) == "\\x00\\x00…"
    assert one_line("x" * 1_000_000, 5) == '"xxx…'


def test_markup_stays_text() -> None:
    assert drawn("[bold]x[/]").plain == "[bold]x[/]"
    assert joined([["[red]"], [Cell("[/]", "bad")]]).plain == "[red]\n[/]"


def test_bars_have_a_height_for_each_value() -> None:
    assert bar_chart([0, 1, 4, 8], 10) == " ▂▅█"
    assert bar_chart([1, 2, 3], 2) == "▆█"
    assert bar_chart([0, 0], 5) == "  "
    assert bar_chart([], 5) == ""
    assert cells_wide("漢x") == 3


def test_each_tab_has_a_screen() -> None:
    assert set(TABS.values()) == set(MAKERS)


@pytest.mark.parametrize(
    ("span", "length"), [("90", 90), ("15m", 900), ("2h", 7200), ("1d", 86400)]
)
def test_spans(span: str, length: float) -> None:
    assert seconds(span) == length


@over("span", ["", "x", "-1", "1w", "nan", "inf", "1e12"])
def test_wrong_spans(span: str) -> None:
    with pytest.raises(ConfigError, match="is not a time span"):
        seconds(span)


def test_a_thread_gives_its_result_or_its_error() -> None:
    def fail() -> None:
        raise ValueError("inside")

    async def scenario() -> None:
        assert await in_thread(lambda: 7) == 7
        with pytest.raises(ValueError, match="inside"):
            await in_thread(fail)

    asyncio.run(scenario())


def test_troubles_of_a_fleet() -> None:
    queues = [QueueSummary(f"q{n}", 1, 0.0, paused=n == 0, workers=n % 2) for n in range(14)]
    fleet = Fleet(
        processed=0,
        failed=0,
        recovered=0,
        late=0,
        handed_over=0,
        sets={"unreadable": 2},
        overdue={"retry": 61.0, "scheduled": 60.0},
        parked_for=0.0,
        queues=queues,
        processes=[],
        problems=("queue:x: WRONGTYPE",),
    )
    assert [*alerts(fleet)] == [
        ("queue:x: WRONGTYPE", "doctor"),
        ("No process serves q0, q2, q4, q6, q8 and 2 others.", "queues"),
        ("Jobs wait in paused queues: q0.", "queues"),
        ("The first job of retry has been due for 61 s.", "retry"),
        ("2 payloads could not be read.", "unreadable"),
    ]
