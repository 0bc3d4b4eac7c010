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
from jobwire.application.shards import Shards, may_pass
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
from jobwire.protocol.wire import Local, Op, Step

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

    def __init__(self) -> None:
        super().__init__()
        self.shards: dict[str, list[str]] = {}

    def add(self, shard: str, jobs: Iterable[ReadyPayload], refused: Refused) -> None:
        self.update(refused)
        written = [job.jid for job in jobs if job.jid not in refused]
        if written:
            self.shards.setdefault(shard, []).extend(written)


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
        trouble = None
        self.shards.begin(shard)
        try:
            return (yield Local(made, made))
        except RedisTrouble as error:
            trouble = error
            raise
        finally:
            self.shards.end(shard, trouble)

    def produce(self, shard: str, operation: Callable[[Producer], Op[T]]) -> Op[T]:
        """Carry out an operation of the producer of a shard."""
        result: T = yield from self.call(shard, methodcaller("_produce", operation))
        return result

    def ask(self, call: Callable[[Any], Any], enough: Callable[[Any], bool]) -> Op[Any]:
        """Ask the shards one after the other, until an answer is enough; return the last one.

        Raises:
            RedisTrouble: No answer was enough, and a shard could not be asked.
        """
        trouble: RedisTrouble | None = None
        answer = None
        for name in self.shards.served:
            try:
                self.shards.check(name)
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
        """Learn the states of the shards from one that answers, once in a while."""
        if not self.shards.is_due():
            return
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
        yield from self._calls.follow()
        left = [(job, home(job, self._shards.placement)) for job in jobs]
        answer = _Answer()
        troubles: list[RedisTrouble] = []
        tried: set[str] = set()
        while left:
            parts = self._parts(left, tried)
            left = []
            for (shard, last), part in parts.items():
                some = [job for job, _ in part]
                write = self._write_at_last if last else self._write_at_once
                try:
                    answer.add(shard, some, (yield from write(shard, some, buffered)))
                except RedisTrouble as error:
                    if last or not may_pass(error):
                        troubles.append(error)
                        continue
                    tried.add(shard)
                    written = set(error.written)
                    answer.add(shard, (job for job in some if job.jid in written), {})
                    left += [each for each in part if each[0].jid not in written]
        if troubles:
            raise _joined(troubles, answer)
        return answer

    def _parts(
        self, jobs: Sequence[tuple[ReadyPayload, str | None]], tried: set[str]
    ) -> dict[tuple[str, bool], list[tuple[ReadyPayload, str | None]]]:
        """Return the jobs of each shard, and whether they may go to no other one."""
        parts: dict[tuple[str, bool], list[tuple[ReadyPayload, str | None]]] = {}
        for each in jobs:
            job, key = each
            shard = self._shards.choose(job.jid, tried) if key is None else self._shards.of(key)
            last = key is not None or shard is None
            place = turn(job.jid, self._shards.used)[0] if shard is None else shard, last
            if (part := parts.get(place)) is None:
                part = parts[place] = []
            part.append(each)
        return parts

    def _send_to(self, shard: str, jobs: Sequence[ReadyPayload]) -> Op[Refused]:
        self._shards.check(shard)
        return (yield from self._calls.produce(shard, lambda each: each.writer.send(jobs)))

    def _write_at_once(
        self, shard: str, jobs: Sequence[ReadyPayload], buffered: bool
    ) -> Op[Refused]:
        """Write jobs that may go to another shard, unless they may have been written to this one.

        Such jobs are kept in its buffer if that resends them.
        """
        try:
            return (yield from self._send_to(shard, jobs))
        except NoReply as error:
            keeper = self._calls.keeper(shard)
            if keeper is None or not buffered or not keeper.may_come_again(error):
                raise
            return (yield from keeper.write(jobs, partial(_fail, error)))

    def _write_at_last(
        self, shard: str, jobs: Sequence[ReadyPayload], buffered: bool
    ) -> Op[Refused]:
        """Write jobs that may go to no other shard, or keep them in the buffer of this one."""
        keeper = self._calls.keeper(shard)
        send = partial(self._send_to, shard)
        if keeper is None or not buffered:
            return (yield from send(jobs))
        return (yield from keeper.write(jobs, send))


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
                self._calls.shards.check(name)
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
        if not self.transport.overrides:
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
        order = turn(jid, self._shards.used)
        return next((name for name in order if not self._shards.away(name)), order[0])


class _Redis:
    """The place of the connection of a client: operations only call the clients of shards."""

    def __init__(self, shards: Shards, client_of: ClientOf) -> None:
        self.url = "shards:" + ",".join(shards.names)
        self._first = partial(client_of, shards.names[0])

    def run(self, op: Op[Any]) -> Any:
        """Run an operation; for asyncio, return an awaitable."""
        return self._first().redis.run(_without_commands(op))

    def abandon(self) -> None:
        """There is no connection to close."""


class _Sharded:
    """The part that both clients share.

    Args:
        shards: The shards.
        client_of: Returns the client of a shard, by its name.
        producer: Makes the jobs.
    """

    def __init__(
        self,
        shards: Shards,
        client_of: ClientOf,
        producer: ShardedProducer,
    ) -> None:
        self._shards, self._client_of = shards, client_of
        self._producer: Any = producer
        self._key_waiter: Any = None  # those of the shards wait
        self.redis: Any = _Redis(shards, client_of)

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

    def close(self) -> None:
        """Stop looking at shards that are away. Each client of a shard is closed by itself."""
        self._shards.close()


class AsyncShardedClient(_Sharded, AsyncClient):
    """The asyncio twin of `ShardedClient`."""

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


def _without_commands(op: Op[T]) -> Op[T]:
    """Run an operation that sends nothing itself.

    Raises:
        ConfigError: It sends a command, which no shard can be chosen for.
    """
    try:
        step: Step = next(op)
        while True:
            if not isinstance(step, Local):
                raise ConfigError(
                    "this is for one Redis, and the application has shards; choose one: "
                    "app.client_of(SHARD)"
                )
            try:
                reply = yield step
            except Exception as error:  # noqa: BLE001 - passed on to the operation
                step = op.throw(error)
            else:
                step = op.send(reply)
    except StopIteration as done:
        result: T = done.value
        return result
    finally:
        op.close()


def _joined(troubles: Sequence[RedisTrouble], answer: _Answer) -> RedisTrouble:
    """Return the first trouble, with the ids of all shards."""
    first = troubles[0]
    done = [jid for ids in answer.shards.values() for jid in ids]
    first.written = (*done, *(jid for each in troubles for jid in each.written))
    first.unsure = tuple(jid for each in troubles for jid in each.unsure)
    for other in troubles[1:]:
        first.add_note(str(other))
    return first
