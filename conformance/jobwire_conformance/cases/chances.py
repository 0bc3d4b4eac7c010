"""Rates of false alarms of checks of random draws, computed from the bounds of the cases.

The draws are independent. Where a requirement leaves the draw open, the least favourable one that
it allows is computed. Each figure is an upper bound: the chances of several conditions are added.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jobwire_conformance.cases.case import Case
from jobwire_conformance.cases.samples import MAX_ALIKE, MAX_SHARE, MIN_SHARE, PARTS

__all__ = ["LIMIT", "Chance", "chances", "page"]

LIMIT = 1e-6
"""No check of a MUST may fail more often."""
_HEX_DIGITS = 24  # of a jid [PAY-9]
_COARSE = 10  # numbers that Sidekiq up to 7 draws from [RETRY-15]
_JOBS_A_FETCH = 10  # of a worker that fetches ahead; all of them come from one draw [FETCH-4]


@dataclass(frozen=True, slots=True)
class Chance:
    """The rate of false alarms of one check.

    Attributes:
        case: Name of the case.
        requirement: Id of the requirement.
        draw: The draws and the condition, in words.
        rate: Share of the runs in which a right implementation fails.
    """

    case: str
    requirement: str
    draw: str
    rate: float


def chances(cases: Sequence[Case]) -> list[Chance]:
    """Return the checks that depend on draws, by case."""
    return [chance for case in cases for chance in _of_case(case)]


def page(cases: Sequence[Case]) -> str:
    """Return the page on false alarms, in Markdown."""
    found = chances(cases)
    rows = [f"| {c.case} | {c.requirement} | {c.draw} | {_power(c.rate)} |" for c in found]
    return "\n".join(
        [
            "# False alarms\n",
            "<!-- make conformance ARGS=--pages writes this page -->\n",
            "Some checks look at random draws, so a right implementation fails them by chance. The",
            "rates follow from the bounds in the cases. Each is an upper bound for one run of the",
            f"check, and at most {_power(LIMIT)} for a MUST. A failure of SCHED-22, a SHOULD,",
            f"is a warning. The sum of all rates is below {_power(sum(c.rate for c in found))}.\n",
            "| Case | Requirement | Draws, and the condition | Rate |",
            "| --- | --- | --- | --- |",
            *rows,
            "",
        ]
    )


def _power(rate: float) -> str:
    """Return a rate as the next power of ten above it, such as 10⁻⁷."""
    power = str(math.ceil(math.log10(rate)))
    return f"10{power.translate(str.maketrans('-0123456789', '⁻⁰¹²³⁴⁵⁶⁷⁸⁹'))}"


def _of_case(case: Case) -> Iterator[Chance]:
    for step in case.steps:
        if "check" in step:
            for draw, rate in _of_check(case, step):
                if rate > 0:
                    yield Chance(case.name, step["check"], draw, rate)


def _of_check(case: Case, step: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    if "draws" in step:
        wanted = step["draws"]
        n, m = int(step["len"]), int(wanted["below"])
        kinds = [(m, 1)] if step["check"] == "RETRY-15" else [(m, 1), (_COARSE, m // _COARSE)]
        rate = max(
            _short_span(n, size, math.ceil(wanted["span"] / unit))
            + _few_distinct(n, size, wanted["distinct"])
            for size, unit in kinds
        )
        span = f", {wanted['span']} from the least to the largest" if wanted["span"] else ""
        yield f"{n} of {m} numbers: at least {wanted['distinct']} different ones{span}", rate
    if "uniform" in step:
        n = int(step["len"])
        low, high = math.ceil(MIN_SHARE * n / PARTS), math.floor(MAX_SHARE * n / PARTS)
        yield (
            f"{n} times: {low} to {high} in each of {PARTS} parts of the span",
            PARTS * _outside(n, 1 / PARTS, low, high),
        )
    if "spread" in step:
        n = step["spread"]["waits"]
        yield f"{n} waits: their mean is at least 0.7 of the average", _low_mean(n, 0.2 * n)
    for matcher in _matchers(step):
        if matcher.get("$") == "random":
            n, digits = matcher.get("len", 3), matcher.get("last", _HEX_DIGITS)
            rate = _outside(digits, 16.0 ** (1 - n), 0, MAX_ALIKE) + n * n / 16.0**digits
            yield f"{n} texts of {digits} digits: at most {MAX_ALIKE} digits alike in all", rate
        if "share" in matcher and isinstance(matcher.get("is"), Mapping):
            yield from _share(case, matcher["share"], matcher["is"])


def _matchers(value: Any) -> Iterator[Mapping[str, Any]]:
    """Yield every object in a check."""
    if isinstance(value, Mapping):
        yield value
    for part in value.values() if isinstance(value, Mapping) else value:
        if isinstance(part, Mapping | list):
            yield from _matchers(part)


def _share(
    case: Case, share: Mapping[str, Any], wanted: Mapping[str, Any]
) -> Iterator[tuple[str, float]]:
    """Yield the chance of a share of the jobs of a queue, which its weight decides. [FETCH-8]"""
    (start,) = (step for step in case.steps if step.get("start") == share["worker"])
    seeded = {seed["lpush"].removeprefix("queue:") for seed in case.seed if "lpush" in seed}
    pairs = [name.partition(":") for name in start["queues"]]
    weights = {name: max(int(weight or 1), 1) for name, _, weight in pairs if name in seeded}
    if not any(colon for _, colon, _ in pairs) or "max" not in wanted:
        return  # the order is fixed, or the case only waits for the jobs
    p, n = weights[share["jids"]] / sum(weights.values()), share["of"] // _JOBS_A_FETCH
    # A share is rounded to a percentage.
    low = math.ceil((wanted["min"] - 0.5) / 100 * n)
    high = math.floor((wanted["max"] + 0.5) / 100 * n)
    yield f"{n} fetches with a chance of {p:.2g}: {low} to {high}", _outside(n, p, low, high)


def _outside(n: int, p: float, low: int, high: int) -> float:
    """Return the chance that of n draws with chance p fewer than `low` or more than `high` win."""
    ways = (k for k in range(n + 1) if not low <= k <= high)
    return math.fsum(math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in ways)


def _short_span(n: int, m: int, span: int) -> float:
    """Return the chance that n of the numbers 0 to m - 1 lie less than `span` apart."""
    if span <= 0:
        return 0.0
    short: int = (m - span + 1) * (span**n - (span - 1) ** n) + (span - 1) ** n
    every: int = m**n
    return short / every


def _few_distinct(n: int, m: int, wanted: int) -> float:
    """Return the chance that n draws of m numbers show fewer than `wanted` different ones."""
    shown = [1.0] + [0.0] * m  # index: number of different ones so far
    for _ in range(n):
        before = [0.0, *shown[:-1]]
        shown = [
            was * k / m + less * (m - k + 1) / m
            for k, (was, less) in enumerate(zip(shown, before, strict=True))
        ]
    return math.fsum(shown[:wanted])


def _low_mean(n: int, total: float) -> float:
    """Return the chance that n uniform draws from [0, 1) have a sum below `total`."""
    signs = ((1.0, -1.0)[k % 2] for k in range(math.floor(total) + 1))
    terms = (sign * math.comb(n, k) * (total - k) ** n for k, sign in enumerate(signs))
    return math.fsum(terms) / math.factorial(n)
