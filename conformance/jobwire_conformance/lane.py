"""A lane: servers, driver and workers that one case at a time is run with."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Self

from jobwire_conformance.config import Config
from jobwire_conformance.driver import Driver
from jobwire_conformance.errors import Usage
from jobwire_conformance.faults import Rule
from jobwire_conformance.processes import Keeper, Log, Store
from jobwire_conformance.proxy import Call, Proxy, Switchboard
from jobwire_conformance.worker import Worker

__all__ = ["Lane"]

DEFAULTS = {"poll": 0.2, "beat": 1.0, "grace": 5.0}  # seconds, where a case gives no other


class Lane:
    """Everything that a case needs, and nothing of another one.

    Args:
        config: Of the implementation.
        servers: Makes two: the one that is watched, and the one that jobs report to.
        rewrites: Makes the rules that every process is under, to try the suite itself.
    """

    def __init__(
        self,
        keeper: Keeper,
        config: Config,
        servers: Callable[[], tuple[Store, Store]],
        rewrites: Sequence[Rule] = (),
    ) -> None:
        self.config = config
        self._keeper = keeper
        self._rewrites = rewrites
        self._stack = ExitStack()
        self._workers: dict[str, Worker] = {}
        self._run = ""
        try:
            self._server, self._control = servers()
            self._stack.callback(self._server.close)
            self._stack.callback(self._control.close)
            self._board = self._stack.enter_context(Switchboard())
            self.link = self._server.link()
            self._stack.callback(self.link.close)
            self.control = self._control.link()
            self._stack.callback(self.control.close)
            self.driver_proxy = self._proxy()
        except BaseException:
            self._stack.close()
            raise
        self._driver: Driver | None = None

    def _proxy(self, rules: Sequence[Rule] = (), *, lockstep: bool = False) -> Proxy:
        return self._board.open(
            self._server.host,
            self._server.port,
            rules=[*map(_again, self._rewrites), *rules],
            lockstep=lockstep,
            greeting=self._server.greeting,
        )

    def server(self) -> tuple[str, str]:
        """Return which server it is, and its version."""
        info = dict(
            line.split(":", 1)
            for line in self.link.call("INFO", "server").decode().splitlines()
            if ":" in line
        )
        if "valkey_version" in info:
            return "valkey", info["valkey_version"]
        return "redis", info["redis_version"]

    @property
    def driver(self) -> Driver:
        """The driver.

        Raises:
            Usage: The implementation has none.
        """
        if self._driver is None:
            if self.config.driver is None:
                raise Usage(f"{self.config.path}: there is no [driver], which this check needs")
            self._driver = Driver(
                self._keeper,
                self.config,
                self.config.driver,
                url=self.driver_proxy.url(self._server.database),
                generation=self.config.generation,
                log=Log(),
            )
        return self._driver

    @property
    def workers(self) -> dict[str, Worker]:
        """The processes of the case so far, those that ended too."""
        return self._workers

    @property
    def run(self) -> str:
        """The name of this run of a case, in the keys of the control Redis."""
        return self._run

    def reset(self) -> None:
        """Forget the case before."""
        for worker in self._workers.values():
            worker.close()
        self._workers.clear()
        self._server.clear(self.link)
        self._control.clear(self.control)
        self.driver_proxy.clear()
        for rule in self._rewrites:
            self.driver_proxy.add(_again(rule))
        self.driver_proxy.forget()
        self._run = secrets.token_hex(4)

    def start(
        self,
        name: str,
        queues: Sequence[str],
        *,
        concurrency: int = 1,
        rules: Sequence[Rule] = (),
        lockstep: bool = False,
        **knobs: float,
    ) -> Worker:
        """Start a worker and wait until it fetches.

        Raises:
            AdapterFault: It does not.
            Usage: The implementation has none.
        """
        settings = self.config.worker
        if settings is None:
            raise Usage(f"{self.config.path}: there is no [worker], which this check needs")
        proxy = self._proxy(rules, lockstep=lockstep)
        control = self._board.open(
            self._control.host, self._control.port, greeting=self._control.greeting
        )
        paces = {**DEFAULTS, **knobs}
        worker = Worker(
            self._keeper,
            self.config,
            settings,
            name=name,
            queues=queues,
            proxy=proxy,
            control=control,
            concurrency=concurrency,
            environment={
                "JOBWIRE_REDIS_URL": proxy.url(self._server.database),
                "JOBWIRE_CONTROL_URL": control.url(self._control.database),
                "JOBWIRE_RUN": self._run,
                "JOBWIRE_QUEUES": ",".join(queues),
                "JOBWIRE_CONCURRENCY": str(concurrency),
                "JOBWIRE_GENERATION": str(self.config.generation),
                **{f"JOBWIRE_{knob.upper()}": f"{value:g}" for knob, value in paces.items()},
            },
            log=Log(),
        )
        self._workers[name] = worker
        worker.wait_ready()
        return worker

    def calls(self) -> list[tuple[str, Call]]:
        """Return what passed since the last reset, with the process that sent it, in order."""
        found = [("driver", call) for call in self.driver_proxy.snapshot()]
        for name, worker in self._workers.items():
            found += [(name, call) for call in worker.proxy.snapshot()]
        return sorted(found, key=lambda pair: pair[1].at)

    def close(self) -> None:
        """End everything that was started."""
        try:
            for worker in self._workers.values():
                worker.close()
            if self._driver is not None:
                self._driver.close()
        finally:
            self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _again(rule: Rule) -> Rule:
    """Return a rule that has counted nothing yet."""
    return Rule(rule.action, rule.label, rule.connection, rule.nth, rule.times, rule.fits)
