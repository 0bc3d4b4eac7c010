"""The page on inspection: its commands exist, and its programs run."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from harness.servers import Server
from jobwire.cli import cli
from jobwire.inspect import AsyncInspector, Inspector

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "how-to" / "inspect.md").read_text("utf-8")
CODE = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
LINES = [
    line.partition(" | ")[0] for kind, code in CODE if kind == "sh" for line in code.splitlines()
]
PROGRAMS = [code for kind, code in CODE if kind == "python"]


def inspect_group() -> click.Group:
    found = cli.get_command(click.Context(cli), "inspect")
    assert isinstance(found, click.Group)
    return found


@pytest.mark.parametrize("line", LINES)
def test_a_command_is_one(line: str) -> None:
    """The command is parsed to its last word, not run."""
    program, group, name, *words = shlex.split(line, comments=True)
    assert (program, group) == ("jobwire", "inspect")
    inspect_group().commands[name].make_context(name, words)


def test_every_command_is_named() -> None:
    named = set(re.findall(r"`([a-z-]+)(?: [A-Z\[\]]+)?`", PAGE))
    assert set(inspect_group().commands) - named == set()


@pytest.mark.parametrize("program", PROGRAMS, ids=range(len(PROGRAMS)))
def test_a_program_runs(server: Server, monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    client = server.client()
    client.sadd("queues", "default")
    client.lpush("queue:default", '{"class":"A","args":[],"jid":"a"}')
    for name in ("retry", "dead"):
        client.zadd(name, {'{"class":"A","args":[],"jid":"a","error_class":"Timeout"}': 1})
    monkeypatch.setenv("REDIS_URL", server.url)
    code = program.replace("redis://localhost:6379/0", server.url)
    if "await" in code or "async " in code:
        body = "".join(f"    {line}\n" for line in code.splitlines())
        code = f"import asyncio\nasync def main() -> None:\n{body}asyncio.run(main())\n"
    exec(compile(code, "docs/how-to/inspect.md", "exec"), {})
    assert client.zcard("retry") + client.zcard("dead") < 2 or AsyncInspector.__name__ in code
    assert Inspector.__name__ in code
