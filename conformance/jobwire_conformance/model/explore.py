"""Explore an implementation: many examples, and the smallest one that fails, as a case."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import hypothesis
from hypothesis import HealthCheck, Phase, Verbosity, settings
from hypothesis.stateful import run_state_machine_as_test

from jobwire_conformance.cases import case as cases
from jobwire_conformance.config import Config
from jobwire_conformance.errors import ConformError
from jobwire_conformance.model import shrunk_case
from jobwire_conformance.model.actions import Act
from jobwire_conformance.model.differential import Difference, Differential
from jobwire_conformance.model.machine import machine
from jobwire_conformance.model.trial import Failure, Trial
from jobwire_conformance.run.replay import replay
from jobwire_conformance.run.run import suite_version
from jobwire_conformance.sandbox.local_server import Database, LocalServer, server_program
from jobwire_conformance.sandbox.reaper import Reaper
from jobwire_conformance.sandbox.sandbox import Sandbox
from jobwire_conformance.wire.faults import Rule

__all__ = ["REPLAYS", "Explored", "Options", "explore"]

REPLAYS = 5
"""How often what was found is replayed, without Hypothesis."""


@dataclass(frozen=True, slots=True)
class Options:
    """How to explore.

    Attributes:
        examples: How many.
        steps: Acts in one example, at most.
        seed: Of the choice; None for the one that is always the same.
        shrinks: How many examples are played, at most, to make a failing one smaller.
        patience: Seconds until something that has to happen must have.
        program: Of the servers; None for the first one that there is.
        directory: Where the case is written.
        excused: Requirements that the implementation is known not to meet.
    """

    examples: int = 50
    steps: int = 8
    seed: int | None = None
    shrinks: int = 50
    patience: float = 10.0
    program: str | None = None
    directory: Path = Path()
    excused: Collection[str] = ()


@dataclass(slots=True)
class Explored:
    """What came of it.

    Attributes:
        config: Of the implementation.
        options: How.
        versions: Name to version: suite, hypothesis, implementation, server.
        examples: How many were played, those that made a failing one smaller too.
        inconclusive: How many of them said nothing, for they took too long.
        checked: Requirement to how often a check of it was made.
        spent: Verb of a step to how often and seconds.
        seconds: All in all.
        failure: What failed in the smallest example.
        steps: Of its case, without the check.
        path: Of its case.
        failed: In how many replays it failed again.
        differences: Between this and another implementation.
    """

    config: Config
    options: Options
    versions: dict[str, str] = field(default_factory=dict)
    examples: int = 0
    inconclusive: int = 0
    checked: Mapping[str, int] = field(default_factory=dict)
    spent: Mapping[str, tuple[int, float]] = field(default_factory=dict)
    seconds: float = 0.0
    failure: Failure | None = None
    steps: Sequence[Mapping[str, Any]] = ()
    path: Path | None = None
    failed: int = 0
    differences: Sequence[Difference] = ()

    def step_ms(self, *, processes: bool) -> float:
        """Return milliseconds a step; with or without those that start and end processes."""
        left_out = frozenset() if processes else _PROCESSES
        chosen = [spent for verb, spent in self.spent.items() if verb not in left_out]
        count = sum(times for times, _ in chosen)
        return 1000 * sum(seconds for _, seconds in chosen) / count if count else 0.0

    def as_data(self) -> dict[str, Any]:
        """Return everything, for programs."""
        data: dict[str, Any] = {
            "explored": 1,
            "implementation": self.config.name,
            "claims": [*self.config.claims],
            "generation": self.config.generation,
            "versions": self.versions,
            "seed": self.options.seed,
            "excused": sorted(self.options.excused),
            "examples": self.examples,
            "inconclusive": self.inconclusive,
            "seconds": round(self.seconds, 3),
            "ms_per_step": round(self.step_ms(processes=False), 2),
            "steps": {
                verb: {"times": times, "ms": round(1000 * seconds / times, 2)}
                for verb, (times, seconds) in sorted(self.spent.items())
            },
            "checks": dict(sorted(self.checked.items())),
            "found": None,
        }
        if self.failure is not None:
            data["found"] = {
                "requirement": self.failure.requirement,
                "message": self.failure.message,
                "case": str(self.path),
                "steps": len(self.steps),
                "replays": REPLAYS,
                "failed": self.failed,
                "flaky": self.failed < REPLAYS,
            }
        data["differences"] = [each.as_data() for each in self.differences]
        return data


_PROCESSES = frozenset(["start", "stop", "signal", "kill", "await"])


class _Fails(AssertionError):
    """An example fails."""


class _Stop(BaseException):
    """Something is in the way of all examples; no example, for Hypothesis."""

    def __init__(self, error: ConformError) -> None:
        super().__init__(str(error))
        self.error = error


class _Enough(BaseException):
    """An example was made smaller for long enough; no example, for Hypothesis."""


class _Search:
    """What Hypothesis calls, with a limit to how long it may take to make an example smaller."""

    def __init__(self, trial: Trial, options: Options, other: Differential | None) -> None:
        self._trial = trial
        self._shrinks = options.shrinks
        self._other = other
        self.smallest: tuple[list[Act], Failure] | None = None

    def play(self, acts: Sequence[Act]) -> None:
        """Play an example; raise an error if it fails."""
        if self.smallest is not None and not self._trial.known(acts):
            if self._shrinks == 0:
                raise _Enough
            self._shrinks -= 1
        try:
            failure = self._trial.play(acts)
            if failure is None and self._other is not None:
                self._other.compare(acts)
        except ConformError as error:
            raise _Stop(error) from None
        if failure is None:
            return
        enough = acts[: failure.act + 1]
        if self.smallest is None or _size(enough) <= _size(self.smallest[0]):
            self.smallest = [*enough], failure
        raise _Fails(failure.message)

    def shrunk(self) -> tuple[list[Act], Failure] | None:
        """Return the smallest example, without the acts and values that it does not need."""
        if self.smallest is None:
            return None
        fewer = shrunk_case.fewer(*self.smallest, self._trial.play)
        return shrunk_case.simpler(*fewer, self._trial.play)


def _size(acts: Sequence[Act]) -> tuple[int, int]:
    return len(acts), sum(len(act.key) for act in acts)


def explore(
    config: Config,
    options: Options,
    *,
    rewrites: Sequence[Rule] = (),
    other: Config | None = None,
    says: Callable[[str], None] = lambda _: None,
) -> Explored:
    """Explore an implementation.

    Args:
        config: Of the implementation.
        options: How.
        rewrites: Mistakes that every process is to make.
        other: Another implementation to do the same with, to see where it does otherwise.
        says: Is told what goes on.

    Raises:
        ConformError: It cannot be done; see there.
    """
    result = Explored(config, options)
    began = time.monotonic()
    program = server_program(options.program)
    with Reaper() as reaper, ExitStack() as stack:

        def servers() -> tuple[Database, Database]:
            return LocalServer(reaper, program), LocalServer(reaper, program)

        shared = config if other is None else _shared(config, other)
        sandbox = stack.enter_context(Sandbox(reaper, shared, servers, rewrites))
        trial = Trial(sandbox, options.patience, options.excused)
        differential = None
        if other is not None:
            claims = shared.claims
            second = stack.enter_context(Sandbox(reaper, replace(other, claims=claims), servers))
            differential = Differential(trial, Trial(second, options.patience, options.excused))
        search = _Search(trial, options, differential)
        says(f"exploring {config.name}: {options.examples} examples")
        try:
            _hunt(shared, options, search)
        except _Stop as stop:
            raise stop.error from None
        if search.smallest is not None:
            says("found something; leaving out what it does not need")
        shrunk = search.shrunk()
        result.versions = _versions(sandbox)
        result.examples, result.inconclusive = trial.examples, trial.inconclusive
        result.checked, result.spent = trial.checked, trial.spent
        if differential is not None:
            result.differences = differential.found
    if shrunk is not None:
        acts, result.failure = shrunk
        says(f"replaying it {REPLAYS} times")
        _keep(acts, result.failure, shared, options, rewrites, result)
    result.seconds = time.monotonic() - began
    return result


def _hunt(config: Config, options: Options, search: _Search) -> None:
    """Have Hypothesis play examples until one fails, and then smaller ones."""
    factory = machine(config.claims, search.play, options.excused)
    if options.seed is not None:
        factory = hypothesis.seed(options.seed)(factory)
    # What was seen is kept, whatever ends it; the replays say how often it happens.
    with suppress(_Fails, _Enough, hypothesis.errors.Flaky):
        run_state_machine_as_test(
            factory,
            settings=settings(
                max_examples=options.examples,
                stateful_step_count=options.steps,
                derandomize=options.seed is None,
                database=None,
                deadline=None,
                phases=(Phase.generate, Phase.shrink),
                suppress_health_check=[*HealthCheck],
                report_multiple_bugs=False,
                print_blob=False,
                verbosity=Verbosity.quiet,
            ),
        )


def _keep(
    acts: Sequence[Act],
    failure: Failure,
    config: Config,
    options: Options,
    rewrites: Sequence[Rule],
    result: Explored,
) -> None:
    """Write the case, replay it, and write it again with what came of that."""
    case = shrunk_case.as_case(acts, failure, config)
    path = shrunk_case.write(case, options.directory)
    replays = replay(
        config,
        cases.load_file(path),
        times=REPLAYS,
        patience=options.patience,
        program=options.program,
        redis=None,
        waits=lambda _: None,
        rewrites=rewrites,
    )
    result.failed = sum(
        any(v.requirement == failure.requirement and not v.finding.ok for v in each.verdicts)
        for each in replays
    )
    result.steps = [step for step in case["steps"] if "check" not in step]
    result.path = shrunk_case.write(
        shrunk_case.label(case, result.failed, REPLAYS), options.directory
    )


def _shared(config: Config, other: Config) -> Config:
    """Return the settings with the claims that both make."""
    return replace(config, claims=[claim for claim in config.claims if claim in other.claims])


def _versions(sandbox: Sandbox) -> dict[str, str]:
    name, version = sandbox.server()
    found = {"suite": suite_version(), "hypothesis": hypothesis.__version__, name: version}
    if sandbox.config.driver is not None:
        if not sandbox.driver.version:
            sandbox.driver.hello()
        found[sandbox.config.name] = sandbox.driver.version
    return found
