"""Reasons that a job does not run now, with a remedy for each. It reads nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from jobwire.console.ops.competing_queues import competing_queues
from jobwire.console.ops.locate import JobFacts, JobLocation
from jobwire.inspect.entry import Entry
from jobwire.inspect.processes import ProcessInfo
from jobwire.inspect.reading import text
from jobwire.protocol import foreign
from jobwire.protocol.batches import BATCH, membership
from jobwire.protocol.heartbeat import BEAT_INTERVAL_S, LEASE_S
from jobwire.protocol.keys import Keys
from jobwire.protocol.unique import UNIQUE, lock_of
from jobwire.text import counted, visible

__all__ = ["Explanation", "Reason", "explain"]

POLL_S = 15.0  # average seconds between polls of the fleet, per process [SCHED-8]
FEWEST_POLL_S = 30.0
SILENT_S = 2.5 * BEAT_INTERVAL_S  # without a beat, a process is probably dead
LOW_SHARE = 0.2
USUAL_RETRIES = 25  # [RETRY-5]
MAX_NAMES = 3


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason that a job does not run now, or one fact about a job that does.

    Attributes:
        code: Its name, such as `queue-paused`; the names do not change.
        sentence: The reason.
        remedy: The way to make the job run, or "" if nothing needs to be done.
        blocks: True if the job does not run until a person acts.
    """

    code: str
    sentence: str
    remedy: str = ""
    blocks: bool = False


@dataclass(frozen=True, slots=True)
class Explanation:
    """The places of a job, and why it does not run now.

    Attributes:
        jid: The job id.
        places: Its places; usually one. A running job of jobwire is held and running.
        reasons: The reasons, the first cause first; at least one.
    """

    jid: str
    places: Sequence[JobLocation]
    reasons: Sequence[Reason]


def explain(facts: JobFacts) -> Explanation:
    """Return the explanation for the facts about a job."""
    reasons = [*_reasons(facts)]
    first_of_each = {reason.code: reason for reason in reversed(reasons)}
    ordered = [reason for reason in reasons if first_of_each[reason.code] is reason]
    return Explanation(facts.jid, facts.places, ordered)


def _reasons(facts: JobFacts) -> Iterator[Reason]:
    if not facts.places:
        yield from _not_found(facts)
        return
    yield from _limit(facts)
    running = {one.identity for one in facts.places if one.place == "running"}
    for one in facts.places:
        match one.place:
            case "running":
                yield from _running(one, facts)
            case "held":
                if one.identity not in running:
                    yield from _held(one, facts)
            case "schedule" | "retry":
                yield from _waiting_for_its_time(one, facts)
            case "dead":
                yield _dead(one.job)
            case "unreadable":
                yield _unreadable(one.job)
            case "parked":
                yield _parked(one, facts)
            case _:
                yield from _queued(one, facts)
    yield from _lock(facts)
    yield from _batch(facts)
    outside = [one for one in facts.places if one.place not in ("held", "running")]
    if len(outside) > 1 or (outside and len(outside) < len(facts.places)):
        named = ", ".join(dict.fromkeys(visible(text(one.place)) for one in facts.places))
        yield Reason(
            "several-places",
            f"Several jobs have this id: {named}. A job that was pushed twice runs twice.",
            "delete the jobs that should not run",
        )


# -- found in a queue


def _queued(one: JobLocation, facts: JobFacts) -> Iterator[Reason]:
    if one.job.fault:
        yield _unreadable(one.job)
        return
    blocked = [*_queue_trouble(one.queue, facts)]
    yield from blocked
    if not any(reason.blocks for reason in blocked):
        yield from _turn(one, facts)


