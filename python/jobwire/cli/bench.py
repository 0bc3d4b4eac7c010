"""`jobwire bench`: how fast this machine and your Redis are."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from types import FrameType
from typing import Any, NoReturn

import click
from rich.console import Console

import jobwire
from jobwire.cli.exits import EXIT_UNEXPECTED
from jobwire.cli.inspect_output import Column, Sheet, show
from jobwire.cli.options import find_redis, redis_option
from jobwire.connection.connect import safe_url

__all__ = ["bench"]

QUICK = {"jobs": 500, "lone": 20, "waiting": 100}


@click.command()
@redis_option
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    metavar="N",
    help="Jobs of each run. [default: 20000, or 500 with --quick]",
)
@click.option(
    "-c",
    "--concurrency",
    type=click.IntRange(min=1),
    default=10,
    metavar="N",
    help="Jobs at a time, of a worker process. [default: 10]",
)
@click.option(
    "--processes",
    type=click.IntRange(min=1),
    default=1,
    metavar="N",
    help="Drain with so many worker processes, too. [default: 1]",
)
@click.option("--quick", is_flag=True, help="Fewer jobs: some seconds, and rough figures.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def bench(
    url: str | None, jobs: int | None, concurrency: int, processes: int, quick: bool, as_json: bool
) -> int:
    """Measure what your Redis and this machine can do: enqueue, run, promote, retry.

    All keys begin with jobwire-bench- and are removed at the end, also after Ctrl-C. Nothing else
    in Redis is touched, but the server is kept busy for as long as it takes: not for a production
    server at its busiest hour. What others do there meanwhile is part of the figures.
    """
    from jobwire.bench import BenchFailed, BenchStage, Plan, Result, Surroundings, run

    found, source = find_redis(url)
    sizes = dict(QUICK) if quick else {}
    if jobs is not None:
        sizes |= {"jobs": jobs, "waiting": min(jobs, sizes.get("waiting", Plan().waiting))}
    plan = Plan(**sizes, concurrency=concurrency, processes=processes)
    around: Surroundings | None = None
    results: list[Result] = []
    try:
        with _stoppable(), BenchStage(found) as stage, _progress() as tell:
            for each in run(stage, plan, tell):
                if isinstance(each, Result):
                    results.append(each)
                else:
                    around = each
    except BenchFailed as error:
        click.echo(f"jobwire: {error}", err=True)
        return EXIT_UNEXPECTED
    assert around is not None
    if as_json:
        report: dict[str, Any] = {
            "jobwire": jobwire.__version__,
            "python": sys.version.split()[0],
            "redis": safe_url(found),
            "plan": asdict(plan),
            "surroundings": asdict(around),
            "results": [asdict(result) for result in results],
        }
        click.echo(json.dumps(report))
    else:
        _print(results, around, f"{safe_url(found)} ({source})")
    return 0


def _print(results: list[Any], around: Any, where: str) -> None:
    columns = [
        Column("what", grow=True),
        Column("jobs/s", justify="right", style="bold"),
        Column("trips/job", justify="right", spare=True),
        Column("Python", justify="right"),
        Column("server", justify="right"),
        Column("limited by", grow=True, spare=True),
    ]

    def row(result: Any) -> list[str]:
        if result.rate is None:
            rate = f"{result.p50_ms:.2f} ms, p99 {result.p99_ms:.2f} ms"
        else:
            rate = f"{result.rate:,.0f}"
        trips = result.round_trips_per_job
        return [
            result.title,
            rate,
            "" if trips is None else f"{trips:.3f}",
            _percent(result.client_cpu),
            _percent(result.server_cpu),
            result.limit,
        ]

    def summary() -> str:
        others = around.other_clients
        lines = [
            f"{around.server} at {where}; a round trip takes {around.round_trip_ms:g} ms",
            f"{around.cores} cores here, load {'?' if around.load is None else around.load} before",
            "Python, server: what share of one core they used",
        ]
        if others:
            lines.append(f"{others} connections of others: the server's share is theirs, too")
        return "\n".join(lines)

    show(Sheet("bench", columns, results, row, summary=summary), as_json=False)


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.0%}"


@contextmanager
def _progress() -> Iterator[Callable[[str], None]]:
    """Show on a terminal what is being measured."""
    console = Console(stderr=True, highlight=False, markup=False)
    if not console.is_terminal:
        yield lambda _: None
        return
    with console.status("bench") as status:
        yield lambda title: status.update(f"{title} ... (Ctrl-C ends, and leaves nothing)")


@contextmanager
def _stoppable() -> Iterator[None]:
    """Have INT, TERM and HUP unwind, once: what they make clean up is not to be cut short."""
    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # else nohup: let it go on
        numbers.append(signal.SIGHUP)

    def leave(number: int, frame: FrameType | None) -> NoReturn:
        for each in numbers:
            signal.signal(each, signal.SIG_IGN)
        raise SystemExit(128 + number)

    earlier = {number: signal.signal(number, leave) for number in numbers}
    try:
        yield
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)
