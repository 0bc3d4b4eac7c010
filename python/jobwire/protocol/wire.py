"""Commands to Redis as values, and the dialogue with the server, without a socket.

An operation (`Op`) is a generator that yields steps and receives their replies. `dialogue` turns
it into messages. A message is a list of commands to send in one write; its answer is the list of
replies. `dialogue` holds all rules that the sync and the asyncio shell share: transactions,
scripts that the server does not have, and the failover errors after which a write is repeated once
on a new connection.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any, TypeAlias, TypeVar, final

import msgspec

from jobwire.errors import NoReply, RedisRefused, RedisTrouble, RedisUnreachable

__all__ = [
    "Arg",
    "At",
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
    "Together",
    "command",
    "dialogue",
    "once",
    "together",
]

# The values are structs because these are ten times quicker to make than dataclasses. A push makes
# half a dozen of them.

T = TypeVar("T")
Arg: TypeAlias = str | bytes | int | float
"""A word of a command. None, bool and lists are not allowed: Redis drivers disagree on them."""


class Command(msgspec.Struct, frozen=True):
    """One command; its reply is that of the server."""

    args: tuple[Arg, ...]


class Script(msgspec.Struct, frozen=True):
    """One call of `lua/<name>.lua`; its reply is what the script returns. [LUA-2] [LUA-4]"""

    name: str
    keys: Sequence[str]
    args: Sequence[Arg]


class Confirm(msgspec.Struct, frozen=True):
    """The number of replicas that must confirm a write, and the time limit for that.

    WAIT goes right after the write on the same connection, because it reports only on the writes
    of its own connection.
    """

    replicas: int
    timeout: float  # seconds


class Batch(msgspec.Struct, frozen=True):
    """Several commands in one write; the reply is the list of their replies.

    An atomic batch is a MULTI/EXEC transaction, and any error in it raises. In other batches an
    error is an `ErrorReply` in the list.
    """

    steps: Sequence[Command | Script]
    atomic: bool = False
    confirm: Confirm | None = None
    """For an atomic batch: raise `NoReply` if replicas do not confirm it in time."""
    whole: bool = False
    """For another batch: after a failover, repeat all of it. It has a MULTI of its own, and the
    server would carry out the commands that the failover hit."""


@final
class Local(msgspec.Struct, frozen=True):
    """A call of the application's code in this process; the reply is its result.

    The sync shell calls `call()`, the asyncio shell awaits `acall()`.
    """

    call: Callable[[], Any]
    acall: Callable[[], Awaitable[Any]]


@final
class At(msgspec.Struct, frozen=True):
    """An operation on another server, as a part of this dialogue; the reply is its result.

    `server` is the shell of that server, of the same kind as the one that runs the dialogue.
    """

    server: Any
    op: Op[Any]


@final
class Together(msgspec.Struct, frozen=True):
    """The steps of several operations in one write, each with its own rules; see `together`.

    The reply is the list of their replies, with the error of a step in the place of its reply.
    """

    steps: Sequence[Command | Script | Batch]


Step: TypeAlias = Command | Script | Batch | Local | At | Together
_Sent: TypeAlias = Command | Script | Batch
Op: TypeAlias = Generator[Step, Any, T]
"""An operation: yields steps, receives their replies and returns its result."""


class ErrorReply(msgspec.Struct, frozen=True):
    """An error reply of the server, with its full text: `WRONGTYPE Operation against a key ...`.

    If a transaction was carried out except for this error, `replies` is the reply to EXEC. If MULTI
    was refused, it has the replies to the commands, which the server carried out without it.
    """

    message: str
    replies: Sequence[Any] = ()

    def says(self, code: str) -> bool:
        """True if the text contains `code`; an error in a script has other text around it."""
        return code in self.message


class LuaScript(msgspec.Struct, frozen=True):
    """The source of a script, and its SHA-1, by which Redis knows it."""

    sha: str
    source: bytes


ScriptSource: TypeAlias = Callable[[str], LuaScript]


class Message(msgspec.Struct, frozen=True):
    """Commands to send in one write; over a new connection if `fresh`."""

    commands: Sequence[tuple[Arg, ...]]
    server: Any = None
    """The shell of their server; None: the one that runs the dialogue."""
    fresh: bool = False


def command(*args: Arg) -> Command:
    """Return a `Command` of these words."""
    return Command(args)


def once(step: Step) -> Op[Any]:
    """Return the operation with only this step."""
    return (yield step)


def together(ops: Iterable[Op[Any]]) -> Op[list[Any]]:
    """Run operations side by side: their first steps travel in one message, then their second ones.

    The server carries out the steps of a message in the order of the operations. An operation goes
    on in this order, too, so a later one may use what an earlier one has just learned. None of them
    may have a `Local` or `At` step.

    Returns:
        The result of each operation, or the exception that it raised.
    """
    results: list[Any] = []
    running: dict[int, Op[Any]] = {}
    steps: dict[int, Any] = {}

    def advance(index: int, resume: Callable[[], Any]) -> None:
        try:
            steps[index] = resume()
        except StopIteration as done:
            results[index] = done.value
        except Exception as error:  # noqa: BLE001 - the caller's to handle
            results[index] = error

    try:
        for index, op in enumerate(ops):
            results.append(None)
            running[index] = op
            advance(index, partial(next, op))
        while steps:
            asked, steps = steps, {}
            try:
                replies = yield Together([*asked.values()])
            except RedisTrouble as error:
                replies = [error] * len(asked)
            for index, reply in zip(asked, replies, strict=True):
                op = running[index]
                go_on = op.throw if isinstance(reply, Exception) else op.send
                advance(index, partial(go_on, reply))
    finally:
        for op in running.values():
            op.close()
    return results


# Errors after a failover: the old connection leads to a server that no longer accepts writes, or
# to a node of a cluster that no longer has the slot. [PUSH-9] [PUSH-17]
_FAILOVER = ("READONLY", "NOREPLICAS", "UNBLOCKED", "MOVED")


def dialogue(
    op: Op[T], scripts: ScriptSource, server: Any = None
) -> Generator[Message | Local, Any, T]:
    """Run an operation, with a shell that answers the messages and makes the local calls.

    The messages are for `server`, or else for that shell.

    Errors that the shell throws in (`RedisTrouble`) reach the operation. So a bulk push can tell
    which jobs were written before the error.
    """
    try:
        step = next(op)
        while True:
            try:
                if type(step) is Local:
                    reply = yield step
                elif type(step) is At:
                    reply = yield from dialogue(step.op, scripts, step.server)
                elif type(step) is Together:
                    reply = yield from _each(step.steps, scripts, server)
                else:
                    reply = _reply(step, (yield Message(_commands(step, scripts), server)))
                    if _has_error(reply):
                        reply = yield from _repair(step, reply, scripts, server)
            except Exception as error:  # noqa: BLE001 - passed on to the operation
                step = op.throw(error)
            else:
                step = op.send(reply)
    except StopIteration as done:
        result: T = done.value
        return result
    finally:
        op.close()


def _each(
    steps: Sequence[_Sent], scripts: ScriptSource, server: Any
) -> Generator[Message, list[Any], list[Any]]:
    """Return the replies to steps that travel together; an error hits its own step only."""
    asked = [_commands(step, scripts) for step in steps]
    answers = iter((yield Message([words for part in asked for words in part], server)))
    # All of them first, because a repair sends further messages.
    replies = [
        _reply(step, [*islice(answers, len(part))]) for step, part in zip(steps, asked, strict=True)
    ]
    for index, (step, reply) in enumerate(zip(steps, replies, strict=True)):
        if _has_error(reply):
            try:
                replies[index] = yield from _repair(step, reply, scripts, server)
            except RedisTrouble as error:
                replies[index] = error
    return replies


def _commands(step: _Sent, scripts: ScriptSource) -> list[tuple[Arg, ...]]:
    if type(step) is Command:
        return [step.args]
    if not isinstance(step, Batch):
        return [_words(step, scripts)]
    commands = [_words(part, scripts, whole=step.atomic) for part in step.steps]
    if step.atomic:
        commands = [("MULTI",), *commands, ("EXEC",)]
    if step.confirm is not None:
        commands.append(("WAIT", step.confirm.replicas, int(step.confirm.timeout * 1000)))
    return commands


def _words(
    step: Command | Script, scripts: ScriptSource, *, whole: bool = False
) -> tuple[Arg, ...]:
    if isinstance(step, Command):
        return step.args
    if whole:  # a transaction cannot load a script that the server forgot
        return ("EVAL", scripts(step.name).source, len(step.keys), *step.keys, *step.args)
    return ("EVALSHA", scripts(step.name).sha, len(step.keys), *step.keys, *step.args)


def _reply(step: _Sent, replies: list[Any]) -> Any:
    """Return the reply to a step, from the replies to its commands."""
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
            f"{step.confirm.timeout:g} s; WAIT replied {getattr(confirmed, 'message', confirmed)}"
        )
    return reply


def _enough(confirmed: Any, confirm: Confirm) -> bool:
    return isinstance(confirmed, int) and confirmed >= confirm.replicas


def _transaction(replies: list[Any]) -> Any:
    """Return EXEC's list of replies, or the first error of the transaction."""
    begun, *parts, result = replies
    if isinstance(begun, ErrorReply):
        # The server refused MULTI only (an ACL, a proxy), so it carried out each command that it
        # did not refuse or queue.
        done = [begun if part == b"QUEUED" else part for part in parts]
        return ErrorReply(begun.message, done)
    if isinstance(result, ErrorReply):
        # EXECABORT does not name the cause. The error reply to the refused command does.
        return next(_errors(replies), result)
    first_error = next(_errors(result), None)
    return result if first_error is None else ErrorReply(first_error.message, result)


