"""The table of mistakes in sources, for people: the broken clauses, and those not noticed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TypedDict

from jobwire_conformance import data
from jobwire_conformance.mutation.kills import Kill, Table

__all__ = ["FirstTry", "section"]

_MEANING = """\
A figure of this table is not the share of *your* mistakes that the suite would find. Its authors
know these mistakes, and mended the checks until they noticed them. Before that, two people who had
written no check planted mistakes of their own: the suite of then found 108 of 166 in the source of
the reference and 44 of 72 in an implementation in Java. Their mistakes are among those below. The
page does say this: each clause in the table was broken in working code, and a check of that
requirement failed."""


_FIRST_TRIES = """\
The share of new mistakes is nearer to yours. It comes from runs of mistakes that no
check had met, before any check was mended for them. Those of the reference were written for areas
with few mistakes for each clause (environment, keys, payloads, pushes, errors, scripts, metrics,
iteration), from the specification and the source, and before the cases of these areas were read.
Their author knows how the suite works. Those of the Go sample were written with it, by an author
without knowledge of the cases. Each ran once, with cases of its requirement, and with all of them
if the first ones found nothing. Mistakes that turned out
to break no requirement are not counted."""


class FirstTry(TypedDict):
    """A run of mistakes that no check had met before."""

    day: str
    implementation: str
    mistakes: int
    missed: list[str]


def section(tables: Sequence[Table], first_tries: Sequence[FirstTry] = ()) -> str:
    """Return the part of the page about sources, for one table of each implementation."""
    return "\n".join(_lines(tables, first_tries)) + "\n"


def _lines(tables: Sequence[Table], first_tries: Sequence[FirstTry]) -> Iterator[str]:
    yield from (
        "## In the source",
        "",
        "`jobwire conform kills --source` makes a mistake in the source of an implementation: a",
        "patch of the reference, or a mistake that is built into the Go sample and turned on by a",
        "variable. It breaks one clause of a requirement and leaves everything else alone.",
        "",
    )
    if not tables:
        yield 'The whole table is not made yet: `make conformance ARGS="--only source"`.'
        return
    yield from (
        "| Implementation | Mistakes | Found | Requirements | Day | Server |",
        "| --- | --- | --- | --- | --- | --- |",
    )
    for table in tables:
        rows = table["mutants"]
        names, alive = {row["mutant"] for row in rows}, {row["mutant"] for row in _alive(rows)}
        about = table["implementation"]
        found = len(names) - len(alive)
        yield (
            f"| {about['name']} {about['version']} | {len(names)} | {found} "
            f"({100 * found / max(1, len(names)):.1f} %) | {len({r['requirement'] for r in rows})} "
            f"| {_days(table)} | {table['server']} |"
        )
    yield from ("", "### What these figures mean", "", *_MEANING.splitlines())
    if first_tries:
        yield from _new_mistakes(first_tries, tables)
    yield from ("", "### Not found", "")
    missed = [(table, row) for table in tables for row in _alive(table["mutants"])]
    for table, row in missed:
        yield (
            f"- {table['implementation']['name']}, `{row['mutant']}`, {row['requirement']} "
            f"({row['clause']}): {row.get('said') or 'no check fails'}"
        )
    if not missed:
        yield "None."
    yield from (
        "",
        "### Clauses",
        "",
        "Number of mistakes for each requirement, with the clauses that they break. Those in bold",
        "were not found.",
        "",
        "| Requirement | Mistakes | Clauses |",
        "| --- | --- | --- |",
    )
    for id_, rows in _by_requirement(tables).items():
        clauses: dict[str, bool] = {}
        for row in rows:
            clauses[row["clause"]] = clauses.get(row["clause"], False) or row["fate"] != "killed"
        shown = [f"**{text}**" if missed else text for text, missed in clauses.items()]
        yield f"| {id_} | {len(rows)} | {'; '.join(shown)} |".replace("\n", " ")


def _new_mistakes(tries: Sequence[FirstTry], tables: Sequence[Table]) -> Iterator[str]:
    alive = {
        (table["implementation"]["name"], row["mutant"])
        for table in tables
        for row in _alive(table["mutants"])
    }
    yield from ("", "### New mistakes", "", *_FIRST_TRIES.splitlines(), "")
    yield from (
        "| Implementation | Day | New mistakes | Found at the first try | Found now |",
        "| --- | --- | --- | --- | --- |",
    )
    for each in tries:
        number, missed = each["mistakes"], each["missed"]
        now = number - sum((each["implementation"], name) in alive for name in missed)
        yield (
            f"| {each['implementation']} | {each['day']} | {number} | {number - len(missed)} "
            f"({100 * (number - len(missed)) / number:.1f} %) | {now} |"
        )


def _by_requirement(tables: Sequence[Table]) -> Mapping[str, list[Kill]]:
    rows = [row for table in tables for row in table["mutants"]]
    found = {id_: [row for row in rows if row["requirement"] == id_] for id_ in data.requirements()}
    return {id_: of for id_, of in found.items() if of}


def _days(table: Table) -> str:
    """Return the day of a table's run, and those of later runs of some of its mutants."""
    later = Counter(row["day"] for row in table["mutants"] if "day" in row)
    return "; ".join(
        [table["started"][:10], *(f"{count} on {day}" for day, count in sorted(later.items()))]
    )


def _alive(rows: Sequence[Kill]) -> Iterator[Kill]:
    return (row for row in rows if row["fate"] != "killed")
