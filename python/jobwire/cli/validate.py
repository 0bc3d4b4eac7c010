"""`jobwire validate`: checks payloads and fixture files against the specification."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from jobwire.protocol.plural import counted
from jobwire.protocol.visible import visible, visible_json

if TYPE_CHECKING:
    from jobwire.spec.verdicts import PayloadVerdict
    from jobwire_conformance.judge.payloads import Part

__all__ = ["validate"]

_PARTS: dict[str, Part] = {"7": "generation-7", "8": "generation-8", "reader": "reader"}


@click.command()
@click.argument("file", metavar="FILE|-", type=click.Path(allow_dash=True))
@click.option(
    "--generation",
    type=click.Choice([*_PARTS]),
    help="Check the rules for writers of generation 7 or 8, or those for readers. Default: reader; "
    "for an entry of a fixture file, the rules that the entry names.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
def validate(file: str, generation: str | None, as_json: bool) -> int:
    """Report the rules of the specification that a payload breaks.

    FILE, or standard input for -, holds one payload, several payloads with one on each line, or a
    fixture file. Each rule gets a verdict, with the path in the JSON and the requirement's id; see
    `jobwire spec ID`. Needs: pip install 'jobwire[conformance]'.

    Exit status: 0 valid; 1 invalid; 2 wrong usage.
    """
    from jobwire.spec import fixture_files, verdicts
    from jobwire_conformance.judge.payloads import can_judge

    if not can_judge():
        raise click.UsageError("needs jsonschema: pip install 'jobwire[conformance]'")
    text = _content(file)
    part = _PARTS.get(generation or "")
    entries = fixture_files.entries(text)
    if entries is not None:
        return _fixture(text, entries, part, as_json)
    payloads = _payloads(text)
    if not payloads:
        raise click.UsageError(f"{'standard input' if file == '-' else file} is empty")
    invalid = 0
    for number, payload in payloads:
        judged = verdicts.judge(payload, part or "reader")
        invalid += any(verdict.broken for verdict in judged)
        _report(f"line {number}" if len(payloads) > 1 else None, judged, as_json)
    if len(payloads) > 1 and not as_json:
        click.echo(f"{counted(len(payloads), 'payload')}, {invalid} invalid", err=True)
    return 1 if invalid else 0


def _fixture(text: bytes, entries: list[dict[str, Any]], part: Part | None, as_json: bool) -> int:
    from jobwire.spec import fixture_files

    shape = [*fixture_files.shape_problems(entries)]
    for problem in shape:
        if as_json:
            click.echo(json.dumps({"name": None, "valid": False, "problem": problem}))
        else:
            click.echo(f"schema/fixture.json  {problem}")
    verdicts = [fixture_files.judge_entry(entry, part) for entry in entries]
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
    return 1 if wrong or shape else 0


def _content(file: str) -> bytes:
    if file == "-":
        return sys.stdin.buffer.read()
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise click.UsageError(f"cannot read {file}: {error.strerror}") from None


def _payloads(text: bytes) -> list[tuple[int, bytes]]:
    """Return the payloads with their line numbers.

    The text is one payload, unless it is not JSON and at least one of its lines is a JSON object.
    The line break at its end comes from an editor and does not count.
    """
    whole = text.removesuffix(b"\n").removesuffix(b"\r")
    lines = [
        (number, line.removesuffix(b"\r"))
        for number, line in enumerate(text.split(b"\n"), 1)
        if line.strip()
    ]
    if len(lines) > 1 and not _is_json(whole) and any(_is_object(line) for _, line in lines):
        return lines
    return [(1, whole)] if whole.strip() else []


def _is_json(text: bytes) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _is_object(text: bytes) -> bool:
    return text.lstrip().startswith(b"{") and _is_json(text)


def _report(
    name: str | None, verdicts: list[PayloadVerdict], as_json: bool, **details: object
) -> None:
    broken = [verdict for verdict in verdicts if verdict.broken]
    if as_json:
        listed = [
            {
                "rule": verdict.rule,
                "verdict": _word(verdict),
                "path": verdict.path,
                "problem": verdict.problem or None,
            }
            for verdict in verdicts
        ]
        record = {"name": name, "valid": not broken, **details, "verdicts": listed}
        click.echo(visible_json(json.dumps(record, ensure_ascii=False)))
        return
    result = "valid" if not broken else "invalid"
    click.echo(f"{name}: {result}" if name else result)
    _lines(verdicts, "  ")


def _lines(verdicts: list[PayloadVerdict], indent: str) -> None:
    """Print the broken rules, one problem on each line, and then the rules that are kept."""
    problems: dict[tuple[str, str, str], list[str]] = {}
    for verdict in verdicts:
        if verdict.problem:
            problems.setdefault((_word(verdict), verdict.path, verdict.problem), []).append(
                verdict.rule
            )
    for (word, path, problem), rules in problems.items():
        click.echo(
            f"{indent}{word:7}{', '.join(dict.fromkeys(rules)):9} {visible(f'{path}  {problem}')}"
        )
    if kept := list(dict.fromkeys(verdict.rule for verdict in verdicts if not verdict.problem)):
        click.echo(f"{indent}{'kept':7}{' '.join(kept)}")


def _word(verdict: PayloadVerdict) -> str:
    if verdict.is_note:
        return "note"
    return "broken" if verdict.broken else "kept"
