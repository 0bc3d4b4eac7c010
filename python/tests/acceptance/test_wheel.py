"""The wheel of the library carries its own files, byte for byte."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import jobwire
from tests.wheels import ROOT, built, check_index_page, project, tree


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the content of the wheel that `pip install jobwire` installs."""
    return built(ROOT, tmp_path_factory.mktemp("wheel"))


def test_the_package_has_its_code_and_the_scripts(package: Path) -> None:
    packed = tree(package, "jobwire")
    code = {name: text for name, text in packed.items() if not name.startswith("jobwire/_data/")}
    assert code == tree(ROOT / "python", "jobwire")
    assert "jobwire/py.typed" in code
    assert not [name for name, text in code.items() if b"jobwire_conformance" in text]
    assert tree(package / "jobwire" / "_data", ".") == tree(ROOT, "lua")
    tops = {entry.name for entry in package.iterdir()}
    assert tops == {"jobwire", f"jobwire-{jobwire.__version__}.dist-info"}


def test_the_base_install_is_small() -> None:
    names = {line.partition(">")[0] for line in project(ROOT)["dependencies"]}
    assert names == {"click", "hiredis", "msgspec"}
    locked = (ROOT / ".ci" / "requirements" / "run.txt").read_text("utf-8")
    pins = re.findall(r"^([\w-]+)==\S+(?! ; python_full_version) --hash", locked, re.MULTILINE)
    assert set(pins) == names


def test_the_page_of_the_package_index(package: Path) -> None:
    check_index_page(package)
