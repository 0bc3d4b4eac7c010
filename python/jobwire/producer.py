"""Everything a client does, as operations; the sync and asyncio clients only run them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

from jobwire import times
from jobwire.arguments import StrictArgs
from jobwire.errors import ConfigError, InvalidJob, NoReply, RedisUnreachable
from jobwire.keys import Keys
from jobwire.normalize import ClientMiddleware, Item, Sealed, draft, seal
from jobwire.pushing import bulk_times, detect_generation, push, push_bulk
from jobwire.times import Generation, When
from jobwire.wire import Op

__all__ = ["GenerationSetting", "Producer", "run_middleware"]

GenerationSetting = Literal["auto", 7, 8]
DETECT_EVERY = 60.0  # seconds for which the fleet is taken to stay the same


class Producer:
    """Makes payloads and the operations that write them.

    Args:
        keys: Key names.
        generation: How to write times; `auto` asks the processes in Redis. [GEN-5]
        strict_args: What to do with arguments that JSON does not have.
        middleware: Client middleware, outermost first. [PUSH-7]
        clock: Returns epoch seconds.
        new_jid: Returns a fresh job id. [PAY-9]
        draw: Returns a uniform number in [0, 1).
    """

    def __init__(
        self,
        keys: Keys,
        *,
        generation: GenerationSetting,
        strict_args: StrictArgs,
        middleware: Sequence[ClientMiddleware],
        clock: Callable[[], float],
        new_jid: Callable[[], str],
        draw: Callable[[], float],
    ) -> None:
        if generation not in ("auto", 7, 8):
            raise ConfigError(f"generation: {generation!r} is neither 'auto' nor 7 nor 8")
        if strict_args not in ("raise", "off"):
            raise ConfigError(f"strict_args: {strict_args!r} is neither 'raise' nor 'off'")
        self.keys = keys
        self.middleware = list(middleware)
        self._strict = strict_args
        self._clock = clock
        self._new_jid = new_jid
        self._draw = draw
        self._setting = generation
        self._detected: tuple[Generation, float] | None = None

    def generation(self) -> Op[Generation]:
        """Return the generation to write, asking at most once a minute. [GEN-5]"""
        if self._setting != "auto":
            return self._setting
        now = self._clock()
        if self._detected is None or not 0 <= now - self._detected[1] < DETECT_EVERY:
            try:
                self._detected = (yield from detect_generation(self.keys)), now
            except NoReply as error:  # it was only a question
                raise RedisUnreachable(f"{error}; nothing was written") from error
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
        generation = yield from self.generation()
        item = draft(
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
        sealed = self._pass(item, now=now, generation=generation)
        if sealed is None:
            return None
        yield from push(self.keys, [sealed])
        return sealed.jid

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
        jobs: list[Sealed | None] = []
        for index, (args, moment) in enumerate(zip(every, moments, strict=True)):
            try:
                item = draft(
                    class_name,
                    args,
                    options,
                    jid=self._new_jid(),
                    now=now,
                    generation=generation,
                    at=moment,
                    fields=checked,
                    strict=self._strict,
                )
            except InvalidJob as error:
                raise InvalidJob(error.rule, f"job {index}: {error.field}", error.problem) from None
            jobs.append(self._pass(item, now=now, generation=generation))
        yield from push_bulk(self.keys, [job for job in jobs if job is not None])
        return [None if job is None else job.jid for job in jobs]

    def _pass(self, item: Item, *, now: float, generation: Generation) -> Sealed | None:
        if not self.middleware:
            return seal(item, now=now, generation=generation)
        final = run_middleware(self.middleware, item)
        return None if final is None else seal(final, now=now, generation=generation)


def run_middleware(chain: Sequence[ClientMiddleware], item: Item) -> Item | None:
    """Return the item as the chain leaves it, or None if it was stopped. [PUSH-7]"""

    def layer(index: int) -> Item | None:
        if index == len(chain):
            return item
        return chain[index](item, lambda: layer(index + 1))

    return layer(0)


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
