"""jobwire.connection.resources: files are found from a checkout and from a wheel."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobwire.connection import resources
from jobwire.errors import JobwireError

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("name", ["SPEC.md", "schema", "lua", "fixtures"])
def test_a_checkout_uses_its_own_files(name: str) -> None:
    assert resources.path(name) == ROOT / name


def test_a_wheel_uses_the_files_packed_into_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "_data" / "lua").mkdir(parents=True)
    monkeypatch.setattr(resources, "_PACKED", tmp_path / "_data")
    assert resources.path("lua") == tmp_path / "_data" / "lua"


def test_a_missing_file_is_named() -> None:
    with pytest.raises(JobwireError, match=r"nonsense\.lua is missing: install jobwire again"):
        resources.path("lua/nonsense.lua")
