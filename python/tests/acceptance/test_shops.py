"""The example shops: each is started by its own command and driven over HTTP."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from harness.servers import Reaper, wait_until
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


# One in the gate; docs/how-to has a page on each of the others.
@pytest.mark.parametrize(
    "name", ["shop-fastapi", *(pytest.param(name, marks=pytest.mark.full) for name in OTHERS)]
)
def test_a_shop_starts_with_one_command_and_its_orders_are_shipped(
    tmp_path: Path, reaper: Reaper, name: str
) -> None:
    directory = tmp_path / name
    shutil.copytree(
        EXAMPLES / name, directory, ignore=shutil.ignore_patterns(".jobwire", "*.sqlite3")
    )
    port = free_port()
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    log = directory / "log"
    with log.open("wb") as output:
        started = subprocess.Popen(
            [directory / "start", str(port)],
            env=environment(PATH=path, PYTHONUNBUFFERED="1"),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    reaper.watch(started.pid)
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as shop:
        try:
            wait_until(lambda: is_up(shop), 120)
            order = shop.post("/orders", json={"item": "tea"})
            assert order.status_code == 201, order.text
            key = order.json()["id"]
            wait_until(lambda: state(shop, key) == "shipped", 60)
            assert shop.get(f"/orders/{key}").json() == {"item": "tea", "state": "shipped"}
            wait_until(lambda: "jobwire web: http://127.0.0.1:" in log.read_text(), 60)
            started.terminate()
            assert started.wait(60) == 0
            wait_until(lambda: not is_up(shop), 30)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{log.read_text()}") from None
        finally:
            end(started)
            reaper.release(started.pid)
