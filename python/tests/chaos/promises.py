"""Measurements of locks, limits, workflows, steps and output, mostly while workers are killed.

Each function of `PARTS` is a part of `python -m tests.chaos.coordination`. It returns its figures
in words, and a list of mistakes. The jobs keep a ledger in another Redis.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import logging
import multiprocessing
import os
import random
import threading
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any
from unittest import mock

import redis

from harness.servers import Server, wait_until
from jobwire import App, Limit, chain, current_job, group, previous
from jobwire.inspect import sets
from jobwire.protocol.unique import Scope
from tests.integration.interleavings import carry_out, jid_of
from tests.integration.scripts.shell import KEYS, Shell
from tests.integration.test_unique_interleavings import (
    BOTH,
    REPLACED,
    TWO,
    Rules,
    Step,
    World,
    game,
)
from tests.workers import running

__all__ = ["PARTS", "Bench"]

Found = tuple[str, list[str]]

PATIENCE_S = 300.0
LIFE_S = 0.15  # the longest life of a worker after its first effect
DAG_SIZE = 200  # jobs
STEPS = 500  # of one job
TENANTS = 10
GAP = 200  # jobs that start between two of a tenant: (1 - 1/10) ** 200 is below 1e-9
LEADS_S = 20.0  # between the clocks of the first and the last process
RATE = Limit("rate", rate=10, burst=1)
WINDOW = Limit("window", window=100, per=10)
FIRST = 100  # starts that are not measured, while processes start
CREW = Limit("crew", at_once=3)
ENTER = """
redis.call("SADD", "inside", ARGV[1])
local most = tonumber(redis.call("GET", "most") or 0)
redis.call("SET", "most", math.max(most, redis.call("SCARD", "inside")))
"""

app = App()
ledger: Any = None


def serve(
    url: str, record: str, queues: dict[str, int], concurrency: int = 4, lead: float = 0.0
) -> None:
    """Run a worker, whose clock is so many seconds ahead, until it is killed."""
    global ledger
    ledger = redis.Redis.from_url(record)
    logging.getLogger("jobwire").setLevel(logging.CRITICAL)
    server: Any = argparse.Namespace(url=url)
    clock = time.time

    def ahead() -> float:
        return clock() + lead

    with (
        mock.patch.object(time, "time", ahead),
        running(app, server, queues=queues, concurrency=concurrency, poison_limit=10**6),
    ):
        threading.Event().wait()


# A process of its own forks the workers, so that none of them has to import anything.
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["tests.chaos.coordination", "tests.chaos.promises"])


class Bench:
    """The servers of the jobs and of the ledger, and the size of a run."""

    def __init__(self, server: Server, calm: Server, dice: random.Random, full: bool) -> None:
        self.url, self._record = server.url, calm.url
        self.client, self.book = server.client(), calm.client()
        self.shell = Shell(server)
        self.dice = dice
        self.full = full
        self.kills = 1_000 if full else 60
        app.connect(server.url)

    def worker(self, queues: Sequence[str] = (), **options: Any) -> Any:
        served = dict.fromkeys(queues, 1) or {"default": 0}
        words = self.url, self._record, served
        worker = _CONTEXT.Process(target=serve, args=words, kwargs=options, daemon=True)
        worker.start()
        return worker

    def kill(self, worker: Any) -> None:
        """Kill a worker, and end its lease."""
        worker.kill()
        worker.join()
        for identity in self.client.smembers("processes"):
            self.client.delete(identity)

    def storm(
        self, renew: Callable[[], object], look: Callable[[], object], over: Callable[[], bool]
    ) -> None:
        """Kill workers, each some time after its first effect, then let the rest end.

        Args:
            renew: Enqueues more, if little is left, before each worker.
            look: Called after each kill.
            over: Tells whether all has ended.
        """
        for _ in range(self.kills):
            renew()
            before = self.book.get("effects")
            worker = self.worker()
            wait_until(lambda: self.book.get("effects") != before, what="an effect")  # noqa: B023
            time.sleep(self.dice.uniform(0, LIFE_S))
            self.kill(worker)
            look()
        worker = self.worker()
        wait_until(over, PATIENCE_S, "the end")
        self.kill(worker)


# -- kills inside workflows


def digest(name: str, seen: object) -> str:
    return hashlib.sha1(json.dumps([name, seen]).encode()).hexdigest()[:12]


@app.job(name="Node")
def node(name: str, seen: object = None) -> str:
    """Return what depends on all values before, and record it."""
    value = digest(name, seen)
    with ledger.pipeline() as pipe:
        pipe.hincrby("nodes", f"{name} {value}")
        pipe.incr("effects")
        pipe.execute()
    time.sleep(0.005)
    return value


def draw_dag(number: int, dice: random.Random) -> tuple[Any, list[str]]:
    """Return a chain of single jobs, groups and maps, and the records that its jobs must make."""
    parts: list[Any] = []
    expected: list[str] = []
    seen: object = None

    def made(seen: object) -> tuple[str, str]:
        name = f"{number}:{len(expected)}"
        expected.append(f"{name} {digest(name, seen)}")
        return name, digest(name, seen)

    while len(expected) < DAG_SIZE:
        size = min(dice.randint(1, 20), DAG_SIZE - len(expected))
        link = [previous] if parts else []
        match dice.choice(("chain", "group", "map")):
            case "chain":
                for _ in range(size):
                    name, seen = made(seen)
                    parts.append(node.s(name, *([previous] if parts else [])))
            case "group":
                pairs = [made(seen) for _ in range(size)]
                parts.append(group(node.s(name, *link) for name, _ in pairs))
                seen = [value for _, value in pairs]
            case _:
                pairs = [made(None) for _ in range(size)]
                parts.append(node.map(name for name, _ in pairs))
                seen = [value for _, value in pairs]
    return chain(*parts), expected


def dags(bench: Bench) -> Found:
    """Kill workers inside chains of jobs, groups and maps: each ends, with all results."""
    runs: list[Any] = []
    expected: set[str] = set()
    left: list[Any] = []
    inside = 0

    def renew() -> None:
        while len(left) < 2:
            work, values = draw_dag(len(runs), bench.dice)
            expected.update(values)
            runs.append(work.enqueue())
            left.append(runs[-1])

    def look() -> None:
        nonlocal inside
        left[:] = [run for run in left if {*run.states()} != {"done"}]
        inside += bool(left)

    bench.storm(renew, look, lambda: all({*run.states()} == {"done"} for run in left))
    found = {name.decode(): int(count) for name, count in bench.book.hgetall("nodes").items()}
    wrong = [f"missing or wrong: {name}" for name in expected ^ found.keys()]
    again = sum(found.values()) - len(found)
    if again > 4 * bench.kills:
        wrong.append(f"{again} executions repeated; at most one for each thread that was killed")
    words = f"{inside:,} of {bench.kills:,} kills inside {len(runs)} workflows of {DAG_SIZE} jobs"
    return f"{words}, {again} executions repeated", wrong


# -- kills between steps


@app.job(name="Walk")
def walk(number: int) -> None:
    for n in range(STEPS):
        app.step(f"step-{n}", stride, number, n)


def stride(number: int, n: int) -> str:
    """Do one step; its value is of this execution alone."""
    value = f"{os.getpid()}-{time.monotonic_ns()}"
    with ledger.pipeline() as pipe:
        pipe.rpush(f"walk:{number}", json.dumps([n, os.getpid(), value]))
        pipe.incr("effects")
        pipe.execute()
    return value


def walks(bench: Bench) -> Found:
    """Kill workers between and inside the steps of jobs: none commits twice, one is redone."""
    jids: list[str] = []
    known: dict[tuple[str, bytes], bytes] = {}
    wrong: list[str] = []

    def renew() -> None:
        while bench.client.llen("queue:default") < 4:
            jids.append(walk.enqueue(len(jids)) or "")

    def look() -> None:
        """Compare the committed values with those that were seen before."""
        for jid in jids[-20:]:
            for name, value in bench.client.hgetall(f"jobwire:steps:{jid}").items():
                if known.setdefault((jid, name), value) != value:
                    wrong.append(f"{jid} {name.decode()} committed twice")

    bench.storm(renew, look, lambda: int(bench.client.get("stat:processed") or 0) >= len(jids))
    again = 0
    for number, jid in enumerate(jids):
        lines = [json.loads(line) for line in bench.book.lrange(f"walk:{number}", 0, -1)]
        if {n for n, _, _ in lines} != {*range(STEPS)}:
            wrong.append(f"{jid}: not all steps")
        for (before, pid, value), (n, next_pid, _) in pairwise(lines):
            committed = value.encode() in known.get((jid, b"step-%d" % n), b"")
            if n == before and pid != next_pid and not committed:
                again += 1
            elif n != before + 1:
                wrong.append(f"{jid}: step {n} after {before}")
    words = f"{bench.kills:,} kills inside {len(jids)} jobs of {STEPS} steps"
    return f"{words}, {again} steps redone, {len(known):,} committed ones watched", wrong


# -- limits by time


@app.job(name="Paced")
def paced(kind: str) -> None:
    seconds, micros = ledger.time()
    ledger.rpush(kind, seconds * 1_000_000 + micros)


@app.job(name="Crew", limit=CREW)
def crew() -> None:
    job = current_job()
    assert job is not None
    me = f"{job.jid} {os.getpid()}"
    ledger.eval(ENTER, 0, me)
    time.sleep(0.1)
    ledger.srem("inside", me)
    ledger.incr("worked")


def pace(bench: Bench) -> Found:
    """Let eight processes, whose clocks are apart, keep a rate, a window and a number at once."""
    seconds = 600 if bench.full else 60
    count = 10 * seconds + 1
    for limit in (RATE, WINDOW):
        app.client.push_bulk("Paced", [[limit.name]] * (count + 2 * FIRST), limit=limit)
    crew.enqueue_bulk([[]] * (30 * seconds))
    leads = [LEADS_S * (n / 7 - 0.5) for n in range(8)]
    workers = [bench.worker(lead=lead) for lead in leads]
    wait_until(
        lambda: min(map(bench.book.llen, ("rate", "window"))) >= FIRST + count,
        seconds * 1.5 + 60,
        what="all starts",
    )
    for worker in workers:
        bench.kill(worker)
    words, wrong = [], []
    for kind in ("rate", "window"):
        starts = sorted(map(int, bench.book.lrange(kind, 0, -1)))[FIRST : FIRST + count]
        error = (starts[-1] - starts[0]) / (seconds * 1e6) - 1
        most = max(bisect_left(starts, start + 10_000_000) - i for i, start in enumerate(starts))
        words.append(f"{kind}: {len(starts):,} starts, {error:+.2%}, at most {most} in 10 s")
        if abs(error) >= 0.01:
            wrong.append(f"the {kind} was off by {error:+.2%}")
    most = int(bench.book.get("most"))
    if most > (CREW.at_once or 0):
        wrong.append(f"{most} jobs at once")
    words.append(f"{most} of {CREW.at_once} at once in {int(bench.book.get('worked')):,} jobs")
    jobs = int(bench.book.get("worked")) + sum(map(bench.book.llen, ("rate", "window")))
    commands = bench.client.info("stats")["total_commands_processed"] / jobs
    words.append(f"8 clocks up to {LEADS_S:g} s apart, {commands:.0f} commands a job")
    return "; ".join(words), wrong


# -- shares


@app.job(name="Served")
def served(tenant: int, pause: float) -> None:
    ledger.rpush("served", json.dumps([tenant, time.monotonic()]))
    time.sleep(pause)


def jain(counts: Sequence[int]) -> float:
    """Return Jain's index of fairness: 1 if all are equal, 1/n if one has everything."""
    return sum(counts) ** 2 / (len(counts) * sum(count**2 for count in counts))


