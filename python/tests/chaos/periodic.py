"""Periodic jobs under fire, with real sidekiq-cron beside us: each tick once.

    python -m tests.chaos.periodic [--seconds N] [--entries N] [--gems N] [--workers N] [--seed N]

Processes of sidekiq-cron 1.8.0 and of jobwire share one Redis and its entries, half of which either
side wrote. A random process is killed every few seconds and started again; their clocks differ by
up to 20 s. The jobs keep a ledger in another database. The last line is the account. Exit
status: 0 each tick was taken and pushed once; 1 not. A tick that sidekiq-cron takes and does not
push, because it was killed between the two steps, is counted by itself.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harness.chroots import CHROOTS, RubyProcess
from harness.servers import Reaper, Server, clean_environment, valkey_program, wait_until
from jobwire.connection.sync import SyncRedis
from jobwire.periodic.schedule import load
from jobwire.protocol.keys import Keys
from jobwire.protocol.periodic_entry import PeriodicEntry
from tests.interop.driver import Driver
from tests.interop.ledger_app import KEY, QUEUE
from tests.interop.sidekiq import CRON_VERSION, RUBY, RealSidekiq

__all__ = ["Account", "Fleet", "run"]

PYTHON = Path(__file__).resolve().parents[1]
PERIODS_MIN = (1, 2, 3)  # minutes between two ticks, by entry
LEAD_S = 20.0  # how far clocks are apart, in either direction
GRACE_S = 60
SETTLE_S = 90.0  # within which the jobs of killed processes run again


@dataclass
class Account:
    """The count of the ticks.

    Attributes:
        expected: Ticks of all entries by the clock.
        missing: Those that no process took.
        lost: Those that were taken, but have no job.
        doubled: Those with several jobs.
        pushers: How many of the newest pushes of each entry were of which kind of process.
        kills: How many processes of each kind were killed.
    """

    expected: int = 0
    missing: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    pushers: Counter[str] = field(default_factory=Counter)
    kills: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        killed, pushed = (
            ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items())) or "none"
            for counts in (self.kills, self.pushers)
        )
        return (
            f"{self.expected} ticks: {len(self.missing)} missing, {len(self.doubled)} doubled, "
            f"{len(self.lost)} taken by sidekiq-cron but not pushed; killed: {killed}; newest "
            f"pushes by: {pushed}"
        )


class Fleet:
    """Processes of both kinds on one Redis.

    Args:
        url: The Redis.
        ledger: The Redis of the ledger.
        directory: For logs.
    """

    def __init__(self, url: str, ledger: str, directory: Path) -> None:
        self._url = url
        self._ledger = ledger
        self._directory = directory
        self._gems: dict[str, tuple[RubyProcess, float]] = {}
        self._workers: dict[str, tuple[subprocess.Popen[bytes], float]] = {}

    @property
    def names(self) -> list[str]:
        return [*self._gems, *self._workers]

    def start_gem(self, name: str, lead: float) -> None:
        """Start a worker of Sidekiq with sidekiq-cron, whose clock is ahead."""
        command = ["sidekiq", "-r", "./cron.rb", "-c", "1", "-q", "nobody"]
        environment = {"REDIS_URL": self._url, "CRON_POLL": "3", "TZ": "UTC", **_faked(lead)}
        process = RubyProcess(
            CHROOTS / CRON_VERSION, command, environment, pipes=False, directory=RUBY
        )
        self._gems[name] = process, lead

    def start_worker(self, name: str, lead: float) -> None:
        """Start a worker of ours, whose clock is ahead."""
        variables = {
            "PYTHONPATH": str(PYTHON),
            "JOBWIRE_REDIS_URL": self._url,
            "LEDGER_URL": self._ledger,
            "TZ": "UTC",
            **_faked(lead, CHROOTS / CRON_VERSION),
        }
        command = [sys.executable, "-m", "jobwire", "worker", "tests.interop.ledger_app:app"]
        with (self._directory / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [*command, "-q", QUEUE, "-c", "2"],
                env=clean_environment(**variables),
                cwd=PYTHON,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self._workers[name] = process, lead

    def kill(self, name: str) -> str:
        """Kill a process and start it again; return its kind."""
        if name in self._gems:
            process, lead = self._gems[name]
            process.close()
            self.start_gem(name, lead)
            return "sidekiq-cron"
        worker, lead = self._workers[name]
        worker.kill()
        worker.wait()
        self.start_worker(name, lead)
        return "jobwire"

    def log(self, name: str) -> str:
        """Return the output of a process."""
        if name in self._gems:
            return self._gems[name][0].log()
        return (self._directory / f"{name}.log").read_text("utf-8", "replace")

    def close(self) -> None:
        """Kill all processes."""
        for gem, _ in self._gems.values():
            gem.close()
        for worker, _ in self._workers.values():
            worker.kill()
            worker.wait()


def _faked(lead: float, root: Path | None = None) -> dict[str, str]:
    """Return the variables that put the clock of a process ahead. The library is the chroot's."""
    if not lead:
        return {}
    libraries = (CHROOTS / CRON_VERSION).glob("usr/lib/*/faketime/libfaketimeMT.so.1")
    library = next(libraries).relative_to(CHROOTS / CRON_VERSION)
    return {
        "LD_PRELOAD": str((root or Path("/")) / library),
        "FAKETIME": f"{lead:+g}s",
        "DONT_FAKE_MONOTONIC": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }


