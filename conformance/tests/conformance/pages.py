"""The pages of docs/conformance, and the summaries that they are made from."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

from jobwire_conformance import reports
from jobwire_conformance.cases import case, chances
from jobwire_conformance.data import requirements
from jobwire_conformance.reports.matrix import find
from jobwire_conformance.reports.matrix_markdown import overview_page
from jobwire_conformance.reports.summary import load

__all__ = [
    *("BUILT", "PAGES", "ROOT", "SPECIFICATION", "STORE"),
    *("built_pages", "pages", "specification", "stale_pages"),
]

ROOT = Path(__file__).resolve().parents[3]
STORE = ROOT / "conformance" / "reports"
BUILT = ROOT / "build" / "conformance"  # full reports, which are not committed
PAGES = ROOT / "docs" / "conformance"
DRIVERS = ROOT / "conformance" / "drivers"
SPECIFICATION = ROOT / "spec" / "lookup.md"
_APPENDIX = re.compile(r"(## Appendix A[^|]*\|[^\n]*\n\| --- \| --- \|\n)(?:\|[^\n]*\n)*")


def pages() -> Mapping[str, bytes]:
    """Return the pages of docs/conformance, made from the stored results."""
    matrix = find([STORE])[0]
    return {
        "matrix.md": overview_page(matrix, _reasons()).encode(),
        "loss-maps.md": reports.matrix_pages(matrix)["loss-maps.md"],
        "false-alarms.md": chances.page(case.load()).encode(),
    }


def built_pages() -> Mapping[str, bytes]:
    """Return the pages of build/conformance: every requirement, with reasons."""
    return reports.matrix_pages(find([STORE])[0])


def specification() -> bytes:
    """Return the file with appendix A, made from the stored results of Sidekiq."""
    text = SPECIFICATION.read_text("utf-8")
    head, rows, rest = _APPENDIX.split(text, maxsplit=1)
    return "".join([head, rows, *_appendix(), rest]).encode()


def _appendix() -> Iterator[str]:
    """Yield the rows of appendix A: the requirements that a generation does not meet."""
    versions: dict[str, list[str]] = {}
    runs = [load(path) for path in sorted((STORE / "sidekiq").glob("*.json"))]
    for results in runs:
        about = results["implementation"]["version"]
        for check in results["checks"]:
            if check["status"] == "deviation":
                named = versions.setdefault(check["requirement"], [])
                if about not in named:
                    named.append(about)
    for id_ in requirements():
        if id_ in versions:
            yield f"| {id_} | {', '.join(versions[id_])} |\n"


def _reasons() -> Mapping[str, str]:
    """Map names of implementations to links to their declared deviations."""
    links = {"sidekiq": "[appendix A](../../spec/lookup.md#appendix-a-what-sidekiq-does-not-meet)"}
    for path in sorted(DRIVERS.glob("*/jobwire.deviations.toml")):
        settings = tomllib.loads((path.parent / "conformance.toml").read_text("utf-8"))
        link = f"../../{path.relative_to(ROOT)}"
        links[settings["implementation"]["name"]] = f"[{path.parent.name}]({link})"
    return links


def stale_pages() -> list[str]:
    """Return the pages that are out of date."""
    made = {PAGES / name: content for name, content in pages().items()}
    made[SPECIFICATION] = specification()
    return [
        path.name
        for path, content in made.items()
        if not path.exists() or path.read_bytes() != content
    ]
