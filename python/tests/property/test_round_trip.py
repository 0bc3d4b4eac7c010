"""Payloads from the schema, through the reference and back: schema, judge and reference agree."""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobwire.protocol.payload import decode, encode
from jobwire_conformance.judge.payloads import PLACES, Place, View
from jobwire_conformance.spec import verdicts
from tests.profiles import examples
from tests.schema_strategies import TEXT, payloads, text
from tests.schemas import problems

pytestmark = pytest.mark.process

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
