"""Reports: they depend on results alone, are safe to open, and claim no more than was met."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, cast
from xml.etree import ElementTree

import pytest

from harness.servers import valkey_program
from jobwire_conformance import data, reports
from jobwire_conformance.errors import Usage
from jobwire_conformance.mutation import mutants
from jobwire_conformance.reports import summary
from jobwire_conformance.reports.claim_status import BUNDLES, bundles
from jobwire_conformance.reports.drift import drift
from jobwire_conformance.reports.matrix import Column, find, required
from jobwire_conformance.reports.results import (
    Check,
    Fate,
    Results,
    TraceLine,
    dump,
    load,
    load_trace,
)
from jobwire_conformance.run import sets
from tests.conformance import browser, hostile
from tests.conformance.pages import (
    SPECIFICATION,
    STORE,
    built_pages,
    pages,
    specification,
    stale_pages,
)

ROOT = Path(__file__).resolve().parents[3]
REFERENCE = ROOT / "conformance" / "drivers" / "python"


def command(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    paths = f"{ROOT}/python:{ROOT}/conformance"
    bin_ = Path(sys.executable).parent
    return subprocess.run(
        [sys.executable, "-m", "jobwire", "conform", *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": paths, "PATH": f"{bin_}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def results(*claims: str, status: str = "pass", leave_out: str = "", **more: Any) -> Results:
    """Return results of a run in which every obligation of these claims was checked."""
    made = {
        claim: [id_ for id_ in sorted(required(claim, "8.1")) if id_ != leave_out]
        for claim in claims
    }
    entry = {"case": "any", "keyword": "MUST", "status": status}
    if status == "deviation":
        entry["reason"] = "we like | stacks"
    elif status == "fail":
        entry["message"] = "it | does not"
    return cast(
        Results,
        {
            **{"results": 1, "spec": data.spec_version(), "suite": "1", "driver": 1},
            "implementation": {"name": "examplejobs", "version": "2.3.0"},
            "claims": {
                claim: {
                    "met": status == "pass" and not leave_out,
                    "checks": {status: len(ids)},
                    "missing": [leave_out] if leave_out else [],
                }
                for claim, ids in made.items()
            },
            **{"generation": "8.1", "server": {"name": "valkey", "version": "9"}, "seed": 0},
            **{"started": "2026-11-20T16:20:07Z", "status": 0 if status == "pass" else 1},
            "checks": [
                {**entry, "requirement": id_, "claim": claim}
                for claim, ids in made.items()
                for id_ in ids
            ],
            **more,
        },
    )


def put(path: Path, written: Results) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(dump(written))
    return path


# -- made from results alone


@pytest.fixture(scope="module")
def run_with_a_mistake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run the reference with a mistake; return the directory of its reports."""
    directory = tmp_path_factory.mktemp("report")
    done = command(
        *("check", REFERENCE, "--case", "push-head", "--case", "exec-order", "--report", directory),
        *("--mutant", "insert-at-tail", "--patience", "3", "--server", valkey_program()),
        *("--store", directory / "kept"),
    )
    assert done.returncode == 1, done.stderr
    return directory


@pytest.mark.thorough
def test_all_reports_can_be_made_again(run_with_a_mistake: Path) -> None:
    before = {name: (run_with_a_mistake / name).read_bytes() for name in reports.FILES}
    for name in reports.FILES:
        (run_with_a_mistake / name).unlink()
    done = command("report", run_with_a_mistake)
    assert done.returncode == 0, done.stderr
    assert {name: (run_with_a_mistake / name).read_bytes() for name in reports.FILES} == before


@pytest.mark.thorough
def test_the_page_shows_a_failure_with_what_passed(run_with_a_mistake: Path) -> None:
    """[PUSH-1]: its text, expected and seen values, the commands, and how to replay it."""
    page = Page(run_with_a_mistake / "report.html")
    for text in (
        *("push-head", "insert the payload at the head", '"JobwireEcho"', '"Older"'),
        *("RPUSH queue:default", "rewrite", "jobwire conform replay"),
    ):
        assert text in page.text, text
    assert page.tags.count("svg") >= 1


def test_what_happens_is_written_as_it_happens(run_with_a_mistake: Path) -> None:
    text = (run_with_a_mistake / "events.jsonl").read_text("utf-8")
    events = [json.loads(line) for line in text.splitlines()]
    assert (events[0]["event"], events[-1]["event"]) == ("start", "end")
    cases = {event["case"]: event for event in events if event["event"] == "case"}
    assert {*events[0]["cases"]} == {"push-head", "exec-order"}
    assert {*events[0]["cases"]} <= {*cases}
    assert "fail" in {check["status"] for check in cases["push-head"]["checks"]}
    assert events[-1]["status"] == 1


