"""Connections: URLs, TLS, names, numbers, sharing, forks, RESP3."""

from __future__ import annotations

import asyncio
import gc
import os
import ssl
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from asgiref.sync import async_to_sync

from harness.servers import Server, wait_until
from jobwire import App, AsyncClient, Client, ConfigError, MaybeWritten, RedisUnreachable
from jobwire.connection.aio import AsyncRedis
from jobwire.connection.sync import SyncRedis
from jobwire.errors import NoReply, RedisRefused
from jobwire.protocol.keys import Keys
from jobwire.protocol.reliable import script_fetch
from jobwire.protocol.wire import Batch, Op, command, once
from tests.integration.clients import Connect, echo
from tests.server_fixtures import ServerFactory
from tests.workers import running


def names(server: Server) -> Counter[str]:
    """Return the number of connections of each role."""
    found = [each["name"] for each in server.client().client_list()]
    return Counter(name.partition(":")[0] for name in found if name.startswith("jobwire-"))


def keyspace(server: Server) -> set[str]:
    """Return the databases that hold something."""
    return set(server.client().info("keyspace"))


# Names


def test_connections_have_a_name(server: Server, connect: Connect) -> None:
    """CLIENT LIST shows the role of each connection."""
    connect(server.url).run(echo("x"))
    found = [each["name"] for each in server.client().client_list()]
    assert f"jobwire-client:{os.getpid()}" in found


def test_a_name_of_ones_own(server: Server, connect: Connect) -> None:
    connect(f"{server.url}?client_name=shop").run(echo("x"))
    assert "shop" in [each["name"] for each in server.client().client_list()]


def test_a_server_that_wants_no_names(server: Server, connect: Connect) -> None:
    """ENV-9, ENV-14: CLIENT is forbidden, and everything else works."""
    server.client().execute_command("ACL", "SETUSER", "bob", "on", ">pw", "~*", "+@all", "-client")
    client = connect(server.url.replace("//", "//bob:pw@"), generation=8)
    assert client.push("A")


# Addresses


def test_a_database_number(server: Server, connect: Connect) -> None:
    connect(server.url.replace("/0", "/5"), generation=8).push("A")
    assert keyspace(server) == {"db5"}


def test_a_unix_socket(server_factory: ServerFactory, connect: Connect, tmp_path: Path) -> None:
    path = tmp_path / "redis.sock"
    server = server_factory("--unixsocket", str(path))
    connect(f"unix://{path}?db=3", generation=8).push("A")
    assert keyspace(server) == {"db3"}


def test_the_scheme_of_valkey(server: Server) -> None:
    """For every kind of connection: blocking, asyncio, and the one that hears notices."""
    url = server.url.replace("redis://", "valkey://")
    with Client(url, generation=8) as client:
        client.push("A")
        assert client.result("none", timeout=0.1) is None

    async def push() -> None:
        async with AsyncClient(url, generation=8) as twin:
            await twin.push("A")

    asyncio.run(push())
    assert server.client().llen("queue:default") == 2


def test_a_dns_change_is_noticed(server_factory: ServerFactory, connect: Connect) -> None:
    """A name is resolved for each new connection; here it has two addresses, one of them dead."""
    server = server_factory()
    url = server.url.replace("127.0.0.1", "localhost")  # ::1 comes first, where no server listens
    client = connect(url, generation=8)
    client.push("A")
    server.restart()
    client.breathe()
    assert client.push("A")


