"""`jobwire exporter`: serves the numbers of a Redis to Prometheus."""

from __future__ import annotations

import click

from jobwire.cli.exits import EndSignals
from jobwire.cli.options import app_option, find_places, namespace_option, redis_option
from jobwire.connection.connect import safe_url
from jobwire.monitoring import routes
from jobwire.monitoring.exposition import require_prometheus
from jobwire.monitoring.metrics import MAX_QUEUES
from jobwire.monitoring.routes import FleetReaders
from jobwire.monitoring.server import Listener

__all__ = ["exporter"]

PORT = 9927


@click.command()
@app_option
@redis_option
@namespace_option
@click.option(
    "-p",
    "--port",
    type=click.IntRange(1, 65_535),
    default=PORT,
    show_default=True,
    help="Port to listen on.",
)
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="Address to listen on. In a container, 0.0.0.0 lets Prometheus reach it.",
)
@click.option(
    "--max-queues",
    type=click.IntRange(min=0),
    default=MAX_QUEUES,
    show_default=True,
    help="Queues with numbers of their own. The others are added up as the queue (other).",
)
def exporter(url: str | None, namespace: str | None, port: int, host: str, max_queues: int) -> int:
    """Serve the numbers of a Redis to Prometheus, until TERM or INT.

    They are the numbers of all queues, sets and processes, also if only Sidekiq uses this Redis.
    One exporter for each Redis is enough. GET /metrics answers Prometheus. GET /queues answers
    autoscalers in JSON, and GET /live is for probes. With shards, /metrics has the label shard, and
    /queues has the sums.

    A scrape costs two round trips to Redis, at most once a second.
    """
    require_prometheus("jobwire exporter")
    places = find_places(url, namespace)
    readers = FleetReaders(
        lambda: {name: (place.url, place.namespace) for name, place in places.items()}
    )
    paths = {
        "/metrics": routes.fleet_metrics(readers.read, most_queues=max_queues),
        "/queues": routes.queues(readers.read),
        "/live": routes.probe(lambda: ""),
    }
    listener = Listener(host, port, paths, asked_by="--port")
    signals = EndSignals()
    listener.start()
    shown = ", ".join(f"{safe_url(place.url)} ({place.source})" for place in places.values())
    click.echo(f"jobwire exporter: {listener.url}/metrics for {shown}", err=True)
    signals.wait()
    listener.close()
    readers.close()
    return 0
