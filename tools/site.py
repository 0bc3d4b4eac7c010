"""Stages the pages of the site, which zensical then builds, and checks the result.

    python -m tools.site stage [--pdf]   write build/site-pages and build/site-python
    python -m tools.site finish [--pdf]  write the specification as one file, and as a PDF
    python -m tools.site check           look for dead links and foreign hosts in build/site

The site has the pages of docs/ and the pages at other places of the checkout that `PAGES` names.
Links between them are rewritten to their new places. A text file that a page links to becomes a
page that shows it. The ids of requirements become links to the pages of the requirements, which
`protocol_pages` makes. Two pages have parts that come from the program: the command line, and the
API. Exit status of `check`: 0 clean, 1 hits.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os.path
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import click

from jobwire.cli import cli
from jobwire_conformance.reports.lossmap import WINDOWS
from jobwire_conformance.spec import document, record
from tools import one_file, protocol_pages
from tools.links import tracked
from tools.markdown import FENCE, HEADING, ROOT, links, without_code
from tools.protocol_facts import Facts, part_place

PICTURES = (".png", ".svg")
PAGES_DIRECTORY = ROOT / "build" / "site-pages"
PYTHON_DIRECTORY = ROOT / "build" / "site-python"
SITE_DIRECTORY = ROOT / "build" / "site"

# Pages outside of docs/, and READMEs. The navigation takes the part of docs/README.md. A page named
# index.md is the first page of its section.
PAGES = {
    "README.md": "index.md",
    "docs/README.md": "index.md",
    "docs/conformance/README.md": "conformance/index.md",
    **{part: part_place(part) for part in document.PARTS},
    "conformance/README.md": "conformance/suite.md",
    "CHANGELOG.md": "changelog.md",
    "changelog.d/README.md": "changelog-fragments.md",
    "examples/README.md": "examples.md",
    "fixtures/README.md": "fixtures.md",
    "lua/README.md": "lua.md",
    "schema/README.md": "schema.md",
    "spec/README.md": "annexes/index.md",
    **{
        f"spec/{name}.md": f"annexes/{name}.md"
        for name in (
            *("activejob", "addons", "batches", "cancelling", "classes", "compression", "parking"),
            *("limits", "periodic", "progress", "results", "steps", "template", "time", "unique"),
            "workflows",
        )
    },
}
LANGUAGES = {".json": "json", ".lua": "lua", ".mjs": "js", ".sh": "sh", ".toml": "toml"}
API = ("jobwire", "jobwire.testing", "jobwire.worker", "jobwire.inspect", "jobwire.iterables")
API_MARK = "<!-- generated: api -->"
COMMANDS_MARK = "<!-- generated: command line -->"

DEFINITION = re.compile(r"^> \*\*\[((?:X-)?[A-Z]+-\d+)\]\*\*", re.MULTILINE)
ASSETS = Path(__file__).parent / "site_assets"  # style and program of the site


# -- staging


def stage(*, with_pdf: bool) -> None:
    """Write the pages, the files that they link to, and the sources for the API."""
    shutil.rmtree(PAGES_DIRECTORY, ignore_errors=True)
    shutil.rmtree(PYTHON_DIRECTORY, ignore_errors=True)
    places = staged_places()
    shown: dict[str, str] = {}  # file that a page links to: its place
    facts = Facts()
    for source, place in places.items():
        if source == "docs/README.md":
            continue
        text = (ROOT / source).read_text("utf-8")
        text = relinked(unlinked(text), source, place, places, shown)
        text = cited(drawn(text, place, shown), place, facts.homes, facts.release)
        text += linked_back(place, facts)
        for mark, entries in ((COMMANDS_MARK, command_pages), (API_MARK, api_entries)):
            if mark in text:
                text = text.replace(mark, "\n".join(entries()))
        write(PAGES_DIRECTORY / place, text)
    for place, text in protocol_pages.pages(facts, shown, with_pdf=with_pdf):
        # A table in HTML cannot hold links in Markdown; its program has written its links.
        is_one = place.removesuffix(".md").rpartition("/")[2] in facts.document.by_id
        is_one |= "/claims/" in place or "/authors/" in place or place.endswith("/data-model.md")
        text = cited(text, place, facts.homes, facts.release) if is_one else text
        write(PAGES_DIRECTORY / place, text)
    served = served_schemas()
    for source, place in served.items():
        write(PAGES_DIRECTORY / place, (ROOT / source).read_text("utf-8"))
        shown.setdefault(source, _shown_place(source))
    for source, place in shown.items():
        show(ROOT / source, PAGES_DIRECTORY / place, served.get(source))
    for asset in ASSETS.iterdir():
        shutil.copyfile(asset, PAGES_DIRECTORY / asset.name)
    for path in sorted((ROOT / "python" / "jobwire").rglob("*.py")):
        # Readers of the API are users: the ids of requirements are for readers of the source.
        text = re.sub(r"(?:\s*\[(?:X-)?[A-Z]+-\d+\])+", "", path.read_text("utf-8"))
        write(PYTHON_DIRECTORY / path.relative_to(ROOT / "python"), text)


def staged_places() -> dict[str, str]:
    """Return the place on the site of each page of the checkout."""
    places = dict(PAGES)
    for source in tracked():
        if source.startswith("docs/") and source not in places:
            places[source] = source.removeprefix("docs/")
    return places


def relinked(
    text: str, source: str, place: str, places: dict[str, str], shown: dict[str, str]
) -> str:
    """Return a page whose links lead to the places on the site; collect linked files in `shown`."""
    parts, position = [], 0
    for match in links(text):
        group = "inline" if match["inline"] else "reference"
        path, _, fragment = match[group].partition("#")
        if not path or ":" in path:
            continue
        target = os.path.normpath(os.path.join(os.path.dirname(source), path))
        if (ROOT / target).is_dir():
            target = f"{target}/README.md"
        if target not in places:
            if not (ROOT / target).is_file():
                raise SystemExit(f"site: {source} links to {target}, which does not exist")
            shown[target] = _shown_place(target)
        goal = os.path.relpath(places.get(target) or shown[target], os.path.dirname(place) or ".")
        parts += [text[position : match.start(group)], goal + ("#" + fragment if fragment else "")]
        position = match.end(group)
    return "".join([*parts, text[position:]])


def unlinked(text: str) -> str:
    """Return a page in which two names in brackets, as [RFC2119] [RFC8174], are not a link."""
    parts, position = [], 0
    for match in re.finditer(r"(?<![\w\]\\])\[(RFC\d+)\](?![(:])", without_code(text)):
        parts += [text[position : match.start()], rf"\[{match[1]}\]"]
        position = match.end()
    return "".join([*parts, text[position:]])


def drawn(text: str, place: str, shown: dict[str, str]) -> str:
    """Return a page with the drawings of its Mermaid diagrams.

    Raises:
        SystemExit: A diagram has changed since it was drawn.
    """

    def drawing(match: re.Match[str]) -> str:
        if match["kind"] != "mermaid":
            return match[0]
        name = hashlib.sha1(match["code"].encode()).hexdigest()[:12]
        source = f"docs/diagrams/{name}.svg"
        if not (ROOT / source).is_file():
            raise SystemExit(f"site: {source}: a diagram has changed; run .ci/site --diagrams")
        shown[source] = _shown_place(source)
        goal = os.path.relpath(shown[source], os.path.dirname(place) or ".")
        return f"![diagram, with the text of the section above it]({goal})"

    return FENCE.sub(drawing, text)


def _shown_place(source: str) -> str:
    place = source.removeprefix("docs/")
    return place if Path(source).suffix in PICTURES else f"{place}.md"


def served_schemas() -> dict[str, str]:
    """Return the schemas, each with the path that its `$id` names.

    `urn:jobwire:schema:1.0:payload` is served as `schema/1.0/payload.json`.
    """
    served = {}
    for path in sorted((ROOT / "schema").glob("*.json")):
        identifier = json.loads(path.read_bytes()).get("$id", "")
        if identifier.startswith("urn:jobwire:"):
            place = f"{identifier.removeprefix('urn:jobwire:').replace(':', '/')}.json"
        elif identifier:
            place = urlsplit(identifier).path.lstrip("/")
        else:
            continue  # data, not a schema
        served[path.relative_to(ROOT).as_posix()] = place
    return served


def linked_back(place: str, facts: Facts) -> str:
    """Return the links from a page of results to the requirements that it is about."""
    release = facts.release
    if place == protocol_pages.CLAIMS:
        return (
            f"\n[Requirement by implementation](../{release}/matrix.md) has a row for each "
            "requirement.\n"
        )
    if place != protocol_pages.LOSS_MAPS:
        return ""
    lines = ["", "## Requirements about the loss windows", ""]
    for window, meaning in WINDOWS.items():
        ids = [each.id for each in facts.requirements if window in facts.windows(each)]
        named = ", ".join(f"[{name}](../{protocol_pages.place_of(name, release)})" for name in ids)
        lines.append(f"- {window}, {meaning}: {named or 'none'}")
    return "\n".join(lines) + "\n"


def show(source: Path, place: Path, served: str | None = None) -> None:
    """Write a page that shows a text file, or copy a picture.

    Args:
        source: The file.
        place: The page.
        served: The path below which the site has the file itself.
    """
    if source.suffix in PICTURES:
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, place)
        return
    language = LANGUAGES.get(source.suffix, "text")
    code = source.read_text("utf-8")
    head = "---\nsearch:\n  exclude: true\n---\n\n" if "conformance" in place.parts else ""
    link = ""
    if served is not None:
        goal = os.path.relpath(PAGES_DIRECTORY / served, place.parent)
        link = f"The file itself is at its `$id`: [{served}]({goal}).\n\n"
    write(place, f"{head}# {source.name}\n\n{link}````{language}\n{code.rstrip()}\n````\n")


def requirement_areas() -> str:
    """Return a pattern of the areas of requirements, as KEY or RETRY."""
    ids = document.read_checkout(ROOT).by_id
    return "|".join(sorted({name.partition("-")[0] for name in ids}))


def cited(text: str, place: str, homes: Mapping[str, str], release: str) -> str:
    """Return a page whose requirement ids lead to the pages of the requirements.

    In the specification itself they lead to its blocks, and the head of a block to its page.

    Args:
        text: The page.
        place: Its place on the site.
        homes: The ids, each with the place of the part of the specification that contains it.
        release: The version in the places of requirements.
    """
    is_specification = place.startswith("specification/")
    ids = "|".join(map(re.escape, homes))
    citation = re.compile(rf"(?<![\w#/-])(?P<open>\[?)(?P<id>{ids})(?P<close>\]?)(?![\w(-])")
    plain = without_code(text)
    titles = [match.span() for match in HEADING.finditer(plain)]
    targets = [match.span() for match in re.finditer(r"\[[^\]\n]*\]\([^)\n]*\)", plain)]
    parts, position = [], 0
    for match in citation.finditer(plain):
        name, anchor = match["id"], match["id"].lower()
        if any(start <= match.start() < end for start, end in (*titles, *targets)):
            continue
        opened, closed = (r"\[", r"\]") if match["open"] and match["close"] else ("", "")
        line = text.rfind("\n", 0, match.start()) + 1
        page = os.path.relpath(protocol_pages.place_of(name, release), os.path.dirname(place))
        link = f"[{opened}{name}{closed}]({page})"
        if is_specification and DEFINITION.match(text, line, match.end() + 2):
            link += f"{{ #{anchor} }}"
        elif is_specification:
            home = "" if homes[name] == place else os.path.relpath(homes[name], Path(place).parent)
            link = f"[{opened}{name}{closed}]({home}#{anchor})"
        start = match.start() + (0 if opened else len(match["open"]))
        end = match.end() - (0 if opened else len(match["close"]))
        parts += [text[position:start], link]
        position = end
    return "".join([*parts, text[position:]])


def command_pages() -> Iterator[str]:
    """Yield Markdown about every command of `jobwire`, from the program itself."""
    yield from _command(cli, click.Context(cli, info_name="jobwire"), 2)


def _command(command: click.Command, context: click.Context, level: int) -> Iterator[str]:
    with context:
        if level > 2:
            yield f"{'#' * min(level, 4)} {context.command_path}\n"
        text = command.get_help(context)
        yield f"```text\n{text.rstrip()}\n```\n"
        if isinstance(command, click.Group):
            for name in command.list_commands(context):
                child = command.get_command(context, name)
                if child is not None and not child.hidden:
                    inner = click.Context(child, info_name=name, parent=context)
                    yield from _command(child, inner, level + 1)


def api_entries() -> Iterator[str]:
    """Yield Markdown that has mkdocstrings document every exported name."""
    documented: set[int] = set()
    for module in map(importlib.import_module, API):
        yield f"## {module.__name__}\n"
        for name in module.__all__:
            member = getattr(module, name)
            is_ours = getattr(member, "__module__", "").startswith("jobwire.")
            if is_ours and id(member) not in documented:
                documented.add(id(member))
                yield f"::: {module.__name__}.{name}\n"


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


# -- checking


class Page(HTMLParser):
    """The ids, links and resources of a built page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.resources: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.ids |= {value for key in ("id", "name") if (value := values.get(key))}
        if tag == "a":
            self.links += [value for value in [values.get("href")] if value]
        else:
            keys = ("src", "href", "data", "poster")
            self.resources += [value for key in keys if (value := values.get(key))]


