"""From commands to what the server carried out: transactions, scripts, and what is still due."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from jobwire_conformance.judge.ledger import Finding, Ledger
from jobwire_conformance.judge.memory import Memory
from jobwire_conformance.judge.record import Record
from jobwire_conformance.wire.call import script_sha
from jobwire_conformance.wire.resp import Refusal

__all__ = [
    "JudgeContext",
    "Promises",
    "Script",
    "Step",
    "Unit",
    "canonical",
    "effects",
    "script_call",
]


class Step(NamedTuple):
    """One command that was carried out; one inside a script stands under the script's record."""

    record: Record
    name: str
    words: Sequence[bytes]
    reply: Any

    @property
    def worked(self) -> bool:
        return not isinstance(self.reply, Refusal)


@dataclass(slots=True)
class Unit:
    """Commands that were carried out as one: a transaction, a script, or a single one."""

    steps: list[Step]
    atomic: bool = False


class Promises:
    """What has to follow within some time."""

    def __init__(self) -> None:
        self._due: dict[tuple[str, str], list[tuple[float, Finding]]] = {}

    def expect(self, kind: str, what: str, finding: Finding, until: float) -> None:
        """A finding, unless what it misses comes in time."""
        self._due.setdefault((kind, what), []).append((until, finding))

    def expects(self, kind: str, what: str) -> bool:
        """Return whether it is still to come."""
        return (kind, what) in self._due

    def keep(self, kind: str, what: str) -> None:
        """Here it comes."""
        self._due.pop((kind, what), None)

    def overdue(self, now: float) -> Iterator[Finding]:
        """Return, once, what did not come."""
        for token, entries in [*self._due.items()]:
            late = [finding for until, finding in entries if until < now]
            if late:
                yield from late
                rest = [entry for entry in entries if entry[0] >= now]
                if rest:
                    self._due[token] = rest
                else:
                    del self._due[token]


@dataclass(slots=True)
class JudgeContext:
    """What all checks share.

    Attributes:
        ledger: Where findings go.
        memory: What the application has read.
        promises: What has to follow.
        namespace: Before every key.
        now: Time of the latest command.
        registered: Queues that the application has named in `queues`.
    """

    ledger: Ledger
    namespace: str = ""
    memory: Memory = field(default_factory=Memory)
    promises: Promises = field(default_factory=Promises)
    now: float = 0.0
    registered: set[str] = field(default_factory=set)

    def key(self, word: bytes) -> str:
        """Return a key as the specification names it."""
        return word.decode("utf-8", "surrogateescape").removeprefix(self.namespace)

    def expect(
        self, kind: str, what: str, seconds: float, rule: str, step: Step, expected: str, seen: str
    ) -> None:
        """Count a look at a rule that is kept by what follows."""
        self.ledger.exercise(rule)
        self.promises.expect(
            kind, what, Finding(rule, expected, seen, step.record), self.now + seconds
        )


# -- scripts


class Script(NamedTuple):
    """The call of a script."""

    sha: str
    text: bytes | None
    keys: Sequence[bytes]
    arguments: Sequence[bytes]


def script_call(words: Sequence[bytes]) -> Script | None:
    """Return what EVAL or EVALSHA calls; None for other commands and broken ones."""
    sha = script_sha(words)
    if sha is None:
        return None
    try:
        count = int(words[2])
    except ValueError:
        return None
    text = None if words[0].upper().startswith(b"EVALSHA") else words[1]
    return Script(sha, text, words[3 : 3 + count], words[3 + count :])


@cache
def _known() -> dict[str, str]:
    package = Path(__file__).resolve().parents[1]
    packed = package.parent / "jobwire" / "_data" / "lua"
    directory = packed if packed.exists() else package.parents[1] / "lua"
    return {
        hashlib.sha1(path.read_bytes(), usedforsecurity=False).hexdigest(): path.stem
        for path in directory.glob("*.lua")
    }


def canonical(sha: str) -> str | None:
    """Return the name of one of the specification's own scripts."""
    return _known().get(sha)


def effects(record: Record, script: Script) -> list[Step]:
    """Return the writes of payloads that a known script makes, as commands."""
    keys, args = script.keys, script.arguments
    steps: list[Step] = []

    def add(*words: bytes) -> None:
        steps.append(Step(record, words[0].decode(), words, 1))

    match canonical(script.sha):
        case "retry":
            for at in range(2, len(args) - 2, 3):
                add(b"ZADD", keys[1], args[at + 1], args[at + 2])
        case "kill" if len(args) >= 6:
            add(b"ZADD", keys[1], args[3], args[2])
            add(b"ZREMRANGEBYSCORE", keys[1], b"-inf", args[4])
            add(b"ZREMRANGEBYRANK", keys[1], b"0", b"-" + args[5])
        case "requeue" if len(args) >= 4:
            add(b"SADD", keys[9], args[2])
            add(b"LPUSH", keys[1], args[3])
        case "promote":
            for at in range(0, len(args) - 3, 4):
                add(b"SADD", keys[1], args[at + 2])
                add(b"LPUSH", keys[1 + int(args[at + 1])], args[at + 3])
    return steps
