"""The matrix and the loss maps in Markdown. The same files always give the same pages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from jobwire_conformance import data
from jobwire_conformance.reports.claim_status import bundles
from jobwire_conformance.reports.lossmap import FATES, WINDOWS, rows
from jobwire_conformance.reports.markdown import table
from jobwire_conformance.reports.matrix import SYMBOLS, Column, Matrix
from jobwire_conformance.reports.text import cell

__all__ = ["loss_maps_page", "matrix_page", "overview_page"]


def overview_page(matrix: Matrix, reasons: Mapping[str, str]) -> str:
    """Return a page with implementations, claims and numbers, without single requirements.

    Args:
        matrix: The results.
        reasons: Name of an implementation to a Markdown link to the reasons of its deviations.
    """
    numbers = [Counter(status for _, status in column.notes) for column in matrix.columns]
    statuses = [status for status in SYMBOLS if any(status in number for number in numbers)]
    lines = [*_head(matrix), "", "## Requirements that are not met", ""]
    lines += [
        "The number of requirements with each status. `make conformance ARGS=--pages` writes the",
        "whole matrix, requirement by implementation with the reasons, to `build/conformance`:",
        "`matrix.md` and `matrix.html`.",
        "",
        f"| {' | '.join(['Implementation', *statuses, 'Reasons'])} |",
        f"|{' --- |' * (len(statuses) + 2)}",
    ]
    for column, of in zip(matrix.columns, numbers, strict=True):
        link = reasons.get(column.results["implementation"]["name"], "") if of else ""
        counts = [str(of[status]) for status in statuses]
        lines += [f"| {' | '.join([cell(column.title), *counts, link])} |"]
    return "\n".join(lines) + "\n"


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
    """Return the signs, the implementations, and the state of their claims."""
    lines = ["# Conformance matrix", ""]
    lines += [f"Requirements of jobwire {data.spec_version()}. Meaning of the signs:", ""]
    lines += _legend()
    lines += ["", "## Implementations", "", *_implementations(matrix), "", "## Claims", ""]
    return lines + table(
        ["Claim", *(column.title for column in matrix.columns)],
        (
            [claim, *(SYMBOLS[column.claim(claim)][0] for column in matrix.columns)]
            for claim in matrix.claims
        ),
    )


def _legend() -> list[str]:
    meanings: dict[str, list[str]] = {}
    for sign, meaning in SYMBOLS.values():
        if meaning not in meanings.setdefault(sign, []):
            meanings[sign].append(meaning)
    return table(["Sign", "Meaning"], ([sign, "; ".join(of)] for sign, of in meanings.items()))


def _implementations(matrix: Matrix) -> list[str]:
    head = ["Implementation", "Language", "Generation", "Specification", "Suite", "Server"]
    head += ["Checked", "Bundles"]

    def row(column: Column) -> Sequence[str]:
        results = column.results
        server = results["server"]
        return [
            column.title,
            results["implementation"].get("language", ""),
            column.generation,
            results["spec"] if column.current else f"{results['spec']} (another one)",
            results["suite"],
            f"{server['name']} {server['version']}",
            column.day,
            ", ".join(bundles(results)),
        ]

    return table(head, map(row, matrix.columns))


def _requirements(matrix: Matrix, claim: str) -> list[str]:
    known = data.requirements()

    def row(id_: str) -> Iterator[str]:
        requirement = known.get(id_)
        gone = requirement is None or requirement.retired
        yield f"{id_} (not in this version)" if gone else id_
        yield requirement.keyword if requirement else ""
        for column in matrix.columns:
            status, note = column.cell(claim, id_)
            yield SYMBOLS[status][0] + (f" {note.number}" if note else "")

    head = ["Requirement", "", *(column.title for column in matrix.columns)]
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
