"""Summaries of runs, which are committed: a line for each case."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from jobwire_conformance import compact
from jobwire_conformance.reports.claim_status import held
from jobwire_conformance.reports.results import Check, Loss, Summary, checked, read

__all__ = ["dump", "load", "stored_as", "why"]

_ABOUT = ("implementation", "generation", "spec", "suite", "server", "started")


def why(check: Check) -> str:
    """Return the reason that a check is not green."""
    return check.get("reason") or check.get("message") or check.get("blocked_by") or ""


def dump(run: Summary) -> bytes:
    """Return the file. See schema/summary.json.

    It holds the first reason for each requirement and status, because a matrix shows only that.
    """
    found: dict[str, Any] = {"summary": 1}
    found |= {name: cast(Any, run)[name] for name in _ABOUT if name in run}
    found["claims"] = {
        name: {key: value for key, value in claim.items() if value or key in ("met", "checks")}
        for name, claim in run["claims"].items()
    }
    cases: dict[str, dict[str, list[str]]] = {}
    reasons: dict[tuple[str, str], dict[str, str]] = {}
    for check in run["checks"]:
        requirement, status = check["requirement"], check["status"]
        word = requirement if status == "pass" else f"{requirement} {status}"
        cases.setdefault(check["case"], {}).setdefault(check["claim"], []).append(word)
        if not held(check) and (requirement, status) not in reasons:
            reason = {"check": f"{check['case']}#{word}", "why": why(check)}
            reasons[requirement, status] = reason
            if "issue" in check:
                reason["issue"] = check["issue"]
    found["cases"] = cases
    if reasons:
        found["reasons"] = [*reasons.values()]
    if "loss_map" in run:
        found["losses"] = _losses(run["loss_map"])
    if run.get("errors"):
        found["errors"] = run["errors"]
    return compact.dump(found)


def _losses(losses: Iterable[Loss]) -> list[dict[str, Any]]:
    """Return an entry for each case, and for each window in which its points are."""
    found: dict[tuple[str, str | None], dict[str, str]] = {}
    for loss in losses:
        points = found.setdefault((loss["case"], loss.get("window")), {})
        points[f"{loss['side']} {loss['point']}"] = loss["outcome"]
    return [
        {"case": case, **({"window": window} if window else {}), "points": points}
        for (case, window), points in found.items()
    ]


def load(path: Path) -> Summary:
    """Return the summary of a run from its file, or from a results.json or its directory.

    Raises:
        Usage: It cannot be read, or is something else, or of another version of the format.
    """
    if path.is_dir():
        path = path / "results.json"
    found = read(path)
    if not isinstance(found, dict) or "summary" not in found:
        return cast(Summary, checked(path, found, "results", "results.json"))
    checked(path, found, "summary", "summary")
    run: dict[str, Any] = {name: found[name] for name in _ABOUT if name in found}
    run |= {"claims": found["claims"], "checks": [*_checks(found)]}
    if "losses" in found:
        run["loss_map"] = [*_points(found["losses"])]
    if "errors" in found:
        run["errors"] = found["errors"]
    return cast(Summary, run)


def _checks(found: Mapping[str, Any]) -> Iterator[Check]:
    reasons = {reason["check"]: reason for reason in found.get("reasons", ())}
    for case, claims in found["cases"].items():
        for claim, words in claims.items():
            for word in words:
                requirement, _, status = word.partition(" ")
                check: Check = {
                    "case": case,
                    "requirement": requirement,
                    "claim": claim,
                    "status": status or "pass",
                }
                if reason := reasons.get(f"{case}#{word}"):
                    declared = status in ("deviation", "stale")
                    check["reason" if declared else "message"] = reason["why"]
                    if "issue" in reason:
                        check["issue"] = reason["issue"]
                yield check


def _points(losses: Iterable[Mapping[str, Any]]) -> Iterator[Loss]:
    for entry in losses:
        for point, outcome in entry["points"].items():
            side, _, label = point.partition(" ")
            loss = {"case": entry["case"], "point": label, "side": side, "outcome": outcome}
            if "window" in entry:
                loss["window"] = entry["window"]
            yield cast(Loss, loss)


def stored_as(run: Summary) -> Path:
    """Return the path in a store: `<implementation>/<version>[-<variant>][-g7].json`."""
    about = run["implementation"]
    parts: Iterable[str] = (about["version"], about.get("variant", ""))
    if run.get("generation", 8) != 8:
        parts = (*parts, f"g{run['generation']}")
    stem = "-".join(_file_name(part) for part in parts if part)
    return Path(_file_name(about["name"])) / f"{stem}.json"


def _file_name(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._+]+", "-", text).strip("-.").lower() or "unknown"
