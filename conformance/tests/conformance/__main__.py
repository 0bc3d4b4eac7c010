"""Keep docs/conformance up to date. See .ci/conformance.

    python -m tests.conformance [--only reference|sidekiq]... [--sandboxes N]
                                [--pages | --set | --check [--both] | --variants | --mutants]

Exit status: 0 done or unchanged; 1 changed; others as of `jobwire conform check`.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

import click

from harness.chroots import missing
from harness.servers import valkey_program
from jobwire_conformance import config, data, reports
from jobwire_conformance.cases import case as cases
from jobwire_conformance.cli._settings import for_generation
from jobwire_conformance.cli.kills import kills
from jobwire_conformance.cli.variants import variants
from jobwire_conformance.config import Config, Generation
from jobwire_conformance.data import CLAIMS, ROBUST
from jobwire_conformance.errors import ConformError, Usage
from jobwire_conformance.reports import audit, summary
from jobwire_conformance.reports.drift import drift
from jobwire_conformance.reports.results import Results
from jobwire_conformance.reports.terminal import Terminal, closing
from jobwire_conformance.run import run, sets, verdicts
from tests.conformance.pages import (
    BUILT,
    PAGES,
    ROOT,
    SPECIFICATION,
    STORE,
    built_pages,
    pages,
    specification,
    stale_pages,
)
from tests.interop.sidekiq import GENERATIONS
from tests.interop.test_conformance import inside

REFERENCE = ROOT / "conformance" / "drivers" / "python"
GO_SAMPLE = ROOT / "conformance" / "drivers" / "go-sample"
SIDEKIQ = ROOT / "conformance" / "drivers" / "ruby-sidekiq"

REASON = "more than Sidekiq does: see its block in SPEC.md"

WAYS: Sequence[tuple[str, Generation]] = (
    *(("conformance.toml", "8.1"), ("conformance.toml", "7.3"), ("conformance.toml", "6.4")),
    *(("basic.toml", "8.1"), ("basic.toml", "7.3")),
    *(("asyncio.toml", "8.1"), ("asyncio-basic.toml", "8.1")),
)
SANDBOXES = 3
SANDBOXES_FOR_VARIANTS = 4  # as many of their cases wait
BOTH = WAYS[0], WAYS[3]  # the ways to fetch


def reference(sandboxes: int, ways: Sequence[tuple[str, Generation]] = WAYS) -> Iterator[Results]:
    """Yield the results of each configuration of the reference."""
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    os.environ["PYTHONPATH"] = str(ROOT / "python")
    for name, generation in ways:
        settings = for_generation(config.load(REFERENCE / name), generation)
        results = results_of(settings, sandboxes, patience=20)
        results["command"] = ".ci/conformance --only reference"
        path = (REFERENCE / name).relative_to(ROOT)
        results["again"] = f"jobwire conform replay -C {path} --generation {generation}"
        yield results


def sidekiq(sandboxes: int) -> Iterator[Results]:
    """Yield the results of each installed version of real Sidekiq."""
    for version in GENERATIONS:
        if reason := missing(version):
            click.echo(f"left out: {reason}", err=True)
            continue
        with tempfile.TemporaryDirectory() as directory:
            settings = inside(version, Path(directory) / "adapter")
            # It claims the interop requirements only; the others show what it does not do.
            claims = [claim for claim in CLAIMS if claim.removesuffix(ROBUST) in settings.claims]
            settings = replace(settings, claims=claims)
            results = results_of(settings, sandboxes, patience=15, robust_is_optional=True)
            results["command"] = ".ci/conformance --only sidekiq"
            path = (SIDEKIQ / f"{version}.toml").relative_to(ROOT)
            results["again"] = f"jobwire conform replay -C {path}"
            yield results


def is_failure(verdict: verdicts.CaseVerdict) -> bool:
    return verdict.status in verdicts.FAILURES


def results_of(
    settings: Config,
    sandboxes: int,
    *,
    patience: float,
    robust_is_optional: bool = False,
) -> Results:
    """Return the results of one run. Checks that are newer than the frozen set also count.

    Args:
        settings: The implementation.
        sandboxes: Number of cases at a time.
        patience: Longest wait for an expected event, in seconds.
        robust_is_optional: True to take failures of robust requirements for deviations.
    """
    offered = run.offered(cases.load(), settings)
    chosen = run.chosen(offered, settings.claims, settings.generation, losses=True)
    terminal = Terminal(len(chosen), "jobwire conform check --case")
    outcome = run.run(
        settings,
        chosen,
        (),
        watcher=terminal,
        sandboxes=sandboxes,
        patience=patience,
        program=valkey_program(),
    )
    terminal.close()
    for error in outcome.errors:
        raise error
    for verdict in outcome.verdicts:
        if robust_is_optional and verdict.claim.endswith(ROBUST) and is_failure(verdict):
            verdict.status = "deviation"
            verdict.deviation = verdicts.Deviation(verdict.requirement, REASON)
    outcome.status = verdicts.status(outcome.verdicts, stale_or_unknown=False)
    results = cast(Results, outcome.as_data())
    click.echo(closing(results), err=True)
    return results


def keep(results: Results) -> None:
    """Write the committed summary and the uncommitted full reports."""
    path = summary.stored_as(results)
    reports.put(STORE / path, summary.dump(results))
    directory = BUILT / path.with_suffix("")
    reports.write_results(directory, results)
    reports.write(directory, results)
    click.echo(f"the full reports are in {directory.relative_to(ROOT)}", err=True)


def freeze() -> None:
    """Write the draft's set of checks, and the summaries again: they omit checks that passed."""
    kept = {path: summary.load(path) for path in sorted(STORE.rglob("*.json"))}
    for path, results in kept.items():
        if "unknown" in results:
            raise Usage(f"{path} is of another set; restore the set of its run first")
    spec = data.spec_version()
    reports.put(sets.path_of(spec), sets.text(sets.current(cases.load())).encode())
    for path, results in kept.items():
        reports.put(path, summary.dump(results))


