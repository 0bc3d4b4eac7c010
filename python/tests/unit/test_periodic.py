"""jobwire.periodic: cron lines, ticks that are due, and the entries in Redis."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from jobwire import ConfigError, InvalidJob, RedisRefused
from jobwire.periodic.cron import parse
from jobwire.periodic.planning import Agenda, due_ticks
from jobwire.periodic.zones import local_zone, offset_at
from jobwire.protocol.periodic import read_ticked
from jobwire.protocol.periodic_entry import CatchUp, PeriodicEntry, StoredEntry, catch_up
from jobwire.protocol.wire import ErrorReply
from tests.rows import over

DAY = 86_400


def at(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())


def shown(tick: int | None) -> str:
    assert tick is not None
    return datetime.fromtimestamp(tick, UTC).strftime("%Y-%m-%d %H:%M:%S")


@over(
    ("line", "text"),
    [
        ("", "it is empty"),
        ("* * * *", "it has 4 fields"),
        ("* * * * * * *", "it has 7 fields"),
        ("60 * * * *", "'60' is not a value of the field minute: 0 to 59"),
        ("* * 0 * *", "field day: 1 to 31"),
        ("* * * 13 *", "field month: 1 to 12, or a name like jan"),
        ("* * * * 8", "field weekday: 0 to 7, or a name like sun"),
        ("0 0 30 2 *", "no date"),
        ("*/0 * * * *", "step '0'"),
        ("0 0 ? * *", r"'\?' is not a value"),
        ("0 0 * * 5L", "'5L' is not a value"),
        ("0 0 * * mon#6", "not of the form mon#2"),
        ("0 0 * * mon%2", "every so many weeks"),
        ("0 5 * * * Z", "time zone 'Z' does not exist"),
        ("0 5 * * * Nowhere/City", "time zone 'Nowhere/City'"),
        ("0 5 * * * ../UTC", "time zone"),
        ("@reboot", "@reboot is not one of"),
        ("every 90 minutes", "90 does not divide"),
        ("every 7 minutes", "7 does not divide"),
        ("every day at 3:15 and 4:30", "not one time of day"),
        ("every day at 25:00", "0:00 to 23:59"),
        ("in 2 hours", "the phrase 'in 2 hours' is not supported"),
        ("٣ * * * *", "is not a value"),
    ],
)
def test_a_line_that_is_not_understood_is_refused_by_name(line: str, text: str) -> None:
    """X-CRON-11, X-CRON-43: the message names the line and the part."""
    with pytest.raises(ConfigError, match=text):
        parse(line)


BERLIN = "Europe/Berlin"


MATCHES: dict[str, Callable[[datetime], bool]] = {
    "*/30 * * * *": lambda local: local.minute in (0, 30),
    "15 1-3 * * *": lambda local: local.minute == 15 and local.hour in (1, 2, 3),
    "0 0 1 * *": lambda local: (local.day, local.hour, local.minute) == (1, 0, 0),
}


@pytest.mark.process
@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("Europe/Berlin", "2026-02-20 00:00:00"),
        ("Europe/Berlin", "2026-10-01 00:00:00"),
        ("Australia/Lord_Howe", "2026-03-20 00:00:00"),
        ("Australia/Lord_Howe", "2026-09-20 00:00:00"),
        ("Antarctica/Troll", "2026-10-01 00:00:00"),
        ("Pacific/Apia", "2011-12-10 00:00:00"),
        ("Africa/Casablanca", "2026-02-01 00:00:00"),
    ],
)
def test_ticks_are_the_times_whose_local_time_matches(name: str, first: str) -> None:
    """X-CRON-10: compared with a search of every minute of seven weeks around a change."""
    begin = at(first)
    end = begin + 49 * DAY
    tz = ZoneInfo(name)
    minutes = [(tick, datetime.fromtimestamp(tick, tz)) for tick in range(begin + 60, end, 60)]
    for line, matches in MATCHES.items():
        expected = [tick for tick, local in minutes if matches(local)]
        parsed = parse(f"{line} {name}")
        ticks = [*itertools.takewhile(lambda tick: tick < end, parsed.ticks(begin))]
        assert ticks == expected, line
        backwards: list[int] = []
        moment: int | None = end
        while moment is not None and (moment := parsed.before(moment)) and moment > begin:
            backwards.append(moment)
        assert backwards[::-1] == expected, line


def test_a_year_of_hourly_ticks_is_even() -> None:
    ticks = list(islice(parse(f"0 * * * * {BERLIN}").ticks(at("2026-01-01 00:00:00")), 24 * 364))
    assert {after - before for before, after in pairwise(ticks)} == {3600}


def test_the_zone_of_a_line_comes_before_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """X-CRON-12: line, then the field, then the local zone."""
    noon = at("2026-07-01 12:00:00")
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    assert shown(parse("0 9 * * * UTC", tz=BERLIN).after(noon)) == "2026-07-02 09:00:00"
    assert shown(parse("0 9 * * *", tz=BERLIN).after(noon)) == "2026-07-02 07:00:00"
    assert shown(parse("0 9 * * *").after(noon)) == "2026-07-02 00:00:00"


@pytest.fixture
def set_tz(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Set TZ for the C library as well."""

    def set_(value: str) -> None:
        monkeypatch.setenv("TZ", value)
        time.tzset()

    yield set_
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    "value",
    [
        *("", ":", "utc", "UTC0", ":/etc/localtime", BERLIN, f":{BERLIN}"),
        # Systems without the old names do not have it, Debian 13 for example.
        *(["posix/Asia/Tokyo"] if Path("/usr/share/zoneinfo/posix").exists() else []),
        *("/usr/share/zoneinfo/Asia/Tokyo", "CET-1CEST,M3.5.0,M10.5.0/3", ":EST5EDT", "XST5XDT"),
        *("<+03>-3", "GMT+5", "IST-2IDT,M3.4.4/26,M10.5.0"),
    ],
)
def test_the_local_zone_is_that_of_the_c_library(value: str, set_tz: Callable[[str], None]) -> None:
    """X-CRON-12: `TZ` in each of its forms, in summer, in winter and at the changes."""
    set_tz(value)
    for moment in ("2026-01-01", "2026-07-01", "2026-03-29", "2026-10-25", "2026-11-01"):
        instant = at(f"{moment} 01:00:00")
        assert offset_at(instant, local_zone()) == time.localtime(instant).tm_gmtoff


