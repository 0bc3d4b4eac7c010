"""One client and one worker; one worker that fails a job, and another one that retries it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from jobwire_conformance.config import Config
from jobwire_conformance.interop.pool import POOL, Item, text_of
from jobwire_conformance.sandbox.local_server import Database
from jobwire_conformance.sandbox.reaper import Reaper
from jobwire_conformance.sandbox.sandbox import Sandbox
from jobwire_conformance.sandbox.worker import SandboxWorker
from jobwire_conformance.wire.link import Link

__all__ = ["Fate", "Handover", "Pair", "hand_over", "push_and_perform"]

_QUEUE = "default"
_FLAKY = "ab" * 12  # jid of the job that is handed over
_SOON = 2.0  # seconds until scheduled jobs are due
_REST = 1.0  # seconds that a worker has to be at rest before what is missing counts as lost

Servers = Callable[[], tuple[Database, Database]]


@dataclass(frozen=True, slots=True)
class Fate:
    """What became of one job.

    Attributes:
        item: That was pushed.
        status: `intact`; `changed`; `lost`; `repeated`; `refused` by the client, which it may.
        by: `client` or `worker`; None for `intact`.
        expected: What should have been there, as JSON; the message of a refusal.
        seen: What was there instead.
    """

    item: Item
    status: str
    by: str | None = None
    expected: str = ""
    seen: str = ""


@dataclass(slots=True)
class Pair:
    """What became of all jobs of a client and a worker."""

    client: str
    worker: str
    fates: list[Fate] = field(default_factory=list)
    error: str | None = None  # why the pair could not be tried
    version: str = ""  # of the client

    @property
    def bad(self) -> list[Fate]:
        """Those that went wrong."""
        return [fate for fate in self.fates if fate.status not in ("intact", "refused")]


@dataclass(slots=True)
class Handover:
    """What became of a job that one worker failed and another one was to retry."""

    failing: str
    retrying: str
    problems: list[tuple[str, str]] = field(default_factory=list)  # who, and what
    error: str | None = None


class _Shared:
    """A database that two sandboxes use, and neither closes."""

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
    pool: Sequence[Item] = POOL,
) -> Pair:
    """Push everything by one, perform it by the other, and compare.

    Raises:
        ConformError: One of them cannot be talked to.
    """
    found = Pair(client.name, worker.name)
    with _sandboxes(reaper, stores, client, worker) as (here, there):
        pushed: dict[str, Item] = {}
        for item in pool:
            at = {"at": time.time() + _SOON} if item.later else {}
            job = {"class": "JobwireEcho", "args": list(item.args), "queue": _QUEUE}
            answer = here.driver.ask("push", job=job, **at)
            if answer["outcome"] == "ok" and isinstance(answer["jid"], str):
                pushed[answer["jid"]] = item
            else:
                why = str(answer.get("message", answer["outcome"]))
                found.fates.append(Fate(item, "refused", "client", why))
        found.version = here.driver.version
        written = _members(here.link, client.prefix)
        # Its time is let come: a client that leaves `at` in the payload means that very time.
        process = there.start("worker", [_QUEUE])
        _await(there, process, lambda: pushed.keys() <= _begun(process).keys(), patience)
        begun = _begun(process)
    for jid, item in pushed.items():
        found.fates.append(_fate(item, written.get(jid), begun.get(jid, [])))
    order = {item.name: number for number, item in enumerate(pool)}
    found.fates.sort(key=lambda fate: order[fate.item.name])
    return found


def _fate(item: Item, written: Mapping[str, Any] | None, begun: Sequence[Any]) -> Fate:
    asked = text_of(list(item.args))
    if written is None:
        return Fate(item, "lost", "client", "a payload in the queue or set", "none with its jid")
    if (wire := text_of(written.get("args"))) != asked:
        return Fate(item, "changed", "client", asked, wire)
    if not begun and item.later and "at" in written:
        inside = f"at {text_of(written['at'])} in it"
        return Fate(item, "lost", "client", "a payload without at [SCHED-1]", inside)
    if not begun:
        return Fate(item, "lost", "worker", "a run of its jid", "none was reported")
    if len(begun) > 1:
        return Fate(item, "repeated", "worker", "the job runs once", f"{len(begun)} times")
    if (seen := text_of(begun[0])) != asked:
        return Fate(item, "changed", "worker", asked, seen)
    return Fate(item, "intact")


def hand_over(
    reaper: Reaper,
    stores: tuple[Database, Database],
    failing: Config,
    retrying: Config,
    *,
    patience: float,
) -> Handover:
    """Let one worker fail a job, end it, and let the other one retry the job.

    Raises:
        ConformError: One of them cannot be started.
    """
    found = Handover(failing.name, retrying.name)
    now = time.time()
    stamp: float | int = int(now * 1000) if failing.generation == 8 else now
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
            ran = "after it had run" if _FLAKY in _begun(first) else "and it did not run"
            found.problems.append((failing.name, f"left nothing in the set retry, {ran}"))
            return found
        first.end()
        member = here.link.call("ZRANGE", waiting, 0, -1)[0]
        found.problems += ((failing.name, what) for what in _misread(job, member))
        # Both count by the jid under the name of their own run.
        count = here.control.call("GET", f"jw:{here.run}:n:{_FLAKY}")
        there.control.call("SET", f"jw:{there.run}:n:{_FLAKY}", count or b"1")
        _make_due(there.link, waiting)
        second = there.start("second", [_QUEUE])
        done = lambda: any(e.what == "end" and e.jid == _FLAKY for e in second.events())  # noqa: E731
        if not _await(there, second, done, patience):
            found.problems.append((retrying.name, "did not run what was due in the set retry"))
        elif (args := _begun(second).get(_FLAKY, [None])[0]) != [1]:
            found.problems.append((retrying.name, f"ran it with {text_of(args)} for [1]"))
        elif not _await(there, second, lambda: not there.link.call("ZCARD", waiting), patience):
            found.problems.append((retrying.name, "ran it, and left it in the set retry"))
    return found


def _misread(job: Mapping[str, Any], member: bytes) -> Iterator[str]:
    """Yield what a payload in the set retry has that it should not, and the other way round."""
    try:
        kept = json.loads(member)
    except ValueError:
        kept = None
    if not isinstance(kept, dict):
        yield f"wrote into the set retry what is no payload: {member[:80]!r}"
        return
    for name, value in job.items():
        if name != "enqueued_at" and (name not in kept or text_of(kept[name]) != text_of(value)):
            seen = text_of(kept[name]) if name in kept else "nothing"
            yield f"changed {name} in the set retry: {text_of(value)} became {seen}"
    if kept.get("retry_count") != 0:
        yield f"wrote retry_count {text_of(kept.get('retry_count'))} after the first failure for 0"


def _members(link: Link, prefix: str) -> dict[str, dict[str, Any]]:
    """Return the payloads of the queue and of the set schedule by their jids."""
    raw = link.call("LRANGE", f"{prefix}queue:{_QUEUE}", 0, -1)
    raw += link.call("ZRANGE", f"{prefix}schedule", 0, -1)
    found = {}
    for each in raw:
        try:
            payload = json.loads(each)
        except ValueError:
            continue
        if isinstance(payload, dict) and isinstance(payload.get("jid"), str):
            found[payload["jid"]] = payload
    return found


def _make_due(link: Link, name: str) -> None:
    """Move time for everything in a set, in the order that it has."""
    now = time.time()
    for number, member in enumerate(link.call("ZRANGE", name, 0, -1)):
        link.call("ZADD", name, now - 60 + number / 1000, member)


def _begun(worker: SandboxWorker) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for event in worker.events():
        if event.what == "begin" and event.jid is not None:
            found.setdefault(event.jid, []).append(event.args)
    return found


def _await(
    sandbox: Sandbox, worker: SandboxWorker, holds: Callable[[], object], patience: float
) -> bool:
    """Wait until it holds, or nothing more can be expected."""
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
    """Whether there is anything that a worker would take now, or soon."""
    prefix, now = sandbox.config.prefix, time.time() + _SOON
    due = [sandbox.link.call("ZCOUNT", f"{prefix}{name}", 0, now) for name in ("schedule", "retry")]
    return any([*due, sandbox.link.call("LLEN", f"{prefix}queue:{_QUEUE}")])
