"""The fate of every job. Values only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from tests.chaos.plan import Job

__all__ = ["Account", "audit"]

FAILING = ("Flaky", "Doomed", "Odd")  # kinds of jobs that record a failure


@dataclass
class Account:
    """Numbers of jobs by their fate.

    Attributes:
        finished: Succeeded.
        dead: In the dead set, where they must or may be: doomed jobs or poison pills. [REL-10]
        lost: Neither, and waiting nowhere; or dead although the job was sound.
        stuck: Waiting or held at the end.
        invented: Succeeded, failed or dead although never pushed, or not in that way.
        duplicates: Succeeded or died more than once; listed once for each surplus time.
        unexcused: Duplicates whose earlier process was not killed, paused or told to stop, that
            were not pushed again because no answer came, and that no snapshot brought back.
    """

    finished: list[int] = field(default_factory=list)
    dead: list[int] = field(default_factory=list)
    lost: list[int] = field(default_factory=list)
    stuck: list[int] = field(default_factory=list)
    invented: list[int] = field(default_factory=list)
    duplicates: list[int] = field(default_factory=list)
    unexcused: list[int] = field(default_factory=list)

    @property
    def balanced(self) -> bool:
        """True if every job is where it must be."""
        return not (self.lost or self.stuck or self.invented or self.unexcused)


def audit(
    pushed: Sequence[Job],
    *,
    finished: Mapping[int, Sequence[int]],
    failed: Collection[int],
    dead: Counter[int],
    places: Collection[int],
    poisoned: Collection[int] = (),
    repeated: Collection[int] = (),
    restored: Collection[int] = (),
    disturbed: Collection[int] = (),
) -> Account:
    """Account for every job.

    Args:
        pushed: The jobs.
        finished: Number to the pids of the processes in which the job succeeded, in order.
        failed: Numbers of those that failed at least once.
        dead: Number to the times that the job is in the dead set.
        places: Numbers of those that wait or are held.
        poisoned: Numbers of jobs that are dead because too many processes died with them.
        repeated: Numbers of those that were pushed again because no answer came.
        restored: Numbers of those that a snapshot brought back to a place that they had left.
        disturbed: Pids of the processes that were killed, paused or told to stop.
    """
    account = Account()
    for job in pushed:
        number = job.number
        processes = finished.get(number, ())
        ends = dead[number] if job.dies else len(processes)
        if number in places:
            account.stuck.append(number)
        elif not ends:
            (account.dead if number in poisoned else account.lost).append(number)
        else:
            (account.dead if job.dies else account.finished).append(number)
        account.duplicates += [number] * (ends - 1)
        excused = number in repeated or number in restored
        if ends > 1 and not excused and not {*processes[:-1]} <= {*disturbed}:
            account.unexcused.append(number)
    known = {job.number: job for job in pushed}
    may_fail = {number for number, job in known.items() if job.kind in FAILING}
    account.invented = sorted(
        ({*finished, *failed, *dead, *places} - known.keys())
        | {number for number in finished if number in known and known[number].dies}
        | {number for number in failed if number in known and number not in may_fail}
    )
    account.lost += sorted(
        number
        for number in dead
        if number in known and not known[number].dies and number not in account.lost
    )
    return account
