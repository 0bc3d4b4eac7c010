"""The queues that a process looks at instead of one queue, because of strict order or weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jobwire.console.ops.locate import JobFacts
from jobwire.inspect.processes import ProcessInfo

__all__ = ["CompetingQueues", "competing_queues"]


@dataclass(frozen=True, slots=True)
class CompetingQueues:
    """The queues with jobs that one process looks at instead.

    Attributes:
        earlier: Of strict order, the queues before.
        heavier: Of weights, the queues with more weight.
        share: Share of the looks that begin with the queue, 0 to 1.
    """

    earlier: Sequence[str]
    heavier: Sequence[str]
    share: float


def competing_queues(process: ProcessInfo, queue: str, facts: JobFacts) -> CompetingQueues | None:
    """Return those of the capsule with the fewest; None if the order is not known."""
    weightings = [capsule.weights for capsule in process.capsules.values()]
    if not weightings:
        weightings = [weights for weights in _old_weights(process) if weights]
    found = [_competing_in(weights, queue, facts) for weights in weightings if queue in weights]
    return min(found, key=lambda one: (len(one.earlier), -one.share), default=None)


def _competing_in(weights: Mapping[str, int], queue: str, facts: JobFacts) -> CompetingQueues:
    waiting = [name for name in weights if name != queue and _has_jobs(name, facts)]
    if not any(weights.values()):
        order = list(weights)
        before = set(order[: order.index(queue)])
        return CompetingQueues([name for name in waiting if name in before], (), 1.0)
    own = weights[queue]
    total = own + sum(weights[name] for name in waiting)
    heavier = [name for name in waiting if weights[name] > own]
    return CompetingQueues((), heavier, own / total if total else 1.0)


def _old_weights(process: ProcessInfo) -> list[Mapping[str, int]]:
    """Return the weights that Sidekiq before 8.0.9 reports."""
    stored = process.info.get("weights")
    return [
        {name: weight for name, weight in weights.items() if type(weight) is int}
        for weights in (stored if isinstance(stored, list) else ())
        if isinstance(weights, dict)
    ]


def _has_jobs(queue: str, facts: JobFacts) -> bool:
    known = facts.queues.get(queue)
    return known is not None and known.size > 0 and not known.paused
