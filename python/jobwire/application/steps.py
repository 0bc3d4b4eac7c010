"""The steps of the running job, which are not repeated after a crash. [X-STEP-1]"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import ParamSpec, TypeVar, cast

from jobwire.application.clients import Clients
from jobwire.application.current import current_job
from jobwire.connection.cluster import keys_at
from jobwire.protocol import steps
from jobwire.protocol.payload import Job

__all__ = ["Steps"]

P = ParamSpec("P")
R = TypeVar("R")


class Steps(Clients):
    """The part of `App` that the code of a job calls."""

    def step(self, name: str, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call a function once for the running job, and return its value in all executions.

            @app.job
            def order(number: int) -> None:
                payment = app.step("charge", charge, number)
                app.step("mail", send_receipt, number, payment)

        The value is kept in Redis before this returns, for 30 days or until the job succeeds. So an
        execution after a crash or a failure goes on with the first step that is not kept; only a
        step that was cut off before that is called again. Outside a job, and where tests replace
        Redis, the function is just called. [X-STEP-1] [X-STEP-2]

        Args:
            name: Name of the step, used once in each execution, like `charge` or `mail-17`.
            function: The work; for an async one see `astep`. Its value must be one of JSON.

        Raises:
            InvalidArgument: The name was used before, or the value is none of JSON or has more than
                1 MiB.
            RedisTrouble: Redis did not answer; the step may have been called.
        """
        job = self._stepping()
        if job is None:
            return function(*args, **kwargs)
        client = self.client_of(self.served)
        keys, jid = keys_at(client.url, self.namespace), cast(str, job.jid)
        if job.steps is None:
            job.steps = client.redis.run(steps.load(keys, jid))
        if (kept := steps.take(job.steps, name)) is None:
            text = steps.encoded(name, function(*args, **kwargs))
            kept = client.redis.run(steps.commit(keys, jid, name, text))
            job.steps[name] = steps.USED
        return cast(R, steps.value_of(kept))

    async def astep(
        self, name: str, function: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Await a coroutine function once for the running job; see `step`."""
        job = self._stepping()
        if job is None:
            return await function(*args, **kwargs)
        client = self.aclient_of(self.served)
        keys, jid = keys_at(client.url, self.namespace), cast(str, job.jid)
        if job.steps is None:
            job.steps = await client.redis.run(steps.load(keys, jid))
        if (kept := steps.take(job.steps, name)) is None:
            text = steps.encoded(name, await function(*args, **kwargs))
            kept = await client.redis.run(steps.commit(keys, jid, name, text))
            job.steps[name] = steps.USED
        return cast(R, steps.value_of(kept))

    def _stepping(self) -> Job | None:
        """Return the running job if its steps are kept."""
        job = current_job()
        return None if job is None or job.jid is None or self.transport.overrides else job
