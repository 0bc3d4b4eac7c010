"""Processes, what they run and what they hold. [INSP-11] [INSP-12] [INSP-13] [REL-1] [REL-7]"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from jobwire.errors import ConfigError
from jobwire.inspect.entry import Entry, entry
from jobwire.inspect.reading import ask, decode_json, items, name, number, raw, text, whole
from jobwire.inspect.summary import members
from jobwire.protocol.keys import Keys
from jobwire.protocol.payload import encode
from jobwire.protocol.reliable import private_queue
from jobwire.protocol.wire import Batch, Op, command

__all__ = [
    "CapsuleInfo",
    "InFlightSummary",
    "ProcessInfo",
    "Recoveries",
    "Signal",
    "Work",
    "holdings",
    "processes",
    "recoveries",
    "signal",
    "works",
]

Signal = Literal["TSTP", "TERM", "TTIN"]
SIGNAL_TTL = 60  # seconds [INSP-13]


@dataclass(frozen=True, slots=True)
class CapsuleInfo:
    """One group of queues of a process; `weights` maps queue names, 0 meaning strict order."""

    name: str
    concurrency: int
    mode: str
    weights: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class ProcessInfo:
    """One process, as it described itself at its last heartbeat. [BEAT-3] [BEAT-4]

    Attributes:
        identity: Opaque name.
        hostname: Where it runs; empty if it did not say, as everything else below.
        pid: Process id.
        started_at: Epoch seconds, or None.
        beat: Time of its last heartbeat in epoch seconds, or None.
        tag: Name of the application.
        labels: Further names.
        version: Of Sidekiq or jobwire; empty before Sidekiq 7.0.2.
        queues: What it serves.
        capsules: How it serves them, by name; none before Sidekiq 8.0.9.
        concurrency: Jobs that it runs at a time.
        busy: Jobs that it runs.
        quiet: Whether it has stopped fetching.
        embedded: Whether it runs inside another program.
        rss: Resident memory in KiB.
        rtt_us: Round trip to Redis in microseconds.
        info: Everything that it said of itself.
        problem: What cannot be read, or None.
    """

    identity: str
    hostname: str
    pid: int
    started_at: float | None
    beat: float | None
    tag: str
    labels: Sequence[str]
    version: str
    queues: Sequence[str]
    capsules: Mapping[str, CapsuleInfo]
    concurrency: int
    busy: int
    quiet: bool
    embedded: bool
    rss: int
    rtt_us: int
    info: Mapping[str, Any]
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Work:
    """A job in execution, as of its process's last heartbeat.

    Attributes:
        identity: The process.
        thread: The thread's name.
        queue: The queue that the job came from.
        run_at: When it began, in epoch seconds, or None.
        job: The job.
    """

    identity: str
    thread: str
    queue: str
    run_at: float | None
    job: Entry


@dataclass(frozen=True, slots=True)
class InFlightSummary:
    """What one process of the reliable profile holds. [REL-1]

    Attributes:
        identity: The process.
        alive: Whether it has a lease; if not, others will take the jobs back. [REL-3] [REL-4]
        size: How many jobs it holds.
        jobs: Some of them, each with the queue that it came from.
    """

    identity: str
    alive: bool
    size: int
    jobs: Sequence[tuple[str, Entry]]


@dataclass(frozen=True, slots=True)
class Recoveries:
    """What the reliable profile had to save.

    Attributes:
        recovered: Jobs that were taken back from dead processes, in all. [REL-12]
        lost: Outcomes that came too late, for others had taken the job back. [REL-12]
        returned: SHA-1 of each payload that was put back unfinished and not run to an end since,
            and how often. [REL-7]
    """

    recovered: int
    lost: int
    returned: Mapping[str, int]


def processes(keys: Keys) -> Op[list[ProcessInfo]]:
    """Return the processes by identity, without those whose hash has expired. [INSP-11]"""
    names, _ = yield from members(keys.processes)
    identities = sorted(names)
    replies = yield from ask([command("HGETALL", raw(keys.process(each))) for each in identities])
    found = (
        _process(identity, _pairs(reply))
        for identity, reply in zip(identities, replies, strict=True)
    )
    return [each for each in found if each is not None]


def works(keys: Keys) -> Op[list[Work]]:
    """Return the jobs in execution, the one that began first first. [INSP-12]"""
    names, _ = yield from members(keys.processes)
    identities = sorted(names)
    commands = [
        command("HGETALL", raw(key))
        for identity in identities
        for key in (keys.old_work(identity), keys.work(identity))
    ]
    replies = yield from ask(commands)
    found: dict[tuple[str, bytes], Work] = {}
    for index, identity in enumerate(identities):
        for reply in replies[2 * index : 2 * index + 2]:
            for thread, record in _pairs(reply).items():
                found[identity, thread] = _work(identity, thread, record)
    return sorted(found.values(), key=lambda work: (work.run_at or 0.0, work.identity, work.thread))


def signal(keys: Keys, identity: str, what: Signal) -> Op[None]:
    """Leave a signal for a process, which looks at each heartbeat. [INSP-13]

    Raises:
        ConfigError: No such process is registered, or it is embedded in another program, which
            is not ours to stop.
    """
    found = {each.identity: each for each in (yield from processes(keys))}
    process = found.get(identity)
    if process is None:
        known = ", ".join(text(each) for each in found) or "none"
        raise ConfigError(f"process {text(identity)!r} is not registered; there are: {known}")
    if process.embedded and what != "TTIN":
        raise ConfigError(
            f"process {text(identity)!r} is embedded in another program: stop that one itself"
        )
    key = raw(keys.signals(identity))
    yield Batch([command("LPUSH", key, what), command("EXPIRE", key, SIGNAL_TTL)], atomic=True)


def holdings(keys: Keys, *, most: int) -> Op[list[InFlightSummary]]:
    """Return what each process of the reliable profile holds, `most` jobs of each. [REL-1]"""
    names, _ = yield from members(keys.owners)
    found = []
    for identity in sorted(names):
        key = raw(keys.private(identity))
        alive, size = yield from ask(
            [command("EXISTS", raw(keys.process(identity))), command("HLEN", key)]
        )
        jobs: list[tuple[str, Entry]] = []
        cursor: Any = b"0"
        while len(jobs) < most:
            (reply,) = yield from ask([command("HSCAN", key, cursor, "COUNT", most)])
            cursor, flat = items(reply) or (b"0", [])
            jobs += (
                (private_queue(name(field)), entry(payload, "private"))
                for field, payload in zip(flat[::2], flat[1::2], strict=True)
            )
            if not whole(cursor):
                break
        found.append(InFlightSummary(identity, alive == 1, whole(size), jobs[:most]))
    return found


def recoveries(keys: Keys) -> Op[Recoveries]:
    """Return what became of jobs whose process died or was slow. [REL-7] [REL-12]"""
    recovered, lost = yield from ask([command("GET", keys.recovered), command("GET", keys.lost)])
    found: dict[str, int] = {}
    cursor: Any = b"0"
    while True:
        (reply,) = yield from ask([command("HSCAN", keys.returned, cursor, "COUNT", 1000)])
        cursor, flat = items(reply) or (b"0", [])
        for digest, times in zip(flat[::2], flat[1::2], strict=True):
            found[text(digest)] = whole(times)
        if not whole(cursor):
            return Recoveries(whole(recovered), whole(lost), found)


def _process(identity: str, fields: Mapping[bytes, bytes]) -> ProcessInfo | None:
    if b"info" not in fields:
        return None
    decoded = decode_json(fields[b"info"])
    info: dict[str, Any] = decoded if isinstance(decoded, dict) else {}
    capsules = _capsules(info.get("capsules"))
    queues = [each for each in items(info.get("queues")) if isinstance(each, str)]
    if capsules:
        queues = list(dict.fromkeys(queue for each in capsules.values() for queue in each.weights))
    own = whole(fields.get(b"concurrency"), default=-1)
    return ProcessInfo(
        identity=identity,
        hostname=_said(info, "hostname"),
        pid=whole(info.get("pid")),
        started_at=number(info.get("started_at")),
        beat=number(fields.get(b"beat")),
        tag=_said(info, "tag"),
        labels=[each for each in items(info.get("labels")) if isinstance(each, str)],
        version=_said(info, "version"),
        queues=queues,
        capsules=capsules,
        concurrency=whole(info.get("concurrency")) if own < 0 else own,
        busy=whole(fields.get(b"busy")),
        quiet=fields.get(b"quiet") == b"true",
        embedded=info.get("embedded") is True,
        rss=whole(fields.get(b"rss")),
        rtt_us=whole(fields.get(b"rtt_us")),
        info=info,
        problem=None if isinstance(decoded, dict) else "info is no JSON object",
    )


def _capsules(found: object) -> dict[str, CapsuleInfo]:
    if not isinstance(found, dict):
        return {}
    return {
        str(capsule): CapsuleInfo(
            str(capsule),
            whole(shape.get("concurrency")),
            _said(shape, "mode"),
            _weights(shape.get("weights")),
        )
        for capsule, shape in found.items()
        if isinstance(shape, dict)
    }


def _weights(found: object) -> dict[str, int]:
    if not isinstance(found, dict):
        return {}
    return {str(queue): whole(weight) for queue, weight in found.items()}


def _work(identity: str, thread: bytes, found: bytes) -> Work:
    decoded = decode_json(found)
    record: dict[str, Any] = decoded if isinstance(decoded, dict) else {}
    payload = record.get("payload")
    if isinstance(payload, str):
        job = entry(payload.encode("utf-8", "surrogatepass"), "work")
    elif isinstance(payload, dict):  # as up to 6.0.1
        job = entry(encode(payload), "work")
    else:
        job = entry(found, "work")
    return Work(identity, text(thread), _said(record, "queue"), number(record.get("run_at")), job)


def _pairs(reply: object) -> dict[bytes, bytes]:
    """Return a hash's reply, which RESP2 makes a flat list."""
    flat = items(reply)
    return dict(zip(flat[::2], flat[1::2], strict=True))


def _said(found: Mapping[str, Any], field: str) -> str:
    value = found.get(field)
    return value if isinstance(value, str) else ""
