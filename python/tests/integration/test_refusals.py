"""A server that refuses for a while, or for ever: what a client and a worker make of it."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from jobwire import App, Client
from jobwire.errors import RedisRefused
from tests.conftest import ServerFactory
from tests.servers import Server, wait_until
from tests.workers import running

# Setting, the value that makes the server refuse writes, the one that ends it, and the error.
REFUSALS = [
    ("maxmemory", "1", "0", "OOM"),
    ("min-replicas-to-write", "1", "0", "NOREPLICAS"),
]


@pytest.mark.parametrize(("setting", "on", "off", "code"), REFUSALS)
def test_nothing_was_stored_and_the_job_is_kept(
    server: Server,
    caplog: pytest.LogCaptureFixture,
    setting: str,
    on: str,
    off: str,
    code: str,
) -> None:
    """ENV-6: a push fails whole; what runs is stored when the server takes writes again."""
    caplog.set_level(logging.INFO)
    app = App()
    client: Any = server.client()
    ran: list[int] = []

    @app.job(name="Refuse")
    def refuse(number: int) -> None:
        if number == 1:
            client.config_set(setting, on)
        ran.append(number)

    with Client(server.url, generation=8) as pusher, running(app, server, concurrency=1):
        pusher.push("Refuse", [1])
        wait_until(lambda: ran == [1])
        with pytest.raises(RedisRefused) as caught:
            pusher.push("Refuse", [2])
        assert caught.value.code == code
        if code != "OOM":  # a script whose first write is a deletion may go on
            wait_until(lambda: code in caplog.text, what="the worker's complaint")
        client.config_set(setting, off)
        pusher.push("Refuse", [3])
        wait_until(lambda: client.get("stat:processed") == b"2")
    assert ran == [1, 3]
    assert client.zcard("retry") == client.llen("queue:default") == 0
    assert client.keys("jobwire:private:*") == []


def test_an_acl_that_forbids_what_is_not_needed(server: Server) -> None:
    """ENV-9: without CLIENT, INFO and HELLO a worker works."""
    admin: Any = server.client()
    admin.acl_setuser(
        "app", enabled=True, nopass=True, keys=["*"], commands=["+@all", "-client", "-info"]
    )
    admin.execute_command("ACL", "SETUSER", "app", "-hello")
    app = App()
    ran: list[int] = []
    app.job(name="Take")(ran.append)
    url = server.url.replace("redis://", "redis://app:x@")
    restricted: Any = SimpleNamespace(url=url)
    with Client(url, generation=8) as pusher, running(app, restricted):
        pusher.push("Take", [1])
        wait_until(lambda: admin.get("stat:processed") == b"1")
    assert ran == [1]


@pytest.mark.parametrize(
    ("password", "written"),
    [("p+w", "p+w"), ("p+w", "p%2Bw"), ("a b/@:%?#", "a%20b%2F%40%3A%25%3F%23")],
)
def test_what_a_password_in_a_url_means(
    server_factory: ServerFactory, password: str, written: str
) -> None:
    """ENV-7: percent-encoding, as URLs have it; a plus sign is a plus sign."""
    server = server_factory(password=password)
    with Client(f"redis://:{written}@127.0.0.1:{server.port}/0", generation=8) as client:
        assert client.push("A")
    server.client().acl_setuser(
        "a+b@c", enabled=True, passwords=["+x"], keys=["*"], commands=["+@all"]
    )
    with Client(f"redis://a+b%40c:x@127.0.0.1:{server.port}/0", generation=8) as client:
        assert client.push("A")
