"""A worker of a Django project whose PostgreSQL is killed and restarted again and again."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from harness.servers import Reaper, Server, wait_until
from jobwire import Client, Inspector
from tests import postgres
from tests.workers import environment

THREADS = 5
BATCH = 50


@pytest.mark.parametrize(
    "restarts",
    [pytest.param(3, marks=pytest.mark.matrix), pytest.param(20, marks=pytest.mark.full)],
)
def test_jobs_go_on_with_new_connections_after_each_restart(
    tmp_path: Path, server: Server, reaper: Reaper, restarts: int
) -> None:
    """Acceptance: no job fails after the database is back, and connections do not pile up.

    The middleware of the project queries before and after each job.
    """
    if (missing := postgres.missing()) is not None:
        pytest.skip(missing)
    manage = [sys.executable, "-m", "tests.django_site.manage"]
    with postgres.running(reaper, ["first", "second"]) as database:
        variables = environment(
            JOBWIRE_REDIS_URL=server.url,
            POSTGRES_SOCKET=str(database.socket),
            DATABASE_DIR=str(tmp_path),
        )
        subprocess.run(
            [*manage, "migrate", "--run-syncdb", "--verbosity=0"], env=variables, check=True
        )
        database.execute("first", "insert into orders_order (number, paid) values (1, false)")
        with (tmp_path / "log").open("wb") as log:
            worker = subprocess.Popen(
                [*manage, "jobwire", "worker", "-c", str(THREADS)],
                env=variables,
                stdout=log,
                stderr=log,
            )
        reaper.watch(worker.pid)
        with Client(server.url) as client, Inspector(server.url) as inspector:

            def push(name: str) -> None:
                client.push_bulk(name, [[1]] * BATCH)

            def idle() -> bool:
                stats = inspector.stats()
                return stats.enqueued == 0 and stats.busy == 0

            for _ in range(restarts):
                push("pay")
                push("async_pay")
                database.kill()  # jobs of this moment fail
                database.start()
                wait_until(idle, 120)
                processed, failed = inspector.stats().processed, inspector.stats().failed
                push("pay")
                push("async_pay")
                # Retries of the jobs that failed run in between, so there are more.
                wait_until(lambda: inspector.stats().processed >= processed + 2 * BATCH, 120)  # noqa: B023
                assert inspector.stats().failed == failed
                (row,) = database.execute(
                    "postgres",
                    "select count(*) from pg_stat_activity where datname in ('first', 'second')",
                )
                assert isinstance(row[0], int)
                assert row[0] <= THREADS + 2
            errors = {str(entry.fields.get("error_class")) for entry in inspector.entries("retry")}
        assert not {name for name in errors if "InterfaceError" in name}
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(60) == 0
