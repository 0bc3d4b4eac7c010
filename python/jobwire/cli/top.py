"""`jobwire top`: the page in a terminal."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import get_args

import click

from jobwire.cli.inspect.options import change_options, operating
from jobwire.cli.options import find_redis
from jobwire.connection.connect import safe_url
from jobwire.console.ops.roles import Role, check_role
from jobwire.errors import ConfigError

__all__ = ["top"]


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@change_options
@click.option(
    "--interval",
    type=click.FloatRange(0.1, 3600),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="Time between two reads.",
)
@click.option(
    "--role",
    type=click.Choice(get_args(Role)),
    default="admin",
    show_default=True,
    help="Possible actions: none, those on jobs and queues, or all.",
)
@click.option("--read-only", is_flag=True, help="Same as --role viewer.")
def top(url: str | None, namespace: str | None, interval: float, role: str, read_only: bool) -> int:
    """Show and change queues, jobs and processes in the terminal, until q.

    The screen shows its keys; ? shows all. Every change is written to the journal, in the name of
    the user of this system. NO_COLOR turns off the colours.
    """
    if find_spec("textual") is None:
        raise ConfigError("jobwire top: needs textual: pip install 'jobwire[tui]'")
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise ConfigError("jobwire top: needs a terminal; 'jobwire inspect' does without one")
    from jobwire.console.top.app import TopApp

    redis, _, prefix, _ = find_redis(url, namespace)
    with operating(redis, prefix, check_role("viewer" if read_only else role)) as operations:
        app = TopApp(operations, address=safe_url(redis), interval=interval)
        try:
            app.run()
        finally:
            app.close()
    return app.return_code or 0
