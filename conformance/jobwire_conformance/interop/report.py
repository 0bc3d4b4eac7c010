"""The results of pairs, for a terminal, as a page, and as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from jobwire_conformance import data
from jobwire_conformance.interop.pair import Fate, Handover, Pair
from jobwire_conformance.interop.pool import POOL
from jobwire_conformance.interop.run import InteropResults

__all__ = ["as_data", "markdown", "text"]

_ABSENT = "-"


def as_data(results: InteropResults) -> dict[str, Any]:
    """Return all results as JSON data."""
    name, version = results.server
    return {
        "interop": 1,
        "spec": data.spec_version(),
        "server": {"name": name, "version": version},
        "implementations": [
            {
                "name": config.name,
                "version": results.versions.get(config.name),
                "language": config.language,
                "generation": config.times,
                "client": config.driver is not None,
                "worker": config.worker is not None,
            }
            for config in results.configs
        ],
        "pairs": [
            {
                "client": pair.client,
                "worker": pair.worker,
                "error": pair.error,
                "jobs": [_fate(fate) for fate in pair.fates],
            }
            for pair in results.pairs
        ],
        "handovers": [
            {
                "failing": handover.failing,
                "retrying": handover.retrying,
                "error": handover.error,
                "problems": [{"by": by, "what": what} for by, what in handover.problems],
            }
            for handover in results.handovers
        ],
        "status": results.status,
    }


def _fate(fate: Fate) -> dict[str, Any]:
    entry: dict[str, Any] = {"payload": fate.item.name, "status": fate.status}
    if fate.by is not None:
        entry |= {"by": fate.by, "expected": fate.expected, "seen": fate.seen}
    return entry


def _cell(pair: Pair) -> str:
    if pair.error:
        return "error"
    refused = sum(fate.status == "refused" for fate in pair.fates)
    tried = len(pair.fates) - refused
    return f"{tried - len(pair.bad)}/{tried}"


def _handed(handover: Handover) -> str:
    if handover.error:
        return "error"
    if not handover.problems:
        return "yes"
    # "no" if the job was not retried, "changed" if it was retried with another payload.
    return "no" if any(what.startswith(_FATAL) for _, what in handover.problems) else "changed"


_FATAL = ("left the retry set empty", "did not run", "wrote text that is not a payload")


def _table(
    rows: Sequence[str], columns: Sequence[str], cells: Mapping[tuple[str, str], str]
) -> Any:
    return [
        ["", *columns],
        *([row, *(cells.get((row, column), _ABSENT) for column in columns)] for row in rows),
    ]


def _tables(results: InteropResults) -> tuple[list[list[str]], list[list[str]]]:
    workers = [config.name for config in results.configs if config.worker is not None]
    clients = [config.name for config in results.configs if config.driver is not None]
    pairs = {(pair.client, pair.worker): _cell(pair) for pair in results.pairs}
    handovers = {
        (handover.failing, handover.retrying): _handed(handover) for handover in results.handovers
    }
    return _table(clients, workers, pairs), _table(workers, workers, handovers)


def _notes(results: InteropResults) -> dict[str, list[str]]:
    """Return the faults of each implementation, each fault once, with its partners."""
    seen: dict[tuple[str, str, str], list[str]] = {}  # (name, fault, partner) -> payloads

    def note(name: str, fault: str, partner: str, payload: str = "") -> None:
        seen.setdefault((name, fault, partner), []).append(payload)

    for pair in results.pairs:
        if pair.error:
            note(pair.client, f"could not be tested: {pair.error}", pair.worker)
        for fate in pair.fates:
            if fate.by == "client":
                note(pair.client, _sentence(fate), pair.worker, fate.item.name)
            elif fate.by == "worker":
                note(pair.worker, _sentence(fate), pair.client, fate.item.name)
    for handover in results.handovers:
        failing, retrying = handover.failing, handover.retrying
        if handover.error:
            note(failing, f"could not be tested: {handover.error}", retrying)
        for name, problem in handover.problems:
            note(name, f"retries: {problem}", retrying if name == failing else failing)
    same: dict[tuple[str, str, tuple[str, ...]], list[str]] = {}  # -> partners
    for (name, fault, partner), payloads in seen.items():
        same.setdefault((name, fault, tuple(payloads)), []).append(partner)
    names = [config.name for config in results.configs]
    notes: dict[str, list[str]] = {name: [] for name in names}
    for (name, fault, jobs), partners in same.items():
        listed = "every job: " if len(jobs) == len(POOL) else f"{', '.join(jobs)}: "
        notes[name].append(f"{listed if any(jobs) else ''}{fault} ({_with(partners, names)})")
    return {name: lines for name, lines in notes.items() if lines}


def _sentence(fate: Fate) -> str:
    if fate.status == "refused":
        return f"refused as a client: {_short(fate.expected)}"
    did = {"changed": "changed", "lost": "lost", "repeated": "ran more than once"}[fate.status]
    return f"{did} as a {fate.by}: expected {_short(fate.expected)}, seen {_short(fate.seen)}"


def _short(text: str) -> str:
    shown = "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in text)
    return shown if len(shown) <= 120 else f"{shown[:120]}..."


def _with(partners: Iterable[str], names: Sequence[str]) -> str:
    distinct = [name for name in names if name in set(partners)]
    return f"with {len(distinct)}" if len(distinct) > 4 else f"with {', '.join(distinct)}"


def text(results: InteropResults) -> str:
    """Return two tables and the details, for a terminal."""
    pairs, handovers = _tables(results)
    lines = ["jobs that arrived as they were pushed (rows push, columns perform):"]
    lines += _aligned(pairs)
    lines += [
        "",
        "a failed job was retried (rows fail it, columns retry it):",
        *_aligned(handovers),
    ]
    for name, notes in _notes(results).items():
        lines += ["", name, *(f"  {note}" for note in notes)]
    return "\n".join(lines)


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  "
        + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def markdown(results: InteropResults) -> str:
    """Return a page in Markdown."""
    pairs, handovers = _tables(results)
    server = " ".join(results.server)
    lines = [
        "# Implementations in pairs",
        "",
        f"Written by `jobwire conform interop`, specification {data.spec_version()}, {server}.",
        "",
        "| Implementation | Version | Language | Writes generation | Roles |",
        "| --- | --- | --- | --- | --- |",
    ]
    for config in results.configs:
        roles = [n for n, has in (("client", config.driver), ("worker", config.worker)) if has]
        version = results.versions.get(config.name, "")
        row = (config.name, version, config.language or "", config.times, ", ".join(roles))
        lines.append(f"| {' | '.join(map(str, row))} |")
    lines += [
        "",
        "## Push and run",
        "",
        f"Each client (row) pushes {len(POOL)} jobs with arguments that cause trouble in some",
        "language. Each worker (column) runs them. A cell counts the jobs that ran once, with",
        "arguments equal in type and to the last digit to those that were pushed. Jobs that the",
        "client refuses to push are left out.",
        "",
        *_marked(pairs),
        "",
        "## Fail and retry",
        "",
        "A job fails in one worker (row), which then ends. Another worker (column) has to retry",
        "it. `changed` means that it did, but a part of the job is wrong.",
        "",
        *_marked(handovers),
    ]
    notes = _notes(results)
    if notes:
        lines += ["", "## Details"]
    for name, texts in notes.items():
        lines += ["", f"### {name}", "", *(f"- {_escaped(note)}" for note in texts)]
    return "\n".join(lines) + "\n"


def _marked(rows: Sequence[Sequence[str]]) -> list[str]:
    head, *body = rows
    lines = [f"| {' | '.join(head)} |", f"|{' --- |' * len(head)}"]
    return lines + [f"| {' | '.join(row)} |" for row in body]


def _escaped(text: str) -> str:
    shown = " ".join(text.split())
    return "".join(f"\\{c}" if c in "\\`*_[]<>|#" else c for c in shown)
