"""The explanation of a requirement or of a case."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from jobwire_conformance import data
from jobwire_conformance.cases.case import Case
from jobwire_conformance.errors import Usage
from jobwire_conformance.mutation import mutants
from jobwire_conformance.mutation.mutants import Mutant
from jobwire_conformance.run import run, traffic

__all__ = ["explained", "page"]


def explained(name: str) -> dict[str, Any]:
    """Return the explanation of the requirement with this id, or of the case with this name.

    Raises:
        Usage: Neither exists.
    """
    cases = run.every_case()
    names = {case.name: case for case in cases}
    if name in names:
        return _case(names[name])
    id_ = name.upper()
    if id_ in data.requirements():
        return _requirement(id_, cases)
    near = difflib.get_close_matches(name, names, 3) + difflib.get_close_matches(
        id_, data.requirements(), 3
    )
    hint = f"; did you mean {', '.join(near)}?" if near else ";"
    raise Usage(
        f"{name!r} is neither a requirement nor a case{hint} `jobwire conform trace` lists both"
    )


def _requirement(id_: str, cases: Sequence[Case]) -> dict[str, Any]:
    rule = data.requirements()[id_]
    explanation: dict[str, Any] = {
        "requirement": id_,
        "keyword": rule.keyword,
        "claims": [*rule.claims],
        "level": rule.level,
        "generations": [*rule.generations],
        "since": rule.since,
        "retired": rule.retired,
        "test": rule.test,
        "text": rule.text,
        "why": rule.why,
        "seen_in": rule.seen_in,
        "cases": [
            {"case": case.name, "title": case.title} for case in cases if id_ in case.requirements
        ],
        "traffic": id_ in traffic.REQUIREMENTS,
        "mutants": [mutant.name for mutant in _mutants() if id_ in mutant.kills],
        "wire": rule.example or _of_section().get(id_),
    }
    return explanation


def _case(case: Case) -> dict[str, Any]:
    known = data.requirements()
    return {
        "case": case.name,
        "title": case.title,
        "claims": [*case.profiles],
        "generations": [*case.generations],
        "pace": case.pace,
        "seed": [*case.seed],
        "steps": [*case.steps],
        "crash": case.crash,
        "checks": [
            {"requirement": id_, "keyword": known[id_].keyword, "text": known[id_].text}
            for id_ in case.requirements
        ],
        "mutants": [mutant.name for mutant in _mutants() if case.name in mutant.cases],
    }


@cache
def _mutants() -> Sequence[Mutant]:
    return mutants.load()


@cache
def _of_section() -> Mapping[str, str]:
    """Return the first example of the section of each requirement, if it has one."""
    entries = data.record(data.shared_file(""))["requirements"]
    sections = {each["id"]: each["section"].lstrip("R") for each in entries}
    first: dict[str, str] = {}
    for each in entries:
        for example in each["examples"]:
            if example["language"] == "redis-cli":
                first.setdefault(sections[each["id"]], example["text"].rstrip())
    return {id_: first[section] for id_, section in sections.items() if section in first}


def page(explanation: Mapping[str, Any]) -> Iterator[str]:
    """Yield an explanation for people, line by line."""
    yield from (
        _requirement_page(explanation) if "requirement" in explanation else _case_page(explanation)
    )


def _requirement_page(explanation: Mapping[str, Any]) -> Iterator[str]:
    state = ", withdrawn" if explanation["retired"] else ""
    claims = ", ".join(explanation["claims"])
    generations = ", ".join(explanation["generations"])
    yield (
        f"[{explanation['requirement']}] {claims}, {explanation['level']}, generations "
        f"{generations}, since {explanation['since']}{state}"
    )
    yield ""
    yield from (f"  {line}" for line in explanation["text"].splitlines())
    for name, title in (("why", "Why"), ("seen_in", "Seen in")):
        if explanation[name]:
            yield f"\n{title}: {explanation[name]}"
    if explanation["test"].startswith("none"):
        yield f"\nNot visible from outside: {explanation['test'].removeprefix('none').strip(' ()')}"
    elif explanation["cases"] or explanation["traffic"]:
        yield "\nChecked by:"
        yield from (f"  {case['case']:24} {case['title']}" for case in explanation["cases"])
        if explanation["traffic"]:
            yield f"  {traffic.NAME:24} The traffic of all cases"
    else:
        yield "\nNo case checks it yet."
    if explanation["mutants"]:
        yield "\nMistakes that its checks find (--mutant):"
        yield from (f"  {mutant}" for mutant in explanation["mutants"])
    if explanation["wire"]:
        yield "\nExample of commands, from this section of SPEC.md:"
        yield from (f"  {line}" for line in explanation["wire"].splitlines())


def _case_page(explanation: Mapping[str, Any]) -> Iterator[str]:
    yield f"{explanation['case']}: {explanation['title']}"
    generations = explanation["generations"]
    is_general = generations == [*data.GENERATIONS]
    only = "" if is_general else f", generation {' and '.join(generations)} only"
    pace = f", waits for the {explanation['pace']}" if explanation["pace"] else ""
    yield f"\nCounts for {', '.join(explanation['claims'])}{only}{pace}"
    for part in ("seed", "steps"):
        if explanation[part]:
            yield f"\n{part.capitalize()}:"
            for number, step in enumerate(explanation[part], 1):
                yield f"  {number}. {json.dumps(step, ensure_ascii=False)[:400]}"
    if explanation["crash"]:
        crash = explanation["crash"]
        yield (
            f"\nThen one run for each effect of {crash['process']}, which is cut off "
            f"{' and '.join(crash['side'])} it: {json.dumps(crash['check'], ensure_ascii=False)}"
        )
    yield "\nChecks:"
    for check in explanation["checks"]:
        text = check["text"].splitlines()[0]
        yield f"  {check['requirement']:9} {text}"
    if explanation["mutants"]:
        yield f"\nMistakes that this case must find: {', '.join(explanation['mutants'])}"
    yield f"\nTo run it and see its commands: jobwire conform replay {explanation['case']}"
