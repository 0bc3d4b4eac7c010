"""A job with its arguments, as a value: to push later, or together with others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from jobwire.application.call import Call
from jobwire.protocol.times import When

if TYPE_CHECKING:
    from jobwire.application.aio import AsyncClient
    from jobwire.application.client import Client
    from jobwire.application.clients import Clients

__all__ = ["Signature"]

R = TypeVar("R")


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class Signature(Call, Generic[R]):
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
        return f"{self.name}.s({', '.join(map(repr, self.args))})"

    def enqueue(self) -> str | None:
        """Push the job to run now; see `JobType.enqueue`."""
        return self._client.push(self.class_name, self.args, **self._how)

    def enqueue_in(self, delay: When) -> str | None:
        """Push the job to run after a delay; see `JobType.enqueue_in`. [SCHED-2] [SCHED-3]"""
        return self._client.push_in(delay, self.class_name, self.args, **self._how)

    def enqueue_at(self, when: When) -> str | None:
        """Push the job to run at a time; see `JobType.enqueue_at`. [SCHED-2] [SCHED-3]"""
        return self.enqueue_in(when)

    async def aenqueue(self) -> str | None:
        """Push the job to run now; see `JobType.enqueue`."""
        return await self._aclient.push(self.class_name, self.args, **self._how)

    async def aenqueue_in(self, delay: When) -> str | None:
        """Push the job to run after a delay; see `enqueue_in`."""
        return await self._aclient.push_in(delay, self.class_name, self.args, **self._how)

    async def aenqueue_at(self, when: When) -> str | None:
        """Push the job to run at a time; see `enqueue_at`."""
        return await self.aenqueue_in(when)

    @property
    def _client(self) -> Client:
        return self.app.client_of(self.app.choose(self.redis))

    @property
    def _aclient(self) -> AsyncClient:
        return self.app.aclient_of(self.app.choose(self.redis))

    @property
    def _how(self) -> dict[str, Any]:
        return {**self.options, "fields": self.fields, "on_commit": self.on_commit}
