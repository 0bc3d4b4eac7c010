"""The matrix as an HTML page: claims, requirements, gaps and loss maps, with filters and links."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby

from jobwire_conformance import data
from jobwire_conformance.data import ROBUST
from jobwire_conformance.reports.claim_status import bundles
from jobwire_conformance.reports.lossmap import FATES, rows
from jobwire_conformance.reports.matrix import SYMBOLS, Matrix
from jobwire_conformance.reports.matrix_gaps import implementations, link_to_gap, nearest
from jobwire_conformance.reports.page import cell, inline, page, pill, tag

__all__ = ["matrix_html"]

_CLASSES = {"met": "met", "as-far": "info", "failed": "failed", "other-generation": "unclaimed"}
_VIEWS: Mapping[str, str] = {
    "not-met": "not met somewhere",
    "fail": "fails somewhere, undeclared",
    "deviation": "a deviation somewhere",
    "warn": "a recommendation ignored somewhere",
    "missing": "not checked somewhere",
}
"""The choices of the filter of statuses. matrix.js knows the statuses of each."""


def matrix_html(matrix: Matrix) -> str:
    """Return the page."""
    body = [
        "<h1>Conformance matrix</h1>",
        "<p>Implementations, and the parts that each meets of jobwire "
        f"{inline(data.spec_version())}, the protocol that Sidekiq speaks in Redis. "
        "Each sign links to its reason, and every row, column and cell has an address of its own."
        "</p>",
        '<nav aria-label="Contents"><ul><li><a href="#claims">Claims</a></li>',
        '<li><a href="#requirements">Requirements</a></li>',
        '<li><a href="#green">Nearest to green</a></li>',
        '<li><a href="#implementations">Implementations</a></li>',
        '<li><a href="#losses">Loss maps</a></li></ul></nav>',
        *_legend(),
        *_filters(matrix),
        *_claims(matrix),
        *_requirements(matrix),
        *nearest(matrix),
        *implementations(matrix),
        *_losses(matrix),
    ]
    return page("Conformance matrix", body, own="matrix", wide=True)


def _legend() -> Iterator[str]:
    yield "<details><summary>Meaning of the signs</summary><ul>"
    seen = set()
    for status, (sign, meaning) in SYMBOLS.items():
        if (sign, meaning) not in seen:
            seen.add((sign, meaning))
            yield f"<li>{pill(_CLASSES.get(status, status), sign)} {inline(meaning)}</li>"
    yield "</ul></details>"


def _filters(matrix: Matrix) -> Iterator[str]:
    """Yield the form. It is hidden in a browser without scripts, because it needs one."""
    columns = matrix.columns
    profiles = dict.fromkeys(claim.removesuffix(ROBUST) for claim in matrix.claims)
    choices: Mapping[str, Iterable[tuple[str, str]]] = {
        "claim": ((profile, profile) for profile in profiles),
        "level": (("interop", "interop"), ("robust", "robust")),
        "generation": (
            (generation, generation)
            for generation in reversed(data.GENERATIONS)
            if any(column.generation == generation for column in columns)
        ),
        "implementation": ((group.name, group.name) for group in matrix.groups),
        "language": (
            (name, name) for name in sorted({column.language for column in columns} - {""})
        ),
        "status": _VIEWS.items(),
    }
    yield '<form class="find" id="filter" hidden role="search" aria-label="Filter">'
    yield '<label>Words<input type="search" name="words" autocomplete="off"></label>'
    for name, options in choices.items():
        yield f'<label>{name.capitalize()}<select name="{name}"><option value="">any</option>'
        yield "".join(
            f'<option value="{inline(value, 100)}">{inline(words, 100)}</option>'
            for value, words in options
        )
        yield "</select></label>"
    yield '<button type="reset">Show all</button>'
    yield '<output aria-live="polite"></output>'
    yield '<p class="dim">The address of this page holds the filters: copy it to send a view.</p>'
    yield "</form>"


def _claims(matrix: Matrix) -> Iterator[str]:
    """Yield the table of implementations by claim; a claim has a column for each level."""
    claims = matrix.claims
    profiles = [claim.removesuffix(ROBUST) for claim in claims]
    yield '<h2 id="claims">Claims</h2>'
    yield (
        "<p>Left, i: the interop requirements, which genuine Sidekiq meets. Right, r: the robust "
        "ones, which ask for more.</p>"
    )
    yield '<div class="scroll both" tabindex="0" role="region" aria-label="Claims">'
    yield '<table class="matrix" id="of-claims"><thead><tr>'
    yield '<th scope="col" rowspan="3" class="corner">Implementation</th>'
    for role, of in groupby(profiles, key=lambda profile: profile.partition("/")[0]):
        yield f'<th scope="colgroup" colspan="{len([*of])}" class="first">{role}</th>'
    yield '<th scope="col" rowspan="3" class="first">Bundles met</th></tr><tr>'
    for profile, of in groupby(profiles):
        name = profile.partition("/")[2]
        yield f'<th scope="colgroup" colspan="{len([*of])}" class="first">{name}</th>'
    yield "</tr><tr>"
    for claim, profile in zip(claims, profiles, strict=True):
        level = data.level_of(claim)
        first = ' class="first"' if claim == profile else ""
        yield (
            f'<th scope="col" id="{claim}" data-claim="{profile}" data-level="{level}"{first}>'
            f'<a href="#{claim}" title="{claim}, {level}"><span aria-hidden="true">{level[0]}'
            f'</span><span class="said">{claim}, {level}</span></a></th>'
        )
    yield "</tr></thead>"
    numbers = {id(column): number for number, column in enumerate(matrix.columns)}
    for group in matrix.groups:
        yield "<tbody>"
        for place, column in enumerate(group.columns):
            number = numbers[id(column)]
            anchor = matrix.anchors[number]
            cells = [
                _cell(
                    column.claim(claim),
                    link_to_gap(anchor, column, claim),
                    anchor=f"{anchor}/{claim}",
                    first=claim == profile,
                )
                for claim, profile in zip(claims, profiles, strict=True)
            ]
            met = ", ".join(bundles(column.results)) or "none"
            yield (
                f'<tr data-column="{number}" class="{"" if place else "leads"}">'
                f'<th scope="row"><a href="#{anchor}"><span class="name">{inline(group.name, 60)} '
                f"</span>{inline(group.label(column), 60)}</a>"
                f"<small>{inline(column.generation)}, {inline(column.day)}</small></th>"
                f'{"".join(cells)}<td class="first words">{inline(met)}</td></tr>'
            )
        yield "</tbody>"
    yield "</table></div>"


def _requirements(matrix: Matrix) -> Iterator[str]:
    known = data.requirements()
    order = {id_: number for number, id_ in enumerate(known)}
    claims_of: dict[str, list[str]] = {}
    for claim in matrix.claims:
        for id_ in matrix.requirements(claim):
            claims_of.setdefault(id_, []).append(claim)
    ids = sorted(claims_of, key=lambda id_: (order.get(id_, len(order)), id_))
    yield '<h2 id="requirements">Requirements</h2>'
    yield '<div class="scroll both" tabindex="0" role="region" aria-label="Requirements">'
    yield '<table class="matrix" id="of-requirements"><thead><tr>'
    yield '<th scope="col" rowspan="2" class="corner">Requirement</th>'
    for group in matrix.groups:
        yield (
            f'<th scope="colgroup" colspan="{len(group.columns)}" class="first">'
            f"{_breakable(group.name)}</th>"
        )
    yield "</tr><tr>"
    firsts = []
    for group in matrix.groups:
        for place, column in enumerate(group.columns):
            firsts.append(place == 0)
            number = len(firsts) - 1
            yield (
                f'<th scope="col" data-column="{number}"{"" if place else " class=first"}>'
                f'<a href="#{matrix.anchors[number]}">{_breakable(group.label(column))}</a>'
                f'<small title="generation {column.generation}, checked {column.day}">'
                f"{column.generation}<br>{column.day[2:]}</small></th>"
            )
    yield "</tr></thead>"
    for _, section in groupby(ids, key=lambda id_: id_.rpartition("-")[0]):
        yield "<tbody>"
        for id_ in section:
            yield _requirement(matrix, id_, claims_of[id_], firsts)
        yield "</tbody>"
    yield "</table></div>"
    unchecked = {claim: ids for claim in matrix.claims if (ids := matrix.unchecked(claim))}
    if unchecked:
        yield "<details><summary>Not checked for a claim yet</summary><ul>"
        for claim, ids in unchecked.items():
            yield f"<li>{inline(claim)}: {', '.join(ids)}</li>"
        yield "</ul></details>"


def _requirement(matrix: Matrix, id_: str, claims: Sequence[str], firsts: Sequence[bool]) -> str:
    requirement = data.requirements().get(id_)
    text = requirement.text if requirement else "This version of the specification lacks it."
    gone = requirement is None or requirement.retired
    small = "not in this version" if gone or requirement is None else requirement.keyword
    level = requirement.level if requirement else ""
    profiles = dict.fromkeys(claim.removesuffix(ROBUST) for claim in claims)
    cells = []
    for column, anchor, first in zip(matrix.columns, matrix.anchors, firsts, strict=True):
        verdicts = column.cells(id_)
        if not verdicts:
            cells.append(_cell("unclaimed", "", anchor=f"{anchor}/{id_}", first=first))
            continue
        claim, (status, note) = next(iter(verdicts.items()))
        place = claim if id_ in column.failing(claim) else status
        link = f"{anchor}/{place}/{id_}" if note else ""
        why = note.why if note else ""
        cells.append(_cell(status, link, why, anchor=f"{anchor}/{id_}", first=first))
    lines = "\n".join(inline(line, 4000) for line in text.splitlines())
    words = inline(f"{id_} {' '.join(claims)} {text}".lower(), 3000)
    return (
        f'<tr id="{inline(id_)}" data-words="{words}" data-claims="{" ".join(profiles)}" '
        f'data-level="{level}"><th scope="row"><details><summary><a href="#{inline(id_)}">'
        f"{inline(id_)}</a> <small>{inline(small)}</small></summary>"
        f'<div class="text" tabindex="0">{lines}\n<span class="dim">{", ".join(claims)}</span>'
        f"</div></details></th>{''.join(cells)}</tr>"
    )


def _cell(status: str, link: str, why: str = "", *, anchor: str, first: bool) -> str:
    """Return a cell; it also holds the meaning of its sign as text, for screen readers."""
    sign, meaning = SYMBOLS[status]
    content = f'<span aria-hidden="true">{sign}</span><span class="said">{inline(meaning)}</span>'
    if link:
        content = f'<a href="#{inline(link)}">{content}</a>'
    more = {"title": why} if why else {}
    shown = cell(_CLASSES.get(status, status), content, id=anchor, **more)
    return shown.replace('class="', 'class="first ', 1) if first else shown


def _breakable(text: str) -> str:
    """Return a name that may be divided after each hyphen."""
    return "-<wbr>".join(inline(part, 40) for part in text.split("-"))


def _losses(matrix: Matrix) -> Iterator[str]:
    yield '<h2 id="losses">Loss maps</h2>'
    yield "<p>Fate of a job when its process was cut off, with the number of points.</p>"
    yield '<div class="cards">'
    for number, column in enumerate(matrix.columns):
        windows = rows(column.results)
        if not windows:
            continue
        yield f'<section data-column="{number}"><h3>{inline(column.title, 100)}</h3>'
        yield '<table><thead><tr><th scope="col">Window</th>'
        yield "".join(f'<th scope="col">{fate}</th>' for fate in FATES)
        yield "</tr></thead><tbody>"
        for row in windows:
            cells = [
                cell(fate if row.counts.get(fate) else "zero", str(row.counts.get(fate, 0)))
                for fate in FATES
            ]
            window = tag("th", inline(row.window), scope="row", title=row.meaning)
            yield f"<tr>{window}{''.join(cells)}</tr>"
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
    without = [column.title for column in matrix.columns if not rows(column.results)]
    if without:
        yield f'<p class="dim">No map: {", ".join(inline(title, 100) for title in without)}.</p>'
