"""Parts of the page of the matrix: the nearest claims, and each implementation with its gaps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape

from jobwire_conformance.data import ROBUST
from jobwire_conformance.reports.claim_status import WORDS, bundles
from jobwire_conformance.reports.gaps import Failing, Gap, Reason, gaps
from jobwire_conformance.reports.matrix import Column, Matrix, Note
from jobwire_conformance.reports.page import facts, inline, pill

__all__ = ["implementations", "link_to_gap", "nearest"]

_MARKS: Mapping[str, str] = dict([("as-far", "met in another run"), *WORDS.items()])


def link_to_gap(anchor: str, column: Column, claim: str) -> str:
    """Return the address of the gap of a claim; empty if the claim is met or not made."""
    is_unmet = column.claim(claim) not in ("met", "as-far", "unclaimed")
    return f"{anchor}/{claim}/gap" if is_unmet else ""


def nearest(matrix: Matrix) -> Iterator[str]:
    """Yield the claims that are not met, those with the fewest failing requirements first."""
    yield '<h2 id="green">Nearest to green</h2>'
    found = gaps(matrix.columns)
    if not found:
        yield "<p>Every claim is met.</p>"
        return
    anchors = {id(c): a for c, a in zip(matrix.columns, matrix.anchors, strict=True)}
    numbers = {id(column): number for number, column in enumerate(matrix.columns)}
    yield (
        "<p>The claims that are not met. Those with the fewest failing requirements are first; "
        "one change may repair all requirements with the same reason.</p>"
    )
    yield '<div class="scroll short" tabindex="0" role="region" aria-label="Nearest claims">'
    yield '<table class="nearest"><thead><tr><th scope="col">Implementation</th>'
    yield '<th scope="col">Claim</th><th scope="col">It needs</th></tr></thead><tbody>'
    for gap in found:
        anchor = anchors[id(gap.column)]
        profile = gap.claim.removesuffix(ROBUST)
        level = "robust" if gap.claim.endswith(ROBUST) else "interop"
        yield (
            f'<tr data-column="{numbers[id(gap.column)]}" data-claims="{profile}" '
            f'data-level="{level}"><th scope="row">{inline(gap.column.title, 100)}</th>'
            f'<td><a href="#{anchor}/{gap.claim}/gap">{gap.claim}</a></td>'
            f"<td>{inline(gap.size, 1000)}</td></tr>"
        )
    yield "</tbody></table></div>"


def implementations(matrix: Matrix) -> Iterator[str]:
    """Yield each implementation: its address, its run, and its gaps."""
    yield '<h2 id="implementations">Implementations</h2>'
    number = 0
    for group in matrix.groups:
        for column in group.columns:
            anchor = matrix.anchors[number]
            yield (
                f'<article id="{anchor}" data-column="{number}" '
                f'data-implementation="{inline(group.name, 100)}" '
                f'data-language="{inline(column.language, 100)}" '
                f'data-generation="{inline(column.generation)}">'
            )
            yield f'<h3><a href="#{anchor}">{inline(column.title, 100)}</a></h3>'
            yield from _facts(column)
            yield from _gaps(column, anchor)
            yield from _remarks(column, anchor)
            yield "</article>"
            number += 1


def _facts(column: Column) -> Iterator[str]:
    results = column.results
    server = results["server"]
    spec = results["spec"] if column.current else f"{results['spec']} (another one)"
    met = bundles(results)
    pairs = [
        ("language", column.language),
        ("generation", column.generation),
        ("bundles met", ", ".join(met) or "none"),
        ("checked", column.day),
        ("specification", spec),
        ("suite", results["suite"]),
        ("server", f"{server['name']} {server['version']}"),
    ]
    yield facts([(name, text) for name, text in pairs if text])
    if address := column.address:
        # Foreign text becomes a link only if it cannot be a script.
        is_web = address.startswith(("https://", "http://"))
        shown = inline(address, 200)
        link = f'<a href="{escape(address)}" rel="noreferrer">{shown}</a>' if is_web else shown
        yield f"<p>Lives at {link}</p>"
    if command := results.get("command"):
        yield f'<p>Made with <span class="again">{inline(command, 600)}</span></p>'


def _gaps(column: Column, anchor: str) -> Iterator[str]:
    for gap in gaps([column]):
        name = f"{anchor}/{gap.claim}"
        yield (
            f'<details class="gap" id="{name}/gap" data-claims="{gap.claim.removesuffix(ROBUST)}">'
            f"<summary>{pill(gap.mark, _MARKS[gap.mark])} <strong>{gap.claim}</strong> "
            f"needs {inline(gap.size, 1000)}</summary>"
        )
        if gap.requires:
            links = ", ".join(f'<a href="#{anchor}/{c}/gap">{c}</a>' for c in gap.requires)
            yield f"<p>First: {links}</p>"
        if gap.unchecked:
            yield f"<p>Not checked in this run: {', '.join(map(inline, gap.unchecked))}</p>"
        if gap.reasons:
            yield "<ol>"
            for reason in gap.reasons:
                yield from _reason(reason, gap, name)
            yield "</ol>"
        yield "</details>"


def _reason(reason: Reason, gap: Gap, name: str) -> Iterator[str]:
    issue = f" ({inline(reason.issue)})" if reason.issue else ""
    yield f"<li>{inline(reason.text, 1000)}{issue}<ul>"
    for failing in reason.failing:
        yield _failing(failing, gap.column, name)
    yield "</ul></li>"


def _failing(failing: Failing, column: Column, name: str) -> str:
    id_ = inline(failing.requirement)
    message = f"<br>{inline(failing.message, 600)}" if failing.message else ""
    again = ""
    if failing.case:
        command = f"{column.results.get('again', 'jobwire conform replay')} {failing.case}"
        again = f'<br><span class="again">{inline(command, 600)}</span>'
    cases = inline(", ".join(failing.cases), 600)
    return (
        f'<li id="{name}/{id_}">{pill(failing.status)} <a href="#{id_}">{id_}</a> '
        f'<span class="dim">in {cases}</span>{message}{again}</li>'
    )


def _remarks(column: Column, anchor: str) -> Iterator[str]:
    """Yield the notes that keep no claim from being met, such as a warning."""
    shown = {
        (failing.requirement, failing.status) for gap in gaps([column]) for failing in gap.failing
    }
    notes = {key: note for key, note in column.notes.items() if key not in shown}
    if not notes:
        return
    yield f"<details><summary>{len(notes)} more remarks</summary><ul>"
    for (requirement, status), note in notes.items():
        yield _remark(requirement, status, note, f"{anchor}/{status}")
    yield "</ul></details>"


def _remark(requirement: str, status: str, note: Note, name: str) -> str:
    id_ = inline(requirement)
    return (
        f'<li id="{name}/{id_}">{pill(status)} <a href="#{id_}">{id_}</a> '
        f'<span class="dim">in {inline(note.check["case"])}</span><br>{inline(note.why, 1000)}</li>'
    )
