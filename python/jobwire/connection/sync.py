"""The blocking shell: answers the messages of a dialogue over a pool of connections."""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import Any, TypeAlias, TypeVar

import redis

from jobwire.connection import connect as _connect
from jobwire.connection.connection import LOST, Line, packed
from jobwire.connection.pool import Lines, NoLineFree
from jobwire.connection.scripts import script
from jobwire.protocol.wire import Local, Message, Op, dialogue

__all__ = ["SyncRedis"]

T = TypeVar("T")
_Talk: TypeAlias = Generator[Message | Local, Any, T]


class SyncRedis:
    """Runs operations, one round trip a message. Safe to share between threads, and to take
    along in a fork.

    Args:
        url: Where the server is.
        timeout: Seconds to wait for a connection, and for a reply.
        max_connections: Size of the pool; threads beyond that wait, `timeout` seconds at most.
            By default there are as many as threads use at a time.
        role: Named in the server's list of clients: `jobwire-<role>:<pid>`.
    """

    def __init__(
        self,
        url: str,
        *,
        timeout: float = _connect.TIMEOUT,
        max_connections: int = 2**31,
        role: str = "client",
    ) -> None:
        self.url = _connect.check_url(url)
        # Nothing below refers to this object: forgotten, it closes its connections at once.
        connect = _connect.opener(url, timeout=timeout)
        self._lines = Lines(partial(_open, url, role, connect), max_connections, timeout)

    def run(self, op: Op[T]) -> T:
        """Run an operation to its end and return its result.

        Raises:
            RedisTrouble: See there which kind says what about the state in Redis.
        """
        talk = dialogue(op, script)
        return self._converse(talk, partial(next, talk))

    def start(self, op: Op[T]) -> Callable[[], T]:
        """Send an operation's first message; return what reads the reply and does the rest.

        So the server works while this process does other things. What is returned has to be
        called, once: until then it has a connection to itself. It returns and raises what `run`
        would have.
        """
        return self.prepare(op)()

    def prepare(self, op: Op[T]) -> Callable[[], Callable[[], T]]:
        """Return what starts an operation, once, when there is no time to lose."""
        talk = dialogue(op, script)
        message = next(talk)
        assert type(message) is Message
        text, count = packed(message.commands), len(message.commands)

        def start() -> Callable[[], T]:
            try:
                line = self._send(text)
            except Exception as error:  # noqa: BLE001 - the operation may know better
                return partial(self._converse, talk, partial(talk.throw, error))
            return partial(self._converse, talk, partial(receive, line))

        def receive(line: Line) -> Message | Local:
            try:
                replies = self._receive(line, count)
            except Exception as error:  # noqa: BLE001 - the operation may know better
                return talk.throw(error)
            return talk.send(replies)

        return start

    def _converse(self, talk: _Talk[T], first: Callable[[], Message | Local]) -> T:
        """Do what a dialogue asks for, from what `first` has it ask for, to its end."""
        try:
            message = first()
            while True:
                try:
                    replies = message.call() if type(message) is Local else self._answer(message)
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
        """Close all connections, those in use when they are done. The next `run` opens new ones."""
        self._lines.renew()

    def _answer(self, message: Message) -> list[Any]:
        if message.fresh:
            self._lines.renew()
        return self._receive(self._send(packed(message.commands)), len(message.commands))

    def _send(self, text: bytes) -> Line:
        try:
            line = self._lines.lend()
        except (redis.RedisError, NoLineFree, *LOST) as error:
            raise _connect.unreachable(self.url, error) from error
        try:
            line.send(text)
        except BaseException as error:
            self._give_up(line, error)
            raise
        return line

    def _receive(self, line: Line, count: int) -> list[Any]:
        try:
            replies = line.receive(count)
        except BaseException as error:
            self._give_up(line, error)
            raise
        self._lines.back(line)
        return replies

    def _give_up(self, line: Line, error: BaseException) -> None:
        # Replies may still be under way: nobody else may read them. [ENV-5]
        self._lines.drop(line)
        if isinstance(error, LOST):
            raise _connect.no_reply(self.url, error) from error


def _open(url: str, role: str, connect: Callable[[], Any]) -> Line:
    line = Line(connect())
    try:
        _connect.check_greeting(line.ask(_connect.greeting(url, role)))
    except BaseException:
        line.close()
        raise
    return line
