"""jobwire.console.ops.doctor: every finding, and the facts on either side of its bound."""

from __future__ import annotations

import dataclasses
from typing import Any

from jobwire.console.ops.doctor import Finding, Limits, examine
from jobwire.console.ops.doctor_facts import DoctorFacts, PlaceSize, PrivateHash
from jobwire.inspect.summary import QueueSummary
from jobwire.protocol.keys import Keys
from tests.rows import over
from tests.unit.test_ops_explain import NOW, process

INFO = {
    "redis_version": "7.2.4",
    "role": "master",
    "maxmemory": "0",
    "maxmemory_policy": "noeviction",
    "used_memory": "1000",
    "aof_enabled": "1",
    "rdb_last_bgsave_status": "ok",
}


def facts_of(**facts: Any) -> DoctorFacts:
    info = INFO | facts.pop("info", {})
    processes = facts.setdefault("processes", [process()])
    facts.setdefault("leases", {one.identity: 60.0 for one in processes})
    facts.setdefault("identities", [one.identity for one in processes])
    made: dict[str, Any] = {
        "settings": {"save": "", "maxmemory-policy": info["maxmemory_policy"]},
        "now": NOW,
        "clock_ahead": 0.0,
        "latency": 0.001,
        "refused": {},
        "queues": [],
        "unregistered": [],
        "private": [],
        "wrong_types": {},
        "counts": {},
        "overdue": {},
    }
    return DoctorFacts(info=info, **(made | facts))


def found(**facts: Any) -> list[Finding]:
    return examine(Keys(), facts_of(**facts))


def names(**facts: Any) -> list[tuple[str, str]]:
    return [(one.code, one.severity) for one in found(**facts)]


def queue(name: str = "q", size: int = 1, latency: float = 0.0, **values: Any) -> QueueSummary:
    made: dict[str, Any] = {"paused": False, "workers": 1} | values
    return QueueSummary(name, size, latency, **made)


def test_a_healthy_redis_has_no_finding() -> None:
    assert found() == []


@over(
    ("asked", "replicas", "code", "says"),
    [
        (None, 2, "", ""),
        (0, 0, "", ""),
        (2, 2, "", ""),
        (2, 1, "replicas-missing", "waits for 2 replicas, and the server has 1: each push"),
        (0, 2, "replicas-unasked", "0 of 2 replicas: a failover loses the pushes that no"),
        (1, 2, "replicas-unasked", "1 of 2 replicas: a primary that hangs, is replaced and comes"),
        (2, 3, "replicas-unasked", "2 of 3 replicas: a primary that hangs"),  # a majority
    ],
)
def test_confirmations_are_compared_with_replicas(
    asked: int | None, replicas: int, code: str, says: str
) -> None:
    facts = facts_of(info={"connected_slaves": str(replicas)})
    findings = examine(Keys(), facts, wait_replicas=asked)
    assert [one.code for one in findings] == ([code] if code else [])
    assert all(says in one.sentence for one in findings)


@over(
    ("info", "expected"),
    [
        ({"redis_version": "6.0.16"}, [("server-too-old", "error")]),
        ({"redis_version": "6.2.0"}, []),
        ({"cluster_enabled": "1"}, [("cluster-without-tag", "error")]),
        ({"loading": "1"}, [("loading", "error")]),
        ({"maxmemory_policy": "allkeys-lru"}, [("eviction", "warning")]),
        ({"maxmemory_policy": "allkeys-lru", "maxmemory": "5000"}, [("eviction", "error")]),
        ({"maxmemory_policy": "volatile-ttl", "maxmemory": "5000"}, [("eviction", "error")]),
        ({"maxmemory": "1111"}, [("memory-nearly-full", "warning")]),
        ({"maxmemory": "1000"}, [("memory-nearly-full", "error")]),
        ({"maxmemory": "1112"}, []),
        ({"role": "slave"}, [("replica", "error")]),
        ({"rdb_last_bgsave_status": "err"}, [("save-fails", "error")]),
        ({"aof_last_write_status": "err"}, [("save-fails", "error")]),
        ({"aof_last_bgrewrite_status": "err"}, [("save-fails", "error")]),
    ],
)
def test_the_server(info: dict[str, str], expected: list[tuple[str, str]]) -> None:
    """ENV-1, ENV-2, ENV-8, ENV-10"""
    assert names(info=info) == expected


