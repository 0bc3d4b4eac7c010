"""The operations of a client; the sync and asyncio clients only run them."""

from __future__ import annotations

import logging
import math
import os
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace as replace_call
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from jobwire.application import middleware
from jobwire.application.call import Call
from jobwire.application.delivery import Transport, defer, deliver, log_refused
from jobwire.connection.key_waiter import KeyWaiter
from jobwire.errors import (
    ConfigError,
    DuplicateJob,
    InvalidJob,
    NoReply,
    RedisRefused,
    RedisUnreachable,
)
from jobwire.protocol import active_job, batches, cancelling, chains, groups, progress, times
from jobwire.protocol.arguments import StrictArgs, check_args
from jobwire.protocol.batches import BATCH, CALLBACK
from jobwire.protocol.chains import StepState
from jobwire.protocol.compression import compress
from jobwire.protocol.expiry import EXPIRES_AT
from jobwire.protocol.iteration import Cancellation
from jobwire.protocol.keys import Keys
from jobwire.protocol.limits import LIMIT
from jobwire.protocol.normalize import (
    DEFAULTS,
    FAILURE_FIELDS,
    AsyncClientMiddleware,
    ClientMiddleware,
    JobFields,
    ReadyPayload,
    build,
    finalize,
)
from jobwire.protocol.progress import JobProgress
from jobwire.protocol.pushing import (
    bulk_times,
    detect_generation,
    push,
    push_bulk,
    push_members,
    replace,
)
from jobwire.protocol.results import Result, ResultOutcome, is_final, keep_seconds, read
from jobwire.protocol.template import Template
from jobwire.protocol.times import Generation, When
from jobwire.protocol.unique import UNIQUE, Refused, Unique
from jobwire.protocol.wire import Confirm, Local, Op, command

if TYPE_CHECKING:
    from jobwire.application.push_buffer import Keeper

__all__ = ["MAX_PAYLOAD_BYTES", "GenerationSetting", "Producer", "make_confirm", "make_producer"]

GenerationSetting = Literal["auto", 7, 8]
DETECT_INTERVAL_S = 60.0  # during which the generation of the fleet is assumed not to change
MAX_PAYLOAD_BYTES = 8 * 1024 * 1024  # [PUSH-10]
MAX_TEMPLATES = 1_000
PART_S = 0.005  # of a bulk push, during which other tasks of an event loop wait
ARGS_AT_ONCE = 100
JIDS_AT_ONCE = 1_000
_REMEMBERED = frozenset([str, int, bool, float, type(None)])

_log = logging.getLogger("jobwire.client")


