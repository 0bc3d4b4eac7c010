"""The tutorial: everything that the page tells readers to type is typed in, in its order."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.servers import Server, wait_until
from tests.workers import environment

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "tutorial" / "first-hour.md").read_text()
STEP = re.compile(r"^```(?P<kind>\w+)\n(?P<text>.*?)^```$|(?P<stop>^Press Ctrl-C)", re.M | re.S)
WORKER = re.compile(r"jobwire (?:dev|worker)\b")
PRODUCTION = "redis://127.0.0.1:6379/0"
# Examples on the page that differ from run to run, each with the pattern of its kind.
EXAMPLES = {
    "redis://127.0.0.1:54035/0": r"redis://127\.0\.0\.1:\d+/0",
    "ea8dd9c66002e492ad476a12": r"[0-9a-f]{24}",
    "4711": r"\d+",
    "4712": r"\d+",
}
TIMES = re.compile(r"2026-11-22T[\d:.]+Z")
PLACEHOLDER = re.compile(rf"{'|'.join(map(re.escape, EXAMPLES))}|\.\.\.|{TIMES.pattern}|\s+")
PATIENCE_S = 30.0


class Lesson:
    """A reader with two terminals: one for the worker, one for everything else."""

    def __init__(self, directory: Path, server: Server) -> None:
        self._directory = directory
        self._log = directory / "worker.log"
        self._worker: subprocess.Popen[bytes] | None = None
        self._actual: dict[str, str] = {}  # example on the page to the value of this run
        bin_directory = str(Path(sys.executable).parent)
        self._environ = environment(
            PATH=f"{bin_directory}{os.pathsep}{os.environ['PATH']}",
            PYTEST_ADDOPTS="-p no:cacheprovider",
            COLUMNS="100",
        )
        self._environ.pop("PYTEST_XDIST_WORKER", None)
        self._production_url = server.url

    def write(self, text: str) -> None:
        """Write a file; its first line names it."""
        name = text.splitlines()[0].removeprefix("# ")
        (self._directory / name).write_text(text)

    def export(self, text: str) -> None:
        """Set the variables of a block of shell; the rest is installation, which tests have."""
        for name, value in re.findall(r"^export (\w+)=(.*)$", text, re.M):
            self._environ[name] = value.replace(PRODUCTION, self._production_url)

    def enter(self, text: str) -> None:
        """Run the commands of a console, and compare the output that the page shows."""
        for session in re.split(r"^\$ ", text, flags=re.M)[1:]:
            command, _, shown = session.partition("\n")
            for example, actual in self._actual.items():
                command = command.replace(example, actual)
            word, _, setting = command.partition(" ")
            if word == "export":
                name, _, value = setting.partition("=")
                self._environ[name] = value
            elif word == "unset":
                del self._environ[setting]
            elif WORKER.match(command):
                self._start(command)
                self.watch(shown)
            else:
                self._compare(self._run(command), shown, known=False)

    def watch(self, shown: str) -> None:
        """Wait until the worker has written the lines that the page shows."""

        def seen() -> bool:
            return self._matches(self._log.read_text(), shown) is not None

        try:
            wait_until(seen, PATIENCE_S)
        finally:
            self._compare(self._log.read_text(), shown, known=True)

    def interrupt(self) -> None:
        """Press Ctrl-C."""
        assert self._worker is not None
        self._worker.send_signal(signal.SIGINT)
        assert self._worker.wait(PATIENCE_S) == 0, self._log.read_text()
        self._worker = None

    def end(self) -> None:
        """Leave no worker behind, wherever the lesson ended."""
        if self._worker is not None:
            self._worker.terminate()
            self._worker.wait(PATIENCE_S)

    def _run(self, command: str) -> str:
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
        with self._log.open("wb") as output:
            self._worker = subprocess.Popen(
                command.split(),
                cwd=self._directory,
                env=self._environ,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )

    def _compare(self, output: str, shown: str, *, known: bool) -> None:
        """Assert that the output has the lines shown, and remember this run's values."""
        found = self._matches(output, shown, known=known)
        assert found is not None, f"the page shows\n{shown}\nbut there is\n{output}"
        self._actual |= {list(EXAMPLES)[int(name[1:])]: value for name, value in found.items()}

    def _matches(self, output: str, shown: str, *, known: bool = True) -> dict[str, str] | None:
        """Return this run's values if the lines shown are in the output, in this order.

        Args:
            output: Of a command, or the worker's log.
            shown: Lines of the page; `...` stands for anything, and alone for any lines.
            known: Whether an example that had a value before must have the same one now.
        """
        actual = self._actual if known else {}
        named: set[str] = set()

        def pattern(found: re.Match[str]) -> str:
            text = found[0]
            if text in actual:
                return re.escape(actual[text])
            if text in EXAMPLES:
                name = f"e{list(EXAMPLES).index(text)}"
                if name in named:
                    return f"(?P={name})"
                named.add(name)
                return f"(?P<{name}>{EXAMPLES[text]})"
            if text.isspace():
                return r"\s+"
            return r"[^\n]*" if text == "..." else r"[\dT:.Z-]+"

        wanted = []
        for line in filter(lambda line: line != "...", shown.splitlines()):
            position, parts = 0, []
            for found in PLACEHOLDER.finditer(line):
                parts += [re.escape(line[position : found.start()]), pattern(found)]
                position = found.end()
            wanted.append("".join([*parts, re.escape(line[position:])]))
        match = re.search("^" + r"[^\n]*\n(?:[^\n]*\n)*?".join(wanted), output, re.M)
        return None if match is None else match.groupdict()


@contextmanager
def lesson(directory: Path, server: Server) -> Iterator[Lesson]:
    reader = Lesson(directory, server)
    try:
        yield reader
    finally:
        reader.end()


def test_the_lesson_works_when_typed_in(tmp_path: Path, server: Server) -> None:
    played = []
    with lesson(tmp_path, server) as reader:
        for step in STEP.finditer(PAGE):
            kind, text = step["kind"], step["text"]
            played.append(kind or "stop")
            if step["stop"]:
                reader.interrupt()
            elif kind == "console":
                reader.enter(text)
            elif kind == "text":
                reader.watch(text)
            elif kind == "sh":
                reader.export(text)
            else:
                reader.write(text)
    assert {"console", "text", "python", "toml", "ini", "sh"} < set(played)
    assert played.count("stop") == 2


def test_output_that_the_page_does_not_show_is_found(tmp_path: Path, server: Server) -> None:
    """A check that cannot fail is none: another job, another order, another id."""
    with lesson(tmp_path, server) as reader:
        start = "start jid=ea8dd9c66002e492ad476a12\n...\ndone jid=ea8dd9c66002e492ad476a12\n"
        ids = "0" * 24, "1" * 24
        output = "start jid={0} y\nwork\ndone jid={0}\n"
        assert reader._matches(output.format(ids[0]), start) == {"e1": ids[0]}
        assert reader._matches("", "...\n") == {}
        assert not reader._matches("done jid={0}\nstart jid={0}\n".format(*ids), start)
        assert not reader._matches("start jid={}\nwork\ndone jid={}\n".format(*ids), start)
        assert not reader._matches(output.format("none"), start)
