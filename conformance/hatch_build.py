"""The index of citations of the specification, which is made for a wheel."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_INDEX = "traceability.json"


class CitationsHook(BuildHookInterface):
    """Makes the index from the sources, before the wheel is built."""

    _directory: TemporaryDirectory[str] | None = None  # two builds at a time share no file

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write the index to a file, and have it packed with the specification."""
        if version == "editable":  # an editable install reads the files of its checkout
            return
        self._directory = TemporaryDirectory()
        index = Path(self._directory.name) / _INDEX
        index.write_text(_citations(Path(self.root).parent), "utf-8")
        build_data["force_include"][str(index)] = f"jobwire_conformance/_data/{_INDEX}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the file, which is in the wheel now."""
        if self._directory is not None:
            self._directory.cleanup()


def _citations(root: Path) -> str:
    """Return the index. These modules need no package that a build does not have."""
    sys.path.insert(0, str(root / "conformance"))
    citations = importlib.import_module("jobwire_conformance.spec.citations")
    trace = importlib.import_module("jobwire_conformance.spec.trace")
    text: str = trace.index(citations.cited(root))
    return text
