"""Unique jobs, limits and batches under fire: no lock or slot stays, no limit is exceeded.

    python -m tests.chaos.coordination [PART]... [--full] [--seed N]
                                       [--jobs N] [--workers N] [--every N]

In the part `storm`, workers are killed and started again while members of a hundred batches wait
for two limits, and half of them for the lock of another member; a person deletes members on the
page. The jobs keep a ledger in another Redis. The part `ruby` is the same with half of the workers
real Sidekiq, which has limits and batches from examples/ruby/jobwire.rb. They get TERM: Sidekiq
loses the jobs that it holds at a kill. The other parts are in `promises.py`; all run by default.
Each ends with a line of its figures.

Exit status: 0 all is well, 1 not, 2 wrong usage, or there is no real Sidekiq for the only part.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import ExitStack, closing
from functools import cache
from pathlib import Path
from typing import Any

import redis
from rich.console import Console

from harness.chroots import CHROOTS, missing
from harness.servers import Reaper, Server, valkey_program, wait_until
from jobwire import App, DuplicateJob, Job, Limit, Unique, current_job
from jobwire.application.call import Call
from jobwire.worker.base.timings import Timings
from jobwire.worker.execute.limiting import LONGEST_WAIT_S
from tests.integration.web.test_bulk import visiting
from tests.workers import PYTHON, environment, running

RUBY_RELEASE = "8.1.7"
MEMBERS = {"storm": 100_000, "ruby": 2_000}
RECORD = "COORDINATION_RECORD"  # the environment variable with the URL of the ledger
BATCHES = 100
DYING = 50  # one member of so many dies, in every other batch
SLOTS = 4
SOLE_KEYS = 30
LEASE_S = 6.0  # of a slot
PATIENCE_S = 60.0  # without any progress
ENTER = """
local inside, keys, limit, most, key, me = KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[3], ARGV[4]
if limit ~= "" then redis.call("SADD", inside, me) end
if redis.call("SCARD", inside) > tonumber(most) then redis.call("HINCRBY", "wrong", limit, 1) end
if key ~= "" and redis.call("HSETNX", keys, key, me) == 0 then
  redis.call("HINCRBY", "wrong", "doubled", 1)
