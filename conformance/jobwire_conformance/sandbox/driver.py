"""The conversation with a driver: JSON lines. Every error in them is an adapter fault."""

from __future__ import annotations

import json
import os
import select
import signal
import time
from collections.abc import Mapping
from subprocess import TimeoutExpired
from typing import Any

from jobwire_conformance.config import Config, DriverProgram
from jobwire_conformance.errors import REQUEST, AdapterFault, SuiteFault
from jobwire_conformance.sandbox.answers import Malformed, checked, request_problem
from jobwire_conformance.sandbox.history import History
from jobwire_conformance.sandbox.processes import Log, ProcessGroup
from jobwire_conformance.sandbox.program_faults import not_started
from jobwire_conformance.sandbox.reaper import Reaper
from jobwire_conformance.wire.text import one_line, visible

__all__ = ["Driver", "Outcome"]

_MAX_BYTES = 64 * 1024 * 1024  # bytes of one response; an inflated backtrace has its own check
_STREAMS = "write only answers to standard output, and logs to standard error"
_LONG = 4000  # characters of a request in a message

Outcome = dict[str, Any]
"""`outcome`, which is ok, rejected, unknown or unsupported, and the members of the response."""


def _line(request: Mapping[str, Any]) -> str:
    # 1e400 is larger than any double. Python reads it as an infinity.
    return json.dumps(request, separators=(",", ":")).replace("Infinity", "1e400")


