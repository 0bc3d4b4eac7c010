"""`jobwire conform init`: writes settings and an adapter to fill in."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from jobwire_conformance.data import CLAIMS, DEFAULT_GENERATION, GENERATIONS
from jobwire_conformance.errors import Usage
from jobwire_conformance.setup.init import LANGUAGES, AdapterPlan, guess, kit_of, write

__all__ = ["init"]

_SKELETONS = [name for name in LANGUAGES if name != "other"]


@click.command()
@click.argument(
    "directory", default=".", type=click.Path(path_type=Path, file_okay=False), metavar="[DIR]"
)
@click.option(
    "--language",
    help=f"Language of the adapter, any. [skeletons: {', '.join(_SKELETONS)}]",
)
@click.option("--name", help="Name of the implementation. [default: the directory's]")
@click.option(
    "--claim",
    "claims",
    multiple=True,
    type=click.Choice(CLAIMS),
    metavar="CLAIM",
    help="The first claim, like worker/core. [default: client/core]",
)
@click.option(
    "--generation",
    type=click.Choice(GENERATIONS),
    help=f"Generation of its claims. [default: {DEFAULT_GENERATION}]",
)
def init(
    directory: Path,
    language: str | None,
    name: str | None,
    claims: tuple[str, ...],
    generation: str | None,
) -> int:
    """Write conformance.toml and an adapter to fill in, a driver and a worker, into DIR.

    On a terminal, the command asks for missing options. It never overwrites a file.
    """
    asking = sys.stdin.isatty() and sys.stdout.isatty()
    guessed = guess(directory)
    if name is None:
        name = directory.resolve().name or "implementation"
        if asking:
            name = click.prompt("Name of the implementation", default=name)
    if language is None and asking:
        language = click.prompt(f"Language (skeletons: {', '.join(_SKELETONS)})", default=guessed)
    language = language or guessed
    if language is None:
        raise Usage(f"name the language with --language; skeletons: {', '.join(_SKELETONS)}")
    if not claims:
        claims = ("client/core",)
        if asking:
            claims = (click.prompt("First claim", type=click.Choice(CLAIMS), default=claims[0]),)
    if generation is None and asking:
        generation = click.prompt(
            "Generation", type=click.Choice(GENERATIONS), default=DEFAULT_GENERATION
        )
    plan = AdapterPlan(directory, str(name), language, claims, generation or DEFAULT_GENERATION)
    written = write(plan)
    for path in written:
        click.echo(f"wrote {path}")
    kit = kit_of(language)
    if language not in LANGUAGES:
        click.echo(
            f"there is no skeleton for {language}, so write both programs by the list of variables "
            f"and contracts; skeletons: {', '.join(_SKELETONS)}"
        )
    steps = []
    if any(claim.startswith(("client/", "inspector/")) for claim in claims):
        steps.append(kit.step("driver"))
    if any(claim.startswith(("worker/", "scheduler/")) for claim in claims):
        steps.append(kit.step("worker"))
    if kit.build:
        steps.append(kit.build)
    steps += ["jobwire conform doctor", f"jobwire conform check {claims[0]}"]
    click.echo("\nNext:" + "".join(f"\n  {number}. {step}" for number, step in enumerate(steps, 1)))
    return 0
