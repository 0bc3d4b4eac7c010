"""Faults: actions on commands, and rules that select the commands. No socket."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from jobwire_conformance.wire.commands import keys_of, spec_of

__all__ = [
    "ERRORS",
    "FAULTS",
    "Action",
    "Answer",
    "Cut",
    "Delay",
    "Does",
    "Faults",
    "Kill",
    "Refuse",
    "Rewrite",
    "Rule",
    "Side",
    "action_of",
    "is_after",
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
    "BUSY": "BUSY Redis is busy running a script. You can only call SCRIPT KILL.",
    "MASTERDOWN": "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is 'no'.",
    "TRYAGAIN": "TRYAGAIN Multiple keys request during rehashing of slot",
    "CLUSTERDOWN": "CLUSTERDOWN The cluster is down",
    "ERR unknown command": "ERR unknown command",
    "ERR max number of clients reached": "ERR max number of clients reached",
}
"""Error replies of servers, by their code."""

_VERSIONS = re.compile(
    rb"(?:redis_version|valkey_version|server_name|valkey_release_stage):[^\r\n]*\r\n"
)
_GREETED = re.compile(rb"(\$7\r\nversion\r\n)\$[0-9]+\r\n[^\r\n]*")

FAULTS = ("cut before", "cut after", "OOM", "READONLY", "kill before", "kill after")
"""The most important faults, by the names that `action_of` accepts."""

Side: TypeAlias = Literal["before", "after"]
"""`before`: the server never receives the command. `after`: the reply never arrives."""


@dataclass(frozen=True, slots=True)
class Cut:
    """Close the connection."""

    side: Side


@dataclass(frozen=True, slots=True)
class Kill:
    """End the process as a power failure would.

    At this moment all its connections stop passing bytes; then `end` is called.
    """

    side: Side
    end: Callable[[], object]


@dataclass(frozen=True, slots=True)
class Refuse:
    """Answer with an error in place of the server.

    A transaction is refused as a whole, as a server does. If MULTI is refused, so are all commands
    up to EXEC. If a command inside it is refused, EXEC answers EXECABORT.
    """

    error: str


@dataclass(frozen=True, slots=True)
class Delay:
    """Delay this command and all later ones of the connection."""

    side: Side
    seconds: float


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Send another command instead: the command that a faulty process would send.

    Actions of other rules apply to the new command.
    """

    change: Callable[[Sequence[bytes]], Sequence[bytes]]
    then: Action | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """Execute the command, and answer as another server would."""

    change: Callable[[bytes], bytes]


Action: TypeAlias = Cut | Kill | Refuse | Delay | Rewrite | Answer

Does: TypeAlias = Literal["puts", "takes"]
"""`puts`: may add data to a key. `takes`: may remove data from it. A script may do both."""


def action_of(fault: str, end: Callable[[], object]) -> Action:
    """Return the action of a fault.

    Args:
        fault: `cut` or `kill` with the side, like `cut before`, or a code of `ERRORS`.
        end: Function that kills the process.
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
        action: The action on these commands.
        label: Only commands with this label; None for all.
        connection: Only this connection, counted from 1; None for all.
        nth: Number of the first command to strike among the matching ones, from 1.
        times: Number of commands to strike, from the first one on.
        fits: Returns whether the words of a command match; None for all commands.
        does: Only commands that may do this, of which a transaction counts as one: its first such
            command is struck, or, after the reply, its EXEC. None for all commands.
        struck: Number of commands struck so far.
    """

    action: Action
    label: str | None = None
    connection: int | None = None
    nth: int = 1
    times: int = 1
    fits: Callable[[Sequence[bytes]], bool] | None = None
    does: Does | None = None
    struck: int = field(default=0, init=False)
    _seen: int = field(default=0, init=False)
    _counted: int | None = field(default=None, init=False)  # the transaction counted last
    _awaited: int | None = field(default=None, init=False)  # one whose EXEC will be struck

    def meets(
        self,
        label: str,
        connection: int,
        words: Sequence[bytes] = (),
        transaction: int | None = None,
    ) -> bool:
        """Count a command; return whether the rule strikes it.

        Args:
            label: Its label.
            connection: The number of its connection.
            words: Name and arguments.
            transaction: A number that all commands of its transaction have; None without one.
        """
        if transaction is not None and self._awaited == transaction:
            if words[0].upper() != b"EXEC":
                return False
            self._awaited = None
            self.struck += 1
            return True
        if self.label not in (None, label) or self.connection not in (None, connection):
            return False
        if self.fits is not None and not self.fits(words):
            return False
        if self.does is not None:
            if not _may(self.does, words) or self._counted == transaction is not None:
                return False
            self._counted = transaction
        self._seen += 1
        if not self.nth <= self._seen < self.nth + self.times:
            return False
        if self.does is not None and transaction is not None and is_after(self.action):
            self._awaited = transaction
            return False
        self.struck += 1
        return True


def is_after(action: Action | None) -> bool:
    """Return whether an action follows the server's reply."""
    return isinstance(action, Cut | Kill | Delay) and action.side == "after"


def _may(does: Does, words: Sequence[bytes]) -> bool:
    """Return whether a command may add data to its keys, or remove data from them."""
    spec = spec_of(words[0])
    if not spec.may_write or spec.kind != "write":
        return spec.may_write
    # Commands with two keys, like RENAME, do both.
    return (spec.effect == "puts") == (does == "puts") or spec.keys == "1 2"


class Faults:
    """The rules of one proxy."""

    def __init__(self, rules: Iterable[Rule] = ()) -> None:
        self.rules = list(rules)

    def meet(
        self,
        label: str,
        connection: int,
        words: Sequence[bytes] = (),
        transaction: int | None = None,
    ) -> Action | None:
        """Have all rules count a command; return the action of the first rule that strikes it.

        Rules that rewrite the command come first, and contain the action of the other rule.
        """
        struck = [
            rule.action for rule in self.rules if rule.meets(label, connection, words, transaction)
        ]
        others = (action for action in struck if not isinstance(action, Rewrite))
        chosen: Action | None = next(others, None)
        for action in reversed(struck):
            if isinstance(action, Rewrite):
                chosen = replace(action, then=chosen)
        return chosen


def on_key(pattern: str) -> Callable[[Sequence[bytes]], bool]:
    """Return a test whether a command has a key that matches; `*` matches commands without keys."""

    def fits(words: Sequence[bytes]) -> bool:
        return pattern == "*" or any(
            fnmatch.fnmatchcase(word.decode("utf-8", "replace"), pattern) for word in keys_of(words)
        )

    return fits


def older(version: str) -> Answer:
    """Return the action that changes replies to INFO and HELLO to those of this Redis version."""

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
