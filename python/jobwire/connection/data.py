"""Where SPEC.md, schema/, lua/ and fixtures/ are, however jobwire was installed."""

from __future__ import annotations

from pathlib import Path

from jobwire.errors import JobwireError

__all__ = ["checkout", "path"]

_PACKAGE = Path(__file__).resolve().parents[1]
_PACKED = _PACKAGE / "_data"


def checkout() -> Path | None:
    """Return the top of the checkout that this runs from; None if it runs from a wheel."""
    return None if _PACKED.is_dir() else _PACKAGE.parents[1]


def path(name: str) -> Path:
    """Return the path of a data file or directory, such as `"lua"` or `"SPEC.md"`.

    A wheel carries them inside the package. An editable install runs from the checkout, as the
    checkout's own tests do, and there they are at the top, so that an edit counts at once.

    Raises:
        JobwireError: If it is not there, which only a damaged installation can cause.
    """
    found = (checkout() or _PACKED) / name
    if not found.exists():
        raise JobwireError(f"{found} is missing: install jobwire again, from a wheel or a checkout")
    return found
