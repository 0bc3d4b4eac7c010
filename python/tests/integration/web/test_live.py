"""Updates of open pages over real HTTP: their content, their number, their end."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import closing, contextmanager
from functools import partial
from itertools import islice
from typing import Any, cast
from urllib.parse import urlsplit

import httpx
import pytest

from harness.servers import Server, wait_until
from jobwire.connection.sync import SyncRedis
from jobwire.console.ops.changes import Change, batches
from jobwire.console.web.live import Streams, UpdateResponse
from jobwire.console.web.routes import Address
from jobwire.ops import Selection
from jobwire.protocol import output
from jobwire.protocol.keys import Keys
from jobwire.protocol.wire import once
from jobwire.web import Visitor, WebApp, hide_arguments
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


def emit(server: Server, *items: bytes, end: str = "") -> None:
    with closing(SyncRedis(server.url)) as one:
        if items:
            one.run(once(output.script_emit(Keys(""), "j", "r", items, keep=60, now=1.0)))
        if end:
            one.run(once(output.script_tell(Keys(""), "j", end, now=1.0)))


def event_lines(events: Events, count: int) -> list[str]:
    """Return the next lines that are not empty."""
    return list(islice((line for line in events._lines if line), count))


def test_the_output_of_a_job_comes_as_events(server: Server) -> None:
    """X-STEP-12, X-STEP-13, X-STEP-15: with positions, so a browser comes back for the rest."""
    emit(server, b'"<b>"', b'{"n":2}')
    with open_app(server) as (url, _):
        page = httpx.get(f"{url}/jobs/j")
        assert page.status_code == 200
        assert "<li>&lt;b&gt;</li>" in page.text
        assert 'data-output="/output/j?after=1000-2"' in page.text
        with closing(Events(f"{url}/output/j")) as events:
            assert events.answer.headers["content-type"].startswith("text/event-stream")
            expected = ["retry: 1000", "id: 1000-1", 'data: "<b>"', "id: 1000-2", 'data: {"n": 2}']
            assert event_lines(events, 5) == expected
            emit(server, b"3")
            assert event_lines(events, 2) == ["id: 1000-3", "data: 3"]
        last = {"last-event-id": "1000-2"}
        with closing(Events(f"{url}/output/j?after=1000-1", **last)) as events:
            assert event_lines(events, 3)[1:] == ["id: 1000-3", "data: 3"]
            emit(server, end="done")
            assert event_lines(events, 3) == ["event: end", "id: 1000-4", "data: null"]
            with pytest.raises(EOFError):
                events.next()
        assert httpx.get(f"{url}/output/j?after=1000-4").status_code == 204
        assert httpx.get(f"{url}/output/j?after=x").status_code == 400
        server.client().xtrim("jobwire:out:j", maxlen=2, approximate=False)
        with closing(Events(f"{url}/output/j?after=1000-1")) as events:
            lines = ["retry: 1000", "event: gap", "id: 1000-2", "data: 1", "id: 1000-3", "data: 3"]
            assert event_lines(events, 6) == lines


def all_fields(visitor: Visitor, fields: Mapping[str, Any]) -> Mapping[str, Any]:
    return fields


def test_the_output_of_a_job_is_for_those_who_may_see_it(server: Server) -> None:
    """The roles and the redaction are those of the page."""
    emit(server, b'"secret"')
    for redact, role, seen in (
        (hide_arguments, "viewer", '"[hidden]"'),
        (hide_arguments, "operator", '"secret"'),
        (all_fields, "operator", '"[hidden]"'),
    ):
        visitor = Visitor("ada", cast("Any", role))
        app = WebApp(
            server.url, authorize=partial(lambda visitor, request: visitor, visitor), redact=redact
        )
        with closing(app), served(app) as url:
            assert ("secret" in httpx.get(f"{url}/jobs/j").text) is (seen == '"secret"')
            with closing(Events(f"{url}/output/j")) as events:
                assert event_lines(events, 3)[2] == f"data: {seen}"
    app = WebApp(server.url, authorize=lambda request: None)
    with closing(app), served(app) as url:
        assert httpx.get(f"{url}/output/j").status_code == 403


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
