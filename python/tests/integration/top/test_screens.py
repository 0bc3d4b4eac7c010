"""Each screen at 80x24, with the numbers of the inspector; hostile text; outages; the cost."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import pytest

from harness.servers import Server
from jobwire import App
from jobwire.ops import Operations
from tests.integration.top.driving import driving
from tests.integration.top.test_actions import fill
from tests.samples import AT, DUE, payload
from tests.workers import running

pytestmark = pytest.mark.process


def test_each_screen_shows_the_numbers_of_the_inspector(server: Server) -> None:
    """The same numbers as jobwire.inspect, which the page and the command line show."""
    fill(server)
    client = server.client()
    client.set("stat:processed", 1_234)
    client.set("stat:failed", 56)
    with Operations(server.url) as operations:
        stats = operations.inspector.stats()
        queues = operations.inspector.queues()
        groups = operations.groups()
        findings = operations.doctor()

    async def scenario() -> None:
        async with driving(server) as drive:
            await drive.sees(
                *("processed 1,234", f"failed {stats.failed} (4.5%)", "busy 0/2", "processes 1"),
                *(f"enqueued {stats.enqueued}", f"scheduled {stats.scheduled}"),
                *(f"retries {stats.retries}", f"dead {stats.dead}", "unreadable 1"),
                "No process serves mails.",
            )
            await drive.open("2")
            rows = [(row[0], row[1], row[3], row[4]) for row in drive.rows]
            assert rows == [
                ("halted", "0", "0", "paused"),
                ("mails", "3", "0", "no worker"),
                *((queue.name, "0", "1", "") for queue in queues if queue.name == "nothing"),
            ]
            await drive.press("down", "enter")
            await drive.sees("Queue mails", "1-3 of 3", "MailJob")
            await drive.open("3")
            await drive.sees("1 process", "0 of 2 slots busy", "nothing")
            for key, words, total in (
                ("4", ("RetriedJob", "ValueError: order 12 is <not> there", "4"), stats.retries),
                ("5", ("LaterJob", '[7, "x"]'), stats.scheduled),
                ("6", ("DeadJob", "ValueError: order 12"), stats.dead),
                ("7", ("[1]", "object"), stats.unreadable),
            ):
                await drive.open(key)
                await drive.sees(*words, f"1-{total} of {total}")
                assert len(drive.rows) == total
            await drive.open("8")
            await drive.sees(f"{len(groups.groups)} groups in 5 of 5 jobs", "order N is <not>")
            await drive.open("0")
            await drive.sees("eve", "delete", "done")
            await drive.open("c")
            await drive.sees("no change of many jobs was started here")
            await drive.open("d")
            await drive.sees(f"{len(findings)} findings", findings[0].code)

    with running(App(), server, queues={"nothing": 0}):
        asyncio.run(scenario())


def test_one_job(server: Server) -> None:
    fill(server)

    async def scenario() -> None:
        async with driving(server, size=(100, 60)) as drive:
            await drive.open("4")
            await drive.press("down", "enter")
            await drive.sees(
                *("Job r1", "place    retry", "It failed with ValueError", "next attempt"),
                *("app/invoices.py:12", "arguments", '"jid": "r1"'),
            )
            await drive.press("r")
            await drive.until(lambda: server.client().zcard("retry") == 2)
            await drive.sees("place    queue:mails")
            await drive.press("escape")
            await drive.sees("1-2 of 2")

    asyncio.run(scenario())


def test_the_search_finds_jobs_in_all_places(server: Server) -> None:
    fill(server)
    jid, ended = "f" * 24, "e" * 24
    stored = json.dumps({"outcome": "done", "at": AT, "value": {"rows": 12}})
    server.client().set(f"jobwire:result:{ended}", stored, ex=5400)
    server.client().lpush("queue:mails", payload("FarJob", jid, args=["needle in hay"]))

    async def scenario() -> None:
        async with driving(server) as drive:
            await drive.press("9")
            await drive.write("needle in")
            await drive.sees("1 found", "FarJob", "Queue mails")
            await drive.press("slash", *["backspace"] * 20)
            await drive.write("error:order class:*Job")
            await drive.sees("5 found", "Retries", "Dead")
            await drive.press("slash", *["backspace"] * 40)
            await drive.write("older")
            await drive.sees("0 found")
            await drive.press("slash", *["backspace"] * 20)
            await drive.write("older:soon")
            await drive.until(lambda: drive.messages)
            assert "'soon' is not a time span" in drive.messages[-1]
            await drive.press("slash", *["backspace"] * 20)
            await drive.write(jid)
            await drive.sees(f"Job {jid}", "place    queue:mails")
            await drive.press("escape", "slash", *["backspace"] * 40)
            await drive.write(ended)
            await drive.sees(f"Job {ended}", "done", "kept for 1h", '"rows": 12')

    asyncio.run(scenario())


HOSTILE = (
    "[bold red]markup[/] [@click=app.quit]x[/]",
    "\x1b[2J\x1b]0;title\x07 \x9b31m",
    "\u202eevil\u2066 \u200b\ufeff",
    "\r\n\t\x00\x08",
    "\\[/",
    "]",
    "[/nothing]",
    "$x {y} %s",
    "漢字 é😀",
    "\ud800",
)
CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")


def hostile(server: Server) -> None:
    """Put texts that try to act into every place that is shown."""
    client = server.client()
    for number, text in enumerate([*HOSTILE, "x" * 1_000_000, "\u202e" * 300_000]):
        fields: dict[str, Any] = {
            "error_class": text,
            "error_message": text,
            "error_backtrace": [text] * 3,
            "tags": [text],
            "failed_at": AT,
            "retry_count": 1,
        }
        whole = json.dumps(
            {"class": text, "args": [text, {text: text}], "jid": text, "queue": text, **fields}
        )
        client.zadd("retry", {whole: DUE + number})
        client.zadd("dead", {whole: AT + number})
        client.zadd("schedule", {whole: DUE + number})
        client.zadd("jobwire:unreadable", {text.encode("utf-8", "surrogatepass"): AT + number})
        name = text[:300].encode("utf-8", "surrogatepass")
        client.lpush(b"queue:" + name, whole)
        client.sadd("queues", name)
        info = json.dumps({"hostname": text[:300], "queues": [text[:300]], "tag": text[:300]})
        client.sadd("processes", name)
        client.hset(name, mapping={"info": info, "busy": 1, "beat": AT, "quiet": "false"})
        work = json.dumps({"queue": text[:300], "run_at": AT, "payload": whole})
        client.hset(name + b":work", name, work)
    with Operations(server.url, person=HOSTILE[0] + HOSTILE[1], role="admin") as operations:
        operations.delete(next(iter(operations.inspector.entries("dead"))))


@pytest.mark.matrix
def test_hostile_text_is_shown_and_does_nothing(server: Server) -> None:
    """SEC-5, SEC-6: as classes, arguments, errors, jids, queues, processes and persons."""
    hostile(server)

    async def scenario() -> None:
        async with driving(server, size=(120, 40), interval=0.5) as drive:
            for key in "1234567809cd":
                if key != "9":
                    await drive.open(key)
                    assert not CONTROL.search(drive.text), key
                    assert drive.app.screen.styles.background is not None
            await drive.open("4")
            await drive.sees("[bold red]markup[/]", "\\x1b[2J", "\\u202eevil")
            for _ in range(4):
                await drive.press("enter")
                await drive.sees("place    retry")
                assert not CONTROL.search(drive.text)
                await drive.press("escape", "down")
            await drive.press("end", "x")
            await drive.until(lambda: drive.app.screen is not drive.data_screen)
            assert not CONTROL.search(drive.text)
            await drive.press("y")
            await drive.until(lambda: drive.messages)
            await drive.pilot.pause(0.1)
            assert not CONTROL.search(drive.text)
            assert drive.app.is_running

    asyncio.run(scenario())


def test_without_colours_no_colour_is_drawn(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    fill(server)

    async def scenario() -> None:
        async with driving(server) as drive:
            for key in "124d":
                await drive.open(key)
                colours = {
                    colour.name
                    for strip in drive.app.screen._compositor.render_strips()
                    for segment in strip
                    if segment.style is not None
                    for colour in (segment.style.color, segment.style.bgcolor)
                    if colour is not None
                }
                assert colours <= {"default"}, key
            await drive.open("4")
            strips = drive.app.screen._compositor.render_strips()
            (cursor,) = (
                strip
                for strip in strips
                if "RetriedJob" in strip.text
                and any(segment.style and segment.style.reverse for segment in strip)
            )
            assert "order 12" in cursor.text

    asyncio.run(scenario())


@pytest.mark.process
def test_redis_away_is_a_line_and_it_recovers(server: Server) -> None:
    fill(server)

    async def scenario() -> None:
        async with driving(server, timeout=1.0) as drive:
            await drive.open("4")
            await drive.sees("RetriedJob")
            server.stop()
            await drive.sees("Redis cannot be used")
            assert "RetriedJob" in drive.text, "the last data stay"
            await drive.press("r")
            await drive.until(lambda: drive.messages)
            await drive.press("2")
            await drive.sees("[2 Queues]", "Redis cannot be used")
            server.start()
            server.client().sadd("queues", "back")
            await drive.sees("back", "1 queue")
            assert "Redis cannot be used" not in drive.text

    asyncio.run(scenario())


@pytest.mark.process
def test_a_hanging_redis_does_not_hold_the_screen(server: Server) -> None:
    fill(server)

    async def scenario() -> None:
        async with driving(server, timeout=2.0) as drive:
            await drive.open("2")
            server.pause()
            try:
                await drive.press("p", "question_mark")
                await drive.sees("Keys of Queues", "Pause/resume")
                await drive.press("escape", "3")
                await drive.sees("[3 Busy]")
                await drive.sees("Redis cannot be used")
            finally:
                server.resume()
            await drive.sees("0 processes")

    asyncio.run(scenario())


@pytest.mark.process
def test_the_cost_of_a_read_does_not_depend_on_sizes(server: Server) -> None:
    """The commands of a read, with 3 and with 4,000 members in each set and queue."""
    client = server.client()

    def grow(count: int) -> None:
        for place in ("retry", "schedule", "dead", "jobwire:unreadable"):
            pipeline = client.pipeline()
            for first in range(0, count, 2_000):
                part = range(first, min(first + 2_000, count))
                pipeline.zadd(place, {payload("Job", f"j{n}"): DUE + n for n in part})
            pipeline.execute()
        client.delete("queue:mails")
        client.sadd("queues", "mails")
        client.lpush("queue:mails", *(payload("Job", f"j{n}") for n in range(count)))

    async def calls() -> dict[str, dict[str, int]]:
        """Return the calls of a second read, by command, for each screen."""
        counts = {}
        async with driving(server, interval=3600.0) as drive:
            for key in "1234567":
                await drive.open(key)
                await drive.read()
                client.config_resetstat()
                await drive.read()
                stats = client.info("commandstats")
                names = stats.keys() - {"cmdstat_config|resetstat"}
                counts[key] = {name: stats[name]["calls"] for name in names}
        return counts

    grow(3)
    few = asyncio.run(calls())
    grow(4_000)
    many = asyncio.run(calls())
    assert few == many
    assert max(sum(counts.values()) for counts in many.values()) < 40
