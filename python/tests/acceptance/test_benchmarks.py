"""Every benchmark runs once, without measuring."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.workers import environment

ROOT = Path(__file__).resolve().parents[3]


def test_every_benchmark_runs() -> None:
    """In a process of its own, because the plugin does not work with `-n`."""
    options = ("-q", "--benchmark-disable", "-p", "no:cacheprovider", "-p", "no:xdist")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "benchmarks", *options],
        cwd=ROOT,
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    closing = done.stdout.strip().splitlines()[-1]
    assert "passed" in closing
    assert "skipped" not in closing
