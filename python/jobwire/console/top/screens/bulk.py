"""Actions on many entries: the dry run, the confirmation, and the progress."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from typing import Any, ClassVar

from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from jobwire.console.ops.bulk import BulkAction, check_action
from jobwire.console.ops.changes import Change, batches, progress_of, restoring
from jobwire.console.ops.selection import Preview, Selection
from jobwire.console.top.context import ScreenContext
from jobwire.console.top.styled_text import Cell, Part, joined, one_line, shown
from jobwire.console.top.threads import in_thread, poster
from jobwire.errors import JobwireError
from jobwire.inspect.formats import clean, duration
from jobwire.text import counted

__all__ = ["ChangeView", "ask_and_start", "change_line", "undo_change"]

REFRESH_S = 0.2
WORDS = {"retry": "Retry", "add_to_queue": "Enqueue now", "kill": "Kill", "delete": "Delete"}
BAR = 30  # columns


class DryRun(ModalScreen[bool]):
    """Counts the entries that an action would change, and asks.

    Args:
        context: The parts that all screens share.
        act: The act.
        chosen: The entries.
        where: Name of their place.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "agree", "Yes"),
        Binding("n,escape,q", "give_up", "No"),
    ]

    def __init__(
        self, context: ScreenContext, act: BulkAction, chosen: Selection, where: str
    ) -> None:
        super().__init__()
        self._screen_context, self._act, self._chosen, self._where = context, act, chosen, where
        self._stop = threading.Event()
        self.preview: Preview | None = None

    def compose(self) -> ComposeResult:
        """Yield the widgets."""
        with VerticalScroll(classes="dialog tall"):
            yield Static("counting …", id="dry-run", markup=False)

    def on_mount(self) -> None:
        """Begin to count."""
        self._count()

    def on_unmount(self) -> None:
        """Stop to count."""
        self._stop.set()

    @work
    async def _count(self) -> None:
        post = poster()

        def progress(seen: int, total: int) -> None:
            line = f"counting: {seen:,} of {total:,} examined"
            post(lambda: self._show([[line], ["n  give up"]]))

        def run() -> Preview:
            return self._screen_context.operations.preview(
                self._chosen, progress=progress, enough=self._stop.is_set
            )

        try:
            preview = await in_thread(run)
        except JobwireError as error:
            self._show([[Cell(clean(str(error)), "bad")], ["n  close"]])
            return
        if not self.is_attached:
            return
        if not preview.matched:
            self._show([[f"no job of {self._where} matches, of {preview.total:,}"], ["n  close"]])
            return
        self.preview = preview
        lines: list[list[Part]] = [
            [
                Cell(f"{WORDS[self._act]} {counted(preview.matched, 'job')}", "head"),
                f" of {preview.total:,} in {self._where}?",
            ],
            [""],
            *_samples(preview),
            ["…" if preview.matched > len(preview.sample) else ""],
            ["Deleted jobs can be put back for 24 hours." if self._act == "delete" else ""],
            ["y  yes    n  no"],
        ]
        self._show(lines)

    def _show(self, lines: list[list[Part]]) -> None:
        for shown_text in self.query("#dry-run").results(Static):  # none, once it is closed
            shown_text.update(joined(lines))

    def action_agree(self) -> None:
        """Let it be done, if the count is known."""
        if self.preview is not None:
            self.dismiss(True)

    def action_give_up(self) -> None:
        """Change nothing."""
        self._stop.set()
        self.dismiss(False)


