"""Play a case: do its steps, judge its checks."""

from __future__ import annotations

import fnmatch
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from jobwire_conformance.cases import Case
from jobwire_conformance.driver import Outcome
from jobwire_conformance.errors import SuiteFault
from jobwire_conformance.faults import Action, Cut, Delay, Kill, Refuse, Rule
from jobwire_conformance.lane import Lane
from jobwire_conformance.match import Scope, matches, moment, number, show, spelt_text
from jobwire_conformance.processes import wait_for
from jobwire_conformance.proxy import Call
from jobwire_conformance.state import State, jid_of
from jobwire_conformance.values import ABSENT, Absent, Spelt, members, plain

__all__ = ["WRITES", "Finding", "Play", "on_key"]

_ADDS = frozenset(b"LPUSH RPUSH ZADD HSET HMSET SADD SET EXPIRE".split())
WRITES = frozenset(
    b"LPUSH RPUSH LPOP RPOP LMOVE RPOPLPUSH BRPOP BLPOP BLMOVE BRPOPLPUSH BLMPOP LMPOP LREM ZADD "
    b"ZREM ZINCRBY ZPOPMIN BZPOPMIN HSET HDEL HMSET SADD SREM SET DEL UNLINK INCR INCRBY HINCRBY "
    b"EXPIRE ZREMRANGEBYSCORE ZREMRANGEBYRANK EVAL EVALSHA FCALL".split()
)

Line = tuple[str, Call]

