"""What was pushed, what is seen in Redis, and whether the one is what the other should lead to."""

from __future__ import annotations

import json
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from redis import Redis

__all__ = ["Note", "Problem", "Seen", "Sent", "problem", "settled"]

Fate = Literal["done", "waiting", "dead", "buried"]
"""Done; waiting in the retry set; in the dead set; buried as exactly the bytes that were
pushed, in the dead set or, if JSON but no object, where such things go."""

# A failure writes these, and a promotion `enqueued_at`; all other fields stay as they were.
OWNED = {"retry_count", "error_message", "error_class", "failed_at", "retried_at", "enqueued_at"}


@dataclass(frozen=True, slots=True)
class Sent:
    """A job that was pushed, and what must become of it.

    Attributes:
        jid: Job id; `""` for what is no payload.
        fate: Where it must end.
        args: What it must note: its arguments, mostly.
        retries: The `retry_count` of each retry that must be seen on its way.
        due: Epoch second before which it must not run.
        text: The payload, where it was pushed as bytes.
    """

    jid: str
    fate: Fate = "done"
    args: Any = None
    retries: tuple[int, ...] = ()
    due: float = 0.0
    text: bytes | None = None


@dataclass(frozen=True, slots=True)
class Note:
    """What a job noted (see `demo_app.note`): its arguments, mostly, and the time."""

    args: Any
    at: float


class Problem(NamedTuple):
    """What is wrong with a job; `jid` is `""` for one without, and for things in general."""

    jid: str
    text: str


@dataclass(slots=True)
class Seen:
    """What Redis says about the jobs, by job id; brought up to date by `look`.

    Attributes:
        pushed: The texts that were pushed as bytes.
        done: How often a job went well.
        failed: How often it failed.
        notes: What it noted.
        retries: What waited for a retry, by `retry_count`; also what has gone on since.
        dead: The dead set by job id, for members that have one.
        graves: How often each text is buried.
    """

    pushed: set[bytes] = field(default_factory=set)
    done: dict[str, int] = field(default_factory=dict)
    failed: dict[str, int] = field(default_factory=dict)
    notes: dict[str, list[Note]] = field(default_factory=lambda: defaultdict(list))
    retries: dict[str, dict[int, dict[str, Any]]] = field(default_factory=lambda: defaultdict(dict))
    dead: dict[str, dict[str, Any]] = field(default_factory=dict)
    graves: Counter[bytes] = field(default_factory=Counter)
    _read: int = 0

    def look(self, redis: Redis) -> None:
        """Read what is new."""
        pipe = redis.pipeline(transaction=False)
        pipe.hgetall("demo:done")
        pipe.hgetall("demo:failed")
        pipe.lrange("demo:notes", self._read, -1)
        pipe.zrange("retry", 0, -1)
        pipe.zrange("dead", 0, -1)
        pipe.zrange("jobwire:unreadable", 0, -1)
        done, failed, notes, retries, dead, unreadable = pipe.execute()
        self.done = {jid.decode(): int(times) for jid, times in done.items()}
        self.failed = {jid.decode(): int(times) for jid, times in failed.items()}
        self._read += len(notes)
        for text in notes:
            entry = json.loads(text)
            self.notes[entry["jid"]].append(Note(entry["args"], entry["at"]))
        self._remember(retries)
        self.graves = Counter([*dead, *unreadable])
        self.dead = {job["jid"]: job for job in map(_job, dead) if job}

    def hurry(self, redis: Redis, jids: Collection[str]) -> int:
        """Make waiting retries of these jobs due now; return how many."""
        now = time.time()
        later: Any = redis.zrange("retry", now, "+inf", byscore=True)
        waiting = [text for text in later if json.loads(text)["jid"] in jids]
        self._remember(waiting)  # some may have failed since the last look
        if waiting:
            redis.zadd("retry", dict.fromkeys(waiting, now - 1), xx=True)
        return len(waiting)

    def _remember(self, retries: Iterable[bytes]) -> None:
        for text in retries:
            if text not in self.pushed:  # those wait for their turn, nobody has run them yet
                job = json.loads(text)
                self.retries[job["jid"]].setdefault(job["retry_count"], job)


def settled(sent: Sent, seen: Seen) -> bool:
    """Return whether nothing more is to be waited for."""
    match sent.fate:
        case "done":
            return sent.jid in seen.done
        case "waiting":
            return sent.jid in seen.retries
        case "dead":
            return sent.jid in seen.dead
        case "buried":
            return sent.text in seen.graves


def problem(sent: Sent, seen: Seen) -> Problem | None:
    """Return what is wrong with the outcome of a job; None if it is as it must be."""
    found = next(_problems(sent, seen), None)
    return Problem(sent.jid, f"{sent.jid or repr(sent.text)}: {found}") if found else None


def _problems(sent: Sent, seen: Seen) -> Iterator[str]:
    if not settled(sent, seen):
        yield f"is not {sent.fate}; failed {seen.failed.get(sent.jid, 0)} times"
    if sent.fate == "buried":
        if seen.graves[sent.text or b""] != 1:
            yield f"is {seen.graves[sent.text or b'']} times buried"
        return
    runs, notes = seen.done.get(sent.jid, 0), seen.notes.get(sent.jid, [])
    if runs != (sent.fate == "done") or len(notes) != runs:
        yield f"went well {runs} times and left {len(notes)} notes, but is to be {sent.fate}"
    failures = len(sent.retries) + (sent.fate == "dead")
    failed = seen.failed.get(sent.jid, 0)
    # One that waits may be taken up again while a slow machine still watches the others.
    if failed < failures or (sent.fate != "waiting" and failed != failures):
        yield f"failed {failed} times instead of {failures}"
    for each in notes:
        # As text, since Python takes 1, 1.0 and true for equal.
        if json.dumps(each.args) != json.dumps(sent.args):
            yield f"noted {each.args!r:.200} instead of {sent.args!r:.200}"
        if each.at < sent.due:
            yield f"ran {sent.due - each.at:.3f} s early"
    retries = tuple(sorted(seen.retries.get(sent.jid, ())))
    if retries[: len(sent.retries)] != sent.retries or (
        sent.fate != "waiting" and retries != sent.retries
    ):
        yield f"had retries with count {retries} instead of {sent.retries}"
    stored = [*seen.retries.get(sent.jid, {}).values(), *filter(None, [seen.dead.get(sent.jid)])]
    for job in stored:
        yield from _changes(sent, job)


def _changes(sent: Sent, job: dict[str, Any]) -> Iterator[str]:
    """Say what a failure has changed that is not its own."""
    if not job.get("error_class") or "error_message" not in job:
        yield "was stored without its error"
    if sent.text is None:
        return
    before = json.loads(sent.text)
    for name in before.keys() - OWNED:
        if name not in job or json.dumps(job[name]) != json.dumps(before[name]):
            yield f"its field {name!r} was changed"


def _job(text: bytes) -> dict[str, Any] | None:
    """Return the payload of a job that died; None for what was buried as it is."""
    try:
        job = json.loads(text)
    except ValueError:
        return None
    return job if isinstance(job, dict) and "jid" in job else None
