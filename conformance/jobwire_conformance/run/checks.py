"""The checks of a case. Each one compares the state of Redis or the traffic with its matchers."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from jobwire_conformance.cases.match import Scope, difference, matches, moment, number, spelt_text
from jobwire_conformance.cases.predicates import named, predicates
from jobwire_conformance.cases.samples import unevenness
from jobwire_conformance.cases.values import ABSENT, Absent, Spelt, members, plain
from jobwire_conformance.cases.words import as_data, in_words, pattern_text, show
from jobwire_conformance.errors import EnvironmentFault, SuiteFault, Unbound
from jobwire_conformance.judge.contracts import fault
from jobwire_conformance.judge.key_rules import is_known_key
from jobwire_conformance.judge.stream import canonical, script_call
from jobwire_conformance.run import draws, evidence, told
from jobwire_conformance.run.metrics import Counted
from jobwire_conformance.run.state import State, jid_of, struck
from jobwire_conformance.run.units import burst, units
from jobwire_conformance.sandbox import rest
from jobwire_conformance.sandbox.driver import Outcome
from jobwire_conformance.sandbox.sandbox import Sandbox
from jobwire_conformance.wire import scripts
from jobwire_conformance.wire.call import Call
from jobwire_conformance.wire.commands import keys_of, spec_of
from jobwire_conformance.wire.faults import Refuse

__all__ = ["CheckResult", "Checks", "Miss", "ProcessCall"]

_TOGETHER = 0.1  # seconds; commands that are sent together may arrive in pieces
_EARLY = 0.95  # of the shortest pause of a scheduler: clocks differ
_LATE_S = 1.4  # seconds; on a busy machine
_LONGEST_WAIT_S = 60.0  # of a fetch whose end is awaited
_STATES = frozenset(
    [
        *("list", "zset", "hash", "set", "key", "keys", "commands", "metrics", "atomic", "logs"),
        *("ran", "either", "that"),
    ]
)  # parts of checks that a worker can still fulfil; the others look at the past

_ENQUEUED_AT = re.compile(rb',"enqueued_at":[0-9.e+]+')

ProcessCall = tuple[str, Call]
"""Name of a process, and a command that it sent."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of one check.

    Attributes:
        requirement: Id of the requirement.
        ok: True if the check passed.
        message: The expected and the seen value, for a check that failed.
        expected: The expected value as data.
        seen: The seen value as data.
        lines: The commands, requests and signals around the check.
        blocked_by: The earlier failure that made the check impossible.
        seconds: Time since the last check.
        trace: First and last line of `lines` in the trace; empty until the trace is written.
        evidence: `lines` as text; empty until the trace is written.
        again: Name of a case that shows the failure again, if it is not the case of the check.
        by: The side at fault; `adapter` if the driver or the worker program broke its rules.
    """

    requirement: str
    ok: bool
    message: str = ""
    expected: object = None
    seen: object = None
    lines: Sequence[evidence.Line] = ()
    blocked_by: str | None = None
    seconds: float = 0.0
    trace: list[int] = field(default_factory=list)
    evidence: list[str] = field(default_factory=list)
    again: str | None = None
    by: Literal["implementation", "adapter"] = "implementation"


class Miss(Exception):
    """A value does not match.

    Args:
        subject: Name of the value in the message.
        expected: The expected value; plain words if it is a `str`.
        seen: The seen value; plain words if it is a `str`.
        final: True if no later command can make the value match.

    Attributes:
        whole: Name and text of the value in which the difference is.
    """

    def __init__(
        self, subject: str, expected: object, seen: object, *, final: bool = False
    ) -> None:
        super().__init__(f"{subject}: expected {show(expected)}, seen {show(seen)}")
        self.expected = as_data(expected)
        self.seen = as_data(seen)
        self.final = final
        self.whole = subject, show(seen)


class Checks:
    """The checks of one run of a case.

    Args:
        sandbox: The sandbox of the run.
        state: The state of its Redis.
        scope: Values that the matchers share.

    Attributes:
        answer: The driver's last answer; None before the first request.
        shown: The values that the last check has seen, as text, by their names.
    """

    def __init__(self, sandbox: Sandbox, state: State, scope: Scope) -> None:
        self.answer: Outcome | None = None
        self.shown: dict[str, str] = {}
        self._sandbox = sandbox
        self._state = state
        self._scope = scope

    def miss(self, step: Mapping[str, Any]) -> Miss | None:
        """Return the first mismatch of a check; None if the check passes."""
        self._scope.now = time.time()
        self.shown.clear()
        try:
            for part, judge in self._parts.items():
                if part in step:
                    judge(self, step)
        except Miss as miss:
            miss.final = miss.final or not step.keys() & _STATES
            return miss
        except Unbound as unbound:
            return Miss(str(unbound), "a value that an earlier step has seen", ABSENT)
        return None

    def _must(self, subject: str, matcher: Any, seen: Spelt | Absent, of: str = "") -> None:
        """Raise Miss with the path of the first difference; with `of`, the subject is a field."""
        whole = f"{subject!r} of {of}" if of else subject
        self.shown[whole] = show(seen)
        found = difference(matcher, seen, self._scope, subject if of else "")
        if found is None:
            return
        place = f"{subject} at {found.path}" if found.path else subject
        wanted = in_words(found.matcher, self._scope, found.name)
        miss = Miss(f"'{subject}{found.path}' of {of}" if of else place, wanted, found.seen)
        miss.whole = whole, show(seen)
        raise miss

    def _list(self, step: Mapping[str, Any]) -> None:
        key = self._state.key(step["list"])
        texts = self._range(key, b"list", "LRANGE", [])
        self._members(step, key, texts)

    def _zset(self, step: Mapping[str, Any]) -> None:
        key = self._state.key(step["zset"])
        flat = self._range(key, b"zset", "ZRANGE", ["WITHSCORES"])
        texts, scores = flat[::2], [float(score) for score in flat[1::2]]
        if "score" in step:
            index = _index(step, key, texts)
            seen = number(scores[index]) if _within(scores, index) else ABSENT
            self._must(f"score {index} of {key}", step["score"], seen)
        self._members(step, key, texts)
        if "draws" in step and (problem := draws.problem(texts, scores, step["draws"])):
            raise Miss(f"delays in {key}", *problem)
        if "uniform" in step:
            self._uniform(key, scores, step["uniform"])
            ids = [jid_of(text) for text in texts]
            if self.answer is not None and ids == self.answer.get("jids"):
                raise Miss(f"draws of {key}", "another order than that of the push", ids[:10])

    def _uniform(self, key: str, scores: Sequence[float], ends: Mapping[str, Any]) -> None:
        if not scores:
            raise Miss(f"members of {key}", "at least 1,000", 0)
        low, high = moment(ends["from"], self._scope.began), moment(ends["to"], self._scope.now)
        if (problem := unevenness(scores, low, high)) is not None:
            raise Miss(f"scores of {key}", f"uniform draws from {low:.3f} to {high:.3f}", problem)

    def _range(self, key: str, kind: bytes, command: str, options: Sequence[str]) -> list[bytes]:
        seen = self._sandbox.link.call("TYPE", key)
        if seen == b"none":
            return []
        if seen != kind:
            raise Miss(f"the type of {key}", kind.decode(), seen.decode())
        members_: list[bytes] = self._sandbox.link.call(command, key, 0, -1, *options)
        return members_

    def _members(self, step: Mapping[str, Any], key: str, texts: Sequence[bytes]) -> None:
        if "len" in step:
            self._must(f"members of {key}", step["len"], number(len(texts)))
        if "jids" in step:
            jids = [jid_of(text) for text in texts]
            self._must(f"ids of the members of {key}", step["jids"], plain(jids))
        if "payload" not in step and "raw" not in step:
            return
        index = _index(step, key, texts)
        if not _within(texts, index):
            raise Miss(f"member {index} of {key}", "a member", ABSENT)
        text = texts[index].decode("utf-8", "surrogateescape")
        if "raw" in step:
            self._must(f"member {index} of {key}", step["raw"], spelt_text(text))
        if "payload" in step:
            try:
                fields = members(text)
            except ValueError:
                raise Miss(f"member {index} of {key}", "a JSON object", text) from None
            for name, matcher in step["payload"].items():
                self._must(name, matcher, fields.get(name, ABSENT), f"member {index} of {key}")

    def _hash(self, step: Mapping[str, Any]) -> None:
        key = self._state.key(step["hash"])
        flat = self._sandbox.link.call("HGETALL", key)
        texts = [text.decode("utf-8", "surrogateescape") for text in flat]
        fields = dict(zip(texts[::2], texts[1::2], strict=True))
        if "len" in step:
            self._must(f"fields of {key}", step["len"], number(len(fields)))
        for name in fields if "names" in step else ():
            self._must(f"the name of a field of {key}", step["names"], spelt_text(name))
        for name, matcher in step.get("fields", {}).items():
            # `*` is a field whose name a case cannot know, like the id of an executor.
            known = fields.get(self._state.named(name))
            value = next(iter(fields.values()), None) if name == "*" else known
            self._must(name, matcher, ABSENT if value is None else spelt_text(value), key)
        self._ttl(step, key)

    def _set(self, step: Mapping[str, Any]) -> None:
        key = self._state.key(step["set"])
        kind = self._sandbox.link.call("TYPE", key)
        if kind not in (b"none", b"set"):
            raise Miss(f"the type of {key}", "set", kind.decode())
        seen = {
            text.decode("utf-8", "surrogateescape")
            for text in self._sandbox.link.call("SMEMBERS", key)
        }
        if "len" in step:
            self._must(f"members of {key}", step["len"], number(len(seen)))
        if "members" in step:
            self._must(f"members of {key}", step["members"], plain(sorted(seen)))
        for member in map(self._state.named, step.get("has", ())):
            if member not in seen:
                raise Miss(f"members of {key}", f"{member} among them", sorted(seen))
        for member in map(self._state.named, step.get("lacks", ())):
            if member in seen:
                raise Miss(f"members of {key}", f"no {member} among them", sorted(seen))

    def _key(self, step: Mapping[str, Any]) -> None:
        key = self._state.key(step["key"])
        if "exists" in step and bool(self._sandbox.link.call("EXISTS", key)) != step["exists"]:
            raise Miss(f"existence of {key}", step["exists"], not step["exists"])
        if "value" in step:
            value = self._sandbox.link.call("GET", key)
            seen = ABSENT if value is None else spelt_text(value.decode("utf-8", "replace"))
            self._must(key, step["value"], seen)
        self._ttl(step, key)

    def _keys(self, step: Mapping[str, Any]) -> None:
        pattern = self._state.key(step["keys"])
        found = [key.decode("utf-8", "replace") for key in self._sandbox.link.call("KEYS", pattern)]
        if not matches(step["len"], number(len(found)), self._scope):
            raise Miss(f"number of keys like {pattern}", step["len"], sorted(found))

    def _ttl(self, step: Mapping[str, Any], key: str) -> None:
        if "ttl" in step:
            left = self._sandbox.link.call("PTTL", key)
            seen = number(left / 1000) if left >= 0 else ABSENT
            if not matches(step["ttl"], seen, self._scope):
                # One that is too long becomes right as time goes by, without any command.
                subject = f"remaining seconds of {key}"
                raise Miss(subject, step["ttl"], seen, final=left >= 0)

    def _sent(self, step: Mapping[str, Any]) -> list[Call]:
        process = step.get("process", "driver")
        return [call for name, call in self._sandbox.calls() if name == process]

    def _commands(self, step: Mapping[str, Any]) -> None:
        sent = self._sent(step)
        parts = list(units(sent)) if "together" in step else [sent]
        missing: list[Any] = min(
            (self._missing(step["commands"], unit) for unit in parts), key=len, default=[[]]
        )
        if missing:
            names = [call.name.decode("utf-8", "replace") for call in sent]
            where = " in one transaction" if "together" in step else ""
            process = step.get("process", "driver")
            seen = ", ".join(names[-40:]) or ABSENT
            raise Miss(f"commands of {process}{where}", pattern_text(missing[0]), seen)

    def _missing(self, patterns: Sequence[Any], calls: Sequence[Call]) -> list[Any]:
        """Return the patterns, in order, that the commands do not match."""
        missing = list(patterns)
        for call in calls:
            if missing and self._like(missing[0], call):
                del missing[0]
        return missing

    def _like(self, pattern: Sequence[Any], call: Call) -> bool:
        """Return whether the first words of a command match a pattern."""
        prefix = self._sandbox.config.prefix  # of keys, which cases name without it
        words = [word.decode("utf-8", "replace").removeprefix(prefix) for word in call.words]
        words[0] = words[0].upper()
        return len(words) >= len(pattern) and all(
            matches(self._named(matcher), spelt_text(word), self._scope)
            for matcher, word in zip(pattern, words, strict=False)
        )

    def _never(self, step: Mapping[str, Any]) -> None:
        key = self._state.key(step["of"]).encode() if "of" in step else None
        for call in self._sent(step):
            for pattern in step["never"] if key is None or key in call.words else ():
                if self._like(pattern, call):
                    raise Miss("commands", f"never {pattern_text(pattern)}", _text(call))

    def _writes(self, step: Mapping[str, Any]) -> None:
        sent = self._sent(step)
        texts = scripts.texts_of(sent)
        for call in sent:
            if scripts.may_write(call, texts) and not any(
                self._like(p, call) for p in step["writes"]
            ):
                allowed = " or ".join(map(pattern_text, step["writes"])) or "none"
                raise Miss("commands that write", allowed, _text(call))

    def _metrics(self, step: Mapping[str, Any]) -> None:
        counted = Counted(self._sandbox.link, self._sandbox.config.prefix, self._scope)
        for pattern, parts in step["metrics"].items():
            for class_name, (part, matcher) in itertools.product(
                counted.classes(pattern), parts.items()
            ):
                seen = counted.part(class_name, part)
                self._must(
                    f"{part} of {class_name}", matcher, ABSENT if seen is None else plain(seen)
                )

    def _named(self, matcher: Any) -> Any:
        return self._state.named(matcher) if isinstance(matcher, str) else matcher

    def _burst(self, step: Mapping[str, Any]) -> None:
        process = step.get("process", "driver")
        calls = [call for name, call in self._sandbox.calls() if name == process]
        self._must(
            f"largest number of jobs in one round trip of {process}",
            step["burst"],
            number(burst(calls)),
        )

    def _atomic(self, step: Mapping[str, Any]) -> None:
        process = step.get("process", "driver")
        keys = {self._state.key(key).encode() for key in step["atomic"]}
        calls = [call for name, call in self._sandbox.calls() if name == process]
        whole = False
        for unit in units(calls):
            touched = {word for call in unit if call.spec.may_write for word in call.words} & keys
            added = {
                word for call in unit if call.spec.effect == "puts" for word in call.words
            } & keys
            whole = whole or touched == keys
            if added and touched != keys:
                sent = [call.name.decode("utf-8", "replace") for call in unit]
                raise Miss("one step", sorted(step["atomic"]), [sent, *map(bytes.decode, added)])
        if not whole:
            raise Miss("one step", sorted(step["atomic"]), ABSENT)

    def _truthful(self, step: Mapping[str, Any]) -> None:
        if self.answer is None:
            raise SuiteFault("a check of a truthful outcome must follow a push")
        key = self._state.key(step["truthful"])
        kind = self._sandbox.link.call("TYPE", key)
        jobs = self._sandbox.link.call("ZCARD" if kind == b"zset" else "LLEN", key)
        outcome = self.answer["outcome"]
        if (outcome == "ok" and not jobs) or (outcome == "rejected" and jobs):
            seen = f"{outcome!r}, and {jobs} jobs in {key}"
            raise Miss("the outcome", "an outcome that is true", seen)

    def _told(self, step: Mapping[str, Any]) -> None:
        """Check what a worker tells of itself, or a client of the jobs that it wrote."""
        mismatch = None
        if "identifies" in step:
            mismatch = told.names(self._state, step["identifies"])
        elif "resident" in step:
            mismatch = told.memory(self._state, step["resident"])
        elif self.answer is not None:
            mismatch = told.written(self._state, step["written"], self.answer)
        if mismatch is not None:
            raise Miss(*mismatch)

    def _alike(self, step: Mapping[str, Any]) -> None:
        """Check how often a process tried to put something into a key, always the same.

        Only `enqueued_at` may be new each time. With `further`, others may follow, each once.
        """
        key, times = self._state.key(step["alike"]["key"]), step["alike"]["times"]
        # A transaction may have a command for each job.
        tries = [
            [
                _ENQUEUED_AT.sub(b"", word)
                for call in unit
                if call.spec.effect == "puts" or call.spec.runs_script
                if key.encode() in call.words and not (call.reply or b"").startswith(b"-NOSCRIPT")
                for word in call.words
            ]
            for unit in sorted(units(self._sent(step)), key=lambda unit: unit[0].at)
        ]
        sent = [words for words in tries if words]
        further = sent[times:] if step["alike"].get("further", False) else []
        alike = sent[: len(sent) - len(further)]
        repeated = any(sent.count(words) > 1 for words in further)
        if len(alike) != times or any(words != alike[0] for words in alike) or repeated:
            seen = [b" ".join(words).decode("utf-8", "replace")[:300] for words in sent]
            raise Miss(f"commands that put something into {key}", f"{times}, all alike", seen)

    def _ran(self, step: Mapping[str, Any]) -> None:
        jid = self._state.named(step["ran"])
        events = [e for e in self._state.events() if e.kind == "begin" and e.jid == jid]
        # The spelling counts: Python reads `1e400` and `Infinity` as one value.
        seen = members(events[-1].text).get("args", plain(None)) if events else ABSENT
        self._must(f"arguments of {jid}", step.get("args", {"$": "any"}), seen)

    def _answered(self, step: Mapping[str, Any]) -> None:
        if self.answer is None:
            raise SuiteFault("a check of an answer must follow a request to the driver")
        for name, matcher in step["answer"].items():
            seen = plain(self.answer[name]) if name in self.answer else ABSENT
            self._must(name, matcher, seen, "the answer")

    def _discarded(self, step: Mapping[str, Any]) -> None:
        """Check that a connection with a missing reply is not used before the reply comes."""
        process = step.get("process", "driver")
        calls = self._sandbox.calls()
        held_back = struck(calls, process)
        if not held_back:
            raise Miss(f"late replies to {process}", "at least one", ABSENT)
        for call, answered in held_back:
            for name, other in calls:
                same = name == process and other.connection == call.connection
                # Commands that were sent together with it arrive at once.
                if same and call.at + _TOGETHER < other.at < answered:
                    words = [word.decode("utf-8", "replace") for word in other.words[:3]]
                    subject = f"connection {call.connection} of {process}, whose reply is missing"
                    raise Miss(subject, "no further use", words)

    def _moved(self, step: Mapping[str, Any]) -> None:
        """Check that a process leaves a connection on which a command was refused."""
        refused: set[int] = set()
        for unit in units(self._sent(step)):
            first = unit[0]
            if first.connection in refused and first.name.upper() != b"QUIT":
                subject = f"connection {first.connection}, on which a command was refused"
                raise Miss(subject, "no further use", _text(first))
            if any(isinstance(call.action, Refuse) for call in unit):
                refused.add(first.connection)
        if not refused:
            raise Miss("refused commands", "at least one", ABSENT)

    def _paced(self, step: Mapping[str, Any]) -> None:
        """Check that a process pauses after each refused command. [ENV-11]"""
        process, wanted = step["process"], step["paced"]
        sent = sorted(units(self._sent(step)), key=lambda unit: unit[0].at)
        tries = [unit for unit in sent if any(isinstance(c.action, Refuse) for c in unit)]
        if len(tries) < 3:
            raise Miss(f"refused commands of {process}", "at least three", len(tries))
        # From the reply on, so that a slow proxy does not pass for a pause.
        pauses = [
            after[0].at - (before[-1].answered or before[-1].at)
            for before, after in itertools.pairwise(tries)
        ]
        pause = min(pauses)
        if pause < wanted:
            raise Miss("the shortest pause between tries", f"{wanted} s", f"{pause:.4f} s")

    def _ordered(self, step: Mapping[str, Any]) -> None:
        """Check that the last write of a process to one key came before its last to another."""
        process, keys = step["process"], step["ordered"]
        last: list[float] = []
        for key in keys:
            word = self._state.key(key).encode()
            sent = [c.at for c in self._sent(step) if c.spec.may_write and word in c.words]
            if not sent:
                raise Miss(f"writes of {process} to {key}", "at least one", ABSENT)
            last.append(sent[-1])
        if last != sorted(last):
            seen = [key for _, key in sorted(zip(last, keys, strict=True))]
            raise Miss(f"order of the last writes of {process}", keys, seen)

    def _logs(self, step: Mapping[str, Any]) -> None:
        text = self._sandbox.workers[step["process"]].log.text()
        if not re.search(step["logs"], text):
            raise Miss(f"output of {step['process']}", f"a match of {step['logs']}", text[-300:])

    def _rate(self, step: Mapping[str, Any]) -> None:
        """Check that an idle process does not fetch too often. [FETCH-10]"""
        process, seconds = step["process"], step["rate"]["seconds"]
        worker = self._sandbox.workers[process]
        times = [call.at for call in worker.fetches()]
        since = time.monotonic() - seconds
        if not times or times[0] > since:
            raise Miss(f"seconds since the first fetch of {process}", f"{seconds}", "fewer")
        most = step["rate"]["most"] * seconds * worker.concurrency
        seen = sum(at > since for at in times)
        if seen > most:
            raise Miss(f"fetches of {process} in {seconds} s", f"at most {most:g}", seen)

    def _grammar(self, step: Mapping[str, Any]) -> None:
        """Check that all keys belong to the protocol or to its extensions."""
        prefix = self._sandbox.config.prefix
        for raw in self._sandbox.link.call("KEYS", "*"):
            key = raw.decode("utf-8", "surrogateescape")
            if not key.startswith(prefix) or not is_known_key(key.removeprefix(prefix)):
                raise Miss(
                    "a key", "a key of the protocol, or a key that begins with jobwire:", key
                )

    def _namespaced(self, step: Mapping[str, Any]) -> None:
        """Check that all keys of a process's commands have the namespace."""
        prefix = self._sandbox.config.prefix.encode()
        for call in self._sent(step):
            for key in keys_of(call.words) if call.spec.kind != "unknown" else ():
                if not key.startswith(prefix):
                    raise Miss("a key", f"a key that begins with {prefix.decode()}", _text(call))

    def _patient(self, step: Mapping[str, Any]) -> None:
        """Check that a worker waits for the reply to each blocking fetch."""
        process = step["process"]
        worker = self._sandbox.workers[process]
        blocking = [call for call in worker.fetches() if call.blocks]
        for call in blocking:
            if call.given_up and worker.idle_expected:
                words = [word.decode("utf-8", "replace") for word in call.words]
                raise Miss(f"blocking fetches of {process}", "a reply", [*words, "given up"])
        wait = max((rest.longest_wait(call) for call in blocking), default=0.0)
        if 0.0 < wait <= _LONGEST_WAIT_S and not worker.waited():
            raise Miss(f"blocking fetches of {process}", "a reply without a job", ABSENT)

    def _pauses(self, step: Mapping[str, Any]) -> None:
        """Check the first pauses between reads of a key, for one of the possible averages.

        One in ten may be longer, because a busy machine can hold up a read for seconds.
        """
        pauses = sorted(self._first(step, step["pauses"]["waits"]))
        longest = pauses[-1 - len(pauses) // 10]
        averages = self._averages(step["pauses"]["average"])
        spans = [(_EARLY * average / 2, 1.5 * average + _LATE_S) for average in averages]
        if not any(low <= pauses[0] and longest <= high for low, high in spans):
            expected = " or ".join(f"{low:.2f} to {high:.2f}" for low, high in spans)
            seen = [round(pause, 2) for pause in pauses]
            raise Miss(f"seconds between reads of {step['of']}", expected, seen)

    def _spread(self, step: Mapping[str, Any]) -> None:
        """Check the mean of the pauses between reads of a key, and how much they differ."""
        wanted, what = step["spread"], f"pauses between reads of {step['of']}"
        pauses = self._first(step, wanted["waits"])
        mean = sum(pauses) / len(pauses)
        averages = self._averages(wanted["average"])
        if not any(0.7 * average <= mean <= 1.4 * average for average in averages):
            expected = " or ".join(f"{0.7 * each:.2f} to {1.4 * each:.2f}" for each in averages)
            raise Miss(f"mean of {what}", expected, round(mean, 2))
        if max(pauses) < wanted["ratio"] * min(pauses):
            raise Miss(f"longest by shortest of {what}", wanted["ratio"], max(pauses) / min(pauses))

    def _idle(self, step: Mapping[str, Any]) -> None:
        """Check that a process has read a key, and not again for so many seconds."""
        times = self._reads(step)
        seen = time.monotonic() - times[-1] if times else 0.0
        if seen < step["idle"]:
            raise Miss(f"seconds since the last read of {step['of']}", step["idle"], round(seen, 1))

    def _first(self, step: Mapping[str, Any], wanted: int) -> list[float]:
        """Return the first so many pauses of a process between its reads of a key."""
        pauses = self._between(step)[:wanted]
        if len(pauses) < wanted:
            raise Miss(f"number of pauses between reads of {step['of']}", wanted, len(pauses))
        return pauses

    def _averages(self, configured: float) -> list[float]:
        """Return the configured average, and the one of a worker that may not obey the case."""
        worker = self._sandbox.config.worker
        fixed = worker.fixed.get("poll") if worker is not None else None
        return [configured] if fixed is None else [configured, fixed]

    def _between(self, step: Mapping[str, Any]) -> list[float]:
        """Return the pauses of a process between its reads of a key."""
        pauses = [after - before for before, after in itertools.pairwise(self._reads(step))]
        # Several commands of one read arrive together.
        return [pause for pause in pauses if pause > _TOGETHER]

    def _reads(self, step: Mapping[str, Any]) -> list[float]:
        """Return the times at which a process named a key."""
        key = self._state.key(step["of"]).encode()
        process = step["process"]
        return [c.at for name, c in self._sandbox.calls() if name == process and key in c.words]

    def _contracts(self, step: Mapping[str, Any]) -> None:
        """Check the KEYS and ARGV of the calls of canonical scripts."""
        prefix = self._sandbox.config.prefix
        for call in self._sent(step):
            script = script_call(call.words)
            name = None if script is None else canonical(script.sha)
            if script is None or name is None:
                continue
            keys = [word.decode("utf-8", "surrogateescape") for word in script.keys]
            arguments = [word.decode("utf-8", "surrogateescape") for word in script.arguments]
            misfit = fault(name, [key.removeprefix(prefix) for key in keys], arguments)
            if misfit is not None:
                raise Miss(f"a call of {name}.lua", "the KEYS and ARGV of section 18", misfit)

    def _declared(self, step: Mapping[str, Any]) -> None:
        """Check that scripts access only the keys in their KEYS."""
        keys: set[bytes] = set()
        sha, scripts = "", 0
        for executed in self._sandbox.executed():
            if not executed.by_script:
                if executed.words and spec_of(executed.words[0]).runs_script:
                    keys = {*keys_of(executed.words)}
                    sha = executed.words[1][:40].decode("utf-8", "replace")
                    scripts += 1
                continue
            try:
                touched = self._sandbox.link.call("COMMAND", "GETKEYS", *executed.words)
            except EnvironmentFault:
                continue  # a command without keys
            if hidden := {*touched} - keys:
                shown = sorted(key.decode("utf-8", "replace") for key in hidden)
                raise Miss(f"keys that script {sha} accesses", "all in KEYS", shown)
        if not scripts:
            raise Miss("calls of scripts", "at least one", ABSENT)

    def _either(self, step: Mapping[str, Any]) -> None:
        """Check that at least one of the alternatives holds."""
        misses = [self.miss(alternative) for alternative in step["either"]]
        if None not in misses:
            seen = "; ".join(str(miss) for miss in misses)
            raise Miss("alternatives", "one of them", seen)

    def _that(self, step: Mapping[str, Any]) -> None:
        for each in predicates(step["that"]):
            holds, seen = self._state.holds(each)
            if not holds:
                wanted = named(each, self._state.named)
                raise Miss(wanted.subject, wanted.expected, seen)

    _parts: Mapping[str, Callable[..., None]] = {
        "list": _list,
        "zset": _zset,
        "hash": _hash,
        "set": _set,
        "key": _key,
        "keys": _keys,
        "commands": _commands,
        "never": _never,
        "writes": _writes,
        "metrics": _metrics,
        "burst": _burst,
        "atomic": _atomic,
        "truthful": _truthful,
        "written": _told,
        "identifies": _told,
        "resident": _told,
        "alike": _alike,
        "discarded": _discarded,
        "moved": _moved,
        "paced": _paced,
        "ordered": _ordered,
        "logs": _logs,
        "rate": _rate,
        "namespaced": _namespaced,
        "grammar": _grammar,
        "patient": _patient,
        "pauses": _pauses,
        "spread": _spread,
        "idle": _idle,
        "declared": _declared,
        "contracts": _contracts,
        "ran": _ran,
        "answer": _answered,
        "either": _either,
        "that": _that,
    }

    def around(self, step: Mapping[str, Any]) -> list[evidence.Line]:
        """Return the evidence of a check."""
        return evidence.around(step, self._sandbox.record(), self._state.key)


def _text(call: Call) -> str:
    return b" ".join(call.words).decode("utf-8", "replace")[:300]


def _index(step: Mapping[str, Any], key: str, texts: Sequence[bytes]) -> int:
    """Return the index of the member that a check is about."""
    if "jid" not in step:
        return int(step.get("index", 0))
    newest_first = range(len(texts) - 1, -1, -1)  # the set may be long
    index = next((index for index in newest_first if jid_of(texts[index]) == step["jid"]), None)
    if index is None:
        raise Miss(f"members of {key}", f"one with the id {step['jid']}", f"{len(texts)} others")
    return index


def _within(sequence: Sequence[object], index: int) -> bool:
    return -len(sequence) <= index < len(sequence)
