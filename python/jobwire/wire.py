"""What is said to Redis, as values; and how a conversation goes, without a socket.

An operation (`Op`) is a generator that yields steps and is sent their replies. `dialogue` turns
it into messages: lists of commands to send in one write, each answered by the list of replies.
It owns everything that the sync and the asyncio shell would otherwise both have to know:
transactions, scripts that the server has forgotten, and the failover errors after which a write
is repeated once on a fresh connection.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from jobwire.errors import RedisRefused

__all__ = [
    "Arg",
    "Batch",
    "Command",
    "ErrorReply",
    "LuaScript",
    "Message",
    "Op",
    "Script",
    "ScriptSource",
    "Step",
    "command",
    "dialogue",
    "once",
]

T = TypeVar("T")
Arg: TypeAlias = str | bytes | int | float
"""Redis drivers disagree on None, bool and lists, so none of them may get this far."""


@dataclass(frozen=True, slots=True)
class Command:
    """One command; the reply is its reply."""

    args: tuple[Arg, ...]


@dataclass(frozen=True, slots=True)
class Script:
    """One call of `lua/<name>.lua`; the reply is the script's return value. [LUA-2]"""

    name: str
    keys: Sequence[str]
    args: Sequence[Arg]


@dataclass(frozen=True, slots=True)
class Batch:
    """Several commands in one write; the reply is the list of their replies.

    Atomic: MULTI/EXEC, and any error raises. Otherwise errors stand in the list as `ErrorReply`.
    """

    steps: Sequence[Command | Script]
    atomic: bool = False


Step: TypeAlias = Command | Script | Batch
Op: TypeAlias = Generator[Step, Any, T]
"""An operation: yields steps, is sent replies, returns its result."""


@dataclass(frozen=True, slots=True)
class ErrorReply:
    """An error that the server sent, whole: `WRONGTYPE Operation against a key ...`.

    Of a transaction that was carried out but for this, `replies` is what EXEC returned.
    """

    message: str
    replies: Sequence[Any] = ()

    def says(self, code: str) -> bool:
        """Whether this is that error; inside a script errors come wrapped in other text."""
        return code in self.message


@dataclass(frozen=True, slots=True)
class LuaScript:
    """A script's source and the name that Redis gives it."""

    sha: str
    source: bytes


ScriptSource: TypeAlias = Callable[[str], LuaScript]


@dataclass(frozen=True, slots=True)
class Message:
    """Commands to send in one write. `fresh`: over a new connection."""

    commands: Sequence[tuple[Arg, ...]]
    fresh: bool = False


def command(*args: Arg) -> Command:
    """Return a `Command` of these words."""
    return Command(args)


def once(step: Step) -> Op[Any]:
    """Return the operation that is just this step."""
    return (yield step)


# After a failover the old connection leads to a server that cannot help. [PUSH-9]
_FAILOVER = ("READONLY", "NOREPLICAS", "UNBLOCKED")


def dialogue(op: Op[T], scripts: ScriptSource) -> Generator[Message, list[Any], T]:
    """Run an operation against whoever answers the messages.

    Errors that the answering side throws in (`RedisTrouble`) reach the operation, so that a bulk
    push can say what was written before.
    """
    try:
        step = next(op)
        while True:
            try:
                reply = yield from _perform(step, scripts)
            except Exception as error:  # noqa: BLE001 - handed on, not handled
                step = op.throw(error)
            else:
                step = op.send(reply)
    except StopIteration as done:
        result: T = done.value
        return result
    finally:
        op.close()


def _perform(step: Step, scripts: ScriptSource) -> Generator[Message, list[Any], Any]:
    reply = yield from _exchange(step, scripts, fresh=False)
    if _hit_by_failover(reply):
        reply = yield from _exchange(step, scripts, fresh=True)
    if isinstance(reply, ErrorReply):
        raise RedisRefused(reply.message, reply.replies)
    return reply


def _exchange(
    step: Step, scripts: ScriptSource, *, fresh: bool
) -> Generator[Message, list[Any], Any]:
    """Send a step once, loading scripts that the server does not have. [LUA-3]"""
    if isinstance(step, Batch) and step.atomic:
        words = [("MULTI",), *(_words(each, scripts) for each in step.steps), ("EXEC",)]
        replies = yield Message(words, fresh)
        return _transaction(replies)
    steps = step.steps if isinstance(step, Batch) else (step,)
    replies = yield Message([_words(each, scripts) for each in steps], fresh)
    missing = [
        index
        for index, (each, reply) in enumerate(zip(steps, replies, strict=True))
        if isinstance(each, Script) and isinstance(reply, ErrorReply) and reply.says("NOSCRIPT")
    ]
    if missing:
        names = dict.fromkeys(
            each.name for each in map(steps.__getitem__, missing) if isinstance(each, Script)
        )
        loads: list[tuple[Arg, ...]] = [("SCRIPT", "LOAD", scripts(name).source) for name in names]
        again = [_words(steps[index], scripts) for index in missing]
        answers = yield Message([*loads, *again])
        for index, answer in zip(missing, answers[len(loads) :], strict=True):
            replies[index] = answer
    return replies if isinstance(step, Batch) else replies[0]


def _words(step: Command | Script, scripts: ScriptSource) -> tuple[Arg, ...]:
    if isinstance(step, Command):
        return step.args
    return ("EVALSHA", scripts(step.name).sha, len(step.keys), *step.keys, *step.args)


def _transaction(replies: list[Any]) -> Any:
    """Return EXEC's list of replies, or the error that says why nothing was done."""
    result = replies[-1]
    if isinstance(result, ErrorReply):
        # EXECABORT only says that something was refused; the refusal says what.
        return next(_errors(replies), result)
    first = next(_errors(result), None)
    return result if first is None else ErrorReply(first.message, result)


def _errors(replies: Iterable[Any]) -> Iterator[ErrorReply]:
    return (reply for reply in replies if isinstance(reply, ErrorReply))


def _hit_by_failover(reply: Any) -> bool:
    found = [reply] if isinstance(reply, ErrorReply) else reply if isinstance(reply, list) else []
    return any(error.says(code) for error in _errors(found) for code in _FAILOVER)
