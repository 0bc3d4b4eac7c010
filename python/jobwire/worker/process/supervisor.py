"""The supervisor: starts, watches, replaces and stops several worker processes.

The supervisor runs no jobs and imports no application. Its children run the same command, with a
variable that tells them that they are supervised. Each child reports over its own stream that it
is ready, how busy it is and that it works. It stops when that stream breaks, so no child outlives
the supervisor for long.

A child whose application has shards serves one of them and reports their names, so that the
supervisor starts as many children for each.

As process 1 of a container the supervisor also reaps orphaned processes.
"""

from __future__ import annotations

import logging
import os
import selectors
import signal
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress

import msgspec

from jobwire.application.config import WorkerConfig
from jobwire.monitoring.figures import Classes, Figures
from jobwire.text import counted
from jobwire.worker.process import notify
from jobwire.worker.process.notify import SHARD, SUPERVISOR, Notifier, RedisPlace, Report
from jobwire.worker.process.process import HEARTBEAT_STUCK_S, STOP_GRACE_S

__all__ = ["run", "wanted"]

EXIT_CRASHED = 1
EXIT_FORCED = 1  # after a second TERM or INT
EARLY_END_S = 10.0  # a process that ends sooner counts as failed, and is restarted with a pause
MAX_RESTART_PAUSE_S = 30.0
MAX_FAILURES = 5  # in a row; if every process has that many, the supervisor gives up
LOOP_STUCK_S = 30.0  # without a turn of the main loop, which turns every five seconds
KILL_GRACE_S = 5.0  # that a process has beyond its own limit for stopping
REPLACE_RETRY_S = 60.0  # until the next try to replace a process whose replacement did not start

_HANDLED = ("TERM", "INT", "HUP", "TSTP", "TTIN", "USR2", "CHLD")
_log = logging.getLogger("jobwire.worker")


def wanted(config: WorkerConfig) -> bool:
    """True if this process must supervise: for `processes`, or as process 1 of a container."""
    return SUPERVISOR not in os.environ and (config.processes > 1 or os.getpid() == 1)


def run(config: WorkerConfig) -> int:
    """Run this command in `config.processes` processes, until a signal ends them.

    TERM and INT stop all processes, a second one kills them. TSTP quiets all, and TTIN makes all
    log their stacks. USR2 and HUP replace one process after the other, each when its successor is
    ready. On a terminal, HUP means that the terminal was closed, so it stops all processes.

    Returns:
        The exit status: 0 after an orderly stop. If no process can start, the status of the first
        one that failed, as without supervision.
    """
    return _Supervisor(config, Notifier(os.environ)).run()


