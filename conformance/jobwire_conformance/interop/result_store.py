"""What earlier runs found of pairs, in a file: what was not tried again stays."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

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
        pairs = [_pair(each, versions) for each in found["pairs"] if _is_of_today(each)]
        handovers = [
            Handover(
                each["failing"],
                each["retrying"],
                [(problem["by"], problem["what"]) for problem in each["problems"]],
                each["error"],
            )
            for each in found["handovers"]
        ]
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise Usage(
            f"{path} does not hold what `jobwire conform interop --keep` writes "
            f"({type(error).__name__}: {error}); name another file, or delete this one"
        ) from error
    return pairs, handovers


def _is_of_today(pair: Mapping[str, Any]) -> bool:
    return bool(pair["error"]) or {job["payload"] for job in pair["jobs"]} == _ITEMS.keys()


def _pair(pair: Mapping[str, Any], versions: Mapping[str, str]) -> Pair:
    fates = [
        Fate(
            _ITEMS[job["payload"]],
            job["status"],
            job.get("by"),
            job.get("expected", ""),
            job.get("seen", ""),
        )
        for job in pair["jobs"]
    ]
    client = pair["client"]
    return Pair(client, pair["worker"], fates, pair["error"], versions[client])


def save(path: Path, found: Found) -> None:
    """Write everything that was found, for the next run."""
    text = json.dumps(report.as_data(found), ensure_ascii=False, indent=1)
    path.write_text(f"{text}\n", "utf-8")
