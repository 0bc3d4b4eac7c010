"""jobwire.protocol.template: its payloads equal those of `build` and `finalize`."""

from __future__ import annotations

import json
import string
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobwire.application.producer import Producer
from jobwire.errors import InvalidJob
from jobwire.protocol.active_job import WRAPPERS
from jobwire.protocol.keys import Keys
from jobwire.protocol.normalize import build, finalize
from jobwire.protocol.template import Template
from jobwire.protocol.times import Generation
from jobwire.protocol.unique import Scope, Unique
from jobwire.protocol.wire import Batch, Command

JID = "0123456789abcdef01234567"
SCOPES: list[Scope] = ["until_done", "until_start", "while_running", "for_time"]
texts = st.text(st.characters(codec="utf-8"), max_size=12)
names = st.text(string.ascii_letters + "%:_", min_size=1, max_size=12)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)
options = st.fixed_dictionaries(
    {},
    optional={
        "queue": names,
        "retry": st.none() | st.booleans() | st.integers(0, 30),
        "retry_for": st.none() | st.floats(0, 1e9),
        "dead": st.booleans(),
        "backtrace": st.booleans() | st.integers(0, 50),
        "tags": st.lists(texts, max_size=3),
    },
)
bounds = st.floats(0.001, 1e9)
wishes: st.SearchStrategy[Unique | float | None] = bounds | st.none()
wishes |= st.builds(
    Unique,
    bounds,
    by=st.none() | st.lists(st.integers(-4, 4), max_size=3) | st.just(lambda *args: list(args[1:])),
    scope=st.sampled_from(SCOPES),
)
classes = st.sampled_from(["Hard%b", *WRAPPERS])
active_jobs = st.fixed_dictionaries({"job_class": texts, "arguments": st.lists(values, max_size=2)})
fields = st.dictionaries(names.map(lambda name: "x" + name), values, max_size=3) | st.just(
    {"created_at": 1.5}
)
moments = st.none() | st.floats(0, 9e9)
clocks = st.floats(1.5e9, 2e9)
generations = st.sampled_from([7, 8])


@given(
    name=classes,
    args=st.lists(values, max_size=4) | st.lists(active_jobs, min_size=1, max_size=1),
    options=options,
    wish=wishes,
    fields=fields,
    at=moments,
    now=clocks,
    generation=generations,
)
def test_a_template_makes_the_same_bytes(
    name: str,
    args: list[Any],
    options: dict[str, Any],
    wish: Unique | float | None,
    fields: dict[str, Any],
    at: float | None,
    now: float,
    generation: Generation,
) -> None:
    """PUSH-3, PUSH-6, PAY-11, X-UNIQ-1: with any options, wishes, fields and times."""
    options = {**options, "unique": wish}
    common: dict[str, Any] = {"now": now, "generation": generation, "at": at, "fields": fields}
    slow = finalize(build(name, args, options, jid=JID, **common), now=now, generation=generation)
    template = Template(
        build(name, ["other"], options, jid="f" * 24, **common),
        now=now,
        generation=generation,
        by=wish.by if isinstance(wish, Unique) else None,
    )
    tail = template.tail(now)
    assert template.job(args, JID, tail, at=at, strict="raise") == slow
    together = template.jobs([args, tuple(args)], [JID, JID], [at, at], tail)
    assert together == (None if slow.lock else [slow, slow])


def producer(now: list[float], *, generation: Generation = 8) -> Producer:
    return Producer(
        Keys(),
        generation=generation,
        strict_args="raise",
        middleware=(),
        clock=lambda: now[0],
        new_jid=lambda: JID,
        draw=lambda: 0.0,
    )


def written(made: Producer, *args: Any, **rest: Any) -> bytes:
    """Return the payload that a push would write."""
    step = next(made.push(*args, **rest))
    command = step.steps[-1] if isinstance(step, Batch) else step
    assert isinstance(command, Command)
    text = command.args[-1]
    assert isinstance(text, bytes)
    return text


@given(
    jobs=st.lists(
        st.tuples(st.lists(values, max_size=3), options, moments, clocks), min_size=1, max_size=6
    ),
    generation=generations,
)
def test_a_producer_that_remembers_writes_what_one_without_memory_writes(
    jobs: Sequence[tuple[list[Any], dict[str, Any], float | None, float]], generation: Generation
) -> None:
    """PUSH-6: a template is used only for jobs that it fits."""
    now = [0.0]
    remembers = producer(now, generation=generation)
    for args, options, at, now[0] in [*jobs, *jobs]:
        fresh = producer(now, generation=generation)
        job = ("Hard", args, options)
        # A job with a given jid never uses a template.
        assert written(remembers, *job, at=at) == written(fresh, *job, at=at, jid=JID)


@pytest.mark.parametrize(("first", "second"), [(True, 1), (1, True), (0, False), (1.0, 1)])
def test_equal_options_of_different_types(first: object, second: object) -> None:
    """PUSH-4, PUSH-6: true is not 1, although Python finds them equal."""
    made = producer([1.0])
    for value in (first, second):
        if type(value) is float:
            with pytest.raises(InvalidJob, match="retry"):
                written(made, "A", [], {"retry": value})
        else:
            expected = b'{"retry":' + json.dumps(value).encode() + b","
            assert written(made, "A", [], {"retry": value}).startswith(expected)


class Text(str):
    __slots__ = ()


@pytest.mark.parametrize("spoilt", ["class", "option", "argument", "time"])
def test_what_is_refused_at_first_is_refused_at_second(spoilt: str) -> None:
    """PUSH-4, PUSH-5, SCHED-4: also if a template exists from earlier pushes."""
    made = producer([1.0])
    for _ in range(2):
        written(made, "A", [1], {"queue": "q"})
        written(made, "A", [1], {"queue": "q"}, at=5.0)
        job: Any = ("A", [1], {"queue": "q"})
        at: Any = None
        if spoilt == "class":
            job = (Text("A"), *job[1:])
        elif spoilt == "option":
            job = (*job[:2], {"queue": Text("q")})
        elif spoilt == "argument":
            job = ("A", [float("nan")], job[2])
        else:
            at = -5.0
        with pytest.raises(InvalidJob):
            written(made, *job, at=at)
