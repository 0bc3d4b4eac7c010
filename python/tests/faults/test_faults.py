"""Which command a rule strikes."""

from __future__ import annotations

from jobwire_conformance.wire.faults import Cut, Faults, Refuse, Rule

CUT = Cut("before")


def struck(rule: Rule, *commands: tuple[str, int]) -> list[int]:
    faults = Faults([rule])
    return [at for at, each in enumerate(commands) if faults.meet(*each) is not None]


def test_a_rule_strikes_the_nth_of_those_that_fit_once() -> None:
    calls = [("GET", 1), ("SET", 1), ("GET", 2), ("GET", 1), ("GET", 2)]
    assert struck(Rule(CUT, nth=2), *calls) == [1]
    assert struck(Rule(CUT, label="GET", nth=2), *calls) == [2]
    assert struck(Rule(CUT, label="GET", connection=2, nth=2), *calls) == [4]
    assert struck(Rule(CUT, label="GET", nth=2, times=2), *calls) == [2, 3]
    assert struck(Rule(CUT, label="DEL"), *calls) == []


def test_every_rule_counts_every_command_and_the_first_one_acts() -> None:
    first, second = Rule(CUT, nth=2), Rule(Refuse("ERR"), nth=2)
    faults = Faults([first, second])
    assert [faults.meet("GET", 1) for _ in range(3)] == [None, CUT, None]
    assert (first.struck, second.struck) == (1, 1)
