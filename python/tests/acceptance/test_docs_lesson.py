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

import pytest

from harness.servers import Server, wait_until
from tests.workers import environment

pytestmark = pytest.mark.thorough

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
PATIENCE_S = 60.0


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
        """Set the variables of a block of shell; skip the installation, which tests have."""
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
                for example in EXAMPLES:
                    if example in shown:
                        self._actual.pop(example, None)
                self._compare(shown, self._run(command))

    def watch(self, shown: str) -> None:
        """Wait until the worker has written the lines that the page shows."""

        def seen() -> bool:
            return not unseen(shown, self._log.read_text(), dict(self._actual))

        try:
            wait_until(seen, PATIENCE_S)
        finally:
            self._compare(shown, self._log.read_text())

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

    def _compare(self, shown: str, output: str) -> None:
        """Assert that the output has the lines shown, and remember this run's values."""
        assert unseen(shown, output, self._actual) == [], output


def unseen(shown: str, output: str, actual: dict[str, str]) -> list[str]:
    """Return the lines of the page that no line of the output begins with.

    The order of lines is free, because processes and threads write beside each other.

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
        match = re.search("".join([*parts, re.escape(line[position:])]), output, re.M)
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


@contextmanager
def lesson(directory: Path, server: Server) -> Iterator[Lesson]:
    reader = Lesson(directory, server)
    try:
        yield reader
    finally:
        reader.end()


@pytest.mark.slow
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


def test_a_line_that_the_page_shows_and_the_output_lacks_is_found() -> None:
    shown = (
        "... start jid=ea8dd9c66002e492ad476a12\n...\n... done jid=ea8dd9c66002e492ad476a12 ...\n"
    )
    start, _, done = shown.splitlines()
    output = "x start jid={0}\nwork\nz done jid={1} y\n"
    one, two = "0" * 24, "1" * 24
    actual: dict[str, str] = {}
    assert unseen(shown, output.format(one, one), actual) == []
    assert actual == {"ea8dd9c66002e492ad476a12": one}
    assert unseen(shown, output.format(one, two), {}) == [done]
    assert unseen(shown, output.format(two, one), actual) == [start]
    assert unseen(shown, output.format("no", "no"), {}) == [start, done]
