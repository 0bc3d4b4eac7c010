"""A payload: the JSON text of one job in Redis, kept byte for byte. [PAY-1] [PAY-7]"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from jobwire.errors import MalformedPayload
from jobwire.protocol.arguments import MAX_DEPTH
from jobwire.protocol.progress import JobProgress

__all__ = ["VERSION", "Job", "LazyJob", "can_append", "decode", "edit", "encode", "encode_lines"]

_encoder = msgspec.json.Encoder()
encode = _encoder.encode
"""Encode as compact JSON, as Ruby does: raw UTF-8, no white space, few escapes. [PAY-2]

The escapes are `\\" \\\\ \\b \\f \\n \\r \\t`, and `\\u001f` for other control characters.
[PAY-20] [PAY-21]

Floats have no more digits than needed; whole ones and minus zero keep their form.
[PAY-6] [PAY-25] [PAY-26] [PAY-33]

The caller must refuse NaN and infinities first, because msgspec would write null for them.
"""
encode_lines = _encoder.encode_lines
"""Encode many values, each as `encode` does, with a line break after each."""

# A string is one match, so that brackets inside strings do not count.
_BRACKETS = re.compile(rb'"(?:[^"\\]|\\.)*+"|[\[\]{}]', re.DOTALL)

# A run of escapes, and an escape that `encode` would not write. Both are for text inside strings;
# JSON has no backslash elsewhere. The second also finds a `/` or `u` after an escaped backslash,
# which costs time and changes nothing.
_ESCAPES = re.compile(rb"(?:\\(?:u[0-9a-fA-F]{4}|.))+", re.DOTALL)
_ODD_ESCAPE = re.compile(rb"\\(?:/|u(?!00(?:0[0-7be-f]|1[0-9a-f])))")
VERSION = "jw_version"
"""Field with the version of the class for which a job was enqueued."""

_ENCODED = frozenset(["encrypt", "compressed"])  # fields of extensions that encode `args`

_decode = msgspec.json.Decoder(dict[str, Any]).decode
_decode_raw = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_value = msgspec.json.Decoder().decode


class Job:
    """One decoded payload, with its exact bytes.

    Attributes:
        text: The payload as it stands in Redis. Retries are made from it, so changes that job
            code makes to `args` are never stored. [EXEC-5]
        fields: All fields of the JSON object, decoded.
        queue: Name of the queue that the job was fetched from, even if the payload names another.
            [RETRY-7]
        value: The value that the function of the job returned; None before that. [X-RESULT-3]
        cancelled: True as soon as the job was cancelled while it runs. A job that looks at this
            raises `Cancelled` to end. [X-CANCEL-6]
        progress: The last report of the running job; None before that. [X-PROG-1]
        steps: Values of the steps that this job has finished, as JSON; None until it asks for one.
            [X-STEP-1]
        run: Name of this execution in the output of the job; "" until it emits an item.
            [X-STEP-7]
    """

    __slots__ = ("cancelled", "fields", "progress", "queue", "run", "steps", "text", "value")

    def __init__(self, text: bytes, fields: dict[str, Any], queue: str) -> None:
        self.text = text
        self.fields = fields
        self.queue = queue
        self.value: object = None
        self.cancelled = False
        self.progress: JobProgress | None = None
        self.steps: dict[str, bytes] | None = None
        self.run = ""

    def __repr__(self) -> str:
        return f"<Job {self.class_name} jid={self.jid} queue={self.queue}>"

    def __getitem__(self, field: str) -> Any:
        return self.fields[field]

    def get(self, field: str, default: Any = None) -> Any:
        """Return a field by its wire name."""
        return self.fields.get(field, default)

    @property
    def class_name(self) -> str:
        """The wire class; `""` if it is missing or not a string. [PAY-12]"""
        name = self.fields.get("class")
        return name if isinstance(name, str) else ""

    @property
    def display_class(self) -> str:
        """The class to show to people: that of the wrapped job for ActiveJob.

        [PAY-16] [PAY-19] [MET-10]
        """
        fields = self.fields
        name = fields.get("wrapped")
        if not isinstance(name, str):
            name = fields.get("class")
        return name if isinstance(name, str) else ""

    @property
    def jid(self) -> str | None:
        """The job id, an opaque string; None if the payload has none. [PAY-10] [PAY-29]"""
        jid = self.fields.get("jid")
        return None if jid is None else str(jid)

    @property
    def args(self) -> list[Any]:
        """The arguments; an empty list if the field is missing or null. [EXEC-10]

        Raises:
            TypeError: The field is neither an array nor null. The job fails. [EXEC-7]
        """
        args = self.fields.get("args")
        if args is None:
            return []
        if not isinstance(args, list):
            raise TypeError(f"args of the payload is {type(args).__name__}, not an array")
        return args

    @property
    def parameters(self) -> list[Any]:
        """The arguments to call the job's function with. [EXEC-1] [EXEC-10]

        Middleware that decodes `args` has to remove the mark from `fields`.

        Raises:
            TypeError: `args` is neither an array nor null, or a mark says that its elements are
                encoded. The job fails. [EXEC-7] [EXEC-13]
        """
        if not _ENCODED.isdisjoint(self.fields):
            for mark in sorted(_ENCODED):
                value = self.fields.get(mark)
                if value is not None and value is not False:
                    raise TypeError(f"args are encoded, as field {mark} says, and were not decoded")
        return self.args

    @property
    def retry_count(self) -> int | None:
        """Number of retries counted: None before the first failure, 0 after it. [RETRY-2]"""
        return _count(self.fields.get("retry_count"))

    @property
    def attempt(self) -> int:
        """Number of this execution, from 1, counting only executions whose failure was stored."""
        return 1 if self.retry_count is None else self.retry_count + 2

    @property
    def version(self) -> int:
        """The version of its class for which the job was enqueued; 1 if the payload has none."""
        version = self.fields.get(VERSION)
        return version if type(version) is int else 1

    def edit(self, changes: Mapping[str, Any]) -> bytes:
        """Return the text with some fields changed; see the function `edit`."""
        return edit(self.text, changes)


class LazyJob(Job):
    """A payload that decodes a field only when it is read; `decode` has accepted its text before.

    The fate of a failed job depends on the payload as fetched [EXEC-5], and most decisions need
    only two or three of its fields.
    """

    __slots__ = ("_fields", "_raw")

    def __init__(self, text: bytes, queue: str) -> None:
        self.text = text
        self.queue = queue
        self.value: object = None
        self.cancelled = False
        self.progress: JobProgress | None = None
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
        """Number of retries counted: None before the first failure, 0 after it. [RETRY-2]"""
        return _count(self.get("retry_count"))

    def edit(self, changes: Mapping[str, Any]) -> bytes:
        """Return the text with some fields changed; see the function `edit`."""
        return _joined({**self._split(), **changes})

    def _split(self) -> dict[str, msgspec.Raw]:
        if self._raw is None:
            self._raw = _decode_raw(self.text)
        return self._raw


def decode(text: bytes, queue: str) -> Job:
    """Read a payload. [PAY-1] [PAY-8] [PAY-17]

    Raises:
        MalformedPayload: Not JSON, not UTF-8, not an object, or nested too deep. A number beyond
            the range of a double and a lone surrogate escape count as not JSON, because no Python
            value can represent them and be written back. [PAY-23] [PAY-24]
    """
    try:
        # Only a payload that is long and has many brackets needs the exact depth.
        if (
            len(text) > 2 * MAX_DEPTH
            and text.count(b"[") + text.count(b"{") > MAX_DEPTH
            and _depth(text) > MAX_DEPTH
        ):
            raise MalformedPayload("PAY-3", "", f"nests deeper than {MAX_DEPTH} levels")
        return Job(text, _decode(text), queue)
    except msgspec.ValidationError as error:
        rule = "EXEC-4" if "object" in str(error) else "EXEC-3"
        raise MalformedPayload(rule, "", str(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MalformedPayload("EXEC-3", "", str(error)) from None  # or [EXEC-9]


def edit(
    text: bytes,
    changes: Mapping[str, Any],
    *,
    defaults: Mapping[str, Any] | None = None,
    drop: Collection[str] = (),
) -> bytes:
    """Return `text` with some fields changed and all other fields untouched.

    [PAY-7] [PAY-13] [X-ADDON-10]

    A transition that changes no field keeps the text and needs no call of this. [PAY-27]

    All other values keep their exact text: integers of any size, the spelling of floats, the order
    of keys. White space between tokens is removed [PAY-2], and escapes get the one spelling that
    writers use [PAY-20] [PAY-21].

    Args:
        text: A payload that `decode` accepted.
        changes: Field to new value. Fields that exist keep their places, new ones are appended.
            [PAY-34]
        defaults: Fields to put first if they are missing.
        drop: Fields to remove.
    """
    fields: dict[str, Any] = _decode_raw(text)  # raw values, so that unchanged ones stay exact
    if defaults and not defaults.keys() <= fields.keys():
        missing = {field: value for field, value in defaults.items() if field not in fields}
        fields = missing | fields
    for field in drop:
        fields.pop(field, None)
    fields.update(changes)
    return _joined(fields)


def _count(value: object) -> int | None:
    """Return a `retry_count` as an integer; None if it is not a number. [RETRY-19]"""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value)


def _joined(fields: Mapping[str, Any]) -> bytes:
    """Return fields as one compact text; those that are `msgspec.Raw` are written as they are."""
    edited = encode(fields)
    if b"\\" in edited and _ODD_ESCAPE.search(edited):
        edited = _ESCAPES.sub(_respelled, edited)
    # Most payloads have no white space, and checking for it is quicker than formatting again.
    return edited if len(edited.split(None, 1)) == 1 else msgspec.json.format(edited, indent=-1)


def _respelled(escapes: re.Match[bytes]) -> bytes:
    """Return a run of escapes in the spelling of `encode`."""
    # A run keeps the two halves of a surrogate pair together.
    return encode(_decode_value(b'"' + escapes[0] + b'"'))[1:-1]


def can_append(text: bytes, fields: Mapping[str, Any]) -> bool:
    """True if inserting a new field before the closing brace gives the same text as `edit`.

    For that, the payload has no white space between tokens, no escapes in field names and no
    field twice. White space and colons inside values can give False where True would be right.

    Args:
        text: A payload that `decode` accepted.
        fields: Its decoded fields.
    """
    return (
        0 < len(fields) == text.count(b'":') and b"\\" not in text and len(text.split(None, 1)) == 1
    )


def _depth(text: bytes) -> int:
    """Return the depth of nested brackets, not counting those inside strings."""
    depth = deepest = 0
    for match in _BRACKETS.finditer(text):
        if match[0] in (b"[", b"{"):
            depth += 1
            deepest = max(deepest, depth)
        elif match[0] in (b"]", b"}"):
            depth -= 1
    return deepest
