"""A primary with two replicas, and three sentinels that watch it: all real, all on 127.0.0.1."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from shutil import rmtree
from typing import Any

import redis

from harness.servers import Reaper, Server, valkey_program, wait_until

NAME = "mymaster"


class Sentinel:
    """A sentinel for one test.

    Args:
        reaper: Ends it if the test process dies.
        primary: The port of the server that it watches.
        password: The sentinel's password.
    """

    def __init__(self, reaper: Reaper, primary: Server, *, password: str | None = None) -> None:
        self._reaper = reaper
        self.directory = Path(tempfile.mkdtemp(prefix="jobwire-sentinel-"))
        self._password = password
        for _ in range(5):  # another process can take the free port first
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                self.port = probe.getsockname()[1]
            if self._launch(primary):
                return
            self._end()
        raise AssertionError((self.directory / "sentinel.log").read_text())

    def _launch(self, primary: Server) -> bool:
        settings = [
            f"port {self.port}",
            "bind 127.0.0.1",
            f"dir {self.directory}",
            f"sentinel monitor {NAME} 127.0.0.1 {primary.port} 2",
            f"sentinel down-after-milliseconds {NAME} 1000",
            f"sentinel failover-timeout {NAME} 5000",
        ]
        if self._password is not None:
            settings += [
                f"requirepass {self._password}",
                f"sentinel sentinel-pass {self._password}",
            ]
        file = self.directory / "sentinel.conf"
        file.write_text("\n".join(settings) + "\n")
        log = self.directory / "sentinel.log"
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [valkey_program(), str(file), "--sentinel"],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        self._reaper.watch(self._process.pid)

        def settled() -> bool:
            return b"+monitor" in log.read_bytes() or self._process.poll() is not None

        wait_until(settled, what="the sentinel to start")
        return self._process.poll() is None

    def ask(self, *words: str) -> Any:
        """Return the reply to a SENTINEL command."""
        with redis.Redis(port=self.port, password=self._password) as client:
            return client.execute_command("SENTINEL", *words)

    def primary(self) -> int:
        """Return the port of the server that this sentinel considers the primary."""
        return int(self.ask("GET-MASTER-ADDR-BY-NAME", NAME)[1])

    def sees(self) -> tuple[int, int]:
        """Return the numbers of healthy replicas and of healthy other sentinels that it knows."""
        linked = 0
        for each in self.ask("REPLICAS", NAME):
            # redis-py 5 returns the list of names and values unchanged.
            fields = (
                each if isinstance(each, dict) else dict(zip(each[::2], each[1::2], strict=True))
            )
            linked += fields[b"master-link-status"] == b"ok"
        return linked, len(self.ask("SENTINELS", NAME))

    def close(self) -> None:
        self._end()
        rmtree(self.directory)

    def _end(self) -> None:
        self._process.kill()
        self._process.wait(60)
        self._reaper.release(self._process.pid)


class Watched:
    """Three servers and three sentinels."""

    def __init__(self, servers: list[Server], sentinels: list[Sentinel]) -> None:
        self.servers = servers
        self.sentinels = sentinels

    @property
    def hosts(self) -> str:
        """Return the sentinels as the host part of a URL."""
        return ",".join(f"127.0.0.1:{each.port}" for each in self.sentinels)

    @property
    def url(self) -> str:
        return f"redis+sentinel://{self.hosts}/{NAME}/0"

    def primary(self) -> Server:
        """Return the server that all sentinels consider the primary."""

        def agreed() -> Server | None:
            ports = {each.primary() for each in self.sentinels}
            return next((each for each in self.servers if {each.port} == ports), None)

        chosen = wait_until(agreed, 60, "the sentinels to agree")
        assert chosen is not None
        return chosen

    def fail_over(self, *, hang: bool = False) -> Server:
        """Kill the primary; return the new one once it accepts writes.

        Args:
            hang: Stop the primary instead, and let it go on when another one is promoted. It does
                not know that yet, and serves its clients for a while.
        """
        old = self.primary()
        pid = old.client().info("server")["process_id"]
        if hang:
            os.kill(pid, signal.SIGSTOP)
        else:
            old.kill()
        others = [each for each in self.servers if each is not old]

        def promoted() -> Server | None:
            with suppress(redis.ConnectionError):  # a sentinel ends them at the promotion
                return next((each for each in others if each.client().role()[0] == b"master"), None)
            return None

        try:
            chosen = wait_until(promoted, 60, "a promotion")
        finally:
            if hang:
                os.kill(pid, signal.SIGCONT)
        wait_until(lambda: self.primary() is chosen, 60, "the sentinels to agree")
        assert chosen is not None
        return chosen


@contextmanager
def watched(
    reaper: Reaper,
    start: Callable[..., Server],
    *arguments: str,
    password: str | None = None,
) -> Iterator[Watched]:
    """Yield a primary with two replicas and three sentinels that all know each other.

    Args:
        reaper: Of the session.
        start: Starts a server.
        *arguments: Of each server.
        password: Of the sentinels.
    """
    with ExitStack() as running:
        primary = start(*arguments)
        replicas = [start(*arguments, "--replicaof", f"127.0.0.1 {primary.port}") for _ in range(2)]
        sentinels = []
        for _ in range(3):
            sentinels.append(Sentinel(reaper, primary, password=password))
            running.callback(sentinels[-1].close)
        for each in sentinels:
            wait_until(lambda each=each: each.sees() == (2, 2), 60, "sentinels to see all")  # type: ignore[misc]
        yield Watched([primary, *replicas], sentinels)