class _Pace:
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
        place: Name or URL by which an application finds the client; "": its default Redis.
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
        place: str = "",
        warn: Callable[[str], object] = lambda _: None,
    ) -> None:
        if generation not in ("auto", 7, 8):
            raise ConfigError(f"generation: {generation!r} is not one of 'auto', 7, 8")
        if strict_args not in ("raise", "warn", "off"):
            raise ConfigError(f"strict_args: {strict_args!r} is not one of 'raise', 'warn', 'off'")
        if max_payload_bytes is not None and (
            type(max_payload_bytes) is not int or max_payload_bytes < 1
        ):
            raise ConfigError(
                f"max_payload_bytes: {max_payload_bytes!r} is not a number of bytes "
                "(1 or more), or None for no limit"
            )
        self.keys = keys
        self.middleware = middleware
        self._strict = strict_args
        self._clock = clock
        self._new_jid = new_jid
        self._new_jids = new_jids or (lambda count: [new_jid() for _ in range(count)])
        self._confirm = confirm
        if compress_above is not None and (type(compress_above) is not int or compress_above < 1):
            raise ConfigError(
                f"compress_above: {compress_above!r} is not a number of bytes (1 or more), or None"
            )
        self._max_bytes = math.inf if max_payload_bytes is None else max_payload_bytes
        self._compress_above = compress_above
        self._transport = Transport() if transport is None else transport
        self._place = place
        self._warn = warn
        self.keeper: Keeper | None = None
        self._templates: dict[tuple[object, ...], Template] = {}
        self._draw = draw
        self._setting = generation
        self._detected: tuple[Generation, float] | None = None

    def generation(self) -> Op[Generation]:
        """Return the generation to write; asks Redis at most once a minute. [GEN-5] [GEN-7]"""
        now = self._clock()
        known = self._known_generation(now)
        if known is not None:
            return known
        if self._transport.overrides:
            return 8  # no Redis to ask
        if self.keeper is not None and self.keeper.holds:  # the push is going to be kept as well
            return self._unasked_generation()
        try:
            detected = yield from detect_generation(self.keys)
        except (NoReply, RedisUnreachable, RedisRefused) as error:
            if self._may_keep():
                return self._unasked_generation()
            if isinstance(error, NoReply):  # only reads were sent
                raise RedisUnreachable(f"{error}; nothing was written") from None
            raise
        self._detected = detected, now
        return detected

    def _may_keep(self) -> bool:
        """True if a push may succeed without Redis."""
        deferral = self._transport.deferral
        return self.keeper is not None or (deferral is not None and deferral.stores)

    def _unasked_generation(self) -> Generation:
        """Return the last answer, or else 7, which is read rightly by all. [GEN-5]"""
        return 7 if self._detected is None else self._detected[0]

    def _known_generation(self, now: float) -> Generation | None:
        if self._setting != "auto":
            return self._setting
        if self._detected is None or not 0 <= now - self._detected[1] < DETECT_INTERVAL_S:
            return None
        return self._detected[0]

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
        moment = _moment(at, now=now, soon=soon)
        generation = self._known_generation(now) or (yield from self.generation())
        template = None
        if jid is None and not fields and not self.middleware:
            template = self._template(class_name, options, moment, now, generation)
        tail = b"" if template is None else template.tail(now)
        jid = self._new_jid() if jid is None or jid == "" else jid  # [PUSH-19] [PUSH-20] [PUSH-21]
        checked_fields = _checked_fields(class_name, fields) if fields else {}
        made = self._ready(
            class_name, options, checked_fields, now, generation, args, jid, moment, template, tail
        )
        ready: ReadyPayload | None
        if isinstance(made, dict):
            ready = yield from self._pass(made, now=now, generation=generation)
        else:
            ready = made
        if ready is None:
            return None
        ready = self._completed(ready, class_name, options)
        refused = yield from self._given([ready], on_commit)
        return _dropped(class_name, options, refused[ready.jid]) if refused else ready.jid

    def _ready(
        self,
        class_name: str,
        options: Mapping[str, Any],
        fields: Mapping[str, Any],
        now: float,
        generation: Generation,
        args: Sequence[Any],
        jid: str,
        at: float | None,
        template: Template | None,
        tail: bytes,
        index: int | None = None,
    ) -> ReadyPayload | JobFields:
        """Return a job of the template and its `tail`; without one its fields, for the middleware.

        `index` is the number of the job in a bulk push, for errors.
        """
        try:
            if self._strict == "warn":
                args = self._accept(class_name, args)
            if template is not None:
                return template.job(args, jid, tail, at=at, strict=self._strict)
            return build(
                *(class_name, args, options),
                jid=jid,
                now=now,
                generation=generation,
                at=at,
                fields=fields,
                strict=self._strict,
            )
        except InvalidJob as error:
            if index is not None:
                error = InvalidJob(error.rule, f"job {index}: {error.field}", error.problem)
            raise _with_class(class_name, error) from None

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

    def write(self, jobs: Sequence[ReadyPayload], *, buffered: bool = True) -> Op[None]:
        """Write jobs that were made before, in slices if there are many; see `pushing.push_bulk`.

        A unique job whose key another job has now is left out, with a line in the log.

        Args:
            jobs: The jobs.
            buffered: False to raise while Redis is away, although there is a buffer.
        """
        refused = yield from self._written(jobs, buffered=buffered)
        log_refused(refused)

    def _written(self, jobs: Sequence[ReadyPayload], *, buffered: bool = True) -> Op[Refused]:
        """Write jobs; return those that were refused."""
        if self._transport.overrides:
            return (yield from deliver(self._transport, jobs))
        if self.keeper is not None and jobs and buffered:
            return (yield from self.keeper.write(jobs, self.send))
        return (yield from self.send(jobs))

    def send(self, jobs: Sequence[ReadyPayload]) -> Op[Refused]:
        """Write complete jobs to Redis now, without a buffer; return those that were refused."""
        if len(jobs) == 1:
            refused = yield from push(self.keys, jobs, self._confirm)
        else:
            refused = yield from push_bulk(self.keys, jobs, self._confirm)
        return (yield from self._replaced(jobs, refused)) if refused else refused

    def _replaced(self, jobs: Sequence[ReadyPayload], refused: Refused) -> Op[Refused]:
        """Write refused jobs that replace others; return those that could not. [X-UNIQ-10]"""
        left = dict(refused)
        for job in jobs:
            if job.lock is None or not job.lock.replaces or job.jid not in refused:
                continue
            left[job.jid] = yield from replace(
                *(self.keys, job, refused[job.jid]), now=self._clock(), confirm=self._confirm
            )
        return {jid: holder for jid, holder in left.items() if holder}

    def close(self, seconds: float) -> Op[None]:
        """Try to write what the buffer keeps, for a time."""
        if self.keeper is not None:
            yield from self.keeper.close(seconds)

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
        pace = _Pace(self._clock)
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
        checked_fields = _checked_fields(class_name, fields)
        ready = partial(self._ready, class_name, options, checked_fields, now, generation)
        accepted: list[ReadyPayload] = []
        results: list[str | None] = []
        template: Template | None = None
        tail = b""
        jids = self._jids(len(all_args))
        for args, moment, jid in zip(all_args, moments, jids, strict=True):
            if pace.is_over():
                yield from pace.pause()
            made = ready(args, jid, moment, template, tail, len(results))
            job: ReadyPayload | None
            if isinstance(made, dict):
                job = yield from self._pass(made, now=now, generation=generation)
                if not self.middleware and made.keys().isdisjoint(_OWN_FIELDS):
                    template = Template(made, now=now, generation=generation)
                    tail = template.tail(now)
            else:
                job = made
            results.append(None if job is None else job.jid)
            if job is not None:
                accepted.append(self._completed(job, class_name, options, len(results) - 1))
        refused = yield from self._given(accepted, on_commit)
        return [None if jid in refused else jid for jid in results] if refused else results

    def push_many(self, calls: Iterable[Call]) -> Op[list[str | None]]:
        """Push jobs of several kinds; return their ids in order, as `push_bulk` does.

        All jobs are checked before the first one is written. Those whose type does not wait for the
        commit of a transaction are written first.
        """
        now = self._clock()
        pace = _Pace(self._clock)
        results: list[str | None] = []
        accepted: dict[bool, list[ReadyPayload]] = {False: [], True: []}
        for index, call in enumerate(calls):
            if pace.is_over():
                yield from pace.pause()
            job = yield from self.make(call, now=now, index=index)
            results.append(None if job is None else job.jid)
            if job is not None:
                accepted[call.on_commit].append(job)
        refused: dict[str, str] = {}
        for on_commit, jobs in accepted.items():
            if jobs:
                refused.update((yield from self._given(jobs, on_commit)))
        return [None if jid in refused else jid for jid in results]

    def push_chain(
        self, calls: Sequence[Call], at: When | None = None
    ) -> Op[dict[str, list[str]] | None]:
        """Push jobs that run one after the other; return their ids, with those of members.

        Nothing is written, and the result is None, if middleware stopped one of the jobs, or the
        first one is unique and dropped. [X-FLOW-1] [X-FLOW-2]

        Args:
            calls: The jobs, at least one.
            at: When the first job runs, as for `push_in`; None to run at once.
        """
        now = self._clock()
        moment = None if at is None else _moment(at, now=now, soon=True)
        jobs: list[ReadyPayload] = []
        ids: dict[str, list[str]] = {}
        for index, call in enumerate(calls):
            job = yield from self.make(
                call, now=now, at=None if index else moment, index=index, alone=False
            )
            if job is None:
                return None
            if index and job.lock is not None and job.lock.at_push:
                problem = "only the first job of a chain can take its lock with the push"
                raise _with_class(
                    call.class_name, InvalidJob("X-FLOW-1", f"job {index}: unique", problem)
                )
            members = yield from self._members(call, now)
            if members is None:
                return None
            if call.members is not None:
                text = groups.grouped(
                    job.text,
                    [
                        chains.waiting(member.text, one.takes)
                        for member, one in zip(members, call.members, strict=True)
                    ],
                )
                job = msgspec.structs.replace(job, text=text)
            ids[job.jid] = [member.jid for member in members]
            jobs.append(job)
        first, options = calls[0], calls[0].options
        following = [
            chains.waiting(job.text, call.takes)
            for job, call in zip(jobs[1:], calls[1:], strict=True)
        ]
        text = chains.chained(jobs[0].text, following) if following else jobs[0].text
        whole = self._completed(
            msgspec.structs.replace(jobs[0], text=text), first.class_name, options
        )
        refused = yield from self._given([whole], first.on_commit)
        if refused:
            _dropped(first.class_name, options, refused[whole.jid])
            return None
        return ids

    def _members(self, call: Call, now: float) -> Op[list[ReadyPayload] | None]:
        """Make the members of a group; return None if middleware stopped one. [X-FLOW-8]"""
        made: list[ReadyPayload] = []
        for index, member in enumerate(call.members or ()):
            keep = max(groups.KEEP_S, keep_seconds(member.options.get("keep_result")))
            wanted = replace_call(member, options={**member.options, "keep_result": keep})
            job = yield from self.make(wanted, now=now, index=index, alone=False)
            if job is None:
                return None
            if job.lock is not None and job.lock.at_push:
                problem = (
                    f"a job with the scope {job.lock.scope} cannot be in a group; use the scope "
                    "while_running, or options(unique=None)"
                )
                raise _with_class(member.class_name, InvalidJob("X-FLOW-8", "unique", problem))
            made.append(job)
        return made

    def outcomes(self, jids: Sequence[str]) -> Op[list[ResultOutcome | None]]:
        """Return how jobs have ended, from their results; None for one that keeps none."""
        if not jids:
            return []
        if self._transport.overrides:
            texts = [self._transport.overrides[-1].result(jid) for jid in jids]
        else:
            texts = yield command("MGET", *map(self.keys.result, jids))
        results = [text and read(jid, text) for jid, text in zip(jids, texts, strict=True)]
        return [result.outcome if result else None for result in results]

    def chain_states(
        self, jids: Sequence[str], members: Mapping[str, Sequence[str]]
    ) -> Op[list[StepState]]:
        """Return the state of each job of a chain, from their results.

        Args:
            jids: The jobs.
            members: Id of each group among these, with the ids of its members.
        """
        inside = [jid for jids in members.values() for jid in jids]
        ends = dict(
            zip([*jids, *inside], (yield from self.outcomes([*jids, *inside])), strict=True)
        )
        states = chains.states([ends[jid] for jid in jids])
        return [
            groups.state([ends[member] for member in members.get(jid, ())])
            if state == "open"
            else state
            for jid, state in zip(jids, states, strict=True)
        ]

    def cancel_chain(
        self, jids: Sequence[str], members: Mapping[str, Sequence[str]]
    ) -> Op[Cancellation]:
        """Cancel all jobs of a chain; return the place of the open one. [X-CANCEL-1] [X-FLOW-13]"""
        states = yield from self.chain_states(jids, members)
        current = next(
            (jid for jid, it in zip(jids, states, strict=True) if it != "done"), jids[-1]
        )
        if self._transport.overrides:
            return (yield from self.cancel(current))
        now = self._clock()
        # All at once, so that the next one does not start if that one ends meanwhile. With one
        # time for both, because a job that the mark ended was running at that time.
        inside = [jid for jids in members.values() for jid in jids]
        yield cancelling.mark(self.keys, [*jids, *inside], now=now)
        for jid in members:
            # After the mark: a group that has not started by then does not start any more.
            queue: bytes | None = yield command("HGET", self.keys.batch(jid), "queue")
            if queue is not None:
                batch = batches.Membership(jid, queue.decode("utf-8", "replace"))
                yield from self.end_batch(batch, "cancelled")
        return (yield from cancelling.cancel(self.keys, current, now=now))

    def open_batch(self, batch_id: str, callbacks: Mapping[str, Call], description: str) -> Op[str]:
        """Make a batch; return the name of the queue of its callbacks. [X-BATCH-1]

        Raises:
            ConfigError: The callbacks are in several queues, or middleware stopped one.
        """
        now = self._clock()
        made: dict[str, ReadyPayload] = {}
        for name, call in callbacks.items():
            queue = call.options.get("queue", DEFAULTS["queue"])
            fields = {**(call.fields or {}), CALLBACK: {"id": batch_id, "queue": queue, "on": name}}
            job = yield from self.make(replace_call(call, fields=fields), now=now)
            if job is None:
                raise ConfigError(f"{name}: middleware stopped {call.class_name}; let it pass")
            made[name] = job
        queues = sorted({job.queue for job in made.values()}) or [DEFAULTS["queue"]]
        if len(queues) > 1:
            raise ConfigError(
                f"callbacks: the queues {', '.join(queues)} are not one; give the callbacks of a "
                "batch one queue, by job.options(queue=...)"
            )
        if self._transport.overrides:
            store = self._transport.overrides[-1].batches
            store.make(batch_id, made, queues[0], description)
            return queues[0]
        yield batches.create(
            self.keys, batch_id, made, queue=queues[0], description=description, now=now
        )
        return queues[0]

    def add_to_batch(self, member: batches.Membership, calls: Iterable[Call]) -> Op[list[str]]:
        """Push jobs as members of a batch, in slices; return their ids. [X-BATCH-2] [X-BATCH-3]

        A job that middleware stopped is left out. All jobs are checked before the first is written.

        Raises:
            BatchEnded: The batch takes no members any more.
            InvalidJob: A job must not be written, or takes a lock when it is pushed.
            RedisTrouble: See `push_bulk`.
        """
        now = self._clock()
        pace = _Pace(self._clock)
        made: list[ReadyPayload] = []
        mark = {"id": member.batch, "queue": member.queue}
        for index, call in enumerate(calls):
            if pace.is_over():
                yield from pace.pause()
            fields = {**(call.fields or {}), BATCH: mark}
            job = yield from self.make(replace_call(call, fields=fields), now=now, index=index)
            if job is None:
                continue
            if job.lock is not None and job.lock.at_push:
                problem = (
                    f"a job with the scope {job.lock.scope} cannot be in a batch; use the scope "
                    "while_running, or options(unique=None)"
                )
                raise _with_class(call.class_name, InvalidJob("X-BATCH-2", "unique", problem))
            made.append(job)
        if self._transport.overrides:
            state = self._transport.overrides[-1].batches.add(member.batch, made)
            batches.check_added(member.batch, state.encode())
            yield from deliver(self._transport, made)
        else:
            yield from push_members(self.keys, member.batch, made, self._confirm)
        return [job.jid for job in made]

    def end_batch(
        self, member: batches.Membership, how: Literal["closed", "cancelled"]
    ) -> Op[bool]:
        """Close or cancel a batch; return False if it does not exist. [X-BATCH-4] [X-BATCH-7]"""
        if self._transport.overrides:
            due = self._transport.overrides[-1].batches.end(member.batch, how)
            yield from deliver(self._transport, due or [])
            return due is not None
        generation = yield from self.generation()
        at = batches.time_text(self._clock(), generation)
        return bool((yield batches.script_end(self.keys, member, how, at=at)))

    def batch_status(self, batch_id: str) -> Op[batches.BatchStatus | None]:
        """Return a batch as it is now; None if there is none."""
        if self._transport.overrides:
            return self._transport.overrides[-1].batches.status(batch_id)
        return (yield from batches.read_status(self.keys, batch_id))

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
            raise _with_class(call.class_name, InvalidJob("X-FLOW-2", field, problem))
        class_name, options = call.class_name, call.options
        generation = self._known_generation(now) or (yield from self.generation())
        fields = _checked_fields(class_name, call.fields)
        jid = self._new_jid()
        made = self._ready(
            *(class_name, options, fields, now, generation, call.args, jid, at),
            template=None,
            tail=b"",
            index=index,
        )
        assert isinstance(made, dict)
        ready = yield from self._pass(made, now=now, generation=generation)
        if ready is None or not alone:
            return ready
        return self._completed(ready, class_name, options, index)

    def _completed(
        self,
        ready: ReadyPayload,
        class_name: str,
        options: Mapping[str, Any],
        index: int | None = None,
    ) -> ReadyPayload:
        """Return a job as it is written, compressed and with its wish for a lock."""
        if ready.lock is not None:
            ready = _with_wish(ready, options)
        if self._compress_above is not None:
            ready = self._compressed(ready, self._compress_above)
        if len(ready.text) > self._max_bytes:
            raise self._too_large(class_name, "" if index is None else f"job {index}", ready)
        return ready

    def _given(self, jobs: Sequence[ReadyPayload], on_commit: bool) -> Op[Refused]:
        """Write jobs, at once or when a transaction commits; return those that were refused."""
        deferral = self._transport.deferral
        if deferral is not None and on_commit and (yield from defer(deferral, jobs, self._place)):
            return {}
        return (yield from self._written(jobs))

    def _jids(self, count: int) -> Iterator[str]:
        for start in range(0, count, JIDS_AT_ONCE):
            yield from self._new_jids(min(JIDS_AT_ONCE, count - start))

    def cancel(self, jid: str) -> Op[Cancellation]:
        """Cancel a job. [ITER-7] [X-CANCEL-1]"""
        now = self._clock()
        if self._transport.overrides:
            self._transport.overrides[-1].cancel(jid)
            return Cancellation(int(now), started=False)
        return (yield from cancelling.cancel(self.keys, jid, now=now))

    def result(self, jid: str, timeout: float | None, key_waiter: KeyWaiter) -> Op[Result | None]:
        """Return the result of a job, and wait for one that is final. [X-RESULT-7]

        Args:
            jid: The job id.
            timeout: Seconds to wait; 0 to look once, None for no limit.
            key_waiter: Waits for the key.
        """
        key = self.keys.result(jid)
        if self._transport.overrides:
            text = self._transport.overrides[-1].result(jid)
            return None if text is None else read(jid, text)
        text = yield command("GET", key)
        if timeout != 0 and not is_final(text):
            waiting = (key, is_final, timeout)
            later = yield Local(
                partial(key_waiter.wait, *waiting), partial(key_waiter.await_, *waiting)
            )
            text = later or (yield command("GET", key))
        return None if text is None else read(jid, text)

    def progress(self, jid: str) -> Op[JobProgress | None]:
        """Return the progress that a job has reported. [X-PROG-6]"""
        if self._transport.overrides:
            return self._transport.overrides[-1].progress(jid)
        return progress.read((yield command("GET", self.keys.progress(jid))))

    def _too_large(self, class_name: str, field: str, job: ReadyPayload) -> InvalidJob:
        problem = (
            f"the payload has {len(job.text):,} bytes, the limit is {self._max_bytes:,} "
            "(max_payload_bytes); store the data elsewhere and pass a reference to it"
        )
        return _with_class(class_name, InvalidJob("PUSH-10", field, problem))

    def _accept(self, class_name: str, args: Sequence[Any]) -> list[Any]:
        """Return the arguments, with a warning if a value had to be converted. [PUSH-5]"""
        try:
            return check_args(args)
        except InvalidJob as error:
            converted = check_args(args, strict="off")  # raises if it cannot be converted
            self._warn(f"{_with_class(class_name, error)}; it was converted")
            return converted

    def _template(
        self,
        class_name: str,
        options: Mapping[str, Any],
        moment: float | None,
        now: float,
        generation: Generation,
    ) -> Template | None:
        """Return the template for jobs like this one; None if their options cannot be a key."""
        if not _VARYING.isdisjoint(options):  # each job has a field of its own
            return None
        values = options.values()
        # The key has the types, because True is equal to 1.
        types = (type(class_name), *map(type, values))
        key = (class_name, moment is None, generation, *options, *values, *types)
        try:
            template = self._templates.get(key)
        except TypeError:  # a value is not hashable: a list of tags, or an invalid value
            return None
        if template is None and _REMEMBERED.issuperset(types):
            try:
                item = build(
                    *(class_name, (), options),
                    jid="0" * 24,
                    now=now,
                    generation=generation,
                    at=moment,
                )
            except InvalidJob as error:
                raise _with_class(class_name, error) from None
            template = Template(item, now=now, generation=generation)
            if len(self._templates) >= MAX_TEMPLATES:
                self._templates.clear()
            self._templates[key] = template
        return template

    @staticmethod
    def _compressed(ready: ReadyPayload, least: int) -> ReadyPayload:
        if len(ready.text) <= least:
            return ready
        return ReadyPayload(
            ready.jid, ready.queue, ready.at, compress(ready.text, least), ready.lock
        )

    def _pass(
        self, item: JobFields, *, now: float, generation: Generation
    ) -> Op[ReadyPayload | None]:
        """Pass an item through the middleware; return None if that stopped it. [PUSH-7]"""
        if self.middleware:
            through = (self.middleware, item, lambda: item)
            passed = yield Local(
                partial(middleware.run, *through), partial(middleware.arun, *through)
            )
            if passed is None:
                return None
            item = passed
        return finalize(item, now=now, generation=generation)


