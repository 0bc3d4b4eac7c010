"""Iterable jobs: they can stop between two items and continue later. [ITER-1] to [ITER-19]

This module holds the state of such a job in Redis, and the rules of one run of it. `Run.steps`
yields requests, and a thread or an event loop carries them out. Both follow the same rules.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

from jobwire.errors import InvalidJob, JobwireError, RedisTrouble
from jobwire.protocol.arguments import check_value
from jobwire.protocol.keys import Keys
from jobwire.protocol.payload import encode
from jobwire.protocol.wire import Arg, Batch, Command, Op, command, once

__all__ = [
    "ADVANCE",
    "CLOSE",
    "END",
    "SAVE_INTERVAL_S",
    "STATE_TTL_S",
    "Ask",
    "Begin",
    "Call",
    "Cancellation",
    "Cursor",
    "Interrupted",
    "Moment",
    "Place",
    "Run",
    "State",
    "Store",
    "UnreadableState",
    "Warn",
    "cancel",
    "forget",
    "load",
    "save",
]

STATE_TTL_S = 2_592_000  # 30 days [ITER-2]
SAVE_INTERVAL_S = 5.0  # of iteration [ITER-3]
SAVE_RETRY_S = 1.0  # before the next try to save the state for a stop


class Interrupted(BaseException):
    """An iterable job was interrupted: its state is saved, and it goes back to its queue.

    This is not a failure, so middleware that catches `Exception` does not see it. [ITER-4]
    [ITER-17] [STAT-3]
    """


class UnreadableState(JobwireError, ValueError):
    """The state of an iteration holds a cursor that is not JSON."""


# -- the state


@dataclass(frozen=True, slots=True)
class State:
    """The state of an iterable job, as stored in Redis. [ITER-1] [ITER-8]

    Attributes:
        executions: Number of starts.
        cursor: Position at which to resume, as JSON text.
        runtime: Seconds that earlier starts ran.
        cancelled: Epoch second of the first cancellation; None if not cancelled.
        done: Items done before the cursor, if the worker stored that.
        total: Total number of items, if known.
    """

    executions: int = 0
    cursor: bytes = b"null"
    runtime: float = 0.0
    cancelled: int | None = None
    done: int = 0
    total: int | None = None

    @classmethod
    def read(cls, fields: Mapping[bytes, bytes]) -> State:
        """Read the hash; a missing or invalid field has the value of a new job. [ITER-12]"""
        total, cancelled = _number(fields.get(b"jw_total")), fields.get(b"cancelled")
        return cls(
            executions=int(_number(fields.get(b"ex")) or 0),
            cursor=fields.get(b"c") or b"null",
            runtime=_number(fields.get(b"rt")) or 0.0,
            # Any value means that the job was cancelled, even one that is not a number.
            cancelled=None if cancelled is None else int(_number(cancelled) or 0),
            done=int(_number(fields.get(b"jw_done")) or 0),
            total=None if total is None else int(total),
        )


def _number(text: bytes | None) -> float | None:
    try:
        number = None if text is None else float(text)
    except ValueError:
        return None
    return number if number is not None and math.isfinite(number) else None


def load(keys: Keys, jid: str) -> Op[State]:
    """Return the stored state of an iterable job, or that of a new job. [ITER-1]"""
    reply: Any = yield command("HGETALL", keys.iteration(jid))
    if not isinstance(reply, Mapping):
        reply = dict(zip(reply[::2], reply[1::2], strict=True))
    return State.read(reply)


def save(keys: Keys, jid: str, state: State) -> Op[int | None]:
    """Write all fields of the state but `cancelled`, and return the stored `cancelled`. [ITER-1]

    One transaction, so that a state never stays without expiry or with half of its fields. Each
    write sets the expiry to 30 days. [ITER-2]
    """
    key = keys.iteration(jid)
    fields: list[Arg] = ["ex", state.executions, "c", state.cursor, "rt", state.runtime or 0]
    fields += ["jw_done", state.done]
    if state.total is not None:
        fields += ["jw_total", state.total]
    _, _, cancelled = yield Batch(
        [
            command("HSET", key, *fields),
            command("EXPIRE", key, STATE_TTL_S),
            command("HGET", key, "cancelled"),
        ],
        atomic=True,
    )
    return None if cancelled is None else int(_number(cancelled) or 0)


Place = Literal["queued", "running", "done", "unknown"]


class Cancellation(NamedTuple):
    """The answer to a request to cancel a job.

    Attributes:
        at: Epoch second of the first request.
        started: True if the job is iterable and has a saved state, so that it has started.
        place: `queued`: it waited and was removed, so it does not run. `running`: a process holds
            it and is asked to end it, or to refuse it if it has not started. `done`: it had ended,
            as its result or the dead set shows. `unknown`: it is nowhere. It has ended without a
            result, or it will be pushed later, and then it is refused.
    """

    at: int
    started: bool
    place: Place = "unknown"


def cancel(keys: Keys, jid: str, *, now: float) -> Op[Cancellation]:
    """Cancel an iterable job: it ends soon, or at its start if it does not run. [ITER-7] [ITER-9]

    The request waits for a job that has not started, and expires after 30 days.
    """
    key = keys.iteration(jid)
    started, *_, first, _ = yield Batch(
        [
            command("HEXISTS", key, "ex"),  # only a worker writes this field
            # Sidekiq 8.1 cannot start a job whose state has no cursor.
            command("HSETNX", key, "c", "null"),
            command("HSETNX", key, "cancelled", int(now)),
            command("HGET", key, "cancelled"),
            command("EXPIRE", key, STATE_TTL_S),
        ],
        atomic=True,
    )
    return Cancellation(int(_number(first) or 0), bool(started))


def forget(keys: Keys, jid: str) -> Command:
    """Return the command that deletes the state of a job that is complete, or was cancelled.

    [ITER-6] [ITER-18]
    """
    return command("UNLINK", keys.iteration(jid))


# -- the interface for job code


class Cursor:
    """The position of an iteration; the first argument of an iterable job.

    Attributes:
        value: Position of the first item to process; None at the beginning. Each `yield` sets it
            to the yielded value.
        executions: Number of starts of the job, including this one.
        runtime: Seconds that earlier starts ran.
        done: Items done so far, in all starts.
        total: Total number of items, if known. Set it to show the progress of the job.
        cancelled: True if the job was cancelled. [ITER-7]
    """

    def __init__(self, state: State | None = None) -> None:
        state = state or State()
        try:
            self.value: Any = msgspec.json.decode(state.cursor)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise UnreadableState(
                f"the state has the cursor {state.cursor[:60]!r}, which is not JSON ({error}); "
                "set it with HSET it-<jid> c <JSON>, or delete the state to start all over"
            ) from None
        self.executions = state.executions + 1
        self.runtime = state.runtime
        self.done = state.done
        self.total = state.total
        self.cancelled = state.cancelled is not None
        self._text = state.cursor
        self._moving = False
        self._tracked = False

    def __repr__(self) -> str:
        return f"<Cursor {self.value!r} done={self.done} total={self.total}>"

    @property
    def resumed(self) -> bool:
        """True if the job has started before."""
        return self.executions > 1

    def track(self, done: int, total: int | None) -> None:
        """Set the progress; from then on, `yield`s are not counted."""
        self.done, self.total, self._tracked = done, total, True

    def reach(self, value: Any) -> None:
        """Set the position to a yielded value, encoded now because job code may change it later."""
        if type(value) is not int:
            try:
                check_value(value, "cursor", depth=1)
            except InvalidJob as error:
                raise TypeError(
                    f"cannot resume from the cursor {value!r}: {error.field}: {error.problem}"
                ) from None
        self._text = encode(value)
        self.value = value
        if self._moving and not self._tracked:
            self.done += 1
        self._moving = True

    def state(self, *, ran: float) -> State:
        """Return the state to save; `ran` is the seconds that this start has run."""
        return State(self.executions, self._text, self.runtime + ran, None, self.done, self.total)


# -- a run

Moment = Literal["on_start", "on_resume", "on_stop", "on_cancel", "on_complete"]


@dataclass(frozen=True, slots=True)
class Store:
    """Run an operation; answered by its result or its error."""

    op: Op[Any]


@dataclass(frozen=True, slots=True)
class Begin:
    """Call the generator function with this cursor."""

    cursor: Cursor


@dataclass(frozen=True, slots=True)
class Call:
    """Call the job's hook for a moment, if it has one."""

    moment: Moment


