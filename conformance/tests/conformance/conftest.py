"""A run whose reports several modules look at."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.servers import valkey_program
from tests.conformance.suite import REFERENCE, run


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
