"""Mistakes of mutants that a change of the traffic cannot make, for the reference implementation.

The variable JOBWIRE_MUTATE names one of the functions.
"""

from __future__ import annotations

import json
import os
import random
import sys
import threading
import time
from contextlib import suppress
from dataclasses import replace
from typing import Any

from msgspec import structs

from jobwire import Client
from jobwire.application import job_writer, middleware
from jobwire.connection.connection import Connection
from jobwire.connection.pool import ConnectionPool
from jobwire.errors import NoReply, RedisRefused, RedisTrouble
from jobwire.inspect import Inspector, sets
from jobwire.periodic import planning
from jobwire.periodic.cron import CronLine
from jobwire.protocol import chains, output, periodic, progress, pushing, retry
from jobwire.protocol.dead_set import DeadSetLimits
from jobwire.protocol.periodic_entry import StoredEntry
from jobwire.protocol.wire import Batch, command
from jobwire.worker import Timings
from jobwire.worker.background import heartbeat
from jobwire.worker.background.poller import Poller
from jobwire.worker.execute import outcome_policy
from jobwire.worker.fetch.reliable import ReliableFetcher
from jobwire.worker.process import process
from jobwire.worker.process.capsule import Capsule


def push_after_failure() -> None:
    """Push the next job of a chain although the job failed. [X-FLOW-4]"""
    after = outcome_policy.after_decision

    def decided(decision: Any, result: Any) -> Any:
        outcome = after(decision, result)
        return structs.replace(outcome, next=chains.next_job(outcome.text, None, now=1))

    outcome_policy.after_decision = decided


def keep_connection() -> None:
    """Use a connection again before its reply has come. [ENV-5]"""
    Connection.quiet = lambda _: True  # type: ignore[method-assign]
    ConnectionPool.discard = ConnectionPool.release  # type: ignore[method-assign]


def quiet_one_capsule() -> None:
    """Go on fetching for the second capsule. [SIG-2]"""
    quiet = Capsule.quiet

    def quiet_others(self: Capsule) -> None:
        if self.shape.name != "beside":
            quiet(self)

    Capsule.quiet = quiet_others  # type: ignore[method-assign]


def one_slice() -> None:
    """Push all jobs of a bulk in one round trip. [BULK-1]"""
    pushing.JOBS_PER_SLICE = pushing.SCHEDULED_JOBS_PER_SLICE = 1 << 30


def stay_connected() -> None:
    """Repeat a push on the connection that refused it. [PUSH-17]"""
    ConnectionPool.renew = lambda _: None  # type: ignore[method-assign]


def repeat_for_ever() -> None:
    """Push again as long as the server refuses it. [PUSH-22]"""
    push: Any = Client.push

    def push_on(*args: Any, **options: Any) -> Any:
        while True:
            with suppress(RedisRefused):
                return push(*args, **options)

    Client.push = push_on  # type: ignore[method-assign]


def send_again() -> None:
    """Send a push again after its reply was lost. [PUSH-14]"""
    push: Any = Client.push

    def push_twice(*args: Any, **options: Any) -> Any:
        try:
            return push(*args, **options)
        except NoReply:
            return push(*args, **options)

    Client.push = push_twice  # type: ignore[method-assign]


def ignore_stops() -> None:
    """Write a job that middleware stopped. [PUSH-15]"""
    run = middleware.run

    def run_on(chain: Any, item: Any, last: Any) -> Any:
        passed = run(chain, item, last)
        return item if passed is None else passed

    middleware.run = run_on  # type: ignore[assignment]


def go_on() -> None:
    """Send the later slices of a bulk after one that failed. [BULK-18]"""

    def push_all(keys: Any, jobs: Any, confirm: Any = None) -> Any:
        failed: RedisTrouble | None = None
        for part in pushing.slices(jobs):
            try:
                yield from pushing.push(keys, part, confirm)
            except RedisTrouble as error:
                failed = error
        if failed is not None:
            raise failed

    job_writer.push_bulk = push_all


def no_pause() -> None:
    """Try again at once to store an outcome that the server refused. [ENV-11]"""
    interval: Any = property(lambda _: 0.0, lambda *_: None)
    Timings.outcome_retry_interval = interval
    Timings.tick = interval


