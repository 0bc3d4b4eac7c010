"""The start of a worker: its modules, its queues, a Redis that is not up yet."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.servers import Reaper, Server, wait_until
from tests.fleet import Fleet
from tests.server_fixtures import ServerFactory
from tests.workers import Workers, jobwire

APP = """
import os, sys
from jobwire import App

app = App()

@app.on("heartbeat")
def tell():
    open("loading", "w").write("\\n".join(sys.modules))
    os.rename("loading", "loaded")

@app.job
def work():
    pass
"""
# Modules of other commands.
NOT_NEEDED = frozenset(
    [
        *("rich", "pygments", "yaml", "jsonschema", "pytest", "jobwire_conformance"),
        *("jobwire.bench", "jobwire.inspect", "jobwire.testing"),
        "jobwire.worker.execute.isolation_parent",
    ]
)


def test_a_worker_loads_nothing_that_only_other_commands_need(
    server: Server, workers: Workers, tmp_path: Path
) -> None:
    (tmp_path / "shop.py").write_text(APP)
    workers.start("shop:app", "--redis", server.url)
    wait_until((tmp_path / "loaded").exists, 60, "the worker's first beat")
    loaded = set((tmp_path / "loaded").read_text().split())
    packages = loaded | {name.partition(".")[0] for name in loaded}
    assert "jobwire.worker.process.launcher" in loaded
    assert NOT_NEEDED & packages == set()


SHOP = {
    "shop/app.py": "import jobwire\napp = jobwire.App()\napp.autodiscover('shop')\n",
    "shop/mail/jobs.py": """
from shop.app import app

@app.job(queue="mail")
def send(path):
    open(path, "w").write("sent")
""",
    "shop/billing/jobs.py": """
from shop.app import app
from shop.mail.jobs import send

@app.job(queue="billing")
def charge(path):
    send.enqueue(path)
""",
}


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """Write an application of three modules, whose jobs name two queues."""
    for name, text in SHOP.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_jobs_of_all_modules_run_from_all_queues(
    server: Server, workers: Workers, shop: Path
) -> None:
    """EXEC-1, FETCH-4: without the name of a module or a queue on the command line."""
    worker = workers.start("shop.app:app", "--redis", server.url)
    worker.identity(server.client())
    server.client().lpush("queue:billing", '{"class":"charge","args":["done"]}')
    wait_until((shop / "done").exists, what="a job that a job enqueues")
    (line,) = wait_until(lambda: worker.logged("ready: "))
    assert line["msg"] == "ready: 5 threads for default (1), mail (1), billing (1)"
    assert worker.logged("not served") == []


def test_queues_that_are_left_out_are_named(server: Server, workers: Workers, shop: Path) -> None:
    worker = workers.start("shop.app:app", "--redis", server.url, "-q", "default")
    worker.identity(server.client())
    (line,) = wait_until(lambda: worker.logged("not served"))
    assert line["lvl"] == "WARNING"
    assert line["msg"] == (
        "not served by this worker: queue mail (send); queue billing (charge); "
        "add -q mail -q billing, unless another worker serves them"
    )


def test_a_misspelt_queue_is_suggested(server: Server, workers: Workers, shop: Path) -> None:
    """A warning and no refusal: other programs and languages may use such a queue."""
    options = ("-q", "defualt", "-q", "mails", "-q", "mail", "-q", "ruby")
    worker = workers.start("shop.app:app", "--redis", server.url, *options)
    worker.identity(server.client())
    wait_until(lambda: worker.logged("not served"))
    assert [(line["lvl"], line["msg"]) for line in worker.logged("no job of the app")] == [
        (
            "WARNING",
            "queue 'defualt': no job of the application names it; did you mean 'default'?",
        ),
        ("INFO", "queue 'mails': no job of the application names it"),  # it serves mail
        ("INFO", "queue 'ruby': no job of the application names it"),
    ]


@pytest.fixture
def fleet(_reaper: Reaper, shop: Path) -> Iterator[Fleet]:
    fleet = Fleet(_reaper, shop)
    yield fleet
    fleet.close()


@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_worker_waits_for_its_redis(
    server: Server, fleet: Fleet, tmp_path: Path, processes: str
) -> None:
    """ENV-6: it is ready only when Redis is."""
    ready = tmp_path / "ready"
    server.stop()
    arguments = ("shop.app:app", "--redis", server.url, "-p", processes)
    fleet.start(*arguments, JOBWIRE_READY_FILE=str(ready))
    (line,) = fleet.wait_logged("waiting for Redis: cannot use Redis at ")
    assert line["lvl"] == "WARNING"
    assert line["msg"].endswith("; this URL is from --redis: check the host, or start the server")
    assert not ready.exists()
    server.start()
    wait_until(lambda: server.client().scard("processes") == int(processes), what="the processes")
    wait_until(ready.exists, what="readiness")
    assert fleet.logged("Redis can be used, after ")
    fleet.send(signal.SIGTERM)
    assert fleet.wait() == 0


@pytest.mark.process
@pytest.mark.parametrize("setting", ["maxmemory", "min-replicas-to-write"])
def test_a_worker_waits_while_writes_are_refused(
    fleet: Fleet, server: Server, setting: str
) -> None:
    """ENV-6: OOM and NOREPLICAS pass with time, so they do not end a worker that starts."""
    server.client().config_set(setting, 1)
    fleet.start("shop.app:app", "--redis", server.url)
    fleet.wait_logged("waiting for Redis")
    server.client().config_set(setting, 0)
    fleet.wait_logged("Redis can be used, after ")
    fleet.send(signal.SIGTERM)
    assert fleet.wait() == 0


def test_a_worker_that_waits_can_be_stopped(fleet: Fleet) -> None:
    """SIG-1, SEC-2: at once, with the status of an orderly end."""
    url = "redis://:s3cret@127.0.0.1:1/0"  # no server listens
    fleet.start("shop.app:app", "--redis", url, "-p", "2")
    fleet.wait_logged("waiting for Redis")
    fleet.send(signal.SIGTERM)
    assert fleet.wait() == 0
    assert fleet.logged("TERM: stopping")
    assert "s3cret" not in fleet.log.read_text()


def test_a_refusal_ends_a_worker_at_once(server_factory: ServerFactory, shop: Path) -> None:
    """ENV-7: a wrong password or database gets no better with time, nor does a wrong URL."""
    server = server_factory(password="right")
    wrong = server.url.replace("right", "wrong")
    for url, status in ((wrong, 4), (f"{server.url}99", 4), ("redis://host:port", 2)):
        ended = jobwire("worker", "shop.app:app", "--redis", url, cwd=shop)
        assert ended.returncode == status, ended.stderr
        assert "waiting" not in ended.stderr
