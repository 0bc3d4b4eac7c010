"""The shop with arq.

arq before_arq.Worker
python before_arq.py tea
"""

import asyncio
import os
import sys

import after
import shop
from arq import Retry, create_pool, cron
from arq.connections import RedisSettings

redis = RedisSettings.from_dsn(os.environ.get("REDIS_URL", "redis://localhost:6379/0"))
MOVED = "MOVED" in os.environ  # the jobs `ship` and `archive` run in jobwire


async def pay(ctx, order):
    try:
        shop.charge(order)
    except ConnectionError:
        raise Retry(defer=1) from None
    if MOVED:
        await after.ship.aenqueue(order)
    else:
        await ctx["redis"].enqueue_job("ship", order)


async def ship(ctx, order):
    shop.ship(order, "arq")
    await ctx["redis"].enqueue_job("archive", order, _defer_by=2)


async def archive(ctx, order):
    shop.archive(order)


async def report(ctx):
    shop.report()


class Worker:
    functions = (pay, ship, archive)
    cron_jobs = (cron(report, second=0),)
    redis_settings = redis


async def main():
    pool = await create_pool(redis)
    await pool.enqueue_job("pay", shop.place(sys.argv[1]))
    await pool.aclose()


if __name__ == "__main__":
    asyncio.run(main())
