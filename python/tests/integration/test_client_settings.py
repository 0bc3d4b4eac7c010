"""Settings of both clients: servers, middleware, the limit of a size, generation, namespace."""

from __future__ import annotations

import asyncio
import base64
import json
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from harness.servers import Server
from jobwire import App, AsyncClient, Client, ConfigError, InvalidJob
from jobwire.protocol.normalize import JobFields
from tests.integration.clients import Connect, echo, everything, listening, register
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


def test_middleware_is_nested(server: Server, connect: Connect) -> None:
    """PUSH-7: the first middleware is the outermost, and the job that it returns is pushed."""
    calls = []

    def outer(item: JobFields, call_next: Callable[[], JobFields | None]) -> JobFields | None:
        calls.append("outer in")
        after = call_next()
        calls.append("outer out")
        return None if after is None else after | {"tags": ["outer"]}

    def inner(item: JobFields, call_next: Callable[[], JobFields | None]) -> JobFields | None:
        calls.append("inner")
        return call_next()

    connect(server.url, generation=8, middleware=[outer, inner]).push("A")
    assert calls == ["outer in", "inner", "outer out"]
    assert json.loads(server.client().lindex("queue:default", 0))["tags"] == ["outer"]


LIMIT = 1_000


@pytest.mark.parametrize("options", [{}, {"middleware": [lambda _item, call_next: call_next()]}])
def test_a_payload_that_is_too_large_is_refused(
    server: Server, connect: Connect, options: dict[str, Any]
) -> None:
    """PUSH-10: the bytes of the whole payload count; nothing is written."""
    client = connect(server.url, generation=8, max_payload_bytes=LIMIT, **options)
    client.push("A", [""])
    spare = LIMIT - len(server.client().lindex("queue:default", 0))
    for fits in ("x" * spare, "é" * (spare // 2)):
        client.push("A", [fits])
    server.client().flushall()
    for args in (["x" * (spare + 1)], ["é" * spare]):
        with pytest.raises(
            InvalidJob, match=r"^A: the payload has 1,\d{3} bytes, the limit is 1,000 .* reference"
        ):
            client.push("A", args)
        with pytest.raises(InvalidJob, match=r"^A: job 1: the payload"):
            client.push_bulk("A", [[1], args])
    assert server.client().dbsize() == 0


def test_the_size_limit_is_a_setting(server: Server) -> None:
    """PUSH-10: 8 MiB unless it is set; None means no limit."""
    large = "x" * (8 * 1024 * 1024)
    app = App(server.url, generation=8)
    job = app.job(double)
    with pytest.raises(InvalidJob, match="max_payload_bytes"):
        job.enqueue(1, large)
    free = App(server.url, generation=8, max_payload_bytes=None)
    free.job(double).enqueue(1, large)
    assert server.client().llen("queue:default") == 1
    app.close()
    free.close()
    for wrong in (0, -1, True, 1.5, "8MB"):
        with pytest.raises(ConfigError, match=f"max_payload_bytes: {wrong!r} is not a number"):
            Client(server.url, max_payload_bytes=wrong)  # type: ignore[arg-type]


def test_large_arguments_are_compressed_if_asked(server: Server, connect: Connect) -> None:
    """X-ZIP-4, X-ZIP-5: before the limit counts; only from the size on; also in a bulk push."""
    large = ["x" * 2_000]
    connect(server.url, generation=8).push("A", large)
    client = connect(server.url, generation=8, compress_above=1_000, max_payload_bytes=LIMIT)
    client.push("A", large)
    client.push_bulk("A", [large, ["small"]])
    pushed = [json.loads(text) for text in reversed(server.client().lrange("queue:default", 0, -1))]
    assert [job.get("original_job_size_bytes") for job in pushed] == [None, 2_004, 2_004, None]
    assert [job.get("compressed") for job in pushed] == [None, True, True, None]
    assert pushed[0]["args"] == large
    assert json.loads(zlib.decompress(base64.b64decode(*pushed[1]["args"]))) == large
    with pytest.raises(ConfigError, match="compress_above: 0 is not a number of bytes"):
        Client(server.url, compress_above=0)


def double(a: int, b: str = "x") -> None: ...


def test_damaged_processes_have_no_say(server: Server, connect: Connect) -> None:
    """GEN-10: hashes that are expired, of another type or damaged do not stop a push."""
    client = server.client()
    client.sadd("processes", "expired", "wrong-type", "not-json", "no-object", b"\xff\xfe", "empty")
    client.set("wrong-type", "x")
    client.hset("not-json", "info", b"{\xff")
    client.hset("no-object", "info", "[7]")
    client.hset("empty", "beat", "5")
    assert connect(server.url).push("A")
    assert type(json.loads(client.lindex("queue:default", 0))["created_at"]) is int


def test_auto_asks_once_in_a_while(server: Server, connect: Connect) -> None:
    """GEN-7: the client does not ask at every push, because that costs two round trips."""
    register(server, "", "7.3.2")
    client = connect(server.url)
    with listening(server) as heard:
        for _ in range(5):
            client.push("A")
        names = [line.name for line in heard()]
    assert names.count("SMEMBERS") == 1
    assert names.count("LPUSH") == 5


def test_a_set_generation_asks_nobody(server: Server, connect: Connect) -> None:
    client = connect(server.url, generation=7)
    with listening(server) as heard:
        client.push("A")
        assert [line.name for line in heard()] == ["MULTI", "SADD", "LPUSH", "EXEC"]