def test_a_run_that_left_cases_out_meets_nothing(run_with_a_mistake: Path) -> None:
    checks = load(run_with_a_mistake)
    assert not any(claim["met"] for claim in checks["claims"].values())
    assert "FETCH-2" in checks["claims"]["worker/core"].get("missing", [])


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


def test_without_a_trace_there_is_a_page_all_the_same(tmp_path: Path) -> None:
    put(tmp_path / "results.json", results("client/core", status="fail"))
    assert command("report", tmp_path).returncode == 0
    assert "The trace of this run is missing" in Page(tmp_path / "report.html").text


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "does not exist"),
        ("", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[1]", "is not a results.json"),
        ('{"name": "x", "version": "1"}', "is not a results.json"),
        ('{"results": 2, "checks": []}', "has version 2 of the format; this suite reads 1"),
        ('{"results": 1, "checks": []}', "is a required property"),
        ("\x00\xff", "is not JSON"),
    ],
)
def test_what_is_no_results_file_is_refused(text: str | None, says: str, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "results.json").write_text(text, "latin-1")
    for arguments in (("report", tmp_path), ("matrix", tmp_path / "results.json")):
        done = command(*arguments)
        assert (done.returncode, says in done.stderr) == (64, True), done.stderr
        assert "Traceback" not in done.stderr
        assert str(tmp_path / "results.json") in done.stderr


def test_a_trace_that_is_none_is_refused(tmp_path: Path) -> None:
    put(tmp_path / "results.json", results("client/core", trace="trace.jsonl"))
    (tmp_path / "trace.jsonl").write_text('{"case": "x"}\n')
    done = command("report", tmp_path)
    assert (done.returncode, "line 1 is not a line of a trace" in done.stderr) == (64, True)


def test_results_cannot_name_a_file_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("{}\n")
    directory = tmp_path / "report"
    directory.mkdir()
    for name in ("../secret", str(tmp_path / "secret")):
        assert load_trace(directory, results("client/core", trace=name)) == []
    path = summary.stored_as(
        results("client/core", implementation={"name": "../../x", "version": "/a b"})
    )
    assert path == Path("x") / "a-b.json"


# -- hostile texts


class Page(HTMLParser):
    """The elements and texts of a page."""

    VOID = ("meta", "link", "br", "input", "line", "path", "rect", "img")

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.text = ""
        self.ids: list[str] = []
        self._open: list[str] = []
        self.feed(path.read_text("utf-8"))
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        self.ids += [value or "" for name, value in attrs if name == "id"]
        if tag not in self.VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def all_pages(directory: Path) -> list[Path]:
    """Write every kind of page from hostile results."""
    hostile_results = hostile.write(directory)
    reports.write(directory, hostile_results)
    for name, content in reports.matrix_pages(find([directory])[0]).items():
        reports.put(directory / name, content)
    return [directory / "report.html", directory / "matrix.html"]


def test_nothing_foreign_becomes_markup(tmp_path: Path) -> None:
    for path in all_pages(tmp_path):
        page = Page(path)
        assert page.tags.count("script") == 1
        assert "img" not in page.tags
        assert not [name for name, _ in page.attributes if name.startswith("on")]
        links = [value for name, value in page.attributes if name in ("href", "src")]
        assert all(link.startswith(("#", "data:,")) for link in links)
        assert "<script>document.title" in page.text
        assert len(set(page.ids)) == len(page.ids)
        raw = path.read_text("utf-8")
        assert not [c for c in raw if not c.isprintable() and c not in "\n\t"]
        assert len(raw) < 1_000_000


def test_the_other_reports_stand_it_too(tmp_path: Path) -> None:
    all_pages(tmp_path)
    suite = ElementTree.parse(tmp_path / "junit.xml").getroot()
    assert len([*suite.iter("failure")]) == len(hostile.MARKS) + 1
    assert suite.get("failures") == str(len(hostile.MARKS) + 1)
    ElementTree.parse(tmp_path / "badge.svg")
    assert json.loads((tmp_path / "badge.json").read_text())["schemaVersion"] == 1
    for name in ("summary.md", "matrix.md", "loss-maps.md"):
        text = (tmp_path / name).read_text("utf-8")
        assert "<script" not in text
        assert not re.search(r"(?<!\\)\]\(", text)
        widths = set()
        for line in text.splitlines():
            if line.startswith("|"):
                widths.add(len(re.findall(r"(?<!\\)(?:\\\\)*\|", line)))
            elif widths:
                assert len(widths) == 1, (name, line)
                widths = set()


