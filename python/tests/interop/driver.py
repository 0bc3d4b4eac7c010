"""The Python side of `ruby/driver.rb`: a Sidekiq client and `sidekiq/api` as typed methods."""

# Ruby's answers are Any to a type checker; the methods declare the types.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import base64
import json
import os
import select
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any, Literal

from harness.chroots import RubyProcess

SetName = Literal["retry", "schedule", "dead"]


class RubyError(Exception):
    """Ruby raised. `error` is the class name, `message` Ruby's message."""

    def __init__(self, error: str, message: str, backtrace: Sequence[str]) -> None:
        super().__init__(f"{error}: {message}\n" + "\n".join(f"  {line}" for line in backtrace))
        self.error = error
        self.message = message


@dataclass(frozen=True, slots=True)
class Record:
    """One job as Sidekiq's API shows it (JobRecord, SortedEntry).

    Times are epoch seconds in every generation. A field that the API failed to read is
    None, and `raised` has the reason under its name.
    """

    payload: bytes  # exactly as it is in Redis
    item: dict[str, Any]  # the payload as Ruby decodes and encodes it
    jid: str | None
    queue: str | None
    score: float | None  # sorted sets only
    klass: str | None
    args: list[Any] | None
    display_class: str | None
    display_args: list[Any] | None
    created_at: float | None
    enqueued_at: float | None
    failed_at: float | None  # None where the generation's API has no such method
    retried_at: float | None
    at: float | None
    latency: float | None
    tags: list[str] | None
    error_backtrace: list[str] | None  # decoded
    raised: dict[str, str]

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> Record:
        fields = dict(wire)
        fields["payload"] = base64.b64decode(fields["payload"])
        fields["klass"] = fields.pop("class")
        return cls(**fields)


@dataclass(frozen=True, slots=True)
class Process:
    """One member of Sidekiq's ProcessSet. `info` has every field, also the absent ones as None."""

    identity: str
    hostname: str
    pid: int
    tag: str
    concurrency: int
    queues: list[str]
    labels: list[str]
    busy: int
    quiet: bool  # Process#stopping?: quiet or stopping
    rss: int | None
    version: str | None  # not written by 6.4
    info: dict[str, Any]

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> Process:
        return cls(
            identity=wire["identity"],
            hostname=wire["hostname"],
            pid=wire["pid"],
            tag=wire["api_tag"],
            concurrency=wire["concurrency"],
            queues=wire["api_queues"],
            labels=wire["api_labels"],
            busy=wire["busy"],
            quiet=wire["stopping"],
            rss=wire["rss"],
            version=wire["version"],
            info=dict(wire),
        )


@dataclass(frozen=True, slots=True)
class Work:
    """One member of Sidekiq's WorkSet: a job that is running, as of the last heartbeat."""

    identity: str
    tid: str
    queue: str
    run_at: float
    item: dict[str, Any]  # the decoded payload

    @property
    def jid(self) -> str:
        jid = self.item["jid"]
        assert isinstance(jid, str)
        return jid


