"""The clients of an application with shards: each job goes to the client of one of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from operator import methodcaller
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from jobwire.application import workflows
from jobwire.application.aio import AsyncClient
from jobwire.application.client import Client
from jobwire.application.delivery import deliver
from jobwire.application.generation import FleetGeneration, GenerationSetting
from jobwire.application.job_writer import JobWriter
from jobwire.application.producer import Producer, new_jid
from jobwire.application.shards import Part, Shards, may_pass
from jobwire.connection.aio import AsyncRedis
from jobwire.connection.connection import AsyncConnection
from jobwire.connection.sync import SyncRedis
from jobwire.errors import ConfigError, NoReply, RedisTrouble
from jobwire.protocol.iteration import Cancellation
from jobwire.protocol.keys import Keys
from jobwire.protocol.normalize import ReadyPayload
from jobwire.protocol.output import OutputItem, Tail
from jobwire.protocol.placement import ShardState, home, read_states, turn
from jobwire.protocol.progress import JobProgress
from jobwire.protocol.results import Result, ResultOutcome
from jobwire.protocol.times import Generation
from jobwire.protocol.unique import Refused
from jobwire.protocol.wire import At, Local, Message, Op

if TYPE_CHECKING:
    from jobwire.application.push_buffer import Keeper, PendingPushes
    from jobwire.connection.key_waiter import KeyWaiter

__all__ = ["AsyncShardedClient", "ClientOf", "PlacedIds", "ShardedClient", "ShardedProducer"]

T = TypeVar("T")
ClientOf: TypeAlias = Callable[[str], Client | AsyncClient]
"""Returns the client of a shard, by its name."""
WAIT_S = 1.0  # for a result at the likely shard, before all shards are asked again

_PLACES = ("running", "queued", "done", "unknown")  # of a cancelled job, the best answer first


class PlacedIds(list["str | None"]):
    """The ids of a bulk push, and where the jobs are.

    Attributes:
        shards: Name of each shard that got some of the jobs, to their ids. Jobs that wait for the
            commit of a transaction are not among them.
    """

    def __init__(self, jids: Iterable[str | None], shards: Mapping[str, Sequence[str]]) -> None:
        super().__init__(jids)
        self.shards = {name: list(ids) for name, ids in shards.items()}


class _Answer(dict[str, str]):
    """The jobs that were refused, as `Refused`, and the shard of each one that was not."""

    __slots__ = ("parts",)
    parts: list[tuple[str, Sequence[ReadyPayload]]]

    @property
    def shards(self) -> dict[str, list[str]]:
        shards: dict[str, list[str]] = {}
        for shard, jobs in self.parts:
            written = [job.jid for job in jobs]
            if self:
                written = [jid for jid in written if jid not in self]
            if written:
                shards[shard] = [*shards[shard], *written] if shard in shards else written
        return shards


class _Calls:
    """Calls the clients of shards.

    Args:
        shards: The shards.
        client_of: Returns the client of a shard, by its name.
    """

    def __init__(self, shards: Shards, client_of: ClientOf) -> None:
        self.shards = shards
        self.client_of = client_of

    def call(self, shard: str, call: Callable[[Any], Any]) -> Op[Any]:
        """Call the client of a shard: the asyncio one returns an awaitable, the other its value."""
        made = partial(call, self.client_of(shard))
        return self.shards.take(shard, Local(made, made))

    def produce(self, shard: str, operation: Callable[[Producer], Op[Any]]) -> Op[Any]:
        """Carry out an operation of the producer of a shard, as a part of the dialogue."""
        client = self.client_of(shard)
        return self.shards.take(shard, At(client.redis, operation(client._producer)))

    def ask(self, call: Callable[[Any], Any], enough: Callable[[Any], bool]) -> Op[Any]:
        """Ask the shards one after the other, until an answer is enough; return the last one.

        Raises:
            RedisTrouble: No answer was enough, and a shard could not be asked.
        """
        trouble: RedisTrouble | None = None
        answer = None
        for name in self.shards.served:
            try:
                answer = yield from self.call(name, call)
            except RedisTrouble as error:
                trouble = trouble or error
                continue
            if enough(answer):
                return answer
        if trouble is not None:
            raise trouble
        return answer

    def follow(self) -> Op[None]:
        """Learn the states of the shards from one that answers."""
        tried: set[str] = set()
        while (name := self.shards.choose("states", tried)) is not None:
            try:
                self.shards.learn((yield from self.produce(name, _read_states)))
            except RedisTrouble:
                tried.add(name)
            else:
                return

    def keeper(self, shard: str) -> Keeper | None:
        """Return the buffer of a shard."""
        return self.client_of(shard)._producer.writer.keeper


class ShardedWriter(JobWriter):
    """Gives each job to the client of its shard, which is of the same kind.

    Args:
        calls: Calls the clients of shards.
        *settings: See `JobWriter`.
    """

    def __init__(self, calls: _Calls, *settings: Any) -> None:
        super().__init__(*settings)
        self._calls = calls
        self._shards = calls.shards

    def may_keep(self) -> bool:
        """True if a push may succeed without Redis."""
        keepers = map(self._calls.keeper, self._shards.names)
        return any(keeper is not None for keeper in keepers) or super().may_keep()

    def _write_or_keep(self, jobs: Sequence[ReadyPayload], *, buffered: bool = True) -> Op[Refused]:
        """Write jobs, each to its shard; return those that were refused.

        A job that has no key goes to another shard if one fails before it was written. The parts of
        all shards are tried before an error is raised.

        Raises:
            InvalidJob: A job has several keys; nothing was written.
            RedisTrouble: A shard failed. `written` and `unsure` are of all shards.
        """
        if self.transport.overrides:
            return (yield from deliver(self.transport, jobs))
        answer = _Answer()
        if (quick := self._shards.quick(jobs)) is not None:
            try:
                yield from self._write(quick, jobs, False, buffered)
            except RedisTrouble as error:
                if not may_pass(error):
                    raise
                jobs = [job for job in jobs if job.jid not in error.written]
            else:
                answer.parts = [(quick, jobs)]
                return answer
        if self._shards.is_due():
            yield from self._calls.follow()
        done: list[tuple[str, Sequence[ReadyPayload]]] = []
        answer.parts = done
        troubles: list[RedisTrouble] = []
        tried: set[str] = set()
        parts = self._parts(jobs)
        while parts:
            left: list[ReadyPayload] = []
            for shard, part, last in parts:
                try:
                    refused = yield from self._write(shard, part, last, buffered)
                except RedisTrouble as error:
                    if last or not may_pass(error):
                        troubles.append(error)
                        continue
                    tried.add(shard)
                    written = set(error.written)
                    done.append((shard, [job for job in part if job.jid in written]))
                    left += [job for job in part if job.jid not in written]
                else:
                    done.append((shard, part))
                    if refused:
                        answer.update(refused)
            parts = self._shards.spread(left, tried) if left else ()
        if troubles:
            raise _joined(troubles, answer)
        return answer

    def _parts(self, jobs: Sequence[ReadyPayload]) -> Sequence[Part]:
        """Return the jobs of each shard: those that a key decides, and those that may go to any."""
        placement = self._shards.placement
        if placement == "spread" and not [job for job in jobs if not job.plain]:  # nearly always
            return self._shards.spread(jobs)
        free: list[ReadyPayload] = []
        bound: dict[str, list[ReadyPayload]] = {}
        homes: dict[str, str] = {}
        for job in jobs:
            key = home(job, placement)
            if key is None:
                free.append(job)
                continue
            if key not in homes:
                homes[key] = self._shards.of(key)
            bound.setdefault(homes[key], []).append(job)
        parts = [(shard, part, True) for shard, part in bound.items()]
        return [*parts, *self._shards.spread(free)]

    def _write(
        self, shard: str, jobs: Sequence[ReadyPayload], last: bool, buffered: bool
    ) -> Op[Refused]:
        """Write jobs to a shard, or keep those in its buffer that may go to no other one."""
        client = self._calls.client_of(shard)
        writer = client._producer.writer
        keeper = writer.keeper
        if keeper is None or not buffered:
            return self._shards.take(shard, At(client.redis, writer.send(jobs)))

        def send(jobs: Sequence[ReadyPayload]) -> Op[Refused]:
            return self._shards.take(shard, At(client.redis, writer.send(jobs)))

        return keeper.write(jobs, send) if last else self._write_at_once(keeper, send, jobs)

    @staticmethod
    def _write_at_once(
        keeper: Keeper,
        send: Callable[[Sequence[ReadyPayload]], Op[Refused]],
        jobs: Sequence[ReadyPayload],
    ) -> Op[Refused]:
        """Write jobs that may go to another shard, unless they may have been written to this one.

        Such jobs are kept in its buffer if that resends them.
        """
        try:
            return (yield from send(jobs))
        except NoReply as error:
            if not keeper.may_come_again(error):
                raise
            return (yield from keeper.write(jobs, partial(_fail, error)))


class _LowestGeneration(FleetGeneration):
    """The lowest generation of all shards, which all read rightly. [GEN-5]"""

    def __init__(self, setting: GenerationSetting, writer: ShardedWriter, calls: _Calls) -> None:
        super().__init__(setting, writer)
        self._calls = calls

    def _detect(self) -> Op[Generation]:
        found: list[Generation] = []
        trouble: RedisTrouble | None = None
        for name in self._calls.shards.served:
            try:
                found.append((yield from self._calls.produce(name, Producer.generation)))
            except RedisTrouble as error:
                trouble = error
        if not found and trouble is not None:
            raise trouble
        return min(found)


class ShardedProducer(Producer):
    """Makes jobs for all shards, and looks for them there.

    Args:
        shards: The shards.
        client_of: Returns the client of a shard, by its name.
        keys: Key names.
        generation: Generation of the times to write.
        **settings: See `Producer`.
    """

    def __init__(
        self,
        shards: Shards,
        client_of: ClientOf,
        keys: Keys,
        *,
        generation: GenerationSetting,
        **settings: Any,
    ) -> None:
        super().__init__(keys, generation=generation, **settings)
        self._calls = calls = _Calls(shards, client_of)
        self._shards = shards
        writer = ShardedWriter(calls, keys, self._clock, None, self.transport, "")
        self.writer = writer
        self._generation = _LowestGeneration(generation, writer, calls)

    def _ids(self, jids: list[str | None], *answers: Refused) -> list[str | None]:
        shards: dict[str, list[str]] = {}
        for answer in answers:
            for name, ids in answer.shards.items() if isinstance(answer, _Answer) else ():
                shards.setdefault(name, []).extend(ids)
        return PlacedIds(super()._ids(jids, *answers), shards)

    def follow(self) -> Op[None]:
        """Learn which shards get jobs, unless this process has done so a moment ago."""
        if not self.transport.overrides and self._shards.is_due():
            yield from self._calls.follow()

    def place(self) -> Op[str]:
        """Return the shard for all parts of one thing."""
        yield from self.follow()
        return self._shards.choose(new_jid()) or self._shards.used[0]

    def outcomes(self, jids: Sequence[str]) -> Op[list[ResultOutcome | None]]:
        """Return how jobs have ended, from the results on all shards."""
        if not jids or self.transport.overrides:
            return (yield from super().outcomes(jids))
        found: list[ResultOutcome | None] = [None] * len(jids)

        def complete(more: Sequence[ResultOutcome | None]) -> bool:
            found[:] = [one or other for one, other in zip(found, more, strict=True)]
            return None not in found

        ask = methodcaller("_produce", Producer.outcomes, jids)
        yield from self._calls.ask(ask, complete)
        return found

    def result(self, jid: str, timeout: float | None, key_waiter: KeyWaiter) -> Op[Result | None]:
        """Return the result of a job, and wait for one that is final. [X-RESULT-7]

        The wait is at the shard that the id prefers; a job with a key is found within a second.
        """
        if self.transport.overrides:
            return (yield from super().result(jid, timeout, key_waiter))
        end = None if timeout is None else self._clock() + timeout
        while True:
            ask = methodcaller("result", jid)
            found: Result | None = yield from self._calls.ask(ask, _is_something)
            seconds = WAIT_S if end is None else min(WAIT_S, end - self._clock())
            if (found is not None and found.final) or seconds <= 0:
                return found
            wait = methodcaller("result", jid, timeout=seconds)
            yield from self._calls.call(self._likely(jid), wait)

    def output(
        self, tail: Tail, timeout: float | None, key_waiter: KeyWaiter
    ) -> Op[Sequence[OutputItem]]:
        """Return the next items of an output, on whichever shard it is; see `result`."""
        if self.transport.overrides:
            return (yield from super().output(tail, timeout, key_waiter))
        end = None if timeout is None else self._clock() + timeout
        look = methodcaller("read_output", tail, 0.0)
        while True:
            items: Sequence[OutputItem]
            items = yield from self._calls.ask(look, lambda found: bool(found) or tail.over)
            seconds = WAIT_S if end is None else min(WAIT_S, end - self._clock())
            if items or tail.over or seconds <= 0:
                return items or ()
            wait = methodcaller("read_output", tail, seconds)
            items = yield from self._calls.call(self._likely(tail.jid), wait)
            if items:
                return items

    def progress(self, jid: str) -> Op[JobProgress | None]:
        """Return the progress that a job has reported. [X-PROG-6]"""
        if self.transport.overrides:
            return (yield from super().progress(jid))
        ask = methodcaller("progress", jid)
        found: JobProgress | None = yield from self._calls.ask(ask, _is_something)
        return found

    def cancel(self, jid: str) -> Op[Cancellation]:
        """Cancel a job on all shards; return the answer of the one that has it. [ITER-7]"""
        if self.transport.overrides:
            return (yield from super().cancel(jid))
        return (yield from self._cancel(methodcaller("cancel", jid)))

    def cancel_chain(
        self, jids: Sequence[str], members: Mapping[str, Sequence[str]]
    ) -> Op[Cancellation]:
        """Cancel all jobs of a chain; return the place of the open one. [X-CANCEL-1] [X-FLOW-13]"""
        if self.transport.overrides:
            return (yield from workflows.cancel_chain(self, jids, members))
        return (yield from self._cancel(methodcaller("cancel_chain", jids, members)))

    def _cancel(self, call: Callable[[Any], Any]) -> Op[Cancellation]:
        answers: list[Cancellation] = []

        def keep(answer: Cancellation) -> bool:
            answers.append(answer)
            return False

        try:
            yield from self._calls.ask(call, keep)
        except RedisTrouble:
            if all(answer.place == "unknown" for answer in answers):  # it may be there
                raise
        return min(answers, key=lambda answer: _PLACES.index(answer.place))

    def _likely(self, jid: str) -> str:
        order = turn(jid, self._shards.orders)
        return next((name for name in order if not self._shards.away(name)), order[0])


class _SyncShell(SyncRedis):
    """Runs operations whose messages go to shards; it has no server itself."""

    def __init__(self, url: str) -> None:
        self.url = url

    def _answer(self, message: Message) -> list[Any]:
        raise _for_one_redis()


class _AsyncShell(AsyncRedis):
    """The asyncio twin of `_SyncShell`."""

    def __init__(self, url: str) -> None:
        self.url = url

    async def _usable(self, bad: AsyncConnection | None) -> AsyncConnection:
        raise _for_one_redis()

    def abandon(self) -> None:
        """There is no connection to close."""


def _for_one_redis() -> ConfigError:
    return ConfigError(
        "this is for one Redis, and the application has shards; choose one: app.client_of(SHARD)"
    )


class _Sharded:
    """The part that both clients share.

    Args:
        shards: The shards.
        client_of: Returns the client of a shard, by its name.
        producer: Makes the jobs.
    """

    _shell: type[_SyncShell | _AsyncShell]

    def __init__(
        self,
        shards: Shards,
        client_of: ClientOf,
        producer: ShardedProducer,
    ) -> None:
        self._shards, self._client_of = shards, client_of
        self._producer: Any = producer
        self._key_waiter: Any = None  # those of the shards wait
        self.redis: Any = self._shell("shards:" + ",".join(shards.names))

    def cancel_chain(
        self, jids: Sequence[str], members: Mapping[str, Sequence[str]] = MappingProxyType({})
    ) -> Any:
        """Cancel all jobs of a chain; see `Client.cancel_chain`."""
        return self.redis.run(self._producer.cancel_chain(jids, members))

    @property
    def pending(self) -> PendingPushes | None:
        """The sums of all shards; None without a buffer."""
        numbers = [self._client_of(name).pending for name in self._shards.names]
        known = [each for each in numbers if each is not None]
        if not known:
            return None
        since = [each.since for each in known if each.since is not None]
        return type(known[0])(
            *(sum(each.jobs for each in known), sum(each.bytes for each in known)),
            *(min(since, default=None), sum(each.unsure for each in known)),
            sum(each.refused for each in known),
        )


class ShardedClient(_Sharded, Client):
    """Pushes jobs, each to its shard; a `Client` in all else."""

    _shell = _SyncShell

    def close(self) -> None:
        """Stop looking at shards that are away. Each client of a shard is closed by itself."""
        self._shards.close()


class AsyncShardedClient(_Sharded, AsyncClient):
    """The asyncio twin of `ShardedClient`."""

    _shell = _AsyncShell

    async def close(self) -> None:
        """There is nothing to close: each client of a shard is closed by itself."""


def _fail(error: RedisTrouble, jobs: Sequence[ReadyPayload]) -> Op[Refused]:
    """Fail, in place of a second attempt."""
    raise error
    yield  # a generator, as every operation


def _read_states(producer: Producer) -> Op[dict[str, ShardState]]:
    return read_states(producer.keys)


def _is_something(answer: object) -> bool:
    return answer is not None


def _joined(troubles: Sequence[RedisTrouble], answer: _Answer) -> RedisTrouble:
    """Return the first trouble, with the ids of all shards."""
    first = troubles[0]
    done = [jid for ids in answer.shards.values() for jid in ids]
    first.written = (*done, *(jid for each in troubles for jid in each.written))
    first.unsure = tuple(jid for each in troubles for jid in each.unsure)
    for other in troubles[1:]:
        first.add_note(str(other))
    return first
