"""Server middleware that queries a database around each job."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from jobwire import Job
from tests.django_site.orders.models import Order


def querying(job: Job, call_next: Callable[[], Any]) -> Any:
    """Query before and after the job, in its thread; async jobs pass."""
    if job.class_name.startswith("async"):
        return call_next()
    Order.objects.exists()
    result = call_next()
    Order.objects.exists()
    return result


async def aquerying(job: Job, call_next: Callable[[], Awaitable[Any]]) -> Any:
    """Query before and after the job, from asyncio."""
    await Order.objects.aexists()
    result = await call_next()
    await Order.objects.aexists()
    return result
