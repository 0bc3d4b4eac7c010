"""Writes the asyncio twins of blocking modules.

    .venv/bin/python -m tools.twins --write
    .venv/bin/python -m tools.twins --check

A twin differs from its source by the words `async` and `await`, by the names in the table below,
and by two docstrings. Everything that is not mechanical belongs in a module that both import.
"""

from __future__ import annotations

import ast
import io
import subprocess
import sys
import tokenize
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import click

ROOT = Path(__file__).resolve().parents[1]
TOOL = "tools/twins.py"
COMMAND = ".venv/bin/python -m tools.twins --write"


@dataclass(frozen=True, kw_only=True)
class Twin:
    """The differences between a blocking module and its asyncio twin.

    Attributes:
        source: The blocking module, a path from the root of the repository.
        target: The asyncio module that is written.
        names: Identifiers, and strings that are equal to one, with their replacements.
        awaited: The functions to await when they are called, as the source spells them. A
            function that calls one of them becomes `async def`.
        module_doc: Docstring of the twin.
        class_doc: Docstring of its class.
    """

    source: str
    target: str
    names: Mapping[str, str]
    awaited: frozenset[str]
    module_doc: str
    class_doc: str


TWINS = (
    Twin(
        source="python/jobwire/application/client.py",
        target="python/jobwire/application/aio.py",
        names={
            "Client": "AsyncClient",
            "SyncRedis": "AsyncRedis",
            "sync": "aio",
            "Iterator": "AsyncIterator",
            "Closing": "AsyncClosing",
        },
        awaited=frozenset(["self.redis.run", "self.redis.close", "self.read_output"]),
        module_doc="The asyncio client, the twin of `Client`.",
        class_doc="""\
Pushes jobs from asyncio; the twin of `Client`, which documents the parameters.

        async with AsyncClient("redis://localhost:6379/0") as client:
            await client.push("HardJob", [1, "two"], queue="critical")

    It belongs to the event loop in which it is first used. Middleware may be sync or `async def`;
    sync middleware outside an async one must return `call_next()` unchanged. [PUSH-7]
    """,
    ),
    Twin(
        source="python/jobwire/inspect/sync.py",
        target="python/jobwire/inspect/aio.py",
        names={
            "Inspector": "AsyncInspector",
            "SyncRedis": "AsyncRedis",
            "sync": "aio",
            "Iterator": "AsyncIterator",
            "Closing": "AsyncClosing",
        },
        awaited=frozenset(["self.redis.run", "self.redis.close", "self._run"]),
        module_doc="The asyncio inspector, the twin of `Inspector`.",
        class_doc="""\
Looks at queues, sets and processes from asyncio; the twin of `Inspector`, which documents
    the parameters.

        async with AsyncInspector("redis://localhost:6379/0") as inspector:
            async for job in inspector.entries("retry", only=Filter(error="timeout")):
                await inspector.retry(job)

    Belongs to the event loop in which it is first used.
    """,
    ),
    Twin(
        source="python/jobwire/inspect/periodic_sync.py",
        target="python/jobwire/inspect/periodic_aio.py",
        names={
            "PeriodicJobs": "AsyncPeriodicJobs",
            "SyncRedis": "AsyncRedis",
            "sync": "aio",
            "Closing": "AsyncClosing",
        },
        awaited=frozenset(["self._redis.run", "self._redis.close"]),
        module_doc="The asyncio operator of periodic jobs, the twin of `PeriodicJobs`.",
        class_doc="""\
The periodic jobs of a Redis from asyncio; the twin of `PeriodicJobs`, which documents the
    parameters.

        async with AsyncPeriodicJobs() as jobs:
            for job in await jobs.all():
                print(job.entry.name, job.next_at)

    Belongs to the event loop in which it is first used.
    """,
    ),
)


class TwinError(Exception):
    """The source cannot be made into a twin by its table."""


class Edit(NamedTuple):
    """One replacement: begin and end as (line from 1, column in bytes), and the new text."""

    start: tuple[int, int]
    end: tuple[int, int]
    text: str


