"""The blocking shell: answers the messages of a dialogue over a pool of connections."""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import Any, TypeAlias, TypeVar

from jobwire.connection import connect
from jobwire.connection.blocking import check_loop
from jobwire.connection.cluster import Refused
from jobwire.connection.connection import LOST, Connection, packed
from jobwire.connection.connection import connect as open_connection
from jobwire.connection.opening import Opening
from jobwire.connection.pool import ConnectionPool, PoolExhausted
from jobwire.connection.resources import script
from jobwire.errors import RedisTrouble
from jobwire.protocol.wire import Local, Message, Op, dialogue

__all__ = ["SyncRedis"]

T = TypeVar("T")
_Talk: TypeAlias = Generator[Message | Local, Any, T]


class SyncRedis:
    """Runs operations, one round trip a message. Safe to share between threads and after a fork.

    Args:
        url: URL of the server.
        timeout: Seconds to wait for a connection, and for a reply.
        max_connections: Size of the pool; threads beyond that wait, `timeout` seconds at most.
            By default there are as many as threads use at a time.
        role: Named in the server's list of clients: `jobwire-<role>:<pid>`.
        advice: Returns the fix if the server cannot be reached, or "".
    """

    def __init__(
        self,
        url: str,
        *,
        timeout: float = connect.TIMEOUT_S,
        max_connections: int = 2**31,
        role: str = "client",
        advice: Callable[[], str] = str,
    ) -> None:
        self.url = url = connect.check_url(url)
        self._advice = advice
        # Nothing below refers to this object, so it closes its connections when it is collected.
        opening = Opening(url, timeout=timeout, role=role)
        self._pool = ConnectionPool(partial(open_connection, opening), max_connections, timeout)

    def run(self, op: Op[T]) -> T:
        """Run an operation to its end and return its result.

        Raises:
            RedisTrouble: Its subclass says what is known about the state in Redis.
        """
        check_loop()
        talk = dialogue(op, script)
        try:
            return self._converse(talk, partial(next, talk))
        except RedisTrouble as error:
            connect.shorten(error)
            raise

    def start(self, op: Op[T]) -> Callable[[], T]:
        """Send an operation's first message; return the function that completes the operation.

        The server works while this process does other things. Call the returned function exactly
        once: until then it holds a connection. It returns and raises the same as `run`.
        """
        return self.prepare(op)()

    def prepare(self, op: Op[T]) -> Callable[[], Callable[[], T]]:
        """Encode an operation's first message; return the function that sends it, as `start`."""
        talk = dialogue(op, script)
        message = next(talk)
        assert type(message) is Message
        assert message.server is None
        text, count = packed(message.commands), len(message.commands)

        def start() -> Callable[[], T]:
            try:
                connection = self._send(text)
            except Exception as error:  # noqa: BLE001 - the operation may know better
                return partial(self._converse, talk, partial(talk.throw, error))
            return partial(self._converse, talk, partial(receive, connection))

        def receive(connection: Connection) -> Message | Local:
            try:
                replies = self._receive(connection, count)
            except Exception as error:  # noqa: BLE001 - the operation may know better
                return talk.throw(error)
            return talk.send(replies)

        return start

    def _converse(self, talk: _Talk[T], first: Callable[[], Message | Local]) -> T:
        """Run a dialogue to its end, beginning with the message that `first` returns."""
        try:
            message = first()
            while True:
                try:
                    replies = (
                        message.call()
                        if type(message) is Local
                        else (message.server or self)._answer(message)
                    )
                except Exception as error:  # noqa: BLE001 - the operation may know better
                    message = talk.throw(error)
                else:
                    message = talk.send(replies)
        except StopIteration as done:
            result: T = done.value
            return result
        finally:
            talk.close()

    def close(self) -> None:
        """Close all connections, busy ones after their exchange. The next `run` opens new ones."""
        self._pool.renew()

    def trim(self) -> None:
        """Close connections that no thread has needed since the last call."""
        self._pool.trim()

    def _answer(self, message: Message) -> list[Any]:
        if message.fresh:
            self._pool.renew()
        return self._receive(self._send(packed(message.commands)), len(message.commands))

    def _send(self, text: bytes) -> Connection:
        try:
            connection = self._pool.acquire()
        except (Refused, PoolExhausted, *LOST) as error:
            raise connect.unreachable(self.url, error, self._advice) from None
        try:
            connection.send(text)
        except BaseException as error:
            self._give_up(connection, error)
            raise
        return connection

    def _receive(self, connection: Connection, count: int) -> list[Any]:
        try:
            replies = connection.receive(count)
        except BaseException as error:
            self._give_up(connection, error)
            raise
        self._pool.release(connection)
        return replies

    def _give_up(self, connection: Connection, error: BaseException) -> None:
        # Its replies may still be under way, and no other thread may read them. [ENV-5]
        self._pool.discard(connection)
        if isinstance(error, LOST):
            raise connect.no_reply(self.url, error) from None
