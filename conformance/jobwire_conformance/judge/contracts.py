"""The contracts of the canonical scripts: the KEYS and ARGV of each, from section 18. [LUA-4]"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import cycle
from typing import NamedTuple

__all__ = ["fault"]

_DIGITS = r"\d+"
_FLAG = "[01]"
_FIELD = r"\d+:.+"
_TIME = r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?|inf"
_NOW = r"\d{10}(?:\.\d+)?"  # Unix seconds from 2001 to 2286
_NOW_OR_NEVER = rf"{_NOW}|inf"
_TEXT = ".+"
_BYTES = ".*"
_QUEUE = "queue:.+"
_SET = "schedule|retry|jobwire:parked"
_PRIVATE = "jobwire:private:.+"
_RETURNED = ("jobwire:returned", "jobwire:returned_at")
_DATE = r"\d{4}-\d\d-\d\d"
_COUNTED = (
    *("stat:processed", f"stat:processed:{_DATE}", "stat:failed", f"stat:failed:{_DATE}"),
    *(*_RETURNED, "jobwire:stat:lost"),
)


class _Contract(NamedTuple):
    """Patterns of the fixed KEYS and ARGV of a script, and of the group that repeats after them."""

    keys: Sequence[str]
    arguments: Sequence[str]
    more_keys: Sequence[str] = ()
    more_arguments: Sequence[str] = ()


_END = "|done|retry|dead|discarded|cancelled|expired"  # of a job with an output
_CONTRACTS = {
    "fetch": _Contract(
        (_PRIVATE, _TEXT, "jobwire:owners", "jobwire:returned", "jobwire:paused"),
        (_TEXT, _DIGITS, _DIGITS),
        (_QUEUE,),
        (_TEXT,),
    ),
    "done": _Contract((_PRIVATE, *_COUNTED), (_DIGITS, _FLAG, _FLAG), (), (_FIELD,)),
    "finish": _Contract(
        (
            *(_PRIVATE, f"{_SET}|dead|jobwire:unreadable|{_QUEUE}", *_COUNTED),
            *("queues", "jobwire:stat:expired", "jobwire:cancelled"),
        ),
        (_DIGITS, "|executed|failed|expired", _FLAG, _BYTES, rf"|{_TIME}", r"\d*", "3|7|14"),
        (f"jobwire:(?:result:.+|unique:[0-9a-f]{{64}}|batch:.+|out:.+)|{_QUEUE}",),
        (_BYTES,),  # which `_mismatch_of_jobs` looks at
    ),
    "cancel": _Contract(
        ("queue:.+|schedule|retry", "jobwire:result:.+", "jobwire:cancelled", "it-.+"),
        (_BYTES, _TEXT, _DIGITS, _BYTES),
        ("jobwire:unique:[0-9a-f]{64}",),
    ),
    "put_back": _Contract(
        (_PRIVATE, *_RETURNED, "jobwire:stat:lost", "queues"),
        (_DIGITS, _NOW_OR_NEVER, _FLAG),
        (_QUEUE,),
        (_FIELD, _DIGITS),
    ),
    "recover": _Contract(
        (_PRIVATE, _TEXT, "jobwire:owners", *_RETURNED, "jobwire:stat:recovered", "queues"),
        (_TEXT, _DIGITS, _NOW),
        (_QUEUE,),
        (_FIELD, _DIGITS),
    ),
    "forget": _Contract(_RETURNED, (_TIME, _DIGITS)),
    "promote": _Contract((_SET, "queues"), (), (_QUEUE,), (_BYTES, _DIGITS, _TEXT, _BYTES)),
    "kill_due": _Contract(
        ("schedule|retry", "dead|jobwire:unreadable"), (_NOW, _TIME, _DIGITS), (), (_BYTES,)
    ),
}


def fault(name: str, keys: Sequence[str], arguments: Sequence[str]) -> str | None:
    """Return the first KEYS or ARGV that the contract of a script does not allow; None if all fit.

    Args:
        name: Name of a canonical script.
        keys: The keys of a call, without the namespace.
        arguments: The other arguments of the call.
    """
    contract = _CONTRACTS.get(name)
    if contract is None:  # a script of an annex, to which LUA-4 does not apply
        return None
    return (
        _misfit("KEYS", keys, contract.keys, contract.more_keys)
        or _misfit("ARGV", arguments, contract.arguments, contract.more_arguments)
        or _mismatch(name, keys, arguments)
    )


def _mismatch(name: str, keys: Sequence[str], arguments: Sequence[str]) -> str | None:
    """Return an argument that does not belong to the key that it speaks of; None if all do."""
    lists = keys[len(_CONTRACTS[name].keys) :]
    identities: list[tuple[str, str]] = []  # of a key, and the argument
    queues: list[tuple[str, str]] = []
    numbers: Sequence[str] = ()  # of queue lists
    match name, [*arguments]:
        case "fetch", [identity, _, _, *names]:
            identities = [(keys[0].removeprefix("jobwire:private:"), identity), (keys[1], identity)]
            if len(names) != len(lists):
                return f"{len(names)} queue names for {len(lists)} queues"
            queues = [*zip(lists, names, strict=True)]
        case "finish", [_, _, _, queue, *_]:
            if problem := _mismatch_of_jobs(keys[1], lists, arguments):
                return problem
            queues = [(keys[1], queue)] if queue or keys[1].startswith("queue:") else []
            lists = ()  # jobs of one call may have next jobs in one queue
        case "recover", [identity, _, _, *pairs]:
            identities = [(keys[0].removeprefix("jobwire:private:"), identity), (keys[1], identity)]
            numbers = pairs[1::2]
        case "put_back", [_, _, _, *pairs]:
            numbers = pairs[1::2]
        case "promote", fours:
            numbers = fours[1::4]
            queues = [
                (lists[int(number) - 1], queue)
                for number, queue in zip(numbers, fours[2::4], strict=True)
                if 0 < int(number) <= len(lists)
            ]
    if len({*lists}) < len(lists):
        return f"one queue list twice in KEYS: {lists}"[:200]
    for number in numbers:
        if not 0 < int(number) <= len(lists):
            return f"queue list {number} of {len(lists)}"
    for key, identity in identities:
        if key != identity:
            return f"ARGV identity {identity[:100]} for {key[:100]}"
    for key, queue in queues:
        if key != f"queue:{queue}":
            return f"ARGV queue name {queue[:100]} for {key[:100]}"
    return None


def _mismatch_of_jobs(place: str, results: Sequence[str], arguments: Sequence[str]) -> str | None:
    """Return what is wrong about the jobs of a call of `finish`; None if all fit."""
    fixed = _CONTRACTS["finish"].arguments
    oldest, limit, size = arguments[len(fixed) - 3 : len(fixed)]
    trims = place in ("dead", "jobwire:unreadable")
    if trims != bool(oldest) or trims != bool(limit):
        return f"ARGV oldest {oldest} and limit {limit} for {place}"[:200]
    words = [_FIELD, _NOW if trims else rf"|{_TIME}", _BYTES]
    words += [_BYTES, _DIGITS, *[_BYTES] * 5, "|done|dead|dropped", "|[1-8]", _BYTES, _END][
        : int(size) - 3
    ]
    if len(arguments) == len(fixed):
        return "no job in ARGV"
    if problem := _misfit("ARGV", arguments, fixed, words):
        return problem
    more: list[str] = []
    for at in range(len(fixed), len(arguments), int(size)):
        group = [*arguments[at : at + int(size)], *[""] * 11]
        stored, holder, queue, batches, ended = (group[n] for n in (5, 6, 7, 11, 13))
        more += ["jobwire:result"] * bool(stored) + ["jobwire:unique"] * bool(holder)
        more += [f"queue:{queue}"] * bool(queue)
        more += [*["jobwire:batch"] * 3, "queue:"] * int(batches or 0)
        more += ["jobwire:out"] * bool(ended)
    kinds = [key if key.startswith("queue:") else ":".join(key.split(":")[:2]) for key in results]
    fits = len(more) == len(kinds) and all(
        kind == want or (want == "queue:" and kind.startswith(want))
        for kind, want in zip(kinds, more, strict=True)
    )
    return None if fits else f"keys of {kinds} for {more}"[:200]


def _misfit(
    table: str, words: Sequence[str], fixed: Sequence[str], group: Sequence[str]
) -> str | None:
    more = len(words) - len(fixed)
    if more < 0 or (more % len(group) if group else more):
        return f"{len(words)} {table}"
    patterns = [*fixed, *(pattern for pattern, _ in zip(cycle(group), range(more), strict=False))]
    for number, (word, pattern) in enumerate(zip(words, patterns, strict=True), 1):
        if re.fullmatch(pattern, word, re.DOTALL) is None:
            return f"{table}[{number}] = {word[:100]}"
    return None
