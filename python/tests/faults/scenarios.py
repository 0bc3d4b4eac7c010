"""Scenarios: the work that a process does while faults are injected."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from harness.servers import wait_until
from jobwire.application.config import FetchMode
from tests.faults import jobs

if TYPE_CHECKING:
    from tests.faults.runs import Run

__all__ = ["OWNERS", "SCENARIOS", "Scenario", "Seed"]

OWNERS = "jobwire:owners"
AMPLE = 180.0  # seconds for steps of milliseconds, or of 20 s if an audit brings back the jobs

Place = Literal["queue", "schedule", "orphan", "unknown", "chain", "group"]


@dataclass(frozen=True)
class Seed:
    """A job at the beginning of a run.

    Attributes:
        kind: Its class, one of `jobs`; None for a payload that is not a job.
        place: Its place. An orphan is held by a process that died. An unknown one is put into the
            private hash of the process under test, as by a fetch that the server carried out late.
            A job of the place `chain` follows the one before it in the list. Jobs of the place
            `group` are members of one group.
        raw: The payload, if it is not a job.
    """

    kind: str | None = "Quick"
    place: Place = "queue"
    raw: bytes = b""


def _nothing(run: Run) -> None:
    """Let the worker work."""


@dataclass(frozen=True)
class Scenario:
    """The work of one process.

    Attributes:
        name: Name in the table.
        title: One sentence for readers, without capital and full stop.
        seeds: Jobs at the beginning.
        start: `worker`, or the push of `pushes.PUSHES` that a client does.
        settings: Settings of the worker, and `heartbeat_interval` in seconds.
        drive: Called after the start of the worker, to send signals for example.
        boot: True if faults hit the commands before the first fetch, False if those after it. They
            hit the `certain` ones in any case.
        ends: True if the process ends by itself or because of `drive`.
        basic: True if basic fetch has such a scenario.
        certain: The writing commands that every run without a fault sends, on a fast and on a slow
            machine, to a server that knows the scripts.
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
    certain: Sequence[str] = ()

    @property
    def is_client(self) -> bool:
        """True if the process under test pushes jobs instead of running them."""
        return self.start != "worker"

    def means_anything(self, fetch: FetchMode) -> bool:
        """True if the scenario applies to this way of fetching."""
        return fetch == "reliable" or (self.basic and not self.is_client)


def _cancel_running(run: Run) -> None:
    """Mark the endless jobs as cancelled as soon as they run."""
    wait_until(lambda: run.busy() or not run.alive(), AMPLE)
    run.cancel("Endless")


def _stop_gracefully(run: Run) -> None:
    """TERM while jobs run, which end as soon as the process has begun to stop."""
    _term_while_running(run)
    wait_until(lambda: run.record.exists(jobs.STOPPING) or not run.alive(), AMPLE)
    run.record.set(jobs.RELEASE, 1)


def _stop_hard(run: Run) -> None:
    """TERM while jobs run, which do not end in time."""
    _term_while_running(run)


def _term_while_running(run: Run) -> None:
    """TERM while both executors are busy with lasting jobs."""
    wait_until(lambda: run.busy() or not run.alive(), AMPLE)
    run.send(signal.SIGTERM)


def _end_after_the_rogues(run: Run) -> None:
    """Release the patient jobs as soon as no job disturbs them any more."""
    wait_until(lambda: run.finished(jobs.ROGUES) or not run.alive(), AMPLE)
    run.record.set(jobs.RELEASE, 1)


def _hold_unknown(run: Run) -> None:
    """Put the unknown jobs into the hash of the process as soon as it has a name."""
    wait_until(lambda: run.identity() or not run.alive(), AMPLE)
    run.hold_unknown()


def _unite_shards(run: Run) -> None:
    """Give the jobs of the second shard to the workers of the first, which are all that run."""
    wait_until(lambda: not run.alive(), AMPLE)
    run.unite_shards()


def _damage_owners(run: Run) -> None:
    """Make the set of owners a string while jobs run, and delete it as an operator would."""
    wait_until(lambda: run.busy() or not run.alive(), AMPLE)
    run.client.set(OWNERS, "not a set")
    try:
        wait_until(lambda: OWNERS in run.log() or not run.alive(), AMPLE)
    finally:  # a string would stop the runs behind this one
        run.client.delete(OWNERS)
    run.record.set(jobs.RELEASE, 1)


