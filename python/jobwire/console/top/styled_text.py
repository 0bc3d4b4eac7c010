"""Texts with styles, in which nothing from Redis can be markup or control the terminal."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from rich.text import Text

from jobwire.inspect.formats import clean, cut

__all__ = [
    "Cell",
    "Drawn",
    "Part",
    "bar_chart",
    "cells_wide",
    "drawn",
    "joined",
    "one_line",
    "shown",
]

MAX_CHARS = 200  # characters of one value in a table
BARS = "▁▂▃▄▅▆▇█"
STYLES = {
    "": "",
    "bad": "red",
    "warn": "yellow",
    "good": "green",
    "name": "cyan",
    "dim": "dim",
    "head": "bold",
}


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell of a table; its text is already safe to show.

    Attributes:
        text: The text.
        style: `bad`, `warn`, `good`, `name`, `dim`, `head` or "".
    """

    text: str
    style: str = ""


Part = str | Cell
Drawn: TypeAlias = Text


def shown(value: str, most: int = MAX_CHARS) -> str:
    """Return a text from Redis as one short line: escapes replace unprintable characters."""
    return cut(clean(value[: most + 1]), most)


def one_line(value: Any, most: int = MAX_CHARS) -> str:
    """Return a value of a payload as one short line of JSON."""
    if isinstance(value, str):
        return shown(json.dumps(value[: most + 1], ensure_ascii=False), most)
    try:
        line = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        line = str(value)
    return shown(line, most)


def drawn(part: Part, *, right: bool = False) -> Drawn:
    """Return the text of a cell for the table widget."""
    text, style = (part, "") if isinstance(part, str) else (part.text, part.style)
    return Text(
        text,
        STYLES[style],
        justify="right" if right else "left",
        no_wrap=True,
        overflow="ellipsis",
        end="",
    )


def joined(lines: Iterable[Sequence[Part]]) -> Drawn:
    """Return lines, each of several parts, as one text."""
    text = Text()
    for number, line in enumerate(lines):
        if number:
            text.append("\n")
        for part in line:
            text.append(part if isinstance(part, str) else part.text, _style(part))
    return text


def _style(part: Part) -> str:
    return "" if isinstance(part, str) else STYLES[part.style]


def cells_wide(text: str) -> int:
    """Return the number of columns that a text takes up."""
    return len(text) if text.isascii() else Text(text).cell_len


def bar_chart(values: Sequence[float], most: int) -> str:
    """Return the last `most` values as a line of bars; a blank stands for 0."""
    last = values[-most:] if most > 0 else []
    top = max(last, default=0.0)
    if top <= 0:
        return " " * len(last)
    bars = (BARS[min(int(value / top * len(BARS)), len(BARS) - 1)] for value in last)
    return "".join(bar if value > 0 else " " for bar, value in zip(bars, last, strict=True))
