"""A periodic entry: its definition, the hash in Redis, and the payload of a tick.

The hash has the form of sidekiq-cron, whose processes read and write the same entries.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec

from jobwire.errors import ConfigError, InvalidJob
from jobwire.protocol import active_job
from jobwire.protocol.arguments import check_args
from jobwire.protocol.normalize import (
    FAILURE_FIELDS,
    Options,
    ReadyPayload,
    check_options,
    finalize,
)
from jobwire.protocol.payload import encode
from jobwire.protocol.times import Generation, stamp

__all__ = [
    "DEFAULT_NAMESPACE",
    "FIELDS",
    "GRACE_S",
    "HISTORY",
    "REMEMBER_S",
    "CatchUp",
    "Overlap",
    "PeriodicEntry",
    "StoredEntry",
    "catch_up",
    "history_entry",
    "stored_time",
    "tick_member",
]

DEFAULT_NAMESPACE = "default"
GRACE_S = 60  # how late a tick may be, in whole seconds [X-CRON-16]
REMEMBER_S = 86_400  # how long ticks that were taken stay [X-CRON-23]
HISTORY = 10  # pushes in the history [X-CRON-6]
MAX_CAUGHT_UP = 1_000

Overlap = Literal["allow", "skip"]

FIELDS = (
    *("name", "namespace", "klass", "class", "cron", "jw_tz", "status", "args", "message", "queue"),
    *("date_as_argument", "active_job", "queue_name_prefix", "queue_name_delimiter"),
    *("jw_catch_up", "jw_overlap"),
)
"""The fields of the hash that decide when an entry is due, and which job is pushed then."""

_NAME = re.compile(r"\S(?:.*\S)?", re.DOTALL)
_ALL = re.compile(r"all(?::(\d{1,4}))?")
_decode = msgspec.json.Decoder().decode


class CatchUp(msgspec.Struct, frozen=True):
    """The rule for ticks that are later than the grace period. [X-CRON-24]

    Attributes:
        most: How many of the newest ticks are made up for, at most.
        since_last: True to make up only for ticks after the last one that was taken.
    """

    most: int
    since_last: bool


def catch_up(text: str | None) -> CatchUp | None:
    """Return the rule that the field `jw_catch_up` holds; None if late ticks are left out."""
    if text == "last":
        return CatchUp(1, since_last=False)
    match = _ALL.fullmatch(text or "")
    most = 0 if match is None else int(match[1] or MAX_CAUGHT_UP)
    return CatchUp(most, since_last=True) if 0 < most <= MAX_CAUGHT_UP else None


def tick_member(tick: int) -> str:
    """Return the member for a tick in the set of those that were taken. [X-CRON-4]"""
    return datetime.fromtimestamp(tick, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def stored_time(instant: float) -> str:
    """Return a time as `last_enqueue_time` holds it. [X-CRON-7]"""
    return datetime.fromtimestamp(instant // 1, UTC).strftime("%Y-%m-%d %H:%M:%S +0000")


def history_entry(jid: str, now: float) -> bytes:
    """Return the entry of the history for a push. [X-CRON-6]"""
    pushed = datetime.fromtimestamp(now // 1, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    return encode({"jid": jid, "enqueued": pushed})


@dataclass(frozen=True, slots=True, kw_only=True)
class PeriodicEntry:
    """The definition of a periodic job, to be written.

    Raises:
        ConfigError: A value is invalid. [X-CRON-43]
    """

    name: str
    """Name of the entry, unique in its namespace."""
    cron: str
    """The cron line, with its zone at the end."""
    job: str
    """Wire class of the job, which may exist only in Ruby."""
    args: Sequence[Any] = ()
    """Arguments of the job, as JSON values."""
    namespace: str = DEFAULT_NAMESPACE
    """Namespace of the entry; layout 1 has none."""
    description: str = ""
    """A text for people."""
    enabled: bool | None = None
    """None keeps the status that the entry has; a new entry is enabled."""
    options: Options = field(default_factory=lambda: Options())
    """Options of the job: queue, retry, tags and so on."""
    date_as_argument: bool = False
    """Add the time of the push, in seconds as a float, as the last argument."""
    active_job: bool = False
    """The class is one of Active Job, so the payload is wrapped."""
    queue_name_prefix: str = ""
    """Prefix of the queue of an Active Job."""
    queue_name_delimiter: str = ""
    """Delimiter behind that prefix; `_` if it is empty."""
    symbolize_args: bool = False
    """For Active Job in Ruby: names in arguments become symbols."""
    catch_up: str = "none"
    """`none`, `last`, `all` or `all:MAX`: the rule for ticks that no process took in time."""
    overlap: Overlap = "allow"
    """`skip`: no push while the job of the last push is in its queue or runs."""

    def __post_init__(self) -> None:
        shown = f"periodic job {self.name!r}"
        for what in ("name", "cron", "job", "namespace"):
            value = getattr(self, what)
            if not isinstance(value, str) or not _NAME.fullmatch(value):
                raise ConfigError(
                    f"{shown}: {what} {value!r} must be a non-empty string without leading or "
                    "trailing spaces"
                )
        if self.catch_up not in ("none", "last", "all") and catch_up(self.catch_up) is None:
            raise ConfigError(
                f"{shown}: catch_up {self.catch_up!r} is not one of 'none', 'last', 'all', "
                f"'all:MAX', with MAX from 1 to {MAX_CAUGHT_UP}"
            )
        if self.overlap not in ("allow", "skip"):
            raise ConfigError(f"{shown}: overlap {self.overlap!r} is not one of 'allow', 'skip'")
        if isinstance(self.args, str | bytes) or not isinstance(self.args, Sequence):
            raise ConfigError(f"{shown}: args {self.args!r} is not a list, like [1, 'two']")
        try:
            check_args(self.args, strict="raise")
            check_options(self.options)
        except InvalidJob as error:
            raise ConfigError(f"{shown}: {error}") from None

    def fields(self, *, layout: int) -> dict[str, str]:
        """Return the fields to write, but for those that `defaults` has. [X-CRON-33]"""
        yes, no = ("1", "0") if layout == 2 else ("true", "false")
        message = {
            **{"retry": True, "queue": "default", **self.options},
            **{"class": self.job, "args": list(self.args)},
        }
        fields = {
            "name": self.name,
            "namespace": self.namespace,
            "klass": self.job,
            "cron": self.cron,
            "description": self.description,
            "args": encode(list(self.args)).decode(),
            "date_as_argument": yes if self.date_as_argument else no,
            "message": encode(message).decode(),
            "active_job": yes if self.active_job else no,
            "queue_name_prefix": self.queue_name_prefix,
            "queue_name_delimiter": self.queue_name_delimiter,
            "retry": encode(message["retry"]).decode(),
            "symbolize_args": yes if self.symbolize_args else no,
            "jw_catch_up": self.catch_up,
            "jw_overlap": self.overlap,
        }
        if layout == 1:
            del fields["namespace"], fields["retry"]
        if self.enabled is not None:
            fields["status"] = "enabled" if self.enabled else "disabled"
        return fields

    def defaults(self, *, layout: int) -> dict[str, str]:
        """Return the fields to write only if the entry does not have them. [X-CRON-34]"""
        defaults = {"status": "enabled", "last_enqueue_time": "", "source": "dynamic"}
        return {name: defaults[name] for name in defaults if name not in self.fields(layout=layout)}


class StoredEntry(msgspec.Struct, frozen=True):
    """An entry as it stands in Redis.

    Attributes:
        member: The name of its hash, as in the set of entries.
        layout_namespace: The namespace in the name of that set; None in layout 1.
        fields: All fields of the hash.
        digest: Digest of the fields `FIELDS`, as the scripts compute it.
    """

    member: str
    layout_namespace: str | None
    fields: Mapping[str, str]
    digest: str = ""

    @property
    def name(self) -> str:
        """Name of the entry, also of one whose hash is damaged."""
        prefix = "cron_job:"
        if self.layout_namespace is not None:
            prefix += f"{self.layout_namespace}:"
        return self.fields.get("name") or self.member.removeprefix(prefix)

    @property
    def namespace(self) -> str:
        """Its namespace, `default` in layout 1."""
        return DEFAULT_NAMESPACE if self.layout_namespace is None else self.layout_namespace

    @property
    def job(self) -> str:
        """Wire class of the job."""
        return self.fields.get("klass") or self.fields.get("class", "")

    @property
    def cron(self) -> str:
        """The cron line."""
        return self.fields.get("cron", "")

    @property
    def enabled(self) -> bool:
        """True if ticks are taken: a missing status means enabled. [X-CRON-19]"""
        return self.fields.get("status", "enabled") == "enabled"

    @property
    def schedule(self) -> str:
        """Name of the schedule that it came from; `""` for a dynamic entry. [X-CRON-38]"""
        return self.fields.get("jw_source") or (
            "sidekiq-cron" if self.fields.get("source") == "schedule" else ""
        )

    @property
    def catch_up(self) -> CatchUp | None:
        """The rule for late ticks; None if they are left out. [X-CRON-24]"""
        return catch_up(self.fields.get("jw_catch_up"))

    @property
    def skips_overlap(self) -> bool:
        """True if no job is pushed while the one before is not finished. [X-CRON-26]"""
        return self.fields.get("jw_overlap") == "skip"

    @property
    def args(self) -> list[Any]:
        """Arguments of its jobs, but for the time of the push. [X-CRON-30]"""
        text = self.fields.get("args")
        if text is None:
            return []
        try:
            value = _decode(text)
        except msgspec.DecodeError:
            return [text]
        if value is None:
            return []
        if isinstance(value, dict):
            return [[name, inner] for name, inner in value.items()]
        return value if isinstance(value, list) else [value]

    @property
    def problem(self) -> str:
        """The reason why no process takes its ticks; `""` if there is none. [X-CRON-28]

        The cron line is not looked at.
        """
        for name, value in (("klass", self.job), ("cron", self.cron)):
            if not value.strip():
                return f"{name} is missing"
        if "name" not in self.fields:
            return "name is missing"
        namespace = "" if self.layout_namespace is None else f"{self.layout_namespace}:"
        if f"cron_job:{namespace}{self.fields['name']}" != self.member:
            return f"name {self.fields['name']!r} does not belong to the key {self.member}"
        return "" if self._message() is not None else "message is not a JSON object"

    def payload(
        self, *, jid: str, now: float, generation: Generation, job_id: str = ""
    ) -> ReadyPayload:
        """Return the payload of one push. [X-CRON-29] [X-CRON-31] [X-CRON-32]

        Args:
            jid: The job id.
            now: Epoch seconds.
            generation: Generation of the times to write.
            job_id: The id that Active Job uses, for an entry that it wraps.

        Raises:
            InvalidJob: The entry cannot be pushed.
        """
        message = self._message()
        if message is None:
            raise InvalidJob("X-CRON-28", "message", "is not a JSON object")
        queue = message.get("queue") or self.fields.get("queue") or "default"
        args = [*self.args, float(now)] if self._true("date_as_argument") else self.args
        item = {"retry": True, "queue": queue, **message, "class": self.job, "args": args}
        item["queue"] = queue
        for name in (*FAILURE_FIELDS, "at", "created_at", "enqueued_at", "jid"):
            item.pop(name, None)
        if self._true("active_job"):
            self._wrap(item, job_id)
        item |= {"jid": jid, "created_at": stamp(now, generation)}
        return finalize(item, now=now, generation=generation)

    def _wrap(self, item: dict[str, Any], job_id: str) -> None:
        if prefix := self.fields.get("queue_name_prefix"):
            delimiter = self.fields.get("queue_name_delimiter") or "_"
            item["queue"] = f"{prefix}{delimiter}{item['queue']}"
        wrapped = {
            "job_class": self.job,
            "job_id": job_id,
            "queue_name": item["queue"],
            "arguments": item["args"],
        }
        item |= {"class": active_job.WRAPPER, "wrapped": self.job, "args": [wrapped]}

    def _true(self, name: str) -> bool:
        return self.fields.get(name) in ("1", "true")

    def _message(self) -> dict[str, Any] | None:
        text = self.fields.get("message")
        if not text:
            return {}
        try:
            message = _decode(text)
        except msgspec.DecodeError:
            return None
        return message if isinstance(message, dict) else None
