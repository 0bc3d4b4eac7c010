"""Evidence for `detect` of the products that write into a Redis. It reads only.

The number of commands has a limit, also in the largest database, and no command reads a whole key.
Commands that an ACL forbids leave their part out, and are named. [ENV-9]
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from jobwire.console.ops.detect import (
    Evidence,
    Sighting,
    namespace_of,
    sign_of_key,
    signs_of_payload,
    signs_of_process,
)
from jobwire.console.ops.doctor_facts import allowed, info_fields
from jobwire.console.ops.products import FIXED_KEYS, Sign
from jobwire.inspect.processes import ProcessInfo, read_process
from jobwire.inspect.reading import decode_json, items, name, raw, text, whole
from jobwire.protocol.keys import Keys
from jobwire.protocol.wire import Arg, Command, Op, command

__all__ = ["collect"]

MAX_KEYS = 200_000  # of the database, that are looked at
KEYS_PER_SCAN = 1000
MAX_NAMES = 500  # of queues, and of processes
MAX_NAMESPACES = 20
SAMPLES = 10  # payloads from each part of a queue or set
PLACES_PER_STEP = 20
MAX_SAMPLED_BYTES = 1 << 20  # of one part
_SETS = ("schedule", "retry", "dead", "parked")


class _Signs:
    """The signs that were seen so far."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[Sign, int, str]] = {}

    def add(self, signs: Iterable[Sign], example: str) -> None:
        for sign in signs:
            _, count, first = self._seen.get(sign.code, (sign, 0, example))
            self._seen[sign.code] = (sign, count + 1, first)

    def sightings(self) -> list[Sighting]:
        return [Sighting(*seen) for seen in self._seen.values()]


def collect(keys: Keys, *, most_keys: int = MAX_KEYS) -> Op[Evidence]:
    """Return the evidence.

    Args:
        keys: Key names.
        most_keys: Maximum number of keys of the database to look at.
    """
    refused: dict[str, str] = {}
    signs = _Signs()
    info, size = yield from allowed(refused, [command("INFO", "server"), command("DBSIZE")])
    yield from _fixed(keys, refused, signs)
    processes = yield from _processes(keys, refused, signs)
    namespaces, scanned = yield from _scan(keys, refused, signs, most_keys)
    payloads = yield from _payloads(keys, refused, signs)
    return Evidence(
        sightings=signs.sightings(),
        processes=processes,
        namespaces=namespaces,
        server=info_fields(info).get("redis_version", ""),
        keys=whole(size),
        scanned=scanned,
        payloads=payloads,
        refused=refused,
    )


def _fixed(keys: Keys, refused: dict[str, str], signs: _Signs) -> Op[None]:
    """Look for the keys whose name never changes, which a scan may miss."""
    types = yield from allowed(
        refused, [command("TYPE", keys.namespace + key) for key in FIXED_KEYS]
    )
    for (key, (kind, sign)), reply in zip(FIXED_KEYS.items(), types, strict=True):
        if text(reply) == kind:
            signs.add([sign], key)


def _first(key: str, refused: dict[str, str]) -> Op[list[str]]:
    """Return some members of a set of names."""
    (reply,) = yield from allowed(refused, [command("SSCAN", key, 0, "COUNT", MAX_NAMES)])
    _, page = items(reply) or (b"0", [])
    return sorted(map(name, page[:MAX_NAMES]))


def _processes(keys: Keys, refused: dict[str, str], signs: _Signs) -> Op[list[ProcessInfo]]:
    identities = yield from _first(keys.processes, refused)
    replies = yield from allowed(
        refused, [command("HGETALL", raw(keys.process(identity))) for identity in identities]
    )
    read = (read_process(*pair) for pair in zip(identities, replies, strict=True))
    processes = [process for process in read if process is not None]
    for process in processes:
        signs.add([signs_of_process(process)], text(process.identity))
    return processes


