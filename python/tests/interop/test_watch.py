"""Real Sidekiq behind `jobwire conform watch`: the judge finds no fault in it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import redis

from harness.chroots import CHROOTS
from harness.servers import Server, wait_until
from tests.interop.sidekiq import RealSidekiq, results, started
from tests.workers import environment

pytestmark = pytest.mark.interop

CONFORMANCE = Path(__file__).resolve().parents[3] / "conformance"


class Watch:
    """A `jobwire conform watch --listen` in front of a server, and its results at the end."""

    def __init__(self, server: Server, file: Path) -> None:
        self._file = file
        path = os.pathsep.join([environment()["PYTHONPATH"], str(CONFORMANCE)])
        command = [sys.executable, "-m", "jobwire", "conform", "watch", "--redis", server.url]
        self._process = subprocess.Popen(
            [*command, "--listen", "0", "--json", str(file)],
            env={**environment(), "PYTHONPATH": path},
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._process.stderr is not None
        greeting = self._process.stderr.readline()
        self.url = next(word for word in greeting.split() if word.startswith("redis://"))
        self._said: list[str] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def end(self) -> tuple[int, dict[str, Any], str]:
        """Return exit status, results, and output."""
        self._process.send_signal(signal.SIGINT)
        status = self._process.wait(60)
        self._reader.join()
        return status, json.loads(self._file.read_text()), "".join(self._said)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()

    def _read(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as lines:
            self._said += lines


@contextmanager
def watching(server: Server, file: Path) -> Iterator[Watch]:
    watch = Watch(server, file)
    try:
        yield watch
    finally:
        watch.close()


def test_real_sidekiq_breaks_nothing(
    sidekiq_version: str, server: Server, client: redis.Redis, tmp_path: Path
) -> None:
    """Pushes, bulk, schedule, promotion, failures, death, put back, heartbeat: the judge's result
    for genuine Sidekiq agrees with SPEC.md. [PUSH-1] [RETRY-2] [DEAD-3] [BEAT-1] [FETCH-6]
    """
    with watching(server, tmp_path / "results.json") as watch:
        behind = RealSidekiq(sidekiq_version, CHROOTS / sidekiq_version, watch.url)
        assert urlsplit(watch.url).port != server.port
        with behind.worker(queues=["default", "critical", "low"], timeout=2) as worker:
            with behind.driver() as driver:
                driver.perform_async("EchoJob", 1, "é", {"a": [None, 1.5]}, 9007199254740993)
                driver.perform_bulk("EchoJob", [[n] for n in range(20)])
                driver.perform_in("EchoJob", 1, "later")
                for job in ("FailJob", "FailToDeadJob", "FailWithBacktraceJob"):
                    driver.perform_async(job, "boom")
                driver.perform_async("FlakyJob", 1, 9007199254740993, "x")
                driver.perform_async("FailElsewhereJob", "elsewhere")
                driver.perform_async("SleepJob", 60)
                wait_until(lambda: client.zcard("retry") == 4, 60, "four retries")
                members: Any = client.zrange("retry", 0, -1)
                client.zadd("retry", {member: time.time() - 1 for member in members})
                wait_until(lambda: len(results(client)) >= 23, 60, "all that can succeed")
                wait_until(lambda: started(client), 60, "the sleeper")
            worker.stop()
        status, found, said = watch.end()
    broken = {
        rule: each["findings"] for rule, each in found["requirements"].items() if each["violation"]
    }
    assert (status, broken) == (0, {}), said
    assert found["counts"]["warning"] == 0, said
    assert found["sidekiq"] == [int(sidekiq_version[0])]
    for rule in (
        "PUSH-1",
        "KEY-1",
        "RETRY-2",
        "RETRY-8",
        "DEAD-3",
        "BEAT-1",
        "FETCH-6",
        "SCHED-20",
    ):
        assert found["requirements"][rule]["seen"], rule
    # Two commands without a transaction, which SPEC.md requires of `client/faults` only.
    assert found["requirements"]["PUSH-2"]["note"]
