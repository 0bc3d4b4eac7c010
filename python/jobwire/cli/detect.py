"""`jobwire detect`: the products that write into a Redis."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from jobwire.cli import output
from jobwire.cli.exits import EXIT_OK
from jobwire.cli.inspect.options import change_options, json_option, operating, options
from jobwire.cli.operations import findings_table
from jobwire.cli.table import Column, Styled, Table
from jobwire.inspect.formats import clean, to_json
from jobwire.ops import Detection, Writer
from jobwire.text import counted

__all__ = ["detect"]


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("address", metavar="[URL]", required=False)
@options(change_options, json_option)
def detect(address: str | None, url: str | None, namespace: str | None, as_json: bool) -> int:
    """Find the products that write into the Redis at URL, and their conflicts.

    It names Sidekiq and its version, add-ons such as sidekiq-cron, Active Job and others, each with
    the keys and fields that show it, and with the fate of its jobs in a worker of jobwire. Then it
    names programs that misread each other, and the problems of an upgrade of Sidekiq.

    It changes nothing. It looks at 200,000 keys and at some payloads of each queue and set, so a
    product of which little is left may be missing.

    Exit status: 0 done; 2 wrong usage; 4 Redis cannot be used.
    """
    if address is not None and url is not None:
        raise click.UsageError("give the URL once: as the argument, or as --redis")
    with operating(address if address is not None else url, namespace, "viewer") as operations:
        found = operations.detect()
    if as_json:
        click.echo(to_json(_record(found)))
        return EXIT_OK
    output.show(_writers(found), as_json=False)
    output.show(findings_table(found.findings, empty="no conflict is known"), as_json=False)
    return EXIT_OK


def _writers(found: Detection) -> Table:
    evidence = found.evidence
    return Table(
        f"{counted(len(found.writers), 'product')} in {evidence.scanned:,} of "
        f"{counted(evidence.keys, 'key')} and {counted(evidence.payloads, 'payload')}",
        [
            Column("product", style="cyan"),
            Column("version"),
            Column("evidence", fold=True),
            Column("in a worker of jobwire", fold=True),
        ],
        found.writers,
        lambda writer: (
            writer.title if writer.certain else Styled(f"{writer.title} or jobwire", "yellow"),
            clean(writer.versions or "-"),
            clean(", ".join(writer.evidence)),
            clean(_treatments(writer)),
        ),
        problems=[f"{name} is refused: {message}" for name, message in evidence.refused.items()],
        empty="no program has written here",
    )


def _treatments(writer: Writer) -> str:
    several = len(writer.treatments) > 1
    parts = []
    for subject, (fate, effect, setting) in writer.treatments.items():
        change = f" -> {setting}" if setting else ""
        parts.append(f"{subject + ': ' if several else ''}{fate}; {effect}{change}")
    return " | ".join(parts) or "-"


def _record(found: Detection) -> dict[str, Any]:
    evidence = found.evidence
    return {
        "writers": [
            {
                **asdict(writer),
                "treatments": {of: one._asdict() for of, one in writer.treatments.items()},
            }
            for writer in found.writers
        ],
        "findings": [asdict(finding) for finding in found.findings],
        "namespaces": evidence.namespaces,
        "server": evidence.server,
        "keys": evidence.keys,
        "scanned": evidence.scanned,
        "payloads": evidence.payloads,
        "refused": evidence.refused,
    }
