"""The payload schema against our reader, our writers, and the requirements, in both directions."""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Callable
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobwire.errors import MalformedPayload
from jobwire.protocol.payload import decode, encode
from jobwire.protocol.promotion import promoted
from jobwire.protocol.retry import Failure, Kill, Retry, after_failure
from jobwire_conformance.judge.payloads import PLACES, Place, View
from jobwire_conformance.spec import verdicts
from tests.profiles import examples
from tests.rows import over
from tests.schema_strategies import TEXT, VALUES, payloads, text
from tests.schemas import ABSENT, blames, mutant, problems

pytestmark = pytest.mark.process

NOW = 1795192067.25
Generation = Literal[7, 8]
GENERATION = pytest.mark.parametrize("generation", [7, 8])
PARTS = ("writer", "queue", "pushed", "schedule", "scheduled", "retry", "dead")
NAMES = {7: "7.3", 8: "8.1"}
FEW = settings(max_examples=examples(40))


def same(one: object, other: object) -> bool:
    """Compare exactly: 1, 1.0 and True differ."""
    return json.dumps(one) == json.dumps(other)


@pytest.mark.parametrize("part", PARTS)
@GENERATION
@FEW
@given(data=st.data())
def test_what_the_schema_allows_we_read(
    part: str, generation: Generation, data: st.DataObject
) -> None:
    """PAY-1, PAY-5 to PAY-7: and every value stays unchanged."""
    payload = data.draw(payloads(f"{part}-{NAMES[generation]}"))
    assert problems("payload", f"{part}-{NAMES[generation]}", payload) == []
    assert problems("payload", "reader", payload) == []
    job = decode(text(payload), "fetched")
    assert same(job.fields, payload)
    assert (job.class_name, job.jid) == (payload["class"], payload.get("jid"))


@pytest.mark.parametrize("part", ["scheduled", "retry"])
@GENERATION
@FEW
@given(data=st.data())
def test_promotion_keeps_to_the_schema(
    part: str, generation: Generation, data: st.DataObject
) -> None:
    """SCHED-6: promotion changes only `enqueued_at`, and adds a missing `created_at`."""
    payload = data.draw(payloads(f"{part}-{NAMES[generation]}"))
    queue, moved = promoted(text(payload), now=NOW, generation=generation)
    after = json.loads(moved)
    on_queue = "queue" if "jid" in payload else "writer"
    assert problems("payload", f"{on_queue}-{NAMES[generation]}", after) == []
    assert queue == payload["queue"]
    if "created_at" not in payload:
        del after["created_at"]
    assert same({**after, "enqueued_at": 0}, {**payload, "enqueued_at": 0})


@GENERATION
@FEW
@given(data=st.data())
def test_promotion_by_the_other_generation_is_read_by_all(
    generation: Generation, data: st.DataObject
) -> None:
    """GEN-3: such a payload is of neither generation."""
    payload = data.draw(payloads(f"scheduled-{NAMES[generation]}"))
    other: Generation = 8 if generation == 7 else 7
    _, moved = promoted(text(payload), now=NOW, generation=other)
    after = json.loads(moved)
    assert problems("payload", "reader", after) == []
    assert problems("payload", "writer-7.3", after) != []
    assert problems("payload", "writer-8.1", after) != []


FAILURES = st.builds(
    Failure,
    error_class=TEXT,
    message=st.text(max_size=20) | st.just("é" * 10_001),
    backtrace=st.lists(TEXT, max_size=3),
)


@pytest.mark.parametrize("part", ["writer", "pushed"])
@GENERATION
@FEW
@given(data=st.data(), failure=FAILURES)
def test_a_failure_keeps_to_the_schema(
    part: str, generation: Generation, data: st.DataObject, failure: Failure
) -> None:
    """RETRY-1 to RETRY-8, DEAD-1: only the fields of a failure change."""
    payload = data.draw(payloads(f"{part}-{NAMES[generation]}"))
    outcome = after_failure(
        decode(text(payload), "fetched"),
        failure,
        now=NOW,
        jitter=0.5,
        generation=generation,
        default_retry=True,
    )
    if not isinstance(outcome, Retry | Kill):
        assert payload["retry"] is False or payload["dead"] is False
        return
    place = "retry" if isinstance(outcome, Retry) else "dead"
    after = json.loads(outcome.text)
    assert problems("payload", f"{place}-{NAMES[generation]}", after) == []
    # A payload in the dead set also fits the schema of `retry`.
    assert problems("payload", f"retry-{NAMES[generation]}", after) == []
    kept = [field for field in payload if field not in FAILURE_FIELDS]
    assert same([after[field] for field in kept], [payload[field] for field in kept])


