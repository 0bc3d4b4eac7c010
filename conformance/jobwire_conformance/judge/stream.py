"""Executed commands: transactions, scripts, and commands that must still follow."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

from jobwire_conformance.data import scripts
from jobwire_conformance.judge.ledger import Finding, Ledger
from jobwire_conformance.judge.record import Record
from jobwire_conformance.judge.seen_payloads import SeenPayloads
from jobwire_conformance.wire.call import name_of, script_sha
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
    "script_or_command",
]


class Step(NamedTuple):
    """One executed command. A command inside a script has the record of the script."""

    record: Record
    name: str
    words: Sequence[bytes]
    reply: Any

    @property
    def worked(self) -> bool:
        return not isinstance(self.reply, Refusal)


@dataclass(slots=True)
class Unit:
    """Commands that were executed together: a transaction, a script, or a single command."""

    steps: list[Step]
    atomic: bool = False


class Promises:
    """Commands that must follow within some time."""

    def __init__(self) -> None:
        self._due: dict[tuple[str, str], list[tuple[float, Finding]]] = {}

    def expect(self, kind: str, name: str, finding: Finding, until: float) -> None:
        """Expect a command until a time; if it does not come, the finding holds."""
        self._due.setdefault((kind, name), []).append((until, finding))

    def expects(self, kind: str, name: str) -> bool:
        """Return whether this command is still expected."""
        return (kind, name) in self._due

    def keep(self, kind: str, name: str) -> None:
        """Note that the expected command has come."""
        self._due.pop((kind, name), None)

    def overdue(self, now: float) -> Iterator[Finding]:
        """Yield and forget the findings of commands that did not come in time."""
        for token, entries in [*self._due.items()]:
            late = [finding for until, finding in entries if until < now]
            if late:
                yield from late
                waiting = [entry for entry in entries if entry[0] >= now]
                if waiting:
                    self._due[token] = waiting
                else:
                    del self._due[token]


@dataclass(slots=True)
class JudgeContext:
    """State that all rules share.

    Attributes:
        ledger: The findings.
        seen_payloads: The payloads that the application has read.
        promises: The commands that must follow.
        namespace: Prefix of every key.
        generated: True if no caller gave a jid, so that every jid is the application's own.
        now: Time of the latest command, Unix seconds.
        registered: Queues that the application has added to `queues`.
    """

    ledger: Ledger
    namespace: str = ""
    generated: bool = False
    seen_payloads: SeenPayloads = field(default_factory=SeenPayloads)
    promises: Promises = field(default_factory=Promises)
    now: float = 0.0
    registered: set[str] = field(default_factory=set)

    def key(self, word: bytes) -> str:
        """Return a key without the namespace."""
        return word.decode("utf-8", "surrogateescape").removeprefix(self.namespace)

    def expect(
        self, kind: str, name: str, seconds: float, rule: str, step: Step, expected: str, seen: str
    ) -> None:
        """Count an examination of a rule that a later command must meet."""
        self.ledger.exercise(rule)
        self.promises.expect(
            kind, name, Finding(rule, expected, seen, step.record), self.now + seconds
        )


# -- scripts


class Script(NamedTuple):
    """The call of a script."""

    sha: str
    text: bytes | None
    keys: Sequence[bytes]
    arguments: Sequence[bytes]


def script_call(words: Sequence[bytes]) -> Script | None:
    """Return the call of EVAL or EVALSHA; None for other commands and malformed ones."""
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
    return {
        hashlib.sha1(text, usedforsecurity=False).hexdigest(): name
        for name, text in scripts().items()
    }


def canonical(sha: str) -> str | None:
    """Return the name of a script of the specification; None for other scripts."""
    return _known().get(sha)


def script_or_command(words: Sequence[bytes]) -> str:
    """Return the file of the script of the specification that is called, else the command."""
    sha = script_sha(words)
    script = None if sha is None else canonical(sha)
    return f"{script}.lua" if script else name_of(words)


def effects(record: Record, script: Script) -> list[Step]:
    """Return the payload writes of a known script, as commands."""
    keys, args = script.keys, script.arguments
    steps: list[Step] = []

    def add(*words: bytes) -> None:
        steps.append(Step(record, words[0].decode(), words, 1))

    match canonical(script.sha):
        case "finish" if args[6:7] in ([b"3"], [b"7"], [b"14"]):
            size, more = int(args[6]), iter(keys[12:])
            for at in range(7, len(args) - size + 1, size):
                score, payload = args[at + 1], args[at + 2]
                if args[3]:
                    add(b"SADD", keys[9], args[3])
                    add(b"LPUSH", keys[1], payload)
                elif score:
                    add(b"ZADD", keys[1], score, payload)
                passed = [next(more, b"") for word in args[at + 5 : at + min(size, 8)] if word]
                if size == 14 and args[at + 7]:
                    add(b"SADD", keys[9], args[at + 7])
                    add(b"LPUSH", passed[-1], args[at + 8])
                if size == 14 and args[at + 9]:
                    for _ in range(4 * int(args[at + 11])):
                        next(more, b"")
                if size == 14 and args[at + 13]:
                    next(more, b"")
            if args[4]:
                add(b"ZREMRANGEBYSCORE", keys[1], b"-inf", args[4])
                add(b"ZREMRANGEBYRANK", keys[1], b"0", b"-" + args[5])
        case "promote":
            for at in range(0, len(args) - 3, 4):
                add(b"SADD", keys[1], args[at + 2])
                add(b"LPUSH", keys[1 + int(args[at + 1])], args[at + 3])
    return steps
