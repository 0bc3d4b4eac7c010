"""The site: staged pages lead to each other, and the check finds dead links and foreign hosts."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from tests.tools import site
from tests.tools.markdown import ROOT, without_code

PLACES = {"README.md": "index.md", "docs/a/b.md": "a/b.md", "lua/README.md": "lua.md"}


@pytest.mark.parametrize(
    ("link", "expected"),
    [
        ("../../README.md#x", "../index.md#x"),
        ("../../lua/", "../lua.md"),
        ("#here", "#here"),
        ("https://example.org/", "https://example.org/"),
        ("../../lua/fetch.lua", "../lua/fetch.lua.md"),
        ("../performance/drain.svg", "../performance/drain.svg"),
    ],
)
def test_links_lead_to_places_on_the_site(link: str, expected: str) -> None:
    shown: dict[str, str] = {}
    text = f"[it]({link}) `[code](x)`\n"
    staged = site.relinked(text, "docs/a/b.md", "a/b.md", PLACES, shown)
    assert staged == f"[it]({expected}) `[code](x)`\n"


def test_ids_of_requirements_lead_to_the_specification() -> None:
    text = "# KEY-1\n\nsee [KEY-1] or KEY-2, not `KEY-3`, [KEY-4](x.md) and UTF-8\n"
    assert site.cited(text, "a/b.md", "KEY|PUSH") == (
        "# KEY-1\n\nsee [\\[KEY-1\\]](../specification/index.md#key-1) or "
        "[KEY-2](../specification/index.md#key-2), not `KEY-3`, [KEY-4](x.md) and UTF-8\n"
    )
    text = "> **[KEY-1]** · all\n> it, see PUSH-2\n"
    assert site.cited(text, site.SPECIFICATION, "KEY|PUSH") == (
        "> **[\\[KEY-1\\]](#key-1){ #key-1 }** · all\n> it, see [PUSH-2](#push-2)\n"
    )


def test_every_command_and_every_public_name_is_on_the_site() -> None:
    commands = "\n".join(site.command_pages())
    assert {"## jobwire worker", "### jobwire inspect retries"} <= {
        line.removeprefix("#") for line in commands.splitlines()
    }
    entries = "\n".join(site.api_entries())
    for name in ("App", "JobType", "TryAgain", "fake", "Inspector", "Launcher", "over_rows"):
        assert re.search(rf"^::: jobwire\.[\w.]*\b{name}$", entries, re.MULTILINE), name


def test_every_page_of_the_navigation_exists_and_every_page_of_docs_is_in_it() -> None:
    settings = tomllib.loads((ROOT / "zensical.toml").read_text("utf-8"))
    assert [next(iter(tab)) for tab in settings["project"]["nav"]] == [
        "Use",
        "Protocol",
        "Conformance",
    ]
    named = set(re.findall(r"'([\w/.-]+\.md)'", str(settings["project"]["nav"])))
    places = set(site.staged_places().values())
    assert named - places == set()
    assert {
        place
        for place in places - named
        if not place.startswith("explanation/decisions/") and place != "changelog-fragments.md"
    } == set()


def test_every_diagram_is_drawn() -> None:
    shown: dict[str, str] = {}
    text = site.drawn((ROOT / "SPEC.md").read_text("utf-8"), site.SPECIFICATION, shown)
    assert "```mermaid" not in text
    drawings = {f"docs/diagrams/{path.name}" for path in (ROOT / "docs" / "diagrams").iterdir()}
    assert set(shown) == drawings
    with pytest.raises(SystemExit, match=r"run \.ci/diagrams"):
        site.drawn("```mermaid\nnew\n```\n", "a.md", {})


def test_pages_for_users_name_no_requirements() -> None:
    """Ids help people who implement the protocol. Code may show one."""
    settings = tomllib.loads((ROOT / "zensical.toml").read_text("utf-8"))
    use = dict(settings["project"]["nav"][0])["Use"]
    for_users = [part for part in use if "Project" not in part]
    sources = {place: source for source, place in site.staged_places().items()}
    areas = site.requirement_areas()
    found = {
        place: re.findall(rf"\b(?:{areas})-\d+\b", without_code(read_text(sources[place])))
        for place in re.findall(r"'([\w/.-]+\.md)'", str(for_users))
        if place not in ("changelog.md", "index.md")
    }
    assert {place: ids for place, ids in found.items() if ids} == {}


def read_text(source: str) -> str:
    return (ROOT / source).read_text("utf-8")


def test_a_dead_link_and_a_foreign_host_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(site, "SITE_DIRECTORY", tmp_path)
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "index.html").write_text('<h1 id="x">A</h1><a href="../#y">y</a>')
    index = tmp_path / "index.html"
    index.write_text('<p id="y"><a href="a/#x">x</a><a href="https://example.org/">e</a>')
    assert site.check() == 0
    for fault, found in {
        '<a href="no/">': "dead link no/",
        '<a href="a/#no">': "dead link a/#no",
        '<script src="https://cdn.example.org/x.js"></script>': "asks another host: https://cdn",
        '<link rel="stylesheet" href="//cdn.example.org/x.css">': "asks another host: //cdn",
    }.items():
        index.write_text(f'<p id="y">{fault}')
        assert site.check() == 1
        assert found in capsys.readouterr().out
    index.write_text('<p id="y">')
    (tmp_path / "x.css").write_text("a { background: url('https://example.org/x.png') }")
    assert site.check() == 1
