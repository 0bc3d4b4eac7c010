"""Where a bench takes place: a namespace, worker processes, and nothing of them afterwards."""

from __future__ import annotations

import json
import logging
import os
import secrets
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Self

from jobwire.application.client import Client
from jobwire.bench.trips import count_trips
from jobwire.errors import JobwireError, RedisTrouble
from jobwire.protocol.keys import Keys
from jobwire.protocol.server import check_server
from jobwire.protocol.wire import Arg, command, once

__all__ = ["BenchFailed", "BenchStage", "BenchWorker"]

PATIENCE = 60.0  # seconds without any progress after which there is none to come
SCANNED = 1_000  # keys that one question looks through

_log = logging.getLogger("jobwire.bench")


class BenchFailed(JobwireError):
    """A worker did not do what it should. What the bench wrote to Redis is removed all the same."""


class BenchWorker:
    """A process that runs jobs.

    Args:
        url: Where.
        namespace: Of all its keys.
        concurrency: Jobs at a time.
        poll: Average seconds between its looks for due jobs.
    """

    def __init__(self, url: str, namespace: str, concurrency: int, poll: float) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - until close()
        self._rest = b""
        # A session of its own: Ctrl-C is for the bench, which then ends its workers.
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-m", "jobwire.bench.worker"),
                *(namespace, str(concurrency), str(poll)),
            ],
            env={**os.environ, "JOBWIRE_REDIS_URL": url},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,
        )

    def ask(self) -> dict[str, float]:
        """Return what it has used so far."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(b"?\n")
            self._process.stdin.flush()
        except OSError:
            raise self._failed("has ended") from None
        return self.hear()

    def hear(self) -> dict[str, float]:
        """Return the next thing that it says.

        Raises:
            BenchFailed: It says nothing.
        """
        assert self._process.stdout is not None
        pipe = self._process.stdout.fileno()
        deadline = time.monotonic() + PATIENCE
        while b"\n" not in self._rest:
            ready = select.select([pipe], [], [], max(deadline - time.monotonic(), 0))[0]
            if not ready:
                raise self._failed(f"has said nothing for {PATIENCE:g} s")
            chunk = os.read(pipe, 65_536)
            if not chunk:
                raise self._failed("has ended")
            self._rest += chunk
        line, _, self._rest = self._rest.partition(b"\n")
        words: dict[str, float] = json.loads(line)
        return words

    def check(self) -> None:
        """Raise `BenchFailed` unless it runs."""
        if self._process.poll() is not None:
            raise self._failed("has ended")

    def stop(self) -> None:
        """Ask it to end."""
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()

    def close(self) -> None:
        """Wait for its end, or make it."""
        assert self._process.stdout is not None
        try:
            self._process.wait(10.0)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._errors.close()

    def _failed(self, what: str) -> BenchFailed:
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return BenchFailed(f"a worker process {what}" + (f": {lines[-1]}" if lines else ""))


class BenchStage:
    """A namespace on a server, that is gone at the end of the `with` block.

    Args:
        url: Which server.

    Attributes:
        namespace: What all keys begin with.
        client: For the jobs.
        trips: Its only item is how often this process has waited for Redis.
    """

    def __init__(self, url: str) -> None:
        # Braces, so that it is all in one slot of a cluster.
        self.namespace = f"jobwire-bench-{{{secrets.token_hex(6)}}}:"
        self.url = url
        self.trips = count_trips()
        self.client = Client(url, namespace=self.namespace)
        self._stock = Client(url, namespace=f"{self.namespace}stock:")
        self.server = self.client.redis.run(check_server(self.keys))

    @property
    def keys(self) -> Keys:
        """Names of the keys."""
        return Keys(self.namespace)

    def do(self, *words: Arg) -> Any:
        """Carry out one command."""
        return self.client.redis.run(once(command(*words)))

    def info(self, section: str) -> dict[str, str]:
        """Return a section of INFO; empty if the server keeps it to itself."""
        try:
            text: bytes = self.do("INFO", section)
        except JobwireError:
            return {}
        pairs = (line.partition(":") for line in text.decode("utf-8", "replace").splitlines())
        return {name: value for name, _, value in pairs}

    def server_cpu(self) -> float | None:
        """Return the seconds of CPU that the server has used."""
        cpu = self.info("cpu")
        try:
            return float(cpu["used_cpu_user"]) + float(cpu["used_cpu_sys"])
        except KeyError:
            return None

    def stock(self, class_name: str, jobs: int, *, due: bool = False) -> None:
        """Write jobs where no worker looks."""
        at = time.time() - 1.0 if due else None
        self._stock.push_bulk(class_name, [[number] for number in range(jobs)], at=at)

    def open(self) -> None:
        """Put all that is in stock where workers look, in one instant."""
        theirs = Keys(f"{self.namespace}stock:")
        for stocked, key in (
            (theirs.queue("default"), self.keys.queue("default")),
            (theirs.schedule, self.keys.schedule),
        ):
            if self.do("EXISTS", stocked):
                self.do("RENAME", stocked, key)

    def processed(self) -> int:
        """Return how many jobs have been run."""
        return int(self.do("GET", self.keys.stat("processed")) or 0)

    @contextmanager
    def workers(self, count: int, *, concurrency: int, poll: float) -> Iterator[list[BenchWorker]]:
        """Run so many worker processes."""
        started: list[BenchWorker] = []
        try:
            for _ in range(count):
                with _undisturbed():
                    started.append(BenchWorker(self.url, self.namespace, concurrency, poll))
            for worker in started:
                worker.hear()
            yield started
        finally:
            with _undisturbed():
                for worker in started:
                    worker.stop()
                for worker in started:
                    worker.close()

    def wait_processed(self, goal: int, workers: Sequence[BenchWorker]) -> None:
        """Wait until so many jobs have been run.

        Raises:
            BenchFailed: A worker has ended, or there is no progress any more.
        """
        seen, deadline = -1, 0.0
        while (done := self.processed()) < goal:
            if done != seen:
                seen, deadline = done, time.monotonic() + PATIENCE
            for worker in workers:
                worker.check()
            if time.monotonic() > deadline:
                raise BenchFailed(f"no job was run for {PATIENCE:g} s; {goal - done} are left")
            time.sleep(0.005)

    def sweep(self) -> None:
        """Remove every key of the namespace."""
        removed = True
        while removed:  # until there is none: nobody is left to write more
            removed, cursor = False, "0"
            while True:
                reply: Any = self.do(
                    "SCAN", cursor, "MATCH", f"{self.namespace}*", "COUNT", SCANNED
                )
                cursor = reply[0].decode()
                if reply[1]:
                    self.do("UNLINK", *reply[1])
                    removed = True
                if cursor == "0":
                    break

    def __enter__(self) -> Self:
        # A user who may not remove anything should learn that before there is anything.
        self.do("SCAN", "0", "COUNT", 1)
        self.do("UNLINK", self.keys.queues)
        return self

    def __exit__(self, *_: object) -> None:
        with _undisturbed():
            try:
                self.sweep()
            except RedisTrouble:
                _log.warning("keys that begin with %s are left in Redis", self.namespace)
                raise
            finally:
                self.client.close()
                self._stock.close()


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Have signals wait: what begins here must be known to whoever cleans up, and cleaning ends."""
    came: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    earlier = {each: signal.signal(each, lambda number, _: came.append(number)) for each in numbers}
    try:
        yield
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)
        if came:
            signal.raise_signal(came[0])
