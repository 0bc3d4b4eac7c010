"""The exploration of an implementation: many examples, and a case of the smallest failing one."""

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
from jobwire_conformance.model.actions import Action
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
"""Number of replays of a failing example, without Hypothesis."""


@dataclass(frozen=True, slots=True)
class Options:
    """The options of an exploration.

    Attributes:
        examples: Number of examples.
        steps: Largest number of actions in one example.
        seed: Seed of the examples; None for the same examples in every run.
        shrinks: Largest number of examples to play to shrink a failing one.
        patience: Longest wait for an expected event, in seconds.
        program: Program of the servers; None for the first one on PATH.
        directory: Directory for the case.
        excused: Requirements of declared deviations, which are not checked.
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
    """The result of an exploration.

    Attributes:
        config: Settings of the implementation.
        options: Options of the exploration.
        versions: Versions by name: suite, hypothesis, implementation, server.
        examples: Number of played examples, including those for shrinking.
        inconclusive: Number of examples without a result, because they took too long.
        checked: Number of checks by requirement.
        spent: Number and seconds of the steps by verb.
        seconds: Time of the whole exploration.
        failure: The failure in the smallest failing example; None without a failure.
        steps: Steps of its case, without the check.
        path: Path of its case.
        failed: Number of replays that failed again.
        differences: Differences from the second implementation.
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
        """Return milliseconds a step, with or without steps that start and end processes."""
        left_out = frozenset() if processes else _PROCESSES
        chosen = [spent for verb, spent in self.spent.items() if verb not in left_out]
        count = sum(times for times, _ in chosen)
        return 1000 * sum(seconds for _, seconds in chosen) / count if count else 0.0

    def as_data(self) -> dict[str, Any]:
        """Return the result as JSON data."""
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
        data["differences"] = [difference.as_data() for difference in self.differences]
        return data


_PROCESSES = frozenset(["start", "stop", "signal", "kill", "await"])


class _Fails(AssertionError):
    """An example fails."""


class _Stop(BaseException):
    """An error ends the exploration. Hypothesis must not treat it as a failing example."""

    def __init__(self, error: ConformError) -> None:
        super().__init__(str(error))
        self.error = error


class _Enough(BaseException):
    """The limit of shrinking is reached. Hypothesis must not treat it as a failing example."""


class _Search:
    """Plays the examples of Hypothesis, and limits the number of examples for shrinking."""

    def __init__(self, trial: Trial, options: Options, other: Differential | None) -> None:
        self._trial = trial
        self._shrinks = options.shrinks
        self._other = other
        self.smallest: tuple[list[Action], Failure] | None = None

    def play(self, actions: Sequence[Action]) -> None:
        """Play an example; raise an error if it fails."""
        if self.smallest is not None and not self._trial.known(actions):
            if self._shrinks == 0:
                raise _Enough
            self._shrinks -= 1
        try:
            failure = self._trial.play(actions)
            if failure is None and self._other is not None:
                self._other.compare(actions)
        except ConformError as error:
            raise _Stop(error) from None
        if failure is None:
            return
        needed = actions[: failure.action + 1]
        if self.smallest is None or _size(needed) <= _size(self.smallest[0]):
            self.smallest = [*needed], failure
        raise _Fails(failure.message)

    def shrunk(self) -> tuple[list[Action], Failure] | None:
        """Return the smallest failing example, without needless actions and values."""
        if self.smallest is None:
            return None
        fewer = shrunk_case.fewer(*self.smallest, self._trial.play)
        return shrunk_case.simpler(*fewer, self._trial.play)


def _size(actions: Sequence[Action]) -> tuple[int, int]:
    return len(actions), sum(len(action.key) for action in actions)


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
        config: Settings of the implementation.
        options: Options of the exploration.
        rewrites: Mistakes that every process makes.
        other: Settings of a second implementation, for a comparison.
        says: Called with lines about the progress.

    Raises:
        ConformError: The exploration cannot be finished.
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
            says("found a failure; shrinking the example")
        shrunk = search.shrunk()
        result.versions = _versions(sandbox)
        result.examples, result.inconclusive = trial.examples, trial.inconclusive
        result.checked, result.spent = trial.checked, trial.spent
        if differential is not None:
            result.differences = differential.differences
    if shrunk is not None:
        actions, result.failure = shrunk
        says(f"replaying the failure {REPLAYS} times")
        _keep(actions, result.failure, shared, options, rewrites, result)
    result.seconds = time.monotonic() - began
    return result


def _hunt(config: Config, options: Options, search: _Search) -> None:
    """Have Hypothesis play examples until one fails, and then shrink it."""
    factory = machine(config.claims, search.play, options.excused)
    if options.seed is not None:
        factory = hypothesis.seed(options.seed)(factory)
    # `search` keeps the smallest failing example; the replays show how often it fails.
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
    actions: Sequence[Action],
    failure: Failure,
    config: Config,
    options: Options,
    rewrites: Sequence[Rule],
    result: Explored,
) -> None:
    """Write the case, replay it, and write it again with the result of the replays."""
    case = shrunk_case.as_case(actions, failure, config)
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
        any(v.requirement == failure.requirement and not v.finding.ok for v in replayed.verdicts)
        for replayed in replays
    )
    result.steps = [step for step in case["steps"] if "check" not in step]
    result.path = shrunk_case.write(
        shrunk_case.label(case, result.failed, REPLAYS), options.directory
    )


def _shared(config: Config, other: Config) -> Config:
    """Return the settings with the claims of both implementations."""
    return replace(config, claims=[claim for claim in config.claims if claim in other.claims])


def _versions(sandbox: Sandbox) -> dict[str, str]:
    name, version = sandbox.server()
    versions = {"suite": suite_version(), "hypothesis": hypothesis.__version__, name: version}
    if sandbox.config.driver is not None:
        if not sandbox.driver.version:
            sandbox.driver.hello()
        versions[sandbox.config.name] = sandbox.driver.version
    return versions
