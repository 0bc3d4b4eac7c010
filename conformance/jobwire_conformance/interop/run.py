"""The tests of all pairs of some implementations, several at a time."""

from __future__ import annotations

import queue
import threading
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import TypeVar

from jobwire_conformance.config import Config
from jobwire_conformance.errors import ConformError, EnvironmentFault, SuiteFault
from jobwire_conformance.interop.pair import Handover, Pair, hand_over, push_and_perform
from jobwire_conformance.sandbox.local_server import LocalServer, server_program
from jobwire_conformance.sandbox.reaper import Reaper
from jobwire_conformance.sandbox.sandbox import side_by_side

__all__ = ["InteropResults", "run"]


@dataclass(slots=True)
class InteropResults:
    """The results of all pairs, in the order of the implementations."""

    configs: Sequence[Config]
    pairs: list[Pair] = field(default_factory=list)
    handovers: list[Handover] = field(default_factory=list)
    server: tuple[str, str] = ("redis", "unknown")

    @property
    def versions(self) -> dict[str, str]:
        """The versions by name, for implementations whose driver reports one."""
        return {pair.client: pair.version for pair in self.pairs if pair.version}

    def add(self, pairs: Iterable[Pair], handovers: Iterable[Handover]) -> None:
        """Add earlier results for implementations of this run. Newer results stay."""
        order = {config.name: number for number, config in enumerate(self.configs)}
        all_pairs = {(pair.client, pair.worker): pair for pair in (*pairs, *self.pairs)}
        all_handovers = {
            (handover.failing, handover.retrying): handover
            for handover in (*handovers, *self.handovers)
        }
        self.pairs = _sorted(all_pairs, order)
        self.handovers = _sorted(all_handovers, order)

    @property
    def status(self) -> int:
        """The exit status: 3 if a program broke the rules, 1 if a job did not arrive as pushed."""
        results: list[Pair | Handover] = [*self.pairs, *self.handovers]
        if any(result.error for result in results):
            return 3
        wrong = any(pair.bad for pair in self.pairs)
        return int(wrong or any(handover.problems for handover in self.handovers))


_Result = TypeVar("_Result", Pair, Handover)


def _sorted(results: Mapping[tuple[str, str], _Result], order: Mapping[str, int]) -> list[_Result]:
    known = [ends for ends in results if order.keys() >= set(ends)]
    return [results[ends] for ends in sorted(known, key=lambda ends: [order[e] for e in ends])]


_Job = tuple[Config, Config, bool]  # the third value is True for a handover


class _Work:
    def __init__(
        self, results: InteropResults, patience: float, tell: Callable[[str], None]
    ) -> None:
        self._results = results
        self._patience = patience
        self._tell = tell
        self._lock = threading.Lock()
        self.jobs: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        self.errors: list[ConformError] = []

    def sandbox(self, reaper: Reaper, program: str) -> None:
        """Test pairs until none is left."""
        try:
            stores = LocalServer(reaper, program), LocalServer(reaper, program)
            try:
                with self._lock:
                    self._results.server = _named(stores[0])
                while not self.errors:
                    self._one(reaper, stores, *self.jobs.get_nowait())
            except queue.Empty:
                pass
            finally:
                for store in stores:
                    store.close()
        except ConformError as error:
            with self._lock:
                self.errors.append(error)
        except Exception:  # noqa: BLE001  an exception that ends a thread would be lost
            with self._lock:
                problem = f"defect of the suite; please report it:\n{traceback.format_exc()}"
                self.errors.append(SuiteFault(problem))

    def _one(
        self,
        reaper: Reaper,
        stores: tuple[LocalServer, LocalServer],
        a: Config,
        b: Config,
        handover: bool,
    ) -> None:
        result: Pair | Handover
        try:
            if handover:
                result = hand_over(reaper, stores, a, b, patience=self._patience)
            else:
                result = push_and_perform(reaper, stores, a, b, patience=self._patience)
        except (EnvironmentFault, SuiteFault):
            raise
        except ConformError as error:
            result = Handover(a.name, b.name) if handover else Pair(a.name, b.name)
            result.error = str(error)
        with self._lock:
            if isinstance(result, Handover):
                self._results.handovers.append(result)
                self._tell(f"{a.name} fails, {b.name} retries: {_summary(result)}")
            else:
                self._results.pairs.append(result)
                self._tell(f"{a.name} pushes, {b.name} performs: {_summary(result)}")


def _summary(result: Pair | Handover) -> str:
    if result.error:
        return "could not be tested"
    wrong = result.bad if isinstance(result, Pair) else result.problems
    return f"{len(wrong)} wrong" if wrong else "ok"


def _named(server: LocalServer) -> tuple[str, str]:
    link = server.link()
    try:
        lines = link.call("INFO", "server").decode().splitlines()
    finally:
        link.close()
    info = dict(line.split(":", 1) for line in lines if ":" in line)
    if "valkey_version" in info:
        return "valkey", info["valkey_version"]
    return "redis", info["redis_version"]


def run(
    configs: Sequence[Config],
    *,
    only: Set[str] | None = None,
    sandboxes: int = 1,
    patience: float = 20.0,
    program: str | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> InteropResults:
    """Test every client with every worker, and every worker with every other one.

    Args:
        configs: Settings of the implementations. Those with a driver push, those with a worker
            perform.
        only: Names of implementations, of which each pair must have one; None for all pairs.
        sandboxes: Number of pairs at a time.
        patience: Longest wait for an expected event, in seconds.
        program: Program of the servers; None for the first one on PATH.
        tell: Called with a line about each pair, one at a time.

    Raises:
        ConformError: No server can be started, or the suite has a defect.
    """
    results = InteropResults(configs)
    work = _Work(results, patience, tell)
    workers = [config for config in configs if config.worker is not None]
    for config in configs:
        for worker in workers:
            if only is not None and only.isdisjoint((config.name, worker.name)):
                continue
            if config.driver is not None:
                work.jobs.put((config, worker, False))
            if config.worker is not None:
                work.jobs.put((config, worker, True))
    program = server_program(program)
    with Reaper() as reaper:
        count = max(1, min(sandboxes, work.jobs.qsize()))
        side_by_side(reaper, count, lambda: work.sandbox(reaper, program), work.errors)
    for error in work.errors:
        raise error
    results.add((), ())  # sorts the results
    return results
