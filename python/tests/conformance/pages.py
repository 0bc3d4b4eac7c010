"""The pages of docs/conformance, and the summaries that they are made from."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path

from jobwire_conformance import reports
from jobwire_conformance.reports.kills import markdown, overview
from jobwire_conformance.reports.matrix import find
from jobwire_conformance.reports.matrix_markdown import overview_page

__all__ = ["BUILT", "KILLS", "PAGES", "ROOT", "STORE", "built_pages", "pages", "stale_pages"]

ROOT = Path(__file__).resolve().parents[3]
STORE = ROOT / "conformance" / "reports"
BUILT = ROOT / "build" / "conformance"  # full reports, which are not committed
KILLS = ROOT / "conformance" / "kills.json"
PAGES = ROOT / "docs" / "conformance"
DRIVERS = ROOT / "conformance" / "drivers"


def pages() -> Mapping[str, bytes]:
    """Return the pages of docs/conformance, made from the stored results."""
    matrix = find([STORE])[0]
    return {
        "matrix.md": overview_page(matrix, _reasons()).encode(),
        "loss-maps.md": reports.matrix_pages(matrix)["loss-maps.md"],
        "kills.md": overview(json.loads(KILLS.read_bytes())).encode(),
    }


def built_pages() -> Mapping[str, bytes]:
    """Return the pages of build/conformance: every requirement and every mutant, with reasons."""
    kills = markdown(json.loads(KILLS.read_bytes())).encode()
    return {**reports.matrix_pages(find([STORE])[0]), "kills.md": kills}


def _reasons() -> Mapping[str, str]:
    """Map names of implementations to links to their declared deviations."""
    links = {"sidekiq": "[appendix A](../../SPEC.md#appendix-a-where-sidekiq-itself-differs)"}
    for path in sorted(DRIVERS.glob("*/jobwire.deviations.toml")):
        settings = tomllib.loads((path.parent / "conformance.toml").read_text("utf-8"))
        link = f"../../{path.relative_to(ROOT)}"
        links[settings["implementation"]["name"]] = f"[{path.parent.name}]({link})"
    return links


def stale_pages() -> list[str]:
    """Return the pages that are out of date."""
    return [
        name
        for name, content in pages().items()
        if not (PAGES / name).exists() or (PAGES / name).read_bytes() != content
    ]
