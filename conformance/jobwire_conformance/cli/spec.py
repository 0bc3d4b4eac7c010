"""`jobwire spec`: shows the specification, and checks a checkout of it."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

import click

from jobwire_conformance import data

if TYPE_CHECKING:
    from jobwire_conformance.spec.document import Document, Requirement
    from jobwire_conformance.spec.lints import Fault

__all__ = ["spec"]

_json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
_root_option = click.option(
    "--root",
    metavar="DIR",
    default=".",
    type=click.Path(path_type=Path),
    help="Checkout of the specification; default: the current directory.",
)
_write_option = click.option("--write", is_flag=True, help="Write the files instead.")


class _Group(click.Group):
    """A group that treats words other than its subcommands as ids of requirements."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if self.get_command(ctx, args[0]) is None:
            return "ID...", _show, args
        return super().resolve_command(ctx, args)


@click.group(
    cls=_Group, invoke_without_command=True, subcommand_metavar="[ID... | COMMAND [ARGS]...]"
)
@_json_option
@click.pass_context
def spec(ctx: click.Context, as_json: bool) -> None:
    """Read the specification: all of it, or single requirements.

    `jobwire spec` shows SPEC.md and its parts, page by page on a terminal. `jobwire spec RETRY-4`
    prints one requirement with its reason and, in a checkout, all its citations: code, schemas,
    scripts, fixtures and tests; elsewhere --json lists them. `jobwire spec claim client/core`
    prints the rules of a claim.

    The commands below are for authors of the specification. Exit status: 0 done; 1 faults found;
    2 wrong usage, or an unknown id.
    """
    ctx.obj = as_json
    if ctx.invoked_subcommand is None:
        _read_all(as_json)


@click.command("show")
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@_json_option
@click.pass_context
def _show(ctx: click.Context, ids: tuple[str, ...], as_json: bool) -> None:
    """Print requirements."""
    document = _read(data.shared_file(""))
    known = document.by_id
    for name in ids:
        if name.upper() not in known:
            raise click.UsageError(_unknown(name, [*known]), ctx.parent)
    index = _citations()
    chosen = [known[name.upper()] for name in dict.fromkeys(ids)]
    if as_json or ctx.obj:
        records = [
            {
                **found.as_data(),
                "place": document.place(found.line),
                "cited": index.get(found.id, {}),
            }
            for found in chosen
        ]
        printed = records if len(ids) > 1 else records[0]
        click.echo(json.dumps(printed, ensure_ascii=False, indent=2))
        return
    for number, requirement in enumerate(chosen):
        if number:
            click.echo()
        _print(requirement, document, index.get(requirement.id, {}))


@spec.command()
@click.argument("name", metavar="[CLAIM]", required=False)
@click.option(
    "--generation",
    type=click.Choice(data.GENERATIONS),
    default=data.DEFAULT_GENERATION,
    show_default=True,
    help="Generation of the protocol, by the release of Sidekiq.",
)
@click.option("--examples", is_flag=True, help="Also print the examples of each rule.")
@_json_option
def claim(name: str | None, generation: str, examples: bool, as_json: bool) -> None:
    """Print the sheet of a claim, such as `client/core` or `worker/core+robust`.

    The sheet has all rules of the claim and of those that it requires, in reading order, with the
    cases that check them, and with the tables and terms that they use. Without CLAIM, print a table
    of all claims with the number of their rules. A page has 450 words.
    """
    from jobwire_conformance.spec import sheet

    offered = [each for each in data.CLAIMS if each in data.claims_of(generation)]
    checks = _checks()
    sheets = sheet.Sheets(data.shared_file(""), checks)
    if name is None:
        counts = {each: sheet.counts(sheets.of(each, generation)) for each in offered}
        if as_json:
            keys = ("rules", "robust", "pages")
            rows = [
                {"claim": each, **dict(zip(keys, numbers, strict=True))}
                for each, numbers in counts.items()
            ]
            click.echo(json.dumps(rows, indent=2))
            return
        width = max(map(len, offered))
        click.echo(f"{'claim':{width}} {'rules':>6} {'robust':>7} {'pages':>6}")
        for each, (rules, robust, pages) in counts.items():
            click.echo(f"{each:{width}} {rules:6} {robust:7} {pages:6}")
        return
    if name not in offered:
        near = get_close_matches(name, offered, 3)
        hint = f"did you mean {' or '.join(near)}?" if near else "'jobwire spec claim' lists them"
        raise click.UsageError(f"there is no claim {name} for generation {generation}; {hint}")
    found = sheets.of(name, generation)
    if as_json:
        content = {
            "claim": name,
            "generation": generation,
            "claims": found.claims,
            "rules": [
                {**rule.as_data(), "checks": checks.get(rule.id, [])} for rule in found.rules
            ],
        }
        click.echo(json.dumps(content, ensure_ascii=False, indent=2))
        return
    text = found.markdown(examples=examples)
    if sys.stdout.isatty():
        click.echo_via_pager(_drawn(text))
    else:
        click.echo(text, nl=False)


