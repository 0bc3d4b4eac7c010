"""Checks of the commands that a process sent: their words, their order, their transactions."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from jobwire_conformance.cases.describe import pattern_text
from jobwire_conformance.cases.match import matches, number, spelt_text
from jobwire_conformance.cases.values import ABSENT
from jobwire_conformance.errors import EnvironmentFault
from jobwire_conformance.judge.contracts import fault
from jobwire_conformance.judge.stream import canonical, script_call
from jobwire_conformance.run.checks.context import Check, Context, Miss, text_of
from jobwire_conformance.run.transactions import burst, units
from jobwire_conformance.wire import scripts
from jobwire_conformance.wire.call import Call
from jobwire_conformance.wire.commands import keys_of, spec_of

__all__ = ["PARTS"]

_ENQUEUED_AT = re.compile(rb',"enqueued_at":[0-9.e+]+')


def _commands(context: Context, step: Mapping[str, Any]) -> None:
    sent = context.sent(step)
    parts = list(units(sent)) if "together" in step else [sent]
    missing: list[Any] = min(
        (_missing(context, step["commands"], unit) for unit in parts), key=len, default=[[]]
    )
    if missing:
        names = [call.name.decode("utf-8", "replace") for call in sent]
        where = " in one transaction" if "together" in step else ""
        process = step.get("process", "driver")
        seen = ", ".join(names[-40:]) or ABSENT
        raise Miss(f"commands of {process}{where}", pattern_text(missing[0]), seen)


def _missing(context: Context, patterns: Sequence[Any], calls: Sequence[Call]) -> list[Any]:
    """Return the patterns, in order, that the commands do not match."""
    missing = list(patterns)
    for call in calls:
        if missing and _like(context, missing[0], call.words):
            del missing[0]
    return missing


def _like(context: Context, pattern: Sequence[Any], sent: Sequence[bytes]) -> bool:
    """Return whether the first words of a command match a pattern."""
    prefix = context.sandbox.config.prefix  # of keys, which cases name without it
    words = [word.decode("utf-8", "replace").removeprefix(prefix) for word in sent]
    words[0] = words[0].upper()
    return len(words) >= len(pattern) and all(
        matches(_named(context, matcher), spelt_text(word), context.scope)
        for matcher, word in zip(pattern, words, strict=False)
    )


def _named(context: Context, matcher: Any) -> Any:
    return context.state.named(matcher) if isinstance(matcher, str) else matcher


def _never(context: Context, step: Mapping[str, Any]) -> None:
    key = context.state.key(step["of"]).encode() if "of" in step else None
    for call in context.sent(step):
        if key is not None and key not in call.words:
            continue
        script = script_call(call.words)
        arguments = [] if script is None else [[b"ARGV", word] for word in script.arguments]
        for pattern in step["never"]:
            if any(_like(context, pattern, words) for words in (call.words, *arguments)):
                raise Miss("commands", f"never {pattern_text(pattern)}", text_of(call))


def _writes(context: Context, step: Mapping[str, Any]) -> None:
    sent = context.sent(step)
    texts = scripts.texts_of(sent)
    for call in sent:
        if scripts.may_write(call, texts) and not any(
            _like(context, p, call.words) for p in step["writes"]
        ):
            allowed = " or ".join(map(pattern_text, step["writes"])) or "none"
            raise Miss("commands that write", allowed, text_of(call))


def _burst(context: Context, step: Mapping[str, Any]) -> None:
    subject = f"largest number of jobs in one round trip of {step.get('process', 'driver')}"
    context.must(subject, step["burst"], number(burst(context.sent(step))))


def _atomic(context: Context, step: Mapping[str, Any]) -> None:
    keys = {context.state.key(key).encode() for key in step["atomic"]}
    of = context.state.key(step["of"]).encode() if "of" in step else None
    whole = False
    for unit in units(context.sent(step)):
        if of is not None and not any(of in call.words for call in unit):
            continue
        # Only keys: an identity may also be a value of another key.
        touched = {
            key for call in unit if call.spec.may_write for key in keys_of(call.words)
        } & keys
        puts = [call for call in unit if call.spec.effect == "puts"]
        added = {key for call in puts for key in keys_of(call.words)} & keys
        whole = whole or touched == keys
        if added and touched != keys:
            sent = [call.name.decode("utf-8", "replace") for call in unit]
            raise Miss("one step", sorted(step["atomic"]), [sent, *map(bytes.decode, added)])
    if not whole:
        raise Miss("one step", sorted(step["atomic"]), ABSENT)


def _alike(context: Context, step: Mapping[str, Any]) -> None:
    """Check how often a process tried to put something into a key, always the same.

    Only `enqueued_at` may be new each time. With `further`, others may follow, each once.
    """
    key, times = context.state.key(step["alike"]["key"]), step["alike"]["times"]
    # A transaction may have a command for each job.
    tries = [
        [
            _ENQUEUED_AT.sub(b"", word)
            for call in unit
            if call.spec.effect == "puts" or call.spec.runs_script
            if key.encode() in call.words and not (call.reply or b"").startswith(b"-NOSCRIPT")
            for word in call.words
        ]
        for unit in sorted(units(context.sent(step)), key=lambda unit: unit[0].at)
    ]
    sent = [words for words in tries if words]
    further = sent[times:] if step["alike"].get("further", False) else []
    alike = sent[: len(sent) - len(further)]
    repeated = any(sent.count(words) > 1 for words in further)
    if len(alike) != times or any(words != alike[0] for words in alike) or repeated:
        seen = [b" ".join(words).decode("utf-8", "replace")[:300] for words in sent]
        raise Miss(f"commands that put something into {key}", f"{times}, all alike", seen)


def _ordered(context: Context, step: Mapping[str, Any]) -> None:
    """Check that the last write of a process to one key came before its last to another."""
    process, keys = step["process"], step["ordered"]
    last: list[float] = []
    for key in keys:
        word = context.state.key(key).encode()
        sent = [c.at for c in context.sent(step) if c.spec.may_write and word in c.words]
        if not sent:
            raise Miss(f"writes of {process} to {key}", "at least one", ABSENT)
        last.append(sent[-1])
    if last != sorted(last):
        seen = [key for _, key in sorted(zip(last, keys, strict=True))]
        raise Miss(f"order of the last writes of {process}", keys, seen)


def _namespaced(context: Context, step: Mapping[str, Any]) -> None:
    """Check that all keys of a process's commands have the namespace."""
    prefix = context.sandbox.config.prefix.encode()
    for call in context.sent(step):
        for key in keys_of(call.words) if call.spec.kind != "unknown" else ():
            if not key.startswith(prefix):
                raise Miss("a key", f"a key that begins with {prefix.decode()}", text_of(call))


