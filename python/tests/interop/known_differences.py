"""Differences of Sidekiq and jobwire with their reasons; test_differential.py accepts no other."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import msgspec

from jobwire.protocol.times import read
from tests.interop.fates import KEPT, Fate, Round
from tests.interop.scenarios import ABSENT, FUTURE, PAST, Scenario
from tests.interop.shapes import exact


@dataclass(frozen=True, slots=True)
class Case:
    """One scenario in one round with two different fates.

    Attributes:
        generation: Generation of Sidekiq.
        number: Number of the round.
        scenario: The scenario.
        ruby: Its fate with Sidekiq.
        python: Its fate with jobwire.
    """

    generation: int
    number: int
    scenario: Scenario
    ruby: Fate
    python: Fate

    @property
    def differing(self) -> dict[str, tuple[str | None, str | None]]:
        """Return the differing words: Sidekiq's and ours."""
        words = {
            name: (self.ruby.get(name), self.python.get(name))
            for name in {**self.ruby, **self.python}
        }
        return {name: (one, other) for name, (one, other) in words.items() if one != other}

    @property
    def elsewhere(self) -> bool:
        """True if the job is in another place than with Sidekiq."""
        places = [
            {name for name in fate if name.startswith("in ")} for fate in (self.ruby, self.python)
        ]
        return places[0] != places[1]

    @property
    def promoted(self) -> bool:
        """True if the job came from `schedule` or `retry`."""
        return self.number > 0 or self.scenario.route in ("schedule", "retry")

    @property
    def lost(self) -> bool:
        """True if Sidekiq has the job nowhere, although it has neither succeeded nor died."""
        nowhere = not any(name.startswith("in ") for name in self.ruby)
        return nowhere and not {"ran", "death"} & set(self.ruby.get("calls", "").split())

    @property
    def hooks(self) -> set[str]:
        """Return the hooks called on either side."""
        return {*self.ruby.get("calls", "").split(), *self.python.get("calls", "").split()}


@dataclass(frozen=True, slots=True)
class Known:
    """A difference on purpose.

    Attributes:
        reason: The reason, with requirement ids.
        finds: Returns the words of a case that differ for this reason.
        generations: Generations that show it; each of them must show it.
        parts: True if later rounds of the case cannot be compared.
    """

    reason: str
    finds: Callable[[Case], Iterable[str]]
    generations: tuple[int, ...] = (6, 7, 8)
    parts: bool = False


def _all_if(condition: Callable[[Case], bool]) -> Callable[[Case], Iterable[str]]:
    return lambda case: case.differing if condition(case) else ()


def _words(names: str, condition: Callable[[Case], bool] = lambda _: True) -> Any:
    """Return a finder of these fields, in every place, if the condition holds."""
    wanted = set(names.split())
    return lambda case: [
        name for name in case.differing if name.rpartition(".")[2] in wanted and condition(case)
    ]


def _holds(field: str, *kinds: type) -> Callable[[Case], bool]:
    """True if the field is there, with a value of exactly one of these types."""
    return lambda case: type(case.scenario.get(field)) in kinds


def _order(case: Case) -> Iterable[str]:
    for name, (ruby, python) in case.differing.items():
        if name.endswith("order") and ruby and python and case.promoted:
            theirs, ours = ruby.split(" "), python.split(" ")
            first = {"retry", "queue"}
            # Appended again: a field dropped on the way through `schedule`, or a missing one.
            moved = {"jid", "created_at"} if not case.scenario.has("at") else {"enqueued_at", "jid"}
            if case.generation < 8:
                moved.add("discarded_at")
            rest = [[n for n in each if n not in first | moved] for each in (theirs, ours)]
            if {*theirs[:2]} == first and rest[0] == rest[1]:
                yield name


def _spelling(case: Case) -> Iterable[str]:
    for name, (ruby, python) in case.differing.items():
        if python == KEPT and ruby is not None:
            ours = _raws(case.scenario.text).get(name.rpartition(".")[2], "null")
            with suppress(ValueError):  # a word for a moment or the like
                if exact(json.loads(ruby)) == exact(json.loads(ours)):
                    yield name


