"""The text that Prometheus reads. Only this module uses prometheus-client, which is an extra."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from jobwire.errors import ConfigError
from jobwire.monitoring.figures import Figures
from jobwire.monitoring.metrics import (
    FLEET,
    MAX_QUEUES,
    WORKER,
    Histogram,
    Metric,
    Sample,
    fleet_samples,
    worker_samples,
)

if TYPE_CHECKING:
    from prometheus_client import Metric as Family

    from jobwire.inspect.fleet import Fleet

__all__ = [
    "Exposition",
    "fleet_exposition",
    "require_prometheus",
    "shards_exposition",
    "worker_exposition",
]


class Exposition(NamedTuple):
    """The answer to a scrape."""

    body: bytes
    content_type: str


def fleet_exposition(
    fleet: Fleet | None, *, seconds: float = 0.0, accept: str = "", most_queues: int = MAX_QUEUES
) -> Exposition:
    """Return the numbers of a Redis: of all its queues, sets and processes.

    A web application serves them on a path of its own:

        async with AsyncInspector(url) as inspector:
            text = fleet_exposition(await inspector.fleet(), accept=request.headers["accept"])

    Args:
        fleet: The numbers, from `Inspector.fleet`; None if Redis cannot be used.
        seconds: Time that reading them has taken.
        accept: The header `Accept` of the request. Prometheus asks for OpenMetrics with it.
        most_queues: Number of queues with samples of their own, in the order of their names. The
            other queues have common samples with the label `(other)`.

    Raises:
        ConfigError: prometheus-client is not installed.
    """
    return shards_exposition({"": (fleet, seconds)}, accept=accept, most_queues=most_queues)


def shards_exposition(
    readings: Mapping[str, tuple[Fleet | None, float]],
    *,
    accept: str = "",
    most_queues: int = MAX_QUEUES,
) -> Exposition:
    """Return the numbers of each shard, with its name as the label `shard`.

    Args:
        readings: Name of each shard to its numbers, or None, and the seconds that reading has
            taken. A lone Redis is named "", and its numbers have no such label.
        accept: See `fleet_exposition`.
        most_queues: See `fleet_exposition`; of each shard.

    Raises:
        ConfigError: prometheus-client is not installed.
    """
    label = () if "" in readings else ("shard",)
    samples = (
        (metric, (*([name] if label else []), *labels), value)
        for name, (fleet, seconds) in readings.items()
        for metric, labels, value in fleet_samples(fleet, seconds=seconds, most_queues=most_queues)
    )
    metrics = [metric._replace(labels=(*label, *metric.labels)) for metric in FLEET]
    return _exposition(metrics, samples, accept)


def worker_exposition(figures: Figures, *, accept: str = "") -> Exposition:
    """Return the numbers of one worker.

    Args:
        figures: The numbers, from `Launcher.figures`.
        accept: The header `Accept` of the request.

    Raises:
        ConfigError: prometheus-client is not installed.
    """
    return _exposition(WORKER, worker_samples(figures), accept)


def require_prometheus(asked_by: str) -> None:
    """Check that prometheus-client is installed.

    Raises:
        ConfigError: It is not; the text begins with `asked_by`.
    """
    try:
        import prometheus_client  # noqa: F401 - the extra `prometheus`
    except ModuleNotFoundError:
        raise ConfigError(
            f"{asked_by} needs prometheus-client: pip install 'jobwire[prometheus]'"
        ) from None


def _exposition(metrics: Sequence[Metric], samples: Iterable[Sample], accept: str) -> Exposition:
    require_prometheus("the text for Prometheus")
    from prometheus_client import CollectorRegistry
    from prometheus_client.exposition import choose_encoder

    registry = CollectorRegistry(auto_describe=False)
    families = [*_families(metrics, samples)]
    registry.register(_Collector(lambda: families))
    encode, content_type = choose_encoder(accept)
    return Exposition(encode(registry), content_type)


class _Collector:
    def __init__(self, collect: Callable[[], Iterable[Family]]) -> None:
        self.collect = collect


def _families(metrics: Sequence[Metric], samples: Iterable[Sample]) -> Iterator[Family]:
    from prometheus_client.core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
    )

    kinds: dict[str, Any] = {
        "counter": CounterMetricFamily,
        "gauge": GaugeMetricFamily,
        "histogram": HistogramMetricFamily,
    }
    by_name = {
        metric.name: kinds[metric.type](metric.name, metric.help, labels=metric.labels)
        for metric in metrics
    }
    for name, labels, value in samples:
        if isinstance(value, Histogram):
            by_name[name].add_metric(labels, value.buckets, value.sum)
        else:
            by_name[name].add_metric(labels, value)
    return iter(by_name.values())
