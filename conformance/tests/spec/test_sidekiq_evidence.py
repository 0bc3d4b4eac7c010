"""The evidence from Sidekiq for each requirement."""

from __future__ import annotations

from typing import Any

from jobwire_conformance.spec import lints
from jobwire_conformance.spec.document import read
from jobwire_conformance.spec.sidekiq_evidence import VERSIONS, differing, evidence
from tests.rows import over
from tests.spec.sample import SPEC, edited

INTEROP = "python/tests/interop/test_real.py"
RECORDED = "fixtures/sidekiq/{}/states.json"
EVERY = [RECORDED.format(version) for version in VERSIONS]


def evidence_faults(text: str, **cited: dict[str, list[str]]) -> list[str]:
    """Return id and lint of each fault; `cited` maps ids with an underscore to citations."""
    citations = {name.replace("_", "-"): kinds for name, kinds in cited.items()}
    return [
        f"{fault.problem.partition(':')[0]} {fault.lint}"
        for fault in lints.of_evidence(read(text), citations)
    ]


def test_what_appendix_a_says_is_read() -> None:
    assert differing(read(SPEC)) == {"REL-1": "6.4.1, 7.3.2"}


def test_what_was_asked_of_sidekiq_is_told() -> None:
    document = read(SPEC)
    first, second, _, own = document.requirements
    assert evidence(first, {"test": [INTEROP]}, document) == "test"
    assert evidence(first, {"fixture": EVERY}, document) == "recording"
    assert evidence(first, {"fixture": EVERY[1:]}, document) == "recording of 7.3.2, 8.1.7"
    assert evidence(first, {"test": ["python/tests/unit/test_x.py"]}, document) == ""
    assert evidence(first, {}, document, {first.id}) == "report"
    assert evidence(second, {}, document) == "not visible"
    assert evidence(own, {}, document) == "differs"
    assert evidence(own, {}, read(edited(("| REL-1 | 6", "| REL-9 | 6")))) == "ours"


ASKED = {"KEY_1": {"test": [INTEROP]}}
SEEN = ("test: none (no way to see it)", "test: state")
UNSEEN = ("Seen in: 8.\n", "")


@over(
    ("edits", "cited", "found"),
    [
        ([], ASKED, []),
        # No evidence.
        ([], {}, ["KEY-1 evidence"]),
        ([SEEN], {**ASKED, "KEY_2": {"test": ["python/tests/unit/x.py"]}}, ["KEY-2 evidence"]),
        ([SEEN], {**ASKED, "KEY_2": {"test": [INTEROP]}}, []),
        ([SEEN], {**ASKED, "KEY_2": {"fixture": EVERY}}, []),
        # The evidence denies the level.
        ([("| REL-1 | 6", "| KEY-1 | 6")], ASKED, ["KEY-1 evidence"]),
        # Generations differ, but the block does not describe it.
        ([UNSEEN], ASKED, ["REL-1 seen-in"]),
        ([UNSEEN, ("| REL-1 | 6", "| REL-9 | 6")], ASKED, []),
        ([SEEN], {**ASKED, "KEY_2": {"fixture": EVERY[:1]}}, ["KEY-2 seen-in"]),
        ([("it is a worker", "up to 7.2 it was not")], ASKED, ["KEY-2 seen-in"]),
        ([("it is a worker", "its generations fetch")], ASKED, ["KEY-2 seen-in"]),
        ([("**SHOULD** fetch", "**SHOULD** fetch as Sidekiq 8 does")], ASKED, ["KEY-2 seen-in"]),
        ([("it is a worker", "it waits 7.5 s")], ASKED, []),
        ([("Seen in: 6 and 7.", "Seen in: some of them.")], ASKED, ["KEY-1 seen-in"]),
    ],
)
def test_what_sidekiq_was_not_asked_is_found(
    edits: list[tuple[str, str]], cited: dict[str, Any], found: list[str]
) -> None:
    assert evidence_faults(edited(*edits), **cited) == found


def test_a_check_that_sidekiq_passed_is_evidence() -> None:
    assert [*lints.of_evidence(read(SPEC), {}, {"KEY-1"})] == []
