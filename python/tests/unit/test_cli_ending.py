"""Signals that end a command."""

from __future__ import annotations

import subprocess
import sys

import pytest

STORM = """
import os, signal, subprocess, sys

from jobwire.cli.ending import EndSignals

signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as under nohup
signals, me = EndSignals(), os.getpid()
kills = f"os.kill({me}, 15), os.kill({me}, 2), os.kill({me}, 1)"
sender = subprocess.Popen(
    [sys.executable, "-c", f"import os\\nwhile os.getppid() == {me}: {kills}"],
    stderr=subprocess.DEVNULL,
)
for _ in range(5_000):
    signals.wait()
sender.kill()
"""


@pytest.mark.process
def test_signals_at_any_moment_are_caught() -> None:
    """An event that the handler sets hangs here, because its lock is held already."""
    result = subprocess.run(
        [sys.executable, "-c", STORM], capture_output=True, text=True, timeout=60, check=False
    )
    assert (result.returncode, result.stderr) == (0, "")
