"""The rules by which Hypothesis chooses the next action. They read only the model."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Sequence
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from jobwire_conformance.model.actions import Action, Impossible
from jobwire_conformance.model.model import QUEUES, Model
from jobwire_conformance.model.pools import LONE, deep, fields, texts, values

__all__ = ["machine"]

_MAX_JOBS = 8  # jobs at a time; more jobs would only make an example longer
_queue = st.sampled_from(QUEUES)
_args = st.lists(values(), min_size=1, max_size=3)
_delays = st.sampled_from((1000.0, 2000.0, 5000.0, -60.0))
_warps = st.sampled_from((700.0, 1700.0, 20_000.0))
_FAULTS = (
    {"at": "before", "do": "cut"},
    {"at": "after", "do": "cut"},
    *(
        {"at": "before", "do": "error", "error": error}
        for error in ("OOM", "READONLY", "LOADING", "MISCONF", "NOREPLICAS")
    ),
)
_PLACES = (1, 2, 3, 4)  # number of the command at which the connection fails
_INVALID: Sequence[tuple[dict[str, Any], str]] = (
    ({"args": []}, "PUSH-4"),
    ({"class": "JobwireEcho"}, "PUSH-4"),
    ({"class": "", "args": []}, "PUSH-4"),
    ({"class": 5, "args": []}, "PUSH-4"),
    ({"class": "JobwireEcho", "args": "nope"}, "PUSH-4"),
    ({"class": "JobwireEcho", "args": {"a": 1}}, "PUSH-4"),
    ({"class": "JobwireEcho", "args": [deep(99)]}, "PAY-3"),
)
_counts = st.sampled_from((None, 0, 1, 2, 22, 23, 24))
_failed = st.sampled_from((1700000000.5, 1700000000123, 1700000000.0))


class _Machine(RuleBasedStateMachine):
    """One example. It is played after all its actions are chosen."""

    model: Model
    actions: list[Action]

    def _do(self, verb: str, **given: Any) -> None:
        action = Action(verb, given)
        try:
            self.model.apply(action)
        except Impossible:
            return
        self.actions.append(action)

    def _claims(self, *claims: str) -> bool:
        return self.model.claims(*claims)

    def _room(self) -> bool:
        return self.model.jobs < _MAX_JOBS

    def _kind(self, data: st.DataObject) -> tuple[str, list[Any]]:
        kind = data.draw(st.sampled_from(self.model.kinds))
        return kind, data.draw(_arguments(kind))

    def _later(self, data: st.DataObject) -> dict[str, float]:
        """Draw a delay for a job, or no delay."""
        if self._claims("client/scheduled") and data.draw(st.booleans()):
            return {"delay": data.draw(_delays)}
        return {}

    # -- the client

    @precondition(lambda self: self._claims("client/core") and self._room())
    @rule(data=st.data(), queue=_queue, fields=fields())
    def push(self, data: st.DataObject, queue: str, fields: dict[str, Any]) -> None:
        kind, args = self._kind(data)
        later = self._later(data)
        self._do("push", kind=kind, args=args, queue=queue, fields=fields, **later)

    @precondition(lambda self: self._claims("client/bulk") and self._room())
    @rule(data=st.data(), lists=st.lists(_args, min_size=1, max_size=3), queue=_queue)
    def push_bulk(self, data: st.DataObject, lists: list[list[Any]], queue: str) -> None:
        self._do("bulk", kind="Echo", args=lists, queue=queue, **self._later(data))

    @precondition(lambda self: self._claims("client/core"))
    @rule(data=st.data())
    def push_badly(self, data: st.DataObject) -> None:
        faults = self._claims("client/faults")
        if faults and data.draw(st.booleans()):
            fault, nth = data.draw(st.sampled_from(_FAULTS)), data.draw(st.sampled_from(_PLACES))
            self._do("disturbed", args=data.draw(_args), fault=fault, nth=nth)
            return
        drawn = data.draw(st.sampled_from((*_INVALID, *(LONE if faults else ()))))
        if isinstance(drawn, str):
            self._do("doubtful", args=[drawn])
        else:
            job, broken = drawn
            self._do("refused", job=job, rule=broken)

    # -- actions of the suite itself

    @precondition(lambda self: self._claims("worker/core") and self._room())
    @rule(
        data=st.data(),
        queue=_queue,
        fields=fields(),
        spelling=st.sampled_from(("compact", "escaped", "spaced")),
    )
    def seed(self, data: st.DataObject, queue: str, fields: dict[str, Any], spelling: str) -> None:
        kind, args = self._kind(data)
        options: dict[str, Any] = {}
        if self._claims("scheduler/core") and data.draw(st.sampled_from((False, False, True))):
            options["place"] = data.draw(st.sampled_from(("schedule", "retry")))
            options["delay"] = data.draw(_delays)
        elif kind in ("Fail", "Flaky"):
            options["retry"] = data.draw(st.sampled_from((True, True, True, False, 0, 1, 3)))
            if options["retry"] is True and (count := data.draw(_counts)) is not None:
                options |= {"count": count, "failed_at": data.draw(_failed)}
        common = {"kind": kind, "args": args, "queue": queue, "fields": fields}
        self._do("seed", **common, spelling=spelling, **options)

    @precondition(lambda self: self._claims("scheduler/core") and self.model.waits)
    @rule(name=st.sampled_from(("schedule", "retry")), seconds=_warps)
    def warp(self, name: str, seconds: float) -> None:
        self._do("warp", name=name, seconds=seconds)

    # -- workers

    # Two equal rules, so that most examples have workers.

    @precondition(lambda self: self._claims("worker/core") and self.model.stirs)
    @rule(data=st.data())
    def work(self, data: st.DataObject) -> None:
        self._work(data)

    @precondition(lambda self: self._claims("worker/core") and self.model.stirs)
    @rule(data=st.data())
    def work_on(self, data: st.DataObject) -> None:
        self._work(data)

    def _work(self, data: st.DataObject) -> None:
        choices: list[tuple[str, dict[str, Any]]]
        if self.model.worker is None:
            choices = [("start", {"serve": True})] * 3
            if self._claims("scheduler/core") and self.model.waits:
                choices.append(("start", {"serve": False}))
        else:
            choices = [("release", {})] * 4 if self.model.held is not None else []
            if self._claims("worker/signals"):
                choices += [("stop", {"signal": "TERM"}), ("stop", {"signal": "INT"})]
            choices.append(("kill", {}))
        verb, given = data.draw(st.sampled_from(choices))
        self._do(verb, **given)


def _arguments(kind: str) -> st.SearchStrategy[list[Any]]:
    match kind:
        case "Fail":
            return st.tuples(texts()).map(list)
        case "Flaky":
            return st.tuples(st.integers(1, 2)).map(list)
        case "Gate":
            return st.just([])
    return _args


def machine(
    claims: Collection[str],
    play: Callable[[Sequence[Action]], None],
    excused: Collection[str] = (),
) -> type[RuleBasedStateMachine]:
    """Return a machine for an implementation.

    Args:
        claims: Claims of the implementation, which decide on the possible actions.
        play: Plays a complete example, and raises an error if it fails.
        excused: Requirements of declared deviations, which are not checked.
    """

    class Machine(_Machine):
        def __init__(self) -> None:
            super().__init__()
            self.model, self.actions = Model(claims, excused), []

        def teardown(self) -> None:
            # Do not play an incomplete example, which Hypothesis has given up.
            if sys.exc_info()[0] is None:
                play(self.actions)

    return Machine
