"""The actions of signals in the programs that the suite starts."""

from __future__ import annotations

import signal
import threading

__all__ = ["stop_ignoring_signals"]

_SENT_TO_WORKERS = (
    *(signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM),
    *(signal.SIGTSTP, signal.SIGTTIN),
)


def stop_ignoring_signals() -> None:
    """Have programs start with the default actions of signals, not with those inherited here.

    A shell without job control starts `command &` with SIGINT and SIGQUIT ignored, and `nohup`
    ignores SIGHUP. A program inherits ignored and blocked signals, and may leave them as they are;
    a signal that its parent catches has its default action. So a handler without effect takes the
    place of ignoring.
    """
    if threading.current_thread() is not threading.main_thread():
        return  # only the main thread can set handlers, and it has called this function before
    for number in _SENT_TO_WORKERS:
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, _do_nothing)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SENT_TO_WORKERS)


def _do_nothing(*_: object) -> None:
    """Stand for an ignored signal."""
