"""Actions on thousands of jobs: filter, dry run, progress, stop, undo, groups."""

from __future__ import annotations

import asyncio

import pytest

from harness.servers import Server
from jobwire.ops import Operations
from tests.integration.top.driving import driving
from tests.samples import DUE, failure, payload

JOBS = 6_000


def fill(server: Server) -> None:
    """Put thousands of failures into the retry set, every third of class Other."""
    client = server.client()
    for first in range(0, JOBS, 2_000):
        client.zadd(
            "retry",
            {
                payload("Other" if n % 3 else "Wanted", f"j{n}", **failure()): DUE + n
                for n in range(first, first + 2_000)
            },
        )


@pytest.mark.process
def test_a_filtered_selection_is_deleted_and_put_back(server: Server) -> None:
    fill(server)
    client = server.client()
    before = client.zrange("retry", 0, -1, withscores=True)

    async def scenario() -> None:
        async with driving(server, size=(100, 30)) as drive:
            await drive.open("4")
            await drive.press("slash")
            await drive.write("class:Wanted error:order")
            await drive.sees("200 in 598 of 6,000", "actions reach all")
            await drive.press("X")
            await drive.sees("Delete 2,000 jobs of 6,000 in Retries?", "Wanted", "for 24 hours")
            await drive.press("n")
            assert client.zcard("retry") == JOBS
            await drive.press("X")
            await drive.sees("Delete 2,000 jobs")
            await drive.press("y")
            await drive.sees("6,000 of 6,000 examined, 2,000 done; ended", "u  undo")
            assert client.zcard("retry") == JOBS - 2_000
            await drive.press("u")
            await drive.sees("2,000 of 2,000 examined, 2,000 done; ended")
            assert client.zrange("retry", 0, -1, withscores=True) == before
            await drive.press("escape", "escape")
            await drive.sees("of 6,000")
            await drive.open("c")
            await drive.sees("delete", "undo", "6,000 of 6,000 examined")
            await drive.open("0")
            await drive.sees("ada@host", "class_name=Wanted")

    asyncio.run(scenario())
    with Operations(server.url) as operations:
        journal = [(one.act, one.state, one.count) for one in operations.journal()]
    assert journal[:2] == [("undo", "ended", 2_000), ("undo", "begun", 0)]
    assert journal[2:] == [("delete", "ended", 2_000), ("delete", "begun", 0)]


@pytest.mark.process
def test_a_change_goes_on_behind_the_screen_and_can_be_stopped(server: Server) -> None:
    fill(server)
    client = server.client()

    async def scenario() -> None:
        async with driving(server) as drive:
            await drive.open("4")
            await drive.press("K")
            await drive.sees("Kill 6,000 jobs")
            await drive.press("y")
            await drive.until(lambda: drive.app.context.changes.all())
            (change,) = drive.app.context.changes.all()
            await drive.press("s", "escape")
            await drive.until(lambda: change.ended)
            assert drive.app.screen is drive.data_screen
            if change.stopped:  # it may have been quicker than the key
                assert client.zcard("retry") > 0
            assert client.zcard("retry") + client.zcard("dead") == JOBS
            assert client.zcard("dead") == change.progress.done
            await drive.open("c")
            await drive.sees("kill", f"{change.progress.done:,} done")

    asyncio.run(scenario())


@pytest.mark.process
def test_a_group_of_failures_is_retried(server: Server) -> None:
    fill(server)
    client = server.client()
    client.zadd("dead", {payload("Third", "t1", **failure("Timeout")): 1.0})

    async def scenario() -> None:
        async with driving(server) as drive:
            await drive.open("8")
            await drive.sees("3 groups in 5,001 of 6,001 jobs")
            await drive.press("a")
            await drive.sees("3 groups in 6,001 of 6,001 jobs")
            await drive.press("down", "enter")
            await drive.sees("ValueError in Wanted: 200 in")
            await drive.press("escape", "R")
            await drive.sees("Retry 2,000 jobs of 6,000 in Retries?")
            await drive.press("y")
            await drive.sees("2,000 done; ended")
            await drive.press("escape")
            assert client.llen("queue:mails") == 2_000
            assert client.zcard("retry") == 4_000
            await drive.sees("2 groups in 4,001 of 4,001 jobs")

    asyncio.run(scenario())


def test_pages_of_a_set(server: Server) -> None:
    fill(server)

    async def scenario() -> None:
        async with driving(server) as drive:
            await drive.open("4")
            await drive.sees("1-18 of 6,000")
            await drive.press("n")
            await drive.sees("19-36 of 6,000")
            await drive.press("p", "p")
            await drive.sees("1-18 of 6,000")

    asyncio.run(scenario())