def _queue_trouble(queue: str, facts: JobFacts) -> Iterator[Reason]:
    """Yield what keeps every process from fetching from a queue."""
    shown = visible(text(queue))
    facts_of_queue = facts.queues.get(queue)
    serving = [process for process in facts.processes if queue in process.queues]
    fetching = [process for process in serving if not process.quiet and _beats(process, facts)]
    if facts_of_queue and facts_of_queue.problem:
        yield Reason(
            "queue-wrong-type",
            f"The key of queue {shown} is not a list, so no job can get into it or out of it.",
            f"look at the key {Keys().queue(shown)} and delete or rename it",
            blocks=True,
        )
    if facts_of_queue and facts_of_queue.paused:
        others = [process for process in fetching if not _is_jobwire(process)]
        if not others:
            yield Reason(
                "queue-paused",
                f"Queue {shown} is paused, so jobwire's workers do not fetch from it.",
                f"jobwire inspect unpause {shown}",
                blocks=True,
            )
    if not facts.processes:
        yield Reason(
            "no-process",
            "No worker process is registered, so no job runs.",
            f"start a worker that serves queue {shown}",
            blocks=True,
        )
    elif not serving:
        yield Reason(
            "no-listener",
            f"None of the {counted(len(facts.processes), 'process')} listens to queue {shown}.",
            f"start a worker that serves queue {shown}, or move the job to a queue that is served",
            blocks=True,
        )
    elif all(process.quiet for process in serving):
        yield Reason(
            "listeners-quiet",
            f"Every process that listens to queue {shown} is quiet and fetches no more jobs: "
            f"{_named(serving)}.",
            "start a worker, or restart the quiet ones",
            blocks=True,
        )
    elif not fetching:
        yield Reason(
            "listeners-silent",
            f"No process that listens to queue {shown} has had a heartbeat in the last "
            f"{SILENT_S:g} s: {_named(serving)}.",
            "check whether these processes live, and start a worker",
            blocks=True,
        )


def _turn(one: JobLocation, facts: JobFacts) -> Iterator[Reason]:
    """Yield why a job waits in a queue that is served."""
    serving = [
        process
        for process in facts.processes
        if one.queue in process.queues and not process.quiet and _beats(process, facts)
    ]
    shown = visible(text(one.queue))
    yield from _starvation(one.queue, serving, facts)
    if all(process.busy >= process.concurrency for process in serving):
        threads = sum(process.concurrency for process in serving)
        yield Reason(
            "threads-busy",
            f"All {counted(threads, 'thread')} that serve queue {shown} are busy.",
            "wait, or start more workers; 'jobwire inspect works' shows the running jobs",
        )
    if one.ahead:
        yield Reason(
            "jobs-ahead",
            f"{counted(one.ahead, 'job')} of queue {shown} {'runs' if one.ahead == 1 else 'run'} "
            "before it.",
            "wait, or start more workers",
        )
    registered = facts.queues.get(one.queue)
    if registered and not registered.registered:
        yield Reason(
            "queue-not-registered",
            f"Queue {shown} is missing in the set of queues, so pages and statistics do not show "
            "it; workers that listen to it run its jobs.",
            "push a job to it with a client that registers the queue",
        )
    if not one.ahead:
        yield Reason("next", f"It is the next job of queue {shown}, and a worker can take it now.")


def _starvation(queue: str, serving: Sequence[ProcessInfo], facts: JobFacts) -> Iterator[Reason]:
    of_each = [competing_queues(process, queue, facts) for process in serving]
    known = [one for one in of_each if one is not None]
    if not known or len(known) < len(of_each):
        return
    shown = visible(text(queue))
    share = max(one.share for one in known)
    if all(one.earlier for one in known):
        yield Reason(
            "starved-by-order",
            f"Every process that listens to queue {shown} serves other queues first, and these "
            f"have jobs: {_list([name for one in known for name in one.earlier])}.",
            f"start a worker that serves queue {shown} alone or first, or use weights",
        )
    elif share < LOW_SHARE:
        yield Reason(
            "starved-by-weights",
            f"At most {share:.0%} of the fetches look at queue {shown} first, because queues with "
            f"more weight have jobs: {_list([name for one in known for name in one.heavier])}.",
            f"give queue {shown} more weight, or a worker of its own",
        )


# -- found in a set


