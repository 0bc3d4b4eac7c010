"""Matchers of cases against values."""

from __future__ import annotations

import base64
import json
import zlib

from jobwire_conformance.cases.match import Scope, matches
from jobwire_conformance.cases.values import plain
from tests.rows import over


def stored(*lines: str) -> str:
    """Return a backtrace as payloads hold it."""
    return base64.b64encode(zlib.compress(json.dumps(lines).encode())).decode()


@over(
    ("lines", "right"),
    [
        *((["a 1", "b"], True), (["a 0x7f2c", "b"], True), ([], False), (["a 1"], False)),
        *((["a 1", "b", "c"], False), (["b", "c"], False)),
    ],
)
def test_lines_are_the_first_of_another_backtrace(lines: list[str], right: bool) -> None:
    """[RETRY-22]"""
    scope = Scope(8, 0.0, bound={"all": stored("a 1", "b", "c"), "empty": stored()})
    for n in (2, -1):
        matcher = {"$": "lines", "n": n, "of": "all"}
        assert matches(matcher, plain(stored(*lines)), scope) is right
        assert not matches({**matcher, "of": "none"}, plain(stored(*lines)), scope)
        assert matches({**matcher, "of": "empty"}, plain(stored(*lines)), scope) is (not lines)
