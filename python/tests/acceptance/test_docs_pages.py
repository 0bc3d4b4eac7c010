"""Every page of the documentation: all that it tells readers to type is typed in, in its order."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from harness.servers import Server
from tests.reader import Reader, unseen
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


def test_a_mistake_on_a_page_is_found(tmp_path: Path, server: Server) -> None:
    """A wrong name, a wrong output, an unknown command: each fails, and names its place."""
    for text, failure in {
        "```python\nx = 1\n```\n\n```python\nassert x == 2\n```\n": "page:6: .*AssertionError",
        "```python\nimport asyncio\nawait asyncio.sleep(0)\nno\n```\n": "name 'no'",
        "```python\n# m.py\nx = 1\n```\n\n```python\nimport m; assert m.x == 2\n```\n": "page:7",
        "```console\n$ echo one\ntwo\n```\n": "one",
        "```console\n$ jobwire nope\n```\n": "nope",
        "```text\nlog\n```\n": "started no worker",
    }.items():
        with (
            reader(tmp_path, server, is_configured=True) as person,
            pytest.raises(AssertionError, match=rf"(?s){failure}"),
        ):
            person.read(text, "page")


def test_a_line_that_the_page_shows_and_the_output_lacks_is_found() -> None:
    shown = (
        "... start jid=ea8dd9c66002e492ad476a12\n...\n... done jid=ea8dd9c66002e492ad476a12 ...\n"
    )
    start, _, done = shown.splitlines()
    output = "x start jid={0}\nwork\nz done jid={1} y\n"
    one, two = "0" * 24, "1" * 24
    actual: dict[str, str] = {}
    assert unseen(shown, output.format(one, one), actual) == []
    assert actual == {"ea8dd9c66002e492ad476a12": one}
    assert unseen(shown, output.format(one, two), {}) == [done]
    assert unseen(shown, output.format(two, one), actual) == [start]
    assert unseen(shown, output.format("no", "no"), {}) == [start, done]
