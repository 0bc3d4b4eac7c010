"""The abstract model: the place of each job, and the steps that perform and check each action.

It depends only on the actions, not on answers or keys of the system under test. Therefore every
example is a case, and it is the same case for every implementation.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from jobwire_conformance import data
from jobwire_conformance.model.actions import Action, Impossible
from jobwire_conformance.model.jobs import Fate, Job, spelt

__all__ = ["QUEUES", "Model", "Step", "script"]

Step = Mapping[str, Any]

QUEUES = ("default", "low", "a:\u00e9")
"""The queues that workers serve, in this order."""

_IDLE = "idle"  # the queue of a worker that only promotes
_PAST = 60.0  # seconds
_WARP = 500_000.0  # seconds: more than the longest delay before a retry
_GRACE = 1.0  # seconds; a whole number, because some implementations accept no other
_STARTED = 12  # largest number of jobs whose order is checked
_APART = 100.0  # seconds between due times, so that their order is certain

# The requirements that are broken if a place holds the wrong jobs, by the last action.
_PLACES: Mapping[str, Mapping[str, Sequence[str]]] = {
    "push": {"queue": ("PUSH-1",), "schedule": ("SCHED-1",)},
    "bulk": {"queue": ("BULK-5",), "schedule": ("BULK-5",)},
    "work": {
        "queue": ("FETCH-1", "SCHED-7"),
        "schedule": ("SCHED-6",),
        "retry": ("RETRY-9",),
        "dead": ("DEAD-1",),
    },
    "stop": {"queue": ("FETCH-6", "FETCH-1"), "retry": ("RETRY-10",), "dead": ("RETRY-10",)},
    "kill": {"queue": ("REL-4", "FETCH-1"), "retry": ("REL-2",)},
}


class Model:
    """The expected state after the actions so far.

    Args:
        claims: Claims of the implementation. The model only performs and checks claimed behaviour.
        excused: Requirements of declared deviations, which are not checked.
    """

    def __init__(self, claims: Collection[str], excused: Collection[str] = ()) -> None:
        self._claims = frozenset(claims)
        self._excused = frozenset(excused)
        self._queues: dict[str, list[Job]] = {}  # head first
        self._unsorted: set[str] = set()  # queues in which the order is not certain
        self._sets: dict[str, list[Job]] = {"schedule": [], "retry": [], "dead": []}
        self._numbers = 0
        self.worker: str | None = None
        self.serves = False
        self.held: Job | None = None
        self.limbo: Job | None = None
        self._workers = 0
        self._ran: list[Job] = []  # in the order in which they began
        self._in_order = True
        self._touched: list[tuple[Job, Fate]] = []  # ran in this action
        self._processed = 0
        self._failed = 0
        self._counted = True

    # -- possible actions

    def claims(self, *wanted: str) -> bool:
        """Return whether all these claims are made."""
        return self._claims.issuperset(wanted)

    @property
    def jobs(self) -> int:
        """Number of jobs in all places."""
        places = [*self._queues.values(), *self._sets.values()]
        return sum(map(len, places)) + (self.held is not None) + (self.limbo is not None)

    @property
    def kinds(self) -> Sequence[str]:
        """Kinds of jobs that can be checked."""
        failing = ("Fail", "Flaky") if self.claims("worker/retry") else ()
        return ("Echo", *failing, "Gate") if self.claims("worker/core") else ("Echo",)

    @property
    def waits(self) -> bool:
        """True if a job waits for its time."""
        return bool(self._sets["schedule"] or self._sets["retry"])

    @property
    def stirs(self) -> bool:
        """True if a worker runs, or a job waits for one."""
        return self.worker is not None or self.jobs > 0

    def apply(self, action: Action) -> list[Step]:
        """Apply an action to the model; return the steps that perform and check it.

        Raises:
            Impossible: The action is not possible now; the model stays unchanged.
        """
        before = copy.deepcopy(self.__dict__)
        self._touched = []
        try:
            return [step for step in getattr(self, f"_{action.verb}")(**action.given) if step]
        except Impossible:
            self.__dict__.update(before)
            raise

    # -- the client

    def _push(
        self,
        *,
        kind: str,
        args: list[Any],
        queue: str,
        fields: Mapping[str, Any],
        delay: float | None = None,
    ) -> Iterator[Step | None]:
        job = self._job("j", kind, args, queue, fields)
        if delay is not None:
            self._hold_time(delay)
            job.due = self._free(delay)
        step: dict[str, Any] = {"push": self._asked(job), "bind": job.jid.strip("{}")}
        place = "queue" if delay is None else "schedule"
        if delay is not None:
            step["at"] = _now(job.due)
        yield step
        yield self._check(_PLACES["push"][place], answer={"outcome": "ok"})
        yield from self._put(job, place, "push")

    def _bulk(
        self, *, kind: str, args: list[list[Any]], queue: str, delay: float | None = None
    ) -> Iterator[Step | None]:
        self._numbers += 1
        name = f"b{self._numbers}"
        jobs = [Job(f"{{{name}_{index}}}", kind, one, queue) for index, one in enumerate(args)]
        if delay is not None:
            self._hold_time(delay)
        options = {"class": jobs[0].class_, "queue": queue}
        step: dict[str, Any] = {"push_bulk": options, "args": args, "bind": name}
        if delay is not None:
            for job in jobs:
                job.due = self._free(delay)
                delay = job.due + _APART
            step["at"] = [_now(job.due) for job in jobs]
        yield step
        yield self._check(("BULK-5",), answer={"outcome": "ok"})
        wanted = {"$": "distinct", "len": len(jobs)}
        yield self._check(("BULK-2",), answer={"jids": wanted})
        place = "queue" if delay is None else "schedule"
        for number, job in enumerate(jobs, 1):
            yield from self._put(job, place, "bulk", last=number == len(jobs))

    def _refused(self, *, job: Mapping[str, Any], rule: str) -> Iterator[Step | None]:
        if not self._judges(rule):
            raise Impossible
        yield {"push": job}
        yield self._check((rule,), answer={"outcome": "rejected"})
        yield from self._look("push")

    def _disturbed(
        self, *, args: list[Any], fault: Mapping[str, Any], nth: int
    ) -> Iterator[Step | None]:
        """Push during a fault of the connection, and check that the outcome is true. [PUSH-8]"""
        # No worker serves this queue, so that it only holds the job of this push.
        self._numbers += 1
        queue = f"f{self._numbers}"
        yield {"fault": "driver", "match": {"cmd": "*", "nth": nth}, **fault}
        yield {"push": {"class": "JobwireEcho", "args": args, "queue": queue}}
        yield {"heal": "driver"}
        yield self._check(("PUSH-8",), truthful=f"queue:{queue}")
        yield from self._look("push")

    def _doubtful(self, *, args: list[Any]) -> Iterator[Step | None]:
        """Push a job that may be refused, and check that the outcome is true. [PUSH-8]"""
        self._numbers += 1
        queue = f"f{self._numbers}"
        yield {"push": {"class": "JobwireEcho", "args": args, "queue": queue}}
        yield self._check(("PUSH-8",), truthful=f"queue:{queue}")
        yield from self._look("push")

    def _asked(self, job: Job) -> dict[str, Any]:
        request = {"class": job.class_, "args": job.args, "queue": job.queue}
        return request | {**job.fields}

    def _put(self, job: Job, place: str, cause: str, *, last: bool = True) -> Iterator[Step | None]:
        """Put a job into a place, and check all places after the last job of several."""
        if place == "queue":
            self._queues.setdefault(job.queue, []).insert(0, job)
        else:
            self._insert(job)
        if not last:
            return
        if self.serves and self.held is None:
            yield from self._work()
        else:
            yield from self._promoted()
            yield from self._look(cause)
        if place == "schedule" and job in self._sets["schedule"]:
            index = self._sets["schedule"].index(job)
            score = {"$": "time", "within": 5, "of": _now(job.due)}
            yield self._check(("KEY-3",), zset="schedule", index=index, score=score)
            bare = {"at": _ABSENT, "enqueued_at": _ABSENT}
            yield self._check(("SCHED-1",), zset="schedule", index=index, payload=bare)
            yield from self._written(job, zset="schedule", index=index)
        elif job in self._queues.get(job.queue, ()):
            yield self._check(("KEY-1",), set="queues", has=[job.queue])
            yield from self._written(job, list=f"queue:{job.queue}", index=0)

    def _written(self, job: Job, **where: Any) -> Iterator[Step | None]:
        """Check the payload of a client, with one check for each requirement at risk."""
        yield from self._carried(job, **where)
        for rule in _at_stake(job):
            given = {"args": job.args, **job.fields}
            yield self._check((rule,), **where, payload=_about(rule, given))

    def _carried(self, job: Job, **where: Any) -> Iterator[Step | None]:
        """Check that all fields are present. Their values have other checks."""
        if job.fields:
            there = {name: {"$": "any"} for name in job.fields}
            yield self._check(("PAY-7",), **where, payload=there)
            yield self._check(("PAY-13",), **where, payload=_RESERVED)

    def _intact(self, job: Job, **where: Any) -> Iterator[Step | None]:
        """Check that a transition has kept the fields that it does not own. [PAY-7]"""
        yield from self._carried(job, **where)
        for rule in (*_at_stake(job), "PAY-7"):
            intact = {"class": job.class_, "args": job.args, **job.fields}
            yield self._check((rule,), **where, payload=_about(rule, intact))

    # -- actions of the suite itself

    def _seed(
        self,
        *,
        kind: str,
        args: list[Any],
        queue: str,
        fields: Mapping[str, Any],
        spelling: str,
        retry: bool | int = True,
        count: int | None = None,
        failed_at: float | int | None = None,
        place: str = "queue",
        delay: float = 0.0,
    ) -> Iterator[Step | None]:
        job = self._job("s", kind, args, queue, fields)
        job.jid = f"{self._numbers:024x}"
        job.retry, job.count, job.failed_at = retry, count, failed_at
        if count is None:
            job.failed_at = None
        job.raw = spelt(job.payload(), spelling)
        if place == "queue":
            yield {"seed": [{"lpush": f"queue:{queue}", "raw": job.raw}]}
            self._queues.setdefault(queue, []).insert(0, job)
            if self._runs(queue):
                yield from self._work()
            return
        self._hold_time(delay)
        job.due = self._free(delay)
        yield {"seed": [{"zadd": place, "score": _now(job.due), "raw": job.raw}]}
        self._insert(job, place)
        yield from self._work() if self.serves else self._promoted()

    def _warp(self, *, name: str, seconds: float) -> Iterator[Step | None]:
        if not self._sets[name] or self.held is not None:
            raise Impossible
        if name == "retry":
            seconds = _WARP
        yield {"warp": seconds, "keys": [name]}
        for job in self._sets[name]:
            job.due -= seconds
            job.aged += seconds if job.count is not None else 0.0
        yield from self._work() if self.serves else self._promoted()
        if self.worker is None:
            yield from self._look("push")

    # -- workers

    def _start(self, *, serve: bool) -> Iterator[Step | None]:
        if self.worker is not None:
            raise Impossible
        if self.limbo is not None and (not serve or any(self._queues.values()) or self._due()):
            raise Impossible
        self._workers += 1
        self.worker, self.serves = f"w{self._workers}", serve
        queues = [*QUEUES] if serve else [_IDLE]
        yield {"start": self.worker, "queues": queues, "grace": _GRACE}
        if self.limbo is not None:
            # The worker recovers the job and runs it again; its gate opens only after that.
            job, self.limbo, self._in_order = self.limbo, None, False
            job.began += 1
            yield {"await": {"began": job.jid, "is": job.began}}
            yield {"release": job.args[0]}
            yield {"await": {"performed": job.jid, "is": 1}}
            job.ended += 1
            self._touched.append((job, "done"))
        yield from self._work() if serve else self._promoted()

    def _release(self) -> Iterator[Step | None]:
        if self.held is None:
            raise Impossible
        job, self.held = self.held, None
        yield {"release": job.args[0]}
        job.ended += 1
        self._processed += 1
        self._touched.append((job, "done"))
        yield from self._work()

    def _stop(self, *, signal: str) -> Iterator[Step | None]:
        worker = self._running()
        yield from self._end(signal, worker)
        yield self._check(("SIG-1",), that={"exit": worker, "is": 0}, within=20)
        job, self.held = self.held, None
        if job is not None:
            # Some implementations count interrupted jobs; another check covers that. [STAT-1]
            self._counted = False
            self._queues.setdefault(job.queue, []).append(job)
            if job.raw is not None and job.count is None and job.began == 1:
                exact = {"$": "raw", "is": job.raw}
                yield self._check(("FETCH-6",), list=f"queue:{job.queue}", index=-1, raw=exact)
        if self._counted and self._processed:
            counted = [
                {"stat": "processed", "is": self._processed},
                {"stat": "failed", "is": self._failed},
            ]
            yield self._check(("STAT-1",), that=counted)
        yield from self._look("stop")

    def _end(self, signal: str, worker: str) -> Iterator[Step]:
        self.worker, self.serves = None, False
        if signal == "TERM":
            yield {"stop": worker}
        else:
            yield {"signal": signal, "process": worker}
            yield {"await": {"exit": worker, "not": "running"}}

    def _kill(self) -> Iterator[Step | None]:
        worker = self._running()
        if self.held is not None and not self.claims("worker/reliable"):
            raise Impossible  # the job may be lost (LW-1) or not
        self._counted = False
        self.worker, self.serves = None, False
        yield {"kill": worker}
        self.limbo, self.held = self.held, None
        if self.limbo is not None:
            yield self._check(("REL-1",), that={"copies": self.limbo.jid, "is": 1})
            yield {"warp": 61.0, "keys": [f"{{{worker}}}"]}
        yield from self._look("kill")

    def _running(self) -> str:
        if self.worker is None:
            raise Impossible
        return self.worker

    # -- reactions of workers

    def _work(self) -> Iterator[Step | None]:
        """Have the worker run all possible jobs, then check all places."""
        self._promote()
        while self.held is None and (job := self._next()) is not None:
            self._ran.append(job)
            if job.kind == "Gate":
                job.began += 1
                self.held = job
                break
            fate = job.run()
            self._touched.append((job, fate))
            self._processed += 1
            self._failed += fate != "done"
            if fate in ("retry", "dead"):
                job.due = 15.0 if fate == "retry" else 0.0
                job.raw = None
                self._sets[fate].append(job)
        if self.held is not None:
            yield {"await": {"began": self.held.jid, "is": self.held.began}}
        else:
            yield {"settle": True}
        yield from self._judged()
        yield from self._look("work")

    def _promoted(self) -> Iterator[Step | None]:
        """Have a scheduler without executors promote due jobs, then check them."""
        if self.worker is None or self.serves or not (moved := self._due()):
            return
        self._promote()
        yield {"settle": True}
        for job in moved:
            yield self._check(("SCHED-7",), that={"place": job.jid, "is": f"queue:{job.queue}"})
            if len(moved) > 1:
                continue
            key = f"queue:{job.queue}"
            now = {"$": "time", "within": 5}
            yield self._check(
                ("SCHED-6",),
                list=key,
                index=0,
                payload={"at": _ABSENT, "enqueued_at": now, "queue": job.queue},
            )
            yield from self._intact(job, list=key, index=0)
            yield self._check(("KEY-1",), set="queues", has=[job.queue])
        yield from self._look("work")

    def _due(self) -> list[Job]:
        waiting = [*self._sets["schedule"], *self._sets["retry"]]
        return [job for job in waiting if job.due <= 0]

    def _promote(self) -> None:
        if not (due := self._due()):
            return
        if not self.claims("scheduler/core"):
            raise Impossible
        together = [*due, *(job for jobs in self._queues.values() for job in jobs)]
        if len(together) > 1:
            if any(job.kind == "Gate" for job in together):
                raise Impossible  # the order of the other jobs and this one is not certain
            self._in_order = self._in_order and not self.serves
        for job in due:
            for waiting in (self._sets["schedule"], self._sets["retry"]):
                if job in waiting:
                    waiting.remove(job)
            if len(due) > 1:
                self._unsorted.add(job.queue)
            job.raw = None
            self._queues.setdefault(job.queue, []).insert(0, job)

    def _next(self) -> Job | None:
        for queue in QUEUES:
            if waiting := self._queues.get(queue):
                if queue in self._unsorted:
                    if any(job.kind == "Gate" for job in waiting) and len(waiting) > 1:
                        raise Impossible  # it is not certain which jobs come before this one
                    self._in_order = False
                return waiting.pop()
        self._unsorted.clear()
        return None

    # -- checks

    def _judged(self) -> Iterator[Step | None]:
        """Check the fates of the jobs that ran."""
        for job, fate in self._touched:
            done = [
                {"performed": job.jid, "is": job.ended},
                {"began": job.jid, "is": job.began},
            ]
            yield self._check(("EXEC-1",), that=done)
            if job.kind == "Echo":
                yield self._check(("EXEC-1",), ran=job.jid, args=job.args)
            if fate == "retry" and self._sets["retry"] == [job]:
                yield from self._failed_once_more(job)
            elif fate in ("retry", "dead"):
                yield self._check(("RETRY-5",), that={"place": job.jid, "is": fate})
            elif fate == "dropped":
                yield self._check(("RETRY-1",), that={"copies": job.jid, "is": 0})
        if self._in_order and self._touched and len(self._ran) <= _STARTED:
            order = [job.jid for job in self._ran]
            yield self._check(("FETCH-1",), that={"started": "*", "is": order})

    def _failed_once_more(self, job: Job) -> Iterator[Step | None]:
        count = job.count or 0
        now = {"$": "time", "within": 5}
        times: dict[str, Any] = {"retry_count": count}
        if count == 0:
            times |= {"failed_at": now, "retried_at": _ABSENT}
        elif job.failed_at is not None:
            times |= {"failed_at": _older(job.failed_at, job.aged), "retried_at": now}
        else:
            times |= {"failed_at": {**now, "of": _now(-job.aged)}, "retried_at": now}
        rule = "RETRY-17" if count else "RETRY-2"
        yield self._check((rule,), zset="retry", payload=times)
        if job.message is not None:
            error = {"error_message": job.message}
            yield self._check(("RETRY-3",), zset="retry", payload=error)
        spread = 5.0 * (count + 1)
        delay = count**4 + 15 + spread
        score = {"$": "time", "within": spread + 2, "of": _now(delay)}
        yield self._check(("RETRY-4",), zset="retry", score=score)
        yield self._check(("RETRY-7",), zset="retry", payload={"queue": job.queue})
        yield from self._intact(job, zset="retry")

    def _look(self, cause: str) -> Iterator[Step | None]:
        """Check that each place holds exactly its jobs."""
        rules = _PLACES[cause]
        for queue, jobs in self._queues.items():
            expected: dict[str, Any] = {"list": f"queue:{queue}", "len": len(jobs)}
            if queue not in self._unsorted:
                expected["jids"] = [job.same for job in jobs]
            yield self._check(rules["queue"], **expected)
        for name, jobs in self._sets.items():
            if name not in rules:
                continue
            expected = {"zset": name, "len": len(jobs)}
            if name == "schedule":
                expected["jids"] = [job.same for job in jobs]
            yield self._check(rules[name], **expected)
        yield self._check(("KEY-5",), grammar=True)

    def _judges(self, rule: str) -> bool:
        return rule not in self._excused and bool(self._claims.intersection(_claims_of(rule)))

    def _check(self, rules: Sequence[str], **parts: Any) -> Step | None:
        """Return a check of the first claimed requirement; None if none of them is claimed."""
        for rule in rules:
            if self._judges(rule):
                return {"check": rule, **parts}
        return None

    # -- bookkeeping

    def _job(
        self, letter: str, kind: str, args: list[Any], queue: str, fields: Mapping[str, Any]
    ) -> Job:
        self._numbers += 1
        if kind == "Gate":
            args = [f"g{self._numbers}"]
        return Job(f"{{{letter}{self._numbers}}}", kind, args, queue, fields)

    def _runs(self, queue: str) -> bool:
        return self.serves and self.held is None and queue in QUEUES

    def _hold_time(self, delay: float) -> None:
        # While a job is held, nothing shows that the scheduler has finished.
        if delay <= 0 and (self.held is not None or not self.claims("scheduler/core")):
            raise Impossible

    def _free(self, delay: float) -> float:
        """Return a time near the given one, at a distance from all other times."""
        taken = [job.due for job in [*self._sets["schedule"], *self._sets["retry"]]]
        while any(abs(delay - due) < _APART for due in taken):
            delay += _APART if delay > 0 else -_APART
        return delay

    def _insert(self, job: Job, place: str = "schedule") -> None:
        self._sets[place].append(job)
        self._sets[place].sort(key=lambda waiting: waiting.due)


_ABSENT = {"$": "absent"}
_RESERVED = {"bid": "b-1", "cron": "x"}


def script(
    actions: Iterable[Action], claims: Collection[str], excused: Collection[str] = ()
) -> list[list[Step]]:
    """Return the steps of each action; see `Model`.

    Raises:
        Impossible: An action is not possible after the actions before it.
    """
    model = Model(claims, excused)
    return [model.apply(action) for action in actions]


def _claims_of(rule: str) -> Collection[str]:
    requirement = data.requirements().get(rule)
    return () if requirement is None or requirement.retired else requirement.claims


def _now(seconds: float) -> str:
    return f"now{seconds:+.3f}".rstrip("0").rstrip(".")


def _older(time: float | int, seconds: float) -> float | int:
    """Return an earlier time, in the unit of the given one. [GEN-3]"""
    return time - int(seconds * 1000) if isinstance(time, int) else time - seconds


def _at_stake(job: Job) -> list[str]:
    """Return the requirements that a change of the job's values would break."""
    scalars = [*_scalars([job.args, dict(job.fields)])]
    rules = [rule for rule, holds in _STAKES.items() if any(map(holds, scalars))]
    return rules or ["PAY-2"]


def _about(rule: str, value: Any) -> Any:
    """Return a matcher for a value that accepts any number of another requirement's type."""
    if isinstance(value, Mapping):
        return {name: _about(rule, part) for name, part in value.items()}
    if isinstance(value, list):
        return [_about(rule, part) for part in value]
    other = rule in _STAKES and not _STAKES[rule](value)
    return {"$": "any"} if other and any(holds(value) for holds in _STAKES.values()) else value


def _scalars(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        for part in value.values():
            yield from _scalars(part)
    elif isinstance(value, list):
        for part in value:
            yield from _scalars(part)
    else:
        yield value


_STAKES: Mapping[str, Callable[[Any], bool]] = {
    "PAY-5": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "PAY-6": lambda value: isinstance(value, float),
}
