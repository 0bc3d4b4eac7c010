"""Examination of an adapter. It judges driver and worker, but not the protocol."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from jobwire_conformance.config import Config
from jobwire_conformance.errors import AdapterFault
from jobwire_conformance.sandbox.driver import Outcome
from jobwire_conformance.sandbox.idle import Event
from jobwire_conformance.sandbox.local_server import Database, LocalServer, server_program
from jobwire_conformance.sandbox.processes import wait_for
from jobwire_conformance.sandbox.reaper import Reaper
from jobwire_conformance.sandbox.sandbox import DEFAULTS, Sandbox
from jobwire_conformance.sandbox.worker import SandboxWorker, is_report

__all__ = ["DoctorItem", "diagnose"]

_OPERATIONS = {
    "client/core": "push",
    "client/bulk": "push_bulk",
    "inspector/read": "inspect",
    "inspector/write": "act",
}
_ALSO_NEEDED = {
    "JobwireFlaky": ("worker/retry", "scheduler/core", "inspector/write"),
    "JobwireSpawn": ("worker/retry", "worker/cancelling", "worker/gitlab"),
}
"""Standard jobs that few claims need, and these claims."""
_CONNECT = "connect to JOBWIRE_REDIS_URL, or to redis_url of hello"
_SLOW = 1.0  # seconds; a slower answer gets a note
_TALKATIVE = 1 << 20  # bytes; a larger log gets a note
_LATE = 5.0  # seconds of tolerance
_QUEUE = "jobwire-doctor"
_SIGNALS = ("SIGINT", "SIGTERM", "SIGTSTP", "SIGTTIN")
_LONG = "é\n\\ \u2028 \U0001f600" * 20_000  # about 300 kB, with all characters that break lines


@dataclass(frozen=True, slots=True)
class DoctorItem:
    """One result of the examination."""

    what: str  # name of the examined property
    state: Literal["ok", "note", "bad", "left out"]
    seen: str = ""  # the observation behind the state
    advice: str = ""  # the remedy; empty if none is needed


def diagnose(
    config: Config, *, program: str | None, patience: float, begins: Callable[[str], None]
) -> Iterator[DoctorItem]:
    """Examine driver and worker, and yield each result at once.

    Args:
        config: Settings of the implementation.
        program: Program of the servers; None for the first one on PATH.
        patience: Longest wait for an expected event, in seconds.
        begins: Called with the name of the next examination.

    Raises:
        EnvironmentFault: No server program exists.
    """
    server = server_program(program)
    with Reaper() as reaper:

        def servers() -> tuple[Database, Database]:
            return LocalServer(reaper, server), LocalServer(reaper, server)

        roles = {claim.partition("/")[0] for claim in config.claims}
        own = {*reaper.marked()}
        with Sandbox(reaper, config, servers) as sandbox:
            sandbox.reset()
            own = {*reaper.marked()}  # the servers
            looks: list[tuple[str, bool, Callable[[], Iterator[DoctorItem]]]] = [
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
            for name, is_there, look in looks:
                if not is_there:
                    yield DoctorItem(name, "left out", f"section [{name}] is missing")
                elif not needed[name] & roles:
                    yield DoctorItem(name, "left out", "no claim in conformance.toml needs it")
                else:
                    yield from _guarded(name, look)


def _guarded(name: str, look: Callable[[], Iterator[DoctorItem]]) -> Iterator[DoctorItem]:
    """Yield the items of an examination. An adapter fault that ends it is the last item."""
    try:
        yield from look()
    except AdapterFault as error:
        problem, _, advice = str(error).partition("\n  Remedy: ")
        seen = problem.partition("is at fault: ")[2] or problem
        seen = seen.replace("\n  ", f"\n{' ' * 9}")
        yield DoctorItem(name, "bad", seen, advice)


class _Examination:
    """The parts that the examinations of driver and worker share."""

    def __init__(self, reaper: Reaper, own: set[int]) -> None:
        self._reaper = reaper
        self._own = own

    def _left(self, name: str) -> DoctorItem:
        what = f"{name} leaves no process"
        gone = wait_for(lambda: not self._others(), 2.0, 0.05)
        if gone:
            return DoctorItem(what, "ok")
        numbers = ", ".join(map(str, self._others()))
        return DoctorItem(
            what,
            "bad",
            f"processes still running after its end: {numbers}",
            f"end all processes that the {name} has started; a supervisor may not kill them",
        )

    def _others(self) -> set[int]:
        return {*self._reaper.marked()} - self._own

    @staticmethod
    def _log_size(name: str, total: int) -> DoctorItem:
        if total <= _TALKATIVE:
            return DoctorItem(f"{name}'s log", "ok", f"{total} bytes")
        return DoctorItem(
            f"{name}'s log",
            "note",
            f"{total >> 20} MiB",
            "write less: the suite keeps only the last 64 KiB, and writing takes time",
        )


class _Driver(_Examination):
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

    def look(self) -> Iterator[DoctorItem]:
        sandbox, claims = self._sandbox, self._sandbox.config.claims
        self._begins("driver: hello")
        began = time.monotonic()
        sandbox.driver.hello()
        yield DoctorItem(
            "driver starts and answers hello",
            "ok",
            f"version {sandbox.driver.version}, {(time.monotonic() - began) * 1000:.0f} ms",
        )
        has = sandbox.driver.operations - {"hello"}
        lacks = [op for claim, op in _OPERATIONS.items() if claim in claims and op not in has]
        if lacks:
            yield DoctorItem(
                "driver has the operations",
                "bad",
                f"hello lists {', '.join(sorted(has)) or 'none'}, but the claims need "
                f"{', '.join(lacks)}",
                "add them and list them in hello, or remove the claim from conformance.toml",
            )
        else:
            yield DoctorItem("driver has the operations", "ok", ", ".join(sorted(has)))
        if "push" in has:
            yield from self._pushes()
        self._begins("driver: bye")
        yield self._unsupported(has)
        yield DoctorItem(
            "driver answers in time",
            "ok" if self._slowest < _SLOW else "note",
            f"the slowest answer took {self._slowest * 1000:.0f} ms",
            "" if self._slowest < _SLOW else "keep the connection open between requests",
        )
        yield self._log_size("driver", sandbox.driver.log.total)
        yield self._leaves()
        self._begins("driver: end of input")
        yield self._ends()
        yield self._left("driver")

    def _pushes(self) -> Iterator[DoctorItem]:
        self._begins("driver: push")
        answer = self._ask("push", job={"class": "JobwireEcho", "args": [1], "queue": _QUEUE})
        if answer["outcome"] != "ok":
            wait_for(lambda: self._sandbox.driver.log.text() != "", 0.5)  # the log may come later
            yield DoctorItem(
                "driver pushes",
                "bad",
                f"the answer was {answer['outcome']}"
                + (f": {answer['message']}" if answer.get("message") else ""),
                f"{self._pushing(answer)}; the end of the driver's standard error:\n"
                + "\n".join(_tail(self._sandbox.driver.log.text())),
            )
            return
        yield DoctorItem("driver pushes", "ok", f"jid {answer['jid']}")
        if self._sandbox.driver_proxy.snapshot():
            yield DoctorItem("driver uses JOBWIRE_REDIS_URL", "ok")
        else:
            yield DoctorItem(
                "driver uses JOBWIRE_REDIS_URL",
                "bad",
                "no command reached that Redis",
                _CONNECT,
            )
        self._begins("driver: a long line")
        # Not timed, because a slow answer to so long a line does not matter.
        self._sandbox.driver.ask(
            "push", job={"class": "JobwireEcho", "args": [_LONG], "queue": _QUEUE}
        )
        yield DoctorItem("driver keeps to one line for each request", "ok", "also of 300 kB")
        self._sandbox.link.call("FLUSHDB")

    def _pushing(self, answer: Outcome) -> str:
        """Return the remedy for a push that did not succeed."""
        if answer["outcome"] == "unsupported":
            return "fill in `push`"
        if self._sandbox.driver_proxy.snapshot():
            return "repair `push`, whose commands reached Redis"
        return f"no command reached Redis: {_CONNECT}"

    def _unsupported(self, has: frozenset[str]) -> DoctorItem:
        what = "driver names unsupported operations"
        for op, request in _ABSENT.items():
            if op not in has:
                outcome = self._ask(op, **request)["outcome"]
                if outcome == "unsupported":
                    return DoctorItem(what, "ok", op)
                return DoctorItem(
                    what,
                    "bad",
                    f"the answer to {op}, which hello does not list, was {outcome}",
                    'answer {"id":...,"unsupported":true} to operations that are not in hello',
                )
        return DoctorItem(what, "ok", "all operations are supported")

    def _leaves(self) -> DoctorItem:
        what = "driver ends after bye"
        if self._sandbox.config.driver is not None and self._sandbox.config.driver.oneshot:
            return DoctorItem(what, "left out", 'mode = "oneshot"')
        status = self._sandbox.driver.leave(_LATE)
        if status == 0:
            return DoctorItem(what, "ok")
        seen = f"still running after {_LATE:g} s" if status is None else f"exit status {status}"
        return DoctorItem(what, "note", seen, "answer bye, then exit with 0, or be killed")

    def _ends(self) -> DoctorItem:
        what = "driver ends at the end of its input"
        if self._sandbox.config.driver is not None and self._sandbox.config.driver.oneshot:
            return DoctorItem(what, "left out", 'mode = "oneshot"')
        status = self._sandbox.driver.hang_up(_LATE)
        if status is not None:
            return DoctorItem(what, "ok", f"exit status {status}" if status else "")
        seen = f"still running {_LATE:g} s after its standard input ended"
        return DoctorItem(
            what, "note", seen, "exit when standard input ends: a suite that is killed sends no bye"
        )

    def _ask(self, op: str, **members: Any) -> Outcome:
        began = time.monotonic()
        outcome = self._sandbox.driver.ask(op, **members)
        self._slowest = max(self._slowest, time.monotonic() - began)
        return outcome


_ABSENT: Mapping[str, Mapping[str, Any]] = {
    "inspect": {"what": "queues"},
    "push_bulk": {"job": {"class": "JobwireEcho"}, "args": []},
    "act": {"action": "clear", "queue": _QUEUE},
    "push": {"job": {"class": "JobwireEcho", "args": []}},
}


def _tail(text: str) -> list[str]:
    """Return the last lines of a log, indented."""
    return [f"    {line[:300]}" for line in text.splitlines()[-5:]] or ["    (nothing)"]


def _ignored(pid: int) -> DoctorItem | None:
    """Return the signals of the protocol that a process ignores; None without /proc."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return None
    mask = next((int(line[7:], 16) for line in status.splitlines() if line[:7] == "SigIgn:"), 0)
    names = [
        name.removeprefix("SIG") for name in _SIGNALS if mask >> (signal.Signals[name] - 1) & 1
    ]
    what = "worker can receive the signals"
    if not names:
        return DoctorItem(what, "ok")
    return DoctorItem(
        what,
        "note",
        f"it ignores {', '.join(names)}",
        "install a handler; a program that does not ignore them by itself inherits this, as from a "
        "shell that starts it in the background",
    )


