"""Filters that select entries."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from fnmatch import fnmatchcase
from functools import lru_cache

from jobwire.inspect.entry import Entry, may_have, spelled

__all__ = ["Filter"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Conditions for an entry; all conditions that are set must hold.

    Attributes:
        class_name: Wire class or display class; `*`, `?` and `[...]` match as in file names.
        queue: Name of the queue, with the same wildcards.
        jid: The exact job id.
        error: Part of the error's class or message; case does not matter.
        tag: One of the tags, exactly.
        text: Part of the payload's text.
        older_than: Minimum age in seconds: since death in the dead set, since the first failure
            in the retry set, otherwise since the job was enqueued or created.
    """

    class_name: str | None = None
    queue: str | None = None
    jid: str | None = None
    error: str | None = None
    tag: str | None = None
    text: str | None = None
    older_than: float | None = None

    def matches(self, entry: Entry, *, now: float) -> bool:
        """Return True if an entry meets all conditions, at epoch second `now`."""
        return not self._rules_out(entry.payload) and all(self._checks(entry, now))

    def __bool__(self) -> bool:
        """True if any condition is set."""
        return any(condition is not None for condition in astuple(self))

    def _rules_out(self, payload: bytes) -> bool:
        """True if the bytes show that a condition does not hold, without decoding them."""
        for part in _parts(self.class_name, self.jid, self.tag):
            if not may_have(payload, part):
                return b'"class":"' in payload  # else it is not a string, and shown in other words
        # Letters beyond ASCII can be equal to those of ASCII where case does not matter.
        return (
            self.error is not None
            and payload.isascii()
            and b"\\u" not in payload
            and _error_part(self.error) not in payload.lower()
        )

    def _checks(self, entry: Entry, now: float) -> Iterator[bool]:
        if self.class_name is not None:
            names = {entry.class_name, entry.display_class} - {""}
            yield any(fnmatchcase(name, self.class_name) for name in names)
        if self.queue is not None:
            yield fnmatchcase(entry.queue, self.queue)
        if self.jid is not None:
            yield entry.jid == self.jid
        if self.error is not None:
            wanted = self.error.casefold()
            error = f"{entry.error_class}: {entry.error_message}"
            yield wanted in error.casefold()
        if self.tag is not None:
            yield self.tag in entry.tags
        if self.text is not None:
            yield self.text in entry.text
        if self.older_than is not None:
            yield entry.since is not None and now - entry.since >= self.older_than


@lru_cache(100)
def _parts(class_name: str | None, jid: str | None, tag: str | None) -> tuple[bytes, ...]:
    """Return bytes that a payload has if it meets these conditions."""
    # The class of a mail is shown as two words of the payload, with a # between them.
    literal = re.split("[*?#]", (class_name or "").partition("[")[0])
    texts = (max(literal, key=len), jid or "", tag or "")
    return tuple(filter(None, map(spelled, texts)))


@lru_cache(100)
def _error_part(error: str) -> bytes:
    """Return bytes that a payload in lower case has if its error has this text."""
    # Class and message have a colon and a space between them.
    return spelled(max(map(str.strip, error.casefold().split(":")), key=len))
