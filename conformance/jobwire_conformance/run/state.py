"""The state of a run: data in Redis, reports of jobs, predicates, and the wait for rest."""

from __future__ import annotations

import base64
import json
import re
import struct
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from jobwire_conformance.cases.match import TIMES, Scope, matches, moment, written_time
from jobwire_conformance.cases.predicates import Predicate, Raw, named, predicates
from jobwire_conformance.cases.values import members, plain
from jobwire_conformance.errors import SuiteFault, Unbound
from jobwire_conformance.run.metrics import histogram_key
from jobwire_conformance.run.transactions import executed
from jobwire_conformance.sandbox.idle import FORGOTTEN_S, Event
from jobwire_conformance.sandbox.processes import wait_for
from jobwire_conformance.sandbox.sandbox import Sandbox
from jobwire_conformance.sandbox.worker import SandboxWorker
from jobwire_conformance.wire.call import Call
from jobwire_conformance.wire.faults import Delay

__all__ = ["State", "jid_of", "struck"]

SETS = ("schedule", "retry", "dead")
# Not a key that ends with an identity; the name of a host may have colons. [BEAT-6]
_IDENTITY = re.compile(rb"(?!.*jobwire:)\S+:[0-9]+:[0-9a-f]{12}")
_ENTRY = re.compile(rb"[0-9]+:")  # the field of a private entry [REL-13]
_FIRST_BEAT = 15.0  # seconds
_STEADY = 0.01  # seconds between two reads that must be equal
_LONG = "x" * 70_000  # `{long}` in a seed, more than 64 KiB


