"""What goes wrong, and when: rules that are told of every command. No socket."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from jobwire_conformance.wire.commands import keys_of

__all__ = [
    "ERRORS",
    "FAULTS",
    "Action",
    "Answer",
    "Cut",
    "Delay",
    "Faults",
    "Kill",
    "Refuse",
    "Rewrite",
    "Rule",
    "Side",
    "action_of",
    "older",
    "on_key",
]

ERRORS = {
    "READONLY": "READONLY You can't write against a read only replica.",
    "LOADING": "LOADING Redis is loading the dataset in memory",
    "OOM": "OOM command not allowed when used memory > 'maxmemory'.",
    "NOREPLICAS": "NOREPLICAS Not enough good replicas to write.",
    "UNBLOCKED": "UNBLOCKED force unblock from blocking operation, instance state changed",
    "MISCONF": "MISCONF Errors writing to the AOF file: No space left on device",
    "NOSCRIPT": "NOSCRIPT No matching script. Please use EVAL.",
    "NOPERM": "NOPERM this user has no permissions to run this command",
    "ERR unknown command": "ERR unknown command",
    "ERR max number of clients reached": "ERR max number of clients reached",
}
"""What servers say when they refuse; the name is the code."""


_VERSIONS = re.compile(
    rb"(?:redis_version|valkey_version|server_name|valkey_release_stage):[^\r\n]*\r\n"
)
_GREETED = re.compile(rb"(\$7\r\nversion\r\n)\$[0-9]+\r\n[^\r\n]*")

FAULTS = ("cut before", "cut after", "OOM", "READONLY", "kill before", "kill after")
"""The faults that say most, by the names that `action_of` knows."""

Side: TypeAlias = Literal["before", "after"]
"""`before`: the server never saw the command. `after`: it carried it out, nobody was told."""


@dataclass(frozen=True, slots=True)
class Cut:
    """Close the connection."""

    side: Side


@dataclass(frozen=True, slots=True)
class Kill:
    """End the process as a power cut would: from that instant nothing more passes in any of its
    connections, then `end` is called.
    """

    side: Side
    end: Callable[[], object]


@dataclass(frozen=True, slots=True)
class Refuse:
    """Answer with an error in the server's place; inside MULTI, as the server would.

    A transaction is refused as a whole, for a server does not carry out the rest: if MULTI is
    refused so is all up to EXEC; if a command in it is, then EXEC answers EXECABORT.
    """

    error: str


@dataclass(frozen=True, slots=True)
class Delay:
    """Wait, with this and everything behind it on the connection."""

    side: Side
    seconds: float


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Send another command instead: what a mistake of the process would have sent.

    What other rules do to the command, they do to that one.
    """

    change: Callable[[Sequence[bytes]], Sequence[bytes]]
    then: Action | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """Carry it out, and answer something else: what another server would have said."""

    change: Callable[[bytes], bytes]


Action: TypeAlias = Cut | Kill | Refuse | Delay | Rewrite | Answer


def action_of(fault: str, end: Callable[[], object]) -> Action:
    """Return what a fault does.

    Args:
        fault: `cut` or `kill`, with the side: `cut before`; or the code of one of `ERRORS`.
        end: Kills the process.
    """
    match fault.split():
        case ["cut", ("before" | "after") as side]:
            return Cut(side)
        case ["kill", ("before" | "after") as side]:
            return Kill(side, end)
    return Refuse(ERRORS[fault])


@dataclass(slots=True)
class Rule:
    """An action, and the commands that it strikes.

    Attributes:
        action: What happens.
        label: Only commands with this label; None for all.
        connection: Only this connection, counted from 1; None for all.
        nth: The first one that it strikes, of those that fit; counted from 1.
        times: How many it strikes, from that one on.
        fits: Says of a command's words whether it is meant; None for all.
        struck: How many it has struck.
    """

    action: Action
    label: str | None = None
    connection: int | None = None
    nth: int = 1
    times: int = 1
    fits: Callable[[Sequence[bytes]], bool] | None = None
    struck: int = field(default=0, init=False)
    _seen: int = field(default=0, init=False)

    def meets(self, label: str, connection: int, words: Sequence[bytes] = ()) -> bool:
        """Count a command; return whether it is struck."""
        if self.label not in (None, label) or self.connection not in (None, connection):
            return False
        if self.fits is not None and not self.fits(words):
            return False
        self._seen += 1
        if not self.nth <= self._seen < self.nth + self.times:
            return False
        self.struck += 1
        return True


class Faults:
    """The rules of one proxy."""

    def __init__(self, rules: Iterable[Rule] = ()) -> None:
        self.rules = list(rules)

    def meet(self, label: str, connection: int, words: Sequence[bytes] = ()) -> Action | None:
        """Tell all rules of a command; return what the first one that strikes does.

        Those that rewrite it do so before another one strikes.
        """
        struck = [rule.action for rule in self.rules if rule.meets(label, connection, words)]
        others = (action for action in struck if not isinstance(action, Rewrite))
        found: Action | None = next(others, None)
        for action in reversed(struck):
            if isinstance(action, Rewrite):
                found = replace(action, then=found)
        return found


def on_key(pattern: str) -> Callable[[Sequence[bytes]], bool]:
    """Return whether a command has a key like that; `*` is any text, or none."""

    def fits(words: Sequence[bytes]) -> bool:
        return pattern == "*" or any(
            fnmatch.fnmatchcase(word.decode("utf-8", "replace"), pattern) for word in keys_of(words)
        )

    return fits


def older(version: str) -> Answer:
    """Return what makes the answers of INFO and HELLO those of a Redis of that version."""

    def change(frame: bytes) -> bytes:
        if frame[:1] in b"$=":
            head, _, text = frame.partition(b"\r\n")
            text = _VERSIONS.sub(b"", text[:-2])
            text = text.replace(b"# Server\r\n", b"# Server\r\nredis_version:%s\r\n" % wanted)
            return b"%s%d\r\n%s\r\n" % (head[:1], len(text), text)
        frame = _GREETED.sub(b"\\g<1>$%d\r\n%s" % (len(wanted), wanted), frame)
        return frame.replace(b"$6\r\nvalkey\r\n", b"$5\r\nredis\r\n")

    wanted = version.encode()
    return Answer(change)
