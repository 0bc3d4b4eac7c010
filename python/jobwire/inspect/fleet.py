"""All numbers that monitoring needs, in a fixed number of round trips."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jobwire.inspect.processes import ProcessInfo, read_process
from jobwire.inspect.reading import ask, items, name, problem, problems, raw, score, whole
from jobwire.inspect.summary import QueueSummary, latency
from jobwire.protocol.keys import Keys
from jobwire.protocol.wire import Op, command

__all__ = ["SETS", "Fleet", "fleet"]

SETS = ("scheduled", "retry", "dead", "unreadable", "parked")


@dataclass(frozen=True, slots=True)
class Fleet:
    """The numbers of all queues, sets and processes of one Redis at one moment.

    Attributes:
        processed: Executions since counting began, including failed ones. [STAT-1]
        failed: Executions that failed.
        recovered: Jobs that went back to their queues because their process had died. [REL-12]
        late: Outcomes that came too late, because the job had been recovered. [REL-23]
        handed_over: Times that a worker left a job to the workers of its class. [X-CLASS-7]
        sets: `scheduled`, `retry`, `dead`, `unreadable` and `parked` to the number of members.
        overdue: `scheduled` and `retry` to the seconds for which the job that is due first has
            been due; 0 if no job is due.
        parked_for: Seconds for which the first parked job has been parked; 0 for none.
        queues: All registered queues by name.
        processes: All processes with a living heartbeat, by identity.
        problems: Errors of keys, such as a key of another type.
    """

    processed: int
    failed: int
    recovered: int
    late: int
    handed_over: int
    sets: Mapping[str, int]
    overdue: Mapping[str, float]
    parked_for: float
    queues: Sequence[QueueSummary]
    processes: Sequence[ProcessInfo]
    problems: Sequence[str] = ()

    @property
    def enqueued(self) -> int:
        """Number of jobs in all queues."""
        return sum(queue.size for queue in self.queues)


def fleet(keys: Keys, *, now: float) -> Op[Fleet]:
    """Return the numbers, in two round trips however many queues, jobs and processes there are.

    No command reads more than one member of a set of jobs.
    """
    commands = [
        *(command("GET", keys.stat(kind)) for kind in ("processed", "failed")),
        *(command("GET", key) for key in (keys.recovered, keys.lost, keys.handed_over)),
        *(command("ZCARD", key) for key in (keys.schedule, keys.retry, keys.dead)),
        *(command("ZCARD", key) for key in (keys.unreadable, keys.parked)),
        *(
            command("ZRANGE", key, 0, 0, "WITHSCORES")
            for key in (keys.schedule, keys.retry, keys.parked)
        ),
        *(command("SMEMBERS", key) for key in (keys.queues, keys.paused, keys.processes)),
    ]
    replies = yield from ask(commands)
    counters = [whole(reply) for reply in replies[:5]]
    sizes = [whole(reply) for reply in replies[5:10]]
    first = [_score(reply) for reply in replies[10:13]]
    waited = [0.0 if at is None else max(now - at, 0.0) for at in first]
    names, held_back, identities = ([name(each) for each in items(reply)] for reply in replies[13:])
    paused = set(held_back)
    names.sort()
    identities.sort()
    more = [
        *(command("LLEN", raw(keys.queue(queue))) for queue in names),
        *(command("LINDEX", raw(keys.queue(queue)), -1) for queue in names),
        *(command("HGETALL", raw(keys.process(identity))) for identity in identities),
    ]
    answers = yield from ask(more)
    count = len(names)
    registered = map(read_process, identities, answers[2 * count :])
    processes = [process for process in registered if process is not None]
    serving = Counter(
        queue for process in processes if not process.quiet for queue in set(process.queues)
    )
    return Fleet(
        processed=counters[0],
        failed=counters[1],
        recovered=counters[2],
        late=counters[3],
        handed_over=counters[4],
        sets=dict(zip(SETS, sizes, strict=True)),
        overdue=dict(zip(("scheduled", "retry"), waited, strict=False)),
        parked_for=waited[2],
        queues=[
            QueueSummary(
                queue,
                whole(answers[index]),
                latency(answers[count + index], now),
                queue in paused,
                problem(more[index], answers[index]),
                serving[queue],
            )
            for index, queue in enumerate(names)
        ],
        processes=processes,
        problems=(*problems(commands, replies), *problems(more, answers)),
    )


def _score(reply: object) -> float | None:
    """Return the score of the only member in a reply with scores."""
    found = items(reply)
    return score(found[1]) if len(found) == 2 else None
