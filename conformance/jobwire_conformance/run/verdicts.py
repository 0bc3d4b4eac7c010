"""From findings to verdicts: declared deviations, claims, the exit status."""

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
from jobwire_conformance.run.checks import Finding

__all__ = [
    *("Deviation", "ClaimStatus", "CaseVerdict"),
    *("judge", "load_deviations", "stale", "status", "summary"),
]

FAILURES = frozenset(["fail", "blocked", "flaky"])


@dataclass(frozen=True, slots=True)
class Deviation:
    """A failure that the implementation knows of."""

    id: str
    reason: str
    issue: str | None = None
    expect: str | None = None

    @property
    def unexplained(self) -> bool:
        """Whether the reason is still to be written: `baseline` leaves that to people."""
        return self.reason.lstrip().startswith("TODO")

    def meets(self, case: str, requirement: str) -> bool:
        """Whether it is about this check."""
        return self.id in (requirement, f"{case}#{requirement}")


@dataclass(slots=True)
class CaseVerdict:
    """What is said of one requirement of one case, for one claim."""

    case: str
    claim: str
    keyword: str
    status: str
    finding: Finding
    deviation: Deviation | None = None
    held: int = 0  # in so many runs of the case
    runs: int = 1

    @property
    def requirement(self) -> str:
        """Its id."""
        return self.finding.requirement


def load_deviations(path: Path) -> list[Deviation]:
    """Return what the implementation declares; nothing if there is no such file.

    Raises:
        Usage: The file is not as it should be.
    """
    if not path.exists():
        return []
    try:
        whole = tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise Usage(f"{path}: {error}") from None
    entries = whole.pop("deviation", [])
    if whole or not isinstance(entries, list) or not all(isinstance(e, dict) for e in entries):
        what = ", ".join(whole) or "deviation"
        raise Usage(f"{path}: {what}: the file has tables [[deviation]] and nothing else")
    found: list[Deviation] = []
    for number, entry in enumerate(entries, 1):
        place = f"{path}: deviation {number}"
        unknown = set(entry) - {"id", "reason", "issue", "expect"}
        if unknown:
            raise Usage(f"{place}: nobody reads {', '.join(sorted(unknown))}")
        for name in ("id", "reason"):
            if not isinstance(entry.get(name), str) or not entry[name].strip():
                raise Usage(f"{place}: it needs {name!r}, a text that is not empty")
        for name in ("issue", "expect"):
            if not isinstance(entry.get(name, ""), str):
                raise Usage(f"{place}: {name}: {entry[name]!r} is no text")
        if any(each.id == entry["id"] for each in found):
            raise Usage(f"{place}: {entry['id']} is there twice; leave one of them")
        found.append(Deviation(**entry))
    return found


def unknown_ids(deviations: Iterable[Deviation], cases: Sequence[Case]) -> list[str]:
    """Return the ids that are none, or that were withdrawn."""
    known = {id_ for id_, requirement in data.requirements().items() if not requirement.retired}
    known |= {f"{case.name}#{requirement}" for case in cases for requirement in case.requirements}
    known |= {f"traffic#{requirement}" for requirement in VISIBLE}
    return [deviation.id for deviation in deviations if deviation.id not in known]


