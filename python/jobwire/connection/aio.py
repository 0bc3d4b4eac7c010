"""The asyncio shell: as `_sync`, with the words async and await, and one connection for all."""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

import redis

from jobwire.connection import connect as _connect
from jobwire.connection.connection import LOST, AsyncLine
from jobwire.connection.scripts import script
from jobwire.protocol.wire import Local, Message, Op, dialogue

__all__ = ["AsyncRedis"]

T = TypeVar("T")


class AsyncRedis:
    """Runs operations, one round trip a message. Belongs to the event loop that it is used in.

    All tasks share a connection: what they send in one turn of the loop goes out in one write.
    When a task is cancelled while it waits, the connection takes no more, and is closed when the
    others have their replies.

    Args:
        url: Where the server is.
        timeout: Seconds to wait for a connection, and for a reply.
        max_connections: How many there may be, those included that wait for last replies.
        role: Named in the server's list of clients: `jobwire-<role>:<pid>`.
    """

    def __init__(
        self,
        url: str,
        *,
        timeout: float = _connect.TIMEOUT,
        max_connections: int = 50,
        role: str = "client",
    ) -> None:
        self.url = _connect.check_url(url)
        self._role = role
        self._timeout = timeout
        self._most = max_connections
        self._connect = _connect.async_opener(url, timeout=timeout)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._forget()

    def _forget(self) -> None:
        self._line: AsyncLine | None = None
        self._old: list[AsyncLine] = []
        self._opening: asyncio.Task[AsyncLine] | None = None

    async def run(self, op: Op[T]) -> T:
        """Run an operation to its end and return its result.

        Raises:
            RedisTrouble: See there which kind says what about the state in Redis.
        """
        talk = dialogue(op, script)
        line: AsyncLine | None = None
        try:
            message = next(talk)
            while True:
                try:
                    if type(message) is Local:
                        replies = await message.acall()
                    else:
                        line = await self._usable(line if message.fresh else None)
                        replies = await self._answer(line, message)
                except Exception as error:  # noqa: BLE001 - the operation may know better
                    message = talk.throw(error)
                else:
                    message = talk.send(replies)
        except StopIteration as done:
            result: T = done.value
            return result
        finally:
            talk.close()

    async def close(self) -> None:
        """Close all connections. The next `run` opens new ones."""
        if self._loop is not asyncio.get_running_loop():
            return
        opening, lines = self._opening, [*self._old, *([self._line] if self._line else [])]
        self._forget()
        if opening is not None:
            opening.cancel()
            await asyncio.wait([opening])
        for line in lines:
            line.close()
        await asyncio.sleep(0)  # sockets are closed in the loop's next turn

    async def _answer(self, line: AsyncLine, message: Message) -> list[Any]:
        try:
            return await line.ask(message.commands)
        except LOST as error:
            raise _connect.no_reply(self.url, error) from error

    async def _usable(self, bad: AsyncLine | None) -> AsyncLine:
        """Return the line to use, any but `bad`, which led to the wrong server."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:  # also in a forked child: what its parent has open is not ours
            self._loop = loop
            self._forget()
        line = self._line
        if line is not None:
            if line is not bad and line.open:
                return line
            self._line = None
            line.retire()
            self._old = [each for each in [*self._old, line] if not each.closed]
        if self._opening is None:
            self._opening = asyncio.create_task(self._open())
            self._opening.add_done_callback(self._opened)
        try:
            # Shared by all who wait for it, so it must not end with any of them.
            return await asyncio.shield(self._opening)
        except (redis.RedisError, *LOST) as error:
            raise _connect.unreachable(self.url, error) from error

    def _opened(self, task: asyncio.Task[AsyncLine]) -> None:
        if self._opening is task:
            self._opening = None
        if not task.cancelled() and task.exception() is None:
            self._line = task.result()

    async def _open(self) -> AsyncLine:
        if len(self._old) >= self._most:
            raise ConnectionError(
                f"all {self._most} connections wait for replies to tasks that were cancelled"
            )
        line = AsyncLine(await self._connect(), self._timeout)
        try:
            _connect.check_greeting(await line.ask(_connect.greeting(self.url, self._role)))
        except BaseException:
            line.close()
            raise
        return line
