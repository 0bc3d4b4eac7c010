"""Every action of the page by its button, updates of open pages, and the keyboard alone."""

from __future__ import annotations

import json
import re
import threading
from contextlib import closing
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Page, Request, expect

from harness.servers import Server, wait_until
from jobwire import App
from jobwire.console.web.routes import ACTIONS
from tests import samples
from tests.browser import database
from tests.browser.conftest import OpenPage, Serve
from tests.workers import Workers, running

pytestmark = pytest.mark.browser

STEPS = 60  # of the key Tab, to reach anything on a page
BEATS_S = 60  # a process obeys one signal a beat
PATIENCE_S = 180  # for a browser on a busy machine


def told(page: Page, text: str) -> None:
    """Wait for the notice after an action."""
    expect(page.get_by_role("status")).to_contain_text(text)


def press(page: Page, title: str) -> None:
    page.locator(f'button[title="{title}"]').click()


def tick(page: Page, jid: str) -> None:
    page.get_by_label(f"Select {jid}").check()


def test_every_act_by_its_button(
    server: Server, workers: Workers, serve: Serve, open_page: OpenPage
) -> None:
    """Each changes the database as its notice says; an action that no button reaches fails."""
    worker = database.fill(server, workers)
    (identity,) = [name.decode() for name in server.client().smembers("processes")]
    client = server.client()
    site = serve()
    page = open_page(f"{site}/queues")
    sent = set()

    def note(request: Request) -> None:
        if request.method == "POST":
            sent.add(urlsplit(request.url).path.rpartition("/acts/")[2])

    page.on("request", note)
    press(page, "Pause mails")
    told(page, "mails is paused")
    assert client.sismember("jobwire:paused", "mails")
    press(page, "Resume low")
    told(page, "low is served again")
    assert not client.sismember("jobwire:paused", "low")

    page.goto(f"{site}/retries")
    first, second, third = (f"{number:024x}" for number in (1, 2, 3))
    for jid, label, told_ in (
        (first, "Retry selected", "1 job pushed"),
        (second, "Kill selected", "1 job moved to the dead set"),
        (third, "Delete selected", "1 job deleted"),
    ):
        tick(page, jid)
        page.get_by_role("button", name=label).click()
        told(page, told_)
    mails = client.lrange("queue:mails", 0, 0)[0]
    assert json.loads(mails)["jid"] == first
    assert second in str(client.zrange("dead", 0, -1))
    assert third not in str(client.zrange("retry", 0, -1))
    page.goto(f"{site}/journal")
    page.get_by_role("button", name="Undo").first.click()
    told(page, "Put back 1 job")
    assert third in str(client.zrange("retry", 0, -1))

    page.goto(f"{site}/scheduled")
    page.get_by_role("link", name="LaterJob").click()
    page.get_by_label("Due").fill("2h")
    page.get_by_role("button", name="Reschedule").click()
    told(page, "due at another time")
    page.get_by_role("button", name="Add to queue").click()
    told(page, "1 job pushed")
    assert client.zcard("schedule") == 0

    page.goto(f"{site}/iterations")
    press(page, f"Cancel {database.RETRIED}")
    told(page, "was removed before it ran")
    assert database.RETRIED not in str(client.zrange("retry", 0, -1))

    page.goto(f"{site}/locks")
    press(page, f"Release the lock of {database.DIED}")
    told(page, "is released")
    assert not client.keys("jobwire:unique:*")

    page.goto(f"{site}/parked")
    press(page, f"Put {database.PARKED} back in its queue")
    told(page, "is back in its queue")
    assert not client.exists("jobwire:parked")

    page.goto(f"{site}/batches")
    page.get_by_role("link", name="1", exact=True).click()
    page.get_by_text("Cancel…").click()
    page.get_by_role("button", name="Cancel this batch").click()
    told(page, "batch 1 is cancelled")
    assert client.hget("jobwire:batch:1", "state") == b"cancelled"

    page.goto(f"{site}/periodic")
    press(page, "Enable rates")
    told(page, "rates is enabled")
    page.get_by_role("link", name="nightly").click()
    press(page, "Disable nightly")
    told(page, "nightly is disabled")
    assert client.hget("cron_job:default:nightly", "status") == b"disabled"
    press(page, "Enqueue nightly")
    told(page, "nightly: enqueued as")
    page.get_by_text("Remove…").click()
    page.get_by_role("button", name="Remove this periodic job").click()
    told(page, "nightly removed")
    assert not client.exists("cron_job:default:nightly")

    page.goto(f"{site}/classes")
    page.get_by_label("Version").fill("v2")
    page.get_by_role("button", name="Mark a deployment now").click()
    told(page, "'v2' marked")

    page.goto(f"{site}/dead")
    page.get_by_role("link", name="Delete all…").click()
    before = client.zrange("dead", 0, -1, withscores=True)
    page.locator("#confirm").click()
    told(page, "all of the dead jobs")
    assert client.zcard("dead") == 0
    page.get_by_role("button", name="Undo this deletion").click()
    told(page, "Put back 3 jobs")
    assert client.zrange("dead", 0, -1, withscores=True) == before

    page.goto(f"{site}/busy")
    press(page, f"Make {identity} log its threads")
    told(page, "will log")
    press(page, f"Make {identity} fetch no more")
    told(page, "will fetch no more")
    press(page, f"Stop {identity}")
    told(page, "will end")
    assert worker.wait(BEATS_S) == 0
    assert sent >= {act.name for act in ACTIONS} - {"stop-change"}
    assert sent <= {act.name for act in ACTIONS}