def _waiting_for_its_time(one: JobLocation, facts: JobFacts) -> Iterator[Reason]:
    if one.job.fault:
        yield _unreadable(one.job)
        return
    due = one.job.score or 0.0
    kind = "retry" if one.place == "retry" else "scheduled job"
    if one.place == "retry":
        yield from _last_failure(one.job)
    if one.place == "schedule" and facts.limit and facts.limit.ahead is not None:
        pass  # the limit decides when it runs, and is the first reason
    elif due > facts.now:
        yield Reason(
            "not-due",
            f"It is a {kind} and is due in {due - facts.now:,.0f} s.",
            f"run it now with: jobwire inspect {_command(one)} {visible(text(facts.jid))}",
        )
    else:
        yield from _overdue(kind, facts.now - due, one, facts)
    if not one.queue:
        yield Reason(
            "no-queue",
            "Its payload names no queue, so it cannot be moved to one.",
            "delete it and push the job again",
            blocks=True,
        )
    elif facts.processes:
        yield from _queue_trouble(one.queue, facts)


def _overdue(kind: str, late: float, one: JobLocation, facts: JobFacts) -> Iterator[Reason]:
    polling = [
        process for process in facts.processes if not process.quiet and _beats(process, facts)
    ]
    usual = max(FEWEST_POLL_S, 2 * POLL_S * len(polling))
    push = f"jobwire inspect {_command(one)} {visible(text(facts.jid))}"
    if not polling:
        yield Reason(
            "no-poller",
            f"It is a {kind} and has been due for {late:,.0f} s, and no living process moves due "
            "jobs to their queues.",
            "start a worker",
            blocks=True,
        )
    elif late > usual:
        yield Reason(
            "poller-stuck",
            f"It is a {kind} and has been due for {late:,.0f} s, but "
            f"{counted(len(polling), 'process')} should have moved it within {usual:,.0f} s.",
            f"look for errors of the poller in the logs; to push it now: {push}",
            blocks=True,
        )
    else:
        yield Reason(
            "poller-asleep",
            f"It is a {kind}, due for {late:,.0f} s; the next poll moves it to its queue.",
            f"wait up to {usual:,.0f} s, or push it now: {push}",
        )


def _last_failure(job: Entry) -> Iterator[Reason]:
    if _is_unknown_class(job):
        yield _unknown_class(job)
    elif job.error_class:
        yield Reason(
            "failed",
            f"It failed with {visible(job.error_class)} and waits for retry "
            f"{(job.retry_count or 0) + 1}.",
        )


def _dead(job: Entry) -> Reason:
    again = f"correct the cause, then: jobwire inspect retry {visible(job.jid or '')}"
    if job.fault:
        return _unreadable(job)
    if _is_unknown_class(job):
        return _unknown_class(job)
    retry = job.fields.get("retry")
    failed = f"the last error was {visible(job.error_class)}" if job.error_class else "no error"
    if "PoisonPill" in job.error_class:
        return Reason(
            "dead-poison",
            "It is dead, because several worker processes died while they ran it.",
            again,
            blocks=True,
        )
    if retry in (False, 0) and job.error_class:
        why = f"it failed, and its class has no retries; {failed}"
        return Reason("dead-no-retries", f"It is dead: {why}.", again, blocks=True)
    count = job.retry_count
    if count is not None and count >= (retry if type(retry) is int else USUAL_RETRIES):
        return Reason(
            "dead-retries-used",
            f"It is dead: all retries are used, {count} of {count}; {failed}.",
            again,
            blocks=True,
        )
    why = "it was killed, before its retries were used"
    return Reason("dead-killed", f"It is dead: {why}; {failed}.", again, blocks=True)


def _parked(one: JobLocation, facts: JobFacts) -> Reason:
    shown = visible(one.job.display_class)
    match facts.parked:
        case foreign.UNKNOWN:
            why = f": a worker that took it knows no class {shown}"
            remedy = "start a worker that has the class, which puts it back"
        case foreign.NEWER:
            why = f": it is of a newer version of {shown} than the worker that took it"
            remedy = "start a worker that has the version, which puts it back"
        case foreign.TOO_LARGE:
            why = ": its compressed arguments inflate to more than the worker that took it allows"
            remedy = "have a worker without this limit, such as GitLab's, run it, or delete it"
        case feature:
            named = f" ({visible(text(feature))})" if feature else ""
            why = f": it needs a feature of another product{named}"
            remedy = "have that product run it"
    return Reason(
        "parked",
        f"It is parked{why}.",
        f"{remedy}; to push it as it is: jobwire inspect unpark --class {shown}",
        blocks=True,
    )