@over(
    ("aof", "settings", "expected"),
    [
        ("0", {"save": ""}, [("no-persistence", "warning")]),
        ("0", {"save": "3600 1"}, [("snapshots-only", "note")]),
        ("0", {}, []),  # CONFIG was refused
        ("1", {"save": ""}, []),
        ("1", {"save": "3600 1"}, []),
    ],
)
def test_persistence(aof: str, settings: Any, expected: list[tuple[str, str]]) -> None:
    assert names(info={"aof_enabled": aof}, settings=settings) == expected


def test_latency_and_refused_commands() -> None:
    assert names(latency=0.02) == []
    assert names(latency=0.0201) == [("slow-round-trip", "warning")]
    assert names(refused={"INFO": "NOPERM", "CONFIG": "NOPERM"}) == [("commands-refused", "note")]
    refused = {"INFO": "NOPERM", "XADD": "NOPERM"}
    (finding,) = found(refused=refused)
    assert finding.severity == "warning"
    assert finding.evidence == refused


def test_clocks() -> None:
    """BEAT-1: the lease tells the time of the beat by the clock of the server."""
    for ahead, side in ((1.5, "ahead of"), (-1.5, "behind")):
        (finding,) = found(clock_ahead=ahead)
        assert finding.code == "clock-of-this-host"
        assert side in finding.sentence
    assert names(clock_ahead=1.0) == names(clock_ahead=-1.0) == names(clock_ahead=9, now=0.0) == []
    leases = {"p": 52.0}  # a beat 8 s ago
    for beat in (NOW - 8, NOW - 9, NOW - 7, None, 5.0):
        assert names(processes=[process(beat=beat)], leases=leases) == [], beat
    for beat in (NOW - 10, NOW - 6, NOW + 3600):
        (finding,) = found(processes=[process(beat=beat)], leases=leases)
        assert finding.code == "clock-of-processes"
        assert finding.evidence == {"p": round(beat - NOW + 8, 1)}
    # Without a lease nothing is known about the time of the beat.
    assert names(processes=[process(beat=NOW - 90)], leases={"p": 0.0}) == [
        ("process-silent", "warning")
    ]


def test_processes() -> None:
    """BEAT-8, GEN-5"""
    gone = found(identities=["p", "gone"])
    assert [(one.code, one.severity) for one in gone] == [("process-without-hash", "note")]
    assert gone[0].evidence == {"identities": ["gone"]}
    beat = NOW - 26
    assert names(processes=[process(beat=beat)], leases={"p": 34.0}) == [
        ("process-silent", "warning")
    ]
    assert names(processes=[process(beat=NOW - 25)], leases={"p": 35.0}) == []
    versions = ("jobwire 1.0", "jobwire 1.1")
    both = [process(f"p{n}", version=version) for n, version in enumerate(versions)]
    assert names(processes=both) == [("mixed-versions", "note")]
    ruby = {"version": "8.1.7", "info": {"version": "8.1.7"}}
    assert names(processes=[process(), process("r", **ruby)]) == []
    older = {"version": "7.3.2", "info": {"version": "7.3.2"}}
    assert names(processes=[process("r", **ruby), process("s", **older)]) == [
        ("mixed-generations", "warning"),
        ("mixed-versions", "note"),
    ]
    oldest = process("t", version="", info={})
    assert names(processes=[oldest]) == []
    assert names(processes=[process(problem="info is not a JSON object")]) == [
        ("process-unreadable", "warning")
    ]


def test_held_jobs() -> None:
    """REL-4, REL-14"""
    alive = PrivateHash("p", 3, alive=True, named=True)
    dead = PrivateHash("gone", 3, alive=False, named=True)
    assert names(private=[alive]) == []
    assert names(private=[dead]) == [("held-by-dead-process", "warning")]
    assert names(private=[dead], processes=[]) == [("held-by-dead-process", "error")]
    only_ruby = [process(version="8.1.7")]
    assert names(private=[dead], processes=only_ruby) == [("held-by-dead-process", "error")]
    (finding,) = found(private=[dead, dataclasses.replace(dead, identity="other", size=1)])
    assert "4 jobs of 2 dead processes" in finding.sentence
    assert finding.evidence == {"jobs": 4, "identities": ["gone", "other"]}
    unnamed = PrivateHash("p", 3, alive=True, named=False)
    assert names(private=[unnamed]) == [("private-hash-without-owner", "warning")]


