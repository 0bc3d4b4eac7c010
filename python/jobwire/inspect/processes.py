"""Processes, with the jobs that they run and hold.

[INSP-11] [INSP-12] [INSP-13] [REL-1] [REL-7]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import msgspec

from jobwire.errors import ConfigError
from jobwire.inspect.entry import Entry, entry, may_have
from jobwire.inspect.progress import reported
from jobwire.inspect.reading import ask, decode_json, items, name, number, raw, text, whole
from jobwire.inspect.summary import members
from jobwire.protocol.keys import Keys
from jobwire.protocol.payload import encode
from jobwire.protocol.progress import JobProgress
from jobwire.protocol.reliable import private_queue, scan_private
from jobwire.protocol.wire import Batch, Op, command

__all__ = [
    "CapsuleInfo",
    "InFlightSummary",
    "ProcessInfo",
    "Recoveries",
    "Signal",
    "Work",
    "WorkRecord",
    "held_by",
    "holdings",
    "private_owners",
    "processes",
    "read_process",
    "read_works",
    "recoveries",
    "signal",
    "work_records",
    "works",
]

Signal = Literal["TSTP", "TERM", "TTIN"]
SIGNAL_TTL_S = 60  # [INSP-13]


@dataclass(frozen=True, slots=True)
class CapsuleInfo:
    """One capsule of a process; `weights` is queue name to weight, where 0 means strict order."""

    name: str
    concurrency: int
    mode: str
    weights: Mapping[str, int]


class ProcessInfo(msgspec.Struct, frozen=True):
    """One process, as of its last heartbeat. [BEAT-3] [BEAT-4]

    Fields that the heartbeat does not have are empty, 0, False or None.
    [INSP-25] [INSP-32] [INSP-33]

    Attributes:
        identity: Opaque name. [BEAT-19]
        hostname: Name of its host.
        pid: Process id.
        started_at: Epoch seconds, or None.
        beat: Time of its last heartbeat in epoch seconds, or None.
        tag: Name of the application.
        labels: Other names.
        version: Version of Sidekiq or jobwire; empty before Sidekiq 7.0.2.
        queues: Names of its queues.
        capsules: Its capsules by name; empty before Sidekiq 8.0.9.
        concurrency: Number of jobs that it can run at the same time.
        busy: Number of jobs that it runs.
        quiet: True if it has stopped fetching.
        embedded: True if it runs inside another program.
        rss: Resident memory in KiB.
        rtt_us: Round trip to Redis in microseconds.
        info: All fields of its `info`.
        problem: The problem with its data, or None.
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
        run_at: Time of its start in epoch seconds, or None.
        job: The job.
        progress: The last report of this execution; None if there is none.
    """

    identity: str
    thread: str
    queue: str
    run_at: float | None
    job: Entry
    progress: JobProgress | None = None


class WorkRecord(NamedTuple):
    """A job in execution, whose payload is not decoded yet; see `Work`."""

    identity: str
    thread: str
    queue: str
    run_at: float | None
    payload: bytes

    def read(self) -> Work:
        """Return it with its job."""
        identity, thread, queue, run_at, payload = self
        return Work(identity, thread, queue, run_at, entry(payload, "work"))


@dataclass(frozen=True, slots=True)
class InFlightSummary:
    """The jobs that one process of the reliable profile holds. [REL-1]

    Attributes:
        identity: The process.
        alive: True if it has a lease; otherwise other processes recover its jobs. [REL-3] [REL-11]
        size: Number of jobs that it holds.
        jobs: Some of these jobs, each with the queue that it came from.
    """

    identity: str
    alive: bool
    size: int
    jobs: Sequence[tuple[str, Entry]]


@dataclass(frozen=True, slots=True)
class Recoveries:
    """Counters of the reliable profile.

    Attributes:
        recovered: Total of jobs that were recovered from dead processes. [REL-12]
        lost: Total of outcomes that came too late, because the job had been recovered. [REL-23]
        returned: SHA-1 of each payload that was put back unfinished and has not ended since, to
            the number of times. [REL-7]
    """

    recovered: int
    lost: int
    returned: Mapping[str, int]


def processes(keys: Keys) -> Op[list[ProcessInfo]]:
    """Return the processes by identity, without those whose hash has expired. [INSP-11]"""
    names, _ = yield from members(keys.processes)
    identities = sorted(names)
    replies = yield from ask(
        [command("HGETALL", raw(keys.process(identity))) for identity in identities]
    )
    registered = (
        read_process(identity, reply) for identity, reply in zip(identities, replies, strict=True)
    )
    return [process for process in registered if process is not None]


def works(keys: Keys) -> Op[list[Work]]:
    """Return the jobs in execution, oldest first. [INSP-12] [INSP-18] [INSP-31]"""
    return (yield from read_works(keys, (yield from work_records(keys))))


def read_works(keys: Keys, records: Sequence[WorkRecord]) -> Op[list[Work]]:
    """Return the jobs of these records, with their progress. [X-PROG-6] [X-PROG-7]"""
    read = [record.read() for record in records]
    jids = list({work.job.jid: None for work in read if work.job.jid})
    progress = yield from reported(keys, jids)

    def of(work: Work) -> JobProgress | None:
        one = progress.get(work.job.jid or "")
        # An older one is that of an execution before this one.
        return one if one is not None and one.at >= (work.run_at or 0.0) else None

    return [replace(work, progress=of(work)) for work in read] if progress else read


def work_records(keys: Keys, part: bytes = b"") -> Op[list[WorkRecord]]:
    """Return the records of the jobs in execution, oldest first, without decoding the jobs.

    Processes of which no record can have `part` are left out; see `entry.may_have`.
    """
    names, _ = yield from members(keys.processes)
    identities = sorted(names)
    commands = [
        command("HGETALL", raw(key))
        for identity in identities
        for key in (keys.old_work(identity), keys.work(identity))
    ]
    replies = yield from ask(commands)
    by_thread: dict[tuple[str, bytes], WorkRecord] = {}
    for index, identity in enumerate(identities):
        for reply in replies[2 * index : 2 * index + 2]:
            if not may_have(b"".join(items(reply)), part):
                continue
            for thread, record in _pairs(reply).items():
                by_thread[identity, thread] = _record(identity, thread, record)
    return sorted(
        by_thread.values(), key=lambda work: (work.run_at or 0.0, work.identity, work.thread)
    )


def signal(keys: Keys, identity: str, name: Signal) -> Op[None]:
    """Leave a signal for a process, which reads it at its next heartbeat. [INSP-13]

    Raises:
        ConfigError: The process is not registered, or it is embedded in another program, which
            only its owner may stop. [INSP-19]
    """
    registered = {process.identity: process for process in (yield from processes(keys))}
    process = registered.get(identity)
    if process is None:
        known = ", ".join(text(other) for other in registered) or "none"
        raise ConfigError(
            f"process {text(identity)!r} is not registered; registered processes: {known}"
        )
    if process.embedded and name != "TTIN":
        raise ConfigError(
            f"process {text(identity)!r} is embedded in another program; stop that program"
        )
    key = raw(keys.signals(identity))
    yield Batch([command("LPUSH", key, name), command("EXPIRE", key, SIGNAL_TTL_S)], atomic=True)


def holdings(keys: Keys, *, most: int) -> Op[list[InFlightSummary]]:
    """Return the jobs that each process of the reliable profile holds, up to `most` of each.

    [REL-1]
    """
    names, _ = yield from members(keys.owners)
    identities = sorted({*names, *(yield from private_owners(keys))})
    return (yield from held_by(keys, identities, most=most))


def held_by(keys: Keys, identities: Sequence[str], *, most: int) -> Op[list[InFlightSummary]]:
    """Return the jobs that these processes hold; with `most` 0 only their numbers. [REL-1]"""
    private = [raw(keys.private(identity)) for identity in identities]
    replies = yield from ask(
        [
            step
            for identity, key in zip(identities, private, strict=True)
            for step in (command("EXISTS", raw(keys.process(identity))), command("HLEN", key))
        ]
    )
    jobs: list[list[tuple[str, Entry]]] = [[] for _ in identities]
    cursors: dict[int, Any] = {}
    if most:
        sizes = [whole(size) for size in replies[1::2]]
        cursors = {index: b"0" for index, size in enumerate(sizes) if size}
    while cursors:
        pages = yield from ask(
            [
                command("HSCAN", private[index], cursor, "COUNT", most)
                for index, cursor in cursors.items()
            ]
        )
        following: dict[int, Any] = {}
        for index, reply in zip(cursors, pages, strict=True):
            cursor, flat = items(reply) or (b"0", [])
            jobs[index] += (
                (private_queue(name(field)), entry(payload, "private"))
                for field, payload in zip(flat[::2], flat[1::2], strict=True)
            )
            if whole(cursor) and len(jobs[index]) < most:
                following[index] = cursor
        cursors = following
    return [
        InFlightSummary(identity, alive == 1, whole(size), held[:most])
        for identity, alive, size, held in zip(
            identities, replies[::2], replies[1::2], jobs, strict=True
        )
    ]


def classes(keys: Keys) -> Op[dict[str, list[str]]]:
    """Return each announced class, by name, with the processes that can run it. [X-CLASS-1]"""
    names, _ = yield from members(keys.processes)
    cursors: dict[str, Any] = dict.fromkeys(names, b"0")
    found: dict[str, set[str]] = {}
    while cursors:
        pages = yield from ask(
            [
                command("SSCAN", raw(keys.classes(identity)), cursor, "COUNT", 1000)
                for identity, cursor in cursors.items()
            ]
        )
        following: dict[str, Any] = {}
        for identity, reply in zip(cursors, pages, strict=True):
            cursor, page = items(reply) or (b"0", [])
            for each in page:
                found.setdefault(name(each), set()).add(identity)
            if whole(cursor):
                following[identity] = cursor
        cursors = following
    return {each: sorted(found[each]) for each in sorted(found)}


def private_owners(keys: Keys) -> Op[set[str]]:
    """Return the identities that have a private hash, also those that are missing in `owners`."""
    identities: set[str] = set()
    cursor: Any = b"0"
    while True:
        (reply,) = yield from ask([scan_private(keys, cursor, 10_000)])
        cursor, private = items(reply) or (b"0", [])
        identities.update(name(key).removeprefix(keys.private("")) for key in private)
        if not whole(cursor):
            return identities


def recoveries(keys: Keys) -> Op[Recoveries]:
    """Return the counters of jobs whose process died or was slow. [REL-7] [REL-12]"""
    recovered, lost = yield from ask([command("GET", keys.recovered), command("GET", keys.lost)])
    returned: dict[str, int] = {}
    cursor: Any = b"0"
    while True:
        (reply,) = yield from ask([command("HSCAN", keys.returned, cursor, "COUNT", 1000)])
        cursor, flat = items(reply) or (b"0", [])
        for digest, times in zip(flat[::2], flat[1::2], strict=True):
            returned[text(digest)] = whole(times)
        if not whole(cursor):
            return Recoveries(whole(recovered), whole(lost), returned)


def read_process(identity: str, reply: object) -> ProcessInfo | None:
    """Return the process of the reply to HGETALL; None if its hash has expired."""
    fields = _pairs(reply)
    if b"info" not in fields:
        return None
    announced = _announced(fields[b"info"])
    concurrency = whole(fields.get(b"concurrency"), default=-1)
    return msgspec.structs.replace(
        announced,
        identity=identity,
        beat=number(fields.get(b"beat")),
        concurrency=announced.concurrency if concurrency < 0 else concurrency,
        busy=whole(fields.get(b"busy")),
        quiet=fields.get(b"quiet") == b"true",
        rss=whole(fields.get(b"rss")),
        rtt_us=whole(fields.get(b"rtt_us")),
    )


@lru_cache(5_000)  # a process writes the same text as long as it lives
def _announced(stored: bytes) -> ProcessInfo:
    """Return what `info` tells of a process."""
    decoded = decode_json(stored)
    info: dict[str, Any] = decoded if isinstance(decoded, dict) else {}
    capsules = _capsules(info.get("capsules"))
    queues = [queue for queue in items(info.get("queues")) if isinstance(queue, str)]
    if capsules:
        served = (queue for capsule in capsules.values() for queue in capsule.weights)
        queues = list(dict.fromkeys(served))
    return ProcessInfo(
        identity="",
        hostname=_string(info, "hostname"),
        pid=whole(info.get("pid")),
        started_at=number(info.get("started_at")),
        beat=None,
        tag=_string(info, "tag"),
        labels=[label for label in items(info.get("labels")) if isinstance(label, str)],
        version=_string(info, "version"),
        queues=queues,
        capsules=capsules,
        concurrency=whole(info.get("concurrency")),
        busy=0,
        quiet=False,
        embedded=info.get("embedded") is True,
        rss=0,
        rtt_us=0,
        info=info,
        problem=None if isinstance(decoded, dict) else "info is not a JSON object",
    )


def _capsules(value: object) -> dict[str, CapsuleInfo]:
    if not isinstance(value, dict):
        return {}
    return {
        str(capsule): CapsuleInfo(
            str(capsule),
            whole(shape.get("concurrency")),
            _string(shape, "mode"),
            _weights(shape.get("weights")),
        )
        for capsule, shape in value.items()
        if isinstance(shape, dict)
    }


def _weights(value: object) -> dict[str, int]:
    if not isinstance(value, dict):
        return {}
    return {str(queue): whole(weight) for queue, weight in value.items()}


def _record(identity: str, thread: bytes, stored: bytes) -> WorkRecord:
    decoded = decode_json(stored)
    record: dict[str, Any] = decoded if isinstance(decoded, dict) else {}
    payload, raw_payload = record.get("payload"), stored
    if isinstance(payload, str):
        raw_payload = payload.encode("utf-8", "surrogatepass")
    elif isinstance(payload, dict):  # the form of Sidekiq up to 6.0.1
        raw_payload = encode(payload)
    run_at = number(record.get("run_at"))
    return WorkRecord(identity, text(thread), _string(record, "queue"), run_at, raw_payload)


def _pairs(reply: object) -> dict[bytes, bytes]:
    """Return the reply for a hash as a dict; RESP2 gives a flat list."""
    flat = items(reply)
    return dict(zip(flat[::2], flat[1::2], strict=True))


def _string(info: Mapping[str, Any], field: str) -> str:
    value = info.get(field)
    return value if isinstance(value, str) else ""
