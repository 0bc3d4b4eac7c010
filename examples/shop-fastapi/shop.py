"""A small shop with FastAPI: an order is paid and shipped by jobs."""

import sqlite3
from contextlib import closing

from fastapi import FastAPI, HTTPException
from pydantic import BaseModel

from jobwire import App
from jobwire.asgi import lifespan

app = App()  # the jobs
web = FastAPI(lifespan=lifespan(app))


def database() -> sqlite3.Connection:
    connection = sqlite3.connect("shop.sqlite3", isolation_level=None)  # commits each statement
    connection.execute("create table if not exists orders (id integer primary key, item, state)")
    return connection


@app.job
def pay(order: int) -> None:
    with closing(database()) as db:
        db.execute("update orders set state = 'paid' where id = ?", [order])
    ship.enqueue(order)


@app.job(queue="mail")
def ship(order: int) -> None:
    with closing(database()) as db:
        db.execute("update orders set state = 'shipped' where id = ?", [order])


class Order(BaseModel):
    item: str


@web.post("/orders", status_code=201)
async def create(order: Order) -> dict[str, int]:
    with closing(database()) as db:
        key = db.execute("insert into orders values (null, ?, 'new')", [order.item]).lastrowid
    assert key is not None
    await pay.aenqueue(key)
    return {"id": key}


@web.get("/orders/{key}")
async def show(key: int) -> dict[str, str]:
    with closing(database()) as db:
        row = db.execute("select item, state from orders where id = ?", [key]).fetchone()
    if row is None:
        raise HTTPException(404)
    return {"item": row[0], "state": row[1]}
