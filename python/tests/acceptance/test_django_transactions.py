"""Random transactions and kill -9: Redis never gets a job of a transaction that was rolled back."""

from __future__ import annotations

import random
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.servers import Reaper, Server
from jobwire import Inspector
from tests import postgres
from tests.workers import environment

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
    draw = random.Random(total)
    done = kills = 0
    while done < total:
        program = ["-m", "tests.django_site.storm", str(kills + 1), str(min(AT_ONCE, total - done))]
        process = subprocess.run(
            [sys.executable, *program],
            env={**variables, "JOBWIRE_STORM_KILL": str(draw.randrange(1, 400))},
            stdout=subprocess.PIPE,
            check=False,
        )
        assert process.returncode in (0, -9)
        done += len(process.stdout.split())
        kills += 1
    rows = committed(tmp_path, database)
    with Inspector(server.url) as inspector:
        jobs = [job.args[0] for job in inspector.jobs("default")]
    assert set(jobs) - rows == set()
    assert len(jobs) == len(set(jobs))
    assert len(jobs) > len(rows) / 3  # a row may be of a block within one that has failed
    assert len(rows) > total / 3
