"""A payload: the JSON text of one job in Redis, read without losing a byte. [PAY-1] [PAY-7]"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from jobwire.errors import MalformedPayload
from jobwire.protocol.arguments import MAX_DEPTH

__all__ = ["Job", "LazyJob", "can_append", "decode", "edit", "encode"]

encode = msgspec.json.Encoder().encode
"""Compact JSON as Ruby writes it: raw UTF-8, no white space, `/` as it is. [PAY-2] [PAY-6]

Not-a-number must have been refused before: msgspec would write null.
"""

# A string is one match, so that what is inside does not count.
_BRACKETS = re.compile(rb'"(?:[^"\\]|\\.)*+"|[\[\]{}]', re.DOTALL)

_decode = msgspec.json.Decoder(dict[str, Any]).decode
_decode_raw = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_value = msgspec.json.Decoder().decode


class Job:
    """One decoded payload, with the exact bytes it came from.

    Attributes:
        text: The payload as found in Redis. Retries are made from it, so nothing that job code
            does to `args` is ever stored. [EXEC-5]
        fields: All fields of the JSON object, decoded.
        queue: Name of the queue it was fetched from, whatever the payload says. [RETRY-7]
    """

    __slots__ = ("fields", "queue", "text")

    def __init__(self, text: bytes, fields: dict[str, Any], queue: str) -> None:
        self.text = text
        self.fields = fields
        self.queue = queue

    def __repr__(self) -> str:
        return f"<Job {self.class_name} jid={self.jid} queue={self.queue}>"

    def __getitem__(self, field: str) -> Any:
        return self.fields[field]

    def get(self, field: str, default: Any = None) -> Any:
        """Return a field by its wire name."""
        return self.fields.get(field, default)

    @property
    def class_name(self) -> str:
        """The wire class; `""` when the payload has none or it is no text. [PAY-12]"""
        name = self.fields.get("class")
        return name if isinstance(name, str) else ""

    @property
    def display_class(self) -> str:
        """What people call this job: an ActiveJob wrapper shows the class it wraps. [PAY-16]"""
        fields = self.fields
        name = fields.get("wrapped")
        if not isinstance(name, str):
            name = fields.get("class")
        return name if isinstance(name, str) else ""

    @property
    def jid(self) -> str | None:
        """The job id, an opaque text; None when the producer wrote none. [PAY-10]"""
        jid = self.fields.get("jid")
        return None if jid is None else str(jid)

    @property
    def args(self) -> list[Any]:
        """The arguments. Missing or null means none. [EXEC-1]

        Raises:
            TypeError: They are neither an array nor null, which fails the job. [EXEC-7]
        """
        args = self.fields.get("args")
        if args is None:
            return []
        if not isinstance(args, list):
            raise TypeError(f"args of the payload is {type(args).__name__}, not an array")
        return args

    @property
    def retry_count(self) -> int | None:
        """How many retries were counted; 0 after the first failure, None before. [RETRY-2]"""
        count = self.fields.get("retry_count")
        return count if type(count) is int else None

    @property
    def attempt(self) -> int:
        """Which execution this is, as far as failures were counted: 1 for the first."""
        return 1 if self.retry_count is None else self.retry_count + 2

    def edit(self, changes: Mapping[str, Any]) -> bytes:
        """Return the text with some fields written anew, as the function `edit` does."""
        return edit(self.text, changes)


class LazyJob(Job):
    """A payload that is decoded when it is read, and as far as it is read.

    Its text was accepted by `decode` before. What becomes of a job that failed is decided from
    the payload as fetched [EXEC-5], of which most decisions need two or three fields.
    """

    __slots__ = ("_fields", "_raw")

    def __init__(self, text: bytes, queue: str) -> None:
        self.text = text
        self.queue = queue
        self._fields: dict[str, Any] | None = None
        self._raw: dict[str, msgspec.Raw] | None = None

    @property
    def fields(self) -> dict[str, Any]:
        """All fields of the JSON object, decoded."""
        if self._fields is None:
            self._fields = _decode(self.text)
        return self._fields

    @fields.setter
    def fields(self, fields: dict[str, Any]) -> None:
        self._fields = fields

    def __getitem__(self, field: str) -> Any:
        return (
            self.fields[field] if self._fields is not None else _decode_value(self._split()[field])
        )

    def get(self, field: str, default: Any = None) -> Any:
        """Return a field by its wire name."""
        if self._fields is not None:
            return self._fields.get(field, default)
        raw = (self._raw or self._split()).get(field)
        return default if raw is None else _decode_value(raw)

    @property
    def retry_count(self) -> int | None:
        """How many retries were counted; 0 after the first failure, None before. [RETRY-2]"""
        count = self.get("retry_count")
        return count if type(count) is int else None

    def edit(self, changes: Mapping[str, Any]) -> bytes:
        """Return the text with some fields written anew, as the function `edit` does."""
        return _joined({**self._split(), **changes})

    def _split(self) -> dict[str, msgspec.Raw]:
        if self._raw is None:
            self._raw = _decode_raw(self.text)
        return self._raw


def decode(text: bytes, queue: str) -> Job:
    """Read a payload. [PAY-1] [PAY-8]

    Raises:
        MalformedPayload: Not JSON, not UTF-8, not an object, or nested too deep. Numbers beyond
            a double and lone surrogate escapes count as not JSON: no value could be handed to
            the job and written back.
    """
    try:
        # Counting is quick and settles nearly every payload; only a dense one is walked.
        if text.count(b"[") + text.count(b"{") > MAX_DEPTH and _depth(text) > MAX_DEPTH:
            raise MalformedPayload("PAY-3", "", f"nests deeper than {MAX_DEPTH} levels")
        return Job(text, _decode(text), queue)
    except msgspec.ValidationError as error:
        rule = "EXEC-4" if "object" in str(error) else "EXEC-3"
        raise MalformedPayload(rule, "", str(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MalformedPayload("EXEC-3", "", str(error)) from None


def edit(
    text: bytes,
    changes: Mapping[str, Any],
    *,
    defaults: Mapping[str, Any] | None = None,
    drop: Collection[str] = (),
) -> bytes:
    """Return `text` with some fields written anew and all others untouched. [PAY-7] [PAY-13]

    Every other value keeps its exact text: integers of any size, the spelling of floats,
    escapes, the order of keys. Only white space between tokens goes. [PAY-2]

    Args:
        text: A payload that `decode` accepted.
        changes: Field to new value. A field that exists stays in its place, others are appended.
        defaults: Fields to put first where they are missing.
        drop: Fields to remove.
    """
    fields: dict[str, Any] = _decode_raw(text)  # those that stay are written as they are
    if defaults and not defaults.keys() <= fields.keys():
        missing = {field: value for field, value in defaults.items() if field not in fields}
        fields = missing | fields
    for field in drop:
        fields.pop(field, None)
    fields.update(changes)
    return _joined(fields)


def _joined(fields: Mapping[str, Any]) -> bytes:
    """Return fields as one compact text; those that are `msgspec.Raw` are written as they are."""
    edited = encode(fields)
    # Most payloads have no white space anywhere, and a look is quicker than to write them again.
    return edited if len(edited.split(None, 1)) == 1 else msgspec.json.format(edited, indent=-1)


def can_append(text: bytes, fields: Mapping[str, Any]) -> bool:
    """Whether a new last field can be put in front of the closing brace, just as `edit` would.

    That is, there is no white space to remove, no name to spell anew, and no field stands there
    twice. White space and colons inside of values may make this say no where yes were true.

    Args:
        text: A payload that `decode` accepted.
        fields: What it has.
    """
    return (
        0 < len(fields) == text.count(b'":') and b"\\" not in text and len(text.split(None, 1)) == 1
    )


def _depth(text: bytes) -> int:
    """Return how deep brackets nest, those inside strings left out."""
    depth = deepest = 0
    for match in _BRACKETS.finditer(text):
        if match[0] in (b"[", b"{"):
            depth += 1
            deepest = max(deepest, depth)
        elif match[0] in (b"]", b"}"):
            depth -= 1
    return deepest