@spec.command()
@_root_option
@_json_option
@click.option("--strict", is_flag=True, help="Print warnings, and count them as faults.")
def check(root: Path, as_json: bool, strict: bool) -> int:
    """Check the specification, every citation of it, and the generated files.

    Prints one line for each fault, with file and line. Changes no files.

    These lints judge the form of the text. Without --strict, the check only counts their hits, and
    they do not change the exit status:

    \b
    clause   a block asks for more than one thing
    bound    a MUST without a number, a time or an event, such as "retry" alone
    term     a word that section 3 does not define, or does not use
    cell     a table cell or a list item binds without an id
    profile  a profile without a row in its table, or without a requirement
    seen-in  a "Seen in" line that no recorded run of Sidekiq shows
    promise  a "Seen in" line of an interop block that takes something back
    caption  a diagram without a caption
    """
    from jobwire_conformance.spec import checks, citations, lints, published

    document = _checkout(root)
    warnings: list[lints.Fault] = []
    if isinstance(document, str):
        place, problem = document.split(": ", 1)
        faults = [lints.Fault(place, "block", problem)]
    else:
        cited = citations.cited(root)
        annexed = lints.annexed(root)
        faults = [
            *lints.of_document(document, annexed),
            *lints.of_annexes(root, document),
            *lints.of_history(document, published.documents(root)),
            *lints.of_checks(root, document),
            *lints.of_citations(document, cited, annexed),
            *lints.of_gaps(document, cited, annexed, checks.cases(root)),
            *lints.of_evidence(document, cited, checks.reported(root)),
            *lints.of_records(root, document),
        ]
        warnings = [*lints.of_form(root, document, cited)]
    if strict:
        faults += warnings
    if as_json:
        click.echo(json.dumps([fault._asdict() for fault in faults], indent=2))
    else:
        for fault in faults:
            click.echo(str(fault))
        if not isinstance(document, str):
            if warnings and not strict:
                click.echo(_counted(warnings), err=True)
            _summary(document, faults)
    return 1 if faults else 0


@spec.command()
@_root_option
@_write_option
def extract(root: Path, write: bool) -> int:
    """Print requirements.json: the requirements of a checkout as data.

    With --write, make the files of the checkout that come from the specification instead:
    schema/registry.json; lua/README.md, with the SHA-1 and the contract of each script; the table
    of mistakes in spec/lookup.md; and the table of claims in SPEC.md.
    """
    from jobwire_conformance.spec import lints, mistakes, registry, scripts, sheet

    document = _checkout(root)
    if isinstance(document, str):
        click.echo(document, err=True)
        return 1
    if faults := [*lints.of_annexes(root, document)]:
        for fault in faults:
            click.echo(str(fault), err=True)
        return 1
    if not write:
        click.echo(_record(root), nl=False)
        return 0
    texts = {
        "schema/registry.json": registry.render(registry.build(document)),
        mistakes.place(root): mistakes.updated(root),
        sheet.PAGE: sheet.updated(root),
    }
    if not [*scripts.undescribed(root, document)]:  # the check says which
        texts["lua/README.md"] = scripts.page(root, document)
    _save(root, texts, write)
    return 0


@spec.command()
@_root_option
@_write_option
def trace(root: Path, write: bool) -> int:
    """Make a page that lists the files that cite each requirement.

    With --write, the page goes to build/traceability.md and its data to build/traceability.json,
    which are not committed.
    """
    from jobwire_conformance.spec import checks, citations
    from jobwire_conformance.spec import trace as pages

    document = _checkout(root)
    if isinstance(document, str):
        click.echo(document, err=True)
        return 1
    cited = citations.cited(root)
    texts = {
        "build/traceability.md": pages.page(
            document, cited, checks.cases(root), checks.reported(root)
        )
    }
    if write:
        texts["build/traceability.json"] = pages.index(cited)
    _save(root, texts, write)
    return 0


@spec.command()
@click.argument("old", type=click.Path(exists=True, path_type=Path))
@click.argument("new", type=click.Path(exists=True, path_type=Path))
@_json_option
def changes(old: Path, new: Path, as_json: bool) -> int:
    """Print the changes between two versions, id by id.

    OLD and NEW are two checkouts, for example

    \b
    git worktree add ../old spec-1.0.0
    jobwire spec changes ../old .

    A version that is one file may be named by that file.

    "split from" is a guess: most words of a new requirement were in an old one that has changed.
    """
    from jobwire_conformance.spec import history
    from jobwire_conformance.spec.document import Malformed

    documents = []
    for path in (old, new):
        try:
            documents.append(_read(path))
        except Malformed as error:
            raise click.UsageError(f"{path} is not a specification: {error}") from None
    found = history.changes(*documents)
    if as_json:
        click.echo(json.dumps([change._asdict() for change in found], indent=2))
    else:
        click.echo(history.markdown(found), nl=False)
    return 0


def _read_all(as_json: bool) -> None:
    if as_json:
        if (root := data.checkout()) is not None:
            click.echo(_record(root), nl=False)
        else:
            click.echo(data.shared_file("schema/requirements.json").read_text("utf-8"), nl=False)
        return
    from jobwire_conformance.spec.document import parts

    text = "\n".join(parts(data.shared_file("")).values())
    if not sys.stdout.isatty():
        click.echo(text, nl=False)
        return
    # Links are useless on a terminal: keep only their text.
    text = re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", text)
    click.echo_via_pager(_drawn(text))


