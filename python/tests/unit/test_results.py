"""protocol/results.py: the JSON of results. [X-RESULT-3] to [X-RESULT-6]"""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobwire.protocol import results
from jobwire.protocol.results import Members, ResultOutcome, failure_members, value_members
from jobwire.protocol.retry import Failure
from tests.rows import over
from tests.schemas import problems

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=6,
)  # fmt: skip


@given(JSON)
def test_a_value_comes_back(value: object) -> None:
    """X-RESULT-3: with the schema of writers."""
    text = results.result_to_store("j", 60, "done", value_members(value), now=1.5).text
    result = results.read("j", text)
    assert result is not None
    assert (result.outcome, result.at, result.value, result.problem) == ("done", 1.5, value, None)
    assert problems("result", "writer", json.loads(text)) == []


@pytest.mark.parametrize(
    "value",
    [{1, 2}, b"x", "\ud800", float("inf"), 10**5000],
    ids=["set", "bytes", "half", "inf", "long"],
)
def test_another_value_leaves_a_problem(value: object) -> None:
    """X-RESULT-5."""
    text = results.result_to_store("j", 60, "done", value_members(value), now=1.5).text
    fields = json.loads(text)
    assert set(fields) == {"outcome", "at", "problem"}
    assert problems("result", "writer", fields) == []


@pytest.mark.parametrize("outcome", ["retry", "dead", "discarded"])
def test_a_failure_is_text(outcome: ResultOutcome) -> None:
    """X-RESULT-4: cut and scrubbed as RETRY-3 asks."""
    members = failure_members(Failure("a.B", "x\ud800" * 9_000))
    fields = json.loads(results.result_to_store("j", 60, outcome, members, now=1).text)
    assert fields["error_class"] == "a.B"
    assert len(fields["error_message"]) == 10_000
    assert problems("result", "writer", fields) == []


def test_an_outcome_without_members() -> None:
    text = results.result_to_store("j", 60, "cancelled", Members(), now=1.5).text
    assert json.loads(text) == {"outcome": "cancelled", "at": 1.5}
    assert results.is_final(text)
    assert not results.is_final(b'{"outcome":"retry","at":1}')
    assert not results.is_final(None)


@over(
    ("value", "seconds"),
    [(1, 1), (0.2, 1), (10**9, 10**9), (10**9 + 1, 0), (0, 0), (float("nan"), 0), ("5", 0),
     (True, 0), (None, 0)],
)  # fmt: skip
def test_seconds_are_a_number_in_the_range(value: object, seconds: int) -> None:
    """X-RESULT-1."""
    assert results.keep_seconds(value) == seconds
