"""The shop with RQ.

rq worker --with-scheduler --url "$REDIS_URL" default shipping
python before_rq.py tea
"""

import os
import sys
from datetime import timedelta

import after
import shop
from redis import Redis
from rq import Queue, Retry

redis = Redis.from_url(os.environ.get("REDIS_URL", "redis://localhost:6379/0"))
default = Queue(connection=redis)
shipping = Queue("shipping", connection=redis)
MOVED = "MOVED" in os.environ  # the jobs `ship` and `archive` run in jobwire


def pay(order):
    shop.charge(order)
    if MOVED:
        after.ship.enqueue(order)
    else:
        shipping.enqueue("before_rq.ship", order)


def ship(order):
    shop.ship(order, "rq")
    default.enqueue_in(timedelta(seconds=2), "before_rq.archive", order)


def archive(order):
    shop.archive(order)


if __name__ == "__main__":
    retry = Retry(max=5, interval=1)
    default.enqueue("before_rq.pay", shop.place(sys.argv[1]), retry=retry)
