"""A proxy between one process and Redis that sees each command and can break any of them.

Commands are forwarded one by one, as the bytes that they are, so each command of a pipeline or a
transaction is a point of its own at which something can go wrong. One port for each process, so
that nobody has to be asked who they are.
"""

from __future__ import annotations

import asyncio
import base64
import json
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TypeVar

from jobwire_conformance.faults import (
    Action,
    Answer,
    Cut,
    Delay,
    Faults,
    Kill,
    Refuse,
    Rewrite,
    Rule,
)
from jobwire_conformance.resp import ProtocolError, Splitter, arguments, command, error

__all__ = ["Call", "Proxy", "Switchboard", "name_of"]

T = TypeVar("T")

_BLOCKING = frozenset(
    b"BLPOP BRPOP BLMOVE BRPOPLPUSH BLMPOP BZPOPMIN BZPOPMAX BZMPOP WAIT WAITAOF".split()
)
_SUBSCRIPTIONS = frozenset(
    b"SUBSCRIBE UNSUBSCRIBE PSUBSCRIBE PUNSUBSCRIBE SSUBSCRIBE SUNSUBSCRIBE".split()
)
_NOTICES = _SUBSCRIPTIONS | frozenset(b"MESSAGE PMESSAGE SMESSAGE".split())
_STREAMS = frozenset(b"MONITOR SYNC PSYNC".split())  # no replies that could be told apart
_EXECABORT = "EXECABORT Transaction discarded because of previous errors."


def name_of(words: Sequence[bytes]) -> str:
    """Return the name of a command, the label of those who give no other."""
    return words[0].decode("utf-8", "replace").upper() if words else ""


@dataclass(slots=True, eq=False)
class Call:
    """One command on its way, and what became of it.

    Attributes:
        sequence: Counted from 1 over all connections.
        connection: Counted from 1.
        words: The command.
        label: What the proxy calls it.
        frame: The command as it came.
        at: When it came, by the monotonic clock.
        transaction: Whether it is between MULTI and EXEC.
        action: What was done to it, if anything.
        sent: When it went on to the server, by the monotonic clock; None if it did not.
        reply: The frame of the answer; None while, or if, none came.
        answered: When that came, by the monotonic clock.
        decided: Whether `action` is final.
        instead: The frame to answer with in place of the server's.
        given_up: Whether the connection ended before the answer was passed on.
    """

    sequence: int
    connection: int
    words: Sequence[bytes]
    label: str
    frame: bytes
    at: float
    transaction: bool = False
    action: Action | None = None
    sent: float | None = None
    reply: bytes | None = None
    answered: float | None = None
    decided: bool = False
    instead: bytes | None = None
    given_up: bool = False

    @property
    def name(self) -> bytes:
        """The command's name."""
        return self.words[0].upper() if self.words else b""

    @property
    def blocks(self) -> bool:
        """Whether the answer may take its time."""
        if self.name in (b"XREAD", b"XREADGROUP"):
            return any(word.upper() == b"BLOCK" for word in self.words)
        return self.name in _BLOCKING

    def as_json(self) -> str:
        """Return a line for a trace; what is no UTF-8 is base64, in an object of its own."""
        taken = None if self.answered is None else round((self.answered - self.at) * 1e6)
        return json.dumps(
            {
                "seq": self.sequence,
                "conn": self.connection,
                "label": self.label,
                "argv": [_readable(word) for word in self.words],
                "reply": None if self.reply is None else _readable(self.reply),
                "us": taken,
                "tx": self.transaction,
                "fault": None if self.action is None else type(self.action).__name__.lower(),
            }
        )


def _readable(text: bytes) -> Any:
    try:
        return text.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(text).decode()}


def _is_after(action: Action | None) -> bool:
    return isinstance(action, Cut | Kill | Delay) and action.side == "after"


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
        self._lines: dict[int, _Line] = {}
        self._numbers = 0
        self._sequence = 0
        self._frozen = False
        self._refusing = False
        self._turn: _Line | None = None
        self._queue: deque[_Line] = deque()

    async def listen(self) -> None:
        """Start; called once, in the loop's thread."""
        self._server = await self._loop.create_server(lambda: _Line(self), "127.0.0.1", self.port)
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

    def admit(self, line: _Line) -> int:
        """Take a new connection in; return its number, or 0 if it is not wanted."""
        if self._frozen or self._refusing:
            return 0
        self._numbers += 1
        self._lines[self._numbers] = line
        return self._numbers

    def leave(self, line: _Line) -> None:
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

    def take_turn(self, line: _Line) -> bool:
        """Return whether the connection may send a command; if not, it is told when."""
        if self._turn in (None, line):
            self._turn = line
            return True
        if line not in self._queue:
            self._queue.append(line)
        return False

    def release(self, line: _Line) -> None:
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


