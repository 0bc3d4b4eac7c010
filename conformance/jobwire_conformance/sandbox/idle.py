"""The rest of a worker process, concluded from its commands and from the reports of its jobs.

A worker is at rest if nothing of its own is to follow: no reply, no repetition of a refused call,
no end of a job, no outcome, and no next fetch. That it looks for more jobs does not suffice, as the
outcome of the last one may follow later.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jobwire_conformance.wire.call import Call, script_sha
from jobwire_conformance.wire.commands import keys_of
from jobwire_conformance.wire.resp import decode

__all__ = [
    *("FORGOTTEN_S", "Event", "brought", "debt"),
    *("is_answered", "is_at_home", "jobs_in", "longest_wait", "unrepeated"),
]

FORGOTTEN_S = 5.0
"""Seconds after which something that has not happened is not expected any more."""

_OUTCOME_S = 1.0  # for an outcome that may be none: some jobs that fail are dropped
_REFUSALS = (
    *(b"-NOSCRIPT", b"-READONLY", b"-OOM", b"-LOADING", b"-MISCONF", b"-NOREPLICAS"),
    *(b"-BUSY", b"-TRYAGAIN", b"-CLUSTERDOWN", b"-MASTERDOWN"),
)  # of servers that will accept the call later
_RECORDS = (b":work", b":workers")  # keys with copies of running jobs


@dataclass(frozen=True, slots=True)
class Event:
    """A report of a standard job.

    Attributes:
        at: Time of the report, by the monotonic clock of the proxies.
        worker: Name of the process.
        kind: `begin` or `end`; for jobs with hooks also `exhausted` and `death`.
        jid: Id of the job; None if it has none.
        args: Arguments of the job, at `begin`.
        ok: True at the `end` of a job that succeeded.
        text: The whole report, as the job spelled it.
    """

    at: float
    worker: str
    kind: str
    jid: str | None
    args: Any
    ok: bool
    text: str


def is_answered(call: Call, now: float) -> bool:
    """Return whether no reply to a call is expected that would end the rest."""
    over = call.reply is not None or call.given_up
    return over or call.blocks or call.action is not None or call.at < now - FORGOTTEN_S


def unrepeated(calls: Sequence[Call], now: float) -> Call | None:
    """Return a call that was refused or lost and will be repeated; None if there is none.

    A write is lost if its connection ends before the reply. Commands that were sent together with
    a refused call, like the next fetch, may be answered long before. [LUA-3] [ENV-6] [ENV-5]
    """
    last: dict[tuple[object, ...], Call] = {}
    for call in calls:
        if call.spec.may_write:
            last[script_sha(call.words) or call.name, *keys_of(call.words)[:1]] = call
    for call in last.values():
        lost = call.reply is None and call.given_up
        if call.at > now - FORGOTTEN_S and (lost or (call.reply or b"").startswith(_REFUSALS)):
            return call
    return None


def debt(
    calls: Sequence[Call],
    fetched: Mapping[int, Sequence[tuple[str, bytes]]],
    events: Sequence[Event],
    now: float,
) -> str | None:
    """Return the id of a job that was fetched and has no outcome yet; None if all have one.

    A job that succeeded has one. For other jobs it is a write with the payload. As some of them
    are dropped, the outcome is not awaited for long.

    Args:
        calls: The commands of the process, in order.
        fetched: Sequence number of each fetch to the jobs it brought: id and payload.
        events: The reports of its jobs.
        now: The time, by the monotonic clock.
    """
    heard = {event.jid: event.at for event in events}
    for call in calls:
        for jid, payload in fetched.get(call.sequence, ()):
            if max(call.answered or call.at, heard.get(jid, 0.0)) < now - _OUTCOME_S:
                continue
            done = any(e.jid == jid and e.kind == "end" and e.ok and e.at > call.at for e in events)
            if not done and not any(_stores(other, jid, payload, call) for other in calls):
                return jid
    return None


def _stores(call: Call, jid: str, payload: bytes, fetch: Call) -> bool:
    """Return whether a command has stored a job, or has removed a copy of it."""
    if call.sequence <= fetch.sequence or not call.spec.may_write:
        return False
    if call.reply is None or call.reply.startswith(b"-"):
        return False
    if any(key.endswith(_RECORDS) for key in keys_of(call.words)):
        return False
    word = jid.encode()
    return any(text == payload or (text[:1] == b"{" and word in text) for text in call.words[1:])


def is_at_home(fetches: Sequence[Call], concurrency: int, *, after: float) -> bool:
    """Return whether all executors wait for jobs.

    Args:
        fetches: Commands that may have taken jobs.
        concurrency: Number of executors.
        after: Time after which the last fetch must have been sent.
    """
    if sum(call.blocks and call.reply is None for call in fetches) >= concurrency:
        return True
    # A worker may try its commands at its start, in a transaction that it then gives up.
    fetches = [call for call in fetches if not (call.reply or b"").startswith(b"+QUEUED")]
    # Other commands may name the queue, so a command counts as a fetch once it has returned a
    # job. The worker waits if the last fetch found nothing.
    bringing = {_kind(call) for call in fetches if brought(call)}
    asked = [c for c in fetches if not c.blocks and (not bringing or _kind(c) in bringing)]
    return bool(asked and asked[-1].at > after and asked[-1].reply and not brought(asked[-1]))


def brought(call: Call) -> bool:
    """Return whether a command returned a job: a script any text in an array, or an object."""
    reply = None if call.reply is None else decode(call.reply)
    if isinstance(reply, list) or call.spec.effect == "takes":
        return any(_texts(reply))
    return isinstance(reply, bytes) and _jid(reply) is not None


def longest_wait(call: Call) -> float:
    """Return the seconds after which the server ends a blocking fetch; 0 if it never does."""
    place = 1 if call.name in (b"BLMPOP", b"BZMPOP") else -1
    try:
        return float(call.words[place])
    except (ValueError, IndexError):
        return 0.0


def jobs_in(call: Call) -> list[tuple[str, bytes]]:
    """Return the jobs in the reply of a fetch: id and payload of each."""
    reply = None if call.reply is None else decode(call.reply)
    jobs = ((_jid(text), text) for text in _texts(reply))
    return [(jid, text) for jid, text in jobs if jid is not None]


def _kind(call: Call) -> tuple[bytes, ...]:
    """Return the part of a command that is equal for commands with the same purpose."""
    return tuple(call.words[:2]) if call.spec.runs_script else (call.name,)


def _texts(value: object) -> Iterator[bytes]:
    if isinstance(value, list):
        for part in value:
            yield from _texts(part)
    elif isinstance(value, bytes):
        yield value


def _jid(text: bytes) -> str | None:
    if text[:1] != b"{":
        return None
    try:
        job = json.loads(text)
    except ValueError:
        return None
    jid = job.get("jid")
    return jid if isinstance(jid, str) and jid else None
