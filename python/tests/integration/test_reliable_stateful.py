"""The reliable profile as a whole: no job is lost in any order of the steps of processes.

The model is the place of each job and the number of its returns; a real server has to agree
after every step.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from harness.servers import Server
from jobwire.connection.sync import SyncRedis
from jobwire.protocol.dead_set import DeadSetLimits
from jobwire.protocol.keys import Keys
from jobwire.protocol.outcome import Outcome
from jobwire.protocol.reliable import (
    REMEMBER_RETURNED_S,
    fetch,
    held_fields,
    put_back,
    recover,
    resign,
    script_done,
    script_finish,
)
from jobwire.protocol.reliable import sequence_number as sequence
from jobwire.protocol.stats import Deliveries, deliveries
from jobwire.protocol.wire import Script, once
from jobwire.worker.background.audit import Known, Suspects

KEYS = Keys()
DAY = "2026-11-20"
QUEUES = ("a", "b:c")
OWNERS = ("h:1:x", "h:2:y")

owners = st.sampled_from(OWNERS)
queues = st.sampled_from(QUEUES)


@dataclass
class Job:
    """The expected state of a job."""

    number: int
    place: str  # "queue a", "held h:1:x", "retry", "dead", "gone"
    text: bytes
    origin: str = ""  # the queue that it was fetched from
    returned: int = 0
    recovered: int = 0


@dataclass
class Process:
    """A process that fetches. It may know of jobs that it does not hold any more."""

    alive: bool = False
    sequence: int = 1
    known: dict[str, Job] = field(default_factory=dict)


class Fleet(RuleBasedStateMachine):
    """Two processes that live, sleep, wake up and die, with two queues."""

    def __init__(self, shell: SyncRedis, client: Any) -> None:
        super().__init__()
        self.run = shell.run
        self.client = client
        self.jobs: list[Job] = []
        self.processes = {name: Process() for name in OWNERS}
        self.paused: set[str] = set()
        self.now = 1_795_192_067.0
        self.lost = 0
        self.recovered = 0

    @initialize()
    def begin(self) -> None:
        self.client.flushall()
        for name in OWNERS:
            self.wake(name)
        for queue in QUEUES * 2:
            self.push(queue)

    @rule(queue=queues)
    def push(self, queue: str) -> None:
        number = len(self.jobs)
        job = Job(number, f"queue {queue}", b'{"n":%d,"try":0}' % number)
        self.jobs.append(job)
        self.client.lpush(KEYS.queue(queue), job.text)

    @rule(name=owners)
    def wake(self, name: str) -> None:
        """The process beats: for the first time, or after a long silence."""
        self.processes[name].alive = True
        self.client.hset(name, "info", "{}")

    @rule(name=owners)
    def sleep(self, name: str) -> None:
        """The lease of the process ends; the process may live or not."""
        self.processes[name].alive = False
        self.client.delete(name)

    @rule(queue=queues)
    def pause(self, queue: str) -> None:
        self.paused.add(queue)
        self.client.sadd(KEYS.paused, queue)

    @rule(queue=queues)
    def resume(self, queue: str) -> None:
        self.paused.discard(queue)
        self.client.srem(KEYS.paused, queue)

    @rule(name=owners, order=st.permutations(QUEUES), count=st.integers(1, 4))
    def fetch(self, name: str, order: list[str], count: int) -> None:
        process = self.processes[name]
        fetched = self.run(fetch(KEYS, name, order, count=count, sequence=process.sequence))
        process.sequence += count
        assert fetched.lease == process.alive
        for held in fetched.jobs:
            job = next(job for job in self.jobs if job.text == held.text)
            assert job.place == f"queue {held.queue}"
            assert held.queue not in self.paused
            assert (held.returned, held.recovered) == (job.returned, job.recovered)
            job.place, job.origin = f"held {name}", held.queue
            process.known[held.field] = job
        assert not any(held.recovered for held in fetched.jobs[:-1])  # REL-10
        if (
            process.alive
            and len(fetched.jobs) < count
            and not sum(held.recovered for held in fetched.jobs)
        ):
            waiting = {f"queue {queue}" for queue in order if queue not in self.paused}
            assert not any(job.place in waiting for job in self.jobs)

    def jobs_begun(self) -> bool:
        return any(process.known for process in self.processes.values())

    def draw(self, data: st.DataObject) -> tuple[str, str, Job, bool]:
        """Draw one of the jobs that a process believes it holds; tell whether it holds it."""
        believed = [
            (name, each) for name, process in self.processes.items() for each in process.known
        ]
        name, entry = data.draw(st.sampled_from(believed))
        job = self.processes[name].known.pop(entry)
        held = bool(self.client.hexists(KEYS.private(name), entry))
        assert not held or job.place == f"held {name}"
        return name, entry, job, held

    @precondition(jobs_begun)
    @rule(data=st.data(), kind=st.sampled_from(["done", "retry", "bury", "again"]))
    def settle(self, data: st.DataObject, kind: str) -> None:
        name, entry, job, held = self.draw(data)
        attempt = json.loads(job.text)["try"] + 1
        text = b'{"n":%d,"try":%d}' % (job.number, attempt)
        step: Script
        if kind == "done":
            step = script_done(KEYS, name, [entry], failed=False, day=DAY)
        else:
            outcome = {
                "retry": Outcome("retry", text, self.now, "failed"),
                "bury": Outcome("dead", text, counted="failed"),
                "again": Outcome("queue", text, counted=""),
            }[kind]
            limits = DeadSetLimits(self.now) if outcome.trims else None
            step = script_finish(KEYS, name, [(entry, outcome)], day=DAY, dead_limits=limits)
        reply = self.run(once(step))
        assert reply == ([] if held else [entry.encode()])
        self.lost += not held
        if held:
            again = f"queue {job.origin}"
            places = {"done": "gone", "retry": "retry", "bury": "dead", "again": again}
            job.place = places[kind]
            job.text = job.text if kind == "done" else text
            job.returned = job.recovered = 0

    @precondition(jobs_begun)
    @rule(data=st.data(), started=st.booleans())
    def put_back(self, data: st.DataObject, started: bool) -> None:
        name, entry, job, held = self.draw(data)
        count = self.run(put_back(KEYS, name, [entry], started=started, now=self.now))
        assert count == held
        self.lost += started and not held
        if held:
            job.place = f"queue {job.origin}"
            job.returned += started

    @precondition(jobs_begun)
    @rule(data=st.data())
    def lose_track(self, data: st.DataObject) -> None:
        """A reply is lost, or the server forgets an outcome: the process does not know the job."""
        self.draw(data)

    @rule(name=owners)
    def audit(self, name: str) -> None:
        suspects, known = Suspects(), Known([], self.processes[name].known)
        looks = [suspects.look(self.run(held_fields(KEYS, name)), known) for _ in range(2)]
        held = self.client.hgetall(KEYS.private(name))
        assert looks == [[], sorted({f.decode() for f in held} - {*known.fields}, key=sequence)]
        assert self.run(put_back(KEYS, name, looks[1], started=True, now=self.now)) == len(looks[1])
        texts = [held[field.encode()] for field in looks[1]]
        for job in self.jobs:
            if job.place == f"held {name}" and job.text in texts:
                job.place = f"queue {job.origin}"
                job.returned += 1

    @rule(name=owners, ended=st.sets(owners))
    def recover(self, name: str, ended: set[str]) -> None:
        """A process reported as ended has no lease to lose."""
        ended = {each for each in ended if not self.processes[each].alive}
        found = self.run(recover(KEYS, own=name, now=self.now, ended=ended))
        for dead in OWNERS:
            taken = 0
            for job in self.jobs:
                if job.place == f"held {dead}" and dead != name and not self.processes[dead].alive:
                    job.place = f"queue {job.origin}"
                    job.returned += 1
                    job.recovered += 1
                    taken += 1
            assert found.get(dead, 0) == taken
            self.recovered += taken

    @rule()
    def everybody_dies(self) -> None:
        """New processes with other identities replace all processes; the old ones never wake up."""
        for name in OWNERS:
            self.sleep(name)
        self.recover("h:3:z", set())
        for name in OWNERS:
            self.processes[name].known.clear()
            self.wake(name)

    @rule(name=owners)
    def leave(self, name: str) -> None:
        """A process ends normally."""
        assert self.run(resign(KEYS, name, now=self.now)) == 0
        for job in self.jobs:
            if job.place == f"held {name}":
                job.place = f"queue {job.origin}"
                job.returned += 1
        self.sleep(name)

    @rule()
    def three_days_pass(self) -> None:
        """The next search for dead processes then forgets all counts."""
        self.now += REMEMBER_RETURNED_S + 1
        for name in OWNERS:
            self.wake(name)  # so that nothing is recovered just now
        self.run(recover(KEYS, own=OWNERS[0], now=self.now))
        for job in self.jobs:
            job.returned = job.recovered = 0

    @invariant()
    def every_job_is_where_it_should_be(self) -> None:
        """REL-1 to REL-4: each job is in exactly one place."""
        found = Counter[tuple[str, bytes]]()
        for queue in QUEUES:
            found.update((f"queue {queue}", text) for text in self.texts(KEYS.queue(queue)))
        for name in OWNERS:
            found.update((f"held {name}", text) for text in self.client.hvals(KEYS.private(name)))
        for zset in ("retry", "dead"):
            found.update((zset, text) for text in self.client.zrange(zset, 0, -1))
        assert found == Counter((job.place, job.text) for job in self.jobs if job.place != "gone")
        held_by = {job.place.removeprefix("held ") for job in self.jobs if "held" in job.place}
        assert held_by <= {name.decode() for name in self.client.smembers(KEYS.owners)}

    @invariant()
    def counts_are_right(self) -> None:
        """REL-7, REL-10 and REL-12."""
        assert self.run(deliveries(KEYS)) == Deliveries(self.recovered, self.lost)
        counted = [job for job in self.jobs if job.returned]
        assert self.client.zcard(KEYS.returned_at) == len(counted)
        assert self.client.hlen(KEYS.returned) == len(counted) + sum(
            job.recovered > 0 for job in counted
        )

    def texts(self, key: str) -> list[bytes]:
        texts: list[bytes] = self.client.lrange(key, 0, -1)
        return texts


@pytest.mark.process
def test_no_job_is_lost_whatever_happens(server: Server, shell: SyncRedis) -> None:
    """REL-1, REL-2, REL-3, REL-4, REL-7 to REL-10 and REL-12."""
    client = server.client()
    make: Any = lambda: Fleet(shell, client)  # noqa: E731
    run_state_machine_as_test(
        make,
        settings=settings(
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
