"""The output of the demo: a table that fills on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from rich import box
from rich.console import Console
from rich.live import Live
from rich.table import Table

from examples.demo.kinds import Kind
from examples.demo.ledger import Seen

__all__ = ["Screen"]

EVERY = 1.0  # seconds between two plain lines


class Screen:
    """The table of kinds, while it fills and afterwards."""

    def __init__(self, console: Console, kinds: Sequence[Kind]) -> None:
        self.console = console
        self._kinds = kinds
        self._started = time.monotonic()
        self._said_at = self._started
        self._live: Live | None = None
        if console.is_terminal and not console.is_dumb_terminal:
            self._live = Live(console=console, auto_refresh=False, transient=True)

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._started

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live:
            self._live.stop()

    def say(self, text: str) -> None:
        """Print a line that stays, above the table."""
        self.console.print(f"[dim]{self.seconds:5.1f} s[/]  {text}", highlight=False)

    def progress(self, seen: Seen) -> None:
        """Show the progress."""
        if self._live:
            self._live.update(self._table(seen, final=False), refresh=True)
        elif time.monotonic() - self._said_at >= EVERY:
            self._said_at = time.monotonic()
            pushed = sum(len(kind.sent) for kind in self._kinds)
            left = sum(kind.left(seen) for kind in self._kinds)
            later = sum(kind.later(seen) for kind in self._kinds)
            waiting = f", {later:,} wait for their time" if later else ""
            self.say(f"{pushed - left:,} of {pushed:,} jobs have ended{waiting}")

    def result(self, seen: Seen) -> None:
        """Print the final table."""
        self.console.print(self._table(seen, final=True))

    def _table(self, seen: Seen, *, final: bool) -> Table:
        table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
        table.add_column("kind", no_wrap=True)
        for heading in ("pushed", "ran", "retried", "dead"):
            table.add_column(heading, justify="right", no_wrap=True)
        table.add_column("outcome as expected")
        for number, kind in enumerate(self._kinds):
            following = self._kinds[number + 1 : number + 2]
            table.add_row(
                kind.name,
                *(f"{count:,}" if count else "[dim]-[/]" for count in _counts(kind, seen)),
                _outcome(kind, seen, final=final),
                end_section=bool(following) and following[0].origin != kind.origin,
            )
        return table


def _counts(kind: Kind, seen: Seen) -> tuple[int, int, int, int]:
    """Return the number of jobs that were pushed, succeeded, were retried, and are dead."""
    jids = [sent.jid for sent in kind.sent if sent.jid]
    return (
        len(kind.sent),
        sum(seen.done.get(jid, 0) for jid in jids),
        sum(len(seen.retries.get(jid, ())) for jid in jids),
        sum(jid in seen.dead for jid in jids)
        + sum(seen.killed[sent.text or b""] for sent in kind.sent if sent.fate == "killed"),
    )


def _outcome(kind: Kind, seen: Seen, *, final: bool) -> str:
    if final:
        wrong = len(kind.problems(seen))
        return (
            f"[red]✗ {wrong:,} not: {kind.promise}[/]" if wrong else f"[green]✓[/] {kind.promise}"
        )
    if not kind.sent:
        return ""
    if later := kind.later(seen):
        return f"[yellow]{later:,} wait for their time[/]"
    left = kind.left(seen)
    return f"[yellow]{left:,} to go[/]" if left else f"[dim]{kind.promise}[/]"
