"""The application object: it defines jobs and enqueues them, and a worker runs it."""

from __future__ import annotations

import importlib
from collections.abc import AsyncIterable, Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from functools import partial
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    ParamSpec,
    TypeAlias,
    TypeVar,
    Unpack,
    cast,
    overload,
)

from jobwire.application.batch import Batch, NewBatch
from jobwire.application.call import Call
from jobwire.application.config import MAX_WAIT_S
from jobwire.application.current import current_job
from jobwire.application.discovery import find_modules
from jobwire.application.fetcher import FetcherFactory
from jobwire.application.functions import check_function, place
from jobwire.application.generation import GenerationSetting
from jobwire.application.hooks import (
    Around,
    Callback,
    DeathHandler,
    ErrorHandler,
    Event,
    Events,
    ExpiredHandler,
    ServerMiddleware,
    check_around,
    check_hook,
)
from jobwire.application.iterabletype import IterableOptions, define_iterable
from jobwire.application.jobtype import JobType, check_redelivery
from jobwire.application.middleware import MiddlewareChain
from jobwire.application.payload_maker import MAX_PAYLOAD_BYTES
from jobwire.application.propagation import CurrentAttributes, Propagation
from jobwire.application.steps import Steps
from jobwire.errors import ConfigError, PayloadError
from jobwire.protocol import active_job
from jobwire.protocol.arguments import StrictArgs
from jobwire.protocol.batches import batch_of
from jobwire.protocol.iteration import Cursor
from jobwire.protocol.normalize import (
    AsyncClientMiddleware,
    ClientMiddleware,
    Options,
    check_options,
)
from jobwire.protocol.periodic_entry import DEFAULT_NAMESPACE, Overlap, PeriodicEntry
from jobwire.protocol.placement import Placement
from jobwire.protocol.progress import RubyStatus

if TYPE_CHECKING:
    from jobwire.application.push_buffer import PushBuffer

__all__ = ["App"]

P = ParamSpec("P")
R = TypeVar("R")

_RETRIES = ("retry", "retry_for")
Route: TypeAlias = Callable[[str, Mapping[str, Any]], str | None]
"""Returns the queue for a class and its options; None for the default."""
_Items: TypeAlias = Iterable[Any] | AsyncIterable[Any]
A = TypeVar("A", bound=Around)
C = TypeVar("C", bound=Callback)
D = TypeVar("D", bound=DeathHandler)
E = TypeVar("E", bound=ErrorHandler)
J = TypeVar("J", bound=JobType[..., Any])
X = TypeVar("X", bound=ExpiredHandler)


