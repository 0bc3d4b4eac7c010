"""Products that write into a Redis, and their conflicts. It reads nothing."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, get_args

from jobwire.console.ops.doctor import Finding, Severity
from jobwire.console.ops.hazards import HAZARDS, Hazard
from jobwire.console.ops.products import (
    CLASSES,
    FIELDS,
    FIXED_KEYS,
    FORMS,
    KEYS,
    PRODUCTS,
    TREATMENTS,
    Product,
    Sign,
    Treatment,
    Version,
    version,
)
from jobwire.inspect.processes import ProcessInfo
from jobwire.protocol.times import MILLISECONDS_FROM

__all__ = [
    "Detection",
    "Evidence",
    "Sighting",
    "Writer",
    "examine",
    "namespace_of",
    "sign_of_key",
    "signs_of_payload",
    "signs_of_process",
]

END: Version = (1_000_000,)
GENERATIONS = (5, 6, 7, 8)
_TIMES = ("created_at", "enqueued_at", "failed_at", "retried_at")
_OLD_ORDER = ["class", "args", "retry", "queue", "jid", "created_at"]
_NAMESPACE = re.compile(r"(.+:)queues")

_key_pattern = re.compile("|".join(f"(?P<k{n}>{pattern})" for n, (pattern, _) in enumerate(KEYS)))
_field_pattern = re.compile(
    "|".join(f"(?P<f{n}>{pattern})" for n, (pattern, _) in enumerate(FIELDS))
)


@dataclass(frozen=True, slots=True)
class Sighting:
    """The number of times that a sign was seen, and its first key, or place of a payload."""

    sign: Sign
    count: int
    example: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Evidence in a Redis.

    Attributes:
        sightings: The signs that were seen, each once.
        processes: The registered processes.
        namespaces: Prefixes under which there are keys of Sidekiq.
        server: Version of the server; empty if it is not known.
        keys: Number of keys in the database.
        scanned: Number of keys whose names were looked at.
        payloads: Number of payloads that were looked at.
        refused: Commands that the server refused, with its text.
    """

    sightings: Sequence[Sighting] = ()
    processes: Sequence[ProcessInfo] = ()
    namespaces: Sequence[str] = ()
    server: str = ""
    keys: int = 0
    scanned: int = 0
    payloads: int = 0
    refused: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Writer:
    """One product, or one version of Sidekiq, that writes into the Redis.

    Attributes:
        product: Its name, such as `sidekiq-cron`.
        title: Its name for people.
        versions: Its version, such as `7.3.2`, or a range, such as `before 8.0`; empty if nothing
            tells it.
        generations: For Sidekiq, its major versions in this range, of 5 to 8.
        certain: False if jobwire may have written all of the evidence.
        evidence: The signs, each with the number of times that it was seen.
        treatments: The fate of its jobs in a worker of jobwire, by sign or product.
    """

    product: Product
    title: str
    versions: str
    generations: Sequence[int]
    certain: bool
    evidence: Mapping[str, int]
    treatments: Mapping[str, Treatment]


@dataclass(frozen=True, slots=True)
class Detection:
    """The answer of `jobwire detect`.

    Attributes:
        writers: The products.
        findings: Conflicts of those that are there, and of their upgrades; errors first.
        evidence: The evidence.
    """

    writers: Sequence[Writer]
    findings: Sequence[Finding]
    evidence: Evidence


@dataclass(slots=True)
class _Group:
    """Sightings that one version of Sidekiq can explain: from `low` on, and before `high`."""

    low: Version
    high: Version
    sightings: list[Sighting]

    def inside(self, first: str, after: str) -> bool:
        """True if every version of the group is in a range."""
        return version(first) <= self.low and self.high <= (version(after) or END)

    @property
    def process(self) -> Sign | None:
        """The sign of a process that says its version, if there is one."""
        signs = (one.sign for one in self.sightings)
        return next((sign for sign in signs if sign.code.startswith("process ")), None)

    def generations(self) -> list[int]:
        """Return the major versions that have a version in the group."""
        return [
            major for major in GENERATIONS if (major, 0, 0) < self.high and self.low < (major + 1,)
        ]


# -- signs


def sign_of_key(key: str) -> Sign | None:
    """Return the sign that a key without the namespace is, if any."""
    if key in FIXED_KEYS:
        return None  # its type counts also
    match = _key_pattern.fullmatch(key)
    return None if match is None else KEYS[int((match.lastgroup or "k0")[1:])][1]


