"""The operations of chains, groups and batches; `Client` and `Batch` run them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace as replace_call
from typing import Literal

from jobwire.application.call import Call
from jobwire.application.delivery import deliver
from jobwire.application.payload_maker import with_class
from jobwire.application.producer import Pace, Producer, dropped, run_at
from jobwire.errors import ConfigError, InvalidJob
from jobwire.protocol import batches, cancelling, chains, groups
from jobwire.protocol.batches import BATCH, CALLBACK
from jobwire.protocol.chains import StepState
from jobwire.protocol.iteration import Cancellation
from jobwire.protocol.normalize import DEFAULTS, ReadyPayload
from jobwire.protocol.pushing import push_members
from jobwire.protocol.results import keep_seconds
from jobwire.protocol.times import When
from jobwire.protocol.wire import Op, command

__all__ = [
    "add_to_batch",
    "batch_status",
    "cancel_chain",
    "chain_states",
    "end_batch",
    "open_batch",
    "push_chain",
]


def push_chain(
    producer: Producer, calls: Sequence[Call], at: When | None = None
) -> Op[dict[str, list[str]] | None]:
    """Push jobs that run one after the other; return their ids, with those of members.

    Nothing is written, and the result is None, if middleware stopped one of the jobs, or the
    first one is unique and dropped. [X-FLOW-1] [X-FLOW-2]

    Args:
        calls: The jobs, at least one.
        at: When the first job runs, as for `push_in`; None to run at once.
    """
    now = producer.now()
    moment = None if at is None else run_at(at, now=now, soon=True)
    jobs: list[ReadyPayload] = []
    ids: dict[str, list[str]] = {}
    for index, call in enumerate(calls):
        job = yield from producer.make(
            call, now=now, at=None if index else moment, index=index, alone=False
        )
        if job is None:
            return None
        if index and job.lock is not None and job.lock.at_push:
            problem = "only the first job of a chain can take its lock with the push"
            raise with_class(
                call.class_name, InvalidJob("X-FLOW-1", f"job {index}: unique", problem)
            )
        members = yield from _members(producer, call, now)
        if members is None:
            return None
        if call.members is not None:
            text = groups.grouped(
                job.text,
                [
                    chains.waiting(member.text, one.takes)
                    for member, one in zip(members, call.members, strict=True)
                ],
            )
            job = job.with_text(text)
        ids[job.jid] = [member.jid for member in members]
        jobs.append(job)
    first, options = calls[0], calls[0].options
    following = [
        chains.waiting(job.text, call.takes) for job, call in zip(jobs[1:], calls[1:], strict=True)
    ]
    text = chains.chained(jobs[0].text, following) if following else jobs[0].text
    whole = producer.payloads.complete(jobs[0].with_text(text), first.class_name, options)
    refused = yield from producer.writer.give([whole], first.on_commit)
    if refused:
        dropped(first.class_name, options, refused[whole.jid])
        return None
    return ids


def _members(producer: Producer, call: Call, now: float) -> Op[list[ReadyPayload] | None]:
    """Make the members of a group; return None if middleware stopped one. [X-FLOW-8]"""
    made: list[ReadyPayload] = []
    for index, member in enumerate(call.members or ()):
        keep = max(groups.KEEP_S, keep_seconds(member.options.get("keep_result")))
        wanted = replace_call(member, options={**member.options, "keep_result": keep})
        job = yield from producer.make(wanted, now=now, index=index, alone=False)
        if job is None:
            return None
        if job.lock is not None and job.lock.at_push:
            problem = (
                f"a job with the scope {job.lock.scope} cannot be in a group; use the scope "
                "while_running, or options(unique=None)"
            )
            raise with_class(member.class_name, InvalidJob("X-FLOW-8", "unique", problem))
        made.append(job)
    return made


def chain_states(
    producer: Producer, jids: Sequence[str], members: Mapping[str, Sequence[str]]
) -> Op[list[StepState]]:
    """Return the state of each job of a chain, from their results.

    Args:
        jids: The jobs.
        members: Id of each group among these, with the ids of its members.
    """
    inside = [jid for jids in members.values() for jid in jids]
    ends = dict(
        zip([*jids, *inside], (yield from producer.outcomes([*jids, *inside])), strict=True)
    )
    states = chains.states([ends[jid] for jid in jids])
    return [
        groups.state([ends[member] for member in members.get(jid, ())])
        if state == "open"
        else state
        for jid, state in zip(jids, states, strict=True)
    ]


def cancel_chain(
    producer: Producer, jids: Sequence[str], members: Mapping[str, Sequence[str]]
) -> Op[Cancellation]:
    """Cancel all jobs of a chain; return the place of the open one. [X-CANCEL-1] [X-FLOW-13]"""
    states = yield from chain_states(producer, jids, members)
    current = next((jid for jid, it in zip(jids, states, strict=True) if it != "done"), jids[-1])
    if producer.transport.overrides:
        return (yield from producer.cancel(current))
    now = producer.now()
    # All at once, so that the next one does not start if that one ends meanwhile. With one
    # time for both, because a job that the mark ended was running at that time.
    inside = [jid for jids in members.values() for jid in jids]
    yield cancelling.mark(producer.keys, [*jids, *inside], now=now)
    for jid in members:
        # After the mark: a group that has not started by then does not start any more.
        queue: bytes | None = yield command("HGET", producer.keys.batch(jid), "queue")
        if queue is not None:
            batch = batches.Membership(jid, queue.decode("utf-8", "replace"))
            yield from end_batch(producer, batch, "cancelled")
    return (yield from cancelling.cancel(producer.keys, current, now=now))


def open_batch(
    producer: Producer,
    batch_id: str,
    callbacks: Mapping[str, Call],
    description: str,
    parent: batches.Membership | None,
) -> Op[str]:
    """Make a batch; return the name of the queue of its callbacks. [X-BATCH-1] [X-BATCH-9]

    Raises:
        BatchEnded: The parent takes no batches any more.
        ConfigError: The callbacks are in several queues, or middleware stopped one.
    """
    now = producer.now()
    made: dict[str, ReadyPayload] = {}
    for name, call in callbacks.items():
        queue = call.options.get("queue", DEFAULTS["queue"])
        mark = batches.Membership(batch_id, queue, parent).field()
        fields = {**(call.fields or {}), CALLBACK: {**mark, "on": name}}
        job = yield from producer.make(replace_call(call, fields=fields), now=now)
        if job is None:
            raise ConfigError(f"{name}: middleware stopped {call.class_name}; let it pass")
        made[name] = job
    queues = sorted({job.queue for job in made.values()}) or [DEFAULTS["queue"]]
    if len(queues) > 1:
        raise ConfigError(
            f"callbacks: the queues {', '.join(queues)} are not one; give the callbacks of a "
            "batch one queue, by job.options(queue=...)"
        )
    member = batches.Membership(batch_id, queues[0], parent)
    if producer.transport.overrides:
        state = producer.transport.overrides[-1].batches.make(member, made, description).encode()
    else:
        state = yield batches.script_open(
            producer.keys, member, made, description=description, now=now
        )
    batches.check_added(parent.batch if parent is not None else batch_id, state)
    return queues[0]


def add_to_batch(
    producer: Producer, member: batches.Membership, calls: Iterable[Call]
) -> Op[list[str]]:
    """Push jobs as members of a batch, in slices; return their ids. [X-BATCH-2] [X-BATCH-3]

    A job that middleware stopped is left out. All jobs are checked before the first is written.

    Raises:
        BatchEnded: The batch takes no members any more.
        InvalidJob: A job must not be written, or takes a lock when it is pushed.
        RedisTrouble: See `push_bulk`.
    """
    now = producer.now()
    pace = Pace(producer._clock)
    made: list[ReadyPayload] = []
    mark = member.field()
    for index, call in enumerate(calls):
        if pace.is_over():
            yield from pace.pause()
        fields = {**(call.fields or {}), BATCH: mark}
        job = yield from producer.make(replace_call(call, fields=fields), now=now, index=index)
        if job is None:
            continue
        if job.lock is not None and job.lock.at_push:
            problem = (
                f"a job with the scope {job.lock.scope} cannot be in a batch; use the scope "
                "while_running, or options(unique=None)"
            )
            raise with_class(call.class_name, InvalidJob("X-BATCH-2", "unique", problem))
        made.append(job)
    if producer.transport.overrides:
        state = producer.transport.overrides[-1].batches.add(member, made)
        batches.check_added(member.batch, state.encode())
        yield from deliver(producer.transport, made)
    else:
        yield from push_members(producer.keys, member, made, producer.writer.confirm)
    return [job.jid for job in made]


def end_batch(
    producer: Producer, member: batches.Membership, how: Literal["closed", "cancelled"]
) -> Op[bool]:
    """Close or cancel a batch; return False if it does not exist. [X-BATCH-4] [X-BATCH-7]"""
    if producer.transport.overrides:
        due = producer.transport.overrides[-1].batches.end(member, how)
        yield from deliver(producer.transport, due or [])
        return due is not None
    generation = yield from producer.generation()
    at = batches.time_text(producer.now(), generation)
    return bool((yield batches.script_end(producer.keys, member, how, at=at)))


def batch_status(producer: Producer, batch_id: str) -> Op[batches.BatchStatus | None]:
    """Return a batch as it is now; None if there is none."""
    if producer.transport.overrides:
        return producer.transport.overrides[-1].batches.status(batch_id)
    return (yield from batches.read_status(producer.keys, batch_id))
