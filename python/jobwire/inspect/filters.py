"""Filters that select entries."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase

from jobwire.inspect.entry import Entry

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
        return all(self._checks(entry, now))

    def __bool__(self) -> bool:
        """True if any condition is set."""
        return self != Filter()

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
