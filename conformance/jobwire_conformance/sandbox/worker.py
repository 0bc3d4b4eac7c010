"""A worker process under test: its start, its jobs, its rest and its end."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jobwire_conformance.config import Config, WorkerProgram
from jobwire_conformance.errors import AdapterFault
from jobwire_conformance.sandbox.history import History
from jobwire_conformance.sandbox.not_started import not_started
from jobwire_conformance.sandbox.processes import Log, ProcessGroup
from jobwire_conformance.sandbox.reaper import Reaper
from jobwire_conformance.wire.call import Call, script_sha
from jobwire_conformance.wire.proxy import Proxy
from jobwire_conformance.wire.resp import decode

__all__ = ["Event", "SandboxWorker"]

_REPORTS = ("begin", "end", "exhausted", "death")
_FORGOTTEN = 5.0  # seconds after which a command without reply counts as lost with its connection


@dataclass(frozen=True, slots=True)
class Event:
    """A report of a standard job.

    Attributes:
        at: Time of the report, by the monotonic clock of the proxies.
        worker: Name of the process.
        kind: `begin` or `end`; for jobs with hooks also `exhausted` and `death`.
        jid: Id of the job; None if it has none.
        args: Arguments of the job, at `begin`.
        ok: True at the `end` of a job that succeeded.
        text: The whole report, as the job spelled it.
    """

    at: float
    worker: str
    kind: str
    jid: str | None
    args: Any
    ok: bool
    text: str


class SandboxWorker:
    """One worker process.

    Args:
        reaper: Kills it if the suite cannot.
        config: Settings of the implementation.
        settings: The section `worker` of these settings.
        name: Name of the process in the case.
        queues: Queues to serve, with weights: `a:5`.
        proxy: Its proxy to Redis.
        control: Its proxy to the control Redis.
        environment: Variables, as the contract of the standard jobs defines them.
        concurrency: Number of executors.
        log: Receives its output.
        history: Receives the signals that it is sent.

    Attributes:
        idle_expected: False after a signal to be quiet or to stop, or after a kill.
        log: Receives its output.
    """

    def __init__(
        self,
        reaper: Reaper,
        config: Config,
        settings: WorkerProgram,
        *,
        name: str,
        queues: Sequence[str],
        proxy: Proxy,
        control: Proxy,
        environment: Mapping[str, str],
        concurrency: int,
        log: Log,
        history: History,
    ) -> None:
        self.name = name
        self.queues = [re.sub(r":[0-9]+$", "", queue) for queue in queues]
        self.proxy = proxy
        self.concurrency = concurrency
        self.idle_expected = True
        self.log = log
        self._control = control
        self._history = history
        self._settings = settings
        self._keys = {f"{config.prefix}queue:{queue}".encode() for queue in self.queues}
        self._started = time.monotonic()
        try:
            self.group = ProcessGroup(
                reaper,
                settings.command,
                environment=environment,
                directory=config.path.parent,
                log=log,
            )
        except OSError as error:
            raise not_started(config, "worker", settings.command, error) from None

    def events(self) -> list[Event]:
        """Return the reports of its jobs so far.

        Raises:
            AdapterFault: A report breaks the rules for adapters.
        """
        return [
            self._event(call, word)
            for call in self._control.snapshot()
            if call.name == b"RPUSH" and call.words[1:2] and call.words[1].endswith(b":ev")
            for word in call.words[2:]
        ]

    def _event(self, call: Call, word: bytes) -> Event:
        try:
            report = json.loads(word)
            kind, jid = report["ev"], report.get("jid")
            if kind not in _REPORTS or not isinstance(jid, str | None):
                raise ValueError
            ok = report.get("ok", True) is True
            args = report.get("args")
            return Event(call.at, self.name, kind, jid, args, ok, word.decode())
        except (ValueError, KeyError, TypeError, AttributeError):
            raise AdapterFault(
                "the worker of the implementation is at fault: one of its standard jobs reported "
                f"{word[:200]!r}.\n  Remedy: report "
                '{"ev":"begin","jid":...,"args":...} and {"ev":"end","jid":...,"ok":true}.'
            ) from None

    def fetches(self) -> list[Call]:
        """Return the commands that may have taken jobs from its queues."""
        return [
            call
            for call in self.proxy.snapshot()
            if call.spec.may_take and any(word in self._keys for word in call.words[1:])
        ]

    def waited(self) -> list[Call]:
        """Return the blocking fetches that ended without a job."""
        return [c for c in self.fetches() if c.blocks and c.reply is not None and not _brought(c)]

    def wait_ready(self) -> None:
        """Wait for its first fetch, or for a job that it owned before this start.

        Raises:
            AdapterFault: Neither comes in time.
        """
        deadline = time.monotonic() + self._settings.timeout
        while not self.fetches() and not self.events() and self.idle_expected:
            if (status := self.group.status) is not None:
                problem = f"it ended with exit status {status} before its first fetch"
            elif time.monotonic() > deadline:
                problem = (
                    f"it did not fetch from {', '.join(self.queues)} within "
                    f"{self._settings.timeout:g} s"
                )
            else:
                time.sleep(0.005)
                continue
            raise AdapterFault(
                f"the worker of the implementation is at fault: {problem}.\n  Remedy: connect to "
                "JOBWIRE_REDIS_URL and fetch from the queues in JOBWIRE_QUEUES.\n"
                f"  Its output:\n{self.group.excerpt()}"
            )

    def unrest(self) -> str | None:
        """Return the reason why the worker is not at rest; None if it is at rest."""
        calls = self.proxy.snapshot()
        recent = time.monotonic() - _FORGOTTEN
        if any(
            call.reply is None and not call.blocks and call.action is None and call.at > recent
            for call in calls
        ):
            return f"{self.name} waits for a reply"
        if any(call.at > recent for call in _to_be_repeated(calls)):
            return f"{self.name} has not repeated a call that was answered with NOSCRIPT"
        events = self.events()
        if sum({"begin": 1, "end": -1}.get(event.kind, 0) for event in events) > 0:
            return f"a job runs in {self.name}"
        if not self.idle_expected:
            return None
        fetches = self.fetches()
        waiting = [call for call in fetches if call.blocks and call.reply is None]
        if len(waiting) >= self.concurrency:
            return None
        # Other commands may name the queue, so a command counts as a fetch once it has returned a
        # job. The worker is at rest if its last fetch came after its last job and found nothing.
        bringing = {_kind(call) for call in fetches if _brought(call)}
        asked = [c for c in fetches if not c.blocks and (not bringing or _kind(c) in bringing)]
        last = events[-1].at if events else 0.0
        if asked and asked[-1].at > last and asked[-1].reply and not _brought(asked[-1]):
            return None
        return f"{self.name} has not come back for more jobs"

    def signal(self, name: str) -> None:
        """Send a signal, like TERM. A mutant may exchange or ignore it."""
        self._history.signal(self.name, name)
        if sent := self._settings.signals.get(name, name):
            self.group.signal(sent)

    def end(self) -> None:
        """Kill the process, as a crash would."""
        self.idle_expected = False
        self.group.kill()

    def close(self) -> None:
        """Kill the process, if it runs, and close its proxies."""
        self.group.kill()
        self.proxy.close()
        self._control.close()


def _kind(call: Call) -> tuple[bytes, ...]:
    """Return the part of a command that is equal for commands with the same purpose."""
    return tuple(call.words[:2]) if call.spec.runs_script else (call.name,)


def _to_be_repeated(calls: Sequence[Call]) -> list[Call]:
    """Return the last call of each script whose last call was answered with NOSCRIPT. [LUA-3]

    The worker still has to repeat these. Commands that it sent together with such a call, like
    the next fetch, may be answered long before.
    """
    last: dict[str, Call] = {}
    for call in calls:
        if (sha := script_sha(call.words)) is not None:
            last[sha] = call
    return [call for call in last.values() if (call.reply or b"").startswith(b"-NOSCRIPT")]


def _brought(call: Call) -> bool:
    """Return whether a command returned a job: an array or the reply of a pop, with any text."""
    reply = None if call.reply is None else decode(call.reply)
    return (isinstance(reply, list) or call.spec.effect == "takes") and _has_text(reply)


def _has_text(value: object) -> bool:
    if isinstance(value, list):
        return any(map(_has_text, value))
    return isinstance(value, bytes) and bool(value)