def write_entries(driver: Driver, url: str, count: int) -> dict[str, int]:
    """Write entries, one half by either side; return the minutes between the ticks of each."""
    minutes = {f"entry-{n}": PERIODS_MIN[n % len(PERIODS_MIN)] for n in range(count)}
    lines = {name: f"*/{period} * * * * UTC" for name, period in minutes.items()}
    theirs = dict([*lines.items()][: count // 2])
    driver.eval(
        'with.each { |name, line| Cron.create(name: name, cron: line, class: "LedgerJob", '
        f'queue: "{QUEUE}", args: [name], date_as_argument: true) }}; Cron.count',
        theirs,
    )
    ours = [
        PeriodicEntry(
            name=name,
            cron=line,
            job="LedgerJob",
            args=[name],
            options={"queue": QUEUE},
            date_as_argument=True,
        )
        for name, line in lines.items()
        if name not in theirs
    ]
    connection = SyncRedis(url)
    try:
        connection.run(load(Keys(""), ours, schedule="chaos"))
    finally:
        connection.close()
    return minutes


def audit(
    client: Any, ledger: Any, minutes: Mapping[str, int], begin: float, end: float
) -> Account:
    """Compare the ticks by the clock with those that were taken, and with the jobs that ran."""
    jobs: dict[tuple[str, int], set[str]] = defaultdict(set)
    for text in ledger.lrange(KEY, 0, -1):
        jid, name, pushed = json.loads(text)
        period = 60 * minutes[name]
        # By the clock of the process that pushed, which also decided that the tick was due.
        jobs[name, int(pushed // period) * period].add(jid)
    account = Account()
    for name, period in minutes.items():
        members = client.zrange(f"cron_job:{name}:enqueued", 0, -1)
        taken = {int(datetime.fromisoformat(m.decode()).timestamp()) for m in members}
        for text in client.lrange(f"cron_job:{name}:jid_history", 0, -1):
            is_theirs = text.endswith(b'+0000"}')  # 1.8.0 spells the zone so
            account.pushers["sidekiq-cron" if is_theirs else "jobwire"] += 1
        step = 60 * period
        first = int(begin // step + 1) * step
        for tick in range(first, int(end), step):
            account.expected += 1
            found = jobs.get((name, tick), set())
            shown = f"{name} {datetime.fromtimestamp(tick, UTC):%H:%M}"
            if tick not in taken:
                account.missing.append(shown)
            elif not found:
                account.lost.append(shown)
            if len(found) > 1:
                account.doubled.append(f"{shown} {sorted(found)}")
    return account


@contextmanager
def fleet(
    server: Server, ledger: Server, *, entries: int, gems: int, workers: int, lead: float
) -> Iterator[tuple[Fleet, dict[str, int]]]:
    """Run a fleet over new entries."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        real = RealSidekiq(CRON_VERSION, CHROOTS / CRON_VERSION, server.url)
        with real.driver(loads="cron.rb") as driver:
            minutes = write_entries(driver, server.url, entries)
        both = Fleet(server.url, ledger.url, directory)
        stack.callback(both.close)
        leads = (0.0, lead, -lead)
        for number in range(gems):
            both.start_gem(f"gem-{number}", leads[(number + 1) % 3])
        for number in range(workers):
            both.start_worker(f"worker-{number}", leads[number % 3])
        yield both, minutes


def run(
    server: Server,
    ledger: Server,
    *,
    seconds: float,
    entries: int,
    gems: int,
    workers: int,
    seed: int,
    every: float = 10.0,
    lead: float = LEAD_S,
) -> Account:
    """Run a fleet for some seconds, kill a random process every few ones, and count the ticks."""
    draw = random.Random(seed)
    kills: Counter[str] = Counter()
    options = {"entries": entries, "gems": gems, "workers": workers, "lead": lead}
    with (
        fleet(server, ledger, **options) as (both, minutes),  # type: ignore[arg-type]
        server.client() as client,
        ledger.client() as ledgers,
    ):
        wait_until(lambda: client.scard("processes") >= gems + workers, 60, "all processes")
        begin = time.time()
        while time.time() < begin + seconds:
            time.sleep(every)  # the storm itself
            kills[both.kill(draw.choice(both.names))] += 1
        end = time.time() - lead  # a later tick may still come from a clock that is behind
        # No more ticks: the jobs that were pushed have time to run.
        for key in client.smembers("cron_jobs"):
            client.hset(key, "status", "disabled")

        def at_rest() -> bool:
            held = any(client.hlen(key) for key in client.scan_iter("jobwire:private:*"))
            return not held and not client.llen(f"queue:{QUEUE}")

        time.sleep(lead)  # ticks that were read before
        wait_until(at_rest, SETTLE_S, "all jobs to run")
        account = audit(client, ledgers, minutes, begin, end)
    account.kills = kills
    return account


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="tests.chaos.periodic", description=__doc__)
    parser.add_argument("--seconds", type=float, default=900.0)
    parser.add_argument("--entries", type=int, default=200)
    parser.add_argument("--gems", type=int, default=2)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 31))
    options = parser.parse_args()
    sys.stdout.write(f"seed {options.seed}\n")
    with ExitStack() as stack:
        reaper = stack.enter_context(Reaper())
        servers = [Server(reaper, valkey_program()) for _ in range(2)]
        for server in servers:
            stack.callback(server.close)
        account = run(*servers, **vars(options))
    for kind in ("missing", "doubled", "lost"):
        for line in getattr(account, kind)[:20]:
            sys.stdout.write(f"{kind}: {line}\n")
    sys.stdout.write(f"{account}\n")
    return 1 if account.missing or account.doubled else 0


if __name__ == "__main__":
    sys.exit(main())
