"""Reports: while a run goes, and made from results.json and trace.jsonl, at once or much later."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from jobwire_conformance.errors import Usage
from jobwire_conformance.reports.badge import badge_json, badge_svg
from jobwire_conformance.reports.html import report_page
from jobwire_conformance.reports.junit import junit
from jobwire_conformance.reports.markdown import summary_page
from jobwire_conformance.reports.results import Results, TraceLine, dump, load_trace

__all__ = ["FILES", "write", "write_results"]

FILES = ("junit.xml", "summary.md", "report.html", "badge.json", "badge.svg")
"""What is made from results.json and trace.jsonl."""


def write_results(directory: Path, results: Results) -> None:
    """Write results.json."""
    _put(directory / "results.json", dump(results))


def write(directory: Path, results: Results) -> None:
    """Make all reports in a directory that has the trace, if there is one.

    Raises:
        Usage: The trace is none, or a file cannot be written.
    """
    trace = load_trace(directory, results)
    for name, content in zip(FILES, _contents(results, trace), strict=True):
        _put(directory / name, content)


def _contents(results: Results, trace: Sequence[TraceLine]) -> Sequence[bytes]:
    return (
        junit(results),
        summary_page(results).encode("utf-8", "backslashreplace"),
        report_page(results, trace).encode("utf-8", "backslashreplace"),
        badge_json(results),
        badge_svg(results),
    )


def _put(path: Path, content: bytes) -> None:
    try:
        path.write_bytes(content)
    except OSError as error:
        raise Usage(f"{path} cannot be written: {error.strerror}") from None
