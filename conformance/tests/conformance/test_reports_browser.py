"""Reports in a real browser."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobwire_conformance import reports
from jobwire_conformance.reports.matrix import find
from tests.conformance import browser, hostile
from tests.conformance.pages import STORE

pytestmark = pytest.mark.browser

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


def test_a_real_browser_shows_the_pages(run_with_a_mistake: Path, tmp_path: Path) -> None:
    """No text overflows, the console is silent, and all text can be read."""
    pages = [run_with_a_mistake / "report.html", *hostile.pages(tmp_path)]
    with browser.Browser() as window:
        for page in pages:
            for width in (320, 1280):
                for dark in (False, True):
                    window.open(page, width=width, dark=dark)
                    seen = (page.name, width, dark)
                    window.run("document.querySelectorAll('details').forEach(d => d.open = true)")
                    assert window.run("document.documentElement.scrollWidth") <= width, seen
                    assert window.run(CONTRAST) >= 4.5, seen
                    assert window.complaints == [], seen
                    assert window.run("document.title") != "taken"


def test_the_page_can_be_searched_and_needs_neither_mouse_nor_script(
    run_with_a_mistake: Path,
) -> None:
    page = run_with_a_mistake / "report.html"
    shown = "document.querySelectorAll('#list > details:not([hidden])').length"
    with browser.Browser() as window:
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
        window.page.keyboard.press("Tab")
        assert window.run("document.activeElement.className") == "skip"
        texts: set[str] = set()
        wanted = {"A", "SUMMARY", "INPUT", "SELECT"}
        for _ in range(window.run("document.querySelectorAll('a, summary, [tabindex]').length")):
            window.page.keyboard.press("Tab")
            texts.add(window.run("document.activeElement.tagName"))
            if wanted <= texts:
                break
        assert wanted <= texts
        window.open(page, width=800, dark=False, script=False)
        assert window.run("document.querySelector('form.find').hidden") is True
        assert window.run(shown) == every


SHOWN = """
(() => {
  const seen = (selector) => [...document.querySelectorAll(selector)].filter(
    (node) => node.offsetParent !== null,
  );
  const requirements = seen("#of-requirements tbody tr");
  return {
    requirements: requirements.map((row) => row.id),
    columns: seen("#of-requirements thead th[data-column]").length,
    cells: requirements.length && [...requirements[0].children].filter((c) => !c.hidden).length,
    claims: [...document.querySelectorAll("#of-claims th[data-claim]")]
      .filter((head) => !head.hidden).map((head) => head.id),
    rows: seen("#of-claims tbody tr").length,
    articles: seen("article").map((article) => article.id),
    address: location.search + location.hash,
  };
})()
"""
CHOOSE = """
(() => {
  const form = document.getElementById("filter");
  form.elements["%s"].value = "%s";
  form.dispatchEvent(new Event("input"));
})()
"""
SEEN_IN_THE_MIDDLE = """
(() => {
  const box = document.getElementById("%s").getBoundingClientRect();
  const top = document.elementFromPoint(box.left + box.width / 2, box.top + box.height / 2);
  return top !== null && (top.id === "%s" || top.closest("[id='%s']") !== null);
})()
"""


def test_the_matrix_is_filtered_and_its_address_shows_the_same_view(tmp_path: Path) -> None:
    page = tmp_path / "matrix.html"
    reports.put(page, reports.matrix_pages(find([STORE])[0])["matrix.html"])
    with browser.Browser() as window:
        window.open(page, width=1400, dark=False)
        every = window.run(SHOWN)
        for name, value in (
            *(("implementation", "rusty-sidekiq"), ("claim", "client/core"), ("level", "interop")),
            ("status", "not-met"),
        ):
            window.run(CHOOSE % (name, value))
        view = window.run(SHOWN)
        assert (view["columns"], view["cells"], view["rows"]) == (1, 2, 1)
        assert view["claims"] == ["client/core"]
        assert view["articles"] == ["rusty-sidekiq"]
        assert "PUSH-3" in view["requirements"]
        assert "PUSH-1" not in view["requirements"]  # it holds
        assert "status=not-met" in view["address"]
        window.page.reload()
        assert window.run(SHOWN) == view
        # A link to something that the filter hides shows everything again.
        window.run("location.hash = '#go-workers2/PUSH-1'; 0")
        window.until(f"{SHOWN.strip()}.columns === {every['columns']}")
        window.run(CHOOSE % ("words", "no such words at all"))
        assert window.run(SHOWN)["requirements"] == []
        window.run("document.querySelector('#filter button').click()")
        window.until(f"{SHOWN.strip()}.requirements.length === {len(every['requirements'])}")
        window.open(page, width=1400, dark=False, script=False)
        unfiltered = window.run(SHOWN)
        assert unfiltered["requirements"] == every["requirements"]
        assert window.run("document.getElementById('filter').hidden") is True


def test_an_address_opens_and_shows_its_place_in_the_matrix(tmp_path: Path) -> None:
    page = tmp_path / "matrix.html"
    reports.put(page, reports.matrix_pages(find([STORE])[0])["matrix.html"])
    with browser.Browser() as window:
        for width in (380, 1400):
            window.open(page, width=width, dark=False)
            for id_ in (
                *("rusty-sidekiq/PUSH-3", "worker/core", "rusty-sidekiq/client/core"),
                *("rusty-sidekiq/client/core/PUSH-3", "sidekiq@7.3/SCHED-8"),
            ):
                window.run(f"location.hash = '#{id_}'; 0")
                window.until(SEEN_IN_THE_MIDDLE % (id_, id_, id_))
                assert window.run("document.querySelector(':target').id") == id_, (width, id_)
            window.run("location.hash = '#PUSH-4'; 0")
            window.until("document.querySelector('[id=\"PUSH-4\"] details').open")
            # The heads stay in sight while the table scrolls in both directions.
            head, first = window.run(
                """(() => {
                  const box = document.querySelector("#of-requirements").parentElement;
                  box.scrollTo(200, 900);
                  const outer = box.getBoundingClientRect();
                  const head = box.querySelector("thead").getBoundingClientRect();
                  const first = box.querySelector("tbody th").getBoundingClientRect();
                  return [head.top - outer.top, first.left - outer.left];
                })()"""
            )
            assert abs(head) <= 2
            assert abs(first) <= 2
