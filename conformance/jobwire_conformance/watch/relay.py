"""The process that forwards the traffic. Another process judges it.

Therefore the judge does not slow the application down. The relay forwards a command, then writes
it to a pipe. It ends together with the process that started it, which closes its standard input.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import struct
import sys
import time
from collections.abc import Iterator
from typing import IO, NamedTuple

from jobwire_conformance.judge.record import Record, decoded
from jobwire_conformance.wire.call import Call
from jobwire_conformance.wire.proxy import Proxy

__all__ = ["Message", "main", "messages"]

_HEADER = struct.Struct("!I")


class Message(NamedTuple):
    """One message of a relay: its port, the reason why it has none, or a command."""

    port: int = 0
    failure: str = ""
    record: Record | None = None


def messages(stream: IO[bytes]) -> Iterator[Message]:
    """Yield the messages of a relay until it ends."""
    while len(header := stream.read(_HEADER.size)) == _HEADER.size:
        (length,) = _HEADER.unpack(header)
        body = stream.read(length)
        if len(body) < length:
            return
        kind, *values = pickle.loads(body)
        if kind == "port":
            yield Message(port=values[0])
        elif kind == "failure":
            yield Message(failure=values[0])
        else:
            sequence, connection, words, at, seconds, answer = values
            yield Message(
                record=Record(
                    sequence,
                    connection,
                    words,
                    at,
                    decoded(answer),
                    seconds,
                    answered=answer is not None,
                )
            )


def main() -> None:
    """Run a relay. Its arguments are host and port of the server, and the port to listen on."""
    host, port, own_port = sys.argv[-3:]
    asyncio.run(_relay(host, int(port), int(own_port)))


async def _relay(host: str, port: int, own_port: int) -> None:
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()

    def read_input() -> None:
        if not os.read(0, 4096):
            ended.set()

    loop.add_reader(0, read_input)
    out, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, os.fdopen(1, "wb", 0))
    offset = time.time() - time.monotonic()

    def tell(*message: object) -> None:
        body = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        out.write(_HEADER.pack(len(body)) + body)

    def over(call: Call) -> None:
        end = time.monotonic() if call.answered is None else call.answered
        seconds = end - call.at
        words = [*call.words]
        tell("call", call.sequence, call.connection, words, end + offset, seconds, call.reply)

    proxy = Proxy(loop, host, port, keep=0, own_port=own_port, observe=over)
    try:
        await proxy.listen()
    except OSError as error:
        tell("failure", f"cannot listen on port {own_port}: {error.strerror or error}")
        out.close()
        return
    tell("port", proxy.port)
    await ended.wait()
    await proxy.stop()
    await asyncio.sleep(0)  # report the calls that were given up just now
    out.close()
    while out.get_write_buffer_size():
        await asyncio.sleep(0.005)


if __name__ == "__main__":
    main()
