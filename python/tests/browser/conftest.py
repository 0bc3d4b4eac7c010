"""A real browser on pages that `jobwire web` serves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Page,
    Request,
    sync_playwright,
)

from harness.servers import Reaper, Server
from tests.browser.serving import OPTIONS, serving
from tests.conformance.browser import program

PATIENCE_MS = 30_000

OpenPage = Callable[..., Page]
Serve = Callable[..., str]


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    path = program()
    assert path is not None, "there is no Chromium: .ci/release-check browser gets it"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=OPTIONS)
        yield browser
        browser.close()


class Watch:
    """The messages of the console, errors of scripts, and requests to other hosts."""

    def __init__(self) -> None:
        self.complaints: list[str] = []
        self._visited: set[str] = set()

    def console(self, message: ConsoleMessage) -> None:
        # Chromium also notes that a page itself was answered with 404, as a test may want.
        if message.location["url"] not in self._visited:
            self.complaints.append(f"{message.type}: {message.text}")

    def request(self, request: Request, own: str) -> None:
        if request.is_navigation_request():
            self._visited.add(request.url)
        if not request.url.startswith((own, "data:")):
            self.complaints.append(f"asked for {request.url}")


@pytest.fixture
def serve(_reaper: Reaper, server: Server) -> Iterator[Serve]:
    """Start `jobwire web` on a free port; return its address without the slash at its end."""
    with ExitStack() as ends:

        def start(*arguments: str, redis: str | None = None, **variables: str) -> str:
            page = serving(_reaper, redis or server.url, *arguments, **variables)
            return ends.enter_context(page)

        yield start


@pytest.fixture
def open_page(browser: Browser) -> Iterator[OpenPage]:
    """Open a page of an address; at the end, fail for messages of the console or foreign hosts."""
    watch = Watch()
    contexts: list[BrowserContext] = []

    def open_(
        address: str, *, width: int = 1200, dark: bool = False, script: bool = True, **more: Any
    ) -> Page:
        context = browser.new_context(
            viewport={"width": width, "height": 900},
            color_scheme="dark" if dark else "light",
            java_script_enabled=script,
            **more,
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        own = address.split("/", 3)
        page.on("console", watch.console)
        page.on("pageerror", lambda error: watch.complaints.append(str(error)))
        page.on("request", lambda request: watch.request(request, "/".join(own[:3])))
        page.goto(address)
        return page

    yield open_
    for context in contexts:
        context.close()
    assert watch.complaints == []
