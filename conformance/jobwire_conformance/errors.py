"""What stops a run, by whose fault: each kind has an exit status of its own."""

from __future__ import annotations

__all__ = ["AdapterFault", "ConformError", "EnvironmentFault", "SuiteFault", "Unbound", "Usage"]


class ConformError(Exception):
    """A run could not be finished. The text says whose fault it is and what to do."""

    status = 5


class AdapterFault(ConformError):
    """The driver or the worker program of the implementation broke the rules for adapters.

    Attributes:
        problem: What happened, and what to do.
        case: The one that it ended; None if it ended everything.
    """

    status = 3

    def __init__(self, problem: str, case: str | None = None) -> None:
        super().__init__(problem if case is None else f"in case {case}: {problem}")
        self.problem = problem
        self.case = case


class EnvironmentFault(ConformError):
    """Something around is missing or in the way, like a Redis."""

    status = 4


class SuiteFault(ConformError):
    """A case, or the suite, is wrong."""

    status = 5


class Unbound(SuiteFault):
    """A case speaks of a value that was to be there before, and was not."""


class Usage(ConformError):
    """The command line, or a file that it names, is wrong."""

    status = 64
