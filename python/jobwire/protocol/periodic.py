"""Periodic jobs in Redis: reading and writing entries, and taking their ticks.

The ticks come as arguments: `jobwire.periodic` computes them from the cron lines.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from jobwire.errors import RedisRefused
from jobwire.protocol.keys import Keys
from jobwire.protocol.normalize import ReadyPayload
from jobwire.protocol.periodic_entry import (
    DEFAULT_NAMESPACE,
    FIELDS,
    HISTORY,
    REMEMBER_S,
    PeriodicEntry,
    StoredEntry,
    history_entry,
    stored_time,
    tick_member,
)
from jobwire.protocol.pushing import push
from jobwire.protocol.wire import Arg, Batch, Command, ErrorReply, Op, Script, command

__all__ = [
    "NotTaken",
    "Saving",
    "Tick",
    "Ticked",
    "find_layout",
    "free_ticks",
    "history",
    "holders",
    "latest_taken",
    "load",
    "members",
    "migrate",
    "newest_of",
    "read_entries",
    "read_ticked",
    "remove",
    "run_now",
    "script_tick",
    "server_time",
    "set_status",
]


class Tick(msgspec.Struct, frozen=True):
    """One tick of an entry, and the payload to push for it."""

    at: int
    payload: ReadyPayload


class Ticked(msgspec.Struct, frozen=True):
    """The ticks that were pushed, and those that were taken without a push, in epoch seconds."""

    pushed: Sequence[int] = ()
    skipped: Sequence[int] = ()


class NotTaken(Exception):
    """No tick was taken: the entry has changed, or the key of the queue is not a list."""

    def __init__(self, *, changed: bool) -> None:
        super().__init__("the entry has changed" if changed else "the queue is not a list")
        self.changed = changed


class Saving(msgspec.Struct, frozen=True):
    """An entry to save, and its latest tick before now, if there is one. [X-CRON-35]"""

    entry: PeriodicEntry
    latest: int | None


def server_time() -> Op[float]:
    """Return the epoch seconds of the server's clock. [X-CRON-21]"""
    seconds, microseconds = yield command("TIME")
    return int(seconds) + int(microseconds) / 1e6


def read_entries(
    keys: Keys, namespace: str | None = DEFAULT_NAMESPACE, known: Iterable[StoredEntry] = ()
) -> Op[list[StoredEntry]]:
    """Return the entries of layout 1, and those of one namespace of layout 2. [X-CRON-3]

    If both have an entry of a name in the namespace `default`, only the one of layout 2 is
    returned. While nothing changes, this is one command.

    Args:
        keys: Key names.
        namespace: The namespace.
        known: The entries that the last call has returned. Only those that changed are read again.
    """
    entries = {entry.member: entry for entry in known}
    namespace = DEFAULT_NAMESPACE if namespace is None else namespace
    with_layout_1 = namespace == DEFAULT_NAMESPACE
    sets = [keys.cron_entries(None), keys.cron_entries(namespace)]
    if not with_layout_1:
        sets[0] = sets[1]
    while True:
        asked = list(entries)
        first, second, changed = yield Script(
            "periodic_look",
            [*sets, *map(keys.cron_entry, asked)],
            [len(FIELDS), *FIELDS, *(entries[member].digest for member in asked)],
        )
        places: dict[str, str | None] = {}
        if with_layout_1:
            places = {_text(member): None for member in first}
        places |= {_text(member): namespace for member in second}
        for index, digest, pairs in zip(*[iter(changed)] * 3, strict=True):
            member = asked[index - 1]
            texts = list(map(_text, pairs))
            fields = dict(zip(texts[::2], texts[1::2], strict=True))
            entries[member] = StoredEntry(member, places.get(member), fields, _text(digest))
        missing = [member for member in places if member not in entries]
        entries = {member: entries[member] for member in entries if member in places}
        if not missing:
            break
        entries |= {member: StoredEntry(member, places[member], {}) for member in missing}
    return newest_of(entries.values())


def newest_of(entries: Iterable[StoredEntry]) -> list[StoredEntry]:
    """Return the entries that exist; of a name in both layouts, that of layout 2. [X-CRON-3]"""
    found = [entry for entry in entries if entry.fields]
    newer = {entry.name for entry in found if entry.layout_namespace is not None}
    return [
        entry for entry in found if entry.layout_namespace is not None or entry.name not in newer
    ]


def members(keys: Keys, layout_namespace: str | None) -> Op[list[bytes]]:
    """Return the members of a set of entries; see `load`."""
    found: Sequence[bytes] = yield command("SMEMBERS", keys.cron_entries(layout_namespace))
    return list(found)


