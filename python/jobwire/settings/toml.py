"""Settings in TOML: jobwire.toml, and a table of pyproject.toml."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from typing import Any

from jobwire.errors import ConfigError
from jobwire.settings.types import TOO_DEEP, Entry

__all__ = ["read"]

_KEY = re.compile(r"""\s*((?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*=""")
_TABLE = re.compile(r"\s*\[\s*([^\[\]]+?)\s*\]")


def read(text: str, file: str, table: tuple[str, ...] = ()) -> dict[str, Entry] | None:
    """Return the entries of a table; None if the file does not have the table.

    Raises:
        ConfigError: The text is not TOML, or is nested too deeply.
    """
    try:
        values: Any = tomllib.loads(text)
        for name in table:
            values = values.get(name)
            if not isinstance(values, dict):
                return None
        return _entries(values, table, _lines(text))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{file}: not TOML: {error}") from None
    except RecursionError:
        raise ConfigError(f"{file}: {TOO_DEEP}") from None


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
    """Return the lines at which keys and tables begin, because tomllib does not give them.

    The lines are for messages only. A line inside a multi-line string may be taken for a key.
    """
    lines: dict[tuple[str, ...], int] = {}
    table: tuple[str, ...] = ()
    for number, line in enumerate(text.splitlines(), start=1):
        if header := _TABLE.match(line):
            path = table = _parts(header[1])
        elif key := _KEY.match(line):
            path = (*table, *_parts(key[1]))
        else:
            continue
        for length in range(1, len(path) + 1):
            lines.setdefault(path[:length], number)
    return lines


def _parts(dotted: str) -> tuple[str, ...]:
    return tuple(part.strip().strip("\"'") for part in dotted.split("."))
