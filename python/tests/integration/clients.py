"""One blocking interface to both clients, and a record of the commands that a server received."""

from __future__ import annotations

import asyncio
import json
import re
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeVar

from harness.servers import Server
from jobwire import AsyncClient, Client
from jobwire.protocol.keys import Keys
from jobwire.protocol.wire import Op, command

T = TypeVar("T")
Kind = Literal["sync", "async"]
KINDS: tuple[Kind, Kind] = ("sync", "async")


class Pusher(Protocol):
    """The methods of clients that the tests use; parameters as in `Client`."""

    def push(self, class_name: str, args: Sequence[Any] = (), **rest: Any) -> str | None: ...

    def push_in(
        self, when: Any, class_name: str, args: Sequence[Any] = (), **rest: Any
    ) -> str | None: ...

    def push_bulk(
        self, class_name: str, args_list: Sequence[Sequence[Any]], **rest: Any
    ) -> list[str | None]: ...

    def run(self, op: Op[T]) -> T: ...

    def disconnect(self) -> None: ...

    def breathe(self) -> None: ...

    def hurry(self, seconds: float) -> None: ...

    def close(self) -> None: ...


class SyncPusher(Client):
    def run(self, op: Op[T]) -> T:
        return self.redis.run(op)

    def disconnect(self) -> None:
        self.redis.close()

    def breathe(self) -> None:
        pass

    def hurry(self, seconds: float) -> None:
        """Open a connection that waits only so long for a reply; connecting may take longer."""
        self.run(echo("a connection to use"))
        (connection,) = self.redis._pool._idle
        connection.socket.settimeout(seconds)


class AsyncPusher:
    """An `AsyncClient` in an event loop of its own."""

    def __init__(self, url: str, **options: Any) -> None:
        self.loop = asyncio.new_event_loop()
        self.client = AsyncClient(url, **options)

    def push(self, *args: Any, **options: Any) -> str | None:
        return self.loop.run_until_complete(self.client.push(*args, **options))

    def push_in(self, *args: Any, **options: Any) -> str | None:
        return self.loop.run_until_complete(self.client.push_in(*args, **options))

    def push_bulk(self, *args: Any, **options: Any) -> list[str | None]:
        return self.loop.run_until_complete(self.client.push_bulk(*args, **options))

    def run(self, op: Op[T]) -> T:
        return self.loop.run_until_complete(self.client.redis.run(op))

    def disconnect(self) -> None:
        self.loop.run_until_complete(self.client.close())

    def breathe(self) -> None:
        """Let the event loop notice what has happened, as a loop that always runs does."""
        for _ in range(5):
            self.loop.run_until_complete(asyncio.sleep(0))

    def hurry(self, seconds: float) -> None:
        """Open a connection that waits only so long for a reply; connecting may take longer."""
        self.run(echo("a connection to use"))
        connection = self.client.redis._connection
        assert connection is not None
        assert connection._timer is not None
        connection._timer.cancel()  # it was set before, for longer
        connection._timer = None
        connection._timeout = seconds

    def close(self) -> None:
        self.disconnect()
        self.loop.close()


def connect(kind: Kind, url: str, **options: Any) -> Pusher:
    """Return a client of this kind."""
    # Client lists its options, which a protocol with **rest cannot express.
    client: Any = SyncPusher if kind == "sync" else AsyncPusher
    made: Pusher = client(url, **options)
    return made


Connect = Callable[..., Pusher]
"""`(url, **options)`: a client that is closed after the test."""


@contextmanager
def connecting(kind: Kind) -> Iterator[Connect]:
    """Yield a function that makes clients of this kind, and close them."""
    made: list[Pusher] = []

    def make(url: str, **options: Any) -> Pusher:
        made.append(connect(kind, url, **options))
        return made[-1]

    try:
        yield make
    finally:
        for pusher in made:
            pusher.close()


def echo(text: str) -> Op[bytes]:
    """Return the text as the server repeats it."""
    reply: bytes = yield command("ECHO", text)
    return reply


def register(server: Server, namespace: str, *versions: str | None) -> None:
    """Register processes as these versions of Sidekiq do; None stands for a missing version."""
    keys, client = Keys(namespace), server.client()
    for number, version in enumerate(versions):
        identity = f"host:{number}:0123456789ab"
        info = {"hostname": "host"} | ({} if version is None else {"version": version})
        client.sadd(keys.processes, identity)
        client.hset(keys.process(identity), "info", json.dumps(info))


@dataclass(frozen=True, slots=True)
class Heard:
    """One line of MONITOR: the words of a command, and whether a script called it."""

    words: tuple[bytes, ...]
    by_script: bool

    @property
    def name(self) -> str:
        return self.words[0].decode().upper()


LINE = re.compile(rb"\+[\d.]+ \[\d+ ([^\]]*)\] (.*)")
WORD = re.compile(rb'"((?:[^"\\]|\\.)*)"')
GREETINGS = {"CLIENT", "HELLO", "AUTH", "SELECT"}


@contextmanager
def listening(server: Server) -> Iterator[Callable[[], list[Heard]]]:
    """Yield a function that returns the commands since its last call, without greetings."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as monitor:
        reader = monitor.makefile("rb")
        monitor.sendall(b"MONITOR\r\n")
        assert reader.readline() == b"+OK\r\n"
        teller = server.client()

        def heard() -> list[Heard]:
            teller.echo("end of the recording")
            lines: list[Heard] = []
            while (line := parse(reader.readline())).words != (b"ECHO", b"end of the recording"):
                if line.name not in GREETINGS:
                    lines.append(line)
            return lines

        yield heard
        reader.close()


def parse(line: bytes) -> Heard:
    match = LINE.fullmatch(line.rstrip(b"\r\n"))
    assert match is not None, line
    words = tuple(
        word.decode("unicode_escape").encode("latin-1") for word in WORD.findall(match[2])
    )
    return Heard(words, by_script=match[1] == b"lua")


def everything(server: Server) -> dict[bytes, Any]:
    """Return the whole database: key to value, in Python's types."""
    client = server.client()
    read: dict[bytes, Callable[[bytes], Any]] = {
        b"string": client.get,
        b"list": lambda key: client.lrange(key, 0, -1),
        b"set": client.smembers,
        b"zset": lambda key: client.zrange(key, 0, -1, withscores=True),
        b"hash": client.hgetall,
    }
    keys: list[bytes] = client.keys()
    return {key: read[client.type(key)](key) for key in sorted(keys)}


def push_job(server: Server, class_name: str, *args: Any, **fields: Any) -> None:
    """Push a job to the default queue as another program would; `fields` are added last."""
    payload = {"class": class_name, "args": [*args], "jid": "ab" * 12, "queue": "default", **fields}
    server.client().lpush("queue:default", json.dumps(payload))


def scored(server: Server, key: str) -> list[tuple[dict[str, Any], float]]:
    """Return the payloads of a sorted set with their scores."""
    stored: Any = server.client().zrange(key, 0, -1, withscores=True)
    return [(json.loads(text), score) for text, score in stored]
