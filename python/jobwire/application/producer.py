"""The operations of a client; the sync and asyncio clients only run them."""

from __future__ import annotations

import logging
import os
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any

from jobwire.application.call import Call
from jobwire.application.current import inherited
from jobwire.application.delivery import Transport
from jobwire.application.generation import FleetGeneration, GenerationSetting
from jobwire.application.job_writer import JobWriter
from jobwire.application.payload_maker import (
    MAX_PAYLOAD_BYTES,
    PayloadMaker,
    checked_fields,
    with_class,
)
from jobwire.connection.key_waiter import KeyWaiter
from jobwire.errors import ConfigError, DuplicateJob, InvalidJob
from jobwire.protocol import active_job, cancelling, progress, times
from jobwire.protocol.arguments import StrictArgs
from jobwire.protocol.iteration import Cancellation
from jobwire.protocol.keys import Keys
from jobwire.protocol.normalize import AsyncClientMiddleware, ClientMiddleware, ReadyPayload
from jobwire.protocol.output import OutputItem, Tail
from jobwire.protocol.progress import JobProgress
from jobwire.protocol.pushing import bulk_times
from jobwire.protocol.results import Result, ResultOutcome, is_final, read
from jobwire.protocol.template import Template
from jobwire.protocol.times import Generation, When
from jobwire.protocol.unique import Refused, Unique
from jobwire.protocol.wire import Batch, Confirm, Local, Op, command

__all__ = ["Pace", "Producer", "dropped", "make_confirm", "make_producer", "new_jid", "run_at"]

PART_S = 0.005  # of a bulk push, during which other tasks of an event loop wait
ARGS_AT_ONCE = 100
BYTES_AT_ONCE = 65_536  # of the payloads of jobs that are made together
LOOK_S = 5.0  # between two looks of a reader of an output without a notice [X-STEP-14]

_log = logging.getLogger("jobwire.client")


