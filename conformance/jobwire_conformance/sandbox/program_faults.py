"""Reasons why a program of the adapter cannot be started, or ended."""

from __future__ import annotations

import re
from collections.abc import Sequence

from jobwire_conformance.config import Config
from jobwire_conformance.errors import AdapterFault

__all__ = ["excerpt", "not_started"]

_HEAD = 6  # lines; where most languages name the error
_TAIL = 8  # lines; where Python names it
_CAUSES = 4  # lines
_CAUSE = re.compile(r"\s*(?:Caused by\b|panic:|[\w.$:\\]*(?:Error|Exception)\b)")
_WIDTH = 500


def excerpt(text: str) -> str:
    """Return the first and the last lines, and lines between them that name an error; indented.

    A stack trace may be longer than a message should be. Some languages write the error before it,
    and others after it.
    """
    lines = text.splitlines()
    if not lines:
        return "    (no output)"
    middle = lines[_HEAD:-_TAIL]
    if not middle:
        return _indented(lines)
    causes = [line for line in middle if _CAUSE.match(line)][:_CAUSES]
    omitted = f"... {len(middle) - len(causes)} lines left out"
    return _indented([*lines[:_HEAD], omitted, *causes, *lines[-_TAIL:]])


def _indented(lines: list[str]) -> str:
    return "\n".join(f"    {line[:_WIDTH]}" for line in lines)


def not_started(
    config: Config, section: str, command: Sequence[str], error: OSError
) -> AdapterFault:
    """Return the error, with the remedy: to build the program, or to correct its command.

    Args:
        config: Settings of the implementation.
        section: `driver` or `worker`.
        command: Its command.
        error: The error of its start.
    """
    reason = f"{command[0]}: {error.strerror or error}"
    if config.build:
        remedy = f"build it, in {config.path.parent}: {config.build}"
    else:
        remedy = f"correct [{section}] command, which runs in {config.path.parent}"
    return AdapterFault(f"the {section} cannot be started: {reason}.\n  Remedy: {remedy}")
