"""A Django project: its own tests by Django's runner, and its commands with a real worker."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from harness.servers import Reaper, Server, wait_until
from jobwire import Client
from tests import postgres
from tests.workers import environment

MANAGE = [sys.executable, "-W", "error::ResourceWarning", "-m", "tests.django_site.manage"]


def manage(directory: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command of the project and return its output."""
    return subprocess.run(
        [*MANAGE, *words],
        cwd=directory,
        env=environment(**{"DATABASE_DIR": str(directory), **variables}),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def test_the_project_passes_its_own_tests(tmp_path: Path) -> None:
    """Without its own test of the outbox, which test_django_database.py runs."""
    cases = ("CommitTest", "CaptureTest", "WorkerTest", "PageTest", "ProjectTest")
    assert_passes(tmp_path, *(f"tests.{case}" for case in cases), "tests_tasks.TasksTest")


@pytest.mark.matrix
@pytest.mark.skipif(postgres.missing() is not None, reason=str(postgres.missing()))
def test_the_project_passes_its_own_tests_on_postgresql(tmp_path: Path, reaper: Reaper) -> None:
    """Also: no connection stays open, because PostgreSQL would not delete the database then."""
    with postgres.running(reaper, ["first", "second"]) as started:
        assert_passes(tmp_path, "tests", POSTGRES_SOCKET=str(started.socket))


def assert_passes(directory: Path, *cases: str, **variables: str) -> None:
    labels = [f"tests.django_site.orders.{case}" for case in cases]
    done = manage(directory, "test", *labels, **variables)
    assert done.returncode == 0, done.stderr
    assert "\nOK" in done.stderr
    assert "Ran 0 tests" not in done.stderr


def test_manage_py_runs_a_worker_and_inspects_it(
    tmp_path: Path, server: Server, reaper: Reaper
) -> None:
    assert manage(tmp_path, "migrate", "--run-syncdb").returncode == 0
    with sqlite3.connect(tmp_path / "first.sqlite3") as database:
        database.execute("insert into orders_order (id, number, paid) values (7, 1, 0)")
    variables = {"JOBWIRE_REDIS_URL": server.url, "DATABASE_DIR": str(tmp_path)}
    with (tmp_path / "log").open("wb") as log:
        worker = subprocess.Popen(
            [*MANAGE, "jobwire", "worker", "-c", "2", "--settings=tests.django_site.settings"],
            cwd=tmp_path,
            env=environment(**variables),
            stdout=log,
            stderr=log,
        )
    reaper.watch(worker.pid)
    with Client(server.url) as client:
        client.push("async_pay", [7])
    with sqlite3.connect(tmp_path / "first.sqlite3") as database:
        wait_until(lambda: database.execute("select paid from orders_order").fetchone() == (1,))
    listed = manage(tmp_path, "jobwire", "inspect", "processes", "--json", **variables)
    assert f'"pid":{worker.pid}' in listed.stdout.replace(" ", ""), listed
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(60) == 0, (tmp_path / "log").read_text()


def test_a_mistake_in_the_settings_is_an_error_of_the_checks(tmp_path: Path) -> None:
    """Although modules with jobs import the application before the checks."""
    (tmp_path / "wrong.py").write_text(
        "from tests.django_site.settings import *\nJOBWIRE = {'ULR': 'redis://localhost'}\n"
    )
    path = os.pathsep.join([str(tmp_path), environment()["PYTHONPATH"]])
    wrong = {"DJANGO_SETTINGS_MODULE": "wrong", "PYTHONPATH": path}
    for words in (["check"], ["jobwire", "worker"]):
        done = manage(tmp_path, *words, **wrong)
        assert done.returncode == 1
        assert "(jobwire.E002) JOBWIRE has the unknown key 'ULR'\n\tHINT: Did you mean 'URL'?" in (
            done.stderr
        )
        assert "Traceback" not in done.stderr
    done = manage(tmp_path, "jobwire", "inspect", "stats", **wrong)  # of no other Redis
    assert (done.returncode, len(done.stderr.splitlines())) == (3, 1)
    assert "JOBWIRE has the unknown key 'ULR'. Did you mean 'URL'?" in done.stderr
    served = subprocess.run(
        [sys.executable, "-c", "import django; django.setup()"],
        env=environment(DATABASE_DIR=str(tmp_path), **wrong),
        capture_output=True,
        text=True,
        check=False,
    )
    assert "ImproperlyConfigured: JOBWIRE has the unknown key 'ULR'" in served.stderr


def test_the_command_passes_its_words_on(tmp_path: Path) -> None:
    shown = manage(tmp_path, "jobwire", "config")
    assert shown.returncode == 0, shown.stderr
    assert "jobwire.django.worker:app" in shown.stdout
    assert "slow" in shown.stdout  # the queue of a task
