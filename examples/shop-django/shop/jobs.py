"""The jobs of the shop, which Django finds at its start."""

from jobwire.django import app
from shop.models import Order


@app.job
def pay(order: int) -> None:
    Order.objects.filter(pk=order).update(state="paid")
    ship.enqueue(order)


@app.job(queue="mail")
def ship(order: int) -> None:
    Order.objects.filter(pk=order).update(state="shipped")
