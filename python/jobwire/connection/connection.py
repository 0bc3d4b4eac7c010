"""Open connections: hiredis over a socket that redis-py has connected.

redis-py can reach the server (addresses, TLS, Sentinel, greeting), but it is slow for each command.
A `Connection` takes over the socket and does one thing: it sends messages and reads replies. Errors
that the server sends are values (`ErrorReply`). Every other failure is one of `LOST`, after which
the connection must not be used again. [ENV-5]
"""

from __future__ import annotations

import asyncio
import select
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

import hiredis

from jobwire.connection.connect import detach, detach_async
from jobwire.protocol.wire import Arg, ErrorReply

__all__ = ["LOST", "AsyncConnection", "Connection", "Words", "packed"]

Words = tuple[Arg, ...]

LOST = (OSError, hiredis.HiredisError)
"""The errors of an exchange after which it is unknown whether the server ran the commands."""

CHUNK = 65_536  # bytes to read at once
_INCOMPLETE = object()  # hiredis returns it while a reply is incomplete
_PUSH = getattr(hiredis, "PushNotification", ())  # RESP3 servers send these without a request
_pack: Any = hiredis.pack_command  # its stub does not list all types of `Arg`, which it accepts


def packed(commands: Iterable[Words]) -> bytes:
    """Return commands encoded for the wire."""
    return b"".join(map(_pack, commands))


def _reader() -> Any:
    as_value: Any = ErrorReply  # the stub wants an exception, but errors are values here
    return hiredis.Reader(replyError=as_value, notEnoughData=_INCOMPLETE)


def _plain(reply: Any) -> Any:
    """Return a RESP3 reply in the form of RESP2, which the core reads. [ENV-4]"""
    kind = type(reply)
    if kind is dict:
        return [_plain(item) for pair in reply.items() for item in pair]
    if kind in (list, set):
        return [_plain(item) for item in reply]
    if kind is float:
        return repr(reply).removesuffix(".0").encode()
    return int(reply) if kind is bool else reply


class Connection:
    """A connection for one thread at a time.

    Args:
        opened: An open connection of redis-py, which this object takes over.

    Attributes:
        epoch: The epoch of its pool. The pool does not use connections of an earlier epoch.
    """

    def __init__(self, opened: Any) -> None:
        self.epoch: object = None
        self._socket, self._resp3, self._disconnect = detach(opened)
        self._reader = _reader()
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)

    def quiet(self) -> bool:
        """True if no bytes wait to be read, so that the server has not closed the connection."""
        return not self._poll.poll(0)

    def ask(self, commands: Sequence[Words]) -> list[Any]:
        """Send commands in one write; return their replies."""
        self.send(packed(commands))
        return self.receive(len(commands))

    def send(self, message: bytes) -> None:
        """Send packed commands. The next call must be `receive`, for their replies."""
        self._socket.sendall(message)

    def receive(self, count: int) -> list[Any]:
        """Return the next replies."""
        return [self._read() for _ in range(count)]

    def _read(self) -> Any:
        while True:
            reply = self._reader.gets()
            if reply is _INCOMPLETE:
                chunk = self._socket.recv(CHUNK)
                if not chunk:
                    raise ConnectionResetError("connection closed by the server")
                self._reader.feed(chunk)
            elif not isinstance(reply, _PUSH):
                return _plain(reply) if self._resp3 else reply

    def close(self) -> None:
        """Close the connection."""
        self._disconnect()


class _Call:
    """Commands under way, and their replies as they come."""

    __slots__ = ("answer", "missing", "replies")

    def __init__(self, answer: asyncio.Future[list[Any]], missing: int) -> None:
        self.answer = answer
        self.missing = missing
        self.replies: list[Any] = []


class AsyncConnection(asyncio.Protocol):
    """A connection that any number of tasks share.

    Commands of one iteration of the loop go out in one write; replies come in the same order.

    Args:
        opened: An open connection of redis-py, of the running loop, which this object takes over.
        timeout: Seconds without a byte after which replies are given up.
    """

    def __init__(self, opened: Any, timeout: float) -> None:
        self._timeout = timeout
        self._reader = _reader()
        self._calls: deque[_Call] = deque()
        self._unsent: list[bytes] = []
        self._heard = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._retired = False
        self.loop = asyncio.get_running_loop()
        self._transport, self._resp3, self._abort = detach_async(opened)
        self._transport.set_protocol(self)
        self._poll = select.poll()
        self._poll.register(self._transport.get_extra_info("socket").fileno(), select.POLLIN)

    @property
    def open(self) -> bool:
        """True if it takes commands: it is not retired, and the server has not closed it."""
        if self._retired or self._transport.is_closing():
            return False
        return bool(self._calls) or not self._poll.poll(0)

    @property
    def closed(self) -> bool:
        """True if it is closed; then commands without a reply have failed."""
        return bool(self._transport.is_closing())

    async def ask(self, commands: Sequence[Words]) -> list[Any]:
        """Send commands; return their replies."""
        if not self._calls:
            self._heard = self.loop.time()
            if self._timer is None:
                self._timer = self.loop.call_later(self._timeout, self._check)
        if not self._unsent:
            self.loop.call_soon(self._flush)
        self._unsent.append(packed(commands))
        answer: asyncio.Future[list[Any]] = self.loop.create_future()
        self._calls.append(_Call(answer, len(commands)))
        try:
            return await answer
        except asyncio.CancelledError:
            self.retire()  # the reply will still come, and has no reader [ENV-5]
            raise

    def retire(self) -> None:
        """Take no more commands; close the connection after the last reply."""
        self._retired = True
        if not self._calls:
            self.close()

    def close(self, error: Exception | None = None) -> None:
        """Close at once. Tasks that wait for a reply get the error."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._unsent.clear()
        self._abort()
        calls, self._calls = self._calls, deque()
        for call in calls:
            if not call.answer.done():
                call.answer.set_exception(error or ConnectionAbortedError("connection closed"))

    def _flush(self) -> None:
        if self._unsent:
            self._transport.write(b"".join(self._unsent))
            self._unsent.clear()

    def _check(self) -> None:
        self._timer = None
        if not self._calls:
            return
        left = self._heard + self._timeout - self.loop.time()
        if left > 0:
            self._timer = self.loop.call_later(left, self._check)
        else:
            self.close(TimeoutError(f"no bytes came for {self._timeout:g} s"))

    def data_received(self, data: bytes) -> None:
        self._heard = self.loop.time()
        reader = self._reader
        try:
            reader.feed(data)
            while (reply := reader.gets()) is not _INCOMPLETE:
                if isinstance(reply, _PUSH):
                    continue
                call = self._calls[0]
                call.replies.append(_plain(reply) if self._resp3 else reply)
                call.missing -= 1
                if not call.missing:
                    self._calls.popleft()
                    if not call.answer.done():
                        call.answer.set_result(call.replies)
        except (hiredis.HiredisError, IndexError) as error:  # not RESP, or a reply to no command
            self.close(ConnectionAbortedError(f"unexpected bytes: {error}"))
        if self._retired and not self._calls:
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._calls or not self.closed:
            self.close(exc or ConnectionResetError("connection closed by the server"))

    # No flow control for writes: each task waits for its reply, so the buffer holds no more than
    # the waiting tasks hold anyway.