def check() -> int:
    """Print the dead links and the resources of other hosts; return the exit status."""
    pages = {path: Page(path.read_text("utf-8")) for path in sorted(SITE_DIRECTORY.rglob("*.html"))}
    hits = []
    for path, page in pages.items():
        if path.name != "404.html":
            hits += [f"{path}: dead link {link}" for link in page.links if _dead(path, link, pages)]
        hits += [f"{path}: asks another host: {link}" for link in page.resources if _foreign(link)]
    for path in sorted(SITE_DIRECTORY.rglob("*.css")):
        text = path.read_text("utf-8")
        for link in re.findall(r"(?:url\(|@import )[\"']?([^\"')]+)", text):
            hits += [f"{path}: asks another host: {link}"] if _foreign(link) else []
    sys.stdout.write("".join(f"{hit}\n" for hit in hits))
    sys.stdout.write(f"site: {len(pages)} pages in {SITE_DIRECTORY}, {len(hits)} mistakes\n")
    return 1 if hits else 0


def _foreign(link: str) -> bool:
    return bool(urlsplit(link).netloc)


def _dead(page: Path, link: str, pages: dict[Path, Page]) -> bool:
    url = urlsplit(link)
    if url.scheme or url.netloc:
        return False
    target = page
    if url.path:
        base = SITE_DIRECTORY if url.path.startswith("/") else page.parent
        target = (base / unquote(url.path).lstrip("/")).resolve()
        target = target / "index.html" if target.is_dir() else target
    if not url.fragment or target not in pages:
        return not target.is_file()
    return unquote(url.fragment) not in pages[target].ids


def finish(*, with_pdf: bool) -> None:
    """Write the whole specification as JSON, as one HTML file, and as a PDF."""
    facts = Facts()
    write(SITE_DIRECTORY / facts.release / "requirements.json", record.render(facts.record))
    parts = (part_place(part) for _, part in facts.document.parts)
    names = (part.removesuffix("index.md").removesuffix(".md") for part in parts)
    built = [(SITE_DIRECTORY / name / "index.html").resolve() for name in names]
    place = SITE_DIRECTORY / facts.release / protocol_pages.one_file(facts.version, "html")
    write(place, one_file.standalone(built, f"jobwire {facts.version}"))
    if with_pdf:
        one_file.print_pdf(place, place.with_name(protocol_pages.one_file(facts.version, "pdf")))


def main(arguments: list[str]) -> int:
    """Run one command; return the exit status."""
    with_pdf = "--pdf" in arguments
    match [each for each in arguments if each != "--pdf"]:
        case ["stage"]:
            stage(with_pdf=with_pdf)
        case ["finish"]:
            finish(with_pdf=with_pdf)
        case ["check"] if not with_pdf:
            return check()
        case _:
            raise SystemExit("usage: python -m tools.site stage [--pdf]|finish [--pdf]|check")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
