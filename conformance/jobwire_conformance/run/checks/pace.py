"""Checks of pace: fetches, tries and reads of a process, and the pauses between them."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping
from typing import Any

from jobwire_conformance.cases.values import ABSENT
from jobwire_conformance.run.checks.context import TOGETHER_S, Check, Context, Miss
from jobwire_conformance.run.transactions import executed, units
from jobwire_conformance.sandbox import idle
from jobwire_conformance.wire.faults import Refuse

__all__ = ["PARTS"]

_EARLY = 0.95  # of the shortest pause of a scheduler: clocks differ
_LATE_S = 1.4  # seconds; on a busy machine
_MAX_WAIT_S = 60.0  # of a fetch whose end is awaited


def _paced(context: Context, step: Mapping[str, Any]) -> None:
    """Check that a process pauses after each refused command. [ENV-11]"""
    process, wanted = step["process"], step["paced"]
    sent = sorted(units(context.sent(step)), key=lambda unit: unit[0].at)
    tries = [unit for unit in sent if any(isinstance(c.action, Refuse) for c in unit)]
    if len(tries) < 3:
        raise Miss(f"refused commands of {process}", "at least three", len(tries))
    # From the reply on, so that a slow proxy does not pass for a pause.
    pauses = [
        after[0].at - (before[-1].answered or before[-1].at)
        for before, after in itertools.pairwise(tries)
    ]
    pause = min(pauses)
    if pause < wanted:
        raise Miss("the shortest pause between tries", f"{wanted} s", f"{pause:.4f} s")


def _rate(context: Context, step: Mapping[str, Any]) -> None:
    """Check that an idle process does not fetch too often. [FETCH-10]"""
    process, seconds = step["process"], step["rate"]["seconds"]
    worker = context.sandbox.workers[process]
    times = [call.at for call in worker.fetches()]
    since = time.monotonic() - seconds
    if not times or times[0] > since:
        raise Miss(f"seconds since the first fetch of {process}", f"{seconds}", "fewer")
    most = step["rate"]["most"] * seconds * worker.concurrency
    seen = sum(at > since for at in times)
    if seen > most:
        raise Miss(f"fetches of {process} in {seconds} s", f"at most {most:g}", seen)


def _patient(context: Context, step: Mapping[str, Any]) -> None:
    """Check that a worker waits for the reply to each blocking fetch."""
    process = step["process"]
    worker = context.sandbox.workers[process]
    blocking = [call for call in worker.fetches() if call.blocks]
    for call in blocking:
        if call.given_up and worker.idle_expected:
            words = [word.decode("utf-8", "replace") for word in call.words]
            raise Miss(f"blocking fetches of {process}", "a reply", [*words, "given up"])
    wait = max((idle.longest_wait(call) for call in blocking), default=0.0)
    if 0.0 < wait <= _MAX_WAIT_S and not worker.waited():
        raise Miss(f"blocking fetches of {process}", "a reply without a job", ABSENT)


def _pauses(context: Context, step: Mapping[str, Any]) -> None:
    """Check the first pauses between reads of a key, for one of the possible averages.

    One in ten may be longer, because a busy machine can hold up a read for seconds.
    """
    pauses = sorted(_first(context, step, step["pauses"]["waits"]))
    longest = pauses[-1 - len(pauses) // 10]
    averages = _averages(context, step["pauses"]["average"])
    low, high = (0.0, 2.0) if step["pauses"].get("large") else (_EARLY / 2, 1.5)
    spans = [(low * average, high * average + _LATE_S) for average in averages]
    if not any(low <= pauses[0] and longest <= high for low, high in spans):
        expected = " or ".join(f"{low:.2f} to {high:.2f}" for low, high in spans)
        seen = [round(pause, 2) for pause in pauses]
        raise Miss(f"seconds between reads of {step['of']}", expected, seen)


def _spread(context: Context, step: Mapping[str, Any]) -> None:
    """Check the mean of the pauses between reads of a key, and how much they differ."""
    wanted, what = step["spread"], f"pauses between reads of {step['of']}"
    pauses = _first(context, step, wanted["waits"])
    mean = sum(pauses) / len(pauses)
    averages = _averages(context, wanted["average"])
    if not any(0.7 * average <= mean <= 1.4 * average for average in averages):
        expected = " or ".join(f"{0.7 * each:.2f} to {1.4 * each:.2f}" for each in averages)
        raise Miss(f"mean of {what}", expected, round(mean, 2))
    if max(pauses) < wanted["ratio"] * min(pauses):
        raise Miss(f"longest by shortest of {what}", wanted["ratio"], max(pauses) / min(pauses))


def _idle(context: Context, step: Mapping[str, Any]) -> None:
    """Check that a process has read a key, and not again for so many seconds."""
    times = _reads(context, step)
    seen = time.monotonic() - times[-1] if times else 0.0
    if seen < step["idle"]:
        raise Miss(f"seconds since the last read of {step['of']}", step["idle"], round(seen, 1))


def _first(context: Context, step: Mapping[str, Any], wanted: int) -> list[float]:
    """Return the first so many pauses of a process between its reads of a key."""
    pauses = _between(context, step)[:wanted]
    if len(pauses) < wanted:
        raise Miss(f"number of pauses between reads of {step['of']}", wanted, len(pauses))
    return pauses


def _averages(context: Context, configured: float) -> list[float]:
    """Return the configured average, and the one of a worker that may not obey the case."""
    worker = context.sandbox.config.worker
    fixed = worker.fixed.get("poll") if worker is not None else None
    return [configured] if fixed is None else [configured, fixed]


def _between(context: Context, step: Mapping[str, Any]) -> list[float]:
    """Return the pauses of a process between its reads of a key."""
    pauses = [after - before for before, after in itertools.pairwise(_reads(context, step))]
    # Several commands of one read arrive together.
    return [pause for pause in pauses if pause > TOGETHER_S]


def _reads(context: Context, step: Mapping[str, Any]) -> list[float]:
    """Return the times at which a process named a key, in order."""
    key = context.state.key(step["of"]).encode()
    return sorted(call.at for call in executed(context.sent(step)) if key in call.words)


PARTS: Mapping[str, Check] = {
    "paced": _paced,
    "rate": _rate,
    "patient": _patient,
    "pauses": _pauses,
    "spread": _spread,
    "idle": _idle,
}