def enqueued(server: Server) -> int:
    client = server.client()
    return sum(client.llen(b"queue:" + name) for name in client.smembers("queues"))


def test_an_open_page_is_updated_and_keeps_the_focus(
    server: Server, workers: Workers, serve: Serve, open_page: OpenPage
) -> None:
    database.fill(server, workers)
    page = open_page(f"{serve()}/queues")
    page.evaluate("window.loaded = 'once'")
    row = page.locator("tbody tr", has=page.get_by_role("link", name="mails"))
    expect(row.locator("td").nth(1)).to_have_text("60")
    link = row.get_by_role("link")
    link.focus()
    focused = "document.activeElement.textContent"
    assert page.evaluate(focused) == "mails"
    server.client().lpush("queue:mails", samples.payload("MoreJob", "f" * 24))
    expect(row.locator("td").nth(1)).to_have_text("61")
    count = page.locator("#menu-queues .count")
    wait_until(lambda: count.inner_text() == str(enqueued(server)))
    assert page.evaluate(focused) == "mails"
    assert page.evaluate("window.loaded") == "once"


@pytest.mark.parametrize("early", [False, True])
def test_output_appears_while_the_job_runs(
    server: Server, serve: Serve, open_page: OpenPage, early: bool
) -> None:
    """X-STEP-12: item by item without a reload, on a page that was open before the first one."""
    app = App(server.url)
    steps, jid = threading.Semaphore(0), "a" * 24

    @app.job(name="Talks")
    def talk() -> None:
        for item in ("one", {"n": 2}, "<b>three</b>"):
            assert steps.acquire(timeout=PATIENCE_S)
            app.emit(item)
        assert steps.acquire(timeout=PATIENCE_S)

    def shown(*texts: str) -> None:
        expect(page.locator("#output li")).to_have_text(texts)

    with running(app, server), closing(app):
        app.client.push("Talks", [], jid=jid)
        wait_until(lambda: not server.client().llen("queue:default"), what="the start")
        if not early:
            steps.release()
            wait_until(lambda: server.client().exists(f"jobwire:out:{jid}"), what="an item")
        page = open_page(f"{serve()}/jobs/{jid}")
        page.evaluate("window.loaded = 'once'")
        if early:
            expect(page.get_by_role("heading", name="Output")).to_be_hidden()
            steps.release()
        shown("one")
        steps.release()
        shown("one", '{"n": 2}')
        steps.release()
        shown("one", '{"n": 2}', "<b>three</b>")
        expect(page.get_by_role("heading", name="Output")).to_be_visible()
        steps.release()
    assert page.evaluate("window.loaded") == "once"


def go_to(page: Page, text: str) -> None:
    """Press Tab until an element has the focus, which can be seen at every step."""
    for _ in range(STEPS):
        page.keyboard.press("Tab")
        name, outline = page.evaluate(
            "(() => { const one = document.activeElement; return [one.textContent.trim()"
            " || one.name, getComputedStyle(one).outlineStyle] })()"
        )
        assert outline != "none", name
        if name == text:
            return
    raise AssertionError(f"the key Tab does not reach {text!r}")


def test_the_keyboard_alone_filters_and_retries(
    server: Server, workers: Workers, serve: Serve, open_page: OpenPage
) -> None:
    database.fill(server, workers)
    page = open_page(f"{serve()}/retries")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "To the content"
    page.keyboard.press("Enter")
    go_to(page, "class")
    page.keyboard.type("Invoice*")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("class=Invoice"))
    go_to(page, "Retry all that match…")
    page.keyboard.press("Enter")
    expect(page.locator("#confirm")).to_be_visible()
    go_to(page, "Retry 41 jobs")
    page.keyboard.press("Enter")
    expect(page.get_by_text("Ended: 41 jobs retried.")).to_be_visible()
    assert server.client().zcard("retry") <= 1
