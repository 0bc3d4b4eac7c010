"""The shop with jobwire.

jobwire worker after:app
python after.py tea
"""

import sys

import shop

from jobwire import App, Job

app = App()


@app.job(retry=5)
def pay(order: int) -> None:
    shop.charge(order)
    ship.enqueue(order)


@pay.retry_in
def _(job: Job, error: BaseException, count: int) -> float:
    return 1


@app.job(queue="shipping")
def ship(order: int) -> None:
    shop.ship(order, "jobwire")
    archive.enqueue_in(2, order)


@app.job
def archive(order: int) -> None:
    shop.archive(order)


@app.periodic("* * * * *")
@app.job
def report() -> None:
    shop.report()


if __name__ == "__main__":
    pay.enqueue(shop.place(sys.argv[1]))
