"""The application object: defines jobs, enqueues them, and is what a worker runs."""

from __future__ import annotations

import asyncio
import inspect
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Generic, ParamSpec, TypeVar, Unpack, overload

from jobwire.aio import AsyncClient
from jobwire.arguments import StrictArgs
from jobwire.client import Client
from jobwire.errors import ConfigError, PayloadError
from jobwire.normalize import ClientMiddleware, Options, check_options
from jobwire.payload import Job
from jobwire.producer import GenerationSetting
from jobwire.times import When

__all__ = ["App", "JobType", "ServerMiddleware", "current_job", "running"]

P = ParamSpec("P")
R = TypeVar("R")

ServerMiddleware = Callable[[Job, Callable[[], Any]], Any]
"""`(job, call_next) -> result`: wraps each execution; not calling `call_next` skips it. [EXEC-6]"""

_current: ContextVar[Job | None] = ContextVar("jobwire_current_job", default=None)


def current_job() -> Job | None:
    """Return the job that runs in this thread or task; None outside of a worker."""
    return _current.get()


@contextmanager
def running(job: Job) -> Iterator[None]:
    """Make `job` the current one of this thread."""
    token = _current.set(job)
    try:
        yield
    finally:
        _current.reset(token)


class App:
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
        strict_args: `raise` refuses arguments that JSON does not have; `off` converts them.
        client_middleware: Runs around each push, outermost first. [PUSH-7]
        server_middleware: Runs around each execution, outermost first. [EXEC-6]
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        namespace: str = "",
        generation: GenerationSetting = "auto",
        strict_args: StrictArgs = "raise",
        client_middleware: Sequence[ClientMiddleware] = (),
        server_middleware: Sequence[ServerMiddleware] = (),
    ) -> None:
        self.url = url
        self.namespace = namespace
        self.generation: GenerationSetting = generation
        self.strict_args: StrictArgs = strict_args
        self.client_middleware = list(client_middleware)
        self.server_middleware = list(server_middleware)
        self.jobs: dict[str, JobType[..., Any]] = {}
        self._lock = threading.Lock()
        self._client: Client | None = None
        self._async_clients: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, AsyncClient] = (
            weakref.WeakKeyDictionary()
        )

    @overload
    def job(self, function: Callable[P, R], /) -> JobType[P, R]: ...

    @overload
    def job(
        self, *, name: str | None = None, **options: Unpack[Options]
    ) -> Callable[[Callable[P, R]], JobType[P, R]]: ...

    def job(
        self,
        function: Callable[P, R] | None = None,
        *,
        name: str | None = None,
        **options: Any,
    ) -> JobType[P, R] | Callable[[Callable[P, R]], JobType[P, R]]:
        """Define a job from a function, sync or `async def`.

        Args:
            function: What runs it. Its parameters must be positional: the wire has a list.
            name: Wire class. Give the Ruby name to share jobs with Ruby (`HardJob`,
                `Reports::Monthly`). By default the function's own name, without its module:
                payloads live for weeks and must survive moving code.
            **options: Of every job of this kind; see `Options`.

        Raises:
            ConfigError: The name is taken, the function cannot be a job, an option is wrong.
        """

        def define(function: Callable[P, R]) -> JobType[P, R]:
            wire_name = name if name is not None else function.__name__
            if not wire_name or wire_name != wire_name.strip():
                raise ConfigError(f"job name {wire_name!r} is no class name; write 'HardJob'")
            if wire_name in self.jobs:
                other = self.jobs[wire_name].function
                raise ConfigError(
                    f"job {wire_name!r} is defined twice, by {_place(other)} and "
                    f"{_place(function)}; give one of them name='...'"
                )
            try:
                check_options(options)
            except PayloadError as error:
                raise ConfigError(f"job {wire_name!r}: {error}") from None
            defined = JobType(self, wire_name, function, options)
            self.jobs[wire_name] = defined
            return defined

        return define if function is None else define(function)

    @property
    def client(self) -> Client:
        """The blocking client, made when first used."""
        with self._lock:
            if self._client is None:
                self._client = Client(
                    self.url,
                    namespace=self.namespace,
                    generation=self.generation,
                    strict_args=self.strict_args,
                    middleware=self.client_middleware,
                )
            return self._client

    @property
    def aclient(self) -> AsyncClient:
        """The asyncio client of the running event loop, made when first used."""
        loop = asyncio.get_running_loop()
        with self._lock:
            client = self._async_clients.get(loop)
            if client is None:
                client = self._async_clients[loop] = AsyncClient(
                    self.url,
                    namespace=self.namespace,
                    generation=self.generation,
                    strict_args=self.strict_args,
                    middleware=self.client_middleware,
                )
            return client

    def close(self) -> None:
        """Close the blocking client's connections; the next job opens new ones."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    def connect(self, url: str) -> None:
        """Use another Redis from now on; a worker does this with the URL it was given."""
        with self._lock:
            self.url = url
            self._client = None
            self._async_clients.clear()

    async def aclose(self) -> None:
        """Close the asyncio client of the running event loop, if one was made."""
        with self._lock:
            client = self._async_clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.close()


class JobType(Generic[P, R]):
    """A kind of job: a function with a wire class and options. Made by `App.job`.

    Calling it runs the function here and now; the `enqueue` methods push it for a worker. The
    methods that begin with `a` are the asyncio twins.

    Attributes:
        name: Wire class.
        function: What runs it.
        defaults: Options of every job of this kind.
        is_async: Whether the function is `async def`.
    """

    def __init__(
        self,
        app: App,
        name: str,
        function: Callable[P, R],
        options: Mapping[str, Any],
    ) -> None:
        self.app = app
        self.name = name
        self.function = function
        self.defaults = dict(options)
        self.is_async = inspect.iscoroutinefunction(function)
        self._signature = inspect.signature(function)
        _check_signature(name, self._signature)
        self.__doc__ = function.__doc__
        self.__wrapped__ = function

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<JobType {self.name}>"

    def options(self, **options: Unpack[Options]) -> JobType[P, R]:
        """Return the same job with some options changed: `job.options(queue="low").enqueue(1)`."""
        check_options(options)
        return JobType(self.app, self.name, self.function, {**self.defaults, **options})

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> str | None:
        """Push a job to run now; return its id, or None if middleware stopped it.

        Raises:
            TypeError: The arguments do not fit the function.
            InvalidJob, RedisTrouble: See `Client.push`.
        """
        return self.app.client.push(self.name, self._bind(args, kwargs), **self._options())

    def enqueue_in(self, delay: When, *args: P.args, **kwargs: P.kwargs) -> str | None:
        """Push a job to run after a delay: seconds or a timedelta. [SCHED-2] [SCHED-3]"""
        return self.app.client.push_in(
            delay, self.name, self._bind(args, kwargs), **self._options()
        )

    def enqueue_at(self, when: When, *args: P.args, **kwargs: P.kwargs) -> str | None:
        """Push a job to run at a time: an aware datetime or epoch seconds. [SCHED-2] [SCHED-3]"""
        return self.enqueue_in(when, *args, **kwargs)

    def enqueue_bulk(
        self,
        args_list: Iterable[Sequence[Any]],
        *,
        at: When | Sequence[When] | None = None,
        spread_interval: float | None = None,
    ) -> list[str | None]:
        """Push a job for each list of arguments; see `Client.push_bulk`."""
        return self.app.client.push_bulk(
            self.name,
            self._bind_each(args_list),
            at=at,
            spread_interval=spread_interval,
            **self._options(),
        )

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> str | None:
        """Push a job to run now; see `enqueue`."""
        bound = self._bind(args, kwargs)
        return await self.app.aclient.push(self.name, bound, **self._options())

    async def aenqueue_in(self, delay: When, *args: P.args, **kwargs: P.kwargs) -> str | None:
        """Push a job to run after a delay; see `enqueue_in`."""
        bound = self._bind(args, kwargs)
        return await self.app.aclient.push_in(delay, self.name, bound, **self._options())

    async def aenqueue_at(self, when: When, *args: P.args, **kwargs: P.kwargs) -> str | None:
        """Push a job to run at a time; see `enqueue_at`."""
        return await self.aenqueue_in(when, *args, **kwargs)

    async def aenqueue_bulk(
        self,
        args_list: Iterable[Sequence[Any]],
        *,
        at: When | Sequence[When] | None = None,
        spread_interval: float | None = None,
    ) -> list[str | None]:
        """Push a job for each list of arguments; see `enqueue_bulk`."""
        return await self.app.aclient.push_bulk(
            self.name,
            self._bind_each(args_list),
            at=at,
            spread_interval=spread_interval,
            **self._options(),
        )

    def _options(self) -> Options:
        return self.defaults  # type: ignore[return-value]  # checked when it was defined

    def _bind_each(self, args_list: Iterable[Sequence[Any]]) -> list[list[Any]]:
        bound = []
        for index, args in enumerate(args_list):
            if isinstance(args, str | bytes) or not isinstance(args, Sequence):
                raise TypeError(
                    f"{self.name}: job {index}: {args!r} is not a list of arguments; "
                    "give one for each job, [[1], [2]] rather than [1, 2]"
                )
            bound.append(self._bind(args, {}))
        return bound

    def _bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        """Return arguments as the list that the wire has, refusing what would not fit."""
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{self.name}: {error}") from None
        if kwargs:
            bound.apply_defaults()  # a gap before a keyword is filled with the default
        if bound.kwargs:
            names = ", ".join(bound.kwargs)
            raise TypeError(f"{self.name}: {names} cannot be passed; a job has a list of arguments")
        return list(bound.args)


def _check_signature(name: str, signature: inspect.Signature) -> None:
    for parameter in signature.parameters.values():
        required = parameter.default is inspect.Parameter.empty
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and required:
            raise ConfigError(
                f"job {name!r}: parameter {parameter.name!r} is keyword-only, but a job's "
                "arguments are a list; make it positional or give it a default"
            )


def _place(function: Callable[..., Any]) -> str:
    module = getattr(function, "__module__", "?")
    return f"{module}.{getattr(function, '__qualname__', repr(function))}"
