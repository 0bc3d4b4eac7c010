"""The cases whose traffic tells whether an implementation is interop."""

from __future__ import annotations

import time

import pytest

from jobwire_conformance import config
from jobwire_conformance.cases import case as cases
from jobwire_conformance.run.checks import CheckResult
from jobwire_conformance.run.traffic import Traffic
from jobwire_conformance.wire.call import Call
from tests.conformance.suite import ROOT
from tests.conformance.traffic import JOB, text


@pytest.mark.parametrize(
    ("result", "is_evidence"),
    [
        (CheckResult("PUSH-18", False), False),  # robust: only then does a client refuse the push
        (CheckResult("PUSH-18", True), True),
        (CheckResult("PUSH-1", False), True),
    ],
)
def test_a_failed_case_of_robust_checks_does_not_test_interop(
    result: CheckResult, is_evidence: bool
) -> None:
    """KEY-5: other keys are held against an implementation, except in such a case."""
    traffic = Traffic(config.load(ROOT / "conformance" / "drivers" / "python"))
    words = [b"LPUSH", b"low", text(JOB).encode()]
    call = Call(1, 1, words, "LPUSH", b"", time.monotonic())
    call.reply, call.answered = b":1\r\n", call.at
    (case,) = cases.load(names=["push-spoilt"])
    failures = traffic.look(case, [("driver", call)], [result])
    assert ("KEY-5" in {failure.requirement for failure in failures}) is is_evidence
