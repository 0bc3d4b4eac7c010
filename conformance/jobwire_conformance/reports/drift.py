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
        values[f"{loss['case']}, its points"] = "cut off"
    return values


def drift(before: Summary, now: Summary) -> Iterator[str]:
    """Yield a line for each difference.

    A point more or less where nothing is lost is none: at which moment a process sends a command
    such as a heartbeat, or the renewal of a watch, depends on the machine. A case without any point
    is one.
    """
    old, new = stable(before), stable(now)
    for name in sorted({*old, *new}):
        if old.get(name) != new.get(name) and {old.get(name), new.get(name)} != {"kept", None}:
            yield f"{name}: was {old.get(name, 'missing')}, is {new.get(name, 'missing')}"
