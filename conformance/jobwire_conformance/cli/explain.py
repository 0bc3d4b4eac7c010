"""`jobwire conform explain`: what a requirement asks for and why, or what a case does."""

from __future__ import annotations

import json

import click

__all__ = ["explain"]


@click.command()
@click.argument("what", metavar="ID|CASE")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def explain(what: str, as_json: bool) -> int:
    """Explain a requirement, like PUSH-4, or a case, like push-head.

    Of a requirement: its text, the reason, what Sidekiq does, the cases that check it, the
    mistakes that those find, and an example of the wire. Of a case: its steps and checks.
    """
    from jobwire_conformance.reports.explain import explained, page

    found = explained(what)
    if as_json:
        click.echo(json.dumps(found, ensure_ascii=False, indent=2))
    else:
        for line in page(found):
            click.echo(line)
    return 0
