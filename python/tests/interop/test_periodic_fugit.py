"""Cron lines by Fugit, which sidekiq-cron reads them with, and by us: the same ticks.

sidekiq-cron asks Fugit for the latest tick before now, so that is what is compared.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from harness.chroots import CHROOTS, RubyProcess
from jobwire.connection import resources
from jobwire.periodic.cron import parse
from jobwire.protocol.periodic_entry import GRACE_S
from tests.interop.sidekiq import RUBY, require_cron

pytestmark = pytest.mark.interop

ZONES = (
    *("UTC", "Europe/Berlin", "Europe/London", "America/New_York", "America/Sao_Paulo"),
    *("Asia/Kolkata", "Asia/Kathmandu", "Australia/Lord_Howe", "Antarctica/Troll"),
    *("Pacific/Chatham", "Africa/Casablanca", "Africa/Cairo"),
)
FIRST, LAST = (int(datetime(year, 1, 1, tzinfo=UTC).timestamp()) for year in (2024, 2031))
DAY = 86_400


class Fugit:
    """Fugit in a Ruby process."""

    def __init__(self, process: RubyProcess) -> None:
        self._process = process

    def last(self, line: str, zone: str | None, before: Sequence[int]) -> list[int | None] | None:
        """Return the latest tick before each instant; None if the line cannot be read."""
        request = {"line": line, "zone": zone, "next": [], "last": list(before), "count": 0}
        pipes = self._process.popen
        assert pipes.stdin
        assert pipes.stdout
        pipes.stdin.write(json.dumps(request).encode() + b"\n")
        pipes.stdin.flush()
        answer = pipes.stdout.readline()
        assert answer, f"fugit.rb has ended:\n{self._process.log()}"
        found = json.loads(answer)
        return None if found is None else found["last"]


@pytest.fixture(scope="module")
def fugit() -> Iterator[Fugit]:
    """Fugit as it is beside sidekiq-cron 1.8.0."""
    require_cron()
    process = RubyProcess(
        CHROOTS / "6.4.1", ["ruby", "fugit.rb"], {"TZ": "UTC"}, pipes=True, directory=RUBY
    )
    yield Fugit(process)
    process.close()


def vectors() -> list[dict[str, Any]]:
    path = Path(resources.path("fixtures")) / "vectors" / "cron-ticks.json"
    loaded: list[dict[str, Any]] = json.loads(path.read_text("utf-8"))
    return loaded


def test_fugit_has_the_ticks_of_the_vectors(fugit: Fugit) -> None:
    """X-CRON-10, X-CRON-11, X-CRON-12: within the grace period, and it has no other ticks."""
    for vector in vectors():
        if vector["ticks"] is None:
            continue
        ticks = [int(datetime.fromisoformat(tick).timestamp()) for tick in vector["ticks"]]
        line, zone = vector["line"], vector["zone"]
        assert fugit.last(line, zone, [tick + 1 for tick in ticks]) == ticks, vector["name"]
        between = [(a + b) // 2 for a, b in pairwise(ticks)]
        # sidekiq-cron acts upon a tick within the grace period alone.
        for at, found in zip(between, fugit.last(line, zone, between) or (), strict=True):
            is_late = found is None or at - found > GRACE_S
            assert is_late or found in ticks, vector["name"]


def test_fugit_refuses_what_the_vectors_refuse(fugit: Fugit) -> None:
    """X-CRON-14, X-CRON-43."""
    refused = [vector["line"] for vector in vectors() if vector["ticks"] is None]
    # Fugit reads a line that no date ever matches, and finds no tick.
    assert [line for line in refused if fugit.last(line, None, [FIRST])] in ([], ["0 0 30 2 *"])


def random_field(draw: random.Random, low: int, high: int) -> str:
    """Return a field of one of the forms of X-CRON-11."""
    first, second = draw.randint(low, high), draw.randint(low, high)
    step = draw.randint(1, max(2, (high - low) // 2))
    forms = ["*", "*", f"{first}", f"*/{step}", f"{min(first, second)}-{max(first, second)}"]
    forms += [f"{first},{second}", f"{min(first, second)}-{max(first, second)}/{step}"]
    forms += [f"{first}/{step}", f"{first},*", "*/1"]
    if first > second:
        forms.append(f"{first}-{second}")
    return draw.choice(forms)


def random_line(draw: random.Random) -> str:
    """Return a line. Days, months and weekdays are restricted more seldom than times."""
    seldom = ["*"] * 4
    days = draw.choice([*seldom, random_field(draw, 1, 28), "L", f"{draw.randint(1, 28)}"])
    months = draw.choice([*seldom, random_field(draw, 1, 12), draw.choice(["jan", "Jul", "DEC"])])
    weekdays = draw.choice(
        [
            *seldom,
            random_field(draw, 0, 6),
            draw.choice(["mon", "fri-sun", "7", f"{draw.randint(0, 6)}#{draw.randint(1, 4)}"]),
        ]
    )
    line = f"{random_field(draw, 0, 59)} {random_field(draw, 0, 23)} {days} {months} {weekdays}"
    return f"{random_field(draw, 0, 59)} {line}" if draw.random() < 0.1 else line


def changes(zone: str) -> list[int]:
    """Return the days in which the clock of a zone changes."""
    tz = ZoneInfo(zone)

    def offset(instant: int) -> Any:
        return datetime.fromtimestamp(instant, tz).utcoffset()

    return [day for day in range(FIRST, LAST, DAY) if offset(day) != offset(day + DAY)]


def explained(line: str, tick: int, theirs: int | None) -> bool:
    """Return whether a difference is the one that is known.

    Fugit 1.5.2 counts days of 24 hours to find the last day of a month, or the second Monday. It is
    wrong about some days of a month in which the clock changes.
    """
    words = line.split()
    tz = ZoneInfo(words[-1])
    if "L" not in words and "#" not in words[-2]:
        return False
    for at in (tick, theirs):
        if at is not None:
            first = datetime.fromtimestamp(at, tz).replace(day=1, hour=0)
            if first.utcoffset() != (first + timedelta(days=32)).replace(day=1).utcoffset():
                return True
    return False


def compare(fugit: Fugit, *, lines: int, instants: int, seed: int) -> tuple[int, list[str]]:
    """Compare random lines in all zones; return the number of comparisons, and differences.

    Only what sidekiq-cron acts upon is compared: ticks within the grace period.
    """
    draw = random.Random(seed)
    of_zone = {zone: changes(zone) for zone in ZONES}
    differences, count = [], 0
    for _ in range(lines):
        text = random_line(draw)
        for zone in ZONES:
            line = f"{text} {zone}"
            ours = parse(line)
            asked = [draw.randrange(FIRST, LAST)]
            asked += [
                draw.choice(of_zone[zone] or [FIRST]) + draw.randrange(2 * DAY)
                for _ in range(instants - 1)
            ]
            ticks = [tick for at in asked if (tick := ours.after(at)) is not None and tick < LAST]
            asked += [tick + 1 + draw.randrange(GRACE_S) for tick in ticks]
            theirs = fugit.last(line, None, asked)
            assert theirs is not None, f"Fugit does not read {line}"
            for at, found in zip(asked, theirs, strict=True):
                tick = ours.before(at) or 0
                late = at - max(tick, found or 0)
                if late > GRACE_S:
                    continue
                count += 1
                if found != tick and not explained(line, tick, found):
                    differences.append(f"{line} before {at}: {tick}, Fugit {found}")
    return count, differences


def test_random_lines_have_the_same_ticks(fugit: Fugit) -> None:
    """X-CRON-10, X-CRON-11: most of the instants are near a change of the clock."""
    count, differences = compare(fugit, lines=60, instants=2, seed=17)
    assert count > 1000
    assert differences == []


@pytest.mark.full
@pytest.mark.parametrize("seed", range(1, 81))
def test_many_random_lines_have_the_same_ticks(fugit: Fugit, seed: int) -> None:
    """X-CRON-10, X-CRON-11: 10,000 lines in 12 zones, from 2024 to 2030."""
    _, differences = compare(fugit, lines=125, instants=2, seed=seed)
    assert differences == []
