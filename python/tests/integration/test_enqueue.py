"""Jobs that enqueue themselves."""

from __future__ import annotations

import asyncio
import json
import warnings
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest

from harness.servers import Server
from jobwire import App, InvalidJob
from jobwire.inspect import Inspector
from tests.integration.clients import everything


def double(a: int, b: str = "x") -> None: ...


def test_jobs_enqueue_themselves(server: Server) -> None:
    """PAY-11, SCHED-2: every way to enqueue, with options of the definition and of the call."""
    app = App(server.url, generation=8)
    job = app.job(name="Reports::Double", queue="low", retry=3)(double)
    jids = [
        job.enqueue(1),
        job.enqueue(2, b="y"),
        job.options(queue="high", tags=["t"]).enqueue(3),
        job.enqueue_in(60, 4),
        job.enqueue_at(datetime(2096, 10, 2, 7, 6, 40, tzinfo=UTC), 5),
        *job.enqueue_bulk([[6], [7, "z"]]),
    ]
    app.client.close()
    check_enqueued(server, jids)


def test_jobs_enqueue_themselves_from_asyncio(server: Server) -> None:
    """PAY-11 and SCHED-2: the same through the asyncio twins."""
    app = App(server.url, generation=8)
    job = app.job(name="Reports::Double", queue="low", retry=3)(double)

    async def scenario() -> list[str | None]:
        jids = [
            await job.aenqueue(1),
            await job.aenqueue(2, b="y"),
            await job.options(queue="high", tags=["t"]).aenqueue(3),
            await job.aenqueue_in(60, 4),
            await job.aenqueue_at(datetime(2096, 10, 2, 7, 6, 40, tzinfo=UTC), 5),
            *await job.aenqueue_bulk([[6], [7, "z"]]),
        ]
        await app.aclient.close()
        return jids

    check_enqueued(server, asyncio.run(scenario()))


def test_signatures_enqueue_what_their_jobs_enqueue(server: Server) -> None:
    """PAY-11 and SCHED-2: each way to enqueue has the same effect for a job with its arguments."""
    app = App(server.url, generation=8)
    job = app.job(name="Reports::Double", queue="low", retry=3)(double)
    jids = [
        job.s(1).enqueue(),
        job.s(2, b="y").enqueue(),
        job.options(queue="high", tags=["t"]).s(3).enqueue(),
        job.s(4).enqueue_in(60),
        job.s(5).enqueue_at(datetime(2096, 10, 2, 7, 6, 40, tzinfo=UTC)),
        *app.client.push_many([job.s(6), job.s(7, "z")]),
    ]
    app.client.close()
    check_enqueued(server, jids)


def test_signatures_enqueue_from_asyncio(server: Server) -> None:
    app = App(server.url, generation=8)
    job = app.job(name="Reports::Double", queue="low", retry=3)(double)

    async def scenario() -> list[str | None]:
        jids = [
            await job.s(1).aenqueue(),
            await job.s(2, b="y").aenqueue(),
            await job.options(queue="high", tags=["t"]).s(3).aenqueue(),
            await job.s(4).aenqueue_in(60),
            await job.s(5).aenqueue_at(datetime(2096, 10, 2, 7, 6, 40, tzinfo=UTC)),
            *await app.aclient.push_many([job.s(6), job.s(7, "z")]),
        ]
        await app.aclient.close()
        return jids

    check_enqueued(server, asyncio.run(scenario()))


def test_a_signature_is_a_value(server: Server) -> None:
    """It is equal to another with the same job and arguments, and does not change with them."""
    app = App(server.url, generation=8)
    job = app.job(double)
    given: Any = [1]
    signature = job.s(given, b="y")
    given.append(2)
    assert signature == job.s([1], "y")  # type: ignore[arg-type]
    assert signature != job.s([1], "x")  # type: ignore[arg-type]
    assert signature != job.options(queue="low").s([1], "y")  # type: ignore[arg-type]
    assert repr(signature) == f"{job.name}.s([1], 'y')"
    with pytest.raises(AttributeError):
        signature.args = [5]  # type: ignore[misc]
    assert signature.enqueue() != signature.enqueue()
    app.client.close()


