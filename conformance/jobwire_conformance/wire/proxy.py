"""A proxy between one process and Redis that records each command and can inject faults.

Commands are forwarded one by one and byte for byte. Each command of a pipeline or a transaction is
therefore a separate point for a fault. Each process has a port of its own, which identifies it.
"""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Self, TypeVar

from jobwire_conformance.wire.call import Call, name_of
from jobwire_conformance.wire.faults import (
    Faults,
    Rule,
)
from jobwire_conformance.wire.proxy_connection import ProxyConnection
from jobwire_conformance.wire.resp import arguments

__all__ = ["Proxy", "Switchboard"]

T = TypeVar("T")


class Switchboard:
    """A thread whose event loop runs any number of proxies."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="resp-proxy", daemon=True
        )
        self._thread.start()
        self._proxies: list[Proxy] = []

    def open(self, host: str, port: int, **options: Any) -> Proxy:
        """Return a new proxy for this server; `options` are those of `Proxy`."""
        proxy = Proxy(self._loop, host, port, **options)
        self.run(proxy.listen)
        self._proxies.append(proxy)
        return proxy

    def run(self, function: Callable[[], Any]) -> Any:
        """Call a coroutine function in the loop's thread; return its result."""
        return asyncio.run_coroutine_threadsafe(function(), self._loop).result(60)

    def close(self) -> None:
        """Close all proxies and end the thread."""
        for proxy in self._proxies:
            proxy.close()
        self.run(self._settle)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _settle(self) -> None:
        """Wait for the ends of connections that were half made as their proxies closed."""
        if begun := asyncio.all_tasks() - {asyncio.current_task()}:
            _, late = await asyncio.wait(begun, timeout=5)
            for task in late:
                task.cancel()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class Proxy:
    """A proxy on a port of 127.0.0.1. `Switchboard.open` creates it; any thread may call it.

    Args:
        loop: Event loop of the proxy.
        host: Host of the server.
        port: Port of the server.
        rules: Faults, and the commands that they strike. `add` adds more.
        lockstep: Pass one command at a time over all connections, except blocking ones. At every
            command it is then certain which other commands the server has received.
        label: Returns the name of a command for rules and the trace.
        keep: Number of the latest calls to remember; None for all.
        own_port: Port to listen on; 0 for any free port.
        observe: Called with each finished call, in the loop's thread. A call is finished when its
            reply is on the way to the client, or when a side has given up.
        greeting: Frame of the first command on each connection to the server, hidden from clients.
        pause: Returns the seconds for which to hold back a reply, as a slow network does; None to
            pass all replies at once.

    Attributes:
        port: Port for clients.
        pushes: Number of frames that the server sent without a command.
        cuts: Number of connections cut by the proxy.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        host: str,
        port: int,
        *,
        rules: Iterable[Rule] = (),
        lockstep: bool = False,
        label: Callable[[Sequence[bytes]], str] = name_of,
        keep: int | None = None,
        own_port: int = 0,
        observe: Callable[[Call], object] | None = None,
        greeting: bytes = b"",
        pause: Callable[[], float] | None = None,
    ) -> None:
        self.greeting = greeting
        self.pause = pause
        self.port = own_port
        self._calls: deque[Call] = deque(maxlen=keep)
        self.pushes = 0
        self.cuts = 0
        self._loop = loop
        self._upstream = (host, port)
        self._faults = Faults(rules)
        self._lockstep = lockstep
        self._label = label
        self._observe = observe
        self._listener: socket.socket | None = None
        self._beginning: set[asyncio.Task[object]] = set()  # connections accepted just now
        self._connections: dict[int, ProxyConnection] = {}
        self._numbers = 0
        self._sequence = 0
        self._frozen = False
        self._refusing = False
        self._turn: ProxyConnection | None = None
        self._queue: deque[ProxyConnection] = deque()

    async def listen(self) -> None:
        """Start to listen. Called once, in the loop's thread."""
        # An asyncio.Server that is closed just after an accept leaves the new socket open.
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self._listener.setblocking(False)
        self.port = self._listener.getsockname()[1]
        self._loop.add_reader(self._listener, self._accept)

    async def stop(self) -> None:
        """Close the port and all connections, from the loop's thread."""
        self._close()

    def url(self, database: int = 0) -> str:
        """Return the URL for clients."""
        return f"redis://127.0.0.1:{self.port}/{database}"

    def add(self, rule: Rule) -> None:
        """Add a rule, which counts commands from now on."""
        self._call(lambda: self._faults.rules.append(rule))

    def clear(self) -> None:
        """Remove all rules."""
        self._call(self._faults.rules.clear)

    def snapshot(self) -> list[Call]:
        """Return a copy of the calls so far, in order. More may arrive during the call."""
        return [*self._calls.copy()]  # atomic, so without the loop, which is asked very often

    def forget(self) -> None:
        """Forget the calls so far."""
        self._call(self._calls.clear)

    def lead_to(self, host: str, port: int) -> None:
        """Connect new connections to another server."""
        self._upstream = (host, port)

    def cut(self) -> int:
        """Cut all connections now; return how many there were."""
        return self._call(self._cut_all)

    def refuse(self, refusing: bool) -> None:
        """Refuse new connections, or accept them again. Existing connections stay."""
        self._refusing = refusing

    def freeze(self) -> None:
        """Stop passing bytes, for good, as if the process had crashed."""
        self._call(self._freeze)

    def close(self) -> None:
        """Close the port and all connections."""
        self._call(self._close)

    # -- all methods below run in the loop's thread

    def _call(self, function: Callable[[], T]) -> T:
        """Call a function in the loop's thread, from another thread; return its result."""

        async def in_the_loop() -> T:
            return function()

        return asyncio.run_coroutine_threadsafe(in_the_loop(), self._loop).result(60)

    def _accept(self) -> None:
        assert self._listener is not None
        with suppress(BlockingIOError, ConnectionAbortedError):  # the client has gone
            client, _ = self._listener.accept()
            task = self._loop.create_task(
                self._loop.connect_accepted_socket(lambda: ProxyConnection(self), client)
            )
            self._beginning.add(task)
            task.add_done_callback(self._beginning.discard)

    def _close(self) -> None:
        self._refusing = True  # those accepted just now as well
        if self._listener is not None:
            self._loop.remove_reader(self._listener)
            self._listener.close()
            self._listener = None
        for connection in list(self._connections.values()):
            connection.drop()

    def _cut_all(self) -> int:
        connections = list(self._connections.values())
        for connection in connections:
            connection.drop()
        self.cuts += len(connections)
        return len(connections)

    def _freeze(self) -> None:
        self._frozen = True
        for connection in list(self._connections.values()):
            connection.silence()

    def admit(self, connection: ProxyConnection) -> int:
        """Accept a new connection; return its number, or 0 if the proxy refuses it."""
        if self._frozen or self._refusing:
            return 0
        self._numbers += 1
        self._connections[self._numbers] = connection
        return self._numbers

    def leave(self, connection: ProxyConnection) -> None:
        """Remove a connection that has ended."""
        self._connections.pop(connection.number, None)
        if connection in self._queue:
            self._queue.remove(connection)
        self.release(connection)

    @property
    def upstream(self) -> tuple[str, int]:
        """Host and port of the server."""
        return self._upstream

    @property
    def frozen(self) -> bool:
        """True after `freeze`."""
        return self._frozen

    @property
    def lockstep(self) -> bool:
        """True if one command at a time may pass."""
        return self._lockstep

    def record(self, connection: int, frame: bytes) -> Call:
        """Record a command with its number and label."""
        words = arguments(frame)
        self._sequence += 1
        call = Call(self._sequence, connection, words, self._label(words), frame, time.monotonic())
        self._calls.append(call)
        return call

    def meet(self, call: Call, transaction: int | None) -> None:
        """Have the rules decide about the next command to send, and the number of its MULTI."""
        call.decided = True
        call.action = self._faults.meet(call.label, call.connection, call.words, transaction)

    def over(self, call: Call) -> None:
        """Report a finished call, after the frames that are forwarded now."""
        if self._observe is not None:
            self._loop.call_soon(self._observe, call)

    def take_turn(self, connection: ProxyConnection) -> bool:
        """Return whether the connection may send a command. If not, it is called back later."""
        if self._turn in (None, connection):
            self._turn = connection
            return True
        if connection not in self._queue:
            self._queue.append(connection)
        return False

    def release(self, connection: ProxyConnection) -> None:
        """End the turn of a connection, whose command is answered."""
        if self._turn is connection:
            self._turn = None
            while self._queue and self._is_free():
                self._queue.popleft().advance()

    def _is_free(self) -> bool:
        return self._turn is None

    def crash(self, end: Callable[[], object]) -> None:
        """Freeze, then end the process."""
        self._freeze()
        end()
        for connection in list(self._connections.values()):
            connection.drop()
