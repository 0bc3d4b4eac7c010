"""Settings in TOML: jobwire.toml, and a table of pyproject.toml."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from typing import Any

from jobwire.errors import ConfigError
from jobwire.settings.types import Entry

__all__ = ["read"]

_KEY = re.compile(r"""\s*((?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*=""")
_TABLE = re.compile(r"\s*\[\s*([^\[\]]+?)\s*\]")


def read(text: str, file: str, table: tuple[str, ...] = ()) -> dict[str, Entry] | None:
    """Return the entries of a table, None if the file does not have it.

    Raises:
        ConfigError: It is not TOML.
    """
    try:
        values: Any = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{file}: not TOML: {error}") from None
    for name in table:
        values = values.get(name)
        if not isinstance(values, dict):
            return None
    return _entries(values, table, _lines(text))


def _entries(
    values: Mapping[str, Any], path: tuple[str, ...], lines: Mapping[tuple[str, ...], int]
) -> dict[str, Entry]:
    return {name: _entry(value, (*path, name), lines) for name, value in values.items()}


def _entry(value: Any, path: tuple[str, ...], lines: Mapping[tuple[str, ...], int]) -> Entry:
    line = lines.get(path, lines.get(path[:-1], 0))
    return Entry(_plain(value, path, lines), line)


def _plain(value: Any, path: tuple[str, ...], lines: Mapping[tuple[str, ...], int]) -> Any:
    if isinstance(value, dict):
        return _entries(value, path, lines)
    if isinstance(value, list):
        return [_plain(item, path, lines) for item in value]
    return value


def _lines(text: str) -> dict[tuple[str, ...], int]:
    """Return where keys and tables begin, which tomllib does not tell.

    Good enough to point at: a line inside a text of several lines may pass for a key.
    """
    lines: dict[tuple[str, ...], int] = {}
    table: tuple[str, ...] = ()
    for number, line in enumerate(text.splitlines(), start=1):
        if found := _TABLE.match(line):
            path = table = _parts(found[1])
        elif found := _KEY.match(line):
            path = (*table, *_parts(found[1]))
        else:
            continue
        for length in range(1, len(path) + 1):
            lines.setdefault(path[:length], number)
    return lines


def _parts(dotted: str) -> tuple[str, ...]:
    return tuple(part.strip().strip("\"'") for part in dotted.split("."))
