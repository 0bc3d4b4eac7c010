"""The jobs that were pushed, their state in Redis, and the check that the outcomes are right."""

from __future__ import annotations

import json
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from redis import Redis

__all__ = ["Note", "Problem", "Seen", "Sent", "has_outcome", "problem"]

Fate = Literal["done", "waiting", "dead", "killed"]
"""Done; waiting in the retry set; in the dead set after failures; killed unread, as exactly the
bytes that were pushed: in the dead set or, if the text is JSON, in `jobwire:unreadable`."""

# A failure writes these fields, and a promotion `enqueued_at`; all other fields must not change.
OWNED = {"retry_count", "error_message", "error_class", "failed_at", "retried_at", "enqueued_at"}


@dataclass(frozen=True, slots=True)
class Sent:
    """A job that was pushed, and its expected outcome.

    Attributes:
        jid: Job id; `""` for a text that is not a payload.
        fate: The place in which the job must end.
        args: The value that the job must note, mostly its arguments.
        retries: The `retry_count` of each retry that must be seen before the end.
        due: Epoch second before which the job must not run.
        text: The payload, if it was pushed as bytes.
    """

    jid: str
    fate: Fate = "done"
    args: Any = None
    retries: tuple[int, ...] = ()
    due: float = 0.0
    text: bytes | None = None


@dataclass(frozen=True, slots=True)
class Note:
    """A note that a job left (see `demo_app.note`): mostly its arguments, and the time."""

    args: Any
    at: float


class Problem(NamedTuple):
    """A fault of a job; `jid` is `""` for a job without an id, or a fault of the whole run."""

    jid: str
    text: str


@dataclass(slots=True)
class Seen:
    """The state of the jobs in Redis, by job id; `look` updates it.

    Attributes:
        pushed: The texts that were pushed as bytes.
        done: How often a job succeeded.
        failed: How often it failed.
        notes: The notes that it left.
        retries: Payloads seen in the retry set, by `retry_count`; also those that have run since.
        dead: The dead set by job id, for members that have one.
        killed: Number of copies of each text in the dead set and in `jobwire:unreadable`.
    """

    pushed: set[bytes] = field(default_factory=set)
    done: dict[str, int] = field(default_factory=dict)
    failed: dict[str, int] = field(default_factory=dict)
    notes: dict[str, list[Note]] = field(default_factory=lambda: defaultdict(list))
    retries: dict[str, dict[int, dict[str, Any]]] = field(default_factory=lambda: defaultdict(dict))
    dead: dict[str, dict[str, Any]] = field(default_factory=dict)
    killed: Counter[bytes] = field(default_factory=Counter)
    _read: int = 0

    def look(self, redis: Redis) -> None:
        """Read the state again."""
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
        self.killed = Counter([*dead, *unreadable])
        self.dead = {job["jid"]: job for job in map(_job, dead) if job}

    def make_due(self, redis: Redis, jids: Collection[str]) -> int:
        """Make waiting retries of these jobs due now; return how many."""
        now = time.time()
        later: Any = redis.zrange("retry", now, "+inf", byscore=True)
        waiting = [text for text in later if json.loads(text)["jid"] in jids]
        self._remember(waiting)  # some may have failed since the last `look`
        if waiting:
            redis.zadd("retry", dict.fromkeys(waiting, now - 1), xx=True)
        return len(waiting)

    def _remember(self, retries: Iterable[bytes]) -> None:
        for text in retries:
            if text not in self.pushed:  # texts pushed into the retry set have not run yet
                job = json.loads(text)
                self.retries[job["jid"]].setdefault(job["retry_count"], job)


def has_outcome(sent: Sent, seen: Seen) -> bool:
    """True if the job is where it must end."""
    match sent.fate:
        case "done":
            return sent.jid in seen.done
        case "waiting":
            return sent.jid in seen.retries
        case "dead":
            return sent.jid in seen.dead
        case "killed":
            return sent.text in seen.killed


def problem(sent: Sent, seen: Seen) -> Problem | None:
    """Return the fault of a job's outcome; None if the outcome is right."""
    fault = next(_problems(sent, seen), None)
    return Problem(sent.jid, f"{sent.jid or repr(sent.text)}: {fault}") if fault else None


def _problems(sent: Sent, seen: Seen) -> Iterator[str]:
    if not has_outcome(sent, seen):
        yield f"is not {sent.fate}; failed {seen.failed.get(sent.jid, 0)} times"
    if sent.fate == "killed":
        if seen.killed[sent.text or b""] != 1:
            yield f"was killed {seen.killed[sent.text or b'']} times"
        return
    runs, notes = seen.done.get(sent.jid, 0), seen.notes.get(sent.jid, [])
    if runs != (sent.fate == "done") or len(notes) != runs:
        yield f"succeeded {runs} times and left {len(notes)} notes, but is to be {sent.fate}"
    failures = len(sent.retries) + (sent.fate == "dead")
    failed = seen.failed.get(sent.jid, 0)
    # A waiting job may be retried while a slow machine still watches the others.
    if failed < failures or (sent.fate != "waiting" and failed != failures):
        yield f"failed {failed} times instead of {failures}"
    for note in notes:
        # As text, because 1, 1.0 and True are equal in Python.
        if json.dumps(note.args) != json.dumps(sent.args):
            yield f"noted {note.args!r:.200} instead of {sent.args!r:.200}"
        if note.at < sent.due:
            yield f"ran {sent.due - note.at:.3f} s early"
    retries = tuple(sorted(seen.retries.get(sent.jid, ())))
    if retries[: len(sent.retries)] != sent.retries or (
        sent.fate != "waiting" and retries != sent.retries
    ):
        yield f"had retries with count {retries} instead of {sent.retries}"
    stored = [*seen.retries.get(sent.jid, {}).values(), *filter(None, [seen.dead.get(sent.jid)])]
    for job in stored:
        yield from _changes(sent, job)


def _changes(sent: Sent, job: dict[str, Any]) -> Iterator[str]:
    """Yield the changes that a failure must not make."""
    if not job.get("error_class") or "error_message" not in job:
        yield "was stored without its error"
    if sent.text is None:
        return
    before = json.loads(sent.text)
    for name in before.keys() - OWNED:
        if name not in job or json.dumps(job[name]) != json.dumps(before[name]):
            yield f"its field {name!r} was changed"


def _job(text: bytes) -> dict[str, Any] | None:
    """Return the payload of a dead job; None for a text that was killed unread."""
    try:
        job = json.loads(text)
    except ValueError:
        return None
    return job if isinstance(job, dict) and "jid" in job else None
