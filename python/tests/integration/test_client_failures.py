"""Errors of the clients when Redis does not do as asked, and the jobs that are stored then."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from harness.servers import Server, wait_until
from jobwire import (
    App,
    AsyncClient,
    Client,
    MaybeWritten,
    RedisRefused,
    RedisUnreachable,
)
from jobwire.connection.connection import Connection
from jobwire.errors import NoReply
from jobwire.protocol.keys import Keys
from jobwire.protocol.reliable import fetch
from jobwire.protocol.wire import Batch, Op, command
from tests.integration.clients import Connect, echo, everything
from tests.server_fixtures import ServerFactory

JID = "9f2c1b7a4d3e5f60718293a4"


def jids(server: Server, queue: str = "default") -> list[str]:
    """Return the ids of the jobs in a queue, next first."""
    stored = server.client().lrange(f"queue:{queue}", 0, -1)
    return [json.loads(text)["jid"] for text in reversed(stored)]


def hold_writes(server: Server) -> None:
    """Keep the server from answering writes, while it answers every other command."""
    server.client().execute_command("CLIENT", "PAUSE", 60_000, "WRITE")


def release_writes(server: Server) -> None:
    server.client().execute_command("CLIENT", "UNPAUSE")


def waiting_client(server: Server) -> str:
    """Wait until a client waits for the reply to a write; return the client's id."""
    admin = server.client()

    def blocked() -> str:
        found = [each for each in admin.client_list() if "b" in each["flags"]]
        return found[0]["id"] if found else ""

    return wait_until(blocked, what="a client to wait for its reply")


