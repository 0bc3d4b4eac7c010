"""The state of an implementation: its claims, its bundles of claims, and its checks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from jobwire_conformance.data import ROBUST, required_claims
from jobwire_conformance.reports.results import Check, Claim, Summary
from jobwire_conformance.run.verdicts import FAILURES

__all__ = [
    *("BUNDLES", "State", "bundles", "called", "counts", "held", "in_order"),
    *("state", "states", "unmet", "worst"),
]

State = Literal["met", "failed", "deviation", "alone", "part", "none"]

WORDS: Mapping[State, str] = {
    "met": "met",
    "failed": "NOT met",
    "deviation": "not met, declared",
    "alone": "requires others",
    "part": "not all checked",
    "none": "not checked",
}

_PRODUCER = ("client/core", "client/bulk", "client/scheduled")
_CONSUMER = ("worker/core", "worker/retry", "worker/signals", "scheduler/core")
BUNDLES: Mapping[str, tuple[str, ...]] = {
    "Producer": _PRODUCER,
    "Consumer": _CONSUMER,
    "Observable": (*_CONSUMER, "worker/monitoring"),
    "Reliable": (
        *(f"{claim}{ROBUST}" for claim in _CONSUMER),
        *("worker/reliable", "scheduler/reliable", f"client/faults{ROBUST}"),
    ),
}
"""The claims of each bundle, by the name of the bundle."""

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
    """Return the state of a claim."""
    if claim["met"]:
        return "met"
    if FAILURES & set(claim["checks"]):
        return "failed"
    if "deviation" in claim["checks"]:
        return "deviation"
    if not claim["checks"]:
        return "none"
    return "part" if claim.get("missing") else "alone"


def states(results: Summary) -> dict[str, State]:
    """Return the state of each claim. No claim is met if an error ended the run."""
    state_of = {name: state(claim) for name, claim in results["claims"].items()}
    if any("case" not in error for error in results.get("errors", ())):
        unsure = ("met", "alone")
        state_of = {name: "part" if word in unsure else word for name, word in state_of.items()}
    return state_of


def unmet(results: Summary, name: str) -> list[str]:
    """Return the claims that this claim requires and that the run did not find met.

    Empty if the state of the claim has another reason.
    """
    state_of = states(results)
    if state_of[name] != "alone":
        return []
    return [claim for claim in required_claims(name) if state_of.get(claim) not in ("met", None)]


def counts(claim: Claim) -> str:
    """Return the number of checks by status, as one line."""
    return ", ".join(f"{number} {status}" for status, number in sorted(claim["checks"].items()))


def bundles(results: Summary) -> list[str]:
    """Return the bundles whose claims are all met."""
    state_of = states(results)
    return [
        name
        for name, claims in BUNDLES.items()
        if all(state_of.get(claim) == "met" for claim in claims)
    ]


def held(check: Check) -> bool:
    """Return whether a check needs no explanation.

    A check that does not count for the requested version may also fail, and then needs one.
    """
    if check["status"] in ("added-after", "not-claimed"):
        return not check.get("message") and not check.get("blocked_by")
    return check["status"] == "pass"


def in_order(checks: Iterable[Check]) -> list[Check]:
    """Return the checks in the order of case, requirement and claim."""
    return sorted(checks, key=lambda check: (check["case"], check["requirement"], check["claim"]))


def worst(checks: Iterable[Check]) -> Check | None:
    """Return the check with the worst status; None without checks."""
    return min(checks, key=lambda check: (_RANK[check["status"]], held(check)), default=None)


def called(results: Summary) -> str:
    """Return name, version and setup of the implementation, as one line."""
    about = results["implementation"]
    name = f"{about['name']} {about['version']}"
    return f"{name} ({about['variant']})" if "variant" in about else name