class _WorkerProcess:
    """A child process that runs jobs."""

    def __init__(self, slot: _Slot, watchdog: float | None) -> None:
        ours, theirs = socket.socketpair()
        environ = {**os.environ, SUPERVISOR: str(theirs.fileno())}
        if slot.shard:
            environ[SHARD] = slot.shard
        if watchdog:
            environ["WATCHDOG_USEC"] = str(int(watchdog * 1e6))
        with theirs:
            theirs.set_inheritable(True)  # no other process is started in the meantime
            self.pid = os.posix_spawn(
                sys.executable,
                [sys.executable, *sys.orig_argv[1:]],
                environ,
                file_actions=[(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)],
                setpgroup=0,  # so that Ctrl-C in the terminal reaches only the supervisor
                setsigmask=[],
            )
        ours.setblocking(False)
        self.channel = ours
        self.slot = slot
        self.started = self.last_message = time.monotonic()
        self.ready = False
        self.leaving = False  # was told to stop
        self.quiet = False  # was told to be quiet
        self.busy = 0
        self.rss = 0  # MiB
        self.report: Report | None = None  # for the ports
        self.shards: list[str] = []  # of its application
        self.epoch = 0  # of the last change of the shards that it knows
        self.ticks: int | None = None  # the one that its periodic jobs know, if it may have some
        self._unread = b""

    def __str__(self) -> str:
        shard = f" of {self.slot.shard}" if self.slot.shard else ""
        return f"worker process {self.slot.number}{shard} (pid {self.pid})"

    def send(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill it, with the programs that its jobs have started."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        self.send(signal.SIGKILL)  # it may not be a group yet

    def read(self) -> bool:
        """Read messages; return False at the end of the stream."""
        try:
            chunk = self.channel.recv(1 << 16)
        except BlockingIOError:
            return True
        except OSError:
            return False
        self._take(chunk)
        return bool(chunk)

    def read_all(self) -> None:
        """Read the last messages of a process that has ended."""
        with suppress(OSError):
            while chunk := self.channel.recv(1 << 16):
                self._take(chunk)

    def _take(self, chunk: bytes) -> None:
        self.last_message = time.monotonic()
        *lines, self._unread = (self._unread + chunk).split(b"\n")
        for line in lines:
            match line.split(b"=", 1):
                case [b"READY", b"1"]:
                    self.ready = True
                case [b"X_BUSY", value]:
                    self.busy = int(value)
                case [b"X_RSS", value]:
                    self.rss = int(value)
                case [b"X_SHARDS", value]:
                    epoch, *self.shards = value.decode().split()
                    self.epoch = int(epoch)
                case [b"X_TICKS", value]:
                    self.ticks = int(value)
                case [b"X_REPORT", value]:
                    with suppress(msgspec.DecodeError):  # a message that was cut off
                        self.report = msgspec.json.decode(value, type=Report)


class _Slot:
    """One of the N slots for a process; N for each shard."""

    def __init__(self, number: int, shard: str = "") -> None:
        self.number = number
        self.shard = shard
        self.worker: _WorkerProcess | None = None
        self.successor: _WorkerProcess | None = None
        self.due: float | None = None  # time to start a worker, monotonic
        self.failures = 0  # in a row
        self.renewable = 0.0  # time before which it is not replaced, monotonic
        self.epoch = 0  # of the last change of the shards for which it was replaced


class _Supervisor:
    def __init__(self, config: WorkerConfig, notifier: Notifier) -> None:
        self._config = config
        self._notifier = notifier
        self._slots = [_Slot(number) for number in range(1, config.processes + 1)]
        self._adding = threading.Lock()  # Guards removals from `_workers`, `_ended_figures`.
        self._workers: dict[int, _WorkerProcess] = {}  # all living processes, by pid
        self._ended_figures = Figures()  # counters of processes that have ended
        self._classes = Classes()
        self._entries = Classes()  # of periodic jobs
        self._turned = time.monotonic()  # when the main loop last turned
        self._epoch = 0  # of the last change of the shards
        self._renewing: deque[_Slot] = deque()  # slots to renew; the first one is under way
        self._selector = selectors.DefaultSelector()
        self._any_ready = False  # at any time so far
        self._all_ready = False  # at any time so far
        self._others_due = False  # True when all slots but the first were told to start
        self._reloading = False
        self._quiet = False
        self._deadline: float | None = None  # of the stop, monotonic
        self._status: int | None = None
        self._reported_at = 0.0
        self._terminal = os.isatty(2)

    def run(self) -> int:
        """Return the exit status.

        Raises:
            ConfigError: A port cannot be used.
        """
        if (self._config.health_port or self._config.metrics_port) is None:
            return self._run()
        from jobwire.worker.process.monitor import Monitor, Sources

        monitor = Monitor(
            self._config,
            Sources(self._figures, self._not_live, self._not_ready, self._redis_places),
        )
        try:
            return self._run()
        finally:
            monitor.close()

    def _run(self) -> int:
        read_end, write_end = os.pipe()
        os.set_blocking(read_end, False)
        os.set_blocking(write_end, False)
        self._selector.register(read_end, selectors.EVENT_READ)
        signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
        for name in _HANDLED:
            number = getattr(signal, f"SIG{name}")
            if name != "HUP" or signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, lambda number, frame: None)
        # The first process starts alone: if it cannot start, no process can, and the error is
        # logged only once.
        self._slots[0].due = time.monotonic()
        while True:
            self._turned = time.monotonic()
            self._start_due()
            if not self._workers and (self._status is not None or self._quiet):
                return self._status or 0
            for key, _ in self._selector.select(self._time_to_wait()):
                if key.data is None:
                    for byte in os.read(read_end, 1 << 12):
                        self._act(signal.Signals(byte).name.removeprefix("SIG"))
                elif not key.data.read():
                    self._selector.unregister(key.fileobj)
            self._reap()
            self._check()

    # -- processes

    def _start(self, slot: _Slot) -> _WorkerProcess:
        worker = _WorkerProcess(slot, self._notifier.watchdog)
        self._workers[worker.pid] = worker
        self._selector.register(worker.channel, selectors.EVENT_READ, worker)
        return worker

    def _serve(self, shards: Sequence[str], epoch: int) -> None:
        """Add the slots of shards that have none; their first processes start at once.

        After a change, drop the slots of shards that are removed, and replace processes that take
        the ticks of periodic jobs as before.
        """
        if epoch < self._epoch:
            return
        self._epoch = epoch
        served = {slot.shard for slot in self._slots}
        if "" in served:  # the slots there were before the first process knew its shard
            for slot in self._slots:
                slot.shard = shards[0]
            served = {shards[0]}
        for shard in shards:
            if shard not in served:
                first = max(slot.number for slot in self._slots) + 1
                added = [_Slot(first + n, shard) for n in range(self._config.processes)]
                if not self._quiet and self._deadline is None:
                    for slot in added[: None if self._others_due else 1]:
                        slot.due = time.monotonic()
                self._slots += added
        for slot in [slot for slot in self._slots if slot.shard not in shards]:
            _log.info("shard %s is removed; its process stops", slot.shard)
            self._slots.remove(slot)
            if slot in self._renewing:
                self._renewing.remove(slot)
                self._renewed()
            for worker in filter(None, (slot.worker, slot.successor)):
                self._leave(worker)
            slot.worker = slot.successor = None
        for slot in () if self._quiet else self._slots:
            known = slot.worker.ticks if slot.worker is not None and slot.worker.ready else None
            if known is not None and max(known, slot.epoch) < epoch and slot not in self._renewing:
                slot.epoch = epoch  # once, even if its successor does not know of the change
                self._renewing.append(slot)

    def _start_due(self) -> None:
        for slot in self._slots:
            if slot.due is None or slot.due > time.monotonic() or self._deadline is not None:
                continue
            try:
                slot.worker = self._start(slot)
            except OSError as error:
                _log.error("cannot start a process: %s", error)
                slot.due = time.monotonic() + MAX_RESTART_PAUSE_S
                if not self._any_ready:
                    self._end(EXIT_CRASHED)
            else:
                slot.due = None

    def _reap(self) -> None:
        """Reap all processes that ended: our own, and orphans if this is process 1."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            worker = self._workers.get(pid)
            if worker is not None:
                worker.read_all()
                if worker.shards:
                    self._serve(worker.shards, worker.epoch)
                with self._adding:  # otherwise a scrape might miss its numbers
                    del self._workers[pid]
                    if worker.report is not None:
                        self._ended_figures += worker.report.figures.counters()
                with suppress(KeyError):
                    self._selector.unregister(worker.channel)
                worker.channel.close()
                self._ended(worker, os.waitstatus_to_exitcode(status))

    def _ended(self, worker: _WorkerProcess, code: int) -> None:
        slot = worker.slot
        how = f"exit status {code}" if code >= 0 else f"signal {-code}"
        status = code if code >= 0 else 128 - code
        if self._deadline is not None:
            early = code == -signal.SIGTERM and not worker.ready
            if status and not early:
                _log.error("%s ended with %s", worker, how)
                self._status = self._status or status
        elif slot.successor is worker:
            slot.successor = None
            slot.renewable = time.monotonic() + REPLACE_RETRY_S
            self._renewing.clear()
            _log.error(
                "the new %s ended with %s before it was ready; the old ones stay", worker, how
            )
            self._renewed()
        elif slot.worker is worker:
            slot.worker = None
            self._lost(worker, slot, how, status)
        else:
            _log.info("%s ended with %s", worker, how)
            if self._renewing and self._renewing[0] is slot:
                self._renewing.popleft()
                if not self._renewing:
                    self._renewed()

    def _lost(self, worker: _WorkerProcess, slot: _Slot, how: str, status: int) -> None:
        """Start another process soon, or give up."""
        if self._quiet:
            _log.warning("%s ended with %s; not replaced, because all are quiet", worker, how)
            return
        if slot.successor is not None:
            _log.warning("%s ended with %s; its successor is starting", worker, how)
            slot.worker, slot.successor = slot.successor, None
            self._renewing.remove(slot)
            self._renewed()
            return
        lived = time.monotonic() - worker.started
        slot.failures = slot.failures + 1 if lived < EARLY_END_S or not worker.ready else 0
        if len(self._slots) == 1 or not (self._any_ready or slot.shard):
            # As without supervision: the parent process sees the status and decides.
            when = "" if worker.ready else " before it was ready"
            _log.log(
                logging.ERROR if status else logging.INFO, "%s ended with %s%s", worker, how, when
            )
            self._end(status)
            return
        if all(other.worker is None and other.failures >= MAX_FAILURES for other in self._slots):
            _log.error("every worker process ends right after its start, the last one with %s", how)
            self._end(status)
            return
        pause = 0.0
        if slot.failures:
            pause = min(2.0 ** (slot.failures - 1), MAX_RESTART_PAUSE_S)
        slot.due = time.monotonic() + pause
        if slot.failures < 2:
            _log.warning("%s ended with %s after %.1f s; starting another", worker, how, lived)
        else:
            _log.error(
                "%s ended with %s, %d times in a row right after its start; next try in %.0f s",
                *(worker, how, slot.failures, pause),
            )

    # -- signals

    def _act(self, name: str) -> None:
        if name == "HUP":
            name = "TERM" if self._terminal else "USR2"
        match name:
            case "TERM" | "INT" if self._deadline is None:
                _log.info("%s: stopping %s; send it again to force", name, self._left())
                self._end(0)
            case "TERM" | "INT":
                _log.warning("%s again: killing %s", name, self._left())
                self._status = EXIT_FORCED
                self._kill_all()
            case "TSTP":
                self._quiet = True
                for slot in self._slots:
                    slot.due = None
                    if slot.successor is not None:
                        self._leave(slot.successor)
                        slot.successor = None
                self._renewing.clear()
                self._renewed()
            case "TTIN":
                for worker in self._workers.values():
                    _log.warning(
                        "%s: %s%s, %d busy, %d MiB",
                        *(worker, "ready" if worker.ready else "starting"),
                        *(", leaving" if worker.leaving else "", worker.busy, worker.rss),
                    )
                    if worker.ready:  # before that, the signal would suspend it
                        worker.send(signal.SIGTTIN)
            case "USR2":
                self._renew_all()

    def _end(self, status: int) -> None:
        """Stop all processes, then exit with `status`."""
        self._status = status
        grace = self._config.timeout + STOP_GRACE_S + KILL_GRACE_S
        self._deadline = time.monotonic() + grace
        self._notifier.stopping(self._describe())
        for slot in self._slots:
            slot.due = None
        for worker in self._workers.values():
            self._leave(worker)

    def _leave(self, worker: _WorkerProcess) -> None:
        if not worker.leaving:
            worker.leaving = True
            worker.send(signal.SIGTERM)

    def _left(self) -> str:
        return counted(len(self._workers), "process")

    def _kill_all(self) -> None:
        for worker in self._workers.values():
            worker.kill()

    # -- rolling restart

    def _renew_all(self) -> None:
        if self._quiet or self._deadline is not None:
            _log.warning("USR2: no restart, because all processes are quiet or stopping; ignored")
            return
        if self._reloading:
            _log.warning("USR2: a restart is under way; ignored")
            return
        _log.info("restarting %s, one after the other", counted(len(self._slots), "process"))
        self._reloading = True
        slots = [slot for slot in self._slots if slot not in self._renewing]
        # Those that wait for their shard come last, as their successors are going to wait as well.
        slots.sort(key=lambda slot: slot.worker is None or not slot.worker.ready)
        self._renewing.extend(slots)
        self._notifier.reloading("restarting")

    def _renew_next(self) -> None:
        """Take the next step in renewing the first slot of the list."""
        if not self._renewing or self._deadline is not None:
            return
        slot = self._renewing[0]
        if slot.worker is None:  # it starts a new process anyway
            self._renewing.popleft()
            slot.due = time.monotonic()
            if not self._renewing:
                self._renewed()
        elif slot.successor is not None and slot.successor.ready:
            old, slot.worker, slot.successor = slot.worker, slot.successor, None
            slot.failures = 0
            _log.info("%s is ready and takes over from pid %d", slot.worker, old.pid)
            self._leave(old)
        elif slot.successor is None and not any(
            worker.slot is slot and worker.leaving for worker in self._workers.values()
        ):
            try:
                slot.successor = self._start(slot)
            except OSError as error:
                _log.error("cannot start a new process: %s", error)
                slot.renewable = time.monotonic() + REPLACE_RETRY_S
                self._renewing.clear()
                self._renewed()

    def _renewed(self) -> None:
        if self._reloading and not self._renewing:
            self._reloading = False
            self._notifier.ready(self._describe())

    # -- regular checks

    def _time_to_wait(self) -> float:
        """Return the seconds until the next action, if no signal and no message comes."""
        times = [slot.due for slot in self._slots if slot.due is not None]
        if self._deadline is not None:
            times.append(self._deadline)
        times.append(self._reported_at + (self._notifier.period or notify.STATUS_INTERVAL_S))
        return max(0.0, min(times) - time.monotonic())

    def _check(self) -> None:
        now = time.monotonic()
        self._renew_next()
        for worker in [*self._workers.values()]:
            if worker.shards:
                self._serve(worker.shards, worker.epoch)
            if worker.ready:
                self._any_ready = True
                if self._quiet and not worker.quiet:
                    worker.quiet = True
                    worker.send(signal.SIGTSTP)
        if self._deadline is None:
            if not self._all_ready:
                self._check_ready(now)
        elif now >= self._deadline:
            _log.error("time is up: killing %s", self._left())
            self._deadline = now + KILL_GRACE_S
            self._status = self._status or EXIT_FORCED
            self._kill_all()
        if now - self._reported_at >= (self._notifier.period or notify.STATUS_INTERVAL_S):
            self._reported_at = now
            self._notifier.alive()
            self._notifier.status(self._describe())
            for worker in list(self._workers.values()):
                if worker.ready:
                    self._examine(worker, now)

    def _check_ready(self, now: float) -> None:
        if self._any_ready and not self._others_due:
            self._others_due = True
            for slot in self._slots[1:]:
                if slot.worker is None:
                    slot.due = slot.due or now
        ready = [slot.worker is not None and slot.worker.ready for slot in self._slots]
        # A shard that is away must not keep the service from being up.
        if all(ready) or (self._slots[0].shard and any(ready)):
            self._all_ready = True
            _log.info("%d worker processes are ready", sum(ready))
            self._notifier.ready(self._describe())

    def _examine(self, worker: _WorkerProcess, now: float) -> None:
        slot = worker.slot
        watchdog = self._notifier.watchdog
        if watchdog and now - worker.last_message > watchdog:
            _log.error("%s sent no message for %g s; killing it", worker, watchdog)
            worker.kill()
            return
        limit = self._config.memory_limit
        used = worker.rss
        if (
            limit
            and used > limit
            and slot.worker is worker
            and slot not in self._renewing
            and now >= slot.renewable
            and not self._quiet
        ):
            _log.warning("%s uses %d MiB, the limit is %d; replacing it", worker, used, limit)
            slot.renewable = now + REPLACE_RETRY_S  # not all the time, if the limit is too low
            self._renewing.append(slot)

    # -- for the ports, whose threads call this

    def _figures(self) -> Figures:
        """Return the sum of all processes, those that have ended included."""
        with self._adding:
            total = self._ended_figures
            for worker in self._workers.copy().values():
                if worker.report is not None:
                    total += worker.report.figures
            return msgspec.structs.replace(
                total,
                classes=self._classes.limit(total.classes),
                ticks=self._entries.limit(total.ticks),
            )

    def _not_live(self) -> str:
        now = time.monotonic()
        if now - self._turned > LOOP_STUCK_S:
            return f"the supervisor is stuck for {now - self._turned:.0f} s"
        for worker in self._workers.copy().values():
            if not worker.ready or worker.leaving:
                continue
            if worker.report is not None and worker.report.not_live:
                return f"{worker}: {worker.report.not_live}"
            if now - worker.last_message > HEARTBEAT_STUCK_S:
                return f"{worker}: no message for {now - worker.last_message:.0f} s"
        return ""

    def _not_ready(self) -> str:
        if self._deadline is not None:
            return "stopping"
        if self._quiet:
            return "quiet"
        reasons = []
        for slot in self._slots:
            worker = slot.worker
            report = None if worker is None or not worker.ready else worker.report
            reasons.append("starting" if report is None else report.not_ready)
        problems = [reason for reason in reasons if reason]
        if not problems:
            return ""
        count, ready = len(reasons), len(reasons) - len(problems)
        return f"{ready} of {counted(count, 'process')} ready; {problems[0]}"

    def _redis_places(self) -> dict[str, RedisPlace | None]:
        places: dict[str, RedisPlace | None] = dict.fromkeys(slot.shard for slot in self._slots)
        for worker in self._workers.copy().values():
            if worker.report is not None:
                places[worker.slot.shard] = worker.report.redis
        return places

    def _describe(self) -> str:
        ready = sum(worker.ready and not worker.leaving for worker in self._workers.values())
        busy = sum(worker.busy for worker in self._workers.values())
        slots = len(self._slots) * self._config.concurrency
        state = "stopping, " if self._deadline is not None else "quiet, " if self._quiet else ""
        return f"{state}{ready} of {len(self._slots)} processes, {busy} of {slots} busy"
