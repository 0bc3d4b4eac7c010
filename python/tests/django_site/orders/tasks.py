"""Tasks in the form of Django 6, which `django-tasks` gives to Django 5.2."""

from __future__ import annotations

from typing import Any

import django

from tests.django_site.orders.models import Order

if django.VERSION >= (6, 0):
    from django.tasks import task
else:
    from django_tasks import task

CALLS: list[Any] = []


@task
def note(*args: Any, **kwargs: Any) -> int:
    """Keep the arguments."""
    CALLS.append((args, kwargs))
    return 42


@task(queue_name="slow")
async def anote(number: int, *, word: str = "") -> None:
    """Keep the arguments, from asyncio."""
    CALLS.append((number, word))


@task(takes_context=True)
def identify(context: Any, pk: int) -> None:
    """Keep what the context says."""
    CALLS.append((context.task_result.id, context.attempt, context.task_result.args))
    assert Order.objects.filter(pk=pk).exists()


@task
def fail() -> None:
    """Fail."""
    raise ValueError("on purpose")


@task(takes_context=True)
def flaky(context: Any, *args: Any, word: str) -> dict[str, Any]:
    """Fail at the first attempt."""
    if context.attempt == 1:
        raise LookupError("not yet")
    seen = flaky.get_result(context.task_result.id)
    return {"status": str(seen.status), "word": (word,)}


@task
def wrong() -> object:
    """Return a value for which JSON has no type."""
    return object()
