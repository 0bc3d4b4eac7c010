"""Chains: jobs that run one after the other, each pushed by the end of the one before.

The payload of a job carries those of all jobs that follow. [X-FLOW-1] to [X-FLOW-7]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

from jobwire.errors import MalformedPayload, ResultError
from jobwire.protocol.outcome import NextJob
from jobwire.protocol.payload import decode, edit
from jobwire.protocol.results import Members, ResultOutcome, value_members

__all__ = [
    *("BEFORE", "MAX_STEPS", "NEXT", "TAKES", "Step", "StepState"),
    *("WaitingJob", "chained", "filled", "next_job", "passed_on", "read_waiting"),
    *("states", "steps", "waiting"),
]

NEXT = "jw_next"  # the payloads of the jobs that follow, in order [X-FLOW-1]
TAKES = "jw_takes"  # of a job that waits: positions of arguments that get the result [X-FLOW-2]
BEFORE = "jw_before"  # ids and classes of the jobs that have ended before, in order [X-FLOW-7]
MAX_STEPS = 1_000  # because each job of a chain carries all the others

StepState: TypeAlias = ResultOutcome | Literal["open", "later"]
"""State of a job of a chain: its outcome; `open`: it waits in a queue, runs, or its outcome is not
known any more; `later`: it waits for the jobs before it."""

_VALUE = b'"value":'


class _Carrier(msgspec.Struct):
    jw_next: list[msgspec.Raw]
    jid: str = ""
    wrapped: str = ""
    class_: str = msgspec.field(name="class", default="")
    jw_before: list[msgspec.Raw] = []


class WaitingJob(msgspec.Struct):
    """A job that another one carries, as far as its push needs it. [X-FLOW-1] [X-FLOW-2]"""

    class_: str = msgspec.field(name="class")
    jid: str
    queue: str
    args: msgspec.Raw = msgspec.Raw(b"[]")
    jw_takes: list[int] = []


_decode_carrier = msgspec.json.Decoder(_Carrier).decode
read_waiting = msgspec.json.Decoder(WaitingJob).decode
_decode_args = msgspec.json.Decoder(list[msgspec.Raw]).decode


def waiting(text: bytes, takes: Sequence[int]) -> bytes:
    """Return the payload of a job as another one carries it. [X-FLOW-1] [X-FLOW-2]

    Args:
        text: The payload, with null for each argument that gets the result.
        takes: Positions of these arguments.
    """
    return edit(text, {TAKES: list(takes)} if takes else {}, drop=("enqueued_at",))


def chained(text: bytes, following: Sequence[bytes]) -> bytes:
    """Return the payload of a job that carries those that `waiting` returned. [X-FLOW-1]

    Raises:
        MalformedPayload: It is nested too deep. [PAY-3]
    """
    carrier = edit(text, {NEXT: [msgspec.Raw(step) for step in following]})
    decode(carrier, "")
    return carrier


def next_job(text: bytes, value: object, *, now: float) -> NextJob | None:
    """Return the job to push with the end of one that returned; None if none follows.

    An outcome that comes too late does not push it. [X-FLOW-3] [X-FLOW-5] [X-FLOW-6] [X-FLOW-7]

    Args:
        text: The payload of the job that returned.
        value: The value that it returned.
        now: Time for `enqueued_at`, in the form of the payload.

    Raises:
        MalformedPayload: The next job is not one. The job fails.
        ResultError: The next job needs the value, and cannot get it. The job fails.
    """
    try:
        carrier = _decode_carrier(text)
        if not carrier.jw_next:
            return None
        raw, *rest = carrier.jw_next
        step = read_waiting(raw)
        changes: dict[str, Any] = {}
        if step.jw_takes:
            result = passed_on(f"the next job, {step.class_},", value)[len(_VALUE) :]
            changes["args"] = filled(step, msgspec.Raw(result), f"{NEXT}[0]")
    except msgspec.MsgspecError as error:
        raise MalformedPayload("X-FLOW-1", NEXT, str(error)) from None
    changes["enqueued_at"] = now
    if rest:
        changes[NEXT] = rest
    changes[BEFORE] = [*carrier.jw_before, [carrier.jid, carrier.wrapped or carrier.class_]]
    return NextJob(step.queue, edit(bytes(raw), changes, drop=(TAKES,)))


def filled(step: WaitingJob, result: msgspec.Raw, at: str) -> list[msgspec.Raw]:
    """Return the arguments of a job with the result of the one before. [X-FLOW-3]

    Args:
        step: The job.
        result: The result.
        at: Place of the job, for errors.

    Raises:
        MalformedPayload: It has no such argument.
        msgspec.MsgspecError: Its arguments are not a list.
    """
    args = _decode_args(step.args)
    for position in step.jw_takes:
        if not 0 <= position < len(args):
            raise MalformedPayload(
                "X-FLOW-2", at, f"{TAKES} names args[{position}], which is absent"
            )
        args[position] = result
    return args


def passed_on(to: str, value: object) -> Members:
    """Return a result that another job needs. [X-FLOW-6] [X-FLOW-12]

    Args:
        to: That job, for errors.
        value: The value that the job returned.

    Raises:
        ResultError: JSON has no type for it, or it is too large.
    """
    members = value_members(value)
    if not members.startswith(_VALUE):
        problem = msgspec.json.decode(b"{" + members + b"}")["problem"]
        raise ResultError(f"{to} cannot get the result: {problem}")
    return members


class Step(NamedTuple):
    """One job of a chain, as the payload of another one of that chain tells it.

    Attributes:
        state: `done`, `here` for the job of the payload, `later`.
        class_name: Its class; "" if the payload does not tell it.
        jid: Its id; "" if the payload does not tell it.
    """

    state: Literal["done", "here", "later"]
    class_name: str
    jid: str


def steps(fields: Mapping[str, Any]) -> list[Step]:
    """Return all jobs of the chain of a job, in order; none if it is not part of a chain.

    Args:
        fields: Of the payload of the job; parts of another form than X-FLOW-1 says are left out.
    """
    before = [
        Step("done", str(class_name), str(jid))
        for jid, class_name in filter(_is_pair, _listed(fields.get(BEFORE)))
    ]
    later = [
        Step("later", str(step.get("wrapped") or step.get("class", "")), str(step.get("jid", "")))
        for step in _listed(fields.get(NEXT))
        if isinstance(step, dict)
    ]
    if not before and not later:
        return []
    class_name = str(fields.get("wrapped") or fields.get("class", ""))
    return [*before, Step("here", class_name, str(fields.get("jid", ""))), *later]


def _is_pair(value: object) -> bool:
    return isinstance(value, list) and len(value) == 2


def _listed(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def states(outcomes: Sequence[ResultOutcome | None]) -> list[StepState]:
    """Return the state of each job of a chain, from the outcomes that results tell.

    A result may be forgotten, or not be there yet; a job of which a later one has a result is done.
    """
    known = [index for index, outcome in enumerate(outcomes) if outcome is not None]
    last = known[-1] if known else -1
    found: list[StepState] = ["done"] * max(last, 0)
    if last >= 0:
        found.append(outcomes[last] or "open")
    if len(found) < len(outcomes) and (not found or found[-1] == "done"):
        found.append("open")
    return found + ["later"] * (len(outcomes) - len(found))
