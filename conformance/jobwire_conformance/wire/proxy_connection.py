"""One connection through the proxy. Commands pass one by one, and replies pass in their order."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from jobwire_conformance.wire.call import Call
from jobwire_conformance.wire.commands import spec_of
from jobwire_conformance.wire.faults import (
    Answer,
    Cut,
    Delay,
    Kill,
    Refuse,
    Rewrite,
    is_after,
)
from jobwire_conformance.wire.resp import ProtocolError, Splitter, command, error

__all__ = ["ProxyConnection", "Switch"]

_MESSAGES = frozenset(b"MESSAGE PMESSAGE SMESSAGE".split())
_EXECABORT = "EXECABORT Transaction discarded because of previous errors."


def _is_about_channels(word: bytes) -> bool:
    return word.upper() in _MESSAGES or spec_of(word).kind == "subscription"


class Switch(Protocol):
    """The methods of the proxy that a connection needs.

    Attributes:
        greeting: Frame of the first command on a connection to the server.
        cuts: Number of connections cut by a rule.
        pushes: Number of frames that the server sent without a command.
        pause: Returns the seconds for which to hold back a reply; None to pass all at once.
    """

    greeting: bytes
    cuts: int
    pushes: int
    pause: Callable[[], float] | None

    @property
    def upstream(self) -> tuple[str, int]:
        """Host and port of the server."""
        ...

    @property
    def frozen(self) -> bool:
        """True if the proxy has stopped passing bytes."""
        ...

    @property
    def lockstep(self) -> bool:
        """True if one command at a time may pass."""
        ...

    def admit(self, connection: ProxyConnection) -> int:
        """Accept a new connection; return its number, or 0 if the proxy refuses it."""
        ...

    def leave(self, connection: ProxyConnection) -> None:
        """Remove a connection that has ended."""
        ...

    def record(self, connection: int, frame: bytes) -> Call:
        """Record a command with its number and label."""
        ...

    def meet(self, call: Call, transaction: int | None) -> None:
        """Have the rules decide about the next command to send, and the number of its MULTI."""
        ...

    def over(self, call: Call) -> None:
        """Report a finished call, after the frames that are forwarded now."""
        ...

    def take_turn(self, connection: ProxyConnection) -> bool:
        """Return whether the connection may send a command. If not, it is called back later."""
        ...

    def release(self, connection: ProxyConnection) -> None:
        """End the turn of a connection, whose command is answered."""
        ...

    def crash(self, end: Callable[[], object]) -> None:
        """Freeze, then end the process."""
        ...


class ProxyConnection(asyncio.Protocol):
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
        self._sent: deque[Call] = deque()  # sent, and not answered yet
        self._held = False  # during a delay
        self._late: Call | None = None  # answered by the server, but not to the client yet
        self._raw = False  # after a command that has no reply: bytes pass without parsing
        self._subscribed = False
        self._multi: int | None = None  # number of the MULTI, within a transaction
        self._dirty = False  # a command of the transaction was refused
        self._refused: str | None = None  # the error with which a whole transaction is refused

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
                lambda: _Upstream(self, self._proxy.greeting, self._proxy.pause),
                *self._proxy.upstream,
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
                if not frame.startswith((b"*0", b"*-")) and frame.strip()  # Redis ignores these
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

    def server_sent(self, data: bytes) -> None:
        if self._proxy.frozen or self._server is None:
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
                # The reply that the client gets: after a refused command EXEC's, not DISCARD's.
                call.answered, call.reply = time.monotonic(), call.instead or frame
                if isinstance(call.action, Answer):
                    call.instead = call.action.change(frame)
                if is_after(call.action):
                    self._to_client(passing)
                    passing = []
                    if not self._after(call):
                        return
                else:
                    passing.append(frame if call.instead is None else call.instead)
                self._done(call)
            else:
                passing.append(frame)  # not a reply, like "max number of clients reached"
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

    # -- between client and server

    def advance(self) -> None:
        """Send the commands that may be sent now."""
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
                proxy.meet(call, self._multi)
            exclusive = call.action or self._refused or self._dirty
            if exclusive and self._sent:
                return  # earlier commands must be answered first
            self._waiting.popleft()
            self._begin(call)

    def _begin(self, call: Call) -> None:
        action = call.action
        while isinstance(action, Rewrite):
            # From here on, this is the command of the process.
            call.before = call.before or call.words
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
        else:
            self._decide(call)

    def _decide(self, call: Call) -> None:
        """Send a command, or refuse it as a part of its transaction."""
        action = call.action
        if isinstance(action, Refuse) or self._refused is not None or self._dirty:
            self._refuse(call, action.error if isinstance(action, Refuse) else None)
        else:
            self._send(call)

    def _send_late(self, call: Call) -> None:
        self._held = False
        if self._server is not None:
            self._decide(call)
            self.advance()

    def _send(self, call: Call, frame: bytes | None = None) -> None:
        name = call.name
        call.sent = time.monotonic()
        if name == b"MULTI":
            self._multi = call.sequence
        elif name in (b"EXEC", b"DISCARD", b"RESET"):
            self._multi = None
        call.transaction = self._multi is not None
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

    def _refuse(self, call: Call, reason: str | None) -> None:
        """Answer with an error, and keep the server's transaction as the client expects it."""
        name = call.name
        call.transaction = self._multi is not None
        if self._refused is not None:
            reason = self._refused
            if name in (b"EXEC", b"DISCARD"):
                self._refused = None
        elif name == b"MULTI" and reason is not None:
            self._refused = reason
        elif self._multi is not None and name in (b"EXEC", b"DISCARD", b"RESET"):
            self._dirty = False
            if name == b"EXEC":
                call.instead = error(reason or _EXECABORT)
                self._send(call, command("DISCARD"))
                return
            reason = None
        elif self._multi is not None and reason is not None:
            self._dirty = True
        if reason is None:
            self._send(call)
            return
        call.answered, call.reply = time.monotonic(), error(reason)
        self._to_client([call.reply])
        self._done(call)

    def _after(self, call: Call) -> bool:
        """Do the part of an action that follows the server's reply.

        Returns:
            True if the connection stays open.
        """
        match call.action:
            case Cut():
                self._proxy.cuts += 1
                call.given_up = True
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
        """Close the connection to the server, and leave the client's open."""
        if self._server is not None:
            self._server.abort()
            self._server = None

    def drop(self, *, politely: bool = False) -> None:
        """End both connections. With `politely`, the client can read earlier replies."""
        if self._proxy.frozen and politely:
            return
        self.silence()
        if self._client is not None:
            client, self._client = self._client, None
            if politely:
                client.close()
            else:
                client.abort()
            for call in self._waiting:
                call.given_up = True
            self._waiting.clear()
            late = [self._late] if self._late is not None else []
            for call in (*late, *self._sent):
                call.given_up = True
                self._proxy.over(call)
            self._proxy.leave(self)


