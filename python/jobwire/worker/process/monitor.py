"""The ports of a worker: probes, queues for autoscalers, numbers for Prometheus.

The process that the operator started has the ports. With `--processes` that is the supervisor,
which adds up what its processes report.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import NamedTuple

from jobwire.application.config import WorkerConfig
from jobwire.monitoring import routes
from jobwire.monitoring.exposition import require_prometheus
from jobwire.monitoring.figures import Figures
from jobwire.monitoring.routes import FleetReaders
from jobwire.monitoring.server import Listener, Route
from jobwire.worker.process.notify import RedisPlace

__all__ = ["Monitor", "Sources"]

_log = logging.getLogger("jobwire.worker")


class Sources(NamedTuple):
    """Functions that the ports call; from any thread.

    Attributes:
        figures: Returns the numbers of the worker.
        not_live: Returns the reason that the worker must be restarted, or "".
        not_ready: Returns the reason that the worker fetches no jobs, or "".
        redis: Returns where the queues are by the name of the shard, which is "" for a lone Redis;
            None if that is not known yet.
    """

    figures: Callable[[], Figures]
    not_live: Callable[[], str]
    not_ready: Callable[[], str]
    redis: Callable[[], Mapping[str, RedisPlace | None]]


class Monitor:
    """Listens on the ports that the settings name.

    Raises:
        ConfigError: A port cannot be used, or prometheus-client is not installed.
    """

    def __init__(self, config: WorkerConfig, sources: Sources) -> None:
        self._readers = FleetReaders(
            lambda: {
                name: None if place is None else (place.url, place.namespace)
                for name, place in sources.redis().items()
            }
        )
        by_port: dict[int, tuple[str, dict[str, Route]]] = {}
        if config.health_port is not None:
            paths = {
                "/live": routes.probe(sources.not_live),
                "/ready": routes.probe(sources.not_ready),
                "/queues": routes.queues(self._readers.read),
            }
            by_port[config.health_port] = ("health_port", paths)
        if config.metrics_port is not None:
            require_prometheus("metrics_port")
            _, paths = by_port.setdefault(config.metrics_port, ("metrics_port", {}))
            paths["/metrics"] = routes.worker_metrics(sources.figures)
            paths["/metrics/fleet"] = routes.fleet_metrics(self._readers.read)
        with ExitStack() as undo:
            for port, (name, paths) in by_port.items():
                listener = Listener(config.listen_host, port, paths, asked_by=name)
                undo.callback(listener.close)
                listener.start()
                _log.info("%s: %s", listener.url, " ".join(paths))
            self._stack = undo.pop_all()

    def close(self) -> None:
        """Stop listening."""
        self._stack.close()
        self._readers.close()
