"""Payloads that an application has read, and may therefore write again without authorship."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any, NamedTuple

__all__ = ["Origin", "SeenPayloads"]

_TEXTS = 100_000
_JOBS = 20_000


class Origin(NamedTuple):
    """The place where a job was last read.

    Attributes:
        text: Its exact bytes.
        key: The key that held it; `""` if a script with several keys returned it.
        taken: True if the command removed it, False if it only read it.
        at: Time of the reply, Unix seconds.
    """

    text: bytes
    key: str
    taken: bool
    at: float


class SeenPayloads:
    """The latest payloads that were read.

    Replies of two connections overtake each other: the fetch of a job can be seen before the reply
    to its push. Therefore each query names a time, and ignores later reads.
    """

    def __init__(self) -> None:
        self._texts: OrderedDict[int, tuple[str, float]] = OrderedDict()
        self._jobs: OrderedDict[str, tuple[Origin, ...]] = OrderedDict()

    def read(self, reply: Any, key: str, at: float, *, taken: bool) -> list[bytes]:
        """Remember every payload in a reply; return them.

        Every text that is taken from a queue counts as a payload, even if it is not an object.
        """
        payloads = []
        for text in _strings(reply):
            if text.startswith(b"{") or text.lstrip()[:1] == b"{":
                payloads.append(text)
                self._note(text, key, at)
                jid = _jid(text)
                if jid is not None:
                    known = self._jobs.pop(jid, ())
                    if taken or not (known and known[-1].taken):
                        known = (*known[-2:], Origin(text, key, taken, at))
                    self._jobs[jid] = known
                    if len(self._jobs) > _JOBS:
                        self._jobs.popitem(last=False)
            elif taken:
                self._note(text, key, at)
                payloads.append(text)
        return payloads

    def knows(self, text: bytes, before: float) -> bool:
        """Return whether these exact bytes were read."""
        return self.place(text, before) is not None

    def place(self, text: bytes, before: float) -> str | None:
        """Return the key from which these exact bytes were last read."""
        key, first = self._texts.get(hash(text), (None, 0.0))
        return key if first <= before else None

    def origin(self, jid: object, before: float) -> Origin | None:
        """Return the last read of a job."""
        known = self._jobs.get(jid, ()) if isinstance(jid, str) else ()
        return next((origin for origin in reversed(known) if origin.at <= before), None)

    def _note(self, text: bytes, key: str, at: float) -> None:
        number = hash(text)
        _, first = self._texts.pop(number, (key, at))
        self._texts[number] = key, min(first, at)
        if len(self._texts) > _TEXTS:
            self._texts.popitem(last=False)


def _strings(value: Any) -> Iterator[bytes]:
    if isinstance(value, bytes):
        yield value
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _strings(inner)


def _jid(text: bytes) -> str | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    jid = value.get("jid") if isinstance(value, dict) else None
    return jid if isinstance(jid, str) else None
