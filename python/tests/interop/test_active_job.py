"""Jobs of real Active Job in Python, and jobs of Python in real Active Job."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from runpy import run_path
from typing import Any

import pytest
import redis

from harness.servers import Server, wait_until
from jobwire import Client, current_job
from jobwire.active_job import Keywords
from jobwire.application.active_values import load
from jobwire.connection import resources
from tests.interop.app import make_app
from tests.interop.driver import Driver
from tests.interop.python_worker import worker_threads
from tests.interop.sidekiq import RealSidekiq, results

pytestmark = pytest.mark.interop

VERSIONS = {"6.4.1": "6.1.7.10", "7.3.2": "7.2.2.2", "8.1.7": "7.2.4"}
DRIVER = Path(__file__).parents[3] / "conformance" / "drivers" / "python"
neutral = run_path(str(DRIVER / "neutral.py"))["neutral"]
PUSH = """
with.map { |ruby| ShapeJob.perform_later(*eval(ruby)).provider_job_id }
"""


def shapes(version: str) -> list[dict[str, Any]]:
    """Return the recorded arguments of the Active Job beside this Sidekiq."""
    path = resources.path("fixtures/vectors/active-job-arguments.json")
    entries = json.loads(path.read_text("utf-8"))
    return [entry for entry in entries if VERSIONS[version] in entry["versions"]]


@pytest.fixture
def rails(sidekiq: RealSidekiq) -> Iterator[Driver]:
    """Sidekiq's client, with Active Job."""
    with sidekiq.driver(loads="active_job.rb") as driver:
        yield driver


def test_python_runs_the_jobs_of_rails(
    sidekiq: RealSidekiq, rails: Driver, client: redis.Redis, server: Server
) -> None:
    """X-AJ-1, X-AJ-2, X-AJ-3, X-AJ-7: every recorded shape, pushed by `perform_later`."""
    expected = shapes(sidekiq.version)
    assert len(expected) >= 60
    ran: dict[str, Any] = {}
    app = make_app()

    @app.active_job("ShapeJob")
    def shape(*args: Any, **kwargs: Any) -> None:
        job = current_job()
        assert job is not None
        assert job.args[0]["provider_job_id"] == job.jid
        ran[str(job.jid)] = neutral([*args, *([Keywords(kwargs)] if kwargs else [])])

    jids = rails.eval(PUSH, [entry["ruby"] for entry in expected])
    with worker_threads(server.url, app=app):
        wait_until(lambda: len(ran) == len(jids) or client.zcard("retry"), 60)
    assert client.zrange("retry", 0, -1) == []
    assert ran == dict(zip(jids, (entry["value"] for entry in expected), strict=True))


def test_rails_runs_the_jobs_of_python(
    sidekiq: RealSidekiq, client: redis.Redis, server: Server
) -> None:
    """X-AJ-8, X-AJ-9, X-AJ-10: Active Job shows the same values as for a job of its own."""
    expected = {}
    with Client(server.url) as python:
        for entry in shapes(sidekiq.version):
            if any(kind in entry["ruby"] for kind in (":nsec", "DateTime")):
                continue  # Python has microseconds, and one kind of time
            if "in_time_zone" in entry["ruby"] and '"time_zone"' not in entry["wire"]:
                continue  # Active Job 6.1 does not write the name of the zone
            args = load(json.loads(entry["wire"]))
            kwargs = args.pop() if args and isinstance(args[-1], Keywords) else None
            jid = python.push_active_job("ShapeJob", args, kwargs)
            expected[jid] = entry["inspect"]
    assert len(expected) >= 60
    with sidekiq.worker(program="active_job.rb"):
        wait_until(lambda: client.llen("app:results") + client.zcard("retry") == len(expected), 60)
    assert client.zrange("retry", 0, -1) == []
    shown = {each["jid"]: each["args"] for each in results(client)}
    assert {jid: args[0] for jid, args in shown.items()} == expected
    assert {tuple(args[1:]) for args in shown.values()} == {("default", 1)}
