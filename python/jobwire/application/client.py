"""The client: pushes jobs, for Ruby and Python workers alike."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, Unpack

from jobwire.application.config import url_or_default
from jobwire.application.delivery import Transport
from jobwire.application.producer import GenerationSetting, make_confirm, make_producer
from jobwire.connection.sync import SyncRedis
from jobwire.protocol.arguments import StrictArgs
from jobwire.protocol.normalize import AsyncClientMiddleware, ClientMiddleware, Options
from jobwire.protocol.times import When

__all__ = ["Client"]

MAX_CONNECTIONS = 50  # enough for hundreds of threads or tasks, because a push takes no time


class Client:
    """Pushes jobs. Blocking; safe to share between threads. `AsyncClient` is its asyncio twin.

        client = Client("redis://localhost:6379/0")
        client.push("HardJob", [1, "two"], queue="critical")

    Args:
        url: Where Redis is; by default `JOBWIRE_REDIS_URL`, the variable that `REDIS_PROVIDER`
            names, `REDIS_URL`, or redis://localhost:6379/0.
        namespace: Prefix of every key; leave empty beside Sidekiq. [KEY-4]
        generation: 7 or 8 to write times as that Sidekiq does; `auto` asks Redis. [GEN-5]
        strict_args: `raise` refuses arguments that JSON does not have; `warn` converts them and
            logs which, `off` just converts them.
        middleware: Client middleware, outermost first. [PUSH-7] That which is `async def` is for
            `AsyncClient`; here the first push through it raises `ConfigError`.
        timeout: Seconds to wait for a connection, and for a reply.
        wait_replicas: How many replicas have to have a job before a push returns, so that a
            failover does not lose it. They get half of `timeout`; after that, `MaybeWritten`.
        transport: Shared with other clients whose jobs tests want to have instead of Redis.
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
        self.redis = SyncRedis(
            url_or_default(url), timeout=timeout, max_connections=MAX_CONNECTIONS
        )

    @property
    def url(self) -> str:
        """Where the jobs go."""
        return self.redis.url

    def push(
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
        return self.redis.run(
            self._producer.push(class_name, args, options, at=at, jid=jid, fields=fields)
        )

    def push_in(
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
        return self.redis.run(
            self._producer.push(
                class_name, args, options, at=when, soon=True, jid=jid, fields=fields
            )
        )

    def push_bulk(
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
        return self.redis.run(
            self._producer.push_bulk(
                class_name,
                args_list,
                options,
                at=at,
                spread_interval=spread_interval,
                fields=fields,
            )
        )

    def cancel(self, jid: str) -> int:
        """Ask an iterable job to end: at its next `yield`, or when it starts. [ITER-7]

        Returns:
            The epoch second of the first time that somebody asked.
        """
        return self.redis.run(self._producer.cancel(jid))

    def close(self) -> None:
        """Close the connections."""
        self.redis.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
