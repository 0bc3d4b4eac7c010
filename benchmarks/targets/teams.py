"""The teams that are measured: their start, their jobs, and the check that all jobs have run."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from benchmarks.targets.stage import PATIENCE, Marks, SampleServer, cpu, pinned, pss

import jobwire
from harness.chroots import CHROOTS, RubyProcess, missing
from harness.servers import clean_environment, wait_until
from jobwire import Client

__all__ = ["Drained", "Jobwire", "Setup", "Sidekiq", "SidekiqYJIT", "Team", "WireTeam"]

HERE = Path(__file__).parent
WARM = 1_000  # jobs before the measured ones
VERSION = "8.1.7"


@dataclass(frozen=True)
class Setup:
    """Options of a drain."""

    concurrency: int = 10
    processes: int = 1
    log: str = "warning"
    due: bool = False  # the jobs are scheduled, and due
    marks: bool = False  # the jobs write when they run


@dataclass(frozen=True)
class Drained:
    """Figures of one queue that was drained."""

    rate: float  # jobs a second
    cpu_us: float  # of the workers, a job
    server_us: float = 0.0  # CPU of the server, a job
    trips: float = 0.0  # reads of the server from its sockets, a job
    idle_mib: float = 0.0  # PSS before
    after_mib: float = 0.0  # PSS afterwards


class Team(Protocol):
    """An implementation that is measured.

    Attributes:
        name: Its name with its version.
        share: Its share of the jobs: a slow team must not take most of the time.
        kinds: The kinds of runs that it has a counterpart of.
    """

    name: str
    share: float
    kinds: frozenset[str]

    def drain(self, stage: SampleServer, kind: str, jobs: int, how: Setup) -> Drained:
        """Run jobs that are all enqueued at the start."""

    def enqueue(self, stage: SampleServer, how: str, jobs: int) -> float:
        """Return the seconds for so many jobs; `how` is one, async or bulk."""

    def lone(self, stage: SampleServer, jobs: int) -> list[float]:
        """Return the seconds from enqueue to start of jobs that come one at a time."""

    def boot(self, stage: SampleServer) -> float:
        """Return the seconds from the start of the process to its first job."""


Running = AbstractContextManager[list[int]]  # worker processes, by their pids


class WireTeam:
    """A team with Sidekiq's wire protocol: jobs are written, and counted, in the same way."""

    name = ""
    share = 1.0
    counts_late = False  # True if the worker writes its counts only when it stops
    kinds = frozenset(
        [
            *("drain", "logged", "processes", "failing", "scheduled", "one", "bulk", "lone"),
            *("waiting_10", "waiting_50", "waiting_100", "boot"),
        ]
    )

    def start(self, stage: SampleServer, how: Setup, marks: Marks | None) -> Running:
        raise NotImplementedError

    def command(self, how: str, jobs: int) -> tuple[Sequence[str], dict[str, str]]:
        raise NotImplementedError

    def drain(self, stage: SampleServer, kind: str, jobs: int, how: Setup) -> Drained:
        client = stage.client
        written = Marks(stage.directory) if how.marks else None
        worker = self.start(stage, how, written)
        polls = 0

        def gone() -> bool:
            nonlocal polls
            polls += 1
            if how.due:
                return not client.exists("schedule", "queue:default")
            if kind == "Failing":
                return bool(client.zcard("retry") >= jobs)
            return not client.exists("queue:default")

        def processed() -> bool:
            return int(client.get("stat:processed") or 0) == WARM + jobs

        with worker as pids:
            wait_until(
                lambda: client.scard("processes") == how.processes, 60, "workers to register"
            )
            time.sleep(0.5)  # the work of their start is not measured
            idle = sum(map(pss, pids)) / len(pids)
            # Failing jobs if those are measured: YJIT compiles only code that has run some times.
            warm = kind if kind == "Failing" else "Nothing"
            with Client(stage.url, generation=8) as pusher:
                pusher.push_bulk(warm, [[number] for number in range(WARM)])
                wait_until(lambda: not client.exists("queue:default"), 60, "warm workers")
            if warm == "Failing":
                wait_until(lambda: client.zcard("retry") == WARM, 60, "the failures to be stored")
                client.delete("retry")
            with Client(stage.url, generation=8, namespace="stock:") as pusher:
                at = time.time() - 1 if how.due else None
                pusher.push_bulk(kind, [[number] for number in range(jobs)], at=at)
            before = sum(map(cpu, pids)), stage.polls()
            started = time.perf_counter()
            if how.due:
                client.rename("stock:schedule", "schedule")
                # Workers check once a second: the clock starts when one has found the jobs.
                wait_until(lambda: client.zcard("schedule") < jobs, 60, "promotion")
                started = time.perf_counter()
            else:
                client.rename("stock:queue:default", "queue:default")
            if written is not None:
                written.wait(jobs)
            else:
                wait_until(gone, PATIENCE, "the queue to be empty")
            seconds = time.perf_counter() - started
            after = sum(map(cpu, pids)), stage.polls()
            full = sum(map(pss, pids)) / len(pids)
            if not self.counts_late:
                wait_until(processed, 20, "all jobs to be counted")
        wait_until(processed, 20, "all jobs to be counted")
        if written is not None:
            written.close()
        return Drained(
            rate=jobs / seconds,
            cpu_us=(after[0] - before[0]) / jobs * 1e6,
            server_us=(after[1]["cpu"] - before[1]["cpu"]) / jobs * 1e6,
            trips=(after[1]["reads"] - before[1]["reads"] - polls) / jobs,
            idle_mib=idle,
            after_mib=full,
        )

    def enqueue(self, stage: SampleServer, how: str, jobs: int) -> float:
        command, env = self.command(how, jobs)
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(stage.server.pid, {cores[0]})
        try:
            with pinned(cores[-1]):
                return float(self.run(stage, command, env))
        finally:
            os.sched_setaffinity(stage.server.pid, cores)

    def run(self, stage: SampleServer, command: Sequence[str], env: dict[str, str]) -> str:
        raise NotImplementedError

    def lone(self, stage: SampleServer, jobs: int) -> list[float]:
        marks = Marks(stage.directory)
        seconds: list[float] = []
        with self.start(stage, Setup(), marks):
            client = stage.client
            wait_until(lambda: client.scard("processes") == 1, 60, "the worker to register")
            with Client(stage.url, generation=8) as pusher:
                pusher.push_bulk("Nothing", [[number] for number in range(WARM)])
                wait_until(lambda: not client.exists("queue:default"), 60, "a warm worker")
                for _ in range(jobs):
                    time.sleep(0.03)  # until it is idle again
                    pusher.push("Lone", [time.time()])
                    seconds += map(float, marks.wait(1))
        marks.close()
        return seconds

    def boot(self, stage: SampleServer) -> float:
        marks = Marks(stage.directory)
        with Client(stage.url, generation=8) as pusher:
            pusher.push("Lone", [0.0])
        started = time.time()
        with self.start(stage, Setup(), marks):
            [ran_at] = map(float, marks.wait(1))
        marks.close()
        return ran_at - started


