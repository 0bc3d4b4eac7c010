"""The kill table for people: the mutants, the cases that kill them, and the survivors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from jobwire_conformance.mutation.kills import Kill, Table, obligations

__all__ = ["closing", "markdown"]


def closing(table: Table) -> str:
    """Return the totals as one line."""
    kills = table["mutants"]
    mutants = {kill["mutant"] for kill in kills}
    alive = {kill["mutant"] for kill in _alive(kills)}
    share = 100 * (len(mutants) - len(alive)) / max(1, len(mutants))
    total = f"{len(mutants) - len(alive)} of {len(mutants)} mutants are killed ({share:.1f} %)"
    if is_of_source(table):
        broken = {kill["requirement"] for kill in kills}
        return f"{total}; they break {len(broken)} requirements"
    tallies = obligations(kills).values()
    certain = sum(bool(tally.killed) and not tally.alive for tally in tallies)
    return f"{total}; {certain} of {len(tallies)} visible obligations have mutants, all killed"


def is_of_source(table: Table) -> bool:
    """Return whether a table is of mistakes in the source, not in the traffic."""
    return any("clause" in kill for kill in table["mutants"])


def markdown(table: Table) -> str:
    """Return the page."""
    return "\n".join(_lines(table)) + "\n"


def _lines(table: Table) -> Iterator[str]:
    kills = table["mutants"]
    yield from _head(table)
    yield from ("", "## Table", "", "| Requirement | Mutant | Killed by |", "| --- | --- | --- |")
    order = {id_: number for number, id_ in enumerate(obligations(kills))}
    for kill in sorted(kills, key=lambda k: (order.get(k["requirement"], 1 << 30), k["mutant"])):
        by = ", ".join(kill["by"]) or f"**{kill['fate']}**"
        clause = f" ({kill['clause']})" if "clause" in kill else ""
        yield f"| {kill['requirement']}{clause} | {kill['mutant']} | {by} |"


def _head(table: Table) -> Iterator[str]:
    about, kills = table["implementation"], table["mutants"]
    place = "source" if is_of_source(table) else "traffic"
    yield from (
        "# Mistakes that the suite finds",
        "",
        f"Made by `jobwire conform kills`, with one mistake at a time in the {place} of an",
        "implementation. A mutant survives if no check of its requirement fails.",
        "",
        f"{table['started'][:10]}: {about['name']} {about['version']}, specification "
        f"{table['spec']}, suite {table['suite']}, {table['server']}, "
        f"{table['seconds']:.0f} s. {closing(table)}.",
        "",
        "## Not found",
        "",
    )
    alive = [*_alive(kills)]
    for kill in alive:
        remark = f": {kill['said']}" if "said" in kill else ""
        yield f"- `{kill['mutant']}` for {kill['requirement']}: {kill['fate']}{remark}"
    without = (
        []
        if is_of_source(table)
        else [tally.id for tally in obligations(kills).values() if not tally.killed]
    )
    for id_ in without:
        yield f"- {id_} does not have a killed mutant"
    if not alive and not without:
        yield "None."


def _alive(kills: Sequence[Kill]) -> Iterator[Kill]:
    return (kill for kill in kills if kill["fate"] != "killed")
