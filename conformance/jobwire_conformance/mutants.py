"""Mutants: mistakes put into what an implementation sends, to see whether the checks notice.

They are made in commands on their way to Redis or, of what an implementation only reads, in the
answers of its driver.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from jobwire_conformance import data
from jobwire_conformance.config import Config
from jobwire_conformance.errors import SuiteFault, Usage
from jobwire_conformance.faults import Rewrite, Rule, on_key

__all__ = ["Mutant", "load", "named"]

_KNOWN = {"mutant", "kills", "cases", "match", "rewrite", "answer"}


@dataclass(frozen=True, slots=True)
class Mutant:
    """One mistake.

    Attributes:
        name: Of the file.
        kills: The requirements whose checks have to fail.
        cases: Cases that are enough to see it.
        rules: What is done to the commands of every process.
        garble: What is done to the answers of the driver.
    """

    name: str
    kills: tuple[str, ...]
    cases: tuple[str, ...]
    rules: tuple[Rule, ...] = ()
    garble: Callable[[bytes], bytes] | None = None

    def on(self, config: Config) -> Config:
        """Return the settings of an implementation whose driver has it."""
        if self.garble is None or config.driver is None:
            return config
        return replace(config, driver=replace(config.driver, garble=self.garble))


def load(directory: Path | None = None) -> list[Mutant]:
    """Return all mutants."""
    return [_load(path) for path in sorted((directory or data.mutants_directory()).glob("*.json"))]


def named(name: str) -> Mutant:
    """Return one mutant.

    Raises:
        Usage: There is none of that name.
    """
    found = {mutant.name: mutant for mutant in load()}
    if name not in found:
        raise Usage(f"there is no mutant {name!r}; there are {', '.join(found)}")
    return found[name]


def _load(path: Path) -> Mutant:
    try:
        raw = json.loads(path.read_bytes())
        if unknown := set(raw) - _KNOWN:
            raise ValueError(f"nobody reads {', '.join(sorted(unknown))}")
        if raw["mutant"] != path.stem or not set(raw["kills"]) <= set(data.requirements()):
            raise ValueError("its name, or a requirement, is not known")
        found = Mutant(raw["mutant"], tuple(raw["kills"]), tuple(raw["cases"]))
        if "answer" in raw:
            pattern, instead = raw["answer"]["replace"]
            expression, text = re.compile(pattern.encode()), instead.encode()
            return replace(found, garble=lambda line: expression.sub(text, line))
        match = raw["match"]
        rule = Rule(
            Rewrite(_change(raw["rewrite"])),
            label=match.get("cmd"),
            times=1 << 60,
            fits=on_key(match.get("key", "*")),
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SuiteFault(f"{path}: {error!r}") from None
    return replace(found, rules=(rule,))


def _change(rewrite: dict[str, Any]) -> Callable[[Sequence[bytes]], Sequence[bytes]]:
    """Return what makes other words of a command's.

    `cmd` is another name, `words` are all words instead, and `replace` is a regular expression
    and what takes the place of what it finds in the arguments.
    """
    if "words" in rewrite:
        words = [word.encode() for word in rewrite["words"]]
        return lambda _: words
    if "cmd" in rewrite:
        name = rewrite["cmd"].encode()
        return lambda words: [name, *words[1:]]
    pattern, instead = rewrite["replace"]
    expression, text = re.compile(pattern.encode()), instead.encode()
    return lambda words: [words[0], *(expression.sub(text, word) for word in words[1:])]
