"""Updates of open pages over real HTTP: their content, their number, their end."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, contextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest

from harness.servers import Server, wait_until
from jobwire.console.ops.changes import Change, batches
from jobwire.console.web.live import Streams, UpdateResponse
from jobwire.console.web.routes import Address
from jobwire.ops import Selection
from jobwire.web import Visitor, WebApp
from tests.integration.inspector.entries import payload
from tests.integration.web.served import Events, served


@contextmanager
def open_app(server: Server, **settings: Any) -> Iterator[tuple[str, WebApp]]:
    """Serve the page of a server with quick updates."""
    app = WebApp(
        server.url,
        authorize=lambda request: Visitor("ada", "operator"),
        refresh=0.05,
        timeout=2.0,
        **settings,
    )
    with closing(app), served(app) as url:
        yield url, app


def test_the_first_event_has_the_parts_and_a_change_arrives(server: Server) -> None:
    with open_app(server) as (url, _), closing(Events(f"{url}/changes")) as page:
        assert page.answer.headers["content-type"].startswith("text/event-stream")
        assert page.answer.headers["content-security-policy"]
        assert page.answer.headers["cache-control"] == "no-store"
        parts = page.next()
        assert set(parts) == {"trouble", "menu", "live"}
        assert parts["trouble"] == ""
        assert "No change of many jobs" in parts["live"]
        assert "7" not in parts["menu"]
        server.client().zadd("retry", {payload(str(n)): n for n in range(7)})
        assert '<span class="count">7</span>' in page.until("menu", ">7<")


def test_only_parts_that_changed_are_sent(server: Server) -> None:
    with open_app(server) as (url, _), closing(Events(f"{url}/changes")) as page:
        page.next()
        server.client().zadd("retry", {payload("a"): 5})
        assert set(page.next()) == {"menu"}


def test_a_page_without_a_live_part_updates_its_menu(server: Server) -> None:
    with open_app(server) as (url, _), closing(Events(f"{url}/journal")) as page:
        assert set(page.next()) == {"trouble", "menu"}


def test_an_absent_page_says_so(server: Server) -> None:
    with open_app(server) as (url, _), closing(Events(f"{url}/changes/x")) as page:
        assert "no change 'x' is known" in page.next()["trouble"]


def test_the_number_of_open_pages_is_bounded(server: Server) -> None:
    with open_app(server) as (url, app):
        app._streams = Streams(2)
        first, second = Events(f"{url}/changes"), Events(f"{url}/changes")
        first.next()
        second.next()
        with closing(Events(f"{url}/changes")) as refused:
            assert refused.answer.status_code == 503
            assert refused.answer.headers["retry-after"] == "30"
        first.close()
        wait_until(lambda: app._streams.open == 1)
        with closing(Events(f"{url}/changes")) as third:
            assert third.answer.status_code == 200
            third.next()
        second.close()
        wait_until(lambda: app._streams.open == 0)


def test_a_client_that_leaves_at_once_gives_its_place_back(server: Server) -> None:
    with open_app(server) as (url, app):
        counted = 0

        class Counted(Streams):
            def take(self) -> bool:
                nonlocal counted
                counted += 1
                return super().take()

        app._streams = Counted()
        where = urlsplit(url)
        for _ in range(30):
            with socket.create_connection((where.hostname, where.port)) as connection:
                connection.sendall(
                    b"GET /changes HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n"
                )
        wait_until(lambda: counted >= 20)
        wait_until(lambda: app._streams.open == 0)


@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize("how", ["disconnect", "error", "cancel", "end"])
def test_a_place_is_given_back_in_every_case(begun: bool, how: str) -> None:
    async def events() -> AsyncIterator[str]:
        if how == "end":
            yield "x"
            return
        while True:
            yield "x"
            await asyncio.sleep(0.001)

    async def main() -> None:
        streams = Streams(1)
        assert streams.take()
        assert not streams.take()
        sent = 0

        async def receive() -> dict[str, str]:
            while (how != "disconnect") or (begun and sent < 3):
                await asyncio.sleep(0.001)
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            nonlocal sent
            sent += 1
            if how == "error" and sent > (3 if begun else 0):
                raise OSError("the connection is closed")

        response = UpdateResponse(events(), streams)
        task = asyncio.create_task(response({"type": "http"}, receive, send))
        if how == "cancel":
            while begun and sent < 3:
                await asyncio.sleep(0.001)
            await asyncio.sleep(0)
            task.cancel()
        await asyncio.wait([task], timeout=10)
        assert task.done()
        assert streams.open == 0

    asyncio.run(main())


@pytest.mark.process
def test_redis_goes_away_and_comes_back(server: Server) -> None:
    with open_app(server) as (url, _), closing(Events(f"{url}/changes")) as page:
        page.next()
        server.stop()
        assert "Redis" in page.until("trouble", "Redis")
        server.start()
        page.until("trouble", "")
        server.client().zadd("retry", {payload("a"): 5})
        page.until("menu", '<span class="count">1</span>')


@pytest.mark.timing
def test_a_hanging_redis_holds_neither_files_nor_other_visitors_for_long(server: Server) -> None:
    """Each request waits for the same answer of Redis, not one after the other."""
    with open_app(server) as (url, _):
        pages = [Events(f"{url}/changes") for _ in range(30)]
        for page in pages:
            page.next()
        server.pause()
        try:
            start = time.monotonic()
            with closing(Events(f"{url}/static/page.css")) as file:
                assert file.answer.status_code == 200
            with closing(Events(f"{url}/static/page.js")) as file:
                assert file.answer.status_code == 200
            assert time.monotonic() - start < 5
            for page in pages:
                page.until("trouble", "Redis")
            assert time.monotonic() - start < 10
        finally:
            server.resume()
        for page in pages:
            page.until("trouble", "")
            page.close()


def test_an_update_that_fails_is_logged_and_not_shown(
    server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(context: Any) -> Any:
        raise RuntimeError("the inside")

    monkeypatch.setattr("jobwire.console.web.app.PAGES", (Address("/", fail),))
    with (
        caplog.at_level(logging.ERROR),
        open_app(server) as (url, _),
        closing(Events(f"{url}/")) as page,
    ):
        trouble = page.next()["trouble"]
    assert "The log of the server has it" in trouble
    assert "the inside" in caplog.text


def test_a_stream_ends_so_that_access_is_checked_again(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobwire.console.web.live.LIFE_S", 0.2)
    with open_app(server) as (url, app), closing(Events(f"{url}/changes")) as page:
        page.next()
        with pytest.raises(EOFError):
            page.until("live", "(never)")
        wait_until(lambda: app._streams.open == 0)


def test_a_running_change_is_seen_to_its_end(server: Server) -> None:
    server.client().zadd("retry", {payload(f"j{n}"): n for n in range(3000)})
    with open_app(server) as (url, app):
        site = app._sites[""]
        operations = site.operations.acting_for("ada", "admin")
        states = operations.bulk("delete", Selection(place="retry"))
        change = Change(
            id=next(states).id,
            act="delete",
            target="retry",
            person="ada",
            work=batches(states),
            at=5.0,
        )
        site.changes.start(change)
        with closing(Events(f"{url}/changes/{change.id}")) as page:
            part = page.until("live", "Ended: 3,000 jobs deleted")
        assert "Undo this deletion" in part
