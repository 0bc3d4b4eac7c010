"""The published versions of the specification: the git tags `spec-VERSION` of a checkout."""

from __future__ import annotations

import subprocess
from pathlib import Path

from jobwire_conformance.spec.document import Document, read

__all__ = ["documents"]


def documents(root: Path) -> list[Document]:
    """Return the published versions that the text of a checkout comes from, the oldest first.

    There are none without git, as in an unpacked archive, and none in a clone without tags.
    """
    order = ("--merged", "HEAD", "--sort=creatordate")
    tags = (_git(root, "tag", "--list", "spec-*", *order) or "").split()
    texts = [_git(root, "show", f"{tag}:SPEC.md") for tag in tags]
    return [read(text, tag) for tag, text in zip(tags, texts, strict=True) if text is not None]


def _git(root: Path, *arguments: str) -> str | None:
    try:
        ended = subprocess.run(
            ["git", "-C", str(root), *arguments], capture_output=True, encoding="utf-8", check=False
        )
    except FileNotFoundError:  # there is no git
        return None
    return ended.stdout if ended.returncode == 0 else None
