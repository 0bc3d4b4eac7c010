"""The sizes of queues over time: on both pages, in updates, and for viewers without a write."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
from starlette.testclient import TestClient

from harness.servers import Server
from jobwire.web import Visitor, WebApp
from tests.integration.inspector.entries import NOW, payload
from tests.integration.web.served import Events, served


class Clock:
    """A clock that stands still until it is told otherwise; then no number is fresh any more."""

    def __init__(self) -> None:
        self.now = NOW
        self.app: WebApp | None = None

    def __call__(self) -> float:
        return self.now

    def forward(self, seconds: float) -> None:
        """Set the clock, and have the numbers read again."""
        self.now += seconds
        assert self.app is not None
        self.app._sites[""]._shared.clear()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def app(server: Server, clock: Clock) -> Iterator[WebApp]:
    made = WebApp(
        server.url, authorize=lambda request: Visitor("ada", "viewer"), refresh=0.05, clock=clock
    )
    clock.app = made
    with closing(made):
        yield made


def push(server: Server, queue: str, count: int) -> None:
    client = server.client()
    client.sadd("queues", queue)
    client.lpush(f"queue:{queue}", *(payload(str(n), queue=queue) for n in range(count)))


def test_every_page_takes_samples_and_the_pages_of_queues_show_them(
    server: Server, app: WebApp, clock: Clock
) -> None:
    push(server, "mails", 3)
    with TestClient(app) as page:
        assert page.get("/stats").status_code == 200
        assert 'aria-label="Size in the only sample so far: 3"' in page.get("/queues").text
        push(server, "mails", 1_200)
        clock.forward(300)
        page.get("/retries")  # any page reads the sizes, for its menu
        server.client().ltrim("queue:mails", 0, 39)
        clock.forward(420)
        words = "Size in the last 12 min: from 3 to 40, most 1,203"
        listed = page.get("/queues").text
        assert f'aria-label="{words}"' in listed
        assert "since 16:27:47 UTC" in listed
        shown = page.get("/queues/mails").text
        assert f'aria-label="{words}"' in shown
        assert f"<p>{words}.</p>" in shown
        assert shown.count("<polyline") == 3  # two gaps of some minutes without a page
        assert "There is no sample of this queue" in page.get("/queues/other").text


def test_the_sizes_of_an_open_page_are_updated(server: Server, app: WebApp, clock: Clock) -> None:
    push(server, "mails", 3)
    with served(app) as url:
        for path in ("/queues", "/queues/mails", "/queues/mails?class=A"):
            with closing(Events(f"{url}{path}")) as page:
                size = server.client().llen("queue:mails")
                page.until("live", f"to {size}, most" if clock.now > NOW else f"far: {size}")
                push(server, "mails", 2)
                clock.forward(60)
                part = page.until("live", f"from 3 to {size + 2}, most {size + 2}")
                assert "<polyline" in part
                assert "<form" not in part  # which a visitor may be filling in


def test_updates_of_a_queue_do_not_read_its_jobs(server: Server, app: WebApp) -> None:
    push(server, "mails", 3)
    client = server.client()
    with served(app) as url, closing(Events(f"{url}/queues/mails?error=x")) as page:
        page.next()
        client.config_resetstat()
        push(server, "mails", 2)
        page.until("live", "<dd>5</dd>")
        calls = client.info("commandstats")
    assert "cmdstat_lrange" not in calls
    assert calls["cmdstat_llen"]["calls"] < 60


def test_a_sample_writes_nothing(server: Server, app: WebApp, clock: Clock) -> None:
    push(server, "mails", 3)
    client = server.client()
    keys = {key: client.dump(key) for key in client.scan_iter()}
    with TestClient(app) as page:
        for _ in range(5):
            clock.forward(10)
            page.get("/queues")
    assert {key: client.dump(key) for key in client.scan_iter()} == keys
    line = app._sites[""].sizes.of("mails")
    assert line is not None
    assert line.sizes == (3, 3, 3, 3, 3)
