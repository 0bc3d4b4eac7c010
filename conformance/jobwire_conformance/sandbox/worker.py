"""A worker process under test: how it is started, what it does, whether it is at rest."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jobwire_conformance.config import Config, WorkerProgram
from jobwire_conformance.errors import AdapterFault
from jobwire_conformance.sandbox.processes import Log, ProcessGroup
from jobwire_conformance.sandbox.reaper import Reaper
from jobwire_conformance.wire.call import Call, script_sha
from jobwire_conformance.wire.proxy import Proxy
from jobwire_conformance.wire.resp import decode

__all__ = ["Event", "SandboxWorker"]

_REPORTS = ("begin", "end", "exhausted", "death")
_FORGOTTEN = 5.0  # seconds after which a command without reply was cut off with its connection


@dataclass(frozen=True, slots=True)
class Event:
    """Something that a standard job reported.

    Attributes:
        at: When, by the monotonic clock of the proxies.
        worker: Name of the process.
        what: `begin` or `end`; of jobs with hooks also `exhausted` and `death`.
        jid: Of the job; None if it has none.
        args: Of the job, at the beginning.
        ok: At the end, whether it went well.
    """

    at: float
    worker: str
    what: str
    jid: str | None
    args: Any
    ok: bool


class SandboxWorker:
    """One process.

    Args:
        reaper: Who kills it if the suite cannot.
        config: Of the implementation.
        settings: Its section `worker`.
        name: In the case.
        queues: That it serves, with weights: `a:5`.
        proxy: Its own way to Redis.
        control: Its own way to the control Redis.
        environment: What the contract of the standard jobs says.
        concurrency: Executors.
        log: Gets what it writes.

    Attributes:
        idle_expected: False once it was told to be quiet or to stop, or was killed.
        log: Gets what it writes.
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
    ) -> None:
        self.name = name
        self.queues = [re.sub(r":[0-9]+$", "", queue) for queue in queues]
        self.proxy = proxy
        self.concurrency = concurrency
        self.idle_expected = True
        self.log = log
        self._control = control
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
            raise AdapterFault(
                f"the worker cannot be started: {error}; look at [worker] command, which runs in "
                f"{config.path.parent}"
            ) from None

    def events(self) -> list[Event]:
        """Return what its jobs reported so far.

        Raises:
            AdapterFault: Something that they must not.
        """
        return [
            self._event(call, word)
            for call in self._control.snapshot()
            if call.name == b"RPUSH" and call.words[1:2] and call.words[1].endswith(b":ev")
            for word in call.words[2:]
        ]

    def _event(self, call: Call, word: bytes) -> Event:
        try:
            said = json.loads(word)
            what, jid = said["ev"], said.get("jid")
            if what not in _REPORTS or not isinstance(jid, str | None):
                raise ValueError
            return Event(
                call.at, self.name, what, jid, said.get("args"), said.get("ok", True) is True
            )
        except (ValueError, KeyError, TypeError, AttributeError):
            raise AdapterFault(
                "the worker of the implementation is at fault: one of its standard jobs reported "
                f"{word[:200]!r}.\n  What to do: report "
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
        """Return the fetches that blocked, until the server said that there was nothing."""
        return [c for c in self.fetches() if c.blocks and c.reply is not None and not _brought(c)]

    def wait_ready(self) -> None:
        """Wait for its first fetch, or for a job that it had in hand from before.

        Raises:
            AdapterFault: There is none.
        """
        deadline = time.monotonic() + self._settings.timeout
        while not self.fetches() and not self.events() and self.idle_expected:
            if (status := self.group.status) is not None:
                problem = f"it ended with exit status {status} before it fetched anything"
            elif time.monotonic() > deadline:
                problem = (
                    f"it fetched nothing from {', '.join(self.queues)} within "
                    f"{self._settings.timeout:g} s"
                )
            else:
                time.sleep(0.005)
                continue
            raise AdapterFault(
                f"the worker of the implementation is at fault: {problem}.\n  What to do: use "
                "JOBWIRE_REDIS_URL and JOBWIRE_QUEUES, and start fetching.\n"
                f"  Its output ends so:\n{self.group.tail()}"
            )

    def unrest(self) -> str | None:
        """Return why it is not at rest; None if it is."""
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
        if sum({"begin": 1, "end": -1}.get(event.what, 0) for event in events) > 0:
            return f"a job runs in {self.name}"
        if not self.idle_expected:
            return None
        fetches = self.fetches()
        waiting = [call for call in fetches if call.blocks and call.reply is None]
        if len(waiting) >= self.concurrency:
            return None
        # What has brought a job once is a fetch, whatever else names the queue. The last one has
        # to have come after the last job, and with nothing.
        bringing = {_kind(call) for call in fetches if _brought(call)}
        asked = [c for c in fetches if not c.blocks and (not bringing or _kind(c) in bringing)]
        last = events[-1].at if events else 0.0
        if asked and asked[-1].at > last and asked[-1].reply and not _brought(asked[-1]):
            return None
        return f"{self.name} has not come back for more jobs"

    def signal(self, name: str) -> None:
        """Send it a signal, like TERM; a mutant may take it for another one, or ignore it."""
        if taken := self._settings.signals.get(name, name):
            self.group.signal(taken)

    def end(self) -> None:
        """Kill it, as a crash would."""
        self.idle_expected = False
        self.group.kill()

    def close(self) -> None:
        """Kill it, if it runs, and close its ways."""
        self.group.kill()
        self.proxy.close()
        self._control.close()


def _kind(call: Call) -> tuple[bytes, ...]:
    """Return what a command has in common with those that do the same."""
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
    """Return whether a reply with several parts, or the reply of a pop, has any text."""
    reply = None if call.reply is None else decode(call.reply)
    return (isinstance(reply, list) or call.spec.effect == "takes") and _has_text(reply)


def _has_text(value: object) -> bool:
    if isinstance(value, list):
        return any(map(_has_text, value))
    return isinstance(value, bytes) and bool(value)
