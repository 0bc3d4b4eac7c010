"""jobwire.console.web.sizes: samples of the sizes of queues, in bounded memory."""

from __future__ import annotations

import re
from collections.abc import Mapping

from jobwire.console.web import charts
from jobwire.console.web.sizes import EVERY_S, KEPT_S, MAX_QUEUES, SizeLine, Sizes
from jobwire.inspect.summary import QueueSummary


def add(sizes: Sizes, at: float, queues: Mapping[str, int]) -> None:
    sizes.add(at, [QueueSummary(name, size, 0.0, paused=False) for name, size in queues.items()])


def test_at_most_one_sample_in_ten_seconds() -> None:
    sizes = Sizes()
    assert (sizes.of("q"), sizes.since) == (None, None)
    for second in range(25):
        add(sizes, 100.0 + second, {"q": second})
    line = sizes.of("q")
    assert line == SizeLine((100.0, 110.0, 120.0), (0, 10, 20))
    assert line.seconds == 20.0
    assert sizes.since == 100.0


def test_the_last_hour_is_kept() -> None:
    sizes = Sizes()
    for number in range(1000):
        add(sizes, number * EVERY_S, {"q": number})
    line = sizes.of("q")
    assert line is not None
    assert line.seconds == KEPT_S
    assert line.sizes == tuple(range(639, 1000))
    add(sizes, 1e6, {"q": 5})
    assert sizes.of("q") == SizeLine((1e6,), (5,))


def test_a_younger_queue_has_the_times_of_its_own_samples() -> None:
    sizes = Sizes()
    add(sizes, 0.0, {"old": 1})
    add(sizes, 10.0, {"old": 2, "new": 7})
    add(sizes, 20.0, {"old": 3, "new": 8})
    assert sizes.of("new") == SizeLine((10.0, 20.0), (7, 8))
    assert sizes.of("old") == SizeLine((0.0, 10.0, 20.0), (1, 2, 3))


def test_a_queue_that_is_gone_is_empty_and_forgotten_after_the_hour() -> None:
    """Sidekiq takes its name away when it deletes all jobs; the line shows the fall."""
    sizes = Sizes()
    add(sizes, 0.0, {"q": 9, "empty": 0})
    add(sizes, 10.0, {})
    assert sizes.of("q") == SizeLine((0.0, 10.0), (9, 0))
    assert sizes.of("empty") is None
    add(sizes, 10.0 + KEPT_S, {"q": 0})
    assert sizes.of("q") == SizeLine((10.0, 10.0 + KEPT_S), (0, 0))
    add(sizes, 20.0 + KEPT_S, {})
    assert sizes.of("q") is None


def test_only_the_longest_queues_are_kept() -> None:
    sizes = Sizes()
    queues = dict.fromkeys((f"q{number}" for number in range(3 * MAX_QUEUES)), 0)
    add(sizes, 0.0, queues | {"long": 5})
    kept = {name for name in queues if sizes.of(name)}
    assert len(kept) == MAX_QUEUES - 1
    add(sizes, 10.0, {"a-new-one": 0} | queues | {"long": 6})
    assert {name for name in queues if sizes.of(name)} == kept  # of equal ones, the same
    assert sizes.of("a-new-one") is None
    assert sizes.of("long") == SizeLine((0.0, 10.0), (5, 6))
    add(sizes, 20.0, {name: 1 for name in queues if name not in kept} | {"long": 0})
    assert not any(sizes.of(name) for name in kept)
    assert len(sizes._lines) == MAX_QUEUES


def test_a_clock_that_is_set_back_begins_anew() -> None:
    sizes = Sizes()
    add(sizes, 5000.0, {"q": 1})
    add(sizes, 100.0, {"q": 2})
    assert sizes.of("q") == SizeLine((100.0,), (2,))
    add(sizes, 110.0, {"q": 3})
    assert sizes.of("q") == SizeLine((100.0, 110.0), (2, 3))


def points(svg: str) -> list[str]:
    return re.findall(r'<polyline points="([^"]*)"/>', svg)


def test_a_line_is_interrupted_where_samples_are_missing() -> None:
    svg = charts.timeline((0.0, 10.0, 90.0, 100.0), (0, 4, 8, 2), gap=20, title='a "b" <c>')
    assert points(svg) == ["0.0,22.0 10.0,12.0", "90.0,2.0 100.0,17.0"]
    assert 'aria-label="a &#34;b&#34; &lt;c&gt;"' in svg
    assert "style" not in svg
    assert points(charts.timeline((7.0,), (3,), gap=1, title="")) == ["0.0,2.0 0.0,2.0"]
    assert points(charts.timeline((), (), gap=1, title="")) == []
    assert points(charts.sparkline([0, 1, 2], title="")) == ["0.0,22.0 50.0,12.0 100.0,2.0"]
