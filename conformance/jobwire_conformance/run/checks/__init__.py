"""The checks of a case. Each one compares the state of Redis or the traffic with its matchers."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from jobwire_conformance.cases.predicates import Predicate, named, predicates
from jobwire_conformance.cases.values import ABSENT
from jobwire_conformance.errors import Unbound
from jobwire_conformance.run import evidence
from jobwire_conformance.run.checks import answers, commands, connections, pace, stored
from jobwire_conformance.run.checks.context import CheckResult, Context, Miss, ProcessCall

__all__ = ["CheckResult", "Checks", "Miss", "ProcessCall"]

_STATES = frozenset(
    [
        *("list", "zset", "hash", "set", "key", "keys", "commands", "metrics", "atomic", "logs"),
        *("ran", "either", "that"),
    ]
)  # parts of checks that a worker can still fulfil; the others look at the past


class Checks(Context):
    """The checks of one run of a case."""

    def miss(self, step: Mapping[str, Any]) -> Miss | None:
        """Return the first mismatch of a check; None if the check passes."""
        self.scope.now = time.time()
        self.shown.clear()
        try:
            for part, check in _PARTS.items():
                if part in step:
                    check(self, step)
        except Miss as miss:
            miss.final = miss.final or not step.keys() & _STATES
            return miss
        except Unbound as unbound:
            return Miss(str(unbound), "a value that an earlier step has seen", ABSENT)
        return None

    def around(self, step: Mapping[str, Any]) -> list[evidence.Line]:
        """Return the evidence of a check."""
        return evidence.around(step, self.sandbox.record(), self.state.key)


def _either(checks: Checks, step: Mapping[str, Any]) -> None:
    """Check that at least one of the alternatives holds."""
    misses = [checks.miss(alternative) for alternative in step["either"]]
    if None not in misses:
        seen = "; ".join(str(miss) for miss in misses)
        raise Miss("alternatives", "one of them", seen)


def _that(context: Context, step: Mapping[str, Any]) -> None:
    for each in predicates(step["that"]):
        holds, seen = context.state.holds(each)
        if not holds:
            wanted = named(each, context.state.named)
            raise Miss(wanted.subject, wanted.expected, seen, hint=_unrun(context, wanted, seen))


def _unrun(context: Context, wanted: Predicate, seen: str) -> str:
    """Return what it means that no run of a job was seen; empty if one was."""
    if wanted.function not in ("began", "performed") or seen != "0":
        return ""
    if not context.state.number("began", wanted.of):
        return (
            "no report says that this job began. If it was fetched, look whether its class is "
            "registered, and whether it reports to jw:RUN:ev at JOBWIRE_CONTROL_URL"
        )
    return 'the job began, but no report says that it ended with "ok":true'


_PARTS: Mapping[str, Callable[..., None]] = {
    **stored.PARTS,
    **commands.PARTS,
    **connections.PARTS,
    **pace.PARTS,
    **answers.PARTS,
    "either": _either,
    "that": _that,
}
