"""One pair: a client and a worker, or a worker that fails a job and another that retries it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from jobwire_conformance.config import Config
from jobwire_conformance.interop.pool import POOL, PoolJob, text_of
from jobwire_conformance.sandbox.local_server import Database
from jobwire_conformance.sandbox.reaper import Reaper
from jobwire_conformance.sandbox.sandbox import Sandbox
from jobwire_conformance.sandbox.worker import SandboxWorker
from jobwire_conformance.wire.link import Link

__all__ = ["Fate", "Handover", "Pair", "hand_over", "push_and_perform"]

_QUEUE = "default"
_FLAKY = "ab" * 12  # jid of the job that the first worker fails
_SOON = 2.0  # seconds until scheduled jobs are due
_REST = 1.0  # seconds that a worker must be at rest before a missing job counts as lost

Servers = Callable[[], tuple[Database, Database]]


@dataclass(frozen=True, slots=True)
class Fate:
    """The fate of one job.

    Attributes:
        item: The pushed job.
        status: `intact`; `changed`; `lost`; `repeated`; or `refused` by the client, which is
            allowed.
        by: The side at fault, `client` or `worker`; None for `intact`.
        expected: The expected value as JSON, or the message of a refusal.
        seen: The value that was seen instead.
    """

    item: PoolJob
    status: str
    by: str | None = None
    expected: str = ""
    seen: str = ""


@dataclass(slots=True)
class Pair:
    """The fates of all jobs of a client and a worker."""

    client: str
    worker: str
    fates: list[Fate] = field(default_factory=list)
    error: str | None = None  # the reason why the pair could not be tested
    version: str = ""  # version of the client

    @property
    def bad(self) -> list[Fate]:
        """The fates of jobs that did not arrive intact."""
        return [fate for fate in self.fates if fate.status not in ("intact", "refused")]


@dataclass(slots=True)
class Handover:
    """The result for a job that one worker fails and another one retries."""

    failing: str
    retrying: str
    problems: list[tuple[str, str]] = field(default_factory=list)  # implementation, problem
    error: str | None = None


class _Shared:
    """A database that two sandboxes use. Neither of them closes it."""

    def __init__(self, store: Database) -> None:
        self._store = store
        self.host, self.port = store.host, store.port
        self.database, self.greeting = store.database, store.greeting

    def link(self) -> Link:
        return self._store.link()

    def clear(self, link: Link) -> None:
        self._store.clear(link)

    def close(self) -> None:
        pass


@contextmanager
def _sandboxes(
    reaper: Reaper, stores: tuple[Database, Database], *configs: Config
) -> Iterator[tuple[Sandbox, Sandbox]]:
    servers = lambda: (_Shared(stores[0]), _Shared(stores[1]))  # noqa: E731
    with Sandbox(reaper, configs[0], servers) as one, Sandbox(reaper, configs[1], servers) as other:
        one.reset()
        other.reset()
        yield one, other


def push_and_perform(
    reaper: Reaper,
    stores: tuple[Database, Database],
    client: Config,
    worker: Config,
    *,
    patience: float,
    pool: Sequence[PoolJob] = POOL,
) -> Pair:
    """Push all jobs with the client, perform them in the worker, and compare.

    Raises:
        ConformError: An adapter broke the rules.
    """
    pair = Pair(client.name, worker.name)
    with _sandboxes(reaper, stores, client, worker) as (here, there):
        pushed: dict[str, PoolJob] = {}
        for item in pool:
            at = {"at": time.time() + _SOON} if item.later else {}
            job = {"class": "JobwireEcho", "args": list(item.args), "queue": _QUEUE}
            answer = here.driver.ask("push", job=job, **at)
            if answer["outcome"] == "ok" and isinstance(answer["jid"], str):
                pushed[answer["jid"]] = item
            else:
                reason = str(answer.get("message", answer["outcome"]))
                pair.fates.append(Fate(item, "refused", "client", reason))
        pair.version = here.driver.version
        written = _members(here.link, client.prefix)
        # The worker waits until scheduled jobs are due, even if the client left `at` in a queue.
        process = there.start("worker", [_QUEUE])
        _await(there, process, lambda: pushed.keys() <= _begun(process).keys(), patience)
        begun = _begun(process)
    for jid, item in pushed.items():
        pair.fates.append(_fate(item, written.get(jid), begun.get(jid, [])))
    order = {item.name: number for number, item in enumerate(pool)}
    pair.fates.sort(key=lambda fate: order[fate.item.name])
    return pair


def _fate(item: PoolJob, written: Mapping[str, Any] | None, begun: Sequence[Any]) -> Fate:
    pushed = text_of(list(item.args))
    if written is None:
        return Fate(item, "lost", "client", "a payload in the queue or set", "none with its jid")
    if (wire := text_of(written.get("args"))) != pushed:
        return Fate(item, "changed", "client", pushed, wire)
    if not begun and item.later and "at" in written:
        inside = f"at {text_of(written['at'])} in the payload"
        return Fate(item, "lost", "client", "a payload without at [SCHED-1]", inside)
    if not begun:
        return Fate(item, "lost", "worker", "a run of its jid", "no report of a run")
    if len(begun) > 1:
        return Fate(item, "repeated", "worker", "the job runs once", f"{len(begun)} times")
    if (seen := text_of(begun[0])) != pushed:
        return Fate(item, "changed", "worker", pushed, seen)
    return Fate(item, "intact")


def hand_over(
    reaper: Reaper,
    stores: tuple[Database, Database],
    failing: Config,
    retrying: Config,
    *,
    patience: float,
) -> Handover:
    """Have one worker fail a job, end this worker, and have the other one retry the job.

    Raises:
        ConformError: A worker cannot be started.
    """
    handover = Handover(failing.name, retrying.name)
    now = time.time()
    stamp: float | int = int(now * 1000) if failing.times == 8 else now
    job = {
        **{"retry": True, "queue": _QUEUE, "x_trace": "kept", "args": [1], "class": "JobwireFlaky"},
        **{"jid": _FLAKY, "created_at": stamp, "enqueued_at": stamp},
    }
    with _sandboxes(reaper, stores, failing, retrying) as (here, there):
        first = here.start("first", [_QUEUE])
        here.link.call("SADD", f"{failing.prefix}queues", _QUEUE)
        here.link.call("LPUSH", f"{failing.prefix}queue:{_QUEUE}", json.dumps(job))
        waiting = f"{failing.prefix}retry"
        if not _await(here, first, lambda: here.link.call("ZCARD", waiting), patience):
            ran = (
                "although it ran the job" if _FLAKY in _begun(first) else "and did not run the job"
            )
            handover.problems.append((failing.name, f"left the retry set empty, {ran}"))
            return handover
        first.end()
        member = here.link.call("ZRANGE", waiting, 0, -1)[0]
        handover.problems += ((failing.name, problem) for problem in _misread(job, member))
        # Each worker counts the runs of the job under the name of its own run.
        count = here.control.call("GET", f"jw:{here.run}:n:{_FLAKY}")
        there.control.call("SET", f"jw:{there.run}:n:{_FLAKY}", count or b"1")
        _make_due(there.link, waiting)
        second = there.start("second", [_QUEUE])
        done = lambda: any(e.kind == "end" and e.jid == _FLAKY for e in second.events())  # noqa: E731
        if not _await(there, second, done, patience):
            handover.problems.append((retrying.name, "did not run the due job of the retry set"))
        elif (args := _begun(second).get(_FLAKY, [None])[0]) != [1]:
            problem = f"ran the job with {text_of(args)} instead of [1]"
            handover.problems.append((retrying.name, problem))
        elif not _await(there, second, lambda: not there.link.call("ZCARD", waiting), patience):
            handover.problems.append((retrying.name, "ran the job but left it in the retry set"))
    return handover


def _misread(job: Mapping[str, Any], member: bytes) -> Iterator[str]:
    """Yield the differences between a job and its payload in the retry set."""
    try:
        kept = json.loads(member)
    except ValueError:
        kept = None
    if not isinstance(kept, dict):
        yield f"wrote text that is not a payload to the retry set: {member[:80]!r}"
        return
    for name, value in job.items():
        if name != "enqueued_at" and (name not in kept or text_of(kept[name]) != text_of(value)):
            seen = text_of(kept[name]) if name in kept else "nothing"
            yield f"changed {name} in the retry set: {text_of(value)} became {seen}"
    if kept.get("retry_count") != 0:
        count = text_of(kept.get("retry_count"))
        yield f"wrote retry_count {count} instead of 0 after the first failure"


def _members(link: Link, prefix: str) -> dict[str, dict[str, Any]]:
    """Return the payloads of the queue and of schedule, by jid."""
    raw = link.call("LRANGE", f"{prefix}queue:{_QUEUE}", 0, -1)
    raw += link.call("ZRANGE", f"{prefix}schedule", 0, -1)
    payloads = {}
    for text in raw:
        try:
            payload = json.loads(text)
        except ValueError:
            continue
        if isinstance(payload, dict) and isinstance(payload.get("jid"), str):
            payloads[payload["jid"]] = payload
    return payloads


def _make_due(link: Link, name: str) -> None:
    """Make all members of a set due, and keep their order."""
    now = time.time()
    for number, member in enumerate(link.call("ZRANGE", name, 0, -1)):
        link.call("ZADD", name, now - 60 + number / 1000, member)


def _begun(worker: SandboxWorker) -> dict[str, list[Any]]:
    arguments_of: dict[str, list[Any]] = {}
    for event in worker.events():
        if event.kind == "begin" and event.jid is not None:
            arguments_of.setdefault(event.jid, []).append(event.args)
    return arguments_of


def _await(
    sandbox: Sandbox, worker: SandboxWorker, holds: Callable[[], object], patience: float
) -> bool:
    """Wait until a condition holds, or until no further event can be expected."""
    deadline = time.monotonic() + patience
    resting = None
    while not holds():
        now = time.monotonic()
        if now > deadline or worker.group.status is not None:
            return bool(holds())
        if not _pending(sandbox) and worker.unrest() is None:
            resting = resting or now
            if now - resting > _REST:
                return bool(holds())
        else:
            resting = None
        time.sleep(0.02)
    return True


def _pending(sandbox: Sandbox) -> bool:
    """Return whether a job waits that a worker would take now or soon."""
    prefix, now = sandbox.config.prefix, time.time() + _SOON
    due = [sandbox.link.call("ZCOUNT", f"{prefix}{name}", 0, now) for name in ("schedule", "retry")]
    return any([*due, sandbox.link.call("LLEN", f"{prefix}queue:{_QUEUE}")])
