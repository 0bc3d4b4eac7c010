"""A file with the results of pairs. Results of pairs that are not tested again stay."""

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
from jobwire_conformance.interop.run import InteropResults

__all__ = ["load", "save"]

_ITEMS = {item.name: item for item in POOL}


def load(path: Path) -> tuple[list[Pair], list[Handover]]:
    """Return the pairs and handovers in a file; none if the file does not exist.

    Pairs that were tested with other payloads than today's are left out.

    Raises:
        Usage: The file does not have the form that `save` writes.
    """
    if not path.exists():
        return [], []
    try:
        stored = json.loads(path.read_text("utf-8"))
        versions = {entry["name"]: entry["version"] or "" for entry in stored["implementations"]}
        is_current = stored["payloads"] == [*_ITEMS]
        pairs = [
            _pair(entry, versions) for entry in stored["pairs"] if is_current or "error" in entry
        ]
        handovers = [
            Handover(
                entry["failing"],
                entry["retrying"],
                [(problem["by"], problem["what"]) for problem in entry.get("problems", ())],
                entry.get("error"),
            )
            for entry in stored["handovers"]
        ]
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise Usage(
            f"{path} is not a file of `jobwire conform interop --keep` "
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


def save(path: Path, results: InteropResults) -> None:
    """Write all results for the next run, with one line for each pair.

    A pair lists the payloads that did not arrive intact, grouped by fate. A fate without a list of
    payloads applies to all payloads.
    """
    about = report.as_data(results)
    path.write_bytes(
        compact.dump(
            {
                "kept": 1,
                **{name: about[name] for name in ("spec", "server", "implementations")},
                "payloads": [*_ITEMS],
                "pairs": [_compact(pair) for pair in results.pairs],
                "handovers": [
                    {name: value for name, value in handover.items() if value}
                    for handover in about["handovers"]
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
        fate_entry = {"status": status, "by": by, "expected": expected, "seen": seen}
        all_failed = len(names) == len(_ITEMS)
        wrong.append(fate_entry if all_failed else {**fate_entry, "payloads": names})
    if wrong:
        entry["wrong"] = wrong
    return entry
