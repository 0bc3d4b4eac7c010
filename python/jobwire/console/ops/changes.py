"""Changes of many jobs at work: a few threads do them, and a page shows how far they are."""

from __future__ import annotations

import atexit
import logging
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass
from typing import Literal

from jobwire.console.ops.bulk import BulkState
from jobwire.console.ops.operations import Operations
from jobwire.console.ops.roles import Action
from jobwire.errors import ConfigError, JobwireError

__all__ = ["AT_A_TIME", "Change", "Changes", "Progress", "Work", "batches", "restoring"]

AT_A_TIME = 4
MAX_WAITING = 100
MAX_ENDED = 200  # that are kept in memory
STOP_GRACE_S = 10.0  # for the batches that are under way

Status = Literal["waiting", "running", "stopping", "ended"]

log = logging.getLogger(__name__)


class _Stopped(Exception):
    """A person, or the end of the program, stopped the change."""


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a change.

    Attributes:
        total: Number of entries to examine.
        seen: Number of entries that were examined.
        matched: Number of these that were selected.
        done: Number of entries that were changed.
        left: Number of entries that cannot be changed; of an undo, of those that are there again.
        unsure: Number of jobs that may run twice, because a worker may have fetched them at the
            instant of the deletion.
        undo: Id with which the deletion can be undone, or "".
    """

    total: int = 0
    seen: int = 0
    matched: int = 0
    done: int = 0
    left: int = 0
    unsure: int = 0
    undo: str = ""


class Change:
    """A change of many jobs. Threads may share it.

    Args:
        id: Its name, such as in the address of its page.
        act: Name of the action, for the role that may stop it.
        target: The place and the conditions, in words.
        person: The person that started it.
        work: Does the work. It calls `report` after each batch.
        at: Time of its start, in epoch seconds.
        progress: Where it begins.

    Attributes:
        progress: How far it is.
        error: The reason if it failed, or "".
        stopped: True if it was stopped before its end.
    """

    def __init__(
        self,
        *,
        id: str,
        act: Action,
        target: str,
        person: str,
        work: Work,
        at: float,
        progress: Progress | None = None,
    ) -> None:
        self.id = id
        self.act = act
        self.target = target
        self.person = person
        self.at = at
        self.progress = progress or Progress()
        self.error = ""
        self.stopped = False
        self._work = work
        self._stop_asked = False
        self._began: float | None = None
        self._took: float | None = None
        self._ended = threading.Event()

    @property
    def status(self) -> Status:
        """`waiting`, `running`, `stopping` or `ended`."""
        if self._ended.is_set():
            return "ended"
        if self._stop_asked:
            return "stopping"
        return "waiting" if self._began is None else "running"

    @property
    def ended(self) -> bool:
        """True if it does no more."""
        return self._ended.is_set()

    @property
    def seconds(self) -> float:
        """Duration of its work up to now, or up to its end."""
        if self._took is not None:
            return self._took
        return 0.0 if self._began is None else time.monotonic() - self._began

    @property
    def rate(self) -> float:
        """Entries examined in a second; 0 if that is not known yet."""
        return self.progress.seen / self.seconds if self.seconds >= 0.1 else 0.0

    @property
    def rest(self) -> float | None:
        """Seconds until it ends at this rate; None if that is not known."""
        left = self.progress.total - self.progress.seen
        return left / self.rate if self.rate and not self.ended else None

    def report(self, progress: Progress) -> None:
        """Say how far it is; the work calls this after each batch.

        Raises:
            _Stopped: The work must end now, after its batch.
        """
        self.progress = progress
        self.check()

    def check(self) -> None:
        """End the work if it was stopped.

        Raises:
            _Stopped: The work must end now.
        """
        if self._stop_asked and self.progress.seen < max(self.progress.total, 1):
            raise _Stopped

    def ask_to_stop(self) -> None:
        """Let it end after its batch."""
        self._stop_asked = True

    def wait(self, seconds: float) -> bool:
        """Wait until it has ended; return False if that takes longer."""
        return self._ended.wait(seconds)

    def run(self) -> None:
        """Do the work in this thread."""
        self._began = time.monotonic()
        try:
            self._work(self)
        except _Stopped:
            self.stopped = True
        except JobwireError as error:
            self.error = str(error)
        except Exception:
            log.exception("change %s of %s failed", self.id, self.target)
            self.error = "an unexpected error; the log of the server has it"
        finally:
            self._took = time.monotonic() - self._began
            self._ended.set()


Work = Callable[[Change], None]


def batches(states: Generator[BulkState, None, None]) -> Work:
    """Return the work of `Operations.bulk`, whose first state was taken.

    The generator is closed in every case, because it writes the end into the journal.
    """

    def work(change: Change) -> None:
        with closing(states):
            change.check()
            for state in states:
                change.report(progress_of(state))

    return work


def restoring(operations: Operations, undo_id: str) -> Work:
    """Return the work of `Operations.undo`."""

    def work(change: Change) -> None:
        change.check()

        def progress(done: int, total: int) -> None:
            change.report(Progress(total=total, seen=done, matched=done, done=done))

        undone = operations.undo(undo_id, progress=progress)
        total = undone.restored + undone.kept
        change.progress = Progress(
            total=total,
            seen=total,
            matched=total,
            done=undone.restored,
            left=undone.kept,
            unsure=undone.unsure,
        )

    return work


def progress_of(state: BulkState) -> Progress:
    """Return how far `Operations.bulk` is."""
    return Progress(
        total=state.total,
        seen=state.seen,
        matched=state.matched,
        done=state.done,
        left=state.left,
        undo=state.undo,
    )


class Changes:
    """The changes of one Redis: those at work, those that wait in line, and the last that ended.

    At most four work at a time. Their number in memory is bounded.

    Args:
        ended: Called after the end of each change.
    """

    def __init__(self, ended: Callable[[], None] = lambda: None) -> None:
        self._ended = ended
        # Guards all below.
        self._lock = threading.Lock()
        self._changes: OrderedDict[str, Change] = OrderedDict()
        self._waiting: deque[Change] = deque()
        self._threads: set[threading.Thread] = set()
        self._closed = False

    def start(self, change: Change) -> None:
        """Let a thread do a change, now or after those that wait.

        Raises:
            ConfigError: Too many wait, this one is at work, or the program ends. It was not
                started, and its work must be closed by the caller.
        """
        with self._lock:
            if self._closed:
                raise ConfigError("this program ends; start the change again in a moment")
            if len(self._waiting) >= MAX_WAITING:
                raise ConfigError(f"{MAX_WAITING} changes wait already; start it again later")
            same = self._changes.get(change.id)
            if same is not None and not same.ended:
                raise ConfigError(f"the change {change.id} is at work")
            self._changes[change.id] = change
            self._changes.move_to_end(change.id)
            self._waiting.append(change)
            ended = [name for name, known in self._changes.items() if known.ended]
            for name in ended[: max(len(ended) - MAX_ENDED, 0)]:
                del self._changes[name]
            if len(self._threads) < AT_A_TIME:
                if not self._threads:
                    atexit.register(self.close)
                # Must not keep the interpreter alive: at its exit, `close` ends it after its batch.
                thread = threading.Thread(target=self._serve, name="jobwire-change", daemon=True)
                self._threads.add(thread)
                thread.start()

    def get(self, name: str) -> Change | None:
        """Return a change, or None if this process does not know it (any more)."""
        with self._lock:
            return self._changes.get(name)

    def all(self) -> list[Change]:
        """Return the changes, those that started last first."""
        with self._lock:
            return list(reversed(self._changes.values()))

    def stop(self, name: str) -> bool:
        """Let a change end after its batch, or at once if it waits; False if it is not at work."""
        with self._lock:
            change = self._changes.get(name)
            if change is None or change.ended:
                return False
            change.ask_to_stop()
            waits = change in self._waiting
            if waits:
                self._waiting.remove(change)
        if waits:
            change.run()  # which only writes its end into the journal
        return True

    def close(self) -> None:
        """Stop all changes after their batches; no change can be started after that."""
        with self._lock:
            self._closed = True
            left = [change for change in self._changes.values() if not change.ended]
            threads = list(self._threads)
        for change in left:
            self.stop(change.id)
        deadline = time.monotonic() + STOP_GRACE_S
        for thread in threads:
            thread.join(max(deadline - time.monotonic(), 0.0))
        atexit.unregister(self.close)

    def _serve(self) -> None:
        """Do changes until none waits."""
        while True:
            with self._lock:
                if not self._waiting:
                    self._threads.discard(threading.current_thread())
                    return
                change = self._waiting.popleft()
            change.run()
            self._ended()
