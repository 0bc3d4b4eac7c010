"""A server of the benchmark's own, and the CPU time and memory of processes."""

from __future__ import annotations

import os
import resource
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from harness.servers import Reaper, Server, valkey_program, wait_until

__all__ = ["TICK", "Marks", "SampleServer", "cpu", "pinned", "pss"]

TICK = 1 / os.sysconf("SC_CLK_TCK")
PATIENCE = 300.0  # seconds for anything


def cpu(pid: int) -> float:
    """Return the seconds of CPU that a process has used, and the children that it waited for."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) * TICK


def pss(pid: int) -> float:
    """Return a process's memory in MiB; a page that n processes map counts as 1/n."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("Pss:")).split()[1]) / 1024


@contextmanager
def pinned(core: int) -> Iterator[None]:
    """Have processes that are started meanwhile run on one core."""
    everywhere = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, everywhere)


class Marks:
    """A file that jobs append a line to."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "marks"
        self.path.write_bytes(b"")
        self._file = self.path.open("rb")
        self._rest = b""

    def read(self) -> list[str]:
        """Return the new lines."""
        *lines, self._rest = (self._rest + self._file.read()).split(b"\n")
        return [line.decode() for line in lines]

    def wait(self, count: int) -> list[str]:
        """Return `count` lines once they are there."""
        lines: list[str] = []

        def enough() -> bool:
            lines.extend(self.read())
            return len(lines) >= count

        wait_until(enough, PATIENCE, f"{count} jobs to have run")
        return lines

    def close(self) -> None:
        self._file.close()


class SampleServer:
    """A server without other clients, and a directory for one sample after the other."""

    def __init__(self) -> None:
        self._reaper = Reaper()
        self.server = Server(self._reaper, valkey_program())
        self.client: Any = self.server.client()
        self._directory = tempfile.TemporaryDirectory(prefix="jobwire-bench-")
        self.directory = Path(self._directory.name)
        self.url = self.server.url

    @property
    def reaper(self) -> Reaper:
        return self._reaper

    def polls(self) -> dict[str, float]:
        """Return the server's counters so far: CPU seconds, and reads from its sockets."""
        info = self.client.info()
        return {
            "cpu": info["used_cpu_user"] + info["used_cpu_sys"],
            "reads": info["total_reads_processed"],
        }

    def ours(self) -> float:
        """Return the CPU seconds of the server, of this process and of children that ended."""
        used = cpu(self.server.pid)
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
            usage = resource.getrusage(who)
            used += usage.ru_utime + usage.ru_stime
        return used

    @contextmanager
    def sample(self) -> Iterator[dict[str, float]]:
        """Empty the server; afterwards, fill in how many cores other processes used meanwhile."""
        self.client.flushall()
        seen: dict[str, float] = {}
        busy, ours, started = _busy(), self.ours(), time.perf_counter()
        yield seen
        seconds = time.perf_counter() - started
        others = (_busy() - busy) - (self.ours() - ours)
        seen["others"] = round(max(others / seconds, 0.0), 2)
        seen["load"] = round(os.getloadavg()[0], 2)

    def close(self) -> None:
        self.server.close()
        self._reaper.close()
        self._directory.cleanup()


def _busy() -> float:
    """Return the seconds for which the cores of this machine have been busy, as a sum."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    user, nice, system, _idle, _wait, irq, soft, *_ = map(int, fields)
    return (user + nice + system + irq + soft) * TICK
