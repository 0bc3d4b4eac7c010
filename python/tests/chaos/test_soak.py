"""The soak run finds resources that grow."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.chaos.soak import Sample, grown

FLAT = [Sample(n * 1000, n * 1.0, 50_000, 14, 16, 20) for n in range(1, 21)]


def test_what_stays_the_same_is_all_right() -> None:
    wobbling = [
        replace(sample, rss_kib=50_000 + 1000 * (n % 4), files=20 + n % 3)
        for n, sample in enumerate(FLAT)
    ]
    assert grown(FLAT) == grown(wobbling) == []


def test_warm_up_does_not_count() -> None:
    assert grown([replace(FLAT[0], rss_kib=20_000, threads=3), *FLAT[1:]]) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"rss_kib": 56_000}, "memory: from 50000 to 56000 KiB"),
        ({"threads": 17}, "threads: from 14 to 17"),
        ({"connections": 19}, "connections: from 16 to 19"),
        ({"files": 23}, "files: from 20 to 23"),
    ],
)
def test_what_grows_is_found(change: dict[str, Any], words: str) -> None:
    assert grown([*FLAT[:-1], replace(FLAT[-1], **change)]) == [words]