@over(
    ("queues", "expected"),
    [
        ([queue()], []),
        ([queue(workers=0)], [("queue-abandoned", "error")]),
        ([queue(workers=0, paused=True)], [("queue-abandoned", "error")]),
        ([queue(size=0, workers=0)], []),
        ([queue(paused=True)], [("queue-paused", "note")]),
        ([queue(size=0, paused=True)], []),
        ([queue(latency=3600)], []),
        ([queue(latency=3600.1)], [("queue-late", "warning")]),
        ([queue(latency=9999, paused=True)], [("queue-paused", "note")]),
    ],
)
def test_queues(queues: list[QueueSummary], expected: list[tuple[str, str]]) -> None:
    assert names(queues=queues) == expected


def test_queues_that_are_not_registered() -> None:
    """KEY-1"""
    assert names(unregistered=["q"]) == [("queue-not-registered", "warning")]
    assert names(unregistered=["x"]) == [("queue-not-registered", "error")]
    quiet = [process(quiet=True)]
    assert names(unregistered=["q"], processes=quiet) == [("queue-not-registered", "error")]


def test_the_search_may_be_incomplete() -> None:
    assert names(scanned=10, keys=10) == names(scanned=0, keys=10) == []
    assert names(scanned=10, keys=11) == [("search-incomplete", "note")]


def test_sets() -> None:
    """DEAD-3, EXEC-4, SCHED-5"""
    assert names(overdue={"retry": NOW - 300}) == []
    (finding,) = found(overdue={"retry": NOW - 301, "schedule": NOW + 9})
    assert (finding.code, finding.severity) == ("poller-stopped", "error")
    assert finding.evidence == {"retry": 301}
    assert names(counts={"dead": 9998, "unreadable": 0}) == []
    assert names(counts={"dead": 9999}) == [("dead-set-full", "warning")]
    assert names(counts={"parked": 2}) == [("parked-jobs", "warning")]
    assert names(counts={"unreadable": 1}) == [("unreadable-entries", "warning")]


def test_keys_and_payloads() -> None:
    wrong = {"retry": ("string", "zset")}
    (finding,) = found(wrong_types=wrong)
    assert (finding.code, finding.severity) == ("key-of-wrong-type", "error")
    assert finding.evidence == {"retry": "string, not zset"}
    assert names(sizes=[PlaceSize("retry", 10, 1_000_000)]) == []
    assert names(sizes=[PlaceSize("retry", 10, 1_000_001)]) == [("huge-payloads", "warning")]
    assert names(sizes=[PlaceSize("retry", 0, 1_000_001)]) == []


def test_errors_come_first_and_limits_can_be_set() -> None:
    facts = facts_of(
        queues=[queue(paused=True), queue("x", workers=0), queue("y", latency=10.5)],
        counts={"unreadable": 2},
    )
    limits = Limits(queue_age=10.0)
    severities = [one.severity for one in examine(Keys(), facts, limits)]
    assert severities == ["error", "warning", "warning", "note"]


def test_names_cannot_steer_a_terminal() -> None:
    """SEC-6: hostile names of queues, processes and keys; long lists are cut."""
    name = "\x1b[2J\u202e\udcff"
    findings = found(
        queues=[queue(f"{name}{n}", workers=0) for n in range(9)],
        unregistered=[name],
        processes=[process(name, version=name, beat=NOW + 99)],
        identities=[name, name + "x"],
        private=[PrivateHash(name, 3, alive=False, named=False)],
        wrong_types={name: ("string", "list")},
    )
    assert len(findings) >= 6
    for one in findings:
        assert one.sentence.isprintable()
        one.sentence.encode()
    assert "and 4 more" in findings[0].sentence or "and 4 more" in str(findings)
    assert all(len(one.evidence) <= 5 for one in findings)
