"""The shard of a job: the one of a key that it has, or any one.

A shard is a whole instance of the protocol. A lock or a limit that a job shares with others is in
one instance, so all jobs with the same key go to the same shard. The shards of a key have an order
that depends on nothing but the names: with another shard, only the keys that it gets move.

A person changes the state of a shard while programs run. Each shard has a copy of all states.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from struct import iter_unpack
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import msgspec

from jobwire.errors import ConfigError, InvalidJob
from jobwire.protocol.chains import NEXT
from jobwire.protocol.groups import GROUP
from jobwire.protocol.keys import Keys
from jobwire.protocol.limits import LIMIT, limit_of
from jobwire.protocol.normalize import ReadyPayload, may_share
from jobwire.protocol.unique import UNIQUE, lock_of
from jobwire.protocol.wire import Op, command

__all__ = [
    "Placement",
    "ShardState",
    "States",
    "by_turn",
    "check_placement",
    "home",
    "keys_of",
    "newest",
    "ranking",
    "read_states",
    "rotations",
    "turn",
    "write_states",
]

Placement: TypeAlias = Literal["spread", "queue"]
"""The rule for a job that shares nothing: `spread` over all shards; or by its `queue`, so that the
jobs of a queue are on one shard, and start in order."""


class ShardState(NamedTuple):
    """The state of a shard.

    Attributes:
        epoch: Number of the change that gave it this state; a higher one wins.
        name: `used`; `draining`, if it gets no jobs and its own ones still run; or `removed`.
    """

    epoch: int
    name: str


States: TypeAlias = Mapping[str, ShardState]
"""Name of each shard to its state. Without any, all shards are used; otherwise those that are not
among them get no jobs."""


def check_placement(value: str) -> Placement:
    """Return a rule.

    Raises:
        ConfigError: There is no such rule.
    """
    if value not in get_args(Placement):
        raise ConfigError(f"placement: {value!r} is not one of 'spread', 'queue'")
    return value  # type: ignore[return-value]  # checked


def ranking(key: str, shards: Sequence[str]) -> list[str]:
    """Return the shards in the order in which a key prefers them (rendezvous hashing).

    The highest SHA-256 of `<shard> NUL <key>` comes first.

    Args:
        key: The key.
        shards: Names of the shards, in any order.
    """
    text = key.encode("utf-8", "surrogatepass")

    def weight(shard: str) -> bytes:
        return hashlib.sha256(b"%b\0%b" % (shard.encode(), text)).digest()

    return sorted(shards, key=weight, reverse=True)


def rotations(shards: Sequence[str]) -> Sequence[Sequence[str]]:
    """Return the orders for `turn`: the given one, and so on, with each shard first once."""
    return [(*shards[first:], *shards[:first]) for first in range(len(shards))]


def turn(jid: str, orders: Sequence[Sequence[str]]) -> Sequence[str]:
    """Return the order in which a job without a key tries the shards.

    Ids are random, so their last digits spread jobs evenly, for a tenth of the cost of `ranking`.
    Another shard moves most of the ids: nothing but a guess depends on the place of such a job.

    Args:
        jid: The id of the job.
        orders: The `rotations` of the shards.
    """
    try:
        return orders[int(jid[-8:], 16) % len(orders)]
    except ValueError:  # an id that a person gave
        return ranking(jid, orders[0])


def by_turn(
    jobs: Sequence[ReadyPayload], orders: Sequence[Sequence[str]]
) -> Iterable[tuple[Sequence[str], Sequence[ReadyPayload]]]:
    """Return each order in which some jobs try the shards, as `turn` has it, and these jobs."""
    if len(orders) == 1:
        return [(orders[0], jobs)] if jobs else ()
    ends = _ends([job.jid for job in jobs])
    if ends is None:
        mixed: dict[tuple[str, ...], list[ReadyPayload]] = {}
        for job in jobs:
            mixed.setdefault(tuple(turn(job.jid, orders)), []).append(job)
        return mixed.items()
    parts: list[list[ReadyPayload]] = [[] for _ in orders]
    add, count = [part.append for part in parts], len(parts)
    for job, (end,) in zip(jobs, ends, strict=True):
        add[end % count](job)
    return [(order, part) for order, part in zip(orders, parts, strict=True) if part]


def _ends(jids: Sequence[str]) -> Iterator[tuple[int]] | None:
    """Return the last 8 digits of ids as numbers; None if one is not usual.

    All at once, because a slice and a conversion for each id take twice the time.
    """
    text = " ".join(jids)
    if text[24::25] != " " * (len(jids) - 1):
        return None
    try:
        digits = bytes.fromhex(text)
    except ValueError:
        return None
    return iter_unpack(">8xI", digits) if len(digits) == 12 * len(jids) else None


def home(job: ReadyPayload, placement: Placement) -> str | None:
    """Return the key that decides the shard of a job; None if any shard may have it.

    Raises:
        InvalidJob: It has several keys, which may be on several shards.
    """
    if job.plain or not may_share(job.text):  # hardly any job has a key
        return _queue(job.queue) if placement == "queue" else None
    keys = set(keys_of(msgspec.json.decode(job.text), placement))
    if len(keys) > 1:
        raise InvalidJob(
            "X-LIMIT-1",
            "unique, limit",
            f"the job, with those that it carries, has several keys ({', '.join(sorted(keys))}), "
            "and each belongs to a shard; give the job type one: @app.job(redis=SHARD), or "
            "app.via(SHARD)",
        )
    if keys:
        return keys.pop()
    return _queue(job.queue) if placement == "queue" else None


def keys_of(fields: Mapping[str, Any], placement: Placement = "spread") -> Iterator[str]:
    """Yield the keys of a payload and of the jobs that it carries: of its limit and its lock."""
    if (limit := limit_of(fields.get(LIMIT))) is not None:
        yield f"limit {limit.ident}"
    if (lock := lock_of(fields.get(UNIQUE))) is not None:
        # The queue is a part of the digest, so its jobs meet there as well.
        queue = placement == "queue"
        yield _queue(str(fields.get("queue"))) if queue else f"unique {lock.digest}"
    for field in (NEXT, GROUP):
        carried = fields.get(field)
        for one in carried if isinstance(carried, list) else ():
            if isinstance(one, dict):
                yield from keys_of(one, placement)


def _queue(name: str) -> str:
    return f"queue {name}"


def read_states(keys: Keys) -> Op[dict[str, ShardState]]:
    """Return the states that a shard has, without unreadable ones."""
    reply: Any = yield command("HGETALL", keys.shards)
    if not isinstance(reply, Mapping):
        reply = dict(zip(reply[::2], reply[1::2], strict=True))
    found = {}
    for name, value in reply.items():
        epoch, _, state = value.decode("utf-8", "replace").partition(" ")
        if epoch.isdigit():
            found[name.decode("utf-8", "replace")] = ShardState(int(epoch), state)
    return found


def write_states(keys: Keys, states: States) -> Op[None]:
    """Write states to a shard, in one step."""
    pairs = ((name, f"{state.epoch} {state.name}") for name, state in states.items())
    yield command("HSET", keys.shards, *(part for pair in pairs for part in pair))


def newest(records: Iterable[States]) -> dict[str, ShardState]:
    """Return the newest state of each shard."""
    found: dict[str, ShardState] = {}
    for record in records:
        for name, state in record.items():
            found[name] = max(state, found.get(name, state))
    return found
