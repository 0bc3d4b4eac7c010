"""A small shop with Starlette, whose process also runs the jobs: an order is paid and shipped."""

import sqlite3
from contextlib import closing

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from jobwire import App
from jobwire.asgi import lifespan

app = App()  # the jobs


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


async def create(request: Request) -> JSONResponse:
    order = await request.json()
    with closing(database()) as db:
        key = db.execute("insert into orders values (null, ?, 'new')", [order["item"]]).lastrowid
    assert key is not None
    await pay.aenqueue(key)
    return JSONResponse({"id": key}, 201)


async def show(request: Request) -> JSONResponse:
    key = request.path_params["key"]
    with closing(database()) as db:
        row = db.execute("select item, state from orders where id = ?", [key]).fetchone()
    if row is None:
        raise HTTPException(404)
    return JSONResponse({"item": row[0], "state": row[1]})


routes = [Route("/orders", create, methods=["POST"]), Route("/orders/{key:int}", show)]
web = Starlette(routes=routes, lifespan=lifespan(app, concurrency=2, timeout=5))