def free_ticks(keys: Keys, ticks: Sequence[tuple[StoredEntry, int]]) -> Op[list[int]]:
    """Return the numbers of the ticks that no process has taken yet; one command for all."""
    free: Sequence[int] = yield Script(
        "periodic_due",
        [keys.cron_ticks(entry.member) for entry, _ in ticks],
        [tick_member(at) for _, at in ticks],
    )
    return [number - 1 for number in free]


def latest_taken(keys: Keys, entries: Sequence[StoredEntry]) -> Op[list[float | None]]:
    """Return the highest score among the ticks of each entry that were taken. [X-CRON-24]"""
    if not entries:
        return []
    replies: list[Any] = yield Batch(
        [
            command("ZRANGE", keys.cron_ticks(entry.member), -1, -1, "WITHSCORES")
            for entry in entries
        ]
    )
    return [_score(reply) for reply in replies]


def _score(reply: Any) -> float | None:
    """Return the score of a reply with one member; RESP3 makes a pair of the two. [ENV-4]"""
    if not isinstance(reply, list) or not reply:
        return None
    *_, score = reply[-1] if isinstance(reply[-1], list) else reply
    return float(score)


def holders(keys: Keys) -> Op[list[str]]:
    """Return the keys of the hashes of jobs that processes hold. [X-CRON-26]"""
    replies: list[Any] = yield Batch(
        [command("SMEMBERS", keys.processes), command("SMEMBERS", keys.owners)]
    )
    identities = {_text(each) for reply in replies if isinstance(reply, list) for each in reply}
    return [
        key
        for identity in sorted(identities)
        for key in (keys.private(identity), keys.work(identity), keys.old_work(identity))
    ]


def script_tick(
    keys: Keys,
    entry: StoredEntry,
    ticks: Sequence[Tick],
    *,
    now: float,
    held: Sequence[str] = (),
) -> Script:
    """Take ticks of an entry, and push a job for each that no process had taken.

    This is one atomic step, and no key expires. `read_ticked` reads the reply. [X-CRON-5]
    [X-CRON-8] [X-CRON-9] [X-CRON-17] [X-CRON-18] [X-CRON-20] [X-CRON-23] [X-CRON-25]

    Args:
        keys: Key names.
        entry: The entry, as it was read.
        ticks: Its ticks that are due, the earliest first. Their jobs have one queue.
        now: Epoch seconds of the server.
        held: Keys of the hashes of jobs that processes hold, if the entry skips overlaps.
    """
    queue = ticks[0].payload.queue
    fives: list[Arg] = []
    for tick in ticks:
        fives += (tick.at, tick_member(tick.at), stored_time(tick.at))
        fives += (history_entry(tick.payload.jid, now), tick.payload.text)
    return Script(
        "periodic_tick",
        [
            keys.cron_entries(entry.layout_namespace),
            keys.cron_entry(entry.member),
            keys.cron_ticks(entry.member),
            keys.cron_history(entry.member),
            keys.queues,
            keys.queue(queue),
            *held,
        ],
        [
            *(entry.member, entry.digest, queue, repr(now), REMEMBER_S, HISTORY),
            *(int(entry.skips_overlap), len(FIELDS), *FIELDS, *fives),
        ],
    )


def read_ticked(ticks: Sequence[Tick], reply: Any) -> Ticked:
    """Return what `script_tick` did with these ticks.

    Raises:
        NotTaken: Nothing was written.
        RedisRefused: The server refused the call.
    """
    if isinstance(reply, ErrorReply):
        raise RedisRefused(reply.message)
    if isinstance(reply, int):
        raise NotTaken(changed=reply == -1)
    pushed, skipped = (
        [tick.at for tick, result in zip(ticks, reply, strict=True) if result == kind]
        for kind in (1, 2)
    )
    return Ticked(pushed, skipped)


def run_now(keys: Keys, entry: StoredEntry, payload: ReadyPayload, *, now: float) -> Op[None]:
    """Push a job of an entry at once, also of one that is disabled. [X-CRON-41] [X-CRON-42]"""
    history_key = keys.cron_history(entry.member)
    yield from push(keys, [payload])
    yield Batch(
        [
            command("LPUSH", history_key, history_entry(payload.jid, now)),
            command("LTRIM", history_key, 0, HISTORY - 1),
        ],
        atomic=True,
    )


def history(keys: Keys, entry: StoredEntry) -> Op[list[dict[str, Any]]]:
    """Return the newest pushes of an entry, newest first: `jid` and `enqueued`. [X-CRON-6]"""
    texts: Sequence[bytes] = yield command("LRANGE", keys.cron_history(entry.member), 0, -1)
    found = []
    for text in texts:
        try:
            push_made = msgspec.json.decode(text)
        except msgspec.DecodeError:
            continue
        if isinstance(push_made, dict):
            found.append(push_made)
    return found


