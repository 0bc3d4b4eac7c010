"""Make a case of an example that failed: as few steps as will do, and the one check."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from jobwire_conformance import data
from jobwire_conformance.config import Config
from jobwire_conformance.model.actions import Act, Impossible
from jobwire_conformance.model.model import Step, script
from jobwire_conformance.model.trial import Failure

__all__ = ["as_case", "fewer", "label", "simpler", "write"]

_SINCE = "1.0"


def fewer(
    acts: Sequence[Act], failure: Failure, play: Callable[[Sequence[Act]], Failure | None]
) -> tuple[list[Act], Failure]:
    """Leave out every act without which the same requirement fails as well."""
    left, at = [*acts[: failure.act + 1]], 0
    while at < len(left):
        without = left[:at] + left[at + 1 :]
        try:
            found = play(without)
        except Impossible:
            found = None
        if found is not None and found.requirement == failure.requirement:
            left, failure = without[: found.act + 1], found
        else:
            at += 1
    return left, failure


def simpler(
    acts: Sequence[Act], failure: Failure, play: Callable[[Sequence[Act]], Failure | None]
) -> tuple[list[Act], Failure]:
    """Put simpler values in, one at a time, as long as the same requirement fails."""
    left, at = [*acts], 0
    while at < len(left):
        for act in _simpler(left[at]):
            instead = [*left[:at], act, *left[at + 1 :]]
            try:
                found = play(instead)
            except Impossible:
                continue
            if found is not None and found.requirement == failure.requirement:
                left, failure = instead[: found.act + 1], found
                break
        else:
            at += 1
    return left, failure


def _simpler(act: Act) -> Iterator[Act]:
    """Yield acts like this one, each with one value that is simpler, so that it comes to an end."""
    for name, plain in _PLAIN.items():
        if name in act.given and act.given[name] != plain:
            yield Act(act.verb, {**act.given, name: plain})
    if "count" in act.given:
        rest = {name: v for name, v in act.given.items() if name not in ("count", "failed_at")}
        yield Act(act.verb, rest)
    if act.given.get("kind", "Echo") == "Echo":
        for args in _smaller(act.given.get("args", [])):
            if args and isinstance(args, list) and (act.verb != "bulk" or all(args)):
                yield Act(act.verb, {**act.given, "args": args})
    if fields := act.given.get("fields"):
        for value in _smaller(fields["x_trace"]):
            yield Act(act.verb, {**act.given, "fields": {**fields, "x_trace": value}})


def _smaller(value: Any) -> Iterator[Any]:
    """Yield simpler values: without a part, a part alone, with a simpler part; in the end 0."""
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


def as_case(acts: Sequence[Act], failure: Failure, config: Config) -> dict[str, Any]:
    """Return the case of an example: what was done, and the check that failed in the end.

    What was seeded before anything else was done is the seed of the case.
    """
    parts = script(acts, config.claims)[: failure.act + 1]
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
    body: dict[str, Any] = {"claims": claims, "since": _SINCE, "generation": config.generation}
    if seeds:
        body["seed"] = seeds
    body["steps"] = [*done, failure.check]
    digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
    return {"case": f"found-{digest[:12]}", "title": f"{failure.requirement} holds", **body}


def _claims(requirement: str, config: Config, steps: Sequence[Step]) -> list[str]:
    of = data.requirements()[requirement].claims
    found = [claim for claim in config.claims if claim in of]
    # Settling waits for members that are due only where somebody is to promote them.
    promotes = any("warp" in step for step in steps) and "scheduler/core" in config.claims
    return [*dict.fromkeys([*found, *(["scheduler/core"] if promotes else [])])]


def label(case: Mapping[str, Any], failed: int, times: int) -> dict[str, Any]:
    """Return a case with what became of its replays in the title."""
    requirement = case["title"].partition(" ")[0]
    flaky = "" if failed == times else "flaky, "
    said = f"{requirement} holds (found by exploring; {flaky}failed in {failed}/{times} replays)"
    return {**case, "title": said}


def write(case: Mapping[str, Any], directory: Path) -> Path:
    """Write a case to a file of its name; return where it is."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{case['case']}.json"
    lines = [f"  {json.dumps(name)}: {_spelt(value)}" for name, value in case.items()]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", "ascii")
    return path


def _spelt(value: Any) -> str:
    """Return a value as text; of a list of steps each on a line of its own."""
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return "[\n" + ",\n".join(f"    {json.dumps(each)}" for each in value) + "\n  ]"
    return json.dumps(value)
