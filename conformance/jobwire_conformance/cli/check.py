"""`jobwire conform check`: checks every requirement of an implementation's claims."""

from __future__ import annotations

import os
import secrets
import shlex
from pathlib import Path
from typing import cast

import click
from click.core import ParameterSource

from jobwire_conformance.cli._options import (
    config_option,
    directory_option,
    end_at_term,
    generation_option,
    patience_option,
    redis_option,
    sandboxes_option,
    server_option,
)
from jobwire_conformance.errors import Usage

__all__ = ["check"]

_NO_PART_OF_A_RUN = ("report", "store", "quiet", "summary", "as_json")


@click.command()
@click.argument("arguments", nargs=-1, metavar="[FILE] [CLAIM]...")
@config_option
@click.option(
    "--case", "names", multiple=True, metavar="NAME", help="Only this case; * matches any text."
)
@generation_option
@click.option(
    "--spec", metavar="VERSION", help="Count only the checks of this version of the specification."
)
@sandboxes_option("cases")
@click.option(
    "--repeat",
    default=1,
    type=click.IntRange(1, 1000),
    metavar="N",
    help="Run each case N times; a check that passes only sometimes is flaky, which is a failure.",
)
@click.option(
    "--seed",
    type=click.IntRange(0, 2**31 - 1),
    help="Seed of the order of the cases. [default: random, and printed at the end]",
)
@patience_option()
@server_option
@redis_option
@click.option("--mutant", metavar="NAME", help="Plant this mistake into every process.")
@directory_option(
    "--report",
    "Write results.json, trace.jsonl, report.html, junit.xml and the other reports to DIR.",
)
@directory_option("--store", "Write a summary for a matrix to DIR/IMPLEMENTATION/VERSION.json.")
@click.option(
    "--variant", default="", metavar="TEXT", help="Name of the setup, if there are several."
)
@click.option("--losses", is_flag=True, help="Find losses of jobs that no claim forbids. Slow.")
@click.option("--quiet", "-q", is_flag=True, help="Print only cases that did not pass.")
@click.option("--summary", is_flag=True, help="Print only the outcome of each claim.")
@click.option("--json", "as_json", is_flag=True, help="Print results.json.")
def check(
    arguments: tuple[str, ...],
    config_path: Path,
    names: tuple[str, ...],
    generation: str | None,
    spec: str | None,
    sandboxes: int,
    repeat: int,
    seed: int | None,
    patience: float,
    server: str | None,
    redis: str | None,
    mutant: str | None,
    report: Path | None,
    store: Path | None,
    variant: str,
    losses: bool,
    quiet: bool,
    summary: bool,
    as_json: bool,
) -> int:
    """Check the claims of an implementation, or only CLAIM, like client/core.

    FILE is the implementation's conformance.toml. Its declared deviations are in
    jobwire.deviations.toml in the same directory.
    """
    from jobwire_conformance import reports
    from jobwire_conformance.cases import case as cases
    from jobwire_conformance.cli._settings import DEVIATIONS, settings
    from jobwire_conformance.mutation import mutants
    from jobwire_conformance.reports import summary as summaries
    from jobwire_conformance.reports.events import Events, Together
    from jobwire_conformance.reports.results import Results, dump
    from jobwire_conformance.reports.terminal import Terminal, closing, errors, remarks
    from jobwire_conformance.run import run, sets, verdicts
    from jobwire_conformance.sandbox import external_server

    if redis is not None and (sandboxes > 1 or server is not None):
        raise Usage(
            "--redis names one server, which serves one sandbox; leave out --sandboxes and --server"
        )
    given_server = None if redis is None else external_server.parse(redis)
    config = settings(arguments, config_path, generation)
    deviations = verdicts.load_deviations(config.path.with_name(DEVIATIONS))
    known_cases = cases.load()
    if unknown := verdicts.unknown_ids(deviations, known_cases):
        click.echo(f"jobwire: {DEVIATIONS} names unknown checks:", err=True)
        for id_ in unknown:
            click.echo(f"  {verdicts.unknown_id_message(id_, known_cases)}", err=True)
        return 2
    chosen = run.chosen(
        run.offered(cases.load(names=names), config),
        config.claims,
        config.generation,
        losses=losses,
    )
    if redis is not None and (left := [case.name for case in chosen if case.rebuilds]):
        click.echo(f"left out, because they change the server itself: {', '.join(left)}", err=True)
        chosen = [case for case in chosen if not case.rebuilds]
    if not chosen:
        raise Usage("no case belongs to these claims, this generation and --case")
    mistake = mutants.named(mutant) if mutant else None
    if report is not None:
        try:
            report.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise Usage(f"--report: cannot create {report}: {error.strerror}") from None
    again = _again(config.path, generation, server, redis)
    terminal = Terminal(len(chosen) + 1, again, cases=not (quiet or summary), failures=not summary)
    events = None if report is None else Events(report / "events.jsonl", chosen)
    end_at_term()
    outcome = run.run(
        mistake.on(config) if mistake else config,
        chosen,
        deviations,
        watcher=terminal if events is None else Together(terminal, events),
        sandboxes=sandboxes,
        patience=patience,
        program=server,
        redis=given_server,
        rewrites=mistake.rules if mistake else (),
        trace=None if report is None else report / "trace.jsonl",
        again=again,
        variant=variant,
        seed=secrets.randbelow(2**31) if seed is None else seed,
        repeat=repeat,
        frozen=sets.counted(spec),
    )
    terminal.close()
    outcome.command = _command(click.get_current_context(), arguments)
    results = cast(Results, outcome.as_data())
    if report is not None:
        reports.write_results(report, results)
        reports.write(report, results)
    if events is not None:
        events.ended(results)
    if store is not None:
        reports.put(store / summaries.stored_as(results), summaries.dump(results))
    if as_json:
        click.echo(dump(results), nl=False)
    click.echo(closing(results), err=as_json)
    if not summary:
        for remark in remarks(results, outcome.answer_times, os.path.relpath(config.path)):
            click.echo(remark, err=as_json)
    for deviation in outcome.stale:
        click.echo(
            f"stale: {deviation.id} is declared as a deviation but passes; remove it from "
            f"{DEVIATIONS}, or run baseline",
            err=as_json,
        )
    if outcome.unexplained:
        ids = ", ".join(deviation.id for deviation in outcome.unexplained)
        click.echo(
            f"jobwire: {DEVIATIONS}: the reasons of {ids} are still TODO; "
            "write the reasons of the failures",
            err=True,
        )
    for problem in errors(results):
        click.echo(f"jobwire: {problem}", err=True)
    return outcome.status


