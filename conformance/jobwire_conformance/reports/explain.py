"""What a requirement or a case is about: text, reason, cases that check it, mistakes it finds."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from jobwire_conformance import data
from jobwire_conformance.cases.case import Case
from jobwire_conformance.errors import SuiteFault, Usage
from jobwire_conformance.mutation import mutants
from jobwire_conformance.mutation.mutants import Mutant
from jobwire_conformance.run import run, traffic

__all__ = ["explained", "page"]

_BLOCK = re.compile(r"^> \*\*\[([A-Z]+-\d+)\]\*\*", re.MULTILINE)
_WIRE = re.compile(r"^```redis-cli\n(.*?)^```", re.MULTILINE | re.DOTALL)


def explained(what: str) -> dict[str, Any]:
    """Return everything about a requirement, by its id, or about a case, by its name.

    Raises:
        Usage: There is neither.
    """
    every = run.every_case()
    names = {case.name: case for case in every}
    if what in names:
        return _case(names[what])
    id_ = what.upper()
    if id_ in data.requirements():
        return _requirement(id_, every)
    near = difflib.get_close_matches(what, names, 3) + difflib.get_close_matches(
        id_, data.requirements(), 3
    )
    hint = f"; did you mean {', '.join(near)}?" if near else ";"
    raise Usage(
        f"{what!r} is neither a requirement of SPEC.md nor a case{hint} "
        "`jobwire conform trace` lists them all"
    )


def _requirement(id_: str, every: Sequence[Case]) -> dict[str, Any]:
    rule = data.requirements()[id_]
    about = _about()[id_]
    found: dict[str, Any] = {
        "requirement": id_,
        "keyword": rule.keyword,
        "claims": [*rule.claims],
        "since": rule.since,
        "retired": rule.retired,
        "test": rule.test,
        "text": rule.text,
        "why": about.get("Why"),
        "seen_in": about.get("Seen in"),
        "cases": [
            {"case": case.name, "title": case.title} for case in every if id_ in case.requirements
        ],
        "traffic": id_ in traffic.REQUIREMENTS,
        "mutants": [each.name for each in _mutants() if id_ in each.kills],
        "wire": about.get("wire"),
    }
    return found


def _case(case: Case) -> dict[str, Any]:
    known = data.requirements()
    return {
        "case": case.name,
        "title": case.title,
        "claims": [*case.claims],
        "generation": case.generation,
        "pace": case.pace,
        "seed": [*case.seed],
        "steps": [*case.steps],
        "crash": case.crash,
        "checks": [
            {"requirement": each, "keyword": known[each].keyword, "text": known[each].text}
            for each in case.requirements
        ],
        "mutants": [each.name for each in _mutants() if case.name in each.cases],
    }


@cache
def _mutants() -> Sequence[Mutant]:
    return mutants.load()


@cache
def _about() -> Mapping[str, Mapping[str, str]]:
    """Return of each requirement what SPEC.md says around it: Why, Seen in, an example."""
    try:
        text = data.specification()
    except OSError as error:
        raise SuiteFault(f"the suite is not whole: {error}") from None
    found: dict[str, dict[str, str]] = {}
    for section in re.split(r"^(?=#{2,4} )", text, flags=re.MULTILINE):
        example = _WIRE.search(section)
        places = [*_BLOCK.finditer(section)]
        for number, place in enumerate(places):
            end = places[number + 1].start() if number + 1 < len(places) else len(section)
            about = found.setdefault(place[1], {})
            for paragraph in section[place.start() : end].split("\n\n"):
                name, colon, rest = paragraph.partition(": ")
                if colon and name in ("Why", "Seen in"):
                    about[name] = " ".join(rest.split())
            if example:
                about["wire"] = example[1].rstrip()
    return found


def page(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield the same for people, line by line."""
    yield from _requirement_page(found) if "requirement" in found else _case_page(found)


def _requirement_page(found: Mapping[str, Any]) -> Iterator[str]:
    state = ", withdrawn" if found["retired"] else ""
    yield f"[{found['requirement']}] {', '.join(found['claims'])}, since {found['since']}{state}"
    yield ""
    yield from (f"  {line}" for line in found["text"].splitlines())
    for name, title in (("why", "Why"), ("seen_in", "Seen in")):
        if found[name]:
            yield f"\n{title}: {found[name]}"
    if found["test"].startswith("none"):
        yield f"\nNot visible from outside: {found['test'].removeprefix('none').strip(' ()')}"
    elif found["cases"] or found["traffic"]:
        yield "\nChecked by:"
        yield from (f"  {each['case']:24} {each['title']}" for each in found["cases"])
        if found["traffic"]:
            yield f"  {traffic.NAME:24} Whatever passes in any case"
    else:
        yield "\nNo case checks it yet."
    if found["mutants"]:
        yield "\nMistakes that its checks find (--mutant):"
        yield from (f"  {each}" for each in found["mutants"])
    if found["wire"]:
        yield "\nOn the wire, in this section of SPEC.md:"
        yield from (f"  {line}" for line in found["wire"].splitlines())


def _case_page(found: Mapping[str, Any]) -> Iterator[str]:
    yield f"{found['case']}: {found['title']}"
    only = f", generation {found['generation']} only" if found["generation"] else ""
    pace = f", waits for the {found['pace']}" if found["pace"] else ""
    yield f"\nCounts for {', '.join(found['claims'])}{only}{pace}"
    for part in ("seed", "steps"):
        if found[part]:
            yield f"\n{part.capitalize()}:"
            for number, step in enumerate(found[part], 1):
                yield f"  {number}. {json.dumps(step, ensure_ascii=False)[:400]}"
    if found["crash"]:
        crash = found["crash"]
        yield (
            f"\nThen once for each effect of {crash['process']}, cut off "
            f"{' and '.join(crash['side'])} it: {json.dumps(crash['check'], ensure_ascii=False)}"
        )
    yield "\nChecks:"
    for check in found["checks"]:
        text = check["text"].splitlines()[0]
        yield f"  {check['requirement']:9} {text}"
    if found["mutants"]:
        yield f"\nMistakes that it is tried with: {', '.join(found['mutants'])}"
    yield f"\nAgain, with its wire log: jobwire conform replay {found['case']}"
