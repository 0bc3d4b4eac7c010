"""Options that several commands have, and what they do at a signal."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import NoReturn

import click

__all__ = ["config_option", "end_at_term"]

config_option = click.option(
    "-C",
    "--config",
    "config_path",
    type=click.Path(path_type=Path),
    default="jobwire.toml",
    metavar="FILE",
    help="What the implementation claims and how it is started. [default: jobwire.toml]",
)


def end_at_term() -> None:
    """Have SIGTERM end the command as Ctrl-C does: with everything that it has started."""
    signal.signal(signal.SIGTERM, _leave)


def _leave(*_: object) -> NoReturn:
    sys.exit(143)
