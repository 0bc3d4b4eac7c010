"""The model of the reliable profile, without spin: its parts and its page."""

from __future__ import annotations

import re

from jobwire_conformance.spec.document import parts
from tests.model import page, plan
from tests.rows import over

PAGE = page.PAGE.read_text(encoding="utf-8")
SPEC = "\n".join(parts(plan.LUA.parent).values())
MAKE = "run .ci/release-check model --write"


def test_every_script_has_a_step_or_a_reason() -> None:
    """REL-1, REL-2, REL-4, SCHED-5, SCHED-9: the model has the scripts that lua/ has."""
    scripts = {path.stem for path in plan.LUA.glob("*.lua")}
    assert plan.modelled_scripts() | {*plan.NOT_MODELLED} == scripts
    assert not plan.modelled_scripts() & {*plan.NOT_MODELLED}


def test_a_step_names_requirements_of_its_script() -> None:
    steps = (plan.MODEL / "scripts.pml").read_text(encoding="utf-8")
    for name in plan.modelled_scripts():
        comment = re.search(rf"/\*((?:(?!\*/).)*)\*/\s+inline {name}_lua\(", steps, re.DOTALL)
        assert comment is not None, name
        cited = {*re.findall(r"[A-Z]+-\d+", comment[1])}
        header = (plan.LUA / f"{name}.lua").read_text(encoding="utf-8")
        assert cited
        assert cited <= {*re.findall(r"[A-Z]+-\d+", header)}, name


def test_every_planted_mistake_is_in_the_plan() -> None:
    names = [mistake.name for mistake in plan.MISTAKES]
    assert sorted(names) == sorted({*names})
    assert {*names} == plan.names_of_mistakes()


@over("mistake", plan.MISTAKES, ids=lambda mistake: mistake.name)
def test_a_mistake_breaks_a_requirement_and_a_property(mistake: plan.Mistake) -> None:
    assert mistake.found_by in plan.PROPERTIES
    assert f"**[{mistake.requirement}]**" in SPEC


def test_the_specification_names_the_states_of_the_model() -> None:
    """REL-8: the tables of section 19 and the definitions of the model have the same names."""
    worker = (plan.MODEL / "worker.pml").read_text(encoding="utf-8")
    states = re.findall(r"^#define ([A-Z]+) +\d+\b", worker, re.MULTILINE)
    section = SPEC.partition("**States.**")[2].partition("> **[")[0]
    rows = re.findall(r"^\| ([A-Z]+) \|", section, re.MULTILINE)
    assert sorted(rows) == sorted(states)
    assert len(rows) == 12


def test_every_property_is_in_the_model() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in plan.MODEL.glob("*.pml"))
    checked = {*re.findall(r"assert\((\w+)\)", text)} | {*re.findall(r"^ltl (\w+)", text, re.M)}
    assert checked == {*plan.PROPERTIES}


def test_the_page_is_that_of_this_model() -> None:
    for part in page.fixed_parts():
        assert part.strip() in PAGE, MAKE
    figures = page.numbers(PAGE)
    assert list(figures) == [each.title for each in plan.CONFIGURATIONS], MAKE
    assert all(states > 10_000 for states, _ in figures.values())
    rows = re.findall(r"\| `([A-Z_]+)` \| `(\w+)` \| \d+ \|$", PAGE, re.MULTILINE)
    assert rows == [(each.name, each.found_by) for each in plan.MISTAKES], MAKE
