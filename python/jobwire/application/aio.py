# Generated from client.py by tools/twins.py; change client.py instead.
"""The asyncio client, the twin of `Client`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, Unpack

from jobwire.application import workflows
from jobwire.application.call import Call
from jobwire.application.delivery import Transport
from jobwire.application.generation import GenerationSetting
from jobwire.application.payload_maker import MAX_PAYLOAD_BYTES
from jobwire.application.producer import Producer, make_confirm, make_producer
from jobwire.application.redis_url import find_address
from jobwire.connection.aio import AsyncRedis
from jobwire.connection.closing import AsyncClosing
from jobwire.connection.cluster import keys_at
from jobwire.connection.key_waiter import KeyWaiter
from jobwire.protocol.arguments import StrictArgs
from jobwire.protocol.chains import StepState
from jobwire.protocol.iteration import Cancellation
from jobwire.protocol.normalize import (
    AsyncClientMiddleware,
    ClientMiddleware,
    Options,
    ReadyPayload,
)
from jobwire.protocol.output import OutputItem, Tail
from jobwire.protocol.progress import JobProgress
from jobwire.protocol.results import Result
from jobwire.protocol.times import When
from jobwire.protocol.wire import Op

if TYPE_CHECKING:
    from jobwire.application.push_buffer import PendingPushes, PushBuffer

__all__ = ["AsyncClient"]

P = ParamSpec("P")
T = TypeVar("T")
MAX_CONNECTIONS = 50  # enough for hundreds of threads or tasks, because a push takes no time


class AsyncClient(AsyncClosing):
    """Pushes jobs from asyncio; the twin of `Client`, which documents the parameters.

        async with AsyncClient("redis://localhost:6379/0") as client:
            await client.push("HardJob", [1, "two"], queue="critical")

    It belongs to the event loop in which it is first used. Middleware may be sync or `async def`;
    sync middleware outside an async one must return `call_next()` unchanged. [PUSH-7]
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
        max_payload_bytes: int | None = MAX_PAYLOAD_BYTES,
        compress_above: int | None = None,
        transport: Transport | None = None,
        buffer: PushBuffer | None = None,
        location: str = "",
    ) -> None:
        confirm = make_confirm(wait_replicas, timeout)
        address = find_address(url)
        self._producer = make_producer(
            keys_at(address.url, namespace),
            generation,
            strict_args,
            middleware,
            confirm,
            transport,
            max_payload_bytes,
            compress_above,
            location,
        )
        self.redis = AsyncRedis(
            address.url,
            timeout=timeout,
            max_connections=MAX_CONNECTIONS,
            advice=address.advice,
        )
        self._key_waiter = KeyWaiter(address.url)
        self._timeout = timeout
        self._keeper = (
            buffer.attach(self._producer.writer, self.redis.url, timeout) if buffer else None
        )

    @property
    def url(self) -> str:
        """URL of the Redis that gets the jobs."""
        return self.redis.url

    @property
    def pending(self) -> PendingPushes | None:
        """Numbers of the jobs that the buffer holds and has given up; None without a buffer."""
        return self._keeper.pending() if self._keeper else None

    async def push(
        self,
        class_name: str,
        args: Sequence[Any] = (),
        *,
        at: When | None = None,
        jid: str | None = None,
        fields: Mapping[str, Any] | None = None,
        on_commit: bool = True,
        **options: Unpack[Options],
    ) -> str | None:
        """Push one job.

        Args:
            class_name: Wire class, such as `HardJob` or `Reports::Monthly`; it may exist only in
                Ruby.
            args: Positional arguments, of JSON's own types. [PUSH-5]
            at: Time to run at: an epoch time, an aware datetime or a timedelta from now. The job
                is scheduled even if the time has passed. None: run at once. [SCHED-3]
            jid: The job id; default: a new one.
            fields: More payload fields, written unchanged.
            on_commit: False to write the job at once even inside a database transaction; see
                `jobwire.django`. Without such a framework, a job is always written at once.
            **options: See `Options`.

        Returns:
            The job id, or None if client middleware stopped the job, or a unique job was dropped.

        Raises:
            InvalidJob: The job is invalid; nothing was written. [PUSH-4]
            DuplicateJob: Another job has the key of a unique job; nothing was written. [X-UNIQ-4]
            RedisUnreachable: Nothing was written.
            RedisRefused: Nothing was written.
            MaybeWritten: The job was sent, but no reply came. [PUSH-8]
            BufferFull: Redis is away, and `buffer` has no room; nothing was written.
        """
        return await self.redis.run(
            self._producer.push(
                class_name, args, options, at=at, jid=jid, fields=fields, on_commit=on_commit
            )
        )

    async def push_in(
        self,
        when: When,
        class_name: str,
        args: Sequence[Any] = (),
        *,
        jid: str | None = None,
        fields: Mapping[str, Any] | None = None,
        on_commit: bool = True,
        **options: Unpack[Options],
    ) -> str | None:
        """Push one job to run later; see `push`.

        Args:
            when: Seconds from now (below 1,000,000,000), an epoch time, a timedelta or an aware
                datetime. A job whose time is not in the future runs at once. [SCHED-2] [SCHED-3]
            class_name: Wire class.
            args: Positional arguments.
            jid: The job id; default: a new one.
            fields: More payload fields, written unchanged.
            on_commit: See `push`.
            **options: See `Options`.
        """
        return await self.redis.run(
            self._producer.push(
                class_name,
                args,
                options,
                at=when,
                soon=True,
                jid=jid,
                fields=fields,
                on_commit=on_commit,
            )
        )

    async def push_active_job(
        self,
        job_class: str,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        at: When | None = None,
        jid: str | None = None,
        on_commit: bool = True,
        **options: Unpack[Options],
    ) -> str | None:
        """Push one job of Active Job, to run in Rails; see `push`. [X-AJ-8]

        Args:
            job_class: Class of the job in Rails, such as `WelcomeJob`.
            args: Positional arguments: JSON values, dates, aware datetimes, timedeltas, decimals,
                and the values of `jobwire.active_job`.
            kwargs: Keyword arguments.
            at: Time to run at.
            jid: The job id, not the id that Active Job uses.
            on_commit: See `push`.
            **options: See `Options`.

        Raises:
            InvalidJob: Active Job has no form for a value, or the job is invalid.
        """
        return await self.redis.run(
            self._producer.push_active_job(
                job_class, args, kwargs, options, at=at, jid=jid, on_commit=on_commit
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
        on_commit: bool = True,
        **options: Unpack[Options],
    ) -> list[str | None]:
        """Push a job for each list of arguments, up to 1,000 jobs in a round trip. [BULK-1]

        A round trip has 1 MiB of payloads at most, unless a single job has more.

        Args:
            class_name: Wire class.
            args_list: The arguments of each job. All jobs are checked before any is written.
            at: Time to run at, one for all jobs or one for each; see `push`. [BULK-3]
            spread_interval: Seconds; run the jobs at random times within them, instead of `at`.
            fields: More payload fields for all jobs.
            on_commit: See `push`.
            **options: See `Options`.

        Returns:
            The job ids in order; None in place of a job that middleware stopped, and of a unique
            job whose key another job has. [X-UNIQ-4]

        Raises:
            InvalidJob: A job is invalid; nothing was written.
            RedisTrouble: A slice failed. `written` of the error has the ids of the slices before,
                `unsure` the ids of jobs that may have been written. [BULK-6]
        """
        return await self.redis.run(
            self._producer.push_bulk(
                class_name,
                args_list,
                options,
                at=at,
                spread_interval=spread_interval,
                fields=fields,
                on_commit=on_commit,
            )
        )

    async def _produce(
        self,
        operation: Callable[Concatenate[Producer, P], Op[T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Carry out an operation of `workflows`, for the other modules of this room."""
        return await self.redis.run(operation(self._producer, *args, **kwargs))

    async def push_many(self, calls: Iterable[Call]) -> list[str | None]:
        """Push jobs of several kinds: `client.push_many([resize.s(7), welcome.s("ada")])`.

        It returns and raises what `push_bulk` does, and needs as few round trips. All jobs go to
        the Redis of this client.

        Args:
            calls: Values that `job.s(...)` returns.
        """
        return await self.redis.run(self._producer.push_many(calls))

    async def push_chain(
        self, calls: Sequence[Call], *, at: When | None = None
    ) -> dict[str, list[str]] | None:
        """Push jobs that run one after the other; `chain` makes them. [X-FLOW-1] [X-FLOW-2]

        Args:
            calls: Values that `job.s(...)` returns, at least one.
            at: When the first job runs, as for `push_in`. None: at once.

        Returns:
            The job ids, in order, each with the ids of its members if it is a group; None if
            middleware stopped one of the jobs, or if the first one is unique and dropped. Nothing
            is written then.

        Raises:
            InvalidJob, DuplicateJob, RedisTrouble: See `push`.
        """
        return await self.redis.run(workflows.push_chain(self._producer, calls, at))

    async def chain_states(
        self, jids: Sequence[str], members: Mapping[str, Sequence[str]] = MappingProxyType({})
    ) -> list[StepState]:
        """Return the state of each job of a chain; see `ChainRun.states`."""
        return await self.redis.run(workflows.chain_states(self._producer, jids, members))

    async def group_states(self, jids: Sequence[str]) -> list[StepState]:
        """Return the state of each job of a group; see `GroupRun.states`."""
        return [end or "open" for end in await self.redis.run(self._producer.outcomes(jids))]

    async def cancel_chain(
        self, jids: Sequence[str], members: Mapping[str, Sequence[str]] = MappingProxyType({})
    ) -> Cancellation:
        """Cancel all jobs of a chain that have not ended; see `ChainRun.cancel`. [X-CANCEL-1]"""
        return await self.redis.run(workflows.cancel_chain(self._producer, jids, members))

    async def write(self, jobs: Sequence[ReadyPayload], *, buffered: bool = True) -> None:
        """Write jobs that a push has made and something has kept since then.

        Args:
            jobs: The jobs.
            buffered: False to raise while Redis is away, also if the client has a buffer.

        Raises:
            RedisTrouble: See `push_bulk`.
        """
        await self.redis.run(self._producer.writer.write(jobs, buffered=buffered))

    async def cancel(self, jid: str) -> Cancellation:
        """Cancel a job, wherever it is; the answer tells where it was. [ITER-7] [X-CANCEL-1]

        A job that waits is removed. A job that runs is asked to end within a second: the task of an
        async job is cancelled, the process of an isolated job is interrupted, and a sync job sees
        `current_job().cancelled`. An iterable job ends at its next save. Ruby workers read only
        the requests for iterable jobs.

        A job that waits in a long queue is looked for from the side of the next jobs, a thousand
        jobs in a round trip.
        """
        return await self.redis.run(self._producer.cancel(jid))

    async def result(self, jid: str, *, timeout: float | None = 0.0) -> Result | None:
        """Return what became of a job that keeps its result. [X-RESULT-7]

        Without a timeout it returns what is known now. A job has no result before its first
        execution ends, after the time for which it is kept, and if it does not keep it. A job whose
        outcome is `done` always has its value: both are stored in one step.

        Args:
            jid: The job id.
            timeout: Seconds to wait for a final outcome, one other than `retry`; None for no limit.
                The server tells when it comes, so nothing is polled.

        Returns:
            The result; None if there is none. After the timeout it may be a `retry`.

        Raises:
            RedisTrouble: The result could not be read.
        """
        return await self.redis.run(self._producer.result(jid, timeout, self._key_waiter))

    async def progress(self, jid: str) -> JobProgress | None:
        """Return how far a job is that calls `report_progress`. [X-PROG-6]

        Workers write it with each heartbeat, every 10 s, and once after the end of the job. It is
        kept for a day.

        Returns:
            The last progress, also of a job that has ended; None if there is none.

        Raises:
            RedisTrouble: It could not be read.
        """
        return await self.redis.run(self._producer.progress(jid))

    async def output(
        self, jid: str, *, after: str = "", timeout: float | None = None
    ) -> AsyncIterator[OutputItem]:
        """Go through the items that a job emits, while it runs and later. [X-STEP-12]

        Each item comes once and in order. The loop ends when the job is over: it succeeded, died,
        was dropped or cancelled. A failure that is retried does not end it. The server tells of new
        items, so nothing is polled.

        Args:
            jid: The job id; also that of a job that has not begun.
            after: The `position` of the last item that the caller has, to go on behind it; "" to
                begin with the oldest item that is kept.
            timeout: Seconds to wait for the next item; the loop ends without it. None for no limit.
                0 for the items that there are now.

        Raises:
            InvalidArgument: `after` is not a position.
            OutputGap: Items that come next have been removed. Its `position` is where to go on.
            RedisTrouble: The output could not be read.
        """
        tail = Tail(jid, after)
        while items := await self.read_output(tail, timeout):
            for item in items:
                yield item

    async def read_output(self, tail: Tail, timeout: float | None) -> Sequence[OutputItem]:
        """Return the next items of an output; none if the job is over, or after the timeout.

        `output` calls this. A caller that goes on behind a gap calls it again with the same tail.
        """
        return await self.redis.run(self._producer.output(tail, timeout, self._key_waiter))

    async def close(self) -> None:
        """Close the connections, after a last attempt to write the jobs of a buffer."""
        await self.redis.run(self._producer.writer.close(self._timeout))
        self._key_waiter.close()
        await self.redis.close()