# TLS


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with an authority, and with certificates of a server and a client."""
    place = tmp_path_factory.mktemp("tls")

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=place, check=True, capture_output=True)

    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    openssl(
        *("req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.crt", "-subj", "/CN=authority"),
        *("-days", "2", "-addext", "keyUsage=critical,keyCertSign"),
    )
    (place / "names").write_text("subjectAltName=DNS:localhost\n")
    for who in ("server", "client"):
        openssl("req", *key, "-keyout", f"{who}.key", "-out", f"{who}.csr", "-subj", f"/CN={who}")
        openssl(
            *("x509", "-req", "-in", f"{who}.csr", "-CA", "ca.crt", "-CAkey", "ca.key"),
            *("-CAcreateserial", "-out", f"{who}.crt", "-days", "2", "-extfile", "names"),
        )
    return place


class TlsProxy:
    """A TLS proxy for the test's server, which has no TLS; it requires client certificates.

    Attributes:
        port: Port at `localhost` on which the proxy listens.
    """

    def __init__(self, server: Server, certificates: Path) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificates / "server.crt", certificates / "server.key")
        context.load_verify_locations(certificates / "ca.crt")
        context.verify_mode = ssl.CERT_REQUIRED
        self._context = context
        self._server = server
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        ready = threading.Event()
        self._thread = threading.Thread(
            target=lambda: self._loop.run_until_complete(self._serve(ready))
        )
        self._thread.start()
        assert ready.wait(60)

    async def _serve(self, ready: threading.Event) -> None:
        listener = await asyncio.start_server(
            self._accept, "127.0.0.1", 0, ssl=self._context, ssl_handshake_timeout=60
        )
        self.port: int = listener.sockets[0].getsockname()[1]
        ready.set()
        await self._stop.wait()
        listener.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner = await asyncio.open_connection("127.0.0.1", self._server.port)

        async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
            try:
                while data := await source.read(65_536):
                    target.write(data)
                    await target.drain()
            finally:
                target.close()

        try:
            await asyncio.gather(
                copy(reader, inner[1]), copy(inner[0], writer), return_exceptions=True
            )
        finally:
            writer.close()
            inner[1].close()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(60)
        self._loop.close()


@pytest.fixture
def tls(server: Server, certificates: Path) -> Iterator[TlsProxy]:
    proxy = TlsProxy(server, certificates)
    yield proxy
    proxy.close()


def test_tls_with_certificates_on_both_sides(
    server: Server, tls: TlsProxy, certificates: Path, connect: Connect
) -> None:
    """SEC-7: with a private authority, a client certificate and a host name that matches."""
    mine = f"ssl_certfile={certificates}/client.crt&ssl_keyfile={certificates}/client.key"
    trust = f"ssl_ca_certs={certificates}/ca.crt"
    url = f"rediss://localhost:{tls.port}/0"
    client = connect(f"{url}?{mine}&{trust}", generation=8)
    client.push("A")
    client.push_bulk("A", [["x" * 200]] * 2_000)
    connect(f"{url}?{mine}&{trust}".replace("rediss", "valkeys"), generation=8).push("A")
    assert server.client().llen("queue:default") == 2_002
    with pytest.raises(RedisUnreachable, match="CERTIFICATE_VERIFY_FAILED"):
        connect(f"{url}?{mine}", generation=8).push("A")
    with pytest.raises(RedisUnreachable, match="CERTIFICATE_VERIFY_FAILED"):
        connect(f"{url}?{mine}&{trust}".replace("localhost", "127.0.0.1"), generation=8).push("A")
    unchecked = f"{url}?{mine}&ssl_cert_reqs=none".replace("localhost", "127.0.0.1")
    assert connect(unchecked, generation=8).push("A")


def test_tls_without_a_certificate(tls: TlsProxy, certificates: Path, connect: Connect) -> None:
    """PUSH-8: the server refused the greeting, so nothing was sent."""
    url = f"rediss://localhost:{tls.port}/0?ssl_ca_certs={certificates}/ca.crt"
    with pytest.raises(RedisUnreachable):
        connect(url, generation=8).push("A")


# RESP3


def test_resp3_makes_no_difference(server: Server, connect: Connect) -> None:
    """ENV-4: the replies are the same, of any type."""
    steps = [
        *(command("HSET", "h", "a", "1"), command("HGETALL", "h"), command("HGET", "h", "b")),
        *(command("ZADD", "z", 0.1, "m"), command("ZSCORE", "z", "m")),
        *(command("SADD", "s", "one"), command("SMEMBERS", "s")),
        *(command("ZRANGEBYSCORE", "z", "-inf", "+inf"), command("SISMEMBER", "s", "one")),
        *(command("EVAL", "return {1, false, {'x'}}", 0), command("LPUSH", "s", 1)),
    ]
    replies = []
    for version in (2, 3):
        server.client().flushall()
        client = connect(f"{server.url}?protocol={version}", generation=8)
        assert client.push("A")
        replies.append(client.run(once(Batch(steps))))
        spoken = [each["resp"] for each in server.client().client_list() if each["name"]]
        assert str(version) in spoken
        client.disconnect()
    assert replies[0] == replies[1]


def test_a_worker_over_resp3(server: Server) -> None:
    """ENV-4: fetch, outcomes, heartbeat and schedule."""
    app = App()
    ran: list[int] = []

    @app.job(name="Take")
    def take(number: int) -> None:
        ran.append(number)
        if number == 2:
            raise ValueError

    url = f"{server.url}?protocol=3"
    place: Any = SimpleNamespace(url=url)
    with Client(url) as client, running(app, place, poll_interval=0.1):
        client.push("Take", [1])
        client.push("Take", [2])
        client.push_in(0.2, "Take", [3])
        wait_until(lambda: sorted(ran) == [1, 2, 3])
        wait_until(lambda: server.client().zcard("retry") == 1)
        wait_until(lambda: server.client().get("stat:processed") == b"3")


# Number of connections


def test_a_worker_has_few_connections(server: Server) -> None:
    """One for each thread that sends at a time, and two that wait; none for a job."""
    app = App()
    busy = threading.Event()
    entered = threading.Semaphore(0)

    @app.job(name="Wait")
    def wait() -> None:
        entered.release()
        busy.wait(60)

    with running(app, server, concurrency=10):
        wait_until(lambda: names(server)["jobwire-wakeup"] == 2)
        idle = sum(names(server).values())
        with Client(server.url, generation=8) as client:
            client.push_bulk("Wait", [[]] * 30)
            assert entered.acquire(timeout=60)
            assert entered.acquire(timeout=60)
        working = sum(names(server).values())
        busy.set()
        wait_until(lambda: server.client().get("stat:processed") == b"30")
        after = sum(names(server).values())
    # Two wait. Ticker, heartbeat, poller, the leader and periodic jobs may meet in an instant.
    assert idle <= 7, idle
    assert working <= 7, working
    assert after <= 7, after


def test_tasks_share_one_connection(server: Server) -> None:
    """Any number of tasks send their commands together."""

    async def scenario() -> None:
        async with AsyncClient(server.url, generation=8) as client:
            await asyncio.gather(*(client.push("A", [number]) for number in range(2_000)))
            assert sum(names(server).values()) == 1

    asyncio.run(scenario())
    assert server.client().llen("queue:default") == 2_000


def test_threads_beyond_the_limit_wait_for_a_connection(server: Server) -> None:
    """The pool is small, and a thread that finds it empty waits."""
    redis = SyncRedis(server.url, max_connections=3)
    redis.run(echo("x"))
    with ThreadPoolExecutor(20) as pool:
        replies = list(pool.map(lambda n: redis.run(echo(str(n))), range(400)))
    assert replies == [str(number).encode() for number in range(400)]
    assert sum(names(server).values()) <= 3
    redis.close()
    wait_until(lambda: not names(server))


def test_connections_that_nobody_needs_are_closed(server: Server) -> None:
    """Threads that met once leave no connection behind; one in use stays."""
    redis = SyncRedis(server.url)
    with ThreadPoolExecutor(5) as pool:
        list(pool.map(lambda _: redis.run(once(command("BLPOP", "never", 0.2))), range(5)))
    assert clients_of(server) == 5
    redis.trim()  # as of now, all were needed
    for _ in range(2):
        redis.run(echo("x"))
        redis.trim()
        wait_until(lambda: clients_of(server) == 1)
    redis.close()


def clients_of(server: Server) -> int:
    return names(server)["jobwire-client"]


def test_a_forgotten_client_closes_its_connections(server: Server) -> None:
    """The connections close at once, without the cycle collector."""
    gc.collect()
    gc.disable()
    try:
        clients = [Client(server.url)]
        clients[0].push("EchoJob")
        with ThreadPoolExecutor(3) as pool:
            list(pool.map(lambda _: clients[0].push("EchoJob"), range(30)))
        assert clients_of(server) >= 1
        clients.clear()
        wait_until(lambda: clients_of(server) == 0, what="the connections to be closed")
    finally:
        gc.enable()


def test_an_application_that_goes_elsewhere_closes_its_connections(
    server_factory: ServerFactory,
) -> None:
    """`connect` ends the clients of the previous Redis, also one that the caller still holds."""
    one, other = server_factory(), server_factory()
    app = App(one.url)
    held = app.client
    held.push("EchoJob")
    assert clients_of(one) == 1
    app.connect(other.url)
    wait_until(lambda: clients_of(one) == 0, what="the connections to be closed")
    app.client.push("EchoJob")
    assert clients_of(other) == 1
    assert app.client is not held


def test_a_thread_does_not_wait_for_ever(server: Server) -> None:
    """PUSH-8: no connection became free, so nothing was sent."""
    redis = SyncRedis(server.url, max_connections=1, timeout=60)
    holding = threading.Thread(target=lambda: redis.run(once(command("BLPOP", "never", 60))))
    redis._pool._timeout = 0.2  # the timeout of replies has to be longer
    holding.start()
    wait_until(lambda: any("b" in each["flags"] for each in server.client().client_list()))
    with pytest.raises(RedisUnreachable, match="all 1 connections were in use"):
        redis.run(echo("x"))
    server.client().lpush("never", "now")
    holding.join(60)
    assert redis.run(echo("x")) == b"x"
    redis.close()


# Forks


def in_child(call: Any) -> int:
    """Run a function in a forked child; return its exit status."""
    pid = os.fork()
    if pid == 0:
        try:
            call()
        except BaseException:  # noqa: BLE001 - the exit status says it
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_has_connections_of_its_own(server: Server) -> None:
    """ENV-5: two processes on one socket would read each other's replies."""
    with Client(server.url, generation=8) as client:
        client.push("A")
        mine = client.redis.run(once(command("CLIENT", "ID")))

        def child() -> None:
            assert client.redis.run(once(command("CLIENT", "ID"))) != mine
            for number in range(50):
                assert client.redis.run(echo(f"child {number}")) == f"child {number}".encode()
            client.close()

        for _ in range(3):
            assert in_child(child) == 0
            for number in range(50):
                assert client.redis.run(echo(str(number))) == str(number).encode()
        assert sum(names(server).values()) == 1  # only the parent's connection is left


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_does_not_end_its_parents_connections(server: Server) -> None:
    """The same for a child that ends normally, with its objects collected."""
    redis = SyncRedis(server.url)
    redis.run(echo("x"))
    before = server.client().info("stats")["total_connections_received"]

    def child() -> None:
        redis.run(echo("y"))
        redis.close()
        gc.collect()

    assert in_child(child) == 0
    assert redis.run(echo("z")) == b"z"
    after = server.client().info("stats")["total_connections_received"]
    assert after - before <= 3  # the child's connections, and those of this test
    redis.close()