def test_nobody_listens(connect: Connect) -> None:
    """PUSH-8: the job is certainly not written; the text names the server, not the password."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with pytest.raises(RedisUnreachable) as caught:
        connect(f"redis://:s3cret@127.0.0.1:{port}/0", generation=8).push("A")
    assert f"127.0.0.1:{port}/0: Connection refused" in str(caught.value)
    assert "s3cret" not in str(caught.value)
    assert (caught.value.written, caught.value.unsure) == ((), ())


def test_a_question_without_answer_leaves_nothing_in_doubt(
    server: Server, connect: Connect
) -> None:
    """PUSH-8: the client asked for the generation, and sent no job."""
    client = connect(server.url, timeout=60)
    client.hurry(0.2)
    server.pause()
    with pytest.raises(RedisUnreachable, match="nothing was written"):
        client.push("A")
    server.resume()
    assert jids(server) == []


def test_blanks_around_a_url(server: Server, connect: Connect) -> None:
    """ENV-7: they are left out, in each client."""
    connect(f" {server.url}\n").push("A")
    assert len(jids(server)) == 1


def test_a_wrong_password(server_factory: ServerFactory, connect: Connect) -> None:
    """PUSH-8: nothing was sent."""
    server = server_factory(password="right")
    with pytest.raises(RedisUnreachable, match="invalid username-password") as caught:
        connect(server.url.replace("right", "wr0ng"), generation=8).push("A")
    assert "wr0ng" not in str(caught.value)


def test_a_failover_is_survived(
    server_factory: ServerFactory, connect: Connect, tmp_path: Path
) -> None:
    """PUSH-9: the old connection leads to the demoted server, a new one to the new primary."""
    old_socket, new_socket, address = (tmp_path / name for name in ("old", "new", "now"))
    old = server_factory("--unixsocket", str(old_socket))
    new = server_factory("--unixsocket", str(new_socket))
    address.symlink_to(old_socket)
    client = connect(f"unix://{address}", generation=8)
    client.push("A", jid="before")
    old.client().replicaof("127.0.0.1", new.port)
    address.unlink()
    address.symlink_to(new_socket)
    assert client.push("A", jid="after") == "after"
    assert jids(new) == ["after"]
    client.push_bulk("A", [[1], [2]], at=4e9)
    assert new.client().zcard("schedule") == 2


def test_a_failover_is_survived_by_scripts(
    server_factory: ServerFactory, connect: Connect, tmp_path: Path
) -> None:
    """PUSH-9, LUA-3: a refused fetch finds the new primary and loads its script there."""
    old_socket, new_socket, address = (tmp_path / name for name in ("old", "new", "now"))
    old = server_factory("--unixsocket", str(old_socket))
    new = server_factory("--unixsocket", str(new_socket))
    address.symlink_to(old_socket)
    client = connect(f"unix://{address}", generation=8)
    for server in (new, old):
        server.client().hset("me", "info", "{}")
        server.client().lpush("queue:q", b"{}")
    old.client().replicaof("127.0.0.1", new.port)
    assert client.run(echo("to the old one")) == b"to the old one"
    address.unlink()
    address.symlink_to(new_socket)
    fetched = client.run(fetch(Keys(), "me", ["q"], count=1, sequence=1))
    assert [held.text for held in fetched.jobs] == [b"{}"]
    assert fetched.broken == {}


def test_a_timeout_says_perhaps(server: Server, connect: Connect) -> None:
    """PUSH-8, PUSH-14: sent once, without an answer; the error has the id of the job."""
    client = connect(server.url, generation=8, timeout=60)
    client.hurry(0.2)
    server.pause()
    with pytest.raises(MaybeWritten, match="may have been written") as caught:
        client.push("A", [1])
    server.resume()
    [jid] = caught.value.unsure
    assert caught.value.written == ()
    wait_until(lambda: jids(server) == [jid], what="the late push")
    assert everything(server)[b"queues"] == {b"default"}
    assert client.push("A", [1], jid=jid) == jid  # a job that may run twice can be pushed again
    assert jids(server) == [jid, jid]


@pytest.mark.process
def test_a_timeout_while_connecting_is_certain(server: Server, connect: Connect) -> None:
    """PUSH-8: the greeting got no answer, so no job was sent."""
    server.pause()
    with pytest.raises(RedisUnreachable):
        connect(server.url, generation=8, timeout=2.0).push("A")
    server.resume()
    assert jids(server) == []


def test_an_idle_connection_that_died_is_replaced(server: Server, connect: Connect) -> None:
    """PUSH-8: the connection was dead before anything was sent, so there is nothing to report."""
    client = connect(server.url, generation=8)
    client.push("A")
    server.restart()
    client.breathe()
    client.push("A", jid=JID)
    assert jids(server) == [JID]


def test_an_error_that_is_no_push_is_a_plain_one(server: Server, connect: Connect) -> None:
    client = connect(server.url, timeout=60)
    client.hurry(0.2)
    server.pause()
    with pytest.raises(NoReply) as caught:
        client.run(echo("again"))
    server.resume()
    assert not isinstance(caught.value, MaybeWritten)


def test_a_queue_that_is_no_list(server: Server, connect: Connect) -> None:
    """PUSH-8: the server refuses, and the job exists nowhere."""
    server.client().set("queue:default", "in the way")
    with pytest.raises(RedisRefused) as caught:
        connect(server.url, generation=8).push("A")
    assert caught.value.code == "WRONGTYPE"
    assert caught.value.written == ()
    assert server.client().get("queue:default") == b"in the way"


def test_tasks_cancelled_at_any_point_leave_no_reply_behind(server: Server) -> None:
    """ENV-5: cancelled at any point, also in the greeting or while waiting for a connection."""

    async def scenario() -> None:
        async with AsyncClient(server.url, generation=8) as client:
            for turns in range(60):
                tasks = [asyncio.create_task(client.redis.run(echo(f"{n}"))) for n in range(60)]
                for _ in range(turns):
                    await asyncio.sleep(0)  # let the loop run once without a delay
                for task in tasks[::2]:
                    task.cancel()
                replies = await asyncio.gather(*tasks, return_exceptions=True)
                for number, reply in enumerate(replies):
                    if number % 2 or not isinstance(reply, asyncio.CancelledError):
                        assert reply == str(number).encode()

    asyncio.run(scenario())


class Interrupted(BaseException):
    """Raised by the signal of the test, as KeyboardInterrupt is by Ctrl-C."""


def two_replies() -> Op[list[bytes]]:
    reply: list[bytes] = yield Batch([command("ECHO", "first"), command("SET", "key", "late")])
    return reply


def test_replies_that_nobody_waited_for_are_never_read(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ENV-5: interrupted between two replies, of which the second is still to come."""
    read = Connection._read
    replies: list[Any] = []

    def struck(line: Connection) -> Any:
        if replies:
            raise Interrupted
        replies.append(read(line))
        return replies[0]

    with Client(server.url, timeout=60) as client:
        client.redis.run(echo("a connection to use"))
        hold_writes(server)
        with monkeypatch.context() as patched:
            patched.setattr(Connection, "_read", struck)
            with pytest.raises(Interrupted):
                client.redis.run(two_replies())
        assert replies == [b"first"]
        assert client.redis.run(echo("mine")) == b"mine"
        release_writes(server)
        for number in range(100):
            assert client.redis.run(echo(str(number))) == str(number).encode()


