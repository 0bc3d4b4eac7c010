"""The compiled form of each job class: function, middleware and wrappers, composed once."""

from __future__ import annotations

import difflib
import logging
import math
import threading
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, ExitStack
from fnmatch import fnmatchcase
from functools import partial
from itertools import groupby
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from jobwire.application.app import App
from jobwire.application.functions import check_result
from jobwire.application.hooks import Around, ServerMiddleware
from jobwire.application.iterabletype import IterableSpec
from jobwire.application.jobtype import JobType
from jobwire.application.middleware import is_async
from jobwire.errors import InvalidArgument, UnknownJob
from jobwire.protocol import active_job
from jobwire.protocol.chains import NEXT
from jobwire.protocol.classes import class_of
from jobwire.protocol.compression import (
    COMPRESSED,
    MAX_INFLATED_BYTES,
    ArgumentsTooLarge,
    inflate,
)
from jobwire.protocol.foreign import (
    DELAYED_CLASSES,
    NEWER,
    POLICIES,
    TOO_LARGE,
    UNKNOWN,
    Feature,
    ForeignPolicy,
    announces,
)
from jobwire.protocol.groups import GROUP_CLASS
from jobwire.protocol.payload import VERSION, Job
from jobwire.protocol.results import KEEP, keep_seconds
from jobwire.protocol.wire import Command
from jobwire.worker.execute.event_loop import AsyncLoop
from jobwire.worker.execute.interruption import blocked
from jobwire.worker.execute.iterating import Iterations
from jobwire.worker.execute.safe_points import own
from jobwire.worker.execute.time_limit import limited

if TYPE_CHECKING:
    from jobwire.worker.execute.isolation_parent import Isolation

__all__ = ["CancelledIds", "CompiledJob", "JobTable"]

MAX_SUGGESTIONS = 100  # unknown names that are compared with the registered ones
MAX_NAME_LENGTH = 100  # of a name to compare

_UNKNOWN = math.inf
_TOLD: Mapping[ForeignPolicy, str] = {
    "park": "%s are parked: see 'jobwire inspect parked'; once a worker that can run them serves "
    "their queue, 'jobwire inspect unpark --reason %s'",
    "run": "%s run as if they had not the feature; set foreign %s=park to set them aside",
    "fail": "%s fail; set foreign %s=park to set them aside without a retry",
    "hand_over": "%s go to the queue that hand_over names for their class, or are parked: see "
    "'jobwire inspect parked'; then 'jobwire inspect unpark --reason %s'",
}
_log = logging.getLogger("jobwire.worker")
_Call = Callable[[Job], Any]
_AsyncCall = Callable[[Job], Coroutine[Any, Any, Any]]


class CancelledIds:
    """The ids of cancelled jobs, as this process knows them. [X-CANCEL-3]

    Attributes:
        ids: Rebound as a whole by one thread; read by all.
        by_gitlab: Those of running jobs that GitLab has cancelled. [X-ADDON-16]
    """

    __slots__ = ("by_gitlab", "ids")

    def __init__(self) -> None:
        self.ids: Collection[str | None] = frozenset()
        self.by_gitlab: set[str | None] = set()


