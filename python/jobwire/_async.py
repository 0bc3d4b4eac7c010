"""The asyncio shell: as `_sync`, with the words async and await."""

from __future__ import annotations

from typing import Any, TypeVar

import redis
import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from jobwire import _connect
from jobwire._scripts import script
from jobwire.wire import Message, Op, dialogue

__all__ = ["AsyncRedis"]

T = TypeVar("T")


class AsyncRedis:
    """Runs operations, one round trip a message. Belongs to one event loop.

    Args:
        url: Where the server is.
        timeout: Seconds to wait for a connection, and for a reply.
        max_connections: Size of the pool. More callers than that wait, `timeout` seconds at most:
            tasks cost nothing, and thousands of them must not open as many sockets.
    """

    def __init__(
        self, url: str, *, timeout: float = _connect.TIMEOUT, max_connections: int = 50
    ) -> None:
        self.url = _connect.check_url(url)
        self._pool: Any = redis.asyncio.BlockingConnectionPool.from_url(
            url,
            retry=Retry(NoBackoff(), 0),
            timeout=timeout,
            **_connect.pool_options(timeout, max_connections),
        )

    async def run(self, op: Op[T]) -> T:
        """Run an operation to its end and return its result.

        Raises:
            RedisTrouble: See there which kind says what about the state in Redis.
        """
        talk = dialogue(op, script)
        try:
            message = next(talk)
            while True:
                try:
                    replies = await self._answer(message)
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
        await self._pool.disconnect()

    async def _answer(self, message: Message) -> list[Any]:
        try:
            connection: Any = await self._pool.get_connection()
        except redis.RedisError as error:
            raise _connect.unreachable(self.url, error) from error
        try:
            if message.fresh:
                await connection.disconnect()
                await connection.connect()
        except BaseException as error:
            await connection.disconnect(nowait=True)
            await self._pool.release(connection)
            if isinstance(error, redis.RedisError):
                raise _connect.unreachable(self.url, error) from error
            raise
        try:
            await connection.send_packed_command(
                connection.pack_commands(message.commands), check_health=False
            )
            return [await self._read(connection) for _ in message.commands]
        except BaseException as error:
            # Replies may still be under way: nobody else may read them. [ENV-5]
            await connection.disconnect(nowait=True)
            if isinstance(error, redis.RedisError):
                raise _connect.no_reply(self.url, error) from error
            raise
        finally:
            await self._pool.release(connection)

    @staticmethod
    async def _read(connection: Any) -> Any:
        try:
            return _connect.reply_value(await connection.read_response())
        except _connect.ERROR_REPLIES as error:
            return _connect.reply_value(error)
