"""The pool of the blocking shell: as many lines as threads use at a time, up to a limit."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress

from jobwire.connection.connection import Line

__all__ = ["Lines", "NoLineFree"]


class NoLineFree(Exception):
    """All lines were in use for too long."""


class Lines:
    """Lends lines to threads, the last one used first, so that few are open.

    Lending and taking back a line that is there needs no lock: `pop` and `append` of a list are
    single steps, and whoever waits looks again after it has said that it waits.

    Args:
        make: Opens a new one.
        most: How many there may be.
        timeout: Seconds to wait for one while others use them all.
    """

    def __init__(self, make: Callable[[], Line], most: int, timeout: float) -> None:
        self._make = make
        self._most = most
        self._timeout = timeout
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._era = object()  # lines of another one are not used again
        self._idle: list[Line] = []
        self._count = 0  # idle, lent, and being opened
        self._waiting = 0
        self._change = threading.Condition()

    def lend(self) -> Line:
        """Return a line for one exchange, to be given to `back` or to `drop`.

        Raises:
            NoLineFree: All are in use, and have been for so long.
            Exception: Whatever opening one raises.
        """
        if self._pid != os.getpid():
            self._begin()  # a forked child: what the parent has open is the parent's
        idle = self._idle
        while idle:
            try:
                line = idle.pop()
            except IndexError:
                break
            if line.quiet():
                return line
            self.drop(line)
        return self._one_more()

    def back(self, line: Line) -> None:
        """Take a line back that can be used again."""
        idle = self._idle
        if line.era is not self._era:
            self.drop(line)
            return
        idle.append(line)
        if idle is not self._idle:
            self._drain(idle)
        elif self._waiting:
            with self._change:
                self._change.notify()

    def drop(self, line: Line) -> None:
        """Take a line back that cannot, or must not, be used again. [ENV-5]"""
        line.close()
        self._free()

    def renew(self) -> None:
        """Close all that are idle, now, and all that are lent when they come back."""
        self._era = object()
        old, self._idle = self._idle, []
        self._drain(old)

    def _one_more(self) -> Line:
        found: list[Line] = []

        def may_go_on() -> bool:
            if self._count < self._most:
                self._count += 1
                return True
            with suppress(IndexError):
                found.append(self._idle.pop())
            return bool(found)

        with self._change:
            self._waiting += 1
            try:
                if not self._change.wait_for(may_go_on, self._timeout):
                    raise NoLineFree(
                        f"all {self._most} connections were in use for {self._timeout:g} s"
                    )
            finally:
                self._waiting -= 1
        if found:
            return found[0]
        era = self._era
        try:
            line = self._make()
        except BaseException:
            self._free()
            raise
        line.era = era
        return line

    def _free(self) -> None:
        with self._change:
            self._count -= 1
            self._change.notify()

    def _drain(self, lines: list[Line]) -> None:
        while lines:
            try:
                line = lines.pop()
            except IndexError:
                return
            self.drop(line)
