"""tools.twins: asyncio modules that are generated from blocking ones."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tools import twins
from tools.twins import TWINS, Twin, TwinError, generate, main

SOURCE = '''\
"""Blocking."""

from types import SimpleNamespace as Box

__all__ = ["Reader"]


class Reader:
    """Ünicode before a call: the columns of the syntax tree count bytes."""

    def __init__(self, pages):
        self.redis = Box(run=pages.pop)

    def first(self):
        """Blocking."""
        return ("é", self.redis.run(0))

    def every(self):
        while page := self.redis.run(0):
            yield from (entry for entry in page if entry)

    def plain(self):
        return "Reader is not a name here"
'''
TWIN = Twin(
    source="reader.py",
    target="aio.py",
    names={"Reader": "AsyncReader"},
    awaited=frozenset(["self.redis.run"]),
    module_doc="Asyncio.",
    class_doc="From asyncio.",
)


def made() -> Any:
    names: dict[str, Any] = {}
    exec(generate(SOURCE, TWIN), names)
    return names


class Pages:
    """A stand-in for a server, which answers in the loop's next iteration."""

    def __init__(self, *pages: Any) -> None:
        self._pages = list(pages)

    async def pop(self, _: int) -> Any:
        await asyncio.sleep(0)
        return self._pages.pop(0)


def test_a_twin_awaits_and_is_otherwise_the_same() -> None:
    names = made()
    reader = names["AsyncReader"]
    assert (names["__all__"], names["__doc__"]) == (["AsyncReader"], "Asyncio.")
    assert (reader.__doc__, reader.first.__doc__) == ("From asyncio.", "Blocking.")
    assert reader(Pages()).plain() == "Reader is not a name here"

    async def use() -> tuple[Any, list[Any]]:
        opened = reader(Pages("one", [1, 0, 2], [3], []))
        first = await opened.first()
        entries: AsyncIterator[Any] = opened.every()
        return first, [entry async for entry in entries]

    assert asyncio.run(use()) == (("é", "one"), [1, 2, 3])


@pytest.mark.parametrize(
    "changed",
    [
        replace(TWIN, names={**TWIN.names, "vanished": "x"}),
        replace(TWIN, awaited=TWIN.awaited | {"self.vanished"}),
    ],
    ids=["name", "awaited"],
)
def test_an_entry_that_is_never_used_is_refused(changed: Twin) -> None:
    with pytest.raises(TwinError, match=r"reader\.py does not use (self\.)?vanished"):
        generate(SOURCE, changed)


@pytest.mark.process
def test_the_committed_twins_are_up_to_date(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--check"]) == 0, capsys.readouterr().out


@pytest.mark.process
def test_a_stale_twin_is_named_with_the_command_and_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for twin in TWINS:
        for path in (twin.source, twin.target):
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_bytes((twins.ROOT / path).read_bytes())
    stale = tmp_path / TWINS[0].target
    fresh = stale.read_text("utf-8")
    stale.write_text(fresh.replace("await ", "", 1), "utf-8")
    assert main(["--check"], tmp_path) == 1
    said = capsys.readouterr().out
    assert said.count("does not follow from") == 1
    assert TWINS[0].target in said
    assert twins.COMMAND in said
    assert main(["--write"], tmp_path) == 0
    assert stale.read_text("utf-8") == fresh
    assert main(["--check"], tmp_path) == 0


def test_other_arguments_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "--check" in capsys.readouterr().err
