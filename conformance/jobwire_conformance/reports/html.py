"""report.html: all results of a run in one file, which needs neither network nor script."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence

from jobwire_conformance import data
from jobwire_conformance.data import CLAIMS, DEFAULT_GENERATION, Requirement
from jobwire_conformance.reports.claim_status import (
    BUNDLES,
    WORDS,
    bundles,
    called,
    counts,
    held,
    states,
    worst,
)
from jobwire_conformance.reports.diagram import diagram
from jobwire_conformance.reports.lossmap import FATES, rows
from jobwire_conformance.reports.page import cell, facts, inline, page, pill, pre, tag
from jobwire_conformance.reports.results import Check, Claim, Loss, Results, TraceLine
from jobwire_conformance.reports.text import value
from jobwire_conformance.run.verdicts import FAILURES
from jobwire_conformance.wire.commands import spec_of
from jobwire_conformance.wire.text import command, reply

__all__ = ["report_page"]

_AROUND = 4  # commands of the same case to show before and after
_MAX_COMMANDS = 36  # commands in a log


def report_page(results: Results, trace: Sequence[TraceLine]) -> str:
    """Return the page. Without a trace it has no logs and no diagrams."""
    failures = [check for check in results["checks"] if not held(check)]
    body = [
        *_head(results),
        *_contents(results, failures),
        *_claims(results),
        *_failures(results, failures, trace),
        *_losses(results, trace),
        *_requirements(results),
    ]
    return page(f"{called(results)}: conformance", body)


def _head(results: Results) -> Iterator[str]:
    about = results["implementation"]
    server = results["server"]
    yield f"<h1>{inline(called(results))}</h1>"
    pairs = [
        ("specification", f"jobwire {results['spec']}"),
        ("suite", results["suite"]),
        ("driver protocol", str(results["driver"])),
        ("generation", results.get("generation", DEFAULT_GENERATION)),
        ("server", f"{server['name']} {server['version']}"),
        ("seed", str(results["seed"])),
        ("start", results["started"]),
        ("duration", f"{results.get('seconds', 0):.1f} s"),
        ("exit status", str(results["status"])),
    ]
    pairs += [(name, text) for name in ("language", "source") if (text := str(about.get(name, "")))]
    yield facts(pairs)
    if results["spec"] != data.spec_version():
        yield (
            f"<p>{pill('warn', 'another specification')} This run checked jobwire "
            f"{inline(results['spec'])}; the texts of the requirements below are those of "
            f"{inline(data.spec_version())}.</p>"
        )
    for error in results.get("errors", ()):
        ended = "An error ended the run"
        if "case" in error:
            ended = f"An adapter fault ended case {inline(error['case'])}"
        yield f'<article class="fail"><h3>{ended}</h3>{pre(error["message"])}</article>'


def _contents(results: Results, failures: Sequence[Check]) -> Iterator[str]:
    yield '<nav aria-label="Contents"><ul>'
    yield '<li><a href="#claims">Claims</a></li>'
    if failures:
        yield f'<li><a href="#not-passed">Checks not passed ({len(_merged(failures))})</a></li>'
    if results.get("loss_map"):
        yield '<li><a href="#losses">Loss map</a></li>'
    yield '<li><a href="#requirements">Requirements</a></li>'
    yield "</ul></nav>"


def _claims(results: Results) -> Iterator[str]:
    state_of = states(results)
    met = bundles(results)
    yield '<h2 id="claims">Claims</h2>'
    yield "<p>"
    for name, claims in BUNDLES.items():
        if any(claim in state_of for claim in claims):
            state = "met" if name in met else "none"
            yield pill(state, f"{name}: {'met' if name in met else 'not met'}")
    yield "</p>"
    yield '<div class="scroll"><table><thead><tr><th scope="col">Claim</th>'
    yield '<th scope="col">State</th><th scope="col">Checks</th>'
    yield '<th scope="col">Requirements not checked</th></tr></thead><tbody>'
    for name, claim in results["claims"].items():
        cells = [
            tag("th", inline(name), scope="row"),
            cell(state_of[name], inline(WORDS[state_of[name]])),
            tag("td", inline(counts(claim) or "none")),
            tag("td", _unchecked(claim)),
        ]
        yield f"<tr>{''.join(cells)}</tr>"
    yield "</tbody></table></div>"


def _unchecked(claim: Claim) -> str:
    lists = [
        f"<details><summary>{len(ids)} {words}</summary>{_links(ids)}</details>"
        for words, ids in (
            ("in this run", claim.get("missing", ())),
            ("by this suite yet", claim.get("unchecked", ())),
            ("by a case of their own", claim.get("without_case", ())),
        )
        if ids
    ]
    return "".join(lists) or "none"


def _links(ids: Sequence[str]) -> str:
    return ", ".join(f'<a class="id" href="#{inline(id_)}">{inline(id_)}</a>' for id_ in ids)


def _merged(checks: Sequence[Check]) -> dict[tuple[str, str], list[Check]]:
    """Return the checks by case and requirement, because one check may count for two claims."""
    groups: dict[tuple[str, str], list[Check]] = {}
    for check in checks:
        groups.setdefault((check["case"], check["requirement"]), []).append(check)
    return groups


def _failures(
    results: Results, failures: Sequence[Check], trace: Sequence[TraceLine]
) -> Iterator[str]:
    if not failures:
        return
    yield '<h2 id="not-passed">Checks not passed</h2>'
    if not trace:
        yield '<p class="dim">The trace of this run is missing, so there are no logs.</p>'

    def rank(item: tuple[tuple[str, str], list[Check]]) -> tuple[bool, bool]:
        return item[1][0]["status"] not in FAILURES, "follows" in item[1][0]

    for (case, requirement), checks in sorted(_merged(failures).items(), key=rank):
        yield from _failure(results, case, requirement, checks, trace)


def _failure(
    results: Results,
    case: str,
    requirement: str,
    checks: Sequence[Check],
    trace: Sequence[TraceLine],
) -> Iterator[str]:
    check = checks[0]
    name = f"{case}--{requirement}"
    yield f'<article class="{inline(check["status"])}" id="{inline(name)}">'
    yield (
        f'<h3>{pill(check["status"])} <a href="#{inline(requirement)}">{inline(requirement)}</a> '
        f"in case {inline(case)}</h3>"
    )
    yield f'<p class="dim">{inline(", ".join(dict.fromkeys(one["claim"] for one in checks)))}</p>'
    yield _text(requirement)
    if "reason" in check:
        issue = f" ({inline(check['issue'])})" if "issue" in check else ""
        yield f"<p><strong>Declared:</strong> {inline(check['reason'], 2000)}{issue}</p>"
    if "follows" in check:
        yield f"<p>Probably follows from {_links([check['follows']])}.</p>"
    if "held" in check:
        yield f"<p>Passed in {check['held']} of {check.get('runs', 0)} runs.</p>"
    if "blocked_by" in check:
        yield f"<p>Blocked by an earlier failure: {inline(check['blocked_by'], 2000)}</p>"
    elif "message" in check:
        yield f"<p>{inline(check['message'], 2000)}</p>"
    if check.get("expected") is not None or check.get("seen") is not None:
        yield '<div class="two"><div><h4>Expected</h4>'
        yield pre(value(check.get("expected")))
        yield "</div><div><h4>Seen</h4>"
        yield pre(value(check.get("seen")))
        yield "</div></div>"
    if "trace" in check:
        yield from _wire(trace, check["trace"], f"Commands in {case}, {requirement}")
    if again := results.get("again"):
        line = inline(f"{again} {check.get('again', case)}", 600)
        yield f'<h4>Again</h4><p><span class="again">{line}</span></p>'
    yield "</article>"


def _wire(trace: Sequence[TraceLine], lines: Sequence[int], title: str) -> Iterator[str]:
    """Yield the diagram and the log of some commands, with a few more of the same run."""
    first, last = lines
    if not 0 <= first <= last < len(trace):
        return
    run = trace[first].case, trace[first].crash
    near = [
        line
        for line in trace[max(first - 200, 0) : last + 200]
        if (line.case, line.crash) == run
        if line.note or (line.words and spec_of(line.words[0]).kind != "session")
    ]
    before = [line for line in near if line.number < first][-_AROUND:]
    after = [line for line in near if line.number > last][:_AROUND]
    inner = [line for line in near if first <= line.number <= last]
    if len(inner) > _MAX_COMMANDS:
        inner = _without_polls(inner)
    if len(inner) > _MAX_COMMANDS:
        # The commands around the cut and the last ones matter most.
        cut = next((number for number, line in enumerate(inner) if line.fault), 0)
        start = max(cut - _MAX_COMMANDS // 3, 0)
        inner = [*inner[start : start + _MAX_COMMANDS * 2 // 3], *inner[-(_MAX_COMMANDS // 3) :]]
        inner = sorted({line.number: line for line in inner}.values(), key=lambda at: at.number)
    shown = [*before, *inner, *after]
    yield f"<details open><summary>Sequence diagram, {len(shown)} commands</summary>"
    yield diagram(shown, title)
    yield "</details>"
    yield f"<details><summary>Wire log, {len(shown)} commands</summary>"
    yield f'<ol class="wire" tabindex="0" aria-label="{inline(title)}">'
    for line in shown:
        here = ' class="here"' if first <= line.number <= last else ""
        time = "" if line.ms is None else f" {line.ms:.1f} ms"
        fault = f" {pill('fail', line.fault)}" if line.fault else ""
        if line.note:
            yield (
                f'<li{here}><span class="who">{inline(line.proc)}{time}</span> '
                f"{inline(line.note, 4000)}</li>"
            )
            continue
        yield (
            f'<li{here}><span class="who">{inline(line.proc)} #{line.connection}{time}</span> '
            f"{inline(command(line.words, 1000), 4000)}{fault} "
            f'<span class="back">→ {inline(reply(line.reply, 400), 1000)}</span></li>'
        )
    yield "</ol></details>"


def _without_polls(lines: Sequence[TraceLine]) -> list[TraceLine]:
    """Return the lines without repeated commands that had the same reply before."""
    last_reply: dict[tuple[object, ...], bytes | None] = {}
    kept = []
    for line in lines:
        sent = (line.proc, *line.words[:2])
        if line.note or line.fault or sent not in last_reply or last_reply[sent] != line.reply:
            kept.append(line)
        last_reply[sent] = line.reply
    return kept


def _losses(results: Results, trace: Sequence[TraceLine]) -> Iterator[str]:
    windows = rows(results)
    if not windows:
        return
    yield '<h2 id="losses">Loss map</h2>'
    yield (
        "<p>Fate of a job when its process was cut off, immediately before and after each command "
        "with an effect.</p>"
    )
    yield '<div class="scroll"><table><thead><tr><th scope="col">Window</th>'
    yield "".join(
        f'<th scope="col">{fate}<br><small class="dim">{inline(meaning)}</small></th>'
        for fate, meaning in FATES.items()
    )
    yield "</tr></thead><tbody>"
    for row in windows:
        cells = [
            cell(fate if row.counts.get(fate) else "zero", str(row.counts.get(fate, 0)))
            for fate in FATES
        ]
        window = f'{inline(row.window)}<br><small class="dim">{inline(row.meaning)}</small>'
        yield f'<tr><th scope="row">{window}</th>{"".join(cells)}</tr>'
    yield "</tbody></table></div>"
    for row in windows:
        yield f"<h3>{inline(row.window)}, point by point</h3>"
        yield from _points(row.points)
        for loss in row.points:
            if loss["outcome"] != "kept" and "trace" in loss and trace:
                title = f"{loss['outcome']}: cut off {loss['side']} {loss['point']}"
                yield '<details class="point"><summary>'
                yield f"{pill(loss['outcome'])} cut off {loss['side']} {inline(loss['point'])}"
                yield "</summary>"
                yield from _wire(trace, loss["trace"], title)
                yield "</details>"


def _points(losses: Sequence[Loss]) -> Iterator[str]:
    """Yield a grid of points and sides."""
    grid: dict[tuple[str, str], dict[str, str]] = {}
    for loss in losses:
        grid.setdefault((loss["case"], loss["point"]), {})[loss["side"]] = loss["outcome"]
    yield '<div class="scroll"><table><thead><tr><th scope="col">Case</th>'
    yield '<th scope="col">Command</th><th scope="col">cut off before it</th>'
    yield '<th scope="col">cut off after it</th></tr></thead><tbody>'
    for (case, point), sides in grid.items():
        cells = [cell(sides.get(side, "none"), sides.get(side, "")) for side in ("before", "after")]
        yield f'<tr><td>{inline(case)}</td><th scope="row">{inline(point)}</th>{"".join(cells)}'
        yield "</tr>"
    yield "</tbody></table></div>"


def _requirements(results: Results) -> Iterator[str]:
    by_id: dict[str, list[Check]] = {}
    for check in results["checks"]:
        by_id.setdefault(check["requirement"], []).append(check)
    known = data.requirements()
    claimed = set(results["claims"])
    ids = [
        requirement.id
        for requirement in known.values()
        if requirement.id in by_id
        or (not requirement.retired and claimed & set(requirement.claims))
    ]
    ids += sorted(set(by_id) - set(known))
    missing = {id_ for claim in results["claims"].values() for id_ in claim.get("missing", ())}
    entries = [(id_, _status_of(id_, known.get(id_), by_id.get(id_, []), missing)) for id_ in ids]
    yield f'<h2 id="requirements">Requirements ({len(ids)})</h2>'
    yield from _search(sorted({status for _, status in entries}), results)
    yield '<div class="list" id="list">'
    for id_, status in entries:
        yield from _entry(known.get(id_), id_, status, by_id.get(id_, []))
    yield "</div>"


def _status_of(
    id_: str, requirement: Requirement | None, checks: Sequence[Check], missing: Collection[str]
) -> str:
    if (decides := worst(checks)) is not None:
        return decides["status"]
    if requirement is not None and not requirement.visible:
        return "invisible"
    return "missing" if id_ in missing else "unchecked"


def _search(statuses: Sequence[str], results: Results) -> Iterator[str]:
    yield '<form class="find" data-list="list" hidden role="search">'
    yield '<label>Search<input type="search" name="words" autocomplete="off"></label>'
    yield '<label>Status<select name="status"><option value="">any</option>'
    yield "".join(f"<option>{inline(status)}</option>" for status in statuses)
    yield '</select></label><label>Claim<select name="claim"><option value="">any</option>'
    yield "".join(
        f"<option>{inline(claim)}</option>" for claim in CLAIMS if claim in results["claims"]
    )
    yield '</select></label><output aria-live="polite"></output></form>'


_UNCHECKED: Mapping[str, str] = {
    "invisible": "not visible from outside",
    "missing": "not checked in this run",
    "unchecked": "no check yet",
}


def _entry(
    requirement: Requirement | None, id_: str, status: str, checks: Sequence[Check]
) -> Iterator[str]:
    text = requirement.text if requirement else "This specification lacks the requirement."
    claims = requirement.claims if requirement else sorted({check["claim"] for check in checks})
    words = " ".join([id_, text, *claims, *(check["case"] for check in checks), status]).lower()
    yield (
        f'<details id="{inline(id_)}" data-words="{inline(words, 5000)}" '
        f'data-status="{inline(status)}" data-claims="{inline(" ".join(claims))}">'
    )
    keyword = requirement.keyword if requirement else ""
    yield (
        f'<summary><span class="id">{inline(id_)}</span> '
        f"{pill(status, _UNCHECKED.get(status, status))} "
        f'<span class="dim">{inline(keyword)}</span> {_code(inline(_short(text)))}</summary>'
    )
    yield f'<div class="inner">{_text(id_)}<p class="dim">{inline(", ".join(claims))}</p>'
    if checks:
        yield "<ul>"
        for check in checks:
            case = inline(check["case"])
            if not held(check):
                case = f'<a href="#{case}--{inline(id_)}">{case}</a>'
            yield f"<li>{pill(check['status'])} {case}, {inline(check['claim'])}</li>"
        yield "</ul>"
    yield "</div></details>"


def _text(id_: str) -> str:
    requirement = data.requirements().get(id_)
    if requirement is None:
        return '<p class="dim">This version of the specification lacks the requirement.</p>'
    return f'<div class="spec">{_lines(requirement.text)}</div>'


def _lines(text: str) -> str:
    return "\n".join(_code(inline(line, 4000)) for line in text.splitlines())


def _code(escaped: str) -> str:
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escaped)


def _short(text: str) -> str:
    first = text.partition("\n")[0]
    return first if len(first) <= 140 else f"{first[:139]}…"
