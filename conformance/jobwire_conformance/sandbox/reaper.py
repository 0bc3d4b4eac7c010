"""The process that ends all processes of a run and removes its files, however the run ends."""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from typing import Self

from jobwire_conformance.errors import EnvironmentFault
from jobwire_conformance.sandbox.signals import stop_ignoring_signals

__all__ = ["Reaper"]

# Reads orders from a pipe until its end. The pipe closes with the run's process, even after kill
# -9. Then the reaper kills processes and process groups, and every process that has the run's mark
# in its environment. It removes the directory and empties databases.
_REAPER = """
import json, os, shutil, signal, socket, sys, time
mark, directory = sys.argv[1:]
targets, databases = set(), {}
for line in sys.stdin:
    kind, value = line[0], line[1:].strip()
    if kind == "+":
        targets.add(int(value))
    elif kind == "-":
        targets.discard(int(value))
    elif kind == "=":
        databases = json.loads(value)

def kill(target):
    try:
        os.kill(target, signal.SIGKILL)
    except OSError:
        pass

def marked():
    for name in os.listdir("/proc") if os.path.isdir("/proc/self") else ():
        try:
            if name.isdigit() and mark.encode() in open(f"/proc/{name}/environ", "rb").read():
                yield int(name)
        except OSError:
            pass

for target in targets:
    kill(target)
for _ in range(200):
    left = [*marked()]
    for process in left:
        kill(process)
    if not left:
        break
    time.sleep(0.01)
shutil.rmtree(directory, ignore_errors=True)
if databases:
    try:
        with socket.create_connection(databases["address"], 5) as connection:
            connection.sendall(bytes.fromhex(databases["commands"]))
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(65536):
                pass
    except OSError:
        pass
"""


class Reaper:
    """A process that ends child processes, removes files and empties databases after this one.

    Attributes:
        mark: Name and value of a variable that marks the programs of this run.
        directory: Directory for files of this run, removed at the end.
    """

    def __init__(self) -> None:
        stop_ignoring_signals()  # before the first program starts
        self.mark = ("JOBWIRE_SUITE", secrets.token_hex(12))
        self.directory = Path(tempfile.mkdtemp(prefix="jobwire-run-"))
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _REAPER, "=".join(self.mark), self.directory],
            stdin=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._lock = threading.Lock()
        self._closed = False

    def marked(self) -> list[int]:
        """Return the ids of all processes with this run's mark, on Linux only."""
        mark = "=".join(self.mark).encode()
        ids = []
        for path in Path("/proc").glob("[0-9]*/environ"):
            with suppress(OSError):
                if mark in path.read_bytes():
                    ids.append(int(path.parent.name))
        return ids

    def watch(self, process: int) -> None:
        """Kill this process at the end."""
        self._tell(f"+{process}")

    def release(self, process: int) -> None:
        """Do not kill this process, because it has ended and its number may be used again."""
        if not self._closed:
            self._tell(f"-{process}")

    def watch_group(self, leader: int) -> None:
        """Kill the whole process group of this leader at the end."""
        self.watch(-leader)  # a negative number is a group for kill(2)

    def release_group(self, leader: int) -> None:
        """Do not kill the group of this leader; see `release`."""
        self.release(-leader)

    def empty(self, address: tuple[str, int], commands: bytes) -> None:
        """Send these commands to a server at the end; without commands, cancel that."""
        order = {"address": address, "commands": commands.hex()} if commands else {}
        self._tell(f"={json.dumps(order)}")

    def close(self) -> None:
        """Kill all processes that are left. Further calls have no effect."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._process.communicate()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _tell(self, line: str) -> None:
        with self._lock:
            if self._closed:
                raise EnvironmentFault("interrupted")
            assert self._process.stdin is not None
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
