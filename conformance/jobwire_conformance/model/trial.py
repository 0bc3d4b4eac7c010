"""Examples played in a sandbox, each with its remembered result."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from jobwire_conformance.cases.case import Case
from jobwire_conformance.data import GENERATIONS
from jobwire_conformance.model.actions import Action
from jobwire_conformance.model.model import Step, script
from jobwire_conformance.run.play import Play
from jobwire_conformance.sandbox.sandbox import Sandbox

__all__ = ["Failure", "Trial"]

_FIRST_RETRY = 14.0  # seconds; a failed job is due again after 15 s [RETRY-4]


@dataclass(frozen=True, slots=True)
class Failure:
    """The first failed check of an example.

    Attributes:
        action: Index of the action before the check.
        check: The check.
        message: The expected and the seen value.
    """

    action: int
    check: Step
    message: str

    @property
    def requirement(self) -> str:
        """Id of the requirement of the check."""
        return str(self.check["check"])


@dataclass(slots=True)
class Trial:
    """Plays examples in one sandbox, which is empty at the start of each.

    Attributes:
        sandbox: The sandbox to use.
        patience: Longest wait for an expected event, in seconds.
        excused: Requirements of declared deviations, which are not checked.
        examples: Number of played examples.
        spent: Number and seconds of the steps by verb.
        inconclusive: Number of examples so slow that retries became due.
        checked: Number of checks by requirement.
    """

    sandbox: Sandbox
    patience: float
    excused: Collection[str] = ()
    examples: int = 0
    spent: dict[str, tuple[int, float]] = field(default_factory=dict)
    inconclusive: int = 0
    checked: Counter[str] = field(default_factory=Counter)
    _known: dict[str, Failure | None] = field(default_factory=dict)

    def known(self, actions: Sequence[Action]) -> bool:
        """Return whether this example was played before."""
        return _key(actions) in self._known

    def play(self, actions: Sequence[Action]) -> Failure | None:
        """Return the failure of an example; None if all its checks pass.

        Raises:
            Impossible: An action is not possible after the actions before it.
            ConformError: An error that prevents all examples.
        """
        key = _key(actions)
        if key not in self._known:
            self._known[key] = self._play(actions)
        return self._known[key]

    def _play(self, actions: Sequence[Action]) -> Failure | None:
        steps = script(actions, self.sandbox.config.claims, self.excused)
        self.examples += 1
        self.sandbox.reset()
        play = Play(self.sandbox, _case(), patience=self.patience)
        began = time.monotonic()
        for index, part in enumerate(steps):
            for step in part:
                started = time.monotonic()
                finding = play.do(step)
                self._count(step, time.monotonic() - started)
                if finding is None:
                    continue
                self.checked[finding.requirement] += 1
                if not finding.ok:
                    if time.monotonic() - began > _FIRST_RETRY and _fails(actions):
                        self.inconclusive += 1
                        return None
                    message = finding.message or f"blocked by {finding.blocked_by}"
                    return Failure(index, step, message)
        return None

    def _count(self, step: Step, seconds: float) -> None:
        verb = next(iter(step))
        times, sum_ = self.spent.get(verb, (0, 0.0))
        self.spent[verb] = times + 1, sum_ + seconds


def _case() -> Case:
    """Return an empty case, which stands for the example."""
    return Case("explored", "", (), None, GENERATIONS, (), (), (), None)


def _key(actions: Sequence[Action]) -> str:
    return "\n".join(action.key for action in actions)


def _fails(actions: Sequence[Action]) -> bool:
    return any(action.given.get("kind") in ("Fail", "Flaky") for action in actions)
