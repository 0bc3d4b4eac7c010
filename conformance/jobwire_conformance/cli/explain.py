"""`jobwire conform explain`: explains a requirement or a case."""

from __future__ import annotations

import json

import click

__all__ = ["explain"]


@click.command()
@click.argument("name", metavar="ID|CASE")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def explain(name: str, as_json: bool) -> int:
    """Explain a requirement, like PUSH-4, or a case, like push-head.

    For a requirement: its text, the reason, Sidekiq's behaviour, the cases that check it, the
    mistakes that these cases find, and an example of the commands. For a case: its steps and
    checks.
    """
    from jobwire_conformance.reports.explain import explained, page

    explanation = explained(name)
    if as_json:
        click.echo(json.dumps(explanation, ensure_ascii=False, indent=2))
    else:
        for line in page(explanation):
            click.echo(line)
    return 0
