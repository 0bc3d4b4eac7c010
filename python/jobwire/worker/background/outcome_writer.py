"""Stores outcomes of held jobs, many in one round trip. [REL-2] [ENV-6]

Outcomes gather until the next fetch, which takes them along: then a job costs its share of one
round trip, and no thread has to be woken. A thread of its own sends those that no fetch comes for
soon, and looks after other things that must not wait for a busy thread. Until an outcome is stored
its job stays in the private hash, so nothing is lost if this process dies meanwhile.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from jobwire.connection.sync import SyncRedis
from jobwire.errors import RedisRefused, RedisTrouble
from jobwire.protocol.dead_set import DeadSetLimits, dead_key
from jobwire.protocol.keys import Keys
from jobwire.protocol.reliable import (
    InFlightJob,
    script_done,
    script_kill,
    script_requeue,
    script_retry,
)
from jobwire.protocol.retry import Discard, Kill, Retry
from jobwire.protocol.times import utc_day
from jobwire.protocol.wire import Batch, Command, ErrorReply, Script, once
from jobwire.worker.execute import joblog
from jobwire.worker.fetch.source import Done, Outcome, Requeue, Unreadable

__all__ = ["TICK", "Settler"]

LIMIT = 500  # outcomes in one round trip
PAUSE = 1.0  # seconds before trying again when Redis cannot be used
TICK = 0.005  # seconds that an outcome waits for a fetch to go with

_SHARED = (Done, Discard, Retry)  # outcomes that one call of a script takes many of
_log = logging.getLogger("jobwire.worker")


class _Entry(msgspec.Struct, eq=False):  # quicker to make than a dataclass
    held: InFlightJob
    outcome: Outcome
    stored: threading.Event | None = None
    lost: bool = False  # it was not held any more
    repeated: bool = False  # sent before, so it may find its own first try


class Settler:
    """One per process, shared by its capsules.

    Args:
        redis: Where to.
        keys: Key names.
        identity: Whose private hash.
        grave: Returns the burial parameters of this moment.

    Attributes:
        watching: Whether the thread is awake and looks at the chores every few milliseconds.
    """

    def __init__(
        self, redis: SyncRedis, keys: Keys, identity: str, dead_limits: Callable[[], DeadSetLimits]
    ) -> None:
        self._redis = redis
        self._keys = keys
        self._identity = identity
        self._dead_limits = dead_limits
        self._pending: deque[_Entry] = deque()  # not sent yet
        self._again: deque[_Entry] = deque()  # sent, not stored, in nobody's way
        self._again_at = 0.0
        self._gathered_at = 0.0
        self._sent = 0  # outcomes on their way
        self._changed = threading.Condition()  # over that
        self._poked = threading.Event()
        self._stop = threading.Event()
        self._chores: list[Callable[[], float | None]] = []
        self._trouble = ""
        self._reported = ""
        self.watching = False
        self._thread = threading.Thread(target=self._run, name="jobwire-settler", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def add_chore(self, chore: Callable[[], float | None]) -> None:
        """Have `chore` called after `poke`, and again after as many seconds as it returns."""
        self._chores.append(chore)

    def poke(self) -> None:
        """Say that there is something to look after."""
        if not self.watching:
            self._poked.set()

    def add(self, held: InFlightJob, outcome: Outcome) -> None:
        """Store an outcome with the next fetch, or soon after the next `poke`."""
        self._pending.append(_Entry(held, outcome))

    def store(self, held: InFlightJob, outcome: Outcome) -> bool:
        """Store an outcome and wait for it; return whether the job was still held."""
        stored = threading.Event()
        entry = _Entry(held, outcome, stored)
        self._pending.append(entry)
        self._poked.set()
        while not stored.wait(PAUSE):
            if self._stop.is_set():
                return False
        return not entry.lost

    @property
    def pending(self) -> bool:
        """Whether there is an outcome that nobody has sent."""
        return bool(self._pending)

    def close(self, timeout: float) -> int:
        """Wait until everything is stored, then end; return how many outcomes were not."""
        self._poked.set()
        with self._changed:
            self._changed.wait_for(lambda: not self._unsettled(), timeout)
            left = self._unsettled()
        self._stop.set()
        self._poked.set()
        self._thread.join(timeout=PAUSE)
        return left

    def send_with(self, script: Script) -> Callable[[], Any]:
        """Send what has gathered and `script` in one message; return what reads the reply.

        What is returned has to be called, once. It returns the script's reply.

        Raises:
            RedisTrouble: When it is called, of the script. What becomes of the outcomes is the
                settler's business.
        """
        arrive = self._send(self._gather(), script)

        def reply() -> Any:
            found = arrive()
            if isinstance(found, ErrorReply):
                raise RedisRefused(found.message)
            return found

        return reply

    def _unsettled(self) -> int:
        return len(self._pending) + self._sent + len(self._again)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._turn()
            except Exception:  # noqa: BLE001 - ours, and the thread must live
                _log.exception("settler failed, which is a bug; it goes on")
                self._stop.wait(PAUSE)

    def _turn(self) -> None:
        patience = self._look_after()
        if patience is None or patience > TICK:
            self.watching = False
            # Whoever still saw the flag up has left something for the chores to find.
            patience = self._look_after()
        if patience is not None and patience <= TICK:
            self.watching = True
            self._stop.wait(patience)
        else:
            self._poked.wait(patience)
            self.watching = True
        self._poked.clear()
        self._send_overdue()
        if self._again and time.monotonic() >= self._again_at:
            self._send_again()

    def _look_after(self) -> float | None:
        """Do the chores; return in how many seconds to come back."""
        wishes = [chore() for chore in self._chores]
        if self._pending:
            wishes.append(TICK)
        if self._again:
            wishes.append(max(self._again_at - time.monotonic(), 0.0))
        return min((wish for wish in wishes if wish is not None), default=None)

    def _send_overdue(self) -> None:
        """Send what no fetch has come for."""
        with suppress(RedisTrouble):  # they are kept, and it is reported
            while self._pending and time.monotonic() - self._gathered_at >= TICK:
                self._send(self._gather(), None)()

    def _gather(self) -> list[_Entry]:
        self._gathered_at = time.monotonic()
        return self._take(self._pending)

    def _take(self, waiting: deque[_Entry]) -> list[_Entry]:
        """Take entries to send them."""
        with self._changed:
            entries = [waiting.popleft() for _ in range(min(len(waiting), LIMIT))]
            self._sent += len(entries)
        return entries

    def _send_again(self) -> None:
        entries = self._take(self._again)
        self._again_at = 0.0
        with suppress(RedisTrouble):  # they are kept
            self._send(entries, None)()
        if self._again_at == 0.0:
            self._report_recovery()

    def _send(self, entries: Sequence[_Entry], extra: Script | None) -> Callable[[], Any]:
        """Send outcomes that were taken, and a script; return what waits for its reply.

        That returns the reply, perhaps an error.

        Raises:
            RedisTrouble: When it is called: the message got no answer, or the script went alone
                and was refused.
        """
        joblog.flush()  # first: what the log does not say of a killed process runs again
        if not entries and extra is not None:
            return self._redis.start(once(extra))
        groups = _group(entries)
        day = utc_day(time.time())
        steps: list[Command | Script] = [self._script(group, day) for group in groups]
        steps += (
            entry.outcome.after
            for entry in entries
            if type(entry.outcome) is Done and entry.outcome.after is not None
        )
        if extra is not None:
            steps.append(extra)
        answer = self._redis.start(once(Batch(steps)))

        def arrive() -> Any:
            try:
                replies = answer()
            except Exception as error:
                self._keep(entries, str(error))
                raise
            for group, reply in zip(groups, replies, strict=False):
                if isinstance(reply, ErrorReply):
                    self._keep(group, reply.message)
                else:
                    self._report_lost(group, reply)
                    self._arrived(group)
            return replies[-1] if extra is not None else None

        return arrive

    def _arrived(self, entries: Sequence[_Entry]) -> None:
        """Entries are on their way no more."""
        with self._changed:
            self._sent -= len(entries)
            if not self._unsettled():
                self._changed.notify_all()

    def _keep(self, entries: Sequence[_Entry], trouble: str) -> None:
        """Have outcomes sent again later."""
        if not entries:
            return
        for entry in entries:
            entry.repeated = True
        self._again.extend(entries)
        self._arrived(entries)
        self._again_at = time.monotonic() + PAUSE
        self._trouble = trouble
        if trouble != self._reported:
            count = len(self._again)
            _log.error("outcomes of jobs are not stored yet (%d now): %s", count, trouble)
            self._reported = trouble
        self.poke()

    def _report_recovery(self) -> None:
        if not self._again and self._reported:
            _log.info("all outcomes are stored again")
            self._reported = ""

    def _script(self, group: Sequence[_Entry], day: str) -> Script:
        held, outcome, repeated = group[0].held, group[0].outcome, group[0].repeated
        keys, me = self._keys, self._identity
        match outcome:
            case Done() | Discard():
                fields = [each.held.field for each in group]
                failed = isinstance(outcome, Discard)
                return script_done(keys, me, fields, failed=failed, day=day, repeated=repeated)
            case Retry():
                retries = [
                    (each.held.field, each.outcome.at, each.outcome.text)
                    for each in group
                    if isinstance(each.outcome, Retry)
                ]
                return script_retry(keys, me, retries, day=day, repeated=repeated)
            case Kill(text, counted):
                return script_kill(
                    *(keys, me, held.field, text, self._dead_limits()),
                    day=day,
                    counted=counted,
                    repeated=repeated,
                )
            case Requeue(text):
                return script_requeue(
                    keys,
                    me,
                    held.field,
                    text,
                    held.queue,
                    day=day,
                    repeated=repeated,
                )
            case Unreadable(problem):
                return script_kill(
                    keys,
                    me,
                    held.field,
                    held.text,
                    self._dead_limits(),
                    day=day,
                    key=dead_key(keys, problem),
                    counted=False,
                    repeated=repeated,
                )

    @staticmethod
    def _report_lost(group: Sequence[_Entry], reply: object) -> None:
        """Log jobs that were put back while they ran, and tell who waits for the others."""
        gone = {field.decode() for field in reply} if isinstance(reply, list) else set()
        all_gone = reply == 0
        for entry in group:
            if (all_gone or entry.held.field in gone) and not entry.repeated:
                entry.lost = True
                _log.warning(
                    "outcome of job %s dropped: it was put back while it ran, and runs again",
                    entry.held.field,
                )
            if entry.stored is not None:
                entry.stored.set()


def _group(entries: Sequence[_Entry]) -> list[list[_Entry]]:
    """Return entries by script call: those of one kind in one, but burials and the like alone."""
    groups: dict[object, list[_Entry]] = {}
    for number, entry in enumerate(entries):
        outcome = type(entry.outcome)
        kind = (outcome, entry.repeated) if outcome in _SHARED else number
        group = groups.get(kind)
        if group is None:
            groups[kind] = [entry]
        else:
            group.append(entry)
    return list(groups.values())
