"""What is said to Redis, as values; and how a conversation goes, without a socket.

An operation (`Op`) is a generator that yields steps and is sent their replies. `dialogue` turns
it into messages: lists of commands to send in one write, each answered by the list of replies.
It owns everything that the sync and the asyncio shell would otherwise both have to know:
transactions, scripts that the server has forgotten, and the failover errors after which a write
is repeated once on a fresh connection.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator, Sequence
from typing import Any, TypeAlias, TypeVar, final

import msgspec

from jobwire.errors import NoReply, RedisRefused, RedisUnreachable

__all__ = [
    "Arg",
    "Batch",
    "Command",
    "Confirm",
    "ErrorReply",
    "Local",
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

# The values are structs, not dataclasses: a push makes half a dozen, in a tenth of the time.

T = TypeVar("T")
Arg: TypeAlias = str | bytes | int | float
"""Redis drivers disagree on None, bool and lists, so none of them may get this far."""


class Command(msgspec.Struct, frozen=True):
    """One command; the reply is its reply."""

    args: tuple[Arg, ...]


class Script(msgspec.Struct, frozen=True):
    """One call of `lua/<name>.lua`; the reply is the script's return value. [LUA-2]"""

    name: str
    keys: Sequence[str]
    args: Sequence[Arg]


class Confirm(msgspec.Struct, frozen=True):
    """How many replicas have to have a write, and how long they get for it.

    Asked for on the same connection, right after the write: WAIT answers for its own connection.
    """

    replicas: int
    timeout: float  # seconds


class Batch(msgspec.Struct, frozen=True):
    """Several commands in one write; the reply is the list of their replies.

    Atomic: MULTI/EXEC, and any error raises. Otherwise errors stand in the list as `ErrorReply`.
    """

    steps: Sequence[Command | Script]
    atomic: bool = False
    confirm: Confirm | None = None
    """Of an atomic one: raise `NoReply` if replicas do not confirm it in time."""


@final
class Local(msgspec.Struct, frozen=True):
    """Something to do in this process, by code that is not ours; the reply is its result.

    The blocking shell calls `call`, that of asyncio awaits `acall()`.
    """

    call: Callable[[], Any]
    acall: Callable[[], Awaitable[Any]]


Step: TypeAlias = Command | Script | Batch | Local
_Sent: TypeAlias = Command | Script | Batch
Op: TypeAlias = Generator[Step, Any, T]
"""An operation: yields steps, is sent replies, returns its result."""


class ErrorReply(msgspec.Struct, frozen=True):
    """An error that the server sent, whole: `WRONGTYPE Operation against a key ...`.

    Of a transaction that was carried out but for this, `replies` is what EXEC returned.
    """

    message: str
    replies: Sequence[Any] = ()

    def says(self, code: str) -> bool:
        """Whether this is that error; inside a script errors come wrapped in other text."""
        return code in self.message


class LuaScript(msgspec.Struct, frozen=True):
    """A script's source and the name that Redis gives it."""

    sha: str
    source: bytes


ScriptSource: TypeAlias = Callable[[str], LuaScript]


class Message(msgspec.Struct, frozen=True):
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


def dialogue(op: Op[T], scripts: ScriptSource) -> Generator[Message | Local, Any, T]:
    """Run an operation against whoever answers the messages, and does what is local.

    Errors that the answering side throws in (`RedisTrouble`) reach the operation, so that a bulk
    push can say what was written before.
    """
    try:
        step = next(op)
        while True:
            try:
                if type(step) is Local:
                    reply = yield step
                else:
                    reply = _reply(step, (yield Message(_commands(step, scripts))))
                    if _has_error(reply):
                        reply = yield from _repair(step, reply, scripts)
            except Exception as error:  # noqa: BLE001 - handed on, not handled
                step = op.throw(error)
            else:
                step = op.send(reply)
    except StopIteration as done:
        result: T = done.value
        return result
    finally:
        op.close()


def _commands(step: _Sent, scripts: ScriptSource) -> list[tuple[Arg, ...]]:
    if type(step) is Command:
        return [step.args]
    if not isinstance(step, Batch):
        return [_words(step, scripts)]
    words = [_words(each, scripts) for each in step.steps]
    if step.atomic:
        words = [("MULTI",), *words, ("EXEC",)]
    if step.confirm is not None:
        words.append(("WAIT", step.confirm.replicas, int(step.confirm.timeout * 1000)))
    return words


