"""Reports depend on results alone, are safe to open, and are kept in a short form."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import cast
from xml.etree import ElementTree

import pytest

from jobwire_conformance import reports
from jobwire_conformance.errors import Usage
from jobwire_conformance.reports import summary
from jobwire_conformance.reports.drift import drift
from jobwire_conformance.reports.failure import explanation
from jobwire_conformance.reports.junit import junit
from jobwire_conformance.reports.matrix import find
from jobwire_conformance.reports.results import Check, Fate, Results, TraceLine, load, load_trace
from jobwire_conformance.reports.terminal import closing
from jobwire_conformance.run import sets
from jobwire_conformance.run.causes import causes
from jobwire_conformance.wire.text import visible
from tests.conformance import hostile
from tests.conformance.markup import Page
from tests.conformance.pages import STORE
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


def test_a_wrong_name_of_a_queue_has_one_cause() -> None:
    checks = [
        failed("REL-2", "a", 'place of job 0: expected "queue:a:b", seen "queue:a"'),
        failed("REL-13", "b", "members of queue:a:b: expected 1, seen 0"),
        failed("KEY-2", "c", "members of queue: padded : expected 1, seen 0"),
        failed("KEY-1", "c", 'members of queues: expected  padded  among them, seen ["padded"]'),
        failed("PUSH-1", "d", "members of queue:default: expected 1, seen 0"),
        failed("BULK-8", "e", "members of queue:default: expected 1, seen 0"),
    ]
    assert causes(checks) == {0: "REL-13", 3: "KEY-2"}


def test_jobs_in_one_wrong_place_have_one_cause() -> None:
    place = 'place of job {}: expected "{}", seen "{}"'
    checks = [
        failed("GEN-6", "a", place.format(1, "dead", "retry")),
        failed("RETRY-6", "b", place.format(2, "dead", "retry")),
        failed("RETRY-6", "c", place.format(3, "dead", "retry")),
        failed("DEAD-4", "d", place.format(4, "dead", "nowhere")),
    ]
    assert causes(checks) == {0: "RETRY-6"}


def test_one_observation_of_a_case_has_one_cause() -> None:
    lacks = "members of queues: expected {} among them, seen []"
    checks = [
        failed("SCHED-7", "a", lacks.format("later")),
        failed("SCHED-7", "b", lacks.format("default")),
        failed("KEY-1", "b", lacks.format("default")),
        failed("KEY-1", "c", lacks.format("default")),
    ]
    assert causes(checks[:3]) == {2: "SCHED-7"}
    assert causes([checks[0], checks[3]]) == {}


def test_failures_of_one_case_have_the_cause_that_fails_in_most_cases() -> None:
    checks = [
        failed("ITER-12", "a", "executions of 5: expected 0, seen 1"),
        failed("ITER-7", "a", "executions of 4: expected 0, seen 1"),
        failed("ITER-18", "b", "existence of it-6: expected false, seen true"),
        failed("ITER-7", "b", "place of job 7: expected nowhere, seen retry"),
        failed("BEAT-2", "traffic", "in case b: expected a beat, seen a beat after 16 s"),
    ]
    assert causes(checks) == {0: "ITER-7", 2: "ITER-7", 4: "ITER-7"}


def test_another_unit_is_the_cause_of_all_that_it_breaks() -> None:
    seen = "seen 1796042457905"
    checks = [
        failed("BEAT-4", "a", f"'info.started_at' of vm:1:00123456789a: expected a float, {seen}"),
        failed("GEN-4", "a", f"'info.started_at' of vm:1:00123456789a: expected 0 to 9, {seen}"),
        failed("BEAT-4", "traffic", f"in case b: expected a number, seen $.started_at: {seen[5:]}"),
        failed("GEN-4", "c", "score 0 of retry: expected a time, seen 1795917730.5"),
        failed("RETRY-4", "c", "score 0 of retry: expected a time, seen 1795917730.5"),
    ]
    assert causes(checks[:3]) == {0: "GEN-4", 2: "GEN-4"}
    assert causes(checks[3:]) == {1: "GEN-4"}


def test_a_member_that_is_no_payload_is_the_cause_of_what_its_set_lacks() -> None:
    checks = [
        failed("DEAD-3", "a", 'place of job abc001: expected "dead", seen "nowhere"'),
        failed("DEAD-1", "b", 'member -1 of dead: expected a JSON object, seen {"class":"Hard'),
        failed("EXEC-3", "c", "members of dead: expected 2, seen 1"),
        failed("KEY-3", "d", "members of dead: expected one with the id abc003, seen 1 others"),
    ]
    assert causes(checks) == {0: "KEY-3", 1: "KEY-3", 2: "KEY-3"}
    assert causes(checks[2:]) == {}


def test_a_single_step_is_the_cause_if_the_general_rule_fails_there_alone() -> None:
    lost = "in case {}: expected every field of the job, seen without x"
    checks = [
        failed("PAY-7", "traffic", lost.format("a")),
        failed("SCHED-19", "a", "'x' of member 0 of queue:q: expected 1, seen nothing"),
        {**failed("SCHED-22", "a", "mean of the pauses"), "status": "warn"},
        failed("PAY-7", "traffic", lost.format("b")),
    ]
    assert causes(checks[:3]) == {0: "SCHED-19", 2: "SCHED-19"}
    assert causes(checks) == {1: "PAY-7", 2: "PAY-7"}
    checks = [
        failed("INSP-5", "a", "'enqueued_at' of member 0 of queue:q: expected a time, seen 1"),
        failed("PUSH-3", "traffic", "in case a: expected the time in enqueued_at, seen 9 s ago"),
        failed("PUSH-3", "traffic", "in case b: expected the time in enqueued_at, seen 9 s ago"),
    ]
    assert causes(checks[:2]) == {1: "INSP-5"}
    assert causes(checks) == {0: "PUSH-3"}


def test_a_signal_that_is_taken_wrongly_has_one_cause() -> None:
    checks = [
        failed("SIG-4", "a", "members of vm:1:00123456789a-signals: expected 1, seen 0"),
        failed("SIG-10", "a", "'quiet' of vm:1:00123456789a: expected \"true\", seen nothing"),
        failed("MET-9", "b", "minute.ms of HardJob: expected 0, seen 3"),
        failed("MET-11", "b", "histogram.count of HardJob: expected 0, seen 1"),
    ]
    assert causes(checks) == {1: "SIG-4", 3: "MET-9"}


def test_a_day_that_is_not_counted_is_the_cause_of_its_missing_expiry() -> None:
    checks = [
        failed("STAT-2", "a", "counter stat:failed:2026-11-30: expected 3, seen 0"),
        failed(
            "STAT-4", "a", "remaining seconds of stat:failed:2026-11-30: expected 9, seen nothing"
        ),
    ]
    assert causes(checks) == {1: "STAT-2"}


def test_a_wrong_answer_has_one_cause() -> None:
    flag = {"expected": False, "seen": True}
    checks = [
        failed("INSP-18", "a", "'work' of the answer: expected [any value], seen []"),
        failed("INSP-31", "a", "'work' of the answer: expected [any value], seen []"),
        failed("INSP-25", "b", "'all[1].quiet' of the answer: expected false, seen true", **flag),
        failed("INSP-3", "c", "'all[2].quiet' of the answer: expected false, seen true", **flag),
        failed("INSP-12", "d", "'work' of the answer: expected [any value], seen []"),
    ]
    assert causes(checks) == {1: "INSP-18", 3: "INSP-25"}


def test_a_wrong_digest_or_key_that_stays_has_one_cause() -> None:
    digest = "f235f621" * 8
    kept = "existence of it-{}: expected {}, seen {}"
    checks = [
        failed("X-UNIQ-1", "a", f"existence of jobwire:unique:{digest}: expected true, seen false"),
        failed("X-UNIQ-2", "a", f"'x.digest' of member 0 of q: expected {digest}, seen 12345678"),
        failed("X-UNIQ-3", "a", f"jobwire:unique:{digest}: expected the value a, seen nothing"),
        failed("ITER-6", "b", kept.format("000000000000000000ab00d4", "false", "true")),
        failed("ITER-12", "b", kept.format("000000000000000000ab00d5", "false", "true")),
        failed("ITER-2", "c", kept.format("000000000000000000ab00d6", "true", "false")),
    ]
    assert causes(checks) == {1: "X-UNIQ-1", 2: "X-UNIQ-1", 4: "ITER-6"}


def test_another_text_in_a_work_record_has_one_cause() -> None:
    checks = [
        failed("BEAT-14", "a", "'*.payload' of vm:1:0:workers: expected a text, seen 1"),
        failed("BEAT-17", "a", "'*.payload' of vm:1:0:work: expected a text, seen 1"),
        failed("BEAT-17", "traffic", 'in case a: expected the payload as fetched, seen {"jid":1}'),
    ]
    assert causes(checks) == {0: "BEAT-17"}


def test_a_wrong_name_of_keys_is_the_cause_of_metrics_that_are_not_found() -> None:
    checks = [
        failed("MET-11", "a", "histogram.fits of HardJob: expected true, seen false"),
        failed("MET-9", "a", "minute.ms of HardJob: expected 1 to 600000, seen 0"),
        failed("MET-7", "a", "minute.p of HardJob: expected 3, seen 0"),
        failed("MET-3", "a", "minute.ttl of HardJob: expected 28000 to 28800, seen nothing"),
        failed("MET-1", "a", "minute.p of HardJob: expected 4, seen 0"),
    ]
    assert causes(checks) == dict.fromkeys(range(4), "MET-1")
    assert causes(checks[1:]) == dict.fromkeys(range(1, 4), "MET-9")
    tens = [
        {**check, "message": str(check["message"]).replace("minute", "ten_minutes")}
        for check in checks[1:]
    ]
    assert causes(tens) == dict.fromkeys(range(3), "MET-1")


def test_what_traffic_shows_is_the_cause_of_what_is_found_elsewhere() -> None:
    """[PUSH-1] [FETCH-1] The cases read the head of a queue, and the order of jobs."""
    checks = [
        failed("PAY-6", "a", "'args' of member 0 of queue:default: expected [1.0], seen [2]"),
        failed("PAY-25", "b", "member 0 of queue:default: expected a whole float, seen {}"),
        failed("PUSH-1", "traffic", "in case c: expected LPUSH, seen insertion at the tail"),
        failed("FETCH-2", "d", 'jobs in the order in which they began: expected ["1"], seen ["2"]'),
        failed("FETCH-12", "e", "members of queue:default: expected 5, seen 200"),
        failed("FETCH-1", "traffic", "in case f: expected the tail, seen BLPOP, from the head"),
    ]
    assert causes(checks) == {0: "PUSH-1", 1: "PUSH-1", 3: "FETCH-1", 4: "FETCH-1"}
    assert causes([*checks[:2], *checks[3:5]]) == {}


def test_a_value_that_another_form_explains_has_one_cause() -> None:
    """[GEN-2] [PAY-5] [PUSH-13]"""
    field = "'{}' of member 0 of queue:q: expected {}, seen {}"
    now = "a time within 2 s of now, like 1796098168416"
    checks = [
        failed("PUSH-3", "a", field.format("enqueued_at", now, 1796098168)),
        failed("PUSH-3", "b", field.format("enqueued_at", now, 1796098168)),
        failed("GEN-2", "c", field.format("created_at", now, 1796098168)),
        failed("PAY-5", "d", field.format("args[0]", 10**21, "1e+21")),
        failed("PUSH-11", "e", field.format("created_at", f"exactly {10**21}", "1e+21")),
        failed("GEN-2", "traffic", "in case e: expected 1, seen $.created_at: 1e+21: a float"),
        failed("PAY-0", "f", field.format("x", "null", "nothing")),
        failed("PUSH-13", "g", field.format("tags", "null", "nothing")),
        failed("PUSH-13", "h", field.format("retry_queue", "null", "nothing")),
    ]
    assert causes(checks[:3]) == {0: "GEN-2", 1: "GEN-2"}
    assert causes(checks[3:]) == {1: "PAY-5", 2: "PAY-5", 3: "PUSH-13"}


def test_bytes_that_are_not_utf_8_have_one_notation() -> None:
    assert visible(b"a\xff") == visible("a\udcff") == r"a\xff"


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


def test_nothing_foreign_becomes_markup(tmp_path: Path) -> None:
    for path in hostile.pages(tmp_path):
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
    hostile.pages(tmp_path)
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


def test_a_line_of_a_trace_keeps_its_bytes(tmp_path: Path) -> None:
    hostile.write(tmp_path)
    lines: list[TraceLine] = load_trace(tmp_path, hostile.results())
    assert lines[0].words[2] == bytes(range(256)) * 40


def test_every_difference_of_two_runs_is_told() -> None:
    now = results("client/core")
    now["checks"][0]["status"] = "warn"
    now["loss_map"] = [{"case": "a", "point": "LPUSH#1", "side": "after", "outcome": "lost"}]
    lines = [*drift(results("client/core"), now)]
    assert [line.partition(": ")[2] for line in lines] == [
        "was missing, is lost",
        "was missing, is cut off",
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
    more: list[tuple[str, Fate]] = [("EVALSHA#3", "kept"), ("EVALSHA#10", "lost")]
    assert [*drift(before, cuts(*more, ("EXEC#1", "kept")))] == []
    assert [*drift(before, cuts(*more, ("EXEC#1", "duplicated")))] == [
        "a, cut off after EXEC, number 1: was missing, is duplicated"
    ]
    assert [*drift(before, cuts(("EVALSHA#3", "kept")))] == [
        "a, cut off after EVALSHA, number 2: was lost, is missing"
    ]
    assert [*drift(before, cuts(("EVALSHA#3", "lost")))] == [
        "a, cut off after EVALSHA, number 1: was kept, is lost",
        "a, cut off after EVALSHA, number 2: was lost, is missing",
    ]
    assert [*drift(cuts(*more, ("EXEC#1", "kept")), before)] == []
    assert [*drift(cuts(("EXEC#1", "kept")), cuts())] == ["a, its points: was cut off, is missing"]


@pytest.mark.process
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


def test_a_summary_keeps_the_reason_of_a_deviation_and_what_was_seen(tmp_path: Path) -> None:
    run = results("client/core", status="deviation", command="make it", again="replay it")
    for check in run["checks"]:
        check["message"] = f"saw {check['requirement']}"
    path = tmp_path / "1.json"
    reports.put(path, summary.dump(run))
    kept = summary.load(path)
    assert (kept.get("command"), kept.get("again")) == ("make it", "replay it")
    shown = {check["requirement"]: check for check in kept["checks"] if "reason" in check}
    assert shown.keys() == {check["requirement"] for check in run["checks"]}
    assert all(check.get("message") == f"saw {id_}" for id_, check in shown.items())
    # One reason is still one line.
    assert len(json.loads(path.read_text())["exceptions"]) <= 2


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
