"""The evidence of a failed check: the commands, requests and signals that led to it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jobwire_conformance.cases.predicates import OF_PROCESSES, predicates
from jobwire_conformance.sandbox.history import Note
from jobwire_conformance.wire.call import Call
from jobwire_conformance.wire.resp import Refusal, decode
from jobwire_conformance.wire.text import command, one_line, reply

__all__ = ["Line", "around", "describe"]

Line = tuple[str, Call | Note]
"""Name of a process, and a command that it sent or an event that concerns it."""

_COMMANDS = 6
_SIGNALS = 4
_ON_KEY = ("list", "zset", "hash", "set", "key")


def around(
    step: Mapping[str, Any], record: Sequence[Line], key: Callable[[str], str]
) -> list[Line]:
    """Return the evidence of a check: the last commands that concern it, and all signals.

    Args:
        step: The check.
        record: All that happened in the case.
        key: Returns the full name of a key of the case.
    """
    calls = [(name, line) for name, line in record if isinstance(line, Call)]
    notes = [(name, line) for name, line in record if isinstance(line, Note)]
    chosen: list[Line] = [*_without_polls(_near(step, calls, notes, key))[-_COMMANDS:]]
    if {"answer", "truthful"} & {*step}:
        chosen += [line for line in notes if line[1].kind == "request"][-1:]
    chosen += [line for line in notes if line[1].kind == "signal"][-_SIGNALS:]
    return sorted(chosen, key=lambda line: line[1].at)


def _near(
    step: Mapping[str, Any],
    calls: Sequence[tuple[str, Call]],
    notes: Sequence[tuple[str, Note]],
    key: Callable[[str], str],
) -> Sequence[tuple[str, Call]]:
    """Return the commands that concern a check; all of them if none does."""
    words = {key(str(step[part])).encode() for part in _ON_KEY if part in step}
    near = [line for line in calls if words & {*line[1].words}]
    conditions = predicates(step.get("that", ()))
    processes = {step["process"]} if "process" in step else set()
    processes |= {
        each.of["worker"] if each.function == "share" else each.of
        for each in conditions
        if each.function in OF_PROCESSES
    }
    jids = [each.of.encode() for each in conditions if each.function not in OF_PROCESSES]
    if {"answer", "truthful"} & {*step}:
        asked = [note.at for _, note in notes if note.kind == "request"][-1:]
        # No call if the driver sent no command: calls before the request do not belong to it.
        return [(name, call) for name, call in calls if name == "driver" and [call.at] >= asked]
    if processes:
        near += [line for line in calls if line[0] in processes]
    elif jids:
        near += [line for line in calls if any(_names(line[1], jid) for jid in jids if jid)]
    return near or calls


def _names(call: Call, jid: bytes) -> bool:
    """Return whether a job was written or found by a command."""
    return any(jid in word for word in (*call.words, call.reply or b""))


def _without_polls(calls: Sequence[tuple[str, Call]]) -> list[tuple[str, Call]]:
    """Return the commands without those that a worker repeats and that find nothing."""
    nothing = [(name, *call.words[:2]) for name, call in calls if _says_nothing(name, call)]
    repeated = {words for words, times in Counter(nothing).items() if times > 1}
    return [
        (name, call)
        for name, call in calls
        if not (_says_nothing(name, call) and (name, *call.words[:2]) in repeated)
    ]


def _says_nothing(process: str, call: Call) -> bool:
    """Return whether a command of a worker found nothing and was not disturbed."""
    if process == "driver" or call.reply is None or call.action is not None:
        return False
    value = decode(call.reply)
    return not isinstance(value, Refusal) and _is_empty(value)


def _is_empty(value: object) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_empty, value))
    return not value


def describe(line: Line, began: float, limit: int = 160, most: int = 12) -> str:
    """Return a line of evidence as text: time, process, and the command with its reply.

    Args:
        line: The line.
        began: Time of the first line of the case.
        limit: Characters of each word and of a reply to show.
        most: Words to show.
    """
    name, event = line
    time = f"{(event.at - began) * 1e3:.1f} ms"
    if isinstance(event, Note):
        return f"{time}  {name} {note_text(event.kind, event.text, event.answer, limit)}"
    fault = "" if event.action is None else f"  [{type(event.action).__name__.lower()}]"
    never = "" if event.sent is not None else "  [never sent]"
    where = f"{name} {event.connection}.{event.sequence}"
    said = f"{command(event.words, limit, most)} -> {reply(event.reply, limit)}"
    return f"{time}  {where} {said}{fault}{never}"


def note_text(
    kind: str, text: str, answer: bytes | None, limit: int = 160, arrow: str = " -> "
) -> str:
    """Return a note as text: `request {...} -> {...}` or `signal INT`."""
    if kind == "signal":
        return f"signal {one_line(text)}"
    said = "no answer" if answer is None else one_line(answer, 3 * limit)
    return f"request {one_line(text, 3 * limit)}{arrow}{said}"
