"""Everything a client does, as operations; the sync and asyncio clients only run them."""

from __future__ import annotations

import logging
import os
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Literal

from jobwire.application import middleware
from jobwire.application.delivery import Transport, deliver
from jobwire.errors import ConfigError, InvalidJob, NoReply, RedisUnreachable
from jobwire.protocol import iteration, times
from jobwire.protocol.arguments import StrictArgs, check_args
from jobwire.protocol.keys import Keys
from jobwire.protocol.normalize import (
    AsyncClientMiddleware,
    ClientMiddleware,
    JobFields,
    ReadyPayload,
    build,
    finalize,
)
from jobwire.protocol.pushing import bulk_times, detect_generation, push, push_bulk
from jobwire.protocol.template import Template
from jobwire.protocol.times import Generation, When
from jobwire.protocol.wire import Confirm, Local, Op

__all__ = ["GenerationSetting", "Producer", "make_confirm", "make_producer"]

GenerationSetting = Literal["auto", 7, 8]
DETECT_EVERY = 60.0  # seconds for which the fleet is taken to stay the same
MOST_TEMPLATES = 1_000
_REMEMBERED = frozenset([str, int, bool, float, type(None)])

_log = logging.getLogger("jobwire.client")


class Producer:
    """Makes payloads and the operations that write them.

    Args:
        keys: Key names.
        generation: How to write times; `auto` asks the processes in Redis. [GEN-5]
        strict_args: What to do with arguments that JSON does not have.
        middleware: Client middleware, outermost first; looked at with every push. [PUSH-7]
        clock: Returns epoch seconds.
        new_jid: Returns a fresh job id. [PAY-9]
        draw: Returns a uniform number in [0, 1).
        new_jids: Returns so many fresh job ids.
        confirm: How many replicas have to have a job before a push counts as done. [PUSH-8]
        transport: Where the jobs go; Redis by default.
        warn: Called with what `strict_args="warn"` has to say.
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
        transport: Transport | None = None,
        warn: Callable[[str], object] = lambda _: None,
    ) -> None:
        if generation not in ("auto", 7, 8):
            raise ConfigError(f"generation: {generation!r} is neither 'auto' nor 7 nor 8")
        if strict_args not in ("raise", "warn", "off"):
            raise ConfigError(f"strict_args: {strict_args!r} is none of 'raise', 'warn', 'off'")
        self.keys = keys
        self.middleware = middleware
        self._strict = strict_args
        self._clock = clock
        self._new_jid = new_jid
        self._new_jids = new_jids or (lambda count: [new_jid() for _ in range(count)])
        self._confirm = confirm
        self._transport = Transport() if transport is None else transport
        self._warn = warn
        self._templates: dict[tuple[object, ...], Template] = {}
        self._draw = draw
        self._setting = generation
        self._detected: tuple[Generation, float] | None = None

    def generation(self) -> Op[Generation]:
        """Return the generation to write, asking at most once a minute. [GEN-5]"""
        now = self._clock()
        known = self._known_generation(now)
        if known is not None:
            return known
        if self._transport.diverted:
            return 8  # there is nobody to ask
        try:
            found = yield from detect_generation(self.keys)
        except NoReply as error:  # it was only a question
            raise RedisUnreachable(f"{error}; nothing was written") from error
        self._detected = found, now
        return found

    def _known_generation(self, now: float) -> Generation | None:
        if self._setting != "auto":
            return self._setting
        if self._detected is None or not 0 <= now - self._detected[1] < DETECT_EVERY:
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
    ) -> Op[str | None]:
        """Push one job; return its id, or None if middleware stopped it.

        Args:
            class_name: Wire class.
            args: Positional arguments.
            options: As in `Options`.
            at: When to run; None for at once.
            soon: `at` may be relative, and a time that is not in the future means at once
                [SCHED-2] [SCHED-3]. Otherwise `at` is absolute and always scheduled.
            jid: The job id, if not a fresh one.
            fields: Further payload fields.
        """
        now = self._clock()
        moment = _moment(at, now=now, soon=soon)
        generation = self._known_generation(now) or (yield from self.generation())
        ready: ReadyPayload | None
        item: JobFields | None = None
        try:
            if self._strict == "warn":
                args = self._accept(class_name, args)
            template = None
            if jid is None and not fields and not self.middleware:
                template = self._template(class_name, options, moment, now, generation)
            if template is not None:
                tail = template.tail(now)
                ready = template.job(args, self._new_jid(), tail, at=moment, strict=self._strict)
            else:
                item = build(
                    class_name,
                    args,
                    options,
                    jid=self._new_jid() if jid is None else jid,
                    now=now,
                    generation=generation,
                    at=moment,
                    fields=_checked_fields(fields),
                    strict=self._strict,
                )
        except InvalidJob as error:
            raise _of(class_name, error) from None
        if item is not None:
            ready = yield from self._pass(item, now=now, generation=generation)
        if ready is None:
            return None
        if self._transport.diverted:
            yield from deliver(self._transport, [ready])
        else:
            yield from push(self.keys, [ready], self._confirm)
        return ready.jid

    def push_bulk(
        self,
        class_name: str,
        args_list: Iterable[Sequence[Any]],
        options: Mapping[str, Any],
        *,
        at: When | Sequence[When] | None = None,
        spread_interval: float | None = None,
        fields: Mapping[str, Any] | None = None,
    ) -> Op[list[str | None]]:
        """Push a job for each list of arguments; return their ids in order.

        All are checked before the first is written. A job that middleware stopped has None in
        its place. [BULK-1] [BULK-2] [BULK-3] [BULK-4] [BULK-5] [BULK-6]
        """
        now = self._clock()
        every = list(args_list)
        moments = bulk_times(
            len(every),
            at=_absolute(at, now=now),
            spread_interval=spread_interval,
            now=now,
            draws=[self._draw() for _ in every] if spread_interval is not None else (),
        )
        generation = yield from self.generation()
        checked = _checked_fields(fields)
        jids = self._new_jids(len(every))
        jobs: list[ReadyPayload | None] = []
        template: Template | None = None
        tail = b""
        for args, moment, jid in zip(every, moments, jids, strict=True):
            try:
                if self._strict == "warn":
                    args = self._accept(class_name, args)
                if template is not None:
                    jobs.append(template.job(args, jid, tail, at=moment, strict=self._strict))
                    continue
                item = build(
                    class_name,
                    args,
                    options,
                    jid=jid,
                    now=now,
                    generation=generation,
                    at=moment,
                    fields=checked,
                    strict=self._strict,
                )
            except InvalidJob as error:
                where = f"job {len(jobs)}: {error.field}"
                raise _of(class_name, InvalidJob(error.rule, where, error.problem)) from None
            jobs.append((yield from self._pass(item, now=now, generation=generation)))
            if not self.middleware:
                template = Template(item, now=now, generation=generation)
                tail = template.tail(now)
        passed = [job for job in jobs if job is not None]
        if self._transport.diverted:
            yield from deliver(self._transport, passed)
        else:
            yield from push_bulk(self.keys, passed, self._confirm)
        return [None if job is None else job.jid for job in jobs]

    def cancel(self, jid: str) -> Op[int]:
        """Ask an iterable job to end; return the epoch second of the first such wish. [ITER-7]"""
        now = self._clock()
        if self._transport.diverted:
            self._transport.diverted[-1].cancel(jid)
            return int(now)
        return (yield from iteration.cancel(self.keys, jid, now=now))

    def _accept(self, class_name: str, args: Sequence[Any]) -> list[Any]:
        """Return the arguments as JSON has them, saying which one it does not have. [PUSH-5]"""
        try:
            return check_args(args)
        except InvalidJob as error:
            converted = check_args(args, strict="off")  # or it is refused after all
            self._warn(f"{_of(class_name, error)}; it was converted")
            return converted

    def _template(
        self,
        class_name: str,
        options: Mapping[str, Any],
        moment: float | None,
        now: float,
        generation: Generation,
    ) -> Template | None:
        """Return the template for jobs like this one; None if such jobs are not remembered."""
        values = options.values()
        # With the types, because True is equal to 1.
        kinds = (type(class_name), *map(type, values))
        key = (class_name, moment is None, generation, *options, *values, *kinds)
        try:
            found = self._templates.get(key)
        except TypeError:  # a list of tags, or nothing that could be written
            return None
        if found is None and _REMEMBERED.issuperset(kinds):
            item = build(
                class_name,
                (),
                options,
                jid="0" * 24,
                now=now,
                generation=generation,
                at=moment,
            )
            found = Template(item, now=now, generation=generation)
            if len(self._templates) >= MOST_TEMPLATES:
                self._templates.clear()
            self._templates[key] = found
        return found

    def _pass(
        self, item: JobFields, *, now: float, generation: Generation
    ) -> Op[ReadyPayload | None]:
        """Send an item through the middleware; None if that stopped it. [PUSH-7]"""
        if self.middleware:
            through = (self.middleware, item, lambda: item)
            passed = yield Local(
                partial(middleware.run, *through), partial(middleware.arun, *through)
            )
            if passed is None:
                return None
            item = passed
        return finalize(item, now=now, generation=generation)


_WRITTEN = ("class", "args", "jid", "at", "queue", "retry", "enqueued_at")  # by parameter or push
_FAILURE = ("retry_count", "failed_at", "retried_at", "error_message", "error_class")
_OWNED = frozenset([*_WRITTEN, *_FAILURE, "error_backtrace"])  # [PAY-14]


def _checked_fields(fields: Mapping[str, Any] | None) -> Mapping[str, Any]:
    for field in fields or {}:
        if not isinstance(field, str):
            raise InvalidJob("PUSH-5", "fields", f"key {field!r} is not text")
        if field in _OWNED:
            raise InvalidJob(
                "PUSH-4",
                f"fields[{field!r}]",
                "has a parameter of its own, or is for workers to write",
            )
    return fields or {}


def _of(class_name: str, error: InvalidJob) -> InvalidJob:
    """Return an error that says which job it is about."""
    if error.field != "class":
        error.job_class = class_name
    return error


def _moment(at: When | None, *, now: float, soon: bool) -> float | None:
    if at is None:
        return None
    if not soon:
        return times.absolute(at, now=now)
    moment = times.instant(at, now=now)
    return moment if moment > now else None


def _absolute(at: When | Sequence[When] | None, *, now: float) -> float | Sequence[float] | None:
    if at is None:
        return None
    if isinstance(at, Sequence):
        return [
            times.absolute(each, now=now, field=f"at[{index}]") for index, each in enumerate(at)
        ]
    return times.absolute(at, now=now)


def new_jid() -> str:
    """Return a fresh job id: 24 hex digits from the system's random source. [PAY-9]"""
    return os.urandom(12).hex()


def new_jids(count: int) -> list[str]:
    """Return `count` fresh job ids, from one call to the system."""
    digits = os.urandom(12 * count).hex()
    return [digits[start : start + 24] for start in range(0, 24 * count, 24)]


def make_producer(
    namespace: str,
    generation: GenerationSetting,
    strict_args: StrictArgs,
    middleware: Sequence[ClientMiddleware | AsyncClientMiddleware],
    confirm: Confirm | None = None,
    transport: Transport | None = None,
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
        transport=transport,
        warn=_log.warning,
    )


def make_confirm(wait_replicas: int, timeout: float) -> Confirm | None:
    """Return what a client asks of replicas; they get half of its own timeout. [ENV-3]"""
    if type(wait_replicas) is not int or wait_replicas < 0:
        raise ConfigError(f"wait_replicas: {wait_replicas!r} is not a number of replicas from 0")
    return Confirm(wait_replicas, timeout / 2) if wait_replicas else None
