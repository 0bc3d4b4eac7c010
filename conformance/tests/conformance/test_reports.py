"""Reports depend on results alone, and a file that is not one is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jobwire_conformance import reports
from jobwire_conformance.errors import Usage
from jobwire_conformance.reports import summary
from jobwire_conformance.reports.failure import explanation
from jobwire_conformance.reports.junit import junit
from jobwire_conformance.reports.results import load, load_trace
from jobwire_conformance.reports.terminal import closing
from jobwire_conformance.run.causes import causes
from tests.conformance.markup import Page
from tests.conformance.sample_results import put, results
from tests.conformance.suite import run


@pytest.mark.process
def test_all_reports_can_be_made_again(run_with_a_mistake: Path) -> None:
    before = {name: (run_with_a_mistake / name).read_bytes() for name in reports.FILES}
    for name in reports.FILES:
        (run_with_a_mistake / name).unlink()
    done = run("report", run_with_a_mistake)
    assert done.status == 0, done.err
    assert {name: (run_with_a_mistake / name).read_bytes() for name in reports.FILES} == before


@pytest.mark.process
def test_the_page_shows_a_failure_with_what_passed(run_with_a_mistake: Path) -> None:
    """[PUSH-1]: its text, expected and seen values, the commands, and how to replay it."""
    page = Page(run_with_a_mistake / "report.html")
    for text in (
        *("push-head", "insert the payload at the head", '"JobwireEcho"', '"Older"'),
        *("RPUSH queue:default", "rewrite", "jobwire conform replay"),
    ):
        assert text in page.text, text
    assert page.tags.count("svg") >= 1


@pytest.mark.process
def test_what_happens_is_written_as_it_happens(run_with_a_mistake: Path) -> None:
    text = (run_with_a_mistake / "events.jsonl").read_text("utf-8")
    events = [json.loads(line) for line in text.splitlines()]
    assert (events[0]["event"], events[-1]["event"]) == ("start", "end")
    cases = {event["case"]: event for event in events if event["event"] == "case"}
    assert {*events[0]["cases"]} == {"push-head", "exec-order"}
    assert {*events[0]["cases"]} <= {*cases}
    assert "fail" in {check["status"] for check in cases["push-head"]["checks"]}
    assert events[-1]["status"] == 1


@pytest.mark.process
def test_a_run_that_left_cases_out_meets_nothing(run_with_a_mistake: Path) -> None:
    checks = load(run_with_a_mistake)
    assert not any(claim["met"] for claim in checks["claims"].values())
    assert "FETCH-2" in checks["claims"]["worker/core"].get("missing", [])


@pytest.mark.process
def test_without_a_trace_there_is_a_page_all_the_same(tmp_path: Path) -> None:
    put(tmp_path / "results.json", results("client/core", status="fail"))
    assert run("report", tmp_path).status == 0
    assert "The trace of this run is missing" in Page(tmp_path / "report.html").text


@pytest.mark.process
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
        done = run(*arguments)
        assert (done.status, says in done.err) == (64, True), done.err
        assert "Traceback" not in done.err
        assert str(tmp_path / "results.json") in done.err


@pytest.mark.process
def test_a_trace_that_is_none_is_refused(tmp_path: Path) -> None:
    put(tmp_path / "results.json", results("client/core", trace="trace.jsonl"))
    (tmp_path / "trace.jsonl").write_text('{"case": "x"}\n')
    done = run("report", tmp_path)
    assert (done.status, "line 1 is not a line of a trace" in done.err) == (64, True)


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


def test_what_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Usage, match=r"cannot write .*more\.json"):
        reports.put(tmp_path / "file" / "more.json", b"")


def failed(requirement: str, case: str, message: str, **more: object) -> dict[str, object]:
    return {
        **{"case": case, "requirement": requirement, "claim": "client/core", "status": "fail"},
        **{"message": message, **more},
    }


def test_one_wrong_field_has_one_cause() -> None:
    checks = [
        failed("PUSH-3", "a", "'enqueued_at' of member 0 of queue:q: expected a time, seen 17.5"),
        failed(
            "PAY-0", "b", "'created_at' of member 0 of queue:q: expected a time, seen 1795917730"
        ),
        failed(
            "PUSH-11", "b", "'created_at' of member 0 of queue:q: expected a time, seen 1795917730"
        ),
        failed(
            "PUSH-11", "c", "'created_at' of member 0 of queue:q: expected a time, seen 1795917731"
        ),
        failed(
            "GEN-1", "traffic", "in case b: expected float seconds, seen $.created_at: 1795917730"
        ),
        failed("PUSH-19", "d", '\'jid\' of member 0 of queue:q: expected "a", seen "A"'),
        {**failed("PUSH-20", "d", "'jid' of member 0 of queue:q: seen \"A\""), "status": "pass"},
    ]
    assert causes(checks) == {1: "GEN-1", 2: "GEN-1", 3: "GEN-1"}


def test_one_wrong_value_has_one_cause() -> None:
    pair = {"expected": 9007199254740993, "seen": 9007199254740992}
    checks = [
        failed(
            "PAY-13", "a", "'bid' of member 0 of q: expected 9007199254740993, seen 9007…", **pair
        ),
        failed(
            "PAY-5", "b", "'args[0]' of member 0 of q: expected 9007199254740993, seen …", **pair
        ),
        failed(
            "PAY-5", "c", "'args[1]' of member 0 of q: expected 9007199254740993, seen …", **pair
        ),
        failed("PUSH-1", "d", '\'outcome\' of the answer: expected "ok", seen "rejected"'),
        failed("PUSH-2", "e", '\'outcome\' of the answer: expected "ok", seen "rejected"'),
    ]
    assert causes(checks) == {0: "PAY-5"}


def test_failures_that_follow_from_another_are_marked() -> None:
    made = results("client/core", status="fail")
    made["checks"][1]["follows"] = made["checks"][0]["requirement"]
    first, second = (check["requirement"] for check in made["checks"][:2])
    assert f"first cause: {first}; from it probably follow {second}\n" in closing(made)
    assert f"probably follows from {first}" in "\n".join(explanation(made["checks"][1], ""))
    assert junit(made).count(f"probably follows from {first}".encode()) == 2


def test_a_claim_that_requires_others_says_which() -> None:
    made = results("client/core", "client/bulk")
    made["claims"]["client/core"]["checks"] = {"fail": 1}
    for claim in made["claims"].values():
        claim["met"] = False
    lines = closing(made).splitlines()
    assert [line for line in lines if line.endswith("; requires client/core")] == lines[1:2]
