"""Limits of jobs in a worker: the slots of the jobs that run here. [X-LIMIT-3] to [X-LIMIT-11]"""

from __future__ import annotations

import logging
import secrets
import threading
import time

import msgspec

from jobwire.connection.sync import SyncRedis
from jobwire.errors import RedisTrouble
from jobwire.protocol.keys import Keys
from jobwire.protocol.limits import (
    LIMIT,
    SLOT_LEASE_S,
    LimitOfJob,
    limit_of,
    script_free,
    script_rate,
    script_take,
    script_window,
)
from jobwire.protocol.outcome import Outcome
from jobwire.protocol.payload import Job, edit
from jobwire.protocol.reliable import InFlightJob
from jobwire.protocol.wire import Batch, Script, once

__all__ = ["Limits"]

# The end of a wait if no slot becomes free. The first job in line waits for the first lease.
LONGEST_WAIT_S = 300.0

_log = logging.getLogger("jobwire.worker")


class _Slot(msgspec.Struct, frozen=True):
    held: InFlightJob  # kept alive, because its identity is the key of `_slots`
    limit: LimitOfJob
    jid: str
    token: str

    def free(self, keys: Keys, lease: float) -> Script:
        slot = self.limit.slot(self.jid, self.token)
        return script_free(keys, self.limit, self.held.queue, slot=slot, lease=lease)


class Limits:
    """Takes, renews and frees the slots of a process. Thread-safe.

    Args:
        redis: The server.
        keys: Key names.
        lease: Seconds after the last renewal in which a slot becomes free.
    """

    def __init__(self, redis: SyncRedis, keys: Keys, *, lease: float = SLOT_LEASE_S) -> None:
        self._redis = redis
        self._keys = keys
        self._lease = lease
        self._lock = threading.Lock()  # Guards `_slots`.
        self._slots: dict[int, _Slot] = {}

    def refuse(self, held: InFlightJob, job: Job) -> Outcome | None:
        """Let a job start; return the outcome of a job that must wait. [X-LIMIT-6] [X-LIMIT-9]

        Raises:
            RedisTrouble: Its limit cannot be read.
        """
        limit, jid = limit_of(job.get(LIMIT)), job.jid
        if limit is None or jid is None:
            return None
        if not limit.at_once:
            ask = script_window if limit.window else script_rate
            wait = self._redis.run(once(ask(self._keys, limit, jid))) / 1e6
            return self._wait(held, wait) if wait else None
        token = secrets.token_hex(6)
        step = script_take(self._keys, limit, jid, token, lease=self._lease)
        if self._redis.run(once(step)):
            with self._lock:
                self._slots[id(held)] = _Slot(held, limit, jid, token)
            return None
        outcome = self._wait(held, LONGEST_WAIT_S)
        place = script_free(
            *(self._keys, limit, held.queue), jid=jid, text=outcome.text, lease=self._lease
        )
        # In the same message: a crash between the two would leave the job to its longest wait.
        return msgspec.structs.replace(outcome, beside=(place,))

    def ending(self, held: InFlightJob, outcome: Outcome) -> Outcome:
        """Return the outcome of a job with the release of its slot. [X-LIMIT-5]"""
        if not self._slots or (slot := self._pop(held)) is None:
            return outcome
        return msgspec.structs.replace(outcome, frees=(slot.free(self._keys, self._lease),))

    def free(self, held: InFlightJob) -> None:
        """Free the slot of a job that has no outcome. If that fails, its lease ends by itself."""
        if self._slots and (slot := self._pop(held)) is not None:
            self._free([slot])

    def renew(self) -> None:
        """Renew the leases of all slots. [X-LIMIT-4]

        Raises:
            RedisTrouble: They are not renewed.
        """
        with self._lock:
            slots = list(self._slots.values())
        steps = [
            script_take(
                *(self._keys, slot.limit, slot.jid, slot.token), renew=True, lease=self._lease
            )
            for slot in slots
        ]
        if steps:
            self._redis.run(once(Batch(steps)))

    def close(self) -> None:
        """Free the slots of jobs that were put back."""
        with self._lock:
            slots = list(self._slots.values())
            self._slots.clear()
        if slots:
            self._free(slots)

    def _pop(self, held: InFlightJob) -> _Slot | None:
        with self._lock:
            return self._slots.pop(id(held), None)

    def _free(self, slots: list[_Slot]) -> None:
        try:
            self._redis.run(once(Batch([slot.free(self._keys, self._lease) for slot in slots])))
        except RedisTrouble as error:
            _log.warning("slots of limits stay taken for %g s: %s", self._lease, error)

    def _wait(self, held: InFlightJob, seconds: float) -> Outcome:
        text = edit(held.text, {"queue": held.queue})
        return Outcome("schedule", text, time.time() + seconds, counted="")
