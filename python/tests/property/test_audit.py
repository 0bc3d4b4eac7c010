"""jobwire.worker.background.audit: it puts back entries that are unknown twice, and no others."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from jobwire.worker.background.audit import Known, Suspects, gather

fields = st.builds("{}:{}".format, st.integers(1, 12), st.sampled_from(["a", "b:c"]))
spans = st.builds(lambda first, count: range(first, first + count), st.integers(1, 12), st.just(2))
knowns = st.builds(Known, st.lists(spans, max_size=2), st.sets(fields, max_size=6))


@given(st.lists(st.tuples(st.sets(fields, max_size=8), knowns), max_size=6))
def test_a_field_goes_back_if_two_looks_in_a_row_do_not_know_it(
    looks: list[tuple[set[str], Known]],
) -> None:
    """REL-8: never after one look, and never a job of which the process knows."""
    suspects = Suspects()
    before: set[str] = set()
    for held, known in looks:
        numbers = {number for span in known.numbers for number in span}
        unknown = {
            field
            for field in held
            if field not in known.fields and int(field.partition(":")[0]) not in numbers
        }
        assert set(suspects.look(held, known)) == unknown & before
        before = unknown


class Path:
    """The places of jobs: fetch, buffer, threads, outbox. Jobs move on before each is read."""

    def __init__(self, moves: list[list[int]]) -> None:
        self.places: list[list[int]] = [[1, 2, 3], [4, 5], [6, 7], [8, 9]]
        self._moves = iter(moves)
        self.open_numbers = lambda: [range(n, n + 1) for n in self.read(0)]
        self.waiting = lambda: self.fields(1)
        self.taken = lambda: self.fields(2)
        self.outbox: Any = SimpleNamespace(fields=lambda: self.fields(3))

    def read(self, place: int) -> list[int]:
        for source in next(self._moves):
            if self.places[source]:
                number = self.places[source].pop(0)
                if source < 3:  # else it is stored
                    self.places[source + 1].append(number)
        return list(self.places[place])

    def fields(self, place: int) -> list[str]:
        return [f"{number}:a" for number in self.read(place)]


@given(st.lists(st.lists(st.integers(0, 3), max_size=9), min_size=5, max_size=5))
def test_a_job_that_moves_on_is_seen(moves: list[list[int]]) -> None:
    """REL-8: the places are read in the order in which jobs move."""
    path: Any = Path(moves)
    known = gather([path], path.taken, path.outbox)
    path.read(0)
    assert all(f"{number}:a" in known for place in path.places for number in place)
