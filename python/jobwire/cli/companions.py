"""Processes that `jobwire dev` runs beside the worker: a web framework, and jobwire's own page."""

from __future__ import annotations

import logging
import os
import shlex
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from importlib.util import find_spec

import click

__all__ = ["page_command", "page_lacks", "run_beside", "split"]

STOP_GRACE_S = 5  # between TERM and KILL
BY_CTRL_C = 130  # exit status of a command that ends after Ctrl-C
_PAGE_NEEDS = ("jinja2", "starlette", "uvicorn")
# Runs a command and ends it at TERM, or when this process closes the pipe, which also kill -9 does.
# A Ctrl-C reaches the command from the terminal.
_GUARD = """
import os, signal, subprocess, sys, threading
pressed = []
signal.signal(signal.SIGINT, lambda *_: pressed.append(True))
child = subprocess.Popen(
    sys.argv[1:],
    stdin=subprocess.DEVNULL,
    preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
)
signal.signal(signal.SIGALRM, lambda *_: child.kill())
def end(*_):
    child.terminate()
    signal.alarm(GRACE)
signal.signal(signal.SIGTERM, end)
def watch():
    os.read(0, 1)
    os.kill(os.getpid(), signal.SIGTERM)
threading.Thread(target=watch, daemon=True).start()
status = child.wait()
os._exit(BY_CTRL_C if pressed else status if status >= 0 else 128 - status)
""".replace("GRACE", str(STOP_GRACE_S)).replace("BY_CTRL_C", str(BY_CTRL_C))
_log = logging.getLogger("jobwire.dev")


def split(commands: Sequence[str]) -> list[list[str]]:
    """Return the words of each command.

    Raises:
        click.UsageError: A command is empty or has an open quote.
    """
    split = []
    for command in commands:
        try:
            words = shlex.split(command)
        except ValueError as error:
            raise click.UsageError(f"--with: {command!r}: {error}") from None
        if not words:
            raise click.UsageError('--with: no command; write --with "uvicorn shop:web --reload"')
        split.append(words)
    return split


def page_lacks() -> str | None:
    """Return which packages jobwire's page needs, and how to install them; None if it can run."""
    missing = [name for name in _PAGE_NEEDS if find_spec(name) is None]
    return f"needs {', '.join(missing)}: pip install 'jobwire[web]'" if missing else None


def page_command(port: int, app: str | None, redis: str | None) -> list[str]:
    """Return the command that serves jobwire's page.

    Args:
        port: The port to prefer; any other one if it is taken.
        app: `MODULE:APP` of the worker; None if it has none.
        redis: URL that a flag gave the worker; None for that of the application.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            port = 0
    command = [sys.executable, "-m", "jobwire", "web", "--port", str(port)]
    command += ["--require", app] if app else []
    return [*command, "--redis", redis] if redis else command


def run_beside(stack: ExitStack, commands: Sequence[Sequence[str]], url: str) -> None:
    """Run commands until the stack closes.

    Args:
        stack: Ends the processes.
        commands: The words of each command.
        url: Redis that they find in JOBWIRE_REDIS_URL.

    Raises:
        click.UsageError: A program does not exist.
    """
    processes: list[subprocess.Popen[bytes]] = []
    ending = threading.Event()
    stack.callback(_end, processes, ending)
    for words in commands:
        if shutil.which(words[0]) is None:
            raise click.UsageError(f"--with: cannot run {words[0]!r}: there is no such program")
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _GUARD, *words],
            env={**os.environ, "JOBWIRE_REDIS_URL": url},
            stdin=subprocess.PIPE,
        )
        processes.append(process)
        threading.Thread(
            target=_tell_of_end, args=[process, shlex.join(words), ending], daemon=True
        ).start()


def _tell_of_end(process: subprocess.Popen[bytes], command: str, ending: threading.Event) -> None:
    status = process.wait()
    if status != BY_CTRL_C and not ending.is_set():  # after Ctrl-C the worker ends as well
        _log.warning("%s ended with exit status %d; the worker goes on", command, status)


def _end(processes: Sequence[subprocess.Popen[bytes]], ending: threading.Event) -> None:
    ending.set()
    for process in processes:
        process.terminate()
    for process in processes:
        process.wait()  # its guard kills what does not end
        if process.stdin is not None:
            process.stdin.close()
