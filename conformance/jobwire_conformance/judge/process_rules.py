"""Rules for heartbeats, work records, counters, signals, iteration states and metrics."""

from __future__ import annotations

import datetime as dt
import json
import re
from typing import Any

from jobwire_conformance.judge import payloads
from jobwire_conformance.judge.ledger import Finding
from jobwire_conformance.judge.stream import JudgeContext, Step, Unit

__all__ = ["ProcessRules"]

_IDENTITY = re.compile(r".+:\d+:[0-9a-f]{12}", re.DOTALL)
_STAT = re.compile(r"stat:(?:processed|failed)(?::(.*))?")
_BUCKET = re.compile(
    r"j\|(?:\d{6}\|1?\d:\d\d|\d{6}\|2[0-3]:\d\d|\d{6}\|\d{1,2}:[0-5]|\d{8}\|\d{1,2}:\d{1,2})"
)
_SIGNALS = (b"TSTP", b"TERM", b"TTIN", b"INT")
_OLD_INFO = frozenset(
    ["hostname", "started_at", "pid", "tag", "concurrency", "queues", "labels", "identity"]
)
_LATEST_BEAT = 15.0  # seconds; the requirement says 10, and machines are busy
_LINK = 2.0  # seconds between commands that belong together
_FIVE_YEARS = 157_680_000  # seconds


