"""Problems between two versions of Sidekiq, or of an upgrade: a table."""

from __future__ import annotations

from typing import Literal, NamedTuple

__all__ = ["HAZARDS", "Hazard"]


class Hazard(NamedTuple):
    """A problem between two versions of Sidekiq, or of an upgrade.

    Attributes:
        code: Its name.
        severity: See `doctor.Finding`.
        sentence: The problem.
        remedy: The way to avoid it.
        needs: Signs, one of which must be there; none if empty.
        writer: Versions of one writer, first and the one after the last; empty: open.
        reader: Versions of a second writer; None for an upgrade, which needs only the first.
        server: Versions of the server, or None.
        ours: True if it also holds where jobwire may have written what the first one has.
    """

    code: str
    severity: Literal["error", "warning", "note"]
    sentence: str
    remedy: str
    needs: tuple[str, ...] = ()
    writer: tuple[str, str] = ("", "")
    reader: tuple[str, str] | None = None
    server: tuple[str, str] | None = None
    ours: bool = False


_WRAPPERS = ("wrapper-new", "wrapper-old")

HAZARDS: tuple[Hazard, ...] = (
    Hazard(
        "times-misread",
        "warning",
        "Sidekiq before 8 reads the times of Sidekiq 8 as seconds: pages show the year 57,000, and "
        "latencies are negative.",
        "upgrade all processes and pages to 8 in one deploy; jobwire writes the older form until "
        "then",
        writer=("8.0", ""),
        reader=("", "8.0"),
        ours=True,
    ),
    Hazard(
        "retry-for-misread",
        "warning",
        "A worker of Sidekiq 7 never reaches the end of retry_for of a job that failed first in "
        "Sidekiq 8.",
        "upgrade the workers of 7",
        needs=("retry-for",),
        writer=("8.0", ""),
        reader=("7.1.3", "8.0"),
        ours=True,
    ),
    Hazard(
        "attributes-misread",
        "error",
        "A worker of Sidekiq 7 or older cannot apply the current attributes that Sidekiq 8 writes.",
        "upgrade the older workers first, or let other queues carry these jobs",
        needs=("cattr-array",),
        writer=("8.0", ""),
        reader=("", "8.0"),
    ),
    Hazard(
        "wrapper-unknown",
        "error",
        "A worker before Sidekiq 7.3.3 does not know the class Sidekiq::ActiveJob::Wrapper, so "
        "these jobs fail and are retried.",
        "upgrade these workers to 7.3.3 or newer before any client of 8",
        needs=("wrapper-new",),
        writer=("7.3.3", ""),
        reader=("", "7.3.3"),
        ours=True,
    ),
    Hazard(
        "running-jobs-hidden",
        "note",
        "Pages of Sidekiq up to 6.4.1 and of newer versions do not see each other's running jobs, "
        "because the key of these has another name.",
        "read them with jobwire, which reads both keys, or finish the upgrade",
        writer=("6.4.2", ""),
        reader=("", "6.4.2"),
    ),
    Hazard(
        "concurrency-hidden",
        "note",
        "Pages of Sidekiq before 8.1.2 and of newer versions show 0 threads for each other's "
        "processes.",
        "finish the upgrade; the number is only shown",
        writer=("8.1.2", ""),
        reader=("", "8.1.2"),
    ),
    Hazard(
        "backtrace-misread",
        "warning",
        "Sidekiq 7 and newer cannot show error_backtrace as the array that versions before 6.0.1 "
        "write, and these cannot show the newer text.",
        "upgrade the oldest processes to 6 first",
        writer=("", "6.0.1"),
        reader=("7.0", ""),
    ),
    Hazard(
        "metrics-split",
        "note",
        "The metrics pages of Sidekiq 7 and of Sidekiq 8 show only the executions of their own "
        "version.",
        "read them with 'jobwire inspect metrics', or finish the upgrade",
        writer=("8.0", ""),
        reader=("6.5.2", "8.0"),
    ),
    Hazard(
        "namespace-apart",
        "error",
        "Sidekiq 7 and newer has no namespace, so it shares no job with the processes that use "
        "one.",
        "move all programs to keys without a namespace in one deploy, after the queues are empty",
        needs=("namespace",),
        writer=("7.0", ""),
        reader=("", ""),
    ),
    Hazard(
        "cron-layouts",
        "warning",
        "sidekiq-cron 1 and 2 keep their entries in different sets and do not see each other's, so "
        "an entry may run twice.",
        "upgrade all processes to sidekiq-cron 2, or see 'jobwire periodic migrate'",
        needs=("cron-1+cron-2",),
    ),
    Hazard(
        "whole-seconds-misread",
        "warning",
        "Sidekiq 8 reads times in whole seconds as January 1970.",
        "let the client write float seconds or integer milliseconds",
        needs=("whole-seconds",),
        writer=("8.0", ""),
    ),
    Hazard(
        "text-times-misread",
        "warning",
        "Pages of Sidekiq fail on times that are text.",
        "let the client write numbers; delete the entries that break a page",
        needs=("text-times",),
    ),
    Hazard(
        "batches-uncertain",
        "note",
        "Batches of Sidekiq Pro and of sidekiq-batch use the same field bid.",
        "use one of the two",
        needs=("batch-key+pro-batch",),
    ),
    # Upgrades.
    Hazard(
        "upgrade-7-namespace",
        "error",
        "An upgrade to Sidekiq 7 loses sight of all jobs under a namespace, which 7 does not have.",
        "let the old processes empty their queues, then deploy 7 without a namespace",
        needs=("namespace",),
        writer=("", "7.0"),
    ),
    Hazard(
        "upgrade-7-delayed",
        "error",
        "Sidekiq 7 has no delayed extensions, so these jobs fail after an upgrade.",
        "replace .delay by jobs, and wait until none of these classes is left",
        needs=("delayed",),
        writer=("", "7.0"),
    ),
    Hazard(
        "upgrade-7-server",
        "error",
        "Sidekiq 7 needs Redis 6.2 or newer.",
        "upgrade the server first",
        writer=("", "7.0"),
        server=("", "6.2"),
    ),
    Hazard(
        "upgrade-8-times",
        "note",
        "Sidekiq 8 writes times of payloads as integer milliseconds, which older processes, their "
        "pages, and programs that read payloads misread.",
        "upgrade all of them in one deploy; a rollback also misreads what 8 has written",
        writer=("", "8.0"),
    ),
    Hazard(
        "upgrade-8-active-job",
        "warning",
        "Sidekiq 8 writes jobs of Active Job with a class that workers before 7.3.3 do not know.",
        "upgrade to 7.3.3 or newer first, and do not roll back below it",
        needs=_WRAPPERS,
        writer=("", "7.3.3"),
    ),
    Hazard(
        "upgrade-8-retry-for",
        "note",
        "From Sidekiq 8.1, retry_for alone decides how long a job is retried; before, the number "
        "of retries also did.",
        "compare retry_for of these jobs with the number of their retries",
        needs=("retry-for",),
        writer=("7.1.3", "8.1"),
    ),
    Hazard(
        "upgrade-8-attributes",
        "note",
        "Sidekiq 8 writes current attributes in another form, which older workers cannot apply.",
        "upgrade all workers before the first client",
        needs=("cattr-object",),
        writer=("", "8.0"),
    ),
    Hazard(
        "upgrade-8-metrics",
        "note",
        "The metrics page starts empty after an upgrade to Sidekiq 8.",
        "nothing; the executions of the last 8 hours are only shown by 7",
        needs=("metrics-7",),
        writer=("", "8.0"),
    ),
    Hazard(
        "upgrade-8-server",
        "error",
        "Sidekiq 8 needs Redis 7.0 or newer.",
        "upgrade the server first",
        writer=("", "8.0"),
        server=("", "7.0"),
    ),
    Hazard(
        "upgrade-cron-2",
        "note",
        "The first process of sidekiq-cron 2 moves the entries of version 1, and processes of 1 "
        "stop running them.",
        "stop the processes of 1 first; after a rollback, 1 does not see the moved entries",
        needs=("cron-1",),
    ),
)
