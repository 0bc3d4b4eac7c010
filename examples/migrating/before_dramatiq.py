"""The shop with dramatiq.

dramatiq before_dramatiq
python before_dramatiq.py tea
"""

import os
import sys

import after
import dramatiq
import shop
from dramatiq.brokers.redis import RedisBroker

dramatiq.set_broker(RedisBroker(url=os.environ.get("REDIS_URL", "redis://localhost:6379/0")))
MOVED = "MOVED" in os.environ  # the jobs `ship` and `archive` run in jobwire


@dramatiq.actor(max_retries=5, min_backoff=1000)
def pay(order):
    shop.charge(order)
    if MOVED:
        after.ship.enqueue(order)
    else:
        ship.send(order)


@dramatiq.actor(queue_name="shipping")
def ship(order):
    shop.ship(order, "dramatiq")
    archive.send_with_options(args=(order,), delay=2000)


@dramatiq.actor
def archive(order):
    shop.archive(order)


if __name__ == "__main__":
    pay.send(shop.place(sys.argv[1]))