_ERRORS = {
    "READONLY": "READONLY You can't write against a read only replica.",
    "LOADING": "LOADING Redis is loading the dataset in memory",
    "OOM": "OOM command not allowed when used memory > 'maxmemory'.",
    "NOREPLICAS": "NOREPLICAS Not enough good replicas to write.",
    "UNBLOCKED": "UNBLOCKED force unblock from blocking operation, instance state changed",
    "MISCONF": "MISCONF Errors writing to the AOF file: No space left on device",
    "NOSCRIPT": "NOSCRIPT No matching script. Please use EVAL.",
    "ERR max number of clients reached": "ERR max number of clients reached",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found.

    Attributes:
        requirement: That it is about.
        ok: Whether it holds.
        message: What was expected and what was seen, if it does not.
        expected: The same as data.
        seen: The same as data.
        lines: What passed on the wire around it.
        blocked_by: What failed before it and made it impossible.
        seconds: Since the check before.
        trace: First and last of these lines in the trace; empty until it is written.
    """

    requirement: str
    ok: bool
    message: str = ""
    expected: object = None
    seen: object = None
    lines: Sequence[Line] = ()
    blocked_by: str | None = None
    seconds: float = 0.0
    trace: list[int] = field(default_factory=list)


class _Miss(Exception):
    """Something is not as it must be."""

    def __init__(self, what: str, expected: object, seen: object) -> None:
        super().__init__(f"{what}: expected {show(expected)}, seen {show(seen)}")
        self.expected = expected
        self.seen = (
            seen.value if isinstance(seen, Spelt) else None if isinstance(seen, Absent) else seen
        )


class Play:
    """One run of a case on a lane that was reset.

    Args:
        lane: Where.
        case: What.
        patience: Seconds until something that has to happen must have.
        waits: Told what is waited for.
        cuts: Of processes that are to be in lockstep, the rules that they are under.
    """

    def __init__(
        self,
        lane: Lane,
        case: Case,
        *,
        patience: float,
        waits: Callable[[str], None] = lambda _: None,
        cuts: Mapping[str, Sequence[Rule]] | None = None,
    ) -> None:
        self._lane = lane
        self._case = case
        self._cuts = cuts or {}
        self._scope = Scope(lane.config.generation, time.time())
        self._scope.bound["today"] = time.strftime("%Y-%m-%d", time.gmtime())
        self._state = State(lane, self._scope)
        fixed = lane.config.worker.fixed if lane.config.worker else {}
        self._patience = patience + 2 * max(fixed.values(), default=0.0)
        self._waits = waits
        self._answer: Outcome | None = None
        self._broken: str | None = None  # a step that did not do what the rest builds on
        self._restless: str | None = None
        self._since = time.monotonic()

    def run(self, then: Sequence[Mapping[str, Any]] = ()) -> list[Finding]:
        """Do the steps, and those of `then`; return what the checks found."""
        for seed in self._case.seed:
            self._state.seed(seed)
        findings = self._all(self._case.steps)
        if then:
            self._broken = None  # as is to be expected of a process that was cut off
        return findings + self._all(then)

    def predicate(self, requirement: str, predicate: str, when: str) -> Finding:
        """Return whether a predicate holds in the end."""
        holds, seen = self._state.holds(predicate)
        if holds:
            return Finding(requirement, True)
        message = f"{when}: expected {predicate}, seen {seen}"
        return Finding(requirement, False, message, predicate, seen, self._lane.calls()[-6:])

    def fate(self, jid: str) -> str:
        """Return what became of a job: kept, lost, duplicated or stuck."""
        copies, performed = self._state.number("copies", jid), self._state.number("performed", jid)
        if performed == 0:
            return "stuck" if copies else "lost"
        return "kept" if performed == 1 and not copies else "duplicated"

    def _all(self, steps: Sequence[Mapping[str, Any]]) -> list[Finding]:
        findings = []
        for step in steps:
            verb = next((verb for verb in self._verbs if verb in step), None)
            if verb is None:
                raise SuiteFault(f"{self._case.name}: no verb in {step}")
            if verb == "check":
                findings.append(self._check(step))
            elif self._broken is None:
                self._verbs[verb](self, step)
        return findings

    # -- verbs

    def _start(self, step: Mapping[str, Any]) -> None:
        knobs = {knob: step[knob] for knob in ("poll", "beat", "grace") if knob in step}
        self._waits(f"{step['start']} to fetch")
        name = step["start"]
        self._lane.start(
            name,
            step["queues"],
            concurrency=step.get("concurrency", 1),
            rules=self._cuts.get(name, ()),
            lockstep=name in self._cuts,
            **knobs,
        )

    def _stop(self, step: Mapping[str, Any]) -> None:
        worker = self._lane.workers[step["stop"]]
        worker.idle_expected = False
        worker.group.signal("TERM")
        self._waits(f"{worker.name} to stop")
        # A worker that does not stop is what checks of `exit` are for.
        wait_for(lambda: worker.group.status is not None, step.get("within", self._patience))

    def _signal(self, step: Mapping[str, Any]) -> None:
        worker = self._lane.workers[step["process"]]
        if step["signal"] != "TTIN":
            worker.idle_expected = False
        if step.get("by") == "redis":
            key = self._state.key(f"{{{worker.name}}}-signals")
            self._lane.link.call("LPUSH", key, step["signal"])
            self._lane.link.call("EXPIRE", key, 60)
        else:
            worker.group.signal(step["signal"])

    def _kill(self, step: Mapping[str, Any]) -> None:
        worker = self._lane.workers[step["kill"]]
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
            request["at"] = [_moment(each) for each in at] if isinstance(at, list) else _moment(at)
        if "spread_interval" in step:
            request["spread_interval"] = step["spread_interval"]
        self._ask("push_bulk", request, step, "jids")

    def _inspect(self, step: Mapping[str, Any]) -> None:
        request = {name: step[name] for name in ("name", "jid") if name in step}
        self._ask("inspect", {"what": step["inspect"], **request}, step, None)

    def _ask(
        self, op: str, request: Mapping[str, Any], step: Mapping[str, Any], result: str | None
    ) -> None:
        self._waits(f"the driver to answer {op}")
        self._answer = answer = self._lane.driver.ask(op, **request)
        wanted = step.get("expect")
        if answer["outcome"] == "unsupported" or (wanted and answer["outcome"] != wanted):
            said = f" ({answer['message']})" if "message" in answer else ""
            self._broken = (
                f"{op} was answered with {answer['outcome']!r}{said} instead of {wanted or 'ok'!r}"
            )
        elif "bind" in step:
            self._scope.bound[step["bind"]] = answer if result is None else answer.get(result)

    def _seed(self, step: Mapping[str, Any]) -> None:
        for seed in step["seed"]:
            self._state.seed(seed)

    def _warp(self, step: Mapping[str, Any]) -> None:
        self._state.warp(step["warp"], step.get("keys", []))

    def _release(self, step: Mapping[str, Any]) -> None:
        self._lane.control.call("RPUSH", f"jw:{self._lane.run}:gate:{step['release']}", "open")

    def _flush_scripts(self, step: Mapping[str, Any]) -> None:
        self._lane.link.call("SCRIPT", "FLUSH")

    def _fault(self, step: Mapping[str, Any]) -> None:
        name = step["fault"]
        match = step["match"]
        worker = None if name == "driver" else self._lane.workers[name]
        proxy = self._lane.driver_proxy if worker is None else worker.proxy
        action: Action
        match step["do"]:
            case "cut":
                action = Cut(step["at"])
            case "error":
                action = Refuse(_ERRORS[step["error"]])
            case "delay":
                action = Delay(step["at"], step["ms"] / 1000)
            case _:
                if worker is None:
                    raise SuiteFault(f"{self._case.name}: the driver cannot be killed")
                action = Kill(step["at"], worker.group.kill)
                worker.idle_expected = False
        key = self._state.key(match["key"]) if "key" in match else "*"
        proxy.add(
            Rule(
                action,
                label=match["cmd"],
                nth=match.get("nth", 1),
                times=match.get("times", 1),
                fits=on_key(key),
            )
        )

    def _await(self, step: Mapping[str, Any]) -> None:
        self._waits(step["await"])
        workers = self._lane.workers.values()

        def decided() -> bool:
            if self._state.holds(step["await"])[0]:
                return True
            return bool(workers) and all(each.group.status is not None for each in workers)

        wait_for(decided, step.get("within", self._patience), 0.01)
        if not self._state.holds(step["await"])[0]:
            self._broken = f"{step['await']}: {self._state.holds(step['await'])[1]}"

    def _settle(self, step: Mapping[str, Any]) -> None:
        self._waits("nothing to go on any more")
        self._restless = self._state.settle(self._patience)

    _verbs: Mapping[str, Callable[..., Any]] = {
        "check": lambda *_: None,
        "start": _start,
        "stop": _stop,
        "signal": _signal,
        "kill": _kill,
        "push": _push,
        "push_bulk": _push_bulk,
        "inspect": _inspect,
        "seed": _seed,
        "warp": _warp,
        "release": _release,
        "flush_scripts": _flush_scripts,
        "fault": _fault,
        "await": _await,
        "settle": _settle,
    }

    # -- checks

    def _check(self, step: Mapping[str, Any]) -> Finding:
        requirement = step["check"]
        if self._broken is not None:
            return Finding(requirement, False, blocked_by=self._broken)
        deadline = time.monotonic() + step.get("within", 0.0)
        self._waits(f"{requirement} to hold")
        while True:
            miss = self._miss(step)
            if miss is None or time.monotonic() > deadline:
                break
            time.sleep(0.02)
        seconds, self._since = time.monotonic() - self._since, time.monotonic()
        if miss is None:
            return Finding(requirement, True, seconds=seconds)
        message = str(miss)
        if self._restless is not None:
            message += f"\n(it did not come to rest: {self._restless})"
        for worker in self._lane.workers.values():
            if worker.idle_expected and (status := worker.group.status) is not None:
                message += f"\n({worker.name} ended by itself, exit status {status})"
        return Finding(
            requirement,
            False,
            message,
            miss.expected,
            miss.seen,
            self._around(step),
            seconds=seconds,
        )

    def _miss(self, step: Mapping[str, Any]) -> _Miss | None:
        self._scope.now = time.time()
        try:
            for part, judge in self._parts.items():
                if part in step:
                    judge(self, step)
        except _Miss as miss:
            return miss
        return None

    def _must(self, what: str, matcher: Any, seen: Spelt | Absent, name: str = "") -> None:
        if not matches(matcher, seen, self._scope, name):
            raise _Miss(what, matcher, seen)

    def _list(self, step: Mapping[str, Any]) -> None:
        key = self._state.key(step["list"])
        found = self._range(key, b"list", "LRANGE", [])
        self._members(step, key, found)

    def _zset(self, step: Mapping[str, Any]) -> None:
        key = self._state.key(step["zset"])
        flat = self._range(key, b"zset", "ZRANGE", ["WITHSCORES"])
        index = step.get("index", 0)
        scores = flat[1::2]
        if "score" in step:
            seen = number(float(scores[index])) if _within(scores, index) else ABSENT
            self._must(f"score {index} of {key}", step["score"], seen)
        self._members(step, key, flat[::2])

    def _range(self, key: str, kind: bytes, command: str, more: Sequence[str]) -> list[bytes]:
        found = self._lane.link.call("TYPE", key)
        if found == b"none":
            return []
        if found != kind:
            raise _Miss(f"the type of {key}", kind.decode(), found.decode())
        members_: list[bytes] = self._lane.link.call(command, key, 0, -1, *more)
        return members_

    def _members(self, step: Mapping[str, Any], key: str, found: Sequence[bytes]) -> None:
        if "len" in step:
            self._must(f"members of {key}", step["len"], number(len(found)))
        if "jids" in step:
            jids = [jid_of(text) for text in found]
            self._must(f"ids of the members of {key}", step["jids"], plain(jids))
        if "payload" not in step and "raw" not in step:
            return
        index = step.get("index", 0)
        if not _within(found, index):
            raise _Miss(f"member {index} of {key}", "one", ABSENT)
        text = found[index].decode("utf-8", "surrogateescape")
        if "raw" in step:
            self._must(f"member {index} of {key}", step["raw"], spelt_text(text))
        if "payload" in step:
            try:
                fields = members(text)
            except ValueError:
                raise _Miss(f"member {index} of {key}", "a JSON object", text) from None
            for name, matcher in step["payload"].items():
                what = f"{name!r} of member {index} of {key}"
                self._must(what, matcher, fields.get(name, ABSENT), name)

    def _hash(self, step: Mapping[str, Any]) -> None:
        key = self._state.key(step["hash"])
        flat = self._lane.link.call("HGETALL", key)
        texts = [text.decode("utf-8", "surrogateescape") for text in flat]
        fields = dict(zip(texts[::2], texts[1::2], strict=True))
        if "len" in step:
            self._must(f"fields of {key}", step["len"], number(len(fields)))
        for name, matcher in step.get("fields", {}).items():
            # `*` is a field whose name nobody can know, like the id of an executor.
            value = next(iter(fields.values()), None) if name == "*" else fields.get(name)
            self._must(
                f"{name!r} of {key}", matcher, ABSENT if value is None else spelt_text(value), name
            )
        self._ttl(step, key)

    def _set(self, step: Mapping[str, Any]) -> None:
        key = self._state.key(step["set"])
        found = {
            text.decode("utf-8", "surrogateescape")
            for text in self._lane.link.call("SMEMBERS", key)
        }
        if "len" in step:
            self._must(f"members of {key}", step["len"], number(len(found)))
        for member in map(self._state.named, step.get("has", ())):
            if member not in found:
                raise _Miss(f"members of {key}", f"{member} among them", sorted(found))
        for member in map(self._state.named, step.get("lacks", ())):
            if member in found:
                raise _Miss(f"members of {key}", f"no {member} among them", sorted(found))

    def _key(self, step: Mapping[str, Any]) -> None:
        key = self._state.key(step["key"])
        if "exists" in step and bool(self._lane.link.call("EXISTS", key)) != step["exists"]:
            raise _Miss(f"whether {key} is there", step["exists"], not step["exists"])
        if "value" in step:
            value = self._lane.link.call("GET", key)
            seen = ABSENT if value is None else spelt_text(value.decode("utf-8", "replace"))
            self._must(key, step["value"], seen)
        self._ttl(step, key)

    def _ttl(self, step: Mapping[str, Any], key: str) -> None:
        if "ttl" in step:
            left = self._lane.link.call("PTTL", key)
            self._must(
                f"seconds that {key} lives",
                step["ttl"],
                number(left / 1000) if left >= 0 else ABSENT,
            )

    def _commands(self, step: Mapping[str, Any]) -> None:
        process = step.get("process", "driver")
        sent = [call for name, call in self._lane.calls() if name == process]
        left = list(step["commands"])
        for call in sent:
            words = [word.decode("utf-8", "replace") for word in call.words]
            words[0] = words[0].upper()
            if (
                left
                and len(words) >= len(left[0])
                and all(
                    matches(self._named(each), spelt_text(word), self._scope)
                    for each, word in zip(left[0], words, strict=False)
                )
            ):
                del left[0]
        if left:
            names = [call.name.decode("utf-8", "replace") for call in sent]
            raise _Miss(f"commands of {process}", left[0], names[-40:])

    def _named(self, matcher: Any) -> Any:
        return self._state.named(matcher) if isinstance(matcher, str) else matcher

    def _burst(self, step: Mapping[str, Any]) -> None:
        process = step.get("process", "driver")
        calls = [call for name, call in self._lane.calls() if name == process]
        self._must(
            f"most jobs in one round trip of {process}", step["burst"], number(_burst(calls))
        )

    def _atomic(self, step: Mapping[str, Any]) -> None:
        process = step.get("process", "driver")
        keys = {self._state.key(key).encode() for key in step["atomic"]}
        calls = [call for name, call in self._lane.calls() if name == process]
        whole = False
        for unit in _units(calls):
            touched = {word for call in unit if call.name in WRITES for word in call.words} & keys
            added = {word for call in unit if call.name in _ADDS for word in call.words} & keys
            whole = whole or touched == keys
            if added and touched != keys:
                sent = [call.name.decode("utf-8", "replace") for call in unit]
                raise _Miss("one step", sorted(step["atomic"]), [sent, *map(bytes.decode, added)])
        if not whole:
            raise _Miss("one step", sorted(step["atomic"]), ABSENT)

    def _truthful(self, step: Mapping[str, Any]) -> None:
        if self._answer is None:
            raise SuiteFault(f"{self._case.name}: nothing was pushed")
        key = self._state.key(step["truthful"])
        kind = self._lane.link.call("TYPE", key)
        jobs = self._lane.link.call("ZCARD" if kind == b"zset" else "LLEN", key)
        outcome = self._answer["outcome"]
        if (outcome == "ok" and not jobs) or (outcome == "rejected" and jobs):
            said = f"{outcome!r}, and {jobs} in {key}"
            raise _Miss("the outcome", "one that is true", said)

    def _ran(self, step: Mapping[str, Any]) -> None:
        jid = self._state.named(step["ran"])
        events = [e for e in self._state.events() if e.what == "begin" and e.jid == jid]
        seen = plain(events[-1].args) if events else ABSENT
        self._must(f"arguments of {jid}", step.get("args", {"$": "any"}), seen)

    def _answered(self, step: Mapping[str, Any]) -> None:
        if self._answer is None:
            raise SuiteFault(f"{self._case.name}: nothing was asked that has an answer")
        for name, matcher in step["answer"].items():
            seen = plain(self._answer[name]) if name in self._answer else ABSENT
            self._must(f"{name!r} of the answer", matcher, seen)

    def _that(self, step: Mapping[str, Any]) -> None:
        holds, seen = self._state.holds(step["that"])
        if not holds:
            raise _Miss("", step["that"], seen)

    _parts: Mapping[str, Callable[..., None]] = {
        "list": _list,
        "zset": _zset,
        "hash": _hash,
        "set": _set,
        "key": _key,
        "commands": _commands,
        "burst": _burst,
        "atomic": _atomic,
        "truthful": _truthful,
        "ran": _ran,
        "answer": _answered,
        "that": _that,
    }

    def _around(self, step: Mapping[str, Any]) -> list[Line]:
        """Return up to six commands that have most to do with a check, the last ones."""
        calls = self._lane.calls()
        words = [str(step[part]) for part in ("list", "zset", "hash", "set", "key") if part in step]
        keys = [self._state.key(word).encode() for word in words]
        near = [line for line in calls if any(key in line[1].words for key in keys)]
        return (near or calls)[-6:]


def _within(sequence: Sequence[object], index: int) -> bool:
    return -len(sequence) <= index < len(sequence)


def _moment(value: Any) -> Any:
    """Return the epoch seconds of `now-5`; what is none is there to be refused."""
    if isinstance(value, str) and re.fullmatch(r"now(?:[+-][0-9]+(?:\.[0-9]+)?)?", value):
        return moment(value, time.time())
    return value


def _repeated(step: Mapping[str, Any]) -> list[Any]:
    """Return the lists of arguments; with `times`, the given ones so often."""
    return list(step["args"]) * int(step.get("times", 1))


def on_key(pattern: str) -> Callable[[Sequence[bytes]], bool]:
    def fits(words: Sequence[bytes]) -> bool:
        return pattern == "*" or any(
            fnmatch.fnmatchcase(word.decode("utf-8", "replace"), pattern) for word in words[1:4]
        )

    return fits


def _units(calls: Sequence[Call]) -> Iterator[list[Call]]:
    """Yield the commands of each transaction together, and all others by themselves."""
    for connection in {call.connection for call in calls}:
        unit: list[Call] = []
        for call in (call for call in calls if call.connection == connection):
            unit.append(call)
            if not call.transaction:
                yield unit
                unit = []


def _burst(calls: Sequence[Call]) -> int:
    """Return how many payloads a process sent at most before it had to wait for a reply."""
    most = 0
    for connection in {call.connection for call in calls}:
        jobs, answered = 0, 0.0
        for call in (call for call in calls if call.connection == connection):
            if call.at >= answered:
                jobs = 0
            jobs += sum(word.startswith(b"{") and b'"jid"' in word for word in call.words)
            most = max(most, jobs)
            answered = max(answered, call.answered or 0.0)
    return most