FAILURE_FIELDS = {"retry", "queue", "error_message", "error_class", "error_backtrace"} | {
    *("failed_at", "retry_count", "retried_at"),
}


# Values that the requirements allow in each field of a member of `retry`, without the schema.
Allows = Callable[[Any], bool]


def is_text(value: Any) -> bool:
    return isinstance(value, str)


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_whole(value: Any) -> bool:
    """True if a schema accepts the value as an integer; see BEYOND for 1.0."""
    return is_number(value) and value == value // 1


def or_null(allows: Allows) -> Allows:
    return lambda value: value is None or allows(value)


def count(value: Any) -> bool:
    return is_whole(value) and value >= 0


def seconds(value: Any) -> bool:
    return is_number(value) and 0 <= value < 10**11


def milliseconds(value: Any) -> bool:
    return is_whole(value) and value >= 10**11


def base64_text(value: Any) -> bool:
    return is_text(value) and re.fullmatch("[A-Za-z0-9+/]*={0,2}", value) is not None


def level(value: Any) -> bool:
    """True if Sidekiq knows this log level; it loses a job with another."""
    return value in ("debug", "info", "warn", "error", "fatal") or (
        is_whole(value) and 0 <= value <= 5
    )


ALLOWED: dict[str, tuple[Allows, str]] = {
    "class": (lambda v: is_text(v) and v != "", "PAY-12 PUSH-4"),
    "args": (lambda v: isinstance(v, list), "PAY-30"),
    "jid": (lambda v: is_text(v) and v != "", "PAY-9"),
    "queue": (lambda v: is_text(v) and v != "", "PUSH-4 PUSH-6"),
    "retry": (lambda v: v is True or count(v), "PUSH-4 PUSH-6 RETRY-1"),
    "at": (lambda _: False, "SCHED-12"),
    "retry_count": (count, "RETRY-2 RETRY-17"),
    "error_message": (lambda v: is_text(v) and len(v) <= 10_000, "RETRY-3"),
    "error_class": (or_null(is_text), "RETRY-3"),
    "backtrace": (or_null(lambda v: isinstance(v, bool) or count(v)), "PUSH-4"),
    "retry_queue": (or_null(lambda v: is_text(v) and v != ""), "RETRY-7"),
    "dead": (or_null(lambda v: isinstance(v, bool)), "DEAD-4"),
    "log_level": (or_null(level), "PUSH-4"),
    "retry_for": (or_null(lambda v: is_number(v) and 0 <= v <= 10**9), "PUSH-4"),
    "tags": (or_null(lambda v: isinstance(v, list) and all(map(is_text, v))), "PUSH-4"),
}
TIMES = ("created_at", "enqueued_at", "failed_at", "retried_at")
OF_GENERATION: dict[int, dict[str, tuple[Allows, str]]] = {
    7: {
        **dict.fromkeys(TIMES, (seconds, "GEN-1 RETRY-2 RETRY-17")),
        "error_backtrace": (base64_text, "RETRY-8"),
    },
    8: {
        **dict.fromkeys(TIMES, (milliseconds, "GEN-2 RETRY-2 RETRY-17")),
        "error_backtrace": (base64_text, "RETRY-8"),
    },
}
# Other fields decide if a field may be absent: see RETRY-2 and RETRY-3.
NEEDED = {"class", "args", "queue", "retry"} | {
    *("failed_at", "retry_count", "error_message", "error_class", "retried_at"),
}
ODD = (
    VALUES
    | st.sampled_from(
        ["", "5", "true", "info", "loud", "a" * 24, "A" * 24, "0" * 24, [], [1], ["a"], {}, None]
    )
    | st.sampled_from([-2, -1, 0, 10**9, 10**9 + 1, 10**11 - 1, 10**11, 1e11, 1.5, 1e9 + 0.5])
    | st.sampled_from(["é" * 10_000, "é" * 10_001, "eJyLjgUAARUAuQ==", "a.b"])
    | st.just(ABSENT)
)


