"""The numbers of a worker: sums, and limits of the number of time series."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobwire.monitoring.figures import (
    BUCKETS_S,
    MAX_CLASSES,
    OTHER,
    Classes,
    ClassFigures,
    Figures,
    merged,
)
from jobwire.monitoring.metrics import Histogram, worker_samples
from jobwire.protocol.metrics import BOUNDS, Metrics

SOME = st.builds(
    ClassFigures,
    st.integers(0, 9),
    st.integers(0, 9),
    st.integers(0, 9).map(float),
    st.tuples(*[st.integers(0, 9)] * (len(BUCKETS_S) + 1)),
)
FIGURES = st.builds(
    Figures, st.dictionaries(st.sampled_from("ABC"), SOME), *[st.integers(0, 9)] * 6
)


def once(name: str) -> dict[str, ClassFigures]:
    return {name: ClassFigures(1)}


@given(FIGURES, FIGURES, FIGURES)
def test_a_sum_does_not_depend_on_the_order(a: Figures, b: Figures, c: Figures) -> None:
    assert text(a + b + c) == text(c + (b + a))
    assert text(Figures() + a) == text(a + Figures())


def text(figures: Figures) -> bytes:
    return msgspec.json.encode(figures, order="deterministic")


@given(FIGURES)
def test_a_report_arrives_as_it_was_sent(figures: Figures) -> None:
    assert text(msgspec.json.decode(text(figures), type=Figures)) == text(figures)


@given(FIGURES)
def test_an_ended_process_leaves_its_counters(figures: Figures) -> None:
    left = figures.counters()
    assert (left.classes, left.fetches) == (figures.classes, figures.fetches)
    assert (left.executing, left.concurrency, left.memory, left.processes) == (0, 0, 0, 0)


def test_a_name_keeps_its_place_for_good() -> None:
    """Otherwise a counter would fall, which Prometheus takes for a restart."""
    classes = Classes()
    first = {f"c{n}": ClassFigures(1) for n in range(MAX_CLASSES - 1)}
    assert classes.limit(first) == first
    more = {**once("late"), **once("later"), **first, **once("latest")}
    limited = classes.limit(more)
    assert len(limited) == MAX_CLASSES + 1
    assert limited["late"].count == 1
    assert limited[OTHER].count == 2
    assert classes.limit(once("later")) == once(OTHER)


def test_odd_names_are_added_up() -> None:
    long = "x" * 500
    odd = {**once(long), **once(long + "y"), **once("\ud800"), **once(OTHER)}
    limited = Classes().limit(odd)
    assert {name: each.count for name, each in limited.items()} == {"x" * 200: 2, "?": 1, OTHER: 1}


@given(st.lists(st.integers(0, 5), min_size=len(BOUNDS) + 1, max_size=len(BOUNDS) + 1))
def test_buckets_keep_every_execution_below_its_bound(histogram: list[int]) -> None:
    """MET-11: the counters of Sidekiq's histogram, added up in pairs."""
    counts = merged(histogram)
    assert len(counts) == len(BUCKETS_S) + 1
    for index, bound in enumerate(BUCKETS_S):
        below = sum(histogram[: BOUNDS.index(round(bound * 1000)) + 1])
        assert sum(counts[: index + 1]) == below
    assert sum(counts) == sum(histogram)


def test_durations_are_exact_below_a_millisecond() -> None:
    """Sidekiq's sum has whole milliseconds, so quick jobs would take no time at all."""
    metrics = Metrics()
    thread = metrics.for_thread()
    for _ in range(1000):
        thread.record("Quick", 0.25, False)
    thread.record("Quick", 100.0, True)
    done = metrics.executions()["Quick"]
    assert (done.total, done.failed, done.microseconds) == (1001, 1, 250_000)


def test_a_histogram_is_cumulative() -> None:
    buckets = (1, 2, *[0] * (len(BUCKETS_S) - 2), 3)
    figures = Figures({"A": ClassFigures(7, 1, 1.5, buckets)})
    (value,) = (value for _, _, value in worker_samples(figures) if isinstance(value, Histogram))
    assert value.sum == pytest.approx(1.5)
    assert value.buckets[:3] == [("0.02", 1), ("0.045", 3), ("0.1", 3)]
    assert value.buckets[-1] == ("+Inf", 6)
