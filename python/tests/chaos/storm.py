"""Workers, a server, and their disturbances."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import Counter
from contextlib import suppress
from typing import Any

import redis

from harness.servers import Server
from jobwire_conformance.wire.faults import ERRORS, Cut, Kill, Refuse, Rule
from jobwire_conformance.wire.proxy import Proxy, Switchboard
from tests.chaos import jobs
from tests.chaos.plan import LONG_PAUSE
from tests.workers import WorkerProcess, Workers

__all__ = ["Slot", "Storm"]

REFUSALS = [ERRORS[code] for code in ("READONLY", "OOM", "LOADING", "NOREPLICAS")]


class Slot:
    """A worker that is started again whenever it has ended, with a new proxy each time."""

    def __init__(self, storm: Storm) -> None:
        self._storm = storm
        self.start()

    def start(self) -> None:
        self.proxy = self._storm.open_proxy()
        self.worker: WorkerProcess = self._storm.workers.start(
            *(f"{jobs.__name__}:app", "--redis", self.proxy.url()),
            *("-q", "high,3", "-q", "low,1", "-c", "10", "-t", "2", "--poll-interval", "1"),
        )
        self.wakes_at = 0.0  # on the monotonic clock, if paused

    @property
    def pid(self) -> int:
        return self.worker.process.pid

    def alive(self) -> bool:
        return self.worker.process.poll() is None

    def send(self, number: signal.Signals) -> None:
        if self.alive():
            self._storm.disturbed.add(self.pid)
            self.worker.send(number)

    def look_after(self) -> None:
        """Resume the worker if it is time, start it again if it has ended."""
        if self.wakes_at and time.monotonic() > self.wakes_at:
            self.wakes_at = 0.0
            self.send(signal.SIGCONT)
        if not self.alive():
            self.close()
            self.start()

    def close(self) -> None:
        self.worker.close()
        self.proxy.close()


class Storm:
    """The disturbances; `counts` counts them by kind.

    Args:
        server: The Redis that is disturbed.
        workers: Launcher of the workers.
        board: Launcher of the proxies.
        size: Number of workers.
    """

    def __init__(self, server: Server, workers: Workers, board: Switchboard, *, size: int) -> None:
        self.server = server
        self.workers = workers
        self.counts: Counter[str] = Counter()
        self.disturbed: set[int] = set()  # pids of workers that got a signal
        self._board = board
        self.proxies: list[Proxy] = []
        self.enqueuing = self.open_proxy()
        self.slots = [Slot(self) for _ in range(size)]

    def open_proxy(self) -> Proxy:
        proxy = self._board.open("127.0.0.1", self.server.port, keep=100)
        self.proxies.append(proxy)
        return proxy

    @property
    def kills(self) -> int:
        return self.counts["kill"] + self.counts["killed at command"]

    @property
    def cuts(self) -> int:
        return sum(proxy.cuts for proxy in self.proxies)

    @property
    def restarts(self) -> int:
        return self.counts["restart_redis"] + self.counts["crash_redis"]

    def look_after(self) -> None:
        for slot in self.slots:
            slot.look_after()

    def happen(self, what: str, jitter: random.Random) -> None:
        """Disturb one worker or the server."""
        slot = jitter.choice(self.slots)
        self.counts[what] += 1
        getattr(self, f"_{what}")(slot, jitter)

    def calm(self) -> None:
        """Resume all workers and the server."""
        for slot in self.slots:
            slot.proxy.refuse(False)
            slot.proxy.clear()
            slot.wakes_at = time.monotonic() if slot.wakes_at else 0.0
        self.enqueuing.refuse(False)
        self.enqueuing.clear()
        self.look_after()

    def expire_leases(self, client: redis.Redis) -> None:
        """End the leases of processes that have ended, as an operator could."""
        living = {str(slot.pid).encode() for slot in self.slots if slot.alive()}
        identities: set[bytes] = set()
        for key in ("processes", "jobwire:owners"):
            members: Any = client.smembers(key)
            identities |= members
        for identity in identities:
            if identity.split(b":")[-2] not in living:
                client.delete(identity)

    # -- the disturbances

    def _kill(self, slot: Slot, jitter: random.Random) -> None:
        slot.send(signal.SIGKILL)

    def _kill_at_command(self, slot: Slot, jitter: random.Random) -> None:
        process = slot.worker.process

        def end() -> None:
            self.counts["killed at command"] += 1
            self.disturbed.add(process.pid)
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)

        action = Kill("before", end) if jitter.random() < 0.5 else Kill("after", end)
        slot.proxy.add(Rule(action, nth=jitter.randint(1, 60)))

    def _terminate(self, slot: Slot, jitter: random.Random) -> None:
        slot.send(signal.SIGTERM)

    def _pause(self, slot: Slot, jitter: random.Random) -> None:
        self._sleep(slot, jitter.uniform(0.2, 3.0))

    def _long_pause(self, slot: Slot, jitter: random.Random) -> None:
        self._sleep(slot, LONG_PAUSE)

    def _sleep(self, slot: Slot, seconds: float) -> None:
        slot.send(signal.SIGSTOP)
        slot.wakes_at = max(slot.wakes_at, time.monotonic() + seconds)

    def _cut(self, slot: Slot, jitter: random.Random) -> None:
        slot.proxy.cut()

    def _cut_at_command(self, slot: Slot, jitter: random.Random) -> None:
        action = Cut("before") if jitter.random() < 0.5 else Cut("after")
        proxy = jitter.choice([slot.proxy, slot.proxy, self.enqueuing])
        proxy.add(Rule(action, nth=jitter.randint(1, 60)))

    def _refuse_command(self, slot: Slot, jitter: random.Random) -> None:
        refusal = Refuse(jitter.choice(REFUSALS))
        proxy = jitter.choice([slot.proxy, slot.proxy, self.enqueuing])
        proxy.add(Rule(refusal, nth=jitter.randint(1, 60), times=jitter.randint(1, 5)))

    def _refuse_connections(self, slot: Slot, jitter: random.Random) -> None:
        proxy = slot.proxy
        proxy.refuse(True)
        proxy.cut()
        threading.Timer(jitter.uniform(0.2, 2.0), proxy.refuse, [False]).start()

    def _flush_scripts(self, slot: Slot, jitter: random.Random) -> None:
        with redis.Redis.from_url(self.server.url) as client:
            client.script_flush()

    def _restart_redis(self, slot: Slot, jitter: random.Random) -> None:
        self.server.stop()
        time.sleep(jitter.uniform(0, 1.0))
        self.server.start()

    def _crash_redis(self, slot: Slot, jitter: random.Random) -> None:
        self.server.kill()
        time.sleep(jitter.uniform(0, 1.0))
        self.server.start()
