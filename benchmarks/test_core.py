"""Payloads and decisions: the work of a client before it writes, of a worker after it reads."""

from __future__ import annotations

import random
from typing import Any

import pytest

from jobwire.protocol.normalize import Options, build, finalize
from jobwire.protocol.ordering import QueueOrder
from jobwire.protocol.payload import decode, edit, encode
from jobwire.protocol.promotion import promoted
from jobwire.protocol.retry import Failure, after_failure
from jobwire.protocol.template import Template

NOW = 1_795_191_255.424
JID = "e34de6da087912413162142e"
SMALL: list[Any] = [1, "two", True]
LARGE: list[Any] = [{"rows": [{"id": n, "name": f"name {n}", "rate": n / 7} for n in range(100)]}]
SIZES = pytest.mark.parametrize("args", [SMALL, LARGE], ids=["small", "large"])
OPTIONS: Options = {"queue": "default", "retry": 5}


def payload(args: list[Any], **fields: Any) -> bytes:
    item = build("HardJob", args, OPTIONS, jid=JID, now=NOW, generation=8)
    text = finalize(item, now=NOW, generation=8).text
    return edit(text, fields) if fields else text


@SIZES
def test_draft_and_seal(benchmark: Any, args: list[Any]) -> None:
    def push() -> bytes:
        item = build("HardJob", args, OPTIONS, jid=JID, now=NOW, generation=8)
        return finalize(item, now=NOW, generation=8).text

    assert benchmark(push) == payload(args)


@SIZES
def test_template(benchmark: Any, args: list[Any]) -> None:
    item = build("HardJob", args, OPTIONS, jid=JID, now=NOW, generation=8)
    template = Template(item, now=NOW, generation=8)

    def push() -> bytes:
        return template.job(args, JID, template.tail(NOW), at=None, strict="raise").text

    assert benchmark(push) == payload(args)


@SIZES
def test_encode(benchmark: Any, args: list[Any]) -> None:
    assert benchmark(encode, decode(payload(args), "default").fields) == payload(args)


@SIZES
def test_decode(benchmark: Any, args: list[Any]) -> None:
    assert benchmark(decode, payload(args), "default").args == args


@SIZES
def test_edit(benchmark: Any, args: list[Any]) -> None:
    assert b'"x":1' in benchmark(edit, payload(args), {"queue": "low", "x": 1})


@pytest.mark.parametrize("count", [None, 3], ids=["first", "fourth"])
@pytest.mark.parametrize("backtrace", [False, True], ids=["bare", "backtrace"])
def test_after_failure(benchmark: Any, count: int | None, backtrace: bool) -> None:
    fields = {} if count is None else {"retry_count": count, "failed_at": 1_795_191_255_424}
    job = decode(payload(SMALL, backtrace=backtrace, **fields), "default")
    failure = Failure("ValueError", "boom", [f"jobs.py:{n}:in run" for n in range(30)])
    benchmark(after_failure, job, failure, now=NOW, jitter=0.5, generation=8)


@pytest.mark.parametrize(
    "weights",
    [{"default": 0}, dict.fromkeys("abcdefghij", 1), {"high": 10, "mid": 5, "low": 1}],
    ids=["strict", "ten", "weighted"],
)
def test_queue_order(benchmark: Any, weights: dict[str, int]) -> None:
    assert sorted(benchmark(QueueOrder(weights).pick, random.shuffle)) == sorted(weights)


@SIZES
def test_promoted(benchmark: Any, args: list[Any]) -> None:
    item = build("HardJob", args, OPTIONS, jid=JID, now=NOW, generation=8, at=NOW + 60)
    text = finalize(item, now=NOW, generation=8).text
    assert benchmark(promoted, text, now=NOW + 61, generation=8)[0] == "default"
