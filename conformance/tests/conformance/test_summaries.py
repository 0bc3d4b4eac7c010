"""Summaries, the short form of results that is kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import cast

import pytest

from jobwire_conformance import reports
from jobwire_conformance.errors import Usage
from jobwire_conformance.reports import summary
from jobwire_conformance.reports.drift import drift
from jobwire_conformance.reports.matrix import find
from jobwire_conformance.reports.results import Check, load
from jobwire_conformance.run import sets
from tests.conformance import hostile
from tests.conformance.pages import STORE
from tests.conformance.sample_results import results


@pytest.mark.process
def test_a_summary_is_small_and_says_what_the_run_said(run_with_a_mistake: Path) -> None:
    """It has a line for each claim and reason; matrix and badge equal the full report's."""
    whole = load(run_with_a_mistake)
    path = run_with_a_mistake / "kept" / summary.stored_as(whole)
    kept = summary.load(path)
    assert [*drift(kept, whole)] == []
    assert summary.dump(kept) == path.read_bytes()
    assert len(path.read_text().splitlines()) < len(whole["claims"]) + 40
    of_summary, of_report = (find([each])[0] for each in (path, run_with_a_mistake))
    assert reports.matrix_pages(of_summary) == reports.matrix_pages(of_report)
    (failed,) = [
        c for c in kept["checks"] if (c["case"], c["requirement"]) == ("push-head", "PUSH-1")
    ]
    assert failed["status"] == "fail"
    assert "RPUSH" in failed["message"] or "Older" in failed["message"]
    assert reports.badge_svg(kept) == reports.badge_svg(whole)


def test_a_summary_keeps_what_the_pages_show(tmp_path: Path) -> None:
    """Reasons, issues, losses and errors are kept, with hostile texts in them."""
    (tmp_path / "full").mkdir()
    full = hostile.write(tmp_path / "full")
    path = tmp_path / "kept" / summary.stored_as(full)
    reports.put(path, summary.dump(full))
    of_summary, of_report = (find([each])[0] for each in (path, tmp_path / "full"))
    assert reports.matrix_pages(of_summary) == reports.matrix_pages(of_report)
    assert summary.load(path).get("errors") == full.get("errors")
    assert [*drift(summary.load(path), full)] == []


def test_a_summary_keeps_the_reason_of_a_deviation_and_what_was_seen(tmp_path: Path) -> None:
    run = results("client/core", status="deviation", command="make it", again="replay it")
    for check in run["checks"]:
        check["message"] = f"saw {check['requirement']}"
    path = tmp_path / "1.json"
    reports.put(path, summary.dump(run))
    kept = summary.load(path)
    assert (kept.get("command"), kept.get("again")) == ("make it", "replay it")
    shown = {check["requirement"]: check for check in kept["checks"] if "reason" in check}
    assert shown.keys() == {check["requirement"] for check in run["checks"]}
    assert all(check.get("message") == f"saw {id_}" for id_, check in shown.items())
    # One reason is still one line.
    assert len(json.loads(path.read_text())["exceptions"]) <= 2


def test_a_summary_of_a_set_that_changed_claims_less(tmp_path: Path) -> None:
    """Passed checks are known only with the set of the run; failures are always known."""
    run = results("client/core", "client/bulk")
    run["checks"] = [
        cast(Check, {"case": case, "requirement": id_, "claim": claim, "status": "pass"})
        for claim in run["claims"]
        for case, id_ in (name.split("#") for name in sets.checks_of(run["spec"])[claim])
    ]
    run["checks"][0]["status"] = "fail"
    kept = json.loads(summary.dump(run))
    path = tmp_path / "1.json"
    path.write_text(json.dumps(kept))
    assert [*drift(run, summary.load(path))] == []
    kept["claims"]["client/core"]["set"] = "0" * 12
    path.write_text(json.dumps(kept))
    core = [c["status"] for c in summary.load(path)["checks"] if c["claim"] == "client/core"]
    assert core == ["fail"]
    matrix, (remark,) = find([path])
    assert remark.startswith(f"{path}: the checks of client/core have changed since this run")
    (column,) = matrix.columns
    assert column.claim("client/bulk") == "met"
    assert column.claim("client/core") == "as-far"


def test_the_stored_summaries_are_of_the_present_set() -> None:
    for path in STORE.rglob("*.json"):
        assert "unknown" not in summary.load(path), (
            f"{path}: restore the former set, then write both with: make conformance ARGS=--set"
        )


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"summary": 2}, "has version 2 of the format; this suite reads 1"),
        ({"exceptions": [{"status": "broken", "checks": {}}]}, "see schema/summary.json"),
        ({"exceptions": [{"status": "fail", "checks": {"client/core": ["PUSH"]}}]}, "see schema"),
        ({"claims": {"client/cor": {"met": True, "checks": {}}}}, "see schema/summary.json"),
        ({"started": None}, "see schema/summary.json"),
    ],
)
def test_a_broken_summary_is_refused(change: dict[str, object], says: str, tmp_path: Path) -> None:
    path = tmp_path / "1.json"
    path.write_text(json.dumps({**json.loads(summary.dump(results("client/core"))), **change}))
    with pytest.raises(Usage, match=says):
        summary.load(path)
