"""The matrix and the loss maps as an HTML page with a search."""

from __future__ import annotations

from collections.abc import Iterator

from jobwire_conformance import data
from jobwire_conformance.reports.claim_status import bundles
from jobwire_conformance.reports.lossmap import FATES, rows
from jobwire_conformance.reports.matrix import SYMBOLS, Column, Matrix
from jobwire_conformance.reports.page import cell, inline, page, pill, tag

__all__ = ["matrix_html"]

# Each cell also holds the meaning of its sign as text, for screen readers.
_CLASSES = {"met": "met", "as-far": "info", "failed": "failed"}


def matrix_html(matrix: Matrix) -> str:
    """Return the page."""
    body = [
        "<h1>Conformance matrix</h1>",
        f"<p>Requirements of jobwire {inline(data.spec_version())}.</p>",
        '<nav aria-label="Contents"><ul><li><a href="#claims">Claims</a></li>',
        '<li><a href="#requirements">Requirements</a></li>',
        '<li><a href="#losses">Loss maps</a></li><li><a href="#why">Why not</a></li></ul></nav>',
        *_legend(),
        *_claims(matrix),
        *_requirements(matrix),
        *_losses(matrix),
        *_notes(matrix),
    ]
    return page("Conformance matrix", body, script=True, wide=True)


def _legend() -> Iterator[str]:
    yield "<details><summary>Meaning of the signs</summary><ul>"
    seen = set()
    for status, (sign, meaning) in SYMBOLS.items():
        if (sign, meaning) not in seen:
            seen.add((sign, meaning))
            yield f"<li>{pill(_CLASSES.get(status, status), sign)} {inline(meaning)}</li>"
    yield "</ul></details>"


def _head(matrix: Matrix, first: str) -> str:
    columns = "".join(f'<th scope="col">{_title(column)}</th>' for column in matrix.columns)
    return f'<thead><tr><th scope="col">{first}</th>{columns}</tr></thead>'


def _title(column: Column) -> str:
    results = column.results
    about = results["implementation"]
    spec = f"specification {results['spec']}"
    small = [
        about.get("variant", ""),
        f"generation {column.generation}",
        spec if column.current else f"another {spec}",
        f"suite {results['suite']}",
        column.day,
    ]
    return f"{inline(about['name'], 60)} {inline(about['version'], 40)}" + "".join(
        f"<small>{inline(text, 80)}</small>" for text in small if text
    )


def _claims(matrix: Matrix) -> Iterator[str]:
    yield '<h2 id="claims">Claims</h2>'
    yield '<div class="scroll" tabindex="0" role="region" aria-label="Claims">'
    yield f'<table class="matrix">{_head(matrix, "Claim")}<tbody>'
    for claim in matrix.claims:
        cells = [_cell(column.claim(claim), "") for column in matrix.columns]
        yield f'<tr><th scope="row" class="id">{inline(claim)}</th>{"".join(cells)}</tr>'
    bundled = [
        tag("td", "<br>".join(map(inline, bundles(column.results))) or "none")
        for column in matrix.columns
    ]
    yield f'<tr><th scope="row">Bundles</th>{"".join(bundled)}</tr>'
    yield "</tbody></table></div>"


