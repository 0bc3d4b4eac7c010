"""Waiting times of jobs in processes that prefetch: simulated time, the real decisions.

The simulation replaces `ReliableFetcher` around `Prefetch`: one thread leads, fetches and runs
quick jobs itself, and requests more before it needs them. Every few milliseconds the ticker takes
the lead from a stuck thread, and returns jobs that wait too long. Round trips take no time.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from jobwire.worker.base.timings import DEFAULT_TIMINGS
from jobwire.worker.execute.compiled_job import CompiledJob
from jobwire.worker.fetch.prefetch import MAX_AHEAD, Prefetch
from tests.profiles import examples

TICK = DEFAULT_TIMINGS.tick
QUICK, NEAR = DEFAULT_TIMINGS.quick_job, DEFAULT_TIMINGS.near_reply

KINDS = {
    # Seconds that a job of this kind takes: usually, and as a surprise.
    "quick": (0.00001, 2.0),
    "brief": (0.0004, 0.3),
    "medium": (0.01, 1.0),
    "long": (3.0, 0.001),
}
# Seconds in one process's buffer, as docs/explanation/performance.md promises.
BOUND = DEFAULT_TIMINGS.prefetch_stale + 2 * TICK


@dataclass(eq=False)
class Job:
    kind: str
    seconds: float
    fetched: float = 0.0
    starts: int = 0
    passed_over: float = 0.0  # seconds in a buffer while another process had a free slot


@dataclass(frozen=True)
class Asked:
    """A fetch whose answer is not read yet."""

    jobs: Sequence[Job]
    wanted: int
    at: float


@dataclass(eq=False)
class Process:
    """One process. `alone`: its only thread runs the jobs, and does not lead meanwhile."""

    slots: int
    alone: bool
    prefetch: Prefetch
    job_table: dict[str, CompiledJob]
    buffer: deque[Job] = field(default_factory=deque)
    filled: float = 0.0
    asked: Asked | None = None
    running: set[Job] = field(default_factory=set)
    leading: Job | None = None  # the job that the leader runs without having resigned
    leading_since: float = 0.0

    @property
    def free(self) -> bool:
        return len(self.running) < self.slots

    @property
    def waiting(self) -> list[Job]:
        """The jobs that are taken and not started."""
        return [*self.buffer, *(self.asked.jobs if self.asked else ())]

    def read(self, now: float) -> None:
        """Read the answer to a request: `ReliableFetcher._collect`."""
        if self.asked is not None:
            asked, self.asked = self.asked, None
            self.prefetch.got(len(asked.jobs), wanted=asked.wanted, seconds=now - asked.at)
            if not self.buffer:
                self.filled = asked.at
            self.buffer.extend(asked.jobs)


class Fleet:
    """Some processes and one queue, in simulated time."""

    def __init__(self, shapes: Sequence[tuple[int, bool]]) -> None:
        self.now = 0.0
        self.queue: deque[Job] = deque()  # the next job is at the left
        self.processes = [
            Process(
                slots,
                threads and slots == 1,
                Prefetch(slots),
                {kind: CompiledJob(None, lambda job: None) for kind in KINDS},
            )
            for slots, threads in shapes
        ]
        self.longest = 0.0  # in one buffer
        self.stuck = 0.0  # in the buffer of a process with a free slot
        self._events: list[tuple[float, int, Process | None, Job | None]] = []
        self._number = count()

    def at(self, when: float, process: Process | None, job: Job | None) -> None:
        """Have a job pushed (no process), a job end, or a process tick (no job)."""
        heapq.heappush(self._events, (when, next(self._number), process, job))

    def run(self) -> None:
        """Run until only ticks are left."""
        for number, each in enumerate(self.processes):
            self.at(number * TICK / len(self.processes), each, None)
        waiting = sum(event[2] is None for event in self._events)
        while waiting or self.queue or any(p.waiting or p.running for p in self.processes):
            when, _, process, job = heapq.heappop(self._events)
            self._pass(when)
            if process is None:
                waiting -= 1
                self.queue.extend([job] if job else [])
            elif job is None:
                self._tick(process)
            else:
                self._end(process, job)
            for each in self.processes:
                self._step(each)
            assert not self.queue or not any(
                p.free and p.leading is None and not p.waiting for p in self.processes
            ), "a job is left in the queue although a process is idle"

    def _pass(self, when: float) -> None:
        for process in self.processes:
            others = any(p.free and p.leading is None for p in self.processes if p is not process)
            for job in process.waiting if others else ():
                job.passed_over += when - self.now
        self.now = when

    def _step(self, process: Process) -> None:
        """Run the steps of the leader: `ReliableFetcher.take` and `_fetch_or_wait`."""
        while process.leading is None and (process.free or not process.alone):
            if process.buffer and process.free:
                self._start(process, process.buffer.popleft())
                meanwhile = process.prefetch.wanted_ahead(len(process.buffer))
                if meanwhile and process.asked is None:
                    process.asked = self._fetch(meanwhile)
                continue
            if process.asked is not None:
                process.read(self.now)
                continue
            wanted = process.prefetch.wanted(
                busy=len(process.running), buffered=bool(process.buffer)
            )
            assert 0 <= wanted <= process.slots + MAX_AHEAD
            if not wanted:
                return
            process.asked = self._fetch(wanted)
            if not process.asked.jobs:
                process.read(self.now)
                return

    def _fetch(self, wanted: int) -> Asked:
        jobs = [self.queue.popleft() for _ in range(min(wanted, len(self.queue)))]
        for job in jobs:
            job.fetched = self.now
        return Asked(jobs, wanted, self.now)

    def _start(self, process: Process, job: Job) -> None:
        self._left(process, job)
        job.starts += 1
        process.running.add(job)
        if process.prefetch.keeps_lead(process.job_table[job.kind].seconds):
            process.leading, process.leading_since = job, self.now
        self.at(self.now + job.seconds, process, job)

    def _end(self, process: Process, job: Job) -> None:
        process.running.discard(job)
        process.job_table[job.kind].took(job.seconds)
        process.prefetch.ran(job.seconds)
        if process.leading is job:
            process.leading = None

    def _tick(self, process: Process) -> None:
        """`ReliableFetcher._check`."""
        if process.leading is not None and self.now - process.leading_since > TICK:
            process.leading = None
            self.stuck = max(self.stuck, self.now - process.leading_since)
        late = process.prefetch.goes_back
        if (process.buffer and late(self.now - process.filled)) or (
            process.asked is not None and late(self.now - process.asked.at)
        ):
            process.read(self.now)
            process.prefetch.went_back()
            for job in reversed(process.buffer):
                self._left(process, job)
                self.queue.appendleft(job)
            process.buffer.clear()
        self.at(self.now + TICK, process, None)

    def _left(self, process: Process, job: Job) -> None:
        self.longest = max(self.longest, self.now - job.fetched)


shapes = st.lists(st.tuples(st.integers(1, 5), st.booleans()), min_size=1, max_size=4)
arrivals = st.lists(
    st.tuples(
        st.sampled_from(sorted(KINDS)),
        st.integers(0, 9).map(lambda draw: draw == 0),  # True if the job is a surprise
        st.sampled_from([0.0, 0.0, 0.001, 0.02]),  # seconds since the job before
        st.integers(1, 60),  # number of such jobs at once
    ),
    min_size=1,
    max_size=25,
)


@pytest.mark.process
@settings(max_examples=examples(150))
@given(shapes=shapes, arrivals=arrivals)
@example(  # quick jobs, then suddenly a slow one
    shapes=[(5, True), (5, True)],
    arrivals=[("quick", False, 0.0, 60), ("quick", True, 0.001, 1), ("quick", False, 0.0, 60)],
)
@example(  # long jobs behind quick ones, one slot each
    shapes=[(1, True), (1, True), (1, False)],
    arrivals=[("quick", False, 0.0, 60), ("long", False, 0.0, 3), ("quick", False, 0.0, 60)],
)
def test_no_job_waits_long_for_another_while_a_process_could_take_it(
    shapes: list[tuple[int, bool]], arrivals: list[tuple[str, bool, float, int]]
) -> None:
    """REL-1: a buffer keeps no job for longer than the bound, even behind a long job."""
    fleet = Fleet(shapes)
    jobs: list[Job] = []
    when = 0.0
    for kind, surprise, gap, number in arrivals:
        when += gap
        for _ in range(number):
            jobs.append(Job(kind, KINDS[kind][surprise]))
            fleet.at(when, None, jobs[-1])
    fleet.run()
    assert [job.starts for job in jobs] == [1] * len(jobs)
    assert fleet.longest <= BOUND + 1e-9
    assert fleet.stuck <= 2 * TICK + 1e-9
    passed_over = max(job.passed_over for job in jobs)
    assert passed_over <= len(shapes) * BOUND + 1e-9, "a free process was not reached"


def test_nothing_is_taken_ahead_before_jobs_have_proved_quick() -> None:
    prefetch = Prefetch(5)
    assert prefetch.wanted(busy=0, buffered=False) == 5
    for _ in range(200):
        prefetch.ran(QUICK)
    wanted = prefetch.wanted(busy=0, buffered=False)
    assert 5 < wanted <= 5 + 50
    assert prefetch.wanted(busy=5, buffered=False) == 0  # the queue may not have that many
    prefetch.got(wanted, wanted=wanted, seconds=0.0)
    assert prefetch.wanted(busy=5, buffered=False) == wanted - 5
    assert prefetch.wanted(busy=5, buffered=True) == 0
    prefetch.went_back()
    assert prefetch.wanted(busy=5, buffered=False) == 0
    assert prefetch.wanted(busy=4, buffered=False) <= 2


def test_more_is_asked_for_while_quick_jobs_run_where_the_server_is_near() -> None:
    prefetch = Prefetch(5)
    for _ in range(200):
        prefetch.ran(0.00001)
    assert prefetch.wanted(busy=0, buffered=False) == 5 + MAX_AHEAD // 2
    assert prefetch.wanted_ahead(0) == 0  # the queue may not have that many
    prefetch.got(10, wanted=10, seconds=2 * NEAR)
    assert prefetch.wanted_ahead(0) == 0  # jobs in a slow reply would be kept from others
    prefetch.got(10, wanted=10, seconds=NEAR / 2)
    assert prefetch.wanted_ahead(MAX_AHEAD) == 0
    assert prefetch.wanted_ahead(MAX_AHEAD // 2) == MAX_AHEAD // 2
    for _ in range(200):
        prefetch.ran(2 * QUICK)
    assert prefetch.wanted_ahead(0) == 0  # another thread leads, and has time


@pytest.mark.parametrize("seconds", [0.00001, 0.001, 0.1, 5.0])
def test_what_is_taken_ahead_is_expected_to_be_run_at_once(seconds: float) -> None:
    """The number of slots does not count, because quick jobs run one after the other."""
    prefetch = Prefetch(10)
    for _ in range(200):
        prefetch.ran(seconds)
    wanted = prefetch.wanted(busy=0, buffered=False)
    prefetch.got(wanted, wanted=wanted, seconds=0.0)
    ahead = wanted - 10 + prefetch.wanted_ahead(0)
    assert ahead <= MAX_AHEAD
    assert ahead * seconds / (1 if seconds < QUICK else 10) <= 0.005 + 1e-9
