"""The classes that each process can run, which it announces for other workers. [X-CLASS]"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import msgspec

from jobwire.protocol import active_job
from jobwire.protocol.keys import Keys
from jobwire.protocol.outcome import Outcome
from jobwire.protocol.wire import Batch, Command, Op, command

__all__ = ["announce", "class_of", "hand_over", "is_served"]


def class_of(fields: Mapping[str, Any]) -> str:
    """Return the class of a payload as workers announce it; `""` if it has none. [X-CLASS-1]

    Of an Active Job it is the class that the wrapper names.
    """
    name = active_job.class_of(fields) or fields.get("class")
    return name if isinstance(name, str) else ""


def announce(keys: Keys, identity: str, names: Collection[str], seconds: int) -> list[Command]:
    """Return the part of a beat that announces classes; without any, it withdraws them.

    [X-CLASS-1] [X-CLASS-2]

    `seconds` is the time for which one beat keeps them.
    """
    key = keys.classes(identity)
    if not names:
        return [command("UNLINK", key)]
    return [command("SADD", key, *names), command("EXPIRE", key, seconds)]


def hand_over(keys: Keys, text: bytes, queue: str) -> Outcome:
    """Return the outcome of a job that is left to other workers of a queue, with its exact bytes.

    It goes to the end of the queue, so that a worker that cannot run it does not take it at once
    again. Sidekiq never looks at the `queue` of a payload that it runs, and sets it before a
    retry, so the payload of another queue stays as it is. [X-CLASS-3] [X-CLASS-4] [X-CLASS-7]
    """
    count = command("INCRBY", keys.handed_over, 1)
    return Outcome("queue", text, counted="", after=(count,), queue=queue)


def is_served(keys: Keys, own: str, class_name: str, queue: str) -> Op[bool]:
    """Return whether another process has announced a class and serves a queue. [X-CLASS-3]"""
    members = yield command("SMEMBERS", keys.processes)
    # A member that is not UTF-8 is not a worker: every identity is a string.
    others = {member.decode("utf-8", "replace") for member in members} - {own}
    if not others:
        return False
    names = sorted(others)
    replies = yield Batch([command("SISMEMBER", keys.classes(one), class_name) for one in names])
    able = [one for one, reply in zip(names, replies, strict=True) if reply == 1]
    if not able:
        return False
    infos = yield Batch([command("HGET", keys.process(one), "info") for one in able])
    return any(queue in served for served in _served(infos))


def _served(infos: list[Any]) -> Iterator[Collection[object]]:
    """Yield the queues of each process, as far as its heartbeat names them. [BEAT-4]"""
    for info in infos:
        try:
            queues = msgspec.json.decode(info).get("queues")
        except (msgspec.MsgspecError, AttributeError, TypeError):
            continue
        if isinstance(queues, list):
            yield queues
