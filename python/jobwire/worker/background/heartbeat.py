"""The heartbeat thread: renews the lease, shows running jobs, recovers jobs. [BEAT-1] [REL-5]"""

from __future__ import annotations

import logging
import resource
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from jobwire.connection.connect import safe_url
from jobwire.connection.sync import SyncRedis
from jobwire.errors import RedisRefused, RedisTrouble
from jobwire.protocol.heartbeat import LEASE_S, HeartbeatSample, Work, beat, prune, retire
from jobwire.protocol.key_types import explained
from jobwire.protocol.keys import Keys
from jobwire.protocol.progress import JobProgress
from jobwire.protocol.reliable import name_owners, recover, resign
from jobwire.protocol.wire import Op, command, once, together
from jobwire.text import counted
from jobwire.worker.background.audit import Audit
from jobwire.worker.background.lifelock import LifeLock
from jobwire.worker.base.outage import Outage
from jobwire.worker.base.timings import DEFAULT_TIMINGS, Timings
from jobwire.worker.outcome.ended_progress import EndedProgress

__all__ = ["HeartbeatThread", "misleads", "rss"]

_Duty: TypeAlias = Callable[[], Op[None] | None]
_KEY_ERRORS = ("WRONGTYPE", "NOPERM", "OOM")  # of a command; others concern the whole server
_log = logging.getLogger("jobwire.worker")


def _nothing() -> Op[None]:
    yield from ()


