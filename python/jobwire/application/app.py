"""The application object: defines jobs, enqueues them, and is what a worker runs."""

from __future__ import annotations

from collections.abc import AsyncIterable, Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar
from functools import partial
from typing import Any, Concatenate, ParamSpec, TypeAlias, TypeVar, Unpack, overload

from jobwire.application.clients import Clients
from jobwire.application.config import LONGEST_S
from jobwire.application.iterabletype import IterableOptions, define_iterable
from jobwire.application.jobtype import JobType, place
from jobwire.application.lifecycle import Callback, Event, Events
from jobwire.application.middleware import MiddlewareChain
from jobwire.application.producer import GenerationSetting
from jobwire.application.propagation import Propagation
from jobwire.errors import ConfigError, PayloadError
from jobwire.protocol.arguments import StrictArgs
from jobwire.protocol.iteration import Cursor
from jobwire.protocol.normalize import (
    AsyncClientMiddleware,
    ClientMiddleware,
    Options,
    check_options,
)
from jobwire.protocol.payload import Job

__all__ = [
    "App",
    "Around",
    "DeathHandler",
    "ErrorHandler",
    "ServerMiddleware",
]

P = ParamSpec("P")
R = TypeVar("R")

ServerMiddleware: TypeAlias = Callable[[Job, Callable[[], Any]], Any]
"""`(job, call_next) -> result`: wraps each execution; not calling `call_next` skips it. [EXEC-6]

An `async def` one awaits `call_next()`.
"""

Around: TypeAlias = Callable[[Job], AbstractContextManager[Any]]
"""`(job) -> context manager`, entered around each execution, in the job's own thread or task."""

DeathHandler: TypeAlias = Callable[[Job, BaseException], object]
"""`(job, error)`: the job will not be tried again. [RETRY-13]"""

ErrorHandler: TypeAlias = Callable[[BaseException, Job], object]
"""`(error, job)`: an execution failed, whatever becomes of the job."""

_Items: TypeAlias = Iterable[Any] | AsyncIterable[Any]
H = TypeVar("H", bound=Callable[..., Any])


