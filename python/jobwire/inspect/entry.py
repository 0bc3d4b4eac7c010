"""One job in Redis, even if its payload cannot be read. [INSP-3]"""

from __future__ import annotations

import base64
import binascii
import re
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from jobwire.errors import MalformedPayload
from jobwire.inspect import display
from jobwire.inspect.reading import decode_json, text
from jobwire.protocol import times
from jobwire.protocol.payload import decode

__all__ = ["QUEUE", "Entry", "SetName", "backtrace_lines", "entry", "may_have", "spelled"]

SetName = Literal["schedule", "retry", "dead", "unreadable"]
QUEUE = "queue:"
MAX_BACKTRACE = 1_000_000  # unpacked bytes, because a few kilobytes can hold gigabytes [SEC-4]
_SPELLED_ONE_WAY = re.compile(r"[\w :.,;!#$%()*+=?@\[\]^{|}~-]*", re.ASCII)


class Entry:
    """A job in a queue, in a set or in execution. Times are epoch seconds.

    The payload is decoded when something of it is read first: most entries of a search are ruled
    out by their bytes.

    Attributes:
        payload: The exact bytes, by which it is moved and removed. [INSP-4]
        place: `queue:<name>`, `schedule`, `retry`, `dead`, `unreadable`, `parked`, or `work`.
        score: For a job in a set, the time at which it is due, died or was parked.
    """

    __slots__ = ("_fault", "_fields", "payload", "place", "score")

    def __init__(self, payload: bytes, place: str, score: float | None = None) -> None:
        self.payload = payload
        self.place = place
        self.score = score
        self._fields: Mapping[str, Any] | None = None
        self._fault: MalformedPayload | None = None

    def __repr__(self) -> str:
        return f"Entry({self.payload!r}, {self.place!r}, {self.score!r})"

    @property
    def fields(self) -> Mapping[str, Any]:
        """The fields of the payload; empty if it cannot be read."""
        return self._read() if self._fields is None else self._fields

    @property
    def fault(self) -> MalformedPayload | None:
        """The error, if the payload cannot be read."""
        if self._fields is None:
            self._read()
        return self._fault

    def _read(self) -> Mapping[str, Any]:
        fields: Mapping[str, Any] = {}
        try:
            fields = decode(self.payload, queue="").fields
        except MalformedPayload as fault:
            self._fault = fault  # before the fields, for other threads
        self._fields = fields
        return fields

    def with_fields(self, fields: Mapping[str, Any]) -> Entry:
        """Return what may be shown of it: these fields, and no bytes."""
        shown = Entry(b"", self.place, self.score)
        shown._fault, shown._fields = self.fault, fields
        return shown

    @property
    def problem(self) -> str | None:
        """The reason that the payload cannot be read, or None."""
        return None if self.fault is None else str(self.fault)

    @property
    def text(self) -> str:
        """The payload as text; bytes that are not UTF-8 become replacement characters."""
        return text(self.payload)

    @property
    def jid(self) -> str | None:
        """The job id, an opaque string."""
        jid = self.fields.get("jid")
        return jid if isinstance(jid, str) else None

    @property
    def class_name(self) -> str:
        """The wire class, or ""."""
        return _text(self.fields.get("class"))

    @property
    def display_class(self) -> str:
        """The class to show to people: for Active Job, the wrapped class. [PAY-16]"""
        return display.display_class(self.fields)

    @property
    def args(self) -> Any:
        """The arguments of the payload, usually a list."""
        return self.fields.get("args")

    @property
    def display_args(self) -> list[Any]:
        """The arguments as the job's author wrote them; the text of an unreadable payload."""
        return [self.text] if self.fault else display.display_args(self.fields)

    @property
    def queue(self) -> str:
        """The queue that it is in; for a job in a set, the queue that the payload names."""
        if self.place.startswith(QUEUE):
            return self.place.removeprefix(QUEUE)
        return _text(self.fields.get("queue"))

    @property
    def tags(self) -> Sequence[str]:
        """The labels of the job."""
        tags = self.fields.get("tags")
        return [tag for tag in tags if isinstance(tag, str)] if isinstance(tags, list) else []

    @property
    def created_at(self) -> float | None:
        """Time of the first push; if unknown, the time at which it was enqueued."""
        created = times.read(self.fields.get("created_at"))
        return self.enqueued_at if created is None else created

    @property
    def enqueued_at(self) -> float | None:
        """Time at which it was last put into its queue."""
        return times.read(self.fields.get("enqueued_at"))

    @property
    def failed_at(self) -> float | None:
        """Time of the first failure."""
        return times.read(self.fields.get("failed_at"))

    @property
    def retried_at(self) -> float | None:
        """Time of the last failure, if it failed more than once."""
        return times.read(self.fields.get("retried_at"))

    @property
    def retry_count(self) -> int | None:
        """Number of retries counted: None before the first failure, 0 after it."""
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
        """Lines of the last error's backtrace, if it was stored. [PAY-15]"""
        return backtrace_lines(self.fields.get("error_backtrace"))

    @property
    def since(self) -> float | None:
        """Time of its death or parking, of its first failure, or of its arrival in the queue."""
        if self.place in ("dead", "unreadable", "parked"):
            return self.score
        if self.place == "retry" and self.failed_at is not None:
            return self.failed_at
        return self.created_at if self.enqueued_at is None else self.enqueued_at

    def latency(self, now: float) -> float:
        """Return its age in seconds at `now`; 0 if the payload has no time. [INSP-2]"""
        start = self.created_at if self.enqueued_at is None else self.enqueued_at
        return 0.0 if start is None else now - start


def entry(payload: bytes, place: str, score: float | None = None) -> Entry:
    """Return the entry for a payload, with a `fault` if the payload cannot be read."""
    return Entry(payload, place, score)


def spelled(text: str) -> bytes:
    """Return the bytes of a text in a payload; none if JSON can write it in several ways."""
    return text.encode() if _SPELLED_ONE_WAY.fullmatch(text) else b""


def may_have(payloads: bytes, part: bytes) -> bool:
    """Return False if payloads cannot have what is `spelled` so, without decoding them."""
    return part in payloads or b"\\u00" in payloads  # a producer may escape any character


def backtrace_lines(stored: object) -> list[str] | None:
    """Return the lines of `error_backtrace`, in any of its historical forms.

    [PAY-15] [PAY-18] [PAY-32]
    """
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