def test_a_signature_refuses_what_a_push_refuses(server: Server) -> None:
    """PUSH-5 and PUSH-10: its arguments when it is made, and the whole job when it is pushed."""
    app = App(server.url, generation=8, max_payload_bytes=300)

    @app.job
    def on(day: date, count: Any = 0) -> None: ...

    assert on.s(date(2026, 11, 29)).args == ["2026-11-29"]
    with pytest.raises(TypeError, match="missing a required argument: 'day'"):
        on.s()  # type: ignore[call-arg]
    with pytest.raises(InvalidJob, match=r"args\[0\]: 5 does not fit parameter 'day: date'"):
        on.s(5)  # type: ignore[arg-type]
    with pytest.raises(InvalidJob, match=r"on: args\[1\]: .* is set, for which JSON has no type"):
        on.s(date(2026, 11, 29), {5})
    many = [on.s(date(2026, 11, 29)), on.s(date(2026, 11, 29), "x" * 300)]
    with pytest.raises(InvalidJob, match=r"on: job 1: the payload has \d+ bytes"):
        app.client.push_many(many)
    assert everything(server) == {}
    app.client.close()


def test_an_awaited_blocking_call_pushes_nothing(server: Server) -> None:
    app = App(server.url, generation=8)
    job = app.job(double)
    args: Any = [1]
    named: Any = {"b": "y"}
    twin = r"^{0}\(\) cannot be awaited, and did nothing; use `await ...a{0}\(\)`$".format

    async def scenario() -> None:
        with pytest.raises(TypeError, match=twin("enqueue")):
            await job.enqueue(1)  # type: ignore[misc]
        with pytest.raises(TypeError, match=twin("enqueue_in")):
            await job.options(queue="low").enqueue_in(60, *args, **named)  # type: ignore[misc]
        with pytest.raises(TypeError, match=twin("enqueue_at")):
            [await job.enqueue_at(60, 1, b="y")]  # type: ignore[misc]
        with pytest.raises(TypeError, match=twin("enqueue_bulk")):
            await job.enqueue_bulk([[1]])  # type: ignore[misc]
        with pytest.raises(TypeError, match=r"use AsyncClient or `app.aclient`$"):
            await app.client.push("double", [1])  # type: ignore[misc]

    asyncio.run(scenario())
    assert everything(server) == {}


def test_a_blocking_call_in_a_coroutine_warns_once_for_each_line(server: Server) -> None:
    app = App(server.url, generation=8)
    job = app.job(double)

    async def scenario() -> None:
        for _ in range(3):
            job.enqueue(1)
        app.client.push("double", [2])
        inspector.stats()

    with Inspector(server.url) as inspector, warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("default")
        asyncio.run(scenario())
    app.client.close()
    assert [(Path(each.filename), str(each.message)) for each in seen] == [
        (Path(__file__), f"{name}() in a coroutine blocks its event loop; {twin}")
        for name, twin in [
            ("enqueue", "use `await ...aenqueue()`"),
            ("push", "use AsyncClient or `app.aclient`"),
            ("stats", "use AsyncInspector"),
        ]
    ]
    assert len(everything(server)[b"queue:default"]) == 4


def check_enqueued(server: Server, jids: list[str | None]) -> None:
    found = everything(server)
    low = [json.loads(text) for text in reversed(found[b"queue:low"])]
    [high] = [json.loads(text) for text in found[b"queue:high"]]
    later = [json.loads(text) for text, _ in found[b"schedule"]]
    assert [each["args"] for each in low] == [[1], [2, "y"], [6], [7, "z"]]
    assert (high["args"], high["tags"], high["retry"]) == ([3], ["t"], 3)
    assert [each["args"] for each in later] == [[4], [5]]
    assert found[b"schedule"][1][1] == 4e9
    every = [*low, high, *later]
    assert {each["jid"] for each in every} == set(jids)
    assert {each["class"] for each in every} == {"Reports::Double"}
    assert {each["retry"] for each in every} == {3}
