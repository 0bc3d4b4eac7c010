"""Whether a median reaches what is aimed at, and against whom that was judged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

__all__ = ["JOBWIRE", "LABELS", "SIDEKIQ", "YJIT", "Bar", "Sense", "TargetVerdict", "judge"]

JOBWIRE, SIDEKIQ, YJIT = "jobwire", "Sidekiq", "Sidekiq with YJIT"
LABELS = {SIDEKIQ: "Sidekiq without YJIT"}  # which Ruby, wherever a figure is compared

Sense = Literal["least", "most", "same"]


@dataclass(frozen=True)
class Bar:
    """What a median is held against.

    Attributes:
        times: How many times the best of those; the figure itself if there are none.
        those: Teams of the same run.
        faster: How many times Sidekiq's figure stands for that with YJIT, if that was not measured.
    """

    times: float
    those: tuple[str, ...] = ()
    faster: float | None = None


@dataclass(frozen=True)
class TargetVerdict:
    """What came of it.

    Attributes:
        reached: None if somebody to compare with was not measured.
        grounds: How many times whose figure it is, for people.
    """

    reached: bool | None
    grounds: tuple[str, ...] = ()

    def __str__(self) -> str:
        word = {True: "yes", False: "**no**", None: "open"}[self.reached]
        return f"{word}: {', '.join(self.grounds)}" if self.grounds else word


def judge(bars: Sequence[Bar], sense: Sense, medians: Mapping[str, float]) -> TargetVerdict | None:
    """Hold jobwire's median against all the bars.

    Args:
        bars: Of one target.
        sense: Whether the median has to be that at least, at most, or the same.
        medians: By teams, without their versions.

    Returns:
        None if jobwire was not measured.
    """
    if JOBWIRE not in medians:
        return None
    ours = medians[JOBWIRE]
    held: list[bool | None] = []
    grounds: list[str] = []
    for bar in bars:
        if not bar.those:
            held.append(_holds(ours, bar.times, sense))
            continue
        found = _best(bar, sense, medians)
        if found is None:
            held.append(None)
            grounds.append(f"no figure of {' or '.join(bar.those)}")
            continue
        label, theirs = found
        held.append(_holds(ours, bar.times * theirs, sense))
        grounds.append(f"{ours / theirs:.3f} times {label}")
    reached = False if False in held else None if None in held else True
    return TargetVerdict(reached, tuple(grounds))


def _holds(ours: float, wanted: float, sense: Sense) -> bool:
    if sense == "same":
        return ours == wanted
    return ours >= wanted if sense == "least" else ours <= wanted


def _best(bar: Bar, sense: Sense, medians: Mapping[str, float]) -> tuple[str, float] | None:
    """Return who of those was best, and the figure."""
    there = [name for name in bar.those if name in medians]
    if there:
        name = (min if sense == "most" else max)(there, key=lambda name: medians[name])
        return LABELS.get(name, name), medians[name]
    if bar.faster is not None and SIDEKIQ in medians:
        return f"{YJIT} (taken for {bar.faster:g} times without)", bar.faster * medians[SIDEKIQ]
    return None
