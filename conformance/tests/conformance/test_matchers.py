"""Matchers of cases against values, and the words of a failed comparison."""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any

from jobwire_conformance.cases import case as cases
from jobwire_conformance.cases.describe import describe, in_words, pattern_text, show
from jobwire_conformance.cases.match import Scope, difference, matches
from jobwire_conformance.cases.predicates import predicates
from jobwire_conformance.cases.values import ABSENT, plain
from jobwire_conformance.run.checks import Miss
from tests.rows import over


def stored(*lines: str) -> str:
    """Return a backtrace as payloads hold it."""
    return base64.b64encode(zlib.compress(json.dumps(lines).encode())).decode()


@over(
    ("lines", "right"),
    [
        *((["a 1", "b"], True), (["a 0x7f2c", "b"], True), ([], False), (["a 1"], False)),
        *((["a 1", "b", "c"], False), (["b", "c"], False)),
    ],
)
def test_lines_are_the_first_of_another_backtrace(lines: list[str], right: bool) -> None:
    """[RETRY-22]"""
    scope = Scope(8, 0.0, bound={"all": stored("a 1", "b", "c"), "empty": stored()})
    for n in (2, -1):
        matcher = {"$": "lines", "n": n, "of": "all"}
        assert matches(matcher, plain(stored(*lines)), scope) is right
        assert not matches({**matcher, "of": "none"}, plain(stored(*lines)), scope)
        assert matches({**matcher, "of": "empty"}, plain(stored(*lines)), scope) is (not lines)


SCOPE = Scope(8, 1786960000.0, 1786960010.0, {"j1": "abc"})
QUIET = [
    {"$": "any"},
    {"$": "any"},
    {"$": "has", "is": {"identity": "worker-7", "quiet": False}},
]


def described(matcher: Any, value: Any, name: str = "") -> tuple[str, str, str]:
    """Return the place of the difference, the expected and the seen value."""
    found = difference(matcher, ABSENT if value is ABSENT else plain(value), SCOPE, name)
    assert found is not None
    return found.path, show(in_words(found.matcher, SCOPE, found.name)), show(found.seen)


@over(
    ("matcher", "value", "words"),
    [
        (QUIET, [1, 2, {"identity": "worker-7", "quiet": None}], ("[2].quiet", "false", "null")),
        (QUIET, [1, 2, {"identity": "worker-7"}], ("[2].quiet", "false", "nothing")),
        ({"a": {"b": [1, 2]}}, {"a": {"b": [1, 2.0]}}, (".a.b[1]", "2", "2.0")),
        ({"a": 1}, {"a": 1, "b": 2}, (".b", "nothing", "2")),
        ({"a": {"$": "absent"}}, {"a": None}, (".a", "nothing", "null")),
        ([1, {"$": "any"}], [1], ("", "[1, any value]", "[1]")),
        ({"$": "json", "is": {"n": 1}}, '{"n":2}', (".n", "1", "2")),
        (
            {"$": "json", "is": {"n": 1}},
            "x",
            ("", 'the text of a JSON object with {"n": 1}', '"x"'),
        ),
        ({"$": "has", "is": {"n": {"$": "range", "min": 1}}}, {"n": 0}, (".n", "at least 1", "0")),
        ("ok", "rejected", ("", '"ok"', '"rejected"')),
    ],
)
def test_a_difference_has_a_place(matcher: Any, value: Any, words: tuple[str, str, str]) -> None:
    assert described(matcher, value) == words


@over(
    ("matcher", "words"),
    [
        ({"$": "pattern", "is": "^(unknown|ok)$"}, '"unknown" or "ok"'),
        ({"$": "pattern", "is": "^rejected$"}, '"rejected"'),
        ({"$": "pattern", "is": "^[0-9a-f]{24}$"}, "a text that matches ^[0-9a-f]{24}$"),
        ({"$": "pattern", "is": "^[0-9]+$", "words": "digits"}, "digits"),
        ({"$": "range", "min": 1, "max": 5}, "1 to 5"),
        ({"$": "range", "max": 5}, "at most 5"),
        ({"$": "type", "is": "integer"}, "an integer"),
        ({"$": "same", "name": "j1"}, '"abc"'),
        ({"$": "same", "name": "j2"}, "the value j2"),
        ({"$": "distinct", "len": 3}, "an array of 3 different values"),
        ({"$": "lines", "n": 2, "of": "all"}, "2 lines of the stored backtrace all"),
    ],
)
def test_a_matcher_is_told_in_words(matcher: Any, words: str) -> None:
    assert describe(matcher, SCOPE) == words


def test_a_time_has_an_example_in_the_unit_of_its_field() -> None:
    """[GEN-1] [GEN-2] A time in the wrong unit is a frequent mistake."""
    soon = {"$": "time", "within": 2}
    assert described(soon, 5, "created_at")[1] == "a time within 2 s of now, like 1786960010000"
    assert described(soon, 5, "at")[1] == "a time within 2 s of now, like 1786960010.0"


def test_a_message_always_has_a_subject() -> None:
    (exit_, looks) = predicates(
        [{"exit": "w2", "is": 0}, {"looks": "w1", "is": {"$": "range", "min": 4}}]
    )
    assert (exit_.subject, exit_.expected) == ("exit status of w2", "0")
    assert (looks.subject, looks.expected) == ("number of looks of w1 for due jobs", "at least 4")
    assert str(exit_) == "exit(w2) == 0"
    assert str(Miss("exit status of w2", "0", "running")) == (
        "exit status of w2: expected 0, seen running"
    )


def test_commands_are_told_as_commands() -> None:
    assert pattern_text(["LPUSH", "queue:a", {"$": "any"}]) == "LPUSH queue:a <any value>"
    assert pattern_text(["EVAL", *[{"$": "any"}] * 9, "("]) == "EVAL <any value> 9 times ("


def test_no_value_of_a_case_is_told_with_a_matcher() -> None:
    """Every expected value of every case, and every predicate, has words."""

    def within(value: Any) -> Any:
        yield value
        if isinstance(value, dict | list):
            for part in value.values() if isinstance(value, dict) else value:
                yield from within(part)

    for case in cases.load():
        for step in case.steps:
            if "check" not in step:
                continue
            for value in within({name: part for name, part in step.items() if name != "either"}):
                assert '{"$"' not in describe(value), (case.name, value)
            for part in predicates(step.get("that", ())):
                assert '{"$"' not in part.expected, (case.name, part)
