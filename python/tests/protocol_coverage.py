"""Branches of jobwire.protocol that the tests run through: a pytest plugin.

Only where the variable JOBWIRE_COVERAGE names a directory for the data, and only during tests
that interrupt no thread: a thread that is traced can hang when an exception strikes it.
`pytest_plugins` lists this module before the ones that import jobwire, because the definitions
count as well.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from coverage import Coverage

__all__ = ["DIRECTORY"]

DIRECTORY = os.environ.get("JOBWIRE_COVERAGE")
_ROOT = Path(__file__).parent
_SAVE_INTERVAL_S = 60.0  # each takes a second
# Tracing makes a test up to three times as expensive: these run through every branch.
_TRACED = (
    "unit/",
    *(f"property/test_{name}.py" for name in ("races", "rules", "template")),
    *("integration/scripts/", "integration/inspector/test_reading.py"),
    *(f"integration/ops/test_{name}.py" for name in ("actions", "permissions")),
    *(f"integration/test_client{name}.py" for name in ("", "_settings")),
    *(f"integration/test_{name}.py" for name in ("cancelling", "heartbeat", "iteration")),
    "integration/test_batches.py",
    "integration/test_job_progress.py",
    *(
        f"integration/test_{name}.py"
        for name in (
            "addons",
            "chains",
            "groups",
            "limits",
            "periodic",
            "results",
            "steps",
            "time",
            "unique",
        )
    ),
)


class _Tracer:
    """Traces from its start until the collection ends, then during the chosen tests."""

    def __init__(self, directory: str) -> None:
        self._coverage = Coverage(
            data_file=f"{directory}/{os.getpid()}",
            branch=True,
            source=[str(_ROOT.parent / "jobwire" / "protocol")],
        )
        self._on = False
        self._saved_at = time.monotonic()

    def turn(self, on: bool) -> None:
        if on != self._on:
            self._on = on
            (self._coverage.start if on else self._coverage.stop)()

    def save(self) -> None:
        self.turn(False)
        self._coverage.save()
        self._saved_at = time.monotonic()

    def save_now_and_then(self) -> None:
        """A process that is killed loses only the last minute."""
        if time.monotonic() - self._saved_at > _SAVE_INTERVAL_S:
            self.save()


_tracer = _Tracer(DIRECTORY) if DIRECTORY else None
if _tracer:
    _tracer.turn(True)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    if _tracer:
        _tracer.save_now_and_then()
        _tracer.turn(item.path.as_posix().removeprefix(f"{_ROOT}/").startswith(_TRACED))
    return (yield)


def pytest_sessionfinish() -> None:
    if _tracer:
        _tracer.save()
