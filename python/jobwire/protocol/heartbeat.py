"""How a process shows itself to others: identity, heartbeat, work records. [BEAT-1] to [BEAT-8]"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jobwire.protocol.keys import Keys
from jobwire.protocol.ordering import QueueOrder
from jobwire.protocol.payload import encode
from jobwire.protocol.wire import Arg, Batch, Command, Op, command

__all__ = [
    "LEASE",
    "PERIOD",
    "CapsuleShape",
    "HeartbeatSample",
    "Work",
    "beat",
    "process_info",
    "prune",
    "retire",
]

PERIOD = 10.0  # seconds between beats [BEAT-2]
LEASE = 60  # seconds that a beat is good for [BEAT-1] [REL-3]


@dataclass(frozen=True, slots=True)
class CapsuleShape:
    """What of a capsule others may know."""

    name: str
    concurrency: int
    order: QueueOrder


@dataclass(frozen=True, slots=True)
class Work:
    """A job that is being executed; `run_at` in epoch seconds."""

    queue: str
    text: bytes
    run_at: float

    def record(self) -> bytes:
        """Return the work record: the payload is a text inside the JSON. [BEAT-5]"""
        return encode(
            {
                "queue": self.queue,
                # Undecodable bytes never get here: what cannot be read is not executed.
                "payload": self.text.decode("utf-8", "replace"),
                "run_at": int(self.run_at),
            }
        )


@dataclass(frozen=True, slots=True)
class HeartbeatSample:
    """What changes from beat to beat.

    Attributes:
        now: Epoch seconds.
        works: Thread id to the job it executes.
        quiet: Whether fetching has stopped.
        rss: Resident memory in KiB.
        rtt_us: Round trip of a PING, in microseconds.
    """

    now: float
    works: Mapping[str, Work]
    quiet: bool
    rss: int
    rtt_us: int


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
    """Return the `info` member of the heartbeat. [BEAT-4]

    Holds what readers of any generation look for, in the order in which Sidekiq writes it.
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
        "queues": list(dict.fromkeys(name for each in capsules for name in each.order.weights)),
        "weights": [capsule.order.weights for capsule in capsules],
        "labels": list(labels),
        "identity": identity,
        "version": version,
        "embedded": False,
    }
    return encode(info)


def beat(
    keys: Keys, identity: str, info: bytes, concurrency: int, sample: HeartbeatSample
) -> Op[str | None]:
    """Renew the lease and show what runs; return a signal that somebody sent. [BEAT-1] [BEAT-3]
    [SIG-4]
    """
    names = (keys.work(identity), keys.old_work(identity))
    work: list[Command] = [command("UNLINK", *names)]
    if sample.works:
        records = [part for tid, each in sample.works.items() for part in (tid, each.record())]
        for name in names:
            work += (command("HSET", name, *records), command("EXPIRE", name, LEASE))
    yield Batch(work, atomic=True)

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
    replies = yield Batch(
        [
            command("SADD", keys.processes, identity),
            command("HSET", process, *(part for pair in fields.items() for part in pair)),
            command("EXPIRE", process, LEASE),
            command("RPOP", keys.signals(identity)),
        ],
        atomic=True,
    )
    signal = replies[-1]
    return None if signal is None else signal.decode("utf-8", "replace")


def retire(keys: Keys, identity: str) -> Op[None]:
    """Leave the list of processes. The hash is left to expire, as Sidekiq leaves it. [BEAT-7]"""
    yield Batch(
        [
            command("SREM", keys.processes, identity),
            command("UNLINK", keys.work(identity), keys.old_work(identity)),
        ],
        atomic=True,
    )


def prune(keys: Keys) -> Op[int]:
    """Forget processes whose hash has expired; at most once a minute for all. [BEAT-8]

    Returns:
        How many were forgotten.
    """
    if not (yield command("SET", keys.cleanup_lock, "1", "NX", "EX", 60)):
        return 0
    identities: Sequence[bytes] = yield command("SMEMBERS", keys.processes)
    if not identities:
        return 0
    infos = yield Batch(
        # A name that is no UTF-8 finds nothing; should it be alive, its next beat is its return.
        [
            command("HEXISTS", keys.process(each.decode("utf-8", "replace")), "info")
            for each in identities
        ]
    )
    gone = [each for each, alive in zip(identities, infos, strict=True) if alive == 0]
    if not gone:
        return 0
    count: int = yield command("SREM", keys.processes, *gone)
    return count
