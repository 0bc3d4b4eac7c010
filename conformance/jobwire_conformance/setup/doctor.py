"""Is the adapter in order? Nothing here is about the protocol: that is what checks are for."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from jobwire_conformance.config import Config
from jobwire_conformance.errors import AdapterFault
from jobwire_conformance.sandbox.driver import Outcome
from jobwire_conformance.sandbox.local_server import Database, LocalServer, server_program
from jobwire_conformance.sandbox.processes import wait_for
from jobwire_conformance.sandbox.reaper import Reaper
from jobwire_conformance.sandbox.sandbox import DEFAULTS, Sandbox
from jobwire_conformance.sandbox.worker import Event, SandboxWorker

__all__ = ["Item", "diagnose"]

_OPERATIONS = {
    "client/core": "push",
    "client/bulk": "push_bulk",
    "inspector/read": "inspect",
    "inspector/write": "act",
}
_SLOW = 1.0  # seconds of an answer that are worth a word
_TALKATIVE = 1 << 20  # bytes of a log that are worth a word
_LATE = 5.0  # seconds beyond what was asked for
_QUEUE = "jobwire-doctor"
_LONG = "é\n\\ \u2028 \U0001f600" * 20_000  # some 300 kB, with everything that breaks lines


@dataclass(frozen=True, slots=True)
class Item:
    """One line of the list.

    Attributes:
        what: That was looked at.
        state: How it is.
        seen: What was seen.
        advice: What to do about it; empty if nothing.
    """

    what: str
    state: Literal["ok", "note", "bad", "left out"]
    seen: str = ""
    advice: str = ""


def diagnose(
    config: Config, *, program: str | None, patience: float, begins: Callable[[str], None]
) -> Iterator[Item]:
    """Look at driver and worker, and yield what is found, as it is found.

    Args:
        config: Of the implementation.
        program: Of the servers; None for the first one that there is.
        patience: Seconds until something that has to happen must have.
        begins: Told what is looked at next.

    Raises:
        EnvironmentFault: There is no server.
    """
    found = server_program(program)
    with Reaper() as reaper:

        def servers() -> tuple[Database, Database]:
            return LocalServer(reaper, found), LocalServer(reaper, found)

        roles = {claim.partition("/")[0] for claim in config.claims}
        own = {*reaper.marked()}
        with Sandbox(reaper, config, servers) as sandbox:
            sandbox.reset()
            own = {*reaper.marked()}  # the servers
            looks: list[tuple[str, bool, Callable[[], Iterator[Item]]]] = [
                (
                    "driver",
                    config.driver is not None,
                    _Driver(sandbox, reaper, own, roles, begins).look,
                ),
                (
                    "worker",
                    config.worker is not None,
                    _Worker(sandbox, reaper, own, patience, begins).look,
                ),
            ]
            needed = {"driver": {"client", "inspector"}, "worker": {"worker", "scheduler"}}
            for name, there, look in looks:
                if not there:
                    yield Item(name, "left out", f"there is no section [{name}]")
                elif not needed[name] & roles:
                    yield Item(name, "left out", "no claim of conformance.toml needs it")
                else:
                    yield from _guarded(name, look)


def _guarded(name: str, look: Callable[[], Iterator[Item]]) -> Iterator[Item]:
    """Make of what ends a look the last item of it."""
    try:
        yield from look()
    except AdapterFault as error:
        problem, _, advice = str(error).partition("\n  What to do: ")
        seen = problem.partition("is at fault: ")[2] or problem
        yield Item(name, "bad", seen, advice)


class _Look:
    """What both have in common."""

    def __init__(self, reaper: Reaper, own: set[int]) -> None:
        self._reaper = reaper
        self._own = own

    def _left(self, name: str) -> Item:
        what = f"{name} leaves no process"
        gone = wait_for(lambda: not self._others(), 2.0, 0.05)
        if gone:
            return Item(what, "ok")
        numbers = ", ".join(map(str, self._others()))
        return Item(
            what,
            "bad",
            f"still there after its end: {numbers}",
            "have what it starts end with it; the suite kills these, a supervisor may not",
        )

    def _others(self) -> set[int]:
        return {*self._reaper.marked()} - self._own

    @staticmethod
    def _said(name: str, total: int) -> Item:
        if total <= _TALKATIVE:
            return Item(f"{name}'s log", "ok", f"{total} bytes")
        return Item(
            f"{name}'s log",
            "note",
            f"{total >> 20} MiB",
            "log less: only the last 64 KiB are kept, and writing takes time",
        )


class _Driver(_Look):
    def __init__(
        self,
        sandbox: Sandbox,
        reaper: Reaper,
        own: set[int],
        roles: set[str],
        begins: Callable[[str], None],
    ) -> None:
        super().__init__(reaper, own)
        self._sandbox = sandbox
        self._roles = roles
        self._begins = begins
        self._slowest = 0.0

    def look(self) -> Iterator[Item]:
        sandbox, claims = self._sandbox, self._sandbox.config.claims
        self._begins("driver: hello")
        began = time.monotonic()
        sandbox.driver.hello()
        yield Item(
            "driver starts and answers hello",
            "ok",
            f"version {sandbox.driver.version}, {(time.monotonic() - began) * 1000:.0f} ms",
        )
        has = sandbox.driver.operations - {"hello"}
        lacks = [op for claim, op in _OPERATIONS.items() if claim in claims and op not in has]
        if lacks:
            yield Item(
                "driver has the operations",
                "bad",
                f"hello lists {', '.join(sorted(has)) or 'none'}, and the claims need "
                f"{', '.join(lacks)}",
                "fill them in and list them in hello, or take the claim out of conformance.toml",
            )
        else:
            yield Item("driver has the operations", "ok", ", ".join(sorted(has)))
        if "push" in has:
            yield from self._pushes()
        self._begins("driver: bye")
        yield self._unsupported(has)
        yield Item(
            "driver answers in time",
            "ok" if self._slowest < _SLOW else "note",
            f"the slowest answer took {self._slowest * 1000:.0f} ms",
            "" if self._slowest < _SLOW else "keep the connection open between requests",
        )
        yield self._said("driver", sandbox.driver.log.total)
        yield self._leaves()
        yield self._left("driver")

    def _pushes(self) -> Iterator[Item]:
        self._begins("driver: push")
        said = self._ask("push", job={"class": "JobwireEcho", "args": [1], "queue": _QUEUE})
        if said["outcome"] != "ok":
            wait_for(
                lambda: self._sandbox.driver.log.text() != "", 0.5
            )  # it may come a little later
            yield Item(
                "driver pushes",
                "bad",
                f"the answer was {said['outcome']}"
                + (f": {said['message']}" if said.get("message") else ""),
                "fill in `push`; its standard error ends so:\n"
                + "\n".join(_tail(self._sandbox.driver.log.text())),
            )
            return
        yield Item("driver pushes", "ok", f"jid {said['jid']}")
        if self._sandbox.driver_proxy.snapshot():
            yield Item("driver uses JOBWIRE_REDIS_URL", "ok")
        else:
            yield Item(
                "driver uses JOBWIRE_REDIS_URL",
                "bad",
                "nothing has passed on the way to that Redis",
                "connect to JOBWIRE_REDIS_URL, or to redis_url of hello",
            )
        self._begins("driver: a long line")
        # Not timed: that some are slow with so much is no matter.
        self._sandbox.driver.ask(
            "push", job={"class": "JobwireEcho", "args": [_LONG], "queue": _QUEUE}
        )
        yield Item("driver keeps to one line for each request", "ok", "also of 300 kB")
        self._sandbox.link.call("FLUSHDB")

    def _unsupported(self, has: frozenset[str]) -> Item:
        what = "driver says what it does not have"
        for op, request in _ABSENT.items():
            if op not in has:
                outcome = self._ask(op, **request)["outcome"]
                if outcome == "unsupported":
                    return Item(what, "ok", op)
                return Item(
                    what,
                    "bad",
                    f"{op}, which hello does not list, was answered with {outcome}",
                    'answer {"id":...,"unsupported":true} to what you do not have',
                )
        return Item(what, "ok", "it has everything")

    def _leaves(self) -> Item:
        what = "driver ends after bye"
        if self._sandbox.config.driver is not None and self._sandbox.config.driver.oneshot:
            return Item(what, "left out", 'mode = "oneshot"')
        status = self._sandbox.driver.leave(_LATE)
        if status == 0:
            return Item(what, "ok")
        seen = f"still there after {_LATE:g} s" if status is None else f"exit status {status}"
        return Item(what, "note", seen, "answer bye, then exit with 0; it is killed otherwise")

    def _ask(self, op: str, **members: Any) -> Outcome:
        began = time.monotonic()
        said = self._sandbox.driver.ask(op, **members)
        self._slowest = max(self._slowest, time.monotonic() - began)
        return said


_ABSENT: Mapping[str, Mapping[str, Any]] = {
    "inspect": {"what": "queues"},
    "push_bulk": {"job": {"class": "JobwireEcho"}, "args": []},
    "act": {"action": "clear", "queue": _QUEUE},
    "push": {"job": {"class": "JobwireEcho", "args": []}},
}


def _tail(text: str) -> list[str]:
    """Return the last lines of a log, indented."""
    return [f"    {line[:300]}" for line in text.splitlines()[-5:]] or ["    (nothing)"]


class _Worker(_Look):
    def __init__(
        self,
        sandbox: Sandbox,
        reaper: Reaper,
        own: set[int],
        patience: float,
        begins: Callable[[str], None],
    ) -> None:
        super().__init__(reaper, own)
        self._sandbox = sandbox
        self._patience = patience
        self._begins = begins
        self._number = 0

    def look(self) -> Iterator[Item]:
        self._begins("worker: first fetch")
        began = time.monotonic()
        worker = self._sandbox.start("w1", [_QUEUE], concurrency=2)
        taken = (time.monotonic() - began) * 1000
        yield Item("worker starts and fetches", "ok", f"from {_QUEUE}, after {taken:.0f} ms")
        yield from self._jobs(worker)
        yield from self._concurrency(worker)
        if "scheduler/core" in self._sandbox.config.claims:
            yield self._poll(worker)
        yield self._said("worker", worker.log.total)
        yield self._stops(worker)
        yield self._left("worker")

    # -- the standard jobs

    def _jobs(self, worker: SandboxWorker) -> Iterator[Item]:
        small = {"class": "JobwireEcho", "args": ["x"], "queue": _QUEUE}
        tries: Sequence[tuple[str, list[Any], bool, str]] = (
            (
                "JobwireEcho",
                [1, "é", None, {"a": [True]}],
                True,
                "report begin with args, then end",
            ),
            ("JobwireFail", ["no"], False, 'report end with "ok":false, then raise JobwireError'),
            ("JobwireFlaky", [0], True, "INCR jw:RUN:n:JID; fail while the count is not above n"),
            ("JobwireSpawn", [small], True, "push the job in args[0] with your client"),
        )
        only = "worker/core" if "worker/core" in self._sandbox.config.claims else None
        for name, args, ok, advice in tries:
            self._begins(f"worker: {name}")
            jid = self._push(name, args)
            events = self._await(worker, jid, lambda es: any(e.what == "end" for e in es))
            ends = [event for event in events if event.what == "end"]
            begun = [event for event in events if event.what == "begin"]
            seen = f"reported {', '.join(e.what for e in events) or 'nothing'}"
            if not ends or not begun or ends[0].ok is not ok:
                state: Literal["note", "bad"] = (
                    "bad" if name == "JobwireEcho" or only is None else "note"
                )
                yield Item(f"worker runs {name}", state, seen, advice)
            elif name != "JobwireSpawn" and begun[0].args != args:
                told = json.dumps(begun[0].args, ensure_ascii=False)
                yield Item(
                    f"worker runs {name}",
                    "bad",
                    f"the arguments were reported as {told}",
                    "report args as a list, as the job got them",
                )
            else:
                yield Item(f"worker runs {name}", "ok")

    def _concurrency(self, worker: SandboxWorker) -> Iterator[Item]:
        self._begins("worker: JobwireGate")
        jids = [self._push("JobwireGate", [f"g{number}"]) for number in range(3)]
        begun: list[str | None] = []

        def two() -> bool:
            begun[:] = [e.jid for e in worker.events() if e.what == "begin" and e.jid in jids]
            return len(begun) >= 2

        wait_for(two, self._patience, 0.02)
        # A third one that is to come, comes soon: it has to be given the chance.
        wait_for(lambda: two() and len(begun) > 2, 0.5, 0.02)
        for number in range(3):
            key = f"jw:{self._sandbox.run}:gate:g{number}"
            self._sandbox.control.call("RPUSH", key, "open")
        ended = wait_for(
            lambda: sum(e.what == "end" and e.jid in jids for e in worker.events()) == 3,
            self._patience,
            0.02,
        )
        if not begun:
            yield Item(
                "worker runs JobwireGate",
                "bad",
                "reported nothing",
                "report begin, BLPOP jw:RUN:gate:NAME 0 at JOBWIRE_CONTROL_URL, report end",
            )
            return
        yield Item(
            "worker runs JobwireGate",
            "ok" if ended else "bad",
            "" if ended else "not all ended when their gates were opened",
            "" if ended else "wait with BLPOP jw:RUN:gate:NAME 0 at JOBWIRE_CONTROL_URL",
        )
        yield Item(
            "worker obeys JOBWIRE_CONCURRENCY",
            "ok" if len(begun) == 2 else "bad",
            f"of 2 executors {len(begun)} took a job",
            "" if len(begun) == 2 else "run exactly so many jobs at a time",
        )

    def _poll(self, worker: SandboxWorker) -> Item:
        what = "worker obeys JOBWIRE_POLL"
        self._begins("worker: a due job")
        fixed = self._sandbox.config.worker.fixed if self._sandbox.config.worker else {}
        if "poll" in fixed:
            return Item(what, "left out", f"fixed at {fixed['poll']:g} s in conformance.toml")
        began = time.monotonic()
        jid = self._push("JobwireEcho", [], due=True)
        events = self._await(worker, jid, bool)
        taken = time.monotonic() - began
        advice = "look for due jobs every JOBWIRE_POLL seconds, or say fixed = { poll = SECONDS }"
        if not events:
            seen = f"a job that was due in `schedule` has not run for {self._patience:g} s"
            return Item(what, "bad", seen, advice)
        seen = f"a due job ran after {taken:.1f} s, where JOBWIRE_POLL is {DEFAULTS['poll']}"
        return Item(what, "ok", seen) if taken < _LATE else Item(what, "note", seen, advice)

    def _stops(self, worker: SandboxWorker) -> Item:
        what = "worker ends on SIGTERM"
        self._begins("worker: SIGTERM")
        worker.idle_expected = False
        began = time.monotonic()
        worker.group.signal("TERM")
        patience = DEFAULTS["grace"] + _LATE
        if wait_for(lambda: worker.group.status is not None, patience, 0.01):
            taken = time.monotonic() - began
            return Item(what, "ok", f"after {taken:.1f} s, exit status {worker.group.status}")
        worker.end()
        return Item(
            what,
            "bad",
            f"idle, and still there after {patience:g} s",
            "stop on SIGTERM, at the latest JOBWIRE_GRACE seconds later; a script has to `exec` "
            "the worker, or it takes the signal itself",
        )

    # -- pushing, and waiting for reports

    def _push(self, name: str, args: Sequence[Any], *, due: bool = False) -> str:
        self._number += 1
        jid = f"{self._number:024x}"
        now: float = time.time()
        if self._sandbox.config.generation == 8:
            now = int(now * 1000)
        job = {
            **{"class": name, "args": args, "jid": jid, "queue": _QUEUE, "retry": False},
            **{"created_at": now, "enqueued_at": now},
        }
        text = json.dumps(job, separators=(",", ":"))
        prefix = self._sandbox.config.prefix
        if due:
            self._sandbox.link.call("ZADD", f"{prefix}schedule", time.time(), text)
        else:
            registered = ("SADD", f"{prefix}queues", _QUEUE)
            self._sandbox.link.calls([registered, ("LPUSH", f"{prefix}queue:{_QUEUE}", text)])
        return jid

    def _await(
        self, worker: SandboxWorker, jid: str, enough: Callable[[Sequence[Event]], bool]
    ) -> list[Event]:
        def about() -> list[Event]:
            return [event for event in worker.events() if event.jid == jid]

        wait_for(lambda: enough(about()) or worker.group.status is not None, self._patience, 0.01)
        if worker.group.status is not None:
            raise AdapterFault(
                "the worker of the implementation is at fault: it ended by itself, exit status "
                f"{worker.group.status}.\n  What to do: keep running until SIGTERM, whatever jobs "
                f"do.\n  Its output ends so:\n{worker.group.tail()}"
            )
        return about()