def test_half_a_surrogate_pair_comes_back(tmp_path: Path) -> None:
    hostile_results = hostile.write(tmp_path)
    assert any(check.get("seen") == hostile.SURROGATE for check in hostile_results["checks"])


# -- claims that are met


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


def test_a_deviation_stays_amber_and_says_why(tmp_path: Path) -> None:
    put(tmp_path / "1.json", results("client/core", status="deviation"))
    done = command("matrix", tmp_path / "1.json")
    assert done.returncode == 0, done.stderr
    assert re.search(r"^\| PUSH-1 \| MUST \| ≠ \d+ \|$", done.stdout, re.MULTILINE)
    assert "PUSH-1, deviation: we like \\| stacks" in done.stdout
    assert command("matrix", tmp_path, "--out", tmp_path / "out").returncode == 0
    page = Page(tmp_path / "out" / "matrix.html")
    assert ("class", "s-deviation") in page.attributes
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


def test_a_requirement_that_this_version_does_not_have_is_shown_as_that(tmp_path: Path) -> None:
    other = results("client/core", spec="0.9")
    other["checks"][0]["requirement"] = hostile.GONE
    put(tmp_path / "1.json", other)
    text = command("matrix", tmp_path).stdout
    assert f"{hostile.GONE} (not in this version)" in text
    assert "0.9 (another one)" in text


def test_there_is_no_matrix_of_nothing(tmp_path: Path) -> None:
    done = command("matrix", tmp_path)
    assert (done.returncode, "no file with results" in done.stderr) == (64, True)


def test_a_bundle_needs_all_its_claims() -> None:
    for name, claims in BUNDLES.items():
        assert name in bundles(results(*claims))
        assert name not in bundles(results(*claims[1:]))
        assert name not in bundles(results(*claims, status="deviation"))


@pytest.mark.parametrize(
    ("found", "message", "color"),
    [
        (results(*BUNDLES["Producer"]), "producer", "brightgreen"),
        (results("client/core"), "1 of 1 claims", "brightgreen"),
        (results(*BUNDLES["Producer"], status="deviation"), "0 of 3 claims", "yellow"),
        (results("client/core", status="fail"), "0 of 1 claims", "red"),
        (results("client/core", leave_out="PUSH-1"), "0 of 1 claims", "lightgrey"),
    ],
)
def test_the_badge_says_what_is_met(found: Results, message: str, color: str) -> None:
    said = json.loads(reports.badge_json(found))
    assert said == {"schemaVersion": 1, "label": "jobwire", "message": message, "color": color}
    assert f"jobwire: {message}" in reports.badge_svg(found).decode()


def test_every_difference_of_two_runs_is_told() -> None:
    now = results("client/core")
    now["checks"][0]["status"] = "warn"
    now["loss_map"] = [{"case": "a", "point": "LPUSH#1", "side": "after", "outcome": "lost"}]
    lines = [*drift(results("client/core"), now)]
    assert [line.partition(": ")[2] for line in lines] == [
        "was missing, is lost",
        "was pass, is warn",
    ]
    later = cast(Results, {**now, "started": "2027-01-01T00:00:00Z", "seconds": 9.0})
    assert [*drift(now, later)] == []


def test_the_number_of_polls_before_a_cut_is_no_difference() -> None:
    def cuts(*points: tuple[str, Fate]) -> Results:
        run = results("client/core")
        run["loss_map"] = [
            {"case": "a", "point": point, "side": "after", "outcome": fate}
            for point, fate in points
        ]
        return run

    before = cuts(("EVALSHA#3", "kept"), ("EVALSHA#10", "lost"))
    assert [*drift(before, cuts(("EVALSHA#5", "kept"), ("EVALSHA#11", "lost")))] == []
    assert [*drift(before, cuts(("EVALSHA#10", "kept"), ("EVALSHA#3", "lost")))] == [
        "a, cut off after EVALSHA, number 1: was kept, is lost",
        "a, cut off after EVALSHA, number 2: was lost, is kept",
    ]
    assert [*drift(before, cuts(("EVALSHA#3", "kept")))] == [
        "a, cut off after EVALSHA, number 2: was lost, is missing"
    ]


