"""Jobs that work through many items, give way between two, and go on later. [ITER-1] to [ITER-11]

Here is the state that Redis keeps of such a job, and what one run of it does, as steps that
somebody else takes: `Run.steps` asks, threads and event loops answer, both by the same rules.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

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
    "SAVE_EVERY",
    "STATE_TTL",
    "Ask",
    "Begin",
    "Call",
    "Cursor",
    "Interrupted",
    "Moment",
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

STATE_TTL = 2_592_000  # seconds, 30 days [ITER-2]
SAVE_EVERY = 5.0  # seconds of iteration [ITER-3]
PATIENCE = 1.0  # seconds before a stop that could not be saved is tried again


class Interrupted(BaseException):
    """An iterable job gives way, its state is saved: it goes back to its queue. [ITER-4]

    Not a failure, so middleware that catches `Exception` does not see it.
    """


class UnreadableState(JobwireError, ValueError):
    """The state of an iteration holds a cursor that is no JSON."""


# -- the state


@dataclass(frozen=True, slots=True)
class State:
    """How far an iterable job is, as Redis has it. [ITER-1] [ITER-8]

    Attributes:
        executions: How often it has started.
        cursor: Where to begin again, as JSON text.
        runtime: Seconds that it ran in earlier starts.
        cancelled: Epoch second of the first cancellation; None if it was not.
        done: Items done before the cursor, where the worker said so.
        total: Items in all, where known.
    """

    executions: int = 0
    cursor: bytes = b"null"
    runtime: float = 0.0
    cancelled: int | None = None
    done: int = 0
    total: int | None = None

    @classmethod
    def read(cls, fields: Mapping[bytes, bytes]) -> State:
        """Read the hash; what is missing or no number is as at the beginning. [ITER-7]"""
        total, cancelled = _number(fields.get(b"jw_total")), fields.get(b"cancelled")
        return cls(
            executions=int(_number(fields.get(b"ex")) or 0),
            cursor=fields.get(b"c") or b"null",
            runtime=_number(fields.get(b"rt")) or 0.0,
            # Whatever is there, somebody wanted it to end.
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
    """Return the state of an iterable job; that of a new one if there is none. [ITER-1]"""
    reply: Any = yield command("HGETALL", keys.iteration(jid))
    if not isinstance(reply, Mapping):
        reply = dict(zip(reply[::2], reply[1::2], strict=True))
    return State.read(reply)


def save(keys: Keys, jid: str, state: State) -> Op[int | None]:
    """Write all of the state but `cancelled`, of which the present value is returned. [ITER-1]

    One transaction, so that no state is ever without its end, and none half of another. Each
    write gives it 30 days more. [ITER-2]
    """
    key = keys.iteration(jid)
    fields: list[Arg] = ["ex", state.executions, "c", state.cursor, "rt", state.runtime or 0]
    fields += ["jw_done", state.done]
    if state.total is not None:
        fields += ["jw_total", state.total]
    _, _, cancelled = yield Batch(
        [
            command("HSET", key, *fields),
            command("EXPIRE", key, STATE_TTL),
            command("HGET", key, "cancelled"),
        ],
        atomic=True,
    )
    return None if cancelled is None else int(_number(cancelled) or 0)


def cancel(keys: Keys, jid: str, *, now: float) -> Op[int]:
    """Ask that an iterable job ends, now or when it starts. [ITER-7] [ITER-9]

    Returns:
        The epoch second of the first time that somebody asked.
    """
    key = keys.iteration(jid)
    *_, first, _ = yield Batch(
        [
            command("HSETNX", key, "c", "null"),
            command("HSETNX", key, "cancelled", int(now)),
            command("HGET", key, "cancelled"),
            command("EXPIRE", key, STATE_TTL),
        ],
        atomic=True,
    )
    return int(_number(first) or 0)


def forget(keys: Keys, jid: str) -> Command:
    """Return the command that deletes the state of a job that is complete. [ITER-6]"""
    return command("UNLINK", keys.iteration(jid))


# -- what job code sees


class Cursor:
    """Where an iteration is; the first argument of an iterable job.

    Attributes:
        value: Where to begin, the item there included; None at the beginning. With each `yield`
            it becomes what was yielded.
        executions: How often the job has started, this time included.
        runtime: Seconds that it ran in earlier starts.
        done: Items done so far, in all starts.
        total: Items in all, if known; set it, and people can see how far the job is.
        cancelled: Whether somebody cancelled the job. [ITER-7]
    """

    def __init__(self, state: State | None = None) -> None:
        state = state or State()
        try:
            self.value: Any = msgspec.json.decode(state.cursor)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise UnreadableState(
                f"the state has the cursor {state.cursor[:60]!r}, which is no JSON ({error}); "
                "write one with HSET it-<jid> c <JSON>, or delete the state to begin anew"
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
        """Whether this is not the first start of the job."""
        return self.executions > 1

    def track(self, done: int, total: int | None) -> None:
        """Say how far it is, rather than have the `yield`s counted."""
        self.done, self.total, self._tracked = done, total, True

    def reach(self, value: Any) -> None:
        """Take what the job yielded. Encoded at once: job code may change it afterwards."""
        if type(value) is not int:
            try:
                check_value(value, "cursor", depth=1)
            except InvalidJob as error:
                raise TypeError(
                    f"cannot go on from the cursor {value!r} later: {error.field}: {error.problem}"
                ) from None
        self._text = encode(value)
        self.value = value
        if self._moving and not self._tracked:
            self.done += 1
        self._moving = True

    def state(self, *, ran: float) -> State:
        """Return what to save after running for `ran` seconds that earlier starts do not have."""
        return State(self.executions, self._text, self.runtime + ran, None, self.done, self.total)


# -- a run

Moment = Literal["on_start", "on_resume", "on_stop", "on_cancel", "on_complete"]


@dataclass(frozen=True, slots=True)
class Store:
    """Perform an operation; answered by its result, or by the error."""

    op: Op[Any]


@dataclass(frozen=True, slots=True)
class Begin:
    """Call the generator function with this cursor."""

    cursor: Cursor


@dataclass(frozen=True, slots=True)
class Call:
    """Call what the job wants to be called at a moment, if anything."""

    moment: Moment


@dataclass(frozen=True, slots=True)
class Warn:
    """Log a problem that the run survives."""

    problem: str


class _Word:
    """A request without particulars, or the answer that there is nothing more."""


ADVANCE = _Word()
"""Go to the next `yield`; answered by its value, or `END`."""
CLOSE = _Word()
"""Close the generator, so that its finally blocks run."""
END = _Word()

Ask: TypeAlias = Store | Begin | Call | Warn | _Word


class Run:
    """One start of an iterable job.

    Args:
        jid: Whose state; None to go through all items without any.
        keys: Key names.
        clock: Returns seconds, of a clock that is never set.
        stopping: Returns whether the worker wants to stop.
        max_runtime: Seconds after which the job gives way to others. [ITER-11]
        on_finish: Called instead of deleting the state of a complete job, by a worker that does
            so together with the outcome of the job, in one step.
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
        """Ask for what has to be done, until the job is complete. [ITER-3] to [ITER-7]

        Raises:
            Interrupted: It gave way.
            Exception: What the job raised; what was done before is saved. [ITER-10]
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
            # The retry begins at the item that failed, not seconds before it.
            yield from self._save(cursor, self._clock() - began)
            raise
        if self._interrupted:
            raise Interrupted

    def _items(self, cursor: Cursor, began: float) -> Generator[Ask, Any, None]:
        due = began + SAVE_EVERY
        last_try = -math.inf
        limit = math.inf  # a run does one item at least, or it would never come to an end
        while (value := (yield ADVANCE)) is not END:
            cursor.reach(value)
            if self._jid is None:
                continue
            now = self._clock()
            stop = self._stopping() or now - began > limit
            limit = self._max_runtime
            if now < (last_try + PATIENCE if stop else due):
                continue
            last_try, due = now, now + SAVE_EVERY
            # A stop that cannot be saved waits: the worker may still end this job the hard way.
            if not (yield from self._save(cursor, now - began if stop else 0.0)):
                continue
            if stop or cursor.cancelled:
                self._interrupted = not cursor.cancelled
                return

    def _forget(self) -> Generator[Ask, Any, None]:
        if self._jid is None:
            return
        last = forget(self._keys, self._jid)
        if self._on_finish is None:
            yield Store(once(last))
        else:
            self._on_finish(last)

    def _save(self, cursor: Cursor, ran: float) -> Generator[Ask, Any, bool]:
        """Save and look for a cancellation; return whether that was possible. [ITER-3] [ITER-7]"""
        if self._jid is None:
            return False
        try:
            cancelled = yield Store(save(self._keys, self._jid, cursor.state(ran=ran)))
        except RedisTrouble as error:
            yield Warn(f"cannot save how far the iteration is, so it goes on: {error}")
            return False
        cursor.cancelled = cancelled is not None
        return True
