"""The asyncio client: `Client` with the words async and await."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, Unpack

from jobwire.application.client import make_confirm, make_producer, url_or_default
from jobwire.application.delivery import Transport
from jobwire.application.producer import GenerationSetting
from jobwire.connection.aio import AsyncRedis
from jobwire.protocol.arguments import StrictArgs
from jobwire.protocol.normalize import AsyncClientMiddleware, ClientMiddleware, Options
from jobwire.protocol.times import When

__all__ = ["AsyncClient"]


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
        self.redis = AsyncRedis(url_or_default(url), timeout=timeout)

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
        """Push one job; see `Client.push`."""
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
        """Push one job to run later; see `Client.push_in`."""
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
        """Push a job for each list of arguments; see `Client.push_bulk`."""
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
        """Ask an iterable job to end; see `Client.cancel`."""
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
