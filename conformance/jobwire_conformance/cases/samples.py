"""Tests of many values that an implementation draws at random.

`chances` computes how often a right implementation fails them.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence

__all__ = ["MAX_ALIKE", "MAX_SHARE", "MIN_SHARE", "PARTS", "is_random", "unevenness"]

_LEAST_TEXTS = 3
MAX_ALIKE = 4  # positions at which all texts have the same digit
PARTS = 10
MIN_SHARE, MAX_SHARE = 0.45, 1.6  # of the expected number in a part
_WIDEST = 2.5  # of the mean gap; that of 1,000 draws is about 7
_DISTINCT = 0.9  # of the draws


def is_random(texts: Sequence[str]) -> bool:
    """Return whether texts of digits may have been drawn at random, each on its own.

    A counter, a clock or the id of a process gives the same digits at many positions. A UUID of
    version 4 has one such position.
    """
    if len(texts) < _LEAST_TEXTS or len({len(text) for text in texts}) != 1:
        return False
    alike = sum(len(set(digits)) == 1 for digits in zip(*texts, strict=True))
    return len(set(texts)) == len(texts) and alike <= MAX_ALIKE


def unevenness(draws: Sequence[float], low: float, high: float) -> str | None:
    """Return why many numbers are not uniform draws between two others; None if they may be.

    Args:
        draws: The numbers, at least 1,000, in rising order.
        low: The smallest possible number.
        high: The largest possible number.
    """
    if not low <= draws[0] <= draws[-1] <= high:
        return f"draws from {draws[0]:.3f} to {draws[-1]:.3f}"
    expected = len(draws) / PARTS
    counts = Counter(min(int((x - low) / (high - low) * PARTS), PARTS - 1) for x in draws)
    for part in range(PARTS):
        if not MIN_SHARE * expected <= counts[part] <= MAX_SHARE * expected:
            return f"{counts[part]} draws in part {part + 1} of {PARTS}"
    if (distinct := len(set(draws))) < _DISTINCT * len(draws):
        return f"{distinct} different draws"
    widest = max(after - before for before, after in itertools.pairwise(draws))
    if widest < _WIDEST * (high - low) / len(draws):
        return f"draws in lock-step, never more than {widest:.4f} apart"
    return None