def _contracts(context: Context, step: Mapping[str, Any]) -> None:
    """Check the KEYS and ARGV of the calls of canonical scripts."""
    prefix = context.sandbox.config.prefix
    for call in context.sent(step):
        script = script_call(call.words)
        name = None if script is None else canonical(script.sha)
        if script is None or name is None:
            continue
        keys = [word.decode("utf-8", "surrogateescape") for word in script.keys]
        arguments = [word.decode("utf-8", "surrogateescape") for word in script.arguments]
        misfit = fault(name, [key.removeprefix(prefix) for key in keys], arguments)
        if misfit is not None:
            raise Miss(f"a call of {name}.lua", "the KEYS and ARGV of section 18", misfit)


def _declared(context: Context, step: Mapping[str, Any]) -> None:
    """Check that scripts access only the keys in their KEYS."""
    keys: set[bytes] = set()
    sha, scripts = "", 0
    for executed in context.sandbox.executed():
        if not executed.by_script:
            if executed.words and spec_of(executed.words[0]).runs_script:
                keys = {*keys_of(executed.words)}
                sha = executed.words[1][:40].decode("utf-8", "replace")
                scripts += 1
            continue
        try:
            touched = context.sandbox.link.call("COMMAND", "GETKEYS", *executed.words)
        except EnvironmentFault:
            continue  # a command without keys
        if hidden := {*touched} - keys:
            shown = sorted(key.decode("utf-8", "replace") for key in hidden)
            raise Miss(f"keys that script {sha} accesses", "all in KEYS", shown)
    if not scripts:
        raise Miss("calls of scripts", "at least one", ABSENT)


PARTS: Mapping[str, Check] = {
    "commands": _commands,
    "never": _never,
    "writes": _writes,
    "burst": _burst,
    "atomic": _atomic,
    "alike": _alike,
    "ordered": _ordered,
    "namespaced": _namespaced,
    "declared": _declared,
    "contracts": _contracts,
}
