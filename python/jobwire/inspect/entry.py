"""One job as it lies in Redis, whatever it looks like. [INSP-3]"""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from jobwire.errors import MalformedPayload
from jobwire.inspect import display
from jobwire.inspect.reading import decode_json, text
from jobwire.protocol import times
from jobwire.protocol.payload import decode

__all__ = ["QUEUE", "Entry", "SetName", "backtrace_lines", "entry"]

SetName = Literal["schedule", "retry", "dead", "unreadable"]
QUEUE = "queue:"
MAX_BACKTRACE = 1_000_000  # bytes unpacked: a few kilobytes can hide gigabytes


@dataclass(frozen=True, slots=True)
class Entry:
    """A job in a queue, a set or the hands of a process. Times are epoch seconds.

    Attributes:
        payload: The exact bytes, by which it is moved and removed. [INSP-4]
        place: `queue:<name>`, `schedule`, `retry`, `dead`, `unreadable`, or `work`.
        score: In a set: when it is due, or when it died.
        fields: The fields of the payload; none if it cannot be read.
        fault: Why it cannot be read.
    """

    payload: bytes
    place: str
    score: float | None
    fields: Mapping[str, Any]
    fault: MalformedPayload | None = None

    @property
    def problem(self) -> str | None:
        """Why the payload cannot be read, in words; None if it can."""
        return None if self.fault is None else str(self.fault)

    @property
    def text(self) -> str:
        """The payload to look at; bytes that are no UTF-8 show as question marks."""
        return text(self.payload)

    @property
    def jid(self) -> str | None:
        """The job id, an opaque text."""
        jid = self.fields.get("jid")
        return jid if isinstance(jid, str) else None

    @property
    def class_name(self) -> str:
        """The wire class; empty if there is none."""
        found = self.fields.get("class")
        return found if isinstance(found, str) else ""

    @property
    def display_class(self) -> str:
        """What people call this job: the class that an Active Job wraps. [PAY-16]"""
        return display.display_class(self.fields)

    @property
    def args(self) -> Any:
        """The arguments as they are in the payload; usually a list."""
        return self.fields.get("args")

    @property
    def display_args(self) -> list[Any]:
        """The arguments as their author wrote them; the whole text if it cannot be read."""
        return [self.text] if self.fault else display.display_args(self.fields)

    @property
    def queue(self) -> str:
        """The queue that it lies in or, in a set, that the payload names."""
        if self.place.startswith(QUEUE):
            return self.place.removeprefix(QUEUE)
        found = self.fields.get("queue")
        return found if isinstance(found, str) else ""

    @property
    def tags(self) -> Sequence[str]:
        """The labels of the job."""
        tags = self.fields.get("tags")
        return [tag for tag in tags if isinstance(tag, str)] if isinstance(tags, list) else []

    @property
    def created_at(self) -> float | None:
        """When it was first pushed; when it was enqueued if that is not known."""
        created = times.read(self.fields.get("created_at"))
        return self.enqueued_at if created is None else created

    @property
    def enqueued_at(self) -> float | None:
        """When it was put into its queue last."""
        return times.read(self.fields.get("enqueued_at"))

    @property
    def failed_at(self) -> float | None:
        """When it failed first."""
        return times.read(self.fields.get("failed_at"))

    @property
    def retried_at(self) -> float | None:
        """When it failed last, if more than once."""
        return times.read(self.fields.get("retried_at"))

    @property
    def retry_count(self) -> int | None:
        """How many retries were counted; 0 after the first failure, None before."""
        count = self.fields.get("retry_count")
        return count if type(count) is int else None

    @property
    def error_class(self) -> str:
        """Class of the last error; empty if it never failed."""
        return _text(self.fields.get("error_class"))

    @property
    def error_message(self) -> str:
        """Message of the last error; empty if it never failed."""
        return _text(self.fields.get("error_message"))

    @property
    def error_backtrace(self) -> list[str] | None:
        """Lines of the last error's traceback, if they were kept. [PAY-15]"""
        return backtrace_lines(self.fields.get("error_backtrace"))

    @property
    def since(self) -> float | None:
        """Since when it is where it is: death, first failure, or arrival in its queue."""
        if self.place in ("dead", "unreadable"):
            return self.score
        if self.place == "retry" and self.failed_at is not None:
            return self.failed_at
        return self.created_at if self.enqueued_at is None else self.enqueued_at

    def latency(self, now: float) -> float:
        """Return its age in seconds at `now`; 0 if the payload has no time. [INSP-2]"""
        start = self.created_at if self.enqueued_at is None else self.enqueued_at
        return 0.0 if start is None else now - start


def entry(payload: bytes, place: str, score: float | None = None) -> Entry:
    """Return what can be made out of a payload."""
    try:
        return Entry(payload, place, score, decode(payload, queue="").fields)
    except MalformedPayload as fault:
        return Entry(payload, place, score, {}, fault)


def backtrace_lines(stored: object) -> list[str] | None:
    """Return the lines of `error_backtrace` in any form that was ever written. [PAY-15]"""
    if isinstance(stored, str):
        try:
            packed = base64.b64decode("".join(stored.split()), validate=True)
            unpack = zlib.decompressobj()
            stored = decode_json(unpack.decompress(packed, MAX_BACKTRACE))
        except (binascii.Error, ValueError, zlib.error):
            return None
    if isinstance(stored, list) and all(isinstance(line, str) for line in stored):
        return stored
    return None


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
