"""State that all requests of one Redis share: the command layer, recent numbers, changes."""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar, cast

from jobwire.application.clients import Clients
from jobwire.console.ops.changes import Changes
from jobwire.console.ops.operations import Operations
from jobwire.console.web.guard import Guard
from jobwire.console.web.redaction import Redact
from jobwire.console.web.rendering import Pages
from jobwire.console.web.sizes import Sizes
from jobwire.errors import JobwireError
from jobwire.inspect.fleet import Fleet

__all__ = ["Examination", "Site"]

T = TypeVar("T")
FRESH_S = 1.0  # for which numbers are not read again, however many pages are open
AGAIN_S = 2.0  # after which an examination that failed is tried again
CLOSE_S = 5.0  # to wait for an examination at the end
MAX_NAMES = 500  # shared values in memory

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Examination(Generic[T]):
    """The last result of something that takes long.

    Attributes:
        value: The result; None if there is none yet.
        at: Time of the result in epoch seconds, or None.
        error: The reason if the last try failed, or "".
        running: True if a newer result is on its way.
    """

    value: T | None = None
    at: float | None = None
    error: str = ""
    running: bool = False


@dataclass(slots=True)
class _Shared:
    """A value that is read for all visitors. An error is also kept, for those that waited."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    at: float = -float("inf")
    began: float = -float("inf")
    value: Any = None
    error: Exception | None = None


@dataclass(slots=True)
class _Background:
    last: Examination[Any] = field(default_factory=Examination)
    next_at: float = -float("inf")
    thread: threading.Thread | None = None


class Site:
    """State that all requests of one Redis share. Threads may share it.

    Args:
        operations: The command layer, in the name of no person.
        clients: The clients that read the outputs of jobs.
        name: Name of this Redis among several, or "".
        redis_names: Names of all Redis of the application, if there are several.
        redact: Hides parts of jobs.
        guard: Signs forms.
        pages: The templates.
        refresh: Seconds between updates of an open page.
        clock: Returns epoch seconds.
    """

    def __init__(
        self,
        operations: Operations,
        *,
        clients: Clients,
        name: str = "",
        redis_names: Sequence[str] = (),
        redact: Redact | None = None,
        guard: Guard,
        pages: Pages,
        refresh: float,
        clock: Callable[[], float],
    ) -> None:
        self.operations = operations
        self.name = name
        self.redis_names = redis_names
        self.redact = redact
        self.guard = guard
        self.pages = pages
        self.refresh = refresh
        self.clock = clock
        self.clients = clients
        self.changes = Changes(self.changed)
        self.sizes = Sizes()
        self._changed_at = -float("inf")  # values read before are not shown any more
        # Guards the two below.
        self._lock = threading.Lock()
        self._shared: OrderedDict[str, _Shared] = OrderedDict()
        self._background: dict[str, _Background] = {}

    def changed(self) -> None:
        """Show no number that was read before now, because an action has just ended."""
        self._changed_at = time.monotonic()
        with self._lock:
            for one in self._background.values():
                one.next_at = -float("inf")

    def shared(self, name: str, read: Callable[[], T], *, fresh: float = FRESH_S) -> T:
        """Return what `read` returned at most `fresh` seconds ago; one thread reads for all.

        Its exception is raised for all that wait. Otherwise each of them would wait for the timeout
        of an unreachable Redis, one after the other.
        """
        with self._lock:
            one = self._shared.setdefault(name, _Shared())
            self._shared.move_to_end(name)
            if len(self._shared) > MAX_NAMES:
                self._shared.popitem(last=False)
        asked = time.monotonic()
        with one.lock:
            if one.error is not None and one.at >= asked:
                raise one.error.with_traceback(None)
            old = one.began < self._changed_at or time.monotonic() - one.at >= fresh
            if one.error is not None or old:
                one.began = time.monotonic()
                one.value = one.error = None
                try:
                    one.value = read()
                except Exception as error:
                    one.error = error
                    raise
                finally:
                    one.at = time.monotonic()
            return cast("T", one.value)

    def background(
        self, name: str, read: Callable[[], T], fresh: float, wait: float
    ) -> Examination[T]:
        """Return what `read` returned last, and read again in a thread if that is too old.

        Args:
            name: Name of the result; one of few.
            read: Reads it. Only one thread does that at a time.
            fresh: Seconds for which a result is not read again.
            wait: Seconds to wait for a new result; then the old one is returned, or none.
        """
        with self._lock:
            one = self._background.setdefault(name, _Background())
            if one.thread is None and time.monotonic() >= one.next_at:
                one.thread = threading.Thread(
                    target=self._examine, args=(one, read, fresh), daemon=True
                )
                one.thread.start()
            thread = one.thread
        if thread is not None:
            thread.join(wait)
        with self._lock:
            return replace(one.last, running=one.thread is not None)

    def _examine(self, one: _Background, read: Callable[[], Any], fresh: float) -> None:
        again, examination = AGAIN_S, one.last
        try:
            examination = Examination(read(), self.clock())
            again = fresh
        except JobwireError as error:
            examination = replace(one.last, error=str(error))
        except Exception:
            log.exception("an examination failed")
            unexpected = "an unexpected error; the log of the server has it"
            examination = replace(one.last, error=unexpected)
        finally:
            with self._lock:
                one.last, one.thread = examination, None
                one.next_at = time.monotonic() + again

    def fleet(self) -> Fleet:
        """Return the numbers of queues, sets and processes, at most a second old."""
        return self.shared("fleet", self._read_fleet)

    def _read_fleet(self) -> Fleet:
        fleet = self.operations.inspector.fleet()
        self.sizes.add(self.clock(), fleet.queues)
        return fleet

    def close(self) -> None:
        """Stop the changes after their batch, and close the connections."""
        self.changes.close()
        with self._lock:
            threads = [one.thread for one in self._background.values()]
        for thread in threads:
            if thread is not None:
                thread.join(CLOSE_S)
        self.operations.close()