def _repair(
    step: _Sent, reply: Any, scripts: ScriptSource, server: Any
) -> Generator[Message, list[Any], Any]:
    """Load missing scripts or repeat after a failover; raise an error that neither cures."""
    try:
        reply = yield from _load(step, reply, scripts, server)
        if _hit_by_failover(reply):
            second_reply = yield from _repeat(step, reply, scripts, server)
            reply = yield from _load(step, second_reply, scripts, server)
    except RedisUnreachable as error:
        if isinstance(step, Batch) and not step.atomic:
            # Other commands of the batch were carried out, and this error hides their replies.
            raise NoReply(str(error)) from None
        raise
    if isinstance(reply, ErrorReply):
        raise RedisRefused(reply.message, reply.replies)
    return reply


def _repeat(
    step: _Sent, reply: Any, scripts: ScriptSource, server: Any
) -> Generator[Message, list[Any], Any]:
    """Send the commands that a failover hit once more, and no others. [PUSH-9] [PUSH-22]"""
    if not isinstance(step, Batch) or step.atomic or step.whole:
        replies = yield Message(_commands(step, scripts), server, fresh=True)
        return _reply(step, replies)
    hit = [index for index, part in enumerate(reply) if _hit_by_failover(part)]
    repeated = [_words(step.steps[index], scripts) for index in hit]
    answers = yield Message(repeated, server, fresh=True)
    for index, answer in zip(hit, answers, strict=True):
        reply[index] = answer
    return reply


