"""The shop with Celery.

celery -A before_celery worker --beat -Q celery,shipping -c2
python before_celery.py tea
"""

import os
import sys

import after
import shop
from celery import Celery

app = Celery("shop", broker=os.environ.get("REDIS_URL", "redis://localhost:6379/0"))
app.conf.beat_schedule = {"report": {"task": "before_celery.report", "schedule": 60}}
app.conf.task_routes = {"before_celery.ship": {"queue": "shipping"}}
MOVED = "MOVED" in os.environ  # the jobs `ship` and `archive` run in jobwire


@app.task(autoretry_for=(ConnectionError,), max_retries=5, default_retry_delay=1)
def pay(order):
    shop.charge(order)
    if MOVED:
        after.ship.enqueue(order)
    else:
        ship.delay(order)


@app.task
def ship(order):
    shop.ship(order, "celery")
    archive.apply_async((order,), countdown=2)


@app.task
def archive(order):
    shop.archive(order)


@app.task
def report():
    shop.report()


if __name__ == "__main__":
    # The worker imports this file as the module `before_celery`, which names the tasks.
    import before_celery

    before_celery.pay.delay(shop.place(sys.argv[1]))
