"""Wheels of the packages, built and unpacked for tests."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def built(sources: Path, target: Path) -> Path:
    """Build the wheel of a directory and unpack it."""
    # The installed build tool, without isolation: needs no network.
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", target],
        cwd=sources,
        check=True,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=300,
    )
    (wheel,) = target.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(target / "unpacked")
    return target / "unpacked"


def tree(root: Path, *names: str) -> dict[str, bytes]:
    """Return the files below `names`, without files that Python and editors leave behind."""
    files = (file for name in names for file in [root / name, *(root / name).rglob("*")])
    return {
        str(file.relative_to(root)): file.read_bytes()
        for file in files
        if file.is_file() and file.suffix != ".pyc"
    }


def project(directory: Path) -> dict[str, Any]:
    table: dict[str, Any] = tomllib.loads((directory / "pyproject.toml").read_text())["project"]
    return table


def check_index_page(unpacked: Path) -> None:
    """Check the page of the package index: outside the repository, links must be absolute."""
    (metadata,) = unpacked.glob("*.dist-info/METADATA")
    about = Parser().parsestr(metadata.read_text("utf-8"))
    links = [line.partition(", ")[2] for line in about.get_all("Project-URL", [])]
    assert len(links) == 4
    assert about["License-Expression"] == "MIT"
    assert about["Author"]
    assert about["Description-Content-Type"] == "text/markdown"
    links += re.findall(r"\]\(([^)]+)\)", str(about.get_payload()))
    assert len(links) > 5
    assert [link for link in links if not link.startswith(("https://", "#"))] == []
    ours = "https://github.com/jobwire/jobwire/blob/main/"
    for link in links:
        if link.startswith(ours):
            assert (ROOT / link.removeprefix(ours).partition("#")[0]).exists(), link