def find_layout(keys: Keys, namespace: str) -> Op[str | None]:
    """Return the namespace to write to; None for layout 1. [X-CRON-2]

    Layout 1 is written only if it is in use and layout 2 is not.
    """
    old, new = yield Batch(
        [
            command("EXISTS", keys.cron_entries(None)),
            command("EXISTS", keys.cron_entries(namespace)),
        ]
    )
    return None if old and not new and namespace == DEFAULT_NAMESPACE else namespace


def load(
    keys: Keys,
    layout_namespace: str | None,
    savings: Sequence[Saving],
    *,
    schedule: str = "",
    removals: Sequence[StoredEntry] = (),
    seen: Iterable[bytes] | None = None,
) -> Op[int | None]:
    """Save entries, and remove others of the same schedule, in one step.

    [X-CRON-34] [X-CRON-35] [X-CRON-36] [X-CRON-38] [X-CRON-39]

    Args:
        keys: Key names.
        layout_namespace: Where to write; None for layout 1.
        savings: The entries to save.
        schedule: Name of the schedule that they are of; `""` for dynamic entries.
        removals: Entries of this schedule to remove.
        seen: The members of the set of entries on which `removals` are based.

    Returns:
        How many were removed; None if the set of entries has changed, so nothing was done.
    """
    layout = 1 if layout_namespace is None else 2
    names = [keys.cron_entries(layout_namespace)]
    digest = "" if seen is None else _sha(sorted(seen))
    words: list[Arg] = [digest, schedule, len(removals)]
    for stored in removals:
        names += (keys.cron_entry(stored.member), keys.cron_ticks(stored.member))
        names.append(keys.cron_history(stored.member))
        words.append(stored.member)
    for saving in savings:
        entry, latest = saving.entry, saving.latest
        member = keys.cron_member(layout_namespace, entry.name)
        names += (keys.cron_entry(member), keys.cron_ticks(member))
        fields = entry.fields(layout=layout)
        defaults = entry.defaults(layout=layout)
        if schedule:
            fields |= {"source": "dynamic", "jw_source": schedule}
        pairs = [*fields.items(), *((f"?{name}", value) for name, value in defaults.items())]
        words += (member, *(("", 0) if latest is None else (tick_member(latest), latest)))
        words += (2 * len(pairs), *(word for pair in pairs for word in pair))
    removed: int = yield Script("periodic_load", names, words)
    return None if removed < 0 else removed


def set_status(
    keys: Keys, entry: StoredEntry, *, enabled: bool, latest: int | None
) -> Op[bool | None]:
    """Enable or disable an entry; return True if that changed it, None if it has gone.

    [X-CRON-36] [X-CRON-37]
    """
    changed: int = yield Script(
        "periodic_status",
        [
            keys.cron_entries(entry.layout_namespace),
            keys.cron_entry(entry.member),
            keys.cron_ticks(entry.member),
        ],
        [
            entry.member,
            "enabled" if enabled else "disabled",
            *(("", 0) if latest is None else (tick_member(latest), latest)),
        ],
    )
    return None if changed < 0 else bool(changed)


def remove(keys: Keys, entry: StoredEntry) -> Op[bool]:
    """Remove an entry, its ticks and its history, in one step. [X-CRON-40]"""
    steps: list[Command] = [
        command("SREM", keys.cron_entries(entry.layout_namespace), entry.member),
        command(
            "DEL",
            keys.cron_entry(entry.member),
            keys.cron_ticks(entry.member),
            keys.cron_history(entry.member),
        ),
    ]
    removed, _ = yield Batch(steps, atomic=True)
    return bool(removed)


def migrate(keys: Keys, entries: Sequence[StoredEntry], namespace: str) -> Op[int]:
    """Move entries of layout 1 to layout 2, with their ticks and histories; return how many."""
    names = [keys.cron_entries(None), keys.cron_entries(namespace)]
    words: list[Arg] = [namespace]
    for entry in entries:
        member = keys.cron_member(namespace, entry.name)
        for one in (entry.member, member):
            names += (keys.cron_entry(one), keys.cron_ticks(one), keys.cron_history(one))
        words += (entry.member, member, _retry(entry.fields))
    moved: int = yield Script("periodic_migrate", names, words)
    return moved


def _retry(fields: Mapping[str, str]) -> str:
    try:
        message = msgspec.json.decode(fields.get("message") or "{}")
    except msgspec.DecodeError:
        return ""
    retry = message.get("retry") if isinstance(message, dict) else None
    return "" if retry is None else msgspec.json.encode(retry).decode()


def _sha(parts: Sequence[bytes]) -> str:
    return hashlib.sha1(b"\n".join(parts), usedforsecurity=False).hexdigest()


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
