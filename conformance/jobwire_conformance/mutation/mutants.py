"""Mutants: mistakes put into what an implementation says, to see whether the checks notice.

They are made in what passes between it and the suite, so that they need no change to it: in its
commands, in the server's answers, in the answers of its driver, in what it is told by variables
and signals.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
        name: Of the file.
        kills: The requirements whose checks have to fail.
        cases: Cases that are enough to see it.
        generation: That it is about; None for any.
        rules: What is done to the commands of every process.
        garble: What is done to the answers of the driver.
        environment: What driver and workers are told instead of what a case says.
        signals: Signal to the one that workers take it for; empty if they ignore it.
        made: Grows by one each time when the mistake was made in a command or an answer.
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
        """Return the settings of an implementation that has it."""
        driver, worker = config.driver, config.worker
        told = [f"{name}={value}" for name, value in self.environment.items()]
        if driver is not None:
            garble = self.garble or driver.garble
            driver = replace(driver, garble=garble, command=_told(told, driver.command))
        if worker is not None:
            command = _told(told, worker.command)
            worker = replace(worker, signals=self.signals, command=command)
        return replace(
            config, driver=driver, worker=worker, generation=self.generation or config.generation
        )

    @property
    def untouched(self) -> bool:
        """Whether nothing that has passed so far gave occasion to make the mistake."""
        return not (self.environment or self.signals or self.made)


def _told(words: Sequence[str], command: Sequence[str]) -> Sequence[str]:
    return ["env", *words, *command] if words else command


def load(directory: Path | None = None) -> list[Mutant]:
    """Return all mutants.

    Raises:
        SuiteFault: One is wrong.
    """
    return [load_file(path) for path in data.named_files(directory or data.mutants_directory())]


def named(name: str) -> Mutant:
    """Return one mutant.

    Raises:
        Usage: There is none of that name.
    """
    found = {mutant.name: mutant for mutant in load()}
    if name not in found:
        raise Usage(f"there is no mutant {name!r}; there are {', '.join(found)}")
    return found[name]


def load_file(path: Path) -> Mutant:
    """Return one mutant.

    Raises:
        SuiteFault: It is wrong.
    """
    try:
        raw = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise SuiteFault(f"{path}: {error}") from None
    for problem in Draft202012Validator(data.schema("mutant")).iter_errors(raw):
        place = "/".join(map(str, problem.absolute_path))
        raise SuiteFault(f"{path}: {place}: {problem.message[:300]}")
    if raw["mutant"] != path.stem:
        raise SuiteFault(f"{path}: the file of {raw['mutant']!r} has to be named so")
    known = data.requirements()
    for id_ in raw["kills"]:
        if id_ not in known or known[id_].retired:
            raise SuiteFault(f"{path}: {id_} is no requirement of SPEC.md, or was withdrawn")
    made: list[None] = []
    try:
        return Mutant(
            raw["mutant"],
            tuple(raw["kills"]),
            tuple(raw["cases"]),
            generation=raw.get("generation"),
            rules=tuple(
                _rule(each, made) for each in (raw, *raw.get("also", ())) if "match" in each
            ),
            garble=_counted(_replaced(raw["answer"]["replace"]), made) if "answer" in raw else None,
            environment=raw.get("environment", {}),
            signals=raw.get("signals", {}),
            made=made,
        )
    except (re.error, ValueError) as error:
        raise SuiteFault(f"{path}: {error}") from None


def _rule(raw: Mapping[str, Any], made: list[None]) -> Rule:
    match = raw["match"]
    action: Action
    if "reply" in raw:
        change = _counted(_replaced(raw["reply"]["replace"]), made)
        action = Answer(lambda frame: altered(frame, change))
    else:
        instead = _change(raw["rewrite"], match)

        def rewrite(words: Sequence[bytes]) -> Sequence[bytes]:
            found = instead(words)
            if list(found) != list(words):
                made.append(None)
            return found

        action = Rewrite(rewrite)
    return Rule(
        action,
        label=match.get("cmd"),
        nth=match.get("nth", 1),
        times=match.get("times", _ALL),
        fits=_fits(match),
    )


def _fits(match: Mapping[str, Any]) -> Callable[[Sequence[bytes]], bool]:
    """Return what says of a command's words whether a match is about it."""
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
    """Return what makes other words of a command's."""
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
            raise ValueError(f"lua/{name}.lua has nothing like {rewrite['body'][0]!r}")
        return lambda words: [b"EVAL", other, *words[2:]]
    change = _replaced(rewrite["replace"])
    return lambda words: [words[0], *map(change, words[1:])]


def _replaced(pair: Sequence[str]) -> Callable[[bytes], bytes]:
    expression, instead = re.compile(pair[0].encode()), pair[1].encode()
    return lambda text: expression.sub(instead, text)


def _counted(change: Callable[[bytes], bytes], made: list[None]) -> Callable[[bytes], bytes]:
    def counted(text: bytes) -> bytes:
        found = change(text)
        if found != text:
            made.append(None)
        return found

    return counted
