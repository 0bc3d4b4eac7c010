"""The steps of the running job, and its output, which others read meanwhile.

[X-STEP-1] [X-STEP-7]
"""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import ParamSpec, TypeVar, cast

from jobwire.application.clients import Clients
from jobwire.application.current import current_job
from jobwire.connection.cluster import keys_at
from jobwire.protocol import output, steps
from jobwire.protocol.output import KEEP_S, OutputItem
from jobwire.protocol.payload import Job
from jobwire.protocol.wire import Op, once

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

    def emit(self, *items: object, keep: float = KEEP_S) -> None:
        """Append items to the output of the running job, for those who watch it.

            @app.job
            def answer(question: str) -> None:
                for token in model.stream(question):
                    app.emit(token)

        They are in Redis before this returns: one round trip for all items of a call. `output` and
        the page of the job show them while the job runs. Redis keeps the last 10,000 of a job.
        Outside a job this only checks them. [X-STEP-7] [X-STEP-8] [X-STEP-9]

        Args:
            *items: Values of JSON, each of at most 16 KiB.
            keep: Seconds, up to 30 days, for which the output is kept after this.

        Raises:
            InvalidArgument: An item is none of JSON or is too large, or `keep` is out of range.
            RedisTrouble: Redis did not answer; the items may have been written.
        """
        if (op := self._emission(items, keep)) is not None:
            self.client_of(self.served).redis.run(op)

    async def aemit(self, *items: object, keep: float = KEEP_S) -> None:
        """Append items to the output of the running job; see `emit`."""
        if (op := self._emission(items, keep)) is not None:
            await self.aclient_of(self.served).redis.run(op)

    def output(
        self, jid: str, *, after: str = "", timeout: float | None = None
    ) -> Iterator[OutputItem]:
        """Go through the items that a job emits, until it is over; see `Client.output`.

            for item in app.output(jid):
                print(item.value, end="", flush=True)

        For a job in another Redis of the application: `with app.via("name")`.
        """
        return self.client.output(jid, after=after, timeout=timeout)

    def aoutput(
        self, jid: str, *, after: str = "", timeout: float | None = None
    ) -> AsyncIterator[OutputItem]:
        """Go through the items that a job emits with `async for`; see `output`."""
        return self.aclient.output(jid, after=after, timeout=timeout)

    def _emission(self, items: tuple[object, ...], keep: float) -> Op[object] | None:
        """Return the operation that appends items; None if there is nothing to send."""
        texts, seconds = output.encoded(items), output.keep_seconds(keep)
        job = current_job()
        if job is None or job.jid is None or not texts:
            return None
        if self.transport.overrides:
            self.transport.overrides[-1].emit(job.jid, texts)
            return None
        job.run = job.run or os.urandom(4).hex()
        keys = keys_at(self.client_of(self.served).url, self.namespace)
        step = output.script_emit(keys, job.jid, job.run, texts, keep=seconds, now=time.time())
        return once(step)
