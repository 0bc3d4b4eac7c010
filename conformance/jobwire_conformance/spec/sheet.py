"""The sheet of a claim: its rules alone, with the terms, tables and examples that they use."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from jobwire_conformance import data
from jobwire_conformance.spec import annexes, record
from jobwire_conformance.spec.document import (
    CITATION,
    Document,
    Requirement,
    read_checkout,
)

__all__ = ["PAGE", "Sheet", "Sheets", "counts", "numbered", "outdated", "updated"]

PAGE = "SPEC.md"
WORDS_OF_PAGE = 450

_TERMS = "| Term | Meaning |"
_TYPES = "| Type | On the wire | Reading what others wrote |"
_NUMBERED = re.compile(r"\b(?:table|list) (\d+-\d+)", re.IGNORECASE)
_COUNTED = (
    *("client/core", "client/bulk", "client/scheduled", "worker/core", "worker/retry"),
    *("worker/monitoring", "worker/signals", "worker/reliable", "scheduler/core"),
)
_HEAD = "| Claim, for 8.1 | Rules | Of these robust | Pages |\n| --- | --- | --- | --- |\n"
_TABLE = re.compile(re.escape(_HEAD) + r"(?:\|.*\n)*")


@dataclass(frozen=True)
class Sheet:
    """All that one claim asks for.

    Attributes:
        claims: The claim with those that it requires.
        rules: The requirements in reading order; those of annexes come last.
        sections: The heading above each rule.
        checks: Id to the cases that check it.
        cases: The profiles for which each case runs.
    """

    claim: str
    generation: str
    claims: tuple[str, ...]
    rules: tuple[Requirement, ...]
    sections: Mapping[str, str]
    document: Document
    checks: Mapping[str, Sequence[str]]
    cases: Mapping[str, Sequence[str]]

    def markdown(self, *, examples: bool = False) -> str:
        """Return the sheet as Markdown, with the examples of its rules if asked for."""
        return "\n".join(self._lines(examples=examples)) + "\n"

    def _lines(self, *, examples: bool) -> Iterator[str]:
        robust = sum(rule.level == "robust" for rule in self.rules)
        yield f"# {self.claim}, generation {self.generation}"
        yield ""
        levels = f"{robust} of them robust" if robust else "all of them interop"
        version = self.document.version
        yield f"The {len(self.rules)} rules of this claim in jobwire {version}, {levels}."
        if len(self.claims) > 1:
            yield f"It includes {', '.join(each for each in self.claims if each != self.claim)}."
        if not robust and f"{self.claim}{data.ROBUST}" in data.CLAIMS:
            yield f"Refusals and other robust rules are in {self.claim}{data.ROBUST}."
        yield f"To check them: `jobwire conform init`, then `jobwire conform check {self.claim}`."
        yield "Cases that need another claim, or an offer like middleware, run only with it."
        shown: dict[str, str] = {}  # example to the rule under which it stands
        section = None
        for number, rule in enumerate(self.rules, 1):
            if self.sections[rule.id] != section:
                section = self.sections[rule.id]
                yield from ("", f"## {section}")
            yield from ("", f"**{number}. [{rule.id}]** · {rule.level} · test: {rule.test}", "")
            yield from rule.text.splitlines()
            if rule.why:
                yield from ("", f"Why: {rule.why}")
            if checked := [*filter(self._is_of_claim, self.checks.get(rule.id, ()))]:
                yield from ("", f"Cases: {', '.join(checked)}")
            for fence in self.document.examples(rule.id) if examples else ():
                if fence.text in shown:
                    yield from ("", f"Example: that of {shown[fence.text]}.")
                else:
                    yield from ("", f"```{fence.language}", fence.text, "```")
                shown.setdefault(fence.text, rule.id)
        yield from numbered(self.document, self.rules)
        yield from self._others()
        yield from ("", "## Types", "", *_table(self.document, _TYPES))
        yield from ("", "## Terms", "", *self._terms())

    def _is_of_claim(self, case: str) -> bool:
        """Return whether a case runs for this claim; `traffic` is the traffic of all of them."""
        profiles = {claim.removesuffix(data.ROBUST) for claim in self.claims}
        return case not in self.cases or not profiles.isdisjoint(self.cases[case])

    def _others(self) -> Iterator[str]:
        """Yield the rules of other claims that the rules of this one name, in short."""
        own = {rule.id for rule in self.rules}
        sentences = (rule.text.partition("\n\n")[0] for rule in self.rules)  # without tables
        texts = "\n".join([*sentences, *(rule.why or "" for rule in self.rules)])
        known = self.document.by_id
        named = [known[id_] for id_ in dict.fromkeys(CITATION.findall(texts)) if id_ in known]
        if others := [rule for rule in named if rule.id not in own]:
            yield from ("", "## Rules of other claims that these name", "")
        for rule in others:
            text = " ".join(rule.text.partition("\n\n")[0].split())
            yield f"- {rule.id} ({', '.join(rule.claims)}, {rule.level}): {text}"

    def _terms(self) -> Iterator[str]:
        head, rule, *rows = _table(self.document, _TERMS)
        text = " ".join(each.text for each in self.rules).lower()
        yield from (head, rule)
        for row in rows:
            words = row.strip("| ").partition(" | ")[0].split(", ")
            if any(re.search(rf"\b{re.escape(word)}", text) for word in words):
                yield row


class Sheets:
    """The sheets of the claims of one specification.

    Args:
        root: Its directory.
        checks: Id to the cases of the conformance suite that check it.
    """

    def __init__(self, root: Path, checks: Mapping[str, Sequence[str]] | None = None) -> None:
        self._document = read_checkout(root)
        self._checks = checks or {}
        cases = data.cases(data.cases_directory())
        self._cases = {name: raw["claims"] for name, (_, raw) in cases.items()}
        annexed = annexes.read_all(root)
        self._known = data.requirements_of(record.build(self._document, None, annexed))
        self._headings: dict[str, str] = {}
        sections = {each.number: each for each in self._document.sections}
        # A robust rule stands with the interop rules of its section.
        self._rules = sorted(self._document.requirements, key=lambda each: _order(each.section))
        for rule in self._rules:
            section = sections[rule.section.lstrip("R").partition(".")[0]]
            self._headings[rule.id] = f"{section.number} {section.title}"
        for annex in annexed:
            self._rules += annex.document.requirements
            self._headings |= {rule.id: annex.title for rule in annex.document.requirements}

    def of(self, claim: str, generation: str) -> Sheet:
        """Return the sheet of a claim of `data.CLAIMS` for a generation."""
        claims = tuple(data.complete([claim]))
        chosen = tuple(
            rule
            for rule in self._rules
            if rule.id in self._known
            and rule.retired is None
            and generation in rule.generations
            and not set(claims).isdisjoint(self._known[rule.id].claims)
        )
        return Sheet(
            claim=claim,
            generation=generation,
            claims=claims,
            rules=chosen,
            sections=self._headings,
            document=self._document,
            checks=self._checks,
            cases=self._cases,
        )


def numbered(document: Document, rules: Iterable[Requirement]) -> Iterator[str]:
    """Yield the numbered tables and lists that rules refer to."""
    lines = [line for _, line in document.outside]
    named = {number for rule in rules for number in _NUMBERED.findall(rule.text)}
    for place, line in enumerate(lines):
        caption = re.match(r"(?:Table|List) (\d+-\d+): ", line)
        if caption and caption[1] in named:
            start = next(n for n in range(place + 1, len(lines)) if not lines[n].strip())
            yield from ("", f"## {' '.join(lines[place:start])}", "")
            yield from takewhile(str.strip, lines[start + 1 :])


def counts(sheet: Sheet) -> tuple[int, int, int]:
    """Return the number of rules, of robust ones, and of pages without examples."""
    words = len(re.findall(r"\w+", sheet.markdown()))
    robust = sum(rule.level == "robust" for rule in sheet.rules)
    return len(sheet.rules), robust, -(-words // WORDS_OF_PAGE)


def updated(root: Path) -> str:
    """Return SPEC.md of a checkout with the table of claims."""
    text = (root / PAGE).read_text("utf-8")
    if _HEAD not in text:
        return text
    sheets = Sheets(root)
    rows = []
    for claim in _COUNTED:
        rules, robust, pages = counts(sheets.of(claim, data.DEFAULT_GENERATION))
        rows.append(f"| {claim} | {rules} | {robust} | {pages} |\n")
    return _TABLE.sub(lambda _: _HEAD + "".join(rows), text, count=1)


def outdated(root: Path) -> bool:
    """Return whether the table of claims in a checkout is out of date."""
    return updated(root) != (root / PAGE).read_text("utf-8")


def _order(section: str) -> tuple[float, bool]:
    return float(section.lstrip("R").partition(".")[0] or 0), section.startswith("R")


def _table(document: Document, head: str) -> list[str]:
    lines = [line for _, line in document.outside]
    return list(takewhile(lambda line: line.startswith("|"), lines[lines.index(head) :]))
