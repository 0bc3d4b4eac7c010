"""The business of the shop, which does not know the queue: orders in a file of SQLite."""

import sqlite3
from contextlib import closing
from pathlib import Path


def database() -> sqlite3.Connection:
    connection = sqlite3.connect("shop.sqlite3", isolation_level=None)  # commits each statement
    connection.execute("create table if not exists orders (id integer primary key, item, state)")
    return connection


def place(item: str) -> int:
    with closing(database()) as db:
        key = db.execute("insert into orders values (null, ?, 'new')", [item]).lastrowid
    assert key is not None
    return key


def charge(order: int) -> None:
    """The bank is away at the first try of each order."""
    with closing(database()) as db:
        asked = "update orders set state = 'charging' where id = ? and state = 'new'"
        if db.execute(asked, [order]).rowcount:
            raise ConnectionError("the bank is away")
        db.execute("update orders set state = 'paid' where id = ?", [order])


def ship(order: int, sender: str) -> None:
    with closing(database()) as db:
        db.execute("update orders set state = ? where id = ?", [f"shipped by {sender}", order])


def archive(order: int) -> None:
    with closing(database()) as db:
        db.execute("update orders set state = state || ', archived' where id = ?", [order])


def report() -> None:
    """Write the number of orders; a job does it every minute."""
    with closing(database()) as db, Path("report.txt").open("a") as file:
        file.write(f"{db.execute('select count(*) from orders').fetchone()[0]} orders\n")
