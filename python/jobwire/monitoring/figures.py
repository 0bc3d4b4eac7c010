"""The numbers of one worker, and their sum over its processes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from jobwire.protocol.metrics import BOUNDS

__all__ = [
    "BUCKETS_S",
    "MAX_CLASSES",
    "OTHER",
    "ClassFigures",
    "Classes",
    "Figures",
    "label",
    "merged",
]

MAX_CLASSES = 100  # with names of their own; the numbers of the others are added up
OTHER = "(other)"
MAX_LABEL = 200  # characters of a name
_STEP = 2  # every second bound, each about 2.3 times the one before: half the time series

BUCKETS_S = tuple(bound / 1000 for bound in BOUNDS[::_STEP])
"""Upper bounds of the durations in seconds; one more counter has no bound."""


class ClassFigures(msgspec.Struct, frozen=True):
    """The executions of one job class since the worker started.

    Attributes:
        count: Executions that have ended.
        failed: Those that raised an error.
        seconds: Sum of the durations of those that did not fail.
        buckets: Number of those that did not fail by duration; see `BUCKETS_S`.
    """

    count: int = 0
    failed: int = 0
    seconds: float = 0.0
    buckets: tuple[int, ...] = (0,) * (len(BUCKETS_S) + 1)

    def __add__(self, other: ClassFigures) -> ClassFigures:
        return ClassFigures(
            self.count + other.count,
            self.failed + other.failed,
            self.seconds + other.seconds,
            tuple(map(sum, zip(self.buckets, other.buckets, strict=True))),
        )


class Figures(msgspec.Struct, frozen=True):
    """The numbers of one worker process, or the sum of several.

    Attributes:
        classes: The executions by job class.
        fetches: Requests for jobs that were sent to Redis.
        executing: Jobs in execution.
        concurrency: Number of jobs that can run at the same time.
        unstored: Ended jobs without an outcome in Redis yet.
        memory: Resident memory in bytes.
        processes: Number of processes.
        ticks: The ticks that were taken, by periodic entry. Those that were skipped count as
            failed; the durations are those between a tick and its push.
    """

    classes: Mapping[str, ClassFigures] = {}
    fetches: int = 0
    executing: int = 0
    concurrency: int = 0
    unstored: int = 0
    memory: int = 0
    processes: int = 0
    ticks: Mapping[str, ClassFigures] = {}

    def __add__(self, other: Figures) -> Figures:
        return Figures(
            _sum(self.classes, other.classes),
            self.fetches + other.fetches,
            self.executing + other.executing,
            self.concurrency + other.concurrency,
            self.unstored + other.unstored,
            self.memory + other.memory,
            self.processes + other.processes,
            _sum(self.ticks, other.ticks),
        )

    def counters(self) -> Figures:
        """Return what remains of these numbers when their process has ended."""
        return Figures(self.classes, self.fetches, ticks=self.ticks)


class Classes:
    """Limits the number of class names, so that the number of time series has a limit.

    The first `MAX_CLASSES` names are kept. A name that came later counts as `OTHER` for good,
    because a counter that moves from one name to another would count twice.
    """

    def __init__(self) -> None:
        self._kept: dict[str, None] = {}

    def limit(self, classes: Mapping[str, ClassFigures]) -> dict[str, ClassFigures]:
        """Return the numbers with the names that are kept, and the sum of the others."""
        limited: dict[str, ClassFigures] = {}
        for full_name, figures in classes.items():
            name = label(full_name)
            if name not in self._kept and len(self._kept) < MAX_CLASSES and name != OTHER:
                self._kept[name] = None
            shown = name if name in self._kept else OTHER
            limited[shown] = limited.get(shown, _NOTHING) + figures
        return limited


def _sum(
    ours: Mapping[str, ClassFigures], theirs: Mapping[str, ClassFigures]
) -> dict[str, ClassFigures]:
    return {
        name: ours.get(name, _NOTHING) + theirs.get(name, _NOTHING) for name in {**ours, **theirs}
    }


def label(name: str) -> str:
    """Return a name as the value of a label: valid Unicode, not too long."""
    return name.encode("utf-8", "replace").decode()[:MAX_LABEL]


def merged(histogram: Sequence[int]) -> tuple[int, ...]:
    """Return the counters of `BOUNDS` as counters of `BUCKETS_S`."""
    # Counter i has the durations from bound i-1 to bound i, so a bucket adds up two of them.
    ends: Iterable[int] = range(0, len(BOUNDS), _STEP)
    below = [sum(histogram[max(end - _STEP + 1, 0) : end + 1]) for end in ends]
    return (*below, sum(histogram) - sum(below))


_NOTHING = ClassFigures()
