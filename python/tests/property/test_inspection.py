"""The inspector never fails on odd data in Redis."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.servers import Server
from jobwire.cli.inspect import details, executions, views
from jobwire.cli.pretty import console, draw
from jobwire.cli.table import Table, exact, readable
from jobwire.errors import JobwireError
from jobwire.inspect import Filter, Inspector, SetName
from jobwire.inspect.entry import entry
from jobwire.inspect.formats import ago, clean, duration, to_json
from tests.profiles import examples
from tests.property.test_payload import OBJECTS, TEXT, VALUES, spelled

NOW = 1_795_192_067.25
FIELDS = st.sampled_from(
    [
        *("class", "args", "jid", "queue", "retry", "retry_count", "created_at", "enqueued_at"),
        *("failed_at", "retried_at", "error_class", "error_message", "error_backtrace", "tags"),
        *("wrapped", "display_class", "encrypt", "at", "bid"),
    ]
)
WRAPPERS = st.sampled_from(
    ["Sidekiq::ActiveJob::Wrapper", "ActiveJob::QueueAdapters::SidekiqAdapter::JobWrapper"]
)
MAILERS = st.sampled_from(["ActionMailer::DeliveryJob", "ActionMailer::MailDeliveryJob"])
JOBS = st.builds(
    lambda odd, some: odd | some,
    st.dictionaries(FIELDS, VALUES | st.text(max_size=5), max_size=8),
    st.fixed_dictionaries(
        {},
        optional={
            "class": WRAPPERS,
            "wrapped": MAILERS,
            "args": st.lists(
                st.fixed_dictionaries({"arguments": st.lists(VALUES, max_size=5) | VALUES})
            ),
        },
    ),
)


@st.composite
def texts(draw: st.DrawFn) -> bytes:
    """Return texts that may be stored in place of a payload, a record or an info."""
    kind = draw(st.integers(0, 5))
    if kind == 0:
        return draw(st.binary(max_size=30))
    value = draw(JOBS if kind < 4 else VALUES | OBJECTS)
    text = draw(spelled(value)).encode("utf-8", "surrogatepass")
    if kind == 3:
        return text[: draw(st.integers(0, len(text)))]
    if kind == 5:
        return b'{"a":' * 150 + text
    return text


SCORES = st.floats(allow_nan=False)
NAMES = st.sampled_from(["default", "q\n*", "fîle"]).map(str.encode) | st.binary(
    min_size=1, max_size=6
)
VALUE_OF_KEY = st.one_of(
    st.tuples(st.just("string"), texts() | st.integers().map(lambda n: str(n).encode())),
    st.tuples(st.just("list"), st.lists(texts(), min_size=1, max_size=4)),
    st.tuples(st.just("set"), st.lists(NAMES, min_size=1, max_size=4)),
    st.tuples(st.just("zset"), st.lists(st.tuples(texts(), SCORES), min_size=1, max_size=4)),
    st.tuples(
        st.just("hash"),
        st.dictionaries(
            st.sampled_from(
                [b"info", b"busy", b"beat", b"quiet", b"ex", b"c", b"rt", b"cancelled", b"A|p"]
            )
            | NAMES,
            texts(),
            min_size=1,
            max_size=5,
        ),
    ),
)
KEYS = [
    *("queues", "schedule", "retry", "dead", "jobwire:unreadable", "processes", "stat:processed"),
    *("stat:failed", "stat:processed:2026-11-20", "jobwire:owners", "jobwire:returned"),
    *("jobwire:paused", "jobwire:stat:recovered", "queue:default", "p", "p:work", "p:workers"),
    *("jobwire:private:p", "it-a", "j|261120|16:27", "h|A-20-16:27", "20261120-marks"),
]


@pytest.mark.process
@settings(
    max_examples=examples(60),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(state=st.dictionaries(st.sampled_from(KEYS), VALUE_OF_KEY, max_size=12))
def test_any_value_of_any_key_is_looked_at(server: Server, state: dict[str, Any]) -> None:
    """INSP-3, INSP-11, INSP-12: wrong types, broken text, huge numbers, in every key at once."""
    client = server.client()
    client.flushdb()
    for key, (kind, value) in state.items():
        match kind:
            case "string":
                client.set(key, value)
            case "list":
                client.rpush(key, *value)
            case "set":
                client.sadd(key, *value)
            case "zset":
                client.zadd(key, dict(value))
            case "hash":
                client.hset(key, mapping=value)
    # Some of the data is reached only through these names.
    for key in ("processes", "jobwire:owners"):
        if client.type(key) in (b"none", b"set"):
            client.sadd(key, "p")
    client.close()
    with Inspector(server.url, clock=lambda: NOW) as inspector:
        for make in tables(inspector):
            shown(make())
        assert to_json(inspector.stats())
        sets: list[SetName] = ["schedule", "retry", "dead", "unreadable"]
        entries = [each for name in sets for each in inspector.entries(name)]
        for each in entries:
            key = "jobwire:unreadable" if each.place == "unreadable" else each.place
            assert each.payload in dict(state[key][1])
            shown(details.one_job(each, None, NOW))
        for each in entries:
            for change in (inspector.retry, inspector.kill, inspector.delete):
                # The call may fail with an error of jobwire, and with no other.
                with suppress(JobwireError):
                    change(each)


def tables(inspector: Inspector) -> list[Any]:
    only = Filter(class_name="*", older_than=0.0, error="")
    return [
        lambda: views.stats(inspector),
        lambda: views.history(inspector, 2),
        lambda: views.queues(inspector),
        *(
            lambda name=each.name, some=some: views.queue(inspector, name, some, NOW)
            for each in inspector.queues()
            for some in (Filter(), only)
        ),
        *(
            lambda name=name: views.jobs(inspector, name, Filter(), NOW)
            for name in ("schedule", "retry", "dead", "unreadable")
        ),
        lambda: views.jobs(inspector, "retry", only, NOW, "a*"),
        lambda: views.processes(inspector, NOW),
        lambda: views.works(inspector, Filter(), NOW),
        lambda: views.holdings(inspector, NOW),
        lambda: views.iterations(inspector, (), NOW),
        lambda: executions.metrics(inspector, None, minutes=5, hours=None, generation=8),
        lambda: executions.metrics(inspector, "A", minutes=5, hours=None, generation=8),
    ]


def shown(table: Table) -> None:
    """Print a table in every form, and drop the output."""
    table = replace(table, items=list(table.items))
    for item in table.items:
        json.loads(to_json(table.record(item)))
        for cell in table.row(item):
            assert readable(cell).isprintable()
            assert exact(cell).isprintable()
    out = console()
    with out.capture():
        out.print(draw(table, None, 80))


@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.too_slow])
@given(text=texts(), score=st.none() | SCORES, now=st.floats(0, 1e12))
def test_any_entry_can_be_asked_anything(text: bytes, score: float | None, now: float) -> None:
    """INSP-3: every property has a value, and the bytes stay unchanged."""
    odd = entry(text, "dead", score)
    assert odd.payload == text
    for name in dir(type(odd)):
        if isinstance(getattr(type(odd), name), property):
            getattr(odd, name)
    odd.latency(now)
    assert (odd.problem is None) == (odd.fault is None)
    json.loads(to_json(views.entry_record(odd)))
    for only in (Filter(jid="x"), Filter(tag="x"), Filter(error="x"), Filter(older_than=1.0)):
        assert only.matches(odd, now=now) in (True, False)


@given(text=TEXT | st.text(), seconds=st.floats(allow_nan=False))
def test_anything_can_be_printed(text: str, seconds: float) -> None:
    """SEC-5: no control character reaches the terminal; times are readable."""
    assert clean(text).isprintable()
    assert duration(seconds).isprintable()
    assert ago(seconds, NOW)