# Options that make such fields.
_VARYING = frozenset(["expires_in", "unique", "limit"])
# Fields whose values differ between jobs of one push.
_OWN_FIELDS = frozenset([EXPIRES_AT, UNIQUE, LIMIT])
# Fields that parameters set.
_PARAMETERS = frozenset(["class", "args", "jid", "at", "queue", "retry"])
# Fields that a push leaves out or replaces. [PAY-14] [PUSH-3]
_REPLACED = FAILURE_FIELDS | {"enqueued_at"}


def _checked_fields(class_name: str, fields: Mapping[str, Any] | None) -> Mapping[str, Any]:
    for field in fields or {}:
        if not isinstance(field, str):
            error = InvalidJob("PUSH-5", "fields", f"key {field!r} is not a string")
            raise _with_class(class_name, error)
        if field in _PARAMETERS:
            problem = "cannot be set here; a parameter sets it"
            raise _with_class(class_name, InvalidJob("PUSH-4", f"fields[{field!r}]", problem))
    return {name: value for name, value in (fields or {}).items() if name not in _REPLACED}


def _with_wish(ready: ReadyPayload, options: Mapping[str, Any]) -> ReadyPayload:
    """Return a unique job that says whether it replaces another."""
    wish = options.get("unique")
    if ready.lock is None or not isinstance(wish, Unique) or wish.duplicate != "replace":
        return ready
    lock = msgspec.structs.replace(ready.lock, replaces=True)
    return msgspec.structs.replace(ready, lock=lock)


