"""The demo runs, judges rightly, and cleans up."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
KINDS = [
    "Sidekiq 6.4.1",
    "Sidekiq 7.3.2",
    "Sidekiq 8.1.7",
    "plain",
    "bulk",
    "scheduled",
    "failing, then fine",
    "always failing",
    "async",
    "periodic",
    "unknown class",
    "malformed JSON",
]

# An application with faulty jobs.
BROKEN = """
from examples.demo_app import app, doomed, echo, note, square

right = echo.function
echo.function = lambda *args: right(*args[:-1])
square.function = lambda number: (note(number), note(number))
doomed.function = lambda reason: None
"""

# An application that keeps the demo waiting.
ENDLESS = """
import time
from examples.demo_app import app, square

square.function = lambda number: time.sleep(60)
"""


def start(scratch: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start the demo with a directory of its own for temporary files."""
    return subprocess.Popen(
        [sys.executable, "-m", "examples.demo", *arguments],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(scratch), "COLUMNS": "100"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def run(scratch: Path, *arguments: str) -> tuple[int, str]:
    """Run the demo to its end; return exit status and output."""
    demo = start(scratch, *arguments)
    try:
        output, _ = demo.communicate(timeout=90)
    finally:
        demo.terminate()
    return demo.returncode, output


def rows(output: str) -> dict[str, str]:
    """Return the table's rows by kind, without the kind."""
    return {
        kind: line.strip().removeprefix(kind)
        for line in output.splitlines()
        for kind in KINDS
        if line.strip().startswith(f"{kind} ")
    }


def processes(scratch: Path) -> list[str]:
    """Return the processes of a demo: started with this directory, or in it.

    (The server's environment cannot be read: it writes its title over it.)
    """
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            started_with = (process / "environ").read_bytes().split(b"\0")
            if f"TMPDIR={scratch}".encode() in started_with or (
                os.readlink(process / "cwd").startswith(str(scratch))
            ):
                found.append((process / "cmdline").read_text().replace("\0", " "))
    return found


def assert_nothing_left(scratch: Path) -> None:
    assert list(scratch.iterdir()) == []
    assert processes(scratch) == []


@pytest.mark.full
def test_every_kind_of_job_goes_as_expected(tmp_path: Path) -> None:
    status, output = run(tmp_path)
    assert status == 0, output
    assert list(rows(output)) == KINDS
    assert [kind for kind, row in rows(output).items() if "✓" not in row] == []
    assert rows(output)["bulk"].split()[:4] == ["1,000", "1,000", "-", "-"]
    assert rows(output)["malformed JSON"].split()[:4] == ["4", "-", "-", "4"]
    assert "time warp" in output
    assert "jobwire enqueue EchoJob" in output
    assert_nothing_left(tmp_path)


@pytest.mark.full
def test_jobs_that_go_wrong_are_noticed(tmp_path: Path) -> None:
    app, scratch = tmp_path / "broken_app.py", tmp_path / "scratch"
    app.write_text(BROKEN)
    scratch.mkdir()
    status, output = run(scratch, "--app", f"{app}:app", "--patience", "3")
    assert status == 1, output
    wrong = {kind for kind, row in rows(output).items() if "✗" in row}
    assert {*KINDS[:3], "plain", "bulk", "always failing"} <= wrong, output
    assert not {"async", "unknown class", "malformed JSON"} & wrong, output
    assert "instead of" in output
    assert "INFO" in output, "the worker's log is not shown"
    assert_nothing_left(scratch)


def test_a_worker_that_does_not_start_is_shown(tmp_path: Path) -> None:
    status, output = run(tmp_path, "--app", "examples.nowhere:app")
    assert status == 1
    assert "the worker ended with status 3" in output
    assert "no module 'examples.nowhere'" in output
    assert_nothing_left(tmp_path)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_it_leaves_nothing(tmp_path: Path, how: signal.Signals) -> None:
    app, scratch = tmp_path / "endless_app.py", tmp_path / "scratch"
    app.write_text(ENDLESS)
    scratch.mkdir()
    demo = start(scratch, "--app", f"{app}:app")
    try:
        assert demo.stdout is not None
        assert "a worker are running" in demo.stdout.readline()
        if sys.platform == "linux":
            assert len(processes(scratch)) == 4, "demo, server, worker, and its last resort"
        demo.send_signal(how)
        output, _ = demo.communicate(timeout=60)
    finally:
        demo.terminate()
    assert demo.returncode == 128 + how, output
    assert output.splitlines()[-1].startswith("interrupted")
    assert "Traceback" not in output
    assert_nothing_left(scratch)
