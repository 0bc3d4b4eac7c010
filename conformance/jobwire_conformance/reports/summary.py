"""Summaries of runs, to be committed: a line for each claim, and for each reason."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from jobwire_conformance import compact
from jobwire_conformance.data import DEFAULT_GENERATION
from jobwire_conformance.reports.claim_status import held, in_order
from jobwire_conformance.reports.results import Check, Loss, Summary, checked, read
from jobwire_conformance.run import sets

__all__ = ["dump", "load", "stored_as", "why"]

_ABOUT = (
    *("implementation", "generation", "spec", "suite", "server", "started", "again", "command"),
)


def why(check: Check) -> str:
    """Return the reason why a check is not green."""
    return check.get("reason") or check.get("message") or check.get("blocked_by") or ""


def dump(run: Summary) -> bytes:
    """Return the text of the file. See schema/summary.json.

    The file names the checks that did not pass or did not run. All other checks of the frozen set
    of a claim passed, and the digest of that set is in the file. Of several reasons for the same
    requirement and status the first one is kept, with its message, because a matrix shows no other.
    """
    frozen = sets.checks_of(run["spec"])
    data: dict[str, Any] = {"summary": 1}
    data |= {name: cast(Any, run)[name] for name in _ABOUT if name in run}
    data["claims"] = {
        name: {
            **{
                key: value
                for key, value in claim.items()
                if key != "without_case" and (value or key in ("met", "checks"))
            },
            "set": _digest(frozen.get(name, frozenset())),
        }
        for name, claim in run["claims"].items()
    }
    if exceptions := [*_exceptions(run, frozen)]:
        data["exceptions"] = exceptions
    if "loss_map" in run:
        data["losses"] = _losses(run["loss_map"])
    if run.get("errors"):
        data["errors"] = run["errors"]
    return compact.dump(data)


def _digest(checks: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(sorted(checks)).encode()).hexdigest()[:12]


def _exceptions(run: Summary, frozen: Mapping[str, frozenset[str]]) -> Iterator[dict[str, Any]]:
    """Yield status, reason and names of the checks that did not pass or did not run."""
    groups: dict[tuple[str, str, str], dict[str, list[str]]] = {}
    first: dict[tuple[str, str], Check] = {}
    messages: dict[tuple[str, str, str], dict[str, str]] = {}
    ran: dict[str, set[str]] = {claim: set() for claim in run["claims"]}
    for check in in_order(run["checks"]):
        requirement, claim, status = check["requirement"], check["claim"], check["status"]
        name = f"{check['case']}#{requirement}"
        ran.setdefault(claim, set()).add(name)
        if status == "pass" and name in frozen.get(claim, ()):
            continue
        key = status, "", ""
        if not held(check):
            shown = first.setdefault((requirement, status), check)
            key = status, why(shown), shown.get("issue", "")
            if "reason" in shown and (message := shown.get("message")):
                messages.setdefault(key, {})[requirement] = message
        groups.setdefault(key, {}).setdefault(claim, []).append(name)
    not_run = {
        claim: sorted(frozen.get(claim, frozenset()) - names) for claim, names in ran.items()
    }
    if any(not_run.values()):
        groups["not-run", "", ""] = {claim: names for claim, names in not_run.items() if names}
    for key, checks in groups.items():
        status, reason, issue = key
        entry: dict[str, Any] = {"status": status, "why": reason, "issue": issue}
        entry |= {"messages": messages.get(key), "checks": checks}
        yield {key: value for key, value in entry.items() if value}


def _losses(losses: Iterable[Loss]) -> list[dict[str, Any]]:
    """Return an entry for each case and each loss window of its points."""
    points_of: dict[tuple[str, str | None], dict[str, str]] = {}
    for loss in losses:
        points = points_of.setdefault((loss["case"], loss.get("window")), {})
        points[f"{loss['side']} {loss['point']}"] = loss["outcome"]
    return [
        {"case": case, **({"window": window} if window else {}), "points": points}
        for (case, window), points in points_of.items()
    ]


def load(path: Path) -> Summary:
    """Return the summary of a run from its file, or from a results.json or its directory.

    Raises:
        Usage: The file cannot be read, or has another format or version.
    """
    if path.is_dir():
        path = path / "results.json"
    content = read(path)
    if not isinstance(content, dict) or "summary" not in content:
        return cast(Summary, checked(path, content, "results", "results.json"))
    checked(path, content, "summary", "summary")
    run: dict[str, Any] = {name: content[name] for name in _ABOUT if name in content}
    run["claims"] = {
        name: {key: value for key, value in claim.items() if key != "set"}
        for name, claim in content["claims"].items()
    }
    run["checks"] = [*_checks(content)]
    if unknown := _unknown(content):
        run["unknown"] = sorted(unknown)
    if "losses" in content:
        run["loss_map"] = [*_points(content["losses"])]
    if "errors" in content:
        run["errors"] = content["errors"]
    return cast(Summary, run)


def _checks(content: Mapping[str, Any]) -> Iterator[Check]:
    named: set[tuple[str, str]] = set()
    for group in content.get("exceptions", ()):
        status = group["status"]
        remarks: dict[str, str] = {}
        if "why" in group:
            remarks["reason" if status in ("deviation", "stale") else "message"] = group["why"]
        if "issue" in group:
            remarks["issue"] = group["issue"]
        for claim, names in group["checks"].items():
            for name in names:
                named.add((claim, name))
                if status != "not-run":
                    check = _check(name, claim, status)
                    if message := group.get("messages", {}).get(check["requirement"]):
                        check["message"] = message
                    yield cast(Check, {**check, **remarks})
    frozen = sets.checks_of(content["spec"])
    unknown = _unknown(content)
    for claim in content["claims"]:
        for name in sorted(frozen.get(claim, ())) if claim not in unknown else ():
            if (claim, name) not in named:
                yield _check(name, claim, "pass")


def _check(name: str, claim: str, status: str) -> Check:
    case, _, requirement = name.partition("#")
    return {"case": case, "requirement": requirement, "claim": claim, "status": status}


def _unknown(content: Mapping[str, Any]) -> set[str]:
    """Return the claims whose set has changed since the run, so that passed checks are unknown."""
    frozen = sets.checks_of(content["spec"])
    return {
        name
        for name, claim in content["claims"].items()
        if claim["set"] != _digest(frozen.get(name, frozenset()))
    }


def _points(losses: Iterable[Mapping[str, Any]]) -> Iterator[Loss]:
    for entry in losses:
        for point, outcome in entry["points"].items():
            side, _, label = point.partition(" ")
            loss = {"case": entry["case"], "point": label, "side": side, "outcome": outcome}
            if "window" in entry:
                loss["window"] = entry["window"]
            yield cast(Loss, loss)


def stored_as(run: Summary) -> Path:
    """Return the path in a store: `<implementation>/<version>[-<variant>][-g<generation>].json`."""
    about = run["implementation"]
    parts: Iterable[str] = (about["version"], about.get("variant", ""))
    if run.get("generation", DEFAULT_GENERATION) != DEFAULT_GENERATION:
        parts = (*parts, f"g{run['generation']}")
    stem = "-".join(_file_name(part) for part in parts if part)
    return Path(_file_name(about["name"])) / f"{stem}.json"


def _file_name(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._+]+", "-", text).strip("-.").lower() or "unknown"
