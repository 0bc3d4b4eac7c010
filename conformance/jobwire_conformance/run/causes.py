"""Failures that follow from another: one wrong field breaks the checks of many requirements.

A cause is a guess for readers. It changes no verdict, and every failed check still counts.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Any

from jobwire_conformance.cases.match import TIMES
from jobwire_conformance.judge import TRAFFIC
from jobwire_conformance.run.verdicts import FAILURES

__all__ = ["causes"]

_MEMBER = re.compile(r"'(?:\*\.)?(\w+)[^']*' of (?!the answer)")
_FIELDS = re.compile(
    rf"\b({'|'.join(TIMES)}|jid|retry_count|queue|class|error_\w+|retry|backtrace|tags|at"
    r"|payload(?= as fetched))\b"
)
_CLOCK = re.compile(r"\b(started_at|run_at)\b.*\b\d{10}")
_JOB = re.compile(r"\b(?:ids? of|copies of job)\b")
_PLACE = re.compile(r'place of job \S+: expected "([^"]*)", seen "([^"]*)"')
_EMPTY = re.compile(r"members of queue:(.*): expected \d+, seen 0$")
_QUEUE = re.compile(
    rf"{_EMPTY.pattern}|members of queues: expected (.*) among them"
    r'|place of job \S+: expected "queue:([^"]*)"'
)
_RARE = re.compile(r"[^a-z0-9_]")  # in the name of a queue: the name itself may be the mistake
_IN_CASE = re.compile(r"in case ([a-z0-9-]+): ")  # begins what the judge of traffic says
_NUMBER = re.compile(r"seen\D*?(\d+)(\.\d+)?")
_COUNTS = re.compile(r"(?:minute|ten_minutes|histogram)\.\w+ of .* seen (?:0|false|nothing)$")
_TENS = "ten_minutes."  # begins what is said about the counts of ten minutes
_SURPLUS = re.compile(r"(?:minute|ten_minutes|histogram)\.\w+ of (.*): expected 0, seen ")
_SIGNALLED = re.compile(r"(?:members|'quiet') of (\S+:[0-9]+:[0-9a-f]{12})(?:-signals)?:")
_ANSWER = re.compile(r"'(\w+)([^']*)' of the answer: expected (\[?)")
_VALUES = re.compile(r"'(\w+)' of the answer: expected an array of \d")
_DIGEST = re.compile(r"[0-9a-f]{40,}")
_EXISTS = re.compile(r"existence of (\S*?)[0-9a-f]{12,}: expected (\w+)")
_COUNTER = re.compile(r"(?:counter|remaining seconds of) (stat:\S+): expected")
_OFF = re.compile(r"counter (stat:\w+)\S*: expected (\d+), seen (\d+)$")  # also of one day
_TORN = re.compile(r"member \S+ of (schedule|retry|dead): expected a JSON object")
_IN_SET = re.compile(
    r'of (schedule|retry|dead)\b|place of job \S+: expected "(schedule|retry|dead)"'
)
_UNIT = re.compile(
    r"expected (?:an integer|a float), seen -?\d|seen \d{12}|like \d{13}, seen \d{10}\b"
)
_DOUBLE = re.compile(
    r"expected (?:exactly )?-?\d{16,}, seen -?\d[\d.]*e\+?\d|seen \S+: -?\d[\d.]*e\+\d+: a float"
)
_NULL = re.compile(r"'\w+' of member \S+ of queue:.*: expected null, seen nothing$")
_UNREGISTERED = re.compile(r"members of queues: expected \d+, seen 0$")
_DIRECT = {
    "PUSH-1": re.compile(r"(?:'.*' of )?member \d+ of queue:"),
    "FETCH-1": re.compile(r"jobs in the order|percentage of|members of queue:.* seen [1-9]"),
}
"""Requirement to the failures of cases that follow if the judge of traffic sees it broken."""
_TOGETHER = {key: {key, "MET-7", "MET-9", "MET-11"} for key in ("MET-1", "MET-4")} | {
    "PAY-9": {"PAY-9", "BULK-2"}
}
"""Requirement about the form of names to those whose failures together show that it is wrong."""
_PARTS = {
    **{"SCHED-19": "PAY-7", "RETRY-26": "DEAD-4", "INSP-5": "PUSH-3", "PUSH-20": "GEN-2"},
    **{"PUSH-14": "BULK-17", "FETCH-7": "FETCH-10"},
}
"""Requirement about one step to a more general one, which fails with it."""
_AS_DOUBLES = "integers that became doubles"
_TELLING = 6  # characters of a value that two failures hardly share by chance
_MILLISECONDS = 1e11  # the least number that is no longer one of seconds [GEN-3]


def causes(checks: Sequence[Mapping[str, Any]]) -> dict[int, str]:
    """Return the requirement that is the likely cause of a failed check, by the check's index.

    Failures belong together if they share a subject (`_subjects`), such as one observation of a
    case, one field of payloads, times in the form of another generation, one queue with a rare
    name, jobs in one place instead of another, a set with a member that is not a payload, integers
    that became doubles, or the same pair of an expected and a seen value. A command that is wrong
    by the judge of traffic explains failures of cases that read its result (`_DIRECT`). Of these,
    the cause is the requirement that names their keys, asks for whole payloads, or is broken
    directly, then one about units that saw another unit, then one about a single step whose general
    one fails there alone, then one that the judge of traffic names, then one that misses a queue,
    then the one that fails in most cases, of these or of the run, then the one that failed first.
    Its own checks have no cause. A recommendation that is not met follows from an obligation that
    fails in its case.

    Args:
        checks: The checks of a run, as in results.json.
    """
    torn = {set_[1] for check in checks if (set_ := _TORN.match(_message(check)))}
    direct = {check["requirement"] for check in checks if _is_seen_directly(check)}
    groups: list[tuple[set[str], list[int]]] = []  # subjects, and indexes of checks
    for index, check in enumerate(checks):
        if check["status"] in FAILURES and "blocked_by" not in check:
            subjects = {*_subjects(check), *_torn(check, torn), *_results(check, direct)}
            members = [index]
            for group in [group for group in groups if group[0] & subjects]:
                groups.remove(group)
                subjects |= group[0]
                members = group[1] + members
            groups.append((subjects, members))
    found: dict[int, str] = {}
    everywhere = _cases(check for check in checks if check["status"] in FAILURES)
    alone = _alone(checks)
    for subjects, members in groups:
        cases = _cases(checks[index] for index in members)
        misses = {checks[i]["requirement"] for i in members if _EMPTY.match(_message(checks[i]))}
        units = {checks[i]["requirement"] for i in members if _UNIT.search(_message(checks[i]))}
        cause = max(
            cases,
            key=lambda id_: (
                _TOGETHER.get(id_, {""}) <= cases.keys() or (id_ == "KEY-3" and bool(torn)),
                id_ in direct or (id_ == "PAY-5" and _AS_DOUBLES in subjects),
                id_ == "MET-1" and all(_message(checks[i]).startswith(_TENS) for i in members),
                id_.startswith("GEN-") and id_ in units,
                id_ in alone,
                TRAFFIC in cases[id_],
                id_ in misses,
                len(cases[id_]),
                len(everywhere[id_]),
            ),
        )
        found |= {index: cause for index in members if checks[index]["requirement"] != cause}
    of_cases = _in_one_case(checks, found, alone)
    # The cause of a group may itself follow from another failure in each of its cases.
    further = {checks[index]["requirement"]: cause for index, cause in of_cases.items()}
    first = {*everywhere} - further.keys() | {*of_cases.values()}
    found = {i: cause if cause in first else further[cause] for i, cause in found.items()}
    found |= of_cases
    blamed = {
        _place(check): found.get(index, check["requirement"])
        for index, check in reversed([*enumerate(checks)])
        if check["status"] in FAILURES and "blocked_by" not in check
    }
    warned = {i: _place(check) for i, check in enumerate(checks) if check["status"] == "warn"}
    return found | {i: blamed[place] for i, place in warned.items() if place in blamed}


def _alone(checks: Sequence[Mapping[str, Any]]) -> set[str]:
    """Return the requirements about one step whose general one fails in no other case."""
    places: dict[str, set[str]] = defaultdict(set)
    for check in checks:
        if check["status"] in FAILURES and "blocked_by" not in check:
            places[check["requirement"]].add(_place(check))
    return {
        part
        for part, whole in _PARTS.items()
        if whole in places and places[whole] <= places[part] | {TRAFFIC}
    }


def _in_one_case(
    checks: Sequence[Mapping[str, Any]], found: Mapping[int, str], alone: Set[str]
) -> dict[int, str]:
    """Return the causes of failures that share only a case with another.

    One mistake often breaks several steps of a case. So of the requirements that no group explains,
    the one that explains failures in most cases is taken for the mistake in all of them, then the
    next, until each case has one. One about a single step is taken before the general one that
    fails in the cases of this step alone.
    """
    left: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    explained: dict[str, set[str]] = defaultdict(set)  # names of cases by requirement
    for index, check in enumerate(checks):
        if check["status"] in FAILURES and "blocked_by" not in check:
            name, requirement = _place(check), check["requirement"]
            explained[found.get(index, requirement)] |= {name, check["case"]}
            if index not in found:
                left[name][requirement].append(index)
    causes_: dict[int, str] = {}
    for cause in sorted(explained, key=lambda id_: (id_ not in alone, -len(explained[id_]))):
        for name in [name for name, failures in left.items() if cause in failures]:
            failures = left.pop(name)
            causes_ |= {i: cause for id_ in failures.keys() - {cause} for i in failures[id_]}
    return causes_


def _subjects(check: Mapping[str, Any]) -> Iterator[str]:
    message = _message(check)
    if message:
        yield f"{message} in {check['case']}"
    pair = [str(check.get(name)) for name in ("expected", "seen")]
    member = _MEMBER.match(message)
    searched = check["case"] == TRAFFIC or message.startswith("alternatives")
    field = _FIELDS.search(message) if member is None and searched else member
    if field is not None and field[1] in TIMES:
        number = _NUMBER.search(message)
        if number and (float(number[1]) >= _MILLISECONDS) == (number[2] is not None):
            yield "form of times"
    if _DOUBLE.search(message):
        yield _AS_DOUBLES
    if _NULL.match(message):
        yield "nulls that are missing"
    if _UNREGISTERED.match(message):
        yield "queues that are not registered"
    if clock := _CLOCK.search(message):
        yield f"clock {clock[1]}"
    if field is not None and field[1] != "args":
        yield f"field {field[1]}"
    elif _JOB.search(message):
        yield "field jid"
    elif _COUNTS.match(message):
        yield "metrics"
    elif surplus := _SURPLUS.match(message):
        yield f"metrics of {surplus[1]}"
    elif place := _PLACE.match(message):
        yield f"place {place[2]} for {place[1]}"
    if (answer := _ANSWER.match(message)) and answer[3]:
        yield f"entries of {answer[1]} in {check['case']}"
    elif answer and answer[2]:
        yield f"answer {re.sub(r'[0-9]', '', answer[2])}: {pair}"
    if answer and message.endswith("seen nothing"):
        yield f"no {answer[1]}{answer[2]} in {check['case']}"
    if values := _VALUES.match(message):
        yield f"values of {values[1]}"
    if digest := _DIGEST.search(message):
        yield f"digest {digest[0]}"
    if exists := _EXISTS.match(message):
        yield f"existence {exists[2]} of {exists[1]}"
    if counter := _COUNTER.match(message):
        yield f"counter {counter[1]}"
    if off := _OFF.match(message):
        yield f"counter {off[1]} off by {int(off[3]) - int(off[2])}"
    if signalled := _SIGNALLED.match(message):
        yield f"signals of {signalled[1]}"
    if (queue := _QUEUE.match(message)) and _RARE.search(name := str(queue[queue.lastindex or 1])):
        yield f"queue {name}"
    if member is not None and all(len(text) >= _TELLING for text in pair):
        yield " for ".join(pair)


def _torn(check: Mapping[str, Any], torn: Set[str]) -> Iterator[str]:
    """Yield the set that a check looks at, if a member of it is not a payload. [KEY-3]"""
    if (found := _IN_SET.search(_message(check))) and {found[1], found[2]} & torn:
        yield f"whole members of {found[1] or found[2]}"


def _is_seen_directly(check: Mapping[str, Any]) -> bool:
    return (
        check["case"] == TRAFFIC and check["status"] in FAILURES and check["requirement"] in _DIRECT
    )


def _results(check: Mapping[str, Any], direct: Set[str]) -> Iterator[str]:
    """Yield the requirements that are broken directly and explain this failure."""
    for id_ in direct:
        if check["requirement"] == id_ or _DIRECT[id_].match(_message(check)):
            yield f"broken {id_}"


def _place(check: Mapping[str, Any]) -> str:
    """Return the name of the case in which a check failed, also if the judge of traffic saw it."""
    seen = _IN_CASE.match(check.get("message", ""))
    return check["case"] if seen is None else seen[1]


def _message(check: Mapping[str, Any]) -> str:
    return _IN_CASE.sub("", check.get("message", ""), 1)


def _cases(checks: Iterable[Mapping[str, Any]]) -> dict[str, set[str]]:
    """Return the names of the cases by requirement."""
    cases: dict[str, set[str]] = defaultdict(set)
    for check in checks:
        cases[check["requirement"]].add(check["case"])
    return cases
