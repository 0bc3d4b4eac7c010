"""Modules that a worker has loaded before its first job: it keeps them in memory for weeks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.servers import Reaper, Server, wait_until
from tests.workers import Workers

APP = """
import os, sys
from jobwire import App

app = App()

@app.on("heartbeat")
def tell():
    open("loading", "w").write("\\n".join(sys.modules))
    os.rename("loading", "loaded")
"""
# Modules of other commands.
NOT_NEEDED = frozenset(
    [
        *("rich", "pygments", "yaml", "jsonschema", "pytest", "jobwire_conformance"),
        *("jobwire.bench", "jobwire.inspect", "jobwire.spec", "jobwire.testing"),
        "jobwire.worker.execute.isolation",
    ]
)


@pytest.fixture
def workers(_reaper: Reaper, tmp_path: Path) -> Iterator[Workers]:
    with Workers(_reaper, tmp_path) as workers:
        yield workers


def test_a_worker_loads_nothing_that_only_other_commands_need(
    server: Server, workers: Workers, tmp_path: Path
) -> None:
    (tmp_path / "shop.py").write_text(APP)
    workers.start("shop:app", "--redis", server.url)
    wait_until((tmp_path / "loaded").exists, 60, "the worker's first beat")
    loaded = set((tmp_path / "loaded").read_text().split())
    packages = loaded | {name.partition(".")[0] for name in loaded}
    assert "jobwire.worker.process.launcher" in loaded
    assert NOT_NEEDED & packages == set()