def _raws(text: bytes) -> dict[str, str]:
    raws = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    return {name: bytes(raw).decode() for name, raw in raws.items()}


def _trips(case: Case) -> bool:
    """True if Sidekiq raised an error over the type of a field while it handled a failure."""
    fields, since_7 = case.scenario, case.generation > 6
    count, lines, failed = (fields.get(name) for name in ("retry_count", "backtrace", "failed_at"))
    limit = fields.get("retry_for")
    limited = since_7 and limit is not ABSENT and limit is not None and limit is not False
    odd = (
        isinstance(count, str | list)
        or count is True
        or isinstance(lines, list | dict)
        or lines == 10**20
        or (limited and type(limit) not in (int, float))
        or (limited and type(failed) not in (int, float))
    )
    return odd and case.lost and "error" in case.ruby.get("calls", "")


def _refused(case: Case) -> bool:
    """True if a client of Sidekiq would refuse the job."""
    fields = case.scenario
    tags, limit, at = (fields.get(name) for name in ("tags", "retry_for", "at"))
    since_7 = case.generation > 6
    odd = (
        not isinstance(fields.get("class"), str)
        or not isinstance(fields.get("args"), list)
        or (at is not ABSENT and type(at) not in (int, float))
        or (tags is not ABSENT and tags is not None and not isinstance(tags, list))
        or (since_7 and (limit is True or (isinstance(limit, int) and limit > 10**9)))
        or (since_7 and isinstance(limit, str | list))
    )
    return odd and case.promoted and case.lost and "calls" not in case.ruby


def _odd_text(*marks: bytes) -> Callable[[Case], bool]:
    return lambda case: (
        case.scenario.fields is None and any(mark in case.scenario.text for mark in marks)
    )


def _no_queue(case: Case) -> bool:
    queue = case.scenario.get("queue")
    buried = case.promoted and case.python.get("dead.text") == "untouched"
    return buried and queue is not ABSENT and (queue == "" or not isinstance(queue, str))


def _strange_retry_queue(case: Case) -> bool:
    queue = case.scenario.get("retry_queue")
    strange = queue in ("", True) or (isinstance(queue, int | list) and queue is not False)
    return strange and (case.elsewhere or any(name.endswith(".queue") for name in case.differing))


def _of_no_array(case: Case) -> bool:
    args = case.scenario.get("args")
    ruby_ran = case.ruby.get("calls", "").startswith("began")
    return args not in (ABSENT, None) and not isinstance(args, list) and ruby_ran


def _vanished(case: Case) -> bool:
    name, retry = case.scenario.get("class"), case.scenario.get("retry")
    classless = name == "" or not isinstance(name, str)
    return classless and retry in (ABSENT, None) and "in dead" in case.python and not case.promoted


def _no_past(case: Case) -> bool:
    failed = read(case.scenario.get("failed_at"))
    later = case.scenario.get("retry_count") not in (ABSENT, None)
    return _limited(case) and later and (failed is None or failed >= FUTURE)


def _wrapped(case: Case) -> bool:
    return case.scenario.has("wrapped") and ("retry_in" in case.hooks or "exhausted" in case.hooks)


def _hook(*answers: Any) -> Callable[[Case], bool]:
    return lambda case: case.scenario.has("hook", *answers) and "retry_in" in case.hooks


def _hook_of(*kinds: type) -> Callable[[Case], bool]:
    return lambda case: type(case.scenario.get("hook")) in kinds and "retry_in" in case.hooks


def _exhausted_says_discard(case: Case) -> bool:
    return case.scenario.has("last", ":discard") and "exhausted" in case.hooks


def _limited(case: Case) -> bool:
    return case.scenario.get("retry_for") not in (ABSENT, None, False) or case.scenario.has(
        "retry_for", 0, 0.0
    )


def _broken_report(case: Case) -> bool:
    return b"[" * 90 in case.scenario.text or any(
        name.endswith("error class") and word == "Trouble::Mute"
        for name, word in case.python.items()
    )


def _deaf(case: Case) -> bool:
    """True if the job was discarded, and Sidekiq called no death handler."""
    return "death" in case.python.get("calls", "") and "death" not in case.ruby.get("calls", "")


