"""Words for places and actions."""

from __future__ import annotations

from collections.abc import Mapping

from jobwire.inspect.entry import QUEUE
from jobwire.text import counted, visible

__all__ = [
    "ACTION_WORDS",
    "LABELS",
    "job_count",
    "journal_target",
    "place_words",
    "selection_words",
]

PLACES = {
    "schedule": "the scheduled jobs",
    "retry": "the retries",
    "dead": "the dead jobs",
    "unreadable": "the unreadable payloads",
}

# Parameter of an address to its name.
LABELS: Mapping[str, str] = {
    "class": "class",
    "queue": "queue",
    "error": "error",
    "jid": "job id",
    "tag": "tag",
    "text": "text of the payload",
    "older": "older than",
    "group": "group of failures",
    "limit": "only the first",
}

# Action to its imperative, and its past participle.
ACTION_WORDS: Mapping[str, tuple[str, str]] = {
    "retry": ("Retry", "retried"),
    "add_to_queue": ("Add to the queue", "added to their queues"),
    "kill": ("Kill", "killed"),
    "delete": ("Delete", "deleted"),
    "clear": ("Delete", "deleted"),
    "undo": ("Put back", "put back"),
}


def place_words(place: str) -> str:
    """Return a place in words, such as `the queue mails`."""
    if place.startswith(QUEUE):
        return f"the queue {visible(place.removeprefix(QUEUE))}"
    return PLACES.get(place, visible(place))


def selection_words(place: str, given: Mapping[str, str]) -> str:
    """Return a place with its filter in words, such as `the retries, class Mail*`.

    The text of a payload that the filter looks for is left out, because it may be an argument; and
    the name of a group of failures, because it is a digest of their message.
    """
    conditions = [
        f"{LABELS[name]} {'…' if name in ('text', 'group') else visible(value)}"
        for name, value in given.items()
    ]
    return ", ".join([place_words(place), *conditions])


def journal_target(target: str, *, redacted: bool) -> str:
    """Return the target of an entry of the journal, for visitors who may not see all of a job.

    A filter by an error, or by a group of failures, tells what is in the message of the error.
    """
    for condition in ("error", "group") if redacted else ():
        before, found, _ = target.partition(f" {condition}=")
        target = before + (f"{found}…" if found else "")
    return target


def job_count(number: int) -> str:
    """Return a number of jobs, such as `1,200 jobs`."""
    return counted(number, "job")
