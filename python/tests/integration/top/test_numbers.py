"""The numbers of the terminal are those of all other views, on every recorded database.

python/tests/integration/web/test_numbers.py compares the other views.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from harness.servers import Server
from jobwire.console.top.rows import Rows
from jobwire.ops import Operations
from tests.databases import databases, load
from tests.integration.top.driving import Driver, driving
from tests.samples import DUE, failure, payload

FIGURE = re.compile(
    r"(processed|failed|processes|enqueued|scheduled|retries|dead|unreadable|busy) ([0-9,]+)"
)


def figures(drive: Driver) -> dict[str, int]:
    """Return the figures of the overview."""
    lines = "\n".join(drive.text.splitlines()[2:6])
    return {name: int(number.replace(",", "")) for name, number in FIGURE.findall(lines)}


@pytest.mark.matrix
def test_the_overview_says_the_same_on_every_recorded_database(server: Server) -> None:
    """C3 A1: 400 databases that real Sidekiq left."""
    client = server.client()
    largest: dict[str, int] = {}

    async def scenario() -> None:
        async with driving(server, size=(120, 30), interval=3600.0) as drive:
            await drive.open("1")
            for name, keys in databases().items():
                load(client, keys)
                await drive.data_screen.update_data()
                await drive.pilot.pause()
                stats: Any = await asyncio.to_thread(operations.inspector.stats)
                shown = figures(drive)
                assert shown == {key: getattr(stats, key) for key in shown}, name
                assert len(shown) == 9, drive.text
                largest.update({key: max(of, largest.get(key, 0)) for key, of in shown.items()})

    assert len(databases()) == 400
    with Operations(server.url) as operations:
        asyncio.run(scenario())
    assert min(of for name, of in largest.items() if name != "unreadable") >= 1, largest


def test_the_cursor_stays_on_its_row(server: Server) -> None:
    """An action would otherwise hit the entry that has moved under the cursor."""
    client = server.client()
    client.zadd("retry", {payload("Job", f"r{n}", **failure()): DUE + n for n in range(9)})

    async def scenario() -> None:
        async with driving(server) as drive:
            await drive.open("4")
            await drive.press("down", "down", "down", "down")
            table = drive.data_screen.query_one(Rows)
            chosen = table.current
            client.zremrangebyrank("retry", 0, 1)
            await drive.sees("1-7 of 7")
            assert (table.current, table.cursor_row) == (chosen, 2)
            client.zadd("retry", {payload("Job", "early", **failure()): DUE - 1})
            await drive.sees("1-8 of 8")
            assert (table.current, table.cursor_row) == (chosen, 3)
            await drive.press("x")
            await drive.until(lambda: drive.app.screen is not drive.data_screen)
            assert "r4" in drive.text
            await drive.press("y")
            await drive.sees("1-7 of 7")
            assert not [one for one in client.zrange("retry", 0, -1) if b'"r4"' in one]

    asyncio.run(scenario())
