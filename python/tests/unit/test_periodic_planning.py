"""jobwire.periodic.planning: the ticks to take, for each rule."""

from __future__ import annotations

from datetime import UTC

from jobwire.periodic.cron import parse
from jobwire.periodic.planning import Agenda, due_ticks
from jobwire.protocol.periodic_entry import StoredEntry, catch_up
from tests.rows import over

TEN = 1_770_717_600  # 2026-02-10 10:00:00 UTC
HOURLY = parse("0 * * * * UTC")


@over(
    ("lateness", "is_due"),
    [(0.0, True), (0.5, True), (60.0, True), (60.99, True), (61.0, False), (3000.0, False)],
)
def test_a_tick_may_be_late_by_the_grace_period(lateness: float, is_due: bool) -> None:
    """X-CRON-15, X-CRON-16, X-CRON-22: whole seconds, both ends included."""
    assert due_ticks(HOURLY, now=TEN + lateness) == ([TEN] if is_due else [])
    assert due_ticks(HOURLY, now=TEN - 0.01) == []


@over(
    ("rule", "expected"),
    [
        ("none", []),
        ("last", [0]),
        ("all", [-2, -1, 0]),
        ("all:2", [-1, 0]),
        ("all:10", [-2, -1, 0]),
    ],
)
def test_three_hours_without_a_scheduler(rule: str, expected: list[int]) -> None:
    """X-CRON-24: A3 of the acceptance; the counts of each rule."""
    found = due_ticks(HOURLY, now=TEN + 600, latest_taken=TEN - 3 * 3600, rule=catch_up(rule))
    assert found == [TEN + hour * 3600 for hour in expected]
    since = TEN - 3 * 3600 + 5.0
    found = due_ticks(HOURLY, now=TEN + 600, since=since, latest_taken=0, rule=catch_up(rule))
    assert found == [TEN + hour * 3600 for hour in expected]


def test_a_process_takes_all_ticks_since_it_looked() -> None:
    """X-CRON-15: a first look takes the latest one only."""
    every_second = parse("* * * * * * UTC")
    assert due_ticks(every_second, now=TEN + 0.5) == [TEN]
    assert due_ticks(every_second, now=TEN + 0.5, since=TEN - 2.5) == [TEN - 2, TEN - 1, TEN]
    assert len(due_ticks(every_second, now=TEN + 0.5, since=TEN - 500)) == 61


def test_all_without_a_tick_that_was_taken_is_the_grace_period() -> None:
    """X-CRON-24: it is not known since when the entry exists."""
    assert due_ticks(HOURLY, now=TEN + 600, rule=catch_up("all")) == []
    assert due_ticks(HOURLY, now=TEN + 6, rule=catch_up("all")) == [TEN]


def entry(name: str, digest: str = "1", **fields: str) -> StoredEntry:
    given = {"name": name, "klass": "A", "cron": "0 * * * * UTC", **fields}
    return StoredEntry(f"cron_job:default:{name}", "default", given, digest)


def test_the_agenda_takes_each_tick_once() -> None:
    """X-CRON-14, X-CRON-19, X-CRON-27: others are left out, the unreadable ones by name."""
    agenda = Agenda(UTC)
    entries = [
        entry("a"),
        entry("off", status="disabled"),
        entry("odd", cron="0 9 * * mon%2"),
        entry("bad", message="{"),
    ]
    refused = agenda.update(entries, now=TEN + 1.0)
    assert [each.name for each, _ in refused] == ["odd", "bad"]
    assert agenda.update(entries, now=TEN + 1.0) == []
    ((due),) = agenda.due(TEN + 1.0)
    assert (due.entry.name, due.ticks) == ("a", [TEN])
    assert [each.entry.name for each in agenda.due(TEN + 2.0)] == ["a"]  # nothing was recorded
    agenda.done(due.entry, TEN + 2.0)
    assert agenda.due(TEN + 2.0) == []
    assert agenda.next_at == TEN + 3600


def test_a_change_of_other_fields_keeps_the_place() -> None:
    """X-CRON-20: and a new line begins anew."""
    agenda = Agenda(UTC)
    agenda.update([entry("a")], now=TEN - 100.0)
    agenda.due(TEN - 100.0)
    agenda.update([entry("a", digest="2", args="[2]")], now=TEN - 50.0)
    assert agenda.next_at == TEN
    agenda.update([entry("a", digest="3", cron="30 * * * * UTC")], now=TEN - 50.0)
    assert agenda.due(TEN - 50.0) == []
    assert agenda.next_at == TEN + 1800
    agenda.update([], now=TEN)
    assert agenda.next_at is None
