"""Payloads and fixtures against the rules: each rule finds its fault."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from jobwire.errors import MalformedPayload
from jobwire.protocol.payload import decode
from jobwire_conformance.judge import objects, payloads
from jobwire_conformance.judge.payloads import View
from jobwire_conformance.spec import annexes, fixture_files, verdicts
from jobwire_conformance.spec.document import read_checkout
from tests.rows import over
from tests.schemas import ROOT
from tests.spec.sample import PAYLOAD, edited


def broken(text: str | bytes, view: payloads.View) -> dict[str, str]:
    """Map the broken rules to the paths of the faults."""
    judged = verdicts.judge(text.encode() if isinstance(text, str) else text, view)
    return {verdict.rule: verdict.path for verdict in judged if verdict.broken}


READER, SEVEN, EIGHT = View(), View("writer", None, "7.3"), View("writer", None, "8.1")
IN_SECONDS = edited(("0123,", ".123,"), ("124}", ".0}"), text=PAYLOAD)


def test_a_good_payload_breaks_nothing() -> None:
    assert broken(PAYLOAD, EIGHT) == broken(PAYLOAD, READER) == {}
    assert broken(IN_SECONDS, SEVEN) == broken(IN_SECONDS, READER) == {}
    assert {v.rule for v in verdicts.judge(PAYLOAD.encode(), EIGHT)} >= {
        *("PAY-1", "PAY-2", "PAY-3", "PAY-4", "PAY-6", "PAY-8", "PAY-9", "PAY-12", "GEN-2"),
    }
    assert "GEN-1" in broken(PAYLOAD, SEVEN)
    assert "GEN-2" in broken(IN_SECONDS, EIGHT)


@over(
    ("old", "new", "rule", "path"),
    [
        ("}", "", "PAY-1", "$"),
        ("[1]", "[NaN]", "PAY-4", "$"),
        ("[1]", "[-Infinity]", "PAY-4", "$"),
        ("[1]", "[ 1]", "PAY-2", "$"),
        ("[1]", r'["\/"]', "PAY-21", "$"),
        ("[1]", r'["\\ \u00e9"]', "PAY-21", "$"),
        *(("[1]", rf'["\u{code}"]', "PAY-20", "$") for code in ("000a", "0008", "0022", "005c")),
        *(("[1]", rf'["\u{code}"]', "PAY-20", "$") for code in ("001F", "000B")),
        *(("[1]", rf'["\u{code}"]', "PAY-21", "$") for code in ("007f", "2028", "d83d\\ude00")),
        *(("[1]", rf'["{half}"]', "PAY-22", "$") for half in (r"\ud800", r"\udc00\ud800")),
        ("[1]", "[1e400]", "PAY-6", "$"),
        ("[1]", "[-1e400]", "PAY-6", "$"),
        ('"enqueued_at"', '"retry_count":3,"failed_at"', "RETRY-17", "$"),
        ("[1]", "[1.10]", "PAY-33", "$"),
        ("[1]", "[0.1000000000000000055]", "PAY-33", "$"),
        ("[1]", "[-0]", "PAY-26", "$"),
        ("[1]", '[{"a":1,"b":{"c":1,"c":2}}]', "PAY-8", "$.args[0].b"),
        ("[1]", '[{"a b":{"c":1,"c":2}}]', "PAY-8", '$.args[0]["a b"]'),
        ("[1]", "[" * 100 + "]" * 100, "PAY-3", "$"),
        ("[1]", "null", "PAY-30", "$.args"),
        ('"9f2c1b7a4d3e5f60718293a4"', '""', "PAY-9", "$.jid"),
        ("1786960000123", "1786960000123.0", "GEN-2", "$.created_at"),
        ("1786960000123", "1786960000", "GEN-2", "$.created_at"),
        ('"retry":true', '"retry":-1', "PUSH-4", "$.retry"),
        ('"retry":true,', "", "PUSH-6", "$"),
        ("[1]", r'["\\/ \" \b\f\n\r\t \u0000\u0007\u000b\u000e\u001f é 😀 \\ud800"]', None, ""),
        ("[1]", "[1.0,-0.0,1e+20,1.0e+20,123456789012345678901234567890]", None, ""),
    ],
)
def test_each_rule_finds_its_fault(old: str, new: str, rule: str | None, path: str) -> None:
    """The path leads to the value: an object with a doubled name, or the whole text."""
    found = broken(edited((old, new), text=PAYLOAD), EIGHT)
    assert found.get(rule) == path if rule else found == {}


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        (b"", "PAY-1"),
        (b"[]", "PAY-1"),
        (b"\xef\xbb\xbf" + PAYLOAD.encode(), "PAY-1"),
        (PAYLOAD.encode().replace(b"[1]", b'["\xff"]'), "PAY-1"),
        (b'{"class":"A","args":' + b"[" * 100_000, "PAY-3"),
        (b'{"class":"A","args":{}}', "EXEC-7"),
        (b'{"class":7}', "EXEC-2"),
    ],
)
def test_what_no_reader_accepts(text: bytes, rule: str) -> None:
    assert rule in broken(text, READER)
    for odd in (
        '{"class":"A"}',
        f" {PAYLOAD} ",
        IN_SECONDS,
        PAYLOAD.replace("[1]", '[{"a":1,"a":2}]'),
    ):
        assert broken(odd, READER) == {}


@pytest.mark.parametrize("value", ["1e400", r'"\ud800"'])
def test_what_jobwire_cannot_hold_is_a_note(value: str) -> None:
    text = f'{{"class":"A","args":[{value}]}}'.encode()
    judged = verdicts.judge(text, READER)
    found = [verdict for verdict in judged if verdict.problem]
    assert {(verdict.rule, verdict.kind) for verdict in found} == {("", "note")}
    assert "not every parser can read it" in found[0].problem
    with pytest.raises(MalformedPayload):
        decode(text, "")


def test_a_jid_of_the_caller_is_a_note_for_a_writer() -> None:
    """PAY-9, PUSH-19: a client writes it unchanged, and makes other ones itself."""
    given = PAYLOAD.replace("9f2c1b7a4d3e5f60718293a4", "6f9619ff-8b86-d011-b42d-00cf4fc964ff")
    judged = verdicts.judge(given.encode(), EIGHT)
    assert [(v.rule, v.kind, v.path) for v in judged if v.problem] == [("PAY-9", "note", "$.jid")]


def test_an_odd_time_is_a_note_for_a_reader() -> None:
    """INSP-3, GEN-3: a time as text does not make a job unreadable."""
    odd = PAYLOAD.replace("1786960000123", '"2026-11-20"')
    judged = verdicts.judge(odd.encode(), READER)
    assert [(v.rule, v.kind, v.path) for v in judged if v.problem] == [
        ("GEN-3", "note", "$.created_at")
    ]
    assert broken(odd, EIGHT) == {"GEN-2": "$.created_at"}


@pytest.mark.parametrize(
    ("name", "text", "path"),
    [
        ("process-info", '{"pid":"4711"}', "$.pid"),
        ("work", '{"queue":5,"payload":"{}","run_at":1}', "$.queue"),
        ("iteration", '{"ex":"0"}', "$.ex"),
        ("private", '{"default":"{}"}', "$"),
    ],
)
def test_an_odd_object_is_a_note_for_a_reader(name: str, text: str, path: str) -> None:
    """INSP-3, REL-13: nothing is broken; a writer breaks a rule with the same text."""
    judged = verdicts.judge_object(text.encode(), name, View("reader"))
    assert [verdict for verdict in judged if verdict.broken] == []
    assert [verdict.path for verdict in judged if verdict.kind == "note"] == [path]
    judged = verdicts.judge_object(text.encode(), name, View("writer"))
    assert any(verdict.broken for verdict in judged)


@over(
    ("string", "is_half"),
    [
        (r"\ud83d\ude00\uD83D\uDE00", False),
        (r"\\ud800", False),
        (r"\ude00\ud83d", True),
        (r"\ud83dabc", True),
        (r"\ud83dx\n", True),
        (r"\ud83d\n\ude00", True),
        (r"\ud83d\ud83d\ude00", True),
    ],
)
def test_a_half_of_a_surrogate_pair_is_noted(string: str, is_half: bool) -> None:
    """PAY-1: a reader accepts it, and some parsers do not."""
    text = f'{{"class":"A","args":["{string}"]}}'.encode()
    assert bool(payloads.notes(text)) == is_half
    assert broken(text, READER) == {}


@over("place", [None, *payloads.PLACES])
@over(
    ("changes", "places"),
    [
        ({"queue": None}, {"queue", "dead", None}),  # SCHED-9
        ({"queue": 7}, {"queue", "dead", None}),
        ({"queue": ""}, {"queue", "dead", None}),
        ({"retry_queue": 5}, {*payloads.PLACES, None}),
        ({"retry_for": 90.5}, {*payloads.PLACES, None}),
        ({"args": {}}, {"dead"}),  # EXEC-7
        ({"class": None}, {"dead"}),  # EXEC-2
    ],
)
def test_a_reader_accepts_by_place(
    changes: dict[str, Any], places: set[str | None], place: payloads.Place | None
) -> None:
    """SCHED-9, RETRY-7, EXEC-2, EXEC-7: a worker knows the queue, a scheduler needs its name."""
    text = json.dumps({**json.loads(PAYLOAD), **changes})
    assert (broken(text, View("reader", place)) == {}) == (place in places)


def test_unreadable_bytes_may_be_in_dead() -> None:
    """KEY-3, EXEC-3, EXEC-4: and JSON that is not an object may not."""
    for role in payloads.ROLES:
        assert broken(b"\xff{", View(role, "dead")) == {}
        assert broken("[1]", View(role, "dead")) == {"EXEC-4": "$"}
        assert broken("[1]", View(role, "queue")) == {"PAY-1": "$"}


def test_a_rule_binds_only_its_generations() -> None:
    """PAY-8: 6.4 repeats `cattr`. RETRY-8: 6.4 breaks base64 into lines."""
    twice = edited(("}", ',"cattr":1,"cattr":2}'), text=IN_SECONDS)
    for generation, rules in {"6.4": set(), "7.3": {"PAY-8"}}.items():
        assert {*broken(twice, View("writer", None, generation))} == rules


def test_every_rule_exists() -> None:
    known = read_checkout(ROOT).by_id | annexes.by_id(annexes.read_all(ROOT))
    generations = ("6.4", "7.3", "8.1")
    for view in itertools.starmap(
        View, itertools.product(payloads.ROLES, (None, *payloads.PLACES), generations)
    ):
        assert set(payloads.rules(view)) <= set(known)
        for name, kind in objects.OBJECTS.items():
            if view.generation in kind.generations:
                assert set(objects.rules(name, view)) <= set(known)


@pytest.mark.parametrize(
    "path", sorted((ROOT / "fixtures").rglob("*.json")), ids=lambda p: str(p.relative_to(ROOT))
)
def test_fixture_files_are_what_they_say(path: Path) -> None:
    entries = fixture_files.entries(path.read_bytes())
    assert entries
    # A few: unit/test_fixtures.py compares all with the schema of their own kind.
    assert list(fixture_files.shape_problems(entries[:9])) == []
    judged = [fixture_files.judge_entry(entry, None) for entry in entries]
    assert [one for one in judged if one is not None and one.problem] == []
    assert path.name != "payloads.json" or None not in judged


def test_an_entry_that_is_not_what_it_says() -> None:
    def problem(**entry: Any) -> str:
        judged = fixture_files.judge_entry({"name": "x", **entry}, None)
        assert judged is not None
        return judged.problem

    assert problem(payload=PAYLOAD) == ""
    assert problem(payload=PAYLOAD, breaks=["PAY-8"]) == "says to break PAY-8, and does not"
    assert problem(payload="{", breaks=["PAY-1"]) == ""
    run = {"breaks": ["PAY-1"], "expect": {"outcome": "run"}}
    assert problem(payload="{", **run) == "has to run in a reader, and breaks PAY-1"
    assert problem(payload="{") == "has to run in a reader, and breaks PAY-1"
    assert problem(payload_base64="ew==", expect={"outcome": "bury"}) == ""
