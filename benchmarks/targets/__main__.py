"""Measure the targets of docs/performance/targets.md, also with real Sidekiq and other queues.

    .ci/bench targets [--quick] [--runs N] [--only NUMBER]... [--peers [NAME]...]
                      [--against CHECKOUT] [--no-sidekiq] [--out DIRECTORY]

All samples use one server without other clients, and are interleaved, so that a disturbance hits
all teams. Sidekiq needs the chroots of `make interop`, else it is left out; Sidekiq with YJIT
needs the build of `benchmarks/ruby-yjit.sh`. docs/explanation/performance.md explains the figures.

Exit status: 0 all was measured; 1 a sample failed: it is named, the others are kept; 2 wrong usage.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.targets.peers import PEERS, peers
from benchmarks.targets.report import Report, surroundings, write
from benchmarks.targets.rows import TARGETS, runs
from benchmarks.targets.stage import SampleServer
from benchmarks.targets.teams import Jobwire, Sidekiq, SidekiqYJIT, Team
from rich.console import Console

ROOT = Path(__file__).resolve().parents[2]
QUICK = 0.2  # of the jobs


def main() -> int:
    parser = argparse.ArgumentParser(prog=".ci/bench targets")
    parser.add_argument("--runs", type=int, default=5, help="samples of each [%(default)s]")
    parser.add_argument("--quick", action="store_true", help="1 run, a fifth of the jobs")
    parser.add_argument("--only", type=int, action="append", help="a row's number; repeatable")
    parser.add_argument(
        "--peers", nargs="*", metavar="NAME", help="also other queues: all, or only these"
    )
    parser.add_argument("--against", type=Path, help="another checkout of jobwire, interleaved")
    parser.add_argument("--no-sidekiq", action="store_true", help="leave Sidekiq out")
    parser.add_argument("--out", type=Path, help="write results.json, targets.md and plots there")
    options = parser.parse_args()
    if options.runs < 1:
        parser.error("--runs must be at least 1")
    numbers = {target.number for target in TARGETS}
    if unknown := sorted(set(options.only or ()) - numbers):
        parser.error(f"--only: there is no row {unknown[0]}; rows are 1 to {max(numbers)}")
    if options.against and not (options.against / "python" / "jobwire").is_dir():
        parser.error(f"--against: {options.against} has no python/jobwire")
    if unknown_peers := sorted(set(options.peers or ()) - set(PEERS)):
        parser.error(f"--peers: there is no {unknown_peers[0]}; there are {', '.join(PEERS)}")
    teams: list[Team] = [Jobwire(ROOT)]
    sidekiqs: list[Sidekiq] = []
    if options.against:
        teams.append(Jobwire(options.against.resolve(), name="other checkout"))
    if not options.no_sidekiq:
        for sidekiq in (Sidekiq(), SidekiqYJIT()):
            if reason := sidekiq.missing():
                sys.stderr.write(f"without {sidekiq.name}: {reason}\n")
            else:
                sidekiqs.append(sidekiq)
        teams += sidekiqs
    if options.peers is not None:
        teams += peers(ROOT / "build" / "peers", options.peers or PEERS)
    wanted = {row.kind for row in TARGETS if not options.only or row.number in options.only}
    out = Console(highlight=False, stderr=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # and clean up on the way
    report = Report()
    stage = SampleServer()
    started, failed = time.monotonic(), False
    try:
        rubies = {sidekiq.name: sidekiq.ruby(stage) for sidekiq in sidekiqs}
        for run in runs():
            if run.kind not in wanted:
                continue
            for number in range(1 if options.quick else options.runs):
                for team in teams:
                    if run.kind not in team.kinds:
                        continue
                    jobs = run.jobs
                    if not run.whole:
                        jobs = int(jobs * team.share * (QUICK if options.quick else 1)) or 1
                    try:
                        with stage.sample() as seen:
                            figures = run.measure(stage, team, jobs)
                    except (AssertionError, OSError, subprocess.SubprocessError) as error:
                        out.print(f"{run.kind} {number + 1}: {team.name}: no figure: {error}")
                        failed = True
                        continue
                    report.add(run.kind, team.name, jobs, figures, seen)
                    text = ", ".join(f"{name} {value:,.4g}" for name, value in figures.items())
                    out.print(f"{run.kind} {number + 1}: {team.name}: {text}; {seen}")
        around = surroundings(stage, rubies, minutes=round((time.monotonic() - started) / 60))
    finally:
        stage.close()
    sys.stdout.write(report.table())
    if options.out:
        write(options.out, report, around)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