class App(Steps):
    """Jobs by wire class, and the clients that enqueue them.

        app = App()

        @app.job(name="HardJob", queue="critical")
        def hard(count: int, label: str) -> None: ...

        hard.enqueue(3, "x")

    The first enqueued job opens the connection to Redis.

    Args:
        url: URL of Redis; see `Client`.
        namespace: Prefix of every key; leave it empty to share Redis with Sidekiq. [KEY-4]
        generation: 7 or 8 to write times in the form of that Sidekiq; `auto` asks Redis. [GEN-5]
        strict_args: `raise` refuses arguments for which JSON has no type; `warn` converts them
            and logs a warning; `off` converts them silently.
        client_middleware: Runs around each push, outermost first. [PUSH-7]
        server_middleware: Runs around each execution, outermost first. [EXEC-6]
        wait_replicas: Number of replicas that must confirm an enqueued job; see `Client`.
        max_payload_bytes: Refuse jobs whose payload is larger; None for no limit. [PUSH-10]
        compress_above: Compress arguments of so many bytes or more; see `Client`.
        buffer: Keeps pushes while Redis is away, like `PushBuffer(max_jobs=10_000)`; see `Client`.
            None: such a push raises.
        redis: Further Redis servers, name to URL. A job type names the one of its jobs, and `via`
            the one of a block of code; each has workers of its own.
        shards: Redis servers that share the jobs, instead of `url`: URLs, or name to URL, or the
            URL of a cluster, `redis+cluster://one:7000,two:7000?shards=16`. `jobwire worker` serves
            them all. Jobs with the same key of `unique` or `limit` go to one shard.
        placement: The shard of a job without a key: `spread` over those that answer, or by the
            `queue`, so that a queue is on one shard.
        fetcher: Takes the jobs of workers in place of jobwire; see `jobwire.worker.Fetcher`. A
            worker calls it for each capsule, with a `FetcherSetup`.
        imports: Names of modules that define jobs, like `shop.mail`. Every command that loads the
            application imports them; see also `autodiscover`.
        schedule: Name of the schedule of its periodic jobs. Applications that share a Redis need
            different names, because each removes the entries of its schedule that it does not have.
        route: Chooses the queue of job types that name none, by class, tags or other options:
            `route(name, options)` returns a queue, or None for the default. It is called once for
            each job type, when that is defined.
        **options: Options of every job that this application defines, such as `retry=5`; see
            `Options`. An option of the job itself wins.

    Raises:
        ConfigError: An option is invalid.

    Attributes:
        jobs: Wire class to definition.
        fetcher: Makes what takes the jobs of a worker; None: the setting `fetch` says it.
        imports: Names of modules that define jobs.
        schedule: Name of the schedule of its periodic jobs.
        periodic_entries: The periodic jobs that it defines; a worker writes them to Redis.
        defaults: Options of every job that this application defines.
        client_middleware: The chain of client middleware, which may be changed.
        server_middleware: The chain of server middleware, which may be changed.
        around: Context managers for each execution, outermost first; inside the middleware.
        outermost: The same, outside of the middleware.
        death_handlers: Called for each job that will not be tried again.
        error_handlers: Called for each execution that fails.
        expired_handlers: Called for each job that came too late.
        events: Callbacks for the events of a worker; see `on`.
        transport: Where its clients deliver; `jobwire.testing` puts itself there.
        entry: Name of the module that the command line loaded, which is perhaps not the module of
            the application. The process of an isolated job imports it first.
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
        max_payload_bytes: int | None = MAX_PAYLOAD_BYTES,
        compress_above: int | None = None,
        buffer: PushBuffer | None = None,
        redis: Mapping[str, str] | None = None,
        shards: Mapping[str, str] | Sequence[str] | None = None,
        placement: Placement = "spread",
        fetcher: FetcherFactory | None = None,
        imports: Sequence[str] = (),
        schedule: str = "jobwire",
        route: Route | None = None,
        **options: Unpack[Options],
    ) -> None:
        if isinstance(imports, str):
            raise ConfigError(f"imports: {imports!r} is one string; write imports=[{imports!r}]")
        _check_options("App", options)
        self.defaults = options
        self._route = route
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
            max_payload_bytes=max_payload_bytes,
            compress_above=compress_above,
            buffer=buffer,
            redis=redis,
            shards=shards,
            placement=placement,
        )
        self.server_middleware: MiddlewareChain[ServerMiddleware] = MiddlewareChain(
            server_middleware
        )
        self.around: list[Around] = []
        self.outermost: list[Around] = []
        self.death_handlers: list[DeathHandler] = []
        self.error_handlers: list[ErrorHandler] = []
        self.expired_handlers: list[ExpiredHandler] = []
        self.events = Events()
        self.jobs: dict[str, JobType[..., Any]] = {}
        self.fetcher = fetcher
        self.imports = list(imports)
        self.schedule = schedule
        self.periodic_entries: list[PeriodicEntry] = []
        self.entry: str | None = None
        self._packages: list[tuple[str, str]] = []  # package, and name of its modules with jobs

    @property
    def queues(self) -> dict[str, list[str]]:
        """The queues that the jobs name, each with the classes of its jobs; `default` first.

        A worker that names no queues serves them all. The queue that an `enqueue` or `options`
        names for one job is not among them, nor one that only jobs of another Redis name.
        """
        queues: dict[str, list[str]] = {"default": []}
        for name, job in self.jobs.items():
            if not self._is_here(job):
                continue
            options = (job.defaults.get("queue"), job.defaults.get("retry_queue"))
            for queue in dict.fromkeys((options[0] or "default", options[1] or "")):
                if queue:
                    queues.setdefault(queue, []).append(name)
        return queues

    @property
    def served_url(self) -> str | None:
        """URL of the Redis that a worker in this process serves; None as for `Client`.

        Raises:
            ConfigError: The application has shards, and `serve` has chosen none.
        """
        if self.shards and not self.served:
            raise ConfigError(
                f"the application has the shards {', '.join(self.shards)}, and a worker process "
                "serves one: 'jobwire worker' starts a process for each; elsewhere, call "
                f"app.serve({self.shards[0]!r})"
            )
        return self.url_of(self.served)

    def served_entries(self, others: Iterable[PeriodicEntry] = ()) -> list[PeriodicEntry]:
        """Return the periodic jobs of the Redis that a worker in this process serves.

        Each entry is on one shard, which its name chooses.

        Args:
            others: Entries besides those of the application, such as those of a file.
        """
        own = [entry for entry in self.periodic_entries if self._is_here(self.jobs[entry.job])]
        return [entry for entry in (*own, *others) if self._has_ticks(entry)]

    def _has_ticks(self, entry: PeriodicEntry) -> bool:
        job = self.jobs.get(entry.job)
        if self.served not in self.shards or (job is not None and job.redis):
            return True
        return self.shard_of(f"periodic {entry.namespace}:{entry.name}") == self.served

    def _is_here(self, job: JobType[..., Any]) -> bool:
        if self.shards and not job.redis:
            return not self.served or self.served in self.shards
        if self.shards and not self.served:
            return job.redis in self.shards
        return self.url_of(job.redis) == self.served_url

    def autodiscover(self, *packages: str, module: str = "jobs") -> None:
        """Find the modules with jobs in packages: each `jobs.py`, at any depth.

            app.autodiscover("shop")  # shop.jobs, shop.mail.jobs, shop.billing.jobs

        If a package is called `jobs`, all its modules count. The modules are imported when a
        command or a worker loads the application, so they may import the module of `app`.

        Args:
            *packages: Names of packages.
            module: Name of the modules.
        """
        self._packages += [(package, module) for package in packages]

    def job_modules(self) -> list[str]:
        """Return the names of the modules in `imports` and of those that `autodiscover` finds.

        Raises:
            ConfigError: A package does not exist.
        """
        found = (name for package in self._packages for name in find_modules(*package))
        return list(dict.fromkeys([*self.imports, *found]))

    def load(self) -> None:
        """Import all `job_modules`. Every command and every worker does this.

        Raises:
            ConfigError: A package does not exist.
            Exception: The error of a module.
        """
        for name in self.job_modules():
            importlib.import_module(name)

    @overload
    def job(self, function: Callable[P, R], /) -> JobType[P, R]: ...

    @overload
    def job(
        self,
        *,
        name: str | None = None,
        timeout: float | None = None,
        isolated: bool = False,
        redeliver: bool = True,
        on_commit: bool = True,
        redis: str = "",
        version: int = 1,
        **options: Unpack[Options],
    ) -> Callable[[Callable[P, R]], JobType[P, R]]: ...

    def job(
        self,
        function: Callable[P, R] | None = None,
        *,
        name: str | None = None,
        timeout: float | None = None,
        isolated: bool = False,
        redeliver: bool = True,
        on_commit: bool = True,
        redis: str = "",
        version: int = 1,
        **options: Any,
    ) -> JobType[P, R] | Callable[[Callable[P, R]], JobType[P, R]]:
        """Define a job from a function, sync or `async def`.

        Args:
            function: The function that runs the job. Its parameters must be positional, because
                a payload has a list of arguments.
            name: Wire class. Give the Ruby name to share jobs with Ruby (`HardJob`,
                `Reports::Monthly`). The default is the name of the function without its module,
                because payloads live for weeks and must survive a move of the code.
            timeout: Seconds after which an execution fails with `JobTimeout`. Async and isolated
                jobs end at once. A thread can be interrupted only while it runs Python code, so a
                job that may block in C code for long should be isolated.
            isolated: True to run the job in its own process, which may crash or be killed.
            redeliver: False to run each job at most once: it is removed from Redis before its code
                runs. A job whose process is killed, or that does not end in time when the worker
                stops, is lost. Needs `retry=False`.
            on_commit: False to write each job at once even inside a database transaction; see
                `jobwire.django`.
            redis: Name of the Redis of its jobs in `App(redis=...)`; default: that of `url`. They
                need a worker of that Redis: `jobwire worker --redis NAME`.
            version: Version of the code, raised when older code must not run the jobs that this
                code enqueues. `current_job().version` tells it to newer code. A process whose
                version is lower treats such a job as one of an unknown class: it fails and is
                retried, or is parked if `unknown_jobs` is `park`.
            **options: Options of every job of this type; see `Options`.

        Raises:
            ConfigError: The name is taken, the function cannot be a job, or an option is invalid.
        """

        _check_timeout(name, timeout)
        if type(version) is not int or version < 1:
            raise ConfigError(f"job {name!r}: version {version!r} is not a whole number from 1")

        def define(function: Callable[P, R]) -> JobType[P, R]:
            check_function(function, name, iterable=False)
            make = partial(
                JobType[P, R],
                timeout=timeout,
                isolated=isolated,
                redeliver=redeliver,
                on_commit=on_commit,
                redis=redis,
                version=version,
            )
            return self._define(make, function, name, options)

        return define if function is None else define(function)

    def active_job(
        self,
        name: str,
        *,
        timeout: float | None = None,
        isolated: bool = False,
        on_commit: bool = True,
        redis: str = "",
        **options: Unpack[Options],
    ) -> Callable[[Callable[P, R]], JobType[P, R]]:
        """Define a job of Rails' Active Job, to run jobs that Rails enqueues, or for Rails to run.

            @app.active_job("WelcomeJob", queue="mailers")
            def welcome(user: GlobalID, *, locale: str = "en") -> None: ...

        The function gets the arguments of `perform_later`, keyword arguments as such. Symbols,
        times, durations, records and the like arrive as values of `jobwire.active_job`. A record
        is only a reference, which the job looks up by itself. `enqueue` writes a job as Rails does.
        `retry_on` and `discard_on` of a class in Ruby have no effect here; the options of the
        payload decide about a failure. [X-AJ-1]

        Args:
            name: Class of the job in Rails.
            timeout: See `job`.
            isolated: See `job`.
            on_commit: See `job`.
            redis: See `job`.
            **options: Options of the jobs that Python enqueues; see `Options`.

        Raises:
            ConfigError: The name is taken, the function cannot be a job, or an option is invalid.
        """
        from jobwire.application.active_job import ActiveJobType  # seldom used

        def define(function: Callable[P, R]) -> JobType[P, R]:
            check_function(function, name, iterable=False)
            _check_timeout(name, timeout)
            make = partial(
                ActiveJobType[P, R],
                timeout=timeout,
                isolated=isolated,
                on_commit=on_commit,
                redis=redis,
            )
            return self._define(make, function, name, options)

        return define

    def find(self, fields: Mapping[str, Any]) -> JobType[..., Any] | None:
        """Return the definition that runs a payload; None if there is none. [EXEC-2] [X-AJ-1]"""
        name = fields.get("class")
        definition = self.jobs.get(name) if isinstance(name, str) else None
        if definition is None:
            definition = self.jobs.get(active_job.class_of(fields))
            return definition if definition is not None and definition.active_job else None
        # A payload of the class itself has no arguments of Active Job.
        return None if definition.active_job else definition

    def periodic(
        self,
        cron: str,
        *,
        tz: str | None = None,
        args: Sequence[Any] = (),
        name: str | None = None,
        description: str = "",
        enabled: bool | None = None,
        catch_up: str = "none",
        overlap: Overlap = "allow",
        date_as_argument: bool = False,
        namespace: str = DEFAULT_NAMESPACE,
        **options: Unpack[Options],
    ) -> Callable[[J], J]:
        """Enqueue a job at each time that a cron line names. A decorator of job types.

            @app.periodic("0 3 * * *", tz="Europe/Berlin", args=["all"])
            @app.job(name="Reports::Nightly")
            def nightly(region: str) -> None: ...

        Any worker of this Redis enqueues it, also one of sidekiq-cron, and each tick only once.

        Args:
            cron: Five fields, or six with the seconds first; a nickname such as `@daily`; or a
                phrase such as `every 5 minutes`. A zone may stand at its end.
            tz: Time zone of the line, like `Europe/Berlin`; UTC if neither names one.
            args: Arguments of the job.
            name: Name of the entry; the default is the class of the job.
            description: A text for people.
            enabled: None keeps the status that people gave it; a new entry is enabled.
            catch_up: For ticks that no worker enqueued within 60 s: `none` leaves them out, `last`
                enqueues the latest one, `all` up to 1,000 of them, `all:MAX` up to MAX.
            overlap: `skip` enqueues no job while the one before is in its queue or runs.
            date_as_argument: Add the time of the push, in seconds, as the last argument.
            namespace: Namespace of the entry in sidekiq-cron 2.
            **options: Options of these jobs, besides those of the job type; see `Options`.

        Raises:
            ConfigError: The line, the zone, an argument or an option is invalid.
        """

        from jobwire.periodic.schedule import check  # slow to load for a program that only enqueues

        def add(job: J) -> J:
            if not isinstance(job, JobType):
                raise ConfigError(
                    f"@app.periodic is for job types, and {job!r} is not one; put it above @app.job"
                )
            given = [*args, 0.0] if date_as_argument else args
            bound = job.parameters.bind(tuple(given), {})
            entry = PeriodicEntry(
                name=job.name if name is None else name,
                cron=cron,
                job=job.name,
                args=bound[: len(args)],
                namespace=namespace,
                description=description,
                enabled=enabled,
                options=cast("Options", {**job.defaults, **options}),
                date_as_argument=date_as_argument,
                catch_up=catch_up,
                overlap=overlap,
                active_job=job.active_job,
            )
            self.periodic_entries.append(check(entry, tz=tz))
            return job

        return add

    def batch(
        self,
        *,
        on_success: Call | None = None,
        on_complete: Call | None = None,
        on_death: Call | None = None,
        description: str = "",
        parent: Batch | None = None,
    ) -> NewBatch:
        """Return a batch, for a `with` or `async with` block that adds its members.

            with app.batch(on_success=report.s(7)) as batch:
                batch.add_all(resize.s(picture) for picture in pictures)

        A callback is pushed in the step that stores the end of the member that it waits for, once.

        Args:
            on_success: The job to push when every member has succeeded.
            on_complete: The job to push when every member has ended: it succeeded, died, was
                deleted, cancelled or dropped.
            on_death: The job to push when the first member dies.
            description: Text for people.
            parent: The batch that it is in, which waits for its end; None if it is in none.

        Raises:
            BatchEnded: At the begin of the block: the parent is complete, cancelled or gone.
            ConfigError: A callback is not a job with its arguments, the parent is not a batch, or
                is inside seven others; or, at the begin of the block, the callbacks are in several
                queues.
        """
        calls = {"on_success": on_success, "on_complete": on_complete, "on_death": on_death}
        return NewBatch(self, calls, description, self.choose(""), parent)

    def find_batch(self, batch_id: str) -> Batch | None:
        """Return a batch by its id; None if it is gone."""
        for redis in self._choose_all():
            if (status := Batch(self, batch_id, "", redis).status()) is not None:
                return Batch(self, batch_id, status.queue, redis, status.parent)
        return None

    async def afind_batch(self, batch_id: str) -> Batch | None:
        """Return a batch by its id; see `find_batch`."""
        for redis in self._choose_all():
            if (status := await Batch(self, batch_id, "", redis).astatus()) is not None:
                return Batch(self, batch_id, status.queue, redis, status.parent)
        return None

    def current_batch(self) -> Batch | None:
        """Return the batch of the running job, its member or its callback; None outside of one."""
        job = current_job()
        member = None if job is None else batch_of(job.fields)
        if member is None:
            return None
        return Batch(self, member.batch, member.queue, self.served, member.parent)

    def on(self, event: Event) -> Callable[[C], C]:
        """Register a function that is called, without arguments, at an event. A decorator.

            @app.on("startup")
            def open_pool() -> None: ...

        `startup`: before the first job; an error ends the worker. `quiet`: the worker starts no
        more jobs. `shutdown`: the worker stops, and jobs may still run. `exit`: right before the
        end of the process. `heartbeat`: the worker has registered in Redis, at its start or after
        an outage. `beat`: every ten seconds. Errors are logged, except in `startup`. The functions
        for `quiet`, `shutdown` and `exit` are called in reverse order.
        """
        return self.events.adder(event)

    def on_death(self, handler: D) -> D:
        """Register `handler(job, error)` for each job that will not be tried again. A decorator.

        It is called after the job is stored in the dead set, or when it is discarded. A discarded
        job has `discarded_at`. [RETRY-13]
        """
        self.death_handlers.append(check_hook("app.on_death", handler, "job", "error"))
        return handler

    def on_expired(self, handler: X) -> X:
        """Register `handler(job)` for each job that came after its `expires_in`. A decorator.

        The job did not run, and is dropped. An error in the handler is logged. [X-TIME-3]
        """
        self.expired_handlers.append(check_hook("app.on_expired", handler, "job"))
        return handler

    def on_error(self, handler: E) -> E:
        """Register `handler(job, error)` for each execution that fails. A decorator.

        It is not called for a `TryAgain` of a job that is tried again, nor for a payload that
        cannot be decoded: that is not a job, goes to the dead set unchanged, and is an ERROR in
        the log. [EXEC-3]
        """
        self.error_handlers.append(check_hook("app.on_error", handler, "job", "error"))
        return handler

    @overload
    def wrap(self, around: A, /) -> A: ...

    @overload
    def wrap(self, around: None = None, /, *, outermost: bool) -> Callable[[A], A]: ...

    def wrap(self, around: A | None = None, /, *, outermost: bool = False) -> A | Callable[[A], A]:
        """Register a context manager `around(job)` to enter around each execution. A decorator.

        It is for the needs of frameworks: new database connections, reloaded code, a request
        context. It works for sync and async jobs.

        Args:
            around: The context manager.
            outermost: True to enter it outside of the server middleware. For an isolated job it is
                then entered in the worker, not in the process of the job.
        """
        wrappers = self.outermost if outermost else self.around

        def add(around: A) -> A:
            wrappers.append(check_around(around))
            return around

        return add if around is None else add(around)

    def propagate(self, field: str = "jw_context", /, **variables: ContextVar[Any]) -> None:
        """Carry context variables from the code that enqueues a job to the job.

            app.propagate(tenant=current_tenant, locale=current_locale)

        The payload holds their values under the given names, so they must be JSON values. A
        variable without a value is left out.

        Args:
            field: The payload field. The field `cattr`, which Ruby writes, is never changed.
            **variables: Name in the payload to variable.
        """
        propagation = Propagation(field, variables)
        self.client_middleware.prepend(propagation.attach)
        self.around.insert(0, propagation.restore)

    def current_attributes(self, field: str = "cattr", /, **variables: ContextVar[Any]) -> None:
        """Restore context variables from the current attributes of Rails that a job carries.

            app.current_attributes(user_id=current_user_id, tenant=current_tenant)

        The field is never written: retries keep it, and jobs that a job enqueues do not get it;
        see `propagate` for those. Values of Sidekiq 8 arrive as those of Active Job do, such as
        `Symbol` and `GlobalID`. If they cannot be read, the job fails.

        Args:
            field: The payload field; that of a second class of attributes is `cattr_1`.
            **variables: Name of the attribute to variable.
        """
        self.around.insert(0, CurrentAttributes(field, variables).restore)

    def sidekiq_status(self, *classes: str, keep: int = 1800) -> None:
        """Write the status of jobs in the form of sidekiq-status. [X-ADDON-19] to [X-ADDON-21]

            app.sidekiq_status("Reports::Monthly")

        Ruby and its page then see a job of Python as `queued` from its push on, as `working`,
        `complete`, `retrying` or `failed`, and the values of `report_progress` as `at`, `total` and
        `message`. A job that Ruby asks to stop is cancelled within 15 s, as by `cancel`. A push
        and a start cost a message to Redis more. Call it before the first push.

        Args:
            *classes: Names of the classes, as they are in payloads; none for all jobs of the app.
            keep: Seconds to keep a status after its last change.

        Raises:
            ConfigError: The time is not a whole number of seconds, 1 or more.
        """
        if type(keep) is not int or keep < 1:
            raise ConfigError(f"sidekiq_status: keep is {keep!r}; pass whole seconds, 1 or more")
        self.transport.ruby_status = RubyStatus(keep, frozenset(classes))

    def iterable(
        self, *, name: str | None = None, redis: str = "", **options: Unpack[IterableOptions]
    ) -> Callable[[Callable[Concatenate[Cursor, P], _Items]], JobType[P, None]]:
        """Define a job from a generator function that yields its position.

            @app.iterable(name="TouchAll")
            def touch_all(cursor: Cursor, shop: int) -> Iterator[object]:
                for row, at in over_rows(cursor, ...):
                    yield at
                    touch(row)

        Its first parameter is the cursor, the others are the parameters of the job. If the worker
        stops, it interrupts the job at a `yield`, and another worker resumes it there. [ITER-3]
        [ITER-5]

        Args:
            name: Wire class; see `job`.
            redis: See `job`.
            **options: Options of every job of this type; see `IterableOptions`.

        Raises:
            ConfigError: As for `job`; also if the function never yields or has no cursor.
        """

        def define(
            function: Callable[Concatenate[Cursor, P], _Items],
        ) -> JobType[P, None]:
            check_function(function, name, iterable=True)
            spec, common_options = define_iterable(function, options)
            make = partial(JobType[P, None], redis=redis, iterable=spec)
            return self._define(make, spec.here(), name, common_options)

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
            raise ConfigError(
                f"job name {wire_name!r} is not a class name; write a name like 'HardJob'"
            )
        if wire_name in self.jobs:
            other = self.jobs[wire_name].function
            raise ConfigError(
                f"job {wire_name!r} is defined twice, by {place(other)} and "
                f"{place(function)}; give one of them another name='...'"
            )
        _check_options(f"job {wire_name!r}", options)
        own = self._routed(wire_name, options)
        defined = make(self, wire_name, function, own)
        check_redelivery(wire_name, defined.redeliver, own)
        if defined.redis and defined.redis not in self.redis:
            known = ", ".join(sorted(self.redis)) or "none"
            raise ConfigError(
                f"job {wire_name!r}: redis {defined.redis!r} is not a name of this application "
                f"(its names: {known}); add App(redis={{{defined.redis!r}: URL}})"
            )
        self.jobs[wire_name] = defined
        return defined

    def _routed(self, name: str, options: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the options of a job type with those of the application and its queue."""
        own = self._with_defaults(options)
        if self._route is None or "queue" in options:
            return own
        queue = self._route(name, own)
        if queue is None:
            return own
        _check_options(f"job {name!r}: route", {"queue": queue})
        return {**own, "queue": queue}

    def _with_defaults(self, options: Mapping[str, Any]) -> Mapping[str, Any]:
        defaults: dict[str, Any] = {**self.defaults}
        if not options.keys().isdisjoint(_RETRIES):  # two ways to say how often to retry
            defaults = {name: value for name, value in defaults.items() if name not in _RETRIES}
        return {**defaults, **options}


def _check_timeout(name: str | None, timeout: float | None) -> None:
    if timeout is not None and not 0 < timeout < MAX_WAIT_S:
        raise ConfigError(f"job {name!r}: timeout {timeout!r} is not above 0 seconds")


def _check_options(subject: str, options: Mapping[str, Any]) -> None:
    try:
        check_options(options)
    except PayloadError as error:
        raise ConfigError(f"{subject}: {error}") from None