class Driver:
    """A Ruby process that is a Sidekiq client with `sidekiq/api`. One call at a time.

    Every method raises RubyError with Ruby's own class and message when Ruby raised.
    """

    def __init__(self, process: RubyProcess) -> None:
        self._process = process
        assert process.popen.stdin
        assert process.popen.stdout
        self._stdin: IO[bytes] = process.popen.stdin
        self._stdout: IO[bytes] = process.popen.stdout
        self._read = b""

    # -- clients

    def push(self, item: Mapping[str, Any]) -> str | None:
        """`Sidekiq::Client.push(item)`; the jid."""
        return self._call("push", item=item)

    def push_bulk(self, items: Mapping[str, Any]) -> list[str | None]:
        """`Sidekiq::Client.push_bulk({"class": ..., "args": [[...], ...], ...})`; the jids."""
        return self._call("push_bulk", items=items)

    def perform_async(self, job: str, /, *args: Any, **options: Any) -> str | None:
        """`Job.set(options).perform_async(*args)`. A class that Ruby lacks is defined for it."""
        return self._call("perform_async", job=job, args=args, options=options)

    def perform_in(self, job: str, seconds: float, /, *args: Any, **options: Any) -> str | None:
        """`Job.set(options).perform_in(seconds, *args)`."""
        return self._call("perform_in", job=job, seconds=seconds, args=args, options=options)

    def perform_at(self, job: str, at: float, /, *args: Any, **options: Any) -> str | None:
        """`Job.set(options).perform_at(at, *args)`."""
        return self._call("perform_at", job=job, at=at, args=args, options=options)

    def perform_bulk(self, job: str, args: Sequence[Sequence[Any]]) -> list[str | None]:
        """`Job.perform_bulk(args)`; the jids."""
        return self._call("perform_bulk", job=job, args=args)

    # -- sorted sets

    def set_list(self, name: SetName) -> list[Record]:
        """RetrySet, ScheduledSet or DeadSet, as Ruby's `each` yields it: highest score first."""
        return [Record.from_wire(wire) for wire in self._call("set_list", set=name)]

    def set_size(self, name: SetName) -> int:
        return self._call("set_size", set=name)

    def set_call(self, name: SetName, action: str) -> Any:
        """A method of the whole set: `retry_all`, `kill_all`, `clear`."""
        return self._call("set_call", set=name, action=action)

    def find(self, name: SetName, jid: str) -> Record:
        """The only entry with this jid; AssertionError when there is none or several."""
        found = [record for record in self.set_list(name) if record.jid == jid]
        assert len(found) == 1, f"{len(found)} entries of {name} have the jid {jid}"
        return found[0]

    def retry(self, name: SetName, jid: str) -> None:
        self._entry_call(name, jid, "retry")

    def kill(self, name: SetName, jid: str) -> None:
        self._entry_call(name, jid, "kill")

    def delete(self, name: SetName, jid: str) -> None:
        self._entry_call(name, jid, "delete")

    def reschedule(self, name: SetName, jid: str, at: float) -> None:
        self._entry_call(name, jid, "reschedule", at)

    def add_to_queue(self, name: SetName, jid: str) -> None:
        self._entry_call(name, jid, "add_to_queue")

    def _entry_call(self, name: SetName, jid: str, action: str, *args: Any) -> None:
        self._call("entry_call", set=name, jid=jid, action=action, args=args)

    # -- queues

    def queues(self) -> list[str]:
        return self._call("queues")

    def queue_list(self, name: str = "default") -> list[Record]:
        """The queue's jobs, newest first."""
        return [Record.from_wire(wire) for wire in self._call("queue_list", queue=name)]

    def queue_size(self, name: str = "default") -> int:
        return self._call("queue_size", queue=name)

    def queue_latency(self, name: str = "default") -> float:
        return self._call("queue_latency", queue=name)

    def processes(self) -> list[Process]:
        return [Process.from_wire(wire) for wire in self._call("processes")]

    def works(self) -> list[Work]:
        return [Work(**wire) for wire in self._call("works")]

    def quiet(self, identity: str) -> None:
        """`Process#quiet!`: through Redis; the worker sees it at its next heartbeat."""
        self._call("process_call", identity=identity, action="quiet!")

    def stop(self, identity: str) -> None:
        """`Process#stop!`: through Redis; the worker sees it at its next heartbeat."""
        self._call("process_call", identity=identity, action="stop!")

    # -- statistics, FLUSHDB, Ruby code

    def stats(self) -> dict[str, Any]:
        """Sidekiq::Stats: processed, failed, enqueued, *_size, queues, default_queue_latency."""
        return self._call("stats")

    def version(self) -> str:
        return self._call("version")

    def flush(self) -> None:
        """FLUSHDB."""
        self._call("flush")

    def eval(self, code: str, with_: Any = None) -> Any:
        """Evaluate Ruby, in which `with` is `with_`; a result without JSON comes as `inspect`."""
        return self._call("evaluate", code=code, **{"with": with_})

    def _call(self, operation: str, **arguments: Any) -> Any:
        request = json.dumps({"op": operation, "with": arguments}, allow_nan=False)
        try:
            self._stdin.write(request.encode() + b"\n")
            self._stdin.flush()
        except BrokenPipeError:
            raise AssertionError(f"driver.rb has ended:\n{self._process.log()}") from None
        answer = json.loads(self._read_line(within=60.0))
        if "error" in answer:
            raise RubyError(answer["error"], answer["message"], answer["backtrace"])
        return answer["ok"]

    def _read_line(self, *, within: float) -> bytes:
        deadline = time.monotonic() + within
        while b"\n" not in self._read:
            ready, _, _ = select.select(
                [self._stdout], [], [], max(0.0, deadline - time.monotonic())
            )
            chunk = os.read(self._stdout.fileno(), 1 << 20) if ready else b""
            assert chunk, f"no answer from driver.rb:\n{self._process.log()}"
            self._read += chunk
        line, _, self._read = self._read.partition(b"\n")
        return line
