"""One run of a case: its steps and its checks."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jobwire_conformance.cases.case import Case
from jobwire_conformance.cases.match import Scope, moment
from jobwire_conformance.data import GENERATIONS
from jobwire_conformance.errors import SuiteFault
from jobwire_conformance.run.checks import CheckResult, Checks
from jobwire_conformance.run.state import State
from jobwire_conformance.sandbox.processes import wait_for
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

__all__ = ["Play"]

_USUAL_PATIENCE_S = 20.0  # the patience for which the times in cases are written


class Play:
    """One run of a case in a sandbox that was reset.

    Args:
        sandbox: The sandbox to use.
        case: The case to run.
        patience: Longest wait for an expected event, in seconds.
        waits: Called with the event that the run waits for.
        cuts: The processes to run in lockstep, each with its rules.
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
        self._scope.bound["today"] = time.strftime("%Y-%m-%d", time.gmtime())
        self._scope.bound["day"] = time.strftime("%Y%m%d", time.gmtime())
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
        self._restless: str | None = None
        self._since = time.monotonic()

    def run(self, then: Sequence[Mapping[str, Any]] = ()) -> list[CheckResult]:
        """Do the steps of the case and those of `then`; return the results of the checks."""
        for seed in self._case.seed:
            self._state.seed(seed)
        findings = self._all(self._case.steps)
        if then:
            self._broken = None  # expected, because a process was cut off
        return findings + self._all(then)

    def predicate(self, requirement: str, predicate: str, when: str) -> CheckResult:
        """Check a predicate after the last step."""
        holds, seen = self._state.holds(predicate)
        if holds:
            return CheckResult(requirement, True)
        message = f"{when}: expected {predicate}, seen {seen}"
        return CheckResult(requirement, False, message, predicate, seen, self._sandbox.calls()[-6:])

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
        if self._sandbox.config.generation not in step.get("generations", GENERATIONS):
            return None
        if verb == "check":
            return self._check(step)
        if self._broken is None:
            self._verbs[verb](self, step)
        return None

    # -- verbs

    def _start(self, step: Mapping[str, Any]) -> None:
        knobs = {knob: step[knob] for knob in ("poll", "beat", "grace") if knob in step}
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
        else:
            worker.signal(step["signal"])

    def _kill(self, step: Mapping[str, Any]) -> None:
        worker = self._sandbox.workers[step["kill"]]
        worker.idle_expected = False
        worker.proxy.freeze()
        worker.group.kill()

    def _push(self, step: Mapping[str, Any]) -> None:
        request = {"job": step["push"]}
        if "at" in step:
            request["at"] = _moment(step["at"])
        if "in" in step:
            request["in"] = step["in"]
        self._ask("push", request, step, "jid")

    def _push_bulk(self, step: Mapping[str, Any]) -> None:
        request = {"job": step["push_bulk"], "args": _repeated(step)}
        if "at" in step:
            at = step["at"]
            request["at"] = (
                [_moment(time_) for time_ in at] if isinstance(at, list) else _moment(at)
            )
        if "spread_interval" in step:
            request["spread_interval"] = step["spread_interval"]
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
        elif "bind" in step:
            bound = answer if result is None else answer.get(result)
            self._scope.bound[step["bind"]] = bound
            if result == "jids":
                numbered = {f"{step['bind']}_{index}": jid for index, jid in enumerate(bound or ())}
                self._scope.bound.update(numbered)

    def _seed(self, step: Mapping[str, Any]) -> None:
        for seed in step["seed"]:
            self._state.seed(seed)

    def _warp(self, step: Mapping[str, Any]) -> None:
        self._state.warp(step["warp"], step.get("keys", []))

    def _release(self, step: Mapping[str, Any]) -> None:
        self._sandbox.control.call(
            "RPUSH", f"jw:{self._sandbox.run}:gate:{step['release']}", "open"
        )

    def _flush_scripts(self, step: Mapping[str, Any]) -> None:
        self._sandbox.link.call("SCRIPT", "FLUSH")

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
            label=None if match["cmd"] == "*" else match["cmd"],
            nth=match.get("nth", 1),
            times=match.get("times", 1),
            fits=fits,
        )

    def _await(self, step: Mapping[str, Any]) -> None:
        self._waits(step["await"])
        workers = self._sandbox.workers.values()

        def decided() -> bool:
            if self._state.holds(step["await"])[0]:
                return True
            return bool(workers) and all(worker.group.status is not None for worker in workers)

        wait_for(decided, self._within(step), 0.01)
        if not self._state.holds(step["await"])[0]:
            self._broken = f"{step['await']}: {self._state.holds(step['await'])[1]}"

    def _within(self, step: Mapping[str, Any]) -> float:
        return step["within"] * self._time_scale if "within" in step else self._patience

    def _settle(self, step: Mapping[str, Any]) -> None:
        self._waits("all processes to rest")
        self._restless = self._state.settle(self._patience)

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
            return CheckResult(requirement, False, blocked_by=self._broken)
        deadline = time.monotonic() + step.get("within", 0.0) * self._time_scale
        self._waits(f"{requirement} to hold")
        while True:
            miss = self._checks.miss(step)
            if miss is None or time.monotonic() > deadline:
                break
            time.sleep(0.02)
        seconds, self._since = time.monotonic() - self._since, time.monotonic()
        if miss is None:
            return CheckResult(requirement, True, seconds=seconds)
        message = str(miss)
        if self._restless is not None:
            message += f"\n(the processes did not come to rest: {self._restless})"
        for worker in self._sandbox.workers.values():
            if worker.idle_expected and (status := worker.group.status) is not None:
                message += f"\n({worker.name} ended without a signal, exit status {status}; "
                message += f"the end of its output:\n{worker.group.tail(3)})"
        return CheckResult(
            requirement,
            False,
            message,
            miss.expected,
            miss.seen,
            self._checks.around(step),
            seconds=seconds,
        )


def _moment(value: Any) -> Any:
    """Return the epoch seconds of a text like `now-5`; other values stay, to be refused."""
    if isinstance(value, str) and re.fullmatch(r"now(?:[+-][0-9]+(?:\.[0-9]+)?)?", value):
        return moment(value, time.time())
    return value


def _repeated(step: Mapping[str, Any]) -> list[Any]:
    """Return the lists of arguments, repeated `times` times."""
    return list(step["args"]) * int(step.get("times", 1))
