"""jobwire.protocol.normalize: from the arguments of a call to the payload that is written."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from jobwire.errors import InvalidJob
from jobwire.protocol.normalize import JobFields, build, check_options, finalize
from jobwire.protocol.times import Generation
from tests.rows import over

NOW = 1_786_960_000.25
JID = "9f2c1b7a4d3e5f60718293a4"


def make(args: list[Any] | None = None, generation: Generation = 8, **rest: Any) -> JobFields:
    """Return the item of a HardJob; `rest` are options and the function's own parameters."""
    own: dict[str, Any] = {name: rest.pop(name) for name in ("at", "fields", "jid") if name in rest}
    name = rest.pop("class_name", "HardJob")
    given: dict[str, Any] = {"jid": JID, "now": NOW, "generation": generation} | own
    return build(name, [1, "x"] if args is None else args, rest, **given)


def text(item: JobFields, generation: Generation = 8) -> bytes:
    return finalize(item, now=NOW, generation=generation).text


def test_first_push_of_generation_8() -> None:
    """PAY-11: order of keys. PUSH-3: both times. GEN-2: milliseconds. PUSH-6: defaults."""
    assert text(make()) == (
        b'{"retry":true,"queue":"default","args":[1,"x"],"class":"HardJob",'
        b'"jid":"9f2c1b7a4d3e5f60718293a4","created_at":1786960000250,"enqueued_at":1786960000250}'
    )


def test_options_stand_between_the_defaults_and_the_arguments() -> None:
    """PAY-11: other options after retry and queue."""
    options: dict[str, Any] = {
        "tags": ("a", "b"),
        "retry": 5,
        "dead": False,
        "backtrace": 20,
        "retry_for": 3600.0,
        "retry_queue": "low",
        "log_level": "debug",
    }
    assert text(make(**options)).startswith(
        b'{"retry":5,"queue":"default","tags":["a","b"],"dead":false,"backtrace":20,'
        b'"retry_for":3600,"retry_queue":"low","log_level":"debug","args":'
    )


ACCEPTED: list[tuple[str, list[Any]]] = [
    ("retry", [True, False, None, 0, 1, 10**6]),
    ("retry_for", [None, 0, 1, 1.5, 1_000_000_000]),
    ("backtrace", [True, False, None, 0, 20]),
    ("tags", [None, [], ["a"], ("a", "b")]),
    ("dead", [True, False, None]),
    ("queue", ["default", "a:b|c", "ü"]),
    ("retry_queue", [None, "low"]),
    ("log_level", [None, "debug", "fatal", 0, 5]),
]
REFUSED: list[tuple[str, list[Any]]] = [
    ("retry", [-1, 1.0, "5", [], math.nan]),
    ("retry_for", [-1, 1_000_000_001, 1e9 + 1, math.nan, math.inf, "60", True, 10**400]),
    ("backtrace", [-1, 1.5, "all", []]),
    ("tags", ["billing", [1], [None], 5, {"a": 1}, b"x"]),
    ("dead", [0, "no"]),
    ("queue", [None, "", 5, b"low", ["low"]]),
    ("retry_queue", ["", 5]),
    ("log_level", [[], 1.5, 6, -1, True, "loud"]),
]


def pairs(table: list[tuple[str, list[Any]]]) -> list[tuple[str, Any]]:
    return [(option, value) for option, values in table for value in values]


@over(("option", "value"), pairs(ACCEPTED))
def test_accepted_options(option: str, value: Any) -> None:
    """PUSH-4: valid options are written."""
    assert f'"{option}":'.encode() in text(make(**{option: value}))


@over(("option", "value"), pairs(REFUSED))
def test_refused_options(option: str, value: Any) -> None:
    """PUSH-4: the error names the option."""
    with pytest.raises(InvalidJob) as caught:
        make(**{option: value})
    assert (caught.value.rule, caught.value.field) == ("PUSH-4", option)


@over(("option", "value"), pairs(REFUSED))
def test_options_that_middleware_spoils(option: str, value: Any) -> None:
    """PUSH-4 and PUSH-18: the item is checked again after middleware."""
    with pytest.raises(InvalidJob) as caught:
        text(make() | {option: value})
    assert caught.value.field == option


