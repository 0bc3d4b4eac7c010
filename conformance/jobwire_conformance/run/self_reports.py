"""Checks of the reports of an implementation: a worker's of itself, a client's of its jobs.

Each function returns the subject, the expected and the seen value of a mismatch, or None.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, TypeAlias

from jobwire_conformance.run.state import State, jid_of
from jobwire_conformance.sandbox.processes import resident

__all__ = ["Mismatch", "memory", "names", "written"]

Mismatch: TypeAlias = tuple[str, object, object]

_MAX_GROWTH = 3.0  # of a process between a heartbeat and the check


def names(state: State, worker: str) -> Mismatch | None:
    """Check that the `info` of a worker tells the parts of its identity. [BEAT-4] [BEAT-6]"""
    identity = state.identity(worker)
    link, prefix = state.sandbox.link, state.sandbox.config.prefix
    try:
        info = json.loads(link.call("HGET", prefix + identity, "info") or b"null")
    except ValueError:
        info = None
    if not isinstance(info, dict):
        return f"'info' of {identity}", "a JSON object", info
    if info.get("identity") != identity:
        return f"'identity' in info of {identity}", identity, info.get("identity")
    named = f"{info.get('hostname')}:{info.get('pid')}:"
    if not info.get("hostname") or not re.fullmatch(re.escape(named) + "[0-9a-f]{12}", identity):
        return "the identity", f"{named}<12 hex digits>, from 'hostname' and 'pid'", identity
    return None


def memory(state: State, worker: str) -> Mismatch | None:
    """Check the field `rss` of a worker. [BEAT-3]"""
    identity = state.identity(worker)
    text = state.sandbox.link.call("HGET", state.sandbox.config.prefix + identity, "rss")
    if text is None or not text.isdigit():
        return f"'rss' of {identity}", "a number of KiB", text and text.decode("utf-8", "replace")
    sizes = resident(state.sandbox.workers[worker].group.popen.pid)
    size = int(text)
    # In a container of its own it is none of the processes that the suite sees.
    if size and sizes and not any(s / _MAX_GROWTH <= size <= s * _MAX_GROWTH for s in sizes):
        expected = f"about {' or '.join(map(str, sorted(sizes)))} KiB, or 0"
        return f"'rss' of {identity}", expected, size
    return None


def written(state: State, wanted: Mapping[str, Any], answer: Mapping[str, Any]) -> Mismatch | None:
    """Check `written` in the answer to a bulk push that failed. [BULK-6] [BULK-17]"""
    if answer["outcome"] == "ok":
        return None
    full = state.key(wanted["of"])
    link = state.sandbox.link
    is_zset = link.call("TYPE", full) == b"zset"
    texts = link.call("ZRANGE" if is_zset else "LRANGE", full, 0, -1)
    there = {jid_of(text) for text in texts}
    ids = answer.get("written", [])
    if len({*ids}) != len(ids) or not there.issuperset(ids):
        strange = [jid for jid in ids if jid not in there]
        return "'written' of the answer", f"ids of jobs in {full}, each once", strange or ids
    if (len(ids) == len(texts)) != wanted.get("all", len(ids) == len(texts)):
        number = "all" if wanted["all"] else "some, not all"
        return (
            "'written' of the answer",
            f"the ids of {number} of {len(texts)} jobs in {full}",
            len(ids),
        )
    return None