class _Upstream(asyncio.Protocol):
    """The connection to the server that belongs to a client's connection."""

    def __init__(
        self, connection: ProxyConnection, greeting: bytes, pause: Callable[[], float] | None
    ) -> None:
        self._connection = connection
        self._pause = pause
        self._late: deque[bytes] = deque()  # held back; empty: the end of the connection
        self._passes_at = 0.0  # time of the loop at which the last of it passes
        self._greeting = greeting
        self._greeted = b""  # the reply to the greeting
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        if self._greeting:
            transport.write(self._greeting)
        else:
            self._connection.server_ready(transport)

    def data_received(self, data: bytes) -> None:
        if not self._greeting:
            self._pass(data)
            return
        self._greeted += data
        if not self._greeted.endswith(b"\r\n"):
            return
        self._greeting = b""
        assert self._transport is not None
        if self._greeted.startswith(b"+"):
            self._connection.server_ready(self._transport)
        else:
            self._transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self._pass(b"")

    def _pass(self, data: bytes) -> None:
        if self._pause is None:
            self._arrive(data)
            return
        loop = asyncio.get_running_loop()
        self._passes_at = max(self._passes_at, loop.time() + self._pause())
        self._late.append(data)
        # Timers for the same time may come in any order, so each takes the first part.
        loop.call_at(self._passes_at, lambda: self._arrive(self._late.popleft()))

    def _arrive(self, data: bytes) -> None:
        if data:
            self._connection.server_sent(data)
        else:
            self._connection.server_lost()

    def pause_writing(self) -> None:
        self._connection.pause_client()

    def resume_writing(self) -> None:
        self._connection.resume_client()
