"""Exploration of real Sidekiq: a failure there is a mistake of the model or of SPEC.md."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from harness.chroots import missing
from harness.servers import valkey_program
from jobwire_conformance.model.explore import Options, explore
from tests.interop.test_conformance import inside

pytestmark = pytest.mark.interop

VERSION = "8.1.7"


@pytest.mark.parametrize(
    ("claims", "examples", "needed"),
    [
        (["client/core", "client/bulk", "client/scheduled"], 25, {"PUSH-1", "SCHED-1", "PAY-5"}),
        (
            ["worker/core", "worker/retry", "worker/monitoring", "worker/signals"],
            8,
            {"FETCH-1", "EXEC-1", "RETRY-2"},
        ),
        (["worker/core", "worker/retry", "scheduler/core"], 8, {"FETCH-1", "SCHED-6"}),
    ],
)
def test_nothing_is_found_in_real_sidekiq(
    claims: list[str], examples: int, needed: set[str], tmp_path: Path
) -> None:
    """The claims of Sidekiq, a few examples each. [PUSH-1] [FETCH-1] [RETRY-2] [SCHED-6]"""
    if reason := missing(VERSION):
        pytest.skip(reason)
    settings = replace(inside(VERSION, tmp_path / "adapter"), claims=claims)
    result = explore(
        settings,
        Options(
            examples=examples,
            patience=30.0,
            program=valkey_program(),
            directory=tmp_path / "found",
        ),
    )
    assert result.failure is None, result.as_data()
    assert needed <= {*result.checked}