class _Worker(_Examination):
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

    def look(self) -> Iterator[DoctorItem]:
        self._begins("worker: first fetch")
        began = time.monotonic()
        worker = self._sandbox.start("w1", [_QUEUE], concurrency=2)
        taken = (time.monotonic() - began) * 1000
        yield DoctorItem("worker starts and fetches", "ok", f"from {_QUEUE}, after {taken:.0f} ms")
        if (ignored := _ignored(worker.group.popen.pid)) is not None:
            yield ignored
        yield from self._jobs(worker)
        yield from self._concurrency(worker)
        if "scheduler/core" in self._sandbox.config.claims:
            yield self._poll(worker)
        yield self._log_size("worker", worker.log.total)
        yield self._stops(worker)
        yield self._left("worker")

    # -- the standard jobs

    def _jobs(self, worker: SandboxWorker) -> Iterator[DoctorItem]:
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
        for name, args, ok, advice in tries:
            self._begins(f"worker: {name}")
            jid = self._push(name, args)
            events = self._await(worker, jid, lambda es: any(e.kind == "end" for e in es))
            ends = [event for event in events if event.kind == "end"]
            begun = [event for event in events if event.kind == "begin"]
            seen = f"reported {', '.join(e.kind for e in events) or 'nothing'}"
            if name == "JobwireEcho":
                self._report_place(worker)
            if not ends or not begun or ends[0].ok is not ok:
                needed = _ALSO_NEEDED.get(name, self._sandbox.config.claims)
                if {*needed} & {*self._sandbox.config.claims}:
                    yield DoctorItem(f"worker runs {name}", "bad", seen, advice)
                else:
                    why = "no claim in conformance.toml needs it"
                    yield DoctorItem(f"worker runs {name}", "left out", f"{seen}; {why}")
            elif name != "JobwireSpawn" and begun[0].args != args:
                reported = json.dumps(begun[0].args, ensure_ascii=False)
                yield DoctorItem(
                    f"worker runs {name}",
                    "bad",
                    f"the reported arguments are {reported}",
                    "report args as a list, exactly as the job received them",
                )
            else:
                yield DoctorItem(f"worker runs {name}", "ok")

    def _report_place(self, worker: SandboxWorker) -> None:
        """Raise AdapterFault if reports come to another key or another Redis than they should."""
        right = f"jw:{self._sandbox.run}:ev"
        lost = [call for call in worker.proxy.snapshot() if is_report(call)]
        places = {
            call.words[1].decode("utf-8", "replace")
            for call in worker.reports.snapshot()
            if is_report(call)
        }
        if lost:
            problem = "its jobs report to JOBWIRE_REDIS_URL"
            remedy = "send the reports to the other Redis, JOBWIRE_CONTROL_URL"
        elif wrong := places - {right}:
            problem = f"its jobs report to the key {', '.join(sorted(wrong))}"
            remedy = f"RPUSH to jw:RUN:ev, where RUN is the value of JOBWIRE_RUN; here {right}"
        else:
            return
        fault = "the worker of the implementation is at fault"
        raise AdapterFault(f"{fault}: {problem}.\n  Remedy: {remedy}")

    def _concurrency(self, worker: SandboxWorker) -> Iterator[DoctorItem]:
        self._begins("worker: JobwireGate")
        jids = [self._push("JobwireGate", [f"g{number}"]) for number in range(3)]
        begun: list[str | None] = []

        def two() -> bool:
            begun[:] = [e.jid for e in worker.events() if e.kind == "begin" and e.jid in jids]
            return len(begun) >= 2

        wait_for(two, self._patience, 0.02)
        # If a third job can begin, it begins soon.
        wait_for(lambda: two() and len(begun) > 2, 0.5, 0.02)
        for number in range(3):
            key = f"jw:{self._sandbox.run}:gate:g{number}"
            self._sandbox.control.call("RPUSH", key, "open")
        ended = wait_for(
            lambda: sum(e.kind == "end" and e.jid in jids for e in worker.events()) == 3,
            self._patience,
            0.02,
        )
        if not begun:
            yield DoctorItem(
                "worker runs JobwireGate",
                "bad",
                "no report",
                "report begin, BLPOP jw:RUN:gate:NAME 0 at JOBWIRE_CONTROL_URL, report end",
            )
            return
        yield DoctorItem(
            "worker runs JobwireGate",
            "ok" if ended else "bad",
            "" if ended else "not all jobs ended after their gates were opened",
            "" if ended else "wait with BLPOP jw:RUN:gate:NAME 0 at JOBWIRE_CONTROL_URL",
        )
        yield DoctorItem(
            "worker obeys JOBWIRE_CONCURRENCY",
            "ok" if len(begun) == 2 else "bad",
            f"{len(begun)} jobs ran at a time; JOBWIRE_CONCURRENCY is 2",
            "" if len(begun) == 2 else "run exactly JOBWIRE_CONCURRENCY jobs at a time",
        )

    def _poll(self, worker: SandboxWorker) -> DoctorItem:
        what = "worker obeys JOBWIRE_POLL"
        self._begins("worker: a due job")
        fixed = self._sandbox.config.worker.fixed if self._sandbox.config.worker else {}
        if "poll" in fixed:
            return DoctorItem(what, "left out", f"fixed at {fixed['poll']:g} s in conformance.toml")
        began = time.monotonic()
        jid = self._push("JobwireEcho", [], due=True)
        events = self._await(worker, jid, bool)
        taken = time.monotonic() - began
        advice = "look for due jobs every JOBWIRE_POLL seconds, or set fixed = { poll = SECONDS }"
        if not events:
            seen = f"a job that was due in `schedule` did not run within {self._patience:g} s"
            return DoctorItem(what, "bad", seen, advice)
        seen = f"a due job ran after {taken:.1f} s; JOBWIRE_POLL is {DEFAULTS['poll']}"
        return (
            DoctorItem(what, "ok", seen)
            if taken < _LATE
            else DoctorItem(what, "note", seen, advice)
        )

    def _stops(self, worker: SandboxWorker) -> DoctorItem:
        what = "worker ends on SIGTERM"
        self._begins("worker: SIGTERM")
        worker.idle_expected = False
        began = time.monotonic()
        worker.group.signal("TERM")
        patience = DEFAULTS["grace"] + _LATE
        if wait_for(lambda: worker.group.status is not None, patience, 0.01):
            taken = time.monotonic() - began
            return DoctorItem(what, "ok", f"after {taken:.1f} s, exit status {worker.group.status}")
        worker.end()
        return DoctorItem(
            what,
            "bad",
            f"still running after {patience:g} s without a job",
            "stop on SIGTERM, at the latest JOBWIRE_GRACE seconds later; a script must `exec` the "
            "worker, so that the worker receives the signal",
        )

    # -- pushing, and waiting for reports

    def _push(self, name: str, args: Sequence[Any], *, due: bool = False) -> str:
        self._number += 1
        jid = f"{self._number:024x}"
        now: float = time.time()
        if self._sandbox.config.times == 8:
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
                "the worker of the implementation is at fault: it ended without a signal, exit "
                f"status {worker.group.status}.\n  Remedy: run until SIGTERM, even if a job "
                f"fails.\n  Its output:\n{worker.group.excerpt()}"
            )
        return about()
