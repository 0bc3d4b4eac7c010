"""`jobwire validate`: what a payload, or a fixture file, breaks."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

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
    help="Who has to be content: whoever checks what writers of generation 7 or 8 write, or any "
    "reader. Default: reader; for entries of a fixture file, whom they speak of.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
def validate(file: str, generation: str | None, as_json: bool) -> int:
    """Say which rules of the specification a payload breaks, and where.

    FILE, or standard input for -, holds one payload, several payloads, one a line, or a fixture
    file. Each rule has a verdict, with the path in the JSON and the requirement's id; see
    `jobwire spec ID`. Needs: pip install 'jobwire[spec]'.

    Exit status: 0 valid; 1 not; 2 wrong usage.
    """
    from jobwire.spec import fixture_files, verdicts
    from jobwire_conformance.judge.payloads import can_judge

    if not can_judge():
        raise click.UsageError("needs jsonschema: pip install 'jobwire[spec]'")
    text = _content(file)
    part = _PARTS.get(generation or "")
    entries = fixture_files.entries(text)
    if entries is not None:
        return _fixture(text, entries, part, as_json)
    payloads = _payloads(text)
    if not payloads:
        raise click.UsageError(f"{'standard input' if file == '-' else file} is empty")
    bad = 0
    for number, payload in payloads:
        found = verdicts.judge(payload, part or "reader")
        bad += any(verdict.broken for verdict in found)
        _report(f"line {number}" if len(payloads) > 1 else None, found, as_json)
    if len(payloads) > 1 and not as_json:
        click.echo(f"{len(payloads)} payloads, {bad} invalid", err=True)
    return 1 if bad else 0


def _fixture(text: bytes, entries: list[dict[str, Any]], part: Part | None, as_json: bool) -> int:
    from jobwire.spec import fixture_files

    shape = [*fixture_files.shape_problems(entries)]
    for problem in shape:
        if as_json:
            click.echo(json.dumps({"name": None, "valid": False, "problem": problem}))
        else:
            click.echo(f"schema/fixture.json  {problem}")
    judged = [j for entry in entries if (j := fixture_files.judge_entry(entry, part)) is not None]
    wrong = [one for one in judged if one.problem]
    for one in judged if as_json else wrong:
        if as_json:
            _report(one.name, one.verdicts, True, says=one.says, problem=one.problem)
        else:
            click.echo(f"{one.name}: {one.problem}")
            _lines([verdict for verdict in one.verdicts if verdict.problem], "  ")
    if not as_json:
        click.echo(
            f"{len(entries)} entries, {len(judged)} payloads, "
            f"{len(wrong)} that are not as they say",
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

    A text is one payload, unless it is no JSON and some line of it alone is an object. The line
    break at its end is its editor's.
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


def _report(name: str | None, found: list[PayloadVerdict], as_json: bool, **more: object) -> None:
    broken = [verdict for verdict in found if verdict.broken]
    if as_json:
        listed = [
            {
                "rule": verdict.rule,
                "verdict": _word(verdict),
                "path": verdict.path,
                "problem": verdict.problem or None,
            }
            for verdict in found
        ]
        said = {"name": name, "valid": not broken, **more, "verdicts": listed}
        click.echo(json.dumps(said, ensure_ascii=False))
        return
    words = "valid" if not broken else "invalid"
    click.echo(f"{name}: {words}" if name else words)
    _lines(found, "  ")


def _lines(found: list[PayloadVerdict], indent: str) -> None:
    """Print what is broken, one problem a line, and then the rules that are kept."""
    problems: dict[tuple[str, str, str], list[str]] = {}
    for verdict in found:
        if verdict.problem:
            problems.setdefault((_word(verdict), verdict.path, verdict.problem), []).append(
                verdict.rule
            )
    for (word, path, problem), rules in problems.items():
        click.echo(f"{indent}{word:7}{', '.join(dict.fromkeys(rules)):9} {path}  {problem}")
    if kept := list(dict.fromkeys(verdict.rule for verdict in found if not verdict.problem)):
        click.echo(f"{indent}{'kept':7}{' '.join(kept)}")


def _word(verdict: PayloadVerdict) -> str:
    if verdict.is_note:
        return "note"
    return "broken" if verdict.broken else "kept"
