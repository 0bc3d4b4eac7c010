"""The example shops: each is started by its own command. Those that migrate run in two queues."""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import httpx
import pytest

from harness.servers import Reaper, Server, wait_until
from tests.workers import environment, free_port

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
SHOPS = sorted(path.name for path in EXAMPLES.glob("shop-*"))
OTHERS = [name for name in SHOPS if name != "shop-fastapi"]


def state(shop: httpx.Client, key: int) -> str | None:
    with suppress(httpx.TransportError):
        return str(shop.get(f"/orders/{key}").json()["state"])
    return None


def is_up(shop: httpx.Client) -> bool:
    with suppress(httpx.TransportError):
        return shop.get("/orders/999999").status_code == 404
    return False


def end(process: subprocess.Popen[bytes]) -> None:
    """End a shop that a failed test has left, in good order if possible: it has processes."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(60)


def test_there_is_a_shop_for_each_framework() -> None:
    assert SHOPS == ["shop-django", "shop-fastapi", "shop-flask", "shop-starlette"]


@contextmanager
def opened(name: str, directory: Path, reaper: Reaper) -> Iterator[tuple[str, str]]:
    """Start a shop by its command; yield its address and that of its page of jobs, and end it."""
    shutil.copytree(
        EXAMPLES / name, directory, ignore=shutil.ignore_patterns(".jobwire", "*.sqlite3")
    )
    address = f"http://127.0.0.1:{free_port()}"
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    log = directory / "log"
    with log.open("wb") as output:
        started = subprocess.Popen(
            [directory / "start", address.rpartition(":")[2]],
            env=environment(PATH=path, PYTHONUNBUFFERED="1"),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    reaper.watch(started.pid)
    page = re.compile(r"jobwire web: (http://127\.0\.0\.1:\d+)")
    try:
        with httpx.Client(base_url=address, timeout=30) as shop:
            wait_until(lambda: is_up(shop), 120)
            wait_until(lambda: page.search(log.read_text()), 60)
            yield address, page.findall(log.read_text())[0]
            started.terminate()
            assert started.wait(60) == 0
            wait_until(lambda: not is_up(shop), 30)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{log.read_text()}") from None
    finally:
        end(started)
        reaper.release(started.pid)


# One in the gate; docs/how-to has a page on each of the others.
@pytest.mark.parametrize(
    "name", ["shop-fastapi", *(pytest.param(name, marks=pytest.mark.full) for name in OTHERS)]
)
def test_a_shop_starts_with_one_command_and_its_orders_are_shipped(
    tmp_path: Path, reaper: Reaper, name: str
) -> None:
    with (
        opened(name, tmp_path / name, reaper) as (address, _),
        httpx.Client(base_url=address, timeout=30) as shop,
    ):
        order = shop.post("/orders", json={"item": "tea"})
        assert order.status_code == 201, order.text
        key = order.json()["id"]
        wait_until(lambda: state(shop, key) == "shipped", 60)
        assert shop.get(f"/orders/{key}").json() == {"item": "tea", "state": "shipped"}


# The commands of workers, from the documentation of each system.
WORKERS = {
    "celery": ["celery", "-A", "before_celery", "worker", "--beat", "-Q", "celery,shipping", "-c2"],
    "rq": ["rq", "worker", "--with-scheduler", "--url", "{url}", "default", "shipping"],
    "arq": ["arq", "before_arq.Worker"],
    "dramatiq": ["dramatiq", "before_dramatiq", "--processes", "1", "--threads", "2"],
}
PACKAGES = {"celery": "celery[redis]", "rq": "rq", "arq": "arq", "dramatiq": "dramatiq[redis]"}


def programs_of(name: str) -> Path:
    """Return the directory of an environment with jobwire and this other system."""
    made = EXAMPLES.parent / "build" / "migrating" / name
    if not (made / "state").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", made], check=True)
        install = [str(made / "bin" / "python"), "-m", "pip", "install", "--quiet"]
        subprocess.run([*install, PACKAGES[name], "-e", f"{EXAMPLES.parent}[periodic]"], check=True)
        (made / "state").touch()
    return made / "bin"


@pytest.mark.full
@pytest.mark.parametrize("name", WORKERS)
def test_a_shop_migrates_while_both_queues_run(
    tmp_path: Path, reaper: Reaper, server: Server, name: str
) -> None:
    directory = tmp_path / "migrating"
    shutil.copytree(EXAMPLES / "migrating", directory)
    programs = programs_of(name)
    path = os.pathsep.join([str(programs), os.environ["PATH"]])
    env = environment(
        PATH=path, REDIS_URL=server.url, PYTHONPATH=str(directory), PYTHONUNBUFFERED="1"
    )
    log = directory / "log"

    def start(*command: str, **more: str) -> subprocess.Popen[bytes]:
        with log.open("ab") as output:
            started = subprocess.Popen(
                [programs / command[0], *command[1:]],
                cwd=directory,
                env=env | more,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        reaper.watch(started.pid)
        return started

    def order(program: str) -> str:
        """Place an order with this program, and return what has become of it at the end."""
        assert start("python", program, "tea").wait(60) == 0
        with closing(sqlite3.connect(directory / "shop.sqlite3")) as db:
            key = db.execute("select max(id) from orders").fetchone()[0]
            state = "select state from orders where id = ?"
            wait_until(lambda: "archived" in db.execute(state, [key]).fetchone()[0], 90)
            return str(db.execute(state, [key]).fetchone()[0])

    workers = [command.format(url=server.url) for command in WORKERS[name]]
    before = f"before_{name}.py"
    running: list[subprocess.Popen[bytes]] = []
    try:
        running.append(start(*workers))
        assert order(before) == f"shipped by {name}, archived"
        end(running.pop())
        running += [start("jobwire", "worker", "after:app"), start(*workers, MOVED="1")]
        assert order(before) == "shipped by jobwire, archived"
        end(running.pop())
        assert order("after.py") == "shipped by jobwire, archived"
        # Every minute, now by jobwire alone.
        (directory / "report.txt").unlink(missing_ok=True)
        wait_until((directory / "report.txt").exists, 90)
        running[0].terminate()
        assert running.pop().wait(60) == 0
    except AssertionError as error:
        raise AssertionError(f"{error}\n{log.read_text()}") from None
    finally:
        for process in running:
            end(process)
            reaper.release(process.pid)
