"""Chains of jobs: each one runs when the one before has succeeded, and may get its result."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from jobwire.application.group import Group, GroupRun
from jobwire.application.signature import PREVIOUS, Signature
from jobwire.errors import InvalidJob
from jobwire.protocol.chains import MAX_STEPS, StepState
from jobwire.protocol.iteration import Cancellation
from jobwire.protocol.results import Result
from jobwire.protocol.times import When

if TYPE_CHECKING:
    from jobwire.application.clients import Clients

__all__ = ["Chain", "ChainRun", "chain", "previous"]

KEEP_S = 86_400.0  # for which a chain knows how its jobs have ended

previous: Any = PREVIOUS
"""In the arguments of `job.s(...)`: the result of the job before in the chain. [X-FLOW-2]"""


def chain(*steps: Signature[Any] | Chain | Group[Any], keep_result: float = KEEP_S) -> Chain:
    """Return jobs that run one after the other, each when the one before has succeeded.

        chain(fetch.s(url), resize.s(previous, width=320), publish.s()).enqueue()

    Args:
        *steps: Jobs with their arguments. A chain among them stands for its jobs. A group is one
            step, whose result is the list of the results of its jobs.
        keep_result: Seconds to keep what each job returned or how it failed, unless its own options
            say that; `ChainRun` needs it.

    Raises:
        TypeError: One of the steps is something else.
        InvalidJob: The jobs cannot be a chain. [X-FLOW-1] [X-FLOW-2]
    """
    like = next((step.like for step in steps if isinstance(step, Group) and step.like), None)
    like = next((step for step in steps if isinstance(step, Signature)), like)
    jobs = [job for index, step in enumerate(steps) for job in _jobs(index, step, like)]
    if not jobs:
        raise InvalidJob("X-FLOW-1", "chain", "has no job; give job.s(...) for each")
    if len(jobs) > MAX_STEPS:
        raise InvalidJob(
            "X-FLOW-1",
            "chain",
            f"has {len(jobs):,} jobs, and the limit is {MAX_STEPS:,}, because each one carries all "
            "that follow; let the last one enqueue another chain",
        )
    jobs[0].check_alone()
    for index, job in enumerate(jobs):
        if job.app is not jobs[0].app or job.redis != jobs[0].redis:
            raise InvalidJob(
                "X-FLOW-1",
                f"job {index}",
                f"{job} is for another application or Redis than {jobs[0]}; a chain has one",
            )
    return Chain(
        tuple(replace(job, options={"keep_result": keep_result, **job.options}) for job in jobs)
    )


def _jobs(index: int, step: object, like: Signature[Any] | None) -> Sequence[Signature[Any]]:
    if isinstance(step, Chain):
        return step.steps
    if isinstance(step, Group):
        return [step.step(like)]
    if not isinstance(step, Signature):
        raise TypeError(
            f"chain: job {index}: {step!r} is not a job with its arguments; write job.s(...)"
        )
    return [step]


@dataclass(frozen=True, slots=True)
class Chain:
    """Jobs that run one after the other. Made by `chain`. It may be pushed any number of times.

    Attributes:
        steps: The jobs.
    """

    steps: tuple[Signature[Any], ...]

    def __repr__(self) -> str:
        return f"chain({', '.join(map(repr, self.steps))})"

    def enqueue(self) -> ChainRun | None:
        """Push the chain, to begin now; return None if middleware stopped one of its jobs.

        Raises:
            InvalidJob, DuplicateJob, RedisTrouble: See `Client.push_chain`; nothing was written.
        """
        return self._run(self._first.client.push_chain(self.steps))

    def enqueue_in(self, delay: When) -> ChainRun | None:
        """Push the chain, to begin after a delay: seconds or a timedelta. [SCHED-2] [SCHED-3]"""
        return self._run(self._first.client.push_chain(self.steps, at=delay))

    def enqueue_at(self, when: When) -> ChainRun | None:
        """Push the chain, to begin at a time: an aware datetime or epoch seconds. [SCHED-2]"""
        return self.enqueue_in(when)

    async def aenqueue(self) -> ChainRun | None:
        """Push the chain, to begin now; see `enqueue`."""
        return self._run(await self._first.aclient.push_chain(self.steps))

    async def aenqueue_in(self, delay: When) -> ChainRun | None:
        """Push the chain, to begin after a delay; see `enqueue_in`."""
        return self._run(await self._first.aclient.push_chain(self.steps, at=delay))

    async def aenqueue_at(self, when: When) -> ChainRun | None:
        """Push the chain, to begin at a time; see `enqueue_at`."""
        return await self.aenqueue_in(when)

    @property
    def _first(self) -> Signature[Any]:
        return self.steps[0]

    def _run(self, ids: Mapping[str, Sequence[str]] | None) -> ChainRun | None:
        if ids is None:
            return None
        first = self._first
        groups = {
            jid: tuple(members)
            for (jid, members), step in zip(ids.items(), self.steps, strict=True)
            if step.members is not None
        }
        return ChainRun(first.app, tuple(ids), first.app.choose(first.redis), groups)


@dataclass(frozen=True, slots=True)
class ChainRun:
    """A chain that was pushed. Another process makes one from the ids: `ChainRun(app, jids)`.

    Attributes:
        app: The application.
        jids: The ids of the jobs, in order.
        redis: Name of their Redis; "": the default of the application.
        members: The id of each group among the jobs, with the ids of its jobs.
    """

    app: Clients
    jids: Sequence[str]
    redis: str = ""
    members: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def __iter__(self) -> Iterator[str]:
        return iter(self.jids)

    def states(self) -> list[StepState]:
        """Return the state of each job, in one round trip.

        `done`, `retry`, `dead`, `discarded`, `cancelled` and `expired` are outcomes, as in
        `Result.outcome`. `open`: the job waits in a queue or runs; or its outcome is not kept any
        more, because `keep_result` seconds have passed. `later`: it waits for the jobs before it.
        A group is `open`, or has the state of a job of it that holds it up; see `group`.
        """
        return self.app.client_of(self.redis).chain_states(self.jids, self.members)

    async def astates(self) -> list[StepState]:
        """Return the state of each job; see `states`."""
        return await self.app.aclient_of(self.redis).chain_states(self.jids, self.members)

    def group(self, index: int) -> GroupRun:
        """Return the group that is the job at `index`, to ask for the states of its jobs.

        Raises:
            KeyError: This job is not a group.
        """
        jid = self.jids[index]
        return GroupRun(self.app, jid, self.members[jid], self.redis)

    def result(self, *, timeout: float | None = 0.0) -> Result | None:
        """Return what became of the last job; see `Client.result`.

        It has no result while a job before it has not succeeded: `states` tells which.
        """
        return self.app.client_of(self.redis).result(self.jids[-1], timeout=timeout)

    async def aresult(self, *, timeout: float | None = 0.0) -> Result | None:
        """Return what became of the last job; see `result`."""
        return await self.app.aclient_of(self.redis).result(self.jids[-1], timeout=timeout)

    def cancel(self) -> Cancellation:
        """Cancel all jobs that have not ended; return the place of the open one.

        See `Client.cancel`. A dead job of the chain stays dead, and is refused if it is retried
        within a day.
        """
        return self.app.client_of(self.redis).cancel_chain(self.jids, self.members)

    async def acancel(self) -> Cancellation:
        """Cancel all jobs that have not ended; see `cancel`."""
        return await self.app.aclient_of(self.redis).cancel_chain(self.jids, self.members)
