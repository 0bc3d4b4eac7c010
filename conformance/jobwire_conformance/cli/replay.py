"""`jobwire conform replay`: runs one case several times and prints its commands."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import cast

import click

from jobwire_conformance.cli._options import (
    config_option,
    end_at_term,
    generation_option,
    patience_option,
    redis_option,
    server_option,
)
from jobwire_conformance.errors import Usage

__all__ = ["replay"]


@click.command()
@click.argument("name", metavar="FILE|CASE")
@config_option
@generation_option
@click.option(
    "-n",
    "--times",
    default=1,
    type=click.IntRange(1, 1000),
    metavar="N",
    help="Number of runs. [default: 1]",
)
@click.option("--all", "idle", is_flag=True, help="Print also repeated polling that finds nothing.")
@patience_option()
@server_option
@redis_option
def replay(
    name: str,
    config_path: Path,
    generation: str | None,
    times: int,
    idle: bool,
    patience: float,
    server: str | None,
    redis: str | None,
) -> int:
    """Run one case N times and print the commands of one run.

    The case is a name of the suite, or the path of a file with one case. Deviations and the claims
    of conformance.toml do not count here. The printed run is the first that failed, or the last.

    Exit status: 0 every run passed; 1 a run failed; the others are those of `check`.
    """
    from dataclasses import replace as changed

    from jobwire_conformance import config
    from jobwire_conformance.run import replay as replays
    from jobwire_conformance.sandbox import external_server

    if redis is not None and server is not None:
        raise Usage("--redis names a running server; leave out --server")
    store = None if redis is None else external_server.parse(redis)
    case = replays.find(name)
    if store is not None and case.rebuilds:
        raise Usage(f"{case.name} changes the server itself; leave out --redis")
    settings = config.load(config_path)
    if generation is not None:
        settings = changed(settings, generation=cast(config.Generation, generation))
    end_at_term()
    wrong: Counter[str] = Counter()
    failed: dict[str, str] = {}
    shown: replays.Replayed | None = None
    passed = 0
    for number, replayed in enumerate(
        replays.replay(
            settings,
            case,
            times=times,
            patience=patience,
            program=server,
            redis=store,
            waits=lambda _: None,
        ),
        1,
    ):
        for error in replayed.outcome.errors:
            for line in replays.wire(replayed.trace, idle=idle):
                click.echo(line)
            click.echo(f"jobwire: run {number}: {error}", err=True)
            return error.status
        passed += replayed.passed
        for verdict in replayed.verdicts:
            check = f"{verdict.case}#{verdict.requirement}"
            wrong[check] += not verdict.finding.ok
            if not verdict.finding.ok:
                reason = verdict.finding.message or f"blocked by {verdict.finding.blocked_by}"
                failed.setdefault(check, reason)
        if shown is None or shown.passed:
            shown = replayed
    assert shown is not None
    for line in replays.wire(shown.trace, idle=idle):
        click.echo(line)
    click.echo(f"\n{case.name}: {case.title}")
    for check, times_wrong in wrong.items():
        click.echo(f"  {check} passed in {times - times_wrong} of {times} runs")
        if check in failed:
            click.echo("\n".join(f"    {line}" for line in failed[check].splitlines()))
    click.echo(f"passed {passed}/{times}")
    return 0 if passed == times else 1
