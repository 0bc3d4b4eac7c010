"""Change the version of the specification everywhere: `python -m tools.version 1.0.0-rc.1`.

Run `make conformance ARGS=--set` afterwards: the set of checks and the summaries name the version.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from jobwire_conformance.spec import document, registry

ROOT = Path(__file__).resolve().parents[1]
VERSION = re.compile(r"\d+\.\d+(?:\.\d+)?(?:-(?:draft|rc)\.\d+)?")


def main(arguments: list[str], root: Path = ROOT) -> int:
    """Write the files of the new version; return the exit status."""
    parser = argparse.ArgumentParser(prog="version", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("version", help="the new version, like 1.0.0-rc.1")
    new = parser.parse_args(arguments).version
    if VERSION.fullmatch(new) is None:
        parser.error(f"{new} is not a version such as 1.0.0, 1.0.0-rc.1 or 1.1-draft.0")
    old = document.read_checkout(root).version
    if old is None or old == new:
        parser.error(f"SPEC.md has the version {old}")
    for path, before, after in places(root, old, new):
        text = path.read_text("utf-8")
        if before not in text:
            parser.error(f"{path} does not contain {before!r}")
        path.write_text(text.replace(before, after), "utf-8")
    data = document.read_checkout(root)
    (root / "schema" / "registry.json").write_text(registry.render(registry.build(data)), "utf-8")
    sys.stderr.write(f"version: {old} is now {new}; next: make conformance ARGS=--set\n")
    return 0


def places(root: Path, old: str, new: str) -> Iterator[tuple[Path, str, str]]:
    """Yield file, text and new text of each place that names the version."""
    yield root / "SPEC.md", f"Version **{old}**", f"Version **{new}**"
    yield root / "schema" / "README.md", f"version {old}", f"version {new}"
    for path in sorted((root / "schema").glob("*.json")):
        if f"urn:jobwire:schema:{old}:" in path.read_text("utf-8"):
            yield path, f"urn:jobwire:schema:{old}:", f"urn:jobwire:schema:{new}:"


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
