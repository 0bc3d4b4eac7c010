"""One run: a process behind the proxy, one fault, a second worker, and the result."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import redis

from harness.servers import Reaper, Server, valkey_program, wait_until
from jobwire.application.config import FetchMode
from jobwire.protocol import chains, groups
from jobwire.protocol.limits import described
from jobwire.protocol.payload import edit
from jobwire.protocol.results import KEEP
from jobwire_conformance.judge.stream import script_or_command
from jobwire_conformance.wire.call import Call
from jobwire_conformance.wire.faults import FAULTS, action_of
from jobwire_conformance.wire.points import Point, has_effect, points_of
from jobwire_conformance.wire.proxy import Switchboard
from tests.faults import jobs, pushes
from tests.faults.scenarios import OWNERS, Scenario

__all__ = ["FEW", "ROOT", "Bench", "Result", "Run", "faulty_runs"]

T = TypeVar("T")

ROOT = Path(__file__).resolve().parents[3]
PATIENCE = 180.0  # seconds limit for the same steps
CALM = 1.5  # seconds without an event after which basic fetch has no more jobs to run
ELSEWHERE = "elsewhere:1:0123456789ab"  # identity of a process that died
LATE = 10**9  # a sequence number that no process under test comes to
FEW = 3  # occurrences of a command that is repeated for as long as the worker runs

_FETCHES = ("fetch.lua", "BRPOP")
# All places at one instant: a job that moves meanwhile would be in none of them.
_PLACES = """
local texts = redis.call("ZRANGE", "retry", 0, -1)
for _, text in ipairs(texts) do
  redis.call("ZADD", "retry", "XX", 1, text)
end
local function add(more)
  for _, text in ipairs(more) do
    table.insert(texts, text)
  end
end
add(redis.call("ZRANGE", "schedule", 0, -1))
add(redis.call("LRANGE", "queue:a", 0, -1))
add(redis.call("LRANGE", "queue:b", 0, -1))
for _, key in ipairs(redis.call("KEYS", ARGV[1])) do
  add(redis.call("HVALS", key))
