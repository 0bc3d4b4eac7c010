"""The heartbeat: identity, state and work records of a process in Redis. [BEAT-1] to [BEAT-8]"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from jobwire.protocol.classes import announce
from jobwire.protocol.keys import Keys
from jobwire.protocol.ordering import QueueOrder
from jobwire.protocol.payload import Job, encode
from jobwire.protocol.progress import JobProgress, writes
from jobwire.protocol.wire import Arg, Batch, Command, ErrorReply, Op, command

__all__ = [
    "BEAT_INTERVAL_S",
    "LEASE_S",
    "Answer",
    "CapsuleShape",
    "HeartbeatSample",
    "Work",
    "beat",
    "process_info",
    "prune",
    "retire",
]

BEAT_INTERVAL_S = 10.0  # [BEAT-2]
LEASE_S = 60  # for which one beat keeps the process alive [BEAT-1] [REL-3]


@dataclass(frozen=True, slots=True)
class CapsuleShape:
    """The public part of a capsule's configuration."""

    name: str
    concurrency: int
    order: QueueOrder


@dataclass(frozen=True, slots=True)
class Work:
    """A job that is being executed; `run_at` is the epoch second of its start.

    `job` is the job as its own code sees it, which has its progress.
    """

    queue: str
    text: bytes
    run_at: float
    job: Job | None = None

    def record(self) -> bytes:
        """Return the work record, a JSON object with the payload as a string in it. [BEAT-17]"""
        return encode(
            {
                "queue": self.queue,
                # Always decodes: a payload that cannot be decoded is not executed.
                "payload": self.text.decode("utf-8", "replace"),
                "run_at": int(self.run_at),
            }
        )


@dataclass(frozen=True, slots=True)
class HeartbeatSample:
    """The values that change from beat to beat.

    Attributes:
        now: Epoch seconds.
        works: Thread id to the job that the thread executes.
        quiet: True if the process fetches no more jobs.
        rss: Resident memory in KiB.
        rtt_us: Round trip of a PING, in microseconds.
        progress: Job id to the progress that the job has reported.
        classes: The classes to announce; none to withdraw them. [X-CLASS-1]
    """

    now: float
    works: Mapping[str, Work]
    quiet: bool
    rss: int
    rtt_us: int
    progress: Mapping[str, JobProgress] = field(default_factory=dict)
    classes: Collection[str] = ()


class Answer(NamedTuple):
    """The reply to a beat: a signal for this process, if any, and the size of its private hash."""

    signal: str | None
    held: int
    anew: bool  # the process had no lease: all fields of its hash are new


def process_info(
    *,
    identity: str,
    hostname: str,
    pid: int,
    started_at: float,
    tag: str,
    labels: Sequence[str],
    capsules: Sequence[CapsuleShape],
    version: str,
) -> bytes:
    """Return the `info` field of the heartbeat. [BEAT-4] [BEAT-10] [BEAT-11] [BEAT-12] [BEAT-13]

    It has all the members that readers of any generation need, in the order in which Sidekiq
    writes them. A worker inside another program obeys signals, so it is not `embedded`. [SIG-11]
    """
    info: dict[str, Any] = {
        "hostname": hostname,
        "started_at": started_at,
        "pid": pid,
        "tag": tag,
        "concurrency": sum(capsule.concurrency for capsule in capsules),
        "capsules": {
            capsule.name: {
                "concurrency": capsule.concurrency,
                "mode": capsule.order.mode,
                "weights": capsule.order.weights,
            }
            for capsule in capsules
        },
        "queues": list(
            dict.fromkeys(name for capsule in capsules for name in capsule.order.weights)
        ),
        "weights": [capsule.order.weights for capsule in capsules],
        "labels": list(labels),
        "identity": identity,
        "version": version,
        "embedded": False,
    }
    return encode(info)


def beat(
    keys: Keys,
    identity: str,
    info: bytes,
    concurrency: int,
    sample: HeartbeatSample,
    *,
    owner: bool = False,
) -> Op[Answer]:
    """Write the work records and the progress of jobs, then renew lease and classes, in one step.

    [BEAT-1] [BEAT-3] [BEAT-5] [BEAT-9] [BEAT-14] [BEAT-15] [SIG-4] [X-PROG-4] [X-CLASS-1]

    The beat of an `owner` of private entries also names the owner and counts the entries. [REL-8]
    """
    names = (keys.work(identity), keys.old_work(identity))
    shown: list[Command] = [command("UNLINK", *names)]
    if sample.works:
        records = [part for tid, job in sample.works.items() for part in (tid, job.record())]
        for name in names:
            shown += (command("HSET", name, *records), command("EXPIRE", name, LEASE_S))
    shown += writes(keys, sample.progress)
    process = keys.process(identity)
    fields: dict[str, Arg] = {
        "info": info,
        "concurrency": concurrency,
        "busy": len(sample.works),
        "beat": sample.now,
        "rtt_us": sample.rtt_us,
        "quiet": "true" if sample.quiet else "false",
        "rss": sample.rss,
    }
    owning = command("SADD", keys.owners, identity), command("HLEN", keys.private(identity))
    replies = yield Batch(
        [
            *shown,
            command("SADD", keys.processes, identity),
            command("HSET", process, *(part for pair in fields.items() for part in pair)),
            command("EXPIRE", process, LEASE_S),
            command("RPOP", keys.signals(identity)),
            *announce(keys, identity, sample.classes, LEASE_S),
            *(owning if owner else ()),
        ],
        atomic=True,
    )
    _, added, _, signal, *_ = replies[len(shown) :]
    return Answer(
        None if signal is None else signal.decode("utf-8", "replace"),
        replies[-1] if owner else 0,
        added == len(fields),
    )


def retire(
    keys: Keys, identity: str, progress: Mapping[str, JobProgress] | None = None
) -> Op[None]:
    """Leave the set of processes; the hash stays until it expires, as with Sidekiq.

    Its classes go. The progress of jobs that ended since the last beat is written.
    [BEAT-7] [BEAT-20] [X-PROG-5] [X-CLASS-2]
    """
    left = (keys.work(identity), keys.old_work(identity), keys.classes(identity))
    yield Batch(
        [
            command("SREM", keys.processes, identity),
            command("UNLINK", *left),
            *writes(keys, progress or {}),
        ],
        atomic=True,
    )


def prune(keys: Keys, own: str = "") -> Op[int]:
    """Remove processes whose hash has expired; runs at most once a minute in the fleet.

    `own` is the process that calls, if it is one. [BEAT-8] [BEAT-21] [BEAT-22]

    Returns:
        Number of processes removed.
    """
    if not (yield command("SET", keys.cleanup_lock, "1", "NX", "EX", 60)):
        return 0
    members: Sequence[bytes] = yield command("SMEMBERS", keys.processes)
    identities = [member for member in members if member != own.encode()]
    if not identities:
        return 0
    infos = yield Batch(
        # A member that is not UTF-8 counts as expired. A living process registers again with its
        # next beat.
        [
            command("HEXISTS", keys.process(identity.decode("utf-8", "replace")), "info")
            for identity in identities
        ]
    )
    expired = [
        identity
        for identity, alive in zip(identities, infos, strict=True)
        # A key of another type can never hold a heartbeat, and it stops schedulers of Sidekiq.
        if alive == 0 or (isinstance(alive, ErrorReply) and alive.says("WRONGTYPE"))
    ]
    if not expired:
        return 0
    count: int = yield command("SREM", keys.processes, *expired)
    return count
