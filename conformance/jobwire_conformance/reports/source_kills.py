"""The table of mistakes in sources, for people: the broken clauses, and those not noticed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from jobwire_conformance import data
from jobwire_conformance.mutation.kills import Kill, Table

__all__ = ["section"]

_MEANING = """\
A figure on this page is not the share of *your* mistakes that the suite would find. Its authors
know these mistakes, and mended the checks until they noticed them. Before that, two people who had
written no check planted mistakes of their own: the suite of then found 108 of 166 in the source of
the reference and 44 of 72 in an implementation in Java. Their mistakes are among those below. The
page does say this: each clause in the table was broken in working code, and a check of that
requirement failed."""


def section(tables: Sequence[Table]) -> str:
    """Return the part of the page about sources, for one table of each implementation."""
    return "\n".join(_lines(tables)) + "\n"


def _lines(tables: Sequence[Table]) -> Iterator[str]:
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
            f"| {table['started'][:10]} | {table['server']} |"
        )
    yield from ("", "### What these figures mean", "", *_MEANING.splitlines())
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


def _by_requirement(tables: Sequence[Table]) -> Mapping[str, list[Kill]]:
    rows = [row for table in tables for row in table["mutants"]]
    found = {id_: [row for row in rows if row["requirement"] == id_] for id_ in data.requirements()}
    return {id_: of for id_, of in found.items() if of}


def _alive(rows: Sequence[Kill]) -> Iterator[Kill]:
    return (row for row in rows if row["fate"] != "killed")
