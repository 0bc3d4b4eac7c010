"""Paths of SPEC.md, schema/, lua/ and fixtures/, in a wheel or a checkout."""

from __future__ import annotations

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

    A wheel has these files inside the package. In a checkout they are in the top directory, and an
    editable install and the tests use them there, so that an edit takes effect at once.

    Raises:
        JobwireError: The file is missing, because the installation is damaged.
    """
    file = (checkout() or _PACKED) / name
    if not file.exists():
        raise JobwireError(f"{file} is missing: install jobwire again, from a wheel or a checkout")
    return file