class CompiledJob:
    """One job class, ready to run.

    Attributes:
        definition: None for an unregistered class.
        call: Runs a job to its end, through all middleware. [EXEC-6]
        native: The same as a coroutine function for the event loop; None if the job needs a
            thread.
        timeout: Seconds after which the thread that runs the job must be interrupted.
        finish: Returns the command to send with the outcome of a job that succeeded. Call it
            exactly once for each job.
        seconds: Moving average of the run time; infinite before the first run.
        redeliver: False if the job must be acknowledged before it runs.
        parked: Reason to set the job aside instead; empty to run it. [X-PARK-1]
        handed_to: Queue to hand the job over to instead; empty for none. [X-CLASS-4]
        keep: Seconds to keep results of jobs whose payload does not say it; 0: none. [X-RESULT-1]
        plain: True if its jobs leave nothing to do at their ends.
    """

    __slots__ = (
        "call",
        "definition",
        "finish",
        "handed_to",
        "keep",
        "native",
        "parked",
        "plain",
        "redeliver",
        "seconds",
        "timeout",
    )

    def __init__(
        self,
        definition: JobType[..., Any] | None,
        call: _Call,
        *,
        native: _AsyncCall | None = None,
        timeout: float | None = None,
        finish: Callable[[Job], Command | None] | None = None,
        parked: str = "",
        handed_to: str = "",
    ) -> None:
        self.finish = finish
        self.parked = parked
        self.handed_to = handed_to
        self.definition = definition
        self.native = native
        self.call = call
        self.timeout = timeout
        self.seconds = _UNKNOWN
        self.redeliver = definition is None or definition.redeliver
        self.keep = (
            0 if definition is None else keep_seconds(definition.defaults.get("keep_result"))
        )
        iterable = definition is not None and definition.iterable is not None
        self.plain = self.redeliver and finish is None and not self.keep and not iterable

    def took(self, seconds: float) -> None:
        """Add the duration of one execution to the average."""
        if self.seconds == _UNKNOWN:
            self.seconds = seconds
        else:
            self.seconds += 0.2 * (seconds - self.seconds)


