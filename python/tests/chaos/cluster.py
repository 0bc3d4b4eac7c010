"""A cluster under fire: primaries and workers killed, slots moved, a shard drained and removed.

    python -m tests.chaos.cluster [--seconds N] [--seed N] [--jobs N] [--shards N] [--replicas N]

The last line printed is the account. Exit status: 0 no job is stuck or invented, and with a replica
that confirms each push none is lost; 1 not; 2 wrong usage. Without one (`--replicas 0`), a lost job
is one whose push Redis acknowledged and forgot: the account says how many of them were acknowledged
in the last second before a primary was killed.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import redis
from rich.console import Console

from harness.servers import Reaper, Server, valkey_program, wait_until
from jobwire import App
from jobwire.inspect.shards import ShardStates
from tests.chaos import jobs as kinds
from tests.chaos import plan
from tests.chaos.__main__ import JOBS_A_SECOND, PATIENCE, PUSHING, Enqueuer, census, hurry, waiting
from tests.chaos.audit import Account, audit
from tests.chaos.snapshots import Gate
from tests.clusters import Cluster, cluster
from tests.workers import WorkerProcess, Workers

FAILOVER_INTERVAL = 20.0  # seconds between two kills of a primary
KILL_INTERVAL = 3.0  # seconds between two kills of a worker, on average
DRAINED = "s1"
Step = tuple[float, Callable[[], None]]


class Run:
    """One run, from the first job to the account."""

    def __init__(self, options: argparse.Namespace, out: Console) -> None:
        self._out = out
        self._seconds: float = options.seconds
        self._replicas: int = options.replicas
        self._shards: int = options.shards
        self._jobs = plan.jobs(options.jobs, seed=options.seed, seconds=options.seconds)
        self._jitter = random.Random(f"cluster {options.seed}")
        self._counts: Counter[str] = Counter()
        self._failed_at: list[float] = []  # on the monotonic clock
        self._calm = threading.Event()
        self._seed: int = options.seed

    def __call__(self, directory: Path) -> bool:
        """Execute the run; return whether all is well."""
        with ExitStack() as opened:
            reaper = Reaper()
            opened.callback(reaper.close)
            calm = Server(reaper, valkey_program())
            opened.callback(calm.close)
            self._cluster: Cluster = opened.enter_context(cluster(reaper))
            os.environ[kinds.RECORD] = calm.url
            os.environ[kinds.SHARDS] = self._cluster.url(f"?shards={self._shards}")
            self._record: Any = calm.client()
            self._workers = opened.enter_context(Workers(reaper, directory))
            self._worker = self._start()
            app = App(shards=os.environ[kinds.SHARDS], wait_replicas=self._replicas)
            self._names = app.shards
            self._states = opened.enter_context(ShardStates(app.redis))
            wait_until(lambda: all(self._each(_processes)), what="the workers")
            enqueuer = Enqueuer(app.client, self._jobs, Gate(), seconds=self._seconds * PUSHING)
            opened.callback(app.close)
            threading.Thread(target=self._kill_workers, args=[self._seed], daemon=True).start()
            self._rage()
            self._drain(enqueuer)
            account = self._account(enqueuer)
            self._remove()
            return self._report(account, enqueuer)

    def _start(self) -> WorkerProcess:
        return self._workers.start(
            *(f"{kinds.__name__}:app", "-q", "high,3", "-q", "low,1", "-c", "5", "-t", "2"),
            *("--poll-interval", "1"),
        )

    def _rage(self) -> None:
        started = time.monotonic()
        for at, step in sorted(self._steps(), key=lambda each: each[0]):
            while time.monotonic() < started + at:
                time.sleep(0.1)
                with suppress(redis.RedisError):
                    self._hurry(within=2)
            step()
            text = f"{time.monotonic() - started:4.0f} s {step.__name__.strip('_')}"
            self._say(text.replace("_", " "))

    def _steps(self) -> Iterator[Step]:
        count = max(round(self._seconds / FAILOVER_INTERVAL), 1)
        for number in range(count):
            yield (number + 0.5) * self._seconds / count, self._fail_over
        yield self._seconds * 0.33, self._move_at_once
        yield self._seconds * 0.45, self._drain_shard
        yield self._seconds * 0.67, self._move_by_keys
        yield self._seconds * 0.75, self._kill_supervisor
        yield self._seconds, self._end

    # -- the disturbances

    def _fail_over(self) -> None:
        # Of the two copies of a slot, only one may be away at a time.
        wait_until(self._cluster.is_whole, what="all replicas")
        tag = self._jitter.choice(self._names)
        self._failed_at.append(time.monotonic())
        killed = self._cluster.promote_replica_of(tag)
        time.sleep(self._jitter.uniform(0, 1.0))
        killed.start()
        self._counts["failovers"] += 1

    def _move_at_once(self) -> None:
        self._move(classic=False)

    def _move_by_keys(self) -> None:
        self._move(classic=True)

    def _move(self, *, classic: bool) -> None:
        wait_until(self._cluster.is_whole, what="all replicas")
        tag = self._jitter.choice(self._names)
        self._cluster.move(tag, self._cluster.other_primary(tag), classic=classic)
        self._counts["moves"] += 1

    def _drain_shard(self) -> None:
        wait_until(self._cluster.is_whole, what="all replicas")
        self._states.drain([DRAINED])
        self._counts["drained"] += 1

    def _kill_supervisor(self) -> None:
        self._worker.kill()
        self._worker = self._start()
        self._counts["kills"] += 1

    def _kill_workers(self, seed: int) -> None:
        jitter = random.Random(f"kills {seed}")
        while not self._calm.wait(jitter.expovariate(1 / KILL_INTERVAL)):
            name = jitter.choice(self._names)
            with suppress(redis.RedisError), self._at(name) as client:
                identities = _processes(client, f"{{{name}}}:")
                if any(map(_kill, jitter.sample(identities, len(identities)))):
                    self._counts["kills"] += 1

    def _end(self) -> None:
        self._calm.set()
        wait_until(self._cluster.is_whole, what="the cluster")

    # -- the end

    def _drain(self, enqueuer: Enqueuer) -> None:
        """Let the workers finish, as long as they make progress."""
        least, since = sys.maxsize, time.monotonic()
        while time.monotonic() - since < PATIENCE:
            self._hurry(within=0)
            left = len(self._jobs) - enqueuer.pushed + sum(self._each(waiting))
            if left == 0:
                return
            if left < least:
                least, since = left, time.monotonic()
            time.sleep(0.2)

    def _account(self, enqueuer: Enqueuer) -> Account:
        places: Counter[int] = Counter()
        dead: Counter[int] = Counter()
        poisoned: set[int] = set()
        for found in self._each(census):
            places += found[0]
            dead += found[1]
            poisoned |= found[2]
        finished: dict[int, list[int]] = {}
        for line in self._record.lrange(kinds.FINISHED, 0, -1):
            number, pid = map(int, line.split())
            finished.setdefault(number, []).append(pid)
        return audit(
            self._jobs,
            finished=finished,
            failed={int(number) for number in self._record.hkeys(kinds.FAILED)},
            dead=dead,
            places=places,
            poisoned=poisoned,
            repeated=enqueuer.repeated,
            restored=range(len(self._jobs)),  # each failover brings some back
        )

    def _remove(self) -> None:
        """Remove the drained shard; its dead jobs, which are counted, would keep it."""
        with self._at(DRAINED) as client:
            client.unlink(f"{{{DRAINED}}}:dead", f"{{{DRAINED}}}:jobwire:unreadable")
        self._states.remove([DRAINED])
        self._counts["removed"] += 1

        def left() -> bool:
            with self._at(DRAINED) as client:
                return not _processes(client, f"{{{DRAINED}}}:")

        wait_until(left, what="the workers of the removed shard to end")

    def _report(self, account: Account, enqueuer: Enqueuer) -> bool:
        forgotten = [
            number
            for number in account.lost
            if any(0 <= at - enqueuer.acknowledged[number] <= 1.0 for at in self._failed_at)
        ]
        for name in ("lost", "stuck", "invented"):
            if numbers := getattr(account, name):
                self._say(f"{name}: {numbers[:20]}")
        self._say(
            f"enqueued {enqueuer.pushed}, finished {len(account.finished)}, "
            f"dead {len(account.dead)}, lost {len(account.lost)}"
            + (f" (acknowledged just before a kill: {len(forgotten)})" if account.lost else "")
            + f", stuck {len(account.stuck)}, invented {len(account.invented)}, "
            f"duplicates {len(account.duplicates)}, pushed again {len(enqueuer.repeated)}, "
            + ", ".join(f"{what} {count}" for what, count in sorted(self._counts.items()))
        )
        lost = len(account.lost) if self._replicas else len(account.lost) - len(forgotten)
        return not (lost or account.stuck or account.invented) and enqueuer.pushed == len(
            self._jobs
        )

    # -- parts

    def _at(self, name: str) -> Any:
        return redis.Redis(port=self._cluster.node_of(name).port)

    def _each(self, read: Callable[[Any, str], Any]) -> list[Any]:
        found = []
        for name in self._names:
            with self._at(name) as client:
                found.append(read(client, f"{{{name}}}:"))
        return found

    def _hurry(self, *, within: float) -> None:
        self._each(lambda client, prefix: hurry(client, within=within, prefix=prefix))

    def _say(self, text: str) -> None:
        self._out.print(text, highlight=False, soft_wrap=True)


def _processes(client: Any, prefix: str) -> list[bytes]:
    return sorted(client.smembers(f"{prefix}processes"))


def _kill(identity: bytes) -> bool:
    """Kill a process; return False if it has ended before."""
    try:
        os.kill(int(identity.decode().split(":")[-2]), signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.cluster")
    parser.add_argument("--seconds", type=float, default=60.0, help="duration of the disturbances")
    parser.add_argument("--seed", type=int, help="repeats the jobs and disturbances of a run")
    parser.add_argument("--jobs", type=int, help="default: 6,700 for 60 seconds")
    parser.add_argument("--shards", type=int, default=4)
    parser.add_argument(
        "--replicas", type=int, choices=(0, 1), default=1, help="that confirm each push"
    )
    options = parser.parse_args()
    if options.seconds <= 0 or options.shards < 2 or (options.jobs or 1) < 1:
        parser.error("--seconds and --jobs must be above 0, --shards above 1")
    if options.seed is None:
        options.seed = random.randrange(1_000_000)
    if options.jobs is None:
        options.jobs = int(options.seconds * JOBS_A_SECOND)
    out = Console()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # and clean up on the way
    out.print(
        f"seed {options.seed}: {options.jobs} jobs, {options.shards} shards, "
        f"{options.seconds:g} s of disturbances, {options.replicas} replicas confirm",
        highlight=False,
    )
    directory = Path(tempfile.mkdtemp(prefix="jobwire-chaos-"))
    if not Run(options, out)(directory):
        out.print(f"logs of the workers: {directory}", highlight=False, soft_wrap=True)
        return 1
    shutil.rmtree(directory)
    return 0


if __name__ == "__main__":
    sys.exit(main())
