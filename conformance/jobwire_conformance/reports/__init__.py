"""Reports in every format, made from `results.json` and `trace.jsonl`, at once or later."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from jobwire_conformance.errors import Usage
from jobwire_conformance.reports.badge import badge_json, badge_svg
from jobwire_conformance.reports.html import report_page
from jobwire_conformance.reports.junit import junit
from jobwire_conformance.reports.markdown import summary_page
from jobwire_conformance.reports.matrix import Matrix
from jobwire_conformance.reports.matrix_html import matrix_html
from jobwire_conformance.reports.matrix_markdown import loss_maps_page, matrix_page
from jobwire_conformance.reports.results import Results, TraceLine, dump, load_trace

__all__ = ["FILES", "badge_json", "badge_svg", "matrix_pages", "put", "write", "write_results"]

FILES = ("junit.xml", "summary.md", "report.html", "badge.json", "badge.svg")
"""The reports that are made from results.json and trace.jsonl."""


def write_results(directory: Path, results: Results) -> None:
    """Write results.json."""
    put(directory / "results.json", dump(results))


def write(directory: Path, results: Results) -> None:
    """Write all reports to a directory, which may hold the trace of the run.

    Raises:
        Usage: The trace is not valid, or a file cannot be written.
    """
    trace = load_trace(directory, results)
    for name, content in zip(FILES, _contents(results, trace), strict=True):
        put(directory / name, content)


def _contents(results: Results, trace: Sequence[TraceLine]) -> Sequence[bytes]:
    return (
        junit(results),
        summary_page(results).encode("utf-8", "backslashreplace"),
        report_page(results, trace).encode("utf-8", "backslashreplace"),
        badge_json(results),
        badge_svg(results),
    )


def matrix_pages(matrix: Matrix) -> Mapping[str, bytes]:
    """Return the pages by file name."""
    return {
        name: text.encode("utf-8", "backslashreplace")
        for name, text in (
            ("matrix.md", matrix_page(matrix)),
            ("matrix.html", matrix_html(matrix)),
            ("loss-maps.md", loss_maps_page(matrix)),
        )
    }


def put(path: Path, content: bytes) -> None:
    """Write a file, and create its directory if it is missing.

    Raises:
        Usage: The file cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    except OSError as error:
        raise Usage(f"cannot write {path}: {error.strerror}") from None
