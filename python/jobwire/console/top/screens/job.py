"""One job: where it is, why it does not run, its payload, its error."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widgets import Static

from jobwire.console.ops.explain import Explanation
from jobwire.console.ops.locate import JobLocation
from jobwire.console.ops.paging import digest
from jobwire.console.ops.results import StoredResult
from jobwire.console.ops.roles import Action
from jobwire.console.top.context import ScreenContext
from jobwire.console.top.data_screen import DataScreen, action_key
from jobwire.console.top.screens.entry_actions import POSSIBLE, act_on_entry
from jobwire.console.top.styled_text import Cell, Part, joined, shown
from jobwire.inspect.display import CANCELLED
from jobwire.inspect.entry import QUEUE, Entry
from jobwire.inspect.formats import ago, clean, duration, iso
from jobwire.protocol.progress import JobProgress
from jobwire.text import visible

__all__ = ["JobView"]

EXAMINED = 1_000  # jobs of each queue and entries of each set
MAX_VALUE_CHARS = 10_000  # characters of one value
MAX_LINES = 100  # of a backtrace, or of the payload
MAX_LINE_CHARS = 400
EVENTS = {
    "created_at": "created",
    "enqueued_at": "enqueued",
    "failed_at": "failed first",
    "retried_at": "failed last",
}
SCORES = {"retry": "next attempt", "schedule": "due", "dead": "died", "unreadable": "set aside"}


@dataclass(frozen=True, slots=True)
class JobData:
    """One job, of one read."""

    explained: Explanation
    result: StoredResult | None
    progress: JobProgress | None


class JobView(DataScreen[JobData]):
    """The page of one job.

    Args:
        context: The parts that all screens share.
        tab: Name of the tab from which it was opened.
        jid: The job id.
        known: Its place in a set or a queue, if that is known.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "back", "Back"),
        action_key("r", "retry", "Retry"),
        action_key("a", "add_to_queue", "Enqueue"),
        action_key("k", "kill", "Kill"),
        action_key("x", "delete", "Delete"),
        action_key("t", "reschedule", "When"),
        action_key("e", "cancel", "Cancel"),
    ]
    polled = False

    def __init__(
        self, context: ScreenContext, tab: str, jid: str, known: JobLocation | None = None
    ) -> None:
        super().__init__(context, tab, "Job")
        self.jid = jid
        self._known = known
        self._entry: Entry | None = None

    def body(self) -> ComposeResult:
        """Yield the page."""
        with VerticalScroll(classes="page"):
            yield Static("reading …", id="job", markup=False)

    def read_data(self) -> JobData:
        """Return where the job is: looked up by its place, or searched for by its id."""
        operations = self.context.operations
        if (known := self._still()) is not None:
            explained = operations.explain(self.jid, known=known)
        else:
            explained = operations.explain(self.jid, examine=EXAMINED, in_sets=EXAMINED)
        if not self.jid:
            return JobData(explained, None, None)
        return JobData(explained, operations.result(self.jid), operations.progress(self.jid))

    def _still(self) -> JobLocation | None:
        """Return the known place if the job is still there; look in a queue no further."""
        known = self._known
        if known is None or not (known.place in POSSIBLE or known.place.startswith(QUEUE)):
            return None
        one = known.job
        if known.place.startswith(QUEUE):
            return known if self.reads == 0 else None
        if one.score is None:
            return None
        found = self.context.operations.entry_at(
            one.place,  # type: ignore[arg-type]
            one.score,
            one.jid or "",
            digest(one),
        )
        return None if found is None else known

    def show_data(self, data: JobData) -> None:
        """Show the page."""
        explained, result = data.explained, data.result
        at = next(
            (
                one
                for one in explained.places
                if one.place in POSSIBLE or one.place.startswith(QUEUE)
            ),
            None,
        )
        self._entry = None if at is None else at.job
        job = explained.places[0].job if explained.places else None
        now = self.context.clock()
        lines: list[list[Part]] = [*_places(explained, now), [""], *_reasons(explained)]
        if data.progress is not None:
            progress_line = (
                f"{shown(data.progress.summary, MAX_LINE_CHARS)}, {ago(data.progress.at, now)}"
            )
            lines += [[""], [Cell("progress ", "name"), progress_line]]
        if result is not None:
            lines += [[""], *_result_lines(result, now)]
        if job is not None:
            lines += [[""], *_job_lines(job, now)]
        self.query_one("#job", Static).update(joined(lines))
        self.say("F5 reads it again")
        self.refresh_bindings()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Hide the actions that the place of the job, or the role, does not allow."""
        if action == "act" and parameters[0] != "cancel":
            place = "" if self._entry is None else self._entry.place
            possible = POSSIBLE.get(place, ("delete",) if place.startswith(QUEUE) else ())
            if parameters[0] not in possible:
                return False
        return super().check_action(action, parameters)

    async def perform(self, act: Action) -> None:
        """Do an action on the job."""
        if act == "cancel":
            if await self.confirmed(f"Cancel {shown(self.jid, 60)}?"):
                answer = await self.attempt(lambda: self.context.operations.cancel(self.jid))
                if answer is not None:
                    self.tell(f"{self.jid} {CANCELLED[answer.place]}")
        elif self._entry is not None:
            await act_on_entry(self, act, self._entry, self._entry.place)


def _places(data: Explanation, now: float) -> Iterator[list[Part]]:
    yield [Cell(f"Job {shown(data.jid, 60) or '(without an id)'}", "head")]
    for one in data.places:
        yield [Cell("place    ", "name"), _place(one, now)]


def _place(one: JobLocation, now: float) -> str:
    if one.place == "running":
        began = "" if one.run_at is None else f" for {duration(now - one.run_at)}"
        return f"running{began} in process {clean(one.identity)}, thread {clean(one.thread)}"
    if one.place == "held":
        lease = "without a lease" if one.lease is None else f"lease {duration(one.lease)}"
        return f"fetched by process {clean(one.identity)}, {lease}"
    ahead = "" if one.ahead is None else f", {one.ahead:,} jobs before it"
    return f"{clean(one.place)}{ahead}"


def _reasons(data: Explanation) -> Iterator[list[Part]]:
    for reason in data.reasons:
        style = "bad" if reason.blocks else "warn" if reason.remedy else "good"
        yield [Cell(f"{reason.code}: ", "name"), Cell(clean(reason.sentence), style)]
        if reason.remedy:
            yield [f"  -> {clean(reason.remedy)}"]


def _result_lines(stored: StoredResult, now: float) -> Iterator[list[Part]]:
    result = stored.result
    kept = "" if stored.expires_in is None else f", kept for {duration(stored.expires_in)}"
    yield [Cell("result   ", "name"), f"{result.outcome} {ago(result.at, now)}{kept}"]
    if result.error_class:
        error = f"{result.error_class}: {result.error_message}"
        yield [Cell("error    ", "name"), Cell(shown(error, 2 * MAX_LINE_CHARS), "bad")]
    if result.problem:
        yield [Cell("no value ", "name"), Cell(shown(result.problem, MAX_LINE_CHARS), "bad")]
    elif result.outcome == "done":
        yield from _value(result.value)


def _job_lines(job: Entry, now: float) -> Iterator[list[Part]]:
    if job.problem:
        yield [Cell("problem  ", "name"), Cell(shown(job.problem, MAX_LINE_CHARS), "bad")]
        yield [Cell("payload", "name")]
        yield from _cut_lines(
            visible(job.text[:MAX_VALUE_CHARS]).splitlines() or [""], len(job.text)
        )
        return
    yield [Cell("class    ", "name"), shown(job.display_class, MAX_LINE_CHARS)]
    yield [Cell("queue    ", "name"), shown(job.queue, MAX_LINE_CHARS)]
    if job.tags:
        yield [Cell("tags     ", "name"), shown(", ".join(map(str, job.tags)), MAX_LINE_CHARS)]
    for event, at in _times(job):
        yield [Cell(f"{event:<13}", "name"), f"{ago(at, now)}   {iso(at)}"]
    if job.error_class or job.error_message:
        yield [""]
        error = f"{job.error_class}: {job.error_message}"
        yield [Cell("error    ", "name"), Cell(shown(error, 2 * MAX_LINE_CHARS), "bad")]
        backtrace = job.error_backtrace or []
        for line in backtrace[:MAX_LINES]:
            yield [Cell(f"  {shown(line, MAX_LINE_CHARS)}", "dim")]
        if len(backtrace) > MAX_LINES:
            yield [f"  … {len(backtrace) - MAX_LINES:,} more lines"]
    yield [""]
    yield [Cell("arguments", "name")]
    yield from _value(job.display_args)
    yield [""]
    yield [Cell("payload", "name"), f" {len(job.payload):,} bytes"]
    hidden = {"error_backtrace"}
    yield from _value({name: value for name, value in job.fields.items() if name not in hidden})


def _times(job: Entry) -> list[tuple[str, float]]:
    times = [(words, getattr(job, name)) for name, words in EVENTS.items()]
    if job.place in SCORES and job.score is not None:
        times.append((SCORES[job.place], job.score))
    return sorted(((words, at) for words, at in times if at is not None), key=lambda pair: pair[1])


def _value(value: object) -> Iterator[list[Part]]:
    try:
        text = json.dumps(value, indent=2, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        text = str(value)
    yield from _cut_lines(text[:MAX_VALUE_CHARS].split("\n"), len(text))


def _cut_lines(lines: list[str], length: int) -> Iterator[list[Part]]:
    for line in lines[:MAX_LINES]:
        yield [f"  {shown(line, MAX_LINE_CHARS)}"]
    if len(lines) > MAX_LINES or length > MAX_VALUE_CHARS:
        yield [Cell(f"  … of {length:,} characters", "dim")]