def test_replies_that_no_task_waited_for_are_never_read(server: Server) -> None:
    """ENV-5: the same in asyncio; a task that shares the connection still gets its own reply."""

    async def scenario() -> None:
        async with AsyncClient(server.url, timeout=60) as client:
            await client.redis.run(echo("a connection to use"))
            await asyncio.to_thread(hold_writes, server)
            struck = asyncio.create_task(client.redis.run(two_replies()))
            patient = asyncio.create_task(client.redis.run(echo("behind it")))
            await asyncio.to_thread(waiting_client, server)
            struck.cancel()
            with pytest.raises(asyncio.CancelledError):
                await struck
            assert await client.redis.run(echo("mine")) == b"mine"
            await asyncio.to_thread(release_writes, server)
            assert await patient == b"behind it"
            for number in range(100):
                assert await client.redis.run(echo(str(number))) == str(number).encode()
            assert len(application_clients(server)) == 1

    asyncio.run(scenario())


def application_clients(server: Server) -> list[str]:
    """Return the names of the connections that jobwire has opened."""
    names = [each["name"] for each in server.client().client_list()]
    return [name for name in names if name.startswith("jobwire-")]


def test_an_interrupted_thread_leaves_no_reply_behind(server: Server) -> None:
    """ENV-5: a signal arrives between command and reply; then a hundred replies are correct."""

    def strike(*_: object) -> None:
        raise Interrupted

    def when_blocked() -> None:
        waiting_client(server)
        os.kill(os.getpid(), signal.SIGUSR1)

    with Client(server.url, generation=8) as client:
        client.redis.run(echo("a connection to use"))
        previous = signal.signal(signal.SIGUSR1, strike)
        try:
            hold_writes(server)
            killer = threading.Thread(target=when_blocked)
            killer.start()
            with pytest.raises(Interrupted):
                client.push("A")
            killer.join()
        finally:
            signal.signal(signal.SIGUSR1, previous)
        release_writes(server)
        for number in range(100):
            assert client.redis.run(echo(str(number))) == str(number).encode()
        assert client.push("A")


@pytest.mark.parametrize("twin", [False, True])
def test_the_traceback_has_few_frames_of_this_package(twin: bool) -> None:
    """The line of the caller is near the end, where a person looks for it."""
    job = App("redis://127.0.0.1:1/0", generation=8).job(name="Hard")(lambda: None)
    with pytest.raises(RedisUnreachable) as caught:
        asyncio.run(job.aenqueue()) if twin else job.enqueue()
    names = [entry.name for entry in caught.traceback]
    assert names[names.index("aenqueue" if twin else "enqueue") :] == [
        "aenqueue" if twin else "enqueue",
        "push",
    ]