def share(bench: Bench) -> Found:
    """Let the first of ten tenants have 1,000 times as many jobs: by queues, and by keys."""
    words, wrong = [], []
    for how, few in (("queues", 200), ("keys", 100 if bench.full else 20)):
        bench.book.flushdb()
        bench.client.flushdb()
        for tenant in range(TENANTS):
            numbers = [[tenant, 0.02]] * (few if tenant else 1_000 * few)
            limit = Limit("tenant", at_once=1, by=[0]) if how == "keys" else None
            queue = f"q{tenant}" if how == "queues" else "default"
            app.client.push_bulk("Served", numbers, queue=queue, limit=limit)
        queues = [f"q{tenant}" for tenant in range(TENANTS)] if how == "queues" else []
        begun = time.monotonic()
        worker = bench.worker(queues, concurrency=TENANTS)
        counts: Counter[int] = Counter()
        events: list[Any] = []
        while not counts or max(counts[t] for t in range(1, TENANTS)) < few:
            time.sleep(0.1)
            events = [json.loads(line) for line in bench.book.lrange("served", 0, -1)]
            counts = Counter(tenant for tenant, _ in events)
        bench.kill(worker)
        # From the moment at which each tenant has started a job.
        begin = max([t for t, _ in events].index(tenant) for tenant in counts)
        order = [tenant for tenant, _ in events[begin:]]
        index = jain([order.count(tenant) for tenant in range(TENANTS)])
        places = [[i for i, t in enumerate(order) if t == tenant] for tenant in range(TENANTS)]
        gap = max(b - a for its in places for a, b in pairwise([0, *its]))
        wait = events[begin][1] - begun
        words.append(f"{how}: {index:.4f}, each within {gap} jobs, all begun after {wait:.1f} s")
        if gap > GAP:
            wrong.append(f"{how}: a tenant waited for {gap} jobs of others")
        if index < 0.98:
            wrong.append(f"Jain's index of {how} is {index:.4f}: {Counter(order)}")
    return "; ".join(words), wrong