end
return texts
"""


def label(words: Sequence[bytes]) -> str:
    """Name a command: a script by its file, CLIENT and SCRIPT with their subcommands."""
    name = script_or_command(words)
    if name in ("CLIENT", "SCRIPT") and len(words) > 1:
        return f"{name} {words[1].decode().upper()}"
    return name


def _may_change(call: Call) -> bool:
    """Return whether a command has changed data, or is a script that was carried out."""
    carried_out = call.reply is not None and not call.reply.startswith(b"-")
    return has_effect(call) or (call.label.endswith(".lua") and carried_out)


@dataclass
class Result:
    """Fates of the jobs. The lists hold job ids.

    Attributes:
        scenario: Name of the scenario.
        fetch: Way in which the worker fetched.
        point: Place of the fault; None for the run without faults.
        fault: One of `faults.FAULTS`.
        reached: True if the process came to that point.
        lost: In no place, and not finished.
        stuck: Still waiting or held at the end.
        invented: Run, or stored as dead, although never pushed or reported as refused.
        duplicates: Run or stored once more than expected.
        excused: Duplicates held by a process that was killed after the job had ended.
        hung: True if the process did not end on request.
        late: The step that did not come in time; empty if all did.
        points: Commands that the proxy saw, in order.
        effects: Points that changed data.
        log: Output of the process.
    """

    scenario: str
    fetch: FetchMode
    point: Point | None
    fault: str
    reached: bool = False
    lost: list[str] = field(default_factory=list)
    stuck: list[str] = field(default_factory=list)
    invented: list[str] = field(default_factory=list)
    duplicates: list[str] = field(default_factory=list)
    excused: list[str] = field(default_factory=list)
    hung: bool = False
    late: str = ""
    points: list[Point] = field(default_factory=list)
    effects: list[Point] = field(default_factory=list)
    log: str = ""

    @property
    def in_window(self) -> bool:
        """True if basic fetch is known to lose jobs here. LW-1"""
        label = "" if self.point is None else self.point.label
        return self.fault.startswith("kill") or (label == "BRPOP" and self.fault == "cut after")

    @property
    def problems(self) -> list[str]:
        """Broken promises, in words."""
        basic = self.fetch == "basic"
        twice = [] if basic else sorted({*self.duplicates} - {*self.excused})
        found = [
            f"{kind}: {', '.join(sorted(ids))}"
            for kind, ids in (
                ("lost", [] if basic and self.in_window else self.lost),
                ("stuck", self.stuck),
                ("invented", self.invented),
                ("run twice for no reason", twice),
            )
            if ids
        ]
        return [
            *found,
            *(["did not end"] if self.hung else []),
            *([self.late] if self.late else []),
        ]

    def __str__(self) -> str:
        where = f"{self.fault} {self.point.label} #{self.point.nth}" if self.point else "no fault"
        what = "; ".join(self.problems) or "all well"
        return f"{self.scenario} ({self.fetch}), {where}: {what}"


class Zygote:
    """Starts processes; see `tests.faults.zygote`."""

    def __init__(self, reaper: Reaper) -> None:
        self._reaper = reaper
        self._lock = threading.Lock()
        path = os.pathsep.join(str(ROOT / each) for each in ("python", "conformance"))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.zygote"],
            env={**os.environ, "PYTHONPATH": path},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        reaper.watch(self._process.pid)

    def ask(self, **request: Any) -> Any:
        with self._lock:
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        assert line, "the zygote has died"
        return json.loads(line)

    def close(self) -> None:
        self._process.communicate()
        self._reaper.release(self._process.pid)


class Child:
    """A process that the zygote forked."""

    def __init__(self, zygote: Zygote, reaper: Reaper, log: Path, **request: Any) -> None:
        log.touch()
        self.log = log
        self._zygote = zygote
        self._reaper = reaper
        self.pid: int = zygote.ask(log=str(log), **request)["pid"]
        self.status: int | None = None
        reaper.watch(self.pid)

    def alive(self) -> bool:
        if self.status is None:
            self.status = self._zygote.ask(wait=self.pid)["status"]
            if self.status is not None:
                self._reaper.release(self.pid)
        return self.status is None

    def send(self, number: signal.Signals) -> None:
        if self.alive():
            os.kill(self.pid, number)

    def ends(self, within: float) -> bool:
        """Wait for the end of the process, else kill it; return whether it ended."""
        deadline = time.monotonic() + within
        while self.alive():
            if time.monotonic() > deadline:
                self.kill()
                return False
            time.sleep(0.01)
        return True

    def kill(self) -> None:
        self.send(signal.SIGKILL)
        wait_until(lambda: not self.alive())


class Bench:
    """Servers, proxies and a zygote for runs side by side.

    Args:
        sandboxes: Number of servers and threads; runs wait more than they work.
    """

    def __init__(self, reaper: Reaper, *, sandboxes: int = 8) -> None:
        with ExitStack() as opened:
            self.reaper = reaper
            self.directory = Path(opened.enter_context(tempfile.TemporaryDirectory()))
            self.zygote = Zygote(reaper)
            opened.callback(self.zygote.close)
            self.board = opened.enter_context(Switchboard())
            self._free: queue.SimpleQueue[Server] = queue.SimpleQueue()
            for _ in range(sandboxes):
                server = Server(reaper, valkey_program())
                opened.callback(server.close)
                self._free.put(server)
            self._pool = opened.enter_context(ThreadPoolExecutor(sandboxes))
            self._opened = opened.pop_all()

    def close(self) -> None:
        self._opened.close()

    def all(self, runs: Iterable[Callable[[Bench], T]]) -> Iterator[T]:
        """Do all runs, several at a time; yield results in order."""
        return self._pool.map(lambda run: run(self), runs)

    @contextmanager
    def server(self) -> Iterator[Server]:
        """Lend a server in its initial state."""
        server = self._free.get()
        try:
            with server.client() as client:
                client.flushall()
                client.script_flush()
            yield server
        finally:
            self._free.put(server)


class Run:
    """A scenario, and perhaps a fault at a point. A call executes the run.

    Args:
        scenario: Work of the process.
        fetch: Way in which a worker fetches.
        point: Place of the fault; None for a run without faults.
        fault: One of `FAULTS`.
        scripts_known: True if the server has all scripts from the start. Then the first call of
            each already does its work; otherwise NOSCRIPT and SCRIPT LOAD are part of the run.
    """

    def __init__(
        self,
        scenario: Scenario,
        *,
        fetch: FetchMode = "reliable",
        point: Point | None = None,
        fault: str = "",
        scripts_known: bool = False,
    ) -> None:
        self.scenario = scenario
        self.fetch = fetch
        self.point = point
        self.fault = fault
        self.scripts_known = scripts_known
        self._started = threading.Event()
        self._seen: object = None  # the latest record of the jobs, and its time
        self._seen_at = 0.0

    def __call__(self, bench: Bench) -> Result:
        """Execute the run and return its result."""
        with bench.server() as server, ExitStack() as opened:
            self._bench = bench
            self._url = server.url
            self._record_url = server.url.removesuffix("/0") + "/1"
            connect = redis.Redis.from_url
            self.client: Any = opened.enter_context(connect(server.url))
            self.record: Any = opened.enter_context(connect(self._record_url))
            result = Result(self.scenario.name, self.fetch, self.point, self.fault)
            if self.scripts_known:
                for path in sorted((ROOT / "lua").glob("*.lua")):
                    self.client.script_load(path.read_bytes())
            self._seed()
            rules = (
                [] if self.point is None else [self.point.rule(action_of(self.fault, self._end))]
            )
            proxy = bench.board.open(
                "127.0.0.1", server.port, rules=rules, lockstep=True, label=label
            )
            self._first = self._child(proxy.url(), self.scenario.start)
            self._started.set()
            waiting: list[str] = []
            held: set[str] = set()
            try:
                self.scenario.drive(self)
                waiting = self._wait_for_first(result)
                held = self._held()
            except AssertionError as error:  # of a wait: it must not end the runs behind this one
                result.late = str(error)
            finally:
                self._first.kill()
                proxy.close()
            self._drain(server.url)
            self._judge(result, waiting=waiting, held=held)
            result.reached = any(rule.struck for rule in rules)
            passed = [*points_of(proxy.snapshot())]
            result.points = [point for point, _ in passed]
            result.effects = [point for point, call in passed if _may_change(call)]
            result.log = self._first.log.read_text()
            return result

    def alive(self) -> bool:
        """True if the process under test runs."""
        return self._first.alive()

    def busy(self) -> bool:
        """True if all lasting jobs have begun, except those that basic fetch has lost."""
        begun = {jid.decode() for jid in self.record.hkeys(jobs.STARTED)}
        if begun.issuperset(jid for jid, kind in self._jobs.items() if kind in jobs.LASTING):
            return True
        if self.fetch == "reliable" or self._places():
            return False
        if (events := self._events()) != self._seen:
            self._seen, self._seen_at = events, time.monotonic()
        return time.monotonic() - self._seen_at > CALM

    def cancel(self, kind: str) -> None:
        """Mark the jobs of a class as cancelled, also for the workers that come later."""
        for jid, each in self._jobs.items():
            if each == kind:
                self.client.zadd("jobwire:cancelled", {jid: time.time()})

    def finished(self, kinds: Sequence[str]) -> bool:
        """True if all jobs of these classes have finished."""
        done = self._count(jobs.FINISHED)
        return all(done[jid] for jid, kind in self._jobs.items() if kind in kinds)

    def log(self) -> str:
        """Return the log of the process under test so far."""
        return self._first.log.read_text()

    def identity(self) -> str | None:
        """Return the identity of the process under test; None before its first heartbeat."""
        return next((name.decode() for name in self.client.smembers("processes")), None)

    def hold_unknown(self) -> None:
        """Put the unknown jobs into the hash of the process, or of another one if it is gone."""
        owner = self.identity() or ELSEWHERE
        self.client.sadd(OWNERS, owner)
        for number, (seed, jid) in enumerate(zip(self.scenario.seeds, self._jobs, strict=True)):
            if seed.place == "unknown":
                name = "ab"[number % 2]
                text = _payload(seed.kind or "", jid, name)
                self.client.hset(f"{PRIVATE}{owner}", f"{LATE + number}:{name}", text)

    def unite_shards(self) -> None:
        """Move the jobs of the second shard to the queue of the first."""
        with redis.Redis.from_url(pushes.beside(self._url)) as other:
            for text in other.lrange("queue:a", 0, -1):
                self.client.lpush("queue:a", text)

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the process under test."""
        self._first.send(number)

    # -- the processes

    def _child(self, url: str, start: str) -> Child:
        settings = {
            **{"queues": ["a", "b"], "concurrency": 2, "fetch": self.fetch},
            **{"poll_interval": 0.1, "timeout": 5.0, **self.scenario.settings},
        }
        return Child(
            self._bench.zygote,
            self._bench.reaper,
            self._bench.directory / f"{id(self)}-{start}-{time.monotonic_ns()}.log",
            start=start,
            url=url,
            record=self._record_url,
            settings=settings,
        )

    def _end(self) -> None:
        """Kill the process under test, from the proxy's thread."""
        self._started.wait(PATIENCE)
        os.kill(self._first.pid, signal.SIGKILL)

    def _wait_for_first(self, result: Result) -> list[str]:
        """Wait until the process under test has done its work; return the jobs it has left."""
        if self.scenario.ends:
            result.hung = not self._first.ends(within=PATIENCE)
            return []
        deadline = time.monotonic() + PATIENCE
        left: list[str] = []
        while self.alive():
            if self._settled():
                break
            if time.monotonic() > deadline:
                # The process lives, so no other worker may touch the jobs that it holds.
                left = [*self._places()]
                break
            time.sleep(0.02)
        self.send(signal.SIGTERM)
        result.hung = not self._first.ends(within=PATIENCE)
        return left

    def _drain(self, url: str) -> None:
        """Have a healthy worker finish everything, as soon as the first one's lease has ended."""
        for identity in {*self.client.smembers("processes"), *self.client.smembers(OWNERS)}:
            self.client.delete(identity)
        self.record.set(jobs.RELEASE, 1)
        if self.fetch == "basic" and not self._places():
            return
        second = self._child(url, "worker")
        deadline = time.monotonic() + PATIENCE
        while not self._settled() and time.monotonic() < deadline:
            assert second.alive(), second.log.read_text()
            time.sleep(0.02)
        second.kill()

    # -- the jobs

    @cached_property
    def _jobs(self) -> dict[str, str | None]:
        """Id to class of the jobs at the beginning."""
        return {
            seed.raw.decode() if seed.kind is None else f"{number:024x}": seed.kind
            for number, seed in enumerate(self.scenario.seeds)
        }

    def _seed(self) -> None:
        now = time.time()
        following: dict[int, list[bytes]] = {}
        members: list[bytes] = []
        first = 0
        for number, (seed, jid) in enumerate(zip(self.scenario.seeds, self._jobs, strict=True)):
            if seed.place == "chain":
                text = _payload(seed.kind or "", jid, "ab"[number % 2])
                following.setdefault(first, []).append(chains.waiting(text, ()))
            else:
                first = number
            if seed.place == "group":
                text = edit(_payload(seed.kind or "", jid, "ab"[number % 2]), {KEEP: groups.KEEP_S})
                members.append(chains.waiting(text, ()))
        if members:
            job = {"class": groups.GROUP_CLASS, "args": [], "jid": GROUP, "queue": "a"}
            text = groups.grouped(json.dumps(job).encode(), members)
            self.client.lpush("queue:a", chains.chained(text, following.pop(first, [])))
        for number, (seed, jid) in enumerate(zip(self.scenario.seeds, self._jobs, strict=True)):
            name = "ab"[number % 2]
            text = seed.raw if seed.kind is None else _payload(seed.kind, jid, name)
            if number in following:
                text = chains.chained(text, following[number])
            match seed.place:
                case "queue":
                    self.client.sadd("queues", name)
                    self.client.lpush(f"queue:{name}", text)
                case "schedule":
                    self.client.zadd("schedule", {text: now - 1})
                case "orphan":
                    self.client.sadd(OWNERS, ELSEWHERE)
                    self.client.hset(f"{PRIVATE}{ELSEWHERE}", f"{number + 1}:{name}", text)

    def _places(self) -> Counter[str]:
        """Return how often each job waits or is held in any place; make retries due soon."""
        return Counter(map(_jid, self.client.eval(_PLACES, 0, PRIVATE + "*")))

    def _held(self) -> set[str]:
        return {
            _jid(text) for key in self.client.keys(PRIVATE + "*") for text in self.client.hvals(key)
        }

    def _settled(self) -> bool:
        """True if no job waits or is held."""
        if self._places():
            return False
        if self.fetch == "reliable":
            return True
        # Only the records of the jobs show a job that basic fetch has taken.
        events, since = self._events(), time.monotonic()
        while self._unaccounted():
            if self._places():
                return False
            if (now := self._events()) != events:
                events, since = now, time.monotonic()
            if time.monotonic() - since > CALM:
                return True
            time.sleep(0.02)
        return True

    def _events(self) -> int:
        """Return the number of records of the jobs."""
        kinds = (jobs.STARTED, jobs.ENDED, jobs.ITEMS)
        return sum(sum(self._count(kind).values()) for kind in kinds)

    def _unaccounted(self) -> list[str]:
        finished, dead = self._finished(), self._dead()
        return [
            jid
            for jid, kind in self._jobs.items()
            if not (dead if kind in jobs.DYING else finished)[jid]
        ]

    def _count(self, key: str) -> Counter[str]:
        return Counter({jid.decode(): int(n) for jid, n in self.record.hgetall(key).items()})

    def _finished(self) -> Counter[str]:
        """Return the runs that succeeded, and the jobs whose results tell of their other end.

        That end is stored by the worker, so no code of the application can record it in time.
        """
        finished = self._count(jobs.FINISHED)
        for jid, kind in self._jobs.items():
            if outcome := jobs.OTHER_ENDS.get(kind or ""):
                result = self.client.get(f"jobwire:result:{jid}")
                finished[jid] += result is not None and json.loads(result)["outcome"] == outcome
        return finished

    def _dead(self) -> Counter[str]:
        members = [
            *self.client.zrange("dead", 0, -1),
            *self.client.zrange("jobwire:unreadable", 0, -1),
        ]
        return Counter(map(_jid, members))

    def _judge(self, result: Result, *, waiting: Sequence[str], held: set[str]) -> None:
        places, dead = self._places(), self._dead()
        finished, ended = self._finished(), self._count(jobs.ENDED)
        expected = dict(self._jobs)
        possible: set[str] | None = set(expected)
        if self.scenario.is_client:
            told = {
                jid.decode(): what.decode()
                for jid, what in self.record.hgetall(pushes.TOLD).items()
            }
            expected = {jid: "Quick" for jid, what in told.items() if what == "written"}
            possible = {jid for jid, what in told.items() if what != "refused"}
            if not self.record.exists(pushes.REPORTED):
                possible = None  # the client died before its report
        good = {
            jid
            for jid, kind in expected.items()
            if (dead if kind in jobs.DYING else finished)[jid]
            if kind != "Walk"
            or all(self.record.hexists(jobs.ITEMS, f"{jid}:{item}") for item in jobs.STEPS)
        }
        result.stuck = sorted({*waiting, *places})
        result.lost = sorted({*expected} - good - {*result.stuck})
        seen = {*finished, *dead, *ended}
        if possible is not None:
            result.invented = sorted(seen - possible)
        result.invented += sorted(
            jid for jid in dead if self._jobs.get(jid, "Quick") not in jobs.DYING
        )
        calls_for = {"Flaky": 2, "Nap": 2}
        result.duplicates = sorted(
            jid
            for jid in seen
            if ended[jid] > calls_for.get(self._jobs.get(jid) or "", 1) or dead[jid] > 1
        )
        killed = result.fault.startswith("kill")
        result.excused = sorted(jid for jid in result.duplicates if killed and jid in held)


