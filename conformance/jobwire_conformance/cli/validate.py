"""`jobwire validate`: checks the objects that programs write to Redis against the specification."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click

from jobwire_conformance.cli import print_error
from jobwire_conformance.errors import EnvironmentFault, Usage
from jobwire_conformance.judge.objects import OBJECTS
from jobwire_conformance.judge.payloads import Place, Role, View
from jobwire_conformance.judge.schemas import can_judge
from jobwire_conformance.spec import fixture_files, verdicts
from jobwire_conformance.spec.verdicts import Level, Verdict
from jobwire_conformance.wire.text import one_line

__all__ = ["validate"]


class _Text(NamedTuple):
    """One text to check, with its name in the output."""

    name: str
    text: bytes


class _Check(NamedTuple):
    """The kind of the texts, and the rules that they have to keep."""

    schema: str
    view: View
    level: Level

    def verdicts(self, text: bytes) -> list[Verdict]:
        """Return the verdicts of all rules on one text."""
        level = self.level if self.view.role == "writer" else "robust"
        if self.schema == "payload":
            return verdicts.judge(text, self.view, level)
        return verdicts.judge_object(text, self.schema, self.view, level)


@click.command()
@click.argument("files", metavar="[FILE|-]...", nargs=-1)
@click.option(
    "--schema",
    type=click.Choice(["payload", *OBJECTS]),
    help="The kind of the objects. A hash is a JSON object of texts, a list is a JSON array. "
    "Default: payload.",
)
@click.option(
    "--in",
    "place",
    type=click.Choice(["queue", "schedule", "retry", "dead"]),
    help="The place of the payloads. Default: any place.",
)
@click.option(
    "--as",
    "role",
    type=click.Choice(["reader", "writer"]),
    help="reader: the objects that a reader has to accept. writer: those that a program may write. "
    "Default: writer with --generation, else reader.",
)
@click.option(
    "--generation",
    type=click.Choice(["6.4", "7.3", "8.1"]),
    help="The generation that the writer writes. Default: 8.1.",
)
@click.option(
    "--level",
    type=click.Choice(["interop", "robust"]),
    default="interop",
    show_default=True,
    help="The rules of a writer that count: those that other programs depend on, or all.",
)
@click.option("--lines", is_flag=True, help="Each line is an object of its own.")
@click.option(
    "--redis",
    "url",
    metavar="URL",
    help="Check the objects in this server, found by the names of their keys. Read only.",
)
@click.option("--namespace", default="", help="With --redis: prefix of every key.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=1000,
    show_default=True,
    help="With --redis: the most elements of one key.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
def validate(
    files: tuple[str, ...],
    schema: str | None,
    place: Place | None,
    role: Role | None,
    generation: str | None,
    level: Level,
    lines: bool,
    url: str | None,
    namespace: str,
    limit: int,
    as_json: bool,
) -> int:
    """Report the rules of the specification that objects in Redis break.

    Each FILE, or standard input for -, holds one object as JSON; with --lines, one on each line.
    With --redis, the objects come from a server, and only the invalid ones are printed.
    A fixture file is checked against its own descriptions. Each broken rule is printed with the
    requirement's id, the place in the JSON, the value, and the form that is expected; see
    `jobwire spec ID`. Needs: pip install 'jobwire[conformance]'.

    Exit status: 0 all valid; 1 some invalid; 2 wrong usage.
    """
    if not can_judge():
        raise click.UsageError("needs jsonschema: pip install 'jobwire[conformance]'")
    view = View(role or ("writer" if generation else "reader"), place, generation or "8.1")
    if bool(files) == bool(url):
        raise click.UsageError("give either a FILE, - for standard input, or --redis URL")
    if url:
        if schema or place or lines:
            raise click.UsageError("--redis finds kinds and places by the names of the keys")
        return _server(url, namespace, limit, _Check("", view, level), as_json)
    schema = schema or "payload"
    if place and schema != "payload":
        raise click.UsageError(f"--in is for payloads; leave it out for --schema {schema}")
    if schema != "payload" and view.generation not in OBJECTS[schema].generations:
        raise click.UsageError(f"generation {view.generation} has no object {schema}")
    check = _Check(schema, view, level)
    is_default = view == View()
    texts: list[_Text] = []
    fixtures = 0
    for file in files:
        content = _content(file)
        entries = None if lines or schema != "payload" else fixture_files.entries(content)
        if entries is not None:
            fixtures += _fixture(entries, None if is_default else view, as_json)
            continue
        found = [*_texts(file, content, lines=lines, many=len(files) > 1)]
        if not found:
            raise click.UsageError(f"{'standard input' if file == '-' else file} is empty")
        texts += found
    invalid = 0
    for text in texts:
        judged = check.verdicts(text.text)
        invalid += any(verdict.broken for verdict in judged)
        _report(text.name, judged, as_json, check=check)
    if len(texts) > 1 and not as_json:
        click.echo(f"{len(texts):,} objects, {invalid} invalid", err=True)
    return 1 if invalid or fixtures else 0


def _server(url: str, namespace: str, limit: int, check: _Check, as_json: bool) -> int:
    """Check the objects in a server; return the exit status."""
    from jobwire_conformance.sandbox.external_server import parse
    from jobwire_conformance.spec.keyspace import Odd, stored

    count = invalid = 0
    try:
        server = parse(url, may_encrypt=True).link()
        for found in stored(server, limit, namespace):
            if isinstance(found, Odd):
                one = check
                judged = [Verdict(found.rule, "$", found.seen, found.expected, found.kind)]
            else:
                one = check._replace(
                    schema=found.schema, view=check.view._replace(place=found.place)
                )
                judged = one.verdicts(found.text)
            count += 1
            is_broken = any(verdict.broken for verdict in judged)
            invalid += is_broken
            if is_broken or as_json or isinstance(found, Odd):
                _report(found.name, judged, as_json, check=one)
    except Usage as error:
        raise click.UsageError(str(error)) from None
    except EnvironmentFault as error:
        return print_error(error)
    server.close()
    if not as_json:
        click.echo(f"{count:,} object{'s' * (count != 1)}, {invalid} invalid", err=True)
    return 1 if invalid else 0


def _fixture(entries: list[dict[str, Any]], view: View | None, as_json: bool) -> bool:
    """Report on a fixture file; return whether it differs from its descriptions."""
    shape = [*fixture_files.shape_problems(entries)]
    for problem in shape:
        if as_json:
            click.echo(json.dumps({"name": None, "valid": False, "problem": problem}))
        else:
            click.echo(f"schema/fixture.json  {problem}")
    verdicts = [fixture_files.judge_entry(entry, view) for entry in entries]
    judged = [verdict for verdict in verdicts if verdict is not None]
    wrong = [entry for entry in judged if entry.problem]
    for entry in judged if as_json else wrong:
        if as_json:
            _report(entry.name, entry.verdicts, True, says=entry.says, problem=entry.problem)
        else:
            click.echo(f"{entry.name}: {entry.problem}")
            _lines([verdict for verdict in entry.verdicts if verdict.problem], "  ")
    if not as_json:
        click.echo(
            f"{len(entries)} entries, {len(judged)} payloads, "
            f"{len(wrong)} that differ from their description",
            err=True,
        )
    return bool(wrong or shape)


def _content(file: str) -> bytes:
    if file == "-":
        return sys.stdin.buffer.read()
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise click.UsageError(f"cannot read {file}: {error.strerror}") from None


def _texts(file: str, content: bytes, *, lines: bool, many: bool) -> Iterator[_Text]:
    """Yield the texts of a file. The line break at its end comes from an editor or a shell."""
    if not lines:
        whole = content.removesuffix(b"\n").removesuffix(b"\r")
        if whole.strip():
            yield _Text(file if many else "", whole)
        return
    for number, line in enumerate(content.split(b"\n"), 1):
        if line.strip():
            name = f"{file}, line {number}" if many else f"line {number}"
            yield _Text(name, line.removesuffix(b"\r"))


def _report(
    name: str,
    verdicts: list[Verdict],
    as_json: bool,
    *,
    check: _Check | None = None,
    **details: object,
) -> None:
    broken = [verdict for verdict in verdicts if verdict.broken]
    if as_json:
        listed = [
            {
                "rule": verdict.rule or None,
                "verdict": verdict.kind,
                "path": verdict.path,
                "seen": verdict.seen or None,
                "expected": verdict.expected or None,
            }
            for verdict in verdicts
        ]
        if check is not None:
            details["schema"] = check.schema
            details["as"] = check.view.role
            details["in"] = check.view.place
            details["generation"] = check.view.generation
        record = {"name": name or None, "valid": not broken, **details, "verdicts": listed}
        click.echo(json.dumps(record))
        return
    result = "valid" if not broken else "invalid"
    click.echo(f"{_shown(name)}: {result}" if name else result)
    _lines(verdicts, "  ")


def _shown(text: str) -> str:
    return one_line(text, 2000)


def _lines(verdicts: list[Verdict], indent: str) -> None:
    """Print the broken rules, one problem on each line, and then the rules that are kept."""
    problems: dict[tuple[str, str, str], list[str]] = {}
    for verdict in verdicts:
        if verdict.problem:
            problems.setdefault((verdict.kind, verdict.path, verdict.problem), []).append(
                verdict.rule
            )
    for (kind, path, problem), rules in problems.items():
        named = ", ".join(dict.fromkeys(rules))
        click.echo(f"{indent}{kind:7}{named:9} {_shown(f'{path}  {problem}')}")
    if kept := list(dict.fromkeys(verdict.rule for verdict in verdicts if not verdict.problem)):
        click.echo(f"{indent}{'kept':7}{' '.join(kept)}")
