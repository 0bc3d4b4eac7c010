"""Payloads: from the class, arguments and options of a job to the text that is written."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from jobwire.application import middleware
from jobwire.errors import ConfigError, InvalidJob
from jobwire.protocol.arguments import StrictArgs, check_args
from jobwire.protocol.compression import compress
from jobwire.protocol.expiry import EXPIRES_AT
from jobwire.protocol.limits import LIMIT
from jobwire.protocol.normalize import (
    FAILURE_FIELDS,
    AsyncClientMiddleware,
    ClientMiddleware,
    JobFields,
    ReadyPayload,
    build,
    finalize,
)
from jobwire.protocol.template import Template
from jobwire.protocol.times import Generation
from jobwire.protocol.unique import UNIQUE, Unique
from jobwire.protocol.wire import Local, Op

__all__ = ["MAX_PAYLOAD_BYTES", "PayloadMaker", "checked_fields", "with_class"]

MAX_PAYLOAD_BYTES = 8 * 1024 * 1024  # [PUSH-10]
MAX_TEMPLATES = 1_000
_REMEMBERED = frozenset([str, int, bool, float, type(None)])
# Options that make a field of its own for each job.
_VARYING = frozenset(["expires_in", "unique", "limit"])
# Those fields.
_OWN_FIELDS = frozenset([EXPIRES_AT, UNIQUE, LIMIT])
# Fields that parameters set.
_PARAMETERS = frozenset(["class", "args", "jid", "at", "queue", "retry"])
# Fields that a push leaves out or replaces. [PAY-14] [PUSH-3]
_REPLACED = FAILURE_FIELDS | {"enqueued_at"}


class PayloadMaker:
    """Makes the payloads of one client.

    Args:
        strict_args: Treatment of arguments for which JSON has no type.
        middleware: Client middleware, outermost first; read again for every push. [PUSH-7]
        max_payload_bytes: Size of the largest payload to write; None for no limit. [PUSH-10]
        compress_above: Compress arguments of so many bytes of JSON or more; None: none. [X-ZIP-4]
        warn: Called with the warnings of `strict_args="warn"`.

    Raises:
        ConfigError: A setting is invalid.
    """

    def __init__(
        self,
        strict_args: StrictArgs,
        middleware: Sequence[ClientMiddleware | AsyncClientMiddleware],
        max_payload_bytes: int | None,
        compress_above: int | None,
        warn: Callable[[str], object],
    ) -> None:
        if strict_args not in ("raise", "warn", "off"):
            raise ConfigError(f"strict_args: {strict_args!r} is not one of 'raise', 'warn', 'off'")
        if max_payload_bytes is not None and (
            type(max_payload_bytes) is not int or max_payload_bytes < 1
        ):
            raise ConfigError(
                f"max_payload_bytes: {max_payload_bytes!r} is not a number of bytes "
                "(1 or more), or None for no limit"
            )
        if compress_above is not None and (type(compress_above) is not int or compress_above < 1):
            raise ConfigError(
                f"compress_above: {compress_above!r} is not a number of bytes (1 or more), or None"
            )
        self.middleware = middleware
        self._strict = strict_args
        self._max_bytes = math.inf if max_payload_bytes is None else max_payload_bytes
        self._compress_above = compress_above
        self._warn = warn
        self._templates: dict[tuple[object, ...], Template] = {}

    def template(
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
                raise with_class(class_name, error) from None
            template = Template(item, now=now, generation=generation)
            if len(self._templates) >= MAX_TEMPLATES:
                self._templates.clear()
            self._templates[key] = template
        return template

    def bulk_template(
        self,
        item: JobFields,
        options: Mapping[str, Any],
        fields: Mapping[str, Any],
        now: float,
        generation: Generation,
    ) -> Template | None:
        """Return the template for the other jobs of a bulk push; None if they differ in more."""
        own, by = _OWN_FIELDS.intersection(item), None
        if (unique := options.get("unique")) is not None and UNIQUE not in fields:
            own, by = own - {UNIQUE}, unique.by if isinstance(unique, Unique) else None
        if self.middleware or own:
            return None
        return Template(item, now=now, generation=generation, by=by)

    def draft(
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
            raise with_class(class_name, error) from None

    def alike(
        self,
        template: Template,
        tail: bytes,
        many: Sequence[Sequence[Any]],
        jids: Sequence[str],
        moments: Sequence[float | None],
    ) -> list[ReadyPayload] | None:
        """Return many jobs of a template, complete; None if `draft` must make each of them."""
        jobs = template.jobs(many, jids, moments, tail) if self._compress_above is None else None
        if jobs is None or max([len(job.text) for job in jobs]) > self._max_bytes:
            return None
        return jobs

    def finish(
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

    def complete(
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

    @staticmethod
    def _compressed(ready: ReadyPayload, least: int) -> ReadyPayload:
        if len(ready.text) <= least:
            return ready
        return ready.with_text(compress(ready.text, least))

    def _too_large(self, class_name: str, field: str, job: ReadyPayload) -> InvalidJob:
        problem = (
            f"the payload has {len(job.text):,} bytes, the limit is {self._max_bytes:,} "
            "(max_payload_bytes); store the data elsewhere and pass a reference to it"
        )
        return with_class(class_name, InvalidJob("PUSH-10", field, problem))

    def _accept(self, class_name: str, args: Sequence[Any]) -> list[Any]:
        """Return the arguments, with a warning if a value had to be converted. [PUSH-5]"""
        try:
            return check_args(args)
        except InvalidJob as error:
            converted = check_args(args, strict="off")  # raises if it cannot be converted
            self._warn(f"{with_class(class_name, error)}; it was converted")
            return converted


def checked_fields(class_name: str, fields: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return the fields that a push writes; refuse those that a parameter sets. [PUSH-4]"""
    for field in fields or {}:
        if not isinstance(field, str):
            error = InvalidJob("PUSH-5", "fields", f"key {field!r} is not a string")
            raise with_class(class_name, error)
        if field in _PARAMETERS:
            problem = "cannot be set here; a parameter sets it"
            raise with_class(class_name, InvalidJob("PUSH-4", f"fields[{field!r}]", problem))
    return {name: value for name, value in (fields or {}).items() if name not in _REPLACED}


def _with_wish(ready: ReadyPayload, options: Mapping[str, Any]) -> ReadyPayload:
    """Return a unique job that says whether it replaces another."""
    wish = options.get("unique")
    if ready.lock is None or not isinstance(wish, Unique) or wish.duplicate != "replace":
        return ready
    lock = msgspec.structs.replace(ready.lock, replaces=True)
    return msgspec.structs.replace(ready, lock=lock)


def with_class(class_name: str, error: InvalidJob) -> InvalidJob:
    """Return the error with the class of its job."""
    if error.field != "class":
        error.job_class = class_name
    return error
