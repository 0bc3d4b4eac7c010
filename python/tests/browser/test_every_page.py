"""Every page of the application, in a real browser."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

from harness.servers import Server
from jobwire.console.web.routes import PAGES
from tests import samples
from tests.browser import database
from tests.browser.conftest import OpenPage, Serve
from tests.server_fixtures import ServerFactory
from tests.workers import Workers

pytestmark = pytest.mark.browser

RETRIED = f"{samples.DUE!r}-{database.RETRIED}"
SAMPLES = {
    "/queues/{name:path}": ["/queues/mails", "/queues/mails?direction=asc&class=Report*"],
    "/retries": ["/retries?error=there"],
    "/retries/{key:path}": [f"/retries/{RETRIED}"],
    "/scheduled/{key:path}": [],
    "/dead/{key:path}": [f"/dead/{samples.AT!r}-{database.DIED}", f"/dead/{samples.AT + 1!r}-"],
    "/unreadable/{key:path}": [f"/unreadable/{samples.AT!r}-"],
    "/jobs/{jid:path}": [f"/jobs/{database.LATER}", f"/jobs/{database.RETRIED}"],
    "/batches/{id:path}": ["/batches/1"],
    "/classes/{name:path}": ["/classes/Note"],
    "/periodic/{name:path}": ["/periodic/nightly", "/periodic/odd"],
    "/search": ["/search?q=InvoiceJob"],
}
BARE = {
    "/bulk": [
        "/bulk?place=retry&act=retry&class=Invoice*",
        "/bulk?place=dead&act=delete",
        "/bulk?place=queue%3Amails&act=clear",
    ]
}
NO_PAGES = {"/stats", "/stats/queues", "/stats/periodic", "/metrics", "/dashboard/stats", "/morgue"}

CUT_OFF = """[...document.querySelectorAll("a, button, input, td")].filter(
    (one) => one.getBoundingClientRect().right > innerWidth + 1
).map((one) => one.outerHTML)"""

BROKEN = """[...document.querySelectorAll("td")].flatMap((cell) => {
    const found = [], texts = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) {
        if (texts.currentNode.parentElement.closest("code, pre")) continue;
        for (const word of texts.currentNode.data.matchAll(/[A-Za-z]{2,}/g)) {
            const range = document.createRange();
            range.setStart(texts.currentNode, word.index);
            range.setEnd(texts.currentNode, word.index + word[0].length);
            const tops = [...range.getClientRects()].map((one) => Math.round(one.top));
            if (new Set(tops).size > 1) found.push(word[0]);
        }
    }
    return found;
})"""


def addresses(change: str) -> Iterator[str]:
    """Yield an address of every page; a page without a sample fails."""
    samples = {**SAMPLES, "/changes/{id}": [change]}
    for page in PAGES:
        if page.path in NO_PAGES:
            continue
        if "{" in page.path:
            assert page.path in samples, f"{page.path} has no sample in the table of this test"
            yield from samples[page.path]
        else:
            yield from BARE.get(page.path, [page.path])
            yield from samples.get(page.path, [])


def made_change(page: Page, site: str) -> str:
    """Delete the unreadable payloads and undo it; return the address of the change."""
    page.goto(f"{site}/bulk?place=unreadable&act=delete")
    page.locator("#confirm").click()
    page.get_by_role("button", name="Undo this deletion").wait_for()
    change = page.url.removeprefix(site)
    page.get_by_role("button", name="Undo this deletion").click()
    page.get_by_text("Put back 1 job").wait_for()
    return change


@pytest.mark.parametrize("dark", [pytest.param(False, id="light"), pytest.param(True, id="dark")])
def test_no_page_has_a_barrier(
    server: Server, workers: Workers, serve: Serve, open_page: OpenPage, dark: bool
) -> None:
    """Axe finds nothing."""
    database.fill(server, workers)
    site = serve()
    found = []
    change = made_change(open_page(f"{site}/"), site)
    page = open_page(f"{site}/", dark=dark)
    for address in addresses(change):
        response = page.goto(f"{site}{address}")
        assert response is not None
        assert response.status == 200, address
        assert page.locator("h1").count() == 1, address
        results = Axe().run(page)
        found += [
            (address, one["id"], [node["html"] for node in one["nodes"]][:3])
            for one in results.response["violations"]
        ]
    assert found == []


def test_no_page_is_wider_than_a_phone(
    server: Server, workers: Workers, serve: Serve, open_page: OpenPage
) -> None:
    database.fill(server, workers)
    site = serve()
    change = made_change(open_page(f"{site}/"), site)
    page = open_page(f"{site}/", width=360)
    for address in addresses(change):
        page.goto(f"{site}{address}")
        wide = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
        assert wide <= 0, (address, wide)
        cut = page.evaluate(CUT_OFF)  # in a frame that scrolls, without a hint
        assert cut == [], (address, cut)
        assert page.locator("tbody td:not([data-label])").count() == 0, address


def test_no_table_breaks_a_word(
    server: Server, workers: Workers, serve: Serve, open_page: OpenPage
) -> None:
    database.fill(server, workers)
    site = serve()
    change = made_change(open_page(f"{site}/"), site)
    page = open_page(f"{site}/", width=800)
    for address in addresses(change):
        page.goto(f"{site}{address}")
        assert page.evaluate(BROKEN) == [], address


def test_every_page_can_be_read_without_scripts(
    server: Server, workers: Workers, serve: Serve, open_page: OpenPage
) -> None:
    database.fill(server, workers)
    site = serve()
    with_scripts, without = open_page(f"{site}/"), open_page(f"{site}/", script=False)
    for address in addresses(made_change(with_scripts, site)):
        with_scripts.goto(f"{site}{address}")
        without.goto(f"{site}{address}")
        rows = [each.locator("tbody tr").count() for each in (with_scripts, without)]
        assert rows[0] == rows[1], address
        heads = [each.locator("h1, h2").all_inner_texts() for each in (with_scripts, without)]
        assert heads[0] == heads[1], address


def test_the_page_of_several_redis(
    server: Server, serve: Serve, server_factory: ServerFactory, open_page: OpenPage
) -> None:
    """It shows the sums, also with one away, and leads to the pages of each."""
    eu, us = server_factory(), server_factory()
    for number, each in enumerate((server, eu, us), start=1):
        each.client().sadd("queues", "default")
        each.client().rpush("queue:default", *(["{}"] * number))
    site = serve("--also", f"eu={eu.url}", "--also", f"us={us.url}")
    page = open_page(f"{site}/", width=360)
    line = page.locator("tr", has_text="All").locator("td").nth(1)
    assert line.inner_text() == "6"
    us.kill()
    page.get_by_text("us: unreachable").wait_for()
    assert line.inner_text() == "3"
    assert Axe().run(page).response["violations"] == []
    assert page.evaluate("document.documentElement.scrollWidth - window.innerWidth") <= 0
    assert page.evaluate(CUT_OFF) == page.evaluate(BROKEN) == []
    page.locator("tbody").get_by_role("link", name="eu").click()
    page.wait_for_url(f"{site}/eu/")
    for address in (page.path for page in PAGES if "{" not in page.path):
        target = f"{site}/eu{address}"
        answer = page.request.get(target) if address in NO_PAGES else page.goto(target)
        assert answer is not None
        assert answer.status == (400 if address == "/bulk" else 200), address
    page.goto(f"{site}/eu/")
    page.get_by_role("link", name="All").click()
    page.wait_for_url(f"{site}/")
