"""`jobwire worker` with its children, for tests of signals and supervision."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

from harness.servers import Reaper, wait_until
from tests.workers import environment, heeding_hup


def gone(pid: int) -> bool:
    """True if a process and all its threads have ended; a zombie counts as ended."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state == "Z" and len(os.listdir(f"/proc/{pid}/task")) == 1
    except (FileNotFoundError, ProcessLookupError):
        return True


class Fleet:
    """One command and all processes that it starts; their JSON logs go to one file."""

    def __init__(self, reaper: Reaper, directory: Path) -> None:
        self.log = directory / "fleet.log"
        self.process: subprocess.Popen[bytes]
        self._reaper = reaper
        self._directory = directory

    def start(self, *arguments: str, before: tuple[str, ...] = (), **env: str) -> Self:
        """Run `jobwire worker` with these arguments, behind the command `before`."""
        command = (sys.executable, "-m", "jobwire", "worker", *arguments, "--log-format", "json")
        with self.log.open("ab") as output, heeding_hup():
            self.process = subprocess.Popen(
                [*before, *command],
                cwd=self._directory,
                env=environment(**env),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=output,
            )
        self._reaper.watch(self.process.pid)
        return self

    def lines(self) -> list[dict[str, Any]]:
        """Return the complete JSON lines of the log."""
        text = self.log.read_text()
        lines = text[: text.rfind("\n") + 1].splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]

    def logged(self, words: str) -> list[dict[str, Any]]:
        """Return the lines whose message contains the words."""
        return [line for line in self.lines() if words in line["msg"]]

    def wait_logged(self, words: str, count: int = 1, timeout: float = 150) -> list[dict[str, Any]]:
        def enough() -> list[dict[str, Any]]:
            lines = self.logged(words)
            return lines if len(lines) >= count else []

        try:
            return wait_until(enough, timeout, f"{words!r} {count} times")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.log.read_text()}") from None

    def ready(self, count: int) -> list[int]:
        """Return the pids of the first `count` workers, once all are ready."""
        self.wait_logged(f"{count} worker processes are ready")
        return self.booted()

    def booted(self) -> list[int]:
        """Return the pids of all workers that were ever ready, in that order."""
        return [line["pid"] for line in self.logged("jobwire ") if ", process " in line["msg"]]

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait(self, timeout: float = 150) -> int:
        """Wait for the command to end; return its exit status."""
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running:\n{self.log.read_text()}") from None

    def close(self) -> None:
        if not self.log.exists():
            return
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(60)
        self._reaper.release(self.process.pid)
        for pid in {line["pid"] for line in self.lines()}:
            if not gone(pid) and b"jobwire" in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, signal.SIGKILL)
                wait_until(lambda pid=pid: gone(pid))  # type: ignore[misc]
