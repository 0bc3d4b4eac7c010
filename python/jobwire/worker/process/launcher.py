"""The launcher owns a worker process: boots it, quiets it, stops it."""

from __future__ import annotations

import inspect
import logging
import math
import os
import random
import secrets
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from jobwire._version import __version__
from jobwire.application.app import App
from jobwire.application.config import WorkerConfig
from jobwire.application.hooks import Callback, Event
from jobwire.application.producer import make_producer
from jobwire.application.redis_url import find_address
from jobwire.connection.cluster import keys_at
from jobwire.connection.sync import SyncRedis
from jobwire.errors import ConfigError, NoReply, RedisRefused, RedisTrouble, RedisUnreachable
from jobwire.monitoring.figures import Classes, ClassFigures, Figures, merged
from jobwire.periodic.cron import available
from jobwire.protocol import gitlab, permissions
from jobwire.protocol.dead_set import DeadSetLimits
from jobwire.protocol.heartbeat import LEASE_S, Work, process_info
from jobwire.protocol.key_types import explained
from jobwire.protocol.metrics import Metrics
from jobwire.protocol.ordering import QueueOrder, expand, is_pattern
from jobwire.protocol.placement import read_states
from jobwire.protocol.server import ServerInfo, check_server
from jobwire.protocol.times import Generation
from jobwire.protocol.wire import Op, command, once
from jobwire.text import counted
from jobwire.worker.background.canceller import Canceller
from jobwire.worker.background.heartbeat import HeartbeatThread, rss
from jobwire.worker.background.periodic import PeriodicThread
from jobwire.worker.background.poller import Poller
from jobwire.worker.background.unparking import Unparker
from jobwire.worker.base.outage import next_pause
from jobwire.worker.base.ticker import Ticker
from jobwire.worker.base.timings import DEFAULT_TIMINGS, Timings
from jobwire.worker.execute.compiled_job import CancelledIds, JobTable
from jobwire.worker.execute.event_loop import CLEANUP_TIMEOUT_S, AsyncLoop
from jobwire.worker.execute.grouping import Groups
from jobwire.worker.execute.hand_over import HandOver
from jobwire.worker.execute.iterating import Iterations
from jobwire.worker.execute.limiting import Limits
from jobwire.worker.execute.outcome_policy import OutcomePolicy
from jobwire.worker.fetch.other_pauses import OtherPauses
from jobwire.worker.outcome.ended_progress import EndedProgress
from jobwire.worker.outcome.immediate_sink import ExecutionCounts
from jobwire.worker.process.capsule import Capsule
from jobwire.worker.process.fetch_mode import (
    BasicMode,
    CustomMode,
    FetchMode,
    ReliableMode,
    SharedParts,
)
from jobwire.worker.process.progress import Part, Progress

if TYPE_CHECKING:
    from jobwire.worker.execute.isolation_parent import Isolation

__all__ = ["Launcher"]

START_PATIENCE_S = 10.0  # for lost connections, once the server has answered

T = TypeVar("T")

_log = logging.getLogger("jobwire.worker")


