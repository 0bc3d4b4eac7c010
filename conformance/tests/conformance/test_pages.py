"""The pages of docs/conformance, and the longer ones in the build."""

from __future__ import annotations

import re

import pytest

from jobwire_conformance import data
from jobwire_conformance.reports.matrix import find
from tests.conformance.pages import (
    SPECIFICATION,
    STORE,
    built_pages,
    pages,
    specification,
    stale_pages,
)

pytestmark = pytest.mark.process


def test_the_pages_in_docs_are_made_from_what_is_kept() -> None:
    assert stale_pages() == [], "bring them up to date with: make conformance ARGS=--pages"


def test_appendix_a_has_only_robust_requirements_and_leaves_the_rest_of_the_text() -> None:
    """Genuine Sidekiq meets every interop requirement of its generation."""
    text, kept = specification().decode(), SPECIFICATION.read_text("utf-8")
    table = re.findall(r"^\| ([A-Z]+-\d+) \| [0-9., ]+ \|$", text, re.MULTILINE)
    assert len(table) > 20
    assert {data.requirements()[id_].level for id_ in table} == {"robust"}
    assert re.findall("^## .*", text, re.MULTILINE) == re.findall("^## .*", kept, re.MULTILINE)
    assert "## Appendix C" in text


def test_the_pages_in_build_have_every_requirement() -> None:
    """The pages of docs/conformance show only the numbers."""
    built, kept = built_pages(), pages()
    matrix = find([STORE])[0]
    for claim in matrix.claims:
        for id_ in matrix.requirements(claim):
            assert f"\n| {id_} |" in built["matrix.md"].decode()
            assert f"\n| {id_} |" not in kept["matrix.md"].decode()
    for column in matrix.columns:
        for (id_, status), note in column.notes.items():
            assert f"\n{note.number}. {id_}, {status}: " in built["matrix.md"].decode()