class JobTable:
    """The compiled jobs of a process, each made when its first job comes.

    Args:
        app: The jobs that this process may run. [SEC-1] [EXEC-2]
        loop: Runs `async def` functions.
        isolation: Runs isolated jobs; None if there are none.
        iterations: Runs iterable jobs.
        foreign: The policies of features of other products that differ from the default.
        parks_unknown: True to set jobs of unknown classes aside. [X-PARK-2]
        hand_over: Patterns of classes to the queues whose workers run what this process may not:
            jobs of unknown classes, and of features with this policy. [X-CLASS-4]
        groups: Runs groups, which are jobs that no application registers. [X-FLOW-9]

    Attributes:
        marks: The payload fields that may keep a job of a known class from running here.
    """

    def __init__(
        self,
        app: App,
        loop: AsyncLoop,
        isolation: Isolation | None,
        iterations: Iterations,
        foreign: Mapping[Feature, ForeignPolicy] = POLICIES,
        *,
        parks_unknown: bool = False,
        hand_over: Mapping[str, str] = MappingProxyType({}),
        groups: _Call | None = None,
    ) -> None:
        self._app = app
        self._jobs = app.jobs
        self._middleware: Sequence[ServerMiddleware] = tuple(app.server_middleware)
        self._outermost: Sequence[Around] = tuple(app.outermost)
        self._around: Sequence[Around] = tuple(app.around)
        self._loop = loop
        self._isolation = isolation
        self._iterations = iterations
        self._known: dict[str, CompiledJob] = {}
        self._active_jobs: dict[str, CompiledJob] = {}
        self._suggestions: dict[str, list[str]] = {}  # by unknown name, one or none
        self._foreign = {**POLICIES, **foreign}
        # A job with `encrypt` fails by itself, unless middleware decrypts it. [EXEC-13]
        self._delayed = self._foreign.pop("delayed")
        if self._foreign["encrypt"] == "fail":
            del self._foreign["encrypt"]
        self.marks = frozenset([*self._foreign, COMPRESSED, VERSION])
        self._parks_unknown = parks_unknown
        self._hand_over = hand_over
        self._groups = None if groups is None else CompiledJob(None, groups)
        self._told: set[str] = set()  # reasons that are in the log

    def find(self, job: Job, *, plain: bool = False) -> CompiledJob:
        """Return the compiled job of a class; for an unknown one, it raises `UnknownJob`.

        `plain` says that the payload has no field of `marks`.
        """
        if not plain and (compiled := self._find_marked(job)):
            return compiled
        compiled = self._known.get(job.class_name)
        if compiled is None:
            definition = self._app.find(job.fields)
            if definition is None and job.class_name == GROUP_CLASS and self._groups is not None:
                return self._groups
            if definition is None:
                # It is not kept, because there is no limit to the number of unknown names. It has
                # no middleware, because middleware might skip a job that must fail. [EXEC-2]
                to = self._other_queue(job) if self._hand_over else ""
                return CompiledJob(
                    *(None, self._refuse), parked=self._why_unknown(job), handed_to=to
                )
            if definition.active_job:
                return self._find_active_job(job, definition)
            compiled = self._known[definition.name] = self._make(definition)
        return compiled

    def _find_marked(self, job: Job) -> CompiledJob | None:
        """Return how to end a job that must not run because of a field; None to run it."""
        if not self._foreign.keys().isdisjoint(job.fields) and (compiled := self._refused(job)):
            return compiled
        if COMPRESSED in job.fields:
            try:
                inflate(job)
            except InvalidArgument as error:
                parked = self._why_too_large() if isinstance(error, ArgumentsTooLarge) else ""
                return CompiledJob(
                    *(self._app.find(job.fields), partial(_raise, error)), parked=parked
                )
        return self._newer(job) if VERSION in job.fields else None

    def _refused(self, job: Job) -> CompiledJob | None:
        """Return how to end a job with a feature of another product; None to run it. [X-PARK-1]"""
        for feature, policy in self._foreign.items():
            if not announces(job.fields, feature):
                continue
            self._tell(feature, policy, f"jobs with {feature}, a feature of another product")
            if policy == "run":
                continue
            error = InvalidArgument(
                f"{feature} is a feature of another product, which this worker does not have; "
                f"let a worker that has it serve the queue, or set foreign {feature}=run"
            )
            definition = self._app.find(job.fields)
            parked = "" if policy == "fail" else feature
            to = self._other_queue(job) if policy == "hand_over" else ""
            return CompiledJob(definition, partial(_raise, error), parked=parked, handed_to=to)
        return None

    def _why_too_large(self) -> str:
        """Return why to park a job whose arguments inflate to too many bytes. [X-ZIP-3]"""
        self._tell(
            *(TOO_LARGE, "park"),
            f"jobs whose compressed arguments inflate to more than {MAX_INFLATED_BYTES} bytes",
        )
        return TOO_LARGE

    def _newer(self, job: Job) -> CompiledJob | None:
        """Return how to end a job of a newer version of its class; None to run it."""
        definition = self._app.find(job.fields)
        if definition is None or job.version <= definition.version:
            return None
        if self._parks_unknown:
            self._tell(NEWER, "park", "jobs of a newer version of their class")
        error = UnknownJob(
            f"job {definition.name} was enqueued by its version {job.version}, and this process "
            f"has version {definition.version}; deploy the newer code, or set unknown_jobs=park"
        )
        parked = NEWER if self._parks_unknown else ""
        return CompiledJob(definition, partial(_raise, error), parked=parked)

    def _why_unknown(self, job: Job) -> str:
        """Return why to park a job of an unknown class; empty to let it fail. [X-PARK-2]"""
        if self._delayed != "fail" and job.class_name in DELAYED_CLASSES:
            self._tell("delayed", self._delayed, "jobs of Sidekiq's delayed extensions")
            return "delayed"
        if self._parks_unknown and job.class_name:
            self._once(
                UNKNOWN,
                "jobs of classes that are not registered here are handed over to workers that have "
                "announced them, or parked until one does: see 'jobwire inspect classes' and "
                "'jobwire inspect parked'; deploy a worker that has them, or import their module: "
                "App(imports=[...])",
            )
            return UNKNOWN
        return ""

    def _other_queue(self, job: Job) -> str:
        """Return the queue that the settings name for a class; "" for none. [X-CLASS-4]"""
        name = class_of(job.fields)
        for pattern, queue in self._hand_over.items():
            if fnmatchcase(name, pattern):
                self._once(
                    f"{pattern}={queue}",
                    "jobs of %s that cannot run here go to queue %s, as hand_over says; let a "
                    "worker that runs them serve it",
                    *(pattern, queue),
                )
                return queue
        return ""

    def _tell(self, reason: str, policy: ForeignPolicy, jobs: str) -> None:
        """Log the fate of a kind of jobs once, with the fix."""
        self._once(reason, _TOLD[policy], jobs, reason)

    def _once(self, kind: str, words: str, *values: str) -> None:
        """Log a warning for the first job of a kind."""
        if kind not in self._told:
            self._told.add(kind)
            _log.warning(words, *values)

    def _find_active_job(self, job: Job, definition: JobType[..., Any]) -> CompiledJob:
        described = active_job.inner(job.fields)
        assert described is not None
        described["provider_job_id"] = job.jid  # for the job's code; the text stays [X-AJ-7]
        compiled = self._active_jobs.get(definition.name)
        if compiled is None:
            compiled = self._active_jobs[definition.name] = self._make(definition)
        return compiled

    def announce(self) -> None:
        """Log how many jobs pay for middleware of the other kind, sync or async."""
        for is_kind, words in (
            (False, "%d sync jobs run inside async middleware (%s): each makes a detour through "
             "the event loop"),
            (True, "%d async jobs run inside sync middleware (%s): each occupies a thread"),
        ):  # fmt: skip
            jobs = [j for j in self._jobs.values() if j.is_async is is_kind and not j.isolated]
            others = [m for m in self._middleware if is_async(m) is not is_kind]
            if jobs and others:
                _log.info(words, len(jobs), ", ".join(map(_name_of, others)))

    def _make(self, definition: JobType[..., Any]) -> CompiledJob:
        own(definition.function)
        timeout = definition.timeout
        if definition.isolated and self._isolation is not None:
            # The child process enters the wrappers, because it runs the job's code.
            return CompiledJob(
                definition, self._through(partial(_isolated, self._isolation, definition))
            )
        if definition.iterable is not None:
            return self._make_iterable(definition, definition.iterable)
        function = definition.parameters.receiver(definition.function)
        if not definition.is_async:

            def run(job: Job) -> Any:
                result = function(*job.parameters)
                if result is not None:
                    check_result(definition.name, result)
                    job.value = result  # not from the caller: middleware may return anything
                return result

            return CompiledJob(definition, self._in_thread(run), timeout=timeout)

        keeps = keep_seconds(definition.defaults.get("keep_result")) > 0

        def coroutine(job: Job) -> Any:
            awaitable = function(*job.parameters)
            if timeout is not None:
                awaitable = limited(awaitable, timeout)
            if keeps or KEEP in job.fields or NEXT in job.fields:
                return _valued(job, awaitable)
            return awaitable

        return self._make_async(definition, coroutine)

    def _make_async(
        self,
        definition: JobType[..., Any],
        coroutine: _AsyncCall,
        finish: Callable[[Job], Command | None] | None = None,
    ) -> CompiledJob:
        if all(map(is_async, self._middleware)):
            native = self._in_loop(coroutine)
            call: _Call = lambda job: self._loop.run(native(job))  # noqa: E731
            return CompiledJob(definition, call, native=native, finish=finish)
        # Sync middleware waits for the end of the job, so the job needs a thread.
        call = self._in_thread(lambda job: self._loop.run(coroutine(job)))
        return CompiledJob(definition, call, finish=finish)

    def _make_iterable(self, definition: JobType[..., Any], spec: IterableSpec) -> CompiledJob:
        commands: dict[int, Command] = {}  # of running jobs, by `id(job)`

        def on_finish(job: Job) -> Callable[[Command], None]:
            return partial(commands.__setitem__, id(job))

        def finish(job: Job) -> Command | None:
            return commands.pop(id(job), None)

        def arguments(job: Job) -> Any:
            return {"args": decode(job.parameters), "on_finish": on_finish(job)}

        decode = definition.parameters.decode
        run, arun = self._iterations.run, self._iterations.arun
        if spec.is_async:
            return self._make_async(
                definition, lambda job: arun(job, spec, **arguments(job)), finish
            )
        call = self._in_thread(lambda job: run(job, spec, **arguments(job)))
        return CompiledJob(definition, call, finish=finish)

    def _refuse(self, job: Job) -> None:
        if _log.isEnabledFor(logging.DEBUG):  # not in the error, which is stored for all to read
            _log.debug("registered classes: %s", ", ".join(sorted(self._jobs)) or "none")
        name = job.class_name
        shown = active_job.class_of(job.fields) or job.display_class
        words = f"{job.get('class')!r}" if shown == name else f"{shown!r}, which {name} wraps"
        error = UnknownJob(
            f"no job is registered for class {words}; import its module: App(imports=[...])"
        )
        for similar in self._similar(shown):
            error.add_note(f"did you mean {similar!r}?")  # in the log, but not in the payload
        raise error

    def _similar(self, name: str) -> list[str]:
        """Return the registered name that is most like an unknown one, if any.

        Comparing takes long, so only the first unknown names of a process are compared.
        """
        similar = self._suggestions.get(name)
        if similar is None:
            if len(self._suggestions) >= MAX_SUGGESTIONS or len(name) > MAX_NAME_LENGTH:
                return []
            similar = self._suggestions[name] = difflib.get_close_matches(name, self._jobs, n=1)
        return similar

    def _in_thread(self, core: _Call) -> _Call:
        return self._through(_wrapped(self._around, core))

    def _through(self, inside: _Call) -> _Call:
        """Return `inside` with the middleware and the outermost wrappers, to run in a thread."""
        if not self._middleware:
            return _wrapped(self._outermost, inside)

        # Neighbours that are async share one way to the loop and back.
        groups = [(flag, tuple(group)) for flag, group in groupby(self._middleware, is_async)]

        def layer(index: int, job: Job) -> Any:
            if index == len(groups):
                return inside(job)
            in_loop, group = groups[index]
            call_next = partial(layer, index + 1, job)
            if in_loop:
                return self._loop.run_around(partial(_asurrounded, group, job), call_next)
            return _surrounded(group, job, call_next)

        return _wrapped(self._outermost, partial(layer, 0))

    def _in_loop(self, core: _AsyncCall) -> _AsyncCall:
        inside = _awrapped(self._around, core)
        if not self._middleware:
            return _awrapped(self._outermost, inside)

        async def layer(index: int, job: Job) -> Any:
            if index == len(self._middleware):
                return await inside(job)
            return await self._middleware[index](job, partial(layer, index + 1, job))

        return _awrapped(self._outermost, partial(layer, 0))


