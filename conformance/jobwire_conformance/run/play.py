"""One run of a case: its steps and its checks."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jobwire_conformance.cases.case import Case, repeated
from jobwire_conformance.cases.match import Scope, moment
from jobwire_conformance.cases.predicates import Raw, text
from jobwire_conformance.data import GENERATIONS
from jobwire_conformance.errors import SuiteFault
from jobwire_conformance.run.checks import CheckResult, Checks, Miss
from jobwire_conformance.run.evidence import Line
from jobwire_conformance.run.state import State
from jobwire_conformance.sandbox.processes import overload, wait_for
from jobwire_conformance.sandbox.sandbox import Sandbox
from jobwire_conformance.sandbox.worker import SandboxWorker
from jobwire_conformance.wire.faults import (
    ERRORS,
    Action,
    Cut,
    Delay,
    Kill,
    Refuse,
    Rule,
    older,
    on_key,
)

__all__ = ["Play", "date_in_utc"]

_USUAL_PATIENCE_S = 20.0  # the patience for which the times in cases are written
_LAG_S = 2.0  # for outcomes that follow although all processes seem to rest, on a busy machine


def date_in_utc() -> str:
    """Return today's date, as `2026-01-31`."""
    return time.strftime("%Y-%m-%d", time.gmtime())