def test_a_client_for_several_event_loops(server: Server) -> None:
    """A second `asyncio.run` does not use a connection of the first."""
    redis = AsyncRedis(server.url)

    async def ask() -> bytes:
        try:
            return await redis.run(echo("x"))
        finally:
            await redis.close()

    for _ in range(2):
        assert asyncio.run(ask()) == b"x"


def own_loop(push: Callable[[], Coroutine[Any, Any, Any]]) -> None:
    """Run a coroutine as old programs do: nothing ends the loop in order."""
    loop = asyncio.new_event_loop()
    loop.run_until_complete(push())
    loop.close()


@pytest.mark.parametrize("shared", [False, True], ids=["app", "client"])
@pytest.mark.parametrize(
    "run", [lambda push: asyncio.run(push()), lambda push: async_to_sync(push)(), own_loop]
)
@pytest.mark.filterwarnings("ignore:unclosed transport:ResourceWarning")
def test_loops_that_end_leave_no_connection(
    server: Server, run: Callable[[Any], Any], *, shared: bool
) -> None:
    """Neither the clients of an application nor one client keep a loop, or its connection."""
    app = App(server.url, generation=8)
    job = app.job(name="Job")(lambda number: None)
    client = AsyncClient(server.url, generation=8)
    push = partial(client.push, "Job", [1]) if shared else partial(job.aenqueue, 1)
    for _ in range(20):
        run(push)
    assert clients_of(server) <= 1  # that of the last loop, which the next one closes
    asyncio.run(push())
    wait_until(lambda: clients_of(server) == 0, what="the connections to be closed")
    gc.collect()
    assert not app._async_clients
    assert server.client().llen("queue:default") == 21


