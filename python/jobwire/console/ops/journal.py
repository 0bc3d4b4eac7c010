"""The journal: a stream of the changes that people made, without arguments of jobs. [KEY-5]

The entry of an action is written before the action. It is removed if the action changed nothing. So
each change has an entry, also if the program ends in between.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from jobwire.console.ops.roles import Action
from jobwire.inspect.reading import items, text, whole
from jobwire.protocol.keys import Keys
from jobwire.protocol.wire import Arg, Command, Op, command

__all__ = [
    "MAX_ENTRIES",
    "JournalEntry",
    "State",
    "joined",
    "noted",
    "read",
    "storable",
    "withdraw",
    "write",
]

MAX_ENTRIES = 100_000
MAX_FIELD_CHARS = 200  # characters of one field

State = Literal["done", "begun", "ended"]
"""Of one step: `done`. Of many steps: `begun` at the start, and `ended` with the number."""


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """One action of a person.

    Attributes:
        id: Id in the stream, such as `1795192067250-0`.
        at: Epoch seconds by the clock of the server.
        person: Name of the person, as the program gave it.
        act: Name of the action, such as `delete`.
        target: A job id with its place, a place with a filter, a queue, or a process.
        count: Number of entries that changed; at the start of many steps, the number examined.
        state: `done`, `begun` or `ended`.
        job: Id that the entries of one action of many steps share, or "".
        undo: Id with which a deletion can be undone, or "".
    """

    id: str
    at: float
    person: str
    act: str
    target: str
    count: int
    state: str
    job: str = ""
    undo: str = ""

    @property
    def status(self) -> str:
        """`started` or `done`, for people; another state as it is."""
        return {"begun": "started", "ended": "done"}.get(self.state, self.state)


def joined(entries: Sequence[JournalEntry]) -> list[JournalEntry]:
    """Return entries, newest first, with one per action of many steps: its end, if it has one."""
    kept = []
    ended: set[tuple[str, str, str]] = set()
    for entry in entries:
        act = (entry.person, entry.act, entry.job or entry.undo or entry.target.rpartition(" ")[2])
        if entry.state == "begun" and act in ended:
            ended.remove(act)
            continue
        if entry.state == "ended":
            ended.add(act)
        kept.append(entry)
    return kept


def noted(
    keys: Keys,
    *,
    person: str,
    act: Action,
    target: str,
    count: int,
    state: State = "done",
    job: str = "",
    undo: str = "",
) -> Command:
    """Return the step that writes an entry; its reply is the id of the entry."""
    fields: dict[str, Arg] = {
        "who": storable(person),
        "act": act,
        "what": storable(target),
        "count": count,
        "state": state,
    }
    fields |= {name: storable(id_) for name, id_ in (("job", job), ("undo", undo)) if id_}
    words = (word for pair in fields.items() for word in pair)
    return command("XADD", keys.journal, "MAXLEN", "~", MAX_ENTRIES, "*", *words)


def write(keys: Keys, **fields: Any) -> Op[bytes]:
    """Write an entry and return its id; see `noted` for the fields.

    Raises:
        RedisRefused: The journal cannot be written, so the action must not happen.
    """
    written: bytes = yield noted(keys, **fields)
    return written


def withdraw(keys: Keys, written: bytes) -> Op[None]:
    """Remove the entry of an action that changed nothing."""
    yield command("XDEL", keys.journal, written)


def read(keys: Keys, *, limit: int, before: str | None = None) -> Op[list[JournalEntry]]:
    """Return entries, newest first.

    Args:
        keys: Key names.
        limit: Maximum number of entries.
        before: Id of an entry; only older ones are returned. By default the newest are.

    Raises:
        RedisRefused: The journal is not a stream, or `before` is not an id.
    """
    newest = "+" if before is None else f"({before}"
    reply = yield command("XREVRANGE", keys.journal, newest, "-", "COUNT", limit)
    return [_entry(stored) for stored in items(reply)]


def storable(value: str) -> str:
    """Return a text that fits into a field and that every client can send."""
    encodable = value.encode("utf-8", "replace").decode("utf-8")
    return (
        encodable if len(encodable) <= MAX_FIELD_CHARS else encodable[: MAX_FIELD_CHARS - 1] + "…"
    )


def _entry(stored: Any) -> JournalEntry:
    # Any program may write into the stream, so each field may be missing.
    identifier, flat = stored
    fields = _pairs(items(flat))
    name = text(identifier)
    return JournalEntry(
        name,
        whole(name.partition("-")[0]) / 1000,
        text(fields.get(b"who")),
        text(fields.get(b"act")),
        text(fields.get(b"what")),
        whole(fields.get(b"count")),
        text(fields.get(b"state")),
        text(fields.get(b"job")),
        text(fields.get(b"undo")),
    )


def _pairs(flat: Sequence[bytes]) -> dict[bytes, bytes]:
    return dict(zip(flat[::2], flat[1::2], strict=False))
