"""The asyncio shell: answers the messages of a dialogue over one connection for all tasks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from typing import Any, TypeVar

from jobwire.connection import connect
from jobwire.connection.cluster import Refused
from jobwire.connection.connection import LOST, AsyncConnection, connect_async
from jobwire.connection.opening import Opening
from jobwire.connection.resources import script
from jobwire.errors import RedisTrouble
from jobwire.protocol.wire import Local, Message, Op, dialogue

__all__ = ["AsyncRedis"]

T = TypeVar("T")


class AsyncRedis:
    """Runs operations, one round trip a message. Belongs to the event loop that it is used in.

    All tasks share a connection: the commands of one iteration of the loop go out in one write.
    When a task is cancelled while it waits, the connection takes no more commands, and is closed
    when the other tasks have their replies. A loop that shuts down its asynchronous generators, as
    `asyncio.run` does, closes the connection at its end.

    Args:
        url: URL of the server.
        timeout: Seconds to wait for a connection, and for a reply.
        max_connections: Largest number of connections, including those that wait for last replies.
        role: Named in the server's list of clients: `jobwire-<role>:<pid>`.
        advice: Returns the fix if the server cannot be reached, or "".
    """

    def __init__(
        self,
        url: str,
        *,
        timeout: float = connect.TIMEOUT_S,
        max_connections: int = 50,
        role: str = "client",
        advice: Callable[[], str] = str,
    ) -> None:
        self.url = url = connect.check_url(url)
        self._advice = advice
        self._most = max_connections
        self._opener = Opening(url, timeout=timeout, role=role)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._forget()

    def _forget(self) -> None:
        self._guard: AsyncGenerator[None] | None = None
        self._connection: AsyncConnection | None = None
        self._old: list[AsyncConnection] = []
        self._opening: asyncio.Task[AsyncConnection] | None = None

    async def run(self, op: Op[T]) -> T:
        """Run an operation to its end and return its result.

        Raises:
            RedisTrouble: Its subclass says what is known about the state in Redis.
        """
        talk = dialogue(op, script)
        connection: AsyncConnection | None = None
        try:
            message = next(talk)
            while True:
                try:
                    if type(message) is Local:
                        replies = await message.acall()
                    else:
                        shell = message.server or self
                        connection = await shell._usable(connection if message.fresh else None)
                        replies = await shell._answer(connection, message)
                except Exception as error:  # noqa: BLE001 - the operation may know better
                    message = talk.throw(error)
                else:
                    message = talk.send(replies)
        except StopIteration as done:
            result: T = done.value
            return result
        except RedisTrouble as error:
            connect.shorten(error)
            raise
        finally:
            talk.close()

    async def close(self) -> None:
        """Close all connections. The next `run` opens new ones."""
        if self._loop is not asyncio.get_running_loop():
            return
        opening, connections, guard = self._opening, self._connections(), self._guard
        self._forget()
        self._guard = guard  # the next `run` may be in this loop
        if opening is not None:
            opening.cancel()
            await asyncio.wait([opening])
        for connection in connections:
            connection.close()
        await asyncio.sleep(0)  # the loop closes sockets in its next iteration

    def abandon(self) -> None:
        """Close what is left of an event loop that was closed before its connections."""
        if self._loop is not None and self._loop.is_closed():
            for connection in self._connections():
                with suppress(RuntimeError):  # the loop tells no task
                    connection.close()
            self._loop = None
            self._forget()

    def _connections(self) -> list[AsyncConnection]:
        return [*self._old, *([] if self._connection is None else [self._connection])]

    async def _until_shutdown(self) -> AsyncGenerator[None]:
        """Wait for the end of the loop, and let go of it. Other generators may still push then."""
        try:
            yield
        finally:
            if self._loop is asyncio.get_running_loop():
                connections = self._connections()
                self._loop = None  # or a cache with the loop as its weak key would keep both
                self._forget()
                for connection in connections:
                    connection.retire()
                await asyncio.sleep(0)  # the loop closes sockets in its next iteration

    async def _answer(self, connection: AsyncConnection, message: Message) -> list[Any]:
        try:
            return await connection.ask(message.commands)
        except LOST as error:
            raise connect.no_reply(self.url, error) from None

    async def _usable(self, bad: AsyncConnection | None) -> AsyncConnection:
        """Return a connection other than `bad`, which led to the wrong server."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:  # also in a forked child: the connection is its parent's
            self.abandon()
            self._forget()
            self._loop = loop
            self._guard = self._until_shutdown()
            await anext(self._guard)  # from here on, the loop closes it at its end
        connection = self._connection
        if connection is not None:
            if connection is not bad and connection.open:
                return connection
            self._connection = None
            connection.retire()
            self._old = [old for old in [*self._old, connection] if not old.closed]
        if self._opening is None:
            self._opening = asyncio.create_task(self._open())
            self._opening.add_done_callback(self._opened)
        try:
            # Several tasks may wait for it, so it must not end with one of them.
            return await asyncio.shield(self._opening)
        except (Refused, *LOST) as error:
            raise connect.unreachable(self.url, error, self._advice) from None

    def _opened(self, task: asyncio.Task[AsyncConnection]) -> None:
        if self._opening is task:
            self._opening = None
        if not task.cancelled() and task.exception() is None:
            self._connection = task.result()

    async def _open(self) -> AsyncConnection:
        if len(self._old) >= self._most:
            raise ConnectionError(
                f"all {self._most} connections wait for replies to tasks that were cancelled"
            )
        return await connect_async(self._opener)
