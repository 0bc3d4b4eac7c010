"""The site: staged pages lead to each other, and the check finds dead links and foreign hosts."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest

from tools import one_file, protocol_pages, site
from tools.markdown import ROOT, without_code
from tools.protocol_facts import Facts

SPECIFICATION = "specification/index.md"
HOMES = dict.fromkeys(("KEY-1", "KEY-2", "KEY-3", "KEY-4", "PUSH-2"), SPECIFICATION)


def test_ids_of_requirements_lead_to_their_pages() -> None:
    text = "# KEY-1\n\nsee [KEY-1] or KEY-2, not `KEY-3`, [KEY-4](x.md) and UTF-8\n"
    assert site.cited(text, "a/b.md", HOMES, "1.0") == (
        "# KEY-1\n\nsee [\\[KEY-1\\]](../1.0/KEY-1.md) or "
        "[KEY-2](../1.0/KEY-2.md), not `KEY-3`, [KEY-4](x.md) and UTF-8\n"
    )
    text = "> **[KEY-1]** · all\n> it, see PUSH-2\n"
    head = "> **[\\[KEY-1\\]](../1.0/KEY-1.md){ #key-1 }** · all\n"
    for home, link in ((SPECIFICATION, "#push-2"), ("specification/robust.md", "robust.md#push-2")):
        homes = HOMES | {"PUSH-2": home}
        assert site.cited(text, SPECIFICATION, homes, "1.0") == (
            f"{head}> it, see [PUSH-2]({link})\n"
        )


@pytest.mark.process
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
    names = ("index", "matrix", "claims/index", "data-model")
    clients = ("go-workers2", "node-sidekiq", "rusty-sidekiq")
    made = {f"1.0/{name}.md" for name in (*names, *(f"authors/{name}" for name in clients))}
    assert named - places == made
    assert places - named == {"changelog-fragments.md"}


def test_every_diagram_is_drawn() -> None:
    shown: dict[str, str] = {}
    parts = [ROOT / "SPEC.md", *(ROOT / "spec").glob("*.md")]
    text = "\n".join(part.read_text("utf-8") for part in parts)
    text = site.drawn(text, SPECIFICATION, shown)
    assert "```mermaid" not in text
    drawings = {f"docs/diagrams/{path.name}" for path in (ROOT / "docs" / "diagrams").iterdir()}
    assert set(shown) == drawings
    with pytest.raises(SystemExit, match=r"run \.ci/site --diagrams"):
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


@pytest.fixture(scope="module")
def facts() -> Facts:
    return Facts()


@pytest.mark.matrix
def test_every_requirement_has_a_page_with_all_that_is_known(facts: Facts) -> None:
    files: dict[str, str] = {}
    pages = dict(protocol_pages.pages(facts, files, with_pdf=False))
    assert {f"1.0/{each.id}.md" for each in facts.requirements} <= set(pages)
    page = pages["1.0/RETRY-4.md"]
    requirement = facts.document.by_id["RETRY-4"]
    for part in (
        requirement.text.splitlines()[0],
        f"**Why:** {requirement.why}",
        f"**Seen in:** {requirement.seen}",
        '<span class="fact level interop">interop</span>',
        "(../specification/index.md#retry-4)",
        "(matrix.md#retry-4)",
        "(../conformance/cases/retry/retry.json.md)",
        "(../conformance/mutants/retry.json.md)",
        "; sidekiq 8.1.7; ",
        "generation 7.3 | ≠ does not hold | this version adds failed jobs to <code>goretry</code>",
        "(../fixtures/vectors/retry-delays.json.md)",
    ):
        assert part in page, part
    assert files["conformance/cases/retry/retry.json"]
    # Verdicts for robust requirements come from the robust claims.
    assert "It holds in: jobwire 0.1.0; " in pages["1.0/SIG-6.md"]
    # A rule about the loss of jobs leads to the loss maps, and back.
    assert "loss-maps.md#lw-1-from-the-fetch" in pages["1.0/REL-2.md"]
    assert "(../1.0/REL-2.md)" in site.linked_back(protocol_pages.LOSS_MAPS, facts)
    # A deviation of Sidekiq stands on the page, with its reason.
    assert re.search(
        r"\*\*Deviations of Sidekiq:\*\* 6\.4\.1, 7\.3\.2, 8\.1\.7\.", pages["1.0/SIG-6.md"]
    )


@pytest.mark.process
def test_the_data_model_is_that_of_sidekiq_alone(facts: Facts) -> None:
    page = protocol_pages.data_model_page(facts)
    assert "| `queue:<name>` | all | list |" in page
    assert "- A retry must be `ZADD retry <now + delay> <payload>`." in page
    assert "jobwire:" not in page
    assert "jw_" not in page
    assert "**MUST" not in page


@pytest.mark.full
def test_the_index_has_a_row_and_the_matrix_a_line_for_each_requirement(facts: Facts) -> None:
    index = protocol_pages.index_page(facts, with_pdf=True)
    matrix = protocol_pages.matrix_page(facts)
    for requirement in facts.requirements:
        assert f'<a href="{requirement.id}.md">' in index
        assert f'<tr id="{requirement.id.lower()}">' in matrix
    assert "jobwire-" in index
    assert ".pdf" in index
    assert ".pdf" not in protocol_pages.index_page(facts, with_pdf=False)


def test_each_schema_is_served_at_the_path_of_its_id() -> None:
    served = site.served_schemas()
    schemas = [p for p in (ROOT / "schema").glob("*.json") if "$id" in json.loads(p.read_bytes())]
    assert set(served) == {f"schema/{path.name}" for path in schemas}
    assert len(set(served.values())) == len(served)
    assert all(place.endswith(".json") for place in served.values())


def test_the_one_file_needs_no_other(tmp_path: Path) -> None:
    page = tmp_path / "index.html"
    (tmp_path / "a.svg").write_text("<svg/>")
    page.write_text(
        '<nav>x</nav><article class="x"><h1 id="a">A<a class="headerlink" href="#a">¶</a></h1>'
        '<a id="key-1" href="../1.0/KEY-1/">[KEY-1]</a> <a href="#a">here</a>'
        '<a href="../faq/">faq</a><img alt="" src="a.svg"></article>'
    )
    text = one_file.standalone([page], "T & U")
    assert '<span id="key-1">[KEY-1]</span> <a href="#a">here</a>faq<img' in text
    assert "<title>T &amp; U</title>" in text
    assert 'src="data:image/svg+xml;base64,' in text
    assert "nav" not in text
    assert "headerlink" not in text


@pytest.mark.browser
def test_chromium_prints_the_one_file(tmp_path: Path) -> None:
    page, goal = tmp_path / "a.html", tmp_path / "a.pdf"
    page.write_text("<!doctype html><h1>One</h1>")
    one_file.print_pdf(page, goal)
    assert goal.read_bytes().startswith(b"%PDF-")