def _scan(
    keys: Keys, refused: dict[str, str], signs: _Signs, most_keys: int
) -> Op[tuple[list[str], int]]:
    """Look at the names of keys, up to a number; return the other namespaces among them."""
    prefix = keys.namespace.encode()
    matching: list[Arg] = []
    if prefix:
        matching = ["MATCH", re.sub(r"([*?[\]\\^])", r"\\\1", keys.namespace) + "*"]
    candidates: dict[str, None] = {}
    own: set[str] = set()  # namespaces of jobwire
    scanned, cursor = 0, b"0"
    for _ in range(max(most_keys // KEYS_PER_SCAN, 1)):
        step = command("SCAN", cursor, *matching, "COUNT", KEYS_PER_SCAN)
        (reply,) = yield from allowed(refused, [step])
        cursor, page = items(reply) or (b"0", [])
        scanned += len(page)
        for stored in page:
            key = name(stored[len(prefix) :])
            if (sign := sign_of_key(key)) is not None:
                signs.add([sign], text(key))
            elif ":jobwire:" in key and len(own) < MAX_NAMESPACES:
                own.add(key.partition("jobwire:")[0])
            elif (other := namespace_of(key)) is not None and len(candidates) < MAX_NAMESPACES:
                candidates[other] = None
        if not whole(cursor):
            break
    return (yield from _namespaces(keys, [*({*candidates} - own)], refused)), scanned


def _namespaces(keys: Keys, candidates: list[str], refused: dict[str, str]) -> Op[list[str]]:
    """Return the prefixes under which there are keys of Sidekiq, by the types of the keys."""
    expected = {"queues": "set", "processes": "set", "schedule": "zset", "retry": "zset"}
    types = yield from allowed(
        refused,
        [
            command("TYPE", raw(keys.namespace + prefix + key))
            for prefix in candidates
            for key in expected
        ],
    )
    kinds = [text(reply) for reply in types]
    size = len(expected)
    found = []
    for index, prefix in enumerate(candidates):
        own = kinds[index * size : (index + 1) * size]
        right = [kind == wanted for kind, wanted in zip(own, expected.values(), strict=True)]
        if right[0] and any(right[1:]):
            found.append(text(prefix))
    return found


def _payloads(keys: Keys, refused: dict[str, str], signs: _Signs) -> Op[int]:
    """Look at payloads from the ends of queues and sets, and from the middle of sets."""
    queues = yield from _first(keys.queues, refused)
    places = [(f"queue:{queue}", raw(keys.queue(queue)), "LLEN") for queue in queues]
    places += [(place, raw(getattr(keys, place)), "ZCARD") for place in _SETS]
    count = 0
    for start in range(0, len(places), PLACES_PER_STEP):
        chosen = places[start : start + PLACES_PER_STEP]
        facts = yield from allowed(
            refused,
            [
                step
                for _, key, counting in chosen
                for step in (command(counting, key), command("MEMORY", "USAGE", key))
            ],
        )
        sizes, memory = map(whole, facts[::2]), map(whole, facts[1::2])
        steps = [
            (place, step)
            for (place, key, counting), entries, used in zip(chosen, sizes, memory, strict=True)
            if entries
            for step in _samples(key, counting == "ZCARD", entries, used)
        ]
        replies = yield from allowed(refused, [step for _, step in steps])
        for (place, _), reply in zip(steps, replies, strict=True):
            for payload in items(reply):
                fields = decode_json(payload)
                if isinstance(fields, dict):
                    count += 1
                    signs.add(
                        signs_of_payload(fields, on_queue=place.startswith("queue:")), text(place)
                    )
    return count


def _samples(key: bytes, is_sorted: bool, entries: int, memory: int) -> list[Command]:
    """Return the commands that read some entries: fewer if they are large."""
    most = max(1, min(SAMPLES, MAX_SAMPLED_BYTES * entries // max(memory, 1)))
    reading = "ZRANGE" if is_sorted else "LRANGE"
    starts: list[Any] = [0]
    if entries > most:
        # The middle of a list is far from both of its ends, and the server would walk there.
        starts += [entries // 2] if is_sorted and entries > 3 * most else []
        starts.append(max(entries - most, most))
    return [command(reading, key, start, start + most - 1) for start in starts]
