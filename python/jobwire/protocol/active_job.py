"""Jobs of Active Job: the payload that wraps one, and the arguments inside. [X-AJ]"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

__all__ = ["WRAPPER", "WRAPPERS", "class_of", "inner", "wrap"]

WRAPPER = "ActiveJob::QueueAdapters::SidekiqAdapter::JobWrapper"
"""The wire class to write: the only one that all versions of Rails and Sidekiq know. [X-AJ-8]"""
WRAPPERS = (WRAPPER, "Sidekiq::ActiveJob::Wrapper")
"""The wire classes that wrap an Active Job; no set, as `class` may hold an array. [X-AJ-1]"""


def inner(fields: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the object that describes an Active Job; None if the payload wraps none. [X-AJ-1]"""
    if fields.get("class") not in WRAPPERS:
        return None
    args = fields.get("args")
    if not isinstance(args, list) or len(args) != 1 or not isinstance(args[0], dict):
        return None
    described: dict[str, Any] = args[0]
    return described if isinstance(described.get("job_class"), str) else None


def class_of(fields: Mapping[str, Any]) -> str:
    """Return the class of the Active Job in a payload; `""` if it wraps none. [X-AJ-1]"""
    described = inner(fields)
    return "" if described is None else str(described["job_class"])


def wrap(
    job_class: str, arguments: list[Any], *, queue: str, job_id: str, now: float
) -> dict[str, Any]:
    """Return the only argument of a payload that wraps an Active Job. [X-AJ-9]

    Locale and time zone are left out, so that the process in Ruby takes its own.

    Args:
        job_class: Class of the job in Rails.
        arguments: Its arguments, as Active Job serializes them.
        queue: Name of the queue.
        job_id: The id that Active Job uses; a UUID.
        now: Epoch seconds.
    """
    moment = datetime.fromtimestamp(now, UTC)
    return {
        "job_class": job_class,
        "job_id": job_id,
        "provider_job_id": None,
        "queue_name": queue,
        "priority": None,
        "arguments": arguments,
        "executions": 0,
        "exception_executions": {},
        "enqueued_at": f"{moment:%Y-%m-%dT%H:%M:%S.%f}000Z",
    }