# -- live output


@app.job(name="Emit")
def emit(count: int) -> None:
    for number in range(count):
        app.emit([number, time.time()])
        time.sleep(0.01)


def read(url: str, jid: str, seed: int) -> tuple[list[int], list[float], int]:
    """Read an output over connections that end at random; return items, delays, connections."""
    dice, after, over, opened = random.Random(seed), "", False, 0
    numbers: list[int] = []
    delays: list[float] = []
    while not over:
        opened += 1
        with closing(App(url)) as reader:
            left = dice.randrange(1, 60)
            for item in reader.output(jid, after=after, timeout=PATIENCE_S):
                number, sent = item.value
                numbers.append(number)
                delays.append(time.time() - sent)
                after = item.position
                left -= 1
                if not left:
                    break
            over = left > 0
    return numbers, delays, opened


def output(bench: Bench) -> Found:
    """Let four readers that come back at random read the output of a job while it runs."""
    count = 10_000 if bench.full else 1_000
    worker = bench.worker()
    jid = emit.enqueue(count)
    with ThreadPoolExecutor(4) as pool:
        seeds = [bench.dice.random() for _ in range(4)]
        read_by = [*pool.map(lambda seed: read(bench.url, jid or "", seed), seeds)]
    bench.kill(worker)
    wrong = [
        f"a reader got {len(numbers):,} items, not each once in its order"
        for numbers, _, _ in read_by
        if numbers != [*range(count)]
    ]
    delays = sorted(delay for _, found, _ in read_by for delay in found)
    p99 = delays[len(delays) * 99 // 100]
    if p99 >= 0.1:
        wrong.append(f"99 % of the items came within {p99:.3f} s, not 0.1 s")
    opened = sum(opened for _, _, opened in read_by)
    words = f"{len(delays):,} items over {opened:,} connections, median"
    return f"{words} {delays[len(delays) // 2] * 1e3:.1f} ms, p99 {p99 * 1e3:.1f} ms", wrong


# -- schedules around one lock


@dataclass(eq=False)
class State:
    """A world, and the step to each other one, which is None before it was carried out."""

    world: World
    ways: list[tuple[Step, State | None]] | None = None


def clears(world: World) -> Iterator[Step]:
    """Yield the step of a person who clears the queue: locks stay, until their bounds."""
    if world.places[0] and not world.acted:

        def clear(shell: Shell) -> World:
            shell.run(sets.clear_queue(KEYS, "q"))
            gone = {jid_of(text) for text in world.places[0]}
            return replace(world, acted=True, ended=world.ended | gone, late=world.late | gone)

        yield clear


def schedules(bench: Bench) -> Found:
    """Draw orders of the steps of clients, workers, a promoter and a person around one lock.

    Each step from each state is carried out on a real server once. A worker may be killed before
    any step, and lose its lease while it lives, twice in all.
    """
    each, longest_s = (250_000, 900.0) if bench.full else (2_500, 20.0)
    shell = bench.shell
    drawn = states = carried_out = longest = 0
    wrong: list[str] = []
    firsts: list[tuple[Scope, World]] = [
        ("until_done", TWO),
        ("until_done", REPLACED),
        ("until_start", TWO),
        ("while_running", BOTH),
    ]
    for scope, first in firsts:
        around = game(Rules(scope))
        start = State(replace(first, faults=2))
        known = {start.world: start}
        until = time.monotonic() + longest_s
        for _ in range(each):
            state, length, drawn = start, 0, drawn + 1
            while True:
                if state.ways is None:
                    found = [step for _, step in around.steps(state.world)]
                    state.ways = [(step, None) for step in [*found, *clears(state.world)]]
                if not state.ways or wrong:
                    break
                at = int(bench.dice.random() * len(state.ways))
                step, after = state.ways[at]
                if after is None:
                    world = carry_out(shell, around, state.world, step)
                    carried_out += 1
                    after = known.setdefault(world, State(world))
                    state.ways[at] = step, after
                    if (what := around.problem(world)) is not None:
                        wrong.append(f"{scope}: {what}: {world}")
                    if after is state:  # nothing was left to do
                        del state.ways[at]
                state, length = after, length + 1
            longest = max(longest, length)
            if state.world.live or state.world.lock:
                wrong.append(f"{scope}: an end with a job or a lock: {state.world}")
            if wrong or time.monotonic() > until:
                break
        states += len(known)
    words = f"{drawn:,} schedules of at most {longest} steps"
    return f"{words}: {states:,} states, {carried_out:,} different steps carried out", wrong


PARTS: dict[str, Callable[[Bench], Found]] = {
    "schedules": schedules,
    "dags": dags,
    "steps": walks,
    "output": output,
    "share": share,
    "pace": pace,
}
