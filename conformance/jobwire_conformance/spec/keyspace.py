"""The objects of the protocol in a server, found by the names of their keys. It only reads."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

from jobwire_conformance.judge.payloads import PLACES, Place
from jobwire_conformance.wire.link import Link, Refused

__all__ = ["Odd", "Stored", "stored"]

_PAGE = 200  # keys that SCAN looks at in one step


class Stored(NamedTuple):
    """An object in the server.

    Attributes:
        name: Its key, and its place in the key.
        schema: Its kind, as in `objects.OBJECTS`, or `payload`.
        place: The place of a payload.
        text: The object as JSON.
    """

    name: str
    schema: str
    place: Place | None
    text: bytes


class Odd(NamedTuple):
    """A key that could not be looked at.

    Attributes:
        name: The key.
        rule: The requirement that describes it.
        seen: The reason.
        expected: The type that the requirement asks for; `""` if it has that type.
    """

    name: str
    rule: str
    seen: str
    expected: str

    @property
    def kind(self) -> Literal["broken", "note"]:
        """The kind of the verdict: a key of another type is a fault."""
        return "broken" if self.expected else "note"


class _Form(NamedTuple):
    """The form of a key: a pattern of its name, its type, the kind of its objects, its rule."""

    pattern: re.Pattern[str]
    type: str
    schema: str
    rule: str


_FORMS = tuple(
    _Form(re.compile(pattern, re.DOTALL), kind, schema, rule)
    for pattern, kind, schema, rule in (
        (r"queue:(?!sq\|).+", "list", "payload", "KEY-2"),
        (r"schedule|retry|dead", "zset", "payload", "KEY-3"),
        (r"jobwire:private:.+", "hash", "private", "REL-1"),
        (r"cron_job:.+", "hash", "cron", "X-CRON-1"),
        (r"it-.+", "hash", "iteration", "ITER-1"),
        (r"j\|.+", "hash", "metrics", "MET-1"),
        (r"\d{8}-marks", "hash", "marks", "MET-5"),
        (r".+:\d+:[0-9a-f]{12}:work(?:ers)?", "hash", "work", "BEAT-17"),
        (r".+:\d+:[0-9a-f]{12}-signals", "list", "signals", "SIG-4"),
        (r".+:\d+:[0-9a-f]{12}", "hash", "identity", "BEAT-3"),
    )
)


def stored(server: Link, limit: int, namespace: str = "") -> Iterator[Stored | Odd]:
    """Yield the objects of the protocol in a server, key by key.

    The keys come from SCAN. A key that appears or disappears meanwhile may be left out.

    Args:
        server: The server.
        limit: The most elements of one key to read: the newest of a list, the first of a sorted
            set. A hash with more fields is left out.
        namespace: Prefix of the keys.
    """
    seen: set[bytes] = set()
    cursor = b"0"
    pattern = re.sub(r"([*?\[\]\\])", r"\\\1", namespace) + "*"
    while True:
        cursor, page = server.call("SCAN", cursor, "MATCH", pattern, "COUNT", _PAGE)
        keys = [key for key in page if key not in seen]
        seen.update(keys)  # SCAN may return a key twice
        yield from _of_keys(server, keys, limit, namespace)
        if cursor == b"0":
            return


def _of_keys(
    server: Link, keys: Sequence[bytes], limit: int, namespace: str
) -> Iterator[Stored | Odd]:
    known = []
    for key in keys:
        name = key.decode("utf-8", "surrogateescape").removeprefix(namespace)
        form = next((form for form in _FORMS if form.pattern.fullmatch(name)), None)
        if form is not None:
            known.append((key, name, form))
    types = server.calls([("TYPE", key) for key, _, _ in known])
    for (key, name, form), stored_type in zip(known, types, strict=True):
        found = _text(stored_type)
        if found == form.type:
            yield from _of_key(server, key, name, form, limit)
        elif found != "none":
            yield Odd(name, form.rule, f"a {found}", f"a {form.type}")


def _of_key(server: Link, key: bytes, name: str, form: _Form, limit: int) -> Iterator[Stored | Odd]:
    try:
        if form.type == "hash" and (length := server.call("HLEN", key)) > limit:
            yield Odd(name, form.rule, f"left out: {length} fields, more than --limit {limit}", "")
            return
        if form.type == "list":
            reply = server.call("LRANGE", key, 0, limit - 1)
        elif form.type == "zset":
            reply = server.call("ZRANGE", key, 0, limit - 1)
        else:
            reply = server.call("HGETALL", key)
    except Refused as error:
        yield Odd(name, form.rule, f"left out: {error}", "")
        return
    if form.schema == "payload":
        place = next(place for place in PLACES if name.partition(":")[0] == place)
        for number, text in enumerate(reply):
            yield Stored(f"{name} {number}", "payload", place, text)
    elif form.type == "list":
        yield Stored(name, form.schema, None, _json([_text(word) for word in reply]))
    else:
        pairs = zip(reply[::2], reply[1::2], strict=True)
        fields = {_text(field): value for field, value in pairs}
        if form.schema == "work":
            for field, value in fields.items():
                yield Stored(f"{name} {field}", "work", None, value)
        elif fields:
            texts = {field: _text(value) for field, value in fields.items()}
            yield Stored(name, form.schema, None, _json(texts))


def _text(word: Any) -> str:
    return word.decode("utf-8", "surrogateescape") if isinstance(word, bytes) else str(word)


def _json(value: object) -> bytes:
    return json.dumps(value).encode()
