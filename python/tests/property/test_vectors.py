"""With any random draw, jobwire stays inside fixtures/vectors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from jobwire.connection import resources
from jobwire.protocol.ordering import QueueOrder
from jobwire.protocol.promotion import next_wait
from jobwire.protocol.retry import retry_delay


def load(kind: str) -> list[dict[str, Any]]:
    path = Path(resources.path("fixtures") / "vectors" / f"{kind}.json")
    loaded: list[dict[str, Any]] = json.loads(path.read_text("utf-8"))
    return loaded


DICE = st.floats(0, 1, exclude_max=True)
CAPSULES = [vector for vector in load("queue-selection") if vector["mode"] != "strict"]
EXTREMES = {
    (vector["configured"], vector["processes"]): vector["wait"]["8.0.10-"]
    for vector in load("poll-intervals")
    if vector["look"] == "next" and vector["u"] == 0.5
}


@given(vector=st.sampled_from(load("retry-delays")), jitter=DICE)
def test_every_delay_is_one_of_the_interval(vector: dict[str, Any], jitter: float) -> None:
    """[RETRY-4]"""
    delay = vector["delays"]["8.0-"]
    drawn = retry_delay(vector["retry_count"], jitter=jitter)
    assert drawn in range(delay["min"], delay["max"] + 1, delay["step"])


@given(data=st.data(), vector=st.sampled_from(CAPSULES))
def test_every_shuffle_is_dealt_from_the_top(data: st.DataObject, vector: dict[str, Any]) -> None:
    """[FETCH-3] The first ticket of a queue decides its place."""
    shuffled = data.draw(st.permutations(vector["expanded"]))

    def deal(names: list[str]) -> None:
        names[:] = shuffled

    order = QueueOrder(dict(vector["weights"])).pick(deal)
    assert sorted(order) == sorted(queue for queue, _ in vector["weights"])
    assert [shuffled.index(queue) for queue in order] == sorted(map(shuffled.index, order))


@given(case=st.sampled_from(sorted(EXTREMES, key=str)), jitter=DICE)
def test_every_wait_is_within_its_span(case: tuple[float | None, int], jitter: float) -> None:
    """[SCHED-8] 0.5 to 1.5 times the average for few processes, 0 to 2 times for many."""
    configured, processes = case
    average = EXTREMES[case]
    few = processes < 10
    wait = next_wait(configured, processes=processes, jitter=jitter)
    assert average * (0.5 if few else 0) <= wait <= average * (1.5 if few else 2)
