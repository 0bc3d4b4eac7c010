"""A real Sidekiq for the interop tests: its workers, and its client and API through a driver."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest
import redis

from harness.chroots import CHROOTS, RubyProcess, missing
from harness.servers import wait_until
from tests.interop.driver import Driver

RUBY = Path(__file__).parent / "ruby"
ROOT = Path(__file__).resolve().parents[3]
GENERATIONS = ("6.4.1", "7.3.2", "8.1.7")
CRON_VERSION = "6.4.1"  # only the Debian that has it has sidekiq-cron also
_CRON = "usr/share/doc/ruby-sidekiq-cron"
PAGES = """
require "rack/mock"
require "sidekiq/web"
with.to_h { |path|
  page = Rack::MockRequest.new(Sidekiq::Web).get(path, "rack.session" => {})
  [path, [page.status, page.body.dup.force_encoding("UTF-8").scrub]]
}
"""
"""Ruby for `Driver.eval`: status and body of pages of Sidekiq's own web page, by their paths."""


def with_jobwire(directory: Path) -> Path:
    """Copy the Ruby programs to this directory, beside examples/ruby/jobwire.rb; return it."""
    for file in (*RUBY.glob("*.rb"), ROOT / "examples" / "ruby" / "jobwire.rb"):
        shutil.copy(file, directory)
    shutil.copytree(ROOT / "lua", directory / "lua")
    return directory


class SidekiqWorker:
    """A running `sidekiq` process, already registered in `processes`."""

    def __init__(self, process: RubyProcess, identity: str) -> None:
        self._process = process
        self.identity = identity
        self.pid = process.pid

    @property
    def running(self) -> bool:
        return self._process.running

    def log(self) -> str:
        return self._process.log()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal: TSTP is Sidekiq's quiet, TERM its stop, TTIN its thread dump."""
        os.kill(self.pid, number)

    def wait(self, *, within: float = 40.0) -> int:
        """Wait for the end of the process; return its exit status."""
        return self._process.popen.wait(within)

    def stop(self, *, within: float = 40.0) -> int:
        """TERM and wait; return the exit status. Takes 0.5 to 2.5 s when no job is running."""
        self.signal(signal.SIGTERM)
        return self.wait(within=within)

    def kill(self) -> None:
        """SIGKILL, as a machine would fail: jobs in progress stay in the work record."""
        self.signal(signal.SIGKILL)
        self._process.popen.wait()


class RealSidekiq:
    """One generation of Sidekiq, on one Redis.

    Args:
        version: One of GENERATIONS. A chroot may hold a later patch release: see `Driver.version`.
        chroot: The directory that `.ci/sidekiq-chroots` made for it.
        url: The Redis.
        directory: The Ruby programs.
    """

    def __init__(self, version: str, chroot: Path, url: str, directory: Path = RUBY) -> None:
        self.version = version
        self.generation = int(version.partition(".")[0])
        self._chroot = chroot
        self._url = url
        self._directory = directory

    @contextmanager
    def worker(
        self,
        *,
        queues: Sequence[str] = ("default",),
        concurrency: int = 2,
        poll: float | None = 1.0,
        timeout: int = 8,
        options: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        program: str = "jobs.rb",
    ) -> Iterator[SidekiqWorker]:
        """Run a worker of `ruby/jobs.rb` until the block ends; then it is killed, not stopped.

        Args:
            queues: `-q`: names, or "name,weight".
            concurrency: `-c`.
            poll: Average seconds between two looks at `retry` and `schedule`; None is Sidekiq's own
                pace, with a first look after 10 to 15 s.
            timeout: `-t`: seconds that running jobs get after TERM. Below 2, set concurrency to 1:
                Sidekiq puts an unfinished job back while its idle processors may still be waiting
                in BRPOP (2 s), and a job that such a dying processor receives is lost.
            options: Further command line options, such as `["-g", "tag"]`.
            env: DEAD_MAX, DEAD_TIMEOUT, MAX_RETRIES (see jobs.rb).
            program: The file with the jobs, such as cron.rb, which also has sidekiq-cron.
        """
        command = ["sidekiq", "-r", f"./{program}", "-c", str(concurrency), "-t", str(timeout)]
        for queue in queues:
            command += ["-q", queue]
        environment = {"REDIS_URL": self._url, **(env or {})}
        if poll is not None:
            environment["POLL"] = str(poll)
        process = RubyProcess(
            self._chroot, [*command, *options], environment, pipes=False, directory=self._directory
        )
        try:
            with redis.Redis.from_url(self._url) as client:

                def registered() -> str | None:
                    assert process.running, f"sidekiq did not start:\n{process.log()}"
                    members = cast("set[bytes]", client.smembers("processes"))
                    identities = (member.decode() for member in members)
                    return next(
                        (i for i in identities if i.split(":")[1] == str(process.pid)), None
                    )

                identity = wait_until(registered, 30.0, "sidekiq in `processes`")
            assert identity
            yield SidekiqWorker(process, identity)
        finally:
            process.close()

    @contextmanager
    def driver(self, *, loads: str | None = None) -> Iterator[Driver]:
        """Run `ruby/driver.rb`, which loads one more file, until the block ends."""
        environment = {"REDIS_URL": self._url}
        if loads is not None:
            environment["RUBYOPT"] = f"-r./{loads}"
        process = RubyProcess(
            self._chroot, ["ruby", "driver.rb"], environment, pipes=True, directory=self._directory
        )
        try:
            yield Driver(process)
        finally:
            process.close()


def results(client: redis.Redis) -> list[dict[str, Any]]:
    """Return what the jobs of jobs.rb that ran to their end reported: {"jid", "args"}, in order."""
    return [json.loads(text) for text in cast("list[bytes]", client.lrange("app:results", 0, -1))]


def started(client: redis.Redis) -> list[str]:
    """Return the jids of the SleepJobs and GateJobs that have begun, in order."""
    return [jid.decode() for jid in cast("list[bytes]", client.lrange("app:started", 0, -1))]


def items(client: redis.Redis, jid: str) -> list[int]:
    """Return the items that the runs of an IterJob have handled, in order."""
    return [int(item) for item in cast("list[bytes]", client.lrange(f"app:items:{jid}", 0, -1))]


def open_gate(client: redis.Redis, gate: str, *, jobs: int = 1) -> None:
    """Let this many GateJobs of that name continue."""
    client.rpush(f"app:gate:{gate}", *["open"] * jobs)


def require_cron() -> None:
    """Skip the test if sidekiq-cron is not installed; fail if JOBWIRE_REQUIRE_INTEROP=1."""
    reason = missing(CRON_VERSION)
    if reason is None and not (CHROOTS / CRON_VERSION / _CRON).exists():
        reason = "real sidekiq-cron is not installed: run `make interop`"
    if reason is None:
        return
    if os.environ.get("JOBWIRE_REQUIRE_INTEROP") == "1":
        pytest.fail(reason)
    pytest.skip(reason)
