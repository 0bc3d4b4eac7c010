"""Checks of the data in Redis: lists, sorted sets, hashes, sets, values, names of keys."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Mapping, Sequence, Set
from typing import Any

from jobwire_conformance.cases.match import matches, moment, number, spelt_text
from jobwire_conformance.cases.samples import unevenness
from jobwire_conformance.cases.values import ABSENT, Absent, Spelt, members, plain
from jobwire_conformance.judge.key_rules import is_known_key
from jobwire_conformance.run import retry_jitter
from jobwire_conformance.run.checks.context import Check, Context, Miss
from jobwire_conformance.run.metrics import Counted
from jobwire_conformance.run.state import jid_of

__all__ = ["PARTS"]


def _list(context: Context, step: Mapping[str, Any]) -> None:
    key = context.state.key(step["list"])
    texts = _range(context, key, b"list", "LRANGE", [])
    _members(context, step, key, texts)


def _zset(context: Context, step: Mapping[str, Any]) -> None:
    key = context.state.key(step["zset"])
    flat = _range(context, key, b"zset", "ZRANGE", ["WITHSCORES"])
    texts, scores = flat[::2], [float(score) for score in flat[1::2]]
    if "score" in step:
        index = _index(context, step, key, texts)
        seen = number(scores[index]) if _within(scores, index) else ABSENT
        context.must(f"score {index} of {key}", step["score"], seen)
    _members(context, step, key, texts)
    # Its rank would depend on the clock: equal scores are in the order of the bytes.
    _includes(context, step, key, {text.decode("utf-8", "surrogateescape") for text in texts})
    if "draws" in step and (problem := retry_jitter.problem(texts, scores, step["draws"])):
        raise Miss(f"delays in {key}", *problem)
    if "uniform" in step:
        _uniform(context, key, scores, step["uniform"])
        ids = [jid_of(text) for text in texts]
        if context.answer is not None and ids == context.answer.get("jids"):
            raise Miss(f"draws of {key}", "another order than that of the push", ids[:10])


def _uniform(context: Context, key: str, scores: Sequence[float], ends: Mapping[str, Any]) -> None:
    if not scores:
        raise Miss(f"members of {key}", "at least 1,000", 0)
    low, high = moment(ends["from"], context.scope.began), moment(ends["to"], context.scope.now)
    if (problem := unevenness(scores, low, high)) is not None:
        raise Miss(f"scores of {key}", f"uniform draws from {low:.3f} to {high:.3f}", problem)


def _range(
    context: Context, key: str, kind: bytes, command: str, options: Sequence[str]
) -> list[bytes]:
    if not _is_of_type(context, key, kind):
        return []
    members_: list[bytes] = context.sandbox.link.call(command, key, 0, -1, *options)
    return members_


def _is_of_type(context: Context, key: str, kind: bytes) -> bool:
    """Return whether a key exists; a key of another type is a failure of the check."""
    seen = context.sandbox.link.call("TYPE", key)
    if seen not in (b"none", kind):
        raise Miss(f"the type of {key}", kind.decode(), seen.decode())
    return bool(seen != b"none")


def _members(context: Context, step: Mapping[str, Any], key: str, texts: Sequence[bytes]) -> None:
    if "len" in step:
        context.must(f"members of {key}", step["len"], number(len(texts)))
    if "jids" in step:
        jids = [jid_of(text) for text in texts]
        context.must(f"ids of the members of {key}", step["jids"], plain(jids))
    if step.keys().isdisjoint(("jid", "payload", "raw")):
        return
    index = _index(context, step, key, texts)
    if not _within(texts, index):
        raise Miss(f"member {index} of {key}", "a member", ABSENT)
    text = texts[index].decode("utf-8", "surrogateescape")
    if "raw" in step:
        context.must(f"member {index} of {key}", step["raw"], spelt_text(text))
    if "payload" in step:
        try:
            fields = members(text)
        except ValueError:
            raise Miss(f"member {index} of {key}", "a JSON object", text) from None
        for name, matcher in step["payload"].items():
            context.must(name, matcher, fields.get(name, ABSENT), f"member {index} of {key}")


def _hash(context: Context, step: Mapping[str, Any]) -> None:
    key = context.state.key(step["hash"])
    _is_of_type(context, key, b"hash")
    flat = context.sandbox.link.call("HGETALL", key)
    texts = [text.decode("utf-8", "surrogateescape") for text in flat]
    fields = dict(zip(texts[::2], texts[1::2], strict=True))
    if "len" in step:
        context.must(f"fields of {key}", step["len"], number(len(fields)))
    for name in fields if "names" in step else ():
        context.must(f"the name of a field of {key}", step["names"], spelt_text(name))
    for name, matcher in step.get("fields", {}).items():
        # `*` is a field whose name a case cannot know, like the id of an executor.
        known = fields.get(context.state.named(name))
        value = next(iter(fields.values()), None) if name == "*" else known
        context.must(name, matcher, ABSENT if value is None else spelt_text(value), key)
    _ttl(context, step, key)


def _set(context: Context, step: Mapping[str, Any]) -> None:
    key = context.state.key(step["set"])
    _is_of_type(context, key, b"set")
    seen = {
        text.decode("utf-8", "surrogateescape")
        for text in context.sandbox.link.call("SMEMBERS", key)
    }
    if "len" in step:
        context.must(f"members of {key}", step["len"], number(len(seen)))
    if "members" in step:
        context.must(f"members of {key}", step["members"], plain(sorted(seen)))
    _includes(context, step, key, seen)


def _includes(context: Context, step: Mapping[str, Any], key: str, seen: Set[str]) -> None:
    for member in map(context.state.named, step.get("has", ())):
        if member not in seen:
            raise Miss(f"members of {key}", f"{member} among them", sorted(seen)[:10])
    for member in map(context.state.named, step.get("lacks", ())):
        if member in seen:
            raise Miss(f"members of {key}", f"no {member} among them", sorted(seen)[:10])


def _key(context: Context, step: Mapping[str, Any]) -> None:
    key = context.state.key(step["key"])
    if "exists" in step and bool(context.sandbox.link.call("EXISTS", key)) != step["exists"]:
        raise Miss(f"existence of {key}", step["exists"], not step["exists"])
    if "len" in step:
        context.must(f"entries of {key}", step["len"], number(len(_entries(context, key))))
    if "value" in step:
        context.must(key, step["value"], _value(context, key))
    if "lasts" in step:
        _lasts(context, step, key)
    _ttl(context, step, key)


def _value(context: Context, key: str) -> Spelt | Absent:
    """Return the value of a string, or the entries of a stream."""
    kind = context.sandbox.link.call("TYPE", key)
    if kind == b"stream":
        return plain(_entries(context, key))
    # A key that is written after the first question may be a stream, which GET refuses.
    value = None if kind == b"none" else context.sandbox.link.call("GET", key)
    return ABSENT if value is None else spelt_text(value.decode("utf-8", "replace"))


def _entries(context: Context, key: str) -> list[dict[str, str]]:
    found = []
    for position, flat in context.sandbox.link.call("XRANGE", key, "-", "+"):
        texts = [word.decode("utf-8", "replace") for word in (b"position", position, *flat)]
        found.append(dict(zip(texts[::2], texts[1::2], strict=True)))
    return found


def _lasts(context: Context, step: Mapping[str, Any], key: str) -> None:
    """Check a time to live that is rounded up: the one that is left has lost the fraction."""
    value, left = context.sandbox.link.call("GET", key), context.sandbox.link.call("PTTL", key)
    since = json.loads(value)["at"] if value is not None else 0.0
    seen = time.time() + left / 1000 - since
    if value is None or seen < step["lasts"]:
        raise Miss(f"seconds from at of {key} to its end", f"at least {step['lasts']}", seen)


def _keys(context: Context, step: Mapping[str, Any]) -> None:
    pattern = context.state.key(step["keys"])
    found = [key.decode("utf-8", "replace") for key in context.sandbox.link.call("KEYS", pattern)]
    if not matches(step["len"], number(len(found)), context.scope):
        raise Miss(f"number of keys like {pattern}", step["len"], sorted(found))


def _ttl(context: Context, step: Mapping[str, Any], key: str) -> None:
    if "ttl" in step:
        left = context.sandbox.link.call("PTTL", key)
        seen = number(left / 1000) if left >= 0 else ABSENT
        if not matches(step["ttl"], seen, context.scope):
            # One that is too long becomes right as time goes by, without any command.
            subject = f"remaining seconds of {key}"
            raise Miss(subject, step["ttl"], seen, final=left >= 0)


def _metrics(context: Context, step: Mapping[str, Any]) -> None:
    counted = Counted(context.sandbox.link, context.sandbox.config.prefix, context.scope)
    for pattern, parts in step["metrics"].items():
        for class_name, (part, matcher) in itertools.product(
            counted.classes(pattern), parts.items()
        ):
            seen = counted.part(class_name, part)
            context.must(
                f"{part} of {class_name}", matcher, ABSENT if seen is None else plain(seen)
            )


def _grammar(context: Context, step: Mapping[str, Any]) -> None:
    """Check that all keys belong to the protocol or to its extensions."""
    prefix = context.sandbox.config.prefix
    for raw in context.sandbox.link.call("KEYS", "*"):
        key = raw.decode("utf-8", "surrogateescape")
        if not key.startswith(prefix) or not is_known_key(key.removeprefix(prefix)):
            raise Miss("a key", "a key of the protocol, or a key that begins with jobwire:", key)


def _index(context: Context, step: Mapping[str, Any], key: str, texts: Sequence[bytes]) -> int:
    """Return the index of the member that a check is about."""
    if "jid" not in step:
        return int(step.get("index", 0))
    jid = context.state.named(step["jid"])
    newest_first = range(len(texts) - 1, -1, -1)  # the set may be long
    index = next((index for index in newest_first if jid_of(texts[index]) == jid), None)
    if index is None:
        raise Miss(f"members of {key}", f"one with the id {jid}", f"{len(texts)} others")
    return index


def _within(sequence: Sequence[object], index: int) -> bool:
    return -len(sequence) <= index < len(sequence)


PARTS: Mapping[str, Check] = {
    "list": _list,
    "zset": _zset,
    "hash": _hash,
    "set": _set,
    "key": _key,
    "keys": _keys,
    "metrics": _metrics,
    "grammar": _grammar,
}
