"""Functions that run the suite's commands, write adapters and find leftover processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from jobwire_conformance.cases.case import Case
from jobwire_conformance.data import complete
from jobwire_conformance.run.verdicts import CaseVerdict
from tests import forking

__all__ = ["DRIVERS", "GOOD", "ROOT", "WORKERS", "Marked", "Quiet", "Said", "adapter", "run"]

ROOT = Path(__file__).resolve().parents[3]
REFERENCE = ROOT / "conformance" / "drivers" / "python"


@dataclass(frozen=True, slots=True)
class Said:
    """Exit status and output of a command."""

    status: int
    out: str
    err: str


class Quiet:
    """An observer without output."""

    def waiting(self, case: Case, what: str) -> None:
        pass

    def finished(self, case: Case, verdicts: Sequence[CaseVerdict], seconds: float) -> None:
        pass


def start(
    *arguments: str | Path, cwd: Path = ROOT, env: Mapping[str, str] | None = None
) -> subprocess.Popen[str]:
    """Start `jobwire conform` with these arguments."""
    return subprocess.Popen(
        [sys.executable, "-m", "jobwire", "conform", *map(str, arguments)],
        cwd=cwd,
        env={**_environment(), **(env or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(*arguments: str | Path, cwd: Path = ROOT, env: Mapping[str, str] | None = None) -> Said:
    """Run `jobwire conform` to its end."""
    if env is None:
        words = ["conform", *map(str, arguments)]
        ended = forking.run(*words, cwd=cwd, environment=_environment(), timeout=180)
        return Said(ended.returncode, ended.stdout, ended.stderr)
    process = start(*arguments, cwd=cwd, env=env)
    try:
        out, err = process.communicate(timeout=180)
    finally:
        process.kill()
    return Said(process.returncode, out, err)


def _environment() -> dict[str, str]:
    return {
        **os.environ,
        # `python3` in the adapters' commands is the one that runs the tests.
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "PYTHONPATH": f"{ROOT}/python{os.pathsep}{ROOT}/conformance",
    }


def copied(source: Path, directory: Path) -> Path:
    """Copy an adapter; return the new directory."""
    for path in source.iterdir():
        if path.is_file():
            (directory / path.name).write_bytes(path.read_bytes())
    return directory


class Marked:
    """The processes of one run, marked by an environment variable that all of them inherit."""

    def __init__(self) -> None:
        self.environment = {"JOBWIRE_TEST_MARK": uuid.uuid4().hex}
        self._mark = "=".join(*self.environment.items()).encode()

    def there(self) -> list[str]:
        """Return the command lines of the marked processes."""
        lines = []
        for path in Path("/proc").glob("[0-9]*/environ"):
            try:
                if self._mark in path.read_bytes():
                    lines.append(path.with_name("cmdline").read_bytes().decode())
            except OSError:
                continue
        return lines

    @staticmethod
    def _wait(holds: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + 60
        while not holds():
            assert time.monotonic() < deadline, f"waited 60 s for {what}"
            time.sleep(0.1)  # reading /proc of all processes is slow

    def gone(self) -> None:
        """Wait until no marked process runs."""
        self._wait(lambda: not self.there(), "everything to be gone")

    def end(self, process: subprocess.Popen[str], how: signal.Signals, sign: str) -> Said:
        """Send a signal once a process runs that has `sign` in its command line."""
        try:
            self._wait(lambda: any(sign in each for each in self.there()), sign)
            process.send_signal(how)
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()
        self.gone()
        return Said(process.returncode, out, err)


HELLO = '{"id": %d, "ok": {"driver": 1, "version": "1", "ops": ["push"]}}'
_LOOP = """
import json, os, subprocess, sys, time
def say(id, **rest):
    sys.stdout.write(json.dumps({"id": id, **rest}) + "\\n"); sys.stdout.flush()
def greet(id):
    say(id, ok={"driver": 1, "version": "1", "ops": ["push"]})
for line in sys.stdin:
    request = json.loads(line)
    id, op = request["id"], request["op"]
    if op == "bye":
        say(id, ok={})
        break
    if op == "hello":
        greet(id)
        continue
