"""The order in which a fetch looks at its queues. [FETCH-2] [FETCH-3] [FETCH-4] [FETCH-8]"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Literal

__all__ = ["Mode", "QueueOrder", "Shuffle", "expand", "is_pattern"]

Mode = Literal["strict", "weighted", "random"]
Shuffle = Callable[[list[str]], None]
"""Shuffles a list in place and uniformly, like `random.shuffle`."""


def is_pattern(name: str) -> bool:
    """True if a name stands for all queues that begin with the text before its `*`."""
    return name.endswith("*")


def expand(
    weights: Mapping[str, int], known: Collection[str], named: Collection[str] = ()
) -> dict[str, int]:
    """Return weights in which the known queues, in alphabetical order, replace each pattern.

    A pattern that no queue matches stays, as the name of an empty queue.

    Args:
        weights: Queue name or pattern to weight, in order of preference.
        known: Names of queues.
        named: Names that no pattern takes, because the configuration names them.
    """
    expanded: dict[str, int] = {}
    for name, weight in weights.items():
        free = sorted(set(known) - set(named) - expanded.keys()) if is_pattern(name) else []
        found = [queue for queue in free if queue.startswith(name[:-1])]
        expanded.update(dict.fromkeys(found or [name], weight))
    return expanded


class QueueOrder:
    """The queues of a capsule, by weight.

    Args:
        weights: Queue name to weight, in order of preference. All 0: strict order. All 1: random
            order. Otherwise: weighted order, in which 0 counts as 1.
    """

    __slots__ = ("_tickets", "mode", "weights")

    def __init__(self, weights: Mapping[str, int]) -> None:
        self.change(weights)

    def change(self, weights: Mapping[str, int]) -> None:
        """Use other weights from now on; not while another thread picks."""
        self.weights = dict(weights)
        self._tickets = [name for name, weight in weights.items() for _ in range(max(weight, 1))]
        self.mode: Mode
        if all(weight == 0 for weight in weights.values()):
            self.mode = "strict"
        elif all(weight == 1 for weight in weights.values()):
            self.mode = "random"
        else:
            self.mode = "weighted"

    def pick(self, shuffle: Shuffle) -> list[str]:
        """Return every queue once, in the order for one fetch.

        A queue comes first with probability weight / sum of weights, because each ticket has the
        same chance to be the first.
        """
        if self.mode == "strict":
            return list(self.weights)
        tickets = self._tickets.copy()
        shuffle(tickets)
        return list(dict.fromkeys(tickets))
