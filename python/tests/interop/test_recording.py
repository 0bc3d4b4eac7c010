"""A new recording of the fixtures changes only times, ids, names of hosts and similar values.

The list of these values is in `recorded.py`. One test records a part, another one all of it,
which takes minutes.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from harness.chroots import CHROOTS
from tests.interop.recorded import state, states, transcript
from tests.interop.sidekiq import GENERATIONS

REPOSITORY = Path(__file__).resolve().parents[3]
FIXTURES = REPOSITORY / "fixtures"

# Quick jobs, and one for each outcome. (The first due one of two retries is random, so the API
# is shown on dead jobs.)
SCENARIOS = (
    "push-plain", "push-client-api", "push-bulk-at-array", "perform-in-at", "push-invalid",
    "args-literals", "activejob-perform-later", "error-message-utf16",
    "retry-first-backtrace-3", "dead-set-trimmed", "promoted-scheduled",
    "api-dead-retry", "api-queue-delete-job",
)  # fmt: skip
TRANSCRIPTS = ("push", "push-bulk")
INVALID = "invalid/payloads.json"


def record(directory: Path, *arguments: str, timeout: float) -> None:
    """Record into a copy of the fixtures."""
    shutil.copytree(FIXTURES, directory / "fixtures")
    shutil.copy(REPOSITORY / "SPEC.md", directory)
    shutil.copytree(REPOSITORY / "spec", directory / "spec")
    subprocess.run(
        [sys.executable, directory / "fixtures" / "capture" / "record.py", *arguments],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY / "python")},
        check=True,
        timeout=timeout,
    )


def transcripts(root: Path, version: str) -> dict[str, str]:
    directory = root / "fixtures" / "sidekiq" / version / "transcripts"
    return {path.stem: path.read_text("utf-8") for path in directory.glob("*.txt")}


def files_recorded_in(root: Path) -> set[str]:
    index = json.loads((root / "fixtures" / "index.json").read_text("utf-8"))
    return {line["file"] for line in index if "rerecorded" in line["provenance"]}


def assert_same(
    root: Path, version: str, scenarios: Sequence[str], listened: Sequence[str]
) -> None:
    """Assert that these were recorded again with the same content, and that others stayed."""
    before, after = states(REPOSITORY, version), states(root, version)
    assert list(after) == list(before)
    for name, entry in after.items():
        if name in scenarios:
            assert entry["captured_at"] > before[name]["captured_at"]
            assert state(entry) == state(before[name]), name
        else:
            assert entry == before[name]
    old, new = transcripts(REPOSITORY, version), transcripts(root, version)
    assert list(new) == list(old)
    for name, text in new.items():
        assert (text != old[name]) == (name in listened), name
        assert transcript(name, text) == transcript(name, old[name]), name
    assert (root / "fixtures" / INVALID).read_bytes() == (FIXTURES / INVALID).read_bytes()


@pytest.mark.interop
def test_recording_again_changes_nothing_else(sidekiq_version: str, tmp_path: Path) -> None:
    """[PAY-11] [PUSH-1] [SCHED-1] [RETRY-2] [DEAD-3] New recordings equal the fixtures."""
    names = [*SCENARIOS, *(f"monitor-{name}" for name in TRANSCRIPTS), "invalid"]
    record(tmp_path, "--version", sidekiq_version, *names, timeout=120)
    assert_same(tmp_path, sidekiq_version, SCENARIOS, TRANSCRIPTS)
    files = {"states.json", "payloads.json", *(f"transcripts/{name}.txt" for name in TRANSCRIPTS)}
    renewed = {INVALID, *(f"sidekiq/{sidekiq_version}/{file}" for file in files)}
    assert renewed <= files_recorded_in(tmp_path)


@pytest.mark.interop
@pytest.mark.real_time
def test_recording_all_of_it_again_changes_nothing_else(tmp_path: Path) -> None:
    """[BEAT-3] [FETCH-6] [INSP-4] [ITER-3] [MET-2] [SIG-4] So do those that take minutes."""
    if not all((CHROOTS / version / ".complete").exists() for version in GENERATIONS):
        pytest.skip("not every generation of Sidekiq is installed: run `make interop`")
    record(tmp_path, "--sandboxes", "12", timeout=900)
    for version in GENERATIONS:
        assert_same(
            tmp_path,
            version,
            list(states(REPOSITORY, version)),
            list(transcripts(REPOSITORY, version)),
        )
    of_sidekiq = {
        path.relative_to(FIXTURES).as_posix()
        for path in (FIXTURES / "sidekiq").rglob("*")
        if path.is_file()
    }
    assert files_recorded_in(tmp_path) == {INVALID, *of_sidekiq}


def test_every_captured_payload_has_a_scenario_that_is_recorded() -> None:
    """[GEN-3] No payload or process stays that only the first capture could show."""
    for version in GENERATIONS:
        recorded = {
            *states(REPOSITORY, version),
            *(f"monitor-{name}" for name in transcripts(REPOSITORY, version)),
        }
        for file, field in (("payloads", "scenario"), ("processes", "name")):
            path = FIXTURES / "sidekiq" / version / f"{file}.json"
            entries: list[dict[str, Any]] = json.loads(path.read_text("utf-8"))
            assert {entry[field] for entry in entries} <= recorded
