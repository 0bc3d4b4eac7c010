"""Facts for the doctor about a server, its keys and its processes. It reads only.

Commands that an ACL forbids leave their facts out, and are named. [ENV-9]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from jobwire.inspect import summary
from jobwire.inspect.processes import ProcessInfo, classes, processes
from jobwire.inspect.reading import items, name, number, raw, text, whole
from jobwire.inspect.summary import QueueSummary, members
from jobwire.protocol import permissions
from jobwire.protocol.keys import Keys
from jobwire.protocol.wire import Arg, Batch, Command, ErrorReply, Op, command

__all__ = [
    "DoctorFacts",
    "PlaceSize",
    "PrivateHash",
    "allowed",
    "collect",
    "info_fields",
    "server_time",
]

_WITH_TIMES = ("schedule", "retry", "parked")
_SETS = ("schedule", "retry", "dead", "unreadable", "parked")
MAX_KEYS = 200_000  # of the database, that are looked at
KEYS_PER_SCAN = 1000
MAX_MEASURED = 200  # places whose memory is estimated
SAMPLES = 5  # entries of a place that the server measures for its estimate
SETTINGS = ("save", "appendonly", "appendfsync", "maxmemory-policy")

# A command of each kind of step that clients and people need; those of the scripts are added.
_TRIED: tuple[tuple[Arg, ...], ...] = (
    ("LREM", "queue", 1, "x"),
    ("UNLINK", "hash"),
    ("XADD", "journal", "*", "x", "x"),
    ("ZINTERSTORE", "undo", 1, "set"),
    ("RENAME", "set", "undo"),
)


@dataclass(frozen=True, slots=True)
class PlaceSize:
    """The memory of one queue or set, as the server estimates it from samples.

    Attributes:
        place: `queue:<name>` or the name of a set.
        entries: Number of entries.
        memory: Bytes.
    """

    place: str
    entries: int
    memory: int


@dataclass(frozen=True, slots=True)
class PrivateHash:
    """The private hash of a process.

    Attributes:
        identity: The process.
        size: Number of jobs.
        alive: True if the process has a lease.
        named: True if the identity is in the set of owners.
    """

    identity: str
    size: int
    alive: bool
    named: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorFacts:
    """Facts about a server. Times are epoch seconds by the clock of the server.

    Attributes:
        info: The fields of INFO; empty if it was refused.
        settings: Some settings of the server; empty if CONFIG was refused.
        now: Time of the server.
        clock_ahead: Seconds by which the clock of this program is ahead of the server's; negative
            if it is behind.
        latency: Seconds of the quickest of a few round trips.
        refused: Command names that the ACL forbids this user, with the server's text.
        queues: All registered queues.
        unregistered: Names of lists `queue:<name>` whose name is not in the set `queues`.
        processes: All registered processes.
        leases: Identity of a registered process to the seconds until its lease ends; those without
            a hash are left out.
        identities: Members of the set of processes.
        private: The private hashes.
        wrong_types: Key to `(its type, the type of the protocol)`.
        counts: Number of entries by set.
        overdue: Set to the score of its earliest entry.
        parked_at: Time at which the oldest parked job was parked; None if none is.
        classes: Number of classes that processes announce; 0 if no job is parked.
        sizes: Memory of the largest places.
        scanned: Number of keys that were looked at.
        keys: Number of keys in the database.
    """

    info: Mapping[str, str]
    settings: Mapping[str, str]
    now: float
    clock_ahead: float
    latency: float
    refused: Mapping[str, str]
    queues: Sequence[QueueSummary]
    unregistered: Sequence[str]
    processes: Sequence[ProcessInfo]
    leases: Mapping[str, float]
    identities: Sequence[str]
    private: Sequence[PrivateHash]
    wrong_types: Mapping[str, tuple[str, str]]
    counts: Mapping[str, int]
    overdue: Mapping[str, float]
    sizes: Sequence[PlaceSize] = ()
    scanned: int = 0
    keys: int = 0
    parked_at: float | None = None
    classes: int = 0


@dataclass(slots=True)
class _Found:
    """Keys of a scan that matter."""

    queues: set[str] = field(default_factory=set)
    owners: set[str] = field(default_factory=set)
    scanned: int = 0


def collect(
    keys: Keys, *, clock_ahead: float, latency: float, most_keys: int = MAX_KEYS
) -> Op[DoctorFacts]:
    """Return the facts.

    The server is asked for one page of keys at a time. No command reads a whole queue or set.

    Args:
        keys: Key names.
        clock_ahead: See `DoctorFacts`.
        latency: See `DoctorFacts`.
        most_keys: Maximum number of keys of the database to look at.
    """
    refused: dict[str, str] = {}
    info = info_fields((yield from allowed(refused, [command("INFO")]))[0])
    stored = yield from allowed(refused, [command("CONFIG", "GET", one) for one in SETTINGS])
    settings: dict[str, str] = {}
    for reply in stored:
        flat = items(reply)
        settings |= dict(zip(map(text, flat[::2]), map(text, flat[1::2]), strict=True))
    clock, size = yield from allowed(refused, [command("TIME"), command("DBSIZE")])
    now = server_time(clock)
    if info.get("role", "master") == "master" and "min_slaves_good_slaves" not in info:
        refused |= yield from _refused_writes(keys)
    names, _ = yield from members(keys.queues)
    queues = yield from summary.queue_summaries(keys, now=now)
    identities, _ = yield from members(keys.processes)
    owners, _ = yield from members(keys.owners)
    found = yield from _scan(keys, refused, most_keys)
    registered = yield from processes(keys)
    leases = yield from _leases(keys, identities)
    private = yield from _private(keys, sorted({*owners, *found.owners, *identities}), {*owners})
    sets = {place: getattr(keys, place) for place in _SETS}
    counts = yield from allowed(refused, [command("ZCARD", key) for key in sets.values()])
    first = yield from allowed(
        refused, [command("ZRANGE", sets[one], 0, 0, "WITHSCORES") for one in _WITH_TIMES]
    )
    earliest = {
        place: score
        for place, reply in zip(_WITH_TIMES, first, strict=True)
        if len(items(reply)) == 2 and (score := number(reply[1])) is not None
    }
    entries = {place: whole(count) for place, count in zip(sets, counts, strict=True)}
    parked_at = earliest.pop("parked", None)
    announced = (yield from classes(keys)) if parked_at is not None else {}
    measured = {f"queue:{queue.name}": queue.size for queue in queues} | entries
    return DoctorFacts(
        info=info,
        settings=settings,
        now=now,
        clock_ahead=clock_ahead,
        latency=latency,
        wrong_types=(yield from _wrong_types(keys, names, identities)),
        sizes=(yield from _sizes(keys, measured, refused)),
        refused=refused,
        queues=queues,
        unregistered=sorted(found.queues - {*names}),
        processes=registered,
        leases=leases,
        identities=identities,
        private=private,
        counts=entries,
        overdue=earliest,
        parked_at=parked_at,
        classes=len(announced),
        scanned=found.scanned,
        keys=whole(size),
    )


def server_time(reply: object) -> float:
    """Return the epoch seconds of a reply to TIME; 0 if it was refused."""
    words = items(reply)
    return whole(words[0]) + whole(words[1]) / 1e6 if len(words) == 2 else 0.0


def allowed(refused: dict[str, str], commands: Sequence[Command]) -> Op[list[Any]]:
    """Send commands; note those that the server refuses, whose reply is then None."""
    replies: list[Any] = yield Batch(commands)
    for index, (step, reply) in enumerate(zip(commands, replies, strict=True)):
        if isinstance(reply, ErrorReply):
            replies[index] = None
            if not reply.says("WRONGTYPE"):
                refused[text(step.args[0])] = reply.message
    return replies


def _refused_writes(keys: Keys) -> Op[dict[str, str]]:
    """Return the commands that the ACL forbids; none of them is carried out."""
    named = {
        "queue": keys.queue("jobwire-doctor"),
        "set": keys.retry,
        "hash": keys.private("jobwire-doctor"),
        "journal": keys.journal,
        "undo": keys.undo("jobwire-doctor"),
    }
    tried = [command(*(named.get(str(word), word) for word in words)) for words in _TRIED]
    tried += permissions.of_scripts(keys, "jobwire-doctor", "jobwire-doctor")
    found = yield from permissions.refused(tried, endings=("DISCARD", "EXEC"))
    return {name: reply.message for name, reply in found.items()}


def _scan(keys: Keys, refused: dict[str, str], most_keys: int) -> Op[_Found]:
    """Look through the database for queues and private hashes, up to a number of keys."""
    found = _Found()
    queue, private = keys.queue("").encode(), keys.private("").encode()
    cursor: Any = b"0"
    while found.scanned < most_keys:
        (reply,) = yield from allowed(refused, [command("SCAN", cursor, "COUNT", KEYS_PER_SCAN)])
        cursor, page = items(reply) or (b"0", [])
        found.scanned += len(page)
        found.queues.update(name(key.removeprefix(queue)) for key in page if key.startswith(queue))
        found.owners.update(
            name(key.removeprefix(private)) for key in page if key.startswith(private)
        )
        if not whole(cursor):
            break
    return found


def _leases(keys: Keys, identities: Sequence[str]) -> Op[dict[str, float]]:
    replies = yield from allowed(
        {}, [command("PTTL", raw(keys.process(identity))) for identity in identities]
    )
    return {
        identity: max(whole(reply), 0) / 1000
        for identity, reply in zip(identities, replies, strict=True)
        if whole(reply, -2) != -2
    }


def _private(keys: Keys, identities: Sequence[str], owners: set[str]) -> Op[list[PrivateHash]]:
    replies = yield from allowed(
        {},
        [
            step
            for identity in identities
            for step in (
                command("HLEN", raw(keys.private(identity))),
                command("EXISTS", raw(keys.process(identity))),
            )
        ],
    )
    return [
        PrivateHash(identity, whole(size), alive == 1, identity in owners)
        for identity, size, alive in zip(identities, replies[::2], replies[1::2], strict=True)
        if whole(size)
    ]


def _wrong_types(
    keys: Keys, queues: Sequence[str], identities: Sequence[str]
) -> Op[dict[str, tuple[str, str]]]:
    sets = (keys.queues, keys.processes, keys.owners, keys.paused)
    sorted_sets = (*(getattr(keys, one) for one in _SETS), keys.returned_at)
    strings = (keys.recovery, keys.recovered, keys.lost, keys.cleanup_lock)
    expected: dict[str, str] = {
        **dict.fromkeys(sets, "set"),
        **dict.fromkeys(sorted_sets, "zset"),
        **dict.fromkeys((*strings, keys.stat("processed"), keys.stat("failed")), "string"),
        keys.returned: "hash",
        keys.journal: "stream",
        **{keys.queue(queue): "list" for queue in queues},
    }
    for identity in identities:
        hashes = (keys.process(identity), keys.work(identity), keys.private(identity))
        expected |= dict.fromkeys(hashes, "hash") | {keys.signals(identity): "list"}
    replies = yield from allowed({}, [command("TYPE", raw(key)) for key in expected])
    return {
        key: (text(reply), kind)
        for (key, kind), reply in zip(expected.items(), replies, strict=True)
        if reply is not None and text(reply) not in (kind, "none")
    }


def _sizes(keys: Keys, entries: Mapping[str, int], refused: dict[str, str]) -> Op[list[PlaceSize]]:
    largest = sorted((place for place in entries if entries[place]), key=lambda one: -entries[one])
    measured = largest[:MAX_MEASURED]
    stored = [
        keys.queue(place.removeprefix("queue:"))
        if place.startswith("queue:")
        else getattr(keys, place)
        for place in measured
    ]
    replies = yield from allowed(
        refused, [command("MEMORY", "USAGE", raw(key), "SAMPLES", SAMPLES) for key in stored]
    )
    return [
        PlaceSize(place, entries[place], whole(reply))
        for place, reply in zip(measured, replies, strict=True)
        if reply is not None
    ]


def info_fields(reply: object) -> dict[str, str]:
    """Return the fields of the reply to INFO; none of a refusal."""
    lines = text(reply).splitlines() if isinstance(reply, bytes) else []
    pairs = (line.partition(":") for line in lines if not line.startswith("#"))
    return {field: value for field, _, value in pairs if field}