@dataclass(frozen=True, slots=True)
class Warn:
    """Log a problem that does not end the run."""

    problem: str


class _Word:
    """A request without parameters, or the answer that no items are left."""


ADVANCE = _Word()
"""Go to the next `yield`; answered by its value, or `END`."""
CLOSE = _Word()
"""Close the generator, so that its finally blocks run."""
END = _Word()

Ask: TypeAlias = Store | Begin | Call | Warn | _Word


class Run:
    """One start of an iterable job.

    Args:
        jid: Id of the job; None to process all items without a stored state.
        keys: Key names.
        clock: Returns the seconds of a monotonic clock.
        stopping: Returns True if the worker wants to stop.
        max_runtime: Seconds after which the job is interrupted in favour of other jobs. [ITER-11]
        on_finish: Called with the command that deletes the state of a complete job, instead of
            running it. A worker then sends it together with the outcome, in one step.
    """

    def __init__(
        self,
        jid: str | None,
        keys: Keys | None = None,
        *,
        clock: Callable[[], float],
        stopping: Callable[[], bool] = lambda: False,
        max_runtime: float | None = None,
        on_finish: Callable[[Command], None] | None = None,
    ) -> None:
        self._jid = jid
        self._keys = keys or Keys()
        self._clock = clock
        self._stopping = stopping
        self._max_runtime = math.inf if max_runtime is None else max_runtime
        self._on_finish = on_finish
        self._interrupted = False

    def steps(self) -> Generator[Ask, Any, None]:
        """Yield the steps of the run until the job is complete. [ITER-3] to [ITER-7] [ITER-19]

        An exception that aborts the thread is not an `Exception`: the state stays as it is.
        [ITER-15]

        Raises:
            Interrupted: The job was interrupted, and its state is saved.
            Exception: The job raised it. The items before are saved as done. [ITER-10]
        """
        state = State()
        if self._jid is not None:
            state = yield Store(load(self._keys, self._jid))
        cursor = Cursor(state)
        began = self._clock()
        try:
            yield Begin(cursor)
            yield Call("on_resume" if cursor.resumed else "on_start")
            if not cursor.cancelled:
                yield from self._items(cursor, began)
            yield CLOSE
            if cursor.cancelled:
                yield Call("on_cancel")
            yield Call("on_stop")
            if not self._interrupted:
                yield Call("on_complete")
                yield from self._forget()
        except Exception:
            # Saved so that the retry begins at the item that failed, not at the last saved one.
            yield from self._save(cursor, self._clock() - began)
            raise
        if self._interrupted:
            raise Interrupted

    def _items(self, cursor: Cursor, began: float) -> Generator[Ask, Any, None]:
        save_at = began + SAVE_INTERVAL_S
        last_save = -math.inf
        limit = math.inf  # a run does at least one item; otherwise the job might never complete
        while (value := (yield ADVANCE)) is not END:
            cursor.reach(value)
            if self._jid is None:
                continue
            now = self._clock()
            stop = self._stopping() or now - began > limit
            limit = self._max_runtime
            if now < (last_save + SAVE_RETRY_S if stop else save_at):
                continue
            last_save, save_at = now, now + SAVE_INTERVAL_S
            # If the state cannot be saved, the job goes on. The worker may still interrupt it.
            if not (yield from self._save(cursor, now - began if stop else 0.0)):
                continue
            if stop or cursor.cancelled:
                self._interrupted = not cursor.cancelled
                return

    def _forget(self) -> Generator[Ask, Any, None]:
        if self._jid is None:
            return
        deletion = forget(self._keys, self._jid)
        if self._on_finish is None:
            yield Store(once(deletion))
        else:
            self._on_finish(deletion)

    def _save(self, cursor: Cursor, ran: float) -> Generator[Ask, Any, bool]:
        """Save the state and read `cancelled`; return True if that worked.

        [ITER-3] [ITER-7] [ITER-13]
        """
        if self._jid is None:
            return False
        try:
            cancelled = yield Store(save(self._keys, self._jid, cursor.state(ran=ran)))
        except RedisTrouble as error:
            yield Warn(f"cannot save the state of the iteration, so the job goes on: {error}")
            return False
        cursor.cancelled = cancelled is not None
        return True
