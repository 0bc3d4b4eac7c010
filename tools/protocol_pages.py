"""The pages of the protocol that are made from data: one a requirement, their index, the matrix.

Each function returns the text of a page. `pages` returns all of them with their places on the
site. The places begin with the version, so that an address stays valid: `1.0/RETRY-4.md`.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath

from jobwire_conformance import data
from jobwire_conformance.cases.portable import NotPortable, portable
from jobwire_conformance.reports.lossmap import WINDOWS
from jobwire_conformance.reports.matrix import SYMBOLS, Column
from jobwire_conformance.run.run import every_case
from jobwire_conformance.spec import sheet
from jobwire_conformance.spec.document import CITATION, Requirement, Section
from tools.markdown import ROOT
from tools.protocol_facts import Facts, Verdict, part_place

LOSS_MAPS = "conformance/loss-maps.md"
CLAIMS = "conformance/matrix.md"

_KINDS = {
    "schema": "Schemas",
    "script": "Scripts",
    "fixture": "Golden data",
    "code": "Code of the reference",
    "test": "Tests of the reference",
}
_SHOWN_AT_MOST = 100_000  # bytes of a file that the site shows as a page


def pages(facts: Facts, files: dict[str, str], *, with_pdf: bool) -> Iterator[tuple[str, str]]:
    """Yield place and text of each page.

    Args:
        facts: The facts about the requirements.
        files: Gets the files of the checkout that the pages link to, each with its place.
        with_pdf: Whether the site gets a PDF of the specification, which the index links to.
    """
    release = facts.release
    yield f"{release}/index.md", index_page(facts, with_pdf=with_pdf)
    yield f"{release}/matrix.md", matrix_page(facts)
    yield from claim_pages(facts)
    yield f"{release}/data-model.md", data_model_page(facts)
    for column in facts.matrix.columns:
        if column.name in _AUTHORS:
            yield f"{release}/authors/{column.name}.md", author_page(facts, column)
    neighbours = [None, *facts.requirements, None]
    for number, requirement in enumerate(facts.requirements):
        around = neighbours[number], neighbours[number + 2]
        yield (
            place_of(requirement.id, release),
            requirement_page(facts, requirement, around, files),
        )


def place_of(identifier: str, release: str) -> str:
    """Return the place of the page of a requirement."""
    return f"{release}/{identifier}.md"


def one_file(version: str, suffix: str) -> str:
    """Return the name of the file that holds the whole specification."""
    return f"jobwire-{version}.{suffix}"


# -- claims


def claim_pages(facts: Facts) -> Iterator[tuple[str, str]]:
    """Yield place and text of the sheet of each claim, and of their index."""
    rows = []
    sheets = sheet.Sheets(ROOT, facts.checks)
    for claim in data.CLAIMS:
        cells = []
        for generation in data.GENERATIONS:
            made = sheets.of(claim, generation)
            cells.append(str(len(made.rules)) if made.rules else "")
            if generation == data.DEFAULT_GENERATION:
                pages = sheet.counts(made)[2]
                yield f"{facts.release}/claims/{_claim_name(claim)}.md", _sheet_page(made)
        rows.append(f"| [{claim}]({_claim_name(claim)}.md) | {' | '.join(cells)} | {pages} |")
    text = [
        "# Claims",
        "",
        "Each claim has a sheet: its rules alone, those of the claims that it requires included, "
        "in reading order, with examples. The sheets are those of generation "
        f"{data.DEFAULT_GENERATION}. For another one: "
        "`jobwire spec claim client/core --generation 7.3 --examples`.",
        "",
        "| Claim | Rules for 6.4 | for 7.3 | for 8.1 | Pages without examples |",
        "| --- | --- | --- | --- | --- |",
        *rows,
    ]
    yield f"{facts.release}/claims/index.md", "\n".join(text) + "\n"


def _claim_name(claim: str) -> str:
    return claim.replace("/", "-").replace("+", "-")


def _sheet_page(made: sheet.Sheet) -> str:
    return made.markdown(examples=True).replace("```redis-cli", "```text")


# -- the data model, for readers who need no specification

_MODEL_CLAIMS = (
    *("client/core", "client/scheduled", "worker/core", "worker/retry", "worker/monitoring"),
    *("worker/signals", "scheduler/core"),
)
_OURS = re.compile(r"jobwire:|`jw_|LW-\d")
_MODEL_HEAD = """# Job format and Redis data model

