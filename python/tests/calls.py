"""Calls of the standard library that tests hear about: new sockets, connections, processes.

An audit hook would hear them as well, but Python also calls it inside `sys.settrace`. A thread
that starts at this moment, while coverage is measured, then ends with an error (Python 3.11).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

__all__ = ["hear"]


def hear(owner: type, name: str, listener: Callable[..., object]) -> None:
    """Call `listener` with the arguments of each call of a method, before the method."""
    method = getattr(owner, name)

    @wraps(method)
    def heard(self: Any, *args: Any, **options: Any) -> Any:
        listener(self, *args, **options)
        return method(self, *args, **options)

    setattr(owner, name, heard)