def namespace_of(key: str) -> str | None:
    """Return the prefix of a key that may be the set of queues under a namespace."""
    match = _NAMESPACE.fullmatch(key)
    return None if match is None or sign_of_key(key) is not None else match[1]


def signs_of_payload(fields: Mapping[str, Any], *, on_queue: bool = True) -> Iterator[Sign]:
    """Return the signs in a payload.

    Args:
        fields: The decoded payload.
        on_queue: True for one from a queue. Sidekiq's own API puts payloads of all kinds into sets.
    """
    for name, value in fields.items():
        if value is None or value is False:
            continue
        if match := _field_pattern.fullmatch(name):
            yield FIELDS[int((match.lastgroup or "f0")[1:])][1]
    if isinstance(job_class := fields.get("class"), str) and job_class in CLASSES:
        yield CLASSES[job_class]
        if job_class == "Sidekiq::ActiveJob::Wrapper":
            yield FORMS["wrapper-new"]
    yield from {_form_of_time(fields[name]): None for name in _TIMES if name in fields}
    if [*fields][:6] == _OLD_ORDER and isinstance(fields["created_at"], float):
        yield FORMS["class-first"]
    yield from _forms_of_failure(fields)
    key = fields.get("idempotency_key")
    if isinstance(key, str) and "duplicate:" in key:  # other programs have a field of this name
        yield FORMS["idempotency-key"]
    if fields.get("retry_for"):
        yield FORMS["retry-for"]
    if isinstance(attributes := fields.get("cattr"), dict | list):
        yield FORMS["cattr-array" if isinstance(attributes, list) else "cattr-object"]
    if "class" in fields and "args" in fields and on_queue:
        if "jid" not in fields:
            yield FORMS["no-jid"]
        if "created_at" not in fields:
            yield FORMS["no-created-at"]


def _form_of_time(value: object) -> Sign:
    if isinstance(value, float):
        return FORMS["seconds"]
    if isinstance(value, int) and not isinstance(value, bool):
        return FORMS["milliseconds" if abs(value) >= MILLISECONDS_FROM else "whole-seconds"]
    return FORMS["text-times"]


def _forms_of_failure(fields: Mapping[str, Any]) -> Iterator[Sign]:
    backtrace = fields.get("error_backtrace")
    if isinstance(backtrace, list):
        yield FORMS["backtrace-array"]
    elif isinstance(backtrace, str):
        yield FORMS["backtrace-lines" if "\n" in backtrace else "backtrace-line"]


def signs_of_process(process: ProcessInfo) -> Sign:
    """Return the sign that the heartbeat of a process is."""
    name, _, number = process.version.partition(" ")
    if name == "jobwire":
        return Sign(f"process {number}", "jobwire", f"a process of jobwire {number}", number)
    if exact := version(process.version):
        after = ".".join(map(str, (*exact[:-1], exact[-1] + 1)))
        shown = process.version
        return Sign(f"process {shown}", "sidekiq", f"a process of {shown}", shown, after)
    if process.version or not {"identity", "labels"} <= process.info.keys():
        shown = process.version or "an unknown version"
        return Sign("process", "other-worker", f"a process of {shown}")
    return FORMS["beat-6" if process.rss else "beat-5"]


# -- findings


def examine(evidence: Evidence) -> Detection:
    """Return the products that the evidence shows, and their conflicts."""
    seen = {sighting.sign.code: sighting for sighting in evidence.sightings}
    if evidence.namespaces:
        sign = FORMS["namespace"]
        seen[sign.code] = Sighting(sign, len(evidence.namespaces), evidence.namespaces[0])
    if "bid" in seen and "batch-key" in seen and not _PRO_BATCHES & seen.keys():
        moved = seen["bid"].sign._replace(product="sidekiq-batch")
        seen["bid"] = Sighting(moved, seen["bid"].count, seen["bid"].example)
    by_product: dict[Product, list[Sighting]] = {}
    for sighting in seen.values():
        by_product.setdefault(sighting.sign.product, []).append(sighting)
    groups = _groups(by_product.pop("sidekiq", []))
    is_jobwire = "jobwire" in by_product
    writers = [
        _writer("sidekiq", group.sightings, is_jobwire, _span(group), group.generations())
        for group in groups
    ]
    for product in PRODUCTS:
        if product in by_product:
            versions = _span_of(by_product[product])
            writers.append(_writer(product, by_product[product], is_jobwire, versions))
    certain = [
        group
        for group in groups
        if not is_jobwire or not all(one.sign.shared for one in group.sightings)
    ]
    findings = [
        _finding(row, seen)
        for row in HAZARDS
        if _applies(row, seen, groups, certain, evidence.server)
    ]
    order = get_args(Severity)
    findings.sort(key=lambda finding: order.index(finding.severity))
    return Detection(writers, findings, evidence)


