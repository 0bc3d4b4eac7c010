"""Paths of data files, in an installed wheel or a checkout."""

from __future__ import annotations

from pathlib import Path

from jobwire.errors import JobwireError

__all__ = ["path"]

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
