"""Options that several commands have, and what they do at a signal."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import click

__all__ = [
    "config_option",
    "end_at_term",
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
    help="What the implementation claims and how it is started. [default: conformance.toml]",
)

generation_option = click.option(
    "--generation", type=click.Choice(["7", "8"]), help="Instead of the file's."
)
patience_option = click.option(
    "--patience",
    default=20.0,
    type=click.FloatRange(0.1, 3600),
    metavar="SECONDS",
    help="How long to wait for what has to happen. [default: 20]",
)
redis_option = click.option(
    "--redis",
    metavar="URL",
    help="An empty server of yours instead, redis://...; two databases of it are used and emptied.",
)
server_option = click.option(
    "--server", metavar="PROGRAM", help="redis-server or valkey-server to use."
)


def sandboxes_option(items: str) -> Callable[[_Command], _Command]:
    """Return the option for the number of sandboxes.

    Args:
        items: Name of the items that run in sandboxes, like `Cases`.
    """
    return click.option(
        "--sandboxes",
        default=1,
        type=click.IntRange(1, 64),
        help=f"{items} at a time, each with servers of its own. [default: 1]",
    )


def end_at_term() -> None:
    """Have SIGTERM end the command as Ctrl-C does: with everything that it has started."""
    signal.signal(signal.SIGTERM, _leave)


def _leave(*_: object) -> NoReturn:
    sys.exit(143)