KNOWN_DIFFERENCES = [
    # Differences without effect.
    Known(
        "PAY-7, SCHED-6: Sidekiq encodes a promoted payload again, `retry` and `queue` first; we "
        "keep the order, which has no meaning",
        _order,
    ),
    Known("PAY-7: we keep the exact text of all fields that we do not change", _spelling),
    Known(
        "PAY-7, SCHED-6: Sidekiq fills in a jid, and a `created_at` of null, at a promotion",
        _words("jid created_at", lambda case: case.promoted),
    ),
    Known(
        "PAY-7: at a promotion Sidekiq 7 and 8 write a fractional `retry_for` as an integer",
        _words("retry_for", _holds("retry_for", float)),
        (7, 8),
    ),
    Known(
        "PAY-13: `discarded_at`, which only death handlers see, is new in Sidekiq 8",
        lambda case: [
            name
            for name, (ruby, _) in case.differing.items()
            if name.endswith("discarded_at")
            or (name.endswith("order") and case.python.get(name) == f"{ruby} discarded_at")
        ],
        (6, 7),
    ),
    # Jobs that Sidekiq loses.
    Known(
        "SCHED-9: Sidekiq loses a due member that is not a JSON object",
        _all_if(lambda case: case.scenario.fields is None and case.promoted and case.lost),
        parts=True,
    ),
    Known(
        "SCHED-9: Sidekiq loses a due member whose queue is empty or null, and pushes to "
        "`queue:5` and the like, which no worker serves",
        _all_if(_no_queue),
        parts=True,
    ),
    Known(
        "SCHED-6: Sidekiq loses a job at promotion that its client would refuse",
        _all_if(_refused),
        parts=True,
    ),
    Known(
        "EXEC-4: Sidekiq loses JSON that is not an object",
        _all_if(lambda case: "in jobwire:unreadable" in case.python and case.lost),
        parts=True,
    ),
    Known(
        "RETRY-19: Sidekiq loses a failed job whose `retry_count`, `backtrace`, "
        "`retry_for` or `failed_at` is of a type that it cannot calculate with",
        _all_if(_trips),
        parts=True,
    ),
    Known(
        "EXEC-8: Sidekiq loses a job that has neither `class` nor `retry`",
        _all_if(_vanished),
        parts=True,
    ),
    # Fields that Sidekiq reads in another way.
    Known(
        "RETRY-14: with a time limit we repair a `failed_at` that is not a past time",
        _words("failed_at", _no_past),
        parts=True,
    ),
    Known(
        "SCHED-6: Sidekiq schedules a member with `at` again",
        _all_if(lambda case: case.scenario.has("at", FUTURE) and "in schedule" in case.ruby),
        parts=True,
    ),
    Known(
        "RETRY-7: only a non-empty text names a queue",
        _all_if(_strange_retry_queue),
        parts=True,
    ),
    Known(
        "EXEC-7: Sidekiq makes arguments of a value that is not an array",
        _all_if(_of_no_array),
        parts=True,
    ),
    Known(
        "EXEC-13: a job whose arguments are encrypted fails; Sidekiq runs it",
        _all_if(lambda case: case.scenario.has("encrypt", True)),
        parts=True,
    ),
    Known(
        "RETRY-19: a `retry_count` is an integer; Sidekiq counts on from 2.0 to 3.0",
        _all_if(_holds("retry_count", float)),
        parts=True,
    ),
    Known(
        "RETRY-19: a negative count delays like 0",
        lambda case: ["in retry"] if case.scenario.has("retry_count", -5) else [],
    ),
    Known(
        "RETRY-19: a text asks for no line; Sidekiq reads the text `2` as 2",
        _words("error_backtrace", _holds("backtrace", str)),
    ),
    Known(
        "RETRY-6: Sidekiq 6 has no `retry_for`",
        _all_if(lambda case: _limited(case) and (case.elsewhere or "calls" in case.differing)),
        (6,),
        parts=True,
    ),
    Known(
        "GEN-3: an integer may be seconds, depending on its size; Sidekiq 8 reads milliseconds",
        _all_if(
            lambda case: (
                case.elsewhere and case.scenario.has("failed_at", int(PAST)) and _limited(case)
            )
        ),
        (8,),
        parts=True,
    ),
    # Hooks.
    Known(
        "RETRY-11: `wrapped` has no effect on execution; Sidekiq 7 and 8 ask the hooks of the "
        "class it names",
        _all_if(_wrapped),
        (7, 8),
        parts=True,
    ),
    Known(
        "RETRY-11: a hook's result that is not a number means the default delay; Ruby "
        "converts the text `90000` to a number",
        lambda case: ["in retry"] if _hook("90000")(case) else [],
    ),
    Known(
        "RETRY-11: the same for infinity, with which Sidekiq fails the job with another error",
        _all_if(_hook(":infinity")),
        parts=True,
    ),
    Known(
        "RETRY-11: the same for a value that Ruby cannot convert, on which 6 fails",
        _all_if(_hook_of(bool, list)),
        (6,),
        parts=True,
    ),
    Known(
        "RETRY-12: Sidekiq 6 has neither `discard` nor `kill`",
        _all_if(
            lambda case: _hook(":discard", ":kill")(case) or case.scenario.has("last", ":discard")
        ),
        (6,),
        parts=True,
    ),
    Known(
        "RETRY-12: up to 8.0.6 a discard calls no death handlers",
        _all_if(_deaf),
        (7,),
        parts=True,
    ),
    # JSON.
    Known(
        "PAY-5, PAY-6: a payload that Python cannot decode is killed unchanged",
        _all_if(
            lambda case: (
                case.python.get("dead.text") == "untouched"
                and _odd_text(b"9" * 5000, b"1e400")(case)
            )
        ),
        parts=True,
    ),
    Known(
        "PAY-1: bytes that are not UTF-8 are not JSON; Sidekiq runs the job, and loses it at a "
        "failure",
        _all_if(_odd_text(b"caf\xe9")),
        parts=True,
    ),
    Known(
        "PAY-3, EXEC-3: the same for JSON that is nested too deep, with the parser of 8",
        _all_if(_odd_text(b"[" * 100)),
        (8,),
        parts=True,
    ),
    Known(
        "PAY-1: comments are not JSON; Sidekiq's parser accepts them, except that of 8",
        _all_if(_odd_text(b"/*")),
        (6, 7),
        parts=True,
    ),
    Known(
        "PAY-8: the last of duplicate names counts; the JSON parser of 8 refuses them",
        _all_if(_odd_text(b'"x":1,"x":2')),
        (8,),
        parts=True,
    ),
    Known(
        "RETRY-3: error handlers of 6 get an error of the report if the message "
        "of the error raises or the payload is nested 100 deep",
        lambda case: [n for n in case.differing if ".error " in n and _broken_report(case)],
        (6,),
    ),
]


