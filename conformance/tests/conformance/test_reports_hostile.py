"""Reports of hostile texts are safe to open."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

from jobwire_conformance.reports.results import TraceLine, load_trace
from tests.conformance import hostile
from tests.conformance.markup import Page


def test_nothing_foreign_becomes_markup(tmp_path: Path) -> None:
    for path in hostile.pages(tmp_path):
        page = Page(path)
        assert page.tags.count("script") == 1
        assert "img" not in page.tags
        assert not [name for name, _ in page.attributes if name.startswith("on")]
        links = [value for name, value in page.attributes if name in ("href", "src")]
        assert all(link.startswith(("#", "data:,")) for link in links)
        assert "<script>document.title" in page.text
        assert len(set(page.ids)) == len(page.ids)
        raw = path.read_text("utf-8")
        assert not [c for c in raw if not c.isprintable() and c not in "\n\t"]
        assert len(raw) < 1_000_000


def test_the_other_reports_stand_it_too(tmp_path: Path) -> None:
    hostile.pages(tmp_path)
    suite = ElementTree.parse(tmp_path / "junit.xml").getroot()
    assert len([*suite.iter("failure")]) == len(hostile.MARKS) + 1
    assert suite.get("failures") == str(len(hostile.MARKS) + 1)
    ElementTree.parse(tmp_path / "badge.svg")
    assert json.loads((tmp_path / "badge.json").read_text())["schemaVersion"] == 1
    for name in ("summary.md", "matrix.md", "loss-maps.md"):
        text = (tmp_path / name).read_text("utf-8")
        assert "<script" not in text
        assert not re.search(r"(?<!\\)\]\(", text)
        widths = set()
        for line in text.splitlines():
            if line.startswith("|"):
                widths.add(len(re.findall(r"(?<!\\)(?:\\\\)*\|", line)))
            elif widths:
                assert len(widths) == 1, (name, line)
                widths = set()


def test_half_a_surrogate_pair_comes_back(tmp_path: Path) -> None:
    hostile_results = hostile.write(tmp_path)
    assert any(check.get("seen") == hostile.SURROGATE for check in hostile_results["checks"])


def test_a_line_of_a_trace_keeps_its_bytes(tmp_path: Path) -> None:
    hostile.write(tmp_path)
    lines: list[TraceLine] = load_trace(tmp_path, hostile.results())
    assert lines[0].words[2] == bytes(range(256)) * 40
