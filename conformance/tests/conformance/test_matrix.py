"""Matrix, bundles and badge: they claim no more than was met."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import cast

import pytest

from jobwire_conformance import data, reports
from jobwire_conformance.config import expanded
from jobwire_conformance.reports.claim_status import BUNDLES, bundles
from jobwire_conformance.reports.gaps import gaps
from jobwire_conformance.reports.matrix import Column, find
from jobwire_conformance.reports.results import Check, Results, load
from tests.conformance import hostile
from tests.conformance.markup import Page
from tests.conformance.pages import (
    SPECIFICATION,
    STORE,
    built_pages,
    pages,
    specification,
    stale_pages,
)
from tests.conformance.sample_results import put, results
from tests.conformance.suite import run
from tests.rows import over

ROBUST_PRODUCER = [f"{claim}+robust" for claim in BUNDLES["Producer"]]


def matrix_of(tmp_path: Path, *runs: Results) -> list[Column]:
    for number, each in enumerate(runs):
        put(tmp_path / f"{number}.json", each)
    return [*find([tmp_path])[0].columns]


def test_a_tick_needs_every_obligation_to_have_run_and_to_hold(tmp_path: Path) -> None:
    claim = "client/core"
    # The file says "met" but leaves a check out, so that check did not run.
    boasting = results(claim, leave_out="PUSH-1")
    boasting["claims"][claim]["met"] = True
    for given, mark in (
        (results(claim), "met"),
        (boasting, "as-far"),
        (results(claim, leave_out="PUSH-1"), "part"),
        (results(claim, status="deviation"), "deviation"),
        (results(claim, status="fail"), "failed"),
        (results(claim, spec="0.9"), "as-far"),
        (results(claim, errors=[{"status": 3, "message": "gone"}]), "part"),
        # The adapter ended a case; the checks of that case are blocked if it is of this claim.
        (results(claim, errors=[{"status": 3, "message": "gone", "case": "exec-order"}]), "met"),
        (results("worker/core"), "unclaimed"),
    ):
        (column,) = matrix_of(tmp_path, given)
        assert column.claim(claim) == mark
    assert column.cell(claim, "PUSH-1") == ("unclaimed", None)


@pytest.mark.process
def test_a_deviation_stays_amber_and_says_why(tmp_path: Path) -> None:
    put(tmp_path / "1.json", results("client/core", status="deviation"))
    done = run("matrix", tmp_path / "1.json")
    assert done.status == 0, done.err
    assert re.search(r"^\| PUSH-1 \| MUST \| ≠ \d+ \|$", done.out, re.MULTILINE)
    assert "PUSH-1, deviation: we like \\| stacks" in done.out
    assert run("matrix", tmp_path, "--out", tmp_path / "out").status == 0
    page = Page(tmp_path / "out" / "matrix.html")
    assert ("class", "first s-deviation") in page.attributes
    assert ("title", "we like | stacks") in page.attributes


def test_what_does_not_count_is_shown_if_it_fails(tmp_path: Path) -> None:
    run = results("client/core")
    run["checks"] = [c for c in run["checks"] if c["requirement"] not in ("ENV-4", "ENV-5")]
    newer = {"case": "new", "keyword": "MUST", "claim": "client/core", "status": "added-after"}
    run["checks"] += [
        cast(Check, {**newer, "requirement": "ENV-4"}),
        cast(Check, {**newer, "requirement": "ENV-5", "message": "speaks in riddles"}),
    ]
    put(tmp_path / "results.json", run)
    reports.write(tmp_path, load(tmp_path))
    for name in ("summary.md", "report.html"):
        text = (tmp_path / name).read_text("utf-8")
        assert "speaks in riddles" in text
        assert ("| ENV-4" in text, 'id="new--ENV-4"' in text) == (False, False)
    (column,) = matrix_of(tmp_path / "kept", run)
    assert column.claim("client/core") == "met"
    assert column.cell("client/core", "ENV-4") == ("added-after", None)
    status, note = column.cell("client/core", "ENV-5")
    assert (status, note and note.why) == ("added-after", "speaks in riddles")


@pytest.mark.process
def test_a_gap_names_what_is_missing_with_the_way_to_see_it(tmp_path: Path) -> None:
    """[PUSH-1]: reason, message, case, the command to replay it, and a link to the requirement."""
    run_ = results("client/core", "client/bulk", status="deviation", again="jobwire conform replay")
    for check in run_["checks"]:
        check["message"] = f"saw {check['requirement']}"
    put(tmp_path / "1.json", run_)
    (column,) = find([tmp_path])[0].columns
    core, bulk = gaps([column])
    assert (core.claim, bulk.claim, bulk.requires) == (
        "client/core",
        "client/bulk",
        ["client/core"],
    )
    assert bulk.total == len(bulk.failing) + len(core.failing)
    (reason,) = core.reasons
    assert reason.text == "we like | stacks"
    assert {each.requirement for each in reason.failing} == column.ids("client/core")
    assert core.size == f"{len(core.failing)} requirements (1 reason)"
    assert run("matrix", tmp_path, "--out", tmp_path / "out").status == 0
    page = Page(tmp_path / "out" / "matrix.html")
    for text in ("saw PUSH-1", "jobwire conform replay any", "we like | stacks"):
        assert text in page.text
    assert ("href", "#PUSH-1") in page.attributes


def test_a_claim_that_requires_an_unmet_one_is_not_the_nearest(tmp_path: Path) -> None:
    """[BULK-1]: one failing requirement is less than the many of client/core behind it."""
    far = results("client/core", "client/bulk", status="deviation")
    near = results("client/core", status="deviation")
    near["implementation"] = {"name": "near", "version": "1"}
    near["checks"] = near["checks"][:2]
    found = gaps(matrix_of(tmp_path, far, near))
    assert [(gap.column.name, gap.claim) for gap in found] == [
        ("near", "client/core"),
        ("examplejobs", "client/core"),
        ("examplejobs", "client/bulk"),
    ]


def test_versions_generations_and_setups_of_an_implementation_are_one_group(tmp_path: Path) -> None:
    runs = [results("client/core", generation=generation) for generation in ("7.3", "8.1")]
    for name, more in (
        ("examplejobs-basic", {}),
        ("examplejobs-fork", {"home": "https://fork.example/"}),  # lives at another place
        ("examplejob", {}),
    ):
        about = {"name": name, "version": "1", **more}
        runs.append(results("client/core", implementation=about))
    for number, each in enumerate(runs):
        put(tmp_path / f"{number}.json", each)
    matrix = find([tmp_path])[0]
    assert [(group.name, [group.label(c) for c in group.columns]) for group in matrix.groups] == [
        ("examplejobs-fork", ["1"]),  # projects with an address come first
        ("examplejob", ["1"]),
        ("examplejobs", ["2.3.0", "2.3.0", "basic 1"]),
    ]
    assert [*matrix.anchors] == [
        *("examplejobs-fork", "examplejob", "examplejobs", "examplejobs@7.3", "examplejobs-basic")
    ]


@pytest.mark.process
@pytest.mark.parametrize("hostile_texts", [False, True])
def test_every_link_of_the_page_has_its_goal(hostile_texts: bool, tmp_path: Path) -> None:
    """Every claim, implementation, requirement and cell has an address of its own."""
    if hostile_texts:
        page = Page(hostile.pages(tmp_path)[1])
    else:
        reports.put(tmp_path / "1.html", reports.matrix_pages(find([STORE])[0])["matrix.html"])
        page = Page(tmp_path / "1.html")
        goals = {"PUSH-4", "client/core", "client/core+robust", "rusty-sidekiq", "sidekiq@7.3"}
        goals |= {"rusty-sidekiq/PUSH-4", "rusty-sidekiq/client/core", "rusty-sidekiq/SCHED-3"}
        assert goals <= {*page.ids}
    assert len(page.ids) == len({*page.ids})
    links = {value[1:] for name, value in page.attributes if name == "href" and value[:1] == "#"}
    assert links - {*page.ids} == set()


@pytest.mark.process
def test_only_an_address_of_the_web_becomes_a_link(tmp_path: Path) -> None:
    for home, is_link in (("https://jobs.example/?a=1&b", True), ("javascript:alert(1)", False)):
        about = {"name": "examplejobs", "version": "1", "source": home}
        put(tmp_path / "1.json", results("client/core", implementation=about))
        assert run("matrix", tmp_path / "1.json", "--out", tmp_path / "out").status == 0
        page = Page(tmp_path / "out" / "matrix.html")
        assert home in page.text
        assert (("href", home) in page.attributes) is is_link


def test_of_the_same_version_the_latest_counts(tmp_path: Path) -> None:
    put(tmp_path / "1.json", results("client/core", started="2026-11-21T00:00:00Z"))
    put(tmp_path / "2.json", results("client/core", status="fail"))
    put(tmp_path / "3.json", results("client/core", generation="7.3"))
    matrix, remarks = find([tmp_path])
    assert [(column.generation, column.day) for column in matrix.columns] == [
        ("8.1", "2026-11-21"),
        ("7.3", "2026-11-20"),
    ]
    assert [remark.startswith(str(tmp_path / "2.json")) for remark in remarks] == [True]


@pytest.mark.process
def test_a_requirement_that_this_version_does_not_have_is_shown_as_that(tmp_path: Path) -> None:
    other = results("client/core", spec="0.9")
    other["checks"][0]["requirement"] = hostile.GONE
    put(tmp_path / "1.json", other)
    text = run("matrix", tmp_path).out
    assert f"{hostile.GONE} (not in this version)" in text
    assert "0.9 (another one)" in text


@pytest.mark.process
def test_there_is_no_matrix_of_nothing(tmp_path: Path) -> None:
    done = run("matrix", tmp_path)
    assert (done.status, "no file with results" in done.err) == (64, True)


def test_a_bundle_needs_all_its_claims() -> None:
    for name, claims in BUNDLES.items():
        assert name in bundles(results(*claims))
        assert name not in bundles(results(*claims[1:]))
        assert name not in bundles(results(*claims, status="deviation"))


@over(
    ("found", "message", "color"),
    [
        (results(*BUNDLES["Producer"]), "producer · interop", "brightgreen"),
        (results(*expanded(ROBUST_PRODUCER)), "producer · robust", "brightgreen"),
        (results("client/core"), "1 of 1 interop claims", "brightgreen"),
        (results("scheduler/reliable"), "1 of 1 robust claims", "brightgreen"),
        (results(*BUNDLES["Producer"], status="deviation"), "0 of 3 interop claims", "yellow"),
        (results("client/core", status="fail"), "0 of 1 interop claims", "red"),
        (results("client/core", leave_out="PUSH-1"), "0 of 1 interop claims", "lightgrey"),
    ],
)
def test_the_badge_says_what_is_met(found: Results, message: str, color: str) -> None:
    message = f"{message} · generation 8.1"
    said = json.loads(reports.badge_json(found))
    assert said == {"schemaVersion": 1, "label": "jobwire", "message": message, "color": color}
    assert f"jobwire: {message}" in reports.badge_svg(found).decode()


# -- The pages of docs/conformance, and the longer ones in the build


@pytest.mark.process
def test_the_pages_in_docs_are_made_from_what_is_kept() -> None:
    assert stale_pages() == [], "bring them up to date with: make conformance ARGS=--pages"


@pytest.mark.process
def test_appendix_a_has_only_robust_requirements_and_leaves_the_rest_of_the_text() -> None:
    """Genuine Sidekiq meets every interop requirement of its generation."""
    text, kept = specification().decode(), SPECIFICATION.read_text("utf-8")
    table = re.findall(r"^\| ([A-Z]+-\d+) \| [0-9., ]+ \|$", text, re.MULTILINE)
    assert len(table) > 20
    assert {data.requirements()[id_].level for id_ in table} == {"robust"}
    assert re.findall("^## .*", text, re.MULTILINE) == re.findall("^## .*", kept, re.MULTILINE)
    assert "## Appendix C" in text


@pytest.mark.process
def test_the_pages_in_build_have_every_requirement() -> None:
    """The pages of docs/conformance show only the numbers."""
    built, kept = built_pages(), pages()
    matrix = find([STORE])[0]
    for claim in matrix.claims:
        for id_ in matrix.requirements(claim):
            assert f"\n| {id_} |" in built["matrix.md"].decode()
            assert f"\n| {id_} |" not in kept["matrix.md"].decode()
    for column in matrix.columns:
        for (id_, status), note in column.notes.items():
            assert f"\n{note.number}. {id_}, {status}: " in built["matrix.md"].decode()
