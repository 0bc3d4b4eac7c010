"""`jobwire bench`: measures the speed of this machine and of your Redis."""

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

from jobwire._version import __version__
from jobwire.cli.exits import EXIT_UNEXPECTED
from jobwire.cli.options import app_option, find_redis, redis_option
from jobwire.cli.output import pretty, show
from jobwire.cli.table import Column, Table
from jobwire.connection.connect import safe_url

__all__ = ["bench"]

QUICK = {"jobs": 500, "lone": 20, "waiting": 100}


@click.command()
@app_option
@redis_option
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    metavar="N",
    help="Number of jobs in each run. [default: 20000, or 500 with --quick]",
)
@click.option(
    "-c",
    "--concurrency",
    type=click.IntRange(min=1),
    default=10,
    metavar="N",
    help="Jobs that a worker process runs at the same time. [default: 10]",
)
@click.option(
    "--processes",
    type=click.IntRange(min=1),
    default=1,
    metavar="N",
    help="Also drain a queue with this number of worker processes. [default: 1]",
)
@click.option(
    "--quick", is_flag=True, help="Fewer jobs: takes a few seconds and gives rough figures."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def bench(
    url: str | None, jobs: int | None, concurrency: int, processes: int, quick: bool, as_json: bool
) -> int:
    """Measure the speed of your Redis and of this machine: enqueue, run, promote, retry.

    All keys begin with jobwire-bench- and are removed at the end, also after Ctrl-C. The bench
    does not touch other keys, but keeps the server busy while it runs. Do not run it on a
    production server at its busiest hour. The load from other clients is part of the figures.
    """
    from jobwire.bench import BenchFailed, BenchServer, Plan, Result, Surroundings, run

    redis, source, *_ = find_redis(url)
    sizes = dict(QUICK) if quick else {}
    if jobs is not None:
        sizes |= {"jobs": jobs, "waiting": min(jobs, sizes.get("waiting", Plan().waiting))}
    plan = Plan(**sizes, concurrency=concurrency, processes=processes)
    surroundings: Surroundings | None = None
    results: list[Result] = []
    try:
        with _stoppable(), BenchServer(redis) as server, _progress() as tell:
            for outcome in run(server, plan, tell):
                if isinstance(outcome, Result):
                    results.append(outcome)
                else:
                    surroundings = outcome
    except BenchFailed as error:
        click.echo(f"jobwire: {error}", err=True)
        return EXIT_UNEXPECTED
    assert surroundings is not None
    if as_json:
        report: dict[str, Any] = {
            "jobwire": __version__,
            "python": sys.version.split()[0],
            "redis": safe_url(redis),
            "plan": asdict(plan),
            "surroundings": asdict(surroundings),
            "results": [asdict(result) for result in results],
        }
        click.echo(json.dumps(report))
    else:
        _print(results, surroundings, f"{safe_url(redis)} ({source})")
    return 0


def _print(results: list[Any], surroundings: Any, redis: str) -> None:
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

    def summary() -> list[str]:
        others = surroundings.other_clients
        load = "?" if surroundings.load is None else surroundings.load
        lines = [
            f"{surroundings.server} at {redis}; "
            f"a round trip takes {surroundings.round_trip_ms:g} ms",
            f"{surroundings.cores} cores here, load {load} before the run",
            "Python, server: the share of one core that they used",
        ]
        if others:
            lines.append(f"{others} connections of other clients: the server's share includes them")
        return ["\n".join(lines)]

    show(Table("bench", columns, results, row, summary=summary), as_json=False)


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.0%}"


@contextmanager
def _progress() -> Iterator[Callable[[str], None]]:
    """Show the name of the running measurement, on a terminal."""
    drawing = pretty(sys.stderr)
    if drawing is None:
        yield lambda _: None
        return
    with drawing.status("bench") as update:
        yield lambda title: update(f"{title} ... (Ctrl-C stops and removes all keys)")


@contextmanager
def _stoppable() -> Iterator[None]:
    """Exit cleanly at INT, TERM or HUP; a second signal does not interrupt the clean-up."""
    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # with nohup, HUP stays ignored
        numbers.append(signal.SIGHUP)

    def leave(number: int, frame: FrameType | None) -> NoReturn:
        for handled in numbers:
            signal.signal(handled, signal.SIG_IGN)
        raise SystemExit(128 + number)

    earlier = {number: signal.signal(number, leave) for number in numbers}
    try:
        yield
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)
