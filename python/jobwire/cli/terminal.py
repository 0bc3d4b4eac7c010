"""The choice between plain output and output that rich draws."""

from __future__ import annotations

from importlib.util import find_spec
from types import ModuleType
from typing import TextIO

__all__ = ["pretty"]


def pretty(stream: TextIO) -> ModuleType | None:
    """Return `jobwire.cli.pretty` if `stream` is a terminal and rich is installed.

    None means plain text. rich is an extra, `jobwire[cli]`; no other function asks for it.
    """
    if not stream.isatty() or find_spec("rich") is None:
        return None
    from jobwire.cli import pretty

    return pretty
