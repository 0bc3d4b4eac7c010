"""`jobwire conform explore`: plays random steps and judges them by a model of the protocol."""

from __future__ import annotations

import json
import os
import shlex
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from jobwire_conformance.cli._options import (
    config_option,
    directory_option,
    end_at_term,
    generation_option,
    patience_option,
    server_option,
)

if TYPE_CHECKING:
    from jobwire_conformance.model.explore import Explored

__all__ = ["explore"]

_SHOWN = 20  # differences


@click.command()
@click.argument("arguments", nargs=-1, metavar="[FILE] [CLAIM]...")
@config_option
@generation_option
@click.option(
    "--examples",
    default=50,
    type=click.IntRange(1, 1_000_000),
    metavar="N",
    help="Number of examples. [default: 50]",
)
@click.option(
    "--steps",
    default=8,
    type=click.IntRange(1, 50),
    metavar="N",
    help="Largest number of steps in one example. [default: 8]",
)
@click.option(
    "--seed",
    type=click.IntRange(0, 2**31 - 1),
    help="Seed of the examples. [default: the same examples in every run]",
)
@click.option(
    "--shrinks",
    default=50,
    type=click.IntRange(0, 100_000),
    metavar="N",
    help="Largest number of examples to play to shrink a failing one. [default: 50]",
)
@patience_option(10)
@click.option(
    "--differential",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Settings of a second implementation; print the differences between the two.",
)
@server_option
@click.option("--mutant", metavar="NAME", help="Plant this mistake into every process.")
@directory_option("--out", "Directory for found-*.json. [default: the current one]", default=".")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def explore(
    arguments: tuple[str, ...],
    config_path: Path,
    generation: str | None,
    examples: int,
    steps: int,
    seed: int | None,
    shrinks: int,
    patience: float,
    differential: Path | None,
    server: str | None,
    mutant: str | None,
    out: Path,
    as_json: bool,
) -> int:
    """Play random steps with an implementation, and compare it with a model of the protocol.

    A failing example is shrunk and written as a case, found-*.json, for `jobwire conform replay`.

    Exit status: 0 no failure; 1 a failure; the others are those of `check`.
    """
    from jobwire_conformance import config
    from jobwire_conformance.cli._settings import DEVIATIONS, settings
    from jobwire_conformance.mutation import mutants
    from jobwire_conformance.run import verdicts

    settings_of_run = settings(arguments, config_path, generation)
    other = None if differential is None else config.load(differential)
    mistake = mutants.named(mutant) if mutant else None
    deviations = verdicts.load_deviations(settings_of_run.path.with_name(DEVIATIONS))
    excused = {deviation.id.rpartition("#")[2] for deviation in deviations}
    end_at_term()
    with tempfile.TemporaryDirectory(prefix="jobwire-conform-") as directory:
        # Otherwise Hypothesis leaves a directory in the current one.
        os.environ.setdefault("HYPOTHESIS_STORAGE_DIRECTORY", directory)
        from jobwire_conformance.model.explore import Options
        from jobwire_conformance.model.explore import explore as run

        result = run(
            mistake.on(settings_of_run) if mistake else settings_of_run,
            Options(examples, steps, seed, shrinks, patience, server, out, excused),
            rewrites=mistake.rules if mistake else (),
            other=other,
            says=lambda text: click.echo(text, err=True),
        )
    if as_json:
        click.echo(json.dumps(result.as_data(), indent=2))
    else:
        _tell(result, settings_of_run.path)
    return 0 if result.failure is None else 1


def _tell(result: Explored, path: Path) -> None:
    versions = ", ".join(f"{name} {version}" for name, version in result.versions.items())
    seed = "none" if result.options.seed is None else str(result.options.seed)
    count = sum(times for times, _ in result.spent.values())
    click.echo(f"{result.config.name}: {result.examples} examples, {count} steps")
    click.echo(f"  {versions}; seed: {seed}")
    click.echo(
        f"  {result.step_ms(processes=False):.1f} ms a step, not counting starts and ends of "
        f"processes; {result.seconds:.1f} s in total"
    )
    if result.options.excused:
        click.echo(
            f"  declared deviations, not checked: {', '.join(sorted(result.options.excused))}"
        )
    if result.inconclusive:
        click.echo(f"  {result.inconclusive} examples without a result, because they took too long")
    _tell_differences(result)
    if result.failure is None:
        click.echo("no failure found")
        return
    click.echo(f"\nfound: [{result.failure.requirement}]")
    click.echo("\n".join(f"  {line}" for line in result.failure.message.splitlines()))
    for step in result.steps:
        click.echo(f"  {json.dumps(step)}")
    assert result.path is not None
    from jobwire_conformance.model.explore import REPLAYS

    flaky = "" if result.failed == REPLAYS else ", so it is flaky"
    click.echo(f"  failed in {result.failed}/{REPLAYS} replays{flaky}")
    words = ["jobwire", "conform", "replay", "-C", os.path.relpath(path), str(result.path)]
    click.echo(f"again: {shlex.join(words)}")


def _tell_differences(result: Explored) -> None:
    for shown in result.differences[:_SHOWN]:
        click.echo(f"  differs, {shown.times} times: {shown.what}: {shown.one} / {shown.other}")
    if len(result.differences) > _SHOWN:
        click.echo(f"  and {len(result.differences) - _SHOWN} more differences; --json lists all")