# Started commands


def test_what_was_started_is_finished_when_there_is_time(server: Server) -> None:
    """Other threads use the server meanwhile, over connections of their own."""
    with closing(SyncRedis(server.url)) as redis:
        finish = redis.start(command_twice("a"))
        assert redis.run(echo("b")) == b"b"
        assert finish() == b"aa"
        assert names(server).total() == 2
        assert redis.prepare(echo("c"))()() == b"c"
        assert names(server).total() == 2


def command_twice(text: str) -> Op[bytes]:
    first: bytes = yield command("ECHO", text)
    second: bytes = yield command("ECHO", text)
    return first + second


def test_a_script_that_was_started_is_loaded_where_it_is_missing(server: Server) -> None:
    """LUA-3: the function that ends the command loads the script, as `run` does."""
    keys = Keys()
    with closing(SyncRedis(server.url)) as redis:
        step = script_fetch(keys, "me", ["default"], count=1, sequence=1)
        assert redis.start(once(step))() is None  # without a lease there is no job


def test_what_goes_wrong_under_way_is_told_at_its_end(server: Server) -> None:
    """ENV-5: the errors are those of `run`, and the connection is not used again."""
    with closing(SyncRedis(server.url)) as redis:
        refused = redis.start(once(command("NONSENSE")))
        cut = redis.start(echo("x"))
        idle = redis.start(echo("y"))
        assert idle() == b"y"
        with pytest.raises(RedisRefused, match="NONSENSE"):
            refused()
        server.kill()
        unreachable = redis.start(echo("z"))
        with pytest.raises(RedisUnreachable):
            unreachable()
        assert cut() == b"x"  # it had been answered
        server.restart()
        started = redis.start(once(command("BLPOP", "nothing", 0)))
        server.kill()
        with pytest.raises(NoReply):
            started()


