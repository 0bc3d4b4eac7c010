"""How an implementation stands: claims, the bundles of claims that badges name, requirements."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from jobwire_conformance.reports.results import Check, Claim, Summary
from jobwire_conformance.run.verdicts import FAILURES

__all__ = [
    *("BUNDLES", "State", "bundles", "called", "counts", "held", "in_order"),
    *("state", "states", "worst"),
]

State = Literal["met", "failed", "deviation", "part", "none"]

WORDS: Mapping[State, str] = {
    "met": "met",
    "failed": "NOT met",
    "deviation": "not met, declared",
    "part": "not all checked",
    "none": "not checked",
}

_PRODUCER = ("client/core", "client/bulk", "client/scheduled")
_CONSUMER = ("worker/core", "worker/retry", "worker/signals", "scheduler/core")
BUNDLES: Mapping[str, tuple[str, ...]] = {
    "Producer": _PRODUCER,
    "Consumer": _CONSUMER,
    "Observable": (*_CONSUMER, "worker/monitoring"),
    "Reliable": (*_CONSUMER, "worker/reliable", "scheduler/reliable", "client/faults"),
}
"""Name to the claims that it stands for."""

_RANK = {
    status: rank
    for rank, status in enumerate(
        (
            *("fail", "flaky", "blocked", "deviation", "stale", "warn", "info", "pass"),
            *("added-after", "not-claimed"),
        )
    )
}


def state(claim: Claim) -> State:
    """Return how it stands about a claim."""
    if claim["met"]:
        return "met"
    if FAILURES & set(claim["checks"]):
        return "failed"
    if "deviation" in claim["checks"]:
        return "deviation"
    return "part" if claim["checks"] else "none"


def states(results: Summary) -> dict[str, State]:
    """Return the same for each claim; of a run that did not end, nothing is met."""
    found = {name: state(claim) for name, claim in results["claims"].items()}
    if any("case" not in error for error in results.get("errors", ())):
        found = {name: "part" if each == "met" else each for name, each in found.items()}
    return found


def counts(claim: Claim) -> str:
    """Return how many checks have which status, in a line."""
    return ", ".join(f"{number} {status}" for status, number in sorted(claim["checks"].items()))


def bundles(results: Summary) -> list[str]:
    """Return the bundles of which every claim is met."""
    found = states(results)
    return [name for name, of in BUNDLES.items() if all(found.get(claim) == "met" for claim in of)]


def held(check: Check) -> bool:
    """Return whether there is nothing to say about a check.

    What does not count for the version that was asked about may fail as well.
    """
    if check["status"] in ("added-after", "not-claimed"):
        return not check.get("message") and not check.get("blocked_by")
    return check["status"] == "pass"


def in_order(checks: Iterable[Check]) -> list[Check]:
    """Return the checks by case, requirement and claim, whatever order the run had."""
    return sorted(checks, key=lambda each: (each["case"], each["requirement"], each["claim"]))


def worst(checks: Iterable[Check]) -> Check | None:
    """Return of several checks the one that decides; None of none."""
    return min(checks, key=lambda check: (_RANK[check["status"]], held(check)), default=None)


def called(results: Summary) -> str:
    """Return what a run was about, in a line."""
    about = results["implementation"]
    name = f"{about['name']} {about['version']}"
    return f"{name} ({about['variant']})" if "variant" in about else name
