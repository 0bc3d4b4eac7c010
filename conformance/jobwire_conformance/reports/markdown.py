"""summary.md: claims, checks not passed, and the loss map, in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from jobwire_conformance.data import DEFAULT_GENERATION
from jobwire_conformance.reports.claim_status import WORDS, bundles, called, counts, held, states
from jobwire_conformance.reports.lossmap import FATES, rows
from jobwire_conformance.reports.results import Results
from jobwire_conformance.reports.text import cell

__all__ = ["loss_table", "summary_page", "table"]


def summary_page(results: Results) -> str:
    """Return summary.md."""
    server = results["server"]
    lines = [
        f"# {cell(called(results))}",
        "",
        f"jobwire {cell(results['spec'])}, suite {cell(results['suite'])}, generation "
        f"{results.get('generation', DEFAULT_GENERATION)}, {server['name']} "
        f"{cell(server['version'])}, {cell(results['started'])}",
        "",
        f"Bundles met: {', '.join(bundles(results)) or 'none'}.",
        "",
    ]
    state_of = states(results)
    lines += table(
        ["Claim", "State", "Checks"],
        ([name, WORDS[state_of[name]], counts(claim)] for name, claim in results["claims"].items()),
    )
    missing = {
        name: claim["missing"] for name, claim in results["claims"].items() if claim.get("missing")
    }
    if missing:
        lines += ["", "Not checked in this run:", ""]
        lines += [f"- {name}: {', '.join(ids)}" for name, ids in missing.items()]
    without = {
        name: claim["without_case"]
        for name, claim in results["claims"].items()
        if claim.get("without_case")
    }
    if without:
        lines += ["", "Without a case of their own (the traffic of all cases may show them):", ""]
        lines += [f"- {name}: {', '.join(ids)}" for name, ids in without.items()]
    explained = [check for check in results["checks"] if not held(check)]
    if explained:
        lines += [""]
        lines += table(
            ["Requirement", "Case", "Status", "Reason"],
            (
                [
                    check["requirement"],
                    check["case"],
                    check["status"],
                    check.get("reason") or check.get("message") or check.get("blocked_by") or "",
                ]
                for check in explained
            ),
        )
    if results.get("loss_map"):
        lines += ["", "## Loss map", ""]
        lines += loss_table(results)
    for error in results.get("errors", ()):
        ended = "An error ended the run"
        if "case" in error:
            ended = f"An adapter fault ended case {cell(error['case'])}"
        lines += ["", f"{ended}: {cell(error['message'], 4000)}"]
    return "\n".join(lines) + "\n"


def loss_table(results: Results) -> list[str]:
    """Return the loss map, with a line for each window."""
    return table(
        ["Window", "", *FATES],
        (
            [row.window, row.meaning, *(str(row.counts.get(fate, 0)) for fate in FATES)]
            for row in rows(results)
        ),
    )


def table(head: Sequence[str], body: Iterable[Iterable[str]]) -> list[str]:
    """Return the lines of a table. The text of a cell cannot end the cell."""
    return [*_rows([head]), f"|{' --- |' * len(head)}", *_rows(body)]


def _rows(body: Iterable[Iterable[str]]) -> Iterator[str]:
    for row in body:
        yield f"| {' | '.join(map(cell, row))} |"