# Failures while connecting


def test_too_many_clients(server: Server, connect: Connect) -> None:
    """ENV-6, PUSH-8: refused in the greeting, so certainly not written; later the push succeeds."""
    admin = server.client()
    admin.ping()
    admin.config_set("maxclients", 1)
    client = connect(server.url, generation=8)
    with pytest.raises(RedisUnreachable):  # the server may close before the reason arrives
        client.push("A")
    admin.config_set("maxclients", 100)
    assert client.push("A")
    assert admin.llen("queue:default") == 1


@pytest.mark.process
def test_one_attempt_to_connect_serves_all_tasks(server: Server) -> None:
    """All tasks share one attempt to connect to a server that is slow to greet."""

    async def scenario() -> None:
        async with AsyncClient(server.url, generation=8, timeout=3) as client:
            server.pause()
            began = time.monotonic()
            pushes = [client.push("A") for _ in range(50)]
            errors = await asyncio.gather(*pushes, return_exceptions=True)
            assert {type(each) for each in errors} == {RedisUnreachable}
            assert time.monotonic() - began < 60  # 50 attempts would take 150 s
            server.resume()
            assert await client.push("A")

    asyncio.run(scenario())


def test_a_cancelled_task_does_not_end_the_attempt_of_others(server: Server) -> None:
    async def scenario() -> None:
        async with AsyncClient(server.url, generation=8) as client:
            first, second = (asyncio.create_task(client.push("A")) for _ in range(2))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            first.cancel()
            assert await second
            with pytest.raises(asyncio.CancelledError):
                await first

    asyncio.run(scenario())


# Replicas that confirm


def test_a_push_that_a_replica_has_confirmed(
    server_factory: ServerFactory, connect: Connect
) -> None:
    """PUSH-8: a push that succeeds is stored on two servers."""
    primary = server_factory("--repl-diskless-sync-delay", "0")
    replica = server_factory("--replicaof", f"127.0.0.1 {primary.port}")
    wait_until(lambda: replica.client().info("replication")["master_link_status"] == "up")
    client = connect(primary.url, generation=8, wait_replicas=1)
    client.push("A")
    assert replica.client().llen("queue:default") == 1
    client.push_bulk("A", [[number] for number in range(2_500)])
    assert replica.client().llen("queue:default") == 2_501
    client.push("A", at=4e9)
    assert replica.client().zcard("schedule") == 1


@pytest.mark.process
def test_a_push_that_no_replica_confirms(server: Server, connect: Connect) -> None:
    """PUSH-8: the job is stored, but a failover may lose it: that is "may have been written"."""
    client = connect(server.url, generation=8, wait_replicas=1, timeout=4)
    with pytest.raises(MaybeWritten, match="1 replicas were to confirm") as caught:
        client.push("A", jid="9f2c1b7a4d3e5f60718293a4")
    assert caught.value.unsure == ("9f2c1b7a4d3e5f60718293a4",)
    assert server.client().llen("queue:default") == 1


@pytest.mark.process
def test_an_application_that_asks_replicas(server: Server) -> None:
    """PUSH-8: the same through `App`; a value that is not a number is refused."""
    app = App(server.url, generation=8, wait_replicas=1)

    @app.job(name="A")
    def job() -> None: ...

    with pytest.raises(MaybeWritten):
        job.enqueue()
    app.close()
    with pytest.raises(ConfigError, match="wait_replicas: True is not a number"):
        Client(server.url, wait_replicas=True)
