"""Other Python job queues, each in an environment of its own, used as its documents say.

The modules beside this one run there: `<name>_jobs.py` has the jobs, `push.py` enqueues them.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from benchmarks.targets.stage import PATIENCE, Marks, Stage, cpu, pinned
from benchmarks.targets.teams import Drained, Team

__all__ = ["Peer", "peers"]

HERE = Path(__file__).parent
DUE = 6.0  # seconds after which scheduled jobs are due: time to enqueue all, and to start a worker
LONE = 15  # jobs at most: some look for new ones twice a second only


@dataclass
class Peer:
    """One other queue.

    Args:
        package: Its name on PyPI, which begins the name of its module, too.
        requirements: What is installed.
        worker: The command that runs jobs; `{slots}` is the concurrency.
        kinds: See `Team`.
        share: See `Team`.
        directory: Where its environment is, or is made.
    """

    package: str
    requirements: Sequence[str]
    worker: Sequence[str]
    kinds: frozenset[str]
    share: float
    directory: Path
    most_runs: int = 2
    name: str = ""

    def install(self) -> None:
        """Make its environment, if there is none."""
        python = self.directory / "bin" / "python"
        ready = self.directory / ".complete"
        if not ready.exists():
            sys.stderr.write(f"installing {' '.join(self.requirements)}\n")
            pip = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "-q"]
            for command in (
                [sys.executable, "-m", "venv", "--clear", str(self.directory)],
                [*pip, *self.requirements],
            ):
                subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
            ready.touch()
        code = f"import importlib.metadata as m; print(m.version({self.package!r}))"
        version = subprocess.check_output([str(python), "-c", code], text=True).strip()
        self.name = f"{self.package} {version}"

    def drain(
        self,
        stage: Stage,
        kind: str,
        jobs: int,
        *,
        concurrency: int = 10,
        processes: int = 1,
        log: str = "warning",
        due: bool = False,
        marks: bool = False,
    ) -> Drained:
        written = Marks(stage.directory)
        self._push(stage, kind, jobs, delay=DUE if due else 0.0)
        with self._working(stage, concurrency) as pid:
            warm = len(written.wait(max(jobs // 10, 1)))
            started, before = time.perf_counter(), cpu(pid)
            written.wait(jobs - warm)
            seconds = time.perf_counter() - started
            used = cpu(pid) - before
        written.close()
        return Drained(rate=(jobs - warm) / seconds, cpu_us=used / (jobs - warm) * 1e6)

    def enqueue(self, stage: Stage, how: str, jobs: int) -> float:
        Marks(stage.directory).close()
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(stage.server.pid, {cores[0]})
        try:
            with pinned(cores[-1]):
                return self._push(stage, "Nothing", jobs, how=how)
        finally:
            os.sched_setaffinity(stage.server.pid, cores)

    def lone(self, stage: Stage, jobs: int) -> list[float]:
        marks = Marks(stage.directory)
        seconds: list[float] = []
        pusher = subprocess.Popen(
            [*self._python(), str(HERE / "push.py"), self.package, "Lone", "serve"],
            env=self._environment(stage, 10),
            stdin=subprocess.PIPE,
            text=True,
        )
        assert pusher.stdin is not None
        try:
            with self._working(stage, 10):
                for number in range(-1, min(jobs, LONE)):
                    time.sleep(0.03)
                    pusher.stdin.write(f"{time.time()}\n")
                    pusher.stdin.flush()
                    found = marks.wait(1)
                    if number >= 0:  # the first one waits for the worker to start
                        seconds += map(float, found)
        finally:
            pusher.stdin.close()
            pusher.wait(10)
        marks.close()
        return seconds

    def boot(self, stage: Stage) -> float:
        marks = Marks(stage.directory)
        self._push(stage, "Lone", 1)
        started = time.time()
        with self._working(stage, 10):
            [ran_at] = map(float, marks.wait(1))
        marks.close()
        return ran_at - started

    def _python(self) -> list[str]:
        return [str(self.directory / "bin" / "python")]

    def _environment(self, stage: Stage, concurrency: int) -> dict[str, str]:
        return {
            "PATH": f"{self.directory / 'bin'}:/usr/bin:/bin",
            "PYTHONPATH": str(HERE),
            "REDIS_URL": stage.url,
            "BENCH_MARKS": str(stage.directory / "marks"),
            "BENCH_CONCURRENCY": str(concurrency),
        }

    def _push(
        self, stage: Stage, kind: str, jobs: int, *, delay: float = 0.0, how: str = ""
    ) -> float:
        done = subprocess.run(
            [
                *self._python(),
                str(HERE / "push.py"),
                self.package,
                kind,
                str(jobs),
                str(delay),
                how,
            ],
            env=self._environment(stage, 10),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            timeout=PATIENCE,
            check=True,
        )
        return float(done.stdout)

    @contextmanager
    def _working(self, stage: Stage, concurrency: int) -> Iterator[int]:
        words = [word.format(slots=concurrency, url=stage.url) for word in self.worker]
        with (stage.directory / "worker.log").open("wb") as output:
            worker = subprocess.Popen(
                [str(self.directory / "bin" / words[0]), *words[1:]],
                cwd=stage.directory,
                env=self._environment(stage, concurrency),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        stage.keeper.watch(worker.pid)
        try:
            yield worker.pid
        except AssertionError:
            sys.stderr.write((stage.directory / "worker.log").read_text()[-4000:])
            raise
        finally:
            with suppress(ProcessLookupError):
                os.killpg(worker.pid, signal.SIGKILL)
            worker.wait()
            stage.keeper.release(worker.pid)


def peers(directory: Path) -> list[Team]:
    """Return all of them, installed below `directory`."""
    threads = ("drain", "failing", "scheduled", "one", "lone", "waiting_10", "boot")
    tasks = ("drain", "async", "lone", "waiting_async", "boot")
    rq = ("drain", "failing", "scheduled", "one", "bulk", "lone", "boot")
    found = [
        Peer(
            "huey",
            ["huey==3.5.4", "redis"],
            ["huey_consumer", "huey_jobs.huey", "-w", "{slots}", "-k", "thread", "-q", "-n"],
            frozenset(threads),
            0.03,
            directory / "huey",
        ),
        Peer(
            "dramatiq",
            ["dramatiq[redis]==2.2.1"],
            ["dramatiq", "dramatiq_jobs", "-p", "1", "-t", "{slots}"],
            frozenset(threads),
            0.03,
            directory / "dramatiq",
        ),
        Peer(
            "rq",
            ["rq==3.0.0"],
            ["rq", "worker", "--url", "{url}", "--with-scheduler", "--quiet", "default"],
            frozenset(rq),
            0.003,
            directory / "rq",
        ),
        Peer(
            "arq",
            ["arq==0.28.0"],
            ["arq", "arq_jobs.WorkerSettings"],
            frozenset([*tasks, "failing", "scheduled"]),
            0.03,
            directory / "arq",
        ),
        Peer(
            "taskiq",
            ["taskiq==0.13.0", "taskiq-redis==1.2.4"],
            [
                *("taskiq", "worker", "taskiq_jobs:broker", "--workers", "1"),
                *("--max-async-tasks", "{slots}", "--log-level", "WARNING"),
            ],
            frozenset(tasks),
            0.03,
            directory / "taskiq",
        ),
    ]
    for each in found:
        each.install()
    return list(found)
