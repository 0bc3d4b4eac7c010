"""The client: pushes jobs, for Ruby and Python workers alike."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, Unpack

from jobwire.application import workflows
from jobwire.application.call import Call
from jobwire.application.delivery import Transport
from jobwire.application.generation import GenerationSetting
from jobwire.application.payload_maker import MAX_PAYLOAD_BYTES
from jobwire.application.producer import Producer, make_confirm, make_producer
from jobwire.application.redis_url import find_address
from jobwire.connection.closing import Closing
from jobwire.connection.cluster import keys_at
from jobwire.connection.key_waiter import KeyWaiter
from jobwire.connection.sync import SyncRedis
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

__all__ = ["Client"]

P = ParamSpec("P")
T = TypeVar("T")
MAX_CONNECTIONS = 50  # enough for hundreds of threads or tasks, because a push takes no time


class Client(Closing):
    """Pushes jobs; its methods block. Threads may share it. `AsyncClient` is its asyncio twin.

    A call in a coroutine warns with a `RuntimeWarning`, because it blocks the event loop.

        client = Client("redis://localhost:6379/0")
        client.push("HardJob", [1, "two"], queue="critical")

    Args:
        url: URL of Redis. Default: `JOBWIRE_REDIS_URL`, the variable that `REDIS_PROVIDER` names,
            `REDIS_URL`, the server that `jobwire dev` runs in the current directory or a parent
            of it (not if `JOBWIRE_ENV` is production), or redis://localhost:6379/0.
        namespace: Prefix of every key; leave it empty to share Redis with Sidekiq. [KEY-4]
        generation: 7 or 8 to write times in the form of that Sidekiq; `auto` asks Redis. [GEN-5]
        strict_args: `raise` refuses arguments for which JSON has no type; `warn` converts them
            and logs a warning; `off` converts them silently.
        middleware: Client middleware, outermost first. [PUSH-7] `async def` middleware works only
            with `AsyncClient`; here the first push through it raises `ConfigError`.
        timeout: Seconds to wait for a connection, and for a reply.
        wait_replicas: Number of replicas that must confirm a job before a push returns, so that a
            failover does not lose it. They have half of `timeout`; after that the push raises
            `MaybeWritten`.
        max_payload_bytes: Refuse jobs whose payload is larger; None for no limit. [PUSH-10]
        compress_above: Compress the arguments of a job if their JSON has so many bytes or more, as
            GitLab does; None: never. Sidekiq alone cannot run such a job. [X-ZIP-4]
        transport: Destination of the jobs, shared with other clients; tests override it.
        buffer: Keeps pushes while Redis is away, and writes them when it is back. None: such a
            push raises.
        location: Name or URL by which an application finds this client; "": its default Redis.
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
        self.redis = SyncRedis(
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

    def push(
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
        return self.redis.run(
            self._producer.push(
                class_name, args, options, at=at, jid=jid, fields=fields, on_commit=on_commit
            )
        )

    def push_in(
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
        return self.redis.run(
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

    def push_active_job(
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
        return self.redis.run(
            self._producer.push_active_job(
                job_class, args, kwargs, options, at=at, jid=jid, on_commit=on_commit
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
        return self.redis.run(
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

    def _produce(
        self,
        operation: Callable[Concatenate[Producer, P], Op[T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Carry out an operation of `workflows`, for the other modules of this room."""
        return self.redis.run(operation(self._producer, *args, **kwargs))

    def push_many(self, calls: Iterable[Call]) -> list[str | None]:
        """Push jobs of several kinds: `client.push_many([resize.s(7), welcome.s("ada")])`.

        It returns and raises what `push_bulk` does, and needs as few round trips. All jobs go to
        the Redis of this client.

        Args:
            calls: Values that `job.s(...)` returns.
        """
        return self.redis.run(self._producer.push_many(calls))

    def push_chain(
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
        return self.redis.run(workflows.push_chain(self._producer, calls, at))

    def chain_states(
        self, jids: Sequence[str], members: Mapping[str, Sequence[str]] = MappingProxyType({})
    ) -> list[StepState]:
        """Return the state of each job of a chain; see `ChainRun.states`."""
        return self.redis.run(workflows.chain_states(self._producer, jids, members))

    def group_states(self, jids: Sequence[str]) -> list[StepState]:
        """Return the state of each job of a group; see `GroupRun.states`."""
        return [end or "open" for end in self.redis.run(self._producer.outcomes(jids))]

    def cancel_chain(
        self, jids: Sequence[str], members: Mapping[str, Sequence[str]] = MappingProxyType({})
    ) -> Cancellation:
        """Cancel all jobs of a chain that have not ended; see `ChainRun.cancel`. [X-CANCEL-1]"""
        return self.redis.run(workflows.cancel_chain(self._producer, jids, members))

    def write(self, jobs: Sequence[ReadyPayload], *, buffered: bool = True) -> None:
        """Write jobs that a push has made and something has kept since then.

        Args:
            jobs: The jobs.
            buffered: False to raise while Redis is away, also if the client has a buffer.

        Raises:
            RedisTrouble: See `push_bulk`.
        """
        self.redis.run(self._producer.writer.write(jobs, buffered=buffered))

    def cancel(self, jid: str) -> Cancellation:
        """Cancel a job, wherever it is; the answer tells where it was. [ITER-7] [X-CANCEL-1]

        A job that waits is removed. A job that runs is asked to end within a second: the task of an
        async job is cancelled, the process of an isolated job is interrupted, and a sync job sees
        `current_job().cancelled`. An iterable job ends at its next save. Ruby workers read only
        the requests for iterable jobs.

        A job that waits in a long queue is looked for from the side of the next jobs, a thousand
        jobs in a round trip.
        """
        return self.redis.run(self._producer.cancel(jid))

    def result(self, jid: str, *, timeout: float | None = 0.0) -> Result | None:
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
        return self.redis.run(self._producer.result(jid, timeout, self._key_waiter))

    def progress(self, jid: str) -> JobProgress | None:
        """Return how far a job is that calls `report_progress`. [X-PROG-6]

        Workers write it with each heartbeat, every 10 s, and once after the end of the job. It is
        kept for a day.

        Returns:
            The last progress, also of a job that has ended; None if there is none.

        Raises:
            RedisTrouble: It could not be read.
        """
        return self.redis.run(self._producer.progress(jid))

    def output(
        self, jid: str, *, after: str = "", timeout: float | None = None
    ) -> Iterator[OutputItem]:
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
        while items := self.read_output(tail, timeout):
            for item in items:
                yield item

    def read_output(self, tail: Tail, timeout: float | None) -> Sequence[OutputItem]:
        """Return the next items of an output; none if the job is over, or after the timeout.

        `output` calls this. A caller that goes on behind a gap calls it again with the same tail.
        """
        return self.redis.run(self._producer.output(tail, timeout, self._key_waiter))

    def close(self) -> None:
        """Close the connections, after a last attempt to write the jobs of a buffer."""
        self.redis.run(self._producer.writer.close(self._timeout))
        self._key_waiter.close()
        self.redis.close()