class Pace:
    """Lets the other tasks of an event loop run between the parts of long work.

    The blocking shell does not pause.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._since = clock()

    def is_over(self) -> bool:
        """True if it is time for a pause. It is also time after a clock was set back."""
        return not 0 <= self._clock() - self._since < PART_S

    def pause(self) -> Op[None]:
        yield Local(lambda: None, _next_iteration)
        self._since = self._clock()


async def _next_iteration() -> None:
    import asyncio  # only here, because blocking clients do not need it

    await asyncio.sleep(0)


class Producer:
    """Makes payloads and the operations that write them.

    Args:
        keys: Key names.
        generation: Generation of the times to write; `auto` asks the processes in Redis. [GEN-5]
        strict_args: Treatment of arguments for which JSON has no type.
        middleware: Client middleware, outermost first; read again for every push. [PUSH-7]
        clock: Returns epoch seconds.
        new_jid: Returns a new job id. [PAY-9] [PAY-28]
        draw: Returns a uniform number in [0, 1).
        new_jids: Returns a given number of new job ids.
        confirm: Replicas that must confirm a job before a push counts as done. [PUSH-8]
        max_payload_bytes: Size of the largest payload to write; None for no limit. [PUSH-10]
        compress_above: Compress arguments of so many bytes of JSON or more; None: none. [X-ZIP-4]
        transport: Destination of the jobs; Redis by default.
        location: Name or URL by which an application finds the client; "": its default Redis.
        warn: Called with the warnings of `strict_args="warn"`.
    """

    def __init__(
        self,
        keys: Keys,
        *,
        generation: GenerationSetting,
        strict_args: StrictArgs,
        middleware: Sequence[ClientMiddleware | AsyncClientMiddleware],
        clock: Callable[[], float],
        new_jid: Callable[[], str],
        draw: Callable[[], float],
        new_jids: Callable[[int], Sequence[str]] | None = None,
        confirm: Confirm | None = None,
        max_payload_bytes: int | None = MAX_PAYLOAD_BYTES,
        compress_above: int | None = None,
        transport: Transport | None = None,
        location: str = "",
        warn: Callable[[str], object] = lambda _: None,
    ) -> None:
        self.keys = keys
        self.transport = Transport() if transport is None else transport
        self.payloads = PayloadMaker(
            strict_args, middleware, max_payload_bytes, compress_above, warn
        )
        self.writer = JobWriter(keys, clock, confirm, self.transport, location)
        self._generation = FleetGeneration(generation, self.writer)
        self._clock = clock
        self._new_jid = new_jid
        self._new_jids = new_jids or (lambda count: [new_jid() for _ in range(count)])
        self._draw = draw

    def now(self) -> float:
        """Return the epoch seconds of the clock."""
        return self._clock()

    def generation(self) -> Op[Generation]:
        """Return the generation to write; see `FleetGeneration.find`."""
        return (yield from self._generation.find(self._clock()))

    def push(
        self,
        class_name: str,
        args: Sequence[Any],
        options: Mapping[str, Any],
        *,
        at: When | None = None,
        soon: bool = False,
        jid: str | None = None,
        fields: Mapping[str, Any] | None = None,
        on_commit: bool = True,
    ) -> Op[str | None]:
        """Push one job; return its id, or None if middleware stopped it.

        Args:
            class_name: Wire class.
            args: Positional arguments.
            options: As in `Options`.
            at: Time to run at; None to run at once.
            soon: If True, `at` may be relative, and a job whose time is not in the future runs at
                once [SCHED-2] [SCHED-3]. If False, `at` is absolute and the job is always
                scheduled.
            jid: The job id; default: a new one.
            fields: More payload fields.
            on_commit: False to write the job even inside a database transaction.
        """
        now = self._clock()
        moment = run_at(at, now=now, soon=soon)
        generation = self._generation.known(now) or (yield from self._generation.find(now))
        template = None
        fields = inherited(fields)
        if jid is None and not fields and not self.payloads.middleware:
            template = self.payloads.template(class_name, options, moment, now, generation)
        tail = b"" if template is None else template.tail(now)
        jid = self._new_jid() if jid is None or jid == "" else jid  # [PUSH-19] [PUSH-20] [PUSH-21]
        checked = checked_fields(class_name, fields) if fields else {}
        made = self.payloads.draft(
            class_name, options, checked, now, generation, args, jid, moment, template, tail
        )
        ready: ReadyPayload | None
        if isinstance(made, dict):
            ready = yield from self.payloads.finish(made, now=now, generation=generation)
        else:
            ready = made
        if ready is None:
            return None
        ready = self.payloads.complete(ready, class_name, options)
        refused = yield from self.writer.give([ready], on_commit)
        return dropped(class_name, options, refused[ready.jid]) if refused else ready.jid

    def push_active_job(
        self,
        job_class: str,
        args: Sequence[Any],
        kwargs: Mapping[str, Any] | None,
        options: Mapping[str, Any],
        **how: Any,
    ) -> Op[str | None]:
        """Push one job of Active Job; see `push`. [X-AJ-8]"""
        from jobwire.application.active_values import dump_call, wrap_call  # seldom used

        queue = options.get("queue")
        described = wrap_call(job_class, dump_call(args, kwargs), queue=queue)
        fields = {"wrapped": job_class}
        return (
            yield from self.push(active_job.WRAPPER, [described], options, fields=fields, **how)
        )

    def push_bulk(
        self,
        class_name: str,
        args_list: Iterable[Sequence[Any]],
        options: Mapping[str, Any],
        *,
        at: When | Sequence[When] | None = None,
        spread_interval: float | None = None,
        fields: Mapping[str, Any] | None = None,
        on_commit: bool = True,
    ) -> Op[list[str | None]]:
        """Push a job for each list of arguments; return their ids in order.

        All jobs are checked before the first one is written. A job that middleware stopped has
        None in place of its id, and so has a unique job that was refused. [BULK-1] [BULK-2]
        [BULK-9] [BULK-10] [BULK-11] [BULK-16] [BULK-19] [X-UNIQ-4]
        """
        now = self._clock()
        pace = Pace(self._clock)
        unread = iter(args_list)
        all_args: list[Sequence[Any]] = []
        while part := list(islice(unread, ARGS_AT_ONCE)):
            all_args += part
            if pace.is_over():
                yield from pace.pause()
        moments = bulk_times(
            len(all_args),
            at=at,
            spread_interval=spread_interval,
            now=now,
            draws=(self._draw() for _ in all_args),
        )
        generation = yield from self.generation()
        checked = checked_fields(class_name, inherited(fields))
        ready = partial(self.payloads.draft, class_name, options, checked, now, generation)
        accepted: list[ReadyPayload] = []
        results: list[str | None] = []
        template: Template | None = None
        tail = b""
        moment_of = iter(moments)
        count = 1  # of jobs that are made together: as many as do not hold up other tasks
        while part := all_args[len(results) : len(results) + count]:
            ids, at_times = self._new_jids(len(part)), [*islice(moment_of, len(part))]
            if pace.is_over():
                yield from pace.pause()
            alike = template and self.payloads.alike(template, tail, part, ids, at_times)
            if alike:
                results += ids
                accepted += alike
                count = min(max(BYTES_AT_ONCE // len(alike[-1].text), 1), ARGS_AT_ONCE)
                continue
            for args, jid, moment in zip(part, ids, at_times, strict=True):
                made = ready(args, jid, moment, template, tail, len(results))
                job: ReadyPayload | None
                if isinstance(made, dict):
                    job = yield from self.payloads.finish(made, now=now, generation=generation)
                    template = self.payloads.bulk_template(made, options, checked, now, generation)
                    tail = b"" if template is None else template.tail(now)
                else:
                    job = made
                results.append(None if job is None else job.jid)
                if job is not None:
                    number = len(results) - 1
                    accepted.append(self.payloads.complete(job, class_name, options, number))
        return self._ids(results, (yield from self.writer.give(accepted, on_commit)))

    def push_many(self, calls: Iterable[Call]) -> Op[list[str | None]]:
        """Push jobs of several kinds; return their ids in order, as `push_bulk` does.

        All jobs are checked before the first one is written. Those whose type does not wait for the
        commit of a transaction are written first.
        """
        now = self._clock()
        pace = Pace(self._clock)
        results: list[str | None] = []
        accepted: dict[bool, list[ReadyPayload]] = {False: [], True: []}
        for index, call in enumerate(calls):
            if pace.is_over():
                yield from pace.pause()
            job = yield from self.make(call, now=now, index=index)
            results.append(None if job is None else job.jid)
            if job is not None:
                accepted[call.on_commit].append(job)
        answers: list[Refused] = []
        for on_commit, jobs in accepted.items():
            if jobs:
                answers.append((yield from self.writer.give(jobs, on_commit)))
        return self._ids(results, *answers)

    def _ids(self, jids: list[str | None], *answers: Refused) -> list[str | None]:
        """Return the ids of a bulk push, None for a job that was refused."""
        refused = {jid for answer in answers for jid in answer}
        return [None if jid in refused else jid for jid in jids] if refused else jids

    def make(
        self,
        call: Call,
        *,
        now: float,
        at: float | None = None,
        index: int | None = None,
        alone: bool = True,
    ) -> Op[ReadyPayload | None]:
        """Make the payload of a job without writing it; None if middleware stopped the job.

        Args:
            call: The job.
            now: Epoch seconds.
            at: Epoch second to run at; None to run at once.
            index: Number of the job among others, for errors.
            alone: False for a job of a chain: it may get the result of another, and its arguments
                are left as they are.
        """
        if call.takes and alone:
            problem = "previous is the result of the job before, and there is none; see chain()"
            at_field = "" if index is None else f"job {index}: "
            field = f"{at_field}args[{call.takes[0]}]"
            raise with_class(call.class_name, InvalidJob("X-FLOW-2", field, problem))
        class_name, options = call.class_name, call.options
        generation = self._generation.known(now) or (yield from self._generation.find(now))
        fields = checked_fields(class_name, inherited(call.fields))
        jid = self._new_jid()
        made = self.payloads.draft(
            *(class_name, options, fields, now, generation, call.args, jid, at),
            template=None,
            tail=b"",
            index=index,
        )
        assert isinstance(made, dict)
        ready = yield from self.payloads.finish(made, now=now, generation=generation)
        if ready is None or not alone:
            return ready
        return self.payloads.complete(ready, class_name, options, index)

    def cancel(self, jid: str) -> Op[Cancellation]:
        """Cancel a job. [ITER-7] [X-CANCEL-1]"""
        now = self._clock()
        if self.transport.overrides:
            self.transport.overrides[-1].cancel(jid)
            return Cancellation(int(now), started=False)
        return (yield from cancelling.cancel(self.keys, jid, now=now))

    def outcomes(self, jids: Sequence[str]) -> Op[list[ResultOutcome | None]]:
        """Return how jobs have ended, from their results; None for one that keeps none."""
        if not jids:
            return []
        if self.transport.overrides:
            texts = [self.transport.overrides[-1].result(jid) for jid in jids]
        else:
            texts = yield command("MGET", *map(self.keys.result, jids))
        results = [text and read(jid, text) for jid, text in zip(jids, texts, strict=True)]
        return [result.outcome if result else None for result in results]

    def result(self, jid: str, timeout: float | None, key_waiter: KeyWaiter) -> Op[Result | None]:
        """Return the result of a job, and wait for one that is final. [X-RESULT-7]

        Args:
            jid: The job id.
            timeout: Seconds to wait; 0 to look once, None for no limit.
            key_waiter: Waits for the key.
        """
        key = self.keys.result(jid)
        if self.transport.overrides:
            text = self.transport.overrides[-1].result(jid)
            return None if text is None else read(jid, text)
        text = yield command("GET", key)
        if timeout != 0 and not is_final(text):
            waiting = (key, is_final, timeout)
            later = yield Local(
                partial(key_waiter.wait, *waiting), partial(key_waiter.await_, *waiting)
            )
            text = later or (yield command("GET", key))
        return None if text is None else read(jid, text)

    def output(
        self, tail: Tail, timeout: float | None, key_waiter: KeyWaiter
    ) -> Op[Sequence[OutputItem]]:
        """Return the next items of an output; none if the job is over, or after the timeout.

        [X-STEP-12] [X-STEP-14]

        Args:
            tail: The reader.
            timeout: Seconds to wait; 0 to look once, None for no limit.
            key_waiter: Waits for the key.
        """
        if self.transport.overrides:
            kept = self.transport.overrides[-1].output(tail.jid)
            items = tail.take([entry for entry in kept if tail.is_behind([entry])])
            tail.over = True  # nothing else runs meanwhile
            return items
        end = None if timeout is None else self._clock() + timeout
        key = self.keys.output(tail.jid)
        while True:
            looks = [tail.read(self.keys), command("GET", self.keys.result(tail.jid))]
            entries, result = yield Batch(looks)
            if items := tail.take(entries):
                return items
            if entries:  # an end, which is one only if nothing follows
                continue
            tail.over |= isinstance(result, bytes) and is_final(result)
            left = LOOK_S if end is None else min(LOOK_S, end - self._clock())
            if tail.over or left <= 0:
                return ()
            waiting = (key, tail.is_behind, left, tail.newest(self.keys))
            yield Local(partial(key_waiter.wait, *waiting), partial(key_waiter.await_, *waiting))

    def progress(self, jid: str) -> Op[JobProgress | None]:
        """Return the progress that a job has reported. [X-PROG-6]"""
        if self.transport.overrides:
            return self.transport.overrides[-1].progress(jid)
        return progress.read((yield command("GET", self.keys.progress(jid))))


def dropped(class_name: str, options: Mapping[str, Any], holder: str) -> str | None:
    """Return None for a job that is dropped because another has its key, or raise. [X-UNIQ-4]"""
    wish = options.get("unique")
    if not isinstance(wish, Unique) or wish.duplicate != "drop":
        raise DuplicateJob(holder, class_name)
    return None


def run_at(at: When | None, *, now: float, soon: bool) -> float | None:
    """Return the time that a job is scheduled for; None to run at once. [SCHED-2] [SCHED-3]"""
    if soon:
        if at is None:  # a deadline that a caller failed to fill in, not a wish to run now
            raise InvalidJob(
                "SCHED-4", "at", "None is not a time; give one, or push the job without a time"
            )
        moment = times.instant(at, now=now)
        return moment if moment > now else None
    return None if at is None else times.absolute(at, now=now)


def new_jid() -> str:
    """Return a new job id: 24 hex digits from the system's random source. [PAY-9]"""
    return os.urandom(12).hex()


