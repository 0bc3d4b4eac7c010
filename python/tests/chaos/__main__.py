"""Workers under fire: processes killed, connections cut, Redis restarted, and no job is lost.

Storms alternate with lulls, in which no process is disturbed for longer than an audit takes.

    python -m tests.chaos [--seconds N] [--seed N] [--jobs N] [--workers N] [--write]

The last line printed is the account. Exit status: 0 every job finished, or is dead for its own
reason, and no entry stayed in flight for more than two heartbeats of an idle process; 1 not;
2 wrong usage.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import redis
from rich.console import Console

from harness.servers import Reaper, Server, valkey_program
from jobwire import Client
from jobwire.errors import MaybeWritten, RedisTrouble
from jobwire.protocol import poison
from jobwire_conformance.wire.proxy import Switchboard
from tests.chaos import jobs as kinds
from tests.chaos import plan
from tests.chaos.audit import Account, audit
from tests.chaos.plan import Job
from tests.chaos.replica import Pair
from tests.chaos.snapshots import PRIVATE, Gate
from tests.chaos.storm import Storm
from tests.faults import guarantees
from tests.workers import Workers

JOBS_A_SECOND = 20_000 / 180
BULK = 25
PUSHERS = 4  # threads
PUSHING = 0.9  # share of the run
PATIENCE = 60.0  # seconds without any progress after which a job counts as stuck
MAX_DELAY_S = 120.0  # seconds that a script may be late in a long run: two leases
NOBODY = -1  # a doomed job that is dead for a reason that is not its own


class Enqueuer:
    """Pushes the jobs over some seconds, each until it is acknowledged.

    Attributes:
        repeated: Numbers of jobs that were pushed again because the first outcome was unknown.
        acknowledged: Number of each job to the monotonic time after its push.
    """

    def __init__(self, client: Client, jobs: Sequence[Job], gate: Gate, *, seconds: float) -> None:
        self.repeated: set[int] = set()
        self.acknowledged: dict[int, float] = {}
        self._gate = gate
        self._client = client
        self._jobs = jobs
        self._seconds = seconds
        self._pushed = [0] * PUSHERS
        for share in range(PUSHERS):
            threading.Thread(target=self._run, args=[share], daemon=True).start()

    @property
    def pushed(self) -> int:
        """Number of acknowledged jobs."""
        return sum(self._pushed)

    def _run(self, share: int) -> None:
        started = time.monotonic()
        mine = self._jobs[share::PUSHERS]
        pace = self._seconds / max(len(mine), 1)
        for batch in _batches(mine):
            time.sleep(max(started + self._pushed[share] * pace - time.monotonic(), 0))
            self._push(batch)
            self._pushed[share] += len(batch)

    def _push(self, batch: Sequence[Job]) -> None:
        first = batch[0]
        while True:
            at = None if first.after is None else time.time() + first.after
            try:
                with self._gate.passing():
                    if len(batch) == 1:
                        self._client.push(first.kind, first.args, at=at, **_options(first))
                    else:
                        args = [job.args for job in batch]
                        self._client.push_bulk(first.kind, args, at=at, **_options(first))
                self.acknowledged |= dict.fromkeys((job.number for job in batch), time.monotonic())
                return
            except RedisTrouble as error:
                if isinstance(error, MaybeWritten) or error.written:
                    self.repeated |= {job.number for job in batch}
                time.sleep(0.1)


def _options(job: Job) -> Any:
    retry = kinds.app.jobs[job.kind].defaults.get("retry", True)
    return {"queue": job.queue, "retry": retry}


def _batches(jobs: Sequence[Job]) -> Iterator[Sequence[Job]]:
    """Put some of the simplest jobs together for bulk pushes; the rest are pushed one by one."""
    bulk: list[Job] = []
    for job in jobs:
        if job.kind == "Quick" and job.queue == "low" and job.after is None:
            bulk.append(job)
            if len(bulk) == BULK:
                yield bulk
                bulk = []
        else:
            yield [job]
    if bulk:
        yield bulk


def census(client: Any, prefix: str = "") -> tuple[Counter[int], Counter[int], set[int]]:
    """Return how often each job waits or is held, how often it is dead, and the poison pills."""
    texts = [*client.zrange(f"{prefix}retry", 0, -1), *client.zrange(f"{prefix}schedule", 0, -1)]
    for name in client.smembers(f"{prefix}queues"):
        texts += client.lrange(f"{prefix}queue:{name.decode()}", 0, -1)
    for key in client.keys(f"{prefix}{PRIVATE}*"):
        texts += client.hvals(key)
    dead: Counter[int] = Counter()
    poisoned: set[int] = set()
    ended = ("dead", "jobwire:unreadable")
    for text in (text for key in ended for text in client.zrange(prefix + key, 0, -1)):
        job = json.loads(text)
        number = job["args"][0]
        if job.get("error_class") == poison.ERROR_CLASS:
            poisoned.add(number)
        elif job["class"] != "Doomed" or job.get("error_message") == kinds.LAST_WORDS:
            dead[number] += 1
        else:
            dead[NOBODY] += 1
    return Counter(json.loads(text)["args"][0] for text in texts), dead, poisoned


def waiting(client: Any, prefix: str = "") -> int:
    """Return how many jobs wait or are held."""
    count = client.zcard(f"{prefix}retry") + client.zcard(f"{prefix}schedule")
    names = client.smembers(f"{prefix}queues")
    count += sum(client.llen(f"{prefix}queue:{name.decode()}") for name in names)
    return int(count + sum(client.hlen(key) for key in client.keys(f"{prefix}{PRIVATE}*")))


def hurry(client: Any, *, within: float, prefix: str = "") -> None:
    """Advance the clock, so that no job waits longer than this many seconds for its retry."""
    latest = time.time() + within
    for member in client.zrange(f"{prefix}retry", latest, "inf", byscore=True):
        client.zadd(f"{prefix}retry", {member: latest}, xx=True)


class Run:
    """One run, from the first job to the account."""

    def __init__(self, options: argparse.Namespace, out: Console) -> None:
        self._out = out
        self._seconds: float = options.seconds
        self._seed: int = options.seed
        self._jobs = plan.jobs(options.jobs, seed=options.seed, seconds=options.seconds)
        self._size: int = options.workers
        self._writes: bool = options.write
        self._said_at = time.monotonic()
        self._started = time.monotonic()
        self._connected: tuple[Server, Any] | None = None

    def __call__(self, directory: Path) -> bool:
        """Execute the run; return whether all is well."""
        with ExitStack() as opened:
            reaper = Reaper()
            opened.callback(reaper.close)
            calm = Server(reaper, valkey_program())
            opened.callback(calm.close)
            servers = Pair(reaper)
            opened.callback(servers.close)
            os.environ[kinds.RECORD] = calm.url
            board = opened.enter_context(Switchboard())
            workers = opened.enter_context(Workers(reaper, directory))
            self._record: Any = calm.client()
            self._storm = Storm(
                *(servers, workers, board),
                size=self._size,
                longest_delay=min(max(self._seconds / 5, 2.0), MAX_DELAY_S),
            )
            self._status = opened.enter_context(self._out.status("starting"))
            client = opened.enter_context(Client(self._storm.enqueuing.url()))
            enqueuer = Enqueuer(
                client, self._jobs, self._storm.gate, seconds=self._seconds * PUSHING
            )
            self._rage(enqueuer)
            self._storm.calm()
            self._drain(enqueuer)
            account = self._account(enqueuer)

        return self._report(account, enqueuer)

    @property
    def _client(self) -> Any:
        """A connection to the server that is the primary now."""
        server = self._storm.servers.primary
        if self._connected is None or self._connected[0] is not server:
            self._connected = (server, server.client())
        return self._connected[1]

    def _rage(self, enqueuer: Enqueuer) -> None:
        started = time.monotonic()
        hurried_at = 0.0
        for at, what, how in plan.disturbances(seed=self._seed, seconds=self._seconds):
            while (left := started + at - time.monotonic()) > 0:
                time.sleep(min(left, 0.1))
                self._storm.look_after()
                if time.monotonic() - hurried_at > 2:
                    hurried_at = time.monotonic()
                    with suppress(redis.RedisError):
                        hurry(self._client, within=2)
                    elapsed = time.monotonic() - started
                    self._say(plan.phase(elapsed, self._seconds), enqueuer)
            self._storm.happen(what, how)

    def _drain(self, enqueuer: Enqueuer) -> None:
        """Let healthy workers finish, as long as they make progress."""
        least, since = sys.maxsize, time.monotonic()
        with suppress(redis.RedisError):
            self._storm.expire_leases(self._client)
        self._storm.slots[0].send(signal.SIGTERM)  # a new worker recovers jobs of the dead at once
        while time.monotonic() - since < PATIENCE:
            self._storm.look_after()
            with suppress(redis.RedisError):
                self._storm.expire_leases(self._client)
                hurry(self._client, within=0)
                left = waiting(self._client) + len(self._jobs) - enqueuer.pushed
                if left == 0 and waiting(self._client) == 0:
                    return
                if left < least:
                    least, since = left, time.monotonic()
                self._say(f"calm, {left} left", enqueuer)
            time.sleep(0.2)

    def _account(self, enqueuer: Enqueuer) -> Account:
        places, dead, poisoned = census(self._client)
        finished: dict[int, list[int]] = {}
        for line in self._record.lrange(kinds.FINISHED, 0, -1):
            number, pid = map(int, line.split())
            finished.setdefault(number, []).append(pid)
        failed = {int(number) for number in self._record.hkeys(kinds.FAILED)}
        return audit(
            self._jobs,
            finished=finished,
            failed=failed,
            dead=dead,
            places=places,
            poisoned=poisoned,
            repeated=enqueuer.repeated,
            restored=self._storm.restored,
            disturbed=self._storm.disturbed,
        )

    def _say(self, what: str, enqueuer: Enqueuer) -> None:
        """Show the progress: always on a terminal, otherwise now and then."""
        now = time.monotonic()
        storm = self._storm
        text = (
            f"{now - self._started:4.0f} s {what}: {enqueuer.pushed} enqueued, "
            f"{self._record.llen(kinds.FINISHED)} finished, {storm.kills} kills, "
            f"{storm.restarts} restarts, {storm.cuts} cuts"
        )
        self._status.update(text)
        if not self._out.is_terminal and now - self._said_at > 10:
            self._said_at = now
            self._out.print(text, highlight=False, soft_wrap=True)

    def _report(self, account: Account, enqueuer: Enqueuer) -> bool:
        say = self._out.print
        storm = self._storm
        happened = ", ".join(f"{count} {what}" for what, count in sorted(storm.counts.items()))
        say(f"happened: {happened.replace('_', ' ')}", highlight=False, soft_wrap=True)
        for why, numbers in {
            "were pushed again, because no reply came": enqueuer.repeated,
            "a snapshot or a replica brought back": storm.restored,
        }.items():
            count = len([number for number in account.duplicates if number in numbers])
            say(
                f"of the duplicates, {count} are of jobs that {why}",
                highlight=False,
                soft_wrap=True,
            )
        overdue = storm.in_flight.overdue
        for (identity, field), age in overdue.items():
            say(f"in flight for {age:.0f} s: {field} of {identity}", highlight=False)
        for name in ("lost", "stuck", "invented", "unexcused"):
            if numbers := getattr(account, name):
                say(f"{name}: {numbers[:20]}", highlight=False, soft_wrap=True)
        say(
            f"enqueued {enqueuer.pushed}, finished {len(account.finished)}, "
            f"dead {len(account.dead)}, lost {len(account.lost)}, stuck {len(account.stuck)}, "
            f"overdue {len(overdue)}, "
            f"invented {len(account.invented)}, duplicates {len(account.duplicates)}, "
            f"kills {storm.kills}, restarts {storm.restarts}, cuts {storm.cuts}",
            highlight=False,
            soft_wrap=True,
        )
        if self._writes:
            page = guarantees.PAGE.read_text(encoding="utf-8")
            page = guarantees.with_figures(
                page, guarantees.CHAOS, self._seed, self._figures(account, enqueuer)
            )
            guarantees.PAGE.write_text(page, encoding="utf-8")
        return account.balanced and not overdue and enqueuer.pushed == len(self._jobs)

    def _figures(self, account: Account, enqueuer: Enqueuer) -> dict[str, object]:
        """Return the figures of this run for the page of guarantees."""
        storm, twice = self._storm, account.duplicates
        again = [number for number in twice if number in enqueuer.repeated]
        restored = [number for number in twice if number in storm.restored.difference(again)]
        return {
            "seconds of disturbances": f"{self._seconds:g}",
            "jobs": f"{enqueuer.pushed:,}",
            "finished": f"{len(account.finished):,}",
            "dead for their own reason": f"{len(account.dead):,}",
            "lost": len(account.lost),
            "stuck": len(account.stuck),
            "overdue": len(storm.in_flight.overdue),
            "invented": len(account.invented),
            "second runs": len(twice),
            "of these, pushed again": len(again),
            "of these, brought back": len(restored),
            "of these, first process killed, paused or stopped": len(twice)
            - len(again)
            - len(restored)
            - len(account.unexcused),
            "of these, without a reason": len(account.unexcused),
            "kills": storm.kills,
            "cuts": storm.cuts,
            "restarts of Redis": storm.restarts,
            "promoted replicas": storm.counts["promote"],
            "late scripts": storm.counts["late script arrived"],
        }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos")
    parser.add_argument("--seconds", type=float, default=180.0, help="duration of the disturbances")
    parser.add_argument("--seed", type=int, help="repeats the jobs and disturbances of a run")
    parser.add_argument("--jobs", type=int, help="default: 20,000 for 180 seconds")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument(
        "--write", action="store_true", help=f"write the figures into {guarantees.PAGE.name}"
    )
    options = parser.parse_args()
    if options.seconds <= 0 or options.workers < 1 or (options.jobs or 1) < 1:
        parser.error("--seconds, --jobs and --workers must be above 0")
    if options.seed is None:
        options.seed = random.randrange(1_000_000)
    if options.jobs is None:
        options.jobs = int(options.seconds * JOBS_A_SECOND)
    out = Console()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # and clean up on the way
    out.print(
        f"seed {options.seed}: {options.jobs} jobs, {options.workers} workers, "
        f"{options.seconds:g} s of disturbances",
        highlight=False,
    )
    directory = Path(tempfile.mkdtemp(prefix="jobwire-chaos-"))
    keep = False
    try:
        keep = not Run(options, out)(directory)
    finally:
        if not keep:
            shutil.rmtree(directory)
    if keep:
        out.print(f"logs of the workers: {directory}", highlight=False, soft_wrap=True)
    return int(keep)


if __name__ == "__main__":
    sys.exit(main())
