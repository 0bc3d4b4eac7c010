"""Clients and workers of a server that refuses commands, for a while or for ever."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest

from harness.servers import Server, wait_until
from jobwire import App, Client
from jobwire.application.config import FetchMode
from jobwire.errors import RedisRefused, RedisTrouble
from tests.server_fixtures import ServerFactory
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
    """ENV-6, SRV-1, SRV-2: the whole push fails; running jobs are stored later."""
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
        if code != "OOM":  # a script whose first write is a deletion may continue
            wait_until(lambda: code in caplog.text, what="the worker's complaint")
        client.config_set(setting, off)
        pusher.push("Refuse", [3])
        wait_until(lambda: client.get("stat:processed") == b"2")
    assert ran == [1, 3]
    assert client.zcard("retry") == client.llen("queue:default") == 0
    assert client.keys("jobwire:private:*") == []


@pytest.mark.parametrize(
    ("rules", "written"),
    [("-multi", 2), ("-multi -lpush", 0), ("-exec", 0), ("-lpush", 0)],
)
def test_a_refused_transaction_names_the_jobs_that_were_written(
    server: Server, rules: str, written: int
) -> None:
    """PUSH-8: without MULTI the server carries out the other commands of a push."""
    client: Any = server.client()
    allowed = ["reset", "on", "nopass", "~*", "+@all", *rules.split()]
    client.execute_command("ACL", "SETUSER", "app", *allowed)
    with Client(server.url.replace("redis://", "redis://app:x@"), generation=8) as pusher:
        for attempt in (1, 2):  # a refused EXEC leaves the connection in the transaction
            with pytest.raises(RedisRefused) as caught:
                pusher.push_bulk("A", [[1], [2]])
            assert len(caught.value.written) == written
            assert client.llen("queue:default") == attempt * written


@contextmanager
def demoted(server: Server) -> Iterator[None]:
    """Make the server the replica of an absent one, as a failover does."""
    server.client().replicaof("127.0.0.1", "1")
    yield
    server.client().replicaof("NO", "ONE")


@contextmanager
def demoted_without_data(server: Server) -> Iterator[None]:
    server.client().config_set("replica-serve-stale-data", "no")
    with demoted(server):
        yield


@contextmanager
def locked(server: Server) -> Iterator[None]:
    """Require a password, and close all connections."""
    admin = server.client()
    admin.config_set("requirepass", "s3cret")
    admin.client_kill_filter(_type="normal", skipme=True)
    yield
    admin.config_set("requirepass", "")


@contextmanager
def crowded(server: Server) -> Iterator[None]:
    """Admit no new client, and close all connections."""
    admin = server.client()
    admin.config_set("maxclients", 1)
    admin.client_kill_filter(_type="normal", skipme=True)
    yield
    admin.config_set("maxclients", 1_000)


@contextmanager
def gone(server: Server) -> Iterator[None]:
    server.kill()
    yield
    server.start()


TROUBLES: dict[str, tuple[Callable[[Server], AbstractContextManager[None]], str]] = {
    "READONLY": (demoted, "READONLY"),
    "MASTERDOWN": (demoted_without_data, "MASTERDOWN|READONLY"),
    "NOAUTH": (locked, "Authentication required|NOAUTH"),
    "max clients": (crowded, "max number of clients|cannot use|no reply"),
    "server gone": (gone, "cannot use|no reply"),
}


@pytest.mark.process
@pytest.mark.parametrize("fetch", ["reliable", "basic"])
@pytest.mark.parametrize("name", TROUBLES)
def test_a_worker_waits_until_the_server_is_itself_again(
    server_factory: ServerFactory,
    caplog: pytest.LogCaptureFixture,
    name: str,
    fetch: FetchMode,
) -> None:
    """ENV-6, ENV-11, PUSH-8: keep the job, pause, try again; one line at the start and the end."""
    caplog.set_level(logging.INFO)
    trouble, words = TROUBLES[name]
    server = server_factory("--appendonly", "yes", "--appendfsync", "always")
    app = App()
    entered, leave = threading.Event(), threading.Event()

    @app.job(name="Take")
    def take(number: int) -> None:
        if number == 1:
            entered.set()
            leave.wait(60)

    with (
        Client(server.url, generation=8) as pusher,
        running(app, server, concurrency=1, fetch=fetch),
    ):
        pusher.push("Take", [1])
        assert entered.wait(60)
        with trouble(server):
            leave.set()
            with pytest.raises(RedisTrouble, match=words):
                pusher.push("Take", [2])
            wait_until(
                lambda: "fetching failed and is retried" in caplog.text, what="the line down"
            )
        wait_until(lambda: "fetching again, after" in caplog.text, 60, what="the line up")
        assert pusher.push("Take", [3])
        client: Any = server.client()
        wait_until(lambda: not client.llen("queue:default"), 60)
        if fetch == "reliable":
            wait_until(lambda: client.get("stat:processed") == b"2", 60)
            wait_until(lambda: client.keys("jobwire:private:*") == [], 60)
    down = [r.getMessage() for r in caplog.records if "fetching failed" in r.getMessage()]
    assert len(down) <= 1
    assert client.zcard("retry") == 0


@pytest.mark.process
def test_a_server_that_is_loading_is_waited_for(
    server_factory: ServerFactory, caplog: pytest.LogCaptureFixture
) -> None:
    """ENV-6: LOADING after a restart; a client reports it, a worker tries again."""
    caplog.set_level(logging.INFO)
    server = server_factory(
        *("--key-load-delay", "2000", "--loading-process-events-interval-bytes", "1024")
    )
    admin: Any = server.client()
    pipeline = admin.pipeline()
    for number in range(1_000):
        pipeline.set(f"key:{number}", "x" * 50)
    pipeline.execute()
    app = App()
    ran: list[int] = []
    app.job(name="Take")(ran.append)
    with Client(server.url, generation=8) as pusher, running(app, server, concurrency=1):
        pusher.push("Take", [1])
        wait_until(lambda: admin.get("stat:processed") == b"1")
        admin.save()
        server.stop()
        starting = threading.Thread(target=server.start)
        starting.start()
        said: list[RedisTrouble] = []

        def loading() -> bool:
            try:
                pusher.push("Take", [2])
            except RedisTrouble as error:
                said.append(error)
            else:
                raise AssertionError("the server was up before it had said LOADING")
            return "loading" in str(said[-1]).lower()

        wait_until(loading)
        assert isinstance(said[-1], RedisRefused)
        assert said[-1].code == "LOADING"
        starting.join(60)
        pusher.push("Take", [3])
        wait_until(lambda: ran == [1, 3], 60)
        wait_until(lambda: "fetching again, after" in caplog.text)
    assert len([r for r in caplog.records if "fetching failed" in r.getMessage()]) == 1


@pytest.mark.process
def test_a_cluster_that_is_down(server_factory: ServerFactory) -> None:
    """ENV-6, ENV-8: a cluster that is down refuses commands for a while."""
    server = server_factory("--cluster-enabled", "yes")
    with Client(server.url, generation=8, namespace="{a}:") as client:
        with pytest.raises(RedisRefused) as caught:
            client.push("A")
        assert caught.value.code == "CLUSTERDOWN"
        server.client().execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        wait_until(lambda: b"state:ok" in server.client().execute_command("CLUSTER", "INFO"))
        assert client.push("A")


def test_a_blocked_fetch_that_a_failover_ends(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """PUSH-9: UNBLOCKED, then READONLY until the server takes writes again."""
    app = App()
    ran: list[int] = []
    app.job(name="Take")(ran.append)
    with running(app, server, concurrency=2, fetch="basic"):
        wait_until(
            lambda: any("b" in each["flags"] for each in server.client().client_list()),
            what="a blocked fetch",
        )
        with demoted(server):
            wait_until(lambda: "READONLY" in caplog.text)
            assert "UNBLOCKED" not in caplog.text  # the repeated fetch succeeded
        with Client(server.url, generation=8) as pusher:
            pusher.push("Take", [1])
        wait_until(lambda: ran == [1], 60)
