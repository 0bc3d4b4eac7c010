"""Groups of jobs that run side by side; the job after them in a chain gets all their results."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic

from jobwire.application.signature import R_co, Signature
from jobwire.errors import InvalidJob
from jobwire.protocol.chains import StepState
from jobwire.protocol.groups import GROUP_CLASS, MAX_MEMBERS
from jobwire.protocol.iteration import Cancellation
from jobwire.protocol.normalize import DEFAULTS
from jobwire.protocol.results import Result
from jobwire.protocol.times import When

if TYPE_CHECKING:
    from jobwire.application.clients import Clients

__all__ = ["Group", "GroupRun", "group"]

KEEP_S = 86_400.0  # for which the list of results is kept


def group(
    *jobs: Signature[R_co] | Iterable[Signature[R_co]], keep_result: float = KEEP_S
) -> Group[R_co]:
    """Return jobs that run side by side: `group(resize.s(1), resize.s(2))`.

        chain(group(count.s(page) for page in pages), total.s(previous)).enqueue()

    Args:
        *jobs: Jobs with their arguments, or one iterable of these.
        keep_result: Seconds to keep the list of results.

    Raises:
        TypeError: One of the jobs is something else, such as a chain.
        InvalidJob: The jobs cannot be a group. [X-FLOW-8]
    """
    members = tuple(_listed(jobs))
    for index, job in enumerate(members):
        if not isinstance(job, Signature):
            raise TypeError(
                f"group: job {index}: {job!r} is not a job with its arguments; write job.s(...). "
                "A chain or a group cannot be inside a group; let a job of it enqueue one"
            )
    return make_group(members, keep_result, members[0] if members else None)


def _listed(jobs: Sequence[Any]) -> Iterable[Any]:
    one = len(jobs) == 1 and not isinstance(jobs[0], Signature) and isinstance(jobs[0], Iterable)
    return jobs[0] if one else jobs


def make_group(
    jobs: tuple[Signature[R_co], ...], keep_result: float, like: Signature[R_co] | None
) -> Group[R_co]:
    """Return a group; `like` tells the application, the Redis and the queue of its end.

    Raises:
        InvalidJob: There are too many jobs, or they are for several places. [X-FLOW-8]
    """
    if len(jobs) > MAX_MEMBERS:
        raise InvalidJob(
            "X-FLOW-8",
            "group",
            f"has {len(jobs):,} jobs, and the limit is {MAX_MEMBERS:,}, because they are pushed in "
            "one step; use app.batch, or give each job a part of the values",
        )
    for index, job in enumerate(jobs):
        if like is not None and (job.app is not like.app or job.redis != like.redis):
            raise InvalidJob(
                "X-FLOW-8",
                f"job {index}",
                f"{job} is for another application or Redis than {like}; a group has one",
            )
    return Group(jobs, keep_result, like)


@dataclass(frozen=True, slots=True)
class Group(Generic[R_co]):
    """Jobs that run side by side. Made by `group` or `job.map`, to be pushed any number of times.

    Attributes:
        jobs: The jobs.
        keep_result: Seconds to keep the list of results.
        like: A job of the application; None for a group without jobs.
    """

    jobs: tuple[Signature[R_co], ...]
    keep_result: float
    like: Signature[R_co] | None

    def __repr__(self) -> str:
        return f"group({', '.join(map(repr, self.jobs))})"

    def step(self, like: Signature[Any] | None = None) -> Signature[list[R_co]]:
        """Return the group as a job; `like` tells the application of one without jobs.

        Raises:
            InvalidJob: Nothing tells the application. [X-FLOW-8]
        """
        like = self.like or like
        if like is None:
            raise InvalidJob(
                "X-FLOW-8", "group", "has no job, so it has no application; write job.map([])"
            )
        takes = any(job.takes for job in self.jobs)
        queue = like.options.get("queue", DEFAULTS["queue"])
        return Signature(
            *(GROUP_CLASS, [None] if takes else []),
            {"queue": queue, "keep_result": self.keep_result},
            takes=(0,) if takes else (),
            members=self.jobs,
            app=like.app,
            name="group",
            redis=like.redis,
        )

    def enqueue(self) -> GroupRun | None:
        """Push the jobs, to run now; return None if middleware stopped one.

        Raises:
            InvalidJob, RedisTrouble: See `Client.push_chain`; nothing was written.
        """
        step = self._alone()
        return self._run(step.client.push_chain([step]))

    def enqueue_in(self, delay: When) -> GroupRun | None:
        """Push the jobs, to run after a delay: seconds or a timedelta. [SCHED-2] [SCHED-3]"""
        step = self._alone()
        return self._run(step.client.push_chain([step], at=delay))

    def enqueue_at(self, when: When) -> GroupRun | None:
        """Push the jobs, to run at a time: an aware datetime or epoch seconds. [SCHED-2]"""
        return self.enqueue_in(when)

    async def aenqueue(self) -> GroupRun | None:
        """Push the jobs, to run now; see `enqueue`."""
        step = self._alone()
        return self._run(await step.aclient.push_chain([step]))

    async def aenqueue_in(self, delay: When) -> GroupRun | None:
        """Push the jobs, to run after a delay; see `enqueue_in`."""
        step = self._alone()
        return self._run(await step.aclient.push_chain([step], at=delay))

    async def aenqueue_at(self, when: When) -> GroupRun | None:
        """Push the jobs, to run at a time; see `enqueue_at`."""
        return await self.aenqueue_in(when)

    def _alone(self) -> Signature[list[R_co]]:
        step = self.step()
        step.check_alone()
        return step

    def _run(self, ids: dict[str, list[str]] | None) -> GroupRun | None:
        if ids is None:
            return None
        step = self.step()
        ((jid, jids),) = ids.items()
        return GroupRun(step.app, jid, tuple(jids), step.app.choose(step.redis))


@dataclass(frozen=True, slots=True)
class GroupRun:
    """A group that was pushed. Another process makes one from ids: `GroupRun(app, jid, jids)`.

    Attributes:
        app: The application.
        jid: The id of the group.
        jids: The ids of its jobs, in order.
        redis: Name of their Redis; "": the default of the application.
    """

    app: Clients
    jid: str
    jids: Sequence[str]
    redis: str = ""

    def __iter__(self) -> Iterator[str]:
        return iter(self.jids)

    def states(self) -> list[StepState]:
        """Return the state of each job, in one round trip; see `ChainRun.states`."""
        return self.app.client_of(self.redis).group_states(self.jids)

    async def astates(self) -> list[StepState]:
        """Return the state of each job; see `states`."""
        return await self.app.aclient_of(self.redis).group_states(self.jids)

    def result(self, *, timeout: float | None = 0.0) -> Result | None:
        """Return the results of all jobs as the value of one; see `Client.result`.

        There is none while a job has not succeeded: `states` tells which.
        """
        return self.app.client_of(self.redis).result(self.jid, timeout=timeout)

    async def aresult(self, *, timeout: float | None = 0.0) -> Result | None:
        """Return the results of all jobs as the value of one; see `result`."""
        return await self.app.aclient_of(self.redis).result(self.jid, timeout=timeout)

    def cancel(self) -> Cancellation:
        """Cancel all jobs that have not ended; see `ChainRun.cancel`."""
        return self.app.client_of(self.redis).cancel_chain([self.jid], {self.jid: self.jids})

    async def acancel(self) -> Cancellation:
        """Cancel all jobs that have not ended; see `cancel`."""
        client = self.app.aclient_of(self.redis)
        return await client.cancel_chain([self.jid], {self.jid: self.jids})
