"""Verdicts that people can act on: the evidence of a failure, and faults of adapters."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from jobwire_conformance.run.evidence import Line, around, describe
from jobwire_conformance.sandbox.answers import Malformed, checked
from jobwire_conformance.sandbox.history import Note
from jobwire_conformance.sandbox.program_faults import excerpt
from jobwire_conformance.wire.call import Call
from jobwire_conformance.wire.resp import command
from jobwire_conformance.wire.text import reply
from tests.conformance.suite import GOOD, REFERENCE, ROOT, adapter, copied, run
from tests.conformance.test_commands import environment
from tests.rows import over

# -- one notation


@over(
    ("frame", "shown"),
    [
        (b"+OK\r\n", "OK"),
        (b":2\r\n", "2"),
        (b"$2\r\n{}\r\n", "{}"),
        (b"$0\r\n\r\n", '""'),
        (b"$-1\r\n", "nil"),
        (b"*2\r\n:1\r\n$2\r\n\xff\x00\r\n", "[1, \\xff\\x00]"),
        (b"-READONLY no\r\n", "(error) READONLY no"),
        (None, "no reply"),
    ],
)
def test_replies_have_one_notation(frame: bytes | None, shown: str) -> None:
    assert reply(frame) == shown


# -- the evidence


def sent(process: str, at: float, *words: str, answer: bytes = b":1\r\n") -> Line:
    plain = [word.encode() for word in words]
    call = Call(1, 1, plain, words[0], command(*words), at, sent=at, reply=answer)
    return process, call


def shown(step: dict[str, Any], record: list[Line]) -> list[str]:
    return [describe(line, 0.0) for line in around(step, record, lambda name: name)]


def test_signals_are_evidence_and_polls_are_not() -> None:
    polls = [
        sent("w2", 2.0 + n, "ZRANGEBYSCORE", "retry", "-inf", str(n), answer=b"*0\r\n")
        for n in range(20)
    ]
    signal = Note(1.0, "w2", "signal", "INT")
    record = [sent("w2", 0.5, "HSET", "x", "a", "1"), ("w2", signal), *polls]
    assert shown({"that": {"exit": "w2", "is": 0}}, record) == [
        "500.0 ms  w2 1.1 HSET x a 1 -> 1",
        "1000.0 ms  w2 signal INT",
    ]


def test_the_request_is_evidence_of_its_answer() -> None:
    old = sent("driver", 0.1, "PING")
    request = Note(0.2, "driver", "request", '{"id":2,"op":"push"}', b'{"id":2,"ok":{}}', 0.4)
    record: list[Line] = [old, ("driver", request), sent("driver", 0.3, "LPUSH", "queue:a", "{}")]
    assert shown({"answer": {"outcome": "rejected"}}, record) == [
        '200.0 ms  driver request {"id":2,"op":"push"} -> {"id":2,"ok":{}}',
        "300.0 ms  driver 1.1 LPUSH queue:a {} -> 1",
    ]
    assert shown({"answer": {}}, record[:2]) == [
        '200.0 ms  driver request {"id":2,"op":"push"} -> {"id":2,"ok":{}}'
    ]


def test_the_evidence_of_a_job_names_the_job() -> None:
    record = [sent("w1", 0.1 * n, "LPUSH", "queue:a", f'{{"jid":"j{n}"}}') for n in range(9)]
    assert shown({"that": {"place": "j3", "is": "dead"}}, record) == [
        '300.0 ms  w1 1.1 LPUSH queue:a {"jid":"j3"} -> 1'
    ]


# -- answers


HELLO: dict[str, Any] = {"id": 1, "op": "hello", "driver": 1, "redis_url": "redis://x"}
PUSH: dict[str, Any] = {"id": 2, "op": "push", "job": {}}


@over(
    ("request_", "answer", "says"),
    [
        (PUSH, [], "an answer is []; expected a JSON object"),
        (PUSH, {"ok": {}}, "an answer has no id; expected the number 2"),
        (
            PUSH,
            {"id": "2", "ok": {"jid": "x"}},
            'an answer has the text "2" as its id; expected the number 2',
        ),
        (PUSH, {"id": True, "ok": {}}, "an answer has true as its id"),
        (PUSH, {"id": 3, "unsupported": True}, "the answer to request 2 has the id 3"),
        (PUSH, {"id": 2, "okay": {}}, 'an answer has no "ok"; did you write "okay" instead?'),
        (PUSH, {"id": 2}, 'an answer has no "ok" or "error" or "unsupported"'),
        (PUSH, {"id": 2, "ok": {}, "error": {}}, 'an answer has both "ok" and "error"'),
        (PUSH, {"id": 2, "ok": {"jid": 7}}, "ok.jid is 7; expected a text or null"),
        (PUSH, {"id": 2, "ok": {"jID": "x"}}, 'ok has no "jid"; did you write "jID" instead?'),
        (PUSH, {"id": 2, "ok": "x"}, 'ok is the text "x"; expected an object'),
        (PUSH, {"id": 2, "ok": {"jid": "x", "a": 1}}, 'ok has an unknown member "a"; known: "jid"'),
        (
            PUSH,
            {"id": 2, "error": {"kind": "reject", "message": ""}},
            'error.kind is the text "reject"; expected "rejected" or "unknown"',
        ),
        (PUSH, {"id": 2, "error": {"kind": "unknown"}}, 'error has no "message"'),
        (PUSH, {"id": 2, "unsupported": False}, "unsupported is false; expected true"),
        (HELLO, {"id": 1, "ok": {"driver": 2, "version": "1", "ops": []}}, "ok.driver is 2; "),
        (
            {"id": 2, "op": "inspect", "what": "queues"},
            {"id": 2, "ok": {"queues": {"a": {"size": "1", "latency": 0}}}},
            'ok.queues.a.size is the text "1"; expected a whole number',
        ),
    ],
)
def test_a_typo_in_an_answer_is_told_in_words(
    request_: dict[str, Any], answer: Any, says: str
) -> None:
    with pytest.raises(Malformed) as raised:
        checked(request_, answer)
    assert str(raised.value).startswith(says)
    assert raised.value.advice


# -- adapters that end


def test_the_head_of_a_long_stack_trace_stays() -> None:
    """Java names the exception first, its cause in the middle, and Python the exception last."""
    calls = [f"\tat com.example.Deep.call(Deep.java:{n})" for n in range(60)]
    text = "\n".join(
        [
            'Exception in thread "main" java.lang.IllegalStateException: no queue',
            *calls,
            "Caused by: java.lang.NullPointerException: queue is null",
            *calls,
        ]
    )
    lines = excerpt(text).splitlines()
    assert lines[0].endswith("java.lang.IllegalStateException: no queue")
    assert any("Caused by: java.lang.NullPointerException" in line for line in lines)
    assert lines[-1].endswith("(Deep.java:59)")
    assert "    ... 107 lines left out" in lines
    assert len(lines) < 20
    assert excerpt("one\ntwo") == "    one\n    two"
    assert excerpt("") == "    (no output)"


DYING = GOOD.replace(
    "    say(id, unsupported=True)\n",
    "    def deep(n):\n        if n: deep(n - 1)\n        raise KeyError('no queue')\n"
    "    deep(40)\n",
)


@pytest.mark.process
@pytest.mark.parametrize("verb", ["check", "replay"])
def test_the_request_that_ended_a_driver_is_shown(verb: str, tmp_path: Path) -> None:
    path = adapter(tmp_path, DYING, claims=("client/core",))
    case = ["--case", "push-head"] if verb == "check" else ["push-head"]
    said = run(verb, *(["-C", path] if verb == "replay" else [path]), *case)
    assert said.status == 3
    assert '  Request: {"id":2,"op":"push","job":{' in said.err
    assert "Traceback (most recent call last):" in said.err
    assert "KeyError: 'no queue'" in said.err
    assert "lines left out" in said.err
    assert "Remedy: let no error end the driver" in said.err
    if verb == "check":
        in_one_line = " ".join(said.err.split())
        assert 'instead of answering; request: {"id":2,"op":"push"' in in_one_line
    else:
        assert "-> no answer" in said.out


@pytest.mark.process
def test_a_skeleton_that_is_not_built_names_its_build_command(tmp_path: Path) -> None:
    made = run("init", tmp_path, "--language", "go", "--claim", "client/core")
    (build,) = [line.partition(". ")[2] for line in made.out.splitlines() if "go build" in line]
    for said in (run("doctor", tmp_path), run("check", tmp_path, "--case", "push-head")):
        assert said.status == 3
        assert "jobwire-adapter/bin/jw-driver: No such file or directory" in said.out + said.err
        assert f"build it, in {tmp_path}: {build}" in said.out + said.err


@pytest.mark.process
def test_a_slow_driver_is_called_slow(tmp_path: Path) -> None:
    slow = GOOD.replace("    say(id, unsupp", "    time.sleep(0.5)\n    say(id, unsupp")
    path = adapter(tmp_path, slow, claims=("client/core",))
    names = ("push-head", "push-plain", "push-keys", "push-depth", "push-random")
    only = [word for name in names for word in ("--case", name)]
    said = run("check", path, *only, "--sandboxes", "5")
    assert "slow driver: half of its 5 answers took 0.5 s or longer" in said.out
    quick = run("check", adapter(tmp_path, claims=("client/core",)), *only)
    assert "slow driver" not in quick.out


@pytest.mark.process
def test_an_operation_that_the_driver_lacks_is_named_once(tmp_path: Path) -> None:
    path = adapter(tmp_path, claims=("client/core",))
    said = run("check", path, "--case", "push-head", "--case", "push-jid")
    blocked = [line for line in said.out.splitlines() if "`unsupported`" in line]
    assert len(blocked) == 1
    assert blocked[0].startswith("the driver answered `unsupported` to push, which blocked ")
    assert "jobwire conform doctor" in blocked[0]


@pytest.mark.process
def test_a_driver_that_no_case_needs_is_no_fault(tmp_path: Path) -> None:
    path = adapter(tmp_path, "raise SystemExit(1)", claims=("worker/core",), timeout=60)
    worker = f'["{sys.executable}", "{REFERENCE / "worker.py"}"]'
    own = f'["{sys.executable}", "worker.py"]'
    path.write_text(path.read_text().replace(own, worker))
    said = run("check", path, "--case", "exec-order")
    assert (said.status, "at fault" in said.err) == (0, False), said.err


# -- the output


@pytest.mark.process
def test_a_failure_names_the_place_the_request_and_the_requirement(tmp_path: Path) -> None:
    """[INSP-11] [INSP-25]: one null in a list of processes."""
    copied(REFERENCE, tmp_path)
    driver = tmp_path / "driver.py"
    fields = "{f: getattr(p, f) for f in fields}"
    assert fields in driver.read_text()
    wrong = "{f: None if f == 'quiet' else getattr(p, f) for f in fields}"
    driver.write_text(driver.read_text().replace(fields, wrong))
    report = tmp_path / "report"
    only = ("check", tmp_path, "inspector/read", "--case", "inspect-processes")
    said = run(*only, "--report", report, env=environment())
    assert said.status == 1
    lines = said.err.splitlines()
    at = lines.index("  fail: [INSP-25] inspector/read")
    assert lines[at + 1] == "    'processes[2].quiet' of the answer: expected false, seen null"
    assert 'driver request {"id":2,"op":"inspect","what":"processes"} -> {' in lines[at + 2]
    assert "[2/2] traffic" in said.err
    assert " FAIL (2 fail, " in said.err
    for dump in ('"$"', "b'", "\\r\\n"):
        assert dump not in said.err
    results = json.loads((report / "results.json").read_text())
    (check,) = [c for c in results["checks"] if c["requirement"] == "INSP-25"]
    assert (check["expected"], check["seen"]) == (False, None)
    assert check["evidence"][0] in lines[at + 2]
    # JUnit has the same text.
    suite = ElementTree.parse(report / "junit.xml").getroot()
    tests = {(test.get("classname"), test.get("name")): test for test in suite}
    assert len(tests) == len([*suite])
    failure = tests["jobwire.inspector/read", "INSP-25 (inspect-processes)"].find("failure")
    assert failure is not None
    reason = lines[at + 1].strip()
    assert failure.get("message") == f"probably follows from INSP-11: {reason}"
    text = failure.text or ""
    for part in (check["evidence"][0], "[INSP-25] A field", "again: jobwire conform replay"):
        assert part in text
    assert all(test.get("file") is None for test in suite)
    assert "processes[2].quiet" in (report / "report.html").read_text()


@pytest.mark.process
def test_checks_that_one_failure_blocks_are_told_together(tmp_path: Path) -> None:
    said = run("check", adapter(tmp_path, claims=("client/core",)), "--case", "push-numbers")
    assert "push-numbers  BLOCKED (4 blocked)" in said.err
    assert said.err.count("blocked by an earlier failure") == 1
    assert "  blocked: [PAY-5] [PAY-6] [PAY-25] [PAY-26] client/core\n" in said.err
    assert 'driver request {"id":2,"op":"push"' in said.err


@pytest.mark.process
def test_requirements_without_a_case_are_counted_and_listed(tmp_path: Path) -> None:
    path, report = adapter(tmp_path, claims=("client/core",)), tmp_path / "report"
    said = run("check", path, "--case", "push-head", "--report", report)
    results = json.loads((report / "results.json").read_text())
    without = results["claims"]["client/core"]["without_case"]
    assert "PUSH-7" in without
    says = f"requirements of these claims that no case checks by itself: {len(without)}; jobwire"
    assert says in said.out
    assert f"client/core: {', '.join(without)}" in (report / "summary.md").read_text()
    listed = run("trace", path, "client/core")
    assert listed.status == 0
    lines = [line for line in listed.out.splitlines() if "  no case: " in line]
    assert [line.split()[0] for line in lines] == without
    (line,) = [line for line in lines if line.startswith("  PUSH-7 ")]
    assert line.endswith(" needs the offer middleware")
    found = json.loads(run("trace", path, "client/core", "--json").out)
    assert "push-head" in found["client/core"]["PUSH-1"]["cases"]


@pytest.mark.process
@pytest.mark.parametrize("where", ["stdout", "both"])
@pytest.mark.parametrize(
    "arguments",
    [
        ["doctor", "HERE"],
        ["check", "HERE", "--case", "push-head"],
        ["replay", "-C", "HERE", "push-head"],
        ["trace"],
        ["trace", "HERE"],
        ["explain", "PUSH-1"],
        ["matrix", f"{ROOT}/conformance/reports"],
        ["init", "HERE/new", "--language", "go"],
        ["explain", "no-such-case"],
    ],
    ids=lambda arguments: "-".join(arguments[:2]).replace("/", "_"),
)
def test_output_that_nobody_reads_ends_a_command_quietly(
    arguments: list[str], where: str, tmp_path: Path
) -> None:
    """As `| head` and `2>&1 | head` do, once `head` has its lines."""
    adapter(tmp_path, claims=("client/core",))
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [
                *(sys.executable, "-m", "jobwire", "conform"),
                *(argument.replace("HERE", str(tmp_path)) for argument in arguments),
            ],
            env={**os.environ, "PYTHONPATH": f"{ROOT}/python:{ROOT}/conformance"},
            stdin=subprocess.DEVNULL,
            stdout=writer,
            stderr=writer if where == "both" else subprocess.PIPE,
            text=True,
            timeout=120,
        )
    finally:
        os.close(writer)
    said = done.stderr or ""
    assert done.returncode == (64 if where == "stdout" and "no-such-case" in arguments else 141)
    for word in ("Traceback", "BrokenPipe", "defect"):
        assert word not in said
