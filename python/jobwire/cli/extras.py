"""The error for a command that needs an extra of the package."""

from __future__ import annotations

import click

__all__ = ["missing"]


def missing(what: str, extra: str) -> click.ClickException:
    """Return the error of `what`, which works only with this extra of jobwire."""
    return click.ClickException(
        f"{what} is not part of the base install: pip install 'jobwire[{extra}]'"
    )
