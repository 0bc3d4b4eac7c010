"""The ends of commands: signals, exit statuses, and the line that explains each one."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from queue import Empty, SimpleQueue

import click

from jobwire.errors import JobwireError, MaybeWritten, RedisTrouble, RedisUnreachable
from jobwire.text import visible

__all__ = ["AppNotLoaded", "EndSignals", "NotFound", "report"]

EXIT_OK = 0
EXIT_UNEXPECTED = 1
EXIT_NOT_FOUND = 1
EXIT_USAGE = 2
EXIT_APP = 3
EXIT_REDIS = 4
EXIT_UNSURE = 5
CHECK_INTERVAL_S = 0.5  # a signal that another thread of the process gets does not wake this one


class AppNotLoaded(Exception):
    """The application named on the command line cannot be loaded."""


class NotFound(click.ClickException):
    """An item that the command line names does not exist."""


def report(error: click.ClickException | AppNotLoaded | JobwireError) -> int:
    """Print an error as one line and return its exit status."""
    text, status = _explained(error)
    click.echo("jobwire: " + visible(" ".join(text.split())), err=True)
    return status


def _explained(error: Exception) -> tuple[str, int]:
    # They load asyncio, which most commands without an error do not need.
    from jobwire.connection.embedded import EmbeddedError
    from jobwire.protocol.server import UnfitServer

    if isinstance(error, click.UsageError):
        command = error.ctx.command_path if error.ctx else "jobwire"
        return f"{error.format_message()} (see {command} --help)", EXIT_USAGE
    if isinstance(error, NotFound):
        return error.format_message(), EXIT_NOT_FOUND
    if isinstance(error, click.ClickException):
        return error.format_message(), EXIT_USAGE
    if isinstance(error, AppNotLoaded):
        return str(error), EXIT_APP
    if isinstance(error, MaybeWritten):
        return str(error), EXIT_UNSURE
    if isinstance(error, RedisUnreachable):
        return f"{error}; {_remedy(error)}", EXIT_REDIS
    if isinstance(error, RedisTrouble | UnfitServer | EmbeddedError):
        return str(error), EXIT_REDIS
    return str(error), EXIT_USAGE


def _remedy(error: RedisUnreachable) -> str:
    # The words of Redis and Valkey.
    if "without any password" in str(error):
        return "this server has no password: leave out the one in the URL"
    if "DB index" in str(error):
        return "lower the number at the end of the URL: a server has databases 0 to 15 by default"
    if error.login_refused:
        return "put user and password into the URL: redis://USER:PASSWORD@HOST:PORT/0"
    from jobwire.application.redis_url import DEFAULT_URL, development_url, redis_url
    from jobwire.connection import embedded
    from jobwire.connection.connect import safe_url

    if (running := development_url()) and running not in str(error):
        return f"'jobwire dev' runs here at {running}"
    named = redis_url(None, os.environ)
    if named and safe_url(named[0]) in str(error):
        return f"this URL is {named[1]}: check the host, or start the server"
    if DEFAULT_URL not in str(error):
        return "check the host of this URL, or start the server"
    if embedded.home(Path.cwd()):
        return (
            "'jobwire dev' of this directory is not running: start it, or name a server with "
            "--redis or REDIS_URL"
        )
    return "start a server, or name one with --redis or REDIS_URL ('jobwire dev' starts its own)"


class EndSignals:
    """Catches INT, TERM and HUP from now on, except HUP under nohup.

    It is for commands that run until a signal ends them.

    A handler runs between any two bytecodes of the main thread, also while that holds the lock of
    an event that it waits for. So a handler must not set an event: it would wait for this lock for
    ever. The put of a simple queue takes no such lock.
    """

    def __init__(self) -> None:
        self._caught: SimpleQueue[int] = SimpleQueue()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, lambda caught, _: self._caught.put(caught))

    def wait(self) -> None:
        """Return after the first signal."""
        while True:
            try:
                self._caught.get(timeout=CHECK_INTERVAL_S)
            except Empty:
                continue
            return
