"""A command that passes through the proxy, with its reply and the fault that hit it."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jobwire_conformance.wire.commands import CommandSpec, spec_of
from jobwire_conformance.wire.faults import Action

__all__ = ["Call", "name_of", "script_sha"]


def name_of(words: Sequence[bytes]) -> str:
    """Return the name of a command. It is the default label."""
    return words[0].decode("utf-8", "replace").upper() if words else ""


def script_sha(words: Sequence[bytes]) -> str | None:
    """Return the SHA-1 of the script that EVAL or EVALSHA calls; None for other commands."""
    if len(words) < 3 or not spec_of(words[0]).runs_script:
        return None
    name = words[0].upper()
    if name.startswith(b"FCALL"):  # a function has no SHA-1
        return None
    if name.startswith(b"EVALSHA"):
        return words[1].decode("ascii", "replace").lower()
    return hashlib.sha1(words[1], usedforsecurity=False).hexdigest()


@dataclass(slots=True, eq=False)
class Call:
    """One command, its reply, and the action of a rule.

    Attributes:
        sequence: Number of the command over all connections, from 1.
        connection: Number of the connection, from 1.
        words: Name and arguments.
        label: Name of the command for rules and the trace.
        frame: The bytes of the command, as they arrived.
        at: Time of its arrival, by the monotonic clock.
        transaction: True between MULTI and EXEC.
        action: The action of the rule that strikes it; None if no rule does.
        sent: Time at which it was sent to the server, by the monotonic clock; None if it was not.
        reply: The frame of the reply; None if no reply has arrived.
        answered: Time at which the reply arrived, by the monotonic clock.
        decided: True if `action` is final.
        instead: The frame to send to the client in place of the server's reply.
        given_up: True if the connection ended before the client received the reply.
        before: The words before a mutant rewrote them; None if none did. Rules match these.
    """

    sequence: int
    connection: int
    words: Sequence[bytes]
    label: str
    frame: bytes
    at: float
    transaction: bool = False
    action: Action | None = None
    sent: float | None = None
    reply: bytes | None = None
    answered: float | None = None
    decided: bool = False
    instead: bytes | None = None
    given_up: bool = False
    before: Sequence[bytes] | None = None

    @property
    def name(self) -> bytes:
        """The command's name in capitals."""
        return self.words[0].upper() if self.words else b""

    @property
    def spec(self) -> CommandSpec:
        """The row of the command in the table of commands."""
        return spec_of(self.name)

    @property
    def blocks(self) -> bool:
        """True if the command may wait for data."""
        return self.spec.blocks_with(self.words)

    def as_json(self) -> str:
        """Return a line for a trace. Bytes that are not UTF-8 become an object with base64."""
        taken = None if self.answered is None else round((self.answered - self.at) * 1e6)
        return json.dumps(
            {
                "seq": self.sequence,
                "conn": self.connection,
                "label": self.label,
                "argv": [_readable(word) for word in self.words],
                "reply": None if self.reply is None else _readable(self.reply),
                "us": taken,
                "tx": self.transaction,
                "fault": None if self.action is None else type(self.action).__name__.lower(),
            }
        )


def _readable(text: bytes) -> Any:
    try:
        return text.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(text).decode()}
