"""Several worker processes under one: started, watched, replaced, stopped together.

The parent runs no jobs and imports no application. Its children are the same command again, told
by a variable that they are supervised; each says over a stream of its own when it is ready, how
busy it is and that it lives, and stops when that stream breaks: none outlives the parent for long.

As process 1 of a container it also takes orphans off the process table.
"""

from __future__ import annotations

import logging
import os
import selectors
import signal
import socket
import sys
import time
from collections import deque
from contextlib import suppress

from jobwire.application.config import WorkerConfig
from jobwire.worker.process import notify
from jobwire.worker.process.notify import SUPERVISOR, Notifier
from jobwire.worker.process.process import PATIENCE

__all__ = ["run", "wanted"]

EXIT_CRASHED = 1
EXIT_FORCED = 1  # after a second TERM or INT
AT_ONCE = 10.0  # seconds; who lives shorter has died at once, and is not restarted at once
LONGEST_PAUSE = 30.0  # seconds between two tries to start a process
GIVE_UP = 5  # tries in a row after which there is no hope, if that is so for all processes
SLACK = 5.0  # seconds that a process has beyond its own limit for stopping
LATER = 60.0  # seconds until a replacement that did not start is tried again

_HANDLED = ("TERM", "INT", "HUP", "TSTP", "TTIN", "USR2", "CHLD")
_log = logging.getLogger("jobwire.worker")


def wanted(config: WorkerConfig) -> bool:
    """Whether this process should supervise: for `processes`, or as process 1 of a container."""
    return SUPERVISOR not in os.environ and (config.processes > 1 or os.getpid() == 1)


def run(config: WorkerConfig) -> int:
    """Run this command again `config.processes` times, until a signal ends it.

    TERM and INT stop all, a second one kills them. TSTP quiets all, TTIN makes all write their
    stacks. USR2 and HUP replace one process after the other, each when its successor is ready;
    where there is a terminal, HUP means that it was closed, and stops.

    Returns:
        The exit status: 0 after a stop in good order. If no process can be started, that of the
        first which failed: as without supervision.
    """
    return _Supervisor(config, Notifier(os.environ)).run()


