"""Every page of the application, in a real browser."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from axe_playwright_python.sync_playwright import Axe

from harness.servers import Server
from jobwire.web.routes import PAGES
from tests.browser import database
from tests.browser.conftest import OpenPage, Serve
from tests.workers import Workers

pytestmark = pytest.mark.browser

RETRIED = f"{database.DUE!r}-{database.RETRIED}"
SAMPLES = {
    "/queues/{name:path}": ["/queues/mails", "/queues/mails?direction=asc&class=Report*"],
    "/retries": ["/retries?error=there"],
    "/retries/{key:path}": [f"/retries/{RETRIED}"],
    "/scheduled/{key:path}": [],
    "/dead/{key:path}": [f"/dead/{database.AT!r}-{database.DIED}", f"/dead/{database.AT + 1!r}-"],
    "/unreadable/{key:path}": [f"/unreadable/{database.AT!r}-"],
    "/jobs/{jid:path}": [f"/jobs/{database.LATER}", f"/jobs/{database.RETRIED}"],
    "/classes/{name:path}": ["/classes/Note"],
    "/search": ["/search?q=InvoiceJob"],
    "/empty": [],
}
BARE = {"/empty": ["/empty?place=retry", "/empty?place=queue%3Amails"]}
NO_PAGES = {"/stats", "/stats/queues", "/metrics", "/dashboard/stats", "/morgue"}


def addresses() -> Iterator[str]:
    """Yield an address of every page; a page without a sample fails."""
    for page in PAGES:
        if page.path in NO_PAGES:
            continue
        if "{" in page.path:
            assert page.path in SAMPLES, f"{page.path} has no sample in the table of this test"
            yield from SAMPLES[page.path]
        else:
            yield from BARE.get(page.path, [page.path])
            yield from SAMPLES.get(page.path, [])


def test_no_page_has_a_barrier(
    server: Server, workers: Workers, serve: Serve, open_page: OpenPage
) -> None:
    """Axe finds nothing, in light and dark; the width of a phone is enough."""
    database.fill(server, workers)
    site = serve()
    found = []
    for dark in (False, True):
        page = open_page(f"{site}/", dark=dark)
        for address in addresses():
            response = page.goto(f"{site}{address}")
            assert response is not None
            assert response.status == 200, address
            assert page.locator("h1").count() == 1, address
            results = Axe().run(page)
            found += [
                (address, dark, one["id"], [node["html"] for node in one["nodes"]][:3])
                for one in results.response["violations"]
            ]
    assert found == []
    page = open_page(f"{site}/", width=360)
    for address in addresses():
        page.goto(f"{site}{address}")
        wide = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
        assert wide <= 0, (address, wide)


def test_every_page_can_be_read_without_scripts(
    server: Server, workers: Workers, serve: Serve, open_page: OpenPage
) -> None:
    database.fill(server, workers)
    site = serve()
    with_scripts, without = open_page(f"{site}/"), open_page(f"{site}/", script=False)
    for address in addresses():
        with_scripts.goto(f"{site}{address}")
        without.goto(f"{site}{address}")
        rows = [each.locator("tbody tr").count() for each in (with_scripts, without)]
        assert rows[0] == rows[1], address
        heads = [each.locator("h1, h2").all_inner_texts() for each in (with_scripts, without)]
        assert heads[0] == heads[1], address
