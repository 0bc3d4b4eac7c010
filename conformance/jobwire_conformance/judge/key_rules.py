"""Rules for scripts, blocking commands and reserved keys."""

from __future__ import annotations

import re
from collections.abc import Sequence

from jobwire_conformance.judge.contracts import fault
from jobwire_conformance.judge.ledger import Finding
from jobwire_conformance.judge.record import Record
from jobwire_conformance.judge.stream import JudgeContext, Step, Unit, canonical, script_call
from jobwire_conformance.wire.commands import keys_of, spec_of
from jobwire_conformance.wire.resp import Refusal

__all__ = ["KeyRules", "is_known_key"]

_RESERVED = (*("b-", "lmtr-", "unique:", "queue:sq|", "working:", "reliable-fetcher-"),)
_RESERVED_WHOLE = frozenset(
    [
        "batches",
        "batch-died",
        "dear-leader",
        "paused",
        "super_processes",
        "interrupted",
    ]
)
# The table of keys. Other keys of an implementation begin with `jobwire:`. [KEY-5]
_OURS = re.compile(
    r"""queues|queue:.+|schedule|retry|dead|processes|process_cleanup|jobwire:.+
    |cron_jobs(?::.+)?|cron_job:.+|uniquejobs:.+  # of add-ons; annexes say how to write them
    |resque:gitlab:.+|gitlab-sidekiq-status:.+|gitlab:job_waiter:.+|sidekiq:(?:cancel|status):.+
    |stat:(?:processed|failed)(?::\d{4}-\d\d-\d\d)?|it-.+|deploylock-.+|\d{8}-marks
    |j\|(?:\d{6}|\d{8})\|\d{1,2}:\d{1,2}|(?:h\|)?.+-\d{1,2}-\d{1,2}:\d{1,2}
    |.+:\d+:[^:]+(?::work|:workers|-signals)?|profiles|.+-[0-9a-f]{24}""",
    re.DOTALL | re.VERBOSE,
)
_CORE = frozenset(["queues", "schedule", "retry", "dead", "processes"])
_LIBRARY = re.compile(rb"(?i)^SETINFO LIB-NAME redis-client\(sidekiq_v(\d+)\.")
_RELOAD_S = 10.0  # seconds to load a script and call it again


def is_known_key(key: str) -> bool:
    """Return whether a key belongs to the protocol or to an extension, or is reserved."""
    return bool(_OURS.fullmatch(key)) or _is_reserved(key)


def _is_reserved(key: str) -> bool:
    return key.startswith(_RESERVED) or key in _RESERVED_WHOLE


def _takes_from_head(words: Sequence[bytes]) -> bool:
    """Return whether a pop or a move takes from the left side of its list."""
    sides = [word.upper() for word in words[len(keys_of(words)) + 1 :]]
    side = next((word for word in sides if word in (b"LEFT", b"RIGHT")), b"")
    return side == b"LEFT" or words[0].upper() in (b"LPOP", b"BLPOP")


