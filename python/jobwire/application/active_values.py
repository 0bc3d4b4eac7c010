"""Values of Active Job: the arguments of jobs of Rails, and the same in Python.

Active Job writes values that JSON does not have as objects with marks. `load` and `dump` translate
them. No class or record that a payload names is ever looked up. [SEC-1] [X-AJ-6]
"""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any
from urllib.parse import unquote_plus
from zoneinfo import ZoneInfo

from jobwire.errors import ConfigError, InvalidJob
from jobwire.protocol import active_job
from jobwire.protocol.arguments import show

__all__ = [
    "Duration",
    "GlobalID",
    "IndifferentHash",
    "Keywords",
    "Module",
    "Range",
    "Serialized",
    "Symbol",
    "dump",
    "dump_call",
    "load",
    "wrap_call",
]

_GLOBAL_ID = "_aj_globalid"
_SERIALIZED = "_aj_serialized"
_SYMBOLS = "_aj_symbol_keys"
_KEYWORDS = "_aj_ruby2_keywords"
_INDIFFERENT = "_aj_hash_with_indifferent_access"
_RESERVED = frozenset([_GLOBAL_ID, _SERIALIZED, _SYMBOLS, _KEYWORDS, _INDIFFERENT])
_PREFIX = "ActiveJob::Serializers::"
_URI = re.compile(r"gid://([^/]+)/([^/]+)/([^?]+)(?:\?.*)?")


class Symbol(str):
    """A symbol of Ruby. It equals the string, so `options["force"]` finds the key `:force`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"Symbol({str(self)!r})"


class Keywords(dict[str, Any]):
    """Keyword arguments of Ruby. They become keyword arguments if they are the last argument."""


class IndifferentHash(dict[str, Any]):
    """An `ActiveSupport::HashWithIndifferentAccess`."""


@dataclass(frozen=True, slots=True)
class GlobalID:
    """A reference to a record of a Rails application: `gid://shop/Order/7`.

    It is only a value. The job looks the record up by itself, for example by `id`.
    """

    uri: str

    def __post_init__(self) -> None:
        self._parts()

    def _parts(self) -> tuple[str, str, str]:
        match = _URI.fullmatch(self.uri)
        if match is None:
            raise ValueError(f"{show(self.uri)} is not a GlobalID; write gid://APP/MODEL/ID")
        return match[1], match[2], match[3]

    @property
    def app(self) -> str:
        """Name of the Rails application."""
        return self._parts()[0]

    @property
    def model(self) -> str:
        """Name of the record's class, like `Shop::Order`."""
        return self._parts()[1]

    @property
    def id(self) -> str:
        """Primary key of the record, as text. The parts of a composite key have `/` between."""
        return unquote_plus(self._parts()[2])


@dataclass(frozen=True, slots=True)
class Module:
    """A class or module of Ruby, by name. It is never looked up."""

    name: str


@dataclass(frozen=True, slots=True)
class Range:
    """A range of Ruby; an end that is None is open."""

    begin: Any
    end: Any
    exclude_end: bool = False


@dataclass(frozen=True, slots=True)
class Duration:
    """An `ActiveSupport::Duration`, like `1.month`.

    Attributes:
        value: Length in seconds. A month counts as the twelfth part of a year.
        parts: Unit and number, like `("months", 1)`.
    """

    value: int | float
    parts: tuple[tuple[str, int | float], ...]

    @property
    def timedelta(self) -> timedelta:
        """The length."""
        return timedelta(seconds=self.value)


@dataclass(frozen=True, slots=True)
class Serialized:
    """A value of a serializer that only the Rails application has. It is carried unchanged."""

    fields: dict[str, Any]


def load(wire: Any) -> Any:
    """Return a value from the form that Active Job gave it. [X-AJ-2] [X-AJ-4]

    Raises:
        ValueError: A mark has a value that it cannot have.
    """
    if isinstance(wire, list):
        return [load(item) for item in wire]
    if not isinstance(wire, dict):
        return wire
    if wire.keys() == {_GLOBAL_ID}:
        return GlobalID(_text(wire[_GLOBAL_ID]))
    if _SERIALIZED in wire:
        return _load_serialized(wire)
    values = {key: load(item) for key, item in wire.items() if key not in _RESERVED}
    if _INDIFFERENT in wire:
        return IndifferentHash(values)
    symbols = {_text(key) for key in (*_list(wire, _SYMBOLS), *_list(wire, _KEYWORDS))}
    named = {Symbol(key) if key in symbols else key: value for key, value in values.items()}
    return Keywords(named) if _KEYWORDS in wire else named


def dump(value: Any) -> Any:
    """Return a value in the form that Active Job reads. [X-AJ-10]

    A timedelta becomes a duration; a datetime with a named zone becomes a time with zone.

    Raises:
        ValueError: Active Job has no form for it. JSON's own types are not checked here.
    """
    match value:
        case Symbol():
            return _serialized("Symbol", value=str(value))
        case list() | tuple():
            return [dump(item) for item in value]
        case dict():
            return _dump_hash(value)
        case GlobalID():
            return {_GLOBAL_ID: value.uri}
        case datetime():
            return _dump_time(value)
        case date():
            return _serialized("Date", value=value.isoformat())
        case timedelta():
            return dump(_duration(value))
        case Duration():
            parts = [[dump(Symbol(unit)), number] for unit, number in value.parts]
            return _serialized("Duration", value=value.value, parts=parts)
        case Decimal():
            return _serialized("BigDecimal", value=f"{value:f}")
        case Module():
            return _serialized("Module", value=value.name)
        case Range():
            begin, end = dump(value.begin), dump(value.end)
            return _serialized("Range", begin=begin, end=end, exclude_end=value.exclude_end)
        case Serialized():
            return value.fields
    return value


