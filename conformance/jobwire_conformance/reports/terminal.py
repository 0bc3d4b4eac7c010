"""The progress of a run on the terminal, and its last lines."""

from __future__ import annotations

import re
import sys
import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TextIO, cast

from jobwire_conformance.cases.case import Case
from jobwire_conformance.data import DEFAULT_GENERATION
from jobwire_conformance.errors import REQUEST, EnvironmentFault
from jobwire_conformance.reports.claim_status import WORDS, called, counts, states, unmet
from jobwire_conformance.reports.failure import explanation
from jobwire_conformance.reports.results import Check, Results
from jobwire_conformance.run.run import check_data
from jobwire_conformance.run.verdicts import FAILURES, CaseVerdict
from jobwire_conformance.wire.text import one_line, visible

__all__ = ["Terminal", "closing", "errors", "remarks"]

_WIDTH = 100
_FAULTS = 3  # different adapter faults to print in full
_NAMES = 12  # cases to name on one line
_SLOW = 0.3  # seconds; a driver that usually takes longer is called slow
_ENOUGH = 5  # answers, because some cases delay one on purpose
_UNSUPPORTED = re.compile(r"the answer to (\w+) was 'unsupported'")
_MARKS = {"fail": "FAIL", "flaky": "FLAKY", "blocked": "BLOCKED"}  # the worst first


class Terminal:
    """Prints the progress of a run, and on a terminal also the event that it waits for.

    Args:
        total: Number of cases.
        replay: The command that runs one case again, without the name of the case.
        out: Stream to write to.
        cases: True to print a line for every case.
        failures: True to print the checks that did not pass.
    """

    def __init__(
        self,
        total: int,
        replay: str,
        out: TextIO = sys.stderr,
        *,
        cases: bool = True,
        failures: bool = True,
    ) -> None:
        self._cases = cases
        self._failures = failures
        self._total = total
        self._replay = replay
        self._out = out
        self._done = 0
        self._live = out.isatty()

    def waiting(self, case: Case, event: str) -> None:
        """Show the event, if the output is a terminal."""
        if self._live:
            pace = f" (pace: {case.pace})" if case.pace else ""
            self._line(f"[{self._done}/{self._total}] {case.name}{pace}: waiting for {event}")

    def finished(self, case: Case, verdicts: Sequence[CaseVerdict], seconds: float) -> None:
        """Print the result of a case."""
        self._done += 1
        self._clear()
        result = _result(verdicts) or ("only for the loss map" if case.crash else "no verdict")
        not_passed = [v for v in verdicts if v.status != "pass" and not _is_passed_later(v)]
        if self._cases or (self._failures and not_passed):
            self._print(f"[{self._done}/{self._total}] {case.name}  {result}  {seconds:.1f} s")
        groups: dict[str, list[CaseVerdict]] = {}
        for verdict in not_passed if self._failures else ():
            # One check may count for several claims, and one failure may block several checks.
            reason = verdict.finding.blocked_by or verdict.requirement
            groups.setdefault(reason, []).append(verdict)
        for group in groups.values():
            self._explain(group)

    def close(self) -> None:
        """Clear the line of the progress."""
        self._clear()

    def _explain(self, group: Sequence[CaseVerdict]) -> None:
        verdict = group[0]
        check = cast(Check, check_data(verdict))
        runs = f" (passed in {verdict.held} of {verdict.runs} runs)" if verdict.runs > 1 else ""
        ids = " ".join(f"[{id_}]" for id_ in dict.fromkeys(v.requirement for v in group))
        what = f"{ids} {', '.join(dict.fromkeys(v.claim for v in group))}"
        if verdict.finding.by == "adapter":
            what = "an adapter fault ended the case"
        self._print(f"  {verdict.status}: {what}{runs}")
        for paragraph in explanation(check, self._replay):
            self._print(_indented(paragraph))

    def _line(self, text: str) -> None:
        self._write(f"\r\x1b[K{one_line(text, _WIDTH - 1)[: _WIDTH - 1]}")

    def _clear(self) -> None:
        if self._live:
            self._write("\r\x1b[K")

    def _print(self, text: str) -> None:
        self._write(text + "\n")

    def _write(self, text: str) -> None:
        try:
            self._out.write(text)
            self._out.flush()
        except BrokenPipeError:
            raise EnvironmentFault("no program reads the output any more") from None


