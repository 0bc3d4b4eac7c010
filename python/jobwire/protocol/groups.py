"""Groups: jobs that run side by side, and then one that has the results of all.

A group is a job. Its start makes a batch of its members, whose last success pushes its end; the
end returns the results of the members, and pushes the next job of its chain like any other job.
[X-FLOW-8] to [X-FLOW-12]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from jobwire.errors import MalformedPayload, ResultError
from jobwire.protocol.batches import BATCH, CALLBACK, KEPT_S, membership
from jobwire.protocol.chains import TAKES, StepState, WaitingJob, filled, read_waiting
from jobwire.protocol.keys import Keys
from jobwire.protocol.normalize import FAILURE_FIELDS
from jobwire.protocol.outcome import NextJob
from jobwire.protocol.payload import decode, edit
from jobwire.protocol.results import Members, ResultOutcome, json_members, read
from jobwire.protocol.times import Generation, stamp
from jobwire.protocol.wire import Arg, Op, Script, command

__all__ = [
    *("GATHERS", "GROUP", "GROUP_CLASS", "KEEP_S", "MAX_MEMBERS", "Member", "Start"),
    *("gathered", "gives", "grouped", "member_ids", "read_members", "script_start", "start"),
    *("state", "to_gather"),
]

GROUP_CLASS = "Jobwire::Group"
GROUP = "jw_group"  # the payloads of the members, in order [X-FLOW-8]
GATHERS = "jw_gathers"  # of the end of a group: ids of the members, in order [X-FLOW-9]
GIVES = "gives"  # in `jw_batch` of a member: it fails if its result cannot be kept [X-FLOW-12]
MAX_MEMBERS = 1_000  # because one step pushes all
KEEP_S = KEPT_S  # for which results of members are kept: as long as their batch [X-FLOW-8]


class _Start(msgspec.Struct):
    jid: str
    jw_group: list[msgspec.Raw]
    args: list[msgspec.Raw] = []


class _Stage(msgspec.Struct):
    jw_group: list[msgspec.Raw] | None = None
    jw_gathers: list[str] | None = None


class _Result(msgspec.Struct):
    outcome: str
    value: msgspec.Raw = msgspec.Raw(b"")
    problem: str = "it is not there"


_decode_start = msgspec.json.Decoder(_Start).decode
_decode_stage = msgspec.json.Decoder(_Stage).decode
_decode_result = msgspec.json.Decoder(_Result).decode
_NULL = msgspec.Raw(b"null")


def grouped(text: bytes, members: Sequence[bytes]) -> bytes:
    """Return the payload of a group, with its members as `chains.waiting` returned them.

    [X-FLOW-8]

    Raises:
        MalformedPayload: It is nested too deep. [PAY-3]
    """
    group = edit(text, {GROUP: [msgspec.Raw(member) for member in members]})
    decode(group, "")
    return group


def member_ids(fields: Mapping[str, Any]) -> list[str]:
    """Return the ids of the members of a group, at its start or its end; none for another job."""
    gathers, members = fields.get(GATHERS), fields.get(GROUP)
    if isinstance(gathers, list):
        return [jid for jid in gathers if isinstance(jid, str)]
    if not isinstance(members, list):
        return []
    return [str(member.get("jid", "")) for member in members if isinstance(member, dict)]


def gives(fields: Mapping[str, Any]) -> bool:
    """Return whether a job is a member of a group, so that its result is needed. [X-FLOW-12]"""
    batch = fields.get(BATCH)
    return isinstance(batch, dict) and batch.get(GIVES) is True


def to_gather(text: bytes) -> list[str] | None:
    """Return the ids of the members of a group at its end; None if it is at its start. [X-FLOW-11]

    Raises:
        MalformedPayload: It is neither. The group fails.
    """
    try:
        stage = _decode_stage(text)
    except msgspec.MsgspecError as error:
        raise MalformedPayload("X-FLOW-8", GROUP, str(error)) from None
    if stage.jw_gathers is not None:
        return stage.jw_gathers
    if stage.jw_group is None:
        raise MalformedPayload("X-FLOW-8", GROUP, "is absent; a group has its jobs there")
    return None if stage.jw_group else []


class Start(NamedTuple):
    """The start of a group. [X-FLOW-9] [X-FLOW-10]

    Attributes:
        jid: The id of the group, and of its batch.
        end: The job that ends the group, without `enqueued_at`.
        members: The ids of the members, and the jobs to push.
    """

    jid: str
    end: NextJob
    members: list[tuple[str, NextJob]]


def start(text: bytes, queue: str, *, now: float, generation: Generation) -> Start:
    """Return the jobs that a group pushes at its start.

    Args:
        text: The payload of the group.
        queue: Queue of its end.
        now: Epoch seconds.
        generation: Generation of the times to write.

    Raises:
        MalformedPayload: It is not a group, or one of its members is not a job. The group fails.
    """
    members: list[tuple[str, NextJob]] = []
    try:
        group = _decode_start(text)
        of = {"id": group.jid, "queue": queue}
        result = group.args[0] if group.args else _NULL
        for index, raw in enumerate(group.jw_group):
            member = read_waiting(raw)
            changes = _changes(member, result, f"{GROUP}[{index}]")
            changes |= {BATCH: {**of, GIVES: True}, "enqueued_at": stamp(now, generation)}
            pushed = NextJob(member.queue, edit(bytes(raw), changes, drop=(TAKES,)))
            members.append((member.jid, pushed))
    except msgspec.MsgspecError as error:
        raise MalformedPayload("X-FLOW-8", GROUP, str(error)) from None
    ids = [jid for jid, _ in members]
    end = edit(
        text,
        {"args": [], GATHERS: ids, CALLBACK: {**of, "on": "on_success"}},
        drop=(GROUP, "enqueued_at", *FAILURE_FIELDS),
    )
    return Start(group.jid, NextJob(queue, end), members)


def script_start(keys: Keys, group: Start, now: float) -> Script:
    """Return the step that pushes the members of a group, once; `now` in epoch seconds."""
    words: list[Arg] = []
    for jid, job in group.members:
        words += (job.queue, job.text, jid)
    return Script(
        "batch_start",
        [
            *(keys.queues, keys.batch(group.jid), keys.batch_open(group.jid), keys.cancelled),
            *(keys.queue(job.queue) for _, job in group.members),
        ],
        [group.jid, *group.end, now, *words],
    )


def _changes(member: WaitingJob, result: msgspec.Raw, at: str) -> dict[str, Any]:
    return {"args": filled(member, result, at)} if member.jw_takes else {}


def gathered(ids: Sequence[str], texts: Sequence[bytes | None]) -> Members:
    """Return the results of the members of a group as one list, in order. [X-FLOW-11] [X-FLOW-12]

    Args:
        ids: The members.
        texts: Their stored results, or None.

    Raises:
        ResultError: One has no value. The end of the group fails.
    """
    values: list[bytes] = []
    for number, (jid, text) in enumerate(zip(ids, texts, strict=True), 1):
        try:
            result = _decode_result(text or b"")
        except (msgspec.DecodeError, UnicodeDecodeError):
            result = _Result("lost")
        value = bytes(result.value)
        if result.outcome != "done" or not value:
            raise ResultError(
                f"the result of member {number} of the group, job {jid}, cannot be passed on: "
                f"{result.problem}; run the group again"
            )
        values.append(value)
    return json_members(b"[" + b",".join(values) + b"]")


class Member(NamedTuple):
    """A member of a group, for people who look at one of its jobs.

    Attributes:
        jid: Its id.
        state: Its outcome; `open`: it waits or runs, or its result is not kept any more; `later`:
            the group has not started.
    """

    jid: str
    state: StepState


def read_members(keys: Keys, fields: Mapping[str, Any]) -> Op[list[Member]]:
    """Return the members of the group that a job is or belongs to, in order.

    None are known for a member of a group whose end was pushed: then all have succeeded.

    Args:
        keys: Key names.
        fields: Of the payload of the job.
    """
    ids = member_ids(fields)
    if gives(fields) and (member := membership(fields.get(BATCH))) is not None:
        end: bytes | None = yield command("HGET", keys.batch(member.batch), "on_success")
        ids = [] if end is None else to_gather(end) or []
    if not ids or GROUP in fields:
        return [Member(jid, "later") for jid in ids]
    texts: list[bytes | None] = yield command("MGET", *map(keys.result, ids))
    results = [text and read(jid, text) for jid, text in zip(ids, texts, strict=True)]
    return [
        Member(jid, result.outcome if result else "open")
        for jid, result in zip(ids, results, strict=True)
    ]


def state(outcomes: Sequence[ResultOutcome | None]) -> StepState:
    """Return the state of a group whose end has not run, from the outcomes of its members.

    A member that has failed for good, or was cancelled or dropped, holds the group up.
    """
    ends: tuple[Literal["dead", "discarded", "cancelled", "expired"], ...]
    ends = ("dead", "discarded", "cancelled", "expired")
    return next((end for end in ends if end in outcomes), "open")