@dataclass
class Jobwire(WireTeam):
    """jobwire of one checkout.

    Args:
        checkout: Where its `python/` is.
        fetch: reliable or basic.
        name: With its version.
    """

    checkout: Path
    fetch: str = "reliable"
    name: str = f"jobwire {jobwire.__version__}"
    kinds: frozenset[str] = field(
        default_factory=lambda: WireTeam.kinds | {"async", "waiting_async"}
    )

    def _environment(self, stage: SampleServer, marks: Marks | None) -> dict[str, str]:
        variables = {"JOBWIRE_REDIS_URL": stage.url}
        if marks is not None:
            variables["BENCH_MARKS"] = str(marks.path)
        path = f"{self.checkout / 'python'}:{self.checkout / 'conformance'}:{HERE.parents[1]}"
        return clean_environment(**variables, PYTHONPATH=path)

    @contextmanager
    def start(self, stage: SampleServer, how: Setup, marks: Marks | None) -> Iterator[list[int]]:
        with (stage.directory / "worker.log").open("wb") as output:
            worker = subprocess.Popen(
                [
                    *(sys.executable, "-m", "jobwire", "worker", f"{HERE / 'jobs.py'}:app"),
                    *("-c", str(how.concurrency), "-p", str(how.processes), "--poll-interval", "1"),
                    *("--log-level", how.log, "--fetch", self.fetch, "--timeout", "2"),
                ],
                cwd=stage.directory,
                env=self._environment(stage, marks),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=output,
            )
        stage.reaper.watch(worker.pid)
        try:
            if how.processes > 1:

                def children() -> list[int]:
                    path = Path(f"/proc/{worker.pid}/task/{worker.pid}/children")
                    pids = [int(pid) for pid in path.read_text().split()]
                    return pids if len(pids) >= how.processes else []

                wait_until(children, 30, "the processes")
                wait_until(
                    lambda: stage.client.scard("processes") == how.processes, 60, "them to register"
                )
                yield [int(name.split(b":")[-2]) for name in stage.client.smembers("processes")]
            else:
                yield [worker.pid]
            worker.send_signal(signal.SIGTERM)
            worker.wait(20)
        finally:
            with suppress(ProcessLookupError):
                worker.kill()
            worker.wait()
            stage.reaper.release(worker.pid)

    def command(self, how: str, jobs: int) -> tuple[Sequence[str], dict[str, str]]:
        return [sys.executable, str(HERE / "jobs.py"), how, str(jobs)], {}

    def run(self, stage: SampleServer, command: Sequence[str], env: dict[str, str]) -> str:
        done = subprocess.run(
            command,
            env={**self._environment(stage, None), **env},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=True,
        )
        return done.stdout


