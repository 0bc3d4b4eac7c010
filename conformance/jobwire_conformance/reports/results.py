"""results.json and trace.jsonl: written, read back, held against the schema.

Every report is made from these two, so that it can be made again later, elsewhere.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NotRequired, TypedDict, cast

from jobwire_conformance import data
from jobwire_conformance.errors import Usage

__all__ = [
    *("Check", "Claim", "Loss", "Results", "Summary", "TraceLine"),
    *("checked", "dump", "load", "load_trace", "read"),
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
    keyword: NotRequired[str]
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


class Summary(TypedDict):
    """The part of a run that a matrix needs: its subject and its verdicts.

    `unknown` lists the claims of a stored summary whose frozen set has changed since the run.
    """

    spec: str
    suite: str
    implementation: Implementation
    claims: dict[str, Claim]
    generation: NotRequired[int]
    server: Server
    started: str
    checks: list[Check]
    unknown: NotRequired[list[str]]
    loss_map: NotRequired[list[Loss]]
    errors: NotRequired[list[Error]]


class Results(Summary):
    """results.json. See schema/results.json."""

    results: int
    driver: int
    seed: int
    seconds: NotRequired[float]
    status: int
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
    return cast(Results, checked(path, read(path), "results", "results.json"))


def read(path: Path) -> Any:
    """Return the content of a JSON file.

    Raises:
        Usage: It cannot be read, or is not JSON.
    """
    try:
        return json.loads(path.read_bytes())
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


def checked(path: Path, found: Any, kind: str, called: str) -> Any:
    """Return the content of a file that fits its schema.

    Args:
        path: Of the file, for messages.
        found: Its content.
        kind: Name of the schema, and of the member that holds the version of the format.
        called: Name for such files in messages.

    Raises:
        Usage: It is something else, or of another version of the format.
    """
    from jsonschema import Draft202012Validator

    schema = data.schema(kind)
    if not isinstance(found, dict) or kind not in found:
        raise Usage(f"{path} is not a {called} of `jobwire conform check`: {kind!r} is not in it")
    if found[kind] != 1:
        raise Usage(
            f"{path}: its format is {str(found[kind])[:40]}, and this suite reads 1; "
            "use the version of jobwire that wrote it, or check again with this one"
        )
    for problem in Draft202012Validator(schema).iter_errors(found):
        place = "/".join(map(str, problem.absolute_path)) or "the whole"
        raise Usage(
            f"{path}: {place}: {problem.message[:200]}; see schema/{kind}.json, or check again"
        )
    return found


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