class State:
    """The state of one run of a case: the Redis of its sandbox, and the reports of its jobs."""

    def __init__(self, sandbox: Sandbox, scope: Scope) -> None:
        self.sandbox = sandbox
        self.scope = scope
        self._copy: list[tuple[bytes, int, bytes]] = []
        self._entries: dict[tuple[str, bytes], float] = {}  # private entry to the time of the sight

    # -- names

    def named(self, text: str) -> str:
        """Replace each `{name}` by the identity of a process or by a bound value."""

        def value(match: re.Match[str]) -> str:
            name = match[1]
            if name in self.sandbox.workers:
                return self.identity(name)
            if name in self.scope.bound:
                return str(self.scope.bound[name])
            raise Unbound(f"no process and no bound value has the name {name!r}")

        return re.sub(r"\{([a-z][a-z0-9_]*)\}", value, text)

    def _filled(self, text: str) -> str:
        """Replace each `{name}` by a bound value; other braces stay as they are."""
        for name, value in self.scope.bound.items():
            text = text.replace(f"{{{name}}}", str(value))
        return text

    def key(self, text: str) -> str:
        """Return the full key for a key of a case."""
        return self.sandbox.config.prefix + self.named(text)

    def identity(self, name: str) -> str:
        """Return the identity of a process, or a text that is not an identity if it has none.

        The identity is the one that this process has registered. A process may fetch before it
        registers, so this method waits for the first heartbeat.
        """
        worker = self.sandbox.workers[name]
        registry = f"{self.sandbox.config.prefix}processes"
        identities: list[str] = []

        def is_known() -> bool:
            calls = worker.proxy.snapshot()
            # A process may name others before it registers, such as one that looks for dead ones.
            adds = [call for call in calls if registry.encode() in call.words and _adds(call)]
            words = [word for call in adds for word in call.words]
            known = set(self.sandbox.link.call("SMEMBERS", registry))
            identities[:] = [word.decode() for word in words if word in known]
            if worker.group.status is not None or not worker.idle_expected:
                # The process may no longer be registered, so any word of this form counts.
                words = words or [word for call in calls for word in call.words]
                identities[:] = [w.decode() for w in words if w in known or _IDENTITY.fullmatch(w)]
            return bool(identities) or worker.group.status is not None

        wait_for(is_known, _FIRST_BEAT)
        return identities[0] if identities else "(no identity)"

    # -- writing

    def seed(self, seed: Mapping[str, Any]) -> None:
        """Write one key."""
        link, now = self.sandbox.link, time.time()
        if "set" in seed and "times" in seed:
            words = _numbered([self.sandbox.config.prefix + seed["set"], seed["value"]], seed)
            link.call("MSET", *words)
            return
        key = self.key(next(str(seed[verb]) for verb in _SEEDS if verb in seed))
        texts = self._texts(seed, now)
        if "zadd" in seed:
            given = seed["score"]
            is_bound = isinstance(given, str) and given.startswith("{")
            score = float(self.named(given)) if is_bound else moment(given, now)
            link.call("ZADD", key, *(word for text in texts for word in (score, text)))
        elif "lpush" in seed:
            link.call("LPUSH", key, *texts)
            bare = str(seed["lpush"])
            if bare.startswith("queue:") and seed.get("registered", True):
                link.call("SADD", self.key("queues"), self.named(bare.removeprefix("queue:")))
        elif "hset" in seed:
            words = [word for pair in seed["fields"].items() for word in pair]
            link.call("HSET", key, *map(self._filled, _numbered(words, seed)))
        elif "sadd" in seed:
            link.call("SADD", key, *map(self.named, _numbered(seed["members"], seed)))
        elif "histogram" in seed:
            # The worker may write in one of the next minutes.
            for minute in range(3):
                key = self.key(histogram_key(seed["histogram"], time.gmtime(now + 60 * minute)))
                link.call("SET", key, struct.pack(">26H", *[seed["count"]] * 26), "EX", 28800)
        elif "del" in seed:
            link.call("DEL", key)
        else:
            link.call("SET", key, seed["value"])
        if "ttl" in seed:
            link.call("PEXPIRE", key, int(seed["ttl"] * 1000))

    def _texts(self, seed: Mapping[str, Any], now: float) -> list[bytes]:
        """Return the payloads. With `times`, `{n}` is replaced by the number of the payload."""
        if "base64" in seed:
            return [base64.b64decode(seed["base64"])]
        if not ("raw" in seed or "job" in seed):
            return []
        return [text.encode() for text in _numbered([self._text(seed, now)], seed)]

    def _text(self, seed: Mapping[str, Any], now: float) -> str:
        if "raw" in seed:
            return self._filled(str(seed["raw"])).replace("{long}", _LONG)
        job = {
            name: written_time(moment(value["of"], now), value["generation"])
            if isinstance(value, dict) and value.get("$") == "time"
            else value
            for name, value in seed["job"].items()
        }
        return json.dumps(job, ensure_ascii=False, separators=(",", ":"))

    def warp(self, seconds: float, patterns: list[str]) -> None:
        """Make the data older: subtract seconds from scores, times in payloads and expiries."""
        link = self.sandbox.link
        wanted = [re.compile(".*".join(map(re.escape, self.key(p).split("*")))) for p in patterns]
        for raw in link.call("KEYS", "*"):
            key = raw.decode("utf-8", "surrogateescape")
            if wanted and not any(pattern.fullmatch(key) for pattern in wanted):
                continue
            left = link.call("PTTL", raw)  # a key ends for a moment without its only member
            if link.call("TYPE", raw) == b"zset":
                for member, score in _pairs(link.call("ZRANGE", raw, 0, -1, "WITHSCORES")):
                    link.calls(
                        [
                            ("ZREM", raw, member),
                            ("ZADD", raw, float(score) - seconds, _aged(member, seconds)),
                        ]
                    )
            if left >= 0:
                link.call("PEXPIRE", raw, max(1, left - int(seconds * 1000)))

    def snapshot(self) -> None:
        """Remember all data of the server."""
        link = self.sandbox.link
        keys = link.call("KEYS", "*")
        self._copy = [(key, max(link.call("PTTL", key), 0), link.call("DUMP", key)) for key in keys]

    def rollback(self) -> None:
        """Have the server forget all writes since the snapshot, in one step."""
        keys = self.sandbox.link.call("KEYS", "*")
        restored = [("RESTORE", key, ttl, copy) for key, ttl, copy in self._copy]
        self.sandbox.link.calls([("MULTI",), ("DEL", "", *keys), *restored, ("EXEC",)])

    # -- reading

    def events(self) -> list[Event]:
        """Return the reports of all jobs, in order."""
        events = [event for worker in self.sandbox.workers.values() for event in worker.events()]
        return sorted(events, key=lambda event: event.at)

    def all_hold(self, raw: Raw) -> tuple[bool, str]:
        """Return whether all predicates hold, and the current values that they look at."""
        found = [(each, *self.holds(each)) for each in predicates(raw)]
        seen = ", ".join(f"{each.name} is {value}" for each, _, value in found)
        return all(holds for _, holds, _ in found), seen

    def holds(self, predicate: Predicate) -> tuple[bool, str]:
        """Return whether a predicate holds, and the current value that it looks at."""
        each = named(predicate, self.named)
        value = self._value(each.function, each.of)
        wanted = each.wanted
        if isinstance(wanted, Mapping) and wanted.get("$") == "same":
            wanted = self._bound(wanted["name"], value)
        return matches(wanted, plain(value), self.scope) != each.differs, plain(value).raw

    def _bound(self, name: str, value: object) -> object:
        """Return a bound value, as a number if it is the text of one and a number is seen."""
        if name not in self.scope.bound:
            raise Unbound(f"no bound value has the name {name!r}")
        bound = self.scope.bound[name]
        is_digits = isinstance(bound, str) and bound.isascii() and bound.isdigit()
        return int(bound) if is_digits and isinstance(value, int) else bound

    def number(self, name: str, argument: str) -> int:
        """Return the value of a function of predicates that counts."""
        return int(self._value(name, argument))

    def _value(self, name: str, argument: Any) -> Any:
        match name:
            case "performed":
                return sum(e.jid == argument and e.kind == "end" and e.ok for e in self.events())
            case "began":
                return sum(e.jid == argument and e.kind == "begin" for e in self.events())
            case "started":
                return [e.jid for e in self.events() if e.kind == "begin"]
            case "items":
                begun = [e for e in self.events() if e.jid == argument and e.kind == "begin"]
                return [e.args[0] if e.args else None for e in begun]
            case "copies":
                return len(self._places(argument))
            case "place":
                return ",".join(self._places(argument)) or "nowhere"
            case "order":
                prefix = f"{self.sandbox.config.prefix}queue:"
                texts = self.sandbox.link.call("LRANGE", prefix + argument, 0, -1)
                return [jid_of(text) for text in texts]
            case "stat":
                count = self.sandbox.link.call(
                    "GET", f"{self.sandbox.config.prefix}stat:{argument}"
                )
                return int(count or 0)
            case "share":
                return self._share(argument["worker"], argument["jids"], argument["of"])
            case "life":
                return self._life(argument)
            case "waited":
                return len(self.sandbox.workers[argument].waited())
            case "struck":
                return len(struck(self.sandbox.calls(), argument))
            case "held":
                calls = [call for name, call in self.sandbox.calls() if name == argument]
                return sum(isinstance(call.action, Delay) for call in calls)
            case "looks":
                calls = [*executed(self.sandbox.workers[argument].proxy.snapshot())]
                keys = {self.key("schedule").encode(), self.key("retry").encode()}
                return sum(call.reply is not None and bool(keys & {*call.words}) for call in calls)
            case "exit":
                status = self.sandbox.workers[argument].group.status
                return "running" if status is None else status
        raise SuiteFault(f"unknown predicate {name!r}")

    def _share(self, name: str, prefix: str, first: int) -> int:
        """Return the percentage of the first jobs of a process whose ids have a prefix.

        The result is -1 as long as fewer jobs have begun.
        """
        events = self.sandbox.workers[name].events()
        jids = [str(event.jid) for event in events if event.kind == "begin"][:first]
        if len(jids) < first:
            return -1
        return round(100 * sum(jid.startswith(prefix) for jid in jids) / first)

    def _life(self, jid: str) -> list[str]:
        """Return the reports of a job and its entries into the dead set, in order."""
        dead, word = self.key("dead").encode(), jid.encode()
        steps = [(event.at, event.kind) for event in self.events() if event.jid == jid]
        for _, call in self.sandbox.calls():
            refused = call.reply is None or call.reply.startswith(b"-")
            if dead in call.words and not refused and any(word in text for text in call.words):
                steps.append((call.at, "dead"))
        return [step for _, step in sorted(steps)]

    def _places(self, jid: str) -> list[str]:
        return [place for place, text in self._payloads() if jid_of(text) == jid]

    def _payloads(self) -> Iterator[tuple[str, bytes]]:
        """Yield every payload in any key at one moment, with the name of the key."""
        link, prefix = self.sandbox.link, self.sandbox.config.prefix
        while True:
            keys = sorted(link.call("KEYS", "*"))
            types = [("TYPE", key) for key in keys]
            kinds = link.calls([*types])
            held = [
                (key.decode("utf-8", "surrogateescape").removeprefix(prefix), kind, key)
                for key, kind in zip(keys, kinds, strict=True)
                if kind in _READ
            ]
            reads = [("KEYS", "*"), *types, *(_READ[kind](key) for _, kind, key in held)]
            # In one step, because a job may be on its way from one key to another. A cluster does
            # no step with keys of several slots.
            if self.sandbox.is_cluster:
                now, *values = link.calls(reads)
            else:
                *_, (now, *values) = link.calls([("MULTI",), *reads, ("EXEC",)])
            if sorted(now) == keys and values[: len(keys)] == kinds:
                break  # no key came, went or got another type since the types were read
        values = values[len(keys) :]
        for (name, kind, _), texts in zip(held, values, strict=True):
            if kind != b"hash":
                yield from ((name, text) for text in texts)
            elif not name.endswith((":work", ":workers")):
                yield from ((name, text) for text in texts if text[:1] == b"{")

    # -- rest

    def unrest(self) -> str | None:
        """Return the activity that still goes on; None if all processes are at rest."""
        awake = [w for w in self.sandbox.workers.values() if w.group.status is None]
        for worker in awake:
            if activity := worker.unrest():
                return activity
        for key, worker in self._private_hashes().items():
            if worker in awake and self._has_recent_entry(key, worker):
                return f"{worker.name} holds jobs in {key}"
        working = [worker for worker in awake if worker.idle_expected]
        for worker in working:
            for queue in worker.queues:
                key = f"{self.sandbox.config.prefix}queue:{queue}"
                if self.sandbox.link.call("TYPE", key) == b"list":
                    return f"jobs wait in {key}"
        if working and "scheduler/core" in self.sandbox.config.claims:
            for name in ("schedule", "retry"):
                key = self.sandbox.config.prefix + name
                if self.sandbox.link.call("ZCOUNT", key, "-inf", time.time()):
                    return f"members of {key} are due"
        return None

    def _private_hashes(self) -> dict[str, SandboxWorker]:
        """Return the private hashes, each with the first process that has named it: its owner."""
        workers = [*self.sandbox.workers.values()]
        named = [
            (at, key, worker) for worker in workers for key, at in worker.private_hashes().items()
        ]
        latest_first = sorted(named, key=lambda entry: entry[0], reverse=True)
        return {key: worker for _, key, worker in latest_first}

    def _has_recent_entry(self, key: str, worker: SandboxWorker) -> bool:
        """Return whether a private hash has an entry, except those that its owner cannot end."""
        if self.sandbox.link.call("TYPE", key) != b"hash":
            return False
        now = time.monotonic()
        heard = max((event.at for event in worker.events()), default=0.0)
        for field in self.sandbox.link.call("HKEYS", key):
            seen = self._entries.setdefault((key, field), now)
            if _ENTRY.match(field) and max(seen, heard) > now - FORGOTTEN_S:
                return True
        return False

    def settle(self, seconds: float) -> str | None:
        """Wait until all processes are at rest; return the activity that prevents it in time.

        The time begins anew with each job that begins or ends for the first time: many jobs take
        long on a busy machine. A job that is run over and over gains no time.
        """
        deadline = time.monotonic() + seconds
        before: object = None
        known = 0
        while True:
            activity = self.unrest()
            now = None if activity else self._digest()
            if now is not None and now == before:
                return None
            before = now
            heard = len({(event.kind, event.jid) for event in self.events()})
            if heard > known:
                known, deadline = heard, time.monotonic() + seconds
            if time.monotonic() > deadline:
                return activity or "the keys keep changing"
            time.sleep(_STEADY)

    def _digest(self) -> object:
        link, prefix = self.sandbox.link, self.sandbox.config.prefix
        sizes = [("ZCARD", prefix + name) for name in SETS]
        queues = sorted(link.call("SMEMBERS", f"{prefix}queues"))
        kinds = [("TYPE", prefix.encode() + b"queue:" + queue) for queue in queues]
        return [*link.calls([*sizes, *kinds, ("DBSIZE",)]), len(self.events())]


