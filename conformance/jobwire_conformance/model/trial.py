"""Play examples in a sandbox, and remember what came of each."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from jobwire_conformance.cases.case import Case
from jobwire_conformance.model.actions import Act
from jobwire_conformance.model.model import Step, script
from jobwire_conformance.run.play import Play
from jobwire_conformance.sandbox.sandbox import Sandbox

__all__ = ["Failure", "Trial"]

_FIRST_RETRY = 14.0  # seconds; a job that failed is due again after 15 [RETRY-4]


@dataclass(frozen=True, slots=True)
class Failure:
    """The first check of an example that did not hold.

    Attributes:
        act: Index of the act that it came after.
        check: The check.
        message: What was expected and seen.
    """

    act: int
    check: Step
    message: str

    @property
    def requirement(self) -> str:
        """That it names."""
        return str(self.check["check"])


@dataclass(slots=True)
class Trial:
    """Plays examples, each in the same sandbox, from nothing.

    Attributes:
        sandbox: Where.
        patience: Seconds until something that has to happen must have.
        excused: Requirements that the implementation is known not to meet.
        examples: How many were played.
        spent: Verb to how often and to seconds.
        inconclusive: Examples that took so long that retries came due by themselves.
    """

    sandbox: Sandbox
    patience: float
    excused: Collection[str] = ()
    examples: int = 0
    spent: dict[str, tuple[int, float]] = field(default_factory=dict)
    inconclusive: int = 0
    checked: Counter[str] = field(default_factory=Counter)
    _known: dict[str, Failure | None] = field(default_factory=dict)

    def known(self, acts: Sequence[Act]) -> bool:
        """Whether this example was played before."""
        return _key(acts) in self._known

    def play(self, acts: Sequence[Act]) -> Failure | None:
        """Return what fails in an example.

        Raises:
            Impossible: An act makes no sense after those before it.
            ConformError: Something is in the way of all examples.
        """
        key = _key(acts)
        if key not in self._known:
            self._known[key] = self._play(acts)
        return self._known[key]

    def _play(self, acts: Sequence[Act]) -> Failure | None:
        steps = script(acts, self.sandbox.config.claims, self.excused)
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
                    if time.monotonic() - began > _FIRST_RETRY and _fails(acts):
                        self.inconclusive += 1
                        return None
                    message = finding.message or f"could not be tried: {finding.blocked_by}"
                    return Failure(index, step, message)
        return None

    def _count(self, step: Step, seconds: float) -> None:
        verb = next(iter(step))
        times, sum_ = self.spent.get(verb, (0, 0.0))
        self.spent[verb] = times + 1, sum_ + seconds


def _case() -> Case:
    """Return the case that an example is not yet."""
    return Case("explored", "", (), None, None, (), (), (), None)


def _key(acts: Sequence[Act]) -> str:
    return "\n".join(act.key for act in acts)


def _fails(acts: Sequence[Act]) -> bool:
    return any(act.given.get("kind") in ("Fail", "Flaky") for act in acts)