def _unreadable(job: Entry) -> Reason:
    problem = visible(str(job.problem))[:300] if job.problem else "it is not a JSON object"
    return Reason(
        "unreadable",
        f"Its payload cannot be read, so no worker runs it: {problem}.",
        "correct the producer; delete the entry, and push the job again",
        blocks=True,
    )


def _is_unknown_class(job: Entry) -> bool:
    return job.error_message.startswith(("no job is registered", "uninitialized constant"))


def _unknown_class(job: Entry) -> Reason:
    return Reason(
        "unknown-class",
        f"The worker that took it knows no class {visible(job.display_class)}.",
        f"run a worker that has the class on queue {visible(text(job.queue))}, and no other worker",
        blocks=True,
    )


# -- found in a process


def _held(one: JobLocation, facts: JobFacts) -> Iterator[Reason]:
    shown = visible(text(one.identity))
    process = _process(one.identity, facts)
    living = [other for other in facts.processes if _is_jobwire(other) and _beats(other, facts)]
    if one.lease is None:
        others = [other for other in living if other.identity != one.identity]
        if others:
            yield Reason(
                "held-by-dead-process",
                f"Process {shown} held it and has died; another process of jobwire returns the job "
                "to its queue within seconds.",
                "wait a few seconds",
            )
        else:
            yield Reason(
                "no-recoverer",
                f"Process {shown} held it and has died, and no other process of jobwire lives to "
                "return it to its queue.",
                "start a worker of jobwire; Sidekiq's workers do not return held jobs",
                blocks=True,
            )
    elif process is None or not _beats(process, facts):
        yield Reason(
            "held-until-lease-ends",
            f"Process {shown} holds it and has sent no heartbeat lately; if the process is dead, "
            f"its lease ends in {one.lease:,.0f} s and other processes take the job back.",
            "wait until the lease ends",
        )
    else:
        yield Reason(
            "held",
            f"Process {shown} holds it: the job runs, or is one of the next of this process. "
            f"Work records are up to {BEAT_INTERVAL_S:g} s old.",
        )


def _running(one: JobLocation, facts: JobFacts) -> Iterator[Reason]:
    process = _process(one.identity, facts)
    since = "" if one.run_at is None else f" for {max(facts.now - one.run_at, 0):,.0f} s"
    shown = visible(text(one.identity))
    if process is None or not _beats(process, facts):
        is_jobwire = process is not None and _is_jobwire(process)
        yield Reason(
            "running-on-silent-process",
            f"Process {shown} reported that it runs the job, and has sent no heartbeat lately.",
            f"if it is dead: its lease ends in {one.lease or 0:,.0f} s, then other processes take "
            "the job back"
            if is_jobwire
            else "check the process: a job of a process that dies is lost with basic fetch",
        )
        return
    yield Reason("running", f"It runs{since} in thread {visible(one.thread)} of process {shown}.")


def _not_found(facts: JobFacts) -> Iterator[Reason]:
    if facts.iteration is not None:
        yield Reason(
            "not-found-has-state",
            f"No place has a job with this id, but it began {facts.iteration.starts} times as an "
            "iterable job and has not ended.",
            "it was deleted, or was lost with a process that had no reliable fetch; push it again",
            blocks=True,
        )
    elif facts.cut_queues:
        yield Reason(
            "search-incomplete",
            "No place that was searched has a job with this id. Only the jobs that run next were "
            f"searched in {_list(facts.cut_queues)}.",
            f"search them further: jobwire explain {visible(facts.jid)} --examine 10000000",
        )
    else:
        yield Reason(
            "not-found",
            "No place has a job with this id: it has ended, was deleted, or was never pushed here.",
            "check the id, the server and the namespace; 'jobwire journal' shows deletions",
        )


