"""Draws the screens of `jobwire top`, over a server and a worker that it starts.

    PYTHONPATH=python:conformance .venv/bin/python -m tests.browser.top_pictures DIRECTORY
    PYTHONPATH=python:conformance .venv/bin/python -m tests.browser.top_pictures --docs

The first form writes an SVG file for each screen, the second the picture in docs/pictures.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import re
import tempfile
from contextlib import ExitStack, suppress
from pathlib import Path

from harness.servers import Reaper, Server, valkey_program
from jobwire import Client
from tests.browser.database import fill
from tests.integration.top.driving import Driver, driving
from tests.workers import Workers

ROOT = Path(__file__).resolve().parents[3]
PICTURE = ROOT / "docs/pictures/top.svg"
SIZE = (100, 30)
PICTURES = {
    "overview": "1",
    "queues": "2",
    "busy": "3",
    "retries": "4",
    "job": "4 enter",
    "dry-run": "4 R",
    "scheduled": "5",
    "dead": "6",
    "unreadable": "7",
    "failures": "8",
    "search": "9",
    "journal": "escape 0",
    "changes": "c",
    "doctor": "d",
    "keys": "4 question_mark",
}
SECONDS = 20  # of jobs before the first picture, for its bars


def main() -> None:
    """Draw the screens."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", nargs="?", type=Path)
    parser.add_argument("--docs", action="store_true")
    options = parser.parse_args()
    if (options.directory is None) is not options.docs:
        parser.error("name a directory, or --docs")
    with ExitStack() as stack:
        reaper = Reaper()
        stack.callback(reaper.close)
        server = Server(reaper, valkey_program())
        stack.callback(server.close)
        place = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        fill(server, stack.enter_context(Workers(reaper, place)))
        if options.docs:
            PICTURE.parent.mkdir(exist_ok=True)
            asyncio.run(_draw(server, {PICTURE: "1"}))
        else:
            options.directory.mkdir(exist_ok=True)
            files = {options.directory / f"{name}.svg": keys for name, keys in PICTURES.items()}
            asyncio.run(_draw(server, files))


async def _draw(server: Server, files: dict[Path, str]) -> None:
    async with driving(server, size=SIZE, interval=0.5) as drive:
        living = asyncio.create_task(_live(server, drive))
        await drive.pilot.pause(SECONDS)
        for file, keys in files.items():
            for key in keys.split():
                await drive.press(key)
                await drive.pilot.pause(1.0)
            file.write_text(_plain(drive.app.export_screenshot(title="jobwire top")))
            await drive.press("escape")
        living.cancel()
        with suppress(asyncio.CancelledError):
            await living


async def _live(server: Server, drive: Driver) -> None:
    """Let the counters grow, as a busy fleet lets them."""
    dice = random.Random(7)
    client = server.client()
    with Client(server.url) as push:
        while True:
            client.incrby("stat:processed", dice.randrange(40, 160))
            push.push_bulk("ReportJob", [[1]] * dice.randrange(4), queue="mails")
            await drive.pilot.pause(0.25)


def _plain(svg: str) -> str:
    """Return a picture that loads no font from another host."""
    return re.sub(r"@font-face \{.*?\}", "", svg, flags=re.DOTALL)


if __name__ == "__main__":
    main()
