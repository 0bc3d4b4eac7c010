"""An application in Ruby and in Python on one Redis, under fire, and every job has its account.

    python -m tests.chaos.mixed [--seconds N] [--rate N] [--every N] [--seed N] [--write]

Two processes of real Sidekiq, with Active Job, unique jobs and sidekiq-cron, and two of jobwire run
jobs that both languages enqueue. Processes are killed at random, and a rolling deploy of one
language follows another, forward to a release with one more class (in Ruby also from Sidekiq 7.3 to
8.1), and back: in all orders in 5 minutes and more, and in a part of them, which the seed chooses,
in less. The jobs keep a ledger in another Redis. The last line is the account.
Exit status: 0 all is well, 1 not, 2 wrong usage, or real Sidekiq is not installed.

Sidekiq acknowledges a job before it runs it, so each kill of it may lose the jobs that this process
held, and keeps their locks until their bound. Such a job had begun in that process; or it was in
Redis until a moment before that kill, and Sidekiq serves its queue or moves it to one. They are in
the account by themselves, and no other job may be missing.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import sys
import tempfile
import threading
import time
from bisect import bisect
from collections import Counter, defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from typing import Any

from rich.console import Console

from harness.chroots import CHROOTS, missing
from harness.servers import Reaper, Server, valkey_program, wait_until
from jobwire import DuplicateJob
from jobwire.active_job import GlobalID, Symbol
from tests.chaos import periodic
from tests.faults import guarantees
from tests.interop import ledger_app
from tests.interop.driver import Driver
from tests.interop.ledger_app import QUEUE, RECORD, ROWS, app
from tests.interop.python_worker import worker_process
from tests.interop.sidekiq import CRON_VERSION, GENERATIONS, RealSidekiq, with_jobwire

RUBY_RELEASES = {1: "7.3.2", 2: "8.1.7"}
# Only Python serves `default`, only Ruby `ruby`, and both serve `both`.
KINDS = {
    "PythonJob": "default",
    "NewPythonJob": "default",
    "LockedJob": "default",
    "RubyJob": "default",  # is handed over
    "NewRubyJob": "ruby",
    "BothJob": "both",
    "RareJob": "both",
    "UniqueJob": "both",
    "WelcomeJob": "both",
}
OF_PYTHON = {"PythonJob", "NewPythonJob", "LockedJob"}
LOCKS = "uniquejobs"
SHARING = 20  # jobs in a row of which the unique ones share their key
LATER = 0.1  # share of the jobs that wait in the schedule
ENTRIES = 9
# A deploy and a rollback of each language, in all six orders.
ORDERS = sorted({*permutations(("python", "python", "ruby", "ruby"))})
DEPLOYS = [
    (language, 1 if language in order[:at] else 2)
    for order in ORDERS
    for at, language in enumerate(order)
]
PAUSE_S = 0.25  # between two pushes
MOST_AT_ONCE = 100
BACKLOG = 2000
# From a fetch to the kill of the process in the middle of it. Redis may also give a job to a
# process that died a moment ago.
MOMENT_S = 2.0
JID = re.compile(rb'"jid":"(\w+)"')
PATIENCE_S = 100.0  # without progress: more than a lease


@dataclass
class Slot:
    """A place for one process, which is replaced when it is killed or deployed."""

    language: str
    start: Callable[[int], AbstractContextManager[Any]]
    release: int = 1
    process: Any = None
    stack: ExitStack = None  # type: ignore[assignment]

    def open(self) -> None:
        self.stack = ExitStack()
        self.process = self.stack.enter_context(self.start(self.release))

    def kill(self) -> int:
        """Kill the process and start the next one; return the pid of the dead."""
        pid: int = self.process.pid
        self.stack.close()
        self.open()
        return pid

    def deploy(self, release: int) -> int:
        """Stop the process and start one of this release; return the pid of the old one."""
        pid: int = self.process.pid
        self.process.stop()
        self.stack.close()
        self.release = release
        self.open()
        return pid


class Producers:
    """Pushes jobs from both languages until it is told to end.

    Attributes:
        accepted: Id of each job to its class.
        pushed: Id of each job to the time of its push.
        later: Ids of jobs that wait in the schedule, or in the set of retries.
        refused: Number of duplicates.
    """

    def __init__(self, ruby: Driver, client: Any, *, rate: float, seed: int) -> None:
        self.accepted: dict[str, str] = {}
        self.pushed: dict[str, float] = {}
        self.later: set[str] = set()
        self.refused = 0
        self.by: Counter[str] = Counter()
        self.new_ruby = threading.Event()  # all processes of Ruby know the new class
        self._ruby, self._client = ruby, client
        self._rate = rate
        self._started = 0.0
        self._dice = random.Random(seed)
        self._number = 0
        self._lock = threading.Lock()

    def withdraw_new_ruby(self) -> None:
        """Push no more jobs of the new class of Ruby, before its workers are rolled back."""
        with self._lock:
            self.new_ruby.clear()

    def push(self) -> None:
        """Push some jobs in each language, unless too many wait."""
        self._started = self._started or time.monotonic()
        due = self._rate * (time.monotonic() - self._started) - self._number
        each = min(int(due / 2), MOST_AT_ONCE)
        if sum(map(self._client.llen, ("queue:default", "queue:both"))) < BACKLOG:
            with self._lock:
                self._push([self._draw() for _ in range(each)], self._by_ruby)
                self._push([self._draw() for _ in range(each)], self._by_python)

    def _draw(self) -> tuple[str, str, list[Any], float | None]:
        self._number += 1
        name = self._dice.choice([*KINDS])
        if name == "NewRubyJob" and not self.new_ruby.is_set():
            name = "BothJob"
        args: list[Any] = [self._number]
        if name == "UniqueJob":
            args = [f"key-{self._number // SHARING}", *args]
        later = self._dice.random() < LATER and name not in ("UniqueJob", "LockedJob")
        return name, KINDS[name], args, self._dice.choice([1, 2]) if later else None

    def _push(
        self,
        jobs: list[tuple[str, str, list[Any], float | None]],
        push: Callable[[Any], list[str | None]],
    ) -> None:
        for (name, _, _, wait), jid in zip(jobs, push(jobs), strict=True):
            if jid is None:
                self.refused += 1
            else:
                self.accepted[jid] = name
                self.pushed[jid] = time.time() if wait is None else time.time() + wait
                if wait is not None or name == "RareJob":
                    self.later.add(jid)
                self.by[push.__name__] += 1

    def _by_ruby(self, jobs: list[Any]) -> list[str | None]:
        locked = [job for job in jobs if job[0] == "LockedJob"]
        others = iter(self._ruby.eval("push_all(with)", [j for j in jobs if j not in locked]))
        return [self._push_locked(job) if job in locked else next(others) for job in jobs]

    def _by_python(self, jobs: list[Any]) -> list[str | None]:
        return [self._push_one(*job) for job in jobs]

    def _push_one(self, name: str, queue: str, args: list[Any], wait: float | None) -> str | None:
        at = None if wait is None else time.time() + wait
        if name == "LockedJob":
            return self._push_locked((name, queue, args, wait))
        if name == "WelcomeJob":
            values = ([GlobalID(RECORD), *args], {"locale": Symbol("de")})
            return app.client.push_active_job(name, *values, at=at, queue=queue)
        if name == "UniqueJob":
            try:
                return ledger_app.unique.enqueue(*args)
            except DuplicateJob:
                return None
        return app.client.push(name, args, at=at, queue=queue)

    def _push_locked(self, job: Any) -> str | None:
        """Take a lock and push its job, as sidekiq-unique-jobs does."""
        _, queue, args, _ = job
        jid, digest = f"{args[0]:024x}", f"{LOCKS}:{args[0]:032x}"
        self._client.hset(f"{digest}:LOCKED", jid, "1.5")
        self._client.set(digest, jid)
        self._client.zadd(f"{LOCKS}:digests", {digest: 1.5})
        fields = {"lock": "until_executed", "lock_digest": digest, "lock_args": args}
        return app.client.push("LockedJob", args, jid=jid, queue=queue, fields=fields)


class Watch:
    """Looks at all places of jobs again and again.

    Attributes:
        seen: Id of each job to the time when it was last in a place.
        looks: The times of all looks.
        most_parked: Jobs that were parked at one moment.
    """

    def __init__(self, client: Any) -> None:
        self.seen: dict[str, float] = {}
        self.looks: list[float] = []
        self.most_parked = 0
        self._client = client

    def look(self) -> None:
        """Note the jobs that are in a place now."""
        client, now = self._client, time.time()
        steps = client.pipeline(transaction=True)
        for name in client.smembers("queues"):
            steps.lrange(b"queue:" + name, 0, -1)
        for name in ("schedule", "retry", "jobwire:parked"):
            steps.zrange(name, 0, -1)
        for key in client.keys("jobwire:private:*"):
            steps.hvals(key)
        places = steps.execute()
        for found in map(JID.search, (text for place in places for text in place)):
            if found:
                self.seen[found[1].decode()] = now
        self.looks.append(now)
        self.most_parked = max(self.most_parked, client.zcard("jobwire:parked"))


class Storm:
    """One run, from the first job to the account."""

    def __init__(self, options: argparse.Namespace, directory: Path) -> None:
        self._options = options
        self._dice = random.Random(options.seed)
        self._directory = directory
        self._opened = ExitStack()
        self._over = threading.Event()
        self.killed: dict[int, str] = {}  # pid -> language
        self.kills_of_ruby: list[float] = []
        self.stopped: set[int] = set()
        self.deploys = 0
        self.cron_kills = 0

    def __enter__(self) -> Storm:
        opened = self._opened
        reaper = opened.enter_context(Reaper())
        self._server, calm = (Server(reaper, valkey_program()) for _ in range(2))
        opened.callback(self._server.close)
        opened.callback(calm.close)
        self._calm_url = calm.url
        self.client: Any = self._server.client()
        self.ledger: Any = calm.client()
        app.connect(self._server.url)
        opened.callback(app.close)
        with_jobwire(self._directory)
        os.environ["LEDGER_URL"] = calm.url
        driver = opened.enter_context(self._sidekiq(CRON_VERSION).driver(loads="rails.rb"))
        self.minutes = periodic.write_entries(driver, self._server.url, ENTRIES)
        driver.eval(
            'Cron.create(name: "tick", cron: "* * * * * UTC", class: "TickJob", active_job: true, '
            f'queue: "{QUEUE}", args: ["tick"], date_as_argument: true)'
        )
        self.minutes["tick"] = 1
        options = self._options
        self.watch = Watch(self._server.client())
        self._threads = opened.enter_context(ThreadPoolExecutor())
        opened.callback(self._over.set)
        self.producers = Producers(driver, self.client, rate=options.rate, seed=options.seed)
        languages = ("ruby", "ruby", "python", "python")
        starts = (self._start_cron, self._start_ruby, self._start_python, self._start_python)
        self.slots = [Slot(*each) for each in zip(languages, starts, strict=True)]
        for slot in self.slots:
            opened.callback(lambda slot=slot: slot.stack.close())  # type: ignore[misc]
            slot.open()
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def _sidekiq(self, version: str) -> RealSidekiq:
        return RealSidekiq(version, CHROOTS / version, self._server.url, self._directory)

    def _start_ruby(self, release: int, version: str = "") -> AbstractContextManager[Any]:
        return self._sidekiq(version or RUBY_RELEASES[release]).worker(
            program="rails.rb",
            queues=["ruby", "both"],
            concurrency=5,
            env={"LEDGER_URL": self._calm_url, "RELEASE": str(release), "CRON_POLL": "3"},
        )

    def _start_cron(self, release: int) -> AbstractContextManager[Any]:
        return self._start_ruby(release, CRON_VERSION)

    def _start_python(self, release: int) -> AbstractContextManager[Any]:
        options = ["--unknown-jobs", "park", "--hand-over", "RubyJob=ruby", "-c", "5"]
        for queue in ("default", "both", QUEUE):
            options += ["-q", f"{queue},1"]
        return worker_process(
            self._server.url,
            *options,
            app="tests.interop.ledger_app:app",
            env={
                "LEDGER_URL": self._calm_url,
                "RELEASE": str(release),
                "JOBWIRE_REDIS_URL": self._server.url,
            },
        )

    def rage(self, say: Callable[[str], None]) -> None:
        """Kill and deploy while jobs are enqueued."""
        seconds = self._options.seconds
        pace = min(45.0, max(10.0, seconds / (len(DEPLOYS) + 1)))
        first = self._options.seed % len(ORDERS) * len(ORDERS[0])
        self.begin = time.time()
        self.over_at = self.begin + seconds
        turns = (self.watch.look, self.producers.push)
        self._loops = [self._threads.submit(self._repeat, turn) for turn in turns]
        deploy_at = self.begin + pace
        while time.time() < self.over_at:
            if any(loop.done() for loop in self._loops):
                break  # with an error
            if time.time() > deploy_at:
                deploy_at += pace
                self.deploy(*DEPLOYS[(first + self.deploys) % len(DEPLOYS)])
                say(self.state())
            self.kill_if_due()
            time.sleep(0.1)
        self.end = time.time()

    def _repeat(self, turn: Callable[[], None]) -> None:
        while not self._over.wait(PAUSE_S):
            turn()

    def kill_if_due(self) -> None:
        """Kill a process if the last kill is long enough ago."""
        if time.time() < self.begin + self._options.every * (len(self.killed) + 1):
            return
        slot = self._dice.choice(self.slots)
        if slot.language == "ruby":
            self.kills_of_ruby.append(time.time())
        self.killed[slot.kill()] = slot.language
        self.cron_kills += slot is self.slots[0]

    def deploy(self, language: str, release: int) -> None:
        """Replace the processes of one language, one after the other."""
        if (language, release) == ("ruby", 1):
            self.producers.withdraw_new_ruby()
            wait_until(lambda: not self._waits(b"NewRubyJob"), 60, "jobs of the new class")
        for slot in self.slots:
            if slot.language == language and slot.release != release:
                self.stopped.add(slot.deploy(release))
                if time.time() < self.over_at:  # old and new code run side by side
                    self.kill_if_due()
        if (language, release) == ("ruby", 2):
            self.producers.new_ruby.set()
        self.deploys += 1

    def _waits(self, mark: bytes) -> bool:
        """Return whether a job with this text waits for Ruby."""
        client = self.client
        texts = [*client.zrange("schedule", 0, -1), *client.zrange("retry", 0, -1)]
        return any(mark in text for text in [*texts, *client.lrange("queue:ruby", 0, -1)])

    def drain(self) -> None:
        """Let all jobs end, with the newest release of both languages."""
        for key in self.client.smembers("cron_jobs"):
            self.client.hset(key, "status", "disabled")
        self._over.set()
        for loop in self._loops:
            loop.result()
        for language in ("ruby", "python"):
            self.deploy(language, 2)
        for identity in self.client.smembers("processes"):
            if int(identity.split(b":")[-2]) in self.killed:
                self.client.delete(identity)  # which ends its lease
        least, since = sys.maxsize, time.monotonic()
        while (left := self.left()) and time.monotonic() - since < PATIENCE_S:
            if left < least:
                least, since = left, time.monotonic()
            time.sleep(0.2)
        for slot in self.slots:  # Sidekiq releases the lock of a job after its end
            slot.process.stop()

    def left(self) -> int:
        """Return how many jobs wait or are held."""
        client = self.client
        names = [name.decode() for name in client.smembers("queues")]
        held = sum(client.hlen(key) for key in client.scan_iter("jobwire:private:*"))
        waiting = sum(map(client.zcard, ("schedule", "retry", "jobwire:parked")))
        return int(held + waiting + sum(client.llen(f"queue:{name}") for name in names))

    def state(self) -> str:
        releases = ", ".join(f"{slot.language} {slot.release}" for slot in self.slots)
        return (
            f"{time.time() - self.begin:4.0f} s: {releases}; {len(self.producers.accepted)} "
            f"enqueued, {self.ledger.llen(ROWS)} rows, {len(self.killed)} kills, {self.left()} wait"
        )

    def _vanished(self, jid: str) -> tuple[float, float]:
        """Return the times between which a job left the places, from the begin."""
        seen = max(self.producers.pushed[jid], self.watch.seen.get(jid, 0))
        looks = self.watch.looks
        missed = looks[min(bisect(looks, seen), len(looks) - 1)]
        return seen - self.begin, max(seen, missed) - self.begin

    def _went_with_ruby(self, jid: str) -> bool:
        """Return whether a process of Sidekiq was killed at the moment when a job vanished."""
        first, last = self._vanished(jid)
        kills = (at - self.begin for at in self.kills_of_ruby)
        return any(first - MOMENT_S < at < last + MOMENT_S for at in kills)

    def account(self) -> dict[str, Any]:
        """Return what was found. Each number of `wrong` must be 0."""
        client, accepted = self.client, self.producers.accepted
        begun: dict[str, list[int]] = defaultdict(list)
        ended: dict[str, list[int]] = defaultdict(list)
        runs: Counter[str] = Counter()
        wrong: Counter[str] = Counter()
        for text in self.ledger.lrange(ROWS, 0, -1):
            what, jid, language, pid, release, error, announced = json.loads(text)
            name = accepted.get(jid, "")
            (begun if what == "begun" else ended)[jid].append(pid)
            runs[language] += what == "ended"
            wrong["runs of unknown jobs"] += not name
            wrong["runs by a process without the class"] += not announced
            wrong["runs by an old release"] += name.startswith("New") and release == 1
            if error is not None and name != "RareJob" and what == "begun":
                wrong[f"retries of {name} after: {error}"] += 1
        held, unseen = [], []  # lost by a process of Sidekiq that was killed
        gone = {*self.killed, *self.stopped}
        for jid, name in accepted.items():
            last = begun[jid][-1] if begun[jid] else None
            wrong["second runs without a kill"] += not {*ended[jid][:-1]} <= gone
            if not ended[jid]:
                if self.killed.get(last or 0) == "ruby":
                    held.append(jid)
                elif self._went_with_ruby(jid) and (
                    jid in self.producers.later or (last is None and name not in OF_PYTHON)
                ):
                    unseen.append(jid)
                else:
                    wrong[f"lost {name}, {self._vanished(jid)}, begun by {begun[jid]}"] += 1
        kills = Counter(self.killed.values())
        ticks = periodic.audit(client, self.ledger, self.minutes, self.begin, self.end)
        wrong["ticks missing"] = len(ticks.missing)
        wrong["ticks twice"] = len(ticks.doubled)
        wrong["ticks taken and not pushed"] = max(0, len(ticks.lost) - self.cron_kills)
        wrong["jobs left"] = self.left()
        wrong["dead"] = client.zcard("dead") + client.zcard("jobwire:unreadable")
        wrong["reasons of parked jobs left"] = client.hlen("jobwire:parked:why")
        wrong["locks of sidekiq-unique-jobs left"] = len(client.keys(f"{LOCKS}*"))
        locks, of_lost = 0, 0
        for key in client.keys("jobwire:unique:*"):
            jid = (client.get(key) or b"").decode()
            last = next(iter([*ended[jid], *begun[jid]][-1:]), None)
            excused = jid in unseen or self.killed.get(last or 0) == "ruby"
            locks, of_lost = locks + (not excused), of_lost + excused
        wrong["locks left"] = locks
        handed = int(client.get("jobwire:stat:handed_over") or 0)
        return {
            "wrong": {name: count for name, count in wrong.items() if count},
            "jobs that Ruby enqueued": self.producers.by["_by_ruby"],
            "jobs that Python enqueued": self.producers.by["_by_python"],
            "duplicates refused": self.producers.refused,
            "ends in Ruby": runs["ruby"],
            "ends in Python": runs["python"],
            "handed over": handed,
            "most parked at a time": self.watch.most_parked,
            "second ends": sum(len(pids) - 1 for pids in ended.values() if pids),
            "held by a killed Sidekiq and lost": len(held),
            "lost by a killed Sidekiq that fetched or promoted them": len(unseen),
            "ticks": ticks.expected,
            "ticks taken by a killed sidekiq-cron": len(ticks.lost),
            "locks of jobs that a killed Sidekiq held": of_lost,
            "kills of Sidekiq": kills["ruby"],
            "kills of jobwire": kills["python"],
            "rolling deploys": self.deploys,
        }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.mixed")
    parser.add_argument("--seconds", type=float, default=90.0, help="duration of the disturbances")
    parser.add_argument("--rate", type=float, default=60.0, help="jobs a second")
    parser.add_argument("--every", type=float, default=5.0, help="seconds between two kills")
    parser.add_argument("--seed", type=int, default=0, help="repeats jobs and choice of victims")
    parser.add_argument(
        "--write", action="store_true", help=f"write the figures into {guarantees.PAGE.name}"
    )
    options = parser.parse_args()
    if min(options.seconds, options.rate, options.every) <= 0:
        parser.error("--seconds, --rate and --every must be above 0")
    for reason in filter(None, map(missing, GENERATIONS)):
        sys.stdout.write(f"mixed: left out: {reason}\n")
        return 2
    out = Console(highlight=False, soft_wrap=True)
    with tempfile.TemporaryDirectory() as name, Storm(options, Path(name)) as storm:
        storm.rage(out.print)
        storm.drain()
        account = storm.account()
    wrong = account.pop("wrong")
    if options.write:
        page = guarantees.PAGE.read_text(encoding="utf-8")
        shown = {"seconds": f"{options.seconds:g}"} | {k: f"{v:,}" for k, v in account.items()}
        page = guarantees.with_figures(page, guarantees.MIXED, options.seed, shown)
        guarantees.PAGE.write_text(page, encoding="utf-8")
    for name, count in wrong.items():
        out.print(f"{name}: {count}")
    if wrong:
        out.print(f"kills of Sidekiq: {[round(at - storm.begin, 1) for at in storm.kills_of_ruby]}")
        out.print(f"killed: {storm.killed}, stopped: {sorted(storm.stopped)}")
    figures = ", ".join(f"{count:,} {name}" for name, count in account.items())
    out.print(f"{figures}, in {options.seconds:g} s: {'wrong' if wrong else 'well'}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
