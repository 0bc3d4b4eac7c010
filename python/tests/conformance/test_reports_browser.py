"""Reports in a real browser."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance import browser, hostile

CONTRAST = """
(() => {
  const light = (text) => {
    const [r, g, b] = text.match(/[0-9.]+/g).map(Number).map((c) => {
      c /= 255;
      return c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (node) => {
    for (; node; node = node.parentElement) {
      const color = getComputedStyle(node).backgroundColor;
      if (!/, 0\\)$/.test(color)) return color;
    }
    return "rgb(255, 255, 255)";
  };
  let worst = 99;
  for (const node of document.querySelectorAll("main *:not(svg *)")) {
    if (![...node.childNodes].some((child) => child.nodeType === 3 && child.data.trim())) continue;
    const a = light(getComputedStyle(node).color), b = light(ground(node));
    worst = Math.min(worst, (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05));
  }
  return worst;
})()
"""


@pytest.mark.skipif(browser.program() is None, reason="there is no browser: install chromium")
def test_a_real_browser_shows_the_pages(run_with_a_mistake: Path, tmp_path: Path) -> None:
    """No text overflows, the console is silent, and all text can be read."""
    pages = [run_with_a_mistake / "report.html", *hostile.pages(tmp_path)]
    with browser.Browser(tmp_path / "profile") as window:
        for page in pages:
            for width in (320, 1280):
                for dark in (False, True):
                    window.open(page, width=width, dark=dark)
                    seen = (page.name, width, dark)
                    window.run("document.querySelectorAll('details').forEach(d => d.open = true)")
                    assert window.run("document.documentElement.scrollWidth") <= width, seen
                    assert window.run(CONTRAST) >= 4.5, seen
                    assert window.complaints() == [], seen
                    assert window.run("document.title") != "taken"


@pytest.mark.skipif(browser.program() is None, reason="there is no browser: install chromium")
def test_the_page_can_be_searched_and_needs_neither_mouse_nor_script(
    run_with_a_mistake: Path, tmp_path: Path
) -> None:
    page = run_with_a_mistake / "report.html"
    shown = "document.querySelectorAll('#list > details:not([hidden])').length"
    with browser.Browser(tmp_path / "profile") as window:
        window.open(page, width=800, dark=False)
        every = window.run(shown)
        assert every > 50
        look = "form.elements.{0}.value = '{1}'; form.dispatchEvent(new Event('input'))"
        window.run("form = document.querySelector('form.find'); 0")
        window.run(look.format("words", "push-1"))
        assert 0 < window.run(shown) < every
        window.run(look.format("words", "") + ";" + look.format("status", "fail"))
        assert window.run("document.querySelector('form.find output').textContent").startswith("1 ")
        window.run("document.activeElement.blur()")
        window.key("Tab", 9)
        assert window.run("document.activeElement.className") == "skip"
        texts = set()
        for _ in range(60):
            window.key("Tab", 9)
            texts.add(window.run("document.activeElement.tagName"))
        assert {"A", "SUMMARY", "INPUT", "SELECT"} <= texts
        window.open(page, width=800, dark=False, script=False)
        assert window.run("document.querySelector('form.find').hidden") is True
        assert window.run(shown) == every
