"""jobwire.worker.fetch.leader: after any sequence of events, leader and model agree.

The model does not use the table of transitions. It knows the leading thread, the action of that
thread, and whether the leader is closed, and derives the possible events from these.
"""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from jobwire.worker.fetch.leader import TRANSITIONS, Event, IllegalTransition, Leader, State
from tests.profiles import examples

THREADS = (11, 12, 13)
BEGIN = {Event.FETCH: "fetch", Event.WAIT: "wait", Event.BLOCK: "block"}
END = {Event.FETCHED: "fetch", Event.NOTICED: "wait", Event.UNBLOCK: "block"}
STATES = {
    "decide": State.DECIDING,
    "fetch": State.FETCHING,
    "wait": State.WAITING,
    "block": State.BLOCKED,
    "job": State.RUNNING_SHORT,
}


class Place(RuleBasedStateMachine):
    """A leader, and threads that lead, work and close in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.leader = Leader()
        self.now = 100.0
        self.leads: int | None = None
        self.does = ""  # the action of the leading thread
        self.since = 0.0  # start of its job
        self.closed = False

    def expect(self, legal: bool, event: Event) -> bool:
        """Return `legal`; if an event is not, check that it raises and changes nothing."""
        if not legal:
            state = self.leader.state
            with pytest.raises(IllegalTransition, match=str(event)):
                self.leader.step(event)
            assert self.leader.state is state
        return legal

    @rule(thread=st.sampled_from(THREADS))
    def elect(self, thread: int) -> None:
        if self.expect(self.leads is None and not self.closed, Event.ELECT):
            self.leader.elect(thread)
            self.leads, self.does = thread, "decide"

    @rule(event=st.sampled_from(list(BEGIN)))
    def begin(self, event: Event) -> None:
        if self.expect(self.leads is not None and self.does == "decide", event):
            self.leader.step(event)
            self.does = BEGIN[event]

    @rule(event=st.sampled_from(list(END)))
    def end(self, event: Event) -> None:
        """An action ends; it may have begun before the close."""
        under_way = self.leads is not None and self.does == END[event]
        if self.expect(under_way or self.closed, event):
            self.leader.step(event)
            self.does = "decide" if under_way else self.does

    @rule(seconds=st.sampled_from([0.0, 0.001, 10.0]))
    def start(self, seconds: float) -> None:
        self.now += seconds
        if self.expect(self.leads is not None and self.does in ("decide", "job"), Event.START):
            self.leader.start(self.now)
            self.does, self.since = "job", self.now

    @rule()
    def return_(self) -> None:
        if self.expect(self.leads is not None and self.does == "job", Event.RETURN):
            self.leader.step(Event.RETURN)
            self.does = "decide"

    @rule()
    def resign(self) -> None:
        if self.expect(self.leads is not None and self.does == "job", Event.RESIGN):
            self.leader.resign()
            self.leads, self.does = None, ""

    @rule()
    def close(self) -> None:
        """A thread that leads has to clean up; a leader that runs a job does not."""
        assert self.leader.close() == (self.leads is not None and self.does != "job")
        self.leads, self.does, self.closed = None, "", True

    @invariant()
    def the_leader_is_where_the_model_has_it(self) -> None:
        leader = self.leader
        assert leader.thread == self.leads
        if self.closed:
            assert leader.state is State.CLOSED
        elif self.leads is None:
            assert leader.state is State.IDLE
        else:
            assert leader.state is STATES[self.does]
        assert leader.active == (self.leads is not None and self.does != "job")
        expected = self.now - self.since if self.does == "job" else None
        assert leader.runs_since(self.now) == expected


Place.TestCase.settings = settings(
    max_examples=examples(200), stateful_step_count=40, deadline=None
)
TestPlace = Place.TestCase


def reachable(start: State) -> set[State]:
    seen: set[State] = set()
    ahead = {start}
    while ahead:
        state = ahead.pop()
        seen.add(state)
        ahead |= set(TRANSITIONS[state].values()) - seen
    return seen


def test_the_table_is_whole() -> None:
    """Each state has a row, each event is used, and every state can be reached."""
    assert set(TRANSITIONS) == set(State)
    assert {event for row in TRANSITIONS.values() for event in row} == set(Event)
    assert reachable(State.IDLE) == set(State)


@pytest.mark.parametrize("state", [each for each in State if each is not State.CLOSED], ids=str)
def test_no_state_is_a_dead_end(state: State) -> None:
    """Another thread can become leader, and the leader can be closed at once."""
    assert State.IDLE in reachable(state)
    assert TRANSITIONS[state][Event.CLOSE] is State.CLOSED


def test_a_closed_place_stays_closed() -> None:
    assert reachable(State.CLOSED) == {State.CLOSED}


def test_an_illegal_event_names_state_event_and_what_is_legal() -> None:
    with pytest.raises(IllegalTransition, match=r"leader is idle.*cannot fetch.*elect, close"):
        Leader().step(Event.FETCH)
