"""results.json and trace.jsonl: written, read back, held against the schema.

Every report is made from these two, so that it can be made again later, elsewhere.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NotRequired, TypedDict, cast

from jobwire_conformance import data
from jobwire_conformance.errors import Usage

__all__ = [
    *("Check", "Claim", "Loss", "Results", "TraceLine"),
    *("dump", "load", "load_trace", "small", "stored_as"),
]

Fate = Literal["kept", "lost", "duplicated", "stuck"]


class Implementation(TypedDict):
    """What was checked."""

    name: str
    version: str
    variant: NotRequired[str]
    language: NotRequired[str]
    source: NotRequired[str]


class Claim(TypedDict):
    """How it stands about a claim."""

    met: bool
    checks: dict[str, int]
    missing: NotRequired[list[str]]
    unchecked: NotRequired[list[str]]


class Check(TypedDict):
    """One requirement of one case, for one claim."""

    case: str
    requirement: str
    claim: str
    keyword: str
    status: str
    held: NotRequired[int]
    runs: NotRequired[int]
    message: NotRequired[str]
    expected: NotRequired[Any]
    seen: NotRequired[Any]
    reason: NotRequired[str]
    issue: NotRequired[str]
    blocked_by: NotRequired[str]
    by: NotRequired[str]
    trace: NotRequired[list[int]]
    seconds: NotRequired[float]


class Loss(TypedDict):
    """What became of a job when a process was cut off at one point."""

    case: str
    point: str
    side: Literal["before", "after"]
    outcome: Fate
    window: NotRequired[str]
    trace: NotRequired[list[int]]


class Server(TypedDict):
    """The server used."""

    name: str
    version: str


class Error(TypedDict):
    """What ended a case, or the run."""

    status: int
    message: str
    case: NotRequired[str]


class Results(TypedDict):
    """results.json. See schema/results.json."""

    results: int
    spec: str
    suite: str
    driver: int
    implementation: Implementation
    claims: dict[str, Claim]
    generation: NotRequired[int]
    server: Server
    seed: int
    started: str
    seconds: NotRequired[float]
    status: int
    checks: list[Check]
    loss_map: NotRequired[list[Loss]]
    errors: NotRequired[list[Error]]
    again: NotRequired[str]
    trace: NotRequired[str]


@dataclass(frozen=True, slots=True)
class TraceLine:
    """One command that passed, and what became of it.

    Attributes:
        number: Of the line, from 0.
        case: Case in which it passed.
        proc: Who sent it: `driver`, or the name of a worker.
        connection: Counted from 1 for each of them.
        words: The command.
        reply: The frame of the answer; None if none came.
        fault: What the suite did to it, like `cut`.
        sent: Whether the server got it.
        ms: Milliseconds since the first command of the case.
        crash: Of a rerun in which a process was cut off: where.
    """

    number: int
    case: str
    proc: str
    connection: int
    words: Sequence[bytes]
    reply: bytes | None
    fault: str | None
    sent: bool
    ms: float | None
    crash: str | None


def dump(results: Results) -> bytes:
    """Return the file.

    Half a surrogate pair, which a payload may hold and UTF-8 may not, becomes an escape again.
    """
    text = json.dumps(results, ensure_ascii=False, indent=2) + "\n"
    return text.encode("utf-8", "backslashreplace")


def load(path: Path) -> Results:
    """Return what a results file says; of a directory, its results.json.

    Raises:
        Usage: It cannot be read, or is something else, or of another version of the format.
    """
    if path.is_dir():
        path = path / "results.json"
    try:
        found = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise Usage(
            f"{path} does not exist; `jobwire conform check --report DIR` writes DIR/results.json"
        ) from None
    except OSError as error:
        raise Usage(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise Usage(
            f"{path} is not JSON ({error}); it has to be a results.json of `jobwire conform check`"
        ) from None
    return _checked(path, found)


def _checked(path: Path, found: Any) -> Results:
    from jsonschema import Draft202012Validator

    if not isinstance(found, dict) or "results" not in found or "checks" not in found:
        raise Usage(
            f"{path} is no results.json of `jobwire conform check`: "
            "'results' and 'checks' are not in it"
        )
    if found["results"] != 1:
        raise Usage(
            f"{path}: its format is {str(found['results'])[:40]}, and this suite reads 1; "
            "use the version of jobwire that wrote it, or check again with this one"
        )
    for problem in Draft202012Validator(data.schema("results")).iter_errors(found):
        place = "/".join(map(str, problem.absolute_path)) or "the whole"
        raise Usage(
            f"{path}: {place}: {problem.message[:200]}; see schema/results.json, or check again"
        )
    return cast(Results, found)


def load_trace(directory: Path, results: Results) -> list[TraceLine]:
    """Return the commands of a run; nothing if its trace is not at hand.

    Raises:
        Usage: The file is no trace.
    """
    name = results.get("trace")
    # Results come from anywhere: they may not name a file outside.
    if name is None or Path(name).name != name:
        return []
    try:
        lines = (directory / name).read_bytes().split(b"\n")
    except FileNotFoundError:
        return []
    except OSError as error:
        raise Usage(f"{directory / name} cannot be read: {error.strerror}") from None
    found = []
    for number, line in enumerate(lines):
        if line:
            try:
                found.append(_trace_line(number, json.loads(line)))
            except (ValueError, KeyError, TypeError, RecursionError) as error:
                raise Usage(
                    f"{directory / name}: line {number + 1} is no line of a trace ({error!r}); "
                    "take the file away, or check again"
                ) from None
    return found


def _trace_line(number: int, raw: Mapping[str, Any]) -> TraceLine:
    reply = raw["reply"]
    return TraceLine(
        number=number,
        case=str(raw["case"]),
        proc=str(raw["proc"]),
        connection=int(raw["conn"]),
        words=[_bytes(word) for word in raw["argv"]],
        reply=None if reply is None else _bytes(reply),
        fault=raw["fault"],
        sent=bool(raw.get("sent", True)),
        ms=raw.get("ms"),
        crash=raw.get("crash"),
    )


def _bytes(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    try:
        return base64.b64decode(value["base64"])
    except binascii.Error as error:
        raise ValueError(str(error)) from None


def small(results: Results) -> Results:
    """Return results as they are kept for a matrix: without what only its trace explains."""
    found = cast(Results, _without(results, "trace", "again"))
    found["checks"] = [_without(check, "trace", "seconds") for check in results["checks"]]
    if "loss_map" in results:
        found["loss_map"] = [_without(loss, "trace") for loss in results["loss_map"]]
    return found


def _without(entry: Any, *names: str) -> Any:
    return {key: value for key, value in entry.items() if key not in names}


def stored_as(results: Results) -> Path:
    """Return where small results are kept: `<implementation>/<version>[-<variant>][-g7].json`."""
    about = results["implementation"]
    parts: Iterable[str] = (about["version"], about.get("variant", ""))
    if results.get("generation", 8) != 8:
        parts = (*parts, f"g{results['generation']}")
    stem = "-".join(_file_name(part) for part in parts if part)
    return Path(_file_name(about["name"])) / f"{stem}.json"


def _file_name(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._+]+", "-", text).strip("-.").lower() or "unknown"
