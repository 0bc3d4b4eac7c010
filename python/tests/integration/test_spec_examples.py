"""Every example of SPEC.md: commands typed into a real server, payloads held to their schema."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from jobwire.spec.document import Fence, read
from tests.servers import Server

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = read((ROOT / "SPEC.md").read_text("utf-8")).fences
FENCES = [fence for fence in EXAMPLES if fence.language == "redis-cli"]
PAYLOADS = [fence for fence in EXAMPLES if fence.language == "json"]
REPLY = "# =>"


def session(fence: Fence) -> list[tuple[str, list[str]]]:
    """Return the commands with the lines of the replies that stand below them."""
    found: list[tuple[str, list[str]]] = []
    for line in filter(None, fence.text.splitlines()):
        if line.startswith(REPLY):
            found[-1][1].append(line.removeprefix(REPLY).removeprefix(" "))
        else:
            found.append((line, []))
    return found


def shown(reply: Any) -> list[str]:
    """Return the lines by which redis-cli shows a reply."""
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


@pytest.mark.parametrize("fence", FENCES, ids=lambda fence: f"SPEC.md:{fence.line}")
def test_the_server_replies_as_the_specification_says(fence: Fence, server: Server) -> None:
    client = server.client(protocol=2)
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
    """PAY-2, PAY-12: those shown, and those in commands; and a broken one would be found."""
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
