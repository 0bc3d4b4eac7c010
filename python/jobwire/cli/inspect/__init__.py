"""`jobwire inspect`: shows queues, sets and processes, and changes them."""

from __future__ import annotations

import click

from jobwire.cli.groups import Group
from jobwire.cli.inspect import change, show

__all__ = ["inspect"]


@click.group(
    cls=Group,
    commands=[*show.COMMANDS, *change.COMMANDS],
    context_settings={"help_option_names": ["-h", "--help"]},
)
def inspect() -> None:
    """Show queues, sets and processes, and change them.

    Output is a table on a terminal, lines with tabs in a pipe, and with --json one object per
    line. Commands that show data change nothing. Changes of many entries ask first; without a
    terminal they need --yes.

    Exit status: 0 done; 1 a named item does not exist, or you answered no; 2 wrong usage;
    4 Redis cannot be used.
    """