@over("option", ["tags", "retry_for", "backtrace", "log_level", "dead"])
def test_options_among_further_fields(option: str) -> None:
    """PUSH-4: options among the further fields are also checked."""
    with pytest.raises(InvalidJob) as caught:
        text(make(fields={option: {"no": "good"}}))
    assert caught.value.field == option


@pytest.mark.parametrize(
    ("name", "hint"), [("queu", "did you mean 'queue'"), ("priority", "known: queue, retry")]
)
def test_unknown_options_get_a_hint(name: str, hint: str) -> None:
    with pytest.raises(InvalidJob, match=hint):
        check_options({name: 1})


@over("name", ["", " A", "A\n", None, 5, b"A", ["A"]])
def test_class_has_to_be_a_name(name: Any) -> None:
    """PAY-12: the class is a non-empty string."""
    with pytest.raises(InvalidJob, match=r"class: .* is not a class name"):
        make(class_name=name)


@pytest.mark.parametrize("jid", ["", 5, None])
def test_jid_has_to_be_a_text(jid: Any) -> None:
    """PAY-9: every job has a jid."""
    with pytest.raises(InvalidJob, match="jid: "):
        make(jid=jid)


@over("at", [-1, 1e11, math.nan, "60", True])
def test_at_has_to_be_a_time(at: Any) -> None:
    """SCHED-4, and PUSH-4: a boolean or a numeric string is not a number."""
    with pytest.raises(InvalidJob) as caught:
        make(at=at)
    assert caught.value.rule == "SCHED-4"


def drop(field: str) -> Callable[[JobFields], None]:
    return lambda item: item.pop(field)


def put(field: Any, value: Any) -> Callable[[JobFields], None]:
    return lambda item: item.update({field: value})


@over(
    ("spoil", "field"),
    [
        (drop("class"), "class"),
        (drop("args"), "args"),
        (drop("jid"), "jid"),
        (drop("queue"), "queue"),
        (drop("retry"), "retry"),
        (put("class", ""), "class"),
        (put("args", "abc"), "args"),
        (put("args", {"a": 1}), "args"),
        (put("args", None), "args"),
        (put("args", [{1, 2}]), "args[0]"),
        (put("at", "soon"), "at"),
        (put("at", -1), "at"),
        (put("custom", {"a": math.inf}), "custom['a']"),
        (put("custom", object()), "custom"),
        (put(5, "x"), ""),
    ],
)
def test_items_that_middleware_spoils(spoil: Callable[[JobFields], None], field: str) -> None:
    """PUSH-4, PUSH-18, PAY-8, PAY-12 and PAY-30: an invalid item is refused."""
    item = make()
    spoil(item)
    with pytest.raises(InvalidJob) as caught:
        text(item)
    assert caught.value.field == field


def test_depth_of_further_fields() -> None:
    """PAY-3: the limit is for the payload, not for args alone."""
    value: Any = 1
    for _ in range(99):
        value = [value]
    text(make(fields={"x": value}))
    with pytest.raises(InvalidJob) as caught:
        text(make(fields={"x": [value]}))
    assert caught.value.rule == "PAY-3"


def test_integers_that_cannot_be_spelled_are_refused() -> None:
    """PAY-5: an integer is written exactly or refused."""
    text(make([10**4_299]))
    with pytest.raises(InvalidJob) as caught:
        text(make([10**4_300]))
    assert caught.value.rule == "PAY-5"


def test_the_callers_own_values_are_left_alone() -> None:
    options = {"tags": ["a"]}
    args = [[1]]
    item = make(args, 8, **options)
    item["tags"].append("b")
    item["args"].append(2)
    assert (options, args) == ({"tags": ["a"]}, [[1]])


@pytest.mark.parametrize("spoil", [drop("created_at"), put("created_at", None)])
def test_a_time_of_creation_that_middleware_removed_is_new(
    spoil: Callable[[JobFields], None],
) -> None:
    """PUSH-11: it is set where it is absent or null, also after middleware."""
    item = make()
    spoil(item)
    assert b'"created_at":1786960000250' in text(item)
