"""Cases: reading, checking and choosing them."""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeGuard

from jsonschema import Draft202012Validator, ValidationError

from jobwire_conformance import data
from jobwire_conformance.errors import SuiteFault

__all__ = ["Case", "load", "load_file", "repeated"]

_BULK = "client/bulk"
_REBUILDS = frozenset(["cluster", "monitor", "user"])


@dataclass(frozen=True, slots=True)
class Case:
    """One case."""

    name: str
    title: str
    profiles: tuple[str, ...]
    pace: str | None
    generations: tuple[str, ...]
    needs: Sequence[str]
    seed: Sequence[Mapping[str, Any]]
    steps: Sequence[Mapping[str, Any]]
    crash: Mapping[str, Any] | None

    @property
    def requirements(self) -> list[str]:
        """The requirements that the case checks, in order."""
        ids = [step["check"] for step in self.steps if "check" in step]
        if self.crash is not None:
            ids += self.crash["check"]
        return list(dict.fromkeys(ids))

    @property
    def rebuilds(self) -> bool:
        """True if it changes the server itself, so that it needs a server of the suite."""
        return any(_REBUILDS & step.keys() for step in self.steps)

    @property
    def namespace(self) -> str:
        """The namespace that it gives its processes; empty if it gives none."""
        return next((str(s["namespace"]) for s in self.steps if "namespace" in s), "")

    def counts_for(self, requirement: str) -> list[str]:
        """Return the claims that a check of this requirement counts for."""
        rule = data.requirements()[requirement]
        return [rule.claim(profile) for profile in self.profiles if profile in rule.profiles]

    def checks_for(self, claims: Collection[str], generation: str) -> list[str]:
        """Return the requirements that it checks for any of these claims and this generation."""
        if generation not in self.generations:
            return []
        return [
            id_
            for id_ in self.requirements
            if generation in data.requirements()[id_].generations
            and not set(claims).isdisjoint(self.counts_for(id_))
        ]


def load(directory: Path | None = None, names: Collection[str] = ()) -> list[Case]:
    """Return the cases of a directory, or only those whose names match one of `names`.

    All cases of the suite together are not examined, which would take seconds at each start: the
    suite's own tests have done that.

    Raises:
        SuiteFault: A case is wrong.
    """
    if directory is None and not names:
        return [*_own()]
    return [
        _examined(raw, f"{path}: {name}")
        for name, (path, raw) in data.cases(directory or data.cases_directory()).items()
        if not names or any(fnmatch.fnmatchcase(name, pattern) for pattern in names)
    ]


def load_file(path: Path) -> Case:
    """Return the case in a file of its own, which has its name.

    Raises:
        SuiteFault: The case is wrong.
    """
    try:
        raw = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise SuiteFault(f"{path}: {error}") from None
    case = _examined(raw, str(path))
    if path.stem != case.name:
        raise SuiteFault(f"{path}: a case named {case.name!r} must be in {case.name}.json")
    return case


@cache
def _own() -> Sequence[Case]:
    return [_case(raw) for _, raw in data.cases(data.cases_directory()).values()]


def _examined(raw: Any, source: str) -> Case:
    for place, problem in _misfits(raw):
        where = "/".join(map(str, [*place, *problem.absolute_path]))
        raise SuiteFault(f"{source}: {where}: {_deepest(problem)}")
    case = _case(raw)
    for fault in _faults(case):
        raise SuiteFault(f"{source}: {fault}")
    return case


def _case(raw: Mapping[str, Any]) -> Case:
    return Case(
        name=raw["case"],
        title=raw["title"],
        profiles=tuple(raw["claims"]),
        pace=raw.get("pace"),
        generations=tuple(raw.get("generations", data.GENERATIONS)),
        needs=raw.get("needs", ()),
        seed=raw.get("seed", ()),
        steps=raw["steps"],
        crash=raw.get("crash"),
    )


def _misfits(raw: Any) -> Iterator[tuple[Sequence[object], ValidationError]]:
    """Yield the errors of the schema, each with the place to which its own path is relative.

    A step is compared with the definition of its verb alone. To try those of all verbs, as the
    schema says, takes twenty times as long, and gives worse messages.
    """
    if not _is_map(raw):
        yield from (([], problem) for problem in _validator(None).iter_errors(raw))
        return
    lists: list[tuple[list[object], Any]] = [
        (["steps"], raw.get("steps")),
        (["crash", "then"], _then(raw)),
    ]
    for place, steps in lists:
        for number, step in enumerate(steps if isinstance(steps, list) else ()):
            verbs = [verb for verb in step if verb in _verbs()] if _is_map(step) else []
            definition = f"do-{verbs[0]}" if len(verbs) == 1 else "step"
            for problem in _validator(definition).iter_errors(step):
                yield [*place, number], problem
    yield from (([], problem) for problem in _validator(None).iter_errors(_without_steps(raw)))


def _without_steps(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a case with a valid step in place of its steps, which are examined on their own."""
    good = [{"settle": True}]
    rest = {**raw, "steps": good} if isinstance(raw.get("steps"), list) and raw["steps"] else raw
    return {**rest, "crash": {**raw["crash"], "then": good}} if _then(raw) else rest


def _then(raw: Mapping[str, Any]) -> Any:
    crash = raw.get("crash")
    return crash.get("then") if _is_map(crash) else None


def _is_map(value: object) -> TypeGuard[Mapping[str, Any]]:
    return isinstance(value, Mapping)


@cache
def _verbs() -> frozenset[str]:
    return frozenset(name[3:] for name in data.schema("case")["$defs"] if name.startswith("do-"))


@cache
def _validator(definition: str | None) -> Draft202012Validator:
    """Return the validator of a definition of the schema, or of the whole schema."""
    schema = data.schema("case")
    if definition is None:
        return Draft202012Validator(schema)
    return Draft202012Validator({"$ref": f"#/$defs/{definition}", "$defs": schema["$defs"]})


def repeated(step: Mapping[str, Any]) -> dict[str, Any]:
    """Return `args` of a bulk push, and as many times in `at`, repeated `times` times."""
    args, at, times = step["args"], step.get("at"), int(step.get("times", 1))
    if isinstance(at, list) and len(at) == len(args):
        return {"args": args * times, "at": at * times}
    return {"args": args * times} | ({"at": at} if "at" in step else {})


def _deepest(problem: Any) -> str:
    """Return the fault in the alternative that comes nearest to being valid."""
    while problem.context:
        problem = max(problem.context, key=lambda cause: len(cause.absolute_path))
    return str(problem.message)[:300]


def _faults(case: Case) -> Iterator[str]:
    others = ", ".join(profile for profile in case.profiles if profile != _BULK)
    if others and _BULK not in case.needs and any("push_bulk" in step for step in case.steps):
        yield f"push_bulk asks {others} for {_BULK}: put that into needs"
    if not case.requirements:
        yield "the case has no check"
    known = data.requirements()
    for requirement in case.requirements:
        if requirement not in known or known[requirement].retired:
            yield f"SPEC.md has no requirement {requirement}, or it is withdrawn"
        elif not case.counts_for(requirement):
            claims = ", ".join(known[requirement].profiles)
            yield f"{requirement} belongs to {claims}; the case has none of these profiles"
        elif set(case.generations).isdisjoint(known[requirement].generations):
            generations = ", ".join(known[requirement].generations)
            yield f"{requirement} belongs to {generations}; the case runs for none of these"
