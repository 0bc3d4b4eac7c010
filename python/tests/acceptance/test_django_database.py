"""Transactions of Django, with a database that is killed, kill -9, and the outbox."""

from __future__ import annotations

import json
import random
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from harness.servers import Reaper, Server, wait_until
from jobwire import Client, Inspector
from tests import postgres
from tests.workers import environment

MANAGE = [sys.executable, "-W", "error::ResourceWarning", "-m", "tests.django_site.manage"]


@pytest.fixture
def variables(server: Server, database: dict[str, str]) -> dict[str, str]:
    """Return the environment of a project with the outbox and its tables."""
    made = environment(
        JOBWIRE_REDIS_URL=server.url,
        DJANGO_SETTINGS_MODULE="tests.django_site.settings",
        OUTBOX="1",
        **database,
    )
    for alias in ("default", "other"):
        run(made, "migrate", "--run-syncdb", "--verbosity=0", f"--database={alias}")
    return made


def run(variables: dict[str, str], *words: str) -> str:
    """Run a command of the project and return its output."""
    done = subprocess.run(
        [*MANAGE, *words], env=variables, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


ENQUEUE = """
from django.db import transaction
from tests.django_site.orders.jobs import pay
with transaction.atomic():
    for number in range({count}):
        pay.{options}enqueue(number)
"""


def enqueue(variables: dict[str, str], count: int, options: str = "") -> None:
    run(variables, "shell", "-c", ENQUEUE.format(count=count, options=options))


def numbers(server: Server, queue: str = "default") -> list[int]:
    """Return the first argument of each job in a queue, next first."""
    stored = server.client().lrange(f"queue:{queue}", 0, -1)
    return [json.loads(text)["args"][0] for text in reversed(stored)]


@pytest.mark.parametrize("case", ["OutboxTest", "InTestCase"])
def test_the_project_passes_its_own_tests(tmp_path: Path, case: str) -> None:
    done = subprocess.run(
        [*MANAGE, "test", f"tests.django_site.orders.tests_outbox.{case}"],
        env=environment(DATABASE_DIR=str(tmp_path), OUTBOX="1"),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "\nOK" in done.stderr
    assert "Ran 0 tests" not in done.stderr


def storm(variables: dict[str, str], total: int, *, kill_before: int) -> int:
    """Run transactions in processes that are killed at a random one; return the number of those."""
    draw = random.Random(total)
    done = kills = 0
    while done < total:
        program = ["-m", "tests.django_site.storm", str(kills + 1), str(min(AT_ONCE, total - done))]
        process = subprocess.run(
            [sys.executable, *program],
            env={**variables, "JOBWIRE_STORM_KILL": str(draw.randrange(1, kill_before))},
            stdout=subprocess.PIPE,
            check=False,
        )
        assert process.returncode in (0, -9)
        done += len(process.stdout.split())
        kills += 1
    return kills


@pytest.mark.full
def test_the_migration_is_that_of_the_model(variables: dict[str, str]) -> None:
    assert "No changes" in run(variables, "makemigrations", "--check", "jobwire_outbox")


@pytest.mark.matrix
@pytest.mark.parametrize("total", [500, pytest.param(10_000, marks=pytest.mark.full)])
def test_no_job_of_a_committed_transaction_is_missing(
    tmp_path: Path, server: Server, variables: dict[str, str], total: int
) -> None:
    """Acceptance: a job for each committed row and no other, although processes are killed."""
    kills = storm(variables, total, kill_before=200)
    assert "0 left" in run(variables, "jobwire_relay", "--once")
    with Inspector(server.url) as inspector:
        jobs = [job.args[0] for job in inspector.jobs("default")]
        ids = {job.jid for job in inspector.jobs("default")}
    rows = committed(tmp_path, variables)
    assert set(jobs) == rows
    assert len(rows) > total / 3
    # Twice, with the same id, only if the process died between the write and the end of the row.
    assert max(Counter(jobs).values()) <= 2
    assert len(jobs) - len(rows) <= kills
    assert len(ids) == len(rows)


def test_jobs_wait_in_the_database_while_redis_is_away(
    tmp_path: Path, server: Server, variables: dict[str, str], reaper: Reaper
) -> None:
    """The commit succeeds, and a worker writes the jobs and runs them when Redis is back."""
    server.kill()
    enqueue(variables, 3)
    server.start()
    assert server.client().dbsize() == 0
    with (tmp_path / "log").open("wb") as log:
        worker = subprocess.Popen(
            [*MANAGE, "jobwire", "worker", "-c", "2", "-q", "unused"],
            env=variables,
            stdout=log,
            stderr=log,
        )
    reaper.watch(worker.pid)
    wait_until(lambda: numbers(server) == [0, 1, 2], what="the jobs of the outbox")
    worker.send_signal(signal.SIGTERM)
    said = (tmp_path / "log").read_text
    assert worker.wait(60) == 0, said()
    assert "jobs written from the outbox: 3" in said()


@pytest.mark.matrix
def test_relays_at_the_same_time_write_each_job_once(
    server: Server, variables: dict[str, str]
) -> None:
    server.kill()
    enqueue(variables, 1_000)
    server.start()
    relays = [
        subprocess.Popen(
            [*MANAGE, "jobwire_relay", "--once"],
            env=variables,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    sent = 0
    for relay in relays:
        output, _ = relay.communicate(timeout=120)
        assert relay.returncode == 0
        sent += int(output.split()[0])
    run(variables, "jobwire_relay", "--once")  # the rows that one left to another
    assert sorted(numbers(server)) == [*range(1_000)]
    assert sent <= 1_000


VIA_MAIL = """
from django.db import transaction
from jobwire.django import app
from tests.django_site.orders.jobs import pay
with transaction.atomic():
    pay.enqueue(1)
    with app.via("mail"):
        pay.enqueue(2)
"""


@pytest.mark.full
def test_a_relay_writes_to_the_redis_of_each_job(server: Server, variables: dict[str, str]) -> None:
    """One that is away, or has no name any more, holds up only its own jobs."""
    run(variables, "shell", "-c", VIA_MAIL)  # nothing listens at the address of `mail`
    assert numbers(server) == [1]
    server.kill()
    enqueue(variables, 2)
    server.start()
    failed = subprocess.run(
        [*MANAGE, "jobwire_relay", "--once"],
        env=variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "127.0.0.1:1" in failed.stderr
    assert numbers(server) == [0, 1]
    mail = {**variables, "MAIL_REDIS_URL": f"{server.url.rsplit('/', 1)[0]}/5"}
    assert run(mail, "jobwire_relay", "--once").strip() == "1 written, 0 left"
    assert server.client().llen("queue:default") == 2
    assert redis.Redis.from_url(mail["MAIL_REDIS_URL"]).llen("queue:default") == 1


@pytest.mark.matrix
def test_a_job_that_redis_refuses_holds_up_no_other(
    server: Server, variables: dict[str, str]
) -> None:
    server.kill()
    enqueue(variables, 2)
    enqueue(variables, 1, 'options(queue="broken").')
    enqueue(variables, 2)
    server.start()
    server.client().set("queue:broken", "a string is in the way")
    assert run(variables, "jobwire_relay", "--once").strip() == "4 written, 1 left"
    assert numbers(server) == [0, 1, 0, 1]
    server.client().delete("queue:broken")
    assert run(variables, "jobwire_relay", "--once").strip() == "1 written, 0 left"
    assert numbers(server, "broken") == [0]


@pytest.mark.full
def test_a_relay_ends_upon_a_signal(
    tmp_path: Path, server: Server, variables: dict[str, str], reaper: Reaper
) -> None:
    """For a project whose workers are all in other languages."""
    server.kill()
    enqueue(variables, 2)
    server.start()
    relay = subprocess.Popen([*MANAGE, "jobwire_relay"], env=variables)
    reaper.watch(relay.pid)
    wait_until(lambda: numbers(server) == [0, 1], what="the jobs of the outbox")
    relay.send_signal(signal.SIGTERM)
    assert relay.wait(60) == 0


@pytest.mark.full
def test_a_relay_says_that_redis_is_away(server: Server, variables: dict[str, str]) -> None:
    server.kill()
    enqueue(variables, 1)
    done = subprocess.run(
        [*MANAGE, "jobwire_relay", "--once"],
        env=variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "cannot use Redis" in done.stderr
    assert "the jobs stay in the outbox" in done.stderr
    assert "Traceback" not in done.stderr


AT_ONCE = 250  # transactions of one process


def committed(directory: Path, variables: dict[str, str]) -> set[int]:
    """Return the numbers of all rows in both databases."""
    if "POSTGRES_SOCKET" in variables:
        return postgres.numbers(variables["POSTGRES_SOCKET"], ["first", "second"])
    found: set[int] = set()
    for name in ("first", "second"):
        with sqlite3.connect(directory / f"{name}.sqlite3") as database:
            found.update(row[0] for row in database.execute("select number from orders_order"))
        database.close()
    return found


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.matrix)])
def database(
    request: pytest.FixtureRequest, tmp_path: Path, _reaper: Reaper
) -> Iterator[dict[str, str]]:
    """The variables with which the project uses a database."""
    if request.param == "sqlite":
        yield {"DATABASE_DIR": str(tmp_path)}
        return
    if (missing := postgres.missing()) is not None:
        pytest.skip(missing)
    with postgres.running(_reaper, ["first", "second"]) as started:
        yield {"DATABASE_DIR": str(tmp_path), "POSTGRES_SOCKET": str(started.socket)}


@pytest.mark.matrix
@pytest.mark.parametrize("total", [500, pytest.param(10_000, marks=pytest.mark.full)])
def test_no_job_of_a_rolled_back_transaction_is_ever_written(
    tmp_path: Path, server: Server, database: dict[str, str], total: int
) -> None:
    """Acceptance: no job without its row, although the process is killed before a push."""
    variables = environment(
        JOBWIRE_REDIS_URL=server.url,
        DJANGO_SETTINGS_MODULE="tests.django_site.settings",
        **database,
    )
    manage = [sys.executable, "-m", "tests.django_site.manage", "migrate", "--run-syncdb"]
    for alias in ("default", "other"):
        subprocess.run([*manage, "--verbosity=0", f"--database={alias}"], env=variables, check=True)
    storm(variables, total, kill_before=400)
    rows = committed(tmp_path, database)
    with Inspector(server.url) as inspector:
        jobs = [job.args[0] for job in inspector.jobs("default")]
    assert set(jobs) - rows == set()
    assert len(jobs) == len(set(jobs))
    assert len(jobs) > len(rows) / 3  # a row may be of a block within one that has failed
    assert len(rows) > total / 3


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