def wait_least() -> None:
    """Wait for about half of the configured average between two looks. [SCHED-22]"""
    next_wait: Any = lambda poller: poller._interval * (0.5 + random.random() / 10)  # noqa: E731
    Poller._next_wait = next_wait  # type: ignore[method-assign]


def close_late() -> None:
    """Start jobs that a fetch brings within three seconds after the signal. [FETCH-9]"""
    close = ReliableFetcher.close

    def close_later(fetcher: ReliableFetcher) -> None:
        threading.Timer(3.0, close, [fetcher]).start()

    ReliableFetcher.close = close_later  # type: ignore[method-assign]


def put_back_late() -> None:
    """Put jobs back that came after the signal, but five seconds later. [FETCH-9]"""
    put_back = ReliableFetcher._return_unstarted

    def put_back_later(fetcher: ReliableFetcher) -> None:
        time.sleep(5.0)
        put_back(fetcher)

    ReliableFetcher._return_unstarted = put_back_later  # type: ignore[method-assign]


def obey_once_connected() -> None:
    """Ignore signals until the first fetch. [SIG-7]"""
    take, on_signal = ReliableFetcher.take, process._Process._on_signal
    connected = threading.Event()

    def take_on(fetcher: ReliableFetcher, ran: float | None) -> Any:
        connected.set()
        return take(fetcher, ran)

    def on_signal_later(worker: Any, *args: Any) -> None:
        if connected.is_set():
            on_signal(worker, *args)

    ReliableFetcher.take = take_on  # type: ignore[method-assign]
    process._Process._on_signal = on_signal_later  # type: ignore[method-assign]


def read_milliseconds() -> None:
    """Take integer seconds for milliseconds. [GEN-6]"""
    read = retry.read
    retry.read = lambda value: value / 1000 if isinstance(value, int) else read(value)


def keep_the_just_too_old() -> None:
    """Keep the members of `dead` that are just as old as the age. [DEAD-2]"""
    oldest: Any = DeadSetLimits.oldest
    DeadSetLimits.oldest = property(lambda limits: f"({oldest.fget(limits)}")  # type: ignore


def draw_upper_end() -> None:
    """Draw also the number that no draw reaches. [RETRY-4]"""
    delay = retry.retry_delay

    def longer(count: int, *, jitter: float, chosen: float | None = None) -> float:
        base = delay(count, jitter=0.0, chosen=chosen)
        return base + int(jitter * (10 * (count + 1) + 1))

    retry.retry_delay = longer


def never_leave() -> None:
    """Stay until the server has stored the last outcome. [SIG-12]"""
    timeout: Any = property(lambda _: 3600.0, lambda *_: None)
    Timings.outcome_close_timeout = timeout
    process.STOP_GRACE_S = 3600.0  # after which a process ends whose stop hangs


def replace_halves() -> None:
    """Push another character in place of half of a surrogate pair. [PAY-22]"""
    push: Any = Client.push

    def push_replaced(client: Client, name: Any, args: Any, **options: Any) -> Any:
        text = json.dumps(args).replace(r"\ud800", r"\ufffd")
        return push(client, name, json.loads(text), **options)

    Client.push = push_replaced  # type: ignore[method-assign]


def replace_halves_in_options() -> None:
    """Push another character in place of half of a surrogate pair in an option. [PAY-22]"""
    for name in ("push", "push_bulk"):
        push: Any = getattr(Client, name)

        def push_replaced(*args: Any, push: Any = push, **options: Any) -> Any:
            text = json.dumps(options).replace(r"\ud800", r"\ufffd")
            return push(*args, **json.loads(text))

        setattr(Client, name, push_replaced)


def sweep_in_two_steps() -> None:
    """Retry all: remove the members, then push their payloads. [INSP-26]"""

    def promote(_: Any, key: str, moves: Any) -> Any:
        removal = command("ZREM", key, *(one.payload for one, _, _ in moves))
        return Batch([removal, command("LPUSH", "queue:low", *(text for _, _, text in moves))])

    sets._promote = promote


