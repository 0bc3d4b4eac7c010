"""Reload for `jobwire dev`: runs the worker in a child process, again after each change of a file.

The child runs the same command as this process. A new process is the only way to load changed code
completely. The child knows by the variable of a supervisor that it is one: it stops when this
process ends, and a Ctrl-C that reaches both processes is not the second one that forces a stop.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from types import FrameType
from typing import NamedTuple

from jobwire.cli.exits import EXIT_APP, EXIT_REDIS, EXIT_USAGE
from jobwire.connection import embedded
from jobwire.worker.process.notify import SUPERVISOR

__all__ = ["can_reload", "run"]

EXIT_FORCED = 1  # after a second TERM or INT
# The kernel may deliver a signal to any thread, but only the main thread runs its handler. So the
# main thread wakes up regularly.
SIGNAL_CHECK_INTERVAL_S = 0.5

_STOPS = ("TERM", "INT", "HUP")
_PASSED_ON = ("TSTP", "TTIN")
_log = logging.getLogger("jobwire.dev")


class _Signal(NamedTuple):
    name: str


class _Changed(NamedTuple):
    paths: list[str]


class _Ended(NamedTuple):
    status: int  # negative: the signal that killed it


def can_reload() -> bool:
    """True if this process may watch files; False in the child, and without watchfiles."""
    if SUPERVISOR in os.environ:
        return False
    if importlib.util.find_spec("watchfiles") is None:
        _log.info("no reload after a change: watchfiles is missing; pip install 'jobwire[dev]'")
        return False
    return True


def run(directory: Path, hold_server: Callable[[ExitStack], None]) -> int:
    """Run this command in a child, and anew after each change of a Python file; return its status.

    A child that fails, such as by a syntax error, is started again after the next change.

    Args:
        directory: The project, with all its subdirectories.
        hold_server: Runs the server until the stack closes, so that it also runs while no worker
            does.
    """
    with ExitStack() as stack:
        return _Reloader(directory, stack, hold_server).run()


class _Reloader:
    def __init__(
        self, directory: Path, stack: ExitStack, hold_server: Callable[[ExitStack], None]
    ) -> None:
        self._directory = directory
        self._stack = stack
        self._start_server = hold_server
        self._events: SimpleQueue[_Signal | _Changed | _Ended] = SimpleQueue()
        self._child: subprocess.Popen[bytes] | None = None
        self._ready = False  # the child is
        self._was_ready = False  # any child was
        self._renewing = False  # the child was told to stop, and another one follows
        self._stopping = False
        self._holds_server = False

    def run(self) -> int:
        for name in (*_STOPS, *_PASSED_ON):
            number = getattr(signal, f"SIG{name}")
            if name != "HUP" or signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._on_signal)
        threading.Thread(target=self._watch, daemon=True).start()
        self._start()
        status: int | None = None
        while status is None:
            try:
                event = self._events.get(timeout=SIGNAL_CHECK_INTERVAL_S)
            except Empty:
                continue
            match event:
                case _Signal(name):
                    status = self._receive(name)
                case _Changed(paths):
                    self._renew(paths)
                case _Ended(code):
                    status = self._ended(code)
        return status

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._events.put(_Signal(signal.Signals(number).name.removeprefix("SIG")))

    def _watch(self) -> None:
        import watchfiles

        logging.getLogger("watchfiles").setLevel(logging.WARNING)  # `_renew` names the files
        try:
            changes = watchfiles.watch(
                self._directory, watch_filter=watchfiles.PythonFilter(), raise_interrupt=False
            )
            for change in changes:
                self._events.put(_Changed(sorted(path for _, path in change)))
        except OSError as error:  # such as too many directories for inotify
            _log.warning("no reload after a change: cannot watch %s: %s", self._directory, error)

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            # In this process group, so that a debugger in a job can read from the terminal.
            self._child = subprocess.Popen(
                [sys.executable, *sys.orig_argv[1:]],
                env={**os.environ, SUPERVISOR: str(theirs.fileno())},
                pass_fds=[theirs.fileno()],
            )
        self._ready = False
        threading.Thread(target=self._follow, args=[self._child, ours], daemon=True).start()

    def _follow(self, child: subprocess.Popen[bytes], channel: socket.socket) -> None:
        with channel, suppress(OSError):
            while chunk := channel.recv(1 << 12):
                if b"READY=1" in chunk:
                    self._ready = self._was_ready = True
        self._events.put(_Ended(child.wait()))

    def _renew(self, paths: list[str]) -> None:
        if self._stopping:
            return
        names = [os.path.relpath(path, self._directory) for path in paths]
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        _log.info("restarting: %s%s changed", ", ".join(names[:3]), more)
        if self._child is None:
            self._start()
        else:
            self._hold_server()
            self._renewing = True
            self._child.terminate()

    def _receive(self, name: str) -> int | None:
        """Act on a signal; return the exit status if it ends this process now."""
        if name in _PASSED_ON:
            if self._child and self._ready:  # before that, the signal would suspend it
                self._child.send_signal(getattr(signal, f"SIG{name}"))
        elif self._child is None:
            return 0
        elif self._stopping:
            self._hold_server()  # the child cannot stop it now
            self._child.kill()
        else:
            self._stopping = True
            self._child.send_signal(signal.SIGINT if name == "INT" else signal.SIGTERM)
        return None

    def _ended(self, code: int) -> int | None:
        """Go on after the end of the child; return the exit status if this process also ends."""
        self._child = None
        if self._stopping:
            return EXIT_FORCED if code == -signal.SIGKILL else max(code, 0)
        if self._renewing:
            self._renewing = False
            self._start()
            return None
        if code == 0 or (code in (EXIT_USAGE, EXIT_REDIS) and not self._was_ready):
            return code  # a change of a Python file would not help
        if code == EXIT_APP and not embedded.is_running(self._directory):
            self._start_server(self._stack)
        self._hold_server()
        how = f"exit status {code}" if code > 0 else f"signal {-code}"
        _log.warning("the worker ended with %s; it starts again after a change of a file", how)
        return None

    def _hold_server(self) -> None:
        """Keep the server of this directory running until this process ends, if it runs."""
        if not self._holds_server and embedded.is_running(self._directory):
            self._stack.enter_context(embedded.start(self._directory))
            self._holds_server = True
