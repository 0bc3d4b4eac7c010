"""The thread that takes the ticks of periodic jobs. Each process has one; there is no leader.

All processes are awake at a tick. Each waits for a random time first, so that one of them comes
before the others, which then find with one command that there is nothing to do. [X-CRON-15]
"""

from __future__ import annotations

import logging
import math
import random
import secrets
import threading
import time
import uuid
from collections.abc import Callable, Sequence

from jobwire.connection.sync import SyncRedis
from jobwire.errors import ConfigError, InvalidJob, RedisRefused
from jobwire.periodic.planning import Agenda, Due
from jobwire.periodic.schedule import load
from jobwire.protocol import periodic
from jobwire.protocol.keys import Keys
from jobwire.protocol.metrics import Metrics
from jobwire.protocol.periodic import NotTaken, Tick, Ticked
from jobwire.protocol.periodic_entry import DEFAULT_NAMESPACE, PeriodicEntry, StoredEntry
from jobwire.protocol.times import Generation
from jobwire.protocol.wire import Batch, Op, command, once, together
from jobwire.worker.base.outage import Outage
from jobwire.worker.base.timings import DEFAULT_TIMINGS, Timings

__all__ = ["PeriodicThread"]

SPREAD_S = 0.005  # of the wait before a tick is taken, for each process of the fleet
SPREAD_IMPRECISE_S = 0.5
MAX_SPREAD_S = 5.0
AT_ONCE = 500  # entries in one question to the server
TAKEN_AT_ONCE = 50  # entries whose ticks one message takes; other clients wait for the server
NEVER_S = 3600.0
SLACK_S = 2.0  # by which heartbeats are later than their interval

_log = logging.getLogger("jobwire.worker")


