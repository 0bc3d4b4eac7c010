"""The checks of the model in lua/model: properties, configurations, planted mistakes."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import NamedTuple

__all__ = [
    "CONFIGURATIONS",
    "LUA",
    "MISTAKES",
    "MODEL",
    "NOT_MODELLED",
    "PROPERTIES",
    "Configuration",
    "Mistake",
    "digest",
    "modelled_scripts",
    "names_of_mistakes",
]

LUA = Path(__file__).resolve().parents[3] / "lua"
MODEL = LUA / "model"

PROPERTIES = {
    "none_lost": "After every step each job is in at least one place: a queue, a private hash, "
    "`retry`, `dead`, or finished.",
    "none_invented": "After every step each job is in at most one place.",
    "owners_named": "After every step the owner of each private entry is in `jobwire:owners`.",
    "one_winner": "Each private entry is removed once, by one outcome, put back or recovery.",
    "own_outcome": "An outcome ends the job that it belongs to, after a run of this job has ended.",
    "run_explained": "A second run of a payload has a cause: its process died or stopped while "
    "it held the job, or was silent for longer than its lease, or the server forgot.",
    "none_stuck": "When nothing is left to do, every job is finished or dead.",
    "settles": "Every history reaches a state from which on every job is finished or dead. It "
    "needs no assumption about fairness, because no step can be repeated for ever.",
}


class Configuration(NamedTuple):
    """One exhaustive search.

    Attributes:
        title: Bounds and faults, for the table.
        definitions: The names and values that select them.
    """

    title: str
    definitions: tuple[str, ...]

    @property
    def is_liveness(self) -> bool:
        return "LIVENESS" in self.definitions


class Mistake(NamedTuple):
    """A mistake of an implementation, planted in the model.

    Attributes:
        name: Its name in the model.
        text: The mistake.
        requirement: The requirement that it breaks.
        found_by: The property that must fail.
        definitions: The smallest configuration in which it shows.
    """

    name: str
    text: str
    requirement: str
    found_by: str
    definitions: tuple[str, ...] = ("FAULTS=2",)


CONFIGURATIONS = (
    Configuration(
        "two jobs; any two of crash, silence, lost reply, late message",
        ("JOBS=2", "FAULTS=2", "LOOKS=1"),
    ),
    Configuration(
        "one job that fails once; any two of these faults or a stop; every outcome",
        ("FAULTS=2", "RETRIES=1", "STOPS", "KILLS", "REQUEUES", "LOOKS=1"),
    ),
    Configuration(
        "one job; any three of these faults or a stop",
        ("FAULTS=3", "STOPS"),
    ),
    Configuration(
        "one job that fails once; three processes; any two of these faults or a stop",
        ("PROCESSES=3", "FIELDS=1", "FAULTS=2", "RETRIES=1", "STOPS"),
    ),
    Configuration(
        "one job that fails once; a server that forgets, and one more fault",
        ("FAULTS=2", "RETRIES=1", "RESTORE"),
    ),
    Configuration(
        "two jobs; a server that forgets, or one other fault or a stop",
        ("JOBS=2", "FAULTS=1", "RESTORE", "STOPS"),
    ),
    Configuration(
        "as the second, without the other outcomes, for all histories without an end",
        ("LIVENESS", "FAULTS=2", "RETRIES=1", "STOPS"),
    ),
    Configuration(
        "one job; a server that forgets, and one more fault, for all histories without an end",
        ("LIVENESS", "FAULTS=2", "RESTORE"),
    ),
)

MISTAKES = (
    Mistake(
        "FETCH_IN_TWO_STEPS",
        "The fetch is RPOP and then HSET, as two commands.",
        "REL-1",
        "none_lost",
    ),
    Mistake(
        "FETCH_WITHOUT_LEASE",
        "The fetch takes jobs without a look at the lease.",
        "REL-16",
        "run_explained",
    ),
    Mistake(
        "NUMBERS_ARE_REUSED",
        "Sequence numbers are used again: after an outcome was sent, or for a fetch that is "
        "repeated because it got no reply.",
        "REL-19",
        "none_lost",
        ("JOBS=2", "FAULTS=1"),
    ),
    Mistake(
        "ACKNOWLEDGE_BEFORE_RUN",
        "The private entry is removed before the job runs.",
        "REL-2",
        "own_outcome",
    ),
    Mistake(
        "ACKNOWLEDGE_BEFORE_RETRY",
        "A failed job leaves the private hash first and is added to `retry` by the next command.",
        "REL-2",
        "none_lost",
        ("FAULTS=1", "RETRIES=1"),
    ),
    Mistake(
        "RETRY_WITHOUT_OWNERSHIP",
        "A failed job is added to `retry`, whether its private entry is still there or not.",
        "REL-15",
        "none_invented",
        ("FAULTS=2", "RETRIES=1"),
    ),
    Mistake(
        "OUTCOME_SENT_ONCE",
        "An outcome that gets no reply is not sent again.",
        "REL-2",
        "run_explained",
    ),
    Mistake(
        "COUNTS_WHAT_IT_LOST",
        "A job counts as done once more, although its private entry was gone.",
        "REL-15",
        "one_winner",
        ("FAULTS=1",),
    ),
    Mistake(
        "PUT_BACK_WITHOUT_DELETE",
        "A job goes back to its queue and stays in the private hash.",
        "REL-2",
        "none_invented",
    ),
    Mistake(
        "RUNS_WHAT_IT_PUT_BACK",
        "A put back gets no reply, so the process runs the job itself.",
        "REL-2",
        "run_explained",
    ),
    Mistake(
        "RECOVERY_WITHOUT_LEASE_CHECK",
        "Recovery looks at the lease when it reads the entries, and not when it moves them.",
        "REL-11",
        "run_explained",
    ),
    Mistake(
        "RECOVERY_PUSHES_ITS_COPY",
        "Recovery pushes the payloads that it read, whether HDEL removed them or not.",
        "REL-4",
        "none_invented",
        ("PROCESSES=3", "FIELDS=1", "FAULTS=1"),
    ),
    Mistake(
        "RECOVERY_FORGETS_OWNER",
        "Recovery removes the owner, although its hash has entries that recovery did not move.",
        "REL-20",
        "owners_named",
        ("JOBS=2", "FAULTS=2"),
    ),
    Mistake(
        "OWNER_NAMED_AT_START_ONLY",
        "The owner is named when the process starts, and neither by a fetch nor by a beat.",
        "REL-5",
        "owners_named",
    ),
    Mistake(
        "OWNER_REMOVED_IN_TWO_STEPS",
        "A process that stops asks for the length of its private hash, and then removes itself "
        "from the owners.",
        "REL-20",
        "owners_named",
        ("FAULTS=2", "STOPS"),
    ),
    Mistake(
        "NO_AUDIT",
        "No process compares its private hash with the jobs that it knows.",
        "REL-8",
        "none_stuck",
        ("FAULTS=1",),
    ),
    Mistake(
        "AUDIT_FORGETS_FETCHES",
        "The audit does not know the jobs of a fetch whose reply is still to be read.",
        "REL-8",
        "run_explained",
        ("FAULTS=0", "LOOKS=1"),
    ),
    Mistake(
        "AUDIT_FORGETS_OUTCOMES",
        "The audit does not know the jobs whose outcome is not acknowledged.",
        "REL-8",
        "run_explained",
        ("FAULTS=0", "LOOKS=1"),
    ),
    Mistake(
        "AUDIT_REMEMBERS_NOTHING",
        "The audit never finds an entry unknown twice in a row, because it keeps no record.",
        "REL-8",
        "settles",
        ("FAULTS=1",),
    ),
    Mistake(
        "AUDIT_READS_RECORDS_FIRST",
        "The audit reads its records first and the hash afterwards, and compares once.",
        "REL-8",
        "run_explained",
        ("FAULTS=0", "LOOKS=1"),
    ),
    Mistake(
        "PROMOTION_REMOVES_FIRST",
        "A due job is removed from `retry`, and pushed by the next command.",
        "SCHED-5",
        "none_lost",
        ("FAULTS=1", "RETRIES=1"),
    ),
    Mistake(
        "PROMOTION_WITHOUT_REMOVAL_CHECK",
        "A due job is pushed, even if ZREM removed nothing.",
        "SCHED-5",
        "none_invented",
        ("FAULTS=1", "RETRIES=1"),
    ),
)

NOT_MODELLED = {
    "forget": "it changes the counts of returned jobs only, and the model has no counts",
    "batch_add": "it pushes, as a client does, and the model begins with jobs that are in Redis",
    "batch_open": "its keys are of an annex; it moves no job",
    "batch_start": "its keys are of an annex; it pushes new jobs, as a client does",
    "batch_end": "it removes a job that waits, as an operator can, and the model has no operators",
    "cancel": "it removes a job that waits, as an operator can, and the model has no operators",
    "emit": "its keys are of an annex; it moves no job",
    "lock": "it pushes, as a client does, and the model begins with jobs that are in Redis",
    "ruby_lock": "its keys are of an annex; it moves no job",
    **dict.fromkeys(
        ("limit_take", "limit_free", "limit_rate", "limit_window"),
        "its keys are of an annex; it moves a job as a promotion does",
    ),
    "unlock": "it removes a job that waits, as an operator can, and the model has no operators",
    **dict.fromkeys(
        (f"periodic_{name}" for name in ("due", "load", "look", "migrate", "status", "tick")),
        "its keys are of an annex; a tick pushes a new job, as a client does",
    ),
}
"""Scripts without a step in the model, each with the reason."""


def modelled_scripts() -> set[str]:
    """Return the names of the scripts that have a step of their own."""
    text = (MODEL / "scripts.pml").read_text(encoding="utf-8")
    return set(re.findall(r"^inline (\w+)_lua\(", text, re.MULTILINE)) - {"outcome"}


def names_of_mistakes() -> set[str]:
    """Return the names under which the model has planted mistakes."""
    parts = {"JOBS", "FIELDS", "FAULTS", "RETRIES", "LOOKS", "PROCESSES"}
    parts |= {"KILLS", "REQUEUES", "STOPS", "RESTORE", "LIVENESS"}
    text = "".join(path.read_text(encoding="utf-8") for path in MODEL.glob("*.pml"))
    found = re.findall(r"^#ifn?def (\w+)|defined\((\w+)\)", text, re.MULTILINE)
    return {name for pair in found for name in pair if name} - parts


def digest() -> str:
    """Return a digest of the model and of this plan, which the page quotes."""
    sources = [*sorted(MODEL.glob("*.pml")), Path(__file__)]
    return hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:16]
