"""Verdicts on check results: declared deviations, the status of claims, the exit status."""

from __future__ import annotations

import difflib
import tomllib
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from jobwire_conformance import data
from jobwire_conformance.cases import obligations
from jobwire_conformance.cases.case import Case
from jobwire_conformance.errors import Usage
from jobwire_conformance.judge import VISIBLE
from jobwire_conformance.run.checks import CheckResult

__all__ = [
    *("Deviation", "ClaimStatus", "CaseVerdict"),
    *("judge", "load_deviations", "stale", "status", "summary"),
]

FAILURES = frozenset(["fail", "blocked", "flaky"])


@dataclass(frozen=True, slots=True)
class Deviation:
    """A failure that the implementation declares.

    Attributes:
        sometimes: True if its check also passes in some runs, so that it is never stale.
    """

    id: str
    reason: str
    issue: str | None = None
    expect: str | None = None
    sometimes: bool = False

    @property
    def unexplained(self) -> bool:
        """True if the reason is still the placeholder of `baseline`."""
        return self.reason.lstrip().startswith("TODO")

    def meets(self, case: str, requirement: str) -> bool:
        """Return whether it applies to this check."""
        return self.id in (requirement, f"{case}#{requirement}")


@dataclass(slots=True)
class CaseVerdict:
    """The judgement of one requirement in one case for one claim."""

    case: str
    claim: str
    keyword: str
    status: str
    finding: CheckResult
    deviation: Deviation | None = None
    held: int = 0  # number of runs of the case in which the check passed
    runs: int = 1  # number of runs of the case

    @property
    def requirement(self) -> str:
        """Id of the requirement."""
        return self.finding.requirement


def load_deviations(path: Path) -> list[Deviation]:
    """Return the deviations that the implementation declares; none without a file.

    Raises:
        Usage: The file is wrong.
    """
    if not path.exists():
        return []
    try:
        whole = tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise Usage(f"{path}: {error}") from None
    entries = whole.pop("deviation", [])
    if whole or not isinstance(entries, list) or not all(isinstance(e, dict) for e in entries):
        keys = ", ".join(whole) or "deviation"
        raise Usage(f"{path}: unexpected {keys}; the file may hold only tables [[deviation]]")
    deviations: list[Deviation] = []
    for number, entry in enumerate(entries, 1):
        place = f"{path}: deviation {number}"
        unknown = set(entry) - {"id", "reason", "issue", "expect", "sometimes"}
        if unknown:
            raise Usage(
                f"{place}: unknown key {', '.join(sorted(unknown))}; "
                "expected id, reason, issue, expect, sometimes"
            )
        ids = entry.pop("id", None)
        ids = ids if isinstance(ids, list) else [ids]
        if not ids or not all(isinstance(id_, str) and id_.strip() for id_ in ids):
            raise Usage(f"{place}: id is missing; expected a text that is not empty, or a list")
        if not isinstance(entry.get("reason"), str) or not entry["reason"].strip():
            raise Usage(f"{place}: reason is missing; expected a text that is not empty")
        for name in ("issue", "expect"):
            if not isinstance(entry.get(name, ""), str):
                raise Usage(f"{place}: {name}: {entry[name]!r}; expected a text")
        if not isinstance(entry.get("sometimes", False), bool):
            raise Usage(f"{place}: sometimes: {entry['sometimes']!r}; expected true or false")
        for id_ in ids:
            if any(deviation.id == id_ for deviation in deviations):
                raise Usage(f"{place}: {id_} occurs twice; remove one of them")
            deviations.append(Deviation(id_, **entry))
    return deviations


def unknown_ids(deviations: Iterable[Deviation], cases: Sequence[Case]) -> list[str]:
    """Return the ids that do not exist or are withdrawn."""
    known = {id_ for id_, requirement in data.requirements().items() if not requirement.retired}
    known |= {f"{case.name}#{requirement}" for case in cases for requirement in case.requirements}
    known |= {f"traffic#{requirement}" for requirement in VISIBLE}
    return [deviation.id for deviation in deviations if deviation.id not in known]


