"""Our web page on a Redis of real Sidekiq, and Sidekiq's own page with data of jobwire."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import redis
from starlette.testclient import TestClient

from harness.servers import Server, wait_until
from jobwire import Client
from jobwire.web import Visitor, WebApp
from jobwire.worker.base.timings import Timings
from tests.interop.driver import Driver
from tests.interop.python_worker import worker_threads
from tests.interop.sidekiq import PAGES, RealSidekiq, open_gate

pytestmark = pytest.mark.interop

POST = """
require "rack/mock"
require "sidekiq/web"
page = Rack::MockRequest.new(Sidekiq::Web).post(
  with["path"],
  "rack.session" => {}, "HTTP_SEC_FETCH_SITE" => "same-origin", :params => with["form"]
)
page.status
"""


@pytest.fixture
def page(server: Server) -> Iterator[TestClient]:
    app = WebApp(server.url, authorize=lambda request: Visitor("ada", "admin"))
    with TestClient(app, follow_redirects=True) as page:
        yield page
    app.close()


def act(page: TestClient, name: str, form: Mapping[str, Any]) -> None:
    """Press a button of our page."""
    token = re.search(r'name="token" value="([0-9a-f]+)"', page.get("/busy").text)
    assert token is not None
    answer = page.post(f"/acts/{name}", data={**form, "token": token[1], "back": "/"})
    assert answer.status_code == 200, answer.text


def entry(page: TestClient, path: str, jid: str) -> tuple[str, str]:
    """Return the key of an entry, and the value of its checkbox, on a list of ours."""
    text = page.get(path).text
    found = re.search(rf'name="entry"[^>]*value="([^" ]+-{jid}) ([0-9a-f]+)"', text)
    assert found is not None, text
    return found[1], f"{found[1]} {found[2]}"


def test_both_pages_say_the_same(
    sidekiq: RealSidekiq, driver: Driver, client: redis.Redis, page: TestClient
) -> None:
    """The numbers for monitors are equal, and the page lists jobs that Sidekiq runs and kills."""
    with sidekiq.worker(concurrency=2) as ruby:
        held = driver.perform_async("GateJob", "g", "held é")
        failed = driver.perform_async("FailJob", "retried é")
        dead = driver.push({"class": "FailJob", "args": ["dead é"], "retry": 0})
        later = driver.perform_in("EchoJob", 3600, "later é")
        driver.push({"class": "EchoJob", "args": ["waiting é"], "queue": "nobody"})
        wait_until(lambda: client.zcard("retry") == 1 and client.zcard("dead") == 1, 60, "failures")
        wait_until(lambda: driver.works() and client.get("stat:failed") == b"2", 60, "heartbeat")
        paths = ["/stats", "/stats/queues"]
        theirs = {path: json.loads(body) for path, (_, body) in driver.eval(PAGES, paths).items()}
        ours = {path: page.get(path).json() for path in paths}
        assert ours["/stats"]["sidekiq"] == theirs["/stats"]["sidekiq"]
        assert theirs["/stats"]["redis"].keys() <= ours["/stats"]["redis"].keys()
        assert ours["/stats/queues"] == theirs["/stats/queues"]
        assert None not in (held, dead)
        assert failed is not None
        assert later is not None
        shown: dict[str, list[Any]] = {
            "/busy": [ruby.identity, held, "GateJob", "held é"],
            "/queues": ["nobody", "default"],
            "/queues/nobody": ["EchoJob", "waiting é"],
            "/retries": [failed, "FailJob", "retried é", "RuntimeError"],
            "/dead": [dead, "FailJob", "dead é"],
            "/scheduled": [later, "EchoJob", "later é"],
            f"/jobs/{held}": ["GateJob", "runs"],
        }
        for path, words in shown.items():
            text = page.get(path).text
            assert [word for word in words if word not in text] == [], path
        # The same key names the entry on both pages.
        keys = {"/retries": failed, "/scheduled": later}
        known = [f"{path}/{entry(page, path, jid)[0]}" for path, jid in keys.items()]
        assert [status for status, _ in driver.eval(PAGES, known).values()] == [200, 200]
        open_gate(client, "g")


def test_acts_are_honoured_both_ways(
    sidekiq: RealSidekiq, driver: Driver, client: redis.Redis, page: TestClient
) -> None:
    with sidekiq.worker(concurrency=2, poll=None) as ruby:
        failed = driver.perform_async("FailJob", "again")
        wait_until(lambda: client.zcard("retry") == 1, 60, "the failure")
        assert failed is not None
        act(page, "retry", {"place": "retry", "entry": entry(page, "/retries", failed)[1]})
        wait_until(lambda: client.zcard("retry") == 1, 60, "the second failure")
        wait_until(lambda: driver.find("retry", failed).item.get("retry_count") == 0, 60, "count")
        if sidekiq.generation == 8:  # the earlier ones have tokens in a session
            key = entry(page, "/retries", failed)[0]
            form = {"key[]": key, "kill": "Kill"}
            assert driver.eval(POST, {"path": "/retries", "form": form}) == 302
        else:
            driver.kill("retry", failed)
        assert failed in page.get("/dead").text
        assert failed not in page.get("/retries").text
        act(page, "quiet", {"identity": ruby.identity})
        wait_until(lambda: driver.processes()[0].quiet, 60, "the process to be quiet")
        act(page, "stop", {"identity": ruby.identity})
        assert ruby.wait() == 0
    people = [line for line in page.get("/journal").text.splitlines() if "ada" in line]
    assert len(people) >= 3


def test_every_page_shows_what_python_left(
    driver: Driver, client: redis.Redis, server: Server
) -> None:
    """BEAT-3, BEAT-4, BEAT-5, RETRY-3, DEAD-1, EXEC-3, EXEC-4, SCHED-1, KEY-1: all pages answer."""
    often = Timings(heartbeat_interval=0.1)
    with Client(server.url) as pusher, worker_threads(server.url, timings=often) as worker:
        pusher.push("GateJob", ["g", "running é"])
        pusher.push("FailJob", ["retried é"])
        pusher.push("FailJob", ["dead é"], retry=0)
        client.lpush("queue:default", b'{"broken', b"\xff", b"[1]")
        pusher.push("EchoJob", ["later é"], at=time.time() + 3600)
        pusher.push("EchoJob", ["waiting é"], queue="nobody")
        wait_until(lambda: client.zcard("retry") == 1 and client.zcard("dead") == 3, 60, "failures")
        wait_until(lambda: driver.works(), 60, "the work record")
        expected = {
            "/": [],
            "/busy": [worker.identity.split(":")[0], "GateJob", "running é"],
            "/queues": ["nobody"],
            "/queues/nobody": ["EchoJob", "waiting é"],
            "/retries": ["FailJob", "retried é", "RuntimeError"],
            "/morgue": ["FailJob", "dead é", "broken"],
            "/scheduled": ["EchoJob", "later é"],
        }
        pages = driver.eval(PAGES, with_=list(expected))
        open_gate(client, "g")
    assert {path: status for path, (status, _) in pages.items()} == dict.fromkeys(expected, 200)
    missing = {
        path: [word for word in words if word not in pages[path][1]]
        for path, words in expected.items()
    }
    assert missing == {path: [] for path in expected}
