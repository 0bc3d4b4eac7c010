"""The banner of a worker on a terminal."""

from __future__ import annotations

import os
import sys

import click

from jobwire._version import __version__
from jobwire.settings import Settings
from jobwire.worker.process.notify import SUPERVISOR

__all__ = ["greet"]

_BANNER = f"""
   .-----.        .------.
---| job |========| wire |---  {__version__}
   '-----'        '------'
"""


def greet(settings: Settings) -> None:
    """Show the banner, if standard error is a terminal and the log format is human."""
    if sys.stderr.isatty() and settings["log_format"] == "human" and SUPERVISOR not in os.environ:
        click.echo(_BANNER, err=True)
