"""Which Python values may be job arguments. [PUSH-5]"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import msgspec

from jobwire.errors import InvalidJob

__all__ = ["MAX_DEPTH", "StrictArgs", "check_args", "check_value"]

StrictArgs = Literal["raise", "warn", "off"]
"""`raise` refuses what JSON has no type for; `off` converts it as msgspec does. `warn` does too and
says so, which is for the producer to do: here it is `raise`."""

MAX_DEPTH = 100  # levels of the whole payload, the outer object included [PAY-3]
_SCALARS = (str, int, bool, type(None))


def check_args(args: object, *, strict: StrictArgs = "raise") -> list[Any]:
    """Return `args` as the list to encode. [PUSH-5]

    Raises:
        InvalidJob: The error's `field` is the path of the offending value, like
            `args[0]['price']`.
    """
    if type(args) is not list and (
        isinstance(args, str | bytes | bytearray) or not isinstance(args, Sequence)
    ):
        raise InvalidJob(
            "PAY-12", "args", f"{_show(args)} is not a list; put a single argument in one: [...]"
        )
    values: list[Any] = list(args)
    if strict == "off":
        try:
            values = _listed(msgspec.to_builtins(values, str_keys=True))
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidJob("PUSH-5", "args", str(error)) from error
    check_value(values, "args", depth=2)
    return values


def check_value(value: object, path: str, *, depth: int) -> None:
    """Refuse a value that would not come back from JSON as itself. [PUSH-5] [PAY-3] [PAY-4]

    Types are compared exactly, as Sidekiq does: a str subclass would come back as plain str.
    """
    if not _sound((value,), depth - 1):
        _blame(value, path, depth)


def _sound(values: Iterable[Any], depth: int) -> bool:
    """Whether JSON gives all of these back; `depth` is that of what they are in.

    Paths are for errors only, and most arguments are sound: this is the quick look.
    """
    for value in values:
        kind = type(value)
        if kind is str:
            if not value.isascii() and not _encodable(value):
                return False
        elif kind is int or kind is bool or value is None:
            continue
        elif kind is list:
            if depth >= MAX_DEPTH or not _sound(value, depth + 1):
                return False
        elif kind is dict:
            if depth >= MAX_DEPTH or not _sound_object(value, depth + 1):
                return False
        elif kind is not float or not math.isfinite(value):
            return False
    return True


def _sound_object(value: dict[Any, Any], depth: int) -> bool:
    for key in value:
        if type(key) is not str or not (key.isascii() or _encodable(key)):
            return False
    return _sound(value.values(), depth)


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _blame(value: object, path: str, depth: int) -> None:
    """Raise for the first value that is not sound."""
    if type(value) is float:
        if not math.isfinite(value):
            raise InvalidJob("PAY-4", path, f"{value} has no JSON form; send None or a string")
    elif type(value) is str:
        _check_text(value, path)
    elif type(value) is list:
        _check_depth(path, depth)
        for index, item in enumerate(value):
            _blame(item, f"{path}[{index}]", depth + 1)
    elif type(value) is dict:
        _check_depth(path, depth)
        for key, item in value.items():
            if type(key) is not str:
                raise InvalidJob(
                    "PUSH-5", path, f"key {key!r} is {type(key).__name__}; keys must be str"
                )
            _check_text(key, path)
            _blame(item, f"{path}[{key!r}]", depth + 1)
    elif type(value) not in _SCALARS:
        raise InvalidJob(
            "PUSH-5",
            path,
            f"{_show(value)} is {type(value).__name__}, which JSON does not have; "
            "send str, int, float, bool, None, list or dict",
        )


def _listed(value: Any) -> Any:
    """Turn tuples, which msgspec counts as plain, into lists."""
    if isinstance(value, list | tuple):
        return [_listed(item) for item in value]
    if isinstance(value, dict):
        return {key: _listed(item) for key, item in value.items()}
    return value


def _check_depth(path: str, depth: int) -> None:
    if depth > MAX_DEPTH:
        short = path if len(path) <= 60 else path[:57] + "..."
        raise InvalidJob("PAY-3", short, f"nests deeper than {MAX_DEPTH} levels")


def _check_text(text: str, path: str) -> None:
    if not _encodable(text):
        raise InvalidJob(
            "PAY-1", path, f"{text!r} holds a lone surrogate, which UTF-8 cannot carry"
        )


def _show(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