class PeriodicThread:
    """Looks at the entries now and then, and takes their ticks when they are due.

    Args:
        redis: The Redis to use.
        keys: Key names.
        generation: Returns the generation of the times to write.
        precise: True to take ticks at their time; False to spread the processes over more time.
        schedule: Name of the schedule of `entries`.
        entries: The entries that the application defines; they are written before the first look,
            and others of its schedule are removed. None: it defines none.
        timings: Intervals between looks.

    Attributes:
        lateness: Ticks that this process took, by entry: how late they were pushed. Those that
            were skipped, because the job before was not finished, count as failed.
    """

    def __init__(
        self,
        redis: SyncRedis,
        keys: Keys,
        *,
        generation: Callable[[], Generation],
        precise: bool = True,
        schedule: str = "",
        entries: Sequence[PeriodicEntry] | None = None,
        timings: Timings = DEFAULT_TIMINGS,
    ) -> None:
        self._redis = redis
        self._keys = keys
        self._generation = generation
        self._spread = SPREAD_S if precise else SPREAD_IMPRECISE_S
        self._schedule = schedule
        self._unloaded = entries
        self._namespaces = sorted(
            {DEFAULT_NAMESPACE, *(entry.namespace for entry in entries or ())}
        )
        self._timings = timings
        self._stop = threading.Event()
        self._outage = Outage(
            "taking the ticks of periodic jobs", self._stop, pause=timings.longest_outage_pause
        )
        self.lateness = Metrics()
        self._ticks = self.lateness.for_thread()
        self._agenda = Agenda()
        self._look_at = -math.inf  # monotonic
        self._clock_offset = 0.0  # from this process's monotonic clock to the server's time
        self._thread = threading.Thread(target=self._run, name="jobwire-periodic", daemon=True)

    @property
    def looks(self) -> list[tuple[str, Callable[[], Op[None]]]]:
        """Operations that put off a look while nothing changes, with their names for the log."""
        return [
            ("comparing clocks", self._compare_clocks),
            ("search for changed periodic jobs", self._look_for_changes),
        ]

    def _compare_clocks(self) -> Op[None]:
        if self._is_due_soon():
            yield from self._ask_time()

    def _look_for_changes(self) -> Op[None]:
        due = self._look_at
        if not self._is_due_soon():
            return
        for namespace in self._namespaces:
            known = self._of(namespace)
            found = yield from periodic.read_entries(self._keys, namespace, known)
            if _digests(found) != _digests(known):
                return
        if self._look_at == due:
            self._look_again()

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self, timeout: float) -> None:
        """Take no more ticks; at the latest after the one that is being taken."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout)

    def _run(self) -> None:
        while not self._stop.is_set():
            with self._outage:
                try:
                    self._load()
                    if time.monotonic() >= self._look_at:
                        self._look()
                except RedisRefused as error:
                    if not str(error).startswith("NOPERM"):
                        raise
                    # Rules of users change seldom, so further tries would only load the server.
                    _log.warning(
                        "periodic jobs are off in this process: %s; give the user of Redis the "
                        "keys cron_job*, or turn the setting periodic off",
                        error,
                    )
                    return
                next_at = self._agenda.next_at
                if next_at is not None and next_at <= self._now():
                    self._take_due()
            self._stop.wait(self._wait())

    def _now(self) -> float:
        """Return the time of the server, as far as it is known. [X-CRON-21]"""
        return time.monotonic() + self._clock_offset

    def _wait(self) -> float:
        """Return the seconds until something is to be done."""
        wait = self._look_at - time.monotonic()
        next_at = self._agenda.next_at
        if next_at is not None:
            wait = min(wait, next_at - self._now())
        return min(max(wait, 0.0), NEVER_S)

    def _load(self) -> None:
        """Write the entries of the application, once."""
        if self._unloaded is None:
            return
        try:
            found = self._redis.run(load(self._keys, self._unloaded, schedule=self._schedule))
        except ConfigError as error:
            _log.error("the application's periodic jobs are not written: %s", error)
        else:
            if found:
                _log.info(
                    "periodic jobs of schedule %r: %d added, %d changed, %d removed",
                    *(self._schedule, len(found.added), len(found.changed), len(found.removed)),
                )
        self._unloaded = None
        self._look_at = -math.inf

    def _look(self) -> None:
        """Read the entries that have changed, and compare the clocks."""
        reads = [
            periodic.read_entries(self._keys, namespace, self._of(namespace))
            for namespace in self._namespaces
        ]
        now, *found = self._redis.run(together([self._ask_time(), *reads]))
        for result in (now, *found):
            if isinstance(result, Exception):
                raise result
        entries = [entry for each in found for entry in each]
        unknown = self._agenda.unknown(entries)
        newest = self._redis.run(periodic.latest_taken(self._keys, unknown))
        taken = {entry.member: tick for entry, tick in zip(unknown, newest, strict=True)}
        for entry, problem in self._agenda.update(entries, now=now, taken=taken):
            _log.warning("periodic job %r is left out: %s", entry.name, problem)
        self._look_again()

    def _look_again(self) -> None:
        self._look_at = time.monotonic() + self._timings.periodic_look(jitter=random.random())

    def _is_due_soon(self) -> bool:
        """True if no later heartbeat may come before the next look."""
        return (
            not self._stop.is_set()
            and 0 <= self._look_at - time.monotonic() <= self._timings.heartbeat_interval + SLACK_S
        )

    def _of(self, namespace: str) -> list[StoredEntry]:
        return [entry for entry in self._agenda.entries if entry.namespace == namespace]

    def _ask_time(self) -> Op[float]:
        before = time.monotonic()
        now = yield from periodic.server_time()
        self._clock_offset = now - (before + time.monotonic()) / 2
        return now

    def _take_due(self) -> None:
        """Take the ticks that are due, unless another process did."""
        fleet = self._redis.run(_processes(self._keys))
        spread = min(self._spread * max(fleet, 1), MAX_SPREAD_S)
        if self._stop.wait(spread * random.random()):
            return
        now = self._redis.run(self._ask_time())
        due = self._agenda.due(now)
        for start in range(0, len(due), AT_ONCE):
            self._take_some(due[start : start + AT_ONCE], now)

    def _take_some(self, due: Sequence[Due], now: float) -> None:
        # Each tick is asked for: a process that has just started takes the latest one only.
        asked = [(index, tick) for index, each in enumerate(due) for tick in each.ticks]
        ticks = [(due[index].entry, tick) for index, tick in asked]
        free = {asked[at][0] for at in self._redis.run(periodic.free_ticks(self._keys, ticks))}
        held: list[str] = []
        if any(due[index].entry.skips_overlap for index in free):
            held = self._redis.run(periodic.holders(self._keys))
        taking: list[tuple[StoredEntry, Sequence[Tick]]] = []
        for index, each in enumerate(due):
            if index in free and (jobs := self._jobs(each, now)):
                taking.append((each.entry, jobs))
            else:
                self._agenda.done(each.entry, now)
        for start in range(0, len(taking), TAKEN_AT_ONCE):
            if self._stop.is_set():
                return
            self._take(taking[start : start + TAKEN_AT_ONCE], now, held)

    def _take(
        self, taking: Sequence[tuple[StoredEntry, Sequence[Tick]]], now: float, held: Sequence[str]
    ) -> None:
        """Take ticks in one message, so that no entry waits for the replies to those before it."""
        steps = [
            periodic.script_tick(
                self._keys, entry, jobs, now=now, held=held if entry.skips_overlap else ()
            )
            for entry, jobs in taking
        ]
        replies = self._redis.run(once(Batch(steps)))
        refused: RedisRefused | None = None
        for (entry, jobs), reply in zip(taking, replies, strict=True):
            try:
                taken = periodic.read_ticked(jobs, reply)
            except RedisRefused as error:
                refused = error
                continue
            except NotTaken as error:
                if error.changed:
                    self._agenda.forget(entry)
                    self._look_at = -math.inf
                    continue
                _log.error("periodic job %r was not pushed: %s", entry.name, error)
            else:
                self._count(entry, taken, now)
            self._agenda.done(entry, now)
        if refused is not None:
            raise refused

    def _jobs(self, due: Due, now: float) -> list[Tick]:
        """Return the ticks of an entry with their jobs; none if it cannot be pushed."""
        try:
            return [
                Tick(
                    at,
                    due.entry.payload(
                        jid=secrets.token_hex(12),
                        now=now,
                        generation=self._generation(),
                        job_id=str(uuid.uuid4()),
                    ),
                )
                for at in due.ticks
            ]
        except InvalidJob as error:
            _log.error("periodic job %r cannot be pushed: %s", due.entry.name, error)
            return []

    def _count(self, entry: StoredEntry, taken: Ticked, now: float) -> None:
        for at in taken.pushed:
            self._ticks.record(entry.name, max(now - at, 0.0) * 1000, failed=False)
        for _ in taken.skipped:
            self._ticks.record(entry.name, 0.0, failed=True)


def _processes(keys: Keys) -> Op[int]:
    (count,) = yield Batch([command("SCARD", keys.processes)])
    return count if isinstance(count, int) else 1


def _digests(entries: Sequence[StoredEntry]) -> set[tuple[str, str]]:
    return {(entry.member, entry.digest) for entry in entries}