@pytest.mark.parametrize("value", ["Europe/Berln", "/no/such/file", "../Berlin", "junk", "é"])
def test_a_local_zone_that_does_not_exist(value: str, set_tz: Callable[[str], None]) -> None:
    """The C library takes it for UTC, without a word."""
    set_tz(value)
    with pytest.raises(ConfigError, match=f"TZ='{value}' is not a time zone; set it to a name"):
        parse("0 9 * * *")


def test_fractions_of_a_second() -> None:
    line = parse("*/5 * * * * *", default=UTC)
    assert line.after(9.99) == 10
    assert line.after(10) == 15
    assert line.before(10.01) == 10
    assert line.before(10) == 5


def test_offsets_are_not_limited_to_hours() -> None:
    line = parse("0 12 * * * -03:30")
    assert shown(line.after(at("2026-01-01 00:00:00"))) == "2026-01-01 15:30:00"
    assert timedelta(seconds=line.after(0) or 0) == timedelta(hours=15, minutes=30)


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


NOW = 1_770_717_610.25
MEMBER = "cron_job:default:t"
HASH = {"name": "t", "klass": "EchoJob", "cron": "* * * * *", "args": "[1]"}


def stored(**fields: str) -> StoredEntry:
    return StoredEntry(MEMBER, "default", {**HASH, **fields})


