"""Removing jobs from the places where they wait, with their locks and their ends in batches."""

from __future__ import annotations

from collections.abc import Sequence

from jobwire.protocol.batches import member_in, script_end, time_text
from jobwire.protocol.dead_set import DeadSetLimits
from jobwire.protocol.keys import Keys
from jobwire.protocol.unique import held_by, script_kill, script_unlock
from jobwire.protocol.wire import Command, Script, command

__all__ = ["killing", "removing"]


def removing(
    keys: Keys, key: str | bytes, texts: Sequence[bytes], *, now: float, of_list: bool = False
) -> list[Command | Script]:
    """Return the steps that remove waiting jobs, each with its lock. [X-UNIQ-8] [X-BATCH-6]

    The replies are numbers of jobs, whose sum is the number of jobs that were there.

    Args:
        keys: Key names.
        key: Key of a sorted set, or of a list.
        texts: Payloads, not empty.
        now: Epoch seconds.
        of_list: True for a list. Then each job has a step of its own, in this order.
    """
    steps: list[Command | Script] = []
    plain: list[bytes] = []
    place = key if isinstance(key, str) else key.decode("utf-8", "replace")
    for text in texts:
        held = held_by(text)
        if (member := member_in(text)) is not None:
            batch, jid = member
            at = time_text(now, 7)  # every reader knows this form
            lock = held[0] if held else ""
            steps.append(
                script_end(
                    keys, batch, "dropped", at=at, jid=jid, place=place, text=text, lock=lock
                )
            )
        elif held is not None:
            steps.append(script_unlock(keys, *held, place=place, text=text))
        elif of_list:
            steps.append(command("LREM", key, 1, text))
        else:
            plain.append(text)
    return [command("ZREM", key, *plain), *steps] if plain else steps


def killing(
    keys: Keys, key: str, text: bytes, *, dead: str, dead_limits: DeadSetLimits
) -> Script | None:
    """Return the step that kills a member of a batch, or a unique job; None for any other job.

    The reply is 1 if the job was there, otherwise 0. [X-UNIQ-8] [X-BATCH-6]

    Args:
        keys: Key names.
        key: Key of its sorted set.
        text: The payload there.
        dead: Key of the set that it moves to.
        dead_limits: The time of its death, and the limits of that set.
    """
    held = held_by(text)
    if (member := member_in(text)) is not None:
        batch, jid = member
        lock = held[0] if held else ""
        return script_end(
            *(keys, batch, "dead"),
            at=time_text(dead_limits.now, 7),
            jid=jid,
            place=key,
            text=text,
            lock=lock,
            dead=dead,
            dead_limits=dead_limits,
        )
    if held is None:
        return None
    return script_kill(keys, *held, place=key, text=text, dead=dead, dead_limits=dead_limits)
