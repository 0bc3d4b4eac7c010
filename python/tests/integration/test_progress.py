"""A worker that hangs says so, and gives up its lease. [REL-3] [BEAT-2]"""

from __future__ import annotations

import threading
from typing import Any

import pytest

from harness.servers import Server, wait_until
from jobwire import App
from jobwire.worker import Launcher
from jobwire.worker.process.progress import Progress
from tests.integration.payloads import push_job
from tests.workers import brisk, running

TIMINGS = brisk(stuck_after=2.0, heartbeat_interval=0.1, fetch_safety_interval=0.1)


def test_only_a_part_without_progress_hangs() -> None:
    values: dict[str, object] = {"waits": None, "hangs": 1, "works": 0}
    progress = Progress({name: lambda name=name: values[name] for name in values}, limit=0.05)  # type: ignore[misc]

    def look() -> str:
        values["works"] = object()
        return progress.stuck()

    assert look() == ""
    assert wait_until(look) == "hangs stuck for 0 s"
    values["hangs"] = 2
    assert look() == ""


def beat(server: Server, launcher: Launcher) -> Any:
    return server.client().hget(launcher.identity, "beat")


@pytest.mark.process
@pytest.mark.parametrize("part", ["ticker", "handler"])
def test_a_worker_that_hangs_gives_up_its_lease_until_it_works_again(
    server: Server, caplog: pytest.LogCaptureFixture, part: str
) -> None:
    """A handler or a check that never ends is a reason."""
    app, go_on, begun = App(), threading.Event(), threading.Event()

    @app.job(name="Long")
    def long() -> None:
        begun.set()
        if part == "handler":
            raise ValueError
        go_on.wait(60)

    @app.on_error
    def hang(job: object, error: object) -> None:
        go_on.wait(60)

    def hang_in_check() -> None:
        go_on.wait(60)

    push_job(server, "Long")
    try:
        with running(app, server, concurrency=1, timings=TIMINGS) as launcher:
            assert begun.wait(60)
            if part == "ticker":
                launcher._ticker.add_periodic_check(hang_in_check)
                launcher._ticker.wake()
            name = "ticker" if part == "ticker" else "each thread of capsule default"
            # On a busy machine another part may be late first.
            wait_until(lambda: (launcher.stuck() or "").startswith(f"{name} stuck for "))
            wait_until(lambda: [r for r in caplog.messages if "the lease is given up" in r])
            last = beat(server, launcher)
            turned = launcher._heartbeat.turned_at
            wait_until(lambda: launcher._heartbeat.turned_at > turned + 0.5)
            assert beat(server, launcher) == last
            go_on.set()
            wait_until(lambda: not launcher.stuck())
            wait_until(lambda: beat(server, launcher) != last)
            assert [r for r in caplog.messages if "works again" in r]
    finally:
        go_on.set()


@pytest.mark.process
def test_long_jobs_and_an_idle_worker_are_no_reason(server: Server) -> None:
    app, go_on, begun = App(), threading.Event(), threading.Event()

    @app.job(name="Long")
    def long() -> None:
        begun.set()
        go_on.wait(60)

    try:
        with running(app, server, concurrency=1, timings=TIMINGS) as launcher:
            for wait in (True, False):
                turned = launcher._heartbeat.turned_at
                wait_until(
                    lambda at=turned: launcher.stuck() or launcher._heartbeat.turned_at > at + 3  # type: ignore[misc]
                )
                assert launcher.stuck() == ""
                if wait:
                    push_job(server, "Long")
                    assert begun.wait(60)
    finally:
        go_on.set()
