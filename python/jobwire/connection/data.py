"""Paths of SPEC.md, schema/, lua/ and fixtures/, in installed wheels or a checkout."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from jobwire.errors import JobwireError

__all__ = ["checkout", "path"]

_PACKAGE = Path(__file__).resolve().parents[1]
_PACKED = _PACKAGE / "_data"


def checkout() -> Path | None:
    """Return the top directory of the checkout; None if this code runs from a wheel."""
    return None if _PACKED.is_dir() else _PACKAGE.parents[1]


def path(name: str) -> Path:
    """Return the path of a data file or directory, such as `"lua"` or `"SPEC.md"`.

    The wheel of jobwire has the scripts, because workers need them, and the wheel of the suite has
    all files. In a checkout they are in the top directory, and an editable install and the tests
    use them there, so that an edit takes effect at once.

    Raises:
        JobwireError: The file is missing, because the suite is not installed, or the installation
            is damaged.
    """
    top = checkout()
    if top is None:
        top = _PACKED if (_PACKED / name).exists() else _suite(name)
    file = top / name
    if not file.exists():
        raise JobwireError(f"{file} is missing: install jobwire again, from a wheel or a checkout")
    return file


def _suite(name: str) -> Path:
    """Return the directory of the suite's data."""
    found = find_spec("jobwire_conformance")
    if found is None or found.origin is None:
        raise JobwireError(
            f"{name} is not part of the base install: pip install 'jobwire[conformance]'"
        )
    return Path(found.origin).parent / "_data"
