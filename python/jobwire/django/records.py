"""Records of Django's tasks that keep their results: the task, and each attempt at it.

The result of the job has its outcome and value. The record has the rest of a `TaskResult`: it is
written at the enqueuing, and at the begin and end of each attempt. If Redis is away then, the
record stays as it is, because a task is worth more than a record of it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import msgspec

from jobwire.application.app import App
from jobwire.application.delivery import Delivery
from jobwire.connection.cluster import keys_at
from jobwire.errors import RedisTrouble
from jobwire.protocol import results
from jobwire.protocol.keys import Keys
from jobwire.protocol.results import Result
from jobwire.protocol.wire import Batch, Command, Op, command

__all__ = ["MAX_TRACEBACK", "WAIT_S", "Attempt", "Change", "Known", "Problem", "Record", "Records"]

WAIT_S = 7 * 86_400  # for the next attempt; the longest delay between two retries is five days
MAX_TRACEBACK = 10_000  # characters; the last ones, because these name the error
_TASK = "task"  # the field of the task; the other fields are numbers of attempts
_log = logging.getLogger("jobwire.django")


class Known(msgspec.Struct, frozen=True, omit_defaults=True):
    """A task with its arguments, as it was enqueued."""

    path: str
    backend: str
    queue: str
    args: list[Any]
    kwargs: dict[str, Any]
    priority: int = 0
    run_after: datetime | None = None
    enqueued_at: datetime | None = None


class Problem(msgspec.Struct, frozen=True):
    """An error of an attempt: the path of its class, and its traceback."""

    path: str
    traceback: str


class Attempt(msgspec.Struct, frozen=True, omit_defaults=True):
    """An attempt at a task; it runs until it has ended, or until the job has a final outcome."""

    worker: str
    started_at: datetime
    ended: bool = False
    problem: Problem | None = None


@dataclass(frozen=True, slots=True)
class Record:
    """The record of a task, and the result of its job."""

    known: Known
    attempts: list[Attempt]
    result: Result | None


class Change(NamedTuple):
    """A change of a record.

    Attributes:
        jid: Id of the task, which is that of its job.
        seconds: Time to live of the record from now.
        known: The task, for a record that does not exist yet or no more.
        attempt: Number and state of an attempt.
    """

    jid: str
    seconds: int
    known: Known | None = None
    attempt: tuple[int, Attempt] | None = None


class Records:
    """The records of an application: in Redis, or in memory while a test collects its jobs."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._collected: WeakKeyDictionary[Delivery, dict[str, dict[bytes, bytes]]] = (
            WeakKeyDictionary()
        )

    def write(self, change: Change) -> None:
        """Write a change; trouble with Redis is logged."""
        if not self._collect(change):
            try:
                self._app.client.redis.run(_write(self._keys, change))
            except RedisTrouble as error:
                _warn(change, error)

    async def awrite(self, change: Change) -> None:
        """Write a change from asyncio; see `write`."""
        if not self._collect(change):
            try:
                await self._app.aclient.redis.run(_write(self._keys, change))
            except RedisTrouble as error:
                _warn(change, error)

    def read(self, jid: str) -> Record | None:
        """Return the record of a task; None if there is none.

        Raises:
            RedisTrouble: It could not be read.
        """
        if self._app.transport.overrides:
            delivery = self._app.transport.overrides[-1]
            fields: Mapping[bytes, bytes] = self._collected.get(delivery, {}).get(jid, {})
            text = delivery.result(jid)
        else:
            fields, text = self._app.client.redis.run(_read(self._keys, jid))
        return _decode(jid, fields, text)

    @property
    def _keys(self) -> Keys:
        return keys_at(self._app.client.url, self._app.namespace)

    def _collect(self, change: Change) -> bool:
        """Keep a change in memory; return False if it must go to Redis."""
        if not self._app.transport.overrides:
            return False
        records = self._collected.setdefault(self._app.transport.overrides[-1], {})
        fields = records.setdefault(change.jid, {})
        if change.known is not None:
            fields.setdefault(_TASK.encode(), msgspec.json.encode(change.known))
        if change.attempt is not None:
            number, attempt = change.attempt
            fields[str(number).encode()] = msgspec.json.encode(attempt)
        return True


def _write(keys: Keys, change: Change) -> Op[None]:
    key = keys.task(change.jid)
    steps: list[Command] = []
    if change.known is not None:
        steps.append(command("HSETNX", key, _TASK, msgspec.json.encode(change.known)))
    if change.attempt is not None:
        number, attempt = change.attempt
        steps.append(command("HSET", key, number, msgspec.json.encode(attempt)))
    steps.append(command("EXPIRE", key, change.seconds))
    yield Batch(steps, atomic=True)


def _read(keys: Keys, jid: str) -> Op[tuple[dict[bytes, bytes], bytes | None]]:
    """Read record and result at one moment."""
    steps = [command("HGETALL", keys.task(jid)), command("GET", keys.result(jid))]
    flat, text = yield Batch(steps, atomic=True)
    return dict(zip(flat[::2], flat[1::2], strict=True)), text


def _decode(jid: str, fields: Mapping[bytes, bytes], text: bytes | None) -> Record | None:
    """Return a record; None if its task is missing, or if another program wrote nonsense."""
    try:
        known = msgspec.json.decode(fields[_TASK.encode()], type=Known)
        numbers = sorted(int(name) for name in fields if name != _TASK.encode())
        attempts = [msgspec.json.decode(fields[b"%d" % n], type=Attempt) for n in numbers]
    except (KeyError, ValueError):
        return None
    return Record(known, attempts, None if text is None else results.read(jid, text))


def _warn(change: Change, error: RedisTrouble) -> None:
    _log.warning("the record of task %s was not written: %s", change.jid, error)
