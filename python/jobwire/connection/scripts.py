"""The canonical Lua scripts, read once from `lua/`; none decodes a payload. [LUA-1] [LUA-3]"""

from __future__ import annotations

import hashlib
from functools import cache

from jobwire.connection import resources
from jobwire.protocol.wire import LuaScript

__all__ = ["script"]


@cache
def script(name: str) -> LuaScript:
    """Return `lua/<name>.lua` and the SHA-1 under which Redis knows it."""
    source = (resources.path("lua") / f"{name}.lua").read_bytes()
    return LuaScript(hashlib.sha1(source, usedforsecurity=False).hexdigest(), source)
