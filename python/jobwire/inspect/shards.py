"""The shards of an application: their numbers and states, read at the same time, and changes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import partial
from typing import Generic, TypeVar

from jobwire.connection.closing import Closing
from jobwire.connection.cluster import keys_at
from jobwire.errors import ConfigError, RedisTrouble
from jobwire.inspect.fleet import SETS, Fleet
from jobwire.inspect.periodic import described
from jobwire.inspect.summary import QueueSummary
from jobwire.inspect.sync import Inspector
from jobwire.protocol.keys import Keys
from jobwire.protocol.periodic_entry import DEFAULT_NAMESPACE
from jobwire.protocol.placement import ShardState, States, newest, read_states, write_states
from jobwire.protocol.wire import Op

__all__ = ["AskAll", "ShardReport", "ShardStates", "total"]

PATIENCE_S = 1.0  # for the answer of one of several servers, from the question on
TIMEOUT_S = 5.0  # for a reply to a change
SETTLE_S = 12.0  # after which every program follows a change, and every job is where it can be seen
MAX_SERVERS = 1_000  # each has at most one thread, and only while it is asked

T = TypeVar("T")


class AskAll(Generic[T]):
    """Asks several servers at the same time, so that a slow one holds up no other.

    A server that has not answered yet is not asked again. Threads may share it.
    """

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(MAX_SERVERS, "jobwire-ask")
        self._lock = threading.Lock()
        self._asked: dict[str, tuple[Future[T], float]] = {}  # and the monotonic time

    def answers(self, questions: Mapping[str, Callable[[], T]]) -> dict[str, T | RedisTrouble]:
        """Return the answer of each server, or its trouble; a lone one has all the time it needs.

        Args:
            questions: Name of each server to the call that asks it.
        """
        if len(questions) == 1:
            ((name, question),) = questions.items()
            return {name: _answer(question)}
        found: dict[str, T | RedisTrouble] = {}
        for name, (future, began) in self._ask(questions).items():
            wait([future], max(began + PATIENCE_S - time.monotonic(), 0.0))
            found[name] = (
                _answer(future.result)
                if future.done()
                else RedisTrouble(f"no reply within {PATIENCE_S:g} s")
            )
        return found

    def close(self) -> None:
        """Wait for the answers that are under way, at most for the timeout of their servers."""
        self._threads.shutdown()

    def _ask(self, questions: Mapping[str, Callable[[], T]]) -> dict[str, tuple[Future[T], float]]:
        with self._lock:
            for name, question in questions.items():
                last = self._asked.get(name)
                if last is None or last[0].done():
                    self._asked[name] = self._threads.submit(question), time.monotonic()
            return {name: self._asked[name] for name in questions}


def _answer(ask: Callable[[], T]) -> T | RedisTrouble:
    try:
        return ask()
    except RedisTrouble as error:
        return error


def total(fleets: Sequence[Fleet]) -> Fleet:
    """Return the sum of several Redis: sizes and counts are added up, times are the longest.

    A queue is paused if it is on one of them.
    """
    queues: dict[str, QueueSummary] = {}
    for queue in (queue for fleet in fleets for queue in fleet.queues):
        other = queues.get(queue.name)
        queues[queue.name] = (
            queue
            if other is None
            else QueueSummary(
                queue.name,
                other.size + queue.size,
                max(other.latency, queue.latency),
                other.paused or queue.paused,
                other.problem or queue.problem,
                other.workers + queue.workers,
            )
        )
    overdue = dict.fromkeys((name for fleet in fleets for name in fleet.overdue), 0.0)
    return Fleet(
        processed=sum(fleet.processed for fleet in fleets),
        failed=sum(fleet.failed for fleet in fleets),
        recovered=sum(fleet.recovered for fleet in fleets),
        late=sum(fleet.late for fleet in fleets),
        handed_over=sum(fleet.handed_over for fleet in fleets),
        sets={name: sum(fleet.sets[name] for fleet in fleets) for name in SETS},
        overdue={name: max(fleet.overdue[name] for fleet in fleets) for name in overdue},
        parked_for=max((fleet.parked_for for fleet in fleets), default=0.0),
        queues=[queues[name] for name in sorted(queues)],
        processes=[process for fleet in fleets for process in fleet.processes],
        problems=[problem for fleet in fleets for problem in fleet.problems],
    )


@dataclass(frozen=True, slots=True)
class ShardReport:
    """A shard.

    Attributes:
        name: Its name in the application.
        state: `used`, `draining` or `removed`; `new` if it gets no jobs because it was not added.
        epoch: Number of the change that gave it this state; 0 if there was none.
        left: Places with jobs, such as `queue mails` and `retry`, to the number of jobs.
        problem: The reason for which it cannot be asked, or "".
        stale: Names of the shards that do not know its state yet.
    """

    name: str
    state: str
    epoch: int
    left: Mapping[str, int] = field(default_factory=dict)
    problem: str = ""
    stale: Sequence[str] = ()


class ShardStates(Closing):
    """Shows and changes the states of the shards of an application.

    Each shard has a copy of all states, in the hash `jobwire:shards`, and a copy is written in one
    step. A command that was killed between two shards leaves older copies. The next command writes
    the newest states to all, also those that another person changed in the meantime.

    Args:
        urls: Name of each shard to its URL.
        namespace: Prefix of every key.
    """

    def __init__(self, urls: Mapping[str, str], namespace: str = "") -> None:
        self._keys = {name: keys_at(url, namespace) for name, url in urls.items()}
        self._inspectors = {
            name: Inspector(url, namespace=namespace, timeout=TIMEOUT_S)
            for name, url in urls.items()
        }
        self._reading: AskAll[dict[str, ShardState]] = AskAll()
        self._counting: AskAll[dict[str, int]] = AskAll()

    def close(self) -> None:
        """Close the connections."""
        self._reading.close()
        self._counting.close()
        for inspector in self._inspectors.values():
            inspector.close()

    def reports(self) -> list[ShardReport]:
        """Return each shard."""
        copies = self._copies()
        known = newest(copy for copy in copies.values() if not isinstance(copy, RedisTrouble))
        left = self._counting.answers(
            {name: partial(self._left, name) for name in self._inspectors}
        )
        found = []
        for name, there in left.items():
            state = known.get(name, ShardState(0, "new" if known else "used"))
            found.append(
                ShardReport(
                    name,
                    state.name,
                    state.epoch,
                    {} if isinstance(there, RedisTrouble) else there,
                    str(there) if isinstance(there, RedisTrouble) else "",
                    [
                        other
                        for other, copy in copies.items()
                        if isinstance(copy, RedisTrouble) or copy.get(name) != known.get(name)
                    ],
                )
            )
        return found

    def use(self, names: Sequence[str]) -> None:
        """Let shards get jobs: new ones, or those that were draining or removed.

        Raises:
            ConfigError: The application has no such shard.
            RedisTrouble: A shard could not be told; the others were. Do it again.
        """
        self._change(names, "used")

    def drain(self, names: Sequence[str]) -> None:
        """Let shards get no more jobs; workers still run those that are there.

        Raises:
            ConfigError: The application has no such shard, or no other one gets jobs.
            RedisTrouble: A shard could not be told; the others were. Do it again.
        """
        self._change(names, "draining")

    def remove(self, names: Sequence[str]) -> None:
        """Let workers leave shards on which nothing is left. This takes some seconds.

        A shard is looked at twice. In between, every program learns that the shard is draining,
        and jobs that a worker without a private list holds show up in its heartbeat.

        Raises:
            ConfigError: A shard is not draining, or something is left on it.
            RedisTrouble: A shard cannot be asked or told. Do it again.
        """
        self._check(names)
        self._write(self._merged())  # a copy that is older may let a program push there
        began = time.monotonic()
        states = self._merged()
        for name in names:
            state = states.get(name)
            if state is None or state.name not in ("draining", "removed"):
                raise ConfigError(f"shard {name!r} is not draining; drain it first")
            self._require_empty(name)
        time.sleep(max(began + SETTLE_S - time.monotonic(), 0.0))
        for name in names:
            self._require_empty(name)
        self._change(names, "removed")

    def _require_empty(self, name: str) -> None:
        if left := self._left(name):
            told = ", ".join(f"{place}: {number:,}" for place, number in left.items())
            raise ConfigError(
                f"shard {name!r} is not empty ({told}); wait until its workers have run these, and "
                "delete what must not run"
            )

    def _check(self, names: Sequence[str]) -> None:
        for name in names:
            if name not in self._inspectors:
                known = ", ".join(self._inspectors)
                raise ConfigError(f"the application has no shard {name!r}, only {known}")

    def _change(self, names: Sequence[str], name: str) -> None:
        self._check(names)
        states = self._merged()
        epoch = max((state.epoch for state in states.values()), default=0) + 1
        if not states:  # shards that the first change does not name would get no more jobs
            states = dict.fromkeys(self._inspectors, ShardState(epoch, "used"))
        for shard in names:
            if shard not in states or states[shard].name != name:
                states[shard] = ShardState(epoch, name)
        if not any(states[shard].name == "used" for shard in self._inspectors if shard in states):
            raise ConfigError(f"no shard would get jobs without {', '.join(names)}; add one first")
        self._write(states)

    def _write(self, states: States) -> None:
        """Write states to all shards, with newer ones that another command writes meanwhile.

        Raises:
            RedisTrouble: A shard could not be told.
        """
        troubles: dict[str, RedisTrouble] = {}
        while not troubles:
            copies = self._copies()
            read = {
                name: copy for name, copy in copies.items() if not isinstance(copy, RedisTrouble)
            }
            known = newest([states, *read.values()])
            older = [name for name, copy in read.items() if copy != known]
            for name in older:
                try:
                    self._ask(name, partial(write_states, states=known))
                except RedisTrouble as error:
                    troubles[name] = error
            troubles |= {
                name: copy for name, copy in copies.items() if isinstance(copy, RedisTrouble)
            }
            if not older:
                break
        missed = [name for name in troubles if known[name].name != "removed"]
        if missed:
            told = "; ".join(f"shard {name!r} was not told: {troubles[name]}" for name in missed)
            raise RedisTrouble(f"{told}; do it again when it answers")

    def _merged(self) -> dict[str, ShardState]:
        copies = self._copies().values()
        return newest(copy for copy in copies if not isinstance(copy, RedisTrouble))

    def _copies(self) -> dict[str, dict[str, ShardState] | RedisTrouble]:
        return self._reading.answers(
            {name: partial(self._ask, name, read_states) for name in self._inspectors}
        )

    def _ask(self, name: str, op: Callable[[Keys], Op[T]]) -> T:
        return self._inspectors[name].redis.run(op(self._keys[name]))

    def _left(self, name: str) -> dict[str, int]:
        """Return the number of jobs by place; a job that moves meanwhile is seen on its way."""
        inspector = self._inspectors[name]
        found: dict[str, int] = {}

        def waiting() -> None:
            fleet = inspector.fleet()
            queues = {f"queue {queue.name}": queue.size for queue in fleet.queues}
            places = {**queues, **fleet.sets}
            for place, size in places.items():
                found[place] = max(found.get(place, 0), size)

        waiting()
        found["fetched"] = sum(each.size for each in inspector.holdings(most=0))
        found["running"] = len(inspector.works())
        waiting()
        found["periodic"] = len(
            self._ask(name, lambda keys: described(keys, DEFAULT_NAMESPACE, now=time.time()))
        )
        batches = inspector.batches().batches
        found["open batches"] = sum(batch.state in ("open", "closed") for batch in batches)
        return {place: number for place, number in found.items() if number}
