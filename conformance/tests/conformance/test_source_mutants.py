"""The mutants of the source: their lists, their places, the patched copies, and the runs."""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from harness.servers import valkey_program
from jobwire_conformance import config, data
from jobwire_conformance.cases import case as cases
from jobwire_conformance.config import Config
from jobwire_conformance.errors import SuiteFault, Usage
from jobwire_conformance.mutation import kills, source, syntax
from tests.conformance.suite import ROOT
from tests.rows import over

pytestmark = pytest.mark.process

REFERENCE = ROOT / "conformance" / "drivers" / "python" / "conformance.toml"
LISTS = sorted(data.source_mutants_directory().glob("*.json"))
GO_SAMPLE = ROOT / "conformance" / "drivers" / "go-sample"


@cache
def tree_of(file: str) -> ast.Module:
    return ast.parse((ROOT / file).read_text("utf-8"))


def test_every_mutant_has_its_place() -> None:
    """A run of the mutants takes too long for a change of one line; this shows what it would miss.

    A local variable may be renamed, and a file laid out anew, without a change of a mutant.
    """
    names = {case.name for case in cases.load()}
    go = "".join(path.read_text("utf-8") for path in GO_SAMPLE.rglob("*.go"))
    found = re.findall(r'mistake\.Made\("(unchecked-|[^"]+)', go)
    switch, listed = {*found}, set()
    faults = []
    for path in LISTS:
        for each in source.load_file(path):
            faults += [f"{each.mutant.name}: no case {n}" for n in {*each.mutant.cases} - names]
            listed |= {*each.mutant.environment.values()}
            for edit in each.patch:
                try:
                    if isinstance(edit, source.SyntaxEdit):
                        syntax.place(tree_of(edit.file), edit.function, edit.find, edit.put)
                    else:
                        edit.apply((ROOT / edit.file).read_text("utf-8"))
                except SuiteFault as fault:
                    faults.append(f"{each.mutant.name}: {edit.file} {fault}")
    assert faults == []
    # The rest of these names is that of a field.
    assert {re.sub("^unchecked-.*", "unchecked-", name) for name in listed} == switch


MODULE = """
LIMIT = 5

class Shop:
    def sell(self, goods, count):
        # a comment
        price = (goods
                 .price)
        if count > LIMIT:
            self.warn(count)
            price = price - 1
        for one in goods:
            self.send(one, price)
        return price * count
"""


@over(
    ("find", "put", "now"),
    [
        ("cost * number", "cost + number", "return price + count"),
        ("x > LIMIT", "x >= LIMIT", "if count >= LIMIT:"),
        ("p = g.price", "p = g.cost", "price = goods.cost"),
        ("self.warn(n)", "", "if count > LIMIT:\n            price = price - 1"),
        ("a = a - 1", "", "self.warn(count)\n        for"),
        ("self.warn(n)\n...", "", "if count > LIMIT:\n            pass"),
        ("if n > LIMIT: ...", "if n: ...", "if count:\n            self.warn(count)"),
        ("for o in g:\n  ...", "o = 1\n...", "one = 1\n        self.send(one, price)"),
    ],
)
def test_a_place_is_found_by_its_syntax(find: str, put: str, now: str) -> None:
    assert now in syntax.replaced(MODULE, "Shop.sell", find, put)


@over(
    ("function", "find", "put", "says"),
    [
        ("Shop.sell", "a - a", "a", "Shop.sell has 0 times, not once: 'a - a'"),
        ("Shop.sell", "a * b + 1", "6", "Shop.sell has 0 times"),
        ("Shop.sell", "p", "6", "times, not once: 'p'"),
        ("Shop.buy", "1", "2", "has no Shop.buy"),
        ("", "LIMIT = 6", "LIMIT = 7", "has 0 times"),
        ("Shop.sell", "p * c", "p * one", "one must be in 'p [*] c' as well"),
    ],
)
def test_a_place_that_is_not_there_once_is_refused(
    function: str, find: str, put: str, says: str
) -> None:
    with pytest.raises(SuiteFault, match=says):
        syntax.replaced(MODULE, function, find, put)


