"""What a process is made to do while something goes wrong. One entry a scenario."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from jobwire.application.config import FetchMode
from tests.faults import jobs
from tests.servers import wait_until

if TYPE_CHECKING:
    from tests.faults.runs import Run

__all__ = ["SCENARIOS", "Scenario", "Seed"]

Place = Literal["queue", "schedule", "orphan"]


@dataclass(frozen=True)
class Seed:
    """A job that is there at the beginning.

    Attributes:
        kind: Its class, one of `jobs`; None for something that is no job.
        place: Where it is; an orphan is held by a process that died.
        raw: What it is, if it is no job.
    """

    kind: str | None = "Quick"
    place: Place = "queue"
    raw: bytes = b""


def _nothing(run: Run) -> None:
    """Let it work."""


@dataclass(frozen=True)
class Scenario:
    """One thing that a process does.

    Attributes:
        name: In the table.
        title: What happens, for readers.
        seeds: The jobs that are there.
        start: `worker`, or which of `pushes.PUSHES` a client does.
        settings: Of the worker.
        drive: Called when the worker was started, to send signals for example.
        boot: Whether what a worker does before its first fetch is meant, or what comes then.
        ends: Whether the process ends by itself or by what `drive` does.
        basic: Whether basic fetch has anything like it.
    """

    name: str
    title: str
    seeds: Sequence[Seed] = ()
    start: str = "worker"
    settings: Mapping[str, Any] = field(default_factory=dict)
    drive: Callable[[Run], None] = _nothing
    boot: bool = False
    ends: bool = False
    basic: bool = True

    @property
    def is_client(self) -> bool:
        """Whether the process under test pushes jobs instead of running them."""
        return self.start != "worker"

    def means_anything(self, fetch: FetchMode) -> bool:
        """Whether it makes a difference how the worker fetches."""
        return fetch == "reliable" or (self.basic and not self.is_client)


def _stop_gracefully(run: Run) -> None:
    """TERM while jobs run, which then end in time."""
    _term_while_running(run)
    time.sleep(0.05)
    run.record.set(jobs.RELEASE, 1)


def _stop_hard(run: Run) -> None:
    """TERM while jobs run, which do not end in time."""
    _term_while_running(run)


def _term_while_running(run: Run) -> None:
    wait_until(lambda: run.record.hlen(jobs.STARTED) >= 2 or not run.alive())
    run.send(signal.SIGTERM)


SCENARIOS: dict[str, Scenario] = {
    scenario.name: scenario
    for scenario in (
        Scenario("enqueue", "a client pushes jobs for now and for later", start="push", ends=True),
        Scenario("bulk", "a client pushes jobs in bulk", start="push_bulk", ends=True),
        Scenario(
            "success",
            "a worker fetches jobs of two queues and runs them",
            [Seed(), Seed("Async"), Seed(), Seed("Async"), Seed()],
        ),
        Scenario("retry", "jobs fail, wait in the retry set, succeed", [Seed("Flaky")] * 2),
        Scenario("dead", "jobs fail for the last time", [Seed("Doomed")] * 2),
        Scenario(
            "unreadable",
            "what is no job is buried",
            [Seed(None, raw=b'{"class":'), Seed(None, raw=b"[1, 2]"), Seed()],
        ),
        Scenario(
            "promotion",
            "due jobs move to their queues, what is no job to the dead",
            [
                *[Seed(place="schedule")] * 3,
                Seed(None, place="schedule", raw=b'{"class":"Quick","args":[],"queue":""}'),
            ],
        ),
        Scenario(
            "graceful stop",
            "TERM; running jobs end in time, others stay",
            [Seed("Hold")] * 2 + [Seed()] * 3,
            settings={"timeout": 8.0},
            drive=_stop_gracefully,
            ends=True,
        ),
        Scenario(
            "hard stop",
            "TERM; running jobs do not end in time, are put back and interrupted",
            [Seed("Hold")] * 2 + [Seed()] * 3,
            settings={"timeout": 0.1},
            drive=_stop_hard,
            ends=True,
        ),
        Scenario(
            "orphan recovery",
            "a worker starts and puts back the jobs of one that died",
            [*[Seed(place="orphan")] * 3, Seed()],
            boot=True,
            basic=False,
        ),
        Scenario(
            "iteration",
            "TERM; iterable jobs give way between two items and go on elsewhere",
            [Seed("Walk")] * 2 + [Seed()],
            drive=_term_while_running,
            ends=True,
        ),
    )
}