def unknown_id_message(id_: str, cases: Sequence[Case]) -> str:
    """Return a message about an unknown id of a deviation, with the remedy."""
    case, _, requirement = id_.rpartition("#")
    if "*" in id_ or "?" in id_:
        return f"{id_}: a deviation names one requirement; write one entry each, without wildcards"
    known = data.requirements().get(requirement)
    if known is not None and known.retired:
        return f"{id_}: this requirement is withdrawn; remove the entry"
    if known is None:
        near = difflib.get_close_matches(requirement.upper(), data.requirements(), 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        return f"{id_}: SPEC.md has no requirement {requirement}{hint}"
    names = [known_case.name for known_case in cases if requirement in known_case.requirements]
    return f"{id_}: no case {case!r} checks {requirement}; its cases: {', '.join(names) or 'none'}"


def judge(
    case: Case,
    findings: Sequence[CheckResult],
    claims: Sequence[str],
    generation: str,
    deviations: Sequence[Deviation],
    *,
    again: Sequence[Sequence[CheckResult]] = (),
) -> list[CaseVerdict]:
    """Return a verdict for each requirement and claim. The worst of several results counts.

    Args:
        case: The case that was run.
        findings: The results of its checks.
        claims: Claims of the implementation.
        generation: Generation of the claims; requirements of others get no verdict.
        deviations: Deviations that the implementation declares.
        again: The results of further runs of the same case.
    """
    runs = [_worst(results) for results in (findings, *again)]
    verdicts = []
    for requirement in dict.fromkeys(id_ for run in runs for id_ in run):
        if generation not in data.requirements()[requirement].generations:
            continue
        results = [run[requirement] for run in runs if requirement in run]
        finding = next((result for result in results if not result.ok), results[0])
        held = sum(result.ok for result in results)
        declared = next((d for d in deviations if d.meets(case.name, requirement)), None)
        for claim in case.counts_for(requirement):
            if claim in claims:
                keyword = data.requirements()[requirement].keyword
                status = _status(finding, keyword, declared)
                if status in FAILURES and held:
                    status = "flaky"
                used = declared if status == "deviation" else None
                verdicts.append(
                    CaseVerdict(
                        case.name, claim, keyword, status, finding, used, held, len(results)
                    )
                )
    return verdicts


def _worst(findings: Sequence[CheckResult]) -> dict[str, CheckResult]:
    """Return the worst result of each requirement in one run."""
    worst: dict[str, CheckResult] = {}
    for finding in findings:
        if finding.requirement not in worst or worst[finding.requirement].ok:
            worst[finding.requirement] = finding
    return worst


def _status(finding: CheckResult, keyword: str, declared: Deviation | None) -> str:
    if finding.ok:
        return "pass"
    if finding.by != "implementation":
        return (
            "blocked"  # a deviation cannot excuse an adapter fault, nor a check without a verdict
        )
    if declared is not None and finding.message.startswith(declared.expect or ""):
        return "deviation"
    if finding.blocked_by is not None:
        return "blocked"
    return {"MAY": "info", "SHOULD": "warn", "SHOULD NOT": "warn"}.get(keyword, "fail")


def stale(
    deviations: Sequence[Deviation], verdicts: Sequence[CaseVerdict], left_out: Collection[str] = ()
) -> list[Deviation]:
    """Return the deviations whose checks all passed, and mark these verdicts.

    Args:
        deviations: Deviations that the implementation declares.
        verdicts: Verdicts of the checks that ran.
        left_out: Ids with further checks that did not run.
    """
    stale_ones = []
    for deviation in deviations:
        about = [v for v in verdicts if deviation.meets(v.case, v.requirement)]
        known = about and deviation.id not in left_out and not deviation.sometimes
        # A check that another deviation has marked as stale also passed.
        if known and all(verdict.status in ("pass", "stale") for verdict in about):
            stale_ones.append(deviation)
            for verdict in about:
                verdict.status, verdict.deviation = "stale", deviation
    return stale_ones


@dataclass(frozen=True, slots=True)
class ClaimStatus:
    """The state of one claim after a run.

    Attributes:
        met: True if all obligations that the suite can check were checked and hold.
        counts: Number of checks by status.
        missing: Obligations that the suite can check, but that were not checked.
        unchecked: Obligations that the suite cannot check yet.
        without_case: Requirements that no case checks by itself.
    """

    met: bool
    counts: Counter[str]
    missing: Sequence[str] = ()
    unchecked: Sequence[str] = ()
    without_case: Sequence[str] = ()


def summary(
    claims: Sequence[str],
    verdicts: Sequence[CaseVerdict],
    cases: Sequence[Case],
    generation: str,
) -> dict[str, ClaimStatus]:
    """Return the status of each claim.

    Args:
        claims: The claims to report.
        verdicts: Verdicts of the cases that ran.
        cases: All cases of the suite.
        generation: Generation of the implementation.
    """
    statuses: dict[str, ClaimStatus] = {}
    for claim in claims:
        about = [verdict for verdict in verdicts if verdict.claim == claim]
        counts = Counter(verdict.status for verdict in about)
        ran = {verdict.requirement for verdict in about}
        checkable = obligations.checkable(cases, claim, generation)
        missing = [id_ for id_ in checkable if id_ not in ran]
        # A claim without any check is not met.
        met = bool(counts) and not missing and not (FAILURES | {"deviation"}) & set(counts)
        # A run of a part of the claims says nothing about the others.
        required = [statuses[name] for name in data.required_claims(claim) if name in statuses]
        met = met and all(status.met for status in required)
        unchecked = [id_ for id_ in obligations.uncovered(cases, [claim]) if id_ not in ran]
        without = obligations.without_case(cases, claim, generation)
        statuses[claim] = ClaimStatus(met, counts, missing, unchecked, without)
    return statuses


def status(verdicts: Sequence[CaseVerdict], *, stale_or_unknown: bool) -> int:
    """Return the exit status of a complete run; 4 if only a busy machine is to blame."""
    if failed := [verdict for verdict in verdicts if verdict.status in FAILURES]:
        return 4 if all(verdict.finding.by == "harness" for verdict in failed) else 1
    return 2 if stale_or_unknown else 0