@pytest.fixture
def reference(own_python: None) -> Config:
    return config.load(REFERENCE)


@pytest.mark.matrix
def test_a_patched_copy_differs_in_the_patch_alone(reference: Config) -> None:
    (mutant,) = (m for m in source.load("jobwire") if m.mutant.name == "jitter-of-half-the-range")
    (edit,) = mutant.patch
    with source.patched(mutant.patch, reference) as variables:
        top = Path(variables["PYTHONPATH"].partition(":")[0]).parent
        changed = [
            str(path.relative_to(top))
            for path in sorted(top.rglob("*.py"))
            if path.read_bytes() != (ROOT / path.relative_to(top)).read_bytes()
        ]
        assert changed == [edit.file]
    assert not top.exists()


@pytest.mark.process  # copies the reference
@over(
    ("edit", "says"),
    [
        (source.TextEdit("lua/done.lua", "no such text", ""), "done.lua has 0 times, not once"),
        (source.SyntaxEdit("python/jobwire/errors.py", "X", "1", "2"), "errors.py has no X"),
        (source.TextEdit("SPEC.md", "a", "b"), "cannot change SPEC.md"),
    ],
)
def test_a_patch_that_does_not_fit_is_refused(reference: Config, edit: Any, says: str) -> None:
    with pytest.raises(SuiteFault, match=re.escape(says)), source.patched([edit], reference):
        pytest.fail("the patch was applied")


def test_an_implementation_without_mutants_is_told_so() -> None:
    with pytest.raises(Usage, match="no mutants of the source of 'other'"):
        source.load("other")


@pytest.mark.matrix
@pytest.mark.parametrize("fate", ["killed", "survived"])
def test_a_mutant_is_found_by_a_check_of_its_requirement(
    fate: kills.Fate, reference: Config
) -> None:
    """A patch that alters nothing has to survive, or every mutant would count as killed."""
    (mutant,) = (each for each in source.load("jobwire") if each.mutant.kills == ("PUSH-1",))
    if fate == "survived":
        same = "from __future__ import annotations"
        mutant = replace(mutant, patch=[source.SyntaxEdit(mutant.patch[0].file, "", same, same)])
    sources = source.Sources(reference, [mutant])
    table = kills.kill(
        reference, sources.mutants, cases.load(), program=valkey_program(), plant=sources.planted
    )
    sources.describe(table)
    (row,) = table["mutants"]
    assert (row["fate"], row["clause"]) == (fate, mutant.clause)
    assert bool(set(row["by"]) & {*mutant.mutant.cases}) is (fate == "killed")


def _table(day: str, fates: dict[str, kills.Fate]) -> kills.Table:
    rows: list[kills.Kill] = [
        {"mutant": name, "requirement": "PUSH-1", "fate": fate, "by": []}
        for name, fate in fates.items()
    ]
    return {
        "kills": 1,
        "spec": "1.0",
        "suite": "1",
        "server": "valkey 9",
        "implementation": {"name": "x", "version": "1"},
        "started": f"{day}T00:00:00Z",
        "seconds": 1.0,
        "mutants": rows,
    }


def test_a_later_run_replaces_its_own_rows_and_dates_them() -> None:
    kept = _table("2026-11-23", {"a": "survived", "b": "killed", "withdrawn": "killed"})
    later = _table("2026-11-25", {"a": "killed", "c": "survived"})
    table = kills.merged(kept, later, ["c", "b", "a"])
    assert [(r["mutant"], r["fate"], r.get("day")) for r in table["mutants"]] == [
        ("c", "survived", "2026-11-25"),
        ("b", "killed", None),
        ("a", "killed", "2026-11-25"),
    ]
    assert table["started"] == kept["started"]
