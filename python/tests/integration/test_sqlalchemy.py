"""jobwire.sqlalchemy: jobs are rows of a transaction until Redis has them."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import (
    AsyncEngine,
    AsyncSession,
    async_scoped_session,
    async_sessionmaker,
    create_async_engine,
)
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from harness.servers import Server, wait_until
from jobwire import App, ConfigError, RedisTrouble, testing
from jobwire.errors import RedisUnreachable
from jobwire.sqlalchemy import Outbox
from tests.workers import PYTHON, environment, running

NOWHERE = "redis://127.0.0.1:1/0"


def pay(number: int) -> None:
    """Do nothing."""


class Shop:
    """An application with an outbox in SQLite, and a table of its own.

    The pool has one connection: the outbox has to wait until a session has returned it.
    """

    def __init__(self, directory: Path, url: str, mail: str = NOWHERE) -> None:
        self.path = directory / "shop.db"
        self.app = App(url, redis={"mail": mail})
        self.pay = self.app.job(pay)
        self.metadata = sa.MetaData()
        self.orders = sa.Table("orders", self.metadata, sa.Column("id", sa.Integer))
        self.engine = sa.create_engine(
            f"sqlite:///{self.path}", poolclass=sa.QueuePool, pool_size=1, max_overflow=0
        )
        self.outbox = Outbox(self.app, self.engine, metadata=self.metadata)
        self.metadata.create_all(self.engine)

    def rows(self) -> list[str]:
        """Return the names of the Redis of each row."""
        with self.engine.connect() as connection:
            return list(connection.scalars(sa.select(self.outbox.table.c.redis)))

    def close(self) -> None:
        self.app.close()
        self.engine.dispose()


@pytest.fixture
def shop(tmp_path: Path, server: Server) -> Iterator[Shop]:
    made = Shop(tmp_path, server.url)
    yield made
    made.close()


def numbers(server: Server) -> list[int]:
    """Return the first argument of each job in the queue, next first."""
    stored: Any = server.client().lrange("queue:default", 0, -1)
    return [json.loads(text)["args"][0] for text in reversed(stored)]


def test_a_job_is_a_row_until_the_commit(shop: Shop, server: Server) -> None:
    with Session(shop.engine) as session, shop.outbox.within(session):
        for number in (1, 2):
            session.execute(sa.insert(shop.orders), {"id": number})
            jid = shop.pay.enqueue(number)
            shop.pay.enqueue_bulk([[number + 10], [number + 20]])
            assert shop.pay.enqueue_bulk([]) == []
            stored = session.execute(sa.select(shop.outbox.table)).all()
            assert (len(stored), stored[0].jid, stored[0].queue) == (3, jid, "default")
            before = numbers(server)
            session.commit()
            assert numbers(server) == [*before, number, number + 10, number + 20]
            assert shop.rows() == []
        session.commit()
    shop.pay.enqueue(3)  # at once, outside of the block or by its option
    with Session(shop.engine) as session, shop.outbox.within(session):
        shop.pay.options(on_commit=False).enqueue(4)
    assert numbers(server) == [1, 11, 21, 2, 12, 22, 3, 4]


def test_a_rollback_drops_rows(shop: Shop, server: Server) -> None:
    with Session(shop.engine) as session, shop.outbox.within(session):
        shop.pay.enqueue(1)
        session.rollback()
        shop.pay.enqueue(2)
        with suppress(LookupError), session.begin_nested():
            shop.pay.enqueue(3)
            with session.begin_nested():
                shop.pay.enqueue(4)
            raise LookupError
        with session.begin_nested():
            shop.pay.enqueue(5)
        session.commit()
        shop.pay.enqueue(6)  # and the session closes without a commit
    assert numbers(server) == [2, 5]
    assert shop.rows() == []


def test_an_async_session(tmp_path: Path, server: Server) -> None:
    """With an asyncio engine, and with a blocking one."""

    async def enqueue(shop: Shop, engine: AsyncEngine) -> None:
        async with AsyncSession(engine) as session:
            with shop.outbox.within(session):
                await shop.pay.aenqueue(1)
                await session.commit()
                await shop.pay.aenqueue(2)
                await session.rollback()
                await shop.pay.aenqueue_bulk([[3], [4]])
                await session.commit()
                with pytest.raises(ConfigError, match="needs asyncio: write await"):
                    await asyncio.to_thread(shop.pay.enqueue, 5)
        scoped = async_scoped_session(async_sessionmaker(engine), asyncio.current_task)
        with shop.outbox.within(scoped):
            await shop.pay.aenqueue(6)
            await scoped.commit()
        await scoped.remove()
        await shop.app.aclose()
        await engine.dispose()

    shop = Shop(tmp_path, server.url)
    for is_async in (True, False):
        engine = create_async_engine(
            f"sqlite+aiosqlite:///{shop.path}",
            poolclass=sa.AsyncAdaptedQueuePool,
            pool_size=1,
            max_overflow=0,
        )
        shop.app.transport.deferral = None
        shop.outbox = Outbox(shop.app, engine if is_async else shop.engine)
        asyncio.run(enqueue(shop, engine))
        assert numbers(server) == [1, 3, 4, 6]
        assert shop.rows() == []
        server.client().flushall()
    shop.close()


def test_a_blocking_session_with_an_asyncio_engine(tmp_path: Path, server: Server) -> None:
    shop = Shop(tmp_path, server.url)
    shop.app.transport.deferral = None
    engine = create_async_engine(f"sqlite+aiosqlite:///{shop.path}")
    outbox = Outbox(shop.app, engine)
    session = scoped_session(sessionmaker(shop.engine))
    with outbox.within(session):
        shop.pay.enqueue(1)
        session.commit()
    session.remove()
    assert numbers(server) == [1]
    assert outbox.relay() == 0
    shop.close()


def test_jobs_wait_in_the_database_while_redis_is_away(
    shop: Shop, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """The commit succeeds, and a worker writes the jobs and runs them when Redis is back."""
    server.kill()
    with Session(shop.engine) as session, shop.outbox.within(session):
        shop.pay.options(unique=60).enqueue(1)
        shop.pay.options(unique=60).enqueue(1)  # left out when it is written
        shop.pay.enqueue(2)
        session.commit()
    assert "jobs stay in the outbox" in caplog.text
    assert shop.rows() == [""] * 3
    with pytest.raises(RedisTrouble):
        shop.outbox.relay(grace=0)
    server.start()
    assert shop.outbox.relay() == 0  # too young
    table = shop.outbox.table
    with shop.engine.begin() as connection:
        connection.execute(sa.update(table).values(created_at=table.c.created_at - 60))
    with running(shop.app, server):
        wait_until(lambda: server.client().get("stat:processed") == b"2")
    assert shop.rows() == []


def test_a_row_holds_the_name_of_its_redis(
    shop: Shop, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """A Redis that is away, or has no name any more, holds up only its own jobs."""
    with Session(shop.engine) as session, shop.outbox.within(session):
        shop.pay.enqueue(1)
        with shop.app.via("mail"):
            shop.pay.enqueue(2)
        with (
            shop.app.via("redis://:secret@shard"),
            pytest.raises(ConfigError, match="Redis with a name") as refused,
        ):
            shop.pay.enqueue(3)
        assert "secret" not in str(refused.value)
        session.commit()
    assert (numbers(server), shop.rows()) == ([1], ["mail"])
    with pytest.raises(RedisUnreachable):
        shop.outbox.relay(grace=0)
    shop.app.connect(server.url, named={})
    assert shop.outbox.relay(grace=0) == 0
    assert "redis 'mail' is neither a URL nor a name of this application" in caplog.text
    shop.app.connect(NOWHERE, named={"mail": server.url})
    assert shop.outbox.relay(grace=0) == 1
    assert (numbers(server), shop.rows()) == ([1, 2], [])


def test_an_error_of_the_database_after_the_commit_is_logged(
    shop: Shop, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    with Session(shop.engine) as session, shop.outbox.within(session):
        shop.pay.enqueue(1)
        shop.outbox.table = shop.outbox.table.to_metadata(sa.MetaData(), name="gone")
        session.commit()
    assert "no such table: gone" in caplog.text
    assert (numbers(server), len(caplog.records)) == ([], 1)


def test_collected_jobs_are_those_of_committed_transactions(shop: Shop) -> None:
    with testing.fake(shop.app) as jobs, Session(shop.engine) as session:
        with shop.outbox.within(session):
            shop.pay.enqueue(1)
            assert not jobs.enqueued()
            session.commit()
        assert [job.args for job in jobs.enqueued()] == [[1]]


def test_an_application_has_one_outbox(shop: Shop) -> None:
    with pytest.raises(ConfigError, match="has an outbox already"):
        Outbox(shop.app, shop.engine)


KILLED = """
import os, signal, sys
from pathlib import Path
import sqlalchemy as sa
from sqlalchemy.orm import Session
from tests.integration.test_sqlalchemy import Shop