class ChangeView(ModalScreen[None]):
    """The progress of a change of many jobs; it goes on if this is closed.

    Args:
        context: The parts that all screens share.
        change: The change.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("s", "stop", "Stop"),
        Binding("u", "undo", "Undo"),
        Binding("escape,q,enter", "close", "Close"),
    ]

    def __init__(self, context: ScreenContext, change: Change) -> None:
        super().__init__()
        self._screen_context, self.change = context, change

    def compose(self) -> ComposeResult:
        """Yield the widgets."""
        with VerticalScroll(classes="dialog tall"):
            yield Static(id="change", markup=False)

    def on_mount(self) -> None:
        """Show the progress several times a second."""
        self._draw()
        self.set_interval(REFRESH_S, self._draw)

    def _draw(self) -> None:
        change = self.change
        progress = change.progress
        part = 1.0 if change.ended and not change.stopped else 0.0
        if progress.total:
            part = min(progress.seen / progress.total, 1.0)
        filled = round(part * BAR)
        keys = "esc  close; it goes on    s  stop"
        if change.ended:
            keys = "esc  close    u  undo" if self._can_undo else "esc  close"
        rest = "" if change.rest is None else f"   {duration(change.rest)} left"
        lines: list[list[Part]] = [
            [Cell(f"{WORDS.get(change.act, 'Put back')}: {clean(change.target)}", "head")],
            [f"[{'#' * filled}{'-' * (BAR - filled)}] {part:.0%}{rest}"],
            [change_line(change)],
            [""],
            [keys],
        ]
        for shown_text in self.query("#change").results(Static):  # none, once it is closed
            shown_text.update(joined(lines))

    @property
    def _can_undo(self) -> bool:
        return bool(self.change.progress.undo) and self._screen_context.permits("undo")

    def action_stop(self) -> None:
        """Let the change end after its batch."""
        if not self.change.ended:
            self._stop()

    @work
    async def _stop(self) -> None:
        await in_thread(lambda: self._screen_context.changes.stop(self.change.id))

    def action_undo(self) -> None:
        """Put back what the change deleted."""
        if self.change.ended and self._can_undo:
            undoing = undo_change(
                self._screen_context, self.change.progress.undo, self.change.target
            )
            try:
                self._screen_context.changes.start(undoing)
            except JobwireError as error:
                self.app.notify(clean(str(error)), severity="error", markup=False)
                return
            self.change = undoing

    def action_close(self) -> None:
        """Close the view."""
        self.dismiss(None)


async def ask_and_start(
    app: App[Any], context: ScreenContext, act: BulkAction, chosen: Selection, where: str
) -> bool:
    """Show the dry run, start the change if the person agrees, and show its progress.

    Returns:
        True if a change was started.
    """
    states = None
    try:
        check_action(act, chosen.place)
        if not await app.push_screen_wait(DryRun(context, act, chosen, where)):
            return False
        states = context.operations.bulk(act, chosen)
        first = await in_thread(partial(next, states))
        change = Change(
            id=first.id,
            act=act,
            target=f"{where} ({chosen.describe()})",
            person=context.operations.person,
            work=batches(states),
            at=context.clock(),
            progress=progress_of(first),
        )
        context.changes.start(change)
    except JobwireError as error:
        if states is not None:
            await in_thread(states.close)  # it writes the end of the change into the journal
        app.notify(clean(str(error)), severity="error", markup=False)
        return False
    await app.push_screen_wait(ChangeView(context, change))
    return True


def undo_change(context: ScreenContext, undo_id: str, target: str) -> Change:
    """Return the change that puts back what a deletion took away."""
    return Change(
        id=f"undo-{undo_id}",
        act="undo",
        target=target,
        person=context.operations.person,
        work=restoring(context.operations, undo_id),
        at=context.clock(),
    )


def change_line(change: Change) -> str:
    """Return how far a change is, in words."""
    progress = change.progress
    line = f"{progress.seen:,} of {progress.total:,} examined, {progress.done:,} done"
    if progress.left:
        line += f", {progress.left:,} left alone"
    if progress.unsure:
        line += f", {progress.unsure:,} may run twice"
    if change.error:
        return f"{line}; failed: {clean(change.error)}"
    if change.ended:
        return f"{line}; {'stopped' if change.stopped else 'ended'} after {change.seconds:.1f} s"
    return f"{line}; {change.status}"


def _samples(preview: Preview) -> Iterator[list[Part]]:
    for one in preview.sample:
        arguments = shown(one.text, 50) if one.problem else one_line(one.display_args, 50)
        yield [Cell(f"  {shown(one.display_class or '?', 40)}", "name"), f"  {arguments}"]
