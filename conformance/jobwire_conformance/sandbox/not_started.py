"""The error for a program of the adapter that cannot be started."""

from __future__ import annotations

from collections.abc import Sequence

from jobwire_conformance.config import Config
from jobwire_conformance.errors import AdapterFault

__all__ = ["not_started"]


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
