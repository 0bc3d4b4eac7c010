"""Commands that a Redis server receives while a block runs, as its MONITOR shows them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import redis

_ARGUMENT = re.compile(r'"((?:[^"\\]|\\.)*)"')
_ESCAPE = re.compile(r'\\(["\\])')
_GREETINGS = {"HELLO", "CLIENT", "SELECT"}


@contextmanager
def commands(client: redis.Redis) -> Iterator[list[list[str]]]:
    """Fill the list, when the block ends, with the commands of all clients: NAME, arguments.

    Commands that open a connection and commands of scripts are left out. MONITOR's escapes, except
    those of quotes and backslashes, stay as they are.
    """
    seen: list[list[str]] = []
    with client.monitor() as monitor:  # type: ignore[no-untyped-call]
        yield seen
        client.echo("commands: the end")
        while True:
            # redis-py's own parser cannot find the end of some arguments.
            line = monitor.connection.read_response().decode(errors="replace")
            arguments = [_ESCAPE.sub(r"\1", text) for text in _ARGUMENT.findall(line)]
            arguments[0] = arguments[0].upper()
            if arguments == ["ECHO", "commands: the end"]:
                return
            if arguments[0] not in _GREETINGS and not re.match(r"[\d.]+ \[\d+ lua\]", line):
                seen.append(arguments)