def new_jids(count: int) -> list[str]:
    """Return `count` new job ids, from one call to the system."""
    digits = os.urandom(12 * count).hex()
    return [digits[start : start + 24] for start in range(0, 24 * count, 24)]


def make_producer(
    keys: Keys,
    generation: GenerationSetting,
    strict_args: StrictArgs,
    middleware: Sequence[ClientMiddleware | AsyncClientMiddleware],
    confirm: Confirm | None = None,
    transport: Transport | None = None,
    max_payload_bytes: int | None = MAX_PAYLOAD_BYTES,
    compress_above: int | None = None,
    location: str = "",
    make: Callable[..., Producer] = Producer,
) -> Producer:
    """Return a producer with the system's clock and random source, for either client.

    `make` makes it of the arguments of `Producer`.
    """
    return make(
        keys,
        generation=generation,
        strict_args=strict_args,
        middleware=middleware,
        clock=time.time,
        new_jid=new_jid,
        draw=random.random,
        new_jids=new_jids,
        confirm=confirm,
        max_payload_bytes=max_payload_bytes,
        compress_above=compress_above,
        transport=transport,
        location=location,
        warn=_log.warning,
    )


def make_confirm(wait_replicas: int, timeout: float) -> Confirm | None:
    """Return the confirmation to ask of replicas, within half of the client's timeout. [ENV-3]"""
    if type(wait_replicas) is not int or wait_replicas < 0:
        raise ConfigError(
            f"wait_replicas: {wait_replicas!r} is not a number of replicas (0 or more)"
        )
    return Confirm(wait_replicas, timeout / 2) if wait_replicas else None
