"""events.jsonl: what happens in a run, a line as soon as it does, for whoever wants to follow."""

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
    """Writes the lines.

    Args:
        path: The file; one that is there is overwritten.
        cases: Those that will run.
    """

    def __init__(self, path: Path, cases: Sequence[Case]) -> None:
        self._file = path.open("wb")
        self._began = time.monotonic()
        self._say("start", cases=[case.name for case in cases])

    def waiting(self, case: Case, what: str) -> None:
        """Write what a case waits for."""
        self._say("wait", case=case.name, what=what)

    def finished(self, case: Case, verdicts: Sequence[CaseVerdict], seconds: float) -> None:
        """Write what became of a case."""
        checks = [check_data(verdict) for verdict in verdicts]
        self._say("case", case=case.name, took=round(seconds, 3), checks=checks)

    def ended(self, results: Results) -> None:
        """Write how the run ended. Nothing can be written afterwards."""
        self._say(
            "end",
            status=results["status"],
            claims={name: claim["met"] for name, claim in results["claims"].items()},
            errors=results.get("errors", []),
        )
        self._file.close()

    def _say(self, event: str, **more: Any) -> None:
        seconds = round(time.monotonic() - self._began, 3)
        line: Mapping[str, Any] = {"event": event, "seconds": seconds, **more}
        text = json.dumps(line, ensure_ascii=False) + "\n"
        self._file.write(text.encode("utf-8", "backslashreplace"))
        self._file.flush()


class Together:
    """Several that watch a run."""

    def __init__(self, *watchers: Watcher) -> None:
        self._watchers = watchers

    def waiting(self, case: Case, what: str) -> None:
        """Tell all of them."""
        for each in self._watchers:
            each.waiting(case, what)

    def finished(self, case: Case, verdicts: Sequence[CaseVerdict], seconds: float) -> None:
        """Tell all of them."""
        for each in self._watchers:
            each.finished(case, verdicts, seconds)