def _drawn(markdown: str) -> str:
    """Return Markdown with the escape sequences that format it on a terminal."""
    from rich.console import Console
    from rich.markdown import Markdown

    out = Console(width=min(Console().width, 120))
    with out.capture() as capture:
        out.print(Markdown(markdown))
    return capture.get()


def _citations() -> Mapping[str, Mapping[str, list[str]]]:
    """Return id to kind to places: in this checkout, or in the one that the wheel was built from.

    They are not committed: a checkout reads its files, a wheel has the index.
    """
    from jobwire_conformance.spec import citations

    if (root := data.checkout()) is not None:
        return citations.cited(root)
    index: dict[str, dict[str, list[str]]] = json.loads(
        data.shared_file("traceability.json").read_text("utf-8")
    )
    return index


def _checks() -> Mapping[str, Sequence[str]]:
    """Return id to the cases that check it."""
    from jobwire_conformance.spec import checks

    if (root := data.checkout()) is not None:
        return checks.cases(root)
    file = data.record(data.shared_file(""))
    entries = [each for part in (file, *file["annexes"]) for each in part["requirements"]]
    return {each["id"]: each["checks"] for each in entries}


def _read(path: Path) -> Document:
    from jobwire_conformance.spec import document

    if path.is_dir():
        return document.read_checkout(path)
    return document.read(path.read_text("utf-8"), path.name)


def _record(root: Path) -> str:
    """Return the text of requirements.json of a checkout."""
    from jobwire_conformance.spec import checks, record

    return record.render(record.of_checkout(root, checks.cases(root)))


def _checkout(root: Path) -> Document | str:
    """Return the document of a checkout, or the problem with it."""
    from jobwire_conformance.spec.document import Malformed

    for name in ("SPEC.md", "schema"):
        if not (root / name).exists():
            raise click.UsageError(
                f"{root / name} does not exist; run this in a checkout of the specification, "
                "or name one with --root"
            )
    try:
        return _read(root)
    except Malformed as error:
        return str(error)


def _save(root: Path, texts: dict[str, str], write: bool) -> None:
    for name, text in texts.items():
        if not write:
            click.echo(text, nl=False)
        elif not (root / name).is_file() or (root / name).read_text("utf-8") != text:
            (root / name).parent.mkdir(exist_ok=True)
            (root / name).write_text(text, "utf-8")
            click.echo(f"wrote {name}", err=True)


def _summary(document: Document, faults: list[Fault]) -> None:
    counts = f"{len(document.requirements)} requirements"
    if not faults:
        click.echo(f"specification {document.version}: {counts}, no faults", err=True)
    else:
        click.echo(f"specification {document.version}: {counts}, {len(faults)} faults", err=True)


def _counted(warnings: list[Fault]) -> str:
    counts = Counter(warning.lint for warning in warnings)
    listed = ", ".join(f"{lint} {count}" for lint, count in sorted(counts.items()))
    return f"{len(warnings)} warnings ({listed}); to list them: jobwire spec check --strict"


def _unknown(name: str, ids: list[str]) -> str:
    upper = name.upper()
    in_area = [known for known in ids if known.startswith(f"{upper.rstrip('0123456789')}")]
    if "-" in upper and in_area:
        in_area.sort(key=lambda known: int(known.rpartition("-")[2]))  # not their order on the page
        hint = f"; that area has {in_area[0]} to {in_area[-1]}"
    elif near := get_close_matches(upper, ids, 2, 0.8) or get_close_matches(name, [*spec.commands]):
        hint = f"; did you mean {' or '.join(near)}?"
    else:
        hint = "; 'jobwire spec' shows all requirements"
    return f"there is no requirement or command {name}{hint}"


def _print(requirement: Requirement, document: Document, kinds: Mapping[str, list[str]]) -> None:
    retired = f" · retired {requirement.retired}" if requirement.retired else ""
    click.secho(requirement.id, bold=True, nl=False)
    click.echo(
        f" · {', '.join(requirement.claims)} · {requirement.level}"
        f" · {', '.join(requirement.generations)} · since {requirement.since}{retired}"
        f" · test: {requirement.test} · {document.place(requirement.line)}\n"
    )
    parts = [requirement.text]
    parts += [f"Why: {requirement.why}"] if requirement.why else []
    parts += [f"Seen in: {requirement.seen}"] if requirement.seen else []
    text = "\n\n".join(parts)
    if sys.stdout.isatty():
        click.echo(_drawn(text), nl=False)
    else:
        click.echo(text)
    if kinds and data.checkout() is None:  # the places are not here
        cited = ", ".join(f"{len(places)} {kind}" for kind, places in kinds.items())
        click.echo(f"\ncited in the repository of jobwire: {cited}; --json lists the places")
        return
    if kinds:
        click.echo()
    for kind, places in kinds.items():
        for number, place in enumerate(places):
            click.echo(f"{'' if number else kind:8}{place}")
