# Generated from client.py by python/tests/tools/twins.py; change client.py instead.
"""The asyncio client: `Client` with the words async and await."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, Unpack

from jobwire.application.config import url_or_default
from jobwire.application.delivery import Transport
from jobwire.application.producer import GenerationSetting, make_confirm, make_producer
from jobwire.connection.aio import AsyncRedis
from jobwire.protocol.arguments import StrictArgs
from jobwire.protocol.normalize import AsyncClientMiddleware, ClientMiddleware, Options
from jobwire.protocol.times import When

__all__ = ["AsyncClient"]

MAX_CONNECTIONS = 50  # enough for hundreds of threads or tasks, because a push takes no time


class AsyncClient:
    """Pushes jobs from asyncio; the twin of `Client`, which documents the parameters.

        async with AsyncClient("redis://localhost:6379/0") as client:
            await client.push("HardJob", [1, "two"], queue="critical")

    Belongs to the event loop in which it is first used. Middleware may be sync or `async def`;
    a sync one outside of an async one has to return `call_next()` as it is. [PUSH-7]
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        namespace: str = "",
        generation: GenerationSetting = "auto",
        strict_args: StrictArgs = "raise",
        middleware: Sequence[ClientMiddleware | AsyncClientMiddleware] = (),
        timeout: float = 5.0,
        wait_replicas: int = 0,
        transport: Transport | None = None,
    ) -> None:
        confirm = make_confirm(wait_replicas, timeout)
        self._producer = make_producer(
            namespace, generation, strict_args, middleware, confirm, transport
        )
        self.redis = AsyncRedis(
            url_or_default(url), timeout=timeout, max_connections=MAX_CONNECTIONS
        )

    @property
    def url(self) -> str:
        """Where the jobs go."""
        return self.redis.url

    async def push(
        self,
        class_name: str,
        args: Sequence[Any] = (),
        *,
        at: When | None = None,
        jid: str | None = None,
        fields: Mapping[str, Any] | None = None,
        **options: Unpack[Options],
    ) -> str | None:
        """Push one job.

        Args:
            class_name: Wire class, also of a class that exists only in Ruby: `HardJob`,
                `Reports::Monthly`.
            args: Positional arguments, of JSON's own types. [PUSH-5]
            at: When to run it: an epoch time, aware datetime or timedelta from now; the job is
                scheduled even if that has passed. None: at once. [SCHED-3]
            jid: The job id, if not a fresh one.
            fields: Further payload fields, written as they are.
            **options: See `Options`.

        Returns:
            The job id, or None if client middleware stopped the job.

        Raises:
            InvalidJob: The job cannot be written; nothing was. [PUSH-4]
            RedisUnreachable: Nothing was written.
            RedisRefused: Nothing was written.
            MaybeWritten: Sent, but no answer came. [PUSH-8]
        """
        return await self.redis.run(
            self._producer.push(class_name, args, options, at=at, jid=jid, fields=fields)
        )

    async def push_in(
        self,
        when: When,
        class_name: str,
        args: Sequence[Any] = (),
        *,
        jid: str | None = None,
        fields: Mapping[str, Any] | None = None,
        **options: Unpack[Options],
    ) -> str | None:
        """Push one job to run later, as `push` does.

        Args:
            when: Seconds from now (below 1,000,000,000), an epoch time, a timedelta or an aware
                datetime. A time that is not in the future means at once. [SCHED-2] [SCHED-3]
            class_name: Wire class.
            args: Positional arguments.
            jid: The job id, if not a fresh one.
            fields: Further payload fields, written as they are.
            **options: See `Options`.
        """
        return await self.redis.run(
            self._producer.push(
                class_name, args, options, at=when, soon=True, jid=jid, fields=fields
            )
        )

    async def push_bulk(
        self,
        class_name: str,
        args_list: Iterable[Sequence[Any]],
        *,
        at: When | Sequence[When] | None = None,
        spread_interval: float | None = None,
        fields: Mapping[str, Any] | None = None,
        **options: Unpack[Options],
    ) -> list[str | None]:
        """Push a job for each list of arguments, 1,000 a round trip. [BULK-1]

        Args:
            class_name: Wire class.
            args_list: The arguments of each job. All are checked before any is written.
            at: When to run them, one time for all or one for each; see `push`. [BULK-3]
            spread_interval: Instead of `at`: run them at random times within so many seconds.
            fields: Further payload fields for all of them.
            **options: See `Options`.

        Returns:
            The job ids in order; None in place of a job that middleware stopped.

        Raises:
            InvalidJob: One of them cannot be written; none was.
            RedisTrouble: A slice failed; the error's `written` has the ids of the slices before,
                `unsure` those that may have been written. [BULK-6]
        """
        return await self.redis.run(
            self._producer.push_bulk(
                class_name,
                args_list,
                options,
                at=at,
                spread_interval=spread_interval,
                fields=fields,
            )
        )

    async def cancel(self, jid: str) -> int:
        """Ask an iterable job to end: at its next `yield`, or when it starts. [ITER-7]

        Returns:
            The epoch second of the first time that somebody asked.
        """
        return await self.redis.run(self._producer.cancel(jid))

    async def close(self) -> None:
        """Close the connections."""
        await self.redis.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()
