"""Matchers of cases against values, and the words of a failed comparison."""

from __future__ import annotations

import base64
import itertools
import json
import random
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from jobwire_conformance import data
from jobwire_conformance.cases import case, chances
from jobwire_conformance.cases import case as cases
from jobwire_conformance.cases.case import Case
from jobwire_conformance.cases.describe import describe, in_words, pattern_text, show
from jobwire_conformance.cases.match import Scope, difference, matches
from jobwire_conformance.cases.predicates import predicates
from jobwire_conformance.cases.values import ABSENT, plain
from jobwire_conformance.run import retry_jitter
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

    for each in cases.load():
        for step in each.steps:
            if "check" not in step:
                continue
            for value in within({name: part for name, part in step.items() if name != "either"}):
                assert '{"$"' not in describe(value), (each.name, value)
            for part in predicates(step.get("that", ())):
                assert '{"$"' not in part.expected, (each.name, part)


# -- The rates of false alarms, and the judgement of random draws. [RETRY-4] [RETRY-11]

ROLLS = [*itertools.product(range(4), repeat=5)]


def rate_of(step: dict[str, object]) -> float:
    made = Case("t", "", ("worker/retry",), None, data.GENERATIONS, (), (), (step,), None)
    return sum(chance.rate for chance in chances.chances([made]))


@pytest.mark.parametrize(("distinct", "span"), [(1, 2), (2, 0), (3, 0)])
def test_the_chance_of_few_draws_is_that_of_all_rolls(distinct: int, span: int) -> None:
    """[RETRY-15]"""
    short = sum(max(roll) - min(roll) < span for roll in ROLLS)
    alike = sum(len(set(roll)) < distinct for roll in ROLLS)
    wanted = {"base": 15, "below": 4, "distinct": distinct, "span": span}
    rate = rate_of({"check": "RETRY-15", "len": 5, "draws": wanted})
    assert rate == pytest.approx((short + alike) / len(ROLLS))


def test_no_check_fails_more_often_than_the_limit() -> None:
    found = chances.chances(case.load())
    assert {"RETRY-4", "RETRY-15", "PAY-28", "FETCH-4", "BULK-4"} <= {c.requirement for c in found}
    for chance in found:
        assert chance.rate < chances.LIMIT, chance


NOW = 1_790_000_000.25
WANTED = {"base": 6576, "below": 100, "distinct": 5, "span": 80}


def members(delays: Sequence[float], **fields: object) -> tuple[list[bytes], list[float]]:
    """Return payloads that failed at NOW, and their scores."""
    times = fields or {"failed_at": 5, "retried_at": int(NOW * 1000)}
    text = json.dumps(times).encode()
    return [text] * len(delays), [NOW + delay for delay in delays]


def seen(delays: Sequence[float], **fields: object) -> object:
    """Return what is not as wanted."""
    return retry_jitter.problem(*members(delays, **fields), WANTED)


@pytest.mark.parametrize(
    "draw",
    [lambda: random.randrange(100), lambda: random.randrange(10) * 10],
    ids=["generation 8", "generations 6 and 7"],
)
def test_a_draw_of_each_generation_passes(draw: Callable[[], int]) -> None:
    assert seen([6576 + draw() for _ in range(200)]) is None


@pytest.mark.parametrize("cut", ["times", "scores", "both"])
def test_a_clock_that_is_cut_to_seconds_passes(cut: str) -> None:
    """[PUSH-3]"""
    moments = [NOW + number / 97 for number in range(200)]
    texts = [
        json.dumps({"retried_at": int(at) * 1000 if cut != "scores" else int(at * 1000)}).encode()
        for at in moments
    ]
    draws = [number * 37 % 100 for number in range(len(moments))]
    due = [
        (int(at) if cut != "times" else at) + 6576 + draw
        for at, draw in zip(moments, draws, strict=True)
    ]
    assert retry_jitter.problem(texts, due, WANTED) is None
    assert retry_jitter.problem(texts, [at + 3 for at in due], WANTED) is not None


def test_a_clock_that_was_read_twice_passes() -> None:
    assert seen([6576 + number + 0.03 for number in range(100)]) is None
    stood_still = [6576 + number + (0.6 if number == 7 else 0) for number in range(100)]
    assert seen(stood_still) is None


@over(
    ("delays", "wanted"),
    [
        ([6576.0] * 200, "80 s"),
        ([6576.0 + number % 50 for number in range(200)], "80 s"),
        ([6576.0 + number % 2 * 90 for number in range(200)], "5 different"),
        ([6576 + number / 2 - 0.25 for number in range(200)], "whole"),
        ([6576.0 + number for number in range(200)], "from 6576, below 6676"),
        ([6561.0 + number % 100 for number in range(200)], "from 6576, below 6676"),
    ],
    ids=["none", "half", "two numbers", "fractions", "too large", "another base"],
)
def test_another_draw_fails(delays: Sequence[float], wanted: str) -> None:
    found = retry_jitter.problem(*members(delays), WANTED)
    assert found is not None
    assert str(found[0]).startswith(wanted)


def test_the_time_of_the_failure_has_either_unit_and_either_name() -> None:
    delays = [6576.0 + number for number in range(100)]
    assert seen(delays, retried_at=NOW) is None
    assert seen(delays, failed_at=int(NOW * 1000)) is None
    assert seen(delays, retry_count=1) is not None
