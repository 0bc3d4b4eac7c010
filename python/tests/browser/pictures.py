"""Make the pictures of the documentation: `.ci/release-check browser --pictures`."""

from __future__ import annotations

import sys
import time
from contextlib import closing
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright
from rich.console import Console

from harness.servers import Reaper, Server, valkey_program
from jobwire.connection.sync import SyncRedis
from jobwire.periodic.schedule import load
from jobwire.protocol.keys import Keys
from jobwire.protocol.periodic_entry import PeriodicEntry
from tests.browser import gallery
from tests.browser.serving import OPTIONS, serving
from tests.conformance.browser import program

PICTURES = Path(__file__).resolve().parents[3] / "docs" / "pictures"
MAX_BYTES = 60_000  # of a picture in 128 colours, so that a checkout stays small
PHONE = 390
SCHEDULE = [
    PeriodicEntry(name="nightly-report", cron="0 3 * * * Europe/Berlin", job="NightlyReport"),
    PeriodicEntry(name="sync-inventory", cron="*/5 * * * *", job="SyncInventoryJob"),
    PeriodicEntry(name="invoices", cron="30 6 1 * *", job="Billing::InvoicesJob", enabled=False),
]


def main() -> int:
    """Fill a server, and take a picture of some pages."""
    path = program()
    if path is None:
        Console(stderr=True).print("pictures: there is no Chromium")
        return 2
    PICTURES.mkdir(exist_ok=True)
    reaper = Reaper()
    with closing(reaper), closing(Server(reaper, valkey_program())) as server:
        gallery.fill(server.client(), time.time())
        with closing(SyncRedis(server.url)) as redis:
            redis.run(load(Keys(), SCHEDULE, schedule="shop"))
        with serving(reaper, server.url) as site, sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=path, args=OPTIONS)
            with closing(browser):
                take_all(browser, site)
    large = [p.name for p in PICTURES.glob("*.png") if p.stat().st_size > MAX_BYTES]
    if large:
        Console(stderr=True).print(
            f"pictures: {large} have more than {MAX_BYTES:,} bytes: reduce them to 128 colours"
        )
    return 1 if large else 0


def take_all(browser: Browser, site: str) -> None:
    """Take the pictures; the last one changes the database."""
    page = _opened(browser, site)
    page.goto(f"{site}/?period=1h")
    _take(page, "overview", height=1080)
    page.goto(f"{site}/failures")
    _take(page, "failures", height=560)
    page.goto(f"{site}/retries")
    page.locator("tbody a[href*='/retries/']").first.click()
    _take(page, "job")
    page.goto(f"{site}/jobs/{gallery.FINISHED}")
    _take(page, "result", height=640)
    page.goto(f"{site}/periodic")
    _take(page, "periodic", height=480)
    page = _opened(browser, site, width=PHONE, height=800, dark=True)
    page.goto(f"{site}/periodic")
    _take(page, "phone", height=800)
    page = _opened(browser, site, dark=True)
    page.goto(f"{site}/busy")
    _take(page, "busy", height=900)
    page.goto(f"{site}/bulk?place=retry&act=retry&class=Billing*")
    page.locator("#confirm").click()
    page.locator("progress").wait_for()
    _take(page, "change", height=560)


def _opened(
    browser: Browser, site: str, *, width: int = 1200, height: int = 900, dark: bool = False
) -> Page:
    return browser.new_page(
        viewport={"width": width, "height": height},
        color_scheme="dark" if dark else "light",
        base_url=site,
    )


def _take(page: Page, name: str, *, height: int = 900) -> None:
    width = page.viewport_size["width"] if page.viewport_size else 0
    page.set_viewport_size({"width": width, "height": height})
    page.screenshot(path=PICTURES / f"{name}.png", animations="disabled")


if __name__ == "__main__":
    sys.exit(main())