_READ: Mapping[bytes, Callable[[bytes], tuple[bytes | str | int, ...]]] = {
    b"list": lambda key: ("LRANGE", key, 0, -1),
    b"zset": lambda key: ("ZRANGE", key, 0, -1),
    b"hash": lambda key: ("HVALS", key),
}
_SEEDS = ("zadd", "lpush", "hset", "sadd", "set", "histogram", "del")


def _adds(call: Call) -> bool:
    """Return whether a command may add something to a key."""
    return call.spec.may_write and call.spec.effect not in ("takes", "removes")


def struck(calls: Sequence[tuple[str, Call]], process: str) -> list[tuple[Call, float]]:
    """Return the commands of a process whose replies were held back, with the time of each reply.

    Replies that are still held back are left out. The time is infinity if the connection ended
    before the reply.
    """
    delayed = []
    for name, call in calls:
        if name == process and isinstance(call.action, Delay):
            late = call.action.seconds if call.action.side == "after" else 0.0
            arrived = call.answered + late if call.answered is not None else float("inf")
            if call.given_up:
                delayed.append((call, float("inf")))
            elif arrived < time.monotonic():
                delayed.append((call, arrived))
    return delayed


def _numbered(words: Sequence[str], seed: Mapping[str, Any]) -> list[str]:
    """Return the words, `times` times if the seed says so, with `{n}` replaced by its number."""
    if "times" not in seed:
        return list(words)
    numbers = map(str, range(1, seed["times"] + 1))
    return [word.replace("{n}", number) for number in numbers for word in words]


def _pairs(reply: list[Any]) -> Iterator[tuple[bytes, bytes]]:
    return zip(reply[::2], reply[1::2], strict=True)


def jid_of(text: bytes) -> str | None:
    """Return the id in a payload; None if the text is not a payload or has no id."""
    try:
        payload = json.loads(text)
    except ValueError:
        return None
    jid = payload.get("jid") if isinstance(payload, dict) else None
    return jid if isinstance(jid, str) else None


def _aged(member: bytes, seconds: float) -> bytes:
    """Return a payload with earlier times. All other bytes stay."""
    try:
        text = member.decode()
        fields = members(text)
    except ValueError:
        return member
    for name in TIMES:
        spelt = fields.get(name)
        if spelt is None or spelt.kind not in ("integer", "float"):
            continue
        older = (
            str(spelt.value - int(seconds * 1000))
            if spelt.kind == "integer"
            else repr(spelt.value - seconds)
        )
        text = text.replace(f'"{name}":{spelt.raw}', f'"{name}":{older}')
    return text.encode()
