"""Notations of values: in a flag or variable, and in a file.

A kind only reads values, and `config.check` decides if a value is allowed. So a kind returns a text
that it cannot read unchanged.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jobwire.application.config import CapsuleConfig, check, parse_capsule, parse_queues
from jobwire.errors import ConfigError
from jobwire.protocol.foreign import POLICIES
from jobwire.text import did_you_mean

__all__ = ["TOO_DEEP", "Bare", "Entry", "Kind", "MisplacedError", "Text"]

TOO_DEEP = "its values are nested too deeply; write fewer brackets"


class Bare(str):
    """A string that stands in a file without quotes."""

    __slots__ = ()


class Text(str):
    """A string of a file with text from variables; it is read like the value of a variable."""

    bare = False
    """True if the file has no quotes around it, so that YAML reads 5 as a number."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A value in a file: a scalar, a list, or a dict of more entries."""

    value: Any
    line: int
    """Line number from 1; 0 if unknown."""


class MisplacedError(ConfigError):
    """An error in a setting, on another line than the name of the setting."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.line = line


@dataclass(frozen=True, slots=True)
class Kind:
    """The notation of a type of setting."""

    metavar: str
    read: Callable[[str], Any]
    """Returns the value of a string; for a kind with many values, of a list of strings."""
    build: Callable[[Any], Any] = lambda value: value
    """Returns the value of a file's content."""
    split: Callable[[str], Sequence[str]] | None = None
    """Splits the text of a variable into its values; None for a kind with one value."""
    note: str = ""
    """Notation in a variable, for the documentation."""

    def from_text(self, text: str) -> Any:
        """Return the value for the text of a variable."""
        return self.read(text if self.split is None else self.split(text))  # type: ignore[arg-type]

    def from_file(self, value: Any) -> Any:
        """Return the value for an entry of a file."""
        return self.from_text(value) if isinstance(value, Text) else self.build(value)


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
    """Return name to weight, from a list of names, `name,weight`, pairs and mappings.

    If a name occurs more than once and any queue has a weight, its weights add up, and a weight
    of 0 counts as 1, as in Sidekiq 7 and later. [FETCH-4]
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
            raise ConfigError(f"queues: {item!r} is not of the form [NAME, WEIGHT]")
        case _:
            return [(item, 0)]  # not a name; `check` gives a better message


def _plain(value: Any) -> Any:
    return _whole(value) if isinstance(value, Text) else value


def _foreign(value: Any) -> Any:
    """Return feature to policy, from a list of `feature=policy` or a mapping; others by default."""
    if isinstance(value, Mapping):
        given = {name: entry.value for name, entry in value.items()}
    elif isinstance(value, str) or not isinstance(value, Sequence):
        return value
    else:
        given = {}
        for text in value:
            name, equals, policy = str(text).partition("=")
            if not equals:
                raise ConfigError(f"foreign: {text!r} is not of the form FEATURE=POLICY")
            given[name] = policy
    return {**POLICIES, **given}


def _hand_over(value: Any) -> Any:
    """Return class pattern to queue, from a list of `pattern=queue` or a mapping."""
    if isinstance(value, Mapping):
        return {pattern: entry.value for pattern, entry in value.items()}
    if isinstance(value, str) or not isinstance(value, Sequence):
        return value
    given = {}
    for text in value:
        pattern, equals, queue = str(text).partition("=")
        if not equals:
            raise ConfigError(f"hand_over: {text!r} is not of the form PATTERN=QUEUE")
        given[pattern] = queue
    return given


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
            f"capsules: {value!r} is not of the form NAME: {{queues: [...], concurrency: N}}"
        )
    return {name: _capsule(name, entry) for name, entry in value.items()}


def _capsule(name: str, entry: Entry) -> CapsuleConfig:
    if not isinstance(entry.value, dict):
        raise MisplacedError(
            f"capsule {name!r} is not of the form {{queues: [...], concurrency: N}}", entry.line
        )
    values: dict[str, Any] = {}
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
            values[key] = _OF_A_CAPSULE[key].from_file(inner.value)
            check(key, values[key])
        except ConfigError as error:
            raise MisplacedError(f"capsule {name!r}: {error}", inner.line) from None
    return CapsuleConfig(**values)


WHOLE = Kind("N", _whole)
WHOLE_OR_NONE = Kind("N", _or_none(_whole), _or_none(_same))
SECONDS = Kind("SECONDS", _number)
SECONDS_OR_NONE = Kind("SECONDS", _or_none(_number), _or_none(_same))
BOOLEAN = Kind("true|false", _boolean)
TEXT = Kind("TEXT", str)
TEXT_OR_NONE = Kind("TEXT", _or_none(str), _or_none(_same))
LABELS = Kind("LABEL", list, _labels, str.split, "separated by spaces")
QUEUES = Kind(
    "NAME[,WEIGHT]", lambda texts: parse_queues([*texts]), _queues, str.split, "separated by spaces"
)
FOREIGN = Kind("FEATURE=POLICY", _foreign, _foreign, str.split, "separated by spaces")
HAND_OVER = Kind("PATTERN=QUEUE", _hand_over, _hand_over, str.split, "separated by spaces")
CAPSULES = Kind(
    "'NAME=N QUEUE[,WEIGHT]...'",
    _capsule_texts,
    _capsules,
    lambda text: [part for part in text.split(";") if part.strip()],
    "separated by `;`",
)
_OF_A_CAPSULE: Mapping[str, Kind] = {"queues": QUEUES, "concurrency": WHOLE}
