"""A job with its arguments, as a value: to push later, or together with others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from jobwire.application.call import Call
from jobwire.errors import InvalidJob
from jobwire.protocol.times import When

if TYPE_CHECKING:
    from jobwire.application.aio import AsyncClient
    from jobwire.application.client import Client
    from jobwire.application.clients import Clients

__all__ = ["PREVIOUS", "Previous", "Signature"]

R_co = TypeVar("R_co", covariant=True)


class Previous:
    """Stands for the result of the job before, in the arguments of `job.s(...)`."""

    def __repr__(self) -> str:
        return "previous"

    def __reduce__(self) -> str:  # so that its copies are itself
        return "PREVIOUS"


PREVIOUS = Previous()


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class Signature(Call, Generic[R_co]):
    """A job with its arguments. Made by `job.s(...)`, which has checked and copied them.

    It is immutable, and may be pushed any number of times; each push is a job of its own.

    Attributes:
        app: The part of its application that enqueues jobs.
        name: Name of the job, for messages.
        redis: Name of the Redis of the job; "": the default of the application.
    """

    app: Clients
    name: str
    redis: str = ""

    def __repr__(self) -> str:
        if self.members is not None:
            return f"group({', '.join(map(repr, self.members))})"
        args = [PREVIOUS if at in self.takes else value for at, value in enumerate(self.args)]
        return f"{self.name}.s({', '.join(map(repr, args))})"

    def enqueue(self) -> str | None:
        """Push the job to run now; see `JobType.enqueue`.

        Raises:
            InvalidJob: An argument is `previous`, and so on as for `JobType.enqueue`.
        """
        return self.client.push(self.class_name, self.args, **self._how)

    def enqueue_in(self, delay: When) -> str | None:
        """Push the job to run after a delay; see `JobType.enqueue_in`. [SCHED-2] [SCHED-3]"""
        return self.client.push_in(delay, self.class_name, self.args, **self._how)

    def enqueue_at(self, when: When) -> str | None:
        """Push the job to run at a time; see `JobType.enqueue_at`. [SCHED-2] [SCHED-3]"""
        return self.enqueue_in(when)

    async def aenqueue(self) -> str | None:
        """Push the job to run now; see `JobType.enqueue`."""
        return await self.aclient.push(self.class_name, self.args, **self._how)

    async def aenqueue_in(self, delay: When) -> str | None:
        """Push the job to run after a delay; see `enqueue_in`."""
        return await self.aclient.push_in(delay, self.class_name, self.args, **self._how)

    async def aenqueue_at(self, when: When) -> str | None:
        """Push the job to run at a time; see `enqueue_at`."""
        return await self.aenqueue_in(when)

    @property
    def client(self) -> Client:
        """The client that pushes the job."""
        return self.app.client_of(self.app.choose(self.redis))

    @property
    def aclient(self) -> AsyncClient:
        """The client that pushes the job from the running event loop."""
        return self.app.aclient_of(self.app.choose(self.redis))

    @property
    def _how(self) -> dict[str, Any]:
        self.check_alone()
        return {**self.options, "fields": self.fields, "on_commit": self.on_commit}

    def check_alone(self) -> None:
        """Refuse a job that needs the result of another, which it has only inside a chain.

        Raises:
            InvalidJob: An argument is `previous`. [X-FLOW-2]
        """
        if self.takes:
            problem = "is the result of the job before, and there is none; see chain()"
            error = InvalidJob("X-FLOW-2", f"args[{self.takes[0]}]", f"previous {problem}")
            error.job_class = self.name
            raise error
