"""The page over a server and a worker that never run out of jobs."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Never

from rich.console import Console

from examples import demo_app
from examples.demo.kinds import Kind
from examples.demo.stage import DemoStage, WorkerFailed

__all__ = ["show"]

TICK = 0.5  # seconds between two groups of jobs
STOP = 5.0  # seconds for the page to stop
LATER = 300.0  # seconds
MAX_SQUARES = 20  # of one group


def show(stage: DemoStage, console: Console, kinds: Sequence[Kind], port: int) -> Never:
    """Serve the page, and push jobs of all kinds until a signal ends the demo.

    Args:
        stage: The server and the worker.
        console: Where to say the address.
        kinds: Jobs to push once, the recorded ones among them.
        port: The port of the page; 0 for any.

    Raises:
        WorkerFailed: The worker, or the page, has ended.
        Interrupted: A signal asks for the end.
    """
    demo_app.app.connect(stage.url)
    for kind in kinds:
        kind.push(stage.redis)
    with _page(stage.url, port) as (page, address):
        console.print(f"[green]✓[/] the page: [bold]{address}[/]   (Ctrl-C ends the demo)")
        dice = random.Random()
        while True:
            stage.check_worker()
            if page.poll() is not None:
                raise WorkerFailed(f"the page ended with status {page.returncode}")
            _push_some(dice)
            time.sleep(TICK)


def _push_some(dice: random.Random) -> None:
    """Push a group of jobs: most are quick, some take a while, wait, fail, or are for later."""
    demo_app.greet.enqueue(dice.choice(["Ada", "Grace", "Yukihiro", "Guido"]), times=2)
    demo_app.square.enqueue_bulk([number] for number in range(dice.randrange(MAX_SQUARES)))
    demo_app.fetch.enqueue(f"https://example.org/{dice.randrange(1000)}", dice.uniform(0.5, 8))
    if dice.random() < 0.3:
        demo_app.flaky.enqueue(dice.randrange(1, 4))
    if dice.random() < 0.1:
        demo_app.doomed.enqueue(f"no such customer: {dice.randrange(10**6)}")
    if dice.random() < 0.2:
        demo_app.greet.enqueue_in(dice.uniform(5, LATER), "later")


@contextmanager
def _page(url: str, port: int) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run `jobwire web`; yield its process and its address."""
    page = subprocess.Popen(
        [sys.executable, "-m", "jobwire", "web", "--redis", url, "--port", str(port)],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C is for the demo, which then stops the page
    )
    try:
        assert page.stderr is not None
        line = page.stderr.readline()
        address = next((word for word in line.split() if word.startswith("http://")), None)
        if address is None:
            raise WorkerFailed(f"the page did not start: {line}{page.stderr.read()}")
        yield page, address
    finally:
        page.terminate()
        with suppress(subprocess.TimeoutExpired):
            page.wait(STOP)
        page.kill()
        page.wait()
