"""The leader of a capsule: the thread that fetches for all, and its state.

The threads of a capsule are one leader and its followers. The leader fetches for all of them and
takes the first job itself; the others wait for the lead, or take jobs from the buffer. The table
`TRANSITIONS` is every step that the leader can make. This module does no I/O, starts no thread,
takes no lock and reads no clock: the caller holds the lock that guards the leader.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

__all__ = ["TRANSITIONS", "Event", "IllegalTransition", "Leader", "State"]


class State(StrEnum):
    """The state of the leader, or the reason why there is none."""

    IDLE = "idle"
    """No thread leads."""
    DECIDING = "deciding"
    """The leader checks the buffer and the slots."""
    FETCHING = "fetching"
    """The leader sends a fetch, or reads the reply to one."""
    WAITING = "waiting"
    """The queues are empty; the leader waits for a push."""
    BLOCKED = "blocked"
    """All slots are in use; the leader waits until one is free."""
    RUNNING_SHORT = "running short"
    """The leader runs a job itself, because it is expected to be short."""
    CLOSED = "closed"
    """No thread takes another job."""


class Event(StrEnum):
    """An event that makes the leader go from one state to another."""

    ELECT = "elect"
    """A thread takes the lead."""
    FETCH = "fetch"
    FETCHED = "fetched"
    """The fetch ended, with jobs, without, or with an error."""
    WAIT = "wait"
    NOTICED = "noticed"
    """The wait for a push ended, for any reason."""
    BLOCK = "block"
    UNBLOCK = "unblock"
    """The wait for a slot ended, for any reason."""
    START = "start"
    """The leader takes a job from the buffer and runs it."""
    RETURN = "return"
    """The leader's job is over, and the buffer has no job for it."""
    RESIGN = "resign"
    """The leader's job is not short: another thread takes the lead."""
    CLOSE = "close"


TRANSITIONS: Mapping[State, Mapping[Event, State]] = {
    State.IDLE: {
        Event.ELECT: State.DECIDING,
        Event.CLOSE: State.CLOSED,
    },
    State.DECIDING: {
        Event.FETCH: State.FETCHING,
        Event.WAIT: State.WAITING,
        Event.BLOCK: State.BLOCKED,
        Event.START: State.RUNNING_SHORT,
        Event.CLOSE: State.CLOSED,
    },
    State.FETCHING: {
        Event.FETCHED: State.DECIDING,
        Event.CLOSE: State.CLOSED,
    },
    State.WAITING: {
        Event.NOTICED: State.DECIDING,
        Event.CLOSE: State.CLOSED,
    },
    State.BLOCKED: {
        Event.UNBLOCK: State.DECIDING,
        Event.CLOSE: State.CLOSED,
    },
    State.RUNNING_SHORT: {
        Event.START: State.RUNNING_SHORT,  # the next job, without a fetch between them
        Event.RETURN: State.DECIDING,
        Event.RESIGN: State.IDLE,
        Event.CLOSE: State.CLOSED,
    },
    State.CLOSED: {  # a fetch or wait that was under way at the close ends
        Event.FETCHED: State.CLOSED,
        Event.NOTICED: State.CLOSED,
        Event.UNBLOCK: State.CLOSED,
        Event.CLOSE: State.CLOSED,
    },
}

# Read for every job, and a global is quicker to read than a member.
_START, _RUNNING_SHORT = Event.START, State.RUNNING_SHORT
_ACTIVE = frozenset([State.DECIDING, State.FETCHING, State.WAITING, State.BLOCKED])


class IllegalTransition(RuntimeError):
    """An event that cannot happen in the present state: a bug of the caller."""

    def __init__(self, state: State, event: Event) -> None:
        legal = ", ".join(TRANSITIONS[state])
        super().__init__(f"leader is {state}, so it cannot {event}; it can {legal}")


class Leader:
    """The leader of one capsule. Not thread-safe: the caller holds a lock.

    Attributes:
        state: The leader's state.
        thread: Identifier of the thread that leads; None if no thread does.
    """

    __slots__ = ("_started_at", "state", "thread")

    def __init__(self) -> None:
        self.state = State.IDLE
        self.thread: int | None = None
        self._started_at = 0.0  # of the leader's job; has a meaning in RUNNING_SHORT only

    def step(self, event: Event) -> None:
        """Go to the next state.

        Raises:
            IllegalTransition: The event is not possible in this state.
        """
        try:
            self.state = TRANSITIONS[self.state][event]
        except KeyError:
            raise IllegalTransition(self.state, event) from None

    def elect(self, thread: int) -> None:
        """Give the lead to a thread."""
        self.step(Event.ELECT)
        self.thread = thread

    def start(self, now: float) -> None:
        """Record that the leader starts a job, at a time of the caller's clock."""
        self.step(_START)
        self._started_at = now

    def resign(self) -> None:
        """Take the lead from a leader that runs a job."""
        self.step(Event.RESIGN)
        self.thread = None

    def close(self) -> bool:
        """Close; return True if a leader is active, which means that it runs no job.

        That thread notices the close when its fetch or its wait is over.
        """
        active = self.active
        self.step(Event.CLOSE)
        self.thread = None
        return active

    @property
    def active(self) -> bool:
        """True if a thread leads and runs no job, so that followers may take from the buffer."""
        return self.state in _ACTIVE

    def runs_since(self, now: float) -> float | None:
        """Return the seconds since the leader started its job; None if it runs none."""
        return now - self._started_at if self.state is _RUNNING_SHORT else None
