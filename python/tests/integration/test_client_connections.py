"""Clients on servers of many kinds, and shared by threads and tasks."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from harness.servers import Server
from jobwire import AsyncClient, Client
from tests.integration.clients import Connect, echo, everything, register
from tests.server_fixtures import ServerFactory


@pytest.mark.parametrize("protocol", [2, 3])
def test_either_protocol_works(any_server: Server, connect: Connect, protocol: int) -> None:
    """ENV-4: the same results over RESP2 (the default) and RESP3."""
    register(any_server, "", "7.3.2")
    client = connect(f"{any_server.url}?protocol={protocol}")
    client.push("A", [1])
    client.push_in(4e9, "A", [2])
    client.push_bulk("A", [[n] for n in range(1_001)])
    found = everything(any_server)
    assert found[b"queues"] == {b"default"}
    assert len(found[b"queue:default"]) == 1_002
    assert type(json.loads(found[b"queue:default"][0])["created_at"]) is float
    assert found[b"schedule"][0][1] == 4e9


def test_the_default_is_resp2(server: Server, connect: Connect) -> None:
    """ENV-4: HELLO, which proxies and old servers refuse, is never sent."""
    connect(server.url, generation=8).push("A")
    assert "cmdstat_hello" not in server.client(protocol=2).info("commandstats")


def test_a_password_with_odd_characters(server_factory: ServerFactory, connect: Connect) -> None:
    server = server_factory(password="s3cret/@:%")
    assert connect(server.url, generation=8).push("A")


def test_a_unix_socket(server_factory: ServerFactory, connect: Connect, tmp_path: Path) -> None:
    path = tmp_path / "redis.sock"
    server = server_factory("--unixsocket", str(path))
    assert connect(f"unix://{path}?db=3", generation=8).push("A")
    assert everything(server) == {}  # the contents of database 0
    assert server.client().info("keyspace")["db3"]["keys"] == 2


def test_the_url_comes_from_the_environment(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REDIS_URL", server.url)
    with Client(generation=8) as client:
        assert client.url == server.url
        client.push("A")
    assert server.client().llen("queue:default") == 1


def test_threads_share_a_client(server: Server) -> None:
    """ENV-5: a thread does not read the reply of another thread."""

    with Client(server.url, generation=8) as client, ThreadPoolExecutor(8) as threads:
        texts = [str(n) for n in range(400)]
        assert list(threads.map(lambda text: client.redis.run(echo(text)), texts)) == [
            text.encode() for text in texts
        ]
        jids = list(threads.map(lambda text: client.push("A", [text]), texts))
    stored = server.client().lrange("queue:default", 0, -1)
    assert {json.loads(text)["jid"] for text in stored} == set(jids)
    assert len(stored) == 400


def test_tasks_share_a_client(server: Server) -> None:
    """ENV-5: a task does not read the reply of another; surplus tasks wait for a connection."""

    async def scenario() -> None:
        async with AsyncClient(server.url, generation=8) as client:
            texts = [str(n) for n in range(1_000)]
            replies = await asyncio.gather(*(client.redis.run(echo(text)) for text in texts))
            assert replies == [text.encode() for text in texts]
            await asyncio.gather(*(client.push("A", [text]) for text in texts))

    asyncio.run(scenario())
    assert server.client().llen("queue:default") == 1_000
    assert server.client().info("stats")["total_connections_received"] < 60


def test_a_closed_client_opens_again(server: Server, connect: Connect) -> None:
    client = connect(server.url, generation=8)
    client.push("A")
    client.disconnect()
    client.push("A")
    assert server.client().llen("queue:default") == 2
