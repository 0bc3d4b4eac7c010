"""Removing jobs from the places where they wait, with their locks and their ends in batches."""

from __future__ import annotations

from collections.abc import Sequence

from jobwire.protocol.batches import member_in, script_end, time_text
from jobwire.protocol.keys import Keys
from jobwire.protocol.unique import held_by, script_unlock
from jobwire.protocol.wire import Command, Script, command

__all__ = ["ends_of_dead", "removing"]


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
        if (member := member_in(text)) is not None:
            batch, jid = member
            at = time_text(now, 7)  # every reader knows this form
            steps.append(script_end(keys, batch, "dropped", at=at, jid=jid, place=place, text=text))
        elif (held := held_by(text)) is not None:
            steps.append(script_unlock(keys, *held, place=place, text=text))
        elif of_list:
            steps.append(command("LREM", key, 1, text))
        else:
            plain.append(text)
    return [command("ZREM", key, *plain), *steps] if plain else steps


def ends_of_dead(keys: Keys, texts: Sequence[bytes], *, now: float) -> list[Script]:
    """Return the steps that end members of batches which people have killed. [X-BATCH-6]"""
    at = time_text(now, 7)
    members = [found for text in texts if (found := member_in(text)) is not None]
    return [script_end(keys, batch, "dead", at=at, jid=jid) for batch, jid in members]