PRIVATE = "jobwire:private:"
GROUP = "f" * 24  # the id of the group of a scenario


def _payload(kind: str, jid: str, name: str) -> bytes:
    now = time.time()
    retry = jobs.app.jobs[kind].defaults.get("retry", True)
    job = {"class": kind, "args": [], "jid": jid, "queue": name, "retry": retry}
    if kind == "Late":
        job["jw_expires_at"] = now - 1
    if kind == "RubyLocked":
        job |= {"lock": "until_executed", "lock_digest": f"uniquejobs:{jid:0>32}"}
    if (limit := jobs.app.jobs[kind].defaults.get("limit")) is not None:
        job["jw_limit"] = described(job, limit)
    return json.dumps({**job, "created_at": now, "enqueued_at": now}).encode()


def _jid(text: bytes) -> str:
    try:
        job = json.loads(text)
    except ValueError:
        return text.decode()
    jid = job.get("jid") if isinstance(job, dict) else None
    return jid if isinstance(jid, str) else text.decode()


def faulty_runs(
    scenario: Scenario,
    clean: Result,
    *,
    faults: Sequence[str] = FAULTS,
    effects_only: bool = False,
    scripts_known: bool = False,
) -> Iterator[Run]:
    """Return a run for every command that the clean run saw, and every fault."""
    points = clean.points
    if not scenario.is_client:
        first = next(at for at, point in enumerate(points) if point.label in _FETCHES)
        # The threads of a worker race: a promotion may come before the first fetch.
        points = [
            point
            for at, point in enumerate(points)
            if (at < first) == scenario.boot or point.label in scenario.certain
        ]
    # Commands that change data are counted on their own: a worker that starts also sends several
    # transactions that the server refuses or that write nothing, to examine its permissions.
    often: Counter[tuple[str, bool]] = Counter()
    for point in points:
        writes = point in clean.effects
        if effects_only and not writes:
            continue
        often[point.label, writes] += 1
        if point.label.endswith(".lua") or often[point.label, writes] <= FEW:
            for fault in faults:
                yield Run(
                    scenario,
                    fetch=clean.fetch,
                    point=point,
                    fault=fault,
                    scripts_known=scripts_known,
                )