def _result(verdicts: Sequence[CaseVerdict]) -> str:
    """Return the result of a case: ok, or the worst status and the number of checks by status."""
    checks = Counter(verdict.status for verdict in verdicts)
    if checks.keys() <= {"pass"}:
        return "ok" if checks else ""
    worst = next((mark for status, mark in _MARKS.items() if status in checks), "ok")
    return f"{worst} ({', '.join(f'{n} {status}' for status, n in sorted(checks.items()))})"


def _is_passed_later(verdict: CaseVerdict) -> bool:
    return verdict.status == "added-after" and verdict.finding.ok


def _indented(text: str) -> str:
    """Return a paragraph, wrapped. A command, which begins with spaces, keeps its line."""
    return "\n".join(
        f"    {line}"
        if line.startswith((" ", "again: "))
        else textwrap.fill(
            line,
            _WIDTH,
            initial_indent="    ",
            subsequent_indent="    ",
            break_on_hyphens=False,
            break_long_words=False,
        )
        for line in visible(text, 4000).splitlines()
    )


def errors(results: Results) -> Iterator[str]:
    """Yield the errors that ended cases or the run. Equal errors of several cases come once."""
    cases: dict[str, tuple[str, list[str]]] = {}  # by the message without its request
    stopped = []
    for error in results.get("errors", ()):
        if "case" in error:
            lines = error["message"].split("\n")
            rest = "\n".join(line for line in lines if not line.startswith(REQUEST))
            cases.setdefault(rest, (error["message"], []))[1].append(error["case"])
        else:
            stopped.append(error["message"])
    shown = [*cases.values()][:_FAULTS]
    for message, names in shown:
        yield f"in case {_some(names)}: {message}"
    if len(cases) > len(shown):
        names = [name for _, others in [*cases.values()][_FAULTS:] for name in others]
        yield f"other adapter faults, which the reports show, ended case {_some(names)}"
    yield from stopped


def _some(names: Sequence[str]) -> str:
    omitted = f" and {len(names) - _NAMES} more" if len(names) > _NAMES else ""
    return ", ".join(names[:_NAMES]) + omitted


def remarks(results: Results, answer_times: Sequence[float], settings: str) -> Iterator[str]:
    """Yield lines about the run as a whole: gaps of the suite, and gaps or slowness of a driver.

    Args:
        results: The results.
        answer_times: Seconds that the driver took for each answer.
        settings: The path of conformance.toml, for commands.
    """
    claims = results["claims"].values()
    without = {id_ for claim in claims for id_ in claim.get("without_case", ())}
    if without:
        yield (
            f"requirements of these claims that no case checks by itself: {len(without)}; "
            f"jobwire conform trace {settings} lists them"
        )
    for operation, count in _unsupported(results).items():
        yield (
            f"the driver answered `unsupported` to {operation}, which blocked {count} checks; "
            "jobwire conform doctor examines the driver"
        )
    times = sorted(answer_times)
    usual = times[len(times) // 2] if len(times) >= _ENOUGH else 0.0
    if usual >= _SLOW:
        yield (
            f"slow driver: half of its {len(times)} answers took {usual:.1f} s or longer, "
            f"{sum(times):.0f} s in all; keep program and connection open between requests"
        )


def _unsupported(results: Results) -> Counter[str]:
    """Return the operations that the driver refused, with the number of checks that they block."""
    reasons = (_UNSUPPORTED.match(check.get("blocked_by", "")) for check in results["checks"])
    return Counter(reason[1] for reason in reasons if reason is not None)


def closing(results: Results) -> str:
    """Return the last lines for people."""
    state_of = states(results)
    lines = [
        f"{name:24} {WORDS[state_of[name]]:17} {counts(claim) or 'no checks were run'}"
        + (f"; requires {', '.join(others)}" if (others := unmet(results, name)) else "")
        for name, claim in results["claims"].items()
    ]
    lines += _causes(results)
    server = results["server"]
    lines.append(
        f"{called(results)}, generation {results.get('generation', DEFAULT_GENERATION)}, "
        f"{server['name']} {server['version']}, {results.get('seconds', 0):.1f} s, "
        f"seed {results['seed']}"
    )
    return "\n".join(lines)


def _causes(results: Results) -> Iterator[str]:
    """Yield a line for each requirement that failures of others follow from."""
    failed = [check for check in results["checks"] if check["status"] in FAILURES]
    alone = {check["requirement"] for check in failed if "follows" not in check}
    followers: dict[str, dict[str, None]] = {}  # ids in the order of the run
    for check in failed:
        if "follows" in check and check["requirement"] not in alone:
            followers.setdefault(check["follows"], {})[check["requirement"]] = None
    for cause, ids in followers.items():
        yield f"first cause: {cause}; from it probably follow {', '.join(ids)}"