def _command(context: click.Context, arguments: tuple[str, ...]) -> str:
    """Return the command of this run, without the options that choose its output."""
    words = ["jobwire", "conform", "check"]
    for option in context.command.params:
        value = context.params[option.name or ""]
        if not isinstance(option, click.Option) or option.name in _NO_PART_OF_A_RUN:
            continue
        if context.get_parameter_source(option.name or "") is not ParameterSource.COMMANDLINE:
            continue
        if option.name == "redis" and "@" in value:
            value = "redis://:PASSWORD@..."  # a password must not reach a report
        elif isinstance(value, Path):
            value = os.path.relpath(value)
        elif isinstance(value, float):
            value = f"{value:g}"
        values = value if option.multiple else [] if option.is_flag else [value]
        name = option.opts[-1] if len(option.opts[-1]) > 2 else option.opts[0]
        words += [name] if option.is_flag else [w for each in values for w in (name, str(each))]
    words[3:3] = [os.path.relpath(a) if Path(a).is_absolute() else a for a in arguments]
    return shlex.join(words)


def _again(path: Path, generation: str | None, server: str | None, redis: str | None) -> str:
    """Return the command that runs one case again, up to its name."""
    options = {"-C": os.path.relpath(path), "--generation": generation, "--server": server}
    if redis is not None and "@" not in redis:  # a password must not reach a log
        options["--redis"] = redis
    words = [word for name, value in options.items() if value for word in (name, value)]
    return shlex.join(["jobwire", "conform", "replay", *words])
