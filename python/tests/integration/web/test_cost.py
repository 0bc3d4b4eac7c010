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

NOON = 1_795_176_000.0  # after midnight, charts have keys of two days

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


def costs(server: Server, size: int) -> dict[str, dict[str, int]]:
    """Return the commands of one request of each page, of which nothing is in memory."""
    client = server.client()
    fill(client, size)
    used = {}
    for path in paths():
        app = WebApp(
            server.url, authorize=lambda request: Visitor("ada", "admin"), clock=lambda: NOON
        )
        with closing(app), TestClient(app) as page:
            page.get("/stats")  # connects
            app._sites[""]._shared.clear()
            client.config_resetstat()
            assert page.get(path).status_code == 200
            used[path] = commands(client)
    return used


def commands(client: Any) -> dict[str, int]:
    stats = client.info("commandstats")
    calls = {name.removeprefix("cmdstat_"): one["calls"] for name, one in stats.items()}
    return {name: calls[name] for name in calls.keys() - {"info", "config|resetstat"}}


def paths() -> list[str]:
    plain = [page.path for page in PAGES if "{" not in page.path]
    left_out = {"/bulk", "/doctor", "/morgue", "/dashboard/stats"}
    return sorted({*plain, *PLACES} - left_out)


def test_the_commands_of_a_page_do_not_grow(server: Server) -> None:
    few, many = costs(server, 40), costs(server, 4000)
    for path, calls in many.items():
        walks = {"scan"} if path in ("/locks", "/batches") else set()
        assert not WALKS & calls.keys() - walks, path
        if path in EXAMINING:
            assert sum(calls.values()) - sum(few[path].values()) <= EXAMINING[path], path
        else:
            assert calls == few[path], path