def _dropped(class_name: str, options: Mapping[str, Any], holder: str) -> str | None:
    """Return None for a job that is dropped because another has its key, or raise. [X-UNIQ-4]"""
    wish = options.get("unique")
    if not isinstance(wish, Unique) or wish.duplicate != "drop":
        raise DuplicateJob(holder, class_name)
    return None


def _with_class(class_name: str, error: InvalidJob) -> InvalidJob:
    """Return the error with the class of its job."""
    if error.field != "class":
        error.job_class = class_name
    return error


def _moment(at: When | None, *, now: float, soon: bool) -> float | None:
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
    namespace: str,
    generation: GenerationSetting,
    strict_args: StrictArgs,
    middleware: Sequence[ClientMiddleware | AsyncClientMiddleware],
    confirm: Confirm | None = None,
    transport: Transport | None = None,
    max_payload_bytes: int | None = MAX_PAYLOAD_BYTES,
    compress_above: int | None = None,
    place: str = "",
) -> Producer:
    """Return a producer with the system's clock and random source, for either client."""
    return Producer(
        Keys(namespace),
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
        place=place,
        warn=_log.warning,
    )


def make_confirm(wait_replicas: int, timeout: float) -> Confirm | None:
    """Return the confirmation to ask of replicas, within half of the client's timeout. [ENV-3]"""
    if type(wait_replicas) is not int or wait_replicas < 0:
        raise ConfigError(
            f"wait_replicas: {wait_replicas!r} is not a number of replicas (0 or more)"
        )
    return Confirm(wait_replicas, timeout / 2) if wait_replicas else None
