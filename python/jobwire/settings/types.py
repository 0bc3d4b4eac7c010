"""How values are written: as text of a flag or a variable, and in a file.

A kind only reads; whether the value is allowed is for `config.check` to say, so what cannot be
read is handed on as it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from jobwire.application.config import CapsuleConfig, check, parse_capsule, parse_queues
from jobwire.errors import ConfigError

__all__ = ["Entry", "Kind", "MisplacedError", "Text", "did_you_mean"]


class Text(str):
    """A text of a file that came from variables, and so is read as a variable's would be."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Entry:
    """A value in a file; inside are scalars, lists, and dicts of further entries."""

    value: Any
    line: int
    """From 1; 0 if unknown."""


class MisplacedError(ConfigError):
    """A setting that is wrong on a line of its own, not on the one its name is on."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.line = line


@dataclass(frozen=True, slots=True)
class Kind:
    """How the values of some settings are written."""

    metavar: str
    read: Callable[[str], Any]
    """From one text; of a kind with many values, from all the texts."""
    build: Callable[[Any], Any] = lambda value: value
    """From what a file holds."""
    split: Callable[[str], Sequence[str]] | None = None
    """How a variable holds many; None for a kind with one value."""
    note: str = ""
    """How a variable is written, for the documentation."""

    def from_text(self, text: str) -> Any:
        """Return the value that a variable's text means."""
        return self.read(text if self.split is None else self.split(text))  # type: ignore[arg-type]

    def from_file(self, value: Any) -> Any:
        """Return the value that a file's entry means."""
        return self.from_text(value) if isinstance(value, Text) else self.build(value)


def did_you_mean(name: str, known: Iterable[str], *, cutoff: float = 0.6) -> str:
    """Return the nearest known name, "" if none is near."""
    return next(iter(get_close_matches(name, known, n=1, cutoff=cutoff)), "")


def _whole(text: str) -> Any:
    digits = text.removeprefix("-")
    return int(text) if digits.isascii() and digits.isdigit() else text


def _number(text: str) -> Any:
    try:
        number = float(text)
    except ValueError:
        return text
    whole = math.isfinite(number) and number.is_integer() and "e" not in text.lower()
    return int(number) if whole and "." not in text else number


def _or_none(read: Callable[[str], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value == "none" else read(value)


_WORDS = {"true": True, "yes": True, "on": True, "1": True}
_WORDS |= {"false": False, "no": False, "off": False, "0": False}


def _boolean(text: str) -> Any:
    return _WORDS.get(text.lower(), text)


def _same(value: Any) -> Any:
    return value


def _text(value: Any) -> Any:
    return str(value) if isinstance(value, Text) else value


def _labels(value: Any) -> Any:
    if isinstance(value, str):
        return value.split()
    return [*map(_text, value)] if isinstance(value, list) else value


def _queues(value: Any) -> Any:
    """Return name to weight. Names, `name,weight`, pairs and mappings may stand in one list.

    A name that returns counts as Sidekiq 7 and later count it: each time as often as its weight,
    at least once, unless nothing has a weight. [FETCH-4]
    """
    if isinstance(value, str):
        value = value.split()
    if isinstance(value, Mapping):
        value = [value]
    if not isinstance(value, Sequence):
        return value
    pairs = [pair for item in value for pair in _pairs(item)]
    weighted = any(weight != 0 for _, weight in pairs)
    queues: dict[Any, Any] = {}
    for name, weight in pairs:
        check("queues", {name: weight})
        before = queues.get(name)
        if before is not None and weighted:
            weight = max(before, 1) + max(weight, 1)
        queues[name] = weight
    return queues


def _pairs(item: Any) -> Iterable[tuple[Any, Any]]:
    match item:
        case str():
            return parse_queues([str(item)]).items()
        case dict():
            return [(name, _plain(weight.value)) for name, weight in item.items()]
        case [name, weight]:
            return [(_text(name), _plain(weight))]
        case [name]:
            return [(_text(name), 0)]
        case [] | [*_]:
            raise ConfigError(f"queues: {item!r} does not read [NAME, WEIGHT]")
        case _:
            return [(item, 0)]  # no name, which the rule says better


def _plain(value: Any) -> Any:
    return _whole(value) if isinstance(value, Text) else value


def _capsule_texts(texts: Iterable[str]) -> dict[str, CapsuleConfig]:
    capsules: dict[str, CapsuleConfig] = {}
    for text in texts:
        name, capsule = parse_capsule(text)
        if name in capsules:
            raise ConfigError(f"capsule {name!r} is named twice")
        capsules[name] = capsule
    return capsules


def _capsules(value: Any) -> Any:
    if isinstance(value, list) and all(isinstance(text, str) for text in value):
        return _capsule_texts(value)
    if not isinstance(value, dict):
        raise ConfigError(
            f"capsules: {value!r} does not read NAME: {{queues: [...], concurrency: N}}"
        )
    return {name: _capsule(name, entry) for name, entry in value.items()}


def _capsule(name: str, entry: Entry) -> CapsuleConfig:
    if not isinstance(entry.value, dict):
        raise MisplacedError(
            f"capsule {name!r} does not read {{queues: [...], concurrency: N}}", entry.line
        )
    found: dict[str, Any] = {}
    for key, inner in entry.value.items():
        if key not in _OF_A_CAPSULE:
            near = did_you_mean(key, _OF_A_CAPSULE)
            raise MisplacedError(
                f"capsule {name!r}: {key}: no such setting; "
                + (f"did you mean {near}?" if near else "a capsule has queues and concurrency"),
                inner.line,
            )
        if inner.value is None:
            continue
        try:
            found[key] = _OF_A_CAPSULE[key].from_file(inner.value)
            check(key, found[key])
        except ConfigError as error:
            raise MisplacedError(f"capsule {name!r}: {error}", inner.line) from None
    return CapsuleConfig(**found)


WHOLE = Kind("N", _whole)
WHOLE_OR_NONE = Kind("N", _or_none(_whole), _or_none(_same))
SECONDS = Kind("SECONDS", _number)
SECONDS_OR_NONE = Kind("SECONDS", _or_none(_number), _or_none(_same))
BOOLEAN = Kind("true|false", _boolean)
TEXT = Kind("TEXT", str)
LABELS = Kind("LABEL", list, _labels, str.split, "separated by spaces")
QUEUES = Kind(
    "NAME[,WEIGHT]", lambda texts: parse_queues([*texts]), _queues, str.split, "separated by spaces"
)
CAPSULES = Kind(
    "'NAME=N QUEUE[,WEIGHT]...'",
    _capsule_texts,
    _capsules,
    lambda text: [part for part in text.split(";") if part.strip()],
    "separated by `;`",
)
_OF_A_CAPSULE: Mapping[str, Kind] = {"queues": QUEUES, "concurrency": WHOLE}
