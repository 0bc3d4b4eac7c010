"""jobwire.protocol.retry: the outcome of a job that failed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobwire.protocol.payload import decode
from jobwire.protocol.poison import poisoned
from jobwire.protocol.retry import (
    Discard,
    Failure,
    Kill,
    Retry,
    after_failure,
    retry_delay,
)
from jobwire.protocol.times import Generation
from tests.rows import over

NOW = 1_795_192_067.25
ABSENT = object()
BOOM = Failure("ValueError", "boom", ["line 1", "line 2", "line 3"])


def fail(
    fields: dict[str, Any] | bytes,
    failure: Failure = BOOM,
    *,
    generation: Generation = 8,
    jitter: float = 0.0,
    queue: str = "default",
    **settings: Any,
) -> Retry | Kill | Discard:
    """Return the decision for a payload with these fields."""
    text = fields if isinstance(fields, bytes) else json.dumps(fields).encode()
    return after_failure(
        decode(text, queue), failure, now=NOW, jitter=jitter, generation=generation, **settings
    )


def stored(outcome: Retry | Kill | Discard) -> dict[str, Any]:
    assert not isinstance(outcome, Discard)
    fields: dict[str, Any] = json.loads(outcome.text)
    return fields


def test_first_failure_generation_8() -> None:
    """RETRY-2, RETRY-3, RETRY-9, RETRY-20, GEN-2: fields appended in Sidekiq's order."""
    before = b'{"retry":true,"queue":"default","args":[1.50],"class":"A","jid":"j"'
    outcome = fail(before + b"}")
    assert outcome == Retry(
        before + b',"error_message":"boom","error_class":"ValueError",'
        b'"failed_at":1795192067250,"retry_count":0}',
        at=NOW + 15,
        count=0,
    )


def test_second_failure_generation_7() -> None:
    """RETRY-17, RETRY-18, GEN-1: failed_at stays, retried_at is new; fields keep their place."""
    outcome = fail(
        b'{"retry":3,"queue":"default","class":"A","error_message":"old","error_class":"E",'
        b'"failed_at":1795190000.0,"retry_count":0,"cattr":{"a":[1e2]}}',
        generation=7,
    )
    assert outcome == Retry(
        b'{"retry":3,"queue":"default","class":"A","error_message":"boom",'
        b'"error_class":"ValueError","failed_at":1795190000.0,"retry_count":1,'
        b'"cattr":{"a":[1e2]},"retried_at":1795192067.25}',
        at=NOW + 16,
        count=1,
    )


def test_backtrace_stands_between_count_and_retried_at() -> None:
    """RETRY-8: the documented order of new fields."""
    names = list(stored(fail({"retry": True, "backtrace": True})))
    assert names[-3:] == ["failed_at", "retry_count", "error_backtrace"]


def test_the_default_limit_can_be_set() -> None:
    """RETRY-1: the limit of `true`, not of a number."""
    assert type(fail({"retry": True, "retry_count": 0}, max_retries=1)) is Kill
    assert type(fail({"retry": 5, "retry_count": 0}, max_retries=1)) is Retry
    assert type(fail({"retry": True}, max_retries=0)) is Kill


AGO_MS = int(NOW * 1000) - 60_000
TIME_LIMITS: list[tuple[dict[str, Any], type]] = [
    ({"retry_for": 0}, Kill),
    ({"retry_for": 10}, Retry),
    ({"retry_for": 61, "retry_count": 100, "failed_at": AGO_MS}, Retry),
    ({"retry_for": 59, "retry_count": 0, "failed_at": AGO_MS}, Kill),
    ({"retry_for": 61, "retry_count": 0, "failed_at": NOW - 60}, Retry),
    ({"retry_for": 59, "retry_count": 0, "failed_at": NOW - 60}, Kill),
    ({"retry_for": 59, "retry_count": 0, "failed_at": int(NOW) - 60}, Kill),
    ({"retry_for": None, "retry_count": 24}, Kill),
    ({"retry_for": False, "retry_count": 24}, Kill),
    ({"retry_for": 10, "retry": 0}, Retry),
    ({"retry_for": 10, "retry": -1}, Retry),
    ({"retry_for": 10, "retry": False}, Discard),
    ({"retry_for": 10**400}, Retry),
    ({"retry_for": 10, "retry_count": 10**400}, Retry),
    ({"retry_for": 10, "failed_at": 10**400}, Retry),
]


@over(("fields", "kind"), TIME_LIMITS, ids=[json.dumps(f)[:70] for f, _ in TIME_LIMITS])
def test_retry_for(fields: dict[str, Any], kind: type) -> None:
    """RETRY-6, RETRY-21, RETRY-29: replaces the count, also 0; any form of failed_at (GEN-3)."""
    assert type(fail({"retry": True} | fields)) is kind


@over(
    ("dead", "kind"),
    [(False, Discard), (True, Kill), (None, Kill), (0, Kill), ("false", Kill)],
)
def test_dead(dead: Any, kind: type) -> None:
    """DEAD-4: only the literal false counts. DEAD-1: otherwise the exhausted job is killed."""
    assert type(fail({"retry": 0, "dead": dead})) is kind
    assert type(fail({"retry": 1, "dead": dead})) is Retry