def unexplained(
    generation: int, table: Sequence[Scenario], ruby: Sequence[Round], python: Sequence[Round]
) -> list[str]:
    """Return a line for each unknown difference, and for each known one not seen."""
    lines = []
    seen: set[str] = set()
    here = [known for known in KNOWN_DIFFERENCES if generation in known.generations]
    for scenario in table:
        for number, (theirs, ours) in enumerate(zip(ruby, python, strict=True)):
            case = Case(
                generation,
                number,
                scenario,
                theirs.get(scenario.number, {}),
                ours.get(scenario.number, {}),
            )
            differing = case.differing
            if not differing:
                continue
            reasons = {known.reason: set(known.finds(case)) & set(differing) for known in here}
            found = {reason: names for reason, names in reasons.items() if names}
            parts = any(known.parts for known in here if known.reason in found)
            for name in set(differing) - set().union(*found.values()):
                one, other = differing[name]
                lines.append(
                    f"round {number}, {name}: {one!s:.200} with Sidekiq, {other!s:.200} with us: "
                    f"{scenario.route} {scenario.queue} {scenario.text.decode(errors='replace')}"
                )
            seen |= found.keys()
            if parts or (lines and lines[-1].startswith(f"round {number}")):
                break
    lines += [f"not seen any more: {known.reason}" for known in here if known.reason not in seen]
    return lines
