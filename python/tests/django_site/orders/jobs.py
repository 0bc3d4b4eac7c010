"""Jobs, which Django finds at its start."""

from __future__ import annotations

import os

from asgiref.sync import sync_to_async
from django.db import connection

from jobwire.django import app
from tests.django_site.orders.models import Order


@app.job
def pay(pk: int) -> None:
    """Mark an order as paid."""
    assert Order.objects.filter(pk=pk).update(paid=True) == 1


@app.job(name="async_pay")
async def async_pay(pk: int) -> None:
    """Mark an order as paid, from asyncio."""
    assert await Order.objects.filter(pk=pk).aupdate(paid=True) == 1


@app.job(name="async_by_others")
async def pay_by_others(pk: int) -> None:
    """Mark an order as paid by two other jobs."""
    await async_pay.aenqueue(pk)
    await sync_to_async(pay.enqueue)(pk)


@app.job(isolated=True)
def pay_apart(pk: int, directory: str) -> None:
    """Mark an order as paid in a process of its own; note whether its connection is new."""
    new = connection.connection is None
    assert Order.objects.filter(pk=pk).update(paid=True) == 1
    with open(os.path.join(directory, f"{pk}"), "w") as note:
        note.write(f"{os.getpid()} {new}")


@app.job(on_commit=False)
def hurry(pk: int) -> None:
    """A job that waits for no transaction."""
