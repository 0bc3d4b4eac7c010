"""Options that several commands have, and what they do at a signal."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import NoReturn

import click

__all__ = [
    "config_option",
    "end_at_term",
    "generation_option",
    "patience_option",
    "redis_option",
    "server_option",
]

config_option = click.option(
    "-C",
    "--config",
    "config_path",
    type=click.Path(path_type=Path),
    default="jobwire.toml",
    metavar="FILE",
    help="What the implementation claims and how it is started. [default: jobwire.toml]",
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


def end_at_term() -> None:
    """Have SIGTERM end the command as Ctrl-C does: with everything that it has started."""
    signal.signal(signal.SIGTERM, _leave)


def _leave(*_: object) -> NoReturn:
    sys.exit(143)
