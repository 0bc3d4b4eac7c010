"""Real Sidekiq under the conformance suite: what it fails is in appendix A, or a case is wrong."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from jobwire_conformance import cases, config, run
from jobwire_conformance.cases import Case
from jobwire_conformance.verdicts import Verdict
from tests.interop.conftest import chroots
from tests.servers import valkey_program

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


# By the "Seen in" lines of these blocks: 6 prunes without a lock, and the field `concurrency` came
# with 8.1.2.
OLDER = {"6.4.1": {"BEAT-3", "BEAT-8"}, "7.3.2": {"BEAT-3"}, "8.1.7": set[str]()}


class Quiet:
    """Watches, and says nothing."""

    def waiting(self, case: Case, what: str) -> None:
        pass

    def finished(self, case: Case, verdicts: Sequence[Verdict], seconds: float) -> None:
        pass


def known() -> set[str]:
    """Return the ids in the first table of appendix A."""
    text = (ROOT / "SPEC.md").read_text("utf-8").partition("## Appendix A")[2]
    rows = re.findall(
        r"^\| ([A-Z0-9, -]+) \| [0-9]", text.partition("Every other")[0], re.MULTILINE
    )
    return {id_ for row in rows for id_ in row.split(", ")}


def inside(version: str, directory: Path) -> config.Config:
    """Return the adapter's settings with its commands in the chroot."""
    shutil.copytree(ADAPTER, directory)
    settings = config.load(directory)
    enter = ["unshare", "--mount", "sh", "-c", _ENTER, "sh"]
    enter += [str(chroots() / version), str(directory)]
    assert settings.driver is not None
    assert settings.worker is not None
    return replace(
        settings,
        generation=8 if version.startswith("8") else 7,
        driver=replace(settings.driver, command=[*enter, *settings.driver.command]),
        worker=replace(settings.worker, command=[*enter, *settings.worker.command]),
    )


def test_real_sidekiq_passes_but_for_what_is_known(sidekiq_version: str, tmp_path: Path) -> None:
    """Every check of a claim that is Sidekiq's own. [PUSH-1] [RETRY-2] [SCHED-6] [SIG-5]"""
    settings = inside(sidekiq_version, tmp_path / "adapter")
    found = run.run(
        settings,
        run.chosen(cases.load(), settings.claims, settings.generation),
        (),
        watcher=Quiet(),
        lanes=4,
        patience=15.0,
        program=valkey_program(),
    )
    assert found.errors == []
    excused = known() | OLDER[sidekiq_version]
    failed = {
        f"{v.case}#{v.requirement}": v.finding.message or v.finding.blocked_by
        for v in found.verdicts
        if v.status in ("fail", "blocked") and v.requirement not in excused
    }
    assert failed == {}, json.dumps(failed, indent=2)
    assert sum(verdict.status == "pass" for verdict in found.verdicts) > 70