class App(Clients):
    """Jobs by wire class, and the clients that enqueue them.

        app = App()

        @app.job(name="HardJob", queue="critical")
        def hard(count: int, label: str) -> None: ...

        hard.enqueue(3, "x")

    Nothing is connected before the first job is enqueued.

    Args:
        url: Where Redis is; see `Client`.
        namespace: Prefix of every key; leave empty beside Sidekiq. [KEY-4]
        generation: 7 or 8 to write times as that Sidekiq does; `auto` asks Redis. [GEN-5]
        strict_args: `raise` refuses arguments that JSON does not have; `warn` converts them and
            logs which, `off` just converts them.
        client_middleware: Runs around each push, outermost first. [PUSH-7]
        server_middleware: Runs around each execution, outermost first. [EXEC-6]
        wait_replicas: How many replicas have to have a job that is enqueued; see `Client`.

    Attributes:
        jobs: Wire class to definition.
        client_middleware: The chain, to add to and remove from.
        server_middleware: The chain, to add to and remove from.
        around: Context managers for each execution, outermost first; inside of the middleware.
        death_handlers: Called for each job that will not be tried again.
        error_handlers: Called for each execution that fails.
        events: What is called when a worker starts, beats or stops; see `on`.
        transport: Where its clients deliver; `jobwire.testing` puts itself there.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        namespace: str = "",
        generation: GenerationSetting = "auto",
        strict_args: StrictArgs = "raise",
        client_middleware: Iterable[ClientMiddleware | AsyncClientMiddleware | type] = (),
        server_middleware: Iterable[ServerMiddleware | type] = (),
        wait_replicas: int = 0,
    ) -> None:
        self.client_middleware: MiddlewareChain[ClientMiddleware | AsyncClientMiddleware] = (
            MiddlewareChain(client_middleware)
        )
        super().__init__(
            url,
            namespace=namespace,
            generation=generation,
            strict_args=strict_args,
            middleware=self.client_middleware,
            wait_replicas=wait_replicas,
        )
        self.server_middleware: MiddlewareChain[ServerMiddleware] = MiddlewareChain(
            server_middleware
        )
        self.around: list[Around] = []
        self.death_handlers: list[DeathHandler] = []
        self.error_handlers: list[ErrorHandler] = []
        self.events = Events()
        self.jobs: dict[str, JobType[..., Any]] = {}

    @overload
    def job(self, function: Callable[P, R], /) -> JobType[P, R]: ...

    @overload
    def job(
        self,
        *,
        name: str | None = None,
        timeout: float | None = None,
        isolated: bool = False,
        **options: Unpack[Options],
    ) -> Callable[[Callable[P, R]], JobType[P, R]]: ...

    def job(
        self,
        function: Callable[P, R] | None = None,
        *,
        name: str | None = None,
        timeout: float | None = None,
        isolated: bool = False,
        **options: Any,
    ) -> JobType[P, R] | Callable[[Callable[P, R]], JobType[P, R]]:
        """Define a job from a function, sync or `async def`.

        Args:
            function: What runs it. Its parameters must be positional: the wire has a list.
            name: Wire class. Give the Ruby name to share jobs with Ruby (`HardJob`,
                `Reports::Monthly`). By default the function's own name, without its module:
                payloads live for weeks and must survive moving code.
            timeout: Seconds after which an execution fails with `JobTimeout`. Async and isolated
                jobs end there and then; a thread only where it runs Python code, so a job that
                may block in C code for long should be isolated.
            isolated: Run it in a process of its own, which may crash or be killed.
            **options: Of every job of this kind; see `Options`.

        Raises:
            ConfigError: The name is taken, the function cannot be a job, an option is wrong.
        """

        if timeout is not None and not 0 < timeout < LONGEST_S:
            raise ConfigError(f"job {name!r}: timeout {timeout!r} is not above 0 seconds")

        def define(function: Callable[P, R]) -> JobType[P, R]:
            made = partial(JobType[P, R], timeout=timeout, isolated=isolated)
            return self._define(made, function, name, options)

        return define if function is None else define(function)

    def on(self, event: Event) -> Callable[[Callback], Callback]:
        """Have a function called, without arguments, at a moment of a worker's life. A decorator.

            @app.on("startup")
            def open_pool() -> None: ...

        `startup`: before the first job; an error ends the worker. `quiet`: no more jobs are
        started. `shutdown`: the worker stops, jobs may still run. `exit`: the last thing before
        the process ends. `heartbeat`: it has registered in Redis, or again after an outage.
        `beat`: every ten seconds. Later ones are logged if they raise, and `quiet`, `shutdown`
        and `exit` are called in reverse order.
        """
        return self.events.adder(event)

    def on_death(self, handler: H) -> H:
        """Have `handler(job, error)` called for each job that ends for good. A decorator.

        Called once its place in the dead set is stored, or when it is dropped; the job has
        `discarded_at` then. [RETRY-13]
        """
        self.death_handlers.append(handler)
        return handler

    def on_error(self, handler: H) -> H:
        """Have `handler(error, job)` called for each execution that fails. A decorator.

        Not for a `TryAgain` of a job that is tried again.
        """
        self.error_handlers.append(handler)
        return handler

    def wrap(self, around: H) -> H:
        """Enter the context manager `around(job)` around each execution. A decorator.

        For what frameworks need: fresh database connections, reloaded code, a request context.
        Works for sync and async jobs alike.
        """
        self.around.append(around)
        return around

    def propagate(self, field: str = "jw_context", /, **variables: ContextVar[Any]) -> None:
        """Carry context variables from where a job is enqueued to where it runs.

            app.propagate(tenant=current_tenant, locale=current_locale)

        Their values stand in the payload under the given names, so they must be JSON. A
        variable without a value is left alone.

        Args:
            field: The payload field. What Ruby writes to `cattr` is never touched.
            **variables: Name in the payload to variable.
        """
        propagation = Propagation(field, variables)
        self.client_middleware.prepend(propagation.attach)
        self.around.insert(0, propagation.restore)

    def iterable(
        self, *, name: str | None = None, **options: Unpack[IterableOptions]
    ) -> Callable[[Callable[Concatenate[Cursor, P], _Items]], JobType[P, None]]:
        """Define a job from a generator function that yields where it could begin again.

            @app.iterable(name="TouchAll")
            def touch_all(cursor: Cursor, shop: int) -> Iterator[object]:
                for row, at in over_rows(cursor, ...):
                    yield at
                    touch(row)

        Its first parameter is the cursor, the others are those of the job. A stop of the worker
        interrupts it at a `yield`, and another worker goes on from there. [ITER-3] [ITER-5]

        Args:
            name: Wire class, as of `job`.
            **options: Of every job of this kind; see `IterableOptions`.

        Raises:
            ConfigError: As `job`; also if the function never yields or has no cursor.
        """

        def define(
            function: Callable[Concatenate[Cursor, P], _Items],
        ) -> JobType[P, None]:
            spec, rest = define_iterable(function, options)
            made = partial(JobType[P, None], iterable=spec)
            return self._define(made, spec.here(), name, rest)

        return define

    def _define(
        self,
        make: Callable[..., JobType[P, R]],
        function: Callable[P, R],
        name: str | None,
        options: Mapping[str, Any],
    ) -> JobType[P, R]:
        wire_name = name if name is not None else function.__name__
        if not wire_name or wire_name != wire_name.strip():
            raise ConfigError(f"job name {wire_name!r} is no class name; write 'HardJob'")
        if wire_name in self.jobs:
            other = self.jobs[wire_name].function
            raise ConfigError(
                f"job {wire_name!r} is defined twice, by {place(other)} and "
                f"{place(function)}; give one of them name='...'"
            )
        try:
            check_options(options)
        except PayloadError as error:
            raise ConfigError(f"job {wire_name!r}: {error}") from None
        defined = self.jobs[wire_name] = make(self, wire_name, function, options)
        return defined
