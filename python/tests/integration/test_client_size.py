"""The limit of a payload's size."""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any

import pytest

from harness.servers import Server
from jobwire import App, Client, ConfigError, InvalidJob
from tests.integration.clients import Connect

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