class ProcessRules:
    """The rules for processes and their own keys."""

    def __init__(self, context: JudgeContext) -> None:
        self._context = context
        self._ledger = context.ledger
        self._beats: dict[str, float] = {}
        # All by identity.
        self._asked: dict[str, bool] = {}  # True after a read of signals since the last heartbeat
        self._records: dict[str, set[str]] = {}  # suffixes of the keys of its work records
        self._steps: dict[str, Step] = {}  # its latest heartbeat

    def look(self, unit: Unit) -> None:
        """Judge commands that were executed together."""
        context = self._context
        for step in unit.steps:
            if not step.worked or len(step.words) < 2:
                continue
            key = context.key(step.words[1])
            match step.name:
                case "EXPIRE" | "PEXPIRE" if len(step.words) > 2:
                    context.promises.keep("expire", f"{key} {_seconds(step)}")
                case "HSET" | "HMSET" if b"info" in step.words[2::2] and b"beat" in step.words:
                    self._beat(step, unit, key)
                case "HSET" | "HMSET" if key.endswith((":work", ":workers")):
                    self._work(step, unit, key)
                case "HSET" | "HMSET" if key.startswith("it-"):
                    self._state(step, key)
                case "HSETNX" if key.startswith("it-") and step.words[2:3] == [b"cancelled"]:
                    self._cancelled(step, unit, key)
                case "SADD" if key == "processes":
                    self._registered(step, unit)
                case "SREM" if key == "processes":
                    self._left(step, unit)
                case "SET" if key == "process_cleanup":
                    self._lock(step)
                case "RPOP" if key.endswith("-signals"):
                    self._asked[key.removesuffix("-signals")] = True
                case "LPUSH" | "RPUSH" if key.endswith("-signals"):
                    self._signal(step, unit, key)
                case "INCR" | "INCRBY" | "INCRBYFLOAT" if key.startswith("stat:"):
                    self._counter(step, unit, key)
                case "HINCRBY" if key.startswith("j|"):
                    self._metric(step, key)
                case "BITFIELD" if key.startswith("h|"):
                    self._histogram(step, key)

    def end(self, *, cleanly: bool) -> None:
        """Judge the requirements for the end of a process."""
        for identity in self._beats if cleanly else ():
            expected = f"SREM processes {identity} before a clean end"
            record = self._steps[identity].record
            self._ledger.accuse(
                Finding(
                    "BEAT-7", expected, "a process that stays registered", record, doubtful=True
                )
            )

    # -- heartbeat

    def _beat(self, step: Step, unit: Unit, identity: str) -> None:
        context = self._context
        fields = dict(zip(step.words[2::2], step.words[3::2], strict=False))
        texts = {_text(name): _text(value) for name, value in fields.items()}
        expires = _expiry(context, unit, identity)
        named = any(
            other.name == "SADD"
            and context.key(other.words[1]) == "processes"
            and identity in [_text(word) for word in other.words[2:]]
            for other in unit.steps
        )
        expected = f"SADD processes, HSET {identity} and EXPIRE {identity} 60 in one transaction"
        if not unit.atomic:
            seen = "an HSET outside the transaction"
        elif not named:
            seen = "no SADD processes"
        else:
            seen = "no EXPIRE" if expires is None else f"EXPIRE {expires}"
        self._judge("BEAT-1", unit.atomic and named and expires == "60", step, expected, seen)
        last = self._beats.get(identity)
        if last is not None:
            pause = context.now - last
            self._judge(
                "BEAT-2",
                pause < _LATEST_BEAT,
                step,
                "a heartbeat every 10 s",
                f"a heartbeat after {pause:.1f} s",
            )
            asked = self._asked.get(identity, False) or _argument_any(
                context, unit, "RPOP", f"{identity}-signals"
            )
            expected, seen = f"RPOP {identity}-signals at each heartbeat", "a heartbeat without it"
            self._judge("SIG-4", asked, step, expected, seen)
        self._asked[identity] = False
        self._beats[identity] = context.now
        self._steps[identity] = step
        info = _json(fields.get(b"info", b""))
        sidekiq = _sidekiq(info)
        if sidekiq is None:
            self._ledger.others = True
        else:
            self._ledger.sidekiq.add(sidekiq)
        self._schema("BEAT-3", step, texts, "identity-hash", "sidekiq")
        if not sidekiq:  # each release writes the fields of its own generation
            self._schema("BEAT-13", step, texts, "identity-hash", "written")
        if info is None:
            self._judge("BEAT-4", False, step, "a JSON object in info", texts.get("info", "")[:60])
        else:
            self._schema("BEAT-4", step, info, "process-info", "common")
            if not sidekiq:
                self._schema("BEAT-13", step, info, "process-info", "written")
            same = info.get("identity") == identity
            expected, seen = f"info with identity {identity}", f"identity {info.get('identity')!r}"
            self._judge("BEAT-6", same, step, expected, seen)
        if last is not None and not sidekiq:
            both = self._records.get(identity, set())
            expected = ":work and :workers rewritten at each heartbeat"
            good = both >= {":work", ":workers"}
            self._judge("BEAT-14", good, step, expected, f"only {sorted(both) or 'none'}")
        self._records[identity] = set()

    def _registered(self, step: Step, unit: Unit) -> None:
        for word in step.words[2:]:
            identity = _text(word)
            good = _IDENTITY.fullmatch(identity)
            expected = "<host>:<pid>:<12 lower-case hex digits>"
            self._judge("BEAT-6", good, step, expected, identity)
            if not any(
                other.name in ("HSET", "HMSET") and self._context.key(other.words[1]) == identity
                for other in unit.steps
            ):
                expected = f"SADD processes and HSET {identity} in one transaction"
                self._judge("BEAT-1", False, step, expected, "an SADD outside the transaction")

    def _left(self, step: Step, unit: Unit) -> None:
        context = self._context
        for word in step.words[2:]:
            identity = _text(word)
            if self._beats.pop(identity, None) is None:
                continue  # this process prunes another one
            expected, seen = f"UNLINK {identity}:work", "work records that stay for 60 s"
            if not any(
                other.name in ("UNLINK", "DEL")
                and any(context.key(w).startswith(f"{identity}:work") for w in other.words[1:])
                for other in unit.steps
            ):
                context.expect("unlink", identity, _LINK, "BEAT-20", step, expected, seen)
            else:
                self._ledger.exercise("BEAT-20")

    def gone(self, step: Step) -> None:
        """Note the deletion of work records."""
        for word in step.words[1:]:
            key = self._context.key(word)
            for suffix in (":work", ":workers"):
                if key.endswith(suffix):
                    identity = key.removesuffix(suffix)
                    self._records.setdefault(identity, set()).add(suffix)
                    self._context.promises.keep("unlink", identity)

    def _work(self, step: Step, unit: Unit, key: str) -> None:
        context = self._context
        identity, _, suffix = key.rpartition(":")
        wiped = any(
            other.name in ("UNLINK", "DEL")
            and key in [context.key(word) for word in other.words[1:]]
            for other in unit.steps
        )
        expected = f"UNLINK, HSET and EXPIRE 60 of {key} in one transaction"
        expires = _expiry(context, unit, key)
        seen = (
            "separate commands"
            if not unit.atomic
            else "no UNLINK"
            if not wiped
            else f"EXPIRE {expires}"
        )
        good = unit.atomic and wiped and expires == "60"
        self._judge("BEAT-5", good, step, expected, seen)
        self._records.setdefault(identity, set()).add(f":{suffix}")
        for value in step.words[3::2]:
            record = _json(value)
            if record is None:
                self._judge("BEAT-17", False, step, "a JSON object", _text(value)[:60])
                continue
            self._schema("BEAT-17", step, record, "work-record", "written")
            text = record.get("payload")
            if not isinstance(text, str):
                continue
            raw = text.encode("utf-8", "surrogatepass")
            job, _ = payloads.parse(raw)
            origin = context.seen_payloads.origin(job.get("jid") if job else None, step.record.sent)
            if origin is not None and origin.taken:
                same = context.seen_payloads.knows(raw, step.record.sent)
                only_spelt = not same and job == payloads.parse(origin.text)[0]
                rule = "BEAT-17" if only_spelt else "EXEC-5"
                self._judge(rule, same, step, "the payload as fetched", text[:80])

    def _lock(self, step: Step) -> None:
        options = {word.upper() for word in step.words[3:]}
        good = b"NX" in options and b"EX" in options and step.words[-1] == b"60"
        good = good or (b"NX" in options and b"60" in options)
        self._judge(
            "BEAT-21", good, step, "SET process_cleanup 1 NX EX 60", " ".join(step_words(step))
        )

    def _signal(self, step: Step, unit: Unit, key: str) -> None:
        known = all(word in _SIGNALS for word in step.words[2:])
        good = step.name == "LPUSH" and known and _expiry(self._context, unit, key) == "60"
        expected = "LPUSH of TSTP, TERM or TTIN and EXPIRE 60 in one transaction"
        self._judge("INSP-13", good and unit.atomic, step, expected, " ".join(step_words(step)))

    # -- counters

    def _counter(self, step: Step, unit: Unit, key: str) -> None:
        match = _STAT.fullmatch(key)
        if match is None:
            return
        date, context = match[1], self._context
        days = {_today(context.now - 60), _today(context.now)}  # midnight may just have passed
        if date is None:
            self._ledger.exercise("STAT-1")
            dated = {f"{key}:{day}" for day in days}
            if not any(context.key(other.words[1]) in dated for other in unit.steps):
                expected = f"the same for {key}:{_today(context.now)}, with the date in UTC"
                seen = "only the total"
                context.expect("date", key, _LINK, "STAT-2", step, expected, seen)
            return
        expected = f"the date in UTC, {_today(context.now)}"
        self._judge("STAT-2", date in days, step, expected, date)
        context.promises.keep("date", key.removesuffix(f":{date}"))
        self._lasting(step, key, _FIVE_YEARS, "STAT-4")

    def _metric(self, step: Step, key: str) -> None:
        good = _BUCKET.fullmatch(key) and len(step.words) > 2
        self._judge("MET-1", good, step, "j|<YYMMDD>|<H>:<MM> or j|<YYMMDD>|<H>:<M>", key)
        field = _text(step.words[2]) if len(step.words) > 2 else ""
        kind = field.rpartition("|")[2]
        self._judge("MET-1", kind in ("p", "f", "ms"), step, "<Class>|p, |f or |ms", field)
        if good:
            minute = len(key.rpartition(":")[2]) > 1 or len(key.split("|")[1]) > 6
            self._lasting(step, key, 28_800 if minute else 259_200, "MET-3")

    def _histogram(self, step: Step, key: str) -> None:
        words = [word.upper() for word in step.words[2:]]
        good = words[:2] == [b"OVERFLOW", b"SAT"] and b"U16" in words
        seen = " ".join(step_words(step))
        self._judge("MET-2", good, step, "BITFIELD ... OVERFLOW SAT INCRBY u16 #<i>", seen)
        self._lasting(step, key, 28_800, "MET-3")

    # -- iteration

    def _state(self, step: Step, key: str) -> None:
        texts = {
            _text(name): _text(value)
            for name, value in zip(step.words[2::2], step.words[3::2], strict=False)
        }
        self._schema("ITER-1", step, texts, "iteration-state", "usual")
        self._lasting(step, key, 2_592_000, "ITER-2")

    def _cancelled(self, step: Step, unit: Unit, key: str) -> None:
        value = _text(step.words[3]) if len(step.words) > 3 else ""
        good = value.isdigit() and int(value) < payloads.MILLISECONDS
        self._judge("ITER-7", good, step, "integer seconds", value)
        has_cursor = any(
            other.name == "HSETNX" and other.words[2:3] == [b"c"] and other is not step
            for other in unit.steps
        )
        self._judge("ITER-9", has_cursor, step, f"HSETNX {key} c null before it", "no cursor")

    # -- parts of judgements

    def _lasting(self, step: Step, key: str, seconds: int, rule: str) -> None:
        """Expect an EXPIRE, in the same transaction or soon after it."""
        expected, seen = f"EXPIRE {key} {seconds}", "no such EXPIRE"
        token = f"{key} {seconds}"
        if self._context.promises.expects("expire", token):
            self._ledger.exercise(rule)
        else:
            self._context.expect("expire", token, _LINK, rule, step, expected, seen)

    def _schema(self, rule: str, step: Step, value: Any, file: str, part: str) -> None:
        self._ledger.exercise(rule)
        for breach in payloads.schema_breaches(value, file, part):
            self._ledger.accuse(Finding(breach.rule, breach.expected, breach.located, step.record))

    def _judge(self, rule: str, holds: object, step: Step, expected: str, seen: str) -> None:
        self._ledger.judge(rule, holds, step.record, expected, seen)


