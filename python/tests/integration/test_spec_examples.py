"""Every example of the specification: commands run on a server, payloads fit the schema."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from harness.servers import Server
from jobwire_conformance.spec.document import Fence, read_checkout

ROOT = Path(__file__).resolve().parents[3]
DOCUMENT = read_checkout(ROOT)
EXAMPLES = DOCUMENT.fences
FENCES = [fence for fence in EXAMPLES if fence.language == "redis-cli"]
PAYLOADS = [fence for fence in EXAMPLES if fence.language == "json"]
REPLY = "# =>"


def session(fence: Fence) -> list[tuple[str, list[str]]]:
    """Return the commands with the lines of the replies that stand below them.

    Other lines that begin with `#` are comments.
    """
    found: list[tuple[str, list[str]]] = []
    for line in filter(None, fence.text.splitlines()):
        if line.startswith(REPLY):
            found[-1][1].append(line.removeprefix(REPLY).removeprefix(" "))
        elif not line.startswith("#"):
            found.append((line, []))
    return found


def shown(reply: Any) -> list[str]:
    """Return the lines with which redis-cli shows a reply."""
    match reply:
        case None:
            return ["(nil)"]
        case int():
            return [f"(integer) {reply}"]
        case b"OK" | b"QUEUED":
            return [reply.decode()]
        case bytes():
            return ['"' + reply.decode().replace("\\", "\\\\").replace('"', '\\"') + '"']
        case []:
            return ["(empty array)"]
    lines = []
    for number, item in enumerate(reply, 1):
        for head, line in zip([f"{number}) ", *["   "] * 1000], shown(item), strict=False):
            lines.append(head + line)
    return lines


def test_there_are_examples_with_replies() -> None:
    assert FENCES
    assert all(replies for fence in FENCES for _, replies in session(fence))


@pytest.mark.parametrize("fence", FENCES, ids=lambda fence: DOCUMENT.place(fence.line))
def test_the_server_replies_as_the_specification_says(fence: Fence, server: Server) -> None:
    client = server.client(protocol=2)
    for script in sorted((ROOT / "lua").glob("*.lua")):
        client.script_load(script.read_text("utf-8"))
    connection = client.connection_pool.get_connection()
    try:
        for command, replies in session(fence):
            connection.send_command(*shlex.split(command))
            assert shown(connection.read_response()) == replies, command
    finally:
        client.connection_pool.release(connection)
        client.close()


def payloads_in(command: str) -> list[str]:
    """Return the arguments of a command that are payloads."""
    return [word for word in shlex.split(command) if word.startswith("{") and '"class"' in word]


def test_payloads_are_valid() -> None:
    """PAY-2, PAY-12: examples of payloads and payloads in commands; a broken one is found."""
    schema = json.loads((ROOT / "schema" / "payload.json").read_text("utf-8"))
    validator = Draft202012Validator(schema)
    texts = [fence.text for fence in PAYLOADS]
    for fence in FENCES:
        texts += [text for command, _ in session(fence) for text in payloads_in(command)]
    assert len(PAYLOADS) >= 2
    assert len(texts) >= 8
    for text in texts:
        assert [error.message for error in validator.iter_errors(json.loads(text))] == [], text
        assert json.dumps(json.loads(text), separators=(",", ":")) == text
    broken = {**json.loads(texts[0]), "args": "x"}
    assert not validator.is_valid(broken)


def test_retries_are_due_whole_seconds_after_the_failure() -> None:
    """RETRY-4, RETRY-11: also where a script stores them."""
    script = hashlib.sha1((ROOT / "lua" / "finish.lua").read_bytes()).hexdigest()
    stores = (["ZADD", "retry"], ["EVALSHA", script, "retry"])
    delays = []
    for fence in FENCES:
        for command, _ in session(fence):
            words = shlex.split(command)
            for score, text in pairwise(words):
                if words[:2] in stores and text.startswith("{") and '"failed_at"' in text:
                    job = json.loads(text)
                    failed = Decimal(job.get("retried_at", job["failed_at"]))
                    delays.append(Decimal(score) - (failed / 1000 if failed >= 10**11 else failed))
    assert len(delays) >= 30
    assert [str(delay) for delay in delays if delay % 1 or delay < 15] == []


CORE = {"DIGIT": "[0-9]", "OCTET": r"[\s\S]"}  # of RFC 5234
TOKEN = re.compile(
    r'\s*(?:(?P<text>(?:%s)?"[^"]*")|%x(?P<low>[0-9a-f]{2})-(?P<high>[0-9a-f]{2})'
    r"|(?P<least>\d*)(?P<star>\*)(?P<most>\d*)|(?P<times>\d+)|(?P<sign>[()\[\]/])"
    r"|(?P<rule>[A-Za-z][A-Za-z-]*))"
)


def grammar() -> dict[str, str]:
    """Return the rules of the appendix by name."""
    (fence,) = [fence for fence in EXAMPLES if fence.language == "abnf"]
    text = "\n".join(line.partition(";")[0].rstrip() for line in fence.text.splitlines())
    rules = re.split(r"^([A-Za-z][A-Za-z-]*)\s*= ", text, flags=re.MULTILINE)
    assert rules[0] == ""
    return dict(zip(rules[1::2], rules[2::2], strict=True))


def pattern(rules: dict[str, str], name: str) -> str:
    """Return a rule as a regular expression."""
    if name in CORE:
        return CORE[name]
    found, repeat = "", ""
    text, position = rules[name].strip(), 0
    while position < len(text):
        token = TOKEN.match(text, position)
        assert token, f"{name}: {text[position:]}"
        position = token.end()
        match token.lastgroup:
            case "text":
                piece = re.escape(token["text"].removeprefix("%s").strip('"'))
            case "high":
                piece = rf"[\x{token['low']}-\x{token['high']}]"
            case "rule":
                piece = pattern(rules, token["rule"])
            case "most":
                repeat = f"{{{token['least'] or 0},{token['most']}}}"
                continue
            case "times":
                repeat = f"{{{token['times']}}}"
                continue
            case _:
                found += {"(": "(?:", "[": "(?:", "]": ")?", "/": "|"}.get(token["sign"], ")")
                continue
        found, repeat = f"{found}(?:{piece}){repeat}", ""
    return f"(?:{found})"


KEYS = [
    *("queues", "queue:default", "queue:queue:x", "schedule", "stat:processed:2026-08-17"),
    *("h::1:4711:0123456789ab", "a:1:0123456789ab:work", "a:1:0123456789ab-signals"),
    *("it-9f2c1b7a4d3e5f60718293a4", "j|250214|8:04", "j|250214|8:0", "h|A::B-4-23:9"),
    *("jobwire:private:a:1:0123456789ab", "jobwire:owners"),
]


KEYLESS = frozenset(["MULTI", "EXEC", "SCAN", "ACL", "AUTH"])


def keys_of(words: list[str]) -> list[str]:
    """Return the keys of a command of an example."""
    if words[0] == "EVALSHA":
        return words[3 : 3 + int(words[2])]
    return [] if words[0] in KEYLESS else words[1:2]


def test_the_examples_call_scripts_of_the_specification() -> None:
    """A script whose text changed has another SHA-1."""
    digests = {
        hashlib.sha1(path.read_bytes(), usedforsecurity=False).hexdigest(): path.stem
        for path in (ROOT / "lua").glob("*.lua")
    }
    called = [
        digests.get(words[1], words[1])
        for fence in FENCES
        for command, _ in session(fence)
        if (words := shlex.split(command))[0] == "EVALSHA"
    ]
    assert {"fetch", "done", "recover"} <= {*called} <= {*digests.values()}
    text = (ROOT / "spec" / "examples.md").read_text("utf-8")
    named = re.findall(r"`([0-9a-f]{8})…` is\s`(\w+)\.lua`", text)
    begins = {digest[:8]: name for digest, name in digests.items()}
    assert named
    assert [(begin, begins.get(begin)) for begin, _ in named] == named


def test_keys_follow_their_grammar() -> None:
    """KEY-1 to KEY-5: the keys of the examples, some more, and some that are not keys."""
    rules = grammar()
    key = re.compile(pattern(rules, "key"))
    bare = re.compile(pattern({**rules, "key": rules["key"].replace("[namespace]", "")}, "key"))
    used = {
        key
        for fence in FENCES
        for command, _ in session(fence)
        for key in keys_of(shlex.split(command))
    }
    assert len(used) > 10
    for name in used | {"{shard-03}:" + each for each in KEYS}:
        assert key.fullmatch(name), name
    for name in KEYS:
        assert bare.fullmatch(name), name
    for name in ("Queues", "queue:", "stat:failed:today", "j|250214|24:00", "jobwire:x", "it-1"):
        assert not bare.fullmatch(name), name
    assert re.fullmatch(pattern(rules, "private-field"), "17:queue: with : all")
