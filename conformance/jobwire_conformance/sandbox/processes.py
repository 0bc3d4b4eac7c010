"""Programs that the suite starts: their process groups and their logs."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from jobwire_conformance.errors import EnvironmentFault
from jobwire_conformance.sandbox.program_faults import excerpt
from jobwire_conformance.sandbox.reaper import Reaper

__all__ = ["Log", "LogFile", "ProcessGroup", "distant_zone", "overload", "resident", "wait_for"]

_TAIL = 64 * 1024  # bytes of a log that are kept
_MOST_LOAD = 8.0  # processes a core that want to run; above, one may stand still for seconds
_ZONES = Path("/usr/share/zoneinfo")
_EAST = "Pacific/Kiritimati", "<+14>-14"  # the name of the zone, and its rule in POSIX form
_WEST = "Etc/GMT+12", "<-12>12"


def distant_zone(now: float) -> str:
    """Return a time zone, for the variable TZ, in which the date is not that of UTC.

    A program that takes the local date for the date in UTC is then wrong at any time of day. The
    zone in the east is already at the next day, or the one in the west still at the day before,
    for one hour at least.

    Args:
        now: The time, in epoch seconds.
    """
    name, rule = _EAST if time.gmtime(now).tm_hour >= 11 else _WEST
    return name if (_ZONES / name).exists() else rule


def overload() -> str | None:
    """Return the load of the machine in words if it is too high to judge a process; else None."""
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    return f"a load of {load:.0f} on {cores} cores" if load > _MOST_LOAD * cores else None


def wait_for(holds: Callable[[], object], seconds: float, pause: float = 0.005) -> bool:
    """Wait until a condition holds, or the time has passed; return whether it holds."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(pause)
    return True


class Log:
    """The output of programs. Only its end is kept, so that it cannot fill disk or memory.

    Attributes:
        total: Number of bytes written.
    """

    def __init__(self) -> None:
        self._kept = b""
        self.total = 0
        self._thread: threading.Thread | None = None

    def open(self) -> int:
        """Return a descriptor to write to. A thread reads from it until it is closed."""
        reader, writer = os.pipe()
        self._thread = threading.Thread(target=self._read, args=(reader,), name="log", daemon=True)
        self._thread.start()
        return writer

    def finish(self, seconds: float) -> None:
        """Wait until all output is read, but not longer than `seconds`."""
        if self._thread is not None:
            self._thread.join(seconds)

    def text(self, since: int = 0) -> str:
        """Return the kept end of the output, without the first `since` bytes of all output."""
        kept, total = self._kept, self.total
        return kept[max(0, since - (total - len(kept))) :].decode("utf-8", "replace")

    def _read(self, pipe: int) -> None:
        while data := os.read(pipe, _TAIL):
            self._kept = (self._kept + data)[-_TAIL:]
            self.total += len(data)
        os.close(pipe)


class LogFile:
    """The output of a program that writes little, as a file. It needs no thread.

    Args:
        path: Path of the file. Removing its directory removes it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        path.touch()

    def open(self) -> int:
        """Return a descriptor to write to."""
        return os.open(self._path, os.O_WRONLY | os.O_APPEND)

    def finish(self, seconds: float) -> None:
        """Return at once, because a file needs no reader."""

    def text(self, since: int = 0) -> str:
        """Return the output, without its first `since` bytes."""
        return self._path.read_bytes()[since:].decode("utf-8", "replace")

    def tail(self) -> str:
        """Return the last lines, indented."""
        return _tail(self.text())


class ProcessGroup:
    """A program in a session of its own, killed together with its child processes.

    Args:
        reaper: Kills it if this process cannot.
        command: Program and arguments.
        environment: Variables, added to those of this process, a distant time zone, and a
            directory for temporary files that the end of the run removes.
        directory: Its current directory.
        log: Receives its standard error, and its standard output unless `pipes` is set.
        pipes: True if standard input and output are pipes.

    Raises:
        OSError: The program cannot be started.
    """

    def __init__(
        self,
        reaper: Reaper,
        command: Sequence[str],
        *,
        environment: Mapping[str, str],
        directory: Path,
        log: Log | LogFile,
        pipes: bool = False,
    ) -> None:
        self.log = log
        self._reaper = reaper
        writer = log.open()
        try:
            self.popen = subprocess.Popen(
                [*command],
                cwd=directory,
                env={
                    **os.environ,
                    "TZ": distant_zone(time.time()),
                    # Files of killed workers would slow down the next workers that look at them.
                    "TMPDIR": str(reaper.directory),
                    **environment,
                    **dict([reaper.mark]),
                },
                stdin=subprocess.PIPE if pipes else subprocess.DEVNULL,
                stdout=subprocess.PIPE if pipes else writer,
                stderr=writer,
                start_new_session=True,
                bufsize=0,
            )
        finally:
            os.close(writer)
        self._open = True
        try:
            reaper.watch_group(self.popen.pid)
        except EnvironmentFault:
            self.kill()
            raise

    @property
    def status(self) -> int | None:
        """The exit status; None while it runs."""
        return self.popen.poll()

    def signal(self, name: str) -> None:
        """Send a signal to the program, but not to its child processes, as a supervisor does."""
        if self.status is None:
            self.popen.send_signal(signal.Signals[f"SIG{name}"])

    def wait(self, seconds: float) -> None:
        """Wait for the program's end, but not longer than `seconds`."""
        with suppress(subprocess.TimeoutExpired):
            self.popen.wait(seconds)

    def kill(self) -> None:
        """Kill the whole group at once."""
        if not self._open:
            return
        self._open = False
        with suppress(ProcessLookupError):
            os.killpg(self.popen.pid, signal.SIGKILL)
        for pipe in (self.popen.stdin, self.popen.stdout):
            if pipe is not None:
                pipe.close()
        self.popen.wait()
        self.log.finish(0.5)  # a child that has left the group may keep the pipe open
        self._reaper.release_group(self.popen.pid)

    def excerpt(self, since: int = 0) -> str:
        """Return the lines of its log that tell why it ended, indented.

        Args:
            since: Number of bytes at the beginning of the log to leave out.
        """
        self.log.finish(0.5 if self.status is not None else 0.05)
        return excerpt(self.log.text(since))


def resident(group: int) -> list[int]:
    """Return the resident memory of the processes of a group, in KiB.

    The list is empty on a system without /proc.
    """
    sizes = []
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            if os.getpgid(int(directory.name)) != group:
                continue
            status = (directory / "status").read_text()
        except OSError:  # it has ended
            continue
        lines = [line.split() for line in status.splitlines() if line.startswith("VmRSS:")]
        sizes += [int(words[1]) for words in lines]
    return sizes


def _tail(text: str, lines: int = 8) -> str:
    last = text.splitlines()[-lines:]
    return "\n".join(f"    {line[:500]}" for line in last) or "    (no output)"
