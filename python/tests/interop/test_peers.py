"""Other implementations under the suite, where `make release-check ARGS=peers` has set them up."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from harness.servers import valkey_program
from jobwire_conformance import config
from jobwire_conformance.cases import case as cases
from jobwire_conformance.interop import run as pairs
from jobwire_conformance.run import run, verdicts
from tests.conformance.suite import Quiet

pytestmark = pytest.mark.interop

DRIVERS = Path(__file__).resolve().parents[3] / "conformance" / "drivers"
CLIENTS = ("go-workers2", "node-sidekiq", "php")


def settings(name: str) -> config.Config:
    """Return the settings of a peer; the test is skipped where the peer is not set up."""
    cache = Path(os.environ.get("JOBWIRE_CACHE") or "/var/cache/jobwire")
    if not (cache / "peers" / name / ".made-from").exists():
        pytest.skip(f"{name} is not set up: run `.ci/release-check peers`")
    return config.load(DRIVERS / name)


def checked(found: config.Config, *claims: str) -> run.Outcome:
    """Return the outcome of the cases of these claims."""
    found = replace(found, claims=claims)
    declared = verdicts.load_deviations(found.path.with_name("jobwire.deviations.toml"))
    chosen = run.chosen(cases.load(), found.claims, found.generation)
    return run.run(
        found,
        chosen,
        declared,
        watcher=Quiet(),
        sandboxes=2,
        patience=15.0,
        program=valkey_program(),
    )


@pytest.mark.parametrize("name", CLIENTS)
def test_a_client_does_what_it_declares(name: str) -> None:
    """Failing cases are declared with their reason, and declared cases fail. [PUSH-1] [PAY-5]"""
    peer = settings(name)
    found = checked(peer, "client/core", "client/scheduled")
    assert found.errors == []
    failed = {
        f"{v.case}#{v.requirement}": v.finding.message
        for v in found.verdicts
        if v.status in verdicts.FAILURES
    }
    assert failed == {}
    if peer.worker is None:  # otherwise some are about its worker
        assert found.stale == []


def test_go_pushes_for_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pushed job arrives; a failing one goes to a set that no other reader knows. [KEY-3]"""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    go, reference = settings("go-workers2"), config.load(DRIVERS / "python")
    found = pairs.run([reference, go], sandboxes=2, patience=20, program=valkey_program())
    pair = next(p for p in found.pairs if (p.client, p.worker) == ("go-workers2", "jobwire"))
    assert pair.error is None
    assert pair.bad == []
    handover = next(h for h in found.handovers if (h.failing, h.retrying) == (go.name, "jobwire"))
    assert handover.problems == [(go.name, "left the retry set empty, although it ran the job")]
