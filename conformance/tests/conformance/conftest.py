"""A run whose reports several modules look at, and the Python of adapters."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from harness.servers import valkey_program
from tests.conformance.suite import REFERENCE, ROOT, run


@pytest.fixture(scope="session")
def run_with_a_mistake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run the reference with a mistake; return the directory of its reports."""
    directory = tmp_path_factory.mktemp("report")
    done = run(
        *("check", REFERENCE, "--case", "push-head", "--case", "exec-order", "--report", directory),
        *("--mutant", "insert-at-tail", "--patience", "3", "--server", valkey_program()),
        *("--store", directory / "kept"),
    )
    assert done.status == 1, done.err
    return directory


@pytest.fixture
def own_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `python3` in the adapters' commands be the one that runs the tests."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "python"))
