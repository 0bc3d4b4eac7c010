"""Run one case again, so often, and keep what passed on the wire."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from jobwire_conformance.cases import case as cases
from jobwire_conformance.cases.case import Case
from jobwire_conformance.config import GENERATIONS, Config, Generation
from jobwire_conformance.errors import SuiteFault, Usage
from jobwire_conformance.run import run
from jobwire_conformance.run.traffic import NAME
from jobwire_conformance.run.verdicts import FAILURES, CaseVerdict
from jobwire_conformance.sandbox.external_server import ExternalServer
from jobwire_conformance.wire.faults import Rule

__all__ = ["Replayed", "find", "replay", "wire"]


@dataclass(frozen=True, slots=True)
class Replayed:
    """One run.

    Attributes:
        outcome: What was found.
        trace: The lines of trace.jsonl.
    """

    outcome: run.Outcome
    trace: Sequence[Mapping[str, Any]]

    @property
    def passed(self) -> bool:
        """Whether nothing failed."""
        return not self.outcome.errors and not any(v.status in FAILURES for v in self.verdicts)

    @property
    def verdicts(self) -> list[CaseVerdict]:
        """One for each requirement of the case, and each that what passed was at odds with."""
        found = {
            (v.case, v.requirement): v
            for v in self.outcome.verdicts
            if v.case != NAME or not v.finding.ok
        }
        return [*found.values()]


def find(what: str) -> Case:
    """Return the case that a path, or a name, means.

    Raises:
        Usage: There is none, or the file is wrong.
    """
    path = Path(what)
    if path.suffix == ".json":
        if not path.exists():
            raise Usage(f"{what} does not exist")
        try:
            return cases.load_file(path)
        except SuiteFault as error:  # not the suite's own, so not its fault
            raise Usage(f"{error}; the form of cases is schema/case.json") from None
    with suppress(StopIteration):
        return next(case for case in cases.load() if case.name == what)
    if what == NAME:
        raise Usage("'traffic' is what passes in all cases together; run check instead")
    names = [case.name for case in cases.load()]
    near = [name for name in names if what in name] or names
    raise Usage(f"there is no case {what!r}, and a file ends in .json; there are {', '.join(near)}")


def replay(
    settings: Config,
    case: Case,
    *,
    times: int,
    patience: float,
    program: str | None,
    redis: ExternalServer | None,
    waits: Callable[[str], None],
    rewrites: Sequence[Rule] = (),
) -> Iterator[Replayed]:
    """Run a case again and again, each time with servers and processes of its own.

    All processes make the mistakes in `rewrites`. It counts for all claims of the case: whoever
    replays it wants to know.
    """
    meant = replace(
        settings,
        claims=[*dict.fromkeys([*case.claims, *settings.claims])],
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
                rewrites=rewrites,
                trace=path,
            )
            # Not every end of a line in Unicode is one in this file.
            lines = path.read_text("utf-8", "surrogatepass").split("\n")[:-1]
        yield Replayed(outcome, [json.loads(line) for line in lines])


def _generation(settings: Config, case: Case) -> Generation:
    if case.generation is None:
        return settings.generation
    return GENERATIONS[str(case.generation)]


def wire(trace: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a wire log for people: who sent what when, and the reply."""
    part: object = None
    for line in trace:
        if line.get("crash") != part:
            part = line.get("crash")
            yield f"-- {part}"
        words = " ".join(_shown(word) for word in line["argv"])
        marks = "".join(f"  [{line[name]}]" for name in ("fault",) if line.get(name))
        marks += "" if line.get("sent", True) else "  [never sent]"
        reply = "no reply" if line["reply"] is None else _shown(line["reply"].rstrip("\r\n"))
        where = f"{line['proc']} {line['conn']}.{line['seq']}"
        yield f"{line.get('ms', 0):9.1f} ms  {where:12} {words}"
        yield f"{'':25} -> {reply}{marks}"


def _shown(word: Any) -> str:
    if not isinstance(word, str):
        return f"base64:{word['base64']}"
    return json.dumps(word, ensure_ascii=False)[1:-1].replace('\\"', '"') if word else '""'


class _Watcher:
    def __init__(self, waits: Callable[[str], None]) -> None:
        self._waits = waits

    def waiting(self, case: Case, what: str) -> None:
        self._waits(what)

    def finished(self, case: Case, verdicts: Sequence[CaseVerdict], seconds: float) -> None:
        pass
