"""A small program that kills a worker which cannot hear the signal to stop. [SIG-5]

Code in C that keeps Python's global lock stops all threads of its process, and with them the
handlers of signals. Only the part of a handler that is in C still runs: it writes the number of the
signal to a file, and the program reads it. It imports little, because it runs beside each worker.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from contextlib import suppress

__all__ = ["start"]

KILL_GRACE_S = 2.0  # beyond the limit with which a process ends itself
FORCE_GRACE_S = 2.0  # that a process has to obey a second signal
PARENT_CHECK_INTERVAL_S = 10.0  # a program that a job has forked may keep the file open
_STOPS = (signal.SIGTERM, signal.SIGINT)
_IGNORED = ("HUP", "INT", "QUIT", "TERM", "TSTP", "TTIN", "TTOU", "USR1", "USR2")


def start(limit: float) -> int | None:
    """Start the program, which ends with this process; return the file for `set_wakeup_fd`.

    Args:
        limit: Seconds after the first signal to stop, in which the process ends by itself.

    Returns:
        None if the system cannot start it so.
    """
    if not sys.executable or not hasattr(os, "posix_spawn"):
        return None
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    output = (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)
    os.posix_spawn(
        sys.executable,
        [sys.executable, "-I", "-S", __file__, str(os.getpid()), str(limit + KILL_GRACE_S)],
        os.environ,
        file_actions=[(os.POSIX_SPAWN_DUP2, read_end, 0), output, (os.POSIX_SPAWN_DUP2, 1, 2)],
        setsigmask=[],
    )
    os.close(read_end)
    return write_end


def _watch(parent: int, limit: float) -> None:
    """Kill the parent `limit` seconds after its first signal to stop, or soon after the second."""
    for name in _IGNORED:  # a terminal or a service manager sends them to all processes
        signal.signal(getattr(signal, f"SIG{name}"), signal.SIG_IGN)
    stops = 0
    wait, deadline = PARENT_CHECK_INTERVAL_S, None
    while os.getppid() == parent:
        if deadline is not None:
            wait = min(PARENT_CHECK_INTERVAL_S, deadline - time.monotonic())
            if wait <= 0:
                with suppress(ProcessLookupError):
                    os.kill(parent, signal.SIGKILL)
                return
        if not select.select([0], [], [], wait)[0]:
            continue
        numbers = os.read(0, 4096)
        if not numbers:
            return
        count = sum(number in _STOPS for number in numbers)
        if count and stops < 2:
            stops += count
            deadline = time.monotonic() + (limit if stops == 1 else min(limit, FORCE_GRACE_S))


if __name__ == "__main__":
    _watch(int(sys.argv[1]), float(sys.argv[2]))
