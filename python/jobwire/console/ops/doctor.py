"""Findings about a Redis, its queues and its processes. It reads nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from jobwire.console.ops.doctor_facts import DoctorFacts
from jobwire.errors import RedisRefused
from jobwire.inspect.reading import text
from jobwire.protocol import times
from jobwire.protocol.dead_set import MAX_JOBS
from jobwire.protocol.heartbeat import BEAT_INTERVAL_S, LEASE_S
from jobwire.protocol.keys import Keys
from jobwire.protocol.server import UnfitServer, parse_info
from jobwire.text import counted, visible

__all__ = ["Finding", "Limits", "Severity", "examine"]

Severity = Literal["error", "warning", "note"]
"""`error`: jobs are lost or do not run. `warning`: they may. `note`: worth knowing."""

MAX_NAMES = 5
SILENT_S = 2.5 * BEAT_INTERVAL_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Values from which the doctor reports a finding.

    Attributes:
        latency: Seconds of a round trip.
        skew: Seconds between two clocks.
        queue_age: Seconds that the next job of a queue with workers has waited.
        overdue: Seconds that a job has been due.
        payload: Mean bytes of the entries of a place.
        memory: Share of `maxmemory` in use.
    """

    latency: float = 0.02
    skew: float = 1.0
    queue_age: float = 3600.0
    overdue: float = 300.0
    payload: int = 100_000
    memory: float = 0.9


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong.

    Attributes:
        code: Its name, such as `eviction`; the names do not change.
        severity: `error`, `warning` or `note`.
        sentence: The problem.
        remedy: The way to correct it.
        evidence: The values that show it, by name.
    """

    code: str
    severity: Severity
    sentence: str
    remedy: str
    evidence: Mapping[str, Any] = field(default_factory=dict)


def examine(
    keys: Keys,
    facts: DoctorFacts,
    limits: Limits | None = None,
    *,
    wait_replicas: int | None = None,
) -> list[Finding]:
    """Return the findings, errors first; see `Operations.doctor`."""
    chosen = limits or Limits()
    found = [
        *_server(keys, facts, chosen),
        *_persistence(facts),
        *_replicas(facts, wait_replicas),
        *_access(facts),
        *_clocks(facts, chosen),
        *_processes(facts),
        *_held(facts),
        *_queues(facts, chosen),
        *_sets(facts, chosen),
        *_keys(facts),
        *_payloads(facts, chosen),
    ]
    order = get_args(Severity)
    return sorted(found, key=lambda one: order.index(one.severity))


def _server(keys: Keys, facts: DoctorFacts, limits: Limits) -> Iterator[Finding]:
    info = facts.info
    try:
        parse_info(info, keys)
    except UnfitServer as unfit:
        is_old = "too old" in str(unfit)
        yield Finding(
            "server-too-old" if is_old else "cluster-without-tag",
            "error",
            f"{_sentence(str(unfit))}",
            "use Redis 6.2 or Valkey 7.2, or newer"
            if is_old
            else "use a namespace with a hash tag",
            {"version": info.get("redis_version", "?")},
        )
    except RedisRefused as error:
        yield Finding(
            "loading", "error", _sentence(str(error)), "wait until it has loaded its data"
        )
    policy = facts.settings.get("maxmemory-policy") or info.get("maxmemory_policy", "")
    if policy not in ("", "noeviction"):
        limited = info.get("maxmemory", "0") != "0"
        yield Finding(
            "eviction",
            "error" if limited else "warning",
            f"The eviction policy is {policy}, so the server deletes jobs when memory runs low.",
            "CONFIG SET maxmemory-policy noeviction, and the same in the server's file",
            {"maxmemory_policy": policy, "maxmemory": info.get("maxmemory", "?")},
        )
    used, most = _number(info, "used_memory"), _number(info, "maxmemory")
    if most and used / most >= limits.memory:
        yield Finding(
            "memory-nearly-full",
            "error" if used >= most else "warning",
            f"The server uses {used / most:.0%} of its memory limit; when it is full, it refuses "
            "every push.",
            "raise maxmemory, or find what fills it in the sizes of queues and sets",
            {"used_memory": used, "maxmemory": most},
        )
    if info.get("role") == "slave":
        yield Finding(
            "replica",
            "error",
            "This server is a replica: it refuses writes, so nothing can be pushed or fetched.",
            "use the URL of the primary, or Sentinel",
            {"master_host": info.get("master_host", "?")},
        )
    if facts.latency > limits.latency:
        yield Finding(
            "slow-round-trip",
            "warning",
            f"The quickest of a few round trips took {facts.latency * 1000:,.1f} ms.",
            "run workers near the server; look for slow commands with SLOWLOG GET",
            {"latency_ms": round(facts.latency * 1000, 2)},
        )


def _persistence(facts: DoctorFacts) -> Iterator[Finding]:
    info, settings = facts.info, facts.settings
    if info.get("aof_enabled") == "0" and settings.get("save") == "":
        yield Finding(
            "no-persistence",
            "warning",
            "The server saves nothing to disk, so a restart loses every job.",
            "CONFIG SET appendonly yes, and the same in the server's file",
            {"appendonly": "no", "save": ""},
        )
    elif info.get("aof_enabled") == "0" and "save" in settings:
        yield Finding(
            "snapshots-only",
            "note",
            f"The server saves snapshots only (save {settings['save']}), so a crash loses the "
            "pushes since the last one.",
            "CONFIG SET appendonly yes, if lost pushes matter",
            {"save": settings["save"]},
        )
    for name, what in (
        ("rdb_last_bgsave_status", "snapshot"),
        ("aof_last_write_status", "write of the append-only file"),
        ("aof_last_bgrewrite_status", "rewrite of the append-only file"),
    ):
        if info.get(name, "ok") != "ok":
            yield Finding(
                "save-fails",
                "error",
                f"The last {what} failed; the server may refuse writes.",
                "read the server's log; check the space on its disk",
                {name: info[name]},
            )


def _replicas(facts: DoctorFacts, wait_replicas: int | None) -> Iterator[Finding]:
    """Compare the replicas that confirm a push with those that the server has."""
    if wait_replicas is None or facts.info.get("role") != "master":
        return
    replicas = int(_number(facts.info, "connected_slaves"))
    evidence = {"wait_replicas": wait_replicas, "connected_slaves": replicas}
    if wait_replicas > replicas:
        yield Finding(
            "replicas-missing",
            "error",
            f"A push waits for {counted(wait_replicas, 'replica')}, and the server has "
            f"{replicas}: each push takes half of its timeout and raises MaybeWritten.",
            "start the replicas that are missing, or lower wait_replicas",
            evidence,
        )
    elif wait_replicas < replicas:
        loses = "a failover loses the pushes that no replica has copied yet"
        if wait_replicas:
            loses = (
                "a primary that hangs, is replaced and comes back confirms pushes by the replicas "
                "that were not promoted, and loses them"
            )
        yield Finding(
            "replicas-unasked",
            "note",
            f"A push waits for {wait_replicas} of {counted(replicas, 'replica')}: {loses}.",
            "set wait_replicas to the number of all replicas, if lost pushes matter; then a push "
            "raises MaybeWritten while one of them is away",
            evidence,
        )


def _access(facts: DoctorFacts) -> Iterator[Finding]:
    if facts.refused:
        names = sorted(facts.refused)
        reading = {"INFO", "CONFIG", "MEMORY", "TIME", "DBSIZE", "SCAN"}
        yield Finding(
            "commands-refused",
            "note" if set(names) <= reading else "warning",
            f"The server refuses this user {counted(len(names), 'command')}: {_list(names)}.",
            "allow them if the role of the user needs them; section 21 of the specification has "
            "the commands of each role",
            {name: facts.refused[name] for name in names},
        )


def _clocks(facts: DoctorFacts, limits: Limits) -> Iterator[Finding]:
    if facts.now and abs(facts.clock_ahead) > limits.skew:
        side = "ahead of" if facts.clock_ahead > 0 else "behind"
        yield Finding(
            "clock-of-this-host",
            "warning",
            f"The clock of this host is {abs(facts.clock_ahead):,.1f} s {side} the server's.",
            "synchronize the clocks of all hosts, for example with chrony",
            {"seconds": round(facts.clock_ahead, 3)},
        )
    skews = {}
    for process in facts.processes:
        lease = facts.leases.get(process.identity)
        if process.beat is None or not lease or not facts.now:
            continue
        # A beat sets the lease, so the lease tells the time of the beat by the server's clock.
        skew = process.beat - (facts.now - (LEASE_S - lease))
        if abs(skew) > limits.skew and abs(skew) < 1e9:
            skews[process.identity] = round(skew, 1)
    if skews:
        worst = max(skews, key=lambda identity: abs(skews[identity]))
        yield Finding(
            "clock-of-processes",
            "warning",
            f"The clocks of {counted(len(skews), 'process')} differ from the server's, that of "
            f"{_shown(worst)} by {skews[worst]:+,.1f} s; delays, retries and ages are wrong by it.",
            "synchronize the clocks of these hosts",
            _first(skews),
        )


def _processes(facts: DoctorFacts) -> Iterator[Finding]:
    missing = [one for one in facts.identities if one not in facts.leases]
    if missing:
        yield Finding(
            "process-without-hash",
            "note",
            f"{counted(len(missing), 'process')} without a heartbeat in the last {LEASE_S} s "
            f"{_are(missing)} still registered: {_list(missing)}.",
            "nothing, if they were killed: the next process that starts forgets them; one that "
            "still runs hangs, and its log says which part is stuck: end it and start it again",
            {"identities": missing[:MAX_NAMES]},
        )
    silent = [
        process.identity
        for process in facts.processes
        if facts.leases.get(process.identity, LEASE_S) < LEASE_S - SILENT_S
    ]
    if silent:
        yield Finding(
            "process-silent",
            "warning",
            f"{counted(len(silent), 'process')} sent no heartbeat in the last {SILENT_S:g} s: "
            f"{_list(silent)}.",
            f"look at their logs: one that hangs says which part is stuck, and other workers take "
            f"its jobs {LEASE_S} s after its last heartbeat; end it and start it again",
            {"identities": silent[:MAX_NAMES]},
        )
    versions: dict[str, int] = {}
    for process in facts.processes:
        version = process.version or "Sidekiq before 7.0.2"
        versions[version] = versions.get(version, 0) + 1
    kinds = {version.partition(" ")[0] == "jobwire" for version in versions}
    if len(versions) > len(kinds):
        yield Finding(
            "mixed-versions",
            "note",
            f"Processes of several versions run: {_list(sorted(versions))}.",
            "finish the deployment, if this is not intended",
            {version: versions[version] for version in sorted(versions)[:MAX_NAMES]},
        )
    generations = {
        times.detect([process.info])
        for process in facts.processes
        if not process.version.startswith("jobwire")
    }
    if len(generations) > 1:
        yield Finding(
            "mixed-generations",
            "warning",
            "Processes of Sidekiq 7 or older and of Sidekiq 8 or newer share this Redis; the older "
            "ones misread the times that the newer ones write.",
            "upgrade the older ones; jobwire writes the older form until then",
            {"versions": sorted(versions)[:MAX_NAMES]},
        )
    broken = [process.identity for process in facts.processes if process.problem]
    if broken:
        yield Finding(
            "process-unreadable",
            "warning",
            f"The heartbeat of {counted(len(broken), 'process')} cannot be read: {_list(broken)}.",
            "find the program that writes it",
            {"identities": broken[:MAX_NAMES]},
        )


def _held(facts: DoctorFacts) -> Iterator[Finding]:
    dead = [one for one in facts.private if not one.alive]
    if dead:
        jobs = sum(one.size for one in dead)
        lives = any(process.version.startswith("jobwire") for process in facts.processes)
        yield Finding(
            "held-by-dead-process",
            "warning" if lives else "error",
            f"{counted(jobs, 'job')} of {counted(len(dead), 'dead process')} "
            f"{'waits' if jobs == 1 else 'wait'} to be returned to "
            f"{'its queue' if jobs == 1 else 'their queues'}: "
            f"{_list([one.identity for one in dead])}.",
            "nothing: a worker of jobwire returns them within seconds"
            if lives
            else "start a worker of jobwire; Sidekiq's workers do not return held jobs",
            {"jobs": jobs, "identities": [text(one.identity) for one in dead[:MAX_NAMES]]},
        )
    unnamed = [one for one in facts.private if not one.named]
    if unnamed:
        yield Finding(
            "private-hash-without-owner",
            "warning",
            f"{counted(len(unnamed), 'private hash')} {_are(unnamed)} missing in the set of "
            f"owners, so no recovery looks there: {_list([one.identity for one in unnamed])}.",
            "start or restart a worker of jobwire, which names the owners again",
            {"identities": [text(one.identity) for one in unnamed[:MAX_NAMES]]},
        )


def _queues(facts: DoctorFacts, limits: Limits) -> Iterator[Finding]:
    served = {queue for process in facts.processes if not process.quiet for queue in process.queues}
    waiting = [queue for queue in facts.queues if queue.size]
    abandoned = [queue for queue in waiting if queue.abandoned]
    if abandoned:
        yield Finding(
            "queue-abandoned",
            "error",
            f"{counted(len(abandoned), 'queue')} with jobs {_are(abandoned)} served by no process: "
            f"{_list([queue.name for queue in abandoned])}.",
            "start workers for them, or delete the jobs",
            _first({text(queue.name): queue.size for queue in abandoned}),
        )
    paused = [queue for queue in waiting if queue.paused and not queue.abandoned]
    if paused:
        yield Finding(
            "queue-paused",
            "note",
            f"{counted(len(paused), 'queue')} with jobs {_are(paused)} paused: "
            f"{_list([queue.name for queue in paused])}.",
            "jobwire inspect unpause QUEUE, when the reason is gone",
            _first({text(queue.name): queue.size for queue in paused}),
        )
    late = [
        queue
        for queue in waiting
        if queue.latency > limits.queue_age and not queue.abandoned and not queue.paused
    ]
    if late:
        yield Finding(
            "queue-late",
            "warning",
            f"The next job of {counted(len(late), 'queue')} has waited more than "
            f"{limits.queue_age:,.0f} s: {_list([queue.name for queue in late])}.",
            "start more workers, or look at the running jobs with 'jobwire inspect works'",
            _first({text(queue.name): round(queue.latency) for queue in late}),
        )
    if facts.unregistered:
        lost = [queue for queue in facts.unregistered if queue not in served]
        yield Finding(
            "queue-not-registered",
            "error" if lost else "warning",
            f"{counted(len(facts.unregistered), 'queue')} with jobs {_are(facts.unregistered)} "
            f"missing in the set of queues: {_list(facts.unregistered)}.",
            "SADD queues NAME, and correct the producer, which must register its queue",
            {"queues": [text(name) for name in facts.unregistered[:MAX_NAMES]]},
        )
    if facts.scanned < facts.keys and facts.scanned:
        yield Finding(
            "search-incomplete",
            "note",
            f"Only {facts.scanned:,} of {facts.keys:,} keys were looked at for queues that are "
            "not registered and for held jobs.",
            "keep other data in another database",
            {"scanned": facts.scanned, "keys": facts.keys},
        )


def _sets(facts: DoctorFacts, limits: Limits) -> Iterator[Finding]:
    late = {
        place: round(facts.now - score)
        for place, score in facts.overdue.items()
        if facts.now and facts.now - score > limits.overdue
    }
    if late:
        yield Finding(
            "poller-stopped",
            "error",
            f"Jobs in {' and '.join(sorted(late))} have been due for up to "
            f"{max(late.values()):,} s, and no process moves them to their queues.",
            "start a worker; if some run, look for errors of the poller in their logs",
            late,
        )
    if facts.counts.get("dead", 0) >= MAX_JOBS - 1:
        yield Finding(
            "dead-set-full",
            "warning",
            f"The dead set is full ({facts.counts['dead']:,} jobs), so each job that dies pushes "
            "the oldest dead job out for ever.",
            "look at 'jobwire groups', then retry or delete the jobs",
            {"dead": facts.counts["dead"]},
        )
    if unreadable := facts.counts.get("unreadable", 0):
        yield Finding(
            "unreadable-entries",
            "warning",
            f"{counted(unreadable, 'entry') if unreadable == 1 else f'{unreadable:,} entries'} of "
            "queues or sets could not be read and were set aside.",
            "find the producer with 'jobwire inspect unreadable'",
            {"unreadable": unreadable},
        )
    if parked := facts.counts.get("parked", 0):
        age = 0 if facts.parked_at is None else max(facts.now - facts.parked_at, 0)
        oldest = f"; the oldest one for {age:,.0f} s" if age else ""
        yield Finding(
            "parked-jobs",
            "warning",
            f"{counted(parked, 'job')} {'is' if parked == 1 else 'are'} parked, because a worker "
            f"fetched a job that it may not run{oldest}.",
            "see 'jobwire inspect parked'; a job with the reason unknown waits for a worker of its "
            "queue that announces its class ('jobwire inspect classes'); for the others, once a "
            "worker that can run them serves their queue, 'jobwire inspect unpark'",
            {"parked": parked, "oldest_s": round(age), "announced_classes": facts.classes},
        )


def _keys(facts: DoctorFacts) -> Iterator[Finding]:
    if facts.wrong_types:
        named = {
            text(key): f"{stored}, not {kind}" for key, (stored, kind) in facts.wrong_types.items()
        }
        yield Finding(
            "key-of-wrong-type",
            "error",
            f"{counted(len(named), 'key')} of the protocol {_are(named)} of another type: "
            f"{_list([f'{key} is a {what}' for key, what in named.items()])}.",
            "delete or rename them; find the program that writes them",
            _first(named),
        )


def _payloads(facts: DoctorFacts, limits: Limits) -> Iterator[Finding]:
    huge = {
        text(one.place): one.memory // one.entries
        for one in facts.sizes
        if one.entries and one.memory / one.entries > limits.payload
    }
    if huge:
        yield Finding(
            "huge-payloads",
            "warning",
            f"The entries of {counted(len(huge), 'place')} take more than {limits.payload:,} bytes "
            f"on average, by a sample: {_list(list(huge))}.",
            "store the data elsewhere and push its id",
            _first(huge),
        )


# -- helpers


def _number(info: Mapping[str, str], name: str) -> int:
    value = info.get(name, "")
    return int(value) if value.isdecimal() else 0


def _sentence(message: str) -> str:
    return message[:1].upper() + message[1:].rstrip(".") + "."


def _are(things: Sequence[Any] | Mapping[str, Any]) -> str:
    return "is" if len(things) == 1 else "are"


def _shown(name: str) -> str:
    return visible(text(name))


def _list(names: Sequence[str]) -> str:
    shown = ", ".join(_shown(name) for name in names[:MAX_NAMES])
    more = len(names) - MAX_NAMES
    return f"{shown} and {more} more" if more > 0 else shown


def _first(values: Mapping[str, Any]) -> dict[str, Any]:
    return {text(key): values[key] for key in list(values)[:MAX_NAMES]}
