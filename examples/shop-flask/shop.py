"""A small shop with Flask: an order is paid and shipped by jobs."""

import sqlite3
from contextlib import closing

from flask import Flask, abort, current_app, request

from jobwire import App
from jobwire.flask import Jobs

app = App()  # the jobs
web = Flask(__name__)
web.config["DATABASE"] = "shop.sqlite3"
Jobs(app, web)


def database() -> sqlite3.Connection:
    connection = sqlite3.connect(current_app.config["DATABASE"], isolation_level=None)
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


@web.post("/orders")
def create() -> tuple[dict[str, int], int]:
    with closing(database()) as db:
        item = request.get_json()["item"]
        key = db.execute("insert into orders values (null, ?, 'new')", [item]).lastrowid
    assert key is not None
    pay.enqueue(key)
    return {"id": key}, 201


@web.get("/orders/<int:key>")
def show(key: int) -> dict[str, str]:
    with closing(database()) as db:
        row = db.execute("select item, state from orders where id = ?", [key]).fetchone()
    if row is None:
        abort(404)
    return {"item": row[0], "state": row[1]}