def step_words(step: Step) -> list[str]:
    """Return the first words of a command, as text for people."""
    return [_text(word)[:40] for word in step.words[:8]]


def _sidekiq(info: dict[str, Any] | None) -> int | None:
    """Return the major release of a process of genuine Sidekiq. [BEAT-4]"""
    if info is None:
        return None
    version = info.get("version")
    if isinstance(version, str) and version[:1].isdigit():
        major = version.partition(".")[0]
        return int(major) if major.isdigit() else None
    return 6 if info.keys() == _OLD_INFO else None


def _expiry(context: JudgeContext, unit: Unit, key: str) -> str | None:
    """Return the seconds for which a command of the unit keeps the key."""
    for step in unit.steps:
        is_expiry = step.name in ("EXPIRE", "PEXPIRE") and len(step.words) > 2
        if is_expiry and context.key(step.words[1]) == key:
            return _seconds(step)
    return None


def _seconds(step: Step) -> str:
    """Return the seconds of an EXPIRE or PEXPIRE."""
    text = _text(step.words[2])
    if step.name == "EXPIRE":
        return text
    return text.removesuffix("000") if text.endswith("000") else f"{text} ms"


def _argument_any(context: JudgeContext, unit: Unit, name: str, key: str) -> bool:
    return any(step.name == name and context.key(step.words[1]) == key for step in unit.steps)


def _today(at: float) -> str:
    return dt.datetime.fromtimestamp(at, dt.UTC).strftime("%Y-%m-%d")


def _json(text: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _text(word: bytes) -> str:
    return word.decode("utf-8", "surrogateescape")
