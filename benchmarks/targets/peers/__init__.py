"""Other job queues, each in an environment of its own, used as its documentation says.

The other modules of this package run there. For Python, `<name>_jobs.py` has the jobs and
`push.py` enqueues them; for Node.js, one file does both.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from benchmarks.targets.stage import PATIENCE, Marks, SampleServer, cpu, pinned
from benchmarks.targets.teams import Drained, Setup

__all__ = ["PEERS", "Peer", "peers"]

HERE = Path(__file__).parent
DUE = 6.0  # seconds after which scheduled jobs are due: time to enqueue all, and to start a worker
LONE = 15  # jobs at most: some peers check for new ones only twice a second


@dataclass
class Peer:
    """One other queue.

    Args:
        package: Its name in the registry of its language.
        requirements: The packages to install.
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
    name: str = ""

    def missing(self) -> str | None:
        """Return the reason why the peer cannot be measured; None if it can."""
        return None

    def installation(self) -> list[list[str]]:
        """Return the commands that make its environment."""
        raise NotImplementedError

    def version(self) -> str:
        raise NotImplementedError

    def pusher(self) -> list[str]:
        """Return the program that enqueues. Its arguments are in the head of `push.py`."""
        raise NotImplementedError

    def variables(self) -> dict[str, str]:
        """Return what finds its packages and programs."""
        raise NotImplementedError

    def install(self) -> None:
        """Make its environment, if there is none of these requirements."""
        wanted = " ".join(self.requirements)
        ready = self.directory / ".complete"
        if not ready.exists() or ready.read_text() != wanted:
            sys.stderr.write(f"installing {wanted}\n")
            for command in self.installation():
                subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
            ready.write_text(wanted)
        self.name = f"{self.package} {self.version()}"

    def drain(self, stage: SampleServer, kind: str, jobs: int, how: Setup) -> Drained:
        written = Marks(stage.directory)
        self._push(stage, kind, jobs, delay=DUE if how.due else 0.0)
        with self._working(stage, how.concurrency) as pid:
            warm = len(written.wait(max(jobs // 10, 1)))
            started, before = time.perf_counter(), cpu(pid)
            written.wait(jobs - warm)
            seconds = time.perf_counter() - started
            used = cpu(pid) - before
        written.close()
        return Drained(rate=(jobs - warm) / seconds, cpu_us=used / (jobs - warm) * 1e6)

    def enqueue(self, stage: SampleServer, how: str, jobs: int) -> float:
        Marks(stage.directory).close()
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(stage.server.pid, {cores[0]})
        try:
            with pinned(cores[-1]):
                return self._push(stage, "Nothing", jobs, how=how)
        finally:
            os.sched_setaffinity(stage.server.pid, cores)

    def lone(self, stage: SampleServer, jobs: int) -> list[float]:
        marks = Marks(stage.directory)
        seconds: list[float] = []
        pusher = subprocess.Popen(
            [*self.pusher(), "Lone", "serve"],
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
                    lines = marks.wait(1)
                    if number >= 0:  # the first job waits for the worker to start
                        seconds += map(float, lines)
        finally:
            pusher.stdin.close()
            pusher.wait(10)
        marks.close()
        return seconds

    def boot(self, stage: SampleServer) -> float:
        marks = Marks(stage.directory)
        self._push(stage, "Lone", 1)
        started = time.time()
        with self._working(stage, 10):
            [ran_at] = map(float, marks.wait(1))
        marks.close()
        return ran_at - started

    def _environment(self, stage: SampleServer, concurrency: int) -> dict[str, str]:
        return {
            **self.variables(),
            "REDIS_URL": stage.url,
            "BENCH_MARKS": str(stage.directory / "marks"),
            "BENCH_CONCURRENCY": str(concurrency),
        }

    def _push(
        self, stage: SampleServer, kind: str, jobs: int, *, delay: float = 0.0, how: str = ""
    ) -> float:
        done = subprocess.run(
            [*self.pusher(), kind, str(jobs), str(delay), how],
            env=self._environment(stage, 10),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            timeout=PATIENCE,
            check=True,
        )
        return float(done.stdout)

    @contextmanager
    def _working(self, stage: SampleServer, concurrency: int) -> Iterator[int]:
        words = [word.format(slots=concurrency, url=stage.url) for word in self.worker]
        with (stage.directory / "worker.log").open("wb") as output:
            worker = subprocess.Popen(
                words,
                cwd=stage.directory,
                env=self._environment(stage, concurrency),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        stage.reaper.watch(worker.pid)
        try:
            yield worker.pid
        except AssertionError:
            sys.stderr.write((stage.directory / "worker.log").read_text()[-4000:])
            raise
        finally:
            with suppress(ProcessLookupError):
                os.killpg(worker.pid, signal.SIGKILL)
            worker.wait()
            stage.reaper.release(worker.pid)


class PythonPeer(Peer):
    """One from PyPI, whose name also begins that of its module here."""

    def installation(self) -> list[list[str]]:
        pip = [self._program("python"), "-m", "pip", "--disable-pip-version-check", "install", "-q"]
        return [
            [sys.executable, "-m", "venv", "--clear", str(self.directory)],
            [*pip, *self.requirements],
        ]

    def version(self) -> str:
        code = f"import importlib.metadata as m; print(m.version({self.package!r}))"
        return subprocess.check_output([self._program("python"), "-c", code], text=True).strip()

    def pusher(self) -> list[str]:
        return [self._program("python"), str(HERE / "push.py"), self.package]

    def variables(self) -> dict[str, str]:
        return {"PATH": f"{self.directory / 'bin'}:/usr/bin:/bin", "PYTHONPATH": str(HERE)}

    def _program(self, name: str) -> str:
        return str(self.directory / "bin" / name)


class NodePeer(Peer):
    """One from npm; the module here is called like it."""

    def missing(self) -> str | None:
        lacking = [name for name in ("node", "npm") if shutil.which(name) is None]
        return f"needs {' and '.join(lacking)} on PATH" if lacking else None

    def installation(self) -> list[list[str]]:
        quiet = ["--ignore-scripts", "--no-audit", "--no-fund", "--loglevel", "error"]
        return [["npm", "install", "--prefix", str(self.directory), *quiet, *self.requirements]]

    def version(self) -> str:
        package = self.directory / "node_modules" / self.package / "package.json"
        return str(json.loads(package.read_text())["version"])

    def pusher(self) -> list[str]:
        return ["node", self._module(), "push"]

    def variables(self) -> dict[str, str]:
        modules = str(self.directory / "node_modules")
        return {"PATH": os.environ["PATH"], "NODE_PATH": modules, "NODE_ENV": "production"}

    def _module(self) -> str:
        return str(HERE / f"{self.package.replace('-', '_')}.js")


def _all(directory: Path) -> list[Peer]:
    """Return all of them, whether they are installed below `directory` or not."""
    threads = ("drain", "failing", "scheduled", "one", "lone", "waiting_10", "boot")
    tasks = ("drain", "async", "lone", "waiting_async", "boot")
    rq = ("drain", "failing", "scheduled", "one", "bulk", "lone", "boot")
    node = (*tasks, "failing", "scheduled", "one", "bulk")
    return [
        PythonPeer(
            "huey",
            ["huey==3.5.4", "redis"],
            ["huey_consumer", "huey_jobs.huey", "-w", "{slots}", "-k", "thread", "-q", "-n"],
            frozenset(threads),
            0.03,
            directory / "huey",
        ),
        PythonPeer(
            "dramatiq",
            ["dramatiq[redis]==2.2.1"],
            ["dramatiq", "dramatiq_jobs", "-p", "1", "-t", "{slots}"],
            frozenset(threads),
            0.03,
            directory / "dramatiq",
        ),
        PythonPeer(
            "rq",
            ["rq==3.0.0"],
            ["rq", "worker", "--url", "{url}", "--with-scheduler", "--quiet", "default"],
            frozenset(rq),
            0.003,
            directory / "rq",
        ),
        PythonPeer(
            "celery",
            ["celery[redis]==5.7.0"],
            ["celery", "-A", "celery_jobs", "worker", "-c", "{slots}", "-l", "WARNING"],
            frozenset(threads),
            0.03,
            directory / "celery",
        ),
        PythonPeer(
            "arq",
            ["arq==0.28.0"],
            ["arq", "arq_jobs.WorkerSettings"],
            frozenset([*tasks, "failing", "scheduled"]),
            0.03,
            directory / "arq",
        ),
        PythonPeer(
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
        NodePeer(
            "bee-queue",
            ["bee-queue@2.0.0"],
            ["node", str(HERE / "bee_queue.js"), "work"],
            frozenset(node),
            0.2,
            directory / "bee-queue",
        ),
        NodePeer(
            "bullmq",
            ["bullmq@6.7.0", "ioredis@6.0.0"],
            ["node", str(HERE / "bullmq.js"), "work"],
            frozenset(),  # only in the toolbox
            1.0,
            directory / "bullmq",
        ),
    ]


PEERS = tuple(peer.package for peer in _all(Path()) if peer.kinds)


def peers(directory: Path, names: Sequence[str] = PEERS) -> list[Peer]:
    """Install the peers below `directory` and return them; report those that cannot be used."""
    installed: list[Peer] = []
    for peer in _all(directory):
        if peer.package not in names:
            continue
        if reason := peer.missing():
            sys.stderr.write(f"without {peer.package}: {reason}\n")
            continue
        try:
            peer.install()
        except subprocess.CalledProcessError as error:  # its own output gives the reason
            sys.stderr.write(f"without {peer.package}: cannot be installed ({error})\n")
            continue
        installed.append(peer)
    return installed