class HeartbeatThread:
    """Beats once at its start, then every ten seconds, and early if the last beat misleads people.

    It goes on while the worker is quiet, and while it stops. [BEAT-2] [BEAT-16]

    Args:
        redis: The Redis to use.
        keys: Key names.
        identity: Identity of this process.
        info: The static part of the heartbeat.
        concurrency: Number of jobs that the process runs at the same time.
        works: Returns the running jobs, by thread id.
        ended_progress: The progress of jobs that ended since the last beat.
        quiet: Returns True if fetching has stopped.
        classes: Returns the classes to announce; none once fetching has stopped. [X-CLASS-1]
        on_signal: Called with the name of a signal that came through Redis. [SIG-4] [SIG-10]
        on_beat: Called after every beat, for other regular work.
        beside: Operations whose steps travel with each beat, and their names for the log.
        stuck: Returns the reason that the process does not work, or "". It gets no lease then.
        unpark: Returns the same for each beat that announces classes, for parked jobs. [X-CLASS-6]
        audit: Looks at the private entries of this process; None if it has none. With an audit,
            the thread also puts back jobs of dead processes. [REL-4] [REL-8]
        timings: Intervals and timeouts.

    Attributes:
        info: The static part of the heartbeat; not changed after the first beat.
        reaches: True if the last round reached Redis.
        turned_at: Monotonic time at which the last round of the thread began. A round may fail, for
            example if Redis is down, but it must end.
    """

    def __init__(
        self,
        redis: SyncRedis,
        keys: Keys,
        identity: str,
        *,
        info: bytes,
        concurrency: int,
        works: Callable[[], Mapping[str, Work]],
        ended_progress: EndedProgress,
        quiet: Callable[[], bool],
        classes: Callable[[], Collection[str]] = tuple,
        on_signal: Callable[[str], None],
        on_beat: Callable[[], None],
        beside: Sequence[tuple[str, Callable[[], Op[None]]]] = (),
        stuck: Callable[[], str] = lambda: "",
        unpark: Callable[[], Op[None]] = _nothing,
        audit: Audit | None,
        timings: Timings = DEFAULT_TIMINGS,
    ) -> None:
        self._timings = timings
        self._redis = redis
        self._keys = keys
        self._identity = identity
        self.info = info
        self._concurrency = concurrency
        self._works = works
        self._ended_progress = ended_progress
        self._quiet = quiet
        self._classes = classes
        self._announces = False  # as of the last beat
        self._on_signal = on_signal
        self._on_beat = on_beat
        self._stuck = stuck
        self._unpark = unpark
        self._is_stuck = False
        self._audit = audit
        self._recovers = audit is not None
        self._beaten = False
        self._round_trip: float | None = None  # seconds that the last one took
        self._held = 0  # private entries, as of the last beat
        self._shown = 0  # running jobs, as of the last beat
        self._life = LifeLock(identity, scope=f"{safe_url(redis.url)} {keys.namespace}")
        self._stop = threading.Event()
        self._one_at_a_time = threading.Lock()
        self._scanned: bytes | None = b"0"  # cursor; None at the end
        self._recovered_once = False
        self._leases_count_from = 0.0  # time.monotonic()
        self._stranded: set[str] = set()  # dead processes in the log
        # One message has the first steps of all these, because most of them have no other.
        shared: list[tuple[str, Callable[[], Op[None]]]] = [
            ("heartbeat", self._beat),
            ("pruning", self._prune),
            ("unparking", self._unpark_known),
        ]
        after: dict[str, Callable[[], None]] = {"statistics": lambda: self._on_beat()}
        if self._recovers:
            shared += [("search for owners", self._name_owners), ("recovery", self._recover)]
            after["audit of jobs in flight"] = self._look_at_own
        outage = partial(Outage, stop=self._stop, pause=0.0)
        self._shared = [(outage(name), duty) for name, duty in (*shared, *beside)]
        self._after = [(outage(name), duty) for name, duty in after.items()]
        self.reaches = True
        self.turned_at = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="jobwire-heartbeat", daemon=True)

    def start(self) -> None:
        """Beat once, raising if Redis cannot be used, then start the thread."""
        if self._recovers:
            self._life.hold()  # before the process holds jobs that others could recover
        try:
            for outage, duty, end in self._do_all():
                if duty in (self._name_owners, self._unpark_known):
                    self._goes_on(outage, end)  # the server may forbid SCAN, or scripts
                else:
                    self._do(end)
        except BaseException:
            self._life.release()
            raise
        self._thread.start()

    def beat(self) -> None:
        """Renew the lease now, unless the process hangs. [REL-3]"""
        self._time_round_trip()
        self._redis.run(self._beat())

    def _time_round_trip(self) -> None:
        """Measure for the next beat; while the process is idle, its last beat has done that."""
        if self._round_trip is None or self._works():
            sent_at = time.perf_counter()
            self._redis.run(once(command("PING")))
            self._round_trip = time.perf_counter() - sent_at

    def _beat(self) -> Op[None]:
        if self._is_stuck:
            return
        with self._one_at_a_time:
            if self._stop.is_set():
                return
            works = self._works()
            ended = self._ended_progress.waiting()
            sample = HeartbeatSample(
                now=time.time(),
                works=works,
                quiet=self._quiet(),
                rss=rss(),
                rtt_us=int((self._round_trip or 0.0) * 1e6),
                progress=ended | _progress(works),
                classes=self._classes(),
            )
            self._held = 1  # have the audit look, in case this fails
            sent_at = time.perf_counter()
            answer = yield from beat(
                *(self._keys, self._identity, self.info, self._concurrency, sample),
                owner=self._recovers,
            )
            self._round_trip = time.perf_counter() - sent_at
            self._ended_progress.written(ended)
            self._held = answer.held
            if answer.anew and self._beaten:
                self.doubt_leases("the lease of this process had ended")
            self._beaten = True
            self._shown = len(sample.works)
            self._announces = bool(sample.classes)
        if answer.signal is not None:
            self._on_signal(answer.signal)

    def doubt_leases(self, reason: str) -> None:
        """Recover nothing for a lease without proof of death. [REL-29]

        While Redis was away, living processes could not renew their leases.
        """
        if self._recovers:
            self._leases_count_from = time.monotonic() + LEASE_S
            _log.warning("%s; waiting %d s before jobs of others are recovered", reason, LEASE_S)

    def _doubts_leases(self) -> bool:
        return time.monotonic() < self._leases_count_from

    def close(self) -> None:
        """Stop beating and leave the set of processes. [BEAT-7]"""
        self._stop.set()
        try:
            with self._one_at_a_time:  # a beat under way would add the process again
                ended = self._ended_progress.waiting()
                self._redis.run(retire(self._keys, self._identity, ended))
                if self._recovers:
                    self._redis.run(resign(self._keys, self._identity, now=time.time()))
                    self._life.release()
        finally:
            if self._thread.is_alive():
                # Otherwise the thread might open connections again.
                self._thread.join(self._timings.heartbeat_stop_timeout)

    def _run(self) -> None:
        self.turned_at = time.monotonic()  # the wait for Redis at the start may have been long
        due = self.turned_at + self._timings.heartbeat_interval
        while True:
            pause = min(due - time.monotonic(), self._timings.early_beat)
            if self._stop.wait(max(pause, 0.0)):
                return
            if time.monotonic() >= due:
                timings = self._timings
                beaten = self._round()
                pause = timings.heartbeat_interval
                if not beaten:
                    pause = min(pause, timings.longest_outage_pause)
                due = time.monotonic() + pause
            elif self._announces > bool(self._classes()) or misleads(
                self._shown, self._works(), time.time() - self._timings.early_beat
            ):
                self._goes_on(self._shared[0][0], self.beat)

    def _round(self) -> bool:
        """Do the duties in order; return False if Redis could not be used."""
        self.turned_at = time.monotonic()
        self._look_at_progress()
        self.reaches = all(
            not self._stop.is_set() and self._goes_on(outage, end)
            for outage, _, end in self._do_all()
        )
        return self.reaches

    def _do_all(self) -> Iterator[tuple[Outage, _Duty, Callable[[], None]]]:
        """Do the duties; yield each with a call that ends it, and raises what went wrong."""
        results: Sequence[Any]
        try:
            self._time_round_trip()
            results = self._redis.run(together(duty() for _, duty in self._shared))
        except RedisTrouble as error:
            results = [error] * len(self._shared)
        for (outage, duty), result in zip(self._shared, results, strict=True):
            yield outage, duty, partial(_raise, result)
        for outage, work in self._after:
            yield outage, work, work

    def _look_at_progress(self) -> None:
        problem = self._stuck()
        was, self._is_stuck = self._is_stuck, bool(problem)
        # The log may be what hangs, so these lines come after the decision.
        if problem and not was:
            _log.critical(
                "%s; the lease is given up, so that other processes take the jobs", problem
            )
        elif was and not problem:
            _log.warning("the process works again; it renews its lease")

    def _goes_on(self, outage: Outage, duty: Callable[[], None]) -> bool:
        """Do a duty; return whether the next ones can be done, also if it failed."""
        goes_on = True
        with outage:
            try:
                self._do(duty)
            except RedisTrouble as error:
                goes_on = any(code in str(error) for code in _KEY_ERRORS)
                raise
        return goes_on

    def _do(self, duty: Callable[[], None]) -> None:
        """Do a duty; an error about the type of a key names the key."""
        try:
            duty()
        except RedisRefused as error:
            raise self._redis.run(explained(error, self._keys, self._identity)) from None

    def _unpark_known(self) -> Op[None]:
        if self._classes():
            yield from self._unpark()

    def _prune(self) -> Op[None]:
        if forgotten := (yield from prune(self._keys, self._identity)):
            _log.info("removed %s whose heartbeat expired", counted(forgotten, "process"))

    def _look_at_own(self) -> None:
        if self._audit is not None:
            self._audit.look(self._held)

    def _name_owners(self) -> Op[None]:
        if self._scanned is not None:
            cursor = yield from name_owners(self._keys, self._scanned)
            self._scanned = None if cursor == b"0" else cursor

    def _recover(self) -> Op[None]:
        ended = self._life.ended()
        recovered = yield from recover(
            self._keys,
            own=self._identity,
            now=time.time(),
            ended=ended,
            every=self._timings.heartbeat_interval / 2 if self._recovered_once else None,
            only_ended=self._doubts_leases,
        )
        self._recovered_once = self._recovered_once or not self._doubts_leases()
        for identity, count in recovered.items():
            if isinstance(count, int):
                _log.warning("put back %s of dead process %s", counted(count, "job"), identity)
                self._stranded.discard(identity)
            elif identity not in self._stranded:
                _log.error("jobs of dead process %s cannot be put back: %s", identity, count)
                self._stranded.add(identity)
        for identity in ended:
            self._life.forget(identity)

    def leave_quietly(self) -> None:
        """Close, and log a failure instead of raising it."""
        try:
            self.close()
        except RedisTrouble as error:
            _log.warning("cannot leave the set of processes: %s", error)


def _raise(result: object) -> None:
    if isinstance(result, Exception):
        raise result


def _progress(works: Mapping[str, Work]) -> dict[str, JobProgress]:
    """Return the progress of the running jobs that have reported one, by job id."""
    jobs = (work.job for work in works.values())
    return {job.jid: job.progress for job in jobs if job and job.progress and job.jid}


def misleads(shown: int, works: Mapping[str, Work], since: float) -> bool:
    """Return whether the last beat, which showed so many jobs, is worth another one now.

    It is if more jobs run since that time, or if none runs any more. Quick jobs alone do not make
    it so, and under a steady load the number stays right.
    """
    if not works:
        return shown > 0
    return sum(work.run_at <= since for work in works.values()) > shown


def rss() -> int:
    """Return the resident memory in KiB; its peak on a system that gives only that."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak // 1024 if sys.platform == "darwin" else peak
    line = next((line for line in status.splitlines() if line.startswith("VmRSS:")), "0 0")
    return int(line.split()[1])
