"""The differences between two runs of the same version, except for times."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from jobwire_conformance.data import DEFAULT_GENERATION
from jobwire_conformance.reports.results import Summary
from jobwire_conformance.wire.points import Point

__all__ = ["drift", "stable"]


def stable(results: Summary) -> Mapping[str, str]:
    """Return the values that must be equal in every run, by name.

    A point counts among those of its case that were cut off, because how often a process polled
    before depends on the machine.
    """
    values = {
        "specification": results["spec"],
        "generation": results.get("generation", DEFAULT_GENERATION),
    }
    for name, claim in results["claims"].items():
        values[name] = "met" if claim["met"] else "not met"
    for check in results["checks"]:
        values[f"{check['case']}#{check['requirement']} for {check['claim']}"] = check["status"]
    cuts: Counter[str] = Counter()
    # A matrix that several claims ask for is run for each, and a summary keeps a point once.
    map_ = results.get("loss_map", ())
    losses = {(loss["case"], loss["side"], loss["point"]): loss for loss in map_}
    for loss in sorted(losses.values(), key=lambda loss: Point.parse(loss["point"])):
        cut = f"{loss['case']}, cut off {loss['side']} {Point.parse(loss['point']).label}"
        cuts[cut] += 1
        values[f"{cut}, number {cuts[cut]}"] = loss["outcome"]
    return values


def drift(before: Summary, now: Summary) -> Iterator[str]:
    """Yield a line for each difference.

    A further point of a case where nothing is lost is none: a slow process can also be cut off at a
    command that a quick one sends after the end of the case, such as a heartbeat.
    """
    old, new = stable(before), stable(now)
    for name in sorted({*old, *new}):
        if old.get(name) != new.get(name) and (name in old or new[name] != "kept"):
            yield f"{name}: was {old.get(name, 'missing')}, is {new.get(name, 'missing')}"
