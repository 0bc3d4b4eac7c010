"""A reader of a page of the documentation, who types in everything that the page shows.

The reader has a directory, three terminals (one for the worker, one for a server, one for
everything else), and a Python session. The blocks of a page are entered in their order:

    python    run in the session, or written to the file that the first line names: `# jobs.py`,
              or `# settings.py, at the end`
    toml, yaml, ini, text, Dockerfile    written, if the first line names a file
    sh        only its `export` lines count: the rest belongs to other machines
    console   commands, each with the output that the page shows below it
    text      lines of the worker, written since the first command after the last such block

`<!-- setup ... -->` above a block is Python that runs in the session first. `...` in an output
stands for anything. The order of the lines is free, because processes and threads write at the same
time. "Press Ctrl-C" at the start of a line stops the worker.
"""

from __future__ import annotations

import codecs
import fcntl
import json
import os
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
from contextlib import suppress
from operator import itemgetter
from pathlib import Path

from harness.servers import wait_until
from tests.workers import PYTHON, environment
from tools.markdown import FENCE, ROOT, Block, blocks

STOP = re.compile(r"^Press Ctrl-C", re.MULTILINE)
SERVER = re.compile(r"jobwire dev --server-only\b")
WORKER = re.compile(r"(?:python manage\.py )?jobwire (?:dev|worker)\b")
# On a page, the server of the installation. The server of `jobwire dev` is one of the examples.
CONFIGURED = re.compile(r"redis://(?:127\.0\.0\.1:6379|[a-z][a-z.-]*:\d+)/0")
# Examples on a page that differ from run to run, each with the pattern of its kind.
EXAMPLES = {
    "redis://127.0.0.1:24035/0": r"redis://127\.0\.0\.1:\d+/0",
    "ea8dd9c66002e492ad476a12": r"[0-9a-f]{24}",
    "4711": r"\d+",
    "4712": r"\d+",
}
TIMES = re.compile(r"2026-11-22T[\d:.]+Z")
PLACEHOLDER = re.compile(rf"{'|'.join(map(re.escape, EXAMPLES))}|\.\.\.|{TIMES.pattern}|\s+")
PATIENCE_S = 60.0

SESSION = """
import ast, asyncio, json, sys, traceback
from importlib import invalidate_caches
sys.path.insert(0, "")
names = {"__name__": "__main__"}
with asyncio.Runner() as runner:
    for line in sys.stdin:
        request = json.loads(line)
        for module in request["changed"]:
            sys.modules.pop(module, None)
        invalidate_caches()
        failure = ""
        try:
            flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
            source = compile(request["code"], request["name"], "exec", flags)
            result = eval(source, names)
            if result is not None:
                async def wait(): await result
                runner.run(wait())
        except BaseException:
            failure = traceback.format_exc(chain=False)
        print(json.dumps(failure), file=sys.stderr, flush=True)
"""


