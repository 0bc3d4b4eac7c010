"""The work of a page for Redis does not grow with the number of jobs."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest
from starlette.testclient import TestClient

from harness.servers import Server
from jobwire.console.web.routes import PAGES
from jobwire.web import Visitor, WebApp
from tests.integration.inspector.entries import IDENTITY, payload

pytestmark = pytest.mark.process

SETS = ("schedule", "retry", "dead", "jobwire:unreadable", "jobwire:parked")
PLACES = ("/retries", "/retries?from=20", "/scheduled", "/dead", "/unreadable", "/queues/q")
# These examine a bounded number of entries: by hundreds, or one state each of at most 200 jobs.
EXAMINING = {"/failures": 20, "/search": 20, "/iterations": 200, "/locks": 20, "/batches": 20}
WALKS = {"keys", "scan", "hvals", "hkeys"}


def fill(client: Any, size: int) -> None:
    client.flushall()
    failed = {"error_class": "E", "error_message": "broken", "retry_count": 1, "failed_at": 5}
    for name in SETS:
        entries = {payload(f"{name}{n}", **failed): 2e9 + n for n in range(size)}
        client.zadd(name, entries)
    client.sadd("queues", "q")
    client.lpush("queue:q", *(payload(f"q{n}", queue="q") for n in range(size)))
    client.sadd("processes", IDENTITY)
    client.hset(IDENTITY, mapping={"info": '{"queues":["q"]}', "busy": 1, "beat": 2e9})
    client.sadd("jobwire:owners", IDENTITY)
    held = {f"{n}:q": payload(f"h{n}", queue="q") for n in range(size)}
    client.hset(f"jobwire:private:{IDENTITY}", mapping=held)


def commands(client: Any) -> dict[str, int]:
    stats = client.info("commandstats")
    return {name.removeprefix("cmdstat_"): one["calls"] for name, one in stats.items()}


def cost(server: Server, path: str, size: int) -> dict[str, int]:
    """Return the commands of one request of a page of which nothing is in memory."""
    client = server.client()
    fill(client, size)
    app = WebApp(server.url, authorize=lambda request: Visitor("ada", "admin"))
    with closing(app), TestClient(app) as page:
        page.get("/stats")  # connects
        app._sites[""]._shared.clear()
        client.config_resetstat()
        assert page.get(path).status_code == 200
        used = commands(client)
    return {name: calls for name, calls in used.items() if name not in ("info", "config|resetstat")}


def paths() -> list[str]:
    plain = [page.path for page in PAGES if "{" not in page.path]
    left_out = {"/bulk", "/doctor", "/morgue", "/dashboard/stats"}
    return sorted({*plain, *PLACES} - left_out)


@pytest.mark.parametrize("path", paths())
def test_the_commands_of_a_page_do_not_grow(server: Server, path: str) -> None:
    few, many = cost(server, path, 40), cost(server, path, 4000)
    assert not WALKS & many.keys() - ({"scan"} if path in ("/locks", "/batches") else set())
    if path in EXAMINING:
        assert sum(many.values()) - sum(few.values()) <= EXAMINING[path]
    else:
        assert many == few
