"""Errors that stop a run. Each type names the side at fault and has its own exit status."""

from __future__ import annotations

__all__ = [
    *("REQUEST", "AdapterFault", "ConformError", "EnvironmentFault", "SuiteFault"),
    *("Unbound", "Usage"),
]

REQUEST = "  Request: "
"""Start of the line that shows the request of a driver in the message of a fault."""


class ConformError(Exception):
    """A run could not be finished. The text names the side at fault and the remedy."""

    status = 5


class AdapterFault(ConformError):
    """The driver or the worker program of the implementation broke the rules for adapters.

    Attributes:
        problem: The event and the remedy.
        case: Name of the case that it ended; None if it ended the whole run.
    """

    status = 3

    def __init__(self, problem: str, case: str | None = None) -> None:
        super().__init__(problem if case is None else f"in case {case}: {problem}")
        self.problem = problem
        self.case = case

    @property
    def short(self) -> str:
        """The problem on one line, with the start of the request."""
        first, *others = self.problem.split("\n")
        request = next((line for line in others if line.startswith(REQUEST)), "")
        return f"{first}{f'; request: {request.removeprefix(REQUEST)[:200]}' if request else ''}"


class EnvironmentFault(ConformError):
    """Something outside the suite and the adapter is missing or in the way, like a Redis."""

    status = 4


class SuiteFault(ConformError):
    """A case, or the suite, is wrong."""

    status = 5


class Unbound(SuiteFault):
    """A case uses a value that an earlier step should have bound, and that is missing."""


class Usage(ConformError):
    """The command line, or a file that it names, is wrong."""

    status = 64
