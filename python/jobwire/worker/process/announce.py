"""The lines of a worker about its start: the server, the queues, and the end of the start."""

from __future__ import annotations

import logging
from collections.abc import Set

from jobwire._version import __version__
from jobwire.application.app import App
from jobwire.application.config import CapsuleConfig
from jobwire.connection.connect import safe_url
from jobwire.protocol.server import ServerInfo
from jobwire.text import counted, did_you_mean
from jobwire.worker.process.launcher import Launcher

__all__ = ["announce"]

_log = logging.getLogger("jobwire.worker")


def announce(launcher: Launcher, info: ServerInfo, source: str = "") -> None:
    """Log the start of a worker: its server, warnings about its queues, and that it is ready.

    Args:
        launcher: The worker, which has started.
        info: Its server.
        source: Source of the URL of the server.
    """
    _log.info(
        "jobwire %s, process %s, %s fetch, %s, %s %s at %s%s",
        __version__,
        launcher.identity,
        launcher.fetch,
        counted(len(launcher.app.jobs), "job class"),
        info.product,
        info.version,
        safe_url(launcher.url),
        f" ({source})" if source else "",
    )
    capsules = launcher.config.capsules
    served = {queue for capsule in capsules.values() for queue in capsule.queues}
    _tell_of_unnamed(launcher.app, served)
    _warn_of_unserved(launcher.app, served)
    if len(capsules) == 1:
        _log.info("ready: %s", *map(_shape, capsules.values()))
        return
    for name, capsule in capsules.items():
        _log.info("capsule %s: %s", name, _shape(capsule))
    _log.info("ready: %s", counted(launcher.config.concurrency, "thread"))


def _shape(capsule: CapsuleConfig) -> str:
    queues = ", ".join(
        f"{queue} ({weight})" if weight else queue for queue, weight in capsule.queues.items()
    )
    return f"{counted(capsule.concurrency, 'thread')} for {queues}"


def _tell_of_unnamed(app: App, served: Set[str]) -> None:
    """Log the queues of this worker that no job of the application names.

    Programs may name a queue for one job, and Ruby has queues of its own, so only a name like that
    of a queue that is left out is worth a warning.
    """
    left_out = app.queues.keys() - served
    for queue in sorted(served - app.queues.keys()):
        near = did_you_mean(queue, left_out, cutoff=0.7) if left_out else ""
        _log.log(
            logging.WARNING if near else logging.INFO,
            "queue %r: no job of the application names it%s",
            queue,
            f"; did you mean {near!r}?" if near else "",
        )


def _warn_of_unserved(app: App, served: Set[str]) -> None:
    """Log the queues of the application that this worker does not serve."""
    unserved = {queue: jobs for queue, jobs in app.queues.items() if jobs and queue not in served}
    if unserved:
        _log.warning(
            "not served by this worker: %s; add %s, unless another worker serves them",
            "; ".join(f"queue {queue} ({', '.join(jobs)})" for queue, jobs in unserved.items()),
            " ".join(f"-q {queue}" for queue in unserved),
        )
