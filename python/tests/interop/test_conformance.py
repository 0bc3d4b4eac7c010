"""Real Sidekiq under the conformance suite: a failed check is in appendix A, or a case is wrong."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from harness.chroots import CHROOTS
from harness.servers import valkey_program
from jobwire_conformance import config
from jobwire_conformance.cases import case as cases
from jobwire_conformance.run import run
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

# Features that a release lacks: iterable jobs came with 7.3, cancelling with 7.3.3, metrics
# with 7.0.
WITHOUT = {"6.4.1": {"worker/iteration", "worker/metrics", "cancel"}, "7.3.2": {"cancel"}}


def known(version: str) -> set[str]:
    """Return the ids that the first table of appendix A names for a version."""
    text = (ROOT / "SPEC.md").read_text("utf-8").partition("## Appendix A")[2]
    rows = re.findall(
        r"^\| ([A-Z0-9, -]+) \| ([0-9][^|]*) \|", text.partition("Every other")[0], re.MULTILINE
    )
    return {id_ for ids, about in rows if is_about(version, about) for id_ in ids.split(", ")}


def is_about(version: str, about: str) -> bool:
    """Return whether `6, 7, 8 before 8.1.2` or `6.3.0 and later` covers a version."""
    if "and later" in about:
        return parts(version) >= parts(about.split()[0])
    for generation, before in re.findall(r"\b([678])\b(?:\.[0-9.]+)?(?: before ([0-9.]+))?", about):
        if version.startswith(generation) and (not before or parts(version) < parts(before)):
            return True
    return False


def parts(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]


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
        generation=8 if version.startswith("8") else 7,
        driver=replace(settings.driver, command=[*enter, *settings.driver.command]),
        worker=replace(settings.worker, command=[*enter, *settings.worker.command]),
    )


def test_real_sidekiq_passes_but_for_what_is_known(sidekiq_version: str, tmp_path: Path) -> None:
    """Every check of a claim that is Sidekiq's own. [PUSH-1] [RETRY-2] [SCHED-6] [SIG-5]

    Also conditions that no other test can create. [ENV-1] [ENV-4] [ENV-5] [ENV-6] [ENV-7] [ENV-8]
    [ENV-9] [KEY-5] [SCHED-10] [SEC-1]
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
    excused = known(sidekiq_version)
    failed = {
        f"{v.case}#{v.requirement}": v.finding.message or v.finding.blocked_by
        for v in found.verdicts
        if v.status in ("fail", "blocked") and v.requirement not in excused
    }
    assert failed == {}, json.dumps(failed, indent=2)
    assert sum(verdict.status == "pass" for verdict in found.verdicts) > 70
