"""The blocking shell: answers the messages of a dialogue over a pool of connections."""

from __future__ import annotations

from typing import Any, TypeVar

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from jobwire import _connect
from jobwire._scripts import script
from jobwire.wire import Message, Op, dialogue

__all__ = ["SyncRedis"]

T = TypeVar("T")


class SyncRedis:
    """Runs operations, one round trip a message. Safe to share between threads.

    Args:
        url: Where the server is.
        timeout: Seconds to wait for a connection, and for a reply.
        max_connections: Size of the pool; by default as many as there are threads.
    """

    def __init__(
        self, url: str, *, timeout: float = _connect.TIMEOUT, max_connections: int = 2**31
    ) -> None:
        self.url = _connect.check_url(url)
        self._pool = redis.ConnectionPool.from_url(
            url,
            retry=Retry(NoBackoff(), 0),
            **_connect.pool_options(timeout, max_connections),
        )

    def run(self, op: Op[T]) -> T:
        """Run an operation to its end and return its result.

        Raises:
            RedisTrouble: See there which kind says what about the state in Redis.
        """
        talk = dialogue(op, script)
        try:
            message = next(talk)
            while True:
                try:
                    replies = self._answer(message)
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
        """Close all connections. The next `run` opens new ones."""
        self._pool.disconnect()

    def _answer(self, message: Message) -> list[Any]:
        try:
            connection: Any = self._pool.get_connection()
        except redis.RedisError as error:
            raise _connect.unreachable(self.url, error) from error
        try:
            if message.fresh:
                connection.disconnect()
                connection.connect()
        except BaseException as error:
            connection.disconnect()
            self._pool.release(connection)
            if isinstance(error, redis.RedisError):
                raise _connect.unreachable(self.url, error) from error
            raise
        try:
            connection.send_packed_command(
                connection.pack_commands(message.commands), check_health=False
            )
            return [self._read(connection) for _ in message.commands]
        except BaseException as error:
            # Replies may still be under way: nobody else may read them. [ENV-5]
            connection.disconnect()
            if isinstance(error, redis.RedisError):
                raise _connect.no_reply(self.url, error) from error
            raise
        finally:
            self._pool.release(connection)

    @staticmethod
    def _read(connection: Any) -> Any:
        try:
            return _connect.reply_value(connection.read_response())
        except _connect.ERROR_REPLIES as error:
            return _connect.reply_value(error)