_PRO_BATCHES = {"pro-batch", "batches"}


def _groups(sightings: Iterable[Sighting]) -> list[_Group]:
    """Return the smallest number of versions that explains all signs, oldest first.

    Each sign says a range of versions. Taken in the order in which the ranges end, a range that
    begins before the end of a group can be of the group, and any other begins a new one. Only a
    sign that no second group can explain makes the range of its group smaller.
    """
    groups: list[_Group] = []
    others: list[Sighting] = []
    for one in sorted(sightings, key=lambda one: _range(one.sign)[::-1]):
        if groups and _range(one.sign)[0] < groups[-1].high:
            others.append(one)
        else:
            groups.append(_Group(*_range(one.sign), [one]))
    for is_last in (False, True):
        ambiguous = []
        for one in others:
            low, high = _range(one.sign)
            able = [group for group in groups if low < group.high and group.low < high]
            if len(able) == 1:
                able[0].low = max(able[0].low, low)
                able[0].sightings.append(one)
            elif is_last:
                exact = [group for group in able if group.process]
                (exact or able)[-1].sightings.append(one)
            else:
                ambiguous.append(one)
        others = ambiguous
    return groups


def _range(sign: Sign) -> tuple[Version, Version]:
    return version(sign.since), version(sign.before) or END


def _span(group: _Group) -> str:
    return group.process.since if group.process else _words(group.low, group.high)


def _span_of(sightings: Sequence[Sighting]) -> str:
    """Return the versions of a product that is not Sidekiq."""
    exact = sorted({one.sign.since for one in sightings if one.sign.code.startswith("process ")})
    if exact:
        return ", ".join(exact)
    ranges = [_range(one.sign) for one in sightings if one.sign.since or one.sign.before]
    if not ranges:
        return ""
    low, high = max(low for low, _ in ranges), min(high for _, high in ranges)
    if low >= high:  # several versions
        return ", ".join(dict.fromkeys(_words(*one) for one in sorted(ranges)))
    return _words(low, high)


def _words(low: Version, high: Version) -> str:
    first, after = (".".join(map(str, end)) for end in (low, high))
    if high == END:
        return f"{first} or newer" if low else ""
    return f"{first} or newer, before {after}" if low else f"before {after}"


def _writer(
    product: Product,
    sightings: Sequence[Sighting],
    is_jobwire: bool,
    versions: str,
    generations: Sequence[int] = (),
) -> Writer:
    shared = all(one.sign.shared for one in sightings)
    treatments = {
        one.sign.text: TREATMENTS[one.sign.code] for one in sightings if one.sign.code in TREATMENTS
    }
    if product in TREATMENTS and (product != "gitlab" or not treatments):
        treatments.setdefault(PRODUCTS[product], TREATMENTS[product])
    return Writer(
        product,
        PRODUCTS[product],
        versions,
        generations,
        not (is_jobwire and shared),
        {one.sign.text: one.count for one in sightings},
        treatments,
    )


def _applies(
    row: Hazard,
    seen: Mapping[str, Sighting],
    groups: Sequence[_Group],
    certain: Sequence[_Group],
    server: str,
) -> bool:
    """Return True if a row holds for the groups, of which `certain` are those of Sidekiq alone."""
    if row.needs and not any(seen.keys() >= {*need.split("+")} for need in row.needs):
        return False
    if row.server is not None:
        first, after = row.server
        if not server or not version(first) <= version(server) < version(after):
            return False
    if row.writer == ("", ""):
        return True
    writers = [group for group in (groups if row.ours else certain) if group.inside(*row.writer)]
    if row.reader is None or not writers:
        return bool(writers)
    return any(group not in writers and group.inside(*row.reader) for group in certain)


def _finding(row: Hazard, seen: Mapping[str, Sighting]) -> Finding:
    codes = chain.from_iterable(need.split("+") for need in row.needs)
    evidence = {seen[code].sign.text: seen[code].example for code in codes if code in seen}
    return Finding(row.code, row.severity, row.sentence, row.remedy, evidence)