SCENARIOS: dict[str, Scenario] = {
    scenario.name: scenario
    for scenario in (
        Scenario(
            "enqueue",
            "a client pushes jobs for now and for later",
            start="push",
            ends=True,
            certain=("EXEC", "ZADD"),
        ),
        Scenario(
            "bulk",
            "a client pushes jobs in bulk",
            start="push_bulk",
            ends=True,
            certain=("EXEC", "ZADD"),
        ),
        Scenario(
            "cancel waiting",
            "a client cancels one of the jobs that wait",
            start="cancel",
            ends=True,
            certain=("EXEC", "cancel.lua"),
        ),
        Scenario(
            "unique",
            "a client pushes unique jobs and a duplicate, and deletes one of the jobs",
            start="unique",
            ends=True,
            certain=("lock.lua", "unlock.lua"),
        ),
        Scenario(
            "batch",
            "a client adds jobs to a batch in another, deletes one of them and closes both",
            start="batch",
            ends=True,
            certain=("batch_open.lua", "batch_add.lua", "batch_end.lua"),
        ),
        Scenario(
            "shards",
            "a client spreads jobs over two shards, one by one and in bulk",
            start="shards",
            drive=_unite_shards,
            ends=True,
            certain=("EXEC",),
        ),
        Scenario(
            "success",
            "a worker fetches jobs of two queues and runs them",
            [Seed(), Seed("Async"), Seed(), Seed("Async"), Seed()],
            certain=("fetch.lua", "done.lua"),
        ),
        Scenario(
            "chain",
            "jobs succeed, and each pushes the next one of its chain",
            [
                *(Seed(), Seed(place="chain"), Seed("Flaky", "chain"), Seed(place="chain")),
                *(Seed("Async"), Seed("Async", "chain")),
            ],
            certain=("fetch.lua", "finish.lua", "promote.lua", "done.lua"),
        ),
        Scenario(
            "group",
            "jobs run side by side, and the last one leads to the job after them",
            [
                *(Seed(place="group"), Seed("Flaky", "group"), Seed("Async", "group")),
                Seed(place="chain"),
            ],
            basic=False,
            certain=("fetch.lua", "batch_start.lua", "finish.lua", "promote.lua", "done.lua"),
        ),
        Scenario(
            "retry",
            "jobs fail, wait in the retry set, then succeed",
            [Seed("Flaky")] * 2,
            certain=("fetch.lua", "finish.lua", "promote.lua"),
        ),
        Scenario(
            "dead",
            "jobs fail for the last time",
            [Seed("Doomed")] * 2,
            certain=("fetch.lua", "finish.lua"),
        ),
        Scenario(
            "limits",
            "jobs take slots of a limit, or wait for their times",
            [Seed(kind) for kind in ("Limited", "Rated", "Windowed") * 2],
            certain=(
                *("fetch.lua", "limit_take.lua", "limit_rate.lua", "limit_window.lua"),
                *("limit_free.lua", "finish.lua", "done.lua"),
            ),
        ),
        Scenario(
            "locks of Ruby",
            "jobs take and release the locks that Ruby has described in them",
            [Seed("RubyLocked")] * 2,
            certain=("fetch.lua", "ruby_lock.lua", "finish.lua"),
        ),
        Scenario(
            "results",
            "jobs emit output, end and keep their results, one of them dies",
            [Seed("Kept"), Seed(), Seed("Kept"), Seed("Sorry")],
            certain=("fetch.lua", "emit.lua", "finish.lua"),
        ),
        Scenario(
            "snooze",
            "jobs put themselves off, wait in the schedule, then succeed",
            [Seed("Nap")] * 2 + [Seed()],
            certain=("fetch.lua", "finish.lua", "promote.lua", "done.lua"),
        ),
        Scenario(
            "expiry",
            "a worker drops jobs that come too late",
            [Seed("Late"), Seed(), Seed("Late")],
            certain=("fetch.lua", "finish.lua", "done.lua"),
        ),
        Scenario(
            "cancel running",
            "running jobs are cancelled, and end",
            [Seed("Endless")] * 2 + [Seed()],
            drive=_cancel_running,
            basic=False,
            certain=("fetch.lua", "done.lua"),
        ),
        Scenario(
            "unreadable",
            "a worker moves payloads that are not jobs to the dead set",
            [Seed(None, raw=b'{"class":'), Seed(None, raw=b"[1, 2]"), Seed()],
            certain=("fetch.lua", "finish.lua", "done.lua"),
        ),
        Scenario(
            "promotion",
            "due jobs move to their queues, and members that are not jobs to the dead set",
            [
                *[Seed(place="schedule")] * 3,
                Seed(None, place="schedule", raw=b'{"class":"Quick","args":[],"queue":""}'),
            ],
            certain=("promote.lua", "kill_due.lua", "fetch.lua", "done.lua"),
        ),
        Scenario(
            "graceful stop",
            "the worker gets TERM; running jobs end in time, the others stay in their queues",
            [Seed("Hold")] * 2 + [Seed()] * 3,
            settings={"timeout": AMPLE},
            drive=_stop_gracefully,
            ends=True,
            certain=("fetch.lua", "done.lua"),
        ),
        Scenario(
            "hard stop",
            "the worker gets TERM; it puts back and interrupts jobs that do not end in time",
            [Seed("Hold")] * 2 + [Seed()] * 3,
            settings={"timeout": 0.1},
            drive=_stop_hard,
            ends=True,
            certain=("fetch.lua", "put_back.lua"),
        ),
        Scenario(
            "orphan recovery",
            "a worker starts and puts back the jobs of a process that died",
            [*[Seed(place="orphan")] * 3, Seed()],
            boot=True,
            basic=False,
            certain=("EXEC", "recover.lua", "forget.lua"),
        ),
        Scenario(
            "iteration",
            "the worker gets TERM; iterable jobs stop between two items and continue elsewhere",
            [Seed("Walk")] * 2 + [Seed()],
            settings={"timeout": AMPLE},
            drive=_stop_gracefully,
            ends=True,
            certain=("fetch.lua", "finish.lua"),
        ),
        Scenario(
            "rogue jobs",
            "jobs end the event loop or cancel all tasks, while other jobs wait in it",
            [*(Seed(kind) for kind in jobs.ROGUES), Seed("Patient"), Seed("Patient")],
            settings={"concurrency": 5},
            drive=_end_after_the_rogues,
            basic=False,
            certain=("fetch.lua", "put_back.lua", "done.lua"),
        ),
        Scenario(
            "audit",
            "a worker holds jobs that it does not know, and puts them back",
            [Seed(place="unknown"), Seed(), Seed(place="unknown")],
            settings={"heartbeat_interval": 0.3},
            drive=_hold_unknown,
            basic=False,
            certain=("fetch.lua", "put_back.lua", "done.lua"),
        ),
        Scenario(
            "damaged owners",
            "the set of owners is a string for some time, then it is deleted, while jobs run",
            [Seed("Hold")] * 2 + [Seed()] * 2,
            settings={"heartbeat_interval": 0.3},
            drive=_damage_owners,
            basic=False,
            certain=("fetch.lua", "done.lua"),
        ),
    )
}
