"""A job type: a function with a wire class, options and hooks."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, Unpack

from jobwire.application.aio import AsyncClient
from jobwire.application.client import Client
from jobwire.application.clients import Clients
from jobwire.application.group import KEEP_S, Group, make_group
from jobwire.application.hooks import ExhaustedHook, RetryHook, check_hook
from jobwire.application.iterabletype import IterableSpec
from jobwire.application.middleware import is_async
from jobwire.application.parameters import Parameters
from jobwire.application.signature import PREVIOUS, Signature
from jobwire.errors import ConfigError, InvalidJob
from jobwire.protocol.arguments import check_args
from jobwire.protocol.iteration import Cancellation
from jobwire.protocol.limits import Limit
from jobwire.protocol.normalize import Options, check_options
from jobwire.protocol.payload import VERSION
from jobwire.protocol.results import Result
from jobwire.protocol.times import When
from jobwire.protocol.unique import Unique

__all__ = ["JobType", "check_redelivery"]

P = ParamSpec("P")
R = TypeVar("R")

RH = TypeVar("RH", bound=RetryHook)
EH = TypeVar("EH", bound=ExhaustedHook)

# Names of `enqueue` in other libraries.
_ELSEWHERE = {"delay": "enqueue", "apply_async": "enqueue", "perform_async": "enqueue"}


class JobType(Generic[P, R]):
    """A job type: a function with a wire class and options. Made by `App.job`.

    A call runs the function at once in this process. The `enqueue` methods push a job for a
    worker. The methods that begin with `a` are their asyncio twins.

    Attributes:
        app: The part of its application that enqueues jobs.
        name: Wire class.
        function: The function that runs a job.
        defaults: Options of every job of this type.
        timeout: Seconds that one execution may take; None for no limit.
        isolated: True if a job runs in its own process.
        redeliver: False if a job that a process has started never runs again.
        on_commit: False if a job is written at once even inside a database transaction.
        redis: Name of the Redis of its jobs; "": the default of the application.
        iterable: The definition of an iterable job, or None.
        is_async: True if the function is `async def`.
        retry_hook: The hook that `retry_in` has set.
        exhausted_hook: The hook that `exhausted` has set.
        parameters: Turns arguments into those of a payload, and back.
        active_job: True if its payloads are those of Active Job.
        version: Version of its code, from 1.
        wire_class: The class in a payload, which is not `name` for an Active Job.
        fields: More fields of each payload.
    """

    active_job = False
    fields: Mapping[str, Any] | None = None

    def __init__(
        self,
        app: Clients,
        name: str,
        function: Callable[P, R],
        options: Mapping[str, Any],
        *,
        timeout: float | None = None,
        isolated: bool = False,
        redeliver: bool = True,
        on_commit: bool = True,
        redis: str = "",
        version: int = 1,
        iterable: IterableSpec | None = None,
    ) -> None:
        self.app = app
        self.name = self.wire_class = name
        self.function = function
        self.defaults = dict(options)
        self.timeout = timeout
        self.isolated = isolated
        self.redeliver = redeliver
        self.on_commit = on_commit
        self.redis = redis
        self.version = version
        if version > 1:
            self.fields = {VERSION: version}
        self.iterable = iterable
        self.retry_hook: RetryHook | None = None
        self.exhausted_hook: ExhaustedHook | None = None
        self.is_async = is_async(function)
        self.parameters = self._parameters()
        self._place_keys()
        self.__doc__ = function.__doc__
        self.__wrapped__ = function

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<JobType {self.name}>"

    if not TYPE_CHECKING:  # a type checker must also report these names

        def __getattr__(self, name: str) -> Any:
            hint = f"; use .{_ELSEWHERE[name]}(...)" if name in _ELSEWHERE else ""
            raise AttributeError(
                f"{type(self).__name__!r} object has no attribute {name!r}{hint}",
                name=name,
                obj=self,
            )

    @property
    def queue(self) -> str:
        """The queue of its jobs, unless a call of `options` names another one."""
        return self.defaults.get("queue") or "default"

    def options(
        self, *, on_commit: bool | None = None, **options: Unpack[Options]
    ) -> JobType[P, R]:
        """Return the job type with other options: `job.options(queue="low").enqueue(1)`.

        With `on_commit=False`, a job is written at once even inside a database transaction.
        """
        check_options(options)
        changed = copy.copy(self)
        if on_commit is not None:
            changed.on_commit = on_commit
        changed.defaults = {**self.defaults, **options}
        changed._place_keys()
        check_redelivery(self.name, self.redeliver, changed.defaults)
        return changed

    def retry_in(self, hook: RH) -> RH:
        """Register `hook(job, error, count)`; random seconds are added to its delay. A decorator.

            @fetch_page.retry_in
            def _(job, error, count):
                return 60 * (count + 1) if isinstance(error, TooManyRequests) else None

        It is not called after the last failure. `count` is 0 after the first one.

        It returns the seconds to wait, "discard" to drop the job, "kill" to put it into the dead
        set, or None for the default delay. To the seconds the worker adds a random whole number
        below 10 * (count + 1), as Sidekiq does, so that jobs that failed together spread. An error
        in the hook is logged and counts as None. [RETRY-11] [RETRY-12]
        """
        self.retry_hook = check_hook("job.retry_in", hook, "job", "error", "count")
        return hook

    def exhausted(self, hook: EH) -> EH:
        """Register `hook(job, error)` for a job whose retries are used up. A decorator.

        It is called before the job's death, and may return "discard" to keep the job out of the
        dead set. An error in it is logged and has no other effect. [RETRY-13]
        """
        self.exhausted_hook = check_hook("job.exhausted", hook, "job", "error")
        return hook

    def s(self, *args: P.args, **kwargs: P.kwargs) -> Signature[R]:
        """Return a job with its arguments, as a value: `job.s(7).enqueue()`.

        In a `chain`, an argument may be `previous`: the result of the job before.

        Raises:
            TypeError: The arguments do not match the parameters of the function.
            InvalidJob: A payload cannot have an argument. [PUSH-5]
        """
        bound, takes = self._bind_around(args, kwargs)
        if self.app.strict_args == "raise":
            try:
                check_args(bound)
            except InvalidJob as error:
                error.job_class = self.name
                raise
        return self._signature(copy.deepcopy(bound), takes)

    def _signature(self, args: Sequence[Any] = (), takes: tuple[int, ...] = ()) -> Signature[R]:
        return Signature(
            *(self.wire_class, args, self.defaults, self.fields, self.on_commit),
            takes=takes,
            app=self.app,
            name=self.name,
            redis=self.redis,
        )

    def map(self, values: Iterable[Any], *, keep_result: float = KEEP_S) -> Group[R]:
        """Return a group of one job for each value, its only argument: `job.map([1, 2])`.

        Raises:
            TypeError, InvalidJob: See `s` and `group`. [X-FLOW-8]
        """
        s: Any = self.s
        return make_group(tuple(s(value) for value in values), keep_result, self._signature())

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> str | None:
        """Push a job to run now; return its id, or None if middleware stopped it.

        Raises:
            TypeError: The arguments do not match the parameters of the function.
            DuplicateJob, InvalidJob, RedisTrouble: See `Client.push`.
        """
        return self._client.push(
            self.wire_class,
            self._bind(args, kwargs),
            fields=self.fields,
            on_commit=self.on_commit,
            **self._options(),
        )

    def enqueue_in(self, delay: When, *args: P.args, **kwargs: P.kwargs) -> str | None:
        """Push a job to run after a delay: seconds or a timedelta. [SCHED-2] [SCHED-3]"""
        return self._client.push_in(
            delay,
            self.wire_class,
            self._bind(args, kwargs),
            fields=self.fields,
            on_commit=self.on_commit,
            **self._options(),
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
        return self._client.push_bulk(
            self.wire_class,
            self._bind_each(args_list),
            at=at,
            spread_interval=spread_interval,
            fields=self.fields,
            on_commit=self.on_commit,
            **self._options(),
        )

    def result(self, jid: str, *, timeout: float | None = 0.0) -> Result | None:
        """Return what became of a job that keeps its result; see `Client.result`."""
        return self._client.result(jid, timeout=timeout)

    async def aresult(self, jid: str, *, timeout: float | None = 0.0) -> Result | None:
        """Return what became of a job that keeps its result; see `Client.result`."""
        return await self._aclient.result(jid, timeout=timeout)

    def cancel(self, jid: str) -> Cancellation:
        """Cancel a job; see `Client.cancel`. [ITER-7] [X-CANCEL-1]"""
        return self._client.cancel(jid)

    async def acancel(self, jid: str) -> Cancellation:
        """Cancel a job; see `cancel`."""
        return await self._aclient.cancel(jid)

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> str | None:
        """Push a job to run now; see `enqueue`."""
        return await self._aclient.push(
            self.wire_class,
            self._bind(args, kwargs),
            fields=self.fields,
            on_commit=self.on_commit,
            **self._options(),
        )

    async def aenqueue_in(self, delay: When, *args: P.args, **kwargs: P.kwargs) -> str | None:
        """Push a job to run after a delay; see `enqueue_in`."""
        return await self._aclient.push_in(
            delay,
            self.wire_class,
            self._bind(args, kwargs),
            fields=self.fields,
            on_commit=self.on_commit,
            **self._options(),
        )

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
        return await self._aclient.push_bulk(
            self.wire_class,
            self._bind_each(args_list),
            at=at,
            spread_interval=spread_interval,
            fields=self.fields,
            on_commit=self.on_commit,
            **self._options(),
        )

    @property
    def _client(self) -> Client:
        return self.app.client_of(self.app.choose(self.redis))

    @property
    def _aclient(self) -> AsyncClient:
        return self.app.aclient_of(self.app.choose(self.redis))

    def _parameters(self) -> Parameters:
        explain = self.app.strict_args == "raise"
        return Parameters(self.name, self.function, explain=explain)

    def _bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        """Return `args` of the payload for a call."""
        return self.parameters.bind(args, kwargs)

    def _bind_around(
        self, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[list[Any], tuple[int, ...]]:
        """Return `args` of the payload, and the positions of those that are `previous`."""
        return self.parameters.bind_around(args, kwargs, PREVIOUS)

    def _place_keys(self) -> None:
        """Replace the names in keys of options, which a payload does not have, with positions."""
        for option in ("unique", "limit"):
            wish = self.defaults.get(option)
            if isinstance(wish, Unique | Limit) and isinstance(wish.by, tuple):
                by = self.parameters.positions(wish.by, option)
                self.defaults[option] = replace(wish, by=by)

    def _options(self) -> Options:
        return self.defaults  # type: ignore[return-value]  # checked by the definition

    def _bind_each(self, args_list: Iterable[Sequence[Any]]) -> Iterator[list[Any]]:
        for index, args in enumerate(args_list):
            if isinstance(args, str | bytes) or not isinstance(args, Sequence):
                raise TypeError(
                    f"{self.name}: job {index}: {args!r} is not a list of arguments; "
                    "give a list for each job, like [[1], [2]]"
                )
            try:
                yield self._bind(args, {})
            except InvalidJob as error:
                field = f"job {index}: {error.field}"
                refused = InvalidJob(error.rule, field, error.problem)
                refused.job_class = self.name
                raise refused from None


def check_redelivery(name: str, redeliver: bool, options: Mapping[str, Any]) -> None:
    """Refuse `redeliver=False` for a job that may be retried.

    Raises:
        ConfigError: The option `retry` is not False.
    """
    if not redeliver and options.get("retry") is not False:
        raise ConfigError(
            f"job {name!r}: redeliver=False needs retry=False, because a retry runs the job again; "
            f"retry is {options.get('retry', True)!r}"
        )
