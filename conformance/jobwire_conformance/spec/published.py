"""Earlier versions of the specification in git: the tags `spec-VERSION`, and single commits."""

from __future__ import annotations

import subprocess
from pathlib import Path

from jobwire_conformance.spec.document import PARTS, Document, read

__all__ = ["documents", "grep", "show"]


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


def show(root: Path, revision: str, path: str) -> str | None:
    """Return a file of a commit; None without git, the commit or the file."""
    return _git(root, "show", f"{revision}:{path}")


def grep(root: Path, revision: str, text: str, directory: str) -> str:
    """Return the lines of a directory of a commit that hold a text."""
    return _git(root, "grep", "-h", "-F", "-e", text, revision, "--", directory) or ""


def _git(root: Path, *arguments: str) -> str | None:
    try:
        ended = subprocess.run(
            ["git", "-C", str(root), *arguments], capture_output=True, encoding="utf-8", check=False
        )
    except FileNotFoundError:  # there is no git
        return None
    return ended.stdout if ended.returncode == 0 else None
