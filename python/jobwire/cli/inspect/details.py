"""Details of `jobwire inspect`: one job, one result or one batch."""

from __future__ import annotations

from collections.abc import Sequence

from jobwire.cli.inspect.views import arguments, spell
from jobwire.cli.table import Cell, Column, Moment, Styled, Table
from jobwire.console.ops.results import StoredResult
from jobwire.inspect import Entry, IterationState, MissingMembers
from jobwire.inspect.formats import clean, duration
from jobwire.protocol.batches import BatchStatus
from jobwire.protocol.chains import steps
from jobwire.protocol.groups import Member
from jobwire.protocol.progress import JobProgress
from jobwire.text import counted

__all__ = ["one_batch", "one_job", "one_result"]


def one_job(
    entry: Entry,
    state: IterationState | None,
    now: float,
    progress: JobProgress | None = None,
    members: Sequence[Member] = (),
) -> Table:
    """Show all details of one job."""
    facts: list[tuple[str, Cell]] = [
        ("job id", clean(entry.jid or "-")),
        ("class", clean(entry.display_class or "-")),
        ("arguments", clean(arguments(entry.display_args))),
        ("in", clean(entry.place)),
        ("queue", clean(entry.queue or "-")),
        ("tags", clean(", ".join(entry.tags)) or "-"),
        ("created", Moment(entry.created_at, now, both=True)),
        ("enqueued", Moment(entry.enqueued_at, now, both=True)),
    ]
    if entry.score is not None:
        facts.append(
            ("died" if entry.place == "dead" else "due", Moment(entry.score, now, both=True))
        )
    if entry.error_class or entry.failed_at is not None:
        facts += [
            # As in the lists and the log: 1 after the first failure, where the payload has 0.
            ("failures counted", "-" if entry.retry_count is None else str(entry.retry_count + 1)),
            ("failed first", Moment(entry.failed_at, now, both=True)),
            ("failed last", Moment(entry.retried_at, now, both=True)),
            ("error", Styled(clean(f"{entry.error_class}: {entry.error_message}"), "red")),
        ]
        facts += [("", clean(line)) for line in entry.error_backtrace or ()]
    if state:
        facts += [
            (
                "iteration",
                f"started {counted(state.starts, 'time')}, ran {duration(state.runtime)}",
            ),
            ("cursor", clean(spell(state.cursor))),
        ]
        if state.cancelled_at is not None:
            facts.append(("cancelled", Moment(state.cancelled_at, now, both=True)))
    if progress is not None:
        facts += [
            ("progress", clean(progress.summary)),
            ("reported", Moment(progress.at, now, both=True)),
        ]
    chain = steps(entry.fields)
    for number, step in enumerate(chain, 1):
        here = "this job" if step.state == "here" else f"{step.state}, {step.jid}"
        facts.append(
            ("" if number > 1 else "chain", clean(f"{number}. {step.class_name} ({here})"))
        )
    for number, member in enumerate(members, 1):
        here = ", this job" if member.jid == entry.jid else ""
        shown = clean(f"{number}. {member.jid} ({member.state}{here})")
        facts.append(("" if number > 1 else "group", shown))
    if entry.problem:
        facts.append(("problem", Styled(clean(entry.problem), "red")))
    facts.append(("payload", clean(entry.text)))
    return Table("Job", [Column("what", style="dim"), Column("", fold=True)], facts, tuple)


def one_result(stored: StoredResult, now: float) -> Table:
    """Show the stored result of a job."""
    result = stored.result
    facts: list[tuple[str, Cell]] = [
        ("job id", clean(result.jid)),
        ("outcome", result.outcome),
        ("at", Moment(result.at, now, both=True)),
    ]
    if result.error_class:
        error = f"{result.error_class}: {result.error_message}"
        facts.append(("error", Styled(clean(error), "red")))
    if result.problem:
        facts.append(("no value", Styled(clean(result.problem), "red")))
    elif result.outcome == "done":
        facts.append(("value", clean(spell(result.value))))
    kept = "-" if stored.expires_in is None else duration(stored.expires_in)
    facts.append(("kept for", kept))
    return Table("Result", [Column("what", style="dim"), Column("", fold=True)], facts, tuple)


def one_batch(status: BatchStatus, lost: MissingMembers | None, now: float) -> Table:
    """Show one batch, and the open members that were looked for and not found."""
    facts: list[tuple[str, Cell]] = [
        ("batch", clean(status.id)),
        ("description", clean(status.description) or "-"),
        ("state", clean(status.state)),
        ("created", Moment(status.created_at, now, both=True)),
        ("members", f"{status.total:,}"),
        ("open", f"{status.open:,}"),
        ("failed", f"{status.failed:,}"),
        ("done", f"{status.done:,}"),
        ("callbacks to come", ", ".join(status.waiting) or "none"),
        ("queue of callbacks", clean(status.queue)),
    ]
    if status.parent is not None:
        around = " in ".join(clean(each.batch) for each in status.parent.lineage())
        facts.insert(1, ("inside", around))
    problems: tuple[str, ...] = ()
    if lost is not None:
        facts.append(("open in no place", f"{len(lost.jids):,}"))
        facts += [("", clean(jid)) for jid in lost.jids]
        if not lost.complete:
            problems = ("not all was examined: use a higher --examine",)
    columns = [Column("what", style="dim"), Column("", fold=True)]
    return Table("Batch", columns, facts, tuple, problems=problems)
