"""Connections: hiredis over a socket.

`connect` and `connect_async` carry out an opening. From then on a connection does one thing: it
sends messages and reads replies. Errors that the server sends are values (`ErrorReply`). Every
other failure is one of `LOST`, after which the connection must not be used again. [ENV-5]
"""

from __future__ import annotations

import asyncio
import os
import select
import socket
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, cast

import hiredis

from jobwire.connection.opening import Opening, Server
from jobwire.protocol.wire import Arg, ErrorReply

__all__ = [
    "LOST",
    "AsyncConnection",
    "Connection",
    "Words",
    "connect",
    "connect_async",
    "packed",
]

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
        server: Where to connect to.

    Attributes:
        socket: Its socket.
        epoch: The epoch of its pool. The pool does not use connections of an earlier epoch.

    Raises:
        OSError: The server cannot be reached.
    """

    def __init__(self, server: Server) -> None:
        self.epoch: object = None
        self.socket = _connected(server)
        self._pid = os.getpid()
        self._resp3 = server.resp3
        self._reader = _reader()
        self._poll = select.poll()
        self._poll.register(self.socket, select.POLLIN)

    def quiet(self) -> bool:
        """True if no bytes wait to be read, so that the server has not closed the connection."""
        return not self._poll.poll(0)

    def ask(self, commands: Sequence[Words]) -> list[Any]:
        """Send commands in one write; return their replies."""
        self.send(packed(commands))
        return self.receive(len(commands))

    def send(self, message: bytes) -> None:
        """Send packed commands. The next call must be `receive`, for their replies."""
        self.socket.sendall(message)

    def receive(self, count: int) -> list[Any]:
        """Return the next replies."""
        return [self._read() for _ in range(count)]

    def _read(self) -> Any:
        while True:
            reply = self._reader.gets()
            if reply is _INCOMPLETE:
                chunk = self.socket.recv(CHUNK)
                if not chunk:
                    raise ConnectionResetError("connection closed by the server")
                self._reader.feed(chunk)
            elif not isinstance(reply, _PUSH):
                return _plain(reply) if self._resp3 else reply

    def close(self) -> None:
        """Close the connection."""
        if self._pid == os.getpid():  # else it is open in the process that has forked
            with suppress(OSError):
                self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()

    def __del__(self) -> None:
        if hasattr(self, "_pid"):
            self.close()


def _connected(server: Server) -> socket.socket:
    opened: socket.socket
    if isinstance(server.address, str):
        opened = socket.socket(socket.AF_UNIX)
    else:
        opened = socket.create_connection(server.address, server.connect_timeout)
    try:
        if isinstance(server.address, str):
            opened.settimeout(server.connect_timeout)
            opened.connect(server.address)
        server.tune(opened)
        if (context := server.context()) is not None:
            opened = context.wrap_socket(opened, server_hostname=server.address[0])
        opened.settimeout(server.timeout)
    except BaseException:
        opened.close()
        raise
    return opened


def connect(opening: Opening) -> Connection:
    """Return a connection that takes commands.

    Raises:
        OSError: The server cannot be reached.
        Refused: It does not let this client in.
    """
    steps = opening.steps()
    connection: Connection | None = None
    try:
        step = next(steps)
        while True:
            try:
                if isinstance(step, Server):
                    if connection is not None:
                        connection.close()
                    reply, connection = None, Connection(step)
                else:
                    [reply] = cast(Connection, connection).ask([step])
            except LOST as error:
                step = steps.throw(_as_os_error(error))
            else:
                step = steps.send(reply)
    except StopIteration:
        return cast(Connection, connection)
    except BaseException:
        if connection is not None:
            connection.close()
        raise


def _as_os_error(error: Exception) -> OSError:
    return error if isinstance(error, OSError) else ConnectionAbortedError(str(error))


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
        server: Where the loop connects it to.
    """

    _transport: Any
    _poll: select.poll

    def __init__(self, server: Server) -> None:
        self._server = server
        self._timeout = server.timeout  # seconds without a byte after which replies are given up
        self._resp3 = server.resp3
        self._reader = _reader()
        self._calls: deque[_Call] = deque()
        self._unsent: list[bytes] = []
        self._heard = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._retired = False
        self.loop = asyncio.get_running_loop()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        opened = transport.get_extra_info("socket")
        self._server.tune(opened)
        self._poll = select.poll()
        self._poll.register(opened.fileno(), select.POLLIN)

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
        try:
            self._transport.abort()
        except RuntimeError:  # its loop is closed, and closes no socket any more
            self._transport.get_extra_info("socket")._sock.close()
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


async def connect_async(opening: Opening) -> AsyncConnection:
    """Return a connection that takes commands; see `connect`."""
    steps = opening.steps()
    connection: AsyncConnection | None = None
    try:
        step = next(steps)
        while True:
            try:
                if isinstance(step, Server):
                    if connection is not None:
                        connection.close()
                    reply, connection = None, await _connected_async(step)
                else:
                    [reply] = await cast(AsyncConnection, connection).ask([step])
            except LOST as error:
                step = steps.throw(_as_os_error(error))
            else:
                step = steps.send(reply)
    except StopIteration:
        return cast(AsyncConnection, connection)
    except BaseException:
        if connection is not None:
            connection.close()
        raise


async def _connected_async(server: Server) -> AsyncConnection:
    loop = asyncio.get_running_loop()
    address, tls = server.address, server.context()
    async with asyncio.timeout(server.connect_timeout):
        if isinstance(address, str):
            return (await loop.create_unix_connection(lambda: AsyncConnection(server), address))[1]
        return (await loop.create_connection(lambda: AsyncConnection(server), *address, ssl=tls))[1]