def _load(
    step: _Sent, reply: Any, scripts: ScriptSource, server: Any
) -> Generator[Message, list[Any], Any]:
    """Load scripts that the server does not have, and call them again. [LUA-3]"""
    if isinstance(step, Batch) and step.atomic:
        return reply
    steps = step.steps if isinstance(step, Batch) else (step,)
    replies = reply if isinstance(step, Batch) else [reply]
    missing = {
        index: call
        for index, (call, answer) in enumerate(zip(steps, replies, strict=True))
        if isinstance(call, Script) and isinstance(answer, ErrorReply) and answer.says("NOSCRIPT")
    }
    if missing:
        names = dict.fromkeys(call.name for call in missing.values())
        loads: list[tuple[Arg, ...]] = [("SCRIPT", "LOAD", scripts(name).source) for name in names]
        calls = [_words(call, scripts) for call in missing.values()]
        answers = yield Message([*loads, *calls], server)
        for index, answer in zip(missing, answers[len(loads) :], strict=True):
            replies[index] = answer
    return replies if isinstance(step, Batch) else replies[0]


def _errors(replies: Iterable[Any]) -> Iterator[ErrorReply]:
    return (reply for reply in replies if isinstance(reply, ErrorReply))


def _has_error(reply: Any) -> bool:
    return ErrorReply in map(type, reply) if type(reply) is list else type(reply) is ErrorReply


def _hit_by_failover(reply: Any) -> bool:
    replies = reply if isinstance(reply, list) else [reply]
    return any(error.says(code) for error in _errors(replies) for code in _FAILOVER)
