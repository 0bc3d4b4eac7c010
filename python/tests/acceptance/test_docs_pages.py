"""Every page of the documentation: all that it tells readers to type is typed in, in its order."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from harness.servers import Server
from tests.reader import Reader
from tools.links import tracked
from tools.markdown import ROOT, blocks

# Pages that begin with `jobwire dev`, or say where the URL comes from. On the others, REDIS_URL
# names a server.
OWN_SERVER = (
    *("README.md", "docs/how-to/django.md", "docs/reference/configuration.md"),
    "docs/tutorial/ten-minutes.md",
)
TYPED = ("python", "console")
# The tests of the sample project run what it types, in the gate.
FOR_THE_RELEASE = ("docs/how-to/django.md",)


def typed() -> Iterator[str]:
    """Yield the pages with blocks to enter."""
    for page in tracked():
        kinds = {block.kind for block in blocks((ROOT / page).read_text()) if not block.reason}
        if kinds.intersection(TYPED):
            yield page


@contextmanager
def reader(directory: Path, server: Server, *, is_configured: bool) -> Iterator[Reader]:
    person = Reader(directory, server.url, is_configured=is_configured)
    try:
        yield person
    finally:
        person.end()


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=pytest.mark.full) if page in FOR_THE_RELEASE else page
        for page in typed()
    ],
)
def test_a_page_works_when_typed_in(page: str, tmp_path: Path, server: Server) -> None:
    with reader(tmp_path, server, is_configured=page not in OWN_SERVER) as person:
        entered = person.read((ROOT / page).read_text(), page)
    assert entered.intersection(TYPED)