How Sidekiq and compatible programs keep jobs in Redis: keys, fields, and the steps from a push to
the end of a job. Every statement was observed on Sidekiq 6.4.1, 7.3.2 and 8.1.7; where releases
differ, it names those that it is about. The page is made from [the specification](../{goal}), which
also has what a program should do beyond this.
"""


def data_model_page(facts: Facts) -> str:
    """Return the data model without the extensions of jobwire, as statements by subject."""
    rules: dict[str, Requirement] = {}
    sheets = sheet.Sheets(ROOT)
    for claim in _MODEL_CLAIMS:
        for generation in data.GENERATIONS:
            made = sheets.of(claim, generation)
            rules |= {rule.id: rule for rule in made.rules if rule.level == "interop"}
    lines = [_MODEL_HEAD.format(goal=part_place("SPEC.md"))]
    section = ""
    for rule in facts.requirements:
        if rule.id not in rules or _OURS.search(rule.text.partition("\n\n")[0]):
            continue
        title = facts.section(rule).title
        if title != section:
            section = title
            lines += ["", f"## {section}", ""]
        lines += _statement(rule)
    lines += sheet.numbered(facts.document, rules.values())
    return "\n".join(lines) + "\n"


def _statement(rule: Requirement) -> Iterator[str]:
    """Yield a rule without keyword and ids, with the releases that it is about."""
    text = re.sub(r"\*\*([A-Z ]+)\*\*", lambda match: match[1].lower(), rule.text)
    text = re.sub(rf" ?\((?:but )?(?:see )?{CITATION.pattern}[^()]*\)", "", text)
    sentence, _, table = text.partition("\n\n")
    releases = "" if len(rule.generations) == 3 else f" *({', '.join(rule.generations)})*"
    yield f"- {' '.join(sentence.split())}{releases}"
    if table:
        rows = [row for row in table.splitlines() if not _OURS.search(row)]
        if rows[0].endswith("| See |"):
            rows = [f"{row.rpartition('|')[0].rpartition(' |')[0]} |" for row in rows]
        yield from ("", *rows, "")


# -- for the authors of other clients

_AUTHORS = ("go-workers2", "node-sidekiq", "rusty-sidekiq")


def author_page(facts: Facts, column: Column) -> str:
    """Return what a client of others meets and misses, in words for its authors."""
    held: list[str] = []
    missed: dict[str, list[Requirement]] = {}
    for requirement in facts.requirements:
        verdict = facts.verdict(column, requirement)
        if verdict is not None and verdict.status == "pass":
            held.append(requirement.id)
        elif verdict is not None and verdict.status in ("fail", "deviation"):
            missed.setdefault(verdict.why, []).append(requirement)
    claims = " ".join(column.results["claims"])
    count = sum(map(len, missed.values()))
    lines = [
        f"# To the authors of {column.name}",
        "",
        f"{column.title} ({column.address}) was run on {column.results['started'][:10]} under a "
        "suite that compares a program with the wire protocol of genuine Sidekiq. The claims: "
        f"{claims.replace(' ', ', ')}.",
        "",
        f"**{len(held)} rules hold**: {', '.join(held)}.",
        "",
        f"**{count} rules do not hold**, for {len(missed)} reasons. The reasons with the most "
        "rules come first.",
        "",
    ]
    cases_of = _portable_cases(column.generation)
    for why, rules in sorted(missed.items(), key=lambda each: -len(each[1])):
        lines += [f"## {_reason(why[:1].upper() + why[1:])}", ""]
        for rule in rules:
            cases = [f"`{name}`" for name in cases_of.get(rule.id, ())]
            shown = f" Case: {', '.join(cases)}." if cases else ""
            lines.append(f"- {rule.id}: {inline(rule.text)}{shown}")
        lines.append("")
    lines += [
        "## To try it",
        "",
        "Each case is a JSON file that your own tests can run with a connection to Redis:",
        "",
        "```sh",
        "pip install 'jobwire[conformance]'",
        f"jobwire conform export cases {claims} --generation {column.generation}",
        "```",
        "",
        "[How to run them](../../how-to/portable-cases.md). If you find a rule wrong, [section "
        f"27.3](../../{part_place('SPEC.md')}#273-disputes-and-errata) says how to dispute it.",
    ]
    return "\n".join(lines) + "\n"


def _portable_cases(generation: str) -> dict[str, list[str]]:
    """Return id to the portable cases that check it."""
    found: dict[str, list[str]] = {}
    for case in every_case():
        try:
            steps = portable(case, generation)["steps"]
        except NotPortable:
            continue
        for id_ in dict.fromkeys(step["check"] for step in steps if "check" in step):
            found.setdefault(id_, []).append(case.name)
    return found


# -- one requirement


def requirement_page(
    facts: Facts,
    requirement: Requirement,
    around: tuple[Requirement | None, Requirement | None],
    files: dict[str, str],
) -> str:
    """Return the page of a requirement."""
    section = facts.section(requirement)
    lines = [f"# {requirement.id}", "", *_neighbours(around), "", *_facts_line(requirement), ""]
    if requirement.retired:
        lines += [f"Retired in version {requirement.retired}: nothing asks for it any more.", ""]
    lines += ["> " + line if line else ">" for line in requirement.text.splitlines()]
    lines += ["", *_reasons(requirement), *_places(facts, requirement, section)]
    lines += _examples(facts, requirement)
    lines += _checks(facts, requirement, files)
    lines += _results(facts, requirement)
    lines += _citations(facts, requirement, files)
    lines += ["", *_neighbours(around)]
    return "\n".join(lines) + "\n"


def _facts_line(requirement: Requirement) -> Iterator[str]:
    is_general = len(requirement.generations) == 3
    generations = "all generations" if is_general else ", ".join(requirement.generations)
    facts = [
        *(("profile", claim) for claim in requirement.claims),
        ("level", requirement.level),
        ("generation", generations),
        ("since", f"since {requirement.since}"),
        ("test", f"test: {requirement.test.partition(' ')[0]}"),
    ]
    pills = "".join(
        f'<span class="fact {kind} {text if kind == "level" else ""}">{html.escape(text)}</span> '
        for kind, text in facts
    )
    yield f'<p class="facts">{pills}</p>'


def _reasons(requirement: Requirement) -> Iterator[str]:
    for name, text in (("Why", requirement.why), ("Seen in", requirement.seen)):
        if text:
            yield from (f"**{name}:** {text}", "")
    reason = re.fullmatch(r"none \((.*)\)", requirement.test)
    if reason:
        yield from (f"**Not visible from outside:** {reason[1]}.", "")


def _places(facts: Facts, requirement: Requirement, section: Section) -> Iterator[str]:
    anchor = requirement.id.lower()
    page = f"../{facts.homes[requirement.id]}"
    links = [
        f"[Its place in the specification]({page}#{anchor}): "
        f"section [{section.number}, {_plain(section.title)}]({page}#{section.anchor})",
        f"[Its row in the matrix](matrix.md#{anchor})",
    ]
    for window in facts.windows(requirement):
        goal = _window_goal(window)
        mapped = f": [loss maps](../{LOSS_MAPS}#{goal})" if window in facts.mapped_windows else ""
        links.append(f"Loss window {window}, {WINDOWS[window]}{mapped}")
    yield from (f"- {link}" for link in links)


def _window_goal(window: str) -> str:
    title = f"{window}: {WINDOWS[window]}"
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def _examples(facts: Facts, requirement: Requirement) -> Iterator[str]:
    examples = facts.document.examples(requirement.id)
    if examples:
        yield from ("", "## Examples", "")
    for example in examples:
        language = "json" if example.language == "json" else "text"
        yield from (f"```{language}", example.text, "```", "")


def _checks(facts: Facts, requirement: Requirement, files: dict[str, str]) -> Iterator[str]:
    cases, mutants = facts.cases(requirement), facts.mutants(requirement)
    in_traffic = facts.is_judged_in_traffic(requirement)
    yield from ("", "## Checks of the suite", "")
    if not cases and not in_traffic:
        yield "No check of the suite looks at this requirement."
        return
    for name, title in cases:
        yield f"- {_case_link(facts, 'case', name, files)}: {_plain(title)}"
    if in_traffic:
        yield "- `traffic`: the commands of all cases"
    if mutants:
        links = ", ".join(_case_link(facts, "mutant", name, files) for name in mutants)
        count = "1 mistake" if len(mutants) == 1 else f"{len(mutants)} mistakes"
        yield from ("", f"The checks must find {count}: {links}.")


def _case_link(facts: Facts, kind: str, name: str, files: dict[str, str]) -> str:
    source = facts.places.get(f"{kind} {name}")
    return f"[`{name}`]({_file(source, files)})" if source else f"`{name}`"


def _file(source: str, files: dict[str, str]) -> str:
    """Return the link from a requirement to a file, which becomes a page."""
    files[source] = f"{source}.md"
    return f"../{source}.md"


def _results(facts: Facts, requirement: Requirement) -> Iterator[str]:
    verdicts = facts.verdicts(requirement)
    yield from ("", "## Results of implementations", "")
    if not verdicts:
        yield "No implementation was checked for it."
        return
    for status, text in (("pass", "It holds in"), ("missing", "It was not checked in")):
        titles = [_plain(each.column.title) for each in verdicts if each.status == status]
        if titles:
            yield from (f"{text}: {'; '.join(titles)}.", "")
    others = [each for each in verdicts if each.status not in ("pass", "missing")]
    if others:
        yield from ("| Implementation | Result | Reason |", "| --- | --- | --- |")
    for verdict in others:
        sign, meaning = SYMBOLS[verdict.status]
        meaning = meaning.partition(",")[0]
        yield f"| {_plain(verdict.column.title)} | {sign} {meaning} | {_reason(verdict.why)} |"
    if versions := facts.deviations(requirement):
        yield from ("", f"**Deviations of Sidekiq:** {', '.join(versions)}.")


def _reason(text: str) -> str:
    """Return a reason for a cell. Its backticks keep their meaning; all else is plain text."""
    shown = text if len(text) < 300 else f"{text[:300].rpartition(' ')[0]} …"
    parts = shown.replace("\n", " ").split("`")
    if len(parts) % 2 == 0:  # a backtick without a partner
        return _plain(shown)
    return "".join(
        f"<code>{html.escape(part).replace('|', '&#124;')}</code>" if number % 2 else _plain(part)
        for number, part in enumerate(parts)
    )


def _citations(facts: Facts, requirement: Requirement, files: dict[str, str]) -> Iterator[str]:
    kinds = facts.citations.get(requirement.id, {})
    if not any(kind in kinds for kind in _KINDS):
        return
    yield from ("", "## Files that name it", "")
    for kind, title in _KINDS.items():
        if places := kinds.get(kind):
            yield f"- {title}: {', '.join(_place_link(place, files) for place in places)}"


def _place_link(place: str, files: dict[str, str]) -> str:
    name = place.partition("::")[0]
    is_shown = name.startswith(("schema/", "lua/", "fixtures/"))
    path = ROOT / name
    if not is_shown or not path.is_file() or path.stat().st_size > _SHOWN_AT_MOST:
        return f"`{place}`"
    if PurePosixPath(name).suffix == ".md":
        return f"`{place}`"
    return f"[`{name}`]({_file(name, files)})"


def _neighbours(around: tuple[Requirement | None, Requirement | None]) -> Iterator[str]:
    former, following = around
    links = []
    if former:
        links.append(f"Before: [{former.id}]({former.id}.md)")
    links.append("[All requirements](index.md)")
    if following:
        links.append(f"Next: [{following.id}]({following.id}.md)")
    yield " · ".join(links)


def _plain(text: str) -> str:
    """Return text for Markdown in which no character has a meaning."""
    shown = html.escape(text, quote=False).replace("\n", " ")
    return re.sub(r"([\\`*_\[\]|~#])", r"\\\1", shown)


# -- index


def index_page(facts: Facts, *, with_pdf: bool) -> str:
    """Return the index of all requirements, with its filters."""
    whole = [("one HTML file", one_file(facts.version, "html"))]
    whole += [("a PDF", one_file(facts.version, "pdf"))] if with_pdf else []
    whole.append(("JSON", "requirements.json"))
    links = " and as ".join(f'<a href="{html.escape(name)}">{text}</a>' for text, name in whole)
    profiles = list(facts.document.profiles)
    generations = sorted({each for r in facts.requirements for each in r.generations})
    return "\n".join(
        [
            "# All requirements",
            "",
            f"Version {facts.version} has {len(facts.requirements)} requirements. Each has a page "
            "of its own: its text, its reason, its checks, and the implementations that meet it.",
            "",
            f"<p>The whole specification is here as {links}.</p>",
            "",
            '<form class="filter" data-rows="requirements" role="search" hidden>',
            '<label>Text <input type="search" name="words" autocomplete="off"></label>',
            _choice("Profile", "profile", profiles),
            _choice("Level", "level", ["interop", "robust"]),
            _choice("Generation", "generation", generations),
            '<output aria-live="polite"></output></form>',
            '<table class="requirements" id="requirements"><thead><tr><th>Requirement</th>'
            "<th>Text</th><th>Profiles</th><th>Level</th><th>Generations</th></tr></thead><tbody>",
            *(_index_row(requirement) for requirement in facts.requirements),
            "</tbody></table>",
            "",
        ]
    )


def _choice(title: str, name: str, options: Sequence[str]) -> str:
    items = "".join(f"<option>{html.escape(option)}</option>" for option in options)
    return (
        f'<label>{title} <select name="{name}"><option value="">all</option>{items}</select>'
        "</label>"
    )


def _index_row(requirement: Requirement) -> str:
    is_general = len(requirement.generations) == 3
    generations = "all" if is_general else ", ".join(requirement.generations)
    name = requirement.id
    return (
        f'<tr data-profile="{html.escape(" ".join(requirement.claims))}" '
        f'data-level="{requirement.level}" data-generation="{" ".join(requirement.generations)}">'
        f'<th scope="row"><a href="{name}.md">{name}</a></th>'
        f"<td>{inline(requirement.text)}</td>"
        f"<td>{html.escape(', '.join(requirement.claims))}</td>"
        f"<td>{requirement.level}</td><td>{generations}</td></tr>"
    )


def inline(text: str) -> str:
    """Return the HTML of a requirement's text on one line, without its table.

    Code and bold words stay, links lose their goals.
    """
    before, bar, _ = text.partition("\n|")
    text = f"{before} (table)" if bar else text
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    parts = re.split(r"(``.+?``|`[^`]*`)", " ".join(text.split()))
    return "".join(
        f"<code>{html.escape(part.strip('`'))}</code>"
        if part.startswith("`")
        else re.sub(r"\*\*([^*]+)\*\*", r"<strong>\1</strong>", html.escape(part, quote=False))
        for part in parts
    )


# -- matrix


def matrix_page(facts: Facts) -> str:
    """Return the table of requirements by implementation."""
    columns = facts.matrix.columns
    head = "".join(f'<th scope="col">{html.escape(column.title)}</th>' for column in columns)
    signs = dict.fromkeys((sign, meaning) for sign, meaning in SYMBOLS.values())
    return "\n".join(
        [
            "# Requirement by implementation",
            "",
            f"Each row is a requirement of version {facts.version}, each column an implementation. "
            f"A cell stays empty if the implementation makes no claim with the requirement. "
            f"[Claims](../{CLAIMS}) has the claims of each implementation, and the page of a "
            "requirement has the reason of each deviation.",
            "",
            "<details><summary>Meaning of the signs</summary><ul>"
            + "".join(f"<li>{sign} {html.escape(meaning)}</li>" for sign, meaning in signs)
            + "</ul></details>",
            "",
            f'<div class="wide"><table class="matrix"><thead><tr><th>Requirement</th>{head}</tr>'
            "</thead><tbody>",
            *(_matrix_row(facts, requirement) for requirement in facts.requirements),
            "</tbody></table></div>",
            "",
        ]
    )


def _matrix_row(facts: Facts, requirement: Requirement) -> str:
    verdicts: Mapping[str, Verdict] = {
        verdict.column.title: verdict for verdict in facts.verdicts(requirement)
    }
    cells = []
    for column in facts.matrix.columns:
        verdict = verdicts.get(column.title)
        if verdict is None:
            cells.append("<td></td>")
            continue
        sign, meaning = SYMBOLS[verdict.status]
        title = html.escape(f"{column.title}: {verdict.why or meaning}")
        cells.append(f'<td class="{verdict.status}" title="{title}">{sign}</td>')
    name = requirement.id
    return (
        f'<tr id="{name.lower()}"><th scope="row"><a href="{name}.md">{name}</a></th>'
        f"{''.join(cells)}</tr>"
    )