def _raise(error: Exception, job: Job) -> None:
    raise error


async def _valued(job: Job, awaitable: Awaitable[Any]) -> Any:
    """Await an async job, and note what it returns."""
    job.value = await awaitable
    return job.value


def _name_of(middleware: ServerMiddleware) -> str:
    return getattr(middleware, "__qualname__", repr(middleware))


def _surrounded(group: Sequence[ServerMiddleware], job: Job, last: Callable[[], Any]) -> Any:
    """Call sync middleware around `last`."""
    middleware, *inner = group
    return middleware(job, partial(_surrounded, inner, job, last) if inner else last)


async def _asurrounded(group: Sequence[ServerMiddleware], job: Job, last: Callable[[], Any]) -> Any:
    """Await async middleware around `last`."""
    middleware, *inner = group
    return await middleware(job, partial(_asurrounded, inner, job, last) if inner else last)


def _wrapped(wrappers: Sequence[Around], core: _Call) -> _Call:
    if not wrappers:
        return core

    def wrapped(job: Job) -> Any:
        with ExitStack() as stack:
            for around in wrappers:
                stack.enter_context(around(job))
            return core(job)

    return wrapped


def _awrapped(wrappers: Sequence[Around], core: _AsyncCall) -> _AsyncCall:
    if not wrappers:
        return core

    async def wrapped(job: Job) -> Any:
        async with AsyncExitStack() as stack:
            for around in wrappers:
                manager = around(job)
                if isinstance(manager, AbstractAsyncContextManager):  # of both kinds
                    await stack.enter_async_context(manager)
                else:
                    stack.enter_context(manager)
            return await core(job)

    return wrapped


def _isolated(isolation: Isolation, definition: JobType[..., Any], job: Job) -> None:
    with blocked(partial(isolation.interrupt, threading.get_ident())):
        isolation.run(job, definition, definition.timeout)
