"""The files that are made from the specification for the wheel of the suite, and for the sdist."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_REQUIREMENTS = "schema/requirements.json"
_INDEX = "traceability.json"


class SpecificationHook(BuildHookInterface):
    """Makes the files from the sources, before the wheel or the sdist is built."""

    _directory: TemporaryDirectory[str] | None = None  # two builds at a time share no file

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write the files, and have them packed with the specification."""
        if version == "editable":  # an editable install reads the files of its checkout
            return
        is_sdist = self.target_name == "sdist"
        root = Path(self.root) if is_sdist else Path(self.root).parent
        texts = {} if (root / _REQUIREMENTS).is_file() else {_REQUIREMENTS: _requirements(root)}
        if not is_sdist:
            texts[_INDEX] = _citations(root)
        self._directory = TemporaryDirectory()
        for name, text in texts.items():
            file = Path(self._directory.name) / Path(name).name
            file.write_text(text, "utf-8")
            place = name if is_sdist else f"jobwire_conformance/_data/{name}"
            build_data["force_include"][str(file)] = place

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the files, which are packed now."""
        if self._directory is not None:
            self._directory.cleanup()


def _requirements(root: Path) -> str:
    record, checks = _module(root, "record"), _module(root, "checks")
    text: str = record.render(record.of_checkout(root, checks.cases(root)))
    return text


def _citations(root: Path) -> str:
    citations, trace = _module(root, "citations"), _module(root, "trace")
    text: str = trace.index(citations.cited(root))
    return text


def _module(root: Path, name: str) -> ModuleType:
    """Return a module of `spec`. These need no package that a build does not have."""
    sys.path.insert(0, str(root / "conformance"))
    return importlib.import_module(f"jobwire_conformance.spec.{name}")