class Driver:
    """The driver of one sandbox. The first request starts it.

    Args:
        reaper: Kills it if the suite cannot.
        config: Settings of the implementation.
        settings: The section `driver` of these settings.
        url: URL of its Redis.
        generation: Generation to write, or `auto`.
        log: Receives its standard error.
        history: Receives its requests and answers.
        timeout: Seconds that the driver shall wait for a reply of Redis.
    """

    def __init__(
        self,
        reaper: Reaper,
        config: Config,
        settings: DriverProgram,
        *,
        url: str,
        generation: int | str,
        log: Log,
        history: History,
        timeout: float | None = None,
    ) -> None:
        self._reaper = reaper
        self._config = config
        self._settings = settings
        self._url = url
        self._environment = {
            "JOBWIRE_REDIS_URL": url,
            "JOBWIRE_GENERATION": str(generation),
            **config.variables,
            **({} if timeout is None else {"JOBWIRE_TIMEOUT": f"{timeout:g}"}),
        }
        self._log = log
        self._history = history
        self._group: ProcessGroup | None = None
        self._number = 0
        self._request = ""  # the last one
        self._log_before = 0  # bytes of its log before the last request
        self._answers = 0  # of the running process
        self.version = ""
        self.operations: frozenset[str] = frozenset()

    def ask(self, op: str, **members: Any) -> Outcome:
        """Send a request and return its outcome.

        Raises:
            AdapterFault: The driver breaks the rules for adapters.
        """
        if not self.operations and op != "hello":
            self.hello()
        return self._ask(op, members)

    def hello(self) -> None:
        """Send the request `hello`, and keep the version and the operations of the answer."""
        greeting = self._ask("hello", {"driver": 1, "redis_url": self._url})
        if greeting["outcome"] != "ok":
            raise self._fault("it refused hello", "answer hello with driver, version and ops")
        self.version = greeting["version"]
        self.operations = frozenset(greeting["ops"]) | {"hello"}

    def leave(self, seconds: float) -> int | None:
        """Send `bye`; return the exit status, or None if the driver does not end in time."""
        group = self._group
        if group is None:
            return 0
        self._ask("bye", {})
        try:
            return group.popen.wait(seconds)
        except TimeoutExpired:
            return None
        finally:
            self._end()

    def hang_up(self, seconds: float) -> int | None:
        """Say hello, end the driver's input; return its exit status, or None if it runs on."""
        self.hello()
        group = self._group
        assert group is not None
        assert group.popen.stdin is not None
        group.popen.stdin.close()
        try:
            return group.popen.wait(seconds)
        except TimeoutExpired:
            return None
        finally:
            self._end()

    @property
    def log(self) -> Log:
        """Its standard error."""
        return self._log

    def close(self) -> None:
        """Send `bye`, wait for at most a second, and kill the driver."""
        if self._group is not None and self._group.status is None and self.operations:
            try:
                bye = _line({"id": self._number + 1, "op": "bye"})
                self._send(bye, time.monotonic() + 1)
                self._group.popen.wait(1)
            except (AdapterFault, OSError, TimeoutExpired):
                pass  # it is killed in any case
        self._end()

    def _end(self) -> None:
        if self._group is not None:
            self._group.kill()
            self._group = None

    def _ask(self, op: str, members: Mapping[str, Any]) -> Outcome:
        self._number += 1
        request = {"id": self._number, "op": op, **members}
        if problem := request_problem(request):
            raise SuiteFault(f"a case has a request that schema/driver.json forbids: {problem}")
        self._request = _line(request)
        self._log_before = self._log.total
        if self._group is None or self._settings.oneshot:
            self._start()
        note = self._history.request(self._request)
        deadline = time.monotonic() + self._settings.timeout
        self._send(self._request, deadline)
        answer = self._settings.garble(self._receive(op, deadline))
        self._history.answer(note, answer, timed=op != "hello")
        self._answers += 1
        if self._settings.oneshot:
            self._end()
        return self._judge(request, answer)

    def _start(self) -> None:
        self._end()
        self._answers = 0
        command = self._settings.command
        try:
            self._group = ProcessGroup(
                self._reaper,
                command,
                environment=self._environment,
                directory=self._config.path.parent,
                log=self._log,
                pipes=True,
            )
        except OSError as error:
            raise not_started(self._config, "driver", command, error) from None
        assert self._group.popen.stdin is not None
        assert self._group.popen.stdout is not None
        os.set_blocking(self._group.popen.stdin.fileno(), False)
        os.set_blocking(self._group.popen.stdout.fileno(), False)

    def _send(self, line: str, deadline: float) -> None:
        assert self._group is not None
        assert self._group.popen.stdin is not None
        pipe = self._group.popen.stdin.fileno()
        unsent = line.encode() + b"\n"
        while unsent:
            wait = deadline - time.monotonic()
            if wait <= 0 or not select.select([], [pipe], [], wait)[1]:
                raise self._fault(
                    f"for {self._settings.timeout:g} s it did not read the request",
                    "read standard input line by line",
                )
            try:
                unsent = unsent[os.write(pipe, unsent) :]
            except BlockingIOError:
                continue
            except OSError:
                raise self._died() from None

    def _receive(self, op: str, deadline: float) -> bytes:
        assert self._group is not None
        assert self._group.popen.stdout is not None
        pipe = self._group.popen.stdout.fileno()
        received, data = bytearray(), b""
        while b"\n" not in data:
            wait = deadline - time.monotonic()
            if wait <= 0 or not select.select([pipe], [], [], wait)[0]:
                raise self._fault(
                    f"no answer to {op!r} within {self._settings.timeout:g} s",
                    "answer each request with one line, and flush standard output after it; if the "
                    "operation takes longer, set timeout = SECONDS in [driver]",
                )
            try:
                data = os.read(pipe, 1 << 20)
            except BlockingIOError:
                continue
            if not data:
                raise self._died()
            received += data
            if len(received) > _MAX_BYTES:
                raise self._fault(
                    f"more than {_MAX_BYTES >> 20} MiB without an end of line",
                    _STREAMS,
                )
        line, _, rest = received.partition(b"\n")
        if rest:
            raise self._fault(
                f"more output follows the answer to {op!r}: {one_line(bytes(rest), 100)}",
                "write one line for each request, and logs to standard error",
            )
        return bytes(line)

    def _judge(self, request: Mapping[str, Any], line: bytes) -> Outcome:
        try:
            answer = json.loads(line)
        except ValueError:
            raise self._fault(f"an answer is not JSON: {one_line(line, 200)}", _STREAMS) from None
        try:
            answer = checked(request, answer)
        except Malformed as error:
            raise self._fault(str(error), error.advice, line) from None
        if "unsupported" in answer:
            return {"outcome": "unsupported"}
        if "error" in answer:
            return {"outcome": answer["error"]["kind"], **answer["error"]}
        return {"outcome": "ok", **answer["ok"]}

    def _died(self) -> AdapterFault:
        assert self._group is not None
        try:
            status: int | None = self._group.popen.wait(2)
        except TimeoutExpired:
            status = None
        shown = "unknown; it only closed a pipe" if status is None else str(status)
        return self._fault(
            f"it ended (exit status {shown}) instead of answering", self._remedy(status)
        )

    def _remedy(self, status: int | None) -> str:
        """Return the remedy for a driver that ended."""
        if status is None:
            return "keep standard input and output open until `bye`"
        if status < 0:
            name = signal.Signals(-status).name
            return f"find out why {name} ended it, for example a crash of its runtime"
        if status > 0 and not self._answers and not self._settings.oneshot:
            return "correct the error at its start, which its standard error shows"
        if status > 0:
            return (
                "let no error end the driver: catch every exception of an operation, and answer "
                'with "error", whose kind is "rejected" if certainly nothing was written, and '
                'otherwise "unknown"'
            )
        if self._settings.oneshot:
            return "answer the request before the program ends"
        return (
            "read requests until `bye` or the end of standard input; if the driver exits after one "
            'answer, set mode = "oneshot"'
        )

    def _fault(self, problem: str, advice: str, answer: bytes = b"") -> AdapterFault:
        log = "    (it is not running)"
        if self._group is not None:
            log = self._group.excerpt(self._log_before)
        self._end()
        shown = f"  Answer: {one_line(answer, 300)}\n" if answer else ""
        return AdapterFault(
            f"the driver of the implementation is at fault: {problem}\n"
            f"{REQUEST}{one_line(self._request, _LONG)}\n{shown}"
            f"  Remedy: {advice}.\n  Its standard error since this request:\n{visible(log, 8000)}"
        )
