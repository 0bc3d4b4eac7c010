"""The pages of docs/conformance, and the summaries that they are made from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from jobwire_conformance import reports
from jobwire_conformance.reports.kills import markdown
from jobwire_conformance.reports.matrix import find

__all__ = ["BUILT", "KILLS", "PAGES", "ROOT", "STORE", "pages", "stale_pages"]

ROOT = Path(__file__).resolve().parents[3]
STORE = ROOT / "conformance" / "reports"
BUILT = ROOT / "build" / "conformance"  # full reports, which are not committed
KILLS = ROOT / "conformance" / "kills.json"
PAGES = ROOT / "docs" / "conformance"
KEPT = ("matrix.md", "loss-maps.md")  # of the pages; the one in HTML is made when it is wanted


def pages() -> Mapping[str, bytes]:
    """Return what the pages have to be, by what is kept."""
    made = reports.matrix_pages(find([STORE])[0])
    found = {name: made[name] for name in KEPT}
    return {**found, "kills.md": markdown(json.loads(KILLS.read_bytes())).encode()}


def stale_pages() -> list[str]:
    """Return the pages that are not what they have to be."""
    return [
        name
        for name, content in pages().items()
        if not (PAGES / name).exists() or (PAGES / name).read_bytes() != content
    ]