class KeyRules:
    """The rules for single commands, without regard to payloads."""

    def __init__(self, context: JudgeContext, *, alone: bool = False) -> None:
        self._context = context
        self._ledger = context.ledger
        self._alone = alone
        self._texts: dict[str, bytes] = {}  # scripts by SHA-1
        self._unloaded: dict[str, Sequence[bytes]] = {}  # SHA-1 -> the last call that met NOSCRIPT
        self._given_up: list[tuple[frozenset[bytes], float]] = []

    def command(self, record: Record) -> None:
        """Judge a command, executed or not."""
        name, words = record.name, record.words
        if name == "SCRIPT" and len(words) > 2 and words[1].upper() == b"LOAD":
            self._loaded(record)
        elif (script := script_call(words)) is not None:
            if script.text is not None:
                self._texts[script.sha] = script.text
            self._scripted(record)
        elif name in ("BRPOP", "BLPOP"):
            self._blocking(record)
        elif name == "CLIENT" and (match := _LIBRARY.search(b" ".join(words[1:]))):
            self._ledger.sidekiq.add(int(match[1]))
        if name == "KEYS" and len(words) > 1:
            seen = "KEYS, which blocks all clients"
            self._ledger.judge("INSP-1", False, record, "SMEMBERS or SSCAN queues", seen)
        elif name == "SCAN" and any(b"queue:" in word for word in words[1:]):
            self._ledger.judge(
                "INSP-1", False, record, "SMEMBERS or SSCAN queues", "SCAN for queue:*"
            )
        elif name in ("SMEMBERS", "SSCAN") and len(words) > 1:
            if self._context.key(words[1]) == "queues":
                self._ledger.exercise("INSP-1")
        elif name in ("FLUSHALL", "FLUSHDB"):
            seen = f"{name}, which also deletes the keys of other programs"
            expected = "no deletion of keys of other programs"
            self._ledger.judge("KEY-6", False, record, expected, seen, doubtful=True)

    def look(self, unit: Unit) -> None:
        """Judge commands that were executed together."""
        for step in unit.steps:
            spec, keys = spec_of(step.name), keys_of(step.words)
            if spec.effect == "takes" and keys:
                self._fetched(step, self._context.key(keys[0]))
            if spec.kind == "write":
                for key in keys:
                    self._owned(step, self._context.key(key))
                    self._namespaced(step, key)
            elif (script := script_call(step.words)) is not None:
                for key in script.keys:
                    self._owned(step, self._context.key(key))

    def _owned(self, step: Step, key: str) -> None:
        """Judge whether applications may write this key. [KEY-5] [KEY-6]"""
        doubtful, seen = not self._alone, f"{step.name} {key}"
        if _is_reserved(key):
            expected = "no write to a reserved key"
            self._ledger.judge("KEY-6", False, step.record, expected, seen, doubtful=doubtful)
        elif self._alone:
            self._ledger.exercise("KEY-6")
            expected = "a key of the protocol, or a key that begins with jobwire:"
            self._ledger.judge("KEY-5", _OURS.fullmatch(key), step.record, expected, seen)

    def _namespaced(self, step: Step, key: bytes) -> None:
        space = self._context.namespace
        if not space:
            return
        raw = key.decode("utf-8", "surrogateescape")
        bare = raw in _CORE or raw.startswith("queue:")
        if bare or raw.startswith(space):
            self._ledger.judge("KEY-4", not bare, step.record, f"{space}{raw}", raw)

    def _fetched(self, step: Step, key: str) -> None:
        if not key.startswith("queue:"):
            if key.startswith("queues:"):
                self._ledger.judge("KEY-2", False, step.record, "the list queue:<name>", key)
            return
        seen = f"{step.name}, from the head"
        from_tail = not _takes_from_head(step.words)
        expected = "jobs taken from the tail (right side)"
        self._ledger.judge("FETCH-1", from_tail, step.record, expected, seen)

    def _blocking(self, record: Record) -> None:
        keys = frozenset(record.words[1:-1])
        if not any(self._context.key(key).startswith("queue:") for key in keys):
            return
        try:
            timeout = float(record.words[-1])
        except ValueError:
            return
        self._ledger.exercise("ENV-3")
        if timeout == 0:
            expected = "a timeout of the command, below the client's read timeout"
            seen = "a wait without a timeout, which a stop must interrupt"
            self._accuse("ENV-3", record, expected, seen, doubtful=True)
        if record.answered or record.seconds >= timeout > 0:
            return
        # One abandoned wait may be a stop. Two that last equally long show a read timeout.
        similar = [
            seconds
            for earlier_keys, seconds in self._given_up
            if earlier_keys & keys and abs(seconds - record.seconds) < 0.1 * seconds + 0.05
        ]
        self._given_up = [*self._given_up[-20:], (keys, record.seconds)]
        if similar and record.seconds > 0.2:
            expected = f"a read timeout above the {timeout:g} s of the command"
            seen = f"several waits given up after {record.seconds:.2f} s"
            self._accuse("ENV-3", record, expected, seen)

    # -- scripts

    def _loaded(self, record: Record) -> None:
        if isinstance(record.reply, bytes):
            self._texts[record.reply.decode("ascii", "replace").lower()] = record.words[2]

    def _scripted(self, record: Record) -> None:
        script = script_call(record.words)
        assert script is not None
        context = self._context
        context.promises.keep("script", script.sha)
        if isinstance(record.reply, Refusal) and record.reply.message.startswith("NOSCRIPT"):
            if not record.received:  # a call that is made again is not of its making
                return
            step = Step(record, record.name, record.words, record.reply)
            expected = "SCRIPT LOAD, then the same call again"
            seen = "no further call after the error NOSCRIPT"
            context.expect("script", script.sha, _RELOAD_S, "LUA-3", step, expected, seen)
            if self._unloaded.get(script.sha) == record.words:
                seen = "the same call again, and again the error NOSCRIPT"
                self._accuse("LUA-3", record, expected, seen)
            self._unloaded[script.sha] = record.words
            return
        self._unloaded.pop(script.sha, None)
        if name := canonical(script.sha):
            for rule in ("LUA-1", "LUA-2"):
                self._ledger.exercise(rule)
            arguments = [word.decode("utf-8", "surrogateescape") for word in script.arguments]
            misfit = fault(name, [*map(context.key, script.keys)], arguments)
            expected = f"the KEYS and ARGV of {name}.lua"
            self._ledger.judge("LUA-4", misfit is None, record, expected, str(misfit))
            return
        keys = {context.key(key) for key in script.keys}
        touches = any(key in _CORE or key.startswith("queue:") for key in keys)
        hidden = [
            key
            for word in script.arguments
            # It may also be the name of a queue, whose list is among the keys.
            if (key := context.key(word)).startswith("queue:")
            and keys.isdisjoint((key, f"queue:{key}"))
        ]
        if touches or hidden:
            self._ledger.judge(
                "LUA-2", not hidden, record, "every key in KEYS", f"{hidden[:1]} in ARGV"
            )
        text = self._texts.get(script.sha)
        if touches and text is not None:
            opaque = b"cjson" not in text and b"cmsgpack" not in text
            seen = "cjson, which turns [] into {} and rounds integers"
            self._ledger.judge("LUA-1", opaque, record, "payloads as opaque strings", seen)

    def _accuse(
        self, rule: str, record: Record, expected: str, seen: str, *, doubtful: bool = False
    ) -> None:
        self._ledger.accuse(Finding(rule, expected, seen, record, doubtful))