def dump_call(args: Iterable[Any], kwargs: Mapping[str, Any] | None = None) -> list[Any]:
    """Return the arguments of a call as Active Job reads them. [X-AJ-10] [X-AJ-11]

    Raises:
        InvalidJob: Active Job has no form for a value.
    """
    given = [*args, *([Keywords(kwargs)] if kwargs else [])]
    arguments = []
    for index, value in enumerate(given):
        try:
            arguments.append(dump(value))
        except ValueError as error:
            raise InvalidJob("X-AJ-10", f"args[{index}]", str(error)) from None
    return arguments


def wrap_call(job_class: str, arguments: list[Any], *, queue: str | None) -> dict[str, Any]:
    """Return the argument of a new payload that wraps an Active Job. [X-AJ-9]

    Raises:
        ConfigError: The class has no name.
    """
    if not job_class.strip():
        raise ConfigError(f"job class {job_class!r} must be a name of Rails, like 'WelcomeJob'")
    return active_job.wrap(
        job_class,
        arguments,
        queue=queue or "default",
        job_id=str(uuid.uuid4()),
        now=time.time(),
    )


def _serialized(name: str, **fields: Any) -> dict[str, Any]:
    return {_SERIALIZED: f"{_PREFIX}{name}Serializer", **fields}


def _dump_hash(value: dict[Any, Any]) -> dict[str, Any]:
    for key in value:
        if not isinstance(key, str):
            raise ValueError(f"key {show(key)} is not a string or Symbol")
        if key in _RESERVED:
            raise ValueError(f"key {key!r} is reserved by Active Job; use another name")
    dumped = {str(key): dump(item) for key, item in value.items()}
    if isinstance(value, IndifferentHash):
        return {**dumped, _INDIFFERENT: True}
    if isinstance(value, Keywords):
        return {**dumped, _KEYWORDS: list(dumped)}
    return {**dumped, _SYMBOLS: [str(key) for key in value if isinstance(key, Symbol)]}


def _dump_time(value: datetime) -> dict[str, Any]:
    if value.utcoffset() is None:
        raise ValueError(f"{value!r} has no time zone; use datetime.now(timezone.utc)")
    text = value.isoformat(timespec="microseconds")
    text = f"{text[:26]}000{text[26:].replace('+00:00', 'Z')}"
    if isinstance(value.tzinfo, ZoneInfo) and value.tzinfo.key:
        return _serialized("TimeWithZone", value=text, time_zone=value.tzinfo.key)
    return _serialized("Time", value=text)


def _duration(length: timedelta) -> Duration:
    seconds = length.total_seconds()
    value = int(seconds) if seconds.is_integer() else seconds
    return Duration(value, (("seconds", value),))


def _load_serialized(wire: dict[str, Any]) -> Any:
    name = _text(wire[_SERIALIZED])
    loader = _LOADERS.get(name.removeprefix(_PREFIX).removesuffix("Serializer"))
    if loader is None or not name.startswith(_PREFIX):
        return Serialized(wire)
    return loader(wire)


def _load_time(wire: dict[str, Any]) -> datetime:
    """Return the instant with the offset, or in the zone, that the text has.

    Digits beyond microseconds are cut.
    """
    moment = datetime.fromisoformat(_text(wire.get("value")))
    if moment.utcoffset() is None:
        raise ValueError(f"time {wire['value']!r} has no offset")
    zone = wire.get("time_zone")
    if zone is None:
        return moment
    try:
        return moment.astimezone(ZoneInfo(_text(zone)))
    except (LookupError, OSError):  # unknown here; the instant and the offset are known
        return moment


def _load_decimal(wire: dict[str, Any]) -> Decimal:
    try:
        return Decimal(_text(wire.get("value")))
    except InvalidOperation:
        raise ValueError(f"decimal {show(wire['value'])} is not a number") from None


def _load_duration(wire: dict[str, Any]) -> Duration:
    parts = []
    for part in _list(wire, "parts"):
        match load(part):
            case [str() as unit, int() | float() as number]:
                parts.append((str(unit), number))
            case _:
                raise ValueError(f"part {show(part)} of a duration is not a unit with a number")
    value = wire.get("value")
    if not isinstance(value, int | float):
        raise ValueError(f"duration {show(value)} is not a number of seconds")
    return Duration(value, tuple(parts))


def _load_range(wire: dict[str, Any]) -> Range:
    return Range(load(wire.get("begin")), load(wire.get("end")), wire.get("exclude_end") is True)


_LOADERS: Mapping[str, Callable[[dict[str, Any]], Any]] = {
    "Symbol": lambda wire: Symbol(_text(wire.get("value"))),
    "Time": _load_time,
    "DateTime": _load_time,
    "TimeWithZone": _load_time,
    "Date": lambda wire: date.fromisoformat(_text(wire.get("value"))),
    "Duration": _load_duration,
    "BigDecimal": _load_decimal,
    "Module": lambda wire: Module(_text(wire.get("value"))),
    "Range": _load_range,
}


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{show(value)} is not a string")
    return value


def _list(wire: dict[str, Any], key: str) -> list[Any]:
    value = wire.get(key, [])
    if not isinstance(value, list):
        raise ValueError(f"{key} {show(value)} is not an array")
    return value