class Launcher:
    """A worker: `start`, perhaps `quiet`, then `stop`.

    Args:
        app: The jobs that can be run, and the Redis to use.
        config: Settings of the worker.
        on_signal: Called with the name of a signal that arrived through Redis; None: the worker
            obeys, and the program goes on. [SIG-4]
        on_broken: Called when async jobs cannot run any more, so that the process must end.
        timings: Waiting times of its parts; tests pass shorter ones.

    Attributes:
        identity: `<host>:<pid>:<12 hex digits>`, its name in Redis. [BEAT-6] [BEAT-18]
    """

    def __init__(
        self,
        app: App,
        config: WorkerConfig,
        *,
        on_signal: Callable[[str], None] | None = None,
        on_broken: Callable[[], None] = lambda: None,
        timings: Timings = DEFAULT_TIMINGS,
    ) -> None:
        app.load()
        self.app = app
        self.config = config
        self._timings = timings
        self.fetch: str = config.fetch
        hostname = os.environ.get("DYNO") or socket.gethostname()
        self.identity = f"{hostname}:{os.getpid()}:{secrets.token_hex(6)}"
        url = find_address(app.served_url).url
        self._keys = keys_at(url, app.namespace)
        self._producer = make_producer(self._keys, app.generation, app.strict_args, ())
        self._redis = SyncRedis(url, role="worker", timeout=timings.redis_timeout)
        self._server: ServerInfo | None = None
        self._generation: Generation = 8
        self._quiet = threading.Event()
        self._withdrawn = False  # True once no more jobs are fetched
        self._ticker = Ticker(tick=timings.tick)
        self._counts = ExecutionCounts()
        pauses = None
        if config.honour_paused == "pro":
            pauses = OtherPauses(self._redis, self._keys.pro_paused)
        shared = SharedParts(self._redis, self._keys, timings, self._dead_limits, self._counts)
        self._mode: FetchMode
        if app.fetcher is not None:
            self.fetch = "custom"
            self._mode = CustomMode(shared, app.fetcher)
        elif config.fetch == "basic":
            self._mode = BasicMode(shared, pauses)
        else:
            self._mode = ReliableMode(
                shared,
                pauses,
                identity=self.identity,
                ticker=self._ticker,
                renew_lease=lambda: self._heartbeat.beat(),
                taken=self._taken,
            )
        self._metrics = Metrics()
        self._flushing = threading.Lock()  # `_metrics` must not be flushed by two threads at a time
        self._loop = AsyncLoop(on_broken)
        self._isolation = _isolation(app, config)
        iterations = Iterations(
            self._redis,
            self._keys,
            stopping=self._quiet.is_set,
            max_runtime=config.max_iteration_runtime,
        )
        self._job_table = JobTable(
            *(app, self._loop, self._isolation, iterations, config.foreign),
            parks_unknown=config.unknown_jobs == "park",
            hand_over=config.hand_over,
            groups=Groups(self._redis, self._keys, lambda: self._generation).run,
        )
        ended_progress = EndedProgress()
        self._limits = Limits(self._redis, self._keys, lease=timings.slot_lease)
        self._cancelled_ids = CancelledIds()
        outcome_policy = OutcomePolicy(
            app,
            self._keys,
            self._mode.sink,
            lambda: self._generation,
            max_retries=config.max_retries,
            poison_limit=config.poison_limit,
            retries_unknown=config.unknown_jobs != "sidekiq",
            hand_over=HandOver(self._redis, self._keys, self.identity),
            ended_progress=ended_progress,
            redis=self._redis,
            limits=self._limits,
            cancelled_ids=self._cancelled_ids,
        )
        self._capsules = []
        for name, capsule_config in config.capsules.items():
            order = QueueOrder(capsule_config.queues)
            capsule = Capsule(
                name,
                order,
                capsule_config.concurrency,
                self._mode.make_source(order, capsule_config.concurrency),
                sink=self._mode.sink,
                job_table=self._job_table,
                outcome_policy=outcome_policy,
                metrics=self._metrics,
                loop=self._loop,
                ticker=self._ticker,
                cancelled_ids=self._cancelled_ids,
            )
            self._capsules.append(capsule)
        self._canceller = Canceller(self._redis, self._keys, self._cancel, timings)
        self._beaten_at = 0.0  # monotonic
        self._stopping = threading.Lock()
        self._put_back: int | None = None  # the number of jobs, once the worker has stopped
        self._classes = Classes()
        self._entries = Classes()  # of periodic jobs
        self._progress = Progress(self._parts(), limit=timings.stuck_after)
        self._describe = partial(
            process_info,
            identity=self.identity,
            hostname=hostname,
            pid=os.getpid(),
            started_at=time.time(),
            tag=config.tag,
            labels=config.labels,
            capsules=[capsule.shape for capsule in self._capsules],
            version=f"jobwire {__version__}",
        )
        self._periodic = self._make_periodic()
        self._heartbeat = HeartbeatThread(
            self._redis,
            self._keys,
            self.identity,
            info=self._describe(),
            concurrency=config.concurrency,
            works=self.works,
            ended_progress=ended_progress,
            quiet=self._quiet.is_set,
            classes=lambda: () if self._withdrawn else app.jobs,
            on_signal=on_signal or self._obey,
            on_beat=self._on_beat,
            beside=[
                ("search for old processes", self._ask_generation),
                ("search for missed cancellations", self._canceller.look),
                ("search for missed due jobs", lambda: self._poller.look()),
                *([] if self._periodic is None else self._periodic.looks),
                *(("search for missed jobs", look) for look in self._mode.looks),
            ],
            stuck=self._progress.stuck,
            unpark=Unparker(self._keys, self._knows, self._served_queues).look,
            audit=self._mode.audit,
            timings=timings,
        )
        self._poller = Poller(
            self._redis,
            self._keys,
            interval=config.poll_interval,
            precise=config.precise,
            generation=lambda: self._generation,
            dead_limits=self._dead_limits,
            timings=timings,
            beside=self._canceller.watch,
        )

    @property
    def url(self) -> str:
        """URL of the Redis server."""
        return self._redis.url

    def stuck(self) -> str:
        """Return the reason that this process does not work and must be restarted, or ""."""
        silent = time.monotonic() - self._heartbeat.turned_at
        if silent > self._timings.stuck_after:
            return f"heartbeat thread stuck for {silent:.0f} s"
        return self._progress.stuck()

    @property
    def busy(self) -> bool:
        """True if any job runs, or a handler of its end does."""
        return any(capsule.busy for capsule in self._capsules)

    def works(self) -> Mapping[str, Work]:
        """Return the work records of the running jobs, by thread id."""
        return {tid: work for capsule in self._capsules for tid, work in capsule.works().items()}

    @property
    def fetching(self) -> bool:
        """True from the start until the worker is quiet."""
        return self._beaten_at > 0 and not self._quiet.is_set()

    @property
    def seconds_since_heartbeat(self) -> float:
        """Seconds since the last heartbeat that reached Redis; infinite before the first one."""
        return time.monotonic() - self._beaten_at if self._beaten_at else math.inf

    def figures(self) -> Figures:
        """Return the numbers of this process since its start, for monitoring."""
        return Figures(
            self._classes.limit(_by_name(self._metrics)),
            fetches=sum(capsule.fetches for capsule in self._capsules),
            executing=len(self.works()),
            concurrency=self.config.concurrency,
            unstored=self._mode.unstored,
            memory=rss() * 1024,
            processes=1,
            ticks={}
            if self._periodic is None
            else self._entries.limit(_by_name(self._periodic.lateness)),
        )

    def check_server(self) -> ServerInfo:
        """Return what the server is; ask it only until it has answered once.

        Raises:
            UnfitServer, RedisTrouble: As `start`, for the server as it is now.
        """
        if self._server is None:
            info = self._redis.run(check_server(self._keys))
            try:  # a write without effect: the server may answer, and take no writes for a while
                self._redis.run(once(command("ZADD", self._keys.returned_at, "XX", 0, "x")))
            except RedisRefused as error:
                if error.temporary:
                    raise
            self._server = info
        return self._server

    def start(self) -> ServerInfo:
        """Check the server, then start; return when jobs are being fetched.

        Raises:
            UnfitServer: The server is too old, for example. [ENV-1]
            RedisTrouble: The server cannot be used.
            ConfigError: Isolated jobs cannot be run.
            Exception: The error that a callback for `startup` raised.
        """
        with ExitStack() as undo:  # a start that fails halfway is undone
            undo.callback(self._redis.close)
            # A server that cannot be reached at all is an error now.
            info = _patiently(self.check_server, (NoReply,))
            for warning in info.warnings:
                _log.warning(warning)
            if self.fetch == "reliable":
                self._warn_of_refused()
            if info.restored:
                self._heartbeat.doubt_leases("Redis has restarted with its data")
            _patiently(self._expand_queues)
            self._generation = _patiently(self._find_generation)
            for callback in self.app.events.callbacks("startup"):
                self._call(callback)
            if self._isolation is not None:
                undo.callback(self._isolation.close)
                self._isolation.start()
            self._ticker.start()
            undo.callback(self._ticker.close)
            undo.callback(self._heartbeat.leave_quietly)
            _patiently(self._heartbeat.start)  # before the first fetch, which needs a lease [REL-3]
            undo.pop_all()
        self._job_table.announce()
        self._canceller.start()
        for capsule in self._capsules:
            capsule.start()
        self._poller.start()
        if self._periodic is not None:
            self._periodic.start()
        return info

    def _parts(self) -> dict[str, Part]:
        """Return the parts of the process that have to make progress."""

        def threads(capsule: Capsule) -> Part:
            # A restart does not help a thread that waits for Redis.
            return lambda: capsule.step() if self._heartbeat.reaches else None

        parts: dict[str, Part] = {"ticker": self._ticker.step}
        for capsule in self._capsules:
            name = capsule.shape.name
            parts[f"fetching of capsule {name}"] = capsule.fetch_step
            parts[f"each thread of capsule {name}"] = threads(capsule)
        return parts

    def _expand_queues(self) -> None:
        """Replace patterns such as `mail:*` by the queues that Redis and the application know."""
        capsules = self.config.capsules
        given = [name for each in capsules.values() for name in each.queues]
        if not any(map(is_pattern, given)):
            return
        members = self._redis.run(once(command("SMEMBERS", self._keys.queues)))
        known = {member.decode("utf-8", "replace") for member in members} | self.app.queues.keys()
        for capsule in self._capsules:
            capsule.shape.order.change(expand(capsule.shape.order.weights, known, given))
        self.config = replace(
            self.config,
            capsules={
                capsule.shape.name: replace(
                    capsules[capsule.shape.name], queues=capsule.shape.order.weights
                )
                for capsule in self._capsules
            },
        )
        self._heartbeat.info = self._describe()
        for name in (name for each in self.config.capsules.values() for name in each.queues):
            if is_pattern(name):
                _log.warning("no queue matches %r yet; restart the worker when there is one", name)

    def _cancel(self, ids: Collection[str]) -> None:
        """Refuse and end jobs that were cancelled. [X-CANCEL-3] [X-CANCEL-7]"""
        self._cancelled_ids.ids = ids
        for capsule in self._capsules:
            capsule.cancel(ids)

    def _look_at_gitlab(self) -> None:
        """End the running jobs that GitLab has cancelled. [X-ADDON-16]"""
        jobs = [work.job for work in self.works().values()]
        jids = [job.jid for job in jobs if job and job.jid and gitlab.is_of_gitlab(job.fields)]
        if jids and (ids := self._redis.run(gitlab.cancelled(self._keys, jids))):
            self._cancelled_ids.by_gitlab.update(ids)
            for capsule in self._capsules:
                capsule.cancel(ids)

    def _share_status(self) -> None:
        """Write how far running jobs are as sidekiq-status does, and end those that Ruby stops.

        [X-ADDON-19] [X-ADDON-21]
        """
        if (status := self.app.transport.ruby_status) is None:
            return
        jobs = {
            job.jid: job.progress
            for job in (work.job for work in self.works().values())
            if job and job.jid and status.covers(job.display_class)
        }
        if jobs and (ids := self._redis.run(status.goes_on(self._keys, jobs, time.time()))):
            for capsule in self._capsules:
                capsule.cancel(ids)

    def _warn_of_refused(self) -> None:
        """Log each command of the scripts that the server refuses to this user. [SEC-3]"""
        queue = next(name for each in self.config.capsules.values() for name in each.queues)
        tried = permissions.of_scripts(self._keys, self.identity, queue)
        try:
            found = self._redis.run(permissions.refused(tried))
        except RedisTrouble:
            return  # the start finds it also, and says it
        for name, reply in found.items():
            _log.error(
                "Redis refuses %s to this user, so jobs can stay where they are: add the rule +%s, "
                "and those of SEC-3 for keys: %s",
                name,
                name.lower(),
                reply.message,
            )

    def _find_generation(self) -> Generation:
        try:
            return self._redis.run(self._producer.generation())
        except RedisRefused as error:
            raise self._redis.run(explained(error, self._keys, self.identity)) from None

    def _ask_generation(self) -> Op[None]:
        self._generation = yield from self._producer.generation()

    def quiet(self) -> None:
        """Start and promote no more jobs; running jobs go on. Cannot be undone.

        [SIG-2] [SIG-8] [SIG-9]
        """
        if self._quiet.is_set():
            return
        self._quiet.set()
        self._poller.close(timeout=0)
        if self._periodic is not None:
            self._periodic.close(timeout=0)
        for capsule in self._capsules:
            capsule.quiet()
        self._withdrawn = True  # after the last fetch [X-CLASS-2]
        _log.info("quiet: no more jobs are started")
        self._fire("quiet")

    def stop(self) -> int:
        """Stop within `config.timeout` plus a few seconds; return how many jobs were put back.

        A further call waits for the end of the first one, and returns the same.

        Jobs that do not end in time are put back first, to run next, and then interrupted, so
        that each of them is in Redis at any time. [SIG-5] Outcomes that the server refuses are
        tried for a few seconds more, and the last counters are written before the process leaves.
        [SIG-7] [SIG-12] [STAT-5] [MET-12]
        """
        with self._stopping:
            if self._put_back is None:
                self._put_back = self._stop()
            return self._put_back

    def _stop(self) -> int:
        deadline = time.monotonic() + self.config.timeout
        self.quiet()
        self._fire("shutdown")
        self._poller.close(timeout=max(deadline - time.monotonic(), 0))
        if self._periodic is not None:
            self._periodic.close(timeout=max(deadline - time.monotonic(), 0))
        put_back = 0
        ended = [capsule.wait(deadline) for capsule in self._capsules]
        if not all(ended):
            put_back = self._hard_stop()
        self._canceller.stop()
        self._mode.close()
        self._ticker.close()
        try:
            self._on_beat()
        except RedisTrouble as error:
            _log.warning("last statistics lost: %s", error)
        self._canceller.close(timeout=CLEANUP_TIMEOUT_S)
        self._heartbeat.leave_quietly()
        if self._isolation is not None:
            self._isolation.close()
        self._fire("exit")
        self._loop.close(self.app.aclose)
        self._poller.close(timeout=CLEANUP_TIMEOUT_S)  # otherwise it might open a connection again
        if self._periodic is not None:
            self._periodic.close(timeout=CLEANUP_TIMEOUT_S)
        # As late as possible: threads that were interrupted may just be ending.
        if not any(capsule.alive for capsule in self._capsules):
            self._limits.close()
        self._redis.close()
        if not any(capsule.alive for capsule in self._capsules):
            # An interruption may have hit a job inside logging, whose lock is then never
            # released: with such threads left, a call of the log may never return.
            _log.info("stopped")
        return put_back

    def _obey(self, name: str) -> None:
        """Do what a signal through Redis asks of a worker inside a program. [SIG-6]"""
        match name:
            case "TSTP":
                self.quiet()
            case "TERM" | "INT":
                _log.info("%s from Redis: the worker in this program stops", name)
                # Not in this thread, which is the heartbeat's: the stop waits for its end.
                threading.Thread(target=self.stop, name="jobwire-stop", daemon=True).start()
            case "TTIN":
                self.dump()
            case _:
                _log.warning("unknown signal %.20r from Redis; ignored", name)

    def abandon(self) -> None:
        """Put back what can be put back, for a process that ends at once. It writes no log."""
        for capsule in self._capsules:
            with suppress(RedisTrouble):
                capsule.put_back()

    def dump(self) -> None:
        """Write the stack of every thread and task to the log. [SIG-3]"""
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        for ident, frame in sys._current_frames().items():
            stack = "".join(traceback.format_stack(frame)).rstrip()
            _log.warning("thread %s", names.get(ident, ident), extra={"stack": stack})
        for name, stack in self._loop.stacks().items():
            _log.warning("task %s", name, extra={"stack": stack})

    def _hard_stop(self) -> int:
        count = 0
        for capsule in self._capsules:
            try:
                count += capsule.put_back()
            except RedisTrouble as error:
                _log.error("unfinished jobs were not put back: %s", error)
        _log.warning("time is up: put back %s", counted(count, "unfinished job"))
        self._mode.give_up()
        for capsule in self._capsules:
            capsule.interrupt()
        cleanup = time.monotonic() + CLEANUP_TIMEOUT_S
        for capsule in self._capsules:
            capsule.wait(cleanup)
        return count

    def _on_beat(self) -> None:
        now = time.monotonic()
        if not self._beaten_at or now - self._beaten_at > LEASE_S:
            self._fire("heartbeat")  # this process is new in Redis, or its entry had expired
        self._beaten_at = now
        self._redis.trim()
        self._limits.renew()
        self._fire("beat")
        self._look_at_gitlab()
        self._share_status()
        self._counts.flush(self._redis, self._keys)
        with self._flushing:  # the thread that stops the worker and the heartbeat thread come here
            self._redis.run(
                self._metrics.flush(self._keys, now=time.time(), generation=self._generation)
            )
        if self.app.served in self.app.shards:  # last, because a user of Redis may lack the right
            with suppress(RedisRefused):
                self.app.learn_states(self._redis.run(read_states(self._keys)))

    def _fire(self, event: Event) -> None:
        """Call the application's callbacks for an event; errors are logged."""
        for callback in self.app.events.callbacks(event):
            try:
                self._call(callback)
            except BaseException:  # noqa: BLE001 - the worker goes on, even if it was sys.exit
                _log.exception("callback for %s failed", event)

    def _call(self, callback: Callback) -> None:
        result = callback()
        if inspect.iscoroutine(result):
            self._loop.run(result)

    def _dead_limits(self) -> DeadSetLimits:
        return DeadSetLimits(time.time(), self.config.dead_limit, self.config.dead_max_age)

    def _make_periodic(self) -> PeriodicThread | None:
        """Return the thread that takes ticks; None if it is turned off or cannot read lines."""
        if not self.config.periodic:
            return None
        self.app.follow_states()  # which shard has the ticks
        entries = self.app.served_entries(self.config.schedule)
        if not available():
            if entries:
                raise ConfigError(
                    f"{counted(len(entries), 'periodic job')} cannot run: "
                    "pip install 'jobwire[periodic]', or turn the setting periodic off"
                )
            return None
        return PeriodicThread(
            self._redis,
            self._keys,
            generation=lambda: self._generation,
            precise=self.config.precise,
            schedule=self.app.schedule,
            # An entry that has moved to another shard is removed from this one.
            entries=entries if entries or self._has_moving_entries else None,
            timings=self._timings,
        )

    @property
    def _has_moving_entries(self) -> bool:
        defined = self.app.periodic_entries or self.config.schedule
        return self.app.served in self.app.shards and bool(defined)

    def _knows(self, fields: Mapping[str, Any]) -> bool:
        return self.app.find(fields) is not None

    def _served_queues(self) -> set[str]:
        return {name for capsule in self._capsules for name in capsule.shape.order.weights}

    def _taken(self) -> list[str]:
        return [field for capsule in self._capsules for field in capsule.known_fields()]


def _by_name(metrics: Metrics) -> dict[str, ClassFigures]:
    """Return counts of a process for monitoring."""
    return {
        name: ClassFigures(each.total, each.failed, each.microseconds / 1e6, merged(each.histogram))
        for name, each in metrics.executions().items()
    }


def _patiently(
    step: Callable[[], T], lost: tuple[type[RedisTrouble], ...] = (NoReply, RedisUnreachable)
) -> T:
    """Return the result of a step of the start, which is repeated if the connection is lost."""
    began = time.monotonic()
    while True:
        try:
            return step()
        except lost as error:
            lasted = time.monotonic() - began
            if lasted > START_PATIENCE_S or getattr(error, "refused", False):
                raise
            _log.warning("connection lost during the start, which goes on: %s", error)
            time.sleep(next_pause(lasted, jitter=random.random()))


def _isolation(app: App, config: WorkerConfig) -> Isolation | None:
    """Return the pool of isolated jobs; None, without the import, if there are no such jobs."""
    isolated = [job for job in app.jobs.values() if job.isolated]
    if not isolated:
        return None
    from jobwire.worker.execute.isolation_parent import Isolation

    return Isolation(isolated, size=config.concurrency, entry=app.entry)
