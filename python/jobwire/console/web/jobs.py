"""Jobs as a visitor sees them, and the keys that name entries in addresses and forms."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jobwire.console.ops.paging import digest
from jobwire.console.web.access import Visitor
from jobwire.console.web.redaction import Redact
from jobwire.inspect.entry import Entry
from jobwire.text import visible

__all__ = ["JobView", "entry_key", "job_view", "split_key"]

MAX_SUMMARY_CHARS = 200  # characters of the arguments in a list
MAX_VALUE_CHARS = 20_000  # characters of one value on the page of a job


@dataclass(frozen=True, slots=True)
class JobView:
    """A job as a visitor sees it: every value went through the redaction.

    Attributes:
        entry: The job; its values come from the fields that the visitor may see.
        key: Name of an entry of a set, such as `1795192067.25-b4a577edbccf1d805744efa9`; "" of
            other jobs.
        digest: Keyed digest of the stored payload, by which an action finds the exact bytes.
        whole: True if nothing is hidden from this visitor.
    """

    entry: Entry
    key: str
    digest: str
    whole: bool

    @property
    def arguments(self) -> str:
        """The arguments in one short line."""
        return shortened(self.entry.display_args if self.whole else self.entry.args)

    @property
    def failures(self) -> int:
        """Number of failures."""
        count = self.entry.fields.get("retry_count")
        failed = bool(self.entry.error_class)
        return count + 1 if isinstance(count, int) and count >= 0 else int(failed)

    @property
    def payload(self) -> str:
        """The payload in lines: as stored if nothing is hidden, otherwise what may be seen."""
        if self.entry.fault:
            return self.entry.text[:MAX_VALUE_CHARS]
        return json.dumps(self.entry.fields, indent=2, ensure_ascii=False)[:MAX_VALUE_CHARS]


def job_view(entry: Entry, visitor: Visitor, redact: Redact | None, digest_key: bytes) -> JobView:
    """Return what a visitor sees of a job.

    Of a payload that cannot be read, a redaction leaves nothing.
    """
    key, name = entry_key(entry), digest(entry, digest_key)
    if redact is None:
        return JobView(entry, key, name, whole=True)
    shown: Mapping[str, Any] = {} if entry.fault else redact(visitor, entry.fields)
    whole = not entry.fault and shown == entry.fields
    return JobView(entry if whole else entry.with_fields(shown), key, name, whole)


def entry_key(entry: Entry) -> str:
    """Return the name of an entry of a set: `<score>-<jid>`, as on Sidekiq's page."""
    return "" if entry.score is None else f"{entry.score!r}-{entry.jid or ''}"


def split_key(key: str) -> tuple[float, str] | None:
    """Return score and jid of a name, which ends its score at the first `-`; None if it is none.

    A score may be negative or have an exponent, so such a `-` does not count.
    """
    number, dash, jid = key[1:].partition("-")
    if number.endswith("e"):
        exponent, dash, jid = jid.partition("-")
        number += f"-{exponent}"
    try:
        return (float(key[:1] + number), jid) if dash else None
    except ValueError:
        return None


def shortened(value: Any) -> str:
    """Return a value as one short line of JSON."""
    try:
        line = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        line = str(value)
    line = line if len(line) <= MAX_SUMMARY_CHARS else line[: MAX_SUMMARY_CHARS - 1] + "…"
    return visible(line)
