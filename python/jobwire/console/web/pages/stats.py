"""Numbers for monitors: in the form of Sidekiq's page, and for Prometheus."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from starlette.responses import JSONResponse, RedirectResponse, Response

from jobwire.console.ops.doctor_facts import info_fields
from jobwire.console.web.context import RequestContext
from jobwire.errors import ConfigError, RedisTrouble
from jobwire.inspect.fleet import Fleet
from jobwire.inspect.reading import text
from jobwire.monitoring.exposition import shards_exposition
from jobwire.protocol.wire import Batch, command, once

__all__ = ["all_metrics", "metrics", "old_stats", "periodic", "queues", "stats"]

INFO_FRESH_S = 5.0
SHOWN = (
    *("redis_version", "uptime_in_days", "connected_clients"),
    *("used_memory_human", "used_memory_peak_human"),
)


def stats(context: RequestContext) -> Response:
    """Return the totals, with the names of Sidekiq's page."""
    fleet = context.site.fleet()
    default = next((queue.latency for queue in fleet.queues if queue.name == "default"), 0.0)
    numbers = {
        "processed": fleet.processed,
        "failed": fleet.failed,
        "busy": sum(process.busy for process in fleet.processes),
        "processes": len(fleet.processes),
        "enqueued": fleet.enqueued,
        "scheduled": fleet.sets["scheduled"],
        "retries": fleet.sets["retry"],
        "dead": fleet.sets["dead"],
        "default_latency": default,
    }
    info = context.site.shared("info", lambda: _info(context), fresh=INFO_FRESH_S)
    redis = {name: info[name] for name in SHOWN if name in info}
    store = "Redis"
    for name in ("dragonfly", "valkey"):
        if version := info.get(f"{name}_version"):
            store = name.capitalize()
            redis["store_version"] = version
            break
    redis.setdefault("store_version", info.get("redis_version", ""))
    return JSONResponse(
        {
            "sidekiq": numbers,
            "redis": {**redis, "store_name": store},
            "server_utc_time": time.strftime("%H:%M:%S UTC", time.gmtime(context.now)),
        }
    )


def queues(context: RequestContext) -> Response:
    """Return the size of each queue, the longest first."""
    longest = sorted(context.site.fleet().queues, key=lambda queue: (-queue.size, queue.name))
    return JSONResponse({text(queue.name): queue.size for queue in longest})


def periodic(context: RequestContext) -> Response:
    """Return the periodic jobs by name, without their arguments."""
    jobs = context.shared("periodic", lambda: context.operations.periodic().all())
    return JSONResponse(
        {
            text(job.entry.name): {
                "job": text(job.entry.job),
                "cron": text(job.entry.cron),
                "enabled": job.entry.enabled,
                "next_at": job.next_at,
                "last_enqueue_time": text(job.entry.fields.get("last_enqueue_time", "")) or None,
                "problem": text(job.problem) or None,
            }
            for job in jobs
        }
    )


def old_stats(context: RequestContext) -> Response:
    """Lead from an old path of Sidekiq's page."""
    return RedirectResponse(context.path("stats"))


def metrics(context: RequestContext) -> Response:
    """Return the numbers for Prometheus."""
    return all_metrics(context, lambda: {"": context.site.fleet()})


def all_metrics(
    context: RequestContext, read: Callable[[], Mapping[str, Fleet | RedisTrouble]]
) -> Response:
    """Return the numbers of each Redis for Prometheus, with its name as the label `shard`."""
    readings = {
        name: (each if isinstance(each, Fleet) else None, 0.0) for name, each in read().items()
    }
    try:
        body, content_type = shards_exposition(
            readings, accept=context.request.headers.get("accept", "")
        )
    except ConfigError as error:  # the extra is not installed
        return Response(f"{error}\n", 501, media_type="text/plain")
    return Response(body, media_type=content_type)


def _info(context: RequestContext) -> Mapping[str, str]:
    (reply,) = context.operations.inspector.redis.run(once(Batch([command("INFO")])))
    return info_fields(reply)
