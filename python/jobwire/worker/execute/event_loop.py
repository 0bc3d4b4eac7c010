"""The event loop that runs `async def` jobs, in its own thread."""

from __future__ import annotations

import asyncio
import concurrent.futures
import gc
import logging
import sys
import threading
import traceback
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from queue import SimpleQueue
from typing import Any

from jobwire.worker.execute.interruption import blocked

__all__ = ["AsyncLoop"]

CLOSE_TIMEOUT_S = 1.0  # for tasks that jobs have left behind
CLEANUP_TIMEOUT_S = 3.0  # for the finally blocks of a cancelled job

_log = logging.getLogger("jobwire.worker")


class AsyncLoop:
    """An event loop in its own thread, which starts with the first job that needs it.

    The loop runs again if a job's task or callback ends it.

    Args:
        on_broken: Called if the loop cannot run again.
    """

    def __init__(self, on_broken: Callable[[], None] = lambda: None) -> None:
        self._on_broken = on_broken
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._finished = threading.Event()  # set when `_loop` may end
        self._broken = False

    def call(self, callback: Callable[[asyncio.AbstractEventLoop], object]) -> None:
        """Make the loop call `callback(loop)` soon."""
        loop = self._started()
        loop.call_soon_threadsafe(callback, loop)

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine in the loop, in a copy of this thread's context; wait for its result.

        An interruption of this thread cancels the coroutine.
        """
        ended = threading.Event()

        async def watched() -> Any:
            try:
                return await coroutine
            finally:
                ended.set()

        future = self._submit(watched())
        try:
            with blocked(future.cancel):
                return future.result()
        except concurrent.futures.CancelledError:
            ended.wait(CLEANUP_TIMEOUT_S)  # the finally blocks run in the loop
            raise

    def run_around(
        self, around: Callable[[Callable[[], Any]], Awaitable[Any]], inner: Callable[[], Any]
    ) -> Any:
        """Await `around(call_next)` in the loop; its `call_next` runs `inner` in this thread."""
        requests: SimpleQueue[asyncio.Future[Any] | _End] = SimpleQueue()
        loop = self._started()

        async def call_next() -> Any:
            answer = loop.create_future()
            requests.put(answer)
            return await answer

        async def whole() -> None:
            try:
                end = _End(None, await around(call_next))
            except BaseException as error:  # noqa: BLE001 - raised in the thread of the job
                end = _End(error)
            requests.put(end)

        task: asyncio.Task[None] | None = None

        def begin() -> None:
            nonlocal task
            task = loop.create_task(whole())

        def cancel() -> None:
            if task is not None:  # `whole` does not end by itself if it has not begun
                task.add_done_callback(lambda _: requests.put(_End(asyncio.CancelledError())))
                task.cancel()

        loop.call_soon_threadsafe(begin)
        while True:
            with blocked(partial(loop.call_soon_threadsafe, cancel)):
                request = requests.get()
            if isinstance(request, _End):
                return request.outcome()
            try:
                result = inner()
            except BaseException as error:  # noqa: BLE001 - passed on to the caller in the loop
                loop.call_soon_threadsafe(_answer, request, None, error)
            else:
                loop.call_soon_threadsafe(_answer, request, result, None)

    def stacks(self) -> dict[str, str]:
        """Return the stack of each task, by its name, for the log."""
        loop, thread = self._loop, self._thread
        if loop is None or thread is None:
            return {}
        return {task.get_name(): _stack(task, thread) for task in asyncio.all_tasks(loop)}

    def close(self, last: Callable[[], Awaitable[None]]) -> None:
        """Cancel the remaining tasks of the loop, await `last` there, and end the loop."""
        with self._lock:
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is None or thread is None or self._broken:
            return
        asyncio.run_coroutine_threadsafe(_wind_up(loop, last, self._finished), loop)
        thread.join(2 * CLOSE_TIMEOUT_S)
        if not thread.is_alive():  # a task that blocks the loop keeps the thread alive
            loop.close()

    def _submit(self, coroutine: Coroutine[Any, Any, Any]) -> concurrent.futures.Future[Any]:
        return asyncio.run_coroutine_threadsafe(coroutine, self._started())

    def _started(self) -> asyncio.AbstractEventLoop:
        if self._broken:
            raise RuntimeError("the event loop of async jobs is broken")
        loop = self._loop
        if loop is not None:
            return loop
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._finished = threading.Event()
                self._thread = threading.Thread(
                    target=self._run,
                    args=(self._loop, self._finished),
                    name="jobwire-asyncio",
                    daemon=True,
                )
                try:
                    self._thread.start()
                except RuntimeError as error:  # a limit of the system
                    self._break(error)
                    raise
            return self._loop

    def _run(self, loop: asyncio.AbstractEventLoop, finished: threading.Event) -> None:
        """Run the loop until `finished`, also if the code of a job ends it."""
        while not finished.is_set():
            problem: BaseException | None = None
            try:
                loop.run_forever()
            except (SystemExit, KeyboardInterrupt) as error:  # of a task or a callback
                problem = error
            except BaseException as error:  # noqa: BLE001 - of the loop itself
                self._break(error)
                return
            if not finished.is_set():
                cause = "loop.stop()" if problem is None else f"{problem!r} of a task or callback"
                _log.critical(
                    "%s ended the event loop of async jobs; it runs again", cause, exc_info=problem
                )
                _retrieve(problem)

    def _break(self, error: BaseException) -> None:
        self._broken = True
        _log.critical("the event loop of async jobs cannot run", exc_info=error)
        self._on_broken()


class _End:
    """The end of a coroutine, for the thread that waits for it."""

    __slots__ = ("error", "result")

    def __init__(self, error: BaseException | None, result: Any = None) -> None:
        self.error = error
        self.result = result

    def outcome(self) -> Any:
        """Return the result, or raise the error."""
        error, self.error = self.error, None
        if error is None:
            return self.result
        try:
            raise error
        finally:
            del error  # its traceback has this frame


def _retrieve(problem: BaseException | None) -> None:
    """Mark an error as seen in the task that raised it; else asyncio logs it again, much later.

    The loop does not name that task, and a done one is no longer in `all_tasks`.
    """
    if problem is None:
        return
    for each in gc.get_objects():
        if issubclass(type(each), asyncio.Task) and getattr(each, "_exception", None) is problem:
            each.exception()


def _answer(request: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if request.done():  # cancelled in the meantime
        return
    if error is None:
        request.set_result(result)
    elif isinstance(error, StopIteration):  # a future cannot hold it
        request.set_exception(RuntimeError(f"raised {error!r}"))
    else:
        request.set_exception(error)


def _stack(task: asyncio.Task[Any], thread: threading.Thread) -> str:
    """Return the stack of a task. (`Task.get_stack` gives only its outermost frame.)"""
    outermost: Any = task.get_coro()
    # While the task runs, its inner frames are on the stack of the loop's thread only.
    while getattr(outermost, "cr_running", False) and thread.is_alive():
        frame = sys._current_frames().get(thread.ident or 0)
        if frame is not None and outermost.cr_running:
            return "".join(traceback.format_stack(frame)).rstrip()
    frames = []
    waiting = outermost
    while (frame := getattr(waiting, "cr_frame", None)) is not None:
        frames.append((frame, frame.f_lineno))
        waiting = waiting.cr_await
    return "".join(traceback.StackSummary.extract(frames).format()).rstrip()


async def _wind_up(
    loop: asyncio.AbstractEventLoop,
    last: Callable[[], Awaitable[None]],
    finished: threading.Event,
) -> None:
    try:
        if remaining := asyncio.all_tasks() - {asyncio.current_task()}:
            for task in remaining:
                task.cancel()
            await asyncio.wait(remaining, timeout=CLOSE_TIMEOUT_S)
        await last()
    finally:
        finished.set()
        loop.stop()
