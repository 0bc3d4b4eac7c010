"""Actions on entries that a person chose: by their exact bytes."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import cast

from jobwire.console.ops.bulk import BulkAction
from jobwire.console.web.context import Redirect, RequestContext
from jobwire.console.web.jobs import split_key
from jobwire.console.web.places import SETS
from jobwire.errors import ConfigError, PayloadError
from jobwire.inspect.entry import QUEUE, Entry, SetName
from jobwire.inspect.formats import seconds
from jobwire.protocol.times import instant
from jobwire.text import counted

__all__ = ["MAX_ENTRIES", "act_on_each", "chosen", "delete", "reschedule"]

MAX_ENTRIES = 200  # per form; larger selections run as a background change
DONE = {
    "retry": "pushed to their queues",
    "add_to_queue": "pushed to their queues",
    "kill": "moved to the dead set",
}


def chosen(context: RequestContext) -> tuple[list[Entry], int]:
    """Return the entries that the form names, and the number of those that are gone.

    A name is `<key> <digest>`; for a job of a queue, the key is the position where it was seen.

    Raises:
        ConfigError: The form names none, too many, or something else.
    """
    place, names = context.field("place"), context.fields("entry")
    if not names:
        raise ConfigError("nothing is selected; tick the jobs first")
    if len(names) > MAX_ENTRIES:
        raise ConfigError(f"entry: {len(names)} are more than {MAX_ENTRIES} at a time")
    found = [_find(context, place, name) for name in names]
    return [one for one in found if one is not None], found.count(None)


def act_on_each(act: BulkAction) -> Callable[[RequestContext], Redirect]:
    """Return the action that changes each chosen entry."""

    def do(context: RequestContext) -> Redirect:
        entries, gone = chosen(context)
        change = getattr(context.operations, act)
        done, problems = 0, []
        for entry in entries:
            try:
                changed = change(entry)
            except PayloadError as error:  # it stays where it is
                problems.append(str(error))
            else:
                done += bool(changed)
                gone += not changed
        return Redirect(context.back(), _told(done, DONE[act], gone, problems))

    return do


def delete(context: RequestContext) -> Redirect:
    """Delete the chosen entries."""
    entries, gone = chosen(context)
    removed = [context.operations.delete(entry) for entry in entries]
    done = sum(one.count for one in removed)
    gone += sum(not one.count for one in removed)
    undo = "; the journal can put them back" if done else ""
    return Redirect(context.back(), _told(done, "deleted", gone, []) + undo)


def reschedule(context: RequestContext) -> Redirect:
    """Change the time at which an entry is due."""
    asked = context.field("at").strip()
    moment = instant(_when(asked), now=context.now)
    entries, gone = chosen(context)
    done = sum(context.operations.reschedule(entry, moment) for entry in entries)
    return Redirect(context.back(), _told(done, "due at another time", gone, []))


def _when(asked: str) -> float | datetime:
    text = asked.removeprefix("in ").strip()
    try:
        return seconds(text) if "-" not in text[1:] else datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(
            f"at: {asked!r} is not a time; write 15m, 2h or 3d, or a date like 2026-12-24T18:00Z"
        ) from None


def _find(context: RequestContext, place: str, name: str) -> Entry | None:
    key, _, digest = name.rpartition(" ")
    if place.startswith(QUEUE):
        try:
            position = int(key)
        except ValueError:
            raise ConfigError(f"entry: {name!r} names no job of a queue") from None
        return context.job_near(place.removeprefix(QUEUE), position, digest)
    parts = split_key(key)
    if parts is None or place not in SETS:
        raise ConfigError(f"unknown entry {name!r} of {place!r}")
    return context.entry_at(cast("SetName", place), *parts, digest)


def _told(done: int, words: str, gone: int, problems: list[str]) -> str:
    told = f"{counted(done, 'job')} {words}"
    if gone:
        told += f"; {gone} had gone already"
    return "; ".join([told, *problems[:3]])
