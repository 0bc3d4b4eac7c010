"""Lines, tick members and payloads of periodic jobs compared with fixtures/vectors."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from jobwire.connection import resources
from jobwire.errors import ConfigError
from jobwire.periodic.cron import CronLine, parse
from jobwire.protocol.periodic_entry import StoredEntry, stored_time, tick_member
from jobwire.protocol.times import Generation
from tests.rows import over

FIXTURES = resources.path("fixtures")


def vectors(kind: str) -> list[dict[str, Any]]:
    loaded: list[dict[str, Any]] = json.loads((FIXTURES / f"vectors/{kind}.json").read_text())
    return loaded


def seconds(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp())


def following(line: CronLine, after: int) -> Iterator[int]:
    tick: int | None = after
    while tick is not None and (tick := line.after(tick)) is not None:
        yield tick


@over("vector", vectors("cron-ticks"), ids=lambda vector: vector["name"])
def test_a_line_has_these_ticks(vector: dict[str, Any]) -> None:
    """[X-CRON-10] [X-CRON-11] [X-CRON-12] [X-CRON-14] Forwards and backwards."""
    if vector["ticks"] is None:
        with pytest.raises(ConfigError):
            parse(vector["line"])
        return
    line = parse(vector["line"], tz=vector["zone"] or "")
    ticks = [seconds(tick) for tick in vector["ticks"]]
    after = seconds(vector["after"])
    assert [tick for tick, _ in zip(following(line, after), ticks, strict=False)] == ticks
    assert [line.before(tick + 1) for tick in ticks] == ticks
    assert [line.before(tick) for tick in ticks[1:]] == ticks[:-1]


def test_the_clock_changes_are_many_and_of_all_kinds() -> None:
    """At least 60 rows show what a change of the clock does."""
    changes = [vector for vector in vectors("cron-ticks") if "X-CRON-10" in vector["covers"]]
    assert len(changes) >= 60
    zones = {vector["line"].split()[-1] for vector in changes}
    assert zones >= {
        *("Australia/Lord_Howe", "Antarctica/Troll", "Pacific/Apia", "Africa/Casablanca"),
        *("Europe/Berlin", "America/New_York"),
    }


@over("vector", vectors("cron-members"), ids=lambda vector: vector["name"])
def test_a_tick_has_these_texts(vector: dict[str, Any]) -> None:
    """[X-CRON-4] [X-CRON-7]"""
    assert tick_member(vector["tick"]) == vector["member"]
    assert stored_time(vector["tick"]) == vector["last_enqueue_time"]


@over("vector", vectors("cron-payloads"), ids=lambda vector: vector["name"])
@over("generation", [7, 8])
def test_an_entry_has_this_payload(vector: dict[str, Any], generation: Generation) -> None:
    """[X-CRON-29] [X-CRON-30] [X-CRON-31]"""
    entry = StoredEntry("cron_job:default:report", "default", vector["entry"])
    ready = entry.payload(jid=vector["jid"], now=vector["now"], generation=generation)
    payload, expected = json.loads(ready.text), vector["payload"][str(generation)]
    assert payload == expected
    assert [type(arg) for arg in payload["args"]] == [type(arg) for arg in expected["args"]]
