"""Time limits of jobs: the limit of an async job, and the error for both kinds. [RETRY-10]"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator
from types import TracebackType
from typing import Any

from jobwire.errors import JobTimeout
from jobwire.worker.execute.failure import without_own_end
from jobwire.worker.execute.safe_points import cleans_up

__all__ = ["AGAIN_S", "MAX_AGAIN_S", "limited", "timed_out"]

AGAIN_S = 0.2  # after which a job that caught an interruption is interrupted again; it doubles
MAX_AGAIN_S = 5.0

LATE_S = 1.0  # after its time limit, from which the error of a job explains the delay
BLOCKED_S = 0.1  # after which a timer is so late that something has blocked the event loop

_THREAD = (
    "a thread can be interrupted only while it runs the job's own Python code: isolated=True ends "
    "a job in time"
)
_IGNORED = "it caught the error of the limit and went on"
_LOOP = (
    "an async job can be interrupted only while it awaits: its code blocked the event loop for "
    "{:.1f} s, which a sync job may do"
)


def timed_out(
    limit: float, late: float, trace: TracebackType | None, *, ignored: bool = False
) -> JobTimeout:
    """Return the error of a job in a thread, with a message that an interruption cannot carry.

    Args:
        limit: Seconds that the job may take.
        late: Seconds from the limit to the end of the job.
        trace: The calls in which the job was.
        ignored: True if the job caught the interruption.
    """
    reason = _IGNORED if ignored else _THREAD if late > LATE_S else ""
    return _error(limit, late, reason).with_traceback(without_own_end(trace))


async def limited(awaitable: Awaitable[Any], seconds: float) -> Any:
    """Await an async job with a time limit.

    A job fails if the limit passes while its own code runs, or while it waits. If another job
    blocks the event loop at that time, this one gets the time of the delay once more: the result
    for which it waits may have come.

    Raises:
        JobTimeout: The limit has passed. Its traceback shows where the job was.
    """
    loop = asyncio.get_running_loop()
    steps = _Steps(awaitable, time.monotonic() + seconds)

    task = asyncio.current_task()
    assert task is not None
    strikes = 0  # after the first
    timer: asyncio.TimerHandle

    def strike() -> None:
        nonlocal timer
        late = time.monotonic() - steps.expires
        is_blameless = late > BLOCKED_S and not steps.blocked
        grace = min(late, seconds) if is_blameless else 0.0
        limit.reschedule(loop.time() + grace)
        timer = loop.call_later(grace + AGAIN_S, strike_again)

    def strike_again() -> None:
        nonlocal strikes, timer
        if not cleans_up(steps):
            strikes += 1
            task.cancel()
        timer = loop.call_later(min(AGAIN_S * 2**strikes, MAX_AGAIN_S), strike_again)

    try:
        async with asyncio.timeout(None) as limit:
            timer = loop.call_later(seconds, strike)
            try:
                result = await steps
            finally:
                timer.cancel()
                for _ in range(strikes):
                    task.uncancel()
    except TimeoutError as error:
        if not limit.expired():
            raise
        cancelled = error.__cause__ or error.__context__ or error  # 3.11.2 gives no cause
        raise steps.error(seconds).with_traceback(cancelled.__traceback__) from None
    if steps.blocked:
        raise steps.error(seconds)
    if limit.expired():
        raise _error(seconds, time.monotonic() - steps.expires, _IGNORED)
    return result


class _Steps(Generator[Any, Any, Any]):
    """Awaits a job, and notes if one step of its own code lasts beyond a time.

    A step is what a job does between two waits. No other task runs meanwhile.

    Args:
        awaitable: The job.
        expires: The time, monotonic seconds.

    Attributes:
        blocked: Seconds of the step that lasted beyond the time; 0 if there was none.
    """

    def __init__(self, awaitable: Awaitable[Any], expires: float) -> None:
        self.expires = expires
        self.blocked = 0.0
        self._coroutine = awaitable if isinstance(awaitable, Coroutine) else _awaited(awaitable)

    def error(self, limit: float) -> JobTimeout:
        """Return the error of the job, at its end."""
        late = time.monotonic() - self.expires
        explains = late > LATE_S and self.blocked
        return _error(limit, late, _LOOP.format(self.blocked) if explains else "")

    def __await__(self) -> Generator[Any, Any, Any]:
        return self

    def send(self, value: Any) -> Any:
        """Run the next step."""
        return self._step(self._coroutine.send, value)

    def throw(self, kind: Any, value: Any = None, trace: Any = None) -> Any:
        """Run the next step, which begins with an error."""
        return self._step(self._coroutine.throw, kind if value is None else value)

    def close(self) -> None:
        """End the job."""
        self._coroutine.close()

    # For a stack of the task, as if it awaited the job itself.

    @property
    def cr_frame(self) -> Any:
        return getattr(self._coroutine, "cr_frame", None)

    @property
    def cr_await(self) -> Any:
        return getattr(self._coroutine, "cr_await", None)

    def _step(self, run: Callable[[Any], Any], value: Any) -> Any:
        began = time.monotonic()
        try:
            return run(value)
        finally:
            now = time.monotonic()
            if began <= self.expires < now:
                self.blocked = now - began


async def _awaited(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


def _error(limit: float, late: float, reason: str) -> JobTimeout:
    message = f"ran longer than its time limit of {limit:g} s"
    if reason:
        message += f"; it ended only after {limit + late:.1f} s, because {reason}"
    return JobTimeout(message)