@pytest.mark.parametrize(
    ("before", "after"),
    [
        *[(0, 1), (-1, 0), (-5, -4), (2.5, 3), (3.0, 4), (-0.5, 1), (1e300, int(1e300) + 1)],
        *[(None, 0), (ABSENT, 0), ("3", 0), (True, 0), (False, 0), ([], 0), ({"a": 1}, 0)],
    ],
    ids=lambda value: f"{value!r:.20}",
)
def test_any_retry_count(before: Any, after: int) -> None:
    """RETRY-19: a number counts as its integer part, anything else as a first failure."""
    fields = {"retry": 10**400, "retry_count": before, "failed_at": 5}
    outcome = fail({name: value for name, value in fields.items() if value is not ABSENT})
    assert isinstance(outcome, Retry)
    assert (outcome.count, stored(outcome)["retry_count"]) == (after, after)
    first = before is ABSENT or isinstance(before, bool) or not isinstance(before, int | float)
    assert stored(outcome)["failed_at"] == (int(NOW * 1000) if first else 5)
    assert ("retried_at" in stored(outcome)) is not first
    assert outcome.at == NOW + retry_delay(min(max(after, 0), 200), jitter=0.0)


@pytest.mark.parametrize(
    ("retry_for", "kind"),
    [
        *[("3600", Retry), ("", Retry), (True, Retry), ([], Retry), ({"a": 1}, Retry)],
        *[(-1, Kill), (-(10**400), Kill), (0.0, Kill), (60.5, Retry), (59.5, Kill), (1e300, Retry)],
    ],
    ids=lambda value: f"{value!r:.20}",
)
def test_any_retry_for(retry_for: Any, kind: type) -> None:
    """RETRY-19: only a number sets a time limit, in seconds, also with a fraction."""
    fields = {"retry": 2, "retry_for": retry_for, "retry_count": 0, "failed_at": NOW - 60}
    assert type(fail(fields)) is kind
    limited = isinstance(retry_for, float) or type(retry_for) is int
    outcome = fail({**fields, "retry_count": 1, "failed_at": "x"})
    assert type(outcome) is (Retry if limited and retry_for > 0 else Kill)  # 2 is the last count
    assert stored(outcome)["failed_at"] == (int(NOW * 1000) if limited else "x")


@over(
    ("message", "kept"),
    [
        ("", ""),
        ("x" * 10_001, "x" * 10_000),
        ("é" * 10_001, "é" * 10_000),
        ("😀" * 10_001, "😀" * 10_000),
        ("a\udcffb", "a\ufffdb"),
        ("\ud800", "\ufffd"),
        ("line\n\x00", "line\n\x00"),
    ],
)
def test_error_message(message: str, kept: str) -> None:
    """RETRY-3: characters, not bytes; text that UTF-8 cannot encode is replaced."""
    outcome = fail({"retry": True}, Failure("E", message))
    assert stored(outcome)["error_message"] == kept
    assert decode(outcome.text, "q").get("error_message") == kept


def test_what_the_job_did_to_its_arguments_is_not_stored() -> None:
    """EXEC-5 and PAY-7: the payload is stored as fetched, with big integers and unknown fields."""
    text = (
        b'{"retry":true,"queue":"default","args":[[1],12345678901234567890],"bid":"b","x":1.0e+2}'
    )
    job = decode(text, "default")
    job.args[0].append("wreck")
    job.fields["x"] = None
    outcome = after_failure(job, BOOM, now=NOW, jitter=0, generation=8)
    assert isinstance(outcome, Retry)
    assert outcome.text.startswith(text[:-1])


def test_delay_refuses_a_negative_count() -> None:
    with pytest.raises(ValueError, match="retry_count is negative: -1"):
        retry_delay(-1, jitter=0.0)


TEXT = b'{"retry":5,"queue":"q","class":"Killer","args":[1.50,12345678901234567890],"dead":false'
MESSAGE = b"not run again: 4 processes died while they held this job; the limit is 3"
ERROR = b',"error_message":"%s","error_class":"jobwire.PoisonPill"' % MESSAGE


@pytest.mark.parametrize(("generation", "stamp"), [(7, b"1795192067.25"), (8, b"1795192067250")])
def test_the_reason_is_in_the_payload(generation: Generation, stamp: bytes) -> None:
    """REL-10, GEN-1 and PAY-7: the fields of a failure, without a retry count."""
    fate = poisoned(decode(TEXT + b"}", "q"), 4, now=NOW, generation=generation)
    assert fate is not None
    assert fate.text == TEXT + ERROR + b',"failed_at":' + stamp + b"}"
    assert not fate.counted


def test_a_job_that_had_failed_before_keeps_the_time_of_its_first_failure() -> None:
    """REL-10: and the job keeps its retry count."""
    before = b',"failed_at":1795190000000,"retry_count":2'
    fate = poisoned(decode(TEXT + before + b"}", "q"), 4, now=NOW, generation=8)
    assert fate is not None
    assert fate.text == TEXT + before + ERROR + b',"retried_at":1795192067250}'


@given(recovered=st.integers(0, 50), limit=st.integers(0, 50))
def test_it_takes_more_recoveries_than_the_limit(recovered: int, limit: int) -> None:
    """REL-10: the limit itself is allowed."""
    job = decode(TEXT + b"}", "q")
    fate = poisoned(job, recovered, now=NOW, generation=8, limit=limit)
    assert (fate is not None) == (recovered > limit)