class Reader:
    """Enters the blocks of a page.

    Args:
        directory: An empty directory.
        url: The server that production would have.
        is_configured: True if REDIS_URL names that server from the start.
    """

    def __init__(self, directory: Path, url: str, *, is_configured: bool) -> None:
        self._directory = directory
        self._worker: Terminal | None = None
        self._server: Terminal | None = None
        self._seen = 0  # characters of the worker's terminal that `watch` leaves out
        self._has_watched = True  # since the last command
        self._session: subprocess.Popen[str] | None = None
        self._changed: list[str] = []  # modules that the session must import again
        self._actual: dict[str, str] = {}  # example on the page to the value of this run
        bin_directory = str(Path(sys.executable).parent)
        self._environ = environment(
            PATH=f"{bin_directory}{os.pathsep}{os.environ['PATH']}",
            PYTEST_ADDOPTS="-p no:cacheprovider",
            PYTHONPATH=os.pathsep.join(map(str, [PYTHON, ROOT / "conformance", ROOT])),
            COLUMNS="100",
        )
        self._environ.pop("PYTEST_XDIST_WORKER", None)
        self._url = url
        if is_configured:
            self._environ["REDIS_URL"] = url

    def read(self, text: str, name: str) -> set[str]:
        """Enter everything that a page shows; return the kinds of the blocks that were entered."""
        entered = set()
        prose = FENCE.sub(lambda match: "\n" * match[0].count("\n"), text)
        stops = [prose.count("\n", 0, match.start()) + 1 for match in STOP.finditer(prose)]
        steps: list[tuple[int, Block | None]] = [(line, None) for line in stops]
        steps += [(block.line, block) for block in blocks(text) if block.reason is None]
        for _, block in sorted(steps, key=itemgetter(0)):
            if block is None:
                self.interrupt()
                entered.add("stop")
            elif self._enter(block, f"{name}:{block.line}"):
                entered.add(block.kind)
        return entered

    def _enter(self, block: Block, place: str) -> bool:
        if block.setup:
            self.run(block.setup, f"{place} (setup)")
        if block.file is not None:
            self.write(block.file, block.code, append=block.is_appended)
        elif block.kind == "python":
            self.run(CONFIGURED.sub(self._url, block.code), place)
        elif block.kind == "console":
            self.enter(block.code)
        elif block.kind == "text":
            self.watch(block.code)
        elif block.kind == "sh":
            self.export(block.code)
        else:
            return False
        return True

    def write(self, name: str, text: str, *, append: bool) -> None:
        """Write a file, or the end of one."""
        self._mark()
        path = self._directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a" if append else "w") as file:
            file.write(text)
        module = name.removesuffix(".py").replace("/", ".").removesuffix(".__init__")
        self._changed += [module, *(f"{module}.{inner.stem}" for inner in path.parent.glob("*.py"))]

    def run(self, code: str, place: str) -> None:
        """Run Python in the session."""
        if self._session is None:
            self._session = subprocess.Popen(
                [sys.executable, "-c", SESSION],
                cwd=self._directory,
                env=self._environ,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
            )
        assert self._session.stdin is not None
        assert self._session.stderr is not None
        request = {"code": code, "name": place, "changed": self._changed}
        self._changed = []
        said = []
        patience = threading.Timer(PATIENCE_S, self._session.kill)
        patience.start()
        try:
            self._session.stdin.write(json.dumps(request) + "\n")
            self._session.stdin.flush()
            for line in self._session.stderr:
                if line.startswith('"'):
                    failure = json.loads(line)
                    assert not failure, f"{place}: {failure}"
                    return
                said.append(line)
        finally:
            patience.cancel()
        raise AssertionError(f"{place}: the session ended: {''.join(said)}")

    def export(self, text: str) -> None:
        """Set the variables of a block of shell."""
        for name, value in re.findall(r"^export (\w+)=(.*)$", text, re.MULTILINE):
            self._environ[name] = CONFIGURED.sub(self._url, value)

    def enter(self, text: str) -> None:
        """Run the commands of a console, and compare the output that the page shows."""
        for entry in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
            command, _, shown = entry.partition("\n")
            for example, actual in self._actual.items():
                command = command.replace(example, actual)
            command = CONFIGURED.sub(self._url, command)
            self._mark()
            word, _, setting = command.partition(" ")
            if word == "export":
                self.export(command)
            elif word == "unset":
                del self._environ[setting]
            elif SERVER.match(command):
                self._server = Terminal(command.split(), self._directory, self._environ)
                self._await(self._server, shown, 0)
            elif WORKER.match(command):
                self._start(command)
                self.watch(shown)
            else:
                for example in EXAMPLES:
                    if example in shown:
                        self._actual.pop(example, None)
                self._compare(shown, self._execute(command))

    def watch(self, shown: str) -> None:
        """Wait until the worker has written the lines that the page shows."""
        assert self._worker is not None, f"the page has started no worker that could write {shown}"
        self._await(self._worker, shown, self._seen)
        self._has_watched = True

    def _await(self, terminal: Terminal, shown: str, seen: int) -> None:
        """Wait for lines in a terminal, after the characters that were seen."""

        def written() -> str:
            return terminal.text[seen:]

        try:
            wait_until(lambda: not unseen(shown, written(), dict(self._actual)), PATIENCE_S)
        finally:
            self._compare(shown, written())

    def interrupt(self) -> None:
        """Press Ctrl-C."""
        assert self._worker is not None
        self._mark()
        assert self._worker.interrupt() == 0, self._worker.text

    def end(self) -> None:
        """Leave no process behind, wherever the reader has stopped."""
        for terminal in (self._worker, self._server):
            if terminal is not None:
                terminal.close()
        if self._session is not None:
            self._session.communicate(timeout=PATIENCE_S)

    def _execute(self, command: str) -> str:
        done = subprocess.run(
            command,
            shell=True,
            cwd=self._directory,
            env=self._environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert done.returncode == 0, f"{command}: {done.stdout}"
        return done.stdout

    def _start(self, command: str) -> None:
        if self._worker is not None:
            self._worker.close()
        self._seen = 0
        self._worker = Terminal(command.split(), self._directory, self._environ)

    def _mark(self) -> None:
        """Before a command: leave out the lines of the blocks that were watched."""
        if self._worker is not None and self._has_watched:
            self._seen = len(self._worker.text)
        self._has_watched = False

    def _compare(self, shown: str, output: str) -> None:
        """Assert that the output has the lines shown, and remember this run's values."""
        assert unseen(shown, output, self._actual) == [], output


class Terminal:
    """A process that writes to a terminal.

    Args:
        command: Its words.
        directory: Its working directory.
        environ: Its environment.
    """

    def __init__(self, command: list[str], directory: Path, environ: dict[str, str]) -> None:
        self.text = ""
        self._master, slave = os.openpty()
        # Wider than any line, because a terminal divides lines.
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 1000, 0, 0))
        self._process = subprocess.Popen(
            command, cwd=directory, env=environ, stdin=slave, stdout=slave, stderr=slave
        )
        os.close(slave)
        self._pump = threading.Thread(target=self._read)
        self._pump.start()

    def interrupt(self) -> int:
        """Send the signal of Ctrl-C; return the exit status."""
        self._process.send_signal(signal.SIGINT)
        return self._process.wait(PATIENCE_S)

    def close(self) -> None:
        """End the process, wherever it is."""
        self._process.terminate()
        self._process.wait(PATIENCE_S)
        self._pump.join(PATIENCE_S)
        os.close(self._master)

    def _read(self) -> None:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        with suppress(OSError):  # Linux reports the end as EIO
            while chunk := os.read(self._master, 1 << 16):
                self.text += decoder.decode(chunk).replace("\r\n", "\n")


