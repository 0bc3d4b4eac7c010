"""The judge of traffic: commands go in, findings come out. It sends nothing.

It does no I/O: `Judge.feed` takes records, and `Judge.ledger` holds findings and counts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from jobwire_conformance.judge.jobs import JobRules
from jobwire_conformance.judge.key_rules import KeyRules
from jobwire_conformance.judge.ledger import Finding, Grade, Ledger
from jobwire_conformance.judge.process_rules import ProcessRules
from jobwire_conformance.judge.record import Record, decoded
from jobwire_conformance.judge.stream import JudgeContext, Step, Unit, effects, script_call
from jobwire_conformance.wire.resp import Refusal

__all__ = [
    "IN_EVERY_CASE",
    "TRAFFIC",
    "VISIBLE",
    "Finding",
    "Grade",
    "Judge",
    "Ledger",
    "Record",
    "decoded",
]

_VISIBLE = {
    "ENV": (3,),
    "KEY": (1, 2, 3, 4, 5, 6, 10),
    "PAY": (1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 14, 33),
    "GEN": (1, 2, 4),
    "PUSH": (1, 2, 3, 4, 6),
    "BULK": (1, 2, 5, 7, 15),
    "SCHED": (4, 5, 12, 13, 18, 20),
    "FETCH": (1, 6),
    "EXEC": (3, 5),
    "RETRY": (1, 2, 3, 4, 5, 7, 8, 9, 17, 19, 22, 32),
    "DEAD": (1, 2, 3, 4),
    "BEAT": (1, 2, 3, 4, 5, 6, 7, 13, 14, 17, 20, 21),
    "STAT": (1, 2, 4),
    "SIG": (4,),
    "LUA": (1, 2, 3),
    "ITER": (1, 2, 7, 9),
    "MET": (1, 2, 3),
    "INSP": (1, 8, 9, 13, 15),
}
VISIBLE = tuple(f"{area}-{n}" for area, numbers in _VISIBLE.items() for n in numbers)
"""The requirements that the judge can examine by traffic alone."""

TRAFFIC = "traffic"
"""Name of the case that stands for the traffic of all cases."""

# Requirements that need a long wait or the end of a run have cases of their own.
_NOT_HERE = frozenset(["BEAT-2", "BEAT-7", "BEAT-20", "ENV-3", "RETRY-4"])
IN_EVERY_CASE = tuple(rule for rule in VISIBLE if rule not in _NOT_HERE)
"""Requirements that may get a verdict, if the traffic contained commands that could break them."""


class Judge:
    """Judges one application.

    Args:
        claims: Optional profiles: `client/faults`, `worker/reliable`, `scheduler/reliable`. The
            two with `reliable` count as claimed once the application uses keys of that profile.
        namespace: Prefix of every key of the application. [KEY-4]
        alone: True if no other program uses these connections, so that every key belongs to the
            application. [KEY-5] [KEY-6]
        generated: True if no caller gave a jid. Otherwise a jid of another form than PAY-9's is a
            doubtful finding, because its caller may have given it. [PUSH-19]
    """

    def __init__(
        self,
        claims: Iterable[str] = (),
        namespace: str = "",
        *,
        alone: bool = False,
        generated: bool = False,
    ) -> None:
        self.ledger = Ledger(claims)
        self.commands = 0
        self._context = JudgeContext(self.ledger, namespace, generated)
        self._job_rules = JobRules(self._context)
        self._process_rules = ProcessRules(self._context)
        self._key_rules = KeyRules(self._context, alone=alone)
        self._open: dict[int, list[Record]] = {}  # connection: commands since its MULTI
        self._swept = 0.0

    def feed(self, record: Record) -> None:
        """Judge one command. The commands of a connection arrive in order."""
        if not record.words:
            return
        self.commands += 1
        self._context.now = max(self._context.now, record.at)
        self._key_rules.command(record)
        name = record.name
        if name == "MULTI":
            if record.worked:
                self._open[record.connection] = []
        elif name in ("DISCARD", "RESET"):
            self._open.pop(record.connection, None)
        elif name == "EXEC":
            self._executed(record)
        elif record.connection in self._open:
            self._open[record.connection].append(record)
        elif record.answered and not isinstance(record.reply, Refusal):
            self._judge_unit([record], [record.reply], atomic=False)
        if self._context.now - self._swept > 0.5:
            self._swept = self._context.now
            self._sweep(self._context.now)

    def end(self, at: float, *, cleanly: bool = False) -> None:
        """Judge the end of the traffic.

        Args:
            at: Time of the end, Unix seconds.
            cleanly: True if the application ended by itself and without an error.
        """
        # After a clean end, no expected command can follow. After a kill, some could have.
        self._sweep(math.inf if cleanly else max(at, self._context.now))
        self._process_rules.end(cleanly=cleanly)

    def _sweep(self, now: float) -> None:
        for finding in self._context.promises.overdue(now):
            self.ledger.accuse(finding)

    def _executed(self, record: Record) -> None:
        queued = self._open.pop(record.connection, None)
        if not queued or not isinstance(record.reply, list):
            return
        replies = [*record.reply, *[None] * (len(queued) - len(record.reply))]
        self._judge_unit(queued, replies, atomic=True)

    def _judge_unit(self, records: list[Record], replies: list[object], *, atomic: bool) -> None:
        steps: list[Step] = []
        for record, reply in zip(records, replies, strict=False):
            script = script_call(record.words)
            if script is not None and not isinstance(reply, Refusal):
                steps += effects(record, script)
                atomic = True
                if any(key.startswith(b"jobwire:") for key in script.keys):
                    self.ledger.claims |= {"worker/reliable", "scheduler/reliable"}
            steps.append(Step(record, record.name, record.words, reply))
            key = self._context.key(record.words[1]) if len(record.words) > 1 else ""
            if record.name in ("SMEMBERS", "SSCAN") and key == "processes":
                self._job_rules.forget_generation()
            elif record.name in ("UNLINK", "DEL"):
                self._process_rules.gone(steps[-1])
        unit = Unit(steps, atomic)
        self._job_rules.look(unit)
        self._process_rules.look(unit)
        self._key_rules.look(unit)
