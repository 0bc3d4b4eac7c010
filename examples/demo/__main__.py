"""Start a server and a worker, push jobs of every kind, watch them, check the outcomes.

Exit status: 0 all outcomes are as expected; 1 not.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from redis import RedisError
from rich.console import Console
from rich.markup import escape

from examples.demo import live
from examples.demo.kinds import Kind, all_kinds, queues
from examples.demo.ledger import Problem, Seen
from examples.demo.screen import Screen
from examples.demo.stage import (
    DemoStage,
    Interrupted,
    WorkerFailed,
    end_in_good_order,
    open_stage,
)
from examples.demo_app import app
from jobwire import JobwireError

TICK = 0.1  # seconds between two reads
LINES = 20  # of the log, on failure

NEXT = """\
Next steps, in this directory:
  .venv/bin/jobwire dev examples.demo_app:app    [dim]a server and a worker; then,[/]
  .venv/bin/jobwire enqueue EchoJob 1 '"two"'    [dim]in another terminal, a job for them[/]
  examples/demo_app.py                           [dim]the application that just ran[/]
  make demo ARGS=--web                           [dim]the page, with live jobs[/]
  README.md, SPEC.md                             [dim]its use; the protocol[/]"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; return the exit status."""
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__.split("\n")[0])
    parser.add_argument("--app", default="examples.demo_app:app", help="the worker's application")
    parser.add_argument(
        "--patience", type=float, default=45.0, metavar="SECONDS", help="for all jobs together"
    )
    parser.add_argument(
        "--web", action="store_true", help="serve the page, with ever more jobs, until Ctrl-C"
    )
    parser.add_argument(
        "--port", type=int, default=9928, help="port of the page; 0 for any (default: %(default)s)"
    )
    options = parser.parse_args(arguments)
    console = Console(highlight=False)
    end_in_good_order()
    try:
        with open_stage(options.app, queues()) as stage:
            if options.web:
                stage.wait_for_worker()
                live.show(stage, console, all_kinds(), options.port)
            return _run(stage, console, options.patience)
    except Interrupted as signal:
        console.print("interrupted; server and worker are gone, nothing is left behind")
        return int(signal.code or 0)
    except WorkerFailed as error:
        console.print(f"[red]✗[/] {escape(str(error))}")
    except JobwireError as error:
        console.print(f"[red]✗[/] {escape(str(error))}")
    except RedisError as error:
        console.print(f"[red]✗[/] the server has gone: {escape(str(error))}")
    return 1


def _run(stage: DemoStage, console: Console, patience: float) -> int:
    kinds, seen = all_kinds(), Seen()
    screen = Screen(console, kinds)
    try:
        with screen:
            stage.wait_for_worker()
            screen.say(
                f"{stage.product} and a worker are running, both in a directory of their own"
            )
            app.connect(stage.url)
            _push(stage, kinds, seen, screen)
            _watch(stage, kinds, seen, screen, patience)
            status = stage.stop_worker()
            seen.look(stage.redis)
    except WorkerFailed as error:
        console.print(f"[red]✗[/] {error}; the end of its log:")
        _show(console, _lines(stage.log)[-LINES:])
        return 1
    screen.result(seen)
    console.print(
        "[dim]ran: succeeded. retried: put into the retry set after a failure.[/]", highlight=False
    )
    wrong = [
        Problem(fault.jid, f"{kind.name}: {fault.text}")
        for kind in kinds
        for fault in kind.problems(seen)
    ]
    wrong += _bookkeeping(stage, seen, status)
    pushed = sum(len(kind.sent) for kind in kinds)
    if wrong:
        console.print(f"\n[red]✗ {len(wrong):,} things are not as expected:[/]")
        _show(console, [fault.text for fault in wrong[:LINES]])
        console.print("\nThe worker's log about them:")
        _show(console, _about(wrong, _lines(stage.log))[-LINES:])
        return 1
    console.print(
        f"[green]✓[/] {pushed:,} jobs in {screen.seconds:.1f} s; "
        "queues are empty, counters agree, the worker has stopped\n"
    )
    console.print(NEXT)
    return 0


def _push(stage: DemoStage, kinds: Sequence[Kind], seen: Seen, screen: Screen) -> None:
    for kind in kinds:
        kind.sent += kind.push(stage.redis)
        seen.pushed |= {sent.text for sent in kind.sent if sent.text}
        seen.look(stage.redis)
        screen.progress(seen)


def _watch(
    stage: DemoStage, kinds: Sequence[Kind], seen: Seen, screen: Screen, patience: float
) -> None:
    """Wait until every job has its outcome, but not longer than `patience`."""
    made_due = {jid for kind in kinds for jid in kind.made_due}
    deadline = time.monotonic() + patience
    while any(kind.left(seen) for kind in kinds) and time.monotonic() < deadline:
        time.sleep(TICK)
        stage.check_worker()
        seen.look(stage.redis)
        if moved := seen.make_due(stage.redis, made_due):
            screen.say(f"time warp: {moved} retries that are due in 15 s or more are made due now")
        screen.progress(seen)


def _bookkeeping(stage: DemoStage, seen: Seen, status: int) -> list[Problem]:
    """Return wrong counters and leftovers in Redis, after the worker has stopped."""
    failed = sum(seen.failed.values())
    runs = sum(seen.done.values()) + failed
    expected = {
        "exit status of the worker": (status, 0),
        "jobs left in queues": (sum(stage.redis.llen(f"queue:{name}") for name in queues()), 0),
        "jobs left in the schedule": (stage.redis.zcard("schedule"), 0),
        "processes still registered": (stage.redis.scard("processes"), 0),
        "stat:processed": (int(stage.redis.get("stat:processed") or 0), runs),
        "stat:failed": (int(stage.redis.get("stat:failed") or 0), failed),
    }
    return [
        Problem("", f"{name}: {actual} instead of {right}")
        for name, (actual, right) in expected.items()
        if actual != right
    ]


def _lines(log: Path) -> list[str]:
    return log.read_text(errors="replace").splitlines()


def _about(wrong: Sequence[Problem], lines: Sequence[str]) -> list[str]:
    """Return the lines that name one of the jobs, or all lines if none does."""
    jids = {fault.jid for fault in wrong[:LINES] if fault.jid}
    return [line for line in lines if any(jid in line for jid in jids)] or list(lines)


def _show(console: Console, lines: Sequence[str]) -> None:
    for line in lines:
        console.print(f"  {escape(line)}", soft_wrap=True)


if __name__ == "__main__":
    sys.exit(main())
