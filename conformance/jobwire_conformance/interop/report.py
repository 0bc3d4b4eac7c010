"""What pairs did: for people at a terminal, as a page, and for programs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from jobwire_conformance import data
from jobwire_conformance.interop.pair import Fate, Handover, Pair
from jobwire_conformance.interop.pool import POOL
from jobwire_conformance.interop.run import Found

__all__ = ["as_data", "markdown", "text"]

_ABSENT = "-"


def as_data(found: Found) -> dict[str, Any]:
    """Return everything, for JSON."""
    name, version = found.server
    return {
        "interop": 1,
        "spec": data.spec_version(),
        "server": {"name": name, "version": version},
        "implementations": [
            {
                "name": config.name,
                "version": found.versions.get(config.name),
                "language": config.language,
                "generation": config.generation,
                "client": config.driver is not None,
                "worker": config.worker is not None,
            }
            for config in found.configs
        ],
        "pairs": [
            {
                "client": pair.client,
                "worker": pair.worker,
                "error": pair.error,
                "jobs": [_fate(fate) for fate in pair.fates],
            }
            for pair in found.pairs
        ],
        "handovers": [
            {
                "failing": each.failing,
                "retrying": each.retrying,
                "error": each.error,
                "problems": [{"by": by, "what": what} for by, what in each.problems],
            }
            for each in found.handovers
        ],
        "status": found.status,
    }


def _fate(fate: Fate) -> dict[str, Any]:
    said: dict[str, Any] = {"payload": fate.item.name, "status": fate.status}
    if fate.by is not None:
        said |= {"by": fate.by, "expected": fate.expected, "seen": fate.seen}
    return said


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
    # Taken over, though something of it was changed on the way, or not taken over at all.
    return "no" if any(what.startswith(_FATAL) for _, what in handover.problems) else "changed"


_FATAL = ("left nothing", "did not run", "wrote into the set retry")


def _table(
    rows: Sequence[str], columns: Sequence[str], cells: Mapping[tuple[str, str], str]
) -> Any:
    return [
        ["", *columns],
        *([row, *(cells.get((row, column), _ABSENT) for column in columns)] for row in rows),
    ]


def _tables(found: Found) -> tuple[list[list[str]], list[list[str]]]:
    workers = [config.name for config in found.configs if config.worker is not None]
    clients = [config.name for config in found.configs if config.driver is not None]
    pairs = {(pair.client, pair.worker): _cell(pair) for pair in found.pairs}
    handovers = {(each.failing, each.retrying): _handed(each) for each in found.handovers}
    return _table(clients, workers, pairs), _table(workers, workers, handovers)


def _notes(found: Found) -> dict[str, list[str]]:
    """Return what each implementation does otherwise, each thing once, with whom it was seen."""
    seen: dict[tuple[str, str, str], list[str]] = {}  # who, what, with whom -> payloads

    def note(who: str, what: str, other: str, payload: str = "") -> None:
        seen.setdefault((who, what, other), []).append(payload)

    for pair in found.pairs:
        if pair.error:
            note(pair.client, f"could not be tried: {pair.error}", pair.worker)
        for fate in pair.fates:
            if fate.by == "client":
                note(pair.client, _sentence(fate), pair.worker, fate.item.name)
            elif fate.by == "worker":
                note(pair.worker, _sentence(fate), pair.client, fate.item.name)
    for each in found.handovers:
        if each.error:
            note(each.failing, f"could not be tried: {each.error}", each.retrying)
        for who, what in each.problems:
            other = each.retrying if who == each.failing else each.failing
            note(who, f"retries: {what}", other)
    same: dict[tuple[str, str, tuple[str, ...]], list[str]] = {}
    for (who, what, other), payloads in seen.items():
        same.setdefault((who, what, tuple(payloads)), []).append(other)
    names = [config.name for config in found.configs]
    notes: dict[str, list[str]] = {name: [] for name in names}
    for (who, what, about), others in same.items():
        jobs = "every job: " if len(about) == len(POOL) else f"{', '.join(about)}: "
        notes[who].append(f"{jobs if any(about) else ''}{what} ({_with(others, names)})")
    return {name: lines for name, lines in notes.items() if lines}


def _sentence(fate: Fate) -> str:
    if fate.status == "refused":
        return f"refused as a client: {_short(fate.expected)}"
    did = {"changed": "changed", "lost": "lost", "repeated": "ran more than once"}[fate.status]
    return f"{did} as a {fate.by}: expected {_short(fate.expected)}, seen {_short(fate.seen)}"


def _short(text: str) -> str:
    shown = "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in text)
    return shown if len(shown) <= 120 else f"{shown[:120]}..."


def _with(others: Iterable[str], names: Sequence[str]) -> str:
    distinct = [name for name in names if name in set(others)]
    return f"with {len(distinct)}" if len(distinct) > 4 else f"with {', '.join(distinct)}"


def text(found: Found) -> str:
    """Return two tables and what is behind them, for a terminal."""
    pairs, handovers = _tables(found)
    lines = ["jobs that arrived as they were pushed (rows push, columns perform):"]
    lines += _aligned(pairs)
    lines += [
        "",
        "a failed job was retried (rows fail it, columns retry it):",
        *_aligned(handovers),
    ]
    for name, notes in _notes(found).items():
        lines += ["", name, *(f"  {note}" for note in notes)]
    return "\n".join(lines)


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  "
        + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def markdown(found: Found) -> str:
    """Return a page."""
    pairs, handovers = _tables(found)
    server = " ".join(found.server)
    lines = [
        "# Implementations in pairs",
        "",
        f"Written by `jobwire conform interop`, specification {data.spec_version()}, {server}.",
        "",
        "| Implementation | Version | Language | Writes generation | Roles |",
        "| --- | --- | --- | --- | --- |",
    ]
    for config in found.configs:
        roles = [n for n, has in (("client", config.driver), ("worker", config.worker)) if has]
        version = found.versions.get(config.name, "")
        row = (config.name, version, config.language or "", config.generation, ", ".join(roles))
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
    notes = _notes(found)
    if notes:
        lines += ["", "## Details"]
    for name, texts in notes.items():
        lines += ["", f"### {name}", "", *(f"- {_escaped(each)}" for each in texts)]
    return "\n".join(lines) + "\n"


def _marked(rows: Sequence[Sequence[str]]) -> list[str]:
    head, *rest = rows
    lines = [f"| {' | '.join(head)} |", f"|{' --- |' * len(head)}"]
    return lines + [f"| {' | '.join(row)} |" for row in rest]


def _escaped(text: str) -> str:
    shown = " ".join(text.split())
    return "".join(f"\\{c}" if c in "\\`*_[]<>|#" else c for c in shown)
