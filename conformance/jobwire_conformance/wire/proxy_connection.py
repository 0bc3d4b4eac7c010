"""One connection through the proxy: commands go on one by one, answers come back in their order."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from jobwire_conformance.wire.call import Call
from jobwire_conformance.wire.commands import spec_of
from jobwire_conformance.wire.faults import (
    Action,
    Answer,
    Cut,
    Delay,
    Kill,
    Refuse,
    Rewrite,
)
from jobwire_conformance.wire.resp import ProtocolError, Splitter, command, error

__all__ = ["Line", "Switch"]

_MESSAGES = frozenset(b"MESSAGE PMESSAGE SMESSAGE".split())
_EXECABORT = "EXECABORT Transaction discarded because of previous errors."


def _is_after(action: Action | None) -> bool:
    return isinstance(action, Cut | Kill | Delay) and action.side == "after"


def _is_about_channels(word: bytes) -> bool:
    return word.upper() in _MESSAGES or spec_of(word).kind == "subscription"


class Switch(Protocol):
    """What a connection asks of the proxy that it goes through.

    Attributes:
        greeting: Sent to the server ahead of everything.
        cuts: Connections cut by a rule.
        pushes: Notices that the server sent by itself.
    """

    greeting: bytes
    cuts: int
    pushes: int

    @property
    def upstream(self) -> tuple[str, int]:
        """Where the server is."""
        ...

    @property
    def frozen(self) -> bool:
        """Whether nothing passes any more."""
        ...

    @property
    def lockstep(self) -> bool:
        """Whether one command at a time is under way."""
        ...

    def admit(self, line: Line) -> int:
        """Take a new connection in; return its number, or 0 if it is not wanted."""
        ...

    def leave(self, line: Line) -> None:
        """A connection has ended."""
        ...

    def record(self, connection: int, frame: bytes) -> Call:
        """Number and name a command."""
        ...

    def meet(self, call: Call) -> None:
        """Let the rules decide about a command that is next to be sent."""
        ...

    def over(self, call: Call) -> None:
        """Tell of a call that is over, behind what is to be forwarded now."""
        ...

    def take_turn(self, line: Line) -> bool:
        """Return whether the connection may send a command; if not, it is told when."""
        ...

    def release(self, line: Line) -> None:
        """The command of a connection is answered: let others go on."""
        ...

    def crash(self, end: Callable[[], object]) -> None:
        """Freeze, then end the process."""
        ...


class Line(asyncio.Protocol):
    """A client's connection, with the connection to the server that belongs to it."""

    def __init__(self, proxy: Switch) -> None:
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
        return any(_is_about_channels(word) for word in frame.split(b"\r\n", 3)[2:3])

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
        kind = call.spec.kind
        if kind == "subscription":
            self._subscribed = True
        elif kind == "stream" or (name == b"CLIENT" and call.words[1:2] == [b"REPLY"]):
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

    def __init__(self, line: Line, greeting: bytes) -> None:
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
