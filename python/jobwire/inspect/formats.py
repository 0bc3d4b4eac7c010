"""Texts of values, for terminals: times, time spans, JSON, and texts that come from Redis."""

from __future__ import annotations

import dataclasses
import json
import math
from datetime import UTC, datetime
from typing import Any

import msgspec

from jobwire.errors import ConfigError
from jobwire.inspect.reading import text
from jobwire.text import visible, visible_json

__all__ = ["ago", "clean", "cut", "duration", "iso", "plain", "seconds", "to_json"]

_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


def plain(value: Any) -> Any:
    """Return a value converted to the types of JSON."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        return {field.name: plain(getattr(value, field.name)) for field in fields}
    if isinstance(value, msgspec.Struct):
        return plain(msgspec.structs.asdict(value))
    if isinstance(value, dict):
        return {_key(key): plain(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return text(value) if isinstance(value, str | bytes) else value


def to_json(value: Any) -> str:
    """Return a value as one line of JSON."""
    return visible_json(json.dumps(plain(value), ensure_ascii=False, allow_nan=False, default=str))


def clean(value: str) -> str:
    """Return a text or a `name` as text that cannot control a terminal."""
    return visible(text(value))


def cut(value: str, length: int) -> str:
    """Return the beginning of a text, with an ellipsis if it was cut."""
    return value if len(value) <= length else value[: length - 1] + "…"


def duration(seconds: float) -> str:
    """Return a time span for people to read: `45s`, `12m 00s`, `3h 20m`, `5d 4h`."""
    if not math.isfinite(seconds):
        return "∞"
    whole = int(abs(seconds))
    sign = "-" if seconds < 0 else ""
    if whole < 60:
        return f"{sign}{abs(seconds):.1f}s" if 0 < abs(seconds) < 10 else f"{sign}{whole}s"
    if whole < 3_600:
        return f"{sign}{whole // 60}m {whole % 60:02}s"
    if whole < 86_400:
        return f"{sign}{whole // 3_600}h {whole % 3_600 // 60:02}m"
    return f"{sign}{whole // 86_400:,}d {whole % 86_400 // 3_600}h"


def seconds(span: str) -> float:
    """Return the seconds of a time span that a person wrote: `90`, `15m`, `2h` or `30d`.

    Raises:
        ConfigError: It is not a time span.
    """
    number, unit = (span[:-1], _UNITS[span[-1]]) if span[-1:] in _UNITS else (span, 1)
    try:
        length = float(number) * unit
    except ValueError:
        length = -1.0
    if not 0 <= length < 1e11:
        raise ConfigError(f"{span!r} is not a time span; write 90, 15m, 2h or 30d")
    return length


def ago(at: float | None, now: float) -> str:
    """Return an epoch second relative to now: `3m 00s ago`, `in 2h 00m`."""
    if at is None:
        return "-"
    return f"in {duration(at - now)}" if at > now else f"{duration(now - at)} ago"


def iso(at: float) -> str:
    """Return an epoch second as a date and time: `2026-11-20T18:00:00.250Z`."""
    try:
        moment = datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return f"{at:g}"
    return moment.replace(".000", "").replace("+00:00", "Z")


def _key(key: object) -> str:
    return key if isinstance(key, str) else str(key)