class Play:
    """One run of a case in a sandbox that was reset.

    Args:
        sandbox: The sandbox to use.
        case: The case to run.
        patience: Longest wait for an expected event, in seconds.
        waits: Called with the event that the run waits for.
        cuts: The processes to run in lockstep, each with its rules.

    Attributes:
        date: The date in UTC at the start.
    """

    def __init__(
        self,
        sandbox: Sandbox,
        case: Case,
        *,
        patience: float,
        waits: Callable[[str], None] = lambda _: None,
        cuts: Mapping[str, Sequence[Rule]] | None = None,
    ) -> None:
        self._sandbox = sandbox
        self._case = case
        self._cuts = cuts or {}
        self._scope = Scope(sandbox.config.times, time.time())
        self.date = date_in_utc()
        self._scope.bound |= {"today": self.date, "day": self.date.replace("-", "")}
        self._state = State(sandbox, self._scope)
        self._checks = Checks(sandbox, self._state, self._scope)
        fixed = sandbox.config.worker.fixed if sandbox.config.worker else {}
        self._patience = patience + 2 * fixed.get(case.pace or "", 0.0)
        # A smaller patience also shortens the times in the case, unless the implementation has a
        # fixed pace.
        has_fixed_pace = bool(fixed.get(case.pace or "", 0.0))
        self._time_scale = 1.0 if has_fixed_pace else min(1.0, patience / _USUAL_PATIENCE_S)
        self._waits = waits
        self._broken: str | None = None  # problem of a failed step, on which later steps depend
        self._broken_by: Sequence[Line] = ()  # its evidence
        self._restless: str | None = None
        self._overload: str | None = None  # of the machine, at a wait that did not end
        self._since = time.monotonic()

    def run(self, then: Sequence[Mapping[str, Any]] = ()) -> list[CheckResult]:
        """Do the steps of the case and those of `then`; return the results of the checks."""
        for seed in self._case.seed:
            self._state.seed(seed)
        findings = self._all(self._case.steps)
        if then:
            self._broken = None  # expected, because a process was cut off
        return findings + self._all(then)

    def predicate(self, requirement: str, predicate: Raw, when: str) -> CheckResult:
        """Check a predicate after the last step."""
        wait_for(lambda: self._state.all_hold(predicate)[0], self._lag(), 0.02)
        holds, seen = self._state.all_hold(predicate)
        if holds:
            return CheckResult(requirement, True)
        message = f"{when}: expected {text(predicate)}, seen {seen}"
        around = self._checks.around({"that": predicate})
        return CheckResult(requirement, False, message, text(predicate), seen, around)

    def fate(self, jid: str) -> str:
        """Return the fate of a job: kept, lost, duplicated or stuck."""
        copies, performed = self._state.number("copies", jid), self._state.number("performed", jid)
        if performed == 0:
            return "stuck" if copies else "lost"
        return "kept" if performed == 1 and not copies else "duplicated"

    def _all(self, steps: Sequence[Mapping[str, Any]]) -> list[CheckResult]:
        return [finding for step in steps if (finding := self.do(step)) is not None]

    def do(self, step: Mapping[str, Any]) -> CheckResult | None:
        """Do one step; return the result if it is a check."""
        verb = next((verb for verb in self._verbs if verb in step), None)
        if verb is None:
            raise SuiteFault(f"{self._case.name}: no verb in {step}")
        config = self._sandbox.config
        if config.generation not in step.get("generations", GENERATIONS):
            return None
        claims = {*config.claims, *config.unasked}
        if "claims" in step and claims.isdisjoint(step["claims"]):
            return None
        if verb == "check":
            return self._check(step)
        if self._broken is None:
            self._verbs[verb](self, step)
        return None

    # -- verbs

    def _start(self, step: Mapping[str, Any]) -> None:
        knobs = {knob: step[knob] for knob in ("poll", "beat", "grace") if knob in step}
        if self._case.profiles == ("worker/retry",):
            # No retry may become due before the checks, however long they take.
            knobs.setdefault("poll", 60.0)
        self._waits(f"{step['start']} to fetch")
        name = step["start"]
        self._sandbox.start(
            name,
            step["queues"],
            concurrency=step.get("concurrency", 1),
            rules=[*self._cuts.get(name, ()), *map(self._rule, step.get("faults", ()))],
            lockstep=name in self._cuts,
            generation=step.get("generation"),
            user=step.get("user"),
            precise=step.get("precise"),
            unknown=step.get("unknown"),
            beside=step.get("beside", ()),
            wait=step.get("wait", True),
            **knobs,
        )

    def _driver(self, step: Mapping[str, Any]) -> None:
        settings = step["driver"]
        self._sandbox.fresh_driver(
            rules=[*map(self._rule, settings.get("faults", ()))],
            generation=settings.get("generation"),
            user=settings.get("user"),
            timeout=settings.get("timeout"),
        )

    def _user(self, step: Mapping[str, Any]) -> None:
        self._sandbox.user(step["user"], step["password"], step.get("rules"))

    def _cluster(self, _: Mapping[str, Any]) -> None:
        self._sandbox.cluster()

    def _namespace(self, step: Mapping[str, Any]) -> None:
        self._sandbox.namespace(step["namespace"])

    def _monitor(self, _: Mapping[str, Any]) -> None:
        self._sandbox.monitor()

    def _stop(self, step: Mapping[str, Any]) -> None:
        worker = self._sandbox.workers[step["stop"]]
        worker.idle_expected = False
        worker.signal("TERM")
        self._waits(f"{worker.name} to stop")
        # A check of `exit` reports a worker that does not stop.
        wait_for(lambda: worker.group.status is not None, self._within(step))

    def _signal(self, step: Mapping[str, Any]) -> None:
        worker = self._sandbox.workers[step["process"]]
        if step["signal"] != "TTIN":
            worker.idle_expected = False
        if step.get("by") == "redis":
            key = self._state.key(f"{{{worker.name}}}-signals")
            self._sandbox.link.call("LPUSH", key, step["signal"])
            self._sandbox.link.call("EXPIRE", key, 60)
            self._sandbox.history.signal(worker.name, f"{step['signal']} through Redis")
        else:
            worker.signal(step["signal"])

    def _kill(self, step: Mapping[str, Any]) -> None:
        worker = self._sandbox.workers[step["kill"]]
        worker.idle_expected = False
        worker.proxy.freeze()
        worker.group.kill()
        self._sandbox.history.signal(worker.name, "KILL")

    def _push(self, step: Mapping[str, Any]) -> None:
        request = {"job": step["push"]}
        if "at" in step:
            request["at"] = _moment(step["at"])
        given = ("in", "expires_in", "unique", "next", "limit")
        request |= {name: step[name] for name in given if name in step}
        self._ask("push", request, step, "jid")

    def _push_bulk(self, step: Mapping[str, Any]) -> None:
        request = {"job": step["push_bulk"], **repeated(step)}
        if "at" in step:
            at = request["at"]
            request["at"] = (
                [_moment(time_) for time_ in at] if isinstance(at, list) else _moment(at)
            )
        given = ("spread_interval", "unique")
        request |= {name: step[name] for name in given if name in step}
        self._ask("push_bulk", request, step, "jids")

    def _inspect(self, step: Mapping[str, Any]) -> None:
        request = {name: step[name] for name in ("name", "jid") if name in step}
        self._ask("inspect", {"what": step["inspect"], **request}, step, None)

    def _act(self, step: Mapping[str, Any]) -> None:
        request = {"action": step["act"]}
        members = ("queue", "set", "member", "class", "jid")
        request |= {name: step[name] for name in members if name in step}
        if "identity" in step:
            request["identity"] = self._state.named(step["identity"])
        if "at" in step:
            request["at"] = _moment(step["at"])
        self._ask("act", request, step, None)

    def _ask(
        self, op: str, request: Mapping[str, Any], step: Mapping[str, Any], result: str | None
    ) -> None:
        self._waits(f"the driver to answer {op}")
        self._checks.answer = answer = self._sandbox.driver.ask(op, **request)
        wanted = step.get("expect")
        if answer["outcome"] == "unsupported" or (wanted and answer["outcome"] != wanted):
            message = f" ({answer['message']})" if "message" in answer else ""
            self._broken = (
                f"the answer to {op} was {answer['outcome']!r}{message} instead of "
                f"{wanted or 'ok'!r}"
            )
            self._broken_by = self._checks.around({"answer": op})
        elif "bind" in step:
            bound = answer if result is None else answer.get(result)
            self._scope.bound[step["bind"]] = bound
            if result == "jids":
                numbered = {f"{step['bind']}_{index}": jid for index, jid in enumerate(bound or ())}
                self._scope.bound.update(numbered)

    def _seed(self, step: Mapping[str, Any]) -> None:
        for seed in step["seed"]:
            self._state.seed(seed)

    def _tick(self, step: Mapping[str, Any]) -> None:
        seconds = int(_moment(step["of"]))
        utc, name = time.gmtime(seconds), step["tick"]
        self._scope.bound |= {
            f"{name}_line": time.strftime("%S %M %H %d %m * UTC", utc),
            f"{name}_bare": time.strftime("%S %M %H %d %m *", utc),
            f"{name}_member": time.strftime("%Y-%m-%dT%H:%M:%SZ", utc),
            f"{name}_time": time.strftime("%Y-%m-%d %H:%M:%S +0000", utc),
            f"{name}_score": float(seconds),
            f"{name}_minute": f"j|{time.strftime('%y%m%d', utc)}|{utc.tm_hour}:{utc.tm_min:02}",
        }

    def _periodic(self, step: Mapping[str, Any]) -> None:
        members = ("name", "entry", "schedule", "entries")
        request = {name: step[name] for name in members if name in step}
        self._ask("periodic", {"action": step["periodic"], **request}, step, None)

    def _warp(self, step: Mapping[str, Any]) -> None:
        self._state.warp(step["warp"], step.get("keys", []))

    def _release(self, step: Mapping[str, Any]) -> None:
        key = f"jw:{self._sandbox.run}:gate:{step['release']}"
        for pause in step.get("after", [0.0]):
            time.sleep(pause)  # the duration of a job, about which nothing is assumed
            self._sandbox.control.call("RPUSH", key, "open")

    def _flush_scripts(self, step: Mapping[str, Any]) -> None:
        self._sandbox.flush_scripts()

    def _snapshot(self, _: Mapping[str, Any]) -> None:
        self._state.snapshot()

    def _rollback(self, _: Mapping[str, Any]) -> None:
        self._state.rollback()
        for worker in self._sandbox.workers.values():
            worker.proxy.cut()

    def _fault(self, step: Mapping[str, Any]) -> None:
        name = step["fault"]
        worker = None if name == "driver" else self._sandbox.workers[name]
        proxy = self._sandbox.driver_proxy if worker is None else worker.proxy
        if step["do"] == "kill" and worker is not None:
            worker.idle_expected = False
        if worker is not None and step.get("reports"):
            proxy = worker.reports
        proxy.add(self._rule(step, worker))

    def _heal(self, step: Mapping[str, Any]) -> None:
        self._sandbox.heal(step["heal"])

    def _rule(self, fault: Mapping[str, Any], worker: SandboxWorker | None = None) -> Rule:
        match = fault["match"]
        action: Action
        match fault["do"]:
            case "cut":
                action = Cut(fault["at"])
            case "error":
                action = Refuse(ERRORS[fault["error"]])
            case "delay":
                action = Delay(fault["at"], fault["ms"] / 1000)
            case "older":
                action = older(fault["version"])
            case _:
                if worker is None:
                    raise SuiteFault(f"{self._case.name}: only a worker can be killed")
                action = Kill(fault["at"], worker.group.kill)
        fits = on_key(self._state.key(match["key"]) if "key" in match else "*")
        return Rule(
            action,
            label=None if match.get("cmd", "*") == "*" else match["cmd"],
            nth=match.get("nth", 1),
            times=match.get("times", 1),
            fits=fits,
            does=match.get("does"),
        )

    def _await(self, step: Mapping[str, Any]) -> None:
        wanted = step["await"]
        self._waits(text(wanted))
        workers = self._sandbox.workers.values()

        def decided() -> bool:
            if self._state.all_hold(wanted)[0]:
                return True
            return bool(workers) and all(worker.group.status is not None for worker in workers)

        wait_for(decided, self._within(step), 0.01)
        holds, seen = self._state.all_hold(wanted)
        if not holds:
            self._broken = f"waited for {text(wanted)}, but {seen}{self._ends()}"
            self._broken_by = self._checks.around({"that": wanted})

    def _within(self, step: Mapping[str, Any]) -> float:
        return step["within"] * self._time_scale if "within" in step else self._patience

    def _settle(self, step: Mapping[str, Any]) -> None:
        self._waits("all processes to rest")
        self._restless = self._state.settle(self._within(step))
        self._overload = overload() if self._restless else None

    _verbs: Mapping[str, Callable[..., Any]] = {
        "check": lambda *_: None,
        "start": _start,
        "stop": _stop,
        "driver": _driver,
        "user": _user,
        "cluster": _cluster,
        "namespace": _namespace,
        "monitor": _monitor,
        "signal": _signal,
        "kill": _kill,
        "push": _push,
        "push_bulk": _push_bulk,
        "inspect": _inspect,
        "act": _act,
        "seed": _seed,
        "tick": _tick,
        "periodic": _periodic,
        "warp": _warp,
        "release": _release,
        "flush_scripts": _flush_scripts,
        "snapshot": _snapshot,
        "rollback": _rollback,
        "fault": _fault,
        "heal": _heal,
        "await": _await,
        "settle": _settle,
    }

    # -- checks

    def _check(self, step: Mapping[str, Any]) -> CheckResult:
        requirement = step["check"]
        if self._broken is not None:
            return CheckResult(requirement, False, blocked_by=self._broken, lines=self._broken_by)
        self._waits(f"{requirement} to hold")
        miss = self._miss(step)
        seconds, self._since = time.monotonic() - self._since, time.monotonic()
        if miss is None:
            return CheckResult(requirement, True, seconds=seconds)
        message = str(miss)
        if self._overload is not None:
            why = (
                f"no verdict: {self._restless}, with {self._overload}; run the case again ({miss})"
            )
            return CheckResult(requirement, False, blocked_by=why, by="harness")
        if miss.hint:
            message += f"\n({miss.hint})"
        if self._restless is not None:
            message += f"\n(the processes did not come to rest: {self._restless})"
        return CheckResult(
            requirement,
            False,
            message + self._ends(),
            miss.expected,
            miss.seen,
            self._checks.around(step),
            seconds=seconds,
        )

    def _ends(self) -> str:
        """Return a line for each worker that ended without a signal, with its output."""
        return "".join(
            f"\n({worker.name} ended without a signal, exit status {worker.group.status}; "
            f"its output:\n{worker.group.excerpt()})"
            for worker in self._sandbox.workers.values()
            if worker.idle_expected and worker.group.status is not None
        )

    def _miss(self, step: Mapping[str, Any]) -> Miss | None:
        """Return the mismatch of a check that does not pass in time.

        A check without `within` passes soon, as an outcome may follow later than expected. Time
        alone does not make it pass: the value that did not match must have changed.
        """
        within, lag = step.get("within", 0.0) * self._time_scale, self._lag()
        began = time.monotonic()
        last = miss = self._checks.miss(step)
        while miss is not None:
            waited = time.monotonic() - began
            if waited > within and (miss.final or waited > lag):
                return miss
            time.sleep(0.02)
            last, miss = miss, self._checks.miss(step)
        in_time = time.monotonic() - began <= within
        if last is None or in_time:
            return None
        subject, shown = last.whole
        return last if self._checks.shown.get(subject) == shown else None

    def _lag(self) -> float:
        """Return the seconds for which a state that should hold now is awaited.

        They are 0 while a disturbance holds a command back, because the case then looks at this
        moment, and if no process can change the state.
        """
        workers = [w for w in self._sandbox.workers.values() if w.group.status is None]
        number = self._state.number
        if not workers or any(number("held", w.name) > number("struck", w.name) for w in workers):
            return 0.0
        return _LAG_S * self._time_scale


def _moment(value: Any) -> Any:
    """Return the epoch seconds of a text like `now-5`; other values stay, to be refused."""
    if isinstance(value, str) and re.fullmatch(r"now(?:[+-][0-9]+(?:\.[0-9]+)?)?", value):
        return moment(value, time.time())
    return value
