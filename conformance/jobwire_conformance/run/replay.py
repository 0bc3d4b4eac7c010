"""Repeated runs of one case, with all its commands."""

from __future__ import annotations

import base64
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from jobwire_conformance.cases import case as cases
from jobwire_conformance.cases.case import Case
from jobwire_conformance.config import Config, Generation
from jobwire_conformance.errors import SuiteFault, Usage
from jobwire_conformance.run import run
from jobwire_conformance.run.evidence import note_text
from jobwire_conformance.run.traffic import NAME
from jobwire_conformance.run.verdicts import FAILURES, CaseVerdict
from jobwire_conformance.sandbox.external_server import ExternalServer
from jobwire_conformance.wire.text import command, reply

__all__ = ["Replayed", "find", "replay", "wire"]

_MAX_LENGTH = 4000  # characters of a word, and words of a command
_NOTHING = ("$-1\r\n", "*-1\r\n", "_\r\n", "*0\r\n")
_BREAK = f"\n{'':25} -> "


@dataclass(frozen=True, slots=True)
class Replayed:
    """One run of the case.

    Attributes:
        outcome: The outcome of the run.
        trace: The lines of trace.jsonl.
    """

    outcome: run.Outcome
    trace: Sequence[Mapping[str, Any]]

    @property
    def passed(self) -> bool:
        """True if no check failed and no error occurred."""
        return not self.outcome.errors and not any(v.status in FAILURES for v in self.verdicts)

    @property
    def verdicts(self) -> list[CaseVerdict]:
        """The verdicts of the case, and the verdicts of its traffic that are not passed."""
        by_check = {
            (v.case, v.requirement): v
            for v in self.outcome.verdicts
            if v.case != NAME or not v.finding.ok
        }
        return [*by_check.values()]


def find(text: str) -> Case:
    """Return the case with this path or name.

    Raises:
        Usage: The case does not exist, or its file is wrong.
    """
    path = Path(text)
    if path.suffix == ".json":
        if not path.exists():
            raise Usage(f"{text} does not exist")
        try:
            return cases.load_file(path)
        except SuiteFault as error:  # the file does not belong to the suite
            raise Usage(f"{error}; schema/case.json defines the form of cases") from None
    with suppress(StopIteration):
        return next(case for case in cases.load() if case.name == text)
    if text == NAME:
        raise Usage("'traffic' covers the commands of all cases together; run check instead")
    names = [case.name for case in cases.load()]
    near = [name for name in names if text in name] or names
    raise Usage(f"unknown case {text!r}; expected a .json file or one of {', '.join(near)}")


def replay(
    settings: Config,
    case: Case,
    *,
    times: int,
    patience: float,
    program: str | None,
    redis: ExternalServer | None,
    waits: Callable[[str], None],
) -> Iterator[Replayed]:
    """Run a case `times` times, each time with new servers and processes.

    The run covers all claims of the case, even those that the settings do not list.
    """
    meant = replace(
        settings,
        claims=[*dict.fromkeys([*_claims(case), *settings.claims])],
        generation=_generation(settings, case),
    )
    for _ in range(times):
        with tempfile.TemporaryDirectory(prefix="jobwire-conform-") as directory:
            path = Path(directory) / "trace.jsonl"
            outcome = run.run(
                meant,
                [case],
                [],
                watcher=_Watcher(waits),
                patience=patience,
                program=program,
                redis=redis,
                trace=path,
            )
            # Only "\n" ends a line here; `splitlines` knows other characters.
            lines = path.read_text("utf-8", "surrogatepass").split("\n")[:-1]
        yield Replayed(outcome, [json.loads(line) for line in lines])


def _claims(case: Case) -> list[str]:
    """Return the claims that any check of the case counts for."""
    return [claim for id_ in case.requirements for claim in case.counts_for(id_)]


def _generation(settings: Config, case: Case) -> Generation:
    if settings.generation in case.generations:
        return settings.generation
    return cast(Generation, case.generations[-1])


def wire(trace: Sequence[Mapping[str, Any]], *, idle: bool = False) -> Iterator[str]:
    """Yield a log for people: time, process, and a command with its reply or another event.

    Args:
        trace: The lines of trace.jsonl.
        idle: False to leave out commands that find nothing, as the same command did before.
    """
    part: object = None
    last: dict[tuple[str, ...], str] = {}  # reply by process, command and key
    left_out = 0
    for line in trace:
        if not idle and _found_nothing(line, last):
            left_out += 1
            continue
        if line.get("crash") != part:
            part = line.get("crash")
            yield f"-- {part}"
        head = f"{line.get('ms', 0):9.1f} ms  {line['proc']}"
        if "kind" in line:
            answer = None if line["answer"] is None else line["answer"].encode()
            yield f"{head:25} {note_text(line['kind'], line['text'], answer, _MAX_LENGTH, _BREAK)}"
            continue
        marks = "".join(f"  [{line[name]}]" for name in ("fault",) if line.get(name))
        marks += "" if line.get("sent", True) else "  [never sent]"
        words = command([*map(_bytes, line["argv"])], _MAX_LENGTH, _MAX_LENGTH)
        said = reply(None if line["reply"] is None else _bytes(line["reply"]), _MAX_LENGTH)
        head += f" {line['conn']}.{line['seq']}"
        yield f"{head:25} {words}"
        yield f"{'':25} -> {said}{marks}"
    if left_out:
        yield f"-- without {left_out} commands that found nothing again; --all shows them"


def _found_nothing(line: Mapping[str, Any], last: dict[tuple[str, ...], str]) -> bool:
    """Return whether this is polling without effect, and keep its reply in `last`."""
    if "kind" in line or line.get("fault") or not line.get("sent", True):
        return False
    words = [*map(str, line["argv"][:4])]
    place = words[1:4:2] if words[0].upper().startswith("EVAL") else words[1:2]
    key = (line["proc"], words[0], *place)
    before, last[key] = last.get(key), str(line["reply"])
    return line["reply"] in _NOTHING and before == line["reply"]


def _bytes(word: Any) -> bytes:
    return word.encode() if isinstance(word, str) else base64.b64decode(word["base64"])


class _Watcher:
    def __init__(self, waits: Callable[[str], None]) -> None:
        self._waits = waits

    def waiting(self, case: Case, event: str) -> None:
        self._waits(event)

    def finished(self, case: Case, verdicts: Sequence[CaseVerdict], seconds: float) -> None:
        pass
