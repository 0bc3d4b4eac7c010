"""The matrix and the loss maps in Markdown. The same files always give the same pages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from jobwire_conformance import data
from jobwire_conformance.data import ROBUST
from jobwire_conformance.reports.claim_status import bundles
from jobwire_conformance.reports.gaps import gaps
from jobwire_conformance.reports.lossmap import FATES, WINDOWS, rows
from jobwire_conformance.reports.markdown import table
from jobwire_conformance.reports.matrix import SYMBOLS, Column, Group, Matrix
from jobwire_conformance.reports.text import cell
from jobwire_conformance.wire.text import one_line

__all__ = ["loss_maps_page", "matrix_page", "overview_page"]


def overview_page(matrix: Matrix, reasons: Mapping[str, str]) -> str:
    """Return a page with implementations, claims and numbers, without single requirements.

    Args:
        matrix: The results.
        reasons: Name of an implementation to a Markdown link to the reasons of its deviations.
    """
    numbers = [Counter(status for _, status in column.notes) for column in matrix.columns]
    statuses = [status for status in SYMBOLS if any(status in number for number in numbers)]
    lines = [*_head(matrix), "", "## Nearest to green", "", *_gaps(matrix)]
    lines += ["", "## Requirements that are not met", ""]
    lines += [
        "The number of requirements with each status. `make conformance ARGS=--pages` writes the",
        "whole matrix, requirement by implementation with the reasons, to `build/conformance`:",
        "`matrix.md`, and `matrix.html` with filters and links.",
        "",
        f"| {' | '.join(['Implementation', *statuses, 'Reasons'])} |",
        f"|{' --- |' * (len(statuses) + 2)}",
    ]
    for column, of in zip(matrix.columns, numbers, strict=True):
        if of:
            counts = [str(of[status]) for status in statuses]
            row = [cell(column.title), *counts, reasons.get(column.name, "")]
            lines += [f"| {' | '.join(row)} |"]
    if all(numbers):
        return "\n".join(lines) + "\n"
    without = [column.title for column, of in zip(matrix.columns, numbers, strict=True) if not of]
    return "\n".join([*lines, "", f"None: {', '.join(map(cell, without))}."]) + "\n"


def matrix_page(matrix: Matrix) -> str:
    """Return the page."""
    lines = _head(matrix)
    for claim in matrix.claims:
        lines += ["", f"## {claim}", "", *_requirements(matrix, claim)]
        if unchecked := matrix.unchecked(claim):
            lines += ["", f"Not checked for this claim yet: {', '.join(unchecked)}."]
    lines += ["", "## Requirements that are not met", ""]
    for column in matrix.columns:
        lines += [*_notes(column)]
    return "\n".join(lines).rstrip() + "\n"


def loss_maps_page(matrix: Matrix) -> str:
    """Return the page of loss maps."""
    lines = [
        "# Loss maps",
        "",
        "For each map the suite cut off the process of a job immediately before and after each",
        "command with an effect. The columns count the points at which the job was",
        "",
        *(f"- {fate}: {meaning}" for fate, meaning in FATES.items()),
    ]
    maps = [
        (column, {row.window: row for row in rows(column.results)}) for column in matrix.columns
    ]
    windows = sorted({window for _, of in maps for window in of})
    for window in windows:
        meaning = WINDOWS.get(window)
        lines += ["", f"## {window}{f': {meaning}' if meaning else ''}", ""]
        lines += table(
            ["Implementation", "Checked", *FATES],
            (
                [
                    column.title,
                    column.day,
                    *(str(of[window].counts.get(fate, 0)) for fate in FATES),
                ]
                for column, of in maps
                if window in of
            ),
        )
        bad = [
            [column.title, loss["case"], f"{loss['side']} {loss['point']}", loss["outcome"]]
            for column, of in maps
            if window in of
            for loss in of[window].points
            if loss["outcome"] != "kept"
        ]
        if bad:
            lines += ["", *table(["Implementation", "Case", "Cut off", "Fate"], bad)]
    without = [column.title for column, of in maps if not of]
    if without:
        lines += ["", f"No map: {', '.join(map(cell, without))}."]
    return "\n".join(lines) + "\n"


def _head(matrix: Matrix) -> list[str]:
    """Return the signs, the state of the claims, and the runs."""
    lines = ["# Conformance matrix", ""]
    lines += [
        f"Requirements of jobwire {data.spec_version()}. Each cell has the interop level of a",
        "claim first, and then the robust one.",
    ]
    lines += ["", "## Claims"]
    for title, profiles in _tables(matrix).items():
        lines += ["", f"### {title}", "", *_claims(matrix, profiles)]
    lines += ["", "### Signs", "", *_legend(), "", "## Runs", "", *_runs(matrix)]
    return lines


def _tables(matrix: Matrix) -> dict[str, list[str]]:
    """Return the profiles by the title of their table: one a role, and one for its annexes."""
    tables: dict[str, list[str]] = {}
    names = dict.fromkeys(claim.removesuffix(ROBUST) for claim in matrix.claims)
    for role, of in groupby(names, key=lambda profile: profile.partition("/")[0]):
        title = role.capitalize()
        tables.setdefault(f"{title}, annexes" if title in tables else title, []).extend(of)
    return tables


def _claims(matrix: Matrix, profiles: Sequence[str]) -> list[str]:
    """Return the table of the implementations that claim one of these profiles."""
    names = [profile.partition("/")[2] for profile in profiles]
    body = []
    for group in matrix.groups:
        name = group.name
        for column in group.columns:
            marks = [_marks(column, profile) for profile in profiles]
            if any(marks):
                body.append([name, group.label(column), column.generation, *marks])
                name = ""  # once for all of its rows
    return table(["Implementation", "Version", "Generation", *names], body)


def _marks(column: Column, profile: str) -> str:
    """Return the signs of both levels of a profile; nothing if none is claimed."""
    claims = [claim for claim in (profile, f"{profile}{ROBUST}") if claim in data.CLAIMS]
    marks = [column.claim(claim) for claim in claims]
    if all(mark == "unclaimed" for mark in marks):
        return ""
    return " ".join(SYMBOLS[mark][0] for mark in marks)


def _legend() -> list[str]:
    meanings: dict[str, list[str]] = {}
    for sign, meaning in SYMBOLS.values():
        if meaning not in meanings.setdefault(sign, []):
            meanings[sign].append(meaning)
    return table(["Sign", "Meaning"], ([sign, "; ".join(of)] for sign, of in meanings.items()))


def _runs(matrix: Matrix) -> list[str]:
    """Return the date, the versions and the command of each run."""
    head = ["Implementation", "Language", "Checked", "Specification", "Suite", "Server"]
    lines = table([*head, "Bundles"], map(_run, matrix.columns))
    ways = [way for group in matrix.groups if (way := _way(group))]
    return [*lines, "", "Where they live, and how the results were made:", "", *ways]


def _run(column: Column) -> Sequence[str]:
    results = column.results
    server = results["server"]
    return [
        column.title,
        column.language,
        column.day,
        results["spec"] if column.current else f"{results['spec']} (another one)",
        results["suite"],
        f"{server['name']} {server['version']}",
        ", ".join(bundles(results)),
    ]


def _way(group: Group) -> str:
    """Return the address of an implementation and the commands of its runs, as an item."""
    addresses = dict.fromkeys(filter(None, (column.address for column in group.columns)))
    commands = dict.fromkeys(
        filter(None, (column.results.get("command", "") for column in group.columns))
    )
    parts = [*(cell(text) for text in addresses), *(_code(text) for text in commands)]
    return f"- {cell(group.name)}: {', '.join(parts)}" if parts else ""


def _code(text: str) -> str:
    """Return a command in backquotes. It cannot end them."""
    shown = one_line(text, 400).replace("`", "'")
    return f"`{shown}`"


def _gaps(matrix: Matrix) -> list[str]:
    """Return the claims that are not met, with the requirements that each of them needs."""
    lines = [
        "The number of requirements that each claim still needs. One change may repair all that",
        "have the same reason.",
        "",
    ]
    body = []
    for column in matrix.columns:
        unmet = sorted(gaps([column]), key=lambda gap: len(gap.failing))
        if unmet:
            sizes = (f"{gap.claim} {len(gap.failing)}" for gap in unmet if gap.failing)
            body.append([column.title, ", ".join(sizes)])
    return [*lines, *table(["Implementation", "Claims"], body)]


def _requirements(matrix: Matrix, claim: str) -> list[str]:
    known = data.requirements()
    claiming = [number for number, column in enumerate(matrix.columns) if column.makes(claim)]

    def row(id_: str) -> Iterator[str]:
        requirement = known.get(id_)
        gone = requirement is None or requirement.retired
        yield f"{id_} (not in this version)" if gone else id_
        yield requirement.keyword if requirement else ""
        for number in claiming:
            status, note = matrix.columns[number].cell(claim, id_)
            yield SYMBOLS[status][0] + (f" {note.number}" if note else "")

    head = ["Requirement", "", *(matrix.anchors[number] for number in claiming)]
    return table(head, map(row, matrix.requirements(claim)))


def _notes(column: Column) -> Iterator[str]:
    if not column.notes:
        return
    yield f"### {cell(column.title)}"
    yield ""
    for (requirement, status), note in column.notes.items():
        issue = f" ({note.check['issue']})" if "issue" in note.check else ""
        yield f"{note.number}. {requirement}, {status}: {cell(note.why + issue)}"
    yield ""
