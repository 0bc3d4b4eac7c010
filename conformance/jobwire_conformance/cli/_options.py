"""Options that several commands share, and their behaviour at SIGTERM."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import click

from jobwire_conformance.data import GENERATIONS

__all__ = [
    "config_option",
    "directory_option",
    "end_at_term",
    "file_option",
    "generation_option",
    "patience_option",
    "redis_option",
    "sandboxes_option",
    "server_option",
]

_Command = TypeVar("_Command", bound=Callable[..., Any])

config_option = click.option(
    "-C",
    "--config",
    "config_path",
    type=click.Path(path_type=Path),
    default="conformance.toml",
    metavar="FILE",
    help="The claims of the implementation and its programs. [default: conformance.toml]",
)

generation_option = click.option(
    "--generation", type=click.Choice(GENERATIONS), help="Generation, in place of the file's."
)
redis_option = click.option(
    "--redis",
    metavar="URL",
    help="URL of an empty server to use; the suite uses two of its databases and empties them.",
)
server_option = click.option(
    "--server", metavar="PROGRAM", help="Path of the redis-server or valkey-server to start."
)


def patience_option(seconds: float = 20) -> Callable[[_Command], _Command]:
    """Return the option for the longest wait.

    Args:
        seconds: The default.
    """
    return click.option(
        "--patience",
        default=float(seconds),
        type=click.FloatRange(0.1, 3600),
        metavar="SECONDS",
        help=f"Longest wait for an expected event. [default: {seconds:g}]",
    )


def file_option(*names: str, help: str) -> Callable[[_Command], _Command]:
    """Return an option for a file to write."""
    to = click.Path(path_type=Path, dir_okay=False, writable=True)
    return click.option(*names, type=to, metavar="FILE", help=help)


def directory_option(
    name: str, help: str, default: str | None = None
) -> Callable[[_Command], _Command]:
    """Return an option for a directory to write to."""
    to = click.Path(path_type=Path, file_okay=False)
    return click.option(name, type=to, default=default, metavar="DIR", help=help)


def sandboxes_option(items: str) -> Callable[[_Command], _Command]:
    """Return the option for the number of sandboxes.

    Args:
        items: Name of the items that run in sandboxes, like `cases`.
    """
    return click.option(
        "--sandboxes",
        default=1,
        type=click.IntRange(1, 64),
        help=f"Number of {items} that run at a time, each with its own servers. [default: 1]",
    )


def end_at_term() -> None:
    """Have SIGTERM end the command and all its processes, as Ctrl-C does."""
    signal.signal(signal.SIGTERM, _leave)


def _leave(*_: object) -> NoReturn:
    sys.exit(143)