def _limit(facts: JobFacts) -> Iterator[Reason]:
    """Yield what the limit of a job does."""
    one = facts.limit
    if one is None or any(place.place in ("dead", "running") for place in facts.places):
        return
    limit, name = one.limit, visible(one.limit.name)
    look = "'jobwire inspect limits' shows the limit"
    if one.has_slot:
        yield Reason("has-slot", f"It has a slot of limit {name}.")
    elif one.starts_in is not None:
        yield Reason(
            "waits-for-limit",
            f"It waits for limit {name}, which lets {limit.rate or limit.window:g} jobs start in "
            f"{'any ' if limit.window else ''}{limit.per:g} s; "
            f"it may start in {one.starts_in:,.1f} s.",
            f"wait; {look}",
        )
    elif one.ahead is not None:
        ahead = f", and {counted(one.ahead, 'job')} waits before it" if one.ahead == 1 else ""
        if one.ahead > 1:
            ahead = f", and {counted(one.ahead, 'job')} wait before it"
        has = "have" if len(limit.holders) > 1 else "has"
        held = f" {_list(limit.holders)} {has} slots." if limit.holders else ""
        yield Reason(
            "waits-for-limit",
            f"It waits for limit {name}: {limit.in_use:,} of {limit.at_once:,} slots are taken"
            f"{ahead}.{held}",
            f"wait until a job with a slot ends; {look}",
        )
    elif limit.free_in != 0:
        when = "" if limit.free_in is None else f" for {limit.free_in:,.1f} s"
        yield Reason(
            "limit-reached",
            f"Limit {name} is reached, so it must wait{when} when a worker takes it.",
        )


def _batch(facts: JobFacts) -> Iterator[Reason]:
    """Yield the batch of a job."""
    batch = facts.batch
    if batch is None:
        return
    name, fields = visible(batch.id), facts.places[0].job.fields
    if membership(fields.get(BATCH)) is None:
        yield Reason("batch-callback", f"It is a callback of batch {name}.")
    elif batch.state == "cancelled":
        yield Reason(
            "batch-cancelled", f"Its batch {name} is cancelled, so a worker that takes it drops it."
        )
    else:
        yield Reason(
            "batch-member",
            f"It is a member of batch {name}, which is {visible(batch.state)}: {batch.open:,} of "
            f"{counted(batch.total, 'member')} {'is' if batch.open == 1 else 'are'} open, "
            f"{batch.failed:,} failed.",
        )


def _lock(facts: JobFacts) -> Iterator[Reason]:
    """Yield what the lock of a unique job does."""
    lock = facts.lock
    if lock is None:
        return
    described = lock_of(facts.places[0].job.fields.get(UNIQUE))
    while_running = described is not None and described.scope == "while_running"
    if lock.jid == facts.jid:
        left = "" if lock.expires_in is None else f" for {lock.expires_in:,.0f} s more"
        effect = "no other job with this key runs" if while_running else "duplicates are refused"
        yield Reason("has-lock", f"It has the lock of its unique key{left}, so {effect}.")
    elif while_running:
        holder = visible(text(lock.jid))
        yield Reason(
            "waits-for-lock",
            f"It waits for the lock of job {holder}, which has the same unique key and runs.",
            f"wait for its end; jobwire inspect job {holder}",
        )


# -- helpers


def _process(identity: str, facts: JobFacts) -> ProcessInfo | None:
    return next((one for one in facts.processes if one.identity == identity), None)


def _beats(process: ProcessInfo, facts: JobFacts) -> bool:
    """True if a process has had a heartbeat lately, by the clock of the server.

    A beat sets the lease, so the lease says how old it is; the clocks of hosts differ.
    """
    return facts.leases.get(process.identity, 0.0) > LEASE_S - SILENT_S


def _is_jobwire(process: ProcessInfo) -> bool:
    return process.version.startswith("jobwire")


def _command(one: JobLocation) -> str:
    return "retry" if one.place == "retry" else "add-to-queue"


def _named(processes: Sequence[ProcessInfo]) -> str:
    return _list([process.identity for process in processes])


def _list(names: Sequence[str]) -> str:
    """Return a few names and the number of the others."""
    distinct = [visible(text(name)) for name in dict.fromkeys(names)]
    shown = ", ".join(distinct[:MAX_NAMES])
    more = len(distinct) - MAX_NAMES
    return f"{shown} and {more} more" if more > 0 else shown
