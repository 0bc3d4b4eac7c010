"""events.jsonl: the events of a run, each written at once as one line."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jobwire_conformance.cases.case import Case
from jobwire_conformance.reports.results import Results
from jobwire_conformance.run.run import Watcher, check_data
from jobwire_conformance.run.verdicts import CaseVerdict

__all__ = ["Events", "Together"]


class Events:
    """Writer of the events.

    Args:
        path: Path of the file, which is overwritten.
        cases: The cases of the run.
    """

    def __init__(self, path: Path, cases: Sequence[Case]) -> None:
        self._file = path.open("wb")
        self._began = time.monotonic()
        self._write("start", cases=[case.name for case in cases])

    def waiting(self, case: Case, event: str) -> None:
        """Write the event that a case waits for."""
        self._write("wait", case=case.name, what=event)

    def finished(self, case: Case, verdicts: Sequence[CaseVerdict], seconds: float) -> None:
        """Write the checks of a finished case."""
        checks = [check_data(verdict) for verdict in verdicts]
        self._write("case", case=case.name, took=round(seconds, 3), checks=checks)

    def ended(self, results: Results) -> None:
        """Write the result of the run, and close the file."""
        self._write(
            "end",
            status=results["status"],
            claims={name: claim["met"] for name, claim in results["claims"].items()},
            errors=results.get("errors", []),
        )
        self._file.close()

    def _write(self, event: str, **members: Any) -> None:
        seconds = round(time.monotonic() - self._began, 3)
        line: Mapping[str, Any] = {"event": event, "seconds": seconds, **members}
        text = json.dumps(line, ensure_ascii=False) + "\n"
        self._file.write(text.encode("utf-8", "backslashreplace"))
        self._file.flush()


class Together:
    """Several watchers of one run."""

    def __init__(self, *watchers: Watcher) -> None:
        self._watchers = watchers

    def waiting(self, case: Case, event: str) -> None:
        """Pass the event on to all watchers."""
        for watcher in self._watchers:
            watcher.waiting(case, event)

    def finished(self, case: Case, verdicts: Sequence[CaseVerdict], seconds: float) -> None:
        """Pass the verdicts on to all watchers."""
        for watcher in self._watchers:
            watcher.finished(case, verdicts, seconds)
