"""Results of pairs in a file. Results of pairs that are not tried again stay."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jobwire_conformance import compact
from jobwire_conformance.errors import Usage
from jobwire_conformance.interop import report
from jobwire_conformance.interop.pair import Fate, Handover, Pair
from jobwire_conformance.interop.pool import POOL
from jobwire_conformance.interop.run import Found

__all__ = ["load", "save"]

_ITEMS = {item.name: item for item in POOL}


def load(path: Path) -> tuple[list[Pair], list[Handover]]:
    """Return the pairs and handovers in a file; none if there is no such file.

    Pairs that were tried with other payloads than those of today are left out.

    Raises:
        Usage: The file is not what `save` writes.
    """
    if not path.exists():
        return [], []
    try:
        found = json.loads(path.read_text("utf-8"))
        versions = {each["name"]: each["version"] or "" for each in found["implementations"]}
        today = found["payloads"] == [*_ITEMS]
        pairs = [_pair(each, versions) for each in found["pairs"] if today or "error" in each]
        handovers = [
            Handover(
                each["failing"],
                each["retrying"],
                [(problem["by"], problem["what"]) for problem in each.get("problems", ())],
                each.get("error"),
            )
            for each in found["handovers"]
        ]
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise Usage(
            f"{path} does not hold what `jobwire conform interop --keep` writes "
            f"({type(error).__name__}: {error}); name another file, or delete this one"
        ) from error
    return pairs, handovers


def _pair(pair: Mapping[str, Any], versions: Mapping[str, str]) -> Pair:
    client, error = pair["client"], pair.get("error")
    fates = {} if error else {name: Fate(item, "intact") for name, item in _ITEMS.items()}
    for wrong in pair.get("wrong", ()):
        for name in wrong.get("payloads", _ITEMS):
            fates[name] = Fate(
                *(_ITEMS[name], wrong["status"]),
                *(wrong.get("by"), wrong.get("expected", ""), wrong.get("seen", "")),
            )
    return Pair(client, pair["worker"], [*fates.values()], error, versions[client])


def save(path: Path, found: Found) -> None:
    """Write all results for the next run: a line for each pair.

    A pair lists the payloads that did not arrive intact, grouped by fate. A fate without a list of
    payloads is that of all payloads.
    """
    about = report.as_data(found)
    path.write_bytes(
        compact.dump(
            {
                "kept": 1,
                **{name: about[name] for name in ("spec", "server", "implementations")},
                "payloads": [*_ITEMS],
                "pairs": [_compact(pair) for pair in found.pairs],
                "handovers": [
                    {name: value for name, value in each.items() if value}
                    for each in about["handovers"]
                ],
            }
        )
    )


def _compact(pair: Pair) -> dict[str, Any]:
    entry: dict[str, Any] = {"client": pair.client, "worker": pair.worker}
    if pair.error:
        entry["error"] = pair.error
    groups: dict[tuple[str, str | None, str, str], list[str]] = {}
    for fate in pair.fates:
        if fate.status != "intact":
            key = fate.status, fate.by, fate.expected, fate.seen
            groups.setdefault(key, []).append(fate.item.name)
    wrong = []
    for (status, by, expected, seen), names in groups.items():
        said = {"status": status, "by": by, "expected": expected, "seen": seen}
        whole = len(names) == len(_ITEMS)
        wrong.append(said if whole else {**said, "payloads": names})
    if wrong:
        entry["wrong"] = wrong
    return entry