def generate(source: str, twin: Twin) -> str:
    """Return the text of the twin, not formatted yet.

    Raises:
        TwinError: The table has an entry that the source does not use.
    """
    tree = ast.parse(source)
    (only_class,) = (node for node in tree.body if isinstance(node, ast.ClassDef))
    used: set[str] = set()
    edits = [
        _replace(tree.body[0], f'"""{twin.module_doc}"""'),
        _replace(only_class.body[0], f'"""{twin.class_doc}"""'),
        *_renamed(source, twin.names, used),
        *_awaited(only_class, twin.awaited, used),
    ]
    if unused := sorted({*twin.names, *twin.awaited} - used):
        raise TwinError(
            f"{twin.source} does not use {', '.join(unused)}: correct the table in {TOOL}"
        )
    name = Path(twin.source).name
    return f"# Generated from {name} by {TOOL}; change {name} instead.\n{_apply(source, edits)}"


def _renamed(source: str, names: Mapping[str, str], used: set[str]) -> Iterator[Edit]:
    """Rename identifiers, and strings that are equal to one, like those in `__all__`."""
    lines = source.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        bare = token.string.strip('"') if token.type == tokenize.STRING else token.string
        if token.type in (tokenize.NAME, tokenize.STRING) and bare in names:
            used.add(bare)
            start, end = (
                (line, len(lines[line - 1][:column].encode()))
                for line, column in (token.start, token.end)
            )
            yield Edit(start, end, token.string.replace(bare, names[bare]))


def _awaited(owner: ast.ClassDef, awaited: frozenset[str], used: set[str]) -> Iterator[Edit]:
    """Make methods that call an awaited function `async def`, and their generators asynchronous."""
    for function in owner.body:
        if not isinstance(function, ast.FunctionDef):
            continue
        calls = [
            node
            for node in ast.walk(function)
            if isinstance(node, ast.Call) and ast.unparse(node.func) in awaited
        ]
        used.update(ast.unparse(call.func) for call in calls)
        if not calls:
            continue
        yield _insert(function, "async ")
        yield from (_insert(call, "await ") for call in calls)
        for node in ast.walk(function):
            # An asynchronous generator cannot delegate to another.
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.YieldFrom):
                yield _replace(
                    node,
                    f"for item in {ast.unparse(node.value.value)}:\n"
                    f"{' ' * (node.col_offset + 4)}yield item",
                )


def _insert(node: ast.expr | ast.FunctionDef, word: str) -> Edit:
    return Edit((node.lineno, node.col_offset), (node.lineno, node.col_offset), word)


def _replace(node: ast.stmt, text: str) -> Edit:
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    return Edit((node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset), text)


def _apply(source: str, edits: list[Edit]) -> str:
    lines = [line.encode() for line in source.splitlines(keepends=True)]
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    data = b"".join(lines)
    for edit in sorted(edits, reverse=True):
        start, end = (starts[line - 1] + column for line, column in (edit.start, edit.end))
        data = data[:start] + edit.text.encode() + data[end:]
    return data.decode()


def formatted(text: str, name: str) -> str:
    """Return the text as ruff writes it, with sorted imports."""
    for arguments in (["check", "--quiet", "--select=I", "--fix"], ["format", "--quiet"]):
        text = subprocess.run(
            [sys.executable, "-m", "ruff", *arguments, f"--stdin-filename={name}", "-"],
            input=text,
            capture_output=True,
            text=True,
            check=True,
            cwd=ROOT,
            timeout=60,
        ).stdout
    return text


def build(twin: Twin, root: Path = ROOT) -> str:
    """Return the expected text of the twin's file."""
    return formatted(generate((root / twin.source).read_text("utf-8"), twin), twin.target)


def main(arguments: list[str], root: Path = ROOT) -> int:
    """Check or write all twins below `root`; return the exit status."""
    if arguments not in (["--check"], ["--write"]):
        click.echo("usage: twins --check | --write", err=True)
        return 2
    status = 0
    for twin in TWINS:
        path, text = root / twin.target, build(twin, root)
        if path.read_text("utf-8") == text:
            continue
        if arguments == ["--write"]:
            path.write_text(text, "utf-8")
        else:
            click.echo(f"{twin.target} does not follow from {twin.source}; run: {COMMAND}")
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
