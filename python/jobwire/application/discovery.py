"""Search for the modules of a package that define jobs."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path

from jobwire.errors import ConfigError

__all__ = ["find_modules"]


def find_modules(package: str, name: str) -> list[str]:
    """Return the modules called `name` in a package and its subpackages, as dotted names.

    Of a package that is called `name`, these are all its own modules. The package is not imported,
    and a subpackage needs no `__init__.py`.

    Raises:
        ConfigError: There is no such package.
    """
    try:
        spec = importlib.util.find_spec(package)
    except ModuleNotFoundError:  # for a part of the dotted name
        spec = None
    if spec is None:
        raise ConfigError(f"autodiscover: no package {package!r} on the import path")
    if spec.submodule_search_locations is None:
        raise ConfigError(
            f"autodiscover: {package!r} is a module, not a package; write imports=[{package!r}]"
        )
    found = (
        ".".join((package, *parts))
        for place in spec.submodule_search_locations
        for parts in _walk(Path(place), name)
    )
    return list(dict.fromkeys(found))


def _walk(place: Path, name: str) -> Iterator[tuple[str, ...]]:
    """Yield the parts of each module's name, below the package."""
    for directory, subdirectories, files in os.walk(place):
        subdirectories[:] = sorted(part for part in subdirectories if part.isidentifier())
        parts = Path(directory).relative_to(place).parts
        in_package = parts[-1:] == (name,)
        for file in sorted(files):
            stem, suffix = os.path.splitext(file)
            if suffix != ".py":
                continue
            if stem == "__init__" and in_package:
                yield parts
            elif stem == name or (in_package and stem.isidentifier() and stem != "__main__"):
                yield (*parts, stem)
