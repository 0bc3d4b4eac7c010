"""The example shops in a browser: an order, and the page that shows its jobs."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from harness.servers import Reaper, wait_until
from tests.acceptance.test_shops import SHOPS, opened
from tests.browser.conftest import OpenPage

pytestmark = pytest.mark.browser

ORDER = """async () => {
  const body = JSON.stringify({item: "tea"});
  const headers = {"Content-Type": "application/json"};
  return (await (await fetch("/orders", {method: "POST", headers, body})).json()).id;
}"""


def is_shipped(shop: Page) -> bool:
    shop.reload()
    return "shipped" in shop.inner_text("body")


def names(page: Page) -> bool:
    page.reload()
    return page.locator("td").filter(has_text="ship").count() > 0


@pytest.mark.parametrize("name", SHOPS)
def test_an_order_is_shipped(
    name: str, tmp_path: Path, reaper: Reaper, browser: Browser, open_page: OpenPage
) -> None:
    """A5 of the acceptance: in each framework; the page of jobs names those that ran."""
    with (
        opened(name, tmp_path / name, reaper) as (address, jobs),
        closing(browser.new_page()) as shop,  # without the checks of our own page
    ):
        shop.goto(f"{address}/orders/999999")  # none, but its origin is that of the shop
        shop.goto(f"{address}/orders/{shop.evaluate(ORDER)}")
        wait_until(lambda: is_shipped(shop), 60)
        page = open_page(f"{jobs}/classes")
        wait_until(lambda: names(page), 60, what="the heartbeat")
