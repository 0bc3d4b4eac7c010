"""The conversation with a driver: JSON lines. Every error in them is an adapter fault."""

from __future__ import annotations

import json
import os
import select
import time
from collections.abc import Mapping
from subprocess import TimeoutExpired
from typing import Any

from jsonschema import Draft202012Validator

from jobwire_conformance import data
from jobwire_conformance.config import Config, DriverProgram
from jobwire_conformance.errors import AdapterFault, SuiteFault
from jobwire_conformance.sandbox.processes import Log, ProcessGroup
from jobwire_conformance.sandbox.reaper import Reaper

__all__ = ["Driver", "Outcome"]

_LONGEST = 64 * 1024 * 1024  # bytes of one response; an inflated backtrace has its own check
_STREAMS = "write only answers to standard output, and logs to standard error"
_RESULTS = {
    "hello": "greeting",
    "push": "pushed",
    "push_bulk": "pushed_bulk",
    "act": "nothing",
    "bye": "nothing",
    **dict.fromkeys(["queue", "set", "find"], "members"),
    **{name: name for name in ("queues", "stats", "processes", "work")},
}

Outcome = dict[str, Any]
"""`outcome`, which is ok, rejected, unknown or unsupported, and the members of the response."""


def _validator(definition: str) -> Draft202012Validator:
    whole = data.schema("driver")
    return Draft202012Validator({"$ref": f"#/$defs/{definition}", "$defs": whole["$defs"]})


class Driver:
    """The driver of one sandbox. The first request starts it.

    Args:
        reaper: Kills it if the suite cannot.
        config: Settings of the implementation.
        settings: The section `driver` of these settings.
        url: URL of its Redis.
        generation: Generation to write, or `auto`.
        log: Receives its standard error.
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
        timeout: float | None = None,
    ) -> None:
        self._reaper = reaper
        self._directory = config.path.parent
        self._settings = settings
        self._url = url
        self._environment = {
            "JOBWIRE_REDIS_URL": url,
            "JOBWIRE_GENERATION": str(generation),
            **config.variables,
            **({} if timeout is None else {"JOBWIRE_TIMEOUT": f"{timeout:g}"}),
        }
        self._log = log
        self._group: ProcessGroup | None = None
        self._number = 0
        self._checks = {
            name: _validator(name) for name in {"request", "response", *_RESULTS.values()}
        }
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

    @property
    def log(self) -> Log:
        """Its standard error."""
        return self._log

    def close(self) -> None:
        """Send `bye`, wait for at most a second, and kill the driver."""
        if self._group is not None and self._group.status is None and self.operations:
            try:
                self._send({"id": self._number + 1, "op": "bye"}, time.monotonic() + 1)
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
        for problem in self._checks["request"].iter_errors(request):
            raise SuiteFault(
                f"a case has a request that the driver schema does not allow: {problem.message}"
            )
        if self._group is None or self._settings.oneshot:
            self._start()
        deadline = time.monotonic() + self._settings.timeout
        self._send(request, deadline)
        answer = self._settings.garble(self._receive(op, deadline))
        if self._settings.oneshot:
            self._end()
        return self._judge(request, answer)

    def _start(self) -> None:
        self._end()
        command = self._settings.command
        try:
            self._group = ProcessGroup(
                self._reaper,
                command,
                environment=self._environment,
                directory=self._directory,
                log=self._log,
                pipes=True,
            )
        except OSError as error:
            raise AdapterFault(
                f"the driver cannot be started: {error}; correct [driver] command, which runs in "
                f"{self._directory}"
            ) from None
        assert self._group.popen.stdin is not None
        assert self._group.popen.stdout is not None
        os.set_blocking(self._group.popen.stdin.fileno(), False)
        os.set_blocking(self._group.popen.stdout.fileno(), False)

    def _send(self, request: Mapping[str, Any], deadline: float) -> None:
        assert self._group is not None
        assert self._group.popen.stdin is not None
        pipe = self._group.popen.stdin.fileno()
        # 1e400 is larger than any double. Python reads it as an infinity.
        text = json.dumps(request, separators=(",", ":")).replace("Infinity", "1e400")
        unsent = text.encode() + b"\n"
        while unsent:
            wait = deadline - time.monotonic()
            if wait <= 0 or not select.select([], [pipe], [], wait)[1]:
                raise self._fault(
                    f"it did not read the request for {self._settings.timeout:g} s",
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
                    "answer each request with one line, and flush standard output after it",
                )
            try:
                data = os.read(pipe, 1 << 20)
            except BlockingIOError:
                continue
            if not data:
                raise self._died()
            received += data
            if len(received) > _LONGEST:
                raise self._fault(
                    f"more than {_LONGEST >> 20} MiB without an end of line",
                    _STREAMS,
                )
        line, _, rest = received.partition(b"\n")
        if rest:
            raise self._fault(
                f"more output follows the answer to {op!r}: {bytes(rest[:100])!r}",
                "write one line for each request, and logs to standard error",
            )
        return bytes(line)

    def _judge(self, request: Mapping[str, Any], line: bytes) -> Outcome:
        try:
            answer = json.loads(line)
        except ValueError:
            raise self._fault(f"an answer is not JSON: {line[:200]!r}", _STREAMS) from None
        result = request["what"] if request["op"] == "inspect" else request["op"]
        if isinstance(answer, dict) and "ok" in answer:  # gives a more precise error
            self._conforms(_RESULTS[result], answer["ok"], line)
        self._conforms("response", answer, line)
        if answer["id"] != request["id"]:
            raise self._fault(
                f"the answer to request {request['id']} has the id {answer['id']}",
                "repeat the id of the request, and answer in order",
            )
        if "unsupported" in answer:
            return {"outcome": "unsupported"}
        if "error" in answer:
            return {"outcome": answer["error"]["kind"], **answer["error"]}
        return {"outcome": "ok", **answer["ok"]}

    def _conforms(self, definition: str, value: object, line: bytes) -> None:
        for problem in self._checks[definition].iter_errors(value):
            place = "".join(f"/{part}" for part in problem.absolute_path)
            raise self._fault(
                f"an answer does not fit #/$defs/{definition} of schema/driver.json: "
                f"{f'{place}: ' if place else ''}{problem.message[:300]}\n  answer: {line[:300]!r}",
                "compare it with the examples in that file",
            )

    def _died(self) -> AdapterFault:
        assert self._group is not None
        try:
            status: object = self._group.popen.wait(2)
        except TimeoutExpired:
            status = "unknown; it only closed a pipe"
        return self._fault(
            f"it ended (exit status {status}) instead of answering",
            "read requests until `bye` or the end of standard input; if the driver exits after "
            'one answer, set mode = "oneshot"',
        )

    def _fault(self, problem: str, advice: str) -> AdapterFault:
        log = self._group.tail() if self._group is not None else "    (it is not running)"
        self._end()
        return AdapterFault(
            f"the driver of the implementation is at fault: {problem}.\n  Remedy: {advice}.\n"
            f"  The end of its standard error:\n{log}"
        )