def _words(step: Command | Script, scripts: ScriptSource) -> tuple[Arg, ...]:
    if isinstance(step, Command):
        return step.args
    return ("EVALSHA", scripts(step.name).sha, len(step.keys), *step.keys, *step.args)


def _reply(step: _Sent, replies: list[Any]) -> Any:
    """Return what the replies to a step's commands come to."""
    if not isinstance(step, Batch):
        return replies[0]
    if not step.atomic:
        return replies
    if step.confirm is None:
        return _transaction(replies)
    *replies, confirmed = replies
    reply = _transaction(replies)
    if type(reply) is not ErrorReply and not _enough(confirmed, step.confirm):
        raise NoReply(
            f"{step.confirm.replicas} replicas were to confirm the write within "
            f"{step.confirm.timeout:g} s, but WAIT said {getattr(confirmed, 'message', confirmed)}"
        )
    return reply


def _enough(confirmed: Any, confirm: Confirm) -> bool:
    return isinstance(confirmed, int) and confirmed >= confirm.replicas


def _transaction(replies: list[Any]) -> Any:
    """Return EXEC's list of replies, or the error that says why nothing was done."""
    result = replies[-1]
    if isinstance(result, ErrorReply):
        # EXECABORT only says that something was refused; the refusal says what.
        return next(_errors(replies), result)
    first = next(_errors(result), None)
    return result if first is None else ErrorReply(first.message, result)


def _repair(step: _Sent, reply: Any, scripts: ScriptSource) -> Generator[Message, list[Any], Any]:
    """Do what an error in the reply asks for; raise it if that is nothing."""
    try:
        reply = yield from _load(step, reply, scripts)
        if _hit_by_failover(reply):
            again = yield from _repeat(step, reply, scripts)
            reply = yield from _load(step, again, scripts)
    except RedisUnreachable as error:
        if isinstance(step, Batch) and not step.atomic:
            # Other commands of it were carried out, and their replies go down with this.
            raise NoReply(str(error)) from error
        raise
    if isinstance(reply, ErrorReply):
        raise RedisRefused(reply.message, reply.replies)
    return reply


def _repeat(step: _Sent, reply: Any, scripts: ScriptSource) -> Generator[Message, list[Any], Any]:
    """Send once more what a failover hit, and nothing that was carried out. [PUSH-9]"""
    if not isinstance(step, Batch) or step.atomic:
        replies = yield Message(_commands(step, scripts), fresh=True)
        return _reply(step, replies)
    hit = [index for index, each in enumerate(reply) if _hit_by_failover(each)]
    calls = [_words(step.steps[index], scripts) for index in hit]
    answers = yield Message(calls, fresh=True)
    for index, answer in zip(hit, answers, strict=True):
        reply[index] = answer
    return reply


def _load(step: _Sent, reply: Any, scripts: ScriptSource) -> Generator[Message, list[Any], Any]:
    """Load scripts that the server does not have, and call them again. [LUA-3]"""
    if isinstance(step, Batch) and step.atomic:
        return reply
    steps = step.steps if isinstance(step, Batch) else (step,)
    replies = reply if isinstance(step, Batch) else [reply]
    missing = {
        index: each
        for index, (each, got) in enumerate(zip(steps, replies, strict=True))
        if isinstance(each, Script) and isinstance(got, ErrorReply) and got.says("NOSCRIPT")
    }
    if missing:
        names = dict.fromkeys(each.name for each in missing.values())
        loads: list[tuple[Arg, ...]] = [("SCRIPT", "LOAD", scripts(name).source) for name in names]
        calls = [_words(each, scripts) for each in missing.values()]
        answers = yield Message([*loads, *calls])
        for index, answer in zip(missing, answers[len(loads) :], strict=True):
            replies[index] = answer
    return replies if isinstance(step, Batch) else replies[0]


def _errors(replies: Iterable[Any]) -> Iterator[ErrorReply]:
    return (reply for reply in replies if isinstance(reply, ErrorReply))


def _has_error(reply: Any) -> bool:
    return ErrorReply in map(type, reply) if type(reply) is list else type(reply) is ErrorReply


def _hit_by_failover(reply: Any) -> bool:
    found = [reply] if isinstance(reply, ErrorReply) else reply if isinstance(reply, list) else []
    return any(error.says(code) for error in _errors(found) for code in _FAILOVER)