class _Worker:
    """A child."""

    def __init__(self, slot: _Slot, watchdog: float | None) -> None:
        ours, theirs = socket.socketpair()
        environ = {**os.environ, SUPERVISOR: str(theirs.fileno())}
        if watchdog:
            environ["WATCHDOG_USEC"] = str(int(watchdog * 1e6))
        with theirs:
            theirs.set_inheritable(True)  # nothing else is started meanwhile
            self.pid = os.posix_spawn(
                sys.executable,
                [sys.executable, *sys.orig_argv[1:]],
                environ,
                file_actions=[(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)],
                setpgroup=0,  # a Ctrl-C in the terminal is for the parent
                setsigmask=[],
            )
        ours.setblocking(False)
        self.channel = ours
        self.slot = slot
        self.started = self.heard = time.monotonic()
        self.ready = False
        self.leaving = False  # was asked to end
        self.quiet = False  # was asked to be
        self.busy = 0
        self.rss = 0  # MiB
        self._rest = b""

    def __str__(self) -> str:
        return f"worker process {self.slot.number} (pid {self.pid})"

    def send(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End it now, with what its jobs have started."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        self.send(signal.SIGKILL)  # it may not have become a group yet

    def hear(self) -> bool:
        """Take in what it says; return whether the stream goes on."""
        try:
            said = self.channel.recv(1 << 16)
        except BlockingIOError:
            return True
        except OSError:
            return False
        self.heard = time.monotonic()
        *lines, self._rest = (self._rest + said).split(b"\n")
        for line in lines:
            match line.split(b"=", 1):
                case [b"READY", b"1"]:
                    self.ready = True
                case [b"X_BUSY", value]:
                    self.busy = int(value)
                case [b"X_RSS", value]:
                    self.rss = int(value)
        return bool(said)


class _Slot:
    """One of the N places."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.worker: _Worker | None = None
        self.successor: _Worker | None = None
        self.due: float | None = None  # when to start a worker, monotonic
        self.failures = 0  # in a row
        self.renewable = 0.0  # not before this time, monotonic


class _Supervisor:
    def __init__(self, config: WorkerConfig, notifier: Notifier) -> None:
        self._config = config
        self._notifier = notifier
        self._slots = [_Slot(number) for number in range(1, config.processes + 1)]
        self._workers: dict[int, _Worker] = {}  # by pid, all that live
        self._renewing: deque[_Slot] = deque()  # the first is being renewed
        self._selector = selectors.DefaultSelector()
        self._any_ready = False  # ever
        self._all_ready = False  # ever
        self._others_due = False  # the others than the first were told to start
        self._reloading = False
        self._quiet = False
        self._deadline: float | None = None  # of the stop, monotonic
        self._status: int | None = None
        self._told = 0.0
        self._terminal = os.isatty(2)

    def run(self) -> int:
        """Return the exit status."""
        inlet, transport = os.pipe()
        os.set_blocking(inlet, False)
        os.set_blocking(transport, False)
        self._selector.register(inlet, selectors.EVENT_READ)
        signal.set_wakeup_fd(transport, warn_on_full_buffer=False)
        for name in _HANDLED:
            number = getattr(signal, f"SIG{name}")
            if name != "HUP" or signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, lambda number, frame: None)
        # The first alone: if it cannot start, nobody can, and that is said once.
        self._slots[0].due = time.monotonic()
        while True:
            self._start_due()
            if not self._workers and (self._status is not None or self._quiet):
                return self._status or 0
            for key, _ in self._selector.select(self._patience()):
                if key.data is None:
                    for byte in os.read(inlet, 1 << 12):
                        self._act(signal.Signals(byte).name.removeprefix("SIG"))
                elif not key.data.hear():
                    self._selector.unregister(key.fileobj)
            self._reap()
            self._look()

    # -- processes

    def _start(self, slot: _Slot) -> _Worker:
        worker = _Worker(slot, self._notifier.watchdog)
        self._workers[worker.pid] = worker
        self._selector.register(worker.channel, selectors.EVENT_READ, worker)
        return worker

    def _start_due(self) -> None:
        for slot in self._slots:
            if slot.due is None or slot.due > time.monotonic() or self._deadline is not None:
                continue
            try:
                slot.worker = self._start(slot)
            except OSError as error:
                _log.error("no process can be started: %s", error)
                slot.due = time.monotonic() + LONGEST_PAUSE
                if not self._any_ready:
                    self._end(EXIT_CRASHED)
            else:
                slot.due = None

    def _reap(self) -> None:
        """See off all that ended: our processes, and orphans if this is process 1."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            worker = self._workers.pop(pid, None)
            if worker is not None:
                worker.hear()  # its last words
                with suppress(KeyError):
                    self._selector.unregister(worker.channel)
                worker.channel.close()
                self._buried(worker, os.waitstatus_to_exitcode(status))

    def _buried(self, worker: _Worker, code: int) -> None:
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
            slot.renewable = time.monotonic() + LATER
            self._renewing.clear()
            _log.error(
                "the new %s ended with %s before it was ready; the old ones go on", worker, how
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

    def _lost(self, worker: _Worker, slot: _Slot, how: str, status: int) -> None:
        """Start another one, soon; or give up."""
        if self._quiet:
            _log.warning("%s ended with %s; it is not replaced, since all are quiet", worker, how)
            return
        if slot.successor is not None:
            _log.warning("%s ended with %s; its successor is on its way", worker, how)
            slot.worker, slot.successor = slot.successor, None
            self._renewing.remove(slot)
            self._renewed()
            return
        lived = time.monotonic() - worker.started
        slot.failures = slot.failures + 1 if lived < AT_ONCE or not worker.ready else 0
        if not self._any_ready or self._config.processes == 1:
            # As without supervision: whoever started us sees the status, and decides.
            when = "" if worker.ready else " before it was ready"
            _log.log(
                logging.ERROR if status else logging.INFO, "%s ended with %s%s", worker, how, when
            )
            self._end(status)
            return
        if all(each.worker is None and each.failures >= GIVE_UP for each in self._slots):
            _log.error("every worker process ends right after its start, at last with %s", how)
            self._end(status)
            return
        pause = min(2.0 ** (slot.failures - 1), LONGEST_PAUSE) if slot.failures else 0.0
        slot.due = time.monotonic() + pause
        if slot.failures < 2:
            _log.warning("%s ended with %s after %.1f s; another is started", worker, how, lived)
        else:
            _log.error(
                "%s ended with %s, %d times in a row right after its start; next try in %.0f s",
                *(worker, how, slot.failures, pause),
            )

    # -- what is asked for

    def _act(self, name: str) -> None:
        if name == "HUP":
            name = "TERM" if self._terminal else "USR2"
        match name:
            case "TERM" | "INT" if self._deadline is None:
                _log.info("%s: stopping %d processes; again to force", name, len(self._workers))
                self._end(0)
            case "TERM" | "INT":
                _log.warning("%s again: killing %d processes", name, len(self._workers))
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
                    if worker.ready:  # before that it would be suspended
                        worker.send(signal.SIGTTIN)
            case "USR2":
                self._renew_all()

    def _end(self, status: int) -> None:
        """Stop everything, to exit with `status`."""
        self._status = status
        self._deadline = time.monotonic() + self._config.timeout + PATIENCE + SLACK
        self._notifier.stopping(self._describe())
        for slot in self._slots:
            slot.due = None
        for worker in self._workers.values():
            self._leave(worker)

    def _leave(self, worker: _Worker) -> None:
        if not worker.leaving:
            worker.leaving = True
            worker.send(signal.SIGTERM)

    def _kill_all(self) -> None:
        for worker in self._workers.values():
            worker.kill()

    # -- one after the other

    def _renew_all(self) -> None:
        if self._quiet or self._deadline is not None:
            _log.warning("USR2: nothing is restarted, since all are quiet or stopping")
            return
        if self._reloading:
            _log.warning("USR2: a restart is going on; ignored")
            return
        _log.info("restarting %d processes, one after the other", len(self._slots))
        self._reloading = True
        self._renewing.extend(slot for slot in self._slots if slot not in self._renewing)
        self._notifier.reloading("restarting")

    def _renew_next(self) -> None:
        """Take the first of those to be renewed one step further."""
        if not self._renewing or self._deadline is not None:
            return
        slot = self._renewing[0]
        if slot.worker is None:  # it is being started anew anyway
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
            each.slot is slot and each.leaving for each in self._workers.values()
        ):
            try:
                slot.successor = self._start(slot)
            except OSError as error:
                _log.error("no new process can be started: %s", error)
                slot.renewable = time.monotonic() + LATER
                self._renewing.clear()
                self._renewed()

    def _renewed(self) -> None:
        if self._reloading and not self._renewing:
            self._reloading = False
            self._notifier.ready(self._describe())

    # -- the regular look

    def _patience(self) -> float:
        """Return how long nothing has to be done, if nothing happens."""
        until = [slot.due for slot in self._slots if slot.due is not None]
        if self._deadline is not None:
            until.append(self._deadline)
        until.append(self._told + (self._notifier.period or notify.PERIOD))
        return max(0.0, min(until) - time.monotonic())

    def _look(self) -> None:
        now = time.monotonic()
        self._renew_next()
        for worker in self._workers.values():
            if worker.ready:
                self._any_ready = True
                if self._quiet and not worker.quiet:
                    worker.quiet = True
                    worker.send(signal.SIGTSTP)
        if self._deadline is None:
            if not self._all_ready:
                self._look_for_ready(now)
        elif now >= self._deadline:
            _log.error("%d processes do not stop; they are killed", len(self._workers))
            self._deadline = now + SLACK
            self._status = self._status or EXIT_FORCED
            self._kill_all()
        if now - self._told >= (self._notifier.period or notify.PERIOD):
            self._told = now
            self._notifier.alive()
            self._notifier.status(self._describe())
            for worker in list(self._workers.values()):
                if worker.ready:
                    self._examine(worker, now)

    def _look_for_ready(self, now: float) -> None:
        if self._any_ready and not self._others_due:
            self._others_due = True
            for slot in self._slots[1:]:
                slot.due = now
        if all(slot.worker is not None and slot.worker.ready for slot in self._slots):
            self._all_ready = True
            _log.info("%d worker processes are ready", len(self._slots))
            self._notifier.ready(self._describe())

    def _examine(self, worker: _Worker, now: float) -> None:
        slot = worker.slot
        watchdog = self._notifier.watchdog
        if watchdog and now - worker.heard > watchdog:
            _log.error("%s gave no sign of life for %g s; it is killed", worker, watchdog)
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
            _log.warning("%s has %d MiB, the limit is %d; it is replaced", worker, used, limit)
            slot.renewable = now + LATER  # if the limit is too low for it, not all the time
            self._renewing.append(slot)

    def _describe(self) -> str:
        ready = sum(worker.ready and not worker.leaving for worker in self._workers.values())
        busy = sum(worker.busy for worker in self._workers.values())
        slots = len(self._slots) * self._config.concurrency
        state = "stopping, " if self._deadline is not None else "quiet, " if self._quiet else ""
        return f"{state}{ready} of {len(self._slots)} processes, {busy} of {slots} busy"
