"""The server side of a bench: a namespace and worker processes, removed at the end."""

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
from jobwire.bench.jobs import count_trips
from jobwire.connection.cluster import keys_at
from jobwire.errors import JobwireError, RedisTrouble
from jobwire.protocol.keys import Keys
from jobwire.protocol.server import check_server
from jobwire.protocol.wire import Arg, command, once

__all__ = ["BenchFailed", "BenchServer", "BenchWorker"]

PROGRESS_TIMEOUT_S = 60.0  # without any progress
KEYS_PER_SCAN = 1_000

_log = logging.getLogger("jobwire.bench")


class BenchFailed(JobwireError):
    """A worker process failed. The keys that the bench wrote to Redis are removed nevertheless."""


class BenchWorker:
    """A process that runs jobs.

    Args:
        url: URL of Redis.
        namespace: Prefix of all its keys.
        concurrency: Number of jobs that it runs at the same time.
        poll: Average seconds between its polls for due jobs.
    """

    def __init__(self, url: str, namespace: str, concurrency: int, poll: float) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - until close()
        self._unread = b""
        # It has its own session, so Ctrl-C reaches only the bench, which then stops its workers.
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
        """Return the CPU seconds and the round trips that it has used so far."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(b"?\n")
            self._process.stdin.flush()
        except OSError:
            raise self._failed("has ended") from None
        return self.read()

    def read(self) -> dict[str, float]:
        """Return the next message that it writes.

        Raises:
            BenchFailed: It has ended, or writes nothing.
        """
        assert self._process.stdout is not None
        pipe = self._process.stdout.fileno()
        deadline = time.monotonic() + PROGRESS_TIMEOUT_S
        while b"\n" not in self._unread:
            ready = select.select([pipe], [], [], max(deadline - time.monotonic(), 0))[0]
            if not ready:
                raise self._failed(f"wrote no message for {PROGRESS_TIMEOUT_S:g} s")
            chunk = os.read(pipe, 65_536)
            if not chunk:
                raise self._failed("has ended")
            self._unread += chunk
        line, _, self._unread = self._unread.partition(b"\n")
        message: dict[str, float] = json.loads(line)
        return message

    def check(self) -> None:
        """Raise `BenchFailed` if it has ended."""
        if self._process.poll() is not None:
            raise self._failed("has ended")

    def stop(self) -> None:
        """Tell it to stop."""
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()

    def close(self) -> None:
        """Wait until it ends; kill it if that takes more than 10 s."""
        assert self._process.stdout is not None
        try:
            self._process.wait(10.0)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._errors.close()

    def _failed(self, problem: str) -> BenchFailed:
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return BenchFailed(f"a worker process {problem}" + (f": {lines[-1]}" if lines else ""))


class BenchServer:
    """A server with a namespace for the bench; the `with` block removes its keys at the end.

    Args:
        url: URL of the server.

    Attributes:
        namespace: Prefix of all keys.
        client: Enqueues the jobs.
        trips: A list with one item, the number of round trips that this process has made.
    """

    def __init__(self, url: str) -> None:
        # The braces put all keys into one slot of a cluster.
        self.namespace = f"jobwire-bench-{{{secrets.token_hex(6)}}}:"
        self.url = url
        self.trips = count_trips()
        self.client = Client(url, namespace=self.namespace)
        self._stock = Client(url, namespace=f"{self.namespace}stock:")
        self.info_at_start = self.client.redis.run(check_server(self.keys))

    @property
    def keys(self) -> Keys:
        """Key names of the namespace."""
        return keys_at(self.url, self.namespace)

    def do(self, *words: Arg) -> Any:
        """Run one command and return its reply."""
        return self.client.redis.run(once(command(*words)))

    def info(self, section: str) -> dict[str, str]:
        """Return a section of INFO; empty if the server refuses it."""
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
        """Write jobs under keys that no worker reads."""
        at = time.time() - 1.0 if due else None
        self._stock.push_bulk(class_name, [[number] for number in range(jobs)], at=at)

    def open(self) -> None:
        """Rename the stocked keys, so that workers see all jobs at the same moment."""
        stock = keys_at(self.url, f"{self.namespace}stock:")
        for stocked, key in (
            (stock.queue("default"), self.keys.queue("default")),
            (stock.schedule, self.keys.schedule),
        ):
            if self.do("EXISTS", stocked):
                self.do("RENAME", stocked, key)

    def processed(self) -> int:
        """Return the number of jobs that workers have run."""
        return int(self.do("GET", self.keys.stat("processed")) or 0)

    @contextmanager
    def workers(self, count: int, *, concurrency: int, poll: float) -> Iterator[list[BenchWorker]]:
        """Run `count` worker processes inside the `with` block."""
        started: list[BenchWorker] = []
        try:
            for _ in range(count):
                with _signals_deferred():
                    started.append(BenchWorker(self.url, self.namespace, concurrency, poll))
            for worker in started:
                worker.read()
            yield started
        finally:
            with _signals_deferred():
                for worker in started:
                    worker.stop()
                for worker in started:
                    worker.close()

    def wait_processed(self, goal: int, workers: Sequence[BenchWorker]) -> None:
        """Wait until workers have run `goal` jobs.

        Raises:
            BenchFailed: A worker has ended, or no job was run for too long.
        """
        seen, deadline = -1, 0.0
        while (done := self.processed()) < goal:
            if done != seen:
                seen, deadline = done, time.monotonic() + PROGRESS_TIMEOUT_S
            for worker in workers:
                worker.check()
            if time.monotonic() > deadline:
                raise BenchFailed(
                    f"no job was run for {PROGRESS_TIMEOUT_S:g} s; {goal - done} are left"
                )
            time.sleep(0.005)

    def sweep(self) -> None:
        """Remove every key of the namespace."""
        removed = True
        while removed:  # ends, because no process is left that writes more keys
            removed, cursor = False, "0"
            while True:
                reply: Any = self.do(
                    "SCAN", cursor, "MATCH", f"{self.namespace}*", "COUNT", KEYS_PER_SCAN
                )
                cursor = reply[0].decode()
                if reply[1]:
                    self.do("UNLINK", *reply[1])
                    removed = True
                if cursor == "0":
                    break

    def __enter__(self) -> Self:
        # Fails here if the user may not remove keys, before the bench writes any.
        self.do("SCAN", "0", "COUNT", 1)
        self.do("UNLINK", self.keys.queues)
        return self

    def __exit__(self, *_: object) -> None:
        with _signals_deferred():
            try:
                self.sweep()
            except RedisTrouble:
                _log.warning("keys with the prefix %s are left in Redis", self.namespace)
                raise
            finally:
                self.client.close()
                self._stock.close()


@contextmanager
def _signals_deferred() -> Iterator[None]:
    """Defer signals to the end of the block, so that no start or clean-up is interrupted."""
    deferred: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    earlier = {
        handled: signal.signal(handled, lambda number, _: deferred.append(number))
        for handled in numbers
    }
    try:
        yield
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)
        if deferred:
            signal.raise_signal(deferred[0])
