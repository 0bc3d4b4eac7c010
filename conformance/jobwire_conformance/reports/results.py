"""results.json and trace.jsonl: writing, reading and checking by their schemas.

Every report is made from these two files, so that it can be made again later.
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
from jobwire_conformance.run.evidence import note_text

__all__ = [
    *("Check", "Claim", "Loss", "Results", "Summary", "TraceLine"),
    *("checked", "dump", "load", "load_trace", "read"),
]

Fate = Literal["kept", "lost", "duplicated", "stuck"]


class Implementation(TypedDict):
    """The checked implementation."""

    name: str
    version: str
    variant: NotRequired[str]
    language: NotRequired[str]
    source: NotRequired[str]
    home: NotRequired[str]


class Claim(TypedDict):
    """The state of a claim."""

    met: bool
    checks: dict[str, int]
    missing: NotRequired[list[str]]
    unchecked: NotRequired[list[str]]
    without_case: NotRequired[list[str]]


class Check(TypedDict):
    """The verdict on one requirement of one case for one claim."""

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
    follows: NotRequired[str]
    by: NotRequired[str]
    trace: NotRequired[list[int]]
    evidence: NotRequired[list[str]]
    again: NotRequired[str]
    seconds: NotRequired[float]


class Loss(TypedDict):
    """The fate of a job after its process was cut off at one point."""

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
    """An error that ended a case or the run."""

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
    generation: NotRequired[str]
    server: Server
    started: str
    again: NotRequired[str]
    command: NotRequired[str]
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
    trace: NotRequired[str]


@dataclass(frozen=True, slots=True)
class TraceLine:
    """One command and its reply, or another event of the case.

    Attributes:
        number: Number of the line, from 0.
        case: Name of the case.
        proc: The process that sent it: `driver`, or the name of a worker.
        connection: Number of the connection within the process, from 1.
        words: Name and arguments; empty for another event.
        reply: The frame of the reply; None if no reply came.
        fault: The fault that the suite caused, like `cut`.
        sent: True if the server received it.
        ms: Milliseconds since the first command of the case.
        crash: The point of the cut, for a rerun in which a process was cut off.
        note: A request to the driver with its answer, or a signal, as text.
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
    note: str = ""


def dump(results: Results) -> bytes:
    """Return the text of the file.

    A payload may hold half a surrogate pair, which UTF-8 cannot encode; it becomes an escape.
    """
    text = json.dumps(results, ensure_ascii=False, indent=2) + "\n"
    return text.encode("utf-8", "backslashreplace")


def load(path: Path) -> Results:
    """Return the results in a file, or in the results.json of a directory.

    Raises:
        Usage: The file cannot be read, or has another format or version.
    """
    if path.is_dir():
        path = path / "results.json"
    return cast(Results, checked(path, read(path), "results", "results.json"))


def read(path: Path) -> Any:
    """Return the content of a JSON file.

    Raises:
        Usage: The file cannot be read, or is not JSON.
    """
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        raise Usage(
            f"{path} does not exist; `jobwire conform check --report DIR` writes DIR/results.json"
        ) from None
    except OSError as error:
        raise Usage(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise Usage(
            f"{path} is not JSON ({error}); expected a results.json of `jobwire conform check`"
        ) from None


def checked(path: Path, content: Any, kind: str, called: str) -> Any:
    """Return the content of a file if it fits its schema.

    Args:
        path: Path of the file, for messages.
        content: Content of the file.
        kind: Name of the schema, and of the member with the version of the format.
        called: Name for such files in messages.

    Raises:
        Usage: The content has another format or version.
    """
    from jsonschema import Draft202012Validator

    schema = data.schema(kind)
    if not isinstance(content, dict) or kind not in content:
        raise Usage(f"{path} is not a {called} of `jobwire conform check`: it has no {kind!r}")
    if content[kind] != 1:
        raise Usage(
            f"{path} has version {str(content[kind])[:40]} of the format; this suite reads 1. Use "
            "the version of jobwire that wrote it, or check again"
        )
    for problem in Draft202012Validator(schema).iter_errors(content):
        place = "/".join(map(str, problem.absolute_path)) or "top level"
        raise Usage(
            f"{path}: {place}: {problem.message[:200]}; see schema/{kind}.json, or check again"
        )
    return content


def load_trace(directory: Path, results: Results) -> list[TraceLine]:
    """Return the commands of a run; none if its trace is missing.

    Raises:
        Usage: The file is not a trace.
    """
    name = results.get("trace")
    # Results may come from strangers, so they must not name a file in another directory.
    if name is None or Path(name).name != name:
        return []
    try:
        lines = (directory / name).read_bytes().split(b"\n")
    except FileNotFoundError:
        return []
    except OSError as error:
        raise Usage(f"cannot read {directory / name}: {error.strerror}") from None
    trace = []
    for number, line in enumerate(lines):
        if line:
            try:
                trace.append(_trace_line(number, json.loads(line)))
            except (ValueError, KeyError, TypeError, RecursionError) as error:
                raise Usage(
                    f"{directory / name}: line {number + 1} is not a line of a trace ({error!r}); "
                    "remove the file, or check again"
                ) from None
    return trace


def _trace_line(number: int, raw: Mapping[str, Any]) -> TraceLine:
    if "kind" in raw:
        return _other_event(number, raw)
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


def _other_event(number: int, raw: Mapping[str, Any]) -> TraceLine:
    answer = None if raw["answer"] is None else str(raw["answer"]).encode("utf-8", "surrogatepass")
    return TraceLine(
        number=number,
        case=str(raw["case"]),
        proc=str(raw["proc"]),
        connection=0,
        words=[],
        reply=None,
        fault=None,
        sent=True,
        ms=raw.get("ms"),
        crash=raw.get("crash"),
        note=note_text(str(raw["kind"]), str(raw["text"]), answer, 400),
    )


def _bytes(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    try:
        return base64.b64decode(value["base64"])
    except binascii.Error as error:
        raise ValueError(str(error)) from None
