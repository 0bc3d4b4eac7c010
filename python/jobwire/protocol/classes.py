"""The classes that each process can run, which it announces for other workers. [X-CLASS]"""

from __future__ import annotations

from collections.abc import Collection

from jobwire.protocol.keys import Keys
from jobwire.protocol.wire import Command, command

__all__ = ["announce"]


def announce(keys: Keys, identity: str, names: Collection[str], seconds: int) -> list[Command]:
    """Return the part of a beat that announces classes; without any, it withdraws them.

    [X-CLASS-1] [X-CLASS-2]

    `seconds` is the time for which one beat keeps them.
    """
    key = keys.classes(identity)
    if not names:
        return [command("UNLINK", key)]
    return [command("SADD", key, *names), command("EXPIRE", key, seconds)]
