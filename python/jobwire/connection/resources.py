"""Data files, in an installed wheel or a checkout, and the canonical scripts. [LUA-1] [LUA-3]"""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from jobwire.connection import resources
from jobwire.errors import JobwireError

if TYPE_CHECKING:
    from jobwire.protocol.wire import LuaScript

__all__ = ["path", "script"]

_PACKAGE = Path(__file__).resolve().parents[1]
_PACKED = _PACKAGE / "_data"


def path(name: str) -> Path:
    """Return the path of a data file or directory, such as `"lua"`.

    The wheel has the scripts, because workers need them. In a checkout, an editable install and the
    tests use the files of the top directory, so that an edit takes effect at once.

    Raises:
        JobwireError: The file is missing, because the installation is damaged.
    """
    file = (_PACKED if _PACKED.is_dir() else _PACKAGE.parents[1]) / name
    if not file.exists():
        raise JobwireError(f"{file} is missing: install jobwire again, from a wheel or a checkout")
    return file


@cache
def script(name: str) -> LuaScript:
    """Return `lua/<name>.lua` and the SHA-1 under which Redis knows it."""
    from jobwire.protocol.wire import LuaScript  # needs a library, and `path` needs none

    source = (resources.path("lua") / f"{name}.lua").read_bytes()
    return LuaScript(hashlib.sha1(source, usedforsecurity=False).hexdigest(), source)