"""

GOOD = _LOOP + "    say(id, unsupported=True)\n"
"""A driver that follows the protocol and has no operation."""

DRIVERS = {
    "prints rubbish": ("print('Welcome!', flush=True); input()", "is not JSON"),
    "hangs": ("import time; time.sleep(600)", "no answer to 'hello' within"),
    "hangs later": (_LOOP + "    time.sleep(600)\n", "no answer to 'push' within"),
    "does not flush": (
        _LOOP + "    held = open(os.dup(1), 'w'); held.write('{}\\n'); time.sleep(600)\n",
        "no answer to 'push' within",
    ),
    "wrong id": (_LOOP + "    say(id + 1, unsupported=True)\n", "has the id"),
    "answers out of order": (
        _LOOP + "    say(id - 1, unsupported=True); say(id, unsupported=True)\n",
        "at fault: ",
    ),
    "two answers": (
        _LOOP + '    os.write(1, b\'{"id":2,"unsupported":true}\\nmore\\n\')\n',
        "more output follows the answer",
    ),
    "dies at once": ("raise SystemExit(7)", "exit status 7"),
    "dies later": (_LOOP + "    raise SystemExit(9)\n", "exit status 9"),
    "dies by a signal": (_LOOP + "    os.kill(os.getpid(), 9)\n", "exit status -9"),
    "closes its output": (
        _LOOP + "    os.close(1); time.sleep(600)\n",
        "exit status unknown; it only closed a pipe",
    ),
    "floods standard output": ("while True: print('x' * 65536, end='')", "without an end of line"),
    "floods standard error and hangs": (
        "import sys\nwhile True: sys.stderr.write('y' * 65536)",
        "no answer to 'hello' within",
    ),
    "wrong form": (_LOOP + "    say(id, ok={'jids': []})\n", "#/$defs/pushed"),
    "no UTF-8": ("input(); import os; os.write(1, b'\\xff\\xfe\\n'); input()", "is not JSON"),
}
"""Faults of a driver: the program, and a text that the message has to contain."""

_WORKER = """
import os, signal, socket, subprocess, sys, time
url = os.environ["JOBWIRE_REDIS_URL"].split("/")[2].split(":")
queue = os.environ["JOBWIRE_QUEUES"].split(",")[0].split(":")[0]
def fetch():
    redis = socket.create_connection((url[0], int(url[1])))
    while True:
        redis.sendall(b"BRPOP queue:%b 1\\r\\n" % queue.encode())
        if not redis.recv(65536):
            time.sleep(600)
"""
WORKERS = {
    "never fetches": ("import time; time.sleep(600)", "did not fetch from"),
    "dies at once": ("raise SystemExit(5)", "exit status 5 before its first fetch"),
    "another queue": (
        _WORKER.replace("queue:%b", "queue:x%b") + "fetch()",
        "did not fetch from",
    ),
}
USES_A_KEY_AND_ENDS = _WORKER + (
    "redis = socket.create_connection((url[0], int(url[1])))\n"
    "redis.sendall(b'ZRANGEBYSCORE schedule -inf 1\\r\\n')\n"
    "redis.recv(65536)\n"
    "raise SystemExit('no such member')\n"
)
IGNORES_TERM = _WORKER + "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nfetch()"
FORKS = _WORKER + (
    "child = 'import time; time.sleep(599)'\n"
    "subprocess.Popen([sys.executable, '-c', child], start_new_session=True)\n"
    "subprocess.Popen([sys.executable, '-c', child], process_group=0)\n"
    "subprocess.Popen([sys.executable, '-c', child])\n"
    "fetch()"
)


def adapter(
    directory: Path,
    driver: str = GOOD,
    worker: str = "pass",
    *,
    claims: tuple[str, ...] = ("client/core", "worker/core", "worker/signals"),
    timeout: float = 2.0,
) -> Path:
    """Write an adapter of two Python programs; return its settings."""
    (directory / "driver.py").write_text(driver)
    (directory / "worker.py").write_text(worker)
    path = directory / "conformance.toml"
    listed = ", ".join(f'"{claim}"' for claim in complete(claims))
    path.write_text(
        f'[implementation]\nname = "broken"\nclaims = [{listed}]\n'
        f'[driver]\ncommand = ["{sys.executable}", "driver.py"]\ntimeout = {timeout}\n'
        f'[worker]\ncommand = ["{sys.executable}", "worker.py"]\ntimeout = {timeout}\n'
    )
    return path
