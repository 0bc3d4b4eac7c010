"""A worker process under test: its start, its jobs, its rest and its end."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping, Sequence

from jobwire_conformance.config import Config, WorkerProgram
from jobwire_conformance.errors import AdapterFault
from jobwire_conformance.sandbox import idle
from jobwire_conformance.sandbox.history import History
from jobwire_conformance.sandbox.idle import Event
from jobwire_conformance.sandbox.processes import Log, ProcessGroup
from jobwire_conformance.sandbox.program_faults import not_started
from jobwire_conformance.sandbox.reaper import Reaper
from jobwire_conformance.wire.call import Call
from jobwire_conformance.wire.commands import keys_of
from jobwire_conformance.wire.proxy import Proxy

__all__ = ["SandboxWorker", "is_report"]

_REPORTS = ("begin", "end", "exhausted", "death")
_PRIVATE = b"jobwire:private:"


def is_report(call: Call) -> bool:
    """Return whether a command writes a report of a job, to any key."""
    return call.name == b"RPUSH" and any(b'"ev"' in word for word in call.words[2:])


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
        reports: Its proxy to the control Redis, for the reports of its jobs.
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
        self.reports = control
        self._history = history
        self._settings = settings
        self._keys = {f"{config.prefix}queue:{queue}".encode() for queue in self.queues}
        self._events: list[Event] = []
        self._heard = 0  # number of calls whose reports are among them
        self._fetched: dict[int, Sequence[tuple[str, bytes]]] = {}  # jobs by number of the fetch
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
        calls = self.reports.snapshot()
        for call in calls[self._heard :]:
            if call.name == b"RPUSH" and call.words[1:2] and call.words[1].endswith(b":ev"):
                self._events += [self._event(call, word) for word in call.words[2:]]
        self._heard = len(calls)
        return [*self._events]

    def _event(self, call: Call, word: bytes) -> Event:
        try:
            report = json.loads(word)
            kind, jid = report["ev"], report.get("jid")
            if kind not in _REPORTS:
                raise ValueError
            if not isinstance(jid, str):  # a job of another program may have any JSON value
                jid = None
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
        return self._fetches(self.proxy.snapshot())

    def _fetches(self, calls: Sequence[Call]) -> list[Call]:
        return [
            call
            for call in calls
            if call.spec.may_take and any(word in self._keys for word in call.words[1:])
        ]

    def waited(self) -> list[Call]:
        """Return the blocking fetches that ended without a job."""
        ended = [call for call in self.fetches() if call.blocks and call.reply is not None]
        return [call for call in ended if not idle.brought(call)]

    def wait_ready(self) -> None:
        """Wait for its first fetch, or for a job that it owned before this start.

        A worker that used a key and then ended counts as ready: its settings are right, so the
        checks of the case judge its end.

        Raises:
            AdapterFault: Neither comes in time.
        """
        deadline = time.monotonic() + self._settings.timeout
        remedy = "connect to JOBWIRE_REDIS_URL and fetch from the queues in JOBWIRE_QUEUES"
        while not self.fetches() and not self.events() and self.idle_expected:
            if (status := self.group.status) is not None:
                if any(keys_of(call.words) for call in self.proxy.snapshot()):
                    return
                problem = f"it ended with exit status {status} before its first fetch"
                if status != 0:
                    remedy = "the program failed; see its output"
            elif time.monotonic() > deadline:
                problem = (
                    f"it did not fetch from {', '.join(self.queues)} within "
                    f"{self._settings.timeout:g} s"
                )
            else:
                time.sleep(0.01)
                continue
            raise AdapterFault(
                f"the worker of the implementation is at fault: {problem}.\n  Remedy: {remedy}.\n"
                f"  Its output:\n{self.group.excerpt()}"
            )

    def private_hashes(self) -> dict[str, float]:
        """Return the private hashes that it has named with a queue, with the first time. [REL-1]

        One is its own. The others are those whose jobs it has recovered.
        """
        first: dict[str, float] = {}
        for call in self.fetches():
            for key in keys_of(call.words):
                if _PRIVATE in key:
                    first.setdefault(key.decode("utf-8", "surrogateescape"), call.at)
        return first

    def unrest(self) -> str | None:
        """Return the reason why the worker is not at rest; None if it is at rest."""
        now, calls = time.monotonic(), self.proxy.snapshot()
        if not all(idle.is_answered(call, now) for call in calls):
            return f"{self.name} waits for a reply"
        if (call := idle.unrepeated(calls, now)) is not None:
            name, reply = call.name.decode("utf-8", "replace"), (call.reply or b"")[1:40]
            fate = "which was lost" if call.reply is None else f"which was refused: {reply!r}"
            return f"{self.name} has not repeated {name}, {fate}"
        events = self.events()
        if sum({"begin": 1, "end": -1}.get(event.kind, 0) for event in events) > 0:
            return f"a job runs in {self.name}"
        fetches = self._fetches(calls)
        bringing = [call for call in fetches if idle.brought(call)]
        for call in bringing:
            if call.sequence not in self._fetched:
                # The private hash shows which of its jobs have an outcome.
                self._fetched[call.sequence] = () if _is_private(call) else idle.jobs_in(call)
        if (jid := idle.debt(calls, self._fetched, events, now)) is not None:
            return f"{self.name} has not stored the outcome of {jid}"
        last = bringing[-1].at if bringing else 0.0
        if events and not (bringing and _is_private(bringing[-1])):
            # An executor that comes back has done all that follows its job, as far as is known.
            last = max(last, events[-1].at)
        if self.idle_expected and not idle.is_at_home(fetches, self.concurrency, after=last):
            return f"{self.name} has not come back for more jobs"
        return None

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
        self.reports.close()


def _is_private(call: Call) -> bool:
    """Return whether a fetch has moved its jobs to a private hash. [REL-1]"""
    return any(_PRIVATE in key for key in keys_of(call.words))
