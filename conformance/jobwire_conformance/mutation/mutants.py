"""Mutants: mistakes planted into the traffic of an implementation to test the checks.

The proxy and the sandbox make the mistakes, so the implementation stays unchanged. They alter its
commands, the server's replies, the answers of its driver, its variables and its signals.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

from jobwire_conformance import data
from jobwire_conformance.config import Config, Generation
from jobwire_conformance.errors import SuiteFault, Usage
from jobwire_conformance.judge.stream import canonical, script_call
from jobwire_conformance.wire.faults import Action, Answer, Rewrite, Rule, on_key
from jobwire_conformance.wire.resp import altered

__all__ = ["Mutant", "load", "load_file", "named"]

_ALL = 1 << 60


@dataclass(frozen=True, slots=True)
class Mutant:
    """One mistake.

    Attributes:
        name: Its permanent name.
        kills: Ids of the requirements whose checks must fail.
        cases: Names of cases that suffice to find it.
        generation: The only generation to which it applies; None for all.
        rules: Changes to the commands of every process.
        garble: Change to the answers of the driver.
        environment: Variables of driver and workers, in place of those of a case.
        signals: The signal that workers get in place of each signal; empty for none.
        made: Grows by one entry for each command or answer with the mistake.
    """

    name: str
    kills: tuple[str, ...]
    cases: tuple[str, ...]
    generation: Generation | None = None
    rules: tuple[Rule, ...] = ()
    garble: Callable[[bytes], bytes] | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    signals: Mapping[str, str] = field(default_factory=dict)
    made: list[None] = field(default_factory=list, compare=False, repr=False)

    def on(self, config: Config) -> Config:
        """Return the settings of an implementation with this mistake."""
        driver, worker = config.driver, config.worker
        variables = [f"{name}={value}" for name, value in self.environment.items()]
        if driver is not None:
            garble = self.garble or driver.garble
            driver = replace(driver, garble=garble, command=_with(variables, driver.command))
        if worker is not None:
            command = _with(variables, worker.command)
            worker = replace(worker, signals=self.signals, command=command)
        return replace(
            config, driver=driver, worker=worker, generation=self.generation or config.generation
        )

    @property
    def untouched(self) -> bool:
        """True if no command or answer so far gave occasion for the mistake."""
        return not (self.environment or self.signals or self.made)


def _with(variables: Sequence[str], command: Sequence[str]) -> Sequence[str]:
    return ["env", *variables, *command] if variables else command


def load(directory: Path | None = None) -> list[Mutant]:
    """Return all mutants, by name. Each area has a file.

    Raises:
        SuiteFault: A mutant is wrong, or two have the same name.
    """
    paths = sorted((directory or data.mutants_directory()).glob("*.json"))
    found = sorted((m for path in paths for m in load_file(path)), key=lambda mutant: mutant.name)
    for former, mutant in pairwise(found):
        if former.name == mutant.name:
            raise SuiteFault(f"two mutants have the name {mutant.name}; rename the newer one")
    return found


def named(name: str) -> Mutant:
    """Return the mutant with this name.

    Raises:
        Usage: No mutant has this name.
    """
    by_name = {mutant.name: mutant for mutant in load()}
    if name not in by_name:
        raise Usage(f"unknown mutant {name!r}; expected one of {', '.join(by_name)}")
    return by_name[name]


def load_file(path: Path) -> list[Mutant]:
    """Return the mutants of a file.

    Raises:
        SuiteFault: A mutant is wrong.
    """
    try:
        several = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise SuiteFault(f"{path}: {error}") from None
    if not isinstance(several, list):
        raise SuiteFault(f"{path}: not an array of mutants")
    return [_mutant(raw, f"{path}: {_name_of(raw, n)}") for n, raw in enumerate(several)]


def _name_of(raw: object, position: int) -> object:
    return raw.get("mutant", position) if isinstance(raw, dict) else position


def _mutant(raw: Any, place: str) -> Mutant:
    for problem in Draft202012Validator(data.schema("mutant")).iter_errors(raw):
        where = "/".join(map(str, problem.absolute_path))
        raise SuiteFault(f"{place}: {where}: {problem.message[:300]}")
    known = data.requirements()
    for id_ in raw["kills"]:
        if id_ not in known or known[id_].retired:
            raise SuiteFault(f"{place}: SPEC.md has no requirement {id_}, or it is withdrawn")
    made: list[None] = []
    try:
        return Mutant(
            raw["mutant"],
            tuple(raw["kills"]),
            tuple(raw["cases"]),
            generation=raw.get("generation"),
            rules=tuple(
                _rule(change, made) for change in (raw, *raw.get("also", ())) if "match" in change
            ),
            garble=_counted(_replaced(raw["answer"]["replace"]), made) if "answer" in raw else None,
            environment=raw.get("environment", {}),
            signals=raw.get("signals", {}),
            made=made,
        )
    except (re.error, ValueError) as error:
        raise SuiteFault(f"{place}: {error}") from None


def _rule(raw: Mapping[str, Any], made: list[None]) -> Rule:
    match = raw["match"]
    action: Action
    if "reply" in raw:
        change = _counted(_replaced(raw["reply"]["replace"]), made)
        action = Answer(lambda frame: altered(frame, change))
    else:
        instead = _change(raw["rewrite"], match)

        def rewrite(words: Sequence[bytes]) -> Sequence[bytes]:
            changed = instead(words)
            if list(changed) != list(words):
                made.append(None)
            return changed

        action = Rewrite(rewrite)
    return Rule(
        action,
        label=match.get("cmd"),
        nth=match.get("nth", 1),
        times=match.get("times", _ALL),
        fits=_fits(match),
    )


def _fits(match: Mapping[str, Any]) -> Callable[[Sequence[bytes]], bool]:
    """Return a test whether a command fits a match."""
    has_key = on_key(match.get("key", "*"))
    name = match.get("script")
    argument = re.compile(match["argument"].encode()) if "argument" in match else None

    def fits(words: Sequence[bytes]) -> bool:
        if name is not None:
            call = script_call(words)
            if call is None or canonical(call.sha) != name:
                return False
        if argument is not None and not any(argument.search(word) for word in words[1:]):
            return False
        return has_key(words)

    return fits


def _change(
    rewrite: Mapping[str, Any], match: Mapping[str, Any]
) -> Callable[[Sequence[bytes]], Sequence[bytes]]:
    """Return a function that changes the words of a command."""
    if "words" in rewrite:
        words = [word.encode() for word in rewrite["words"]]
        return lambda _: words
    if "cmd" in rewrite:
        command = rewrite["cmd"].encode()
        return lambda words: [command, *words[1:]]
    if "body" in rewrite:
        name = match.get("script", "")
        text = data.scripts().get(name, b"")
        other = _replaced(rewrite["body"])(text)
        if other == text:
            raise ValueError(f"lua/{name}.lua does not match {rewrite['body'][0]!r}")
        return lambda words: [b"EVAL", other, *words[2:]]
    change = _replaced(rewrite["replace"])
    return lambda words: [words[0], *map(change, words[1:])]


def _replaced(pair: Sequence[str]) -> Callable[[bytes], bytes]:
    expression, instead = re.compile(pair[0].encode()), pair[1].encode()
    return lambda text: expression.sub(instead, text)


def _counted(change: Callable[[bytes], bytes], made: list[None]) -> Callable[[bytes], bytes]:
    def counted(text: bytes) -> bytes:
        changed = change(text)
        if changed != text:
            made.append(None)
        return changed

    return counted
