"""The code that the jobs of all peers share; on the import path of each."""

from __future__ import annotations

import os
import time

__all__ = ["URL", "failing", "lone", "note", "nothing", "waiting", "work"]

URL = os.environ["REDIS_URL"]
_marks = os.open(os.environ["BENCH_MARKS"], os.O_WRONLY | os.O_APPEND)


def nothing(number: int) -> None:
    os.write(_marks, b"%d\n" % number)


def failing(number: int) -> None:
    nothing(number)
    raise ValueError(number)


def waiting(number: int) -> None:
    time.sleep(0.01)
    nothing(number)


def lone(sent: float) -> None:
    os.write(_marks, f"{time.time() - sent}\n".encode())


def note(mark: str, what: str, ident: str) -> None:
    """Write one line of the ledger of `benchmarks/toolbox.py`: mark s for start, e for end."""
    os.write(_marks, f"{mark} {what} {ident} {os.environ['BENCH_LIFE']} {time.time()}\n".encode())


def work(what: str, ident: str, seconds: float) -> None:
    """Be a job of `benchmarks/toolbox.py`."""
    if seconds:
        note("s", what, ident)
        time.sleep(seconds)
    note("e", what, ident)
