"""Cases in a form that needs no suite: requests to an implementation, and commands with replies.

A case is portable if it looks only at keys and answers: no other process, no fault, no waiting. A
port's own tests can run it with a connection to Redis. See `schema/portable-case.json`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from jobwire_conformance import data
from jobwire_conformance.cases.case import Case, repeated
from jobwire_conformance.cases.match import TIMES

__all__ = ["NotPortable", "portable"]

_MILLISECONDS = "8.1"  # the first generation whose payloads hold milliseconds

_PLAIN_SEEDS = frozenset(
    [
        *("zadd", "score", "raw", "lpush", "registered", "hset", "fields", "sadd", "members"),
        *("del", "set", "value", "ttl"),
    ]
)

Step = dict[str, Any]


class NotPortable(Exception):
    """A case needs more than a connection to Redis."""


def portable(case: Case, generation: str = data.DEFAULT_GENERATION) -> dict[str, Any]:
    """Return a case as data for any language.

    Args:
        case: The case.
        generation: Generation of the payloads that the implementation writes.

    Raises:
        NotPortable: The case has a step that only the suite can do.
    """
    if case.crash is not None or generation not in case.generations:
        raise NotPortable(case.name)
    steps = [*_seeds(case.seed)]
    for step in case.steps:
        if generation in step.get("generations", data.GENERATIONS):
            steps += _step(step, generation)
    return {
        "case": case.name,
        "title": case.title,
        "claims": [*case.profiles],
        "needs": [*case.needs],
        "spec": data.spec_version(),
        "generation": generation,
        "steps": steps,
    }


def _step(step: Mapping[str, Any], generation: str) -> Iterator[Step]:
    if "seed" in step:
        yield from _seeds(step["seed"])
    elif "check" in step:
        yield from _check(step, generation)
    else:
        yield _request(step)


# -- seeds


def _seeds(seeds: Sequence[Mapping[str, Any]]) -> Iterator[Step]:
    for seed in seeds:
        if unknown := seed.keys() - _PLAIN_SEEDS:
            raise NotPortable(f"a seed with {', '.join(sorted(unknown))}")
        for command in _seed(seed):
            yield {"send": command}
        if "ttl" in seed:
            key = next(str(seed[verb]) for verb in ("hset", "sadd", "set", "lpush") if verb in seed)
            yield {"send": ["PEXPIRE", key, int(seed["ttl"] * 1000)]}


def _seed(seed: Mapping[str, Any]) -> Iterator[list[Any]]:
    if "zadd" in seed:
        yield ["ZADD", seed["zadd"], _moment(seed["score"]), seed["raw"]]
    elif "lpush" in seed:
        key = str(seed["lpush"])
        yield ["LPUSH", key, seed["raw"]]
        if key.startswith("queue:") and seed.get("registered", True):
            yield ["SADD", "queues", key.removeprefix("queue:")]
    elif "hset" in seed:
        yield ["HSET", seed["hset"], *(word for pair in seed["fields"].items() for word in pair)]
    elif "sadd" in seed:
        yield ["SADD", seed["sadd"], *seed["members"]]
    elif "del" in seed:
        yield ["DEL", seed["del"]]
    else:
        yield ["SET", seed["set"], seed["value"]]


def _moment(value: Any) -> Any:
    """Return a moment as data: `now-5` is a number of seconds before now."""
    if isinstance(value, list):
        return [_moment(each) for each in value]
    if isinstance(value, str) and value.startswith("now"):
        return {"$": "now", "plus": float(value.removeprefix("now") or 0)}
    return value


# -- requests


def _request(step: Mapping[str, Any]) -> Step:
    operations = ("push", "push_bulk", "inspect", "act")
    operation = next((name for name in operations if name in step), None)
    if operation is None or "identity" in step:
        raise NotPortable(", ".join(step))
    first, rest = step[operation], {**step}
    del rest[operation]
    kept = {name: rest.pop(name) for name in ("expect", "bind") if name in rest}
    named = {"push": "job", "push_bulk": "job", "inspect": "what", "act": "action"}[operation]
    if "args" in rest:
        rest |= repeated(rest)
        rest.pop("times", None)
    if "at" in rest:
        rest["at"] = _moment(rest["at"])
    made: Step = {"request": {"op": operation, named: first, **rest}}
    if "expect" in kept:
        made["outcome"] = kept["expect"]
    if "bind" in kept:
        made["bind"] = {{"push": "jid", "push_bulk": "jids"}[operation]: kept["bind"]}
    return made


# -- checks


def _check(step: Mapping[str, Any], generation: str) -> Iterator[Step]:
    id_ = step["check"]
    if "answer" in step:
        answer = {name: _matcher(matcher, generation) for name, matcher in step["answer"].items()}
        yield {"check": id_, "answer": answer}
    looks = {"list": _list, "zset": _zset, "set": _set, "hash": _hash, "key": _key}
    subjects = [name for name in looks if name in step]
    others = step.keys() - {"check", "answer", "within", "generations", *_OPTIONS, *looks}
    if others or not (subjects or "answer" in step):
        raise NotPortable(f"a check of {', '.join(sorted(others))}")
    for subject in subjects:
        for command, reply in looks[subject](step[subject], step, generation):
            yield {"check": id_, "send": command, "reply": reply}


_OPTIONS = (
    *("len", "index", "payload", "raw", "score", "jids"),
    *("has", "lacks", "fields", "names", "exists", "value", "ttl"),
)

Look = tuple[list[Any], Any]


def _list(key: str, step: Mapping[str, Any], generation: str) -> Iterator[Look]:
    if "len" in step:
        yield ["LLEN", key], _matcher(step["len"], generation)
    if "jids" in step:
        yield ["LRANGE", key, 0, -1], _of_jids(step["jids"])
    if expected := [*_member(step, generation)]:
        yield ["LINDEX", key, step.get("index", 0)], expected[0]


def _zset(key: str, step: Mapping[str, Any], generation: str) -> Iterator[Look]:
    index = step.get("index", 0)
    if "len" in step:
        yield ["ZCARD", key], _matcher(step["len"], generation)
    if "jids" in step:
        yield ["ZRANGE", key, 0, -1], _of_jids(step["jids"])
    if "score" in step:
        score = _matcher(step["score"], generation)
        if isinstance(score, int | float):  # the reply is a text
            score = {"$": "range", "min": score, "max": score}
        yield ["ZRANGE", key, index, index, "WITHSCORES"], [{"$": "any"}, score]
    for expected in _member(step, generation):
        yield ["ZRANGE", key, index, index], [expected]
    for member in step.get("has", ()):
        yield ["ZSCORE", key, member], {"$": "pattern", "is": "."}


def _member(step: Mapping[str, Any], generation: str) -> Iterator[Any]:
    if "raw" in step:
        yield _matcher(step["raw"], generation)
    if "payload" in step:
        yield _json(step["payload"], generation)


def _json(fields: Mapping[str, Any], generation: str) -> Any:
    """Return a matcher of a payload. Exact spellings become texts that it has to contain."""
    spelt = {
        name: matcher["is"]
        for name, matcher in fields.items()
        if isinstance(matcher, Mapping) and matcher.get("$") == "raw"
    }
    others = {n: _matcher(m, generation, n) for n, m in fields.items() if n not in spelt}
    contained = [f'"{name}":{text}' for name, text in spelt.items()]
    return {"$": "json", "is": others, **({"contains": contained} if contained else {})}


def _of_jids(jids: Any) -> list[Any]:
    if not isinstance(jids, list):
        raise NotPortable("a matcher of several ids")
    return [{"$": "json", "is": {"jid": jid}} for jid in jids]


def _set(key: str, step: Mapping[str, Any], generation: str) -> Iterator[Look]:
    if "len" in step:
        yield ["SCARD", key], _matcher(step["len"], generation)
    for name, number in (("has", 1), ("lacks", 0)):
        for member in step.get(name, ()):
            yield ["SISMEMBER", key, member], number


def _hash(key: str, step: Mapping[str, Any], generation: str) -> Iterator[Look]:
    if "names" in step or "*" in step.get("fields", {}):
        raise NotPortable("a check of all fields")
    if "len" in step:
        yield ["HLEN", key], _matcher(step["len"], generation)
    for name, matcher in step.get("fields", {}).items():
        yield ["HGET", key, name], _matcher(matcher, generation, name)
    yield from _ttl(key, step, generation)


def _key(key: str, step: Mapping[str, Any], generation: str) -> Iterator[Look]:
    if "exists" in step:
        yield ["EXISTS", key], int(step["exists"])
    if "value" in step:
        yield ["GET", key], _matcher(step["value"], generation)
    yield from _ttl(key, step, generation)


def _ttl(key: str, step: Mapping[str, Any], generation: str) -> Iterator[Look]:
    if "ttl" in step:
        is_absent = step["ttl"] == {"$": "absent"}
        yield ["TTL", key], -1 if is_absent else _matcher(step["ttl"], generation)


def _matcher(matcher: Any, generation: str, name: str = "") -> Any:
    """Return a matcher with its unit of time instead of rules about generations and fields."""
    if isinstance(matcher, list):
        return [_matcher(part, generation) for part in matcher]
    if not isinstance(matcher, Mapping):
        return matcher
    match matcher.get("$"):
        case None:
            return {key: _matcher(part, generation) for key, part in matcher.items()}
        case "time":
            if matcher.get("either"):
                raise NotPortable("a time in the unit of either generation")
            in_payload = name in TIMES
            moment = _moment(matcher.get("of", "now"))
            return {
                "$": "time",
                "unit": "ms" if in_payload and generation == _MILLISECONDS else "s",
                "of": moment,
                "within": matcher["within"],
            }
        case "has":
            inner = {key: _matcher(part, generation) for key, part in matcher["is"].items()}
            return {"$": "has", "is": inner}
        case "json":
            return _json(matcher["is"], generation)
        case "raw":
            return matcher["is"]  # of a whole text
        case "bind":
            return {"$": "any", "name": matcher["name"]}
        case "absent" | "any" | "type" | "range" | "pattern" | "same" if "order" not in matcher:
            return {name: part for name, part in matcher.items() if name != "words"}
    raise NotPortable(f"a matcher {matcher['$']!r}")
