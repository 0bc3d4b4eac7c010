"""The published versions of the specification: the git tags `spec-VERSION` of a checkout."""

from __future__ import annotations

import subprocess
from pathlib import Path

from jobwire_conformance.spec.document import PARTS, Document, read

__all__ = ["documents"]


def documents(root: Path) -> list[Document]:
    """Return the published versions that the text of a checkout comes from, the oldest first.

    There are none without git, as in an unpacked archive, and none in a clone without tags.
    """
    order = ("--merged", "HEAD", "--sort=creatordate")
    tags = (_git(root, "tag", "--list", "spec-*", *order) or "").split()
    found = []
    for tag in tags:
        texts = {part: _git(root, "show", f"{tag}:{part}") for part in PARTS}
        if there := {f"{tag}:{part}": text for part, text in texts.items() if text is not None}:
            found.append(read(there))
    return found


def _git(root: Path, *arguments: str) -> str | None:
    try:
        ended = subprocess.run(
            ["git", "-C", str(root), *arguments], capture_output=True, encoding="utf-8", check=False
        )
    except FileNotFoundError:  # there is no git
        return None
    return ended.stdout if ended.returncode == 0 else None