def test_the_pages_in_docs_are_made_from_what_is_kept() -> None:
    assert stale_pages() == [], "bring them up to date with: make conformance ARGS=--pages"


def test_appendix_a_has_only_robust_requirements_and_leaves_the_rest_of_the_text() -> None:
    """Genuine Sidekiq meets every interop requirement of its generation."""
    text, kept = specification().decode(), SPECIFICATION.read_text("utf-8")
    table = re.findall(r"^\| ([A-Z]+-\d+) \| [0-9., ]+ \|$", text, re.MULTILINE)
    assert len(table) > 20
    assert {data.requirements()[id_].level for id_ in table} == {"robust"}
    assert re.findall("^## .*", text, re.MULTILINE) == re.findall("^## .*", kept, re.MULTILINE)
    assert "## Appendix D" in text


def test_the_pages_in_build_have_every_requirement_and_mutant() -> None:
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
    for mutant in mutants.load():
        assert f" | {mutant.name} | " in built["kills.md"].decode()


# -- in a real browser

CONTRAST = """
(() => {
  const light = (text) => {
    const [r, g, b] = text.match(/[0-9.]+/g).map(Number).map((c) => {
      c /= 255;
      return c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (node) => {
    for (; node; node = node.parentElement) {
      const color = getComputedStyle(node).backgroundColor;
      if (!/, 0\\)$/.test(color)) return color;
    }
    return "rgb(255, 255, 255)";
  };
  let worst = 99;
  for (const node of document.querySelectorAll("main *:not(svg *)")) {
    if (![...node.childNodes].some((child) => child.nodeType === 3 && child.data.trim())) continue;
    const a = light(getComputedStyle(node).color), b = light(ground(node));
    worst = Math.min(worst, (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05));
  }
  return worst;
})()
"""


@pytest.mark.skipif(browser.program() is None, reason="there is no browser: install chromium")
def test_a_real_browser_shows_the_pages(run_with_a_mistake: Path, tmp_path: Path) -> None:
    """No text overflows, the console is silent, and all text can be read."""
    pages = [run_with_a_mistake / "report.html", *all_pages(tmp_path)]
    with browser.Browser(tmp_path / "profile") as window:
        for page in pages:
            for width in (320, 1280):
                for dark in (False, True):
                    window.open(page, width=width, dark=dark)
                    seen = (page.name, width, dark)
                    window.run("document.querySelectorAll('details').forEach(d => d.open = true)")
                    assert window.run("document.documentElement.scrollWidth") <= width, seen
                    assert window.run(CONTRAST) >= 4.5, seen
                    assert window.complaints() == [], seen
                    assert window.run("document.title") != "taken"


@pytest.mark.skipif(browser.program() is None, reason="there is no browser: install chromium")
def test_the_page_can_be_searched_and_needs_neither_mouse_nor_script(
    run_with_a_mistake: Path, tmp_path: Path
) -> None:
    page = run_with_a_mistake / "report.html"
    shown = "document.querySelectorAll('#list > details:not([hidden])').length"
    with browser.Browser(tmp_path / "profile") as window:
        window.open(page, width=800, dark=False)
        every = window.run(shown)
        assert every > 50
        look = "form.elements.{0}.value = '{1}'; form.dispatchEvent(new Event('input'))"
        window.run("form = document.querySelector('form.find'); 0")
        window.run(look.format("words", "push-1"))
        assert 0 < window.run(shown) < every
        window.run(look.format("words", "") + ";" + look.format("status", "fail"))
        assert window.run("document.querySelector('form.find output').textContent").startswith("1 ")
        window.run("document.activeElement.blur()")
        window.key("Tab", 9)
        assert window.run("document.activeElement.className") == "skip"
        texts = set()
        for _ in range(60):
            window.key("Tab", 9)
            texts.add(window.run("document.activeElement.tagName"))
        assert {"A", "SUMMARY", "INPUT", "SELECT"} <= texts
        window.open(page, width=800, dark=False, script=False)
        assert window.run("document.querySelector('form.find').hidden") is True
        assert window.run(shown) == every


def test_a_line_of_a_trace_keeps_its_bytes(tmp_path: Path) -> None:
    hostile.write(tmp_path)
    lines: list[TraceLine] = load_trace(tmp_path, hostile.results())
    assert lines[0].words[2] == bytes(range(256)) * 40


def test_what_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Usage, match=r"cannot write .*more\.json"):
        reports.put(tmp_path / "file" / "more.json", b"")
