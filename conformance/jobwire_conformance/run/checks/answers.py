"""Checks of statements of an implementation: answers, reports of jobs and of itself, output."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from jobwire_conformance.cases.values import ABSENT, members, plain
from jobwire_conformance.errors import SuiteFault
from jobwire_conformance.run import self_reports
from jobwire_conformance.run.checks.context import Check, Context, Miss

__all__ = ["PARTS"]


def _truthful(context: Context, step: Mapping[str, Any]) -> None:
    if context.answer is None:
        raise SuiteFault("a check of a truthful outcome must follow a push")
    key = context.state.key(step["truthful"])
    kind = context.sandbox.link.call("TYPE", key)
    jobs = context.sandbox.link.call("ZCARD" if kind == b"zset" else "LLEN", key)
    outcome = context.answer["outcome"]
    if (outcome == "ok" and not jobs) or (outcome == "rejected" and jobs):
        seen = f"{outcome!r}, and {jobs} jobs in {key}"
        raise Miss("the outcome", "an outcome that is true", seen)


def _identifies(context: Context, step: Mapping[str, Any]) -> None:
    _agree(self_reports.names(context.state, step["identifies"]))


def _resident(context: Context, step: Mapping[str, Any]) -> None:
    _agree(self_reports.memory(context.state, step["resident"]))


def _written(context: Context, step: Mapping[str, Any]) -> None:
    if context.answer is not None:
        _agree(self_reports.written(context.state, step["written"], context.answer))


def _agree(mismatch: self_reports.Mismatch | None) -> None:
    if mismatch is not None:
        raise Miss(*mismatch)


def _ran(context: Context, step: Mapping[str, Any]) -> None:
    jid = context.state.named(step["ran"])
    events = [e for e in context.state.events() if e.kind == "begin" and e.jid == jid]
    # The spelling counts: Python reads `1e400` and `Infinity` as one value.
    seen = members(events[-1].text).get("args", plain(None)) if events else ABSENT
    context.must(f"arguments of {jid}", step.get("args", {"$": "any"}), seen)


def _answered(context: Context, step: Mapping[str, Any]) -> None:
    if context.answer is None:
        raise SuiteFault("a check of an answer must follow a request to the driver")
    for name, matcher in step["answer"].items():
        seen = plain(context.answer[name]) if name in context.answer else ABSENT
        context.must(name, matcher, seen, "the answer")


def _logs(context: Context, step: Mapping[str, Any]) -> None:
    text = context.sandbox.workers[step["process"]].log.text()
    if not re.search(step["logs"], text):
        raise Miss(f"output of {step['process']}", f"a match of {step['logs']}", text[-300:])


PARTS: Mapping[str, Check] = {
    "truthful": _truthful,
    "written": _written,
    "identifies": _identifies,
    "resident": _resident,
    "logs": _logs,
    "ran": _ran,
    "answer": _answered,
}
