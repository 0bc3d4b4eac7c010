"""The order in which a fetch looks at its queues. [FETCH-2] [FETCH-3] [FETCH-4] [FETCH-8]"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

__all__ = ["Mode", "QueueOrder", "Shuffle"]

Mode = Literal["strict", "weighted", "random"]
Shuffle = Callable[[list[str]], None]
"""Shuffles a list in place and uniformly, like `random.shuffle`."""


class QueueOrder:
    """The queues of a capsule, by weight.

    Args:
        weights: Queue name to weight, in order of preference. All 0: strict order. All 1: random
            order. Otherwise: weighted order, in which 0 counts as 1.
    """

    __slots__ = ("_tickets", "mode", "weights")

    def __init__(self, weights: Mapping[str, int]) -> None:
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
