"""Inject every fault at every command; report the fates of the jobs.

    python -m tests.faults [--write] [--sandboxes N] [--fetch reliable|basic] [SCENARIO]...

Exit status: 0 if no promise is broken, 1 if one is, 2 wrong usage.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Sequence

from rich.console import Console
from rich.progress import Progress

from harness.servers import Reaper
from jobwire.application.config import FetchMode
from tests.faults.guarantees import PAGE, render
from tests.faults.runs import Bench, Result, Run, faulty_runs
from tests.faults.scenarios import SCENARIOS

MODES: tuple[FetchMode, ...] = ("reliable", "basic")


def enumerate_all(bench: Bench, clean: Sequence[Run], out: Console) -> list[Result]:
    """Do the clean runs, then one run for each of their commands and each fault."""
    faulty: list[Run] = []
    for run, result in zip(clean, bench.all(clean), strict=True):
        if result.problems:
            raise SystemExit(f"{result}\n{result.log}")
        faulty += faulty_runs(run.scenario, result)
    results: list[Result] = []
    with Progress(console=out, transient=True, disable=not out.is_terminal) as progress:
        bar = progress.add_task("runs", total=len(faulty))
        for result in bench.all(faulty):
            results.append(result)
            progress.advance(bar)
            if result.problems:
                out.print(f"{result}\n{result.log}", markup=False, highlight=False, soft_wrap=True)
            if not out.is_terminal and len(results) % 250 == 0:
                out.print(f"{len(results)} of {len(faulty)} runs")
    return results


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults")
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help=", ".join(SCENARIOS))
    parser.add_argument("--sandboxes", type=int, default=10, help="runs side by side")
    parser.add_argument("--fetch", choices=MODES, action="append", help="one way only")
    parser.add_argument("--write", action="store_true", help=f"write these rows of {PAGE.name}")
    options = parser.parse_args()
    if unknown := {*options.scenarios} - {*SCENARIOS}:
        parser.error(f"no such scenario: {', '.join(unknown)}; there are {', '.join(SCENARIOS)}")
    out = Console()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # and clean up on the way
    started = time.monotonic()
    reaper = Reaper()
    bench = Bench(reaper, sandboxes=options.sandboxes)
    try:
        clean = [
            Run(SCENARIOS[name], fetch=fetch)
            for fetch in options.fetch or MODES
            for name in options.scenarios or SCENARIOS
            if SCENARIOS[name].means_anything(fetch)
        ]
        results = enumerate_all(bench, clean, out)
    finally:
        bench.close()
        reaper.close()
    if options.write:
        page = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(render(results, page), encoding="utf-8")
    for fetch in options.fetch or MODES:
        mine = [result for result in results if result.fetch == fetch]
        out.print(
            f"{fetch}: {len(mine)} runs, {sum(not each.reached for each in mine)} of them never "
            f"came to the fault; lost {sum(bool(each.lost) for each in mine)}, "
            f"stuck {sum(bool(each.stuck) for each in mine)}, "
            f"invented {sum(bool(each.invented) for each in mine)}, "
            f"ran twice {sum(bool(each.duplicates) for each in mine)}",
            highlight=False,
            soft_wrap=True,
        )
    bad = sum(bool(each.problems) for each in results)
    out.print(f"{bad} problems in {time.monotonic() - started:.0f} s", highlight=False)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
