"""Workers, a server, and their disturbances."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import redis

from jobwire_conformance.wire.faults import ERRORS, Cut, Delay, Kill, Refuse, Rule, Side
from jobwire_conformance.wire.proxy import Proxy, Switchboard
from tests.chaos import jobs
from tests.chaos.in_flight import InFlight, Process
from tests.chaos.plan import LONG_PAUSE
from tests.chaos.replica import Pair
from tests.chaos.snapshots import PRIVATE, Gate, moved, places
from tests.workers import WorkerProcess, Workers

__all__ = ["Slot", "Storm"]

OWNERS = "jobwire:owners"
SCRIPTS = (b"EVALSHA", b"EVAL")
STALE = 1.0  # seconds for which some workers still talk to a server that was replaced
LOOK_INTERVAL = 1.0  # seconds between two looks at the private entries
REFUSALS = [ERRORS[code] for code in ("READONLY", "OOM", "LOADING", "NOREPLICAS")]


class Slot:
    """A worker that is started again whenever it has ended, with a new proxy each time."""

    def __init__(self, storm: Storm) -> None:
        self._storm = storm
        self.start()

    def start(self) -> None:
        self.proxy = self._storm.open_proxy()
        self._rules: list[Rule] = []
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

    @property
    def faults(self) -> int:
        """Number of faults of its connections."""
        return self.proxy.cuts + sum(rule.struck for rule in self._rules)

    def add(self, rule: Rule) -> None:
        """Add a rule to the proxy."""
        self._rules.append(rule)
        self.proxy.add(rule)

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
        servers: The Redis that is disturbed, and its replica.
        workers: Launcher of the workers.
        board: Launcher of the proxies.
        size: Number of workers.
        longest_delay: Seconds after which a late script arrives at the latest.

    Attributes:
        gate: Every push passes through it.
        restored: Numbers of the jobs that a snapshot, or a replica that lags, brought back to a
            place that they had left.
        in_flight: Watches the private entries.
    """

    def __init__(
        self,
        servers: Pair,
        workers: Workers,
        board: Switchboard,
        *,
        size: int,
        longest_delay: float,
    ) -> None:
        self.servers = servers
        self.workers = workers
        self.counts: Counter[str] = Counter()
        self.disturbed: set[int] = set()  # pids of workers that got a signal
        self.gate = Gate()
        self.restored: set[int] = set()
        self.in_flight = InFlight()
        self._longest_delay = longest_delay
        self._looked_at = 0.0  # at the private entries
        self._forget: Callable[[], None] | None = None  # has the server forget writes
        self._forget_at = 0.0  # on the monotonic clock, as is the next one
        self._repair_at: float | None = None
        self._outages = 0
        self._forgetting = False
        self._calm = False
        self._board = board
        self.proxies: list[Proxy] = []
        self.enqueuing = self.open_proxy()
        self.slots = [Slot(self) for _ in range(size)]

    def open_proxy(self) -> Proxy:
        proxy = self._board.open("127.0.0.1", self.servers.primary.port, keep=100)
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
        kinds = ("restart_redis", "crash_redis", "snapshot", "promote")
        return sum(self.counts[kind] for kind in kinds)

    def _redis(self) -> Any:
        return redis.Redis.from_url(self.servers.primary.url)

    def look_after(self) -> None:
        """Do the steps that are due. Call it often."""
        now = time.monotonic()
        for slot in self.slots:
            slot.look_after()
        if self._forget is not None and now > self._forget_at:
            self._forget_writes()
        if self._repair_at is not None and now > self._repair_at:
            self._repair()
        if now - self._looked_at > LOOK_INTERVAL:
            self._looked_at = now
            with suppress(redis.RedisError):
                self._look_at_entries()

    def _look_at_entries(self) -> None:
        with self._redis() as client:
            entries = [
                (key.decode().removeprefix(PRIVATE), field.decode())
                for key in client.keys(PRIVATE + "*")
                for field in client.hkeys(key)
            ]
            slots = {str(slot.pid): slot for slot in self.slots if not slot.wakes_at}
            processes = {}
            for identity in {identity for identity, _ in entries}:
                slot = slots.get(identity.split(":")[-2])
                beat = client.hget(identity, "beat")
                if slot is not None and slot.alive() and beat is not None:
                    processes[identity] = Process(float(beat), slot.faults + self._outages)
        self.in_flight.look(entries, processes, now=time.monotonic())

    def happen(self, what: str, jitter: random.Random) -> None:
        """Disturb one worker or the server."""
        slot = jitter.choice(self.slots)
        self.counts[what] += 1
        getattr(self, f"_{what}")(slot, jitter)

    def calm(self) -> None:
        """Resume all workers and the server."""
        self._calm = True
        self._forget_writes()
        if self._repair_at is not None:
            self._repair_at = 0.0
        self._lead_all(*(slot.proxy for slot in self.slots))
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
        for key in ("processes", OWNERS):
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
        slot.add(Rule(action, nth=jitter.randint(1, 60)))

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
        self._target(slot, jitter).add(Rule(action, nth=jitter.randint(1, 60)))

    def _refuse_command(self, slot: Slot, jitter: random.Random) -> None:
        refusal = Refuse(jitter.choice(REFUSALS))
        self._target(slot, jitter).add(
            Rule(refusal, nth=jitter.randint(1, 60), times=jitter.randint(1, 5))
        )

    def _target(self, slot: Slot, jitter: random.Random) -> Slot | Proxy:
        targets: list[Slot | Proxy] = [slot, slot, self.enqueuing]
        return jitter.choice(targets)

    def _delay(self, slot: Slot, jitter: random.Random) -> None:
        side: Side = "before" if jitter.random() < 0.5 else "after"
        rule = Rule(Delay(side, jitter.uniform(0.5, 8.0)), nth=jitter.randint(1, 60))
        self._target(slot, jitter).add(rule)

    def _late_script(self, slot: Slot, jitter: random.Random) -> None:
        """Cut a connection, and have the script arrive later."""
        countdown = jitter.randint(1, 20)
        seconds = jitter.uniform(1.0, self._longest_delay)

        def strikes(words: Sequence[bytes]) -> bool:
            nonlocal countdown
            countdown -= words[0].upper() in SCRIPTS
            if countdown or words[0].upper() not in SCRIPTS:
                return False
            timer = threading.Timer(seconds, self._deliver, [words])
            timer.daemon = True
            timer.start()
            return True

        slot.add(Rule(Cut("before"), fits=strikes))

    def _deliver(self, words: Sequence[bytes]) -> None:
        with suppress(redis.RedisError), self._redis() as client:
            if not self._calm:
                self.counts["late script arrived"] += 1
                client.execute_command(*words)

    def _refuse_connections(self, slot: Slot, jitter: random.Random) -> None:
        proxy = slot.proxy
        proxy.refuse(True)
        proxy.cut()
        threading.Timer(jitter.uniform(0.2, 2.0), lambda: proxy.refuse(self._forgetting)).start()

    def _flush_scripts(self, slot: Slot, jitter: random.Random) -> None:
        with self._redis() as client:
            client.script_flush()

    def _restart_redis(self, slot: Slot, jitter: random.Random) -> None:
        self._outages += 1
        self.servers.primary.stop()
        time.sleep(jitter.uniform(0, 1.0))
        self.servers.primary.start()

    def _crash_redis(self, slot: Slot, jitter: random.Random) -> None:
        self._outages += 1
        self.servers.primary.kill()
        time.sleep(jitter.uniform(0, 1.0))
        self.servers.primary.start()

    def _snapshot(self, slot: Slot, jitter: random.Random) -> None:
        """Save a snapshot, from which the server starts some seconds later."""
        self._forget_writes()
        self.gate.close()
        self.servers.primary.save()
        self._forget_soon(self._start_from_snapshot, jitter)

    def _promote(self, slot: Slot, jitter: random.Random) -> None:
        """Have the replica lag, and put it in the primary's place some seconds later."""
        self._forget_writes()
        self.gate.close()
        if self.servers.stop_following():
            self._forget_soon(self._switch, jitter)
        else:
            self.counts["replica was not ready"] += 1
            self.gate.open()

    def _forget_soon(self, forget: Callable[[], None], jitter: random.Random) -> None:
        self._forget = forget
        self._forget_at = time.monotonic() + jitter.uniform(0.5, 4.0)

    def _forget_writes(self) -> None:
        """Have the server forget all writes since the gate was closed, if that is planned."""
        forget, self._forget = self._forget, None
        if forget is None:
            return
        self._forgetting = True
        self._outages += 1
        proxies = [self.enqueuing, *(slot.proxy for slot in self.slots)]
        for proxy in proxies:  # so that no process changes a job's place during the two looks
            proxy.refuse(True)
            proxy.cut()
        with self._redis() as client:
            left = places(client)
        forget()
        with self._redis() as client:
            self.restored |= moved(places(client), left)
        self._repair_at = time.monotonic()  # the old data may have a key of the wrong type
        self._forgetting = False
        for proxy in proxies:
            proxy.refuse(False)
        self.gate.open()

    def _start_from_snapshot(self) -> None:
        self.servers.primary.kill()
        self.servers.primary.start_from_snapshot()

    def _switch(self) -> None:
        """Promote the replica. Half of the workers talk to the old primary for some time."""
        self.servers.switch()
        self._lead_all(self.enqueuing, *(slot.proxy for slot in self.slots[::2]))
        proxies = [slot.proxy for slot in self.slots]
        late = threading.Timer(STALE, self._lead_all, proxies)
        late.daemon = True
        late.start()

    def _lead_all(self, *proxies: Proxy) -> None:
        """Connect them to the primary, and end connections to the server that no longer is."""
        port = self.servers.primary.port
        for proxy in proxies:
            if proxy.upstream[1] != port:
                proxy.lead_to("127.0.0.1", port)
                proxy.cut()

    def _delete_owners(self, slot: Slot, jitter: random.Random) -> None:
        self._set_owners(None)

    def _retype_owners(self, slot: Slot, jitter: random.Random) -> None:
        """Make the key of the owners a string, until an operator repairs it."""
        self._set_owners("not a set")
        self._repair_at = time.monotonic() + jitter.uniform(1.0, 4.0)

    def _repair(self) -> None:
        with self._redis() as client:
            if client.type(OWNERS) == b"string":
                self._set_owners(None)
        self._repair_at = None

    def _set_owners(self, value: str | None) -> None:
        self._outages += 1
        with self._redis() as client:
            if value is None:
                client.delete(OWNERS)
            else:
                client.set(OWNERS, value)
