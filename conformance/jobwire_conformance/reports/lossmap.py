"""The loss map: the fate of a job after its process was cut off, by loss window."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jobwire_conformance.reports.results import Fate, Loss, Summary

__all__ = ["FATES", "WINDOWS", "Row", "rows"]

FATES: Mapping[Fate, str] = {
    "kept": "it ran once",
    "lost": "it never ran, and Redis does not hold it",
    "duplicated": "it ran more than once, or ran and is still in Redis",
    "stuck": "Redis holds it, and no worker runs it",
}
"""The fates of a job, with their meanings."""

WINDOWS: Mapping[str, str] = {
    "LW-1": "from the fetch to the storing of the outcome",
    "LW-2": "from the removal of a due job to its push",
    "LW-3": "from an inspector's removal to the push or kill that follows",
}
"""The loss windows of SPEC.md, section 20."""


@dataclass(frozen=True, slots=True)
class Row:
    """One window of the map.

    Attributes:
        window: Name of the window, or name of the case if its points belong to no window.
        meaning: Description of the window.
        counts: Number of points by fate.
        points: The points, in the order of the run.
    """

    window: str
    meaning: str
    counts: Mapping[Fate, int]
    points: Sequence[Loss]


def rows(results: Summary) -> list[Row]:
    """Return the map, with a row for each window of the run."""
    groups: dict[str, list[Loss]] = {}
    for loss in results.get("loss_map", ()):
        groups.setdefault(loss.get("window") or loss["case"], []).append(loss)
    return [
        Row(
            window,
            WINDOWS.get(window, "points of this case"),
            Counter(loss["outcome"] for loss in points),
            points,
        )
        for window, points in sorted(groups.items())
    ]
