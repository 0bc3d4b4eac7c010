"""Checks of job arguments: only values that JSON can represent. [PUSH-5]"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, time, timedelta
from itertools import chain
from typing import Any, Literal

import msgspec

from jobwire.errors import InvalidJob

__all__ = [
    "MAX_DEPTH",
    "StrictArgs",
    "check_args",
    "check_offsets",
    "check_value",
    "plain_lists",
    "show",
    "to_json",
]

StrictArgs = Literal["raise", "warn", "off"]
"""`raise` refuses values for which JSON has no type. `off` converts them as msgspec does. `warn`
converts them and logs a warning; the producer does that, so this module treats `warn` as `raise`.
"""

MAX_DEPTH = 100  # levels of the whole payload, counting the outer object [PAY-3]
_TIMES = (datetime, time)
_SCALARS = (str, int, bool, type(None))


def check_args(args: object, *, strict: StrictArgs = "raise") -> list[Any]:
    """Return `args` as the list to encode. [PUSH-5]

    Raises:
        InvalidJob: A value is not allowed; `field` of the error is its path, like
            `args[0]['price']`.
    """
    if type(args) is not list and (
        isinstance(args, str | bytes | bytearray) or not isinstance(args, Sequence)
    ):
        raise InvalidJob(
            "PAY-12", "args", f"{show(args)} is not a list; write a single argument as [...]"
        )
    values: list[Any] = list(args)
    if strict == "off":
        try:
            values = to_json(values)
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidJob("PUSH-5", "args", str(error)) from None
    check_value(values, "args", depth=2)
    return values


def plain_lists(many: Sequence[Any]) -> Sequence[Any] | None:
    """Return the arguments of many jobs as `check_args` does; None if it must look at each.

    It must for any value that it refuses, converts or warns about.
    """
    kinds = set(map(type, many))
    if not kinds <= {list, tuple}:
        return None
    if not _sound([*chain.from_iterable(many)], 2):
        return None
    return many if tuple not in kinds else [*map(list, many)]


def check_value(value: object, path: str, *, depth: int) -> None:
    """Refuse a value that a round trip through JSON would change. [PUSH-5] [PAY-3] [PAY-4] [PAY-22]

    Types must match exactly, as for Sidekiq: a subclass of str would come back as a plain str.

    Raises:
        InvalidJob: The value, or one inside it, is not allowed.
    """
    if not _sound((value,), depth - 1):
        _blame(value, path, depth)


def _sound(values: Iterable[Any], depth: int) -> bool:
    """True if a round trip through JSON changes none of `values`; `depth` is their container's.

    This quick check builds no paths. `_blame` builds them for the error, which is rare.
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
    """Raise the error for the first value that is not sound; it names the place. [PUSH-12]"""
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
                problem = f"key {key!r} is {type(key).__name__}; keys must be str"
                if type(key) is int and path.startswith("args["):
                    problem += ", or annotate the parameter of the job, like dict[int, int]"
                raise InvalidJob("PUSH-5", path, problem)
            _check_text(key, path)
            _blame(item, f"{path}[{key!r}]", depth + 1)
    elif type(value) not in _SCALARS:
        raise InvalidJob(
            "PUSH-5",
            path,
            f"{show(value)} is {type(value).__name__}, for which JSON has no type; "
            "send str, int, float, bool, None, list or dict",
        )


def to_json(value: Any, *, enc_hook: Callable[[Any], Any] | None = None) -> Any:
    """Return a value as JSON values, as msgspec does, without changing an instant.

    RFC 3339 has no seconds in an offset, and msgspec leaves them out: local mean times, such as
    that of Monrovia up to 1972, would be seconds off.

    Raises:
        TypeError: A type has no JSON form.
        ValueError: A time has none, or the value has none.
    """
    try:
        return _listed(
            msgspec.to_builtins(value, str_keys=True, builtin_types=_TIMES, enc_hook=enc_hook)
        )
    except TypeError:  # perhaps because a time is a key
        check_offsets(value)
        return _listed(msgspec.to_builtins(value, str_keys=True, enc_hook=enc_hook))


def check_offsets(value: object) -> None:
    """Refuse a time whose offset has seconds, in containers as well.

    Raises:
        ValueError: There is one.
    """
    if isinstance(value, _TIMES) and _has_odd_offset(value):
        raise ValueError(
            f"{value} has an offset with seconds, for which its text has no place; convert it to "
            "UTC with .astimezone(UTC)"
        )
    if isinstance(value, dict):
        check_offsets([*value, *value.values()])
    elif isinstance(value, list | tuple | set | frozenset):
        for item in value:
            check_offsets(item)


def _has_odd_offset(value: datetime | time) -> bool:
    return bool((value.utcoffset() or timedelta()) % timedelta(minutes=1))


def _listed(value: Any) -> Any:
    """Turn what msgspec keeps into JSON values: tuples into lists, times into texts."""
    if isinstance(value, list | tuple):
        return [_listed(item) for item in value]
    if isinstance(value, dict):
        return {key: _listed(item) for key, item in value.items()}
    if isinstance(value, _TIMES):
        if isinstance(value, datetime) and _has_odd_offset(value):
            try:
                value = value.astimezone(UTC)
            except OverflowError as error:
                raise ValueError(str(error)) from None
        check_offsets(value)
        return msgspec.to_builtins(value)
    return value


def _check_depth(path: str, depth: int) -> None:
    if depth > MAX_DEPTH:
        short = path if len(path) <= 60 else path[:57] + "..."
        raise InvalidJob("PAY-3", short, f"nests deeper than {MAX_DEPTH} levels")


def _check_text(text: str, path: str) -> None:
    if not _encodable(text):
        raise InvalidJob(
            "PAY-22", path, f"{text!r} holds a lone surrogate, which UTF-8 cannot carry"
        )


def show(value: object) -> str:
    """Return a value for a message, cut to 60 characters."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