def sweep_on() -> None:
    """Change all members until the set is empty. [INSP-27]"""
    sweep: Any = Inspector.sweep

    def sweep_until_empty(inspector: Inspector, name: Any, *args: Any, **options: Any) -> Any:
        while True:
            swept = sweep(inspector, name, *args, **options)
            if not any(True for _ in inspector.entries(name)):
                return swept

    Inspector.sweep = sweep_until_empty  # type: ignore[method-assign]


def log_nothing() -> None:
    """Write nothing to standard error. [ENV-10] [FETCH-13]"""
    sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - to the end of the process


def tick_later() -> None:
    """Take every tick a second late, as the next second. [X-CRON-10]"""
    before = CronLine.before

    def before_late(line: CronLine, instant: float) -> int | None:
        tick = before(line, instant - 1)
        return None if tick is None else tick + 1

    CronLine.before = before_late  # type: ignore[method-assign]


def give_an_hour() -> None:
    """Take ticks that are up to an hour late. [X-CRON-16]"""
    assert planning.due_ticks.__kwdefaults__ is not None
    planning.due_ticks.__kwdefaults__["grace"] = 3600


def look_ahead() -> None:
    """Take ticks ten seconds before their time. [X-CRON-22]"""
    server_time = periodic.server_time

    def later() -> Any:
        return (yield from server_time()) + 10

    periodic.server_time = later


def fail_on_malformed() -> None:
    """Take no tick at all because one entry is malformed. [X-CRON-27]"""
    find = StoredEntry.problem.fget  # type: ignore[attr-defined]

    def problem(entry: StoredEntry) -> str:
        if found := find(entry):
            raise RedisTrouble(found)
        return ""

    StoredEntry.problem = property(problem)  # type: ignore[assignment,method-assign]


def accept_malformed() -> None:
    """Push for entries that are not valid. [X-CRON-28]"""
    StoredEntry.problem = property(lambda _: "")  # type: ignore[assignment,method-assign]


def keep_both() -> None:
    """Take the ticks of both entries if both layouts have one of a name. [X-CRON-3]"""
    find = StoredEntry.name.fget  # type: ignore[attr-defined]

    def name(entry: StoredEntry) -> str:
        return ("1:" if entry.layout_namespace is None else "") + find(entry)

    StoredEntry.name = property(name)  # type: ignore[assignment,method-assign]


def write_progress_apart() -> None:
    """Write progress before each heartbeat, outside its transaction. [X-PROG-4]"""
    beat = heartbeat.beat

    def beat_later(keys: Any, *given: Any, **options: Any) -> Any:
        *others, sample = given
        yield Batch(progress.writes(keys, sample.progress))
        return (yield from beat(keys, *others, replace(sample, progress={}), **options))

    heartbeat.beat = beat_later


def show_late() -> None:
    """Write that a job waits after it is in its queue. [X-ADDON-20]"""
    send, slices = job_writer.JobWriter.send, job_writer.slices

    def send_first(writer: Any, jobs: Any) -> Any:
        job_writer.slices = lambda _: ()
        refused = yield from send(writer, jobs)
        job_writer.slices = slices
        yield from writer._show(writer._queued(writer.transport.ruby_status, jobs))
        return refused

    job_writer.JobWriter.send = send_first  # type: ignore[method-assign]


def emit_anything() -> None:
    """Emit items of any size. [X-STEP-8]"""
    output.MAX_ITEM_BYTES = 1 << 30  # type: ignore[misc]


_MISTAKES = (
    *(keep_connection, one_slice, stay_connected, send_again, repeat_for_ever),
    *(ignore_stops, quiet_one_capsule, go_on),
    *(no_pause, wait_least, close_late, put_back_late, never_leave),
    *(obey_once_connected, read_milliseconds, draw_upper_end, keep_the_just_too_old),
    *(replace_halves, replace_halves_in_options),
    *(sweep_in_two_steps, sweep_on, log_nothing),
    *(write_progress_apart, push_after_failure, show_late, emit_anything),
    *(tick_later, give_an_hour, look_ahead, fail_on_malformed, accept_malformed, keep_both),
)


def make(name: str) -> None:
    """Make the mistake with this name."""
    {mistake.__name__: mistake for mistake in _MISTAKES}[name]()
