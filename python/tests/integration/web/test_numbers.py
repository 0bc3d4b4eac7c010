"""One number everywhere: page, HTTP, command line and Prometheus, on every recorded database.

test_inspection.py of the interop tests compares the inspector with Sidekiq's API on the same ones.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from contextlib import closing

import pytest
from click.testing import CliRunner
from prometheus_client.parser import text_string_to_metric_families as parse
from starlette.testclient import TestClient

from harness.servers import Server
from jobwire.cli import cli
from jobwire.connection.sync import SyncRedis
from jobwire.periodic.schedule import load as load_schedule
from jobwire.protocol.keys import Keys
from jobwire.protocol.periodic_entry import PeriodicEntry
from jobwire.web import Visitor, WebApp
from tests.databases import databases, load

FIGURE = re.compile(r"<dt>(?:<a[^>]*>)?([^<]+?)(?:</a>)?</dt><dd>([0-9,]+)")
SAMPLES = {
    "jobwire_jobs_processed_total": "processed",
    "jobwire_jobs_failed_total": "failed",
    "jobwire_jobs_busy": "busy",
    "jobwire_jobs_enqueued": "enqueued",
}
SETS = {"scheduled": "scheduled", "retry": "retries", "dead": "dead"}
ON_PAGE = ("processed", "failed", "processes", "enqueued", "scheduled", "retries", "dead")


@pytest.fixture
def page(server: Server) -> Iterator[tuple[TestClient, WebApp]]:
    app = WebApp(server.url, authorize=lambda request: Visitor("ada"))
    with closing(app), TestClient(app) as client:
        yield client, app


def of_page(client: TestClient) -> dict[str, int]:
    """Return the figures of the overview."""
    figures = FIGURE.findall(client.get("/").text)
    return {name.lower(): int(text.replace(",", "")) for name, text in figures}


def of_command_line(server: Server) -> dict[str, int]:
    outcome = CliRunner().invoke(cli, ["inspect", "stats", "--json", "--redis", server.url])
    assert outcome.exit_code == 0, outcome.output
    numbers: dict[str, int] = json.loads(outcome.stdout)
    return numbers


def of_prometheus(client: TestClient) -> dict[str, float]:
    numbers: dict[str, float] = {"processes": 0}
    for family in parse(client.get("/metrics").text):
        for sample in family.samples:
            if sample.name in SAMPLES:
                numbers[SAMPLES[sample.name]] = sample.value
            elif sample.name == "jobwire_set_jobs" and sample.labels["set"] in SETS:
                numbers[SETS[sample.labels["set"]]] = sample.value
            elif sample.name == "jobwire_processes":
                numbers["processes"] += sample.value
    return numbers


@pytest.mark.full
def test_every_view_says_the_same_on_every_recorded_database(
    server: Server, page: tuple[TestClient, WebApp]
) -> None:
    """C3 A1: 400 databases, and some of them have jobs in every place."""
    client, app = page
    redis = server.client()
    assert len(databases()) == 400
    largest: dict[str, float] = {}
    for name, keys in databases().items():
        load(redis, keys)
        app._sites[""]._shared.clear()
        told = client.get("/stats").json()["sidekiq"]
        latency = told.pop("default_latency")
        numbers = of_command_line(server)
        assert {key: numbers[key] for key in told} == told, name
        assert numbers["default_latency"] == pytest.approx(latency, abs=30), name
        assert of_prometheus(client) == told, name
        shown = of_page(client)
        assert {key: shown[key] for key in ON_PAGE} == {key: told[key] for key in ON_PAGE}, name
        assert shown["busy threads"] == told["busy"], name
        assert sum(client.get("/stats/queues").json().values()) == told["enqueued"], name
        largest = {key: max(value, largest.get(key, 0)) for key, value in told.items()}
    assert min(largest.values()) >= 1, largest


def test_periodic_jobs_as_json(server: Server, page: tuple[TestClient, WebApp]) -> None:
    """For programs: the lines and times, and no arguments, which may be secret."""
    client, _ = page
    line = "0 3 * * * Europe/Berlin"
    entries = [
        PeriodicEntry(name="nightly", cron=line, job="Nightly", args=["secret"]),
        PeriodicEntry(name="off", cron="* * * * * UTC", job="Off", enabled=False),
    ]
    redis = SyncRedis(server.url)
    redis.run(load_schedule(Keys(), entries, schedule=""))
    redis.close()
    told = client.get("/stats/periodic")
    nightly, off = told.json()["nightly"], told.json()["off"]
    assert (nightly["job"], nightly["cron"]) == ("Nightly", line)
    assert nightly["enabled"]
    assert nightly["next_at"] > time.time()
    assert (off["enabled"], off["next_at"], off["problem"]) == (False, None, None)
    assert "secret" not in told.text