def _requirements(matrix: Matrix) -> Iterator[str]:
    known = data.requirements()
    yield '<h2 id="requirements">Requirements</h2>'
    yield '<form class="find" data-list="list" hidden role="search">'
    yield '<label>Search<input type="search" name="words" autocomplete="off"></label>'
    yield '<label>Somewhere<select name="status"><option value="">any</option>'
    statuses = ("pass", "fail", "blocked", "flaky", "deviation", "stale", "warn", "info", "missing")
    yield "".join(f"<option>{status}</option>" for status in statuses)
    yield '</select></label><label>Claim<select name="claim"><option value="">any</option>'
    yield "".join(f"<option>{inline(claim)}</option>" for claim in matrix.claims)
    yield '</select></label><output aria-live="polite"></output></form>'
    yield '<div class="scroll" tabindex="0" role="region" aria-label="Requirements">'
    yield f'<table class="matrix">{_head(matrix, "Requirement")}<tbody id="list">'
    for claim in matrix.claims:
        span = len(matrix.columns) + 1
        yield f'<tr class="group"><th colspan="{span}" scope="rowgroup">{inline(claim)}</th></tr>'
        for id_ in matrix.requirements(claim):
            requirement = known.get(id_)
            text = requirement.text.partition("\n")[0] if requirement else ""
            verdicts = [column.cell(claim, id_) for column in matrix.columns]
            cells = [
                _cell(status, f"{number}-{note.number}" if note else "", note.why if note else "")
                for number, (status, note) in enumerate(verdicts)
            ]
            gone = requirement is None or requirement.retired
            small = "not in this version" if gone or requirement is None else requirement.keyword
            found_statuses = " ".join(sorted({status for status, _ in verdicts}))
            yield (
                f'<tr data-words="{inline(f"{id_} {claim} {text}".lower(), 3000)}" '
                f'data-status="{found_statuses}" data-claims="{inline(claim)}">'
                f'<th scope="row" class="id" title="{inline(text, 1000)}">{inline(id_)}'
                f"<small>{inline(small)}</small></th>{''.join(cells)}</tr>"
            )
    yield "</tbody></table></div>"
    for claim in matrix.claims:
        if unchecked := matrix.unchecked(claim):
            ids = ", ".join(unchecked)
            yield f'<p class="dim">{inline(claim)}, not checked for this claim yet: {ids}</p>'


def _cell(status: str, note: str, why: str = "") -> str:
    sign, meaning = SYMBOLS[status]
    content = f'<span aria-hidden="true">{sign}</span><span class="said">{inline(meaning)}</span>'
    if note:
        content = f'<a href="#n{note}">{content} {note.partition("-")[2]}</a>'
    return cell(_CLASSES.get(status, status), content, title=why or meaning)


def _losses(matrix: Matrix) -> Iterator[str]:
    yield '<h2 id="losses">Loss maps</h2>'
    yield "<p>Fate of a job when its process was cut off, with the number of points.</p>"
    yield '<div class="cards">'
    for column in matrix.columns:
        windows = rows(column.results)
        yield f"<section><h3>{_title(column)}</h3>"
        if not windows:
            yield '<p class="dim">No map.</p></section>'
            continue
        yield '<table><thead><tr><th scope="col">Window</th>'
        yield "".join(f'<th scope="col">{fate}</th>' for fate in FATES)
        yield "</tr></thead><tbody>"
        for row in windows:
            cells = [
                cell(fate if row.counts.get(fate) else "zero", str(row.counts.get(fate, 0)))
                for fate in FATES
            ]
            yield (
                f'<tr><th scope="row" title="{inline(row.meaning)}">{inline(row.window)}</th>'
                f"{''.join(cells)}</tr>"
            )
        yield "</tbody></table>"
        bad = [loss for row in windows for loss in row.points if loss["outcome"] != "kept"]
        if bad:
            yield "<ul>"
            for loss in bad:
                at = inline(f"{loss['case']}: cut off {loss['side']} {loss['point']}")
                yield f"<li>{pill(loss['outcome'])} {at}</li>"
            yield "</ul>"
        yield "</section>"
    yield "</div>"


def _notes(matrix: Matrix) -> Iterator[str]:
    yield '<h2 id="why">Requirements that are not met</h2>'
    if not any(column.notes for column in matrix.columns):
        yield "<p>Everything that was checked holds.</p>"
    for number, column in enumerate(matrix.columns):
        if column.notes:
            yield f"<h3>{inline(column.title)}</h3><ol>"
            for (requirement, status), note in column.notes.items():
                issue = f" ({inline(note.check['issue'])})" if "issue" in note.check else ""
                yield (
                    f'<li id="n{number}-{note.number}" value="{note.number}">{pill(status)} '
                    f"<strong>{inline(requirement)}</strong> {inline(note.check['case'])}: "
                    f"{inline(note.why, 1000)}{issue}</li>"
                )
            yield "</ol>"
