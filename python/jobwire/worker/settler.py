"""Stores outcomes of held jobs, many in one round trip. [REL-2] [ENV-6]

One thread sends whatever has gathered while the last batch was on its way: under load batches
grow by themselves, and a lone job's outcome leaves at once. Until an outcome is stored its job
stays in the private hash, so nothing is lost if this process dies meanwhile.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue

from jobwire._sync import SyncRedis
from jobwire.errors import RedisTrouble
from jobwire.graves import Grave, grave_key
from jobwire.keys import Keys
from jobwire.reliable import Held, script_bury, script_done, script_retry
from jobwire.retry import Bury, Discard, Retry
from jobwire.times import utc_day
from jobwire.wire import Batch, ErrorReply, Script, once
from jobwire.worker.fetcher import Done, Outcome, Unreadable

__all__ = ["Settler"]

LIMIT = 500  # outcomes in one round trip
PAUSE = 1.0  # seconds before trying again when Redis cannot be used
TICK = 0.05  # seconds between looks at idle work while there is some

_log = logging.getLogger("jobwire.worker")
_Entry = tuple[Held, Outcome]


class Settler:
    """One per process, shared by its capsules.

    Args:
        redis: Where to.
        keys: Key names.
        identity: Whose private hash.
        grave: Returns the burial parameters of this moment.
    """

    def __init__(
        self, redis: SyncRedis, keys: Keys, identity: str, grave: Callable[[], Grave]
    ) -> None:
        self._redis = redis
        self._keys = keys
        self._identity = identity
        self._grave = grave
        self._inbox: SimpleQueue[_Entry | None] = SimpleQueue()
        self._unsettled = 0
        self._changed = threading.Condition()
        self._stop = threading.Event()
        self._chores: list[Callable[[], bool]] = []
        self._trouble = ""
        self._reported = ""
        self._thread = threading.Thread(target=self._run, name="jobwire-settler", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def add_chore(self, chore: Callable[[], bool]) -> None:
        """Have `chore` called every few milliseconds after `poke`, while it returns True."""
        self._chores.append(chore)

    def poke(self) -> None:
        """Say that a chore has something to look after."""
        self._inbox.put(None)

    def add(self, held: Held, outcome: Outcome) -> None:
        """Store an outcome soon. Returns at once."""
        with self._changed:
            self._unsettled += 1
        self._inbox.put((held, outcome))

    def close(self, timeout: float) -> int:
        """Wait until everything is stored, then end; return how many outcomes were not."""
        with self._changed:
            self._changed.wait_for(lambda: self._unsettled == 0, timeout)
            left = self._unsettled
        self._stop.set()
        self._inbox.put(None)
        self._thread.join(timeout=PAUSE)
        return left

    def _run(self) -> None:
        again: list[_Entry] = []  # not stored yet, in nobody's way
        again_at = 0.0
        busy = False
        while not self._stop.is_set():
            patience = TICK if busy else max(again_at - time.monotonic(), 0) if again else None
            failed = self._send(self._gather(patience), repeated=False)
            wanted = [chore() for chore in self._chores]
            busy = any(wanted)
            if not again and not failed:
                continue
            if again and time.monotonic() >= again_at:
                failed += self._send(again, repeated=True)
                again, again_at = [], 0.0
            if failed and not again:
                again_at = time.monotonic() + PAUSE
            again += failed
            self._report_trouble(len(again))

    def _gather(self, timeout: float | None) -> list[_Entry]:
        """Return all outcomes that wait, waiting for the first one."""
        entries: list[_Entry] = []
        try:
            entry = self._inbox.get(timeout=timeout)
            while True:
                if entry is not None:
                    entries.append(entry)
                if len(entries) >= LIMIT:
                    break
                entry = self._inbox.get_nowait()
        except Empty:
            pass
        return entries

    def _send(self, entries: Sequence[_Entry], *, repeated: bool) -> list[_Entry]:
        """Send outcomes; return those that must be sent again."""
        if not entries:
            return []
        left = self._exchange(entries, repeated=repeated)
        with self._changed:
            self._unsettled -= len(entries) - len(left)
            self._changed.notify_all()
        return left

    def _exchange(self, entries: Sequence[_Entry], *, repeated: bool) -> list[_Entry]:
        groups = _group(entries)
        day = utc_day(time.time())
        scripts = [self._script(group, day) for group in groups]
        try:
            replies = self._redis.run(once(Batch(scripts)))
        except RedisTrouble as error:
            self._trouble = str(error)
            return list(entries)
        again: list[_Entry] = []
        for group, reply in zip(groups, replies, strict=True):
            if isinstance(reply, ErrorReply):
                self._trouble = reply.message
                again += group
            elif not repeated:  # a repeated one may find its own first try
                self._report_lost(group, reply)
        return again

    def _report_trouble(self, left: int) -> None:
        """Log what keeps outcomes from being stored, once, and that it is over."""
        if not left:
            _log.info("all outcomes are stored again")
            self._trouble = self._reported = ""
        elif self._trouble != self._reported:
            _log.error("outcomes of jobs are not stored yet (%d now): %s", left, self._trouble)
            self._reported = self._trouble

    def _script(self, group: Sequence[_Entry], day: str) -> Script:
        held, outcome = group[0]
        match outcome:
            case Done() | Discard():
                fields = [each.field for each, _ in group]
                failed = isinstance(outcome, Discard)
                return script_done(self._keys, self._identity, fields, failed=failed, day=day)
            case Retry(text, at):
                return script_retry(self._keys, self._identity, held.field, text, at=at, day=day)
            case Bury(text):
                return script_bury(
                    self._keys, self._identity, held.field, text, self._grave(), day=day
                )
            case Unreadable(problem):
                return script_bury(
                    self._keys,
                    self._identity,
                    held.field,
                    held.text,
                    self._grave(),
                    day=day,
                    key=grave_key(self._keys, problem),
                    counted=False,
                )

    @staticmethod
    def _report_lost(group: Sequence[_Entry], reply: object) -> None:
        lost = (
            [field.decode() for field in reply]
            if isinstance(reply, list)
            else [held.field for held, _ in group if reply == 0]
        )
        for field in lost:
            _log.warning(
                "outcome of job %s dropped: it was put back while it ran, and runs again", field
            )


def _group(entries: Sequence[_Entry]) -> list[list[_Entry]]:
    """Return entries by script call: all successes in one, all discards in one, others alone."""
    groups: dict[object, list[_Entry]] = {}
    for number, entry in enumerate(entries):
        outcome = entry[1]
        shared = isinstance(outcome, Done | Discard)
        groups.setdefault(type(outcome) if shared else number, []).append(entry)
    return list(groups.values())
