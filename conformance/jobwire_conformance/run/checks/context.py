"""The parts that all checks share: the run, comparison with a matcher, and the result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from jobwire_conformance.cases.describe import as_data, in_words, show
from jobwire_conformance.cases.match import Scope, difference
from jobwire_conformance.cases.values import Absent, Spelt
from jobwire_conformance.run import evidence
from jobwire_conformance.run.state import State
from jobwire_conformance.sandbox.driver import Outcome
from jobwire_conformance.sandbox.sandbox import Sandbox
from jobwire_conformance.wire.call import Call

__all__ = ["TOGETHER_S", "Check", "CheckResult", "Context", "Miss", "ProcessCall", "text_of"]

TOGETHER_S = 0.1  # commands that are sent together may arrive in pieces

ProcessCall = tuple[str, Call]
"""Name of a process, and a command that it sent."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of one check.

    Attributes:
        requirement: Id of the requirement.
        ok: True if the check passed.
        message: The expected and the seen value, for a check that failed.
        expected: The expected value as data.
        seen: The seen value as data.
        lines: The commands, requests and signals around the check.
        blocked_by: The earlier failure that made the check impossible.
        seconds: Time since the last check.
        trace: First and last line of `lines` in the trace; empty until the trace is written.
        evidence: `lines` as text; empty until the trace is written.
        again: Name of a case that shows the failure again, if it is not the case of the check.
        by: The side at fault: `adapter` if the driver or the worker program broke its rules,
            `harness` if the machine was too busy for a verdict.
    """

    requirement: str
    ok: bool
    message: str = ""
    expected: object = None
    seen: object = None
    lines: Sequence[evidence.Line] = ()
    blocked_by: str | None = None
    seconds: float = 0.0
    trace: list[int] = field(default_factory=list)
    evidence: list[str] = field(default_factory=list)
    again: str | None = None
    by: Literal["implementation", "adapter", "harness"] = "implementation"


class Miss(Exception):
    """A value does not match.

    Args:
        subject: Name of the value in the message.
        expected: The expected value; plain words if it is a `str`.
        seen: The seen value; plain words if it is a `str`.
        final: True if no later command can make the value match.
        hint: The meaning of the seen value, and things to look at.

    Attributes:
        whole: Name and text of the value in which the difference is.
    """

    def __init__(
        self,
        subject: str,
        expected: object,
        seen: object,
        *,
        final: bool = False,
        hint: str = "",
    ) -> None:
        super().__init__(f"{subject}: expected {show(expected)}, seen {show(seen)}")
        self.expected = as_data(expected)
        self.seen = as_data(seen)
        self.final = final
        self.hint = hint
        self.whole = subject, show(seen)


class Context:
    """The run of a case as its checks see it.

    Args:
        sandbox: The sandbox of the run.
        state: The state of its Redis.
        scope: Values that the matchers share.

    Attributes:
        answer: The driver's last answer; None before the first request.
        shown: The values that the last check has seen, as text, by their names.
    """

    def __init__(self, sandbox: Sandbox, state: State, scope: Scope) -> None:
        self.answer: Outcome | None = None
        self.shown: dict[str, str] = {}
        self.sandbox = sandbox
        self.state = state
        self.scope = scope

    def must(self, subject: str, matcher: Any, seen: Spelt | Absent, of: str = "") -> None:
        """Raise Miss with the path of the first difference; with `of`, the subject is a field."""
        whole = f"{subject!r} of {of}" if of else subject
        self.shown[whole] = show(seen)
        found = difference(matcher, seen, self.scope, subject if of else "")
        if found is None:
            return
        place = f"{subject} at {found.path}" if found.path else subject
        wanted = in_words(found.matcher, self.scope, found.name)
        miss = Miss(f"'{subject}{found.path}' of {of}" if of else place, wanted, found.seen)
        miss.whole = whole, show(seen)
        raise miss

    def sent(self, step: Mapping[str, Any]) -> list[Call]:
        process = step.get("process", "driver")
        return [call for name, call in self.sandbox.calls() if name == process]


Check = Callable[[Context, Mapping[str, Any]], None]
"""One part of a check: raises Miss if the step of a case does not hold."""


def text_of(call: Call) -> str:
    return b" ".join(call.words).decode("utf-8", "replace")[:300]
