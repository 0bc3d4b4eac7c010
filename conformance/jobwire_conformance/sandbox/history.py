"""The events of a case besides commands: requests to the driver, and signals to workers."""

from __future__ import annotations

import time
from dataclasses import dataclass

__all__ = ["History", "Note"]


@dataclass(slots=True, eq=False)
class Note:
    """A request to a driver with its answer, or a signal to a worker.

    Attributes:
        at: Time of the event, by the monotonic clock.
        process: Name of the process: `driver`, or the name of a worker.
        kind: `request` or `signal`.
        text: The line of the request, or the name of the signal.
        answer: The line of the answer; None if no answer has come.
        answered: Time of the answer, by the monotonic clock.
    """

    at: float
    process: str
    kind: str
    text: str
    answer: bytes | None = None
    answered: float | None = None


class History:
    """The notes of a case, in order, and the duration of every answer of its driver."""

    def __init__(self) -> None:
        self.notes: list[Note] = []
        self.taken: list[float] = []  # seconds for each timed answer, over all cases

    def signal(self, process: str, text: str) -> None:
        """Note a signal."""
        self.notes.append(Note(time.monotonic(), process, "signal", text))

    def request(self, text: str) -> Note:
        """Note a request to the driver."""
        note = Note(time.monotonic(), "driver", "request", text)
        self.notes.append(note)
        return note

    def answer(self, request: Note, line: bytes, *, timed: bool) -> None:
        """Note the answer to a request, and its duration unless it includes the driver's start."""
        request.answer, request.answered = line, time.monotonic()
        if timed:
            self.taken.append(request.answered - request.at)

    def forget(self) -> None:
        """Remove the notes of the last case."""
        self.notes = []