def unseen(shown: str, output: str, actual: dict[str, str]) -> list[str]:
    """Return the lines of the page that no line of the output begins with.

    Args:
        shown: Lines of the page; `...` stands for anything.
        output: Of a command, or the worker's log.
        actual: Example on the page to the value of this run. New values are added.
    """
    missing = []
    for line in shown.splitlines():
        groups: dict[str, str] = {}
        position, parts = 0, ["^"]
        for found in PLACEHOLDER.finditer(line):
            parts += [re.escape(line[position : found.start()]), _pattern(found[0], actual, groups)]
            position = found.end()
        match = re.search("".join([*parts, re.escape(line[position:])]), output, re.MULTILINE)
        if match is None and line != "...":
            missing.append(line)
        elif match is not None:
            actual |= {example: match[group] for example, group in groups.items()}
    return missing


def _pattern(text: str, actual: dict[str, str], groups: dict[str, str]) -> str:
    """Return the pattern of a placeholder; `groups` gets the name of the group of a new example."""
    if text in actual:
        return re.escape(actual[text])
    if text in EXAMPLES:
        groups[text] = f"g{len(groups)}"
        return f"(?P<{groups[text]}>{EXAMPLES[text]})"
    if text.isspace():
        return r"\s+"
    return "[^\\n]*" if text == "..." else r"[\dT:.Z-]+"
