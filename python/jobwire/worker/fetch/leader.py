"""The leader of a capsule: which thread fetches for all, and what it does now.

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
    """What the leader does, or why there is none."""

    IDLE = "idle"
    """No thread leads."""
    DECIDING = "deciding"
    """The leader looks at the buffer and the slots."""
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
    """What makes the leader go from one state to another."""

    ELECT = "elect"
    """A thread takes the lead."""
    FETCH = "fetch"
    FETCHED = "fetched"
    """The fetch ended, with jobs, without, or with an error."""
    WAIT = "wait"
    NOTICED = "noticed"
    """The wait for a push ended, for whatever reason."""
    BLOCK = "block"
    UNBLOCK = "unblock"
    """The wait for a slot ended, for whatever reason."""
    START = "start"
    """The leader takes a job from the buffer and runs it."""
    RETURN = "return"
    """The leader's job is over, and the buffer has none for it."""
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
    State.CLOSED: {  # what was under way when it closed ends
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
    """One leader's place. Not thread-safe: the caller holds a lock.

    Attributes:
        state: What the leader does.
        thread: Which thread leads; None if no thread does.
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
        """The leader starts a job, at a time of the caller's clock."""
        self.step(_START)
        self._started_at = now

    def resign(self) -> None:
        """Take the lead from the thread that runs a job with it."""
        self.step(Event.RESIGN)
        self.thread = None

    def close(self) -> bool:
        """Close; return whether a thread is at work as the leader, outside of a job.

        That thread learns of the end when its fetch or its wait is over.
        """
        active = self.active
        self.step(Event.CLOSE)
        self.thread = None
        return active

    @property
    def active(self) -> bool:
        """Whether a thread leads and runs no job: so followers may take jobs from the buffer."""
        return self.state in _ACTIVE

    def runs_since(self, now: float) -> float | None:
        """Return for how long the leader has run its job; None if it runs none."""
        return now - self._started_at if self.state is _RUNNING_SHORT else None