def what_is_wrong(id_: str, cases: Sequence[Case]) -> str:
    """Return why an unknown id is none, and what to write instead."""
    case, _, requirement = id_.rpartition("#")
    if "*" in id_ or "?" in id_:
        return f"{id_}: a deviation is about one requirement; name each of them, without wildcards"
    found = data.requirements().get(requirement)
    if found is not None and found.retired:
        return f"{id_}: this requirement was withdrawn; take the entry out"
    if found is None:
        near = difflib.get_close_matches(requirement.upper(), data.requirements(), 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        return f"{id_}: SPEC.md has no such requirement{hint}"
    names = [each.name for each in cases if requirement in each.requirements]
    return f"{id_}: no case {case!r} checks it; {', '.join(names) or 'none'} does"


def judge(
    case: Case,
    findings: Sequence[Finding],
    claims: Sequence[str],
    deviations: Sequence[Deviation],
    *,
    again: Sequence[Sequence[Finding]] = (),
) -> list[CaseVerdict]:
    """Return a verdict for each requirement and claim; of several findings the worst counts.

    Args:
        case: What was run.
        findings: What was found.
        claims: Of the implementation.
        deviations: That it declares.
        again: What was found when the same case was run again.
    """
    runs = [_worst(each) for each in (findings, *again)]
    verdicts = []
    for requirement in dict.fromkeys(each for run in runs for each in run):
        about = [run[requirement] for run in runs if requirement in run]
        finding = next((each for each in about if not each.ok), about[0])
        held = sum(each.ok for each in about)
        declared = next((d for d in deviations if d.meets(case.name, requirement)), None)
        for claim in case.counts_for(requirement):
            if claim in claims:
                keyword = data.requirements()[requirement].keyword
                status = _status(finding, keyword, declared)
                if status in FAILURES and held:
                    status = "flaky"
                used = declared if status == "deviation" else None
                verdicts.append(
                    CaseVerdict(case.name, claim, keyword, status, finding, used, held, len(about))
                )
    return verdicts


def _worst(findings: Sequence[Finding]) -> dict[str, Finding]:
    """Return requirement to finding of one run."""
    worst: dict[str, Finding] = {}
    for finding in findings:
        if finding.requirement not in worst or worst[finding.requirement].ok:
            worst[finding.requirement] = finding
    return worst


def _status(finding: Finding, keyword: str, declared: Deviation | None) -> str:
    if finding.ok:
        return "pass"
    if finding.by == "adapter":
        return "blocked"  # nobody declares that
    if declared is not None and finding.message.startswith(declared.expect or ""):
        return "deviation"
    if finding.blocked_by is not None:
        return "blocked"
    return {"MAY": "info", "SHOULD": "warn", "SHOULD NOT": "warn"}.get(keyword, "fail")


def stale(
    deviations: Sequence[Deviation], verdicts: Sequence[CaseVerdict], left_out: Collection[str] = ()
) -> list[Deviation]:
    """Return the deviations whose checks all passed, and mark these.

    Args:
        deviations: What the implementation declares.
        verdicts: Of the checks that ran.
        left_out: Requirements with more checks, of which nothing is known.
    """
    found = []
    for deviation in deviations:
        about = [v for v in verdicts if deviation.meets(v.case, v.requirement)]
        known = about and deviation.id not in left_out
        # One that another deviation is stale by is among those that passed.
        if known and all(verdict.status in ("pass", "stale") for verdict in about):
            found.append(deviation)
            for verdict in about:
                verdict.status, verdict.deviation = "stale", deviation
    return found


@dataclass(frozen=True, slots=True)
class ClaimStatus:
    """How it stands about one claim.

    Attributes:
        met: Whether every obligation that the suite can check was checked, and holds.
        counts: How many checks have which status.
        missing: Obligations that the suite can check, and that were not.
        unchecked: Obligations that the suite cannot check yet.
    """

    met: bool
    counts: Counter[str]
    missing: Sequence[str] = ()
    unchecked: Sequence[str] = ()


def summary(
    claims: Sequence[str],
    verdicts: Sequence[CaseVerdict],
    cases: Sequence[Case],
    generation: int,
) -> dict[str, ClaimStatus]:
    """Return how it stands about each claim.

    Args:
        claims: Those that were asked about.
        verdicts: Of the cases that ran.
        cases: All that the suite has.
        generation: Of the implementation.
    """
    found = {}
    for claim in claims:
        about = [verdict for verdict in verdicts if verdict.claim == claim]
        counts = Counter(verdict.status for verdict in about)
        ran = {verdict.requirement for verdict in about}
        checkable = obligations.checkable(cases, claim, generation)
        missing = [id_ for id_ in checkable if id_ not in ran]
        # Whoever claims what the suite does not check at all gets no word about it either way.
        met = bool(counts) and not missing and not (FAILURES | {"deviation"}) & set(counts)
        unchecked = [id_ for id_ in obligations.uncovered(cases, [claim]) if id_ not in ran]
        found[claim] = ClaimStatus(met, counts, missing, unchecked)
    return found


def status(verdicts: Sequence[CaseVerdict], *, stale_or_unknown: bool) -> int:
    """Return the exit status of a run that came to its end."""
    if any(verdict.status in FAILURES for verdict in verdicts):
        return 1
    return 2 if stale_or_unknown else 0