class Sidekiq(WireTeam):
    """The real one, in its chroot, with Debian's Ruby, which has no JIT compiler."""

    name = f"Sidekiq {VERSION}"
    share = 0.25
    counts_late = True  # with its heartbeats, ten seconds apart
    settings: Mapping[str, str] = {}

    def missing(self) -> str | None:
        """Say why it cannot take part."""
        return missing(VERSION)

    def chroot(self) -> Path:
        return CHROOTS / VERSION

    def ruby(self, stage: SampleServer) -> str:
        """Return what its Ruby says of itself."""
        said = self.run(stage, ["ruby", "-v"], {})
        _, version, *_ = said.split()
        return f"Ruby {version} {'with' if '+YJIT' in said else 'without'} YJIT"

    def _spawn(
        self,
        stage: SampleServer,
        command: Sequence[str],
        *,
        log: str,
        marks: Marks | None,
        pipes: bool,
    ) -> RubyProcess:
        directory = stage.directory / "ruby"
        shutil.copytree(HERE / "ruby", directory, dirs_exist_ok=True)
        env = {"REDIS_URL": stage.url, "BENCH_LOG": log, **self.settings}
        if marks is not None:
            env["BENCH_MARKS"] = "marks"
            with suppress(FileNotFoundError):
                (directory / "marks").unlink()
            os.link(marks.path, directory / "marks")
        return RubyProcess(self.chroot(), command, env, pipes=pipes, directory=directory)

    @contextmanager
    def start(self, stage: SampleServer, how: Setup, marks: Marks | None) -> Iterator[list[int]]:
        command = ["sidekiq", "-r", "./jobs.rb", "-c", str(how.concurrency), "-q", "default"]
        command += ["-t", "2"]
        started: list[RubyProcess] = []
        try:
            for _ in range(how.processes):
                started.append(self._spawn(stage, command, log=how.log, marks=marks, pipes=False))
            yield [process.pid for process in started]
            for process in started:
                process.popen.send_signal(signal.SIGTERM)
            for process in started:
                process.popen.wait(20)
        except AssertionError:
            sys.stderr.write("".join(process.log()[-4000:] for process in started))
            raise
        finally:
            for process in started:
                process.close()

    def command(self, how: str, jobs: int) -> tuple[Sequence[str], dict[str, str]]:
        return ["ruby", "enqueue.rb", how, str(jobs)], {}

    def run(self, stage: SampleServer, command: Sequence[str], env: dict[str, str]) -> str:
        process = self._spawn(stage, command, log="warning", marks=None, pipes=True)
        try:
            assert process.popen.stdout is not None
            said = process.popen.stdout.read().decode()
            assert process.popen.wait(PATIENCE) == 0, process.log()
        finally:
            process.close()
        return said


class SidekiqYJIT(Sidekiq):
    """The same, with the Ruby that `benchmarks/ruby-yjit.sh` built."""

    name = f"Sidekiq {VERSION} with YJIT"
    share = 0.5
    settings: Mapping[str, str] = {"RUBY_YJIT_ENABLE": "1"}

    def missing(self) -> str | None:
        if reason := super().missing():
            return reason
        if not (self.chroot() / ".made-from").exists():
            return "there is no Ruby with YJIT: run benchmarks/ruby-yjit.sh"
        return None

    def chroot(self) -> Path:
        return CHROOTS.with_name("sidekiq-yjit") / VERSION

    def ruby(self, stage: SampleServer) -> str:
        ruby = super().ruby(stage)
        assert "with YJIT" in ruby, f"{self.chroot()}: {ruby}"
        return ruby
