"""A proxy between one process and Redis that sees each command and can break any of them.

Commands are forwarded one by one, as the bytes that they are, so each command of a pipeline or a
transaction is a point of its own at which something can go wrong. One port for each process, so
that nobody has to be asked who they are.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from jobwire_conformance.wire.call import Call, name_of
from jobwire_conformance.wire.faults import (
    Faults,
    Rule,
)
from jobwire_conformance.wire.proxy_connection import Line
from jobwire_conformance.wire.resp import arguments

__all__ = ["Proxy", "Switchboard"]

T = TypeVar("T")


class Switchboard:
    """A thread with the event loop that any number of proxies run in."""

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
        return asyncio.run_coroutine_threadsafe(function(), self._loop).result(10)

    def close(self) -> None:
        """Close all proxies and end the thread."""
        for proxy in self._proxies:
            proxy.close()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

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
    """Listens on a free port of 127.0.0.1. Made by `Switchboard.open`; any thread may call it.

    Args:
        loop: Where it runs.
        host: The server's.
        port: The server's.
        rules: What goes wrong, and when. More may come with `add`.
        lockstep: Have one command at a time under way, over all connections, those that block
            apart. So at every command it is certain which others the server has seen.
        label: Names a command, for rules and trace.
        keep: How many of the last calls to remember; None for all.
        own_port: Where to listen; 0 for any free port.
        observe: Is told of each call once it is over: answered, and the answer on its way, or
            given up by either side; in the loop's thread.
        greeting: A command that each connection to the server begins with; nobody else sees it.

    Attributes:
        port: Where to connect to.
        calls: What passed, in order.
        pushes: How many frames came that nobody had asked for.
        cuts: How many connections it has cut.
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
    ) -> None:
        self.greeting = greeting
        self.port = own_port
        self.calls: deque[Call] = deque(maxlen=keep)
        self.pushes = 0
        self.cuts = 0
        self._loop = loop
        self._upstream = (host, port)
        self._faults = Faults(rules)
        self._lockstep = lockstep
        self._label = label
        self._observe = observe
        self._server: asyncio.Server | None = None
        self._lines: dict[int, Line] = {}
        self._numbers = 0
        self._sequence = 0
        self._frozen = False
        self._refusing = False
        self._turn: Line | None = None
        self._queue: deque[Line] = deque()

    async def listen(self) -> None:
        """Start; called once, in the loop's thread."""
        self._server = await self._loop.create_server(lambda: Line(self), "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Close everything, from the loop's thread."""
        self._close()

    def url(self, database: int = 0) -> str:
        """Return where clients find it."""
        return f"redis://127.0.0.1:{self.port}/{database}"

    def add(self, rule: Rule) -> None:
        """Have one more thing go wrong; it counts commands from now on."""
        self._call(lambda: self._faults.rules.append(rule))

    def clear(self) -> None:
        """Let nothing more go wrong."""
        self._call(self._faults.rules.clear)

    def snapshot(self) -> list[Call]:
        """Return the calls so far, while more may come."""
        return self._call(lambda: list(self.calls))

    def forget(self) -> None:
        """Forget the calls so far."""
        self._call(self.calls.clear)

    def cut(self) -> int:
        """Cut all connections now; return how many there were."""
        return self._call(self._cut_all)

    def refuse(self, refusing: bool) -> None:
        """Accept no connections for a while, or accept them again. Those there are stay."""
        self._refusing = refusing

    def freeze(self) -> None:
        """Let nothing pass any more, for ever: what a crash of the process is to the server."""
        self._call(self._freeze)

    def close(self) -> None:
        """Close everything."""
        self._call(self._close)

    # -- in the loop's thread, as everything below

    def _call(self, function: Callable[[], T]) -> T:
        async def there() -> T:
            return function()

        return asyncio.run_coroutine_threadsafe(there(), self._loop).result(10)

    def _close(self) -> None:
        if self._server is not None:
            self._server.close()
        for line in list(self._lines.values()):
            line.drop()

    def _cut_all(self) -> int:
        lines = list(self._lines.values())
        for line in lines:
            line.drop()
        self.cuts += len(lines)
        return len(lines)

    def _freeze(self) -> None:
        self._frozen = True
        for line in list(self._lines.values()):
            line.silence()

    def admit(self, line: Line) -> int:
        """Take a new connection in; return its number, or 0 if it is not wanted."""
        if self._frozen or self._refusing:
            return 0
        self._numbers += 1
        self._lines[self._numbers] = line
        return self._numbers

    def leave(self, line: Line) -> None:
        """A connection has ended."""
        self._lines.pop(line.number, None)
        if line in self._queue:
            self._queue.remove(line)
        self.release(line)

    @property
    def upstream(self) -> tuple[str, int]:
        """Where the server is."""
        return self._upstream

    @property
    def frozen(self) -> bool:
        """Whether nothing passes any more."""
        return self._frozen

    @property
    def lockstep(self) -> bool:
        """Whether one command at a time is under way."""
        return self._lockstep

    def record(self, connection: int, frame: bytes) -> Call:
        """Number and name a command."""
        words = arguments(frame)
        self._sequence += 1
        call = Call(self._sequence, connection, words, self._label(words), frame, time.monotonic())
        self.calls.append(call)
        return call

    def meet(self, call: Call) -> None:
        """Let the rules decide about a command that is next to be sent."""
        call.decided = True
        call.action = self._faults.meet(call.label, call.connection, call.words)

    def over(self, call: Call) -> None:
        """Tell of a call that is over, behind what is to be forwarded now."""
        if self._observe is not None:
            self._loop.call_soon(self._observe, call)

    def take_turn(self, line: Line) -> bool:
        """Return whether the connection may send a command; if not, it is told when."""
        if self._turn in (None, line):
            self._turn = line
            return True
        if line not in self._queue:
            self._queue.append(line)
        return False

    def release(self, line: Line) -> None:
        """The command of a connection is answered: let others go on."""
        if self._turn is line:
            self._turn = None
            while self._queue and self._is_free():
                self._queue.popleft().advance()

    def _is_free(self) -> bool:
        return self._turn is None

    def crash(self, end: Callable[[], object]) -> None:
        """Freeze, then end the process."""
        self._freeze()
        end()
        for line in list(self._lines.values()):
            line.drop()