class _Line(asyncio.Protocol):
    """A client's connection, with the connection to the server that belongs to it."""

    def __init__(self, proxy: Proxy) -> None:
        self.number = 0
        self._proxy = proxy
        self._loop = asyncio.get_running_loop()
        self._client: asyncio.Transport | None = None
        self._server: asyncio.Transport | None = None
        self._commands = Splitter(inline=True)
        self._replies = Splitter()
        self._waiting: deque[Call] = deque()  # not sent yet
        self._sent: deque[Call] = deque()  # sent and not answered
        self._held = False  # a delay is running
        self._late: Call | None = None  # answered by the server, and the client is not told yet
        self._raw = False  # what passes is no dialogue any more
        self._subscribed = False
        self._multi = False
        self._dirty = False  # a command of the transaction was refused
        self._refused: str | None = None  # why the transaction is refused as a whole

    # -- the client's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._client = transport
        self.number = self._proxy.admit(self)
        if self.number:
            self._connecting = self._loop.create_task(self._connect())
        else:
            transport.abort()

    async def _connect(self) -> None:
        try:
            await self._loop.create_connection(
                lambda: _Upstream(self, self._proxy.greeting), *self._proxy.upstream
            )
        except OSError:
            self.drop()

    def data_received(self, data: bytes) -> None:
        if self._proxy.frozen:
            return
        if self._raw:
            self._to_server(data)
            return
        try:
            frames = self._commands.feed(data)
            self._waiting += [
                self._proxy.record(self.number, frame)
                for frame in frames
                if not frame.startswith((b"*0", b"*-")) and frame.strip()  # is not answered
            ]
        except ProtocolError:
            self.drop()
            return
        self.advance()

    def connection_lost(self, error: Exception | None) -> None:
        self.drop()

    def pause_writing(self) -> None:
        if self._server is not None:
            self._server.pause_reading()

    def resume_writing(self) -> None:
        if self._server is not None and not self._server.is_closing():
            self._server.resume_reading()

    # -- the server's side

    def server_ready(self, transport: asyncio.Transport) -> None:
        if self._client is None or self._client.is_closing():
            transport.abort()
            return
        self._server = transport
        self.advance()

    def server_said(self, data: bytes) -> None:
        if self._proxy.frozen:
            return
        if self._raw:
            self._to_client([data])
            return
        passing: list[bytes] = []
        for frame in self._replies.feed(data):
            if self._is_notice(frame):
                self._proxy.pushes += 1
                passing.append(frame)
            elif self._sent:
                call = self._sent.popleft()
                call.reply, call.answered = frame, time.monotonic()
                if isinstance(call.action, Answer):
                    call.instead = call.action.change(frame)
                if _is_after(call.action):
                    self._to_client(passing)
                    passing = []
                    if not self._after(call):
                        return
                else:
                    passing.append(frame if call.instead is None else call.instead)
                self._done(call)
            else:
                passing.append(frame)  # said unasked, like "max number of clients reached"
        self._to_client(passing)
        self.advance()

    def server_lost(self) -> None:
        self._server = None
        self.drop(politely=True)

    def _is_notice(self, frame: bytes) -> bool:
        if frame.startswith(b">"):
            return True
        if not self._subscribed or not frame.startswith(b"*"):
            return False
        return any(word.upper() in _NOTICES for word in frame.split(b"\r\n", 3)[2:3])

    # -- between them

    def advance(self) -> None:
        """Send what may be sent now."""
        while self._waiting and self._server is not None and not self._held:
            call = self._waiting[0]
            proxy = self._proxy
            if proxy.frozen or (self._sent and self._sent[-1].action is not None):
                return
            if proxy.lockstep:
                if self._sent:
                    return
                if not call.blocks and not proxy.take_turn(self):
                    return
            if not call.decided:
                proxy.meet(call)
            exclusive = call.action or self._refused or self._dirty
            if exclusive and self._sent:
                return  # what came before is answered first
            self._waiting.popleft()
            self._begin(call)

    def _begin(self, call: Call) -> None:
        action = call.action
        while isinstance(action, Rewrite):
            # From here on it is what the process has sent.
            call.words = action.change(call.words)
            call.frame = command(*call.words)
            if action.then is None:
                break
            action = call.action = action.then
        if isinstance(action, Cut) and action.side == "before":
            self._proxy.cuts += 1
            self.drop(politely=True)
        elif isinstance(action, Kill) and action.side == "before":
            self._proxy.crash(action.end)
        elif isinstance(action, Delay) and action.side == "before":
            self._held = True
            self._loop.call_later(action.seconds, self._send_late, call)
        elif isinstance(action, Refuse) or self._refused is not None or self._dirty:
            self._refuse(call, action.error if isinstance(action, Refuse) else None)
        else:
            self._send(call)

    def _send_late(self, call: Call) -> None:
        self._held = False
        if self._server is not None:
            self._send(call)
            self.advance()

    def _send(self, call: Call, frame: bytes | None = None) -> None:
        name = call.name
        call.sent = time.monotonic()
        if name == b"MULTI":
            self._multi = True
        elif name in (b"EXEC", b"DISCARD", b"RESET"):
            self._multi = False
        call.transaction = self._multi
        if name in _SUBSCRIPTIONS:
            self._subscribed = True
        elif name in _STREAMS or (name == b"CLIENT" and call.words[1:2] == [b"REPLY"]):
            self._raw = True
        else:
            self._sent.append(call)
        self._to_server(call.frame if frame is None else frame)
        if self._raw:
            while self._waiting:
                self._to_server(self._waiting.popleft().frame)
        if call not in self._sent:
            self._proxy.over(call)
            self._proxy.release(self)

    def _refuse(self, call: Call, why: str | None) -> None:
        """Answer with an error, leaving the server's transaction as the client thinks it is."""
        name = call.name
        call.transaction = self._multi
        if self._refused is not None:
            why = self._refused
            if name in (b"EXEC", b"DISCARD"):
                self._refused = None
        elif name == b"MULTI" and why is not None:
            self._refused = why
        elif self._multi and name in (b"EXEC", b"DISCARD", b"RESET"):
            self._dirty = False
            if name == b"EXEC":
                call.instead = error(why or _EXECABORT)
                self._send(call, command("DISCARD"))
                return
            why = None
        elif self._multi and why is not None:
            self._dirty = True
        if why is None:
            self._send(call)
            return
        call.reply, call.answered = error(why), time.monotonic()
        self._to_client([call.reply])
        self._done(call)

    def _after(self, call: Call) -> bool:
        """Do what an action does once the server has carried the command out.

        Returns:
            Whether the connection goes on.
        """
        match call.action:
            case Cut():
                self._proxy.cuts += 1
                self.drop(politely=True)
                return False
            case Kill(end=end):
                self._proxy.crash(end)
                return False
            case Delay(seconds=seconds):
                self._held = True
                self._late = call
                self._loop.call_later(seconds, self._answer_late, call)
        return True

    def _answer_late(self, call: Call) -> None:
        self._held = False
        self._late = None
        if call.reply is not None:
            self._to_client([call.reply])
        self._done(call)
        self.advance()

    def _done(self, call: Call) -> None:
        if not self._held:
            self._proxy.over(call)
            self._proxy.release(self)

    def _to_server(self, data: bytes) -> None:
        if self._server is not None and not self._server.is_closing():
            self._server.write(data)

    def _to_client(self, frames: Sequence[bytes]) -> None:
        if frames and self._client is not None and not self._client.is_closing():
            self._client.write(frames[0] if len(frames) == 1 else b"".join(frames))

    def pause_client(self) -> None:
        if self._client is not None:
            self._client.pause_reading()

    def resume_client(self) -> None:
        if self._client is not None and not self._client.is_closing():
            self._client.resume_reading()

    def silence(self) -> None:
        """Take the connection from the server, without a word to the client."""
        if self._server is not None:
            self._server.abort()
            self._server = None

    def drop(self, *, politely: bool = False) -> None:
        """End both connections; `politely` lets the client read what was sent before."""
        if self._proxy.frozen and politely:
            return
        self.silence()
        if self._client is not None:
            client, self._client = self._client, None
            if politely:
                client.close()
            else:
                client.abort()
            self._waiting.clear()
            late = [self._late] if self._late is not None else []
            for call in (*late, *self._sent):
                call.given_up = True
                self._proxy.over(call)
            self._proxy.leave(self)


class _Upstream(asyncio.Protocol):
    """The connection to the server that belongs to a line."""

    def __init__(self, line: _Line, greeting: bytes) -> None:
        self._line = line
        self._greeting = greeting
        self._heard = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        if self._greeting:
            transport.write(self._greeting)
        else:
            self._line.server_ready(transport)

    def data_received(self, data: bytes) -> None:
        if not self._greeting:
            self._line.server_said(data)
            return
        self._heard += data
        if not self._heard.endswith(b"\r\n"):
            return
        self._greeting = b""
        assert self._transport is not None
        if self._heard.startswith(b"+"):
            self._line.server_ready(self._transport)
        else:
            self._transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self._line.server_lost()

    def pause_writing(self) -> None:
        self._line.pause_client()

    def resume_writing(self) -> None:
        self._line.resume_client()
