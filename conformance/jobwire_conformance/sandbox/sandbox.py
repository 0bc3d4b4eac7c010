"""A sandbox: the servers, the driver and the workers of one case at a time."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Self
from urllib.parse import quote

from jobwire_conformance import data
from jobwire_conformance.config import Config
from jobwire_conformance.errors import ConformError, EnvironmentFault, Usage
from jobwire_conformance.sandbox.driver import Driver
from jobwire_conformance.sandbox.history import History, Note
from jobwire_conformance.sandbox.local_server import Database, LocalServer, server_program
from jobwire_conformance.sandbox.monitor import Executed, Monitor
from jobwire_conformance.sandbox.processes import Log
from jobwire_conformance.sandbox.reaper import Reaper
from jobwire_conformance.sandbox.worker import SandboxWorker
from jobwire_conformance.wire.call import Call
from jobwire_conformance.wire.faults import Rule
from jobwire_conformance.wire.proxy import Proxy, Switchboard

__all__ = ["DEFAULTS", "Sandbox", "side_by_side"]

DEFAULTS = {"poll": 0.2, "beat": 1.0, "grace": 5.0}  # seconds, unless a case sets others


class Sandbox:
    """Servers, driver and workers for one case at a time, separate from all other sandboxes.

    Args:
        reaper: Kills the processes if the suite cannot.
        config: Settings of the implementation.
        servers: Starts two servers: one under test, and the control Redis for reports of jobs.
        rewrites: Rules of a mutant, which apply to every process.
        pause: Returns the seconds for which to hold back a reply; None to pass all at once.

    Attributes:
        history: The requests and signals of the case.
    """

    def __init__(
        self,
        reaper: Reaper,
        config: Config,
        servers: Callable[[], tuple[Database, Database]],
        rewrites: Sequence[Rule] = (),
        pause: Callable[[], float] | None = None,
    ) -> None:
        self.config = config
        self._reaper = reaper
        self._rewrites = rewrites
        self._pause = pause
        self._stack = ExitStack()
        self.history = History()
        self._workers: dict[str, SandboxWorker] = {}
        self._run = ""
        self._users: dict[str, str] = {}  # name -> password
        self._case = ExitStack()  # undoes the changes of one case
        self._monitor: Monitor | None = None
        self.is_cluster = False
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
            self._load_scripts()
        except BaseException:
            self._stack.close()
            raise
        self._driver: Driver | None = None

    # -- changes of a case, undone before the next one

    def user(self, name: str, password: str, rules: str | None = None) -> None:
        """Require that every new connection logs in as this user, with all rights or these.

        The user `default` logs in with a password alone.
        """
        self._users[name] = password
        self._case.callback(self._users.clear)
        if name == "default":
            self.link.call("ACL", "SETUSER", name, "resetpass", f">{password}")
            self._case.callback(self.link.call, "ACL", "SETUSER", name, "nopass")
            return
        allowed = ("~*", "&*", "+@all") if rules is None else rules.split()
        self.link.call("ACL", "SETUSER", name, "reset", "on", f">{password}", *allowed)
        self._case.callback(self.link.call, "ACL", "DELUSER", name)
        self.link.call("ACL", "SETUSER", "default", "off")
        self._case.callback(self.link.call, "ACL", "SETUSER", "default", "on")

    def monitor(self) -> None:
        """Start to record the commands that the server executes."""
        self._monitor = Monitor(self._server.host, self._server.port)
        self._case.callback(self._monitor.close)

    def executed(self) -> list[Executed]:
        """Return the commands that the server has executed since `monitor`."""
        assert self._monitor is not None
        return self._monitor.executed(self.link)

    def flush_scripts(self) -> None:
        """Have the server forget all scripts."""
        self.link.call("SCRIPT", "FLUSH")
        self._case.callback(self._load_scripts)

    def _load_scripts(self) -> None:
        """Load the canonical scripts, so that the first case of a sandbox begins like the others.

        A process whose call gets NOSCRIPT is busy for two more round trips; cases for that flush.
        """
        self.link.calls([("SCRIPT", "LOAD", source) for source in data.scripts().values()])

    def cluster(self) -> None:
        """Replace the server by one in cluster mode that serves all slots."""
        server, link = self._server, self.link
        self._server = other = LocalServer(self._reaper, self._program(), cluster=True)
        self._case.callback(setattr, self, "_server", server)
        self._case.callback(other.close)
        self.is_cluster = True
        self._case.callback(setattr, self, "is_cluster", False)
        self.link = other.link()
        self._case.callback(setattr, self, "link", link)
        self._case.callback(self.link.close)

    def namespace(self, prefix: str) -> None:
        """Put a prefix before all keys of the processes that are started from now on."""
        self._case.callback(setattr, self, "config", self.config)
        self.config = replace(self.config, prefix=prefix)
        self.fresh_driver()

    def fresh_driver(
        self,
        *,
        rules: Sequence[Rule] = (),
        generation: str | None = None,
        user: str | None = None,
        timeout: float | None = None,
    ) -> None:
        """Replace the driver by a new one for this case, with other settings."""
        usual, proxy = self._driver, self.driver_proxy
        self.driver_proxy = self._proxy(rules)
        self._case.callback(setattr, self, "driver_proxy", proxy)
        self._case.callback(self.driver_proxy.close)
        self._driver = self._new_driver(generation, user, timeout)
        self._case.callback(setattr, self, "_driver", usual)
        self._case.callback(self._driver.close)

    def _program(self) -> str:
        return (
            self._server.program if isinstance(self._server, LocalServer) else server_program(None)
        )

    def _url(self, proxy: Proxy, user: str | None) -> str:
        url = proxy.url(self._server.database)
        if user is None:
            return url
        # A plus in this part of a URL is a plus, not a space. [ENV-7]
        name = "" if user == "default" else user
        secret = ":".join(quote(part, safe="+") for part in (name, self._users[user]))
        return url.replace("://", f"://{secret}@", 1)

    def _proxy(self, rules: Sequence[Rule] = (), *, lockstep: bool = False) -> Proxy:
        return self._board.open(
            self._server.host,
            self._server.port,
            rules=[*map(_fresh_rule, self._rewrites), *rules],
            lockstep=lockstep,
            greeting=self._server.greeting,
            pause=self._pause,
        )

    def server(self) -> tuple[str, str]:
        """Return the name of the server's program, redis or valkey, and its version."""
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
            Usage: The settings have no section [driver].
        """
        if self._driver is None:
            self._driver = self._new_driver()
        return self._driver

    @property
    def version(self) -> str:
        """The version that the driver reported; empty before its first request."""
        return "" if self._driver is None else self._driver.version

    def _new_driver(
        self,
        generation: str | None = None,
        user: str | None = None,
        timeout: float | None = None,
    ) -> Driver:
        if self.config.driver is None:
            raise Usage(f"{self.config.path}: section [driver] is missing; this check needs it")
        return Driver(
            self._reaper,
            self.config,
            self.config.driver,
            url=self._url(self.driver_proxy, user),
            generation=generation or self.config.times,
            log=Log(),
            history=self.history,
            timeout=timeout,
        )

    @property
    def workers(self) -> dict[str, SandboxWorker]:
        """The workers of the case so far, including those that have ended."""
        return self._workers

    @property
    def run(self) -> str:
        """Name of this run of a case in the keys of the control Redis."""
        return self._run

    def heal(self, name: str) -> None:
        """Remove the faults of a process, except those of the mutant."""
        proxy = self.driver_proxy if name == "driver" else self._workers[name].proxy
        proxy.clear()
        for rule in self._rewrites:
            proxy.add(_fresh_rule(rule))

    def reset(self) -> None:
        """Remove all traces of the last case."""
        for worker in self._workers.values():
            worker.close()
        self._workers.clear()
        self._case.close()
        self._server.clear(self.link)
        self._control.clear(self.control)
        self.heal("driver")
        self.driver_proxy.forget()
        self.history.forget()
        self._run = secrets.token_hex(4)

    def renew(self) -> None:
        """Remove all traces of the last case, and its driver, which broke the rules."""
        self.reset()
        if self._driver is not None:
            self._driver.close()
            self._driver = None
        # A late command of the old driver must not arrive in the next case.
        self.driver_proxy.close()
        self.driver_proxy = self._proxy()

    def start(
        self,
        name: str,
        queues: Sequence[str],
        *,
        concurrency: int = 1,
        rules: Sequence[Rule] = (),
        lockstep: bool = False,
        generation: str | None = None,
        user: str | None = None,
        precise: bool | None = None,
        unknown: str | None = None,
        beside: Sequence[str] = (),
        wait: bool = True,
        **knobs: float | None,
    ) -> SandboxWorker:
        """Start a worker and, unless `wait` is False, wait for its first fetch.

        Raises:
            AdapterFault: The first fetch does not come in time.
            Usage: The settings have no section [worker].
        """
        settings = self.config.worker
        if settings is None:
            raise Usage(f"{self.config.path}: section [worker] is missing; this check needs it")
        proxy = self._proxy(rules, lockstep=lockstep)
        control = self._board.open(
            self._control.host, self._control.port, greeting=self._control.greeting
        )
        paces = {**DEFAULTS, **knobs}
        worker = SandboxWorker(
            self._reaper,
            self.config,
            settings,
            name=name,
            queues=[*queues, *beside],
            proxy=proxy,
            control=control,
            concurrency=concurrency,
            environment={
                "JOBWIRE_REDIS_URL": self._url(proxy, user),
                "JOBWIRE_CONTROL_URL": control.url(self._control.database),
                "JOBWIRE_RUN": self._run,
                "JOBWIRE_QUEUES": ",".join(queues),
                "JOBWIRE_CONCURRENCY": str(concurrency),
                "JOBWIRE_GENERATION": generation or str(self.config.times),
                **({} if precise is None else {"JOBWIRE_PRECISE": str(int(precise))}),
                **({} if unknown is None else {"JOBWIRE_UNKNOWN": unknown}),
                **({"JOBWIRE_BESIDE": ",".join(beside)} if beside else {}),
                **self.config.variables,
                **{
                    f"JOBWIRE_{knob.upper()}": f"{value:g}"
                    for knob, value in paces.items()
                    if value is not None
                },
            },
            log=Log(),
            history=self.history,
        )
        self._workers[name] = worker
        if wait:
            worker.wait_ready()
        return worker

    def calls(self) -> list[tuple[str, Call]]:
        """Return the commands since the last reset, each with its process, in order."""
        calls = [("driver", call) for call in self.driver_proxy.snapshot()]
        for name, worker in self._workers.items():
            calls += [(name, call) for call in worker.proxy.snapshot()]
        return sorted(calls, key=lambda pair: pair[1].at)

    def record(self) -> list[tuple[str, Call | Note]]:
        """Return the commands, requests and signals since the last reset, in order."""
        notes = [(note.process, note) for note in self.history.notes]
        return sorted([*self.calls(), *notes], key=lambda pair: pair[1].at)

    def close(self) -> None:
        """End all processes and servers."""
        try:
            for worker in self._workers.values():
                worker.close()
            self._case.close()
            if self._driver is not None:
                self._driver.close()
        finally:
            self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _fresh_rule(rule: Rule) -> Rule:
    """Return a copy of a rule, with its counts at zero."""
    return replace(rule)


def side_by_side(
    reaper: Reaper, count: int, sandbox: Callable[[], None], errors: list[ConformError]
) -> None:
    """Run several sandboxes in threads until all have ended. An interrupt ends their processes.

    Args:
        reaper: The reaper of their processes.
        count: Number of sandboxes.
        sandbox: The work of one sandbox. It stops once `errors` is not empty.
        errors: Receives an error on an interrupt.
    """
    threads = [threading.Thread(target=sandbox, daemon=True) for _ in range(count)]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    except BaseException:
        # A sandbox without processes ends at once and cleans up.
        errors.append(EnvironmentFault("interrupted"))
        reaper.close()
        for thread in threads:
            thread.join(10)
        raise
