"""The case of a failing example, with few steps and one check."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from jobwire_conformance import data
from jobwire_conformance.config import Config
from jobwire_conformance.model.actions import Action, Impossible
from jobwire_conformance.model.model import Step, script
from jobwire_conformance.model.trial import Failure

__all__ = ["as_case", "fewer", "label", "simpler", "write"]

_SINCE = "1.0"


def fewer(
    actions: Sequence[Action], failure: Failure, play: Callable[[Sequence[Action]], Failure | None]
) -> tuple[list[Action], Failure]:
    """Leave out each action that the failure of the requirement does not need."""
    kept, at = [*actions[: failure.action + 1]], 0
    while at < len(kept):
        without = kept[:at] + kept[at + 1 :]
        try:
            failed = play(without)
        except Impossible:
            failed = None
        if failed is not None and failed.requirement == failure.requirement:
            kept, failure = without[: failed.action + 1], failed
        else:
            at += 1
    return kept, failure


def simpler(
    actions: Sequence[Action], failure: Failure, play: Callable[[Sequence[Action]], Failure | None]
) -> tuple[list[Action], Failure]:
    """Replace values by simpler ones, one at a time, as long as the same requirement fails."""
    kept, at = [*actions], 0
    while at < len(kept):
        for action in _simpler(kept[at]):
            instead = [*kept[:at], action, *kept[at + 1 :]]
            try:
                failed = play(instead)
            except Impossible:
                continue
            if failed is not None and failed.requirement == failure.requirement:
                kept, failure = instead[: failed.action + 1], failed
                break
        else:
            at += 1
    return kept, failure


def _simpler(action: Action) -> Iterator[Action]:
    """Yield copies of an action with one simpler value each. Repeated simplification ends."""
    for name, plain in _PLAIN.items():
        if name in action.given and action.given[name] != plain:
            yield Action(action.verb, {**action.given, name: plain})
    if "count" in action.given:
        given = {name: v for name, v in action.given.items() if name not in ("count", "failed_at")}
        yield Action(action.verb, given)
    if action.given.get("kind", "Echo") == "Echo":
        for args in _smaller(action.given.get("args", [])):
            if args and isinstance(args, list) and (action.verb != "bulk" or all(args)):
                yield Action(action.verb, {**action.given, "args": args})
    if fields := action.given.get("fields"):
        for value in _smaller(fields["x_trace"]):
            yield Action(action.verb, {**action.given, "fields": {**fields, "x_trace": value}})


def _smaller(value: Any) -> Iterator[Any]:
    """Yield simpler values: a single part, the value without a part, or with a simpler part.

    The simplest value is 0.
    """
    if isinstance(value, Mapping):
        yield from (0, *value.values())
        for name in value:
            yield {other: part for other, part in value.items() if other != name}
    elif isinstance(value, list):
        yield from value
        yield from (value[:at] + value[at + 1 :] for at in range(len(value)))
        for at, part in enumerate(value):
            yield from ([*value[:at], less, *value[at + 1 :]] for less in _smaller(part))
        if not value:
            yield 0
    elif isinstance(value, str):
        if value:
            yield ""
    elif value != 0 or isinstance(value, bool | float):
        yield 0


_PLAIN = {"fields": {}, "queue": "default", "spelling": "compact", "retry": True, "delay": 1000.0}


def as_case(actions: Sequence[Action], failure: Failure, config: Config) -> dict[str, Any]:
    """Return the case of an example: its steps, and the check that failed.

    Seeds before all other steps become the seed of the case.
    """
    parts = script(actions, config.claims)[: failure.action + 1]
    done = [step for part in parts[:-1] for step in part if "check" not in step]
    for step in parts[-1]:
        if step == failure.check:
            break
        if "check" not in step:
            done.append(step)
    seeds = []
    while done and "seed" in done[0]:
        seeds += done.pop(0)["seed"]
    claims = _claims(failure.requirement, config, done)
    body: dict[str, Any] = {"claims": claims, "since": _SINCE, "generations": [config.generation]}
    if seeds:
        body["seed"] = seeds
    body["steps"] = [*done, failure.check]
    digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
    return {"case": f"found-{digest[:12]}", "title": f"{failure.requirement} holds", **body}


def _claims(requirement: str, config: Config, steps: Sequence[Step]) -> list[str]:
    rule = data.requirements()[requirement]
    claims = [profile for profile in rule.profiles if rule.claim(profile) in config.claims]
    # The step `settle` waits for the promotion of due members only if a scheduler is claimed.
    promotes = any("warp" in step for step in steps) and "scheduler/core" in config.claims
    return [*dict.fromkeys([*claims, *(["scheduler/core"] if promotes else [])])]


def label(case: Mapping[str, Any], failed: int, times: int) -> dict[str, Any]:
    """Return a case whose title holds the result of its replays."""
    requirement = case["title"].partition(" ")[0]
    flaky = "" if failed == times else "flaky, "
    title = f"{requirement} holds (found by exploring; {flaky}failed in {failed}/{times} replays)"
    return {**case, "title": title}


def write(case: Mapping[str, Any], directory: Path) -> Path:
    """Write a case to a file with its name; return the path."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{case['case']}.json"
    lines = [f"  {json.dumps(name)}: {_spelt(value)}" for name, value in case.items()]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", "ascii")
    return path


def _spelt(value: Any) -> str:
    """Return a value as text. In a list of steps, each step has a line."""
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return "[\n" + ",\n".join(f"    {json.dumps(step)}" for step in value) + "\n  ]"
    return json.dumps(value)