end
"""
"""Note a job that has begun, and whether its limit is exceeded or its lock held twice."""

app = App()
slots = Limit("slots", at_once=SLOTS)
window = Limit("window", window=60, per=0.25)


@cache
def ledger() -> Any:
    return redis.Redis.from_url(os.environ[RECORD], client_name=f"worker-{os.getpid()}")


@cache
def redis_of_jobs() -> Any:
    return redis.Redis.from_url(str(app.url))


def _work(what: object, limit: str = "", most: int = 0, key: str = "", rare: bool = False) -> None:
    """Note the begin and the end of a job; a rare one fails the first time."""
    job = current_job()
    assert job is not None
    me = f"{os.getpid()} {job.jid} {time.monotonic()}"
    ledger().eval(ENTER, 2, f"inside:{limit}", "keys", limit, most, key, me)
    try:
        time.sleep(0.01)
        if job.class_name == "Dying" or (rare and job.get("retry_count") is None):
            raise ValueError(what)
        ledger().rpush("ended", f"{what} {os.getpid()}")
    finally:
        with ledger().pipeline() as steps:
            steps.srem(f"inside:{limit}", me)
            if key:
                steps.hdel("keys", key)
            steps.execute()


@app.job(
    name="Slotted", limit=slots, unique=Unique(60, by=["pair"], scope="while_running"), retry=5
)
def slotted(number: int, pair: int) -> None:
    _work(number, "slots", SLOTS, f"pair-{pair}", rare=number % 20 == 3)


@app.job(name="Windowed", limit=window, retry=5)
def windowed(number: int) -> None:
    job = current_job()
    assert job is not None
    for entry in redis_of_jobs().zrange("jobwire:limit:window:starts", 0, -1):
        _, start, jid = entry.decode().split(":")
        if start and jid == job.jid:
            ledger().sadd("starts", start)
    _work(number, rare=number % 20 == 4)


@app.job(name="Dying", limit=slots, retry=0)
def dying(number: int) -> None:
    _work(number, "slots", SLOTS)


@app.job(name="Sole", queue="sole", unique=Unique(300, by=["key"]), retry=5)
def sole(key: str, number: int) -> None:
    _work("sole", key=key, rare=number % 40 == 4)


@app.job(name="Ended", queue="ends")
def ended(batch: int, event: str) -> None:
    ledger().rpush("callbacks", f"{batch} {event} {os.getpid()}")


def _soon(job: Job, error: BaseException, count: int) -> float:
    return 0.2


for _job in (slotted, windowed, sole):
    _job.retry_in(_soon)


def work(url: str) -> None:
    """Run a worker until it is killed."""
    logging.getLogger("jobwire").setLevel(logging.CRITICAL)
    server: Any = argparse.Namespace(url=url)
    timings = Timings(slot_lease=LEASE_S, heartbeat_interval=1.0)
    queues = {"ends": 0, "sole": 0, "default": 0}
    with running(app, server, queues=queues, concurrency=8, timings=timings):
        threading.Event().wait()


class Storm:
    """One run, from the first job to the account."""

    def __init__(
        self, options: argparse.Namespace, server: Server, calm: Server, ruby: Path | None
    ) -> None:
        self._options = options
        self._opened = ExitStack()
        self._ruby = ruby
        # A worker that is killed after it put a refused job off, but before it noted its place,
        # leaves it for the longest wait; and as Sidekiq takes most slots, Python refuses many jobs.
        self._patience = PATIENCE_S + (LONGEST_WAIT_S if ruby else 0)
        self._sidekiqs: list[Any] = []
        self.of_ruby: set[int] = set()  # pids
        self.stops = 0
        self._dice = random.Random(options.seed)
        self._server, self._calm = server, calm
        self._client: Any = server.client()
        self._ledger: Any = calm.client()
        self._workers: list[subprocess.Popen[bytes]] = []
        self.killed: set[int] = set()
        self.dying: dict[int, int] = {}  # number of a batch -> members that die
        self.ids: list[str] = []
        self.refused = 0
        self.twice = 0
        self.deleted: dict[int, str] = {}  # number of a member -> its class
        self.unsure = 0  # deletions at the instant of a fetch
        self._made = threading.Event()
        self._enough = threading.Event()
        self._producer = threading.Thread(target=self.produce, daemon=True)
        self._person = threading.Thread(target=self.delete, daemon=True)

    def start(self) -> None:
        env = environment(**{RECORD: self._calm.url})
        command = [sys.executable, "-m", "tests.chaos.coordination", "--work", self._server.url]
        self._workers.append(subprocess.Popen(command, env=env, cwd=PYTHON))

    def start_sidekiq(self) -> None:
        from tests.interop.sidekiq import RealSidekiq  # not in a worker

        assert self._ruby is not None
        real = RealSidekiq(RUBY_RELEASE, CHROOTS / RUBY_RELEASE, self._server.url, self._ruby)
        env = {"LEDGER_URL": self._calm.url, "ENTER": ENTER, "LEASE": f"{LEASE_S * 1000:.0f}"}
        worker = real.worker(
            program="coordination.rb",
            queues=["ends", "sole", "default"],
            concurrency=2,  # its BRPOP gets most jobs, unless it is busy
            timeout=25,
            env=env,
        )
        self._sidekiqs.append(self._opened.enter_context(worker))
        self.of_ruby.add(self._sidekiqs[-1].pid)

    def stop_sidekiq(self, at: int, *, again: bool) -> None:
        """Let one end the jobs that it holds; another one may start meanwhile."""
        victim = self._sidekiqs.pop(at)
        victim.signal(signal.SIGTERM)
        if again:
            self.start_sidekiq()
        victim.wait(within=PATIENCE_S)
        self.stops += 1

    def kill(self) -> None:
        """Kill a worker, start another one, and end the lease of the dead one."""
        at = self._dice.randrange(len(self._workers) + len(self._sidekiqs))
        if at >= len(self._workers):
            self.stop_sidekiq(at - len(self._workers), again=True)
            return
        victim = self._workers.pop(at)
        victim.kill()
        victim.wait()
        self.start()
        name = f"worker-{victim.pid}"
        wait_until(
            lambda: name not in {one["name"] for one in self._ledger.client_list()},
            what="the end of its connections to the ledger",
        )
        mine = f"{victim.pid} ".encode()
        for each in self._ledger.smembers("inside:slots"):
            if each.startswith(mine):
                self._ledger.srem("inside:slots", each)
        for key, each in self._ledger.hgetall("keys").items():
            if each.startswith(mine):
                self._ledger.hdel("keys", key)
        self.killed.add(victim.pid)
        for identity in self._client.smembers("processes"):
            if identity.split(b":")[-2] == b"%d" % victim.pid:
                self._client.delete(identity)

    def close(self) -> None:
        self._opened.close()
        for worker in self._workers:
            worker.kill()
            worker.wait()

    def produce(self) -> None:
        """Make the batches, with some members that die; and push unique jobs all the time."""
        number = 0
        for at in range(BATCHES):
            with app.batch(
                on_success=ended.s(at, "on_success"),
                on_complete=ended.s(at, "on_complete"),
                on_death=ended.s(at, "on_death"),
            ) as batch:
                members = []
                for _ in range(self._options.jobs // BATCHES):
                    number += 1
                    members.append(self._member(at, number))
                    self._push_sole(number)
                batch.add_all(members)
            self.ids.append(batch.id)
        self._made.set()

    def _member(self, batch: int, number: int) -> Call:
        if batch % 2 and number % DYING == 0:
            self.dying[batch] = self.dying.get(batch, 0) + 1
            return dying.s(number)
        return slotted.s(number, number // 4) if number % 2 else windowed.s(number)

    def _push_sole(self, number: int) -> None:
        if number % 4 == 0:
            try:
                sole.enqueue(f"key-{self._dice.randrange(SOLE_KEYS)}", number)
            except DuplicateJob:
                self.refused += 1

    def delete(self) -> None:
        """Delete jobs that wait, one after the other, as a person does on the page."""
        with visiting(self._server, "admin") as browser:
            while not self._enough.wait(0.2):
                place = self._dice.choice(("queue:default", "queue:sole", "retry", "schedule"))
                if place.startswith("queue:"):
                    length = self._client.llen(place)
                    at = self._dice.randrange(length or 1)
                    found = self._client.lrange(place, at, at)
                else:
                    found = self._client.zrandmember(place, 1)
                if not found:
                    continue
                job = json.loads(found[0])
                path = f"/bulk?place={place}&act=delete&jid={job['jid']}"
                for form in browser.forms(path, "bulk"):
                    change = browser.ended(str(browser.send(form).url.path)).progress
                    self.unsure += change.unsure
                    if change.done and job["class"] != "Sole":
                        self.deleted[job["args"][0]] = job["class"]

    def look(self) -> None:
        """Count the keys of unique jobs that are in several places at one moment."""
        steps = self._client.pipeline(transaction=True)
        steps.lrange("queue:sole", 0, -1)
        for name in ("retry", "schedule"):
            steps.zrange(name, 0, -1)
        for key in self._client.keys("jobwire:private:*"):
            steps.hvals(key)
        jobs = [json.loads(text) for texts in steps.execute() for text in texts]
        seen = {(job["args"][0], job["jid"]) for job in jobs if job["class"] == "Sole"}
        counts = Counter(key for key, _ in seen)
        self.twice += sum(count > 1 for count in counts.values())

    def rage(self) -> None:
        """Kill workers until all jobs were enqueued and most have ended; then let the rest end."""
        self._producer.start()
        self._person.start()
        most, since, killed_at = -1, time.monotonic(), 0
        while True:
            time.sleep(0.2)
            self.look()
            done = self._ledger.llen("ended")
            if done > most:
                most, since = done, time.monotonic()
            over = self.over()
            if time.monotonic() - since > self._patience or (over and not self._sidekiqs):
                break
            if over:  # besides the jobs that Sidekiq holds, which are in no place
                self.stop_sidekiq(0, again=False)
            if self._made.is_set() and done + len(self.deleted) > self._options.jobs * 0.98:
                self._enough.set()
            if not self._enough.is_set() and done - killed_at > self._options.every:
                killed_at = done
                self.kill()
        self._enough.set()
        self._person.join(PATIENCE_S)

    def over(self) -> bool:
        """Return whether nothing waits or runs any more."""
        client = self._client
        places = ("queue:default", "queue:sole", "queue:ends", "schedule", "retry")
        return (
            self._made.is_set()
            and not client.exists(*places)
            and not client.keys("jobwire:private:*")
        )

    def account(self) -> dict[str, object]:
        """Return what was found; each name that is not a figure must be 0."""
        client, book = self._client, self._ledger
        runs: dict[str, list[int]] = {}
        for name in ("ended", "callbacks"):
            for line in book.lrange(name, 0, -1):
                what, _, pid = line.decode().rpartition(" ")
                runs.setdefault(what, []).append(int(pid))
        size = self._options.jobs // BATCHES
        left_out = {(number - 1) // size for number in self.deleted}
        dying = Counter(self.dying)
        dying.subtract((n - 1) // size for n, name in self.deleted.items() if name == "Dying")
        in_ruby = sum(pid in self.of_ruby for pids in runs.values() for pid in pids)
        expected = {f"{at} on_complete" for at in range(BATCHES)}
        for at in range(BATCHES):
            if dying[at] > 0:
                expected.add(f"{at} on_death")
            elif at not in left_out:
                expected.add(f"{at} on_success")
        callbacks = {what for what in runs if " on_" in what}
        sole_runs = runs.pop("sole", [])
        states = Counter(client.hget(f"jobwire:batch:{one}", "state") for one in self.ids)
        alone = [what for what in runs if what.isdigit()]
        deaths = sum(dying.values())
        wrong = {name.decode(): int(count) for name, count in book.hgetall("wrong").items()}
        starts = sorted(int(start) for start in book.smembers("starts"))
        span = int(window.per * 1e6)
        assert window.window is not None
        over = sum(
            later - start < span
            for start, later in zip(starts, starts[window.window :], strict=False)
        )
        held = client.keys("jobwire:limit:*:held")
        waiting = client.zcount("jobwire:limit:slots:line", "-inf", 2**52 - 1)  # not deleted
        return {
            "wrong": {
                "members without an end": size * BATCHES
                - deaths
                - len({*alone} | {*map(str, self.deleted)}),
                "deleted, and ended": max(
                    0, len({*alone} & {*map(str, self.deleted)}) - self.unsure
                ),
                "deaths too many or few": client.zcard("dead") - deaths,
                "callbacks missing": len(expected - callbacks),
                "callbacks too many": len(callbacks - expected),
                "second ends without a kill": sum(
                    not {*pids[:-1]} <= self.killed for pids in runs.values()
                ),
                "batches open": BATCHES - states[b"complete"],
                "slots exceeded": wrong.get("slots", 0),
                "windows exceeded": over,
                "locks held twice": wrong.get("doubled", 0),
                "unique jobs twice": self.twice,
                "locks left": len(client.keys("jobwire:unique:*")),
                "slots left": len(held),
                "jobs left in line": waiting,
                "jobs left": client.zcard("schedule") + client.zcard("retry"),
                "Sidekiq that ran nothing": bool(self.of_ruby) and not in_ruby,
            },
            "members": self._options.jobs,
            "deaths": deaths,
            "callbacks": len(callbacks),
            "second ends": sum(len(pids) - 1 for pids in runs.values()),
            "starts in windows": len(starts),
            "unique jobs": len(sole_runs),
            "duplicates refused": self.refused,
            "kills": len(self.killed),
            "deletions on the page": len(self.deleted),
            "ends in Ruby": in_ruby,
            "stops of Sidekiq": self.stops,
        }


def storm(
    options: argparse.Namespace, server: Server, calm: Server, ruby: Path | None = None
) -> tuple[str, list[str]]:
    """Run a storm; return its figures in words, and a list of mistakes.

    `ruby` is the directory of the Ruby programs, if half of the workers are real Sidekiq.
    """
    app.connect(server.url)
    with closing(Storm(options, server, calm, ruby)) as run, closing(app):
        sidekiqs = options.workers // 2 if ruby else 0
        for _ in range(options.workers - sidekiqs):
            run.start()
        for _ in range(sidekiqs):
            run.start_sidekiq()
        run.rage()
        time.sleep(LEASE_S)  # the last slots of killed processes
        account: Any = run.account()
    wrong = [f"{name}: {count}" for name, count in account.pop("wrong").items() if count]
    return ", ".join(f"{count:,} {name}" for name, count in account.items()), wrong


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.coordination")
    parser.add_argument("parts", nargs="*", metavar="PART", help="those to run")
    parser.add_argument("--full", action="store_true", help="the other parts in their full size")
    parser.add_argument("--jobs", type=int, help="members of batches")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0, help="repeats the choice of killed workers")
    parser.add_argument("--every", type=int, default=70, help="ends of members between two kills")
    parser.add_argument("--work", metavar="URL", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(options.work)
    from tests.chaos.promises import PARTS, Bench  # not in a worker, which has to start soon

    names = [*MEMBERS, *PARTS]
    if unknown := {*options.parts} - {*names}:
        parser.error(f"no part {', '.join(unknown)}; expected some of {', '.join(names)}")
    if not (options.jobs is None or options.jobs >= BATCHES) or options.workers < 2:
        parser.error(f"--jobs must be at least {BATCHES}, --workers at least 2")
    out = Console(highlight=False, soft_wrap=True)
    status = 0
    parts = options.parts or names
    if "ruby" in parts and (reason := missing(RUBY_RELEASE)):
        out.print(f"coordination: left out: ruby: {reason}")
        parts = [part for part in parts if part != "ruby"]
        status = 0 if parts else 2
    given = options.jobs
    for part in parts:
        options.jobs = given or MEMBERS.get(part)
        with ExitStack() as opened:
            reaper = Reaper()
            opened.callback(reaper.close)
            server, calm = Server(reaper, valkey_program()), Server(reaper, valkey_program())
            opened.callback(server.close)
            opened.callback(calm.close)
            started = time.monotonic()
            if part == "ruby":
                from tests.interop.sidekiq import with_jobwire

                programs = Path(opened.enter_context(tempfile.TemporaryDirectory()))
                words, wrong = storm(options, server, calm, with_jobwire(programs))
            elif part == "storm":
                words, wrong = storm(options, server, calm)
            else:
                bench = Bench(server, calm, random.Random(options.seed), options.full)
                words, wrong = PARTS[part](bench)
        out.print(*wrong, sep="\n", end="\n" if wrong else "")
        took = time.monotonic() - started
        out.print(f"{part}: {words}, in {took:,.0f} s: {'wrong' if wrong else 'well'}")
        status |= bool(wrong)
    return status


if __name__ == "__main__":
    sys.exit(main())