shop = Shop(Path(sys.argv[1]), sys.argv[2])
with Session(shop.engine) as session, shop.outbox.within(session):
    for number in range(4):
        session.execute(sa.insert(shop.orders), {"id": number})
        shop.pay.enqueue(number)
        if number % 2:
            session.rollback()
        if number == 2:
            sa.event.listen(
                session, "after_commit", lambda _: os.kill(os.getpid(), signal.SIGKILL)
            )
        session.commit()
"""


@pytest.mark.process
@pytest.mark.guarantee
def test_no_job_of_a_committed_transaction_is_missing(
    tmp_path: Path, shop: Shop, server: Server
) -> None:
    """The process is killed between the commit and the write."""
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path), server.url],
        env=environment(),
        cwd=PYTHON,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL
    assert (numbers(server), len(shop.rows())) == ([0], 1)
    assert shop.outbox.relay(grace=0) == 1
    with shop.engine.connect() as connection:
        orders = list(connection.scalars(sa.select(shop.orders.c.id)))
    assert numbers(server) == orders == [0, 2]
    assert shop.rows() == []


@pytest.mark.process
def test_relays_at_the_same_time_write_each_job_once(shop: Shop, server: Server) -> None:
    server.kill()
    with Session(shop.engine) as session, shop.outbox.within(session):
        shop.pay.enqueue_bulk([[number] for number in range(500)])
        session.commit()
    server.start()
    program = (
        "import sys; from pathlib import Path; "
        "from tests.integration.test_sqlalchemy import Shop; "
        "print(Shop(Path(sys.argv[1]), sys.argv[2]).outbox.relay(grace=0))"
    )
    relays = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(shop.path.parent), server.url],
            env=environment(),
            cwd=PYTHON,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    sent = sum(int(relay.communicate(timeout=120)[0]) for relay in relays)
    sent += shop.outbox.relay(grace=0)
    assert sorted(numbers(server)) == [*range(500)]
    assert sent <= 500