@GENERATION
@settings(max_examples=examples(400))
@given(data=st.data(), value=ODD)
def test_a_single_field_is_rejected_where_a_requirement_forbids_it(
    generation: Generation, data: st.DataObject, value: object
) -> None:
    """The schema rejects exactly these values, and names that requirement."""
    rules = {**ALLOWED, **OF_GENERATION[generation]}
    field = data.draw(st.sampled_from(sorted(rules)))
    failed_twice = {"retry_count": 3, "retried_at": TIME[generation]}
    payload = {**WHOLE[generation], **failed_twice}
    if value is ABSENT and field not in payload:
        return
    changed = mutant(payload, field, value)
    allows, requirements = rules[field]
    forbidden = field in NEEDED if value is ABSENT else not allows(value)
    rejected_by = blames("payload", f"retry-{NAMES[generation]}", changed)
    assert bool(rejected_by) == forbidden
    named = " ".join(rejected_by)
    assert not forbidden or any(f"[{one}]" in named for one in requirements.split())


TIME: dict[int, float] = {7: 1795192067.25, 8: 1795192067250}
WHOLE: dict[int, dict[str, Any]] = {
    generation: {
        "retry": True,
        "queue": "default",
        "backtrace": True,
        "tags": ["billing"],
        "args": [1, "x"],
        "class": "HardJob",
        "jid": "9f2c1b7a4d3e5f60718293a4",
        "created_at": time,
        "enqueued_at": time,
        "error_message": "boom",
        "error_class": "RuntimeError",
        "failed_at": time,
        "retry_count": 0,
        "error_backtrace": "eJyLjgUAARUAuQ==",
    }
    for generation, time in TIME.items()
}


# Single changes that a requirement forbids and no schema finds: the requirement, the reason, the
# old and the new text. Each is tested, so that no change stays here that a schema could reject.
SPELLING = "JSON Schema sees the same value"
BEYOND: list[tuple[Generation, str, str, str, str]] = [
    (7, "GEN-1", SPELLING, '"created_at":1795192067.25', '"created_at":1795192067'),
    (8, "GEN-2", SPELLING, '"created_at":1795192067250', '"created_at":1795192067250.0'),
    (8, "GEN-2", SPELLING, '"created_at":1795192067250', '"created_at":1.79519206725e12'),
    (8, "RETRY-2", SPELLING, '"retry_count":0', '"retry_count":0.0'),
    (8, "PAY-33", SPELLING, '"args":[1,"x"]', '"args":[1.50,"x"]'),
    (8, "PAY-2", SPELLING, '"args":[1,"x"]', '"args": [1, "x"]'),
    (8, "PAY-21", SPELLING, '"x"', '"\\u0078"'),
    (8, "PAY-21", SPELLING, '"billing"', '"bil\\/ling"'),
    (8, "PAY-20", SPELLING, '"x"', '"\\u000a"'),
    (8, "PAY-20", SPELLING, '"x"', '"\\u001F"'),
    (8, "PAY-6", SPELLING, '"args":[1,"x"]', '"args":[1e400,"x"]'),
    (8, "PAY-8", "a parser keeps one of the two", '"args":', '"args":[2],"args":'),
    (8, "PAY-3", "a schema has no depth", "[1,", "[" + "[" * 99 + "1" + "]" * 99 + ","),
    (8, "PAY-9", "a value does not show its source", "9f2c1b7a4d3e5f60718293a4", "0" * 24),
    (8, "RETRY-8", "base64 and zlib hide it", "eJyLjgUAARUAuQ==", "AAAA"),
    (8, "RETRY-8", "a pattern does not count to four", "eJyLjgUAARUAuQ==", "AAAAA="),
    (8, "RETRY-2", "it depends on the payload before", '"retry_count":0', '"retry_count":-1'),
    (8, "RETRY-3", "an escape is well-formed text", '"boom"', '"\\ud800"'),
    (8, "RETRY-7", "one needs to know the list", '"queue":"default"', '"queue":"other"'),
    (8, "KEY-2", "a name may begin so", '"queue":"default"', '"queue":"queue:default"'),
    (8, "KEY-5", "any client may add fields", '"class"', '"tracing":1,"class"'),
    (8, "PUSH-3", "one needs a clock", '"enqueued_at":1795192067250', '"enqueued_at":111111111111'),
    (8, "PAY-7", "it depends on the payload before", '"args":[1,"x"]', '"args":[]'),
]