def kill(sandboxes: int) -> int:
    """Run all mutants, those of the traffic and of sources; return 1 if one is not killed."""
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    os.environ["PYTHONPATH"] = str(ROOT / "python")
    reference = REFERENCE / "conformance.toml"
    sources = [reference]
    if shutil.which("go"):
        subprocess.run(["sh", GO_SAMPLE / "setup.sh"], check=True)
        sources += sorted(GO_SAMPLE.glob("*.toml"))
    else:
        click.echo("mutants: left out: the Go sample, which needs Go", err=True)
    BUILT.mkdir(parents=True, exist_ok=True)
    status = 0
    for path, name, more in (
        (reference, "kills", []),
        *((each, f"source-kills-{config.load(each).name}", ["--source"]) for each in sources),
    ):
        arguments = ["-C", str(path), "--sandboxes", str(sandboxes), "--patience", "6", *more]
        arguments += ["--server", valkey_program(), "--store", str(BUILT / f"{name}.json")]
        arguments += ["--page", str(BUILT / f"{name}.md")]
        status |= int(kills.main(arguments, standalone_mode=False) or 0)
    return status


def check(sandboxes: int, ways: Sequence[tuple[str, Generation]]) -> int:
    """Compare new results with the stored ones; return 1 if they differ."""
    changed = [f"{name} is not up to date" for name in stale_pages()]
    for now in reference(sandboxes, ways):
        path = STORE / summary.stored_as(now)
        if not path.exists():
            changed.append(f"{path.relative_to(ROOT)} is not there")
            continue
        if differs := [*drift(summary.load(path), now)]:
            changed += [f"{path.relative_to(ROOT)}: {line}" for line in differs]
            _tell(path, differs, now)
    changed += audit.faults(audit.load(ROOT))
    if changed:
        click.echo("\n".join([*changed, "bring it up to date with: make conformance"]))
    return 1 if changed else 0


def _tell(path: Path, lines: Sequence[str], results: Results) -> None:
    """Print the changes, and the messages of the checks that failed."""
    click.echo(f"{path.relative_to(ROOT)}:")
    click.echo("\n".join(f"  {line}" for line in lines))
    for failed in results["checks"]:
        if "message" in failed:
            click.echo(f"  {failed['case']}#{failed['requirement']}: {failed['message']}")


def accept(sandboxes: int) -> int:
    """Run lawful variants of the reference; return 1 if a check refuses one."""
    arguments = ["--together", "--sandboxes", str(sandboxes), "--server", valkey_program()]
    return int(variants.main(arguments, standalone_mode=False) or 0)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance")
    parser.add_argument("--only", choices=("reference", "sidekiq"), action="append")
    parser.add_argument("--sandboxes", type=int, help="cases side by side")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--pages", action="store_true", help="only make the pages again")
    what.add_argument("--set", action="store_true", help="only write the set of checks again")
    what.add_argument("--check", action="store_true", help="only say what has changed")
    what.add_argument("--variants", action="store_true", help="only run the lawful variants")
    what.add_argument("--mutants", action="store_true", help="only run the mutants")
    parser.add_argument("--both", action="store_true", help="also check basic fetch")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # and clean up on the way
    sandboxes = options.sandboxes or (SANDBOXES_FOR_VARIANTS if options.variants else SANDBOXES)
    try:
        if options.check:
            return check(sandboxes, BOTH if options.both else BOTH[:1])
        if options.variants:
            return accept(sandboxes)
        if options.mutants:
            return kill(sandboxes)
        if options.set:
            freeze()
        which = () if options.pages or options.set else options.only or ("reference", "sidekiq")
        for name, results_of_all in (("reference", reference), ("sidekiq", sidekiq)):
            for results in results_of_all(sandboxes) if name in which else ():
                keep(results)
        for directory, made in ((PAGES, pages()), (BUILT, built_pages())):
            for name, content in made.items():
                reports.put(directory / name, content)
        reports.put(SPECIFICATION, specification())
    except ConformError as error:
        click.echo(f"jobwire: {error}", err=True)
        return error.status
    return 0


if __name__ == "__main__":
    sys.exit(main())
