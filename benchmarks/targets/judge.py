"""The comparison of a median with its target, and with the teams that the target names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

__all__ = ["JOBWIRE", "LABELS", "SIDEKIQ", "YJIT", "Bar", "Sense", "TargetVerdict", "judge"]

JOBWIRE, SIDEKIQ, YJIT = "jobwire", "Sidekiq", "Sidekiq with YJIT"
LABELS = {SIDEKIQ: "Sidekiq without YJIT"}  # for a comparison, which must name the kind of Ruby

Sense = Literal["least", "most", "same"]


@dataclass(frozen=True)
class Bar:
    """A limit for a median: a figure, or a multiple of the best team's figure.

    Attributes:
        times: The factor for the best of `those`; the figure itself if there are none.
        those: Teams of the same run.
        faster: Factor that makes Sidekiq's figure that with YJIT, if the latter was not measured.
    """

    times: float
    those: tuple[str, ...] = ()
    faster: float | None = None


@dataclass(frozen=True)
class TargetVerdict:
    """The result of a comparison.

    Attributes:
        reached: None if a team to compare with was not measured.
        grounds: The factor to each team's figure, as text.
    """

    reached: bool | None
    grounds: tuple[str, ...] = ()

    def __str__(self) -> str:
        word = {True: "yes", False: "**no**", None: "open"}[self.reached]
        return f"{word}: {', '.join(self.grounds)}" if self.grounds else word


def judge(bars: Sequence[Bar], sense: Sense, medians: Mapping[str, float]) -> TargetVerdict | None:
    """Compare jobwire's median with all the bars.

    Args:
        bars: Those of one target.
        sense: The median must be at least, at most, or the same as each bar.
        medians: Medians by team, without the teams' versions.

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
        best = _best(bar, sense, medians)
        if best is None:
            held.append(None)
            grounds.append(f"no figure of {' or '.join(bar.those)}")
            continue
        label, theirs = best
        held.append(_holds(ours, bar.times * theirs, sense))
        grounds.append(f"{ours / theirs:.3f} times {label}")
    reached = False if False in held else None if None in held else True
    return TargetVerdict(reached, tuple(grounds))


def _holds(ours: float, wanted: float, sense: Sense) -> bool:
    if sense == "same":
        return ours == wanted
    return ours >= wanted if sense == "least" else ours <= wanted


def _best(bar: Bar, sense: Sense, medians: Mapping[str, float]) -> tuple[str, float] | None:
    """Return the best of the bar's teams, and its figure."""
    there = [name for name in bar.those if name in medians]
    if there:
        name = (min if sense == "most" else max)(there, key=lambda name: medians[name])
        return LABELS.get(name, name), medians[name]
    if bar.faster is not None and SIDEKIQ in medians:
        return f"{YJIT} (taken for {bar.faster:g} times without)", bar.faster * medians[SIDEKIQ]
    return None