@over(("generation", "requirement", "reason", "old", "new"), BEYOND)
def test_what_is_beyond_the_schema(
    generation: Generation, requirement: str, reason: str, old: str, new: str
) -> None:
    """The schema accepts them; a change that a schema or parser rejects must leave the table."""
    before = text(WHOLE[generation]).decode()
    assert old in before, f"{requirement} ({reason}) changes nothing"
    after = before.replace(old, new, 1)
    assert problems("payload", f"writer-{NAMES[generation]}", json.loads(after)) == []


@pytest.mark.parametrize(
    ("requirement", "spoilt"),
    [
        ("PAY-1", b"\xef\xbb\xbf{}"),
        ("PAY-1", b'{"class":"\xff"}'),
        ("PAY-1", b"\x7b\x00\x7d\x00"),
        ("PAY-4", b'{"args":[NaN]}'),
        ("PAY-4", b'{"args":[-Infinity]}'),
        ("PAY-5", b'{"args":[1e999]}'),
    ],
)
def test_what_is_no_json_never_reaches_a_schema(requirement: str, spoilt: bytes) -> None:
    """EXEC-3: the reader rejects the bytes first."""
    with pytest.raises(MalformedPayload) as caught:
        decode(spoilt, "default")
    assert caught.value.rule == "EXEC-3"


GENERATIONS = ("6.4", "7.3", "8.1")


@st.composite
def written(draw: st.DrawFn, place: Place, generation: str) -> dict[str, Any]:
    """Draw a payload that a writer of a generation may write there."""
    payload: dict[str, Any] = draw(payloads(f"{place}-{generation}"))
    if "error_backtrace" in payload:  # a pattern does not see inside
        lines = draw(st.lists(TEXT, max_size=3))
        most = payload.get("backtrace")
        kept = lines[:most] if type(most) is int else lines
        packed = zlib.compress(json.dumps(kept).encode())
        payload["error_backtrace"] = base64.b64encode(packed).decode()
    return payload


def broken(payload: bytes, view: View) -> list[str]:
    judged = verdicts.judge(payload, view)
    return [f"{v.rule} {v.path} {v.problem}" for v in judged if v.broken]


@pytest.mark.parametrize("generation", GENERATIONS)
@pytest.mark.parametrize("place", PLACES)
@settings(max_examples=examples(1000) // 10)
@given(data=st.data())
def test_schema_reference_and_text_agree(
    place: Place, generation: str, data: st.DataObject
) -> None:
    """PAY-1, PAY-2, PAY-5, PAY-6, PAY-7: each value and each byte stays through a round trip."""
    payload = data.draw(written(place, generation))
    assert problems("payload", f"{place}-{generation}", payload) == []
    encoded = encode(payload)
    assert broken(encoded, View("writer", place, generation)) == []
    assert broken(encoded, View("reader", place)) == []
    job = decode(encoded, "default")
    assert json.dumps(job.fields) == json.dumps(payload)
    assert encode(job.fields) == encoded
    assert json.dumps(json.loads(encoded)) == json.dumps(payload)
    # Another writer spells exponents differently, and nothing else.
    other = text(payload)
    assert broken(other, View("writer", place, generation)) == []
    assert json.dumps(decode(other, "default").fields) == json.dumps(payload)