def payload(entry: StoredEntry, **more: Any) -> dict[str, Any]:
    made = entry.payload(**{"jid": "j1", "now": NOW, "generation": 8, "job_id": "u1", **more})
    decoded: dict[str, Any] = json.loads(made.text)
    assert decoded["queue"] == made.queue
    return decoded


def test_a_refused_tick_is_an_error() -> None:
    """X-CRON-15: of its own entry, so that the others of the message have their ticks."""
    with pytest.raises(RedisRefused, match="OOM"):
        read_ticked([], ErrorReply("OOM"))


def test_an_active_job_is_wrapped() -> None:
    """X-CRON-32: with the prefix of its queue."""
    made = payload(stored(active_job="1", queue_name_prefix="app", message='{"queue":"low"}'))
    assert made["class"] == "ActiveJob::QueueAdapters::SidekiqAdapter::JobWrapper"
    assert (made["wrapped"], made["queue"]) == ("EchoJob", "app_low")
    assert made["args"] == [
        {"job_class": "EchoJob", "job_id": "u1", "queue_name": "app_low", "arguments": [1]}
    ]


@over(
    ("fields", "problem"),
    [
        ({}, ""),
        ({"message": ""}, ""),
        ({"klass": "", "class": "A"}, ""),
        ({"klass": ""}, "klass is missing"),
        ({"cron": " "}, "cron is missing"),
        ({"name": "other"}, "does not belong to the key"),
        ({"message": "[]"}, "message is not a JSON object"),
        ({"message": "{"}, "message is not a JSON object"),
    ],
)
def test_a_damaged_entry_says_so(fields: dict[str, str], problem: str) -> None:
    """X-CRON-28"""
    assert problem in stored(**fields).problem
    assert bool(stored(**fields).problem) == bool(problem)


def test_a_payload_that_no_worker_can_read_is_not_pushed() -> None:
    """X-CRON-28: the error names the field."""
    with pytest.raises(InvalidJob, match="retry"):
        payload(stored(message='{"retry":"x"}'))


@over(
    ("text", "rule"),
    [
        (None, None),
        ("", None),
        ("none", None),
        ("sometimes", None),
        ("all:0", None),
        ("all:1001", None),
        ("last", CatchUp(1, since_last=False)),
        ("all", CatchUp(1000, since_last=True)),
        ("all:7", CatchUp(7, since_last=True)),
    ],
)
def test_rules_for_late_ticks(text: str | None, rule: CatchUp | None) -> None:
    """X-CRON-24: a text that is not known is none."""
    assert catch_up(text) == rule


@over(
    ("wrong", "text"),
    [
        ({"name": ""}, "name ''"),
        ({"job": " A"}, "job ' A'"),
        ({"cron": ""}, "cron ''"),
        ({"args": "abc"}, "is not a list"),
        ({"args": [object()]}, "args"),
        ({"catch_up": "all:5000"}, "from 1 to 1000"),
        ({"overlap": "queue"}, "not one of 'allow', 'skip'"),
        ({"options": {"qeue": "a"}}, "did you mean 'queue'"),
    ],
)
def test_definitions_are_checked(wrong: dict[str, Any], text: str) -> None:
    """X-CRON-43: the error names the entry, the value and the rule."""
    with pytest.raises(ConfigError, match=text):
        PeriodicEntry(**{"name": "t", "cron": "* * * * *", "job": "A", **wrong})


def test_retry_is_in_the_message_and_in_its_own_field() -> None:
    """X-CRON-33: sidekiq-cron 2 takes it from the message."""
    entry = PeriodicEntry(name="t", cron="* * * * *", job="A", options={"retry": False})
    fields = entry.fields(layout=2)
    assert fields["retry"] == "false"
    assert json.loads(fields["message"]) == {
        **{"retry": False, "queue": "default", "class": "A", "args": []}
    }
