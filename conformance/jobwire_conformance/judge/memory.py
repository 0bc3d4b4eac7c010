"""What an application has read, and so may write again without being its author."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any, NamedTuple

__all__ = ["Memory", "Origin"]

_TEXTS = 100_000
_JOBS = 20_000


class Origin(NamedTuple):
    """Where a job was read last.

    Attributes:
        text: Its exact bytes.
        key: The key that it was in; `""` if a script took it from one of its own.
        taken: Whether it was taken out, not just looked at.
    """

    text: bytes
    key: str
    taken: bool


class Memory:
    """Payloads that were read, the latest of them."""

    def __init__(self) -> None:
        self._texts: OrderedDict[int, str] = OrderedDict()
        self._jobs: OrderedDict[str, Origin] = OrderedDict()

    def read(self, reply: Any, key: str, *, taken: bool) -> list[bytes]:
        """Remember every payload in an answer; return them.

        What is taken out of a queue is a payload whatever it looks like.
        """
        found = []
        for text in _strings(reply):
            if text.startswith(b"{") or text.lstrip()[:1] == b"{":
                found.append(text)
                self._note(text, key)
                jid = _jid(text)
                if jid is not None:
                    before = self._jobs.pop(jid, None)
                    kept = before if before is not None and before.taken and not taken else None
                    self._jobs[jid] = kept or Origin(text, key, taken)
                    if len(self._jobs) > _JOBS:
                        self._jobs.popitem(last=False)
            elif taken:
                self._note(text, key)
                found.append(text)
        return found

    def knows(self, text: bytes) -> bool:
        """Whether these exact bytes were read."""
        return hash(text) in self._texts

    def place(self, text: bytes) -> str | None:
        """Return the key that these exact bytes were read from last."""
        return self._texts.get(hash(text))

    def origin(self, jid: object) -> Origin | None:
        """Return what was read last of a job."""
        return self._jobs.get(jid) if isinstance(jid, str) else None

    def _note(self, text: bytes, key: str) -> None:
        number = hash(text)
        self._texts.pop(number, None)
        self._texts[number] = key
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
