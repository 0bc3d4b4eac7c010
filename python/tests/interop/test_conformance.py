"""Real Sidekiq under the conformance suite: it meets every interop claim of its generation."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from harness.chroots import CHROOTS
from harness.servers import valkey_program
from jobwire_conformance import config
from jobwire_conformance.cases import case as cases
from jobwire_conformance.data import CLAIMS, ROBUST
from jobwire_conformance.run import run, verdicts
from tests.conformance.suite import Quiet

pytestmark = pytest.mark.interop

ROOT = Path(__file__).resolve().parents[3]
ADAPTER = ROOT / "conformance" / "drivers" / "ruby-sidekiq"

# The adapter's programs run in the chroot with their directory at /srv.
_ENTER = """
mount -t proc proc "$1/proc" && mount --bind "$2" "$1/srv" || exit
root=$1; shift 2
exec chroot "$root" /usr/bin/env -i -C /srv PATH=/usr/bin:/bin HOME=/root LANG=C.UTF-8 \
  $(env | grep ^JOBWIRE_) "$@"
"""

# Features that a release lacks: iterable jobs came with 7.3, cancelling with 7.3.3, metrics and
# capsules with 7.0.
WITHOUT = {
    "6.4.1": {"worker/iteration", "worker/metrics", "cancel", "capsules", "metrics"},
    "7.3.2": {"cancel"},
}


def generation_of(version: str) -> config.Generation:
    """Return the generation of the protocol that a release of Sidekiq speaks."""
    return cast(config.Generation, ".".join(version.split(".")[:2]))


def inside(version: str, directory: Path) -> config.Config:
    """Return the adapter's settings with its commands in the chroot."""
    shutil.copytree(ADAPTER, directory)
    settings = config.load(directory)
    enter = ["unshare", "--mount", "sh", "-c", _ENTER, "sh"]
    enter += [str(CHROOTS / version), str(directory)]
    assert settings.driver is not None
    assert settings.worker is not None
    without = WITHOUT.get(version, set())
    return replace(
        settings,
        claims=[claim for claim in settings.claims if claim not in without],
        offers=[each for each in settings.offers if each not in without],
        generation=generation_of(version),
        driver=replace(settings.driver, command=[*enter, *settings.driver.command]),
        worker=replace(settings.worker, command=[*enter, *settings.worker.command]),
    )


def test_genuine_sidekiq_meets_every_interop_claim(sidekiq_version: str, tmp_path: Path) -> None:
    """Each generation, without a deviation. [PUSH-1] [RETRY-2] [SCHED-6] [SIG-5] [PAY-8] [PUSH-8]
    [PUSH-9]

    Also conditions that no other test can create. [ENV-5] [FETCH-9] [KEY-5] [SCHED-10] [SEC-1]

    Requirements that were split by level or generation: [PAY-12] [PAY-15] [PAY-16] [PAY-19]
    [GEN-3] [BULK-1] [BULK-7] [EXEC-3] [EXEC-14] [RETRY-10] [BEAT-4] [BEAT-9] [BEAT-10]
    [BEAT-11] [BEAT-12] [BEAT-5] [SIG-4] [ITER-7] [MET-5] [INSP-2] [INSP-4] [INSP-10] [INSP-12]
    """
    settings = inside(sidekiq_version, tmp_path / "adapter")
    found = run.run(
        settings,
        run.chosen(cases.load(), settings.claims, settings.generation),
        (),
        watcher=Quiet(),
        sandboxes=4,
        patience=15.0,
        program=valkey_program(),
    )
    assert found.errors == []
    failed = {
        f"{v.case}#{v.requirement}": v.finding.message or v.finding.blocked_by
        for v in found.verdicts
        if v.status in verdicts.FAILURES
    }
    assert failed == {}, json.dumps(failed, indent=2)
    claims = cast(Mapping[str, Mapping[str, object]], found.as_data()["claims"])
    assert [name for name, claim in claims.items() if not claim["met"]] == []
    assert sum(verdict.status == "pass" for verdict in found.verdicts) > 70


def test_genuine_sidekiq_does_less_than_robust_requirements_ask(
    sidekiq_version: str, tmp_path: Path
) -> None:
    """Its own behaviour. [ENV-14] [BULK-17] [BULK-18] [EXEC-8] [EXEC-12] [SEC-4] [SRV-1] [SRV-2]"""
    is_6 = sidekiq_version.startswith("6.")
    instead = {
        "bulk-lost-reply#BULK-17": 'seen "ok"',
        "bulk-lost-reply#BULK-18": "seen 2500" if is_6 else "seen 3500",
        "reliable-no-class#EXEC-8": "score 0 of dead",
        "reliable-no-object#EXEC-12": "score 0 of jobwire:unreadable",
        "inspect-bomb#SEC-4": "'jobs[0].error_backtrace' of the answer",
        "push-errors#SRV-1": 'seen "unknown"',
        "exec-errors#SRV-2": 'seen "nowhere"',
    }
    if not is_6:
        instead["push-refusals#ENV-14"] = 'expected "ok", seen "unknown"'
    settings = inside(sidekiq_version, tmp_path / "adapter")
    robust = [claim + ROBUST for claim in settings.claims if claim + ROBUST in CLAIMS]
    settings = replace(settings, claims=[*settings.claims, *robust])
    names = {*(name.partition("#")[0] for name in instead), "push-refusals"}
    found = run.run(
        settings,
        run.chosen(cases.load(names=sorted(names)), settings.claims, settings.generation),
        (),
        watcher=Quiet(),
        sandboxes=2,
        patience=5.0,  # each of these checks fails, at the end of its time
        program=valkey_program(),
    )
    assert found.errors == []
    asked = {name.partition("#")[2] for name in instead} | {"ENV-14"}
    failed = {
        f"{v.case}#{v.requirement}": v.finding.message
        for v in found.verdicts
        if v.status in verdicts.FAILURES and v.requirement in asked
    }
    assert failed.keys() == instead.keys()
    assert [name for name, seen in instead.items() if seen not in failed[name]] == []
