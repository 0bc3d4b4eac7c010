"""The wheel carries SPEC.md, schema/, lua/ and fixtures/, byte for byte, and finds them."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from jobwire.spec.citations import cited

ROOT = Path(__file__).resolve().parents[3]
DATA = ["SPEC.md", "schema", "lua", "fixtures"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("wheel")
    # The installed build tool, without isolation: needs no network.
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", target],
        cwd=ROOT,
        check=True,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
    )
    (built,) = target.glob("jobwire-*.whl")
    return built


@pytest.fixture(scope="module")
def unpacked(wheel: Path) -> Path:
    target = wheel.parent / "unpacked"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(target)
    return target


def tree(root: Path, *names: str) -> dict[str, bytes]:
    """Return the files below `names`, without files that Python and editors leave behind."""
    files = (file for name in names for file in [root / name, *(root / name).rglob("*")])
    return {
        str(file.relative_to(root)): file.read_bytes()
        for file in files
        if file.is_file() and file.suffix != ".pyc"
    }


@pytest.mark.parametrize("name", DATA)
def test_data_is_the_checkouts_byte_for_byte(unpacked: Path, name: str) -> None:
    packed = tree(unpacked / "jobwire" / "_data", name)
    assert packed, f"{name} is not in the wheel"
    assert packed == tree(ROOT, name)


def test_the_package_is_complete_and_nothing_else_is_packed(unpacked: Path) -> None:
    packed = tree(unpacked, "jobwire")
    code = {name: text for name, text in packed.items() if not name.startswith("jobwire/_data/")}
    assert code == tree(ROOT / "python", "jobwire")
    assert "jobwire/py.typed" in code
    suite = tree(unpacked, "jobwire_conformance")
    code = {name: text for name, text in suite.items() if "/_data/" not in name}
    assert code == tree(ROOT / "conformance", "jobwire_conformance")
    for name in ("cases", "mutants", "drivers"):
        assert tree(unpacked / "jobwire_conformance" / "_data", name) == tree(
            ROOT / "conformance", name
        )
    assert "jobwire_conformance/py.typed" in suite
    tops = {entry.name for entry in unpacked.iterdir()}
    assert tops == {"jobwire", "jobwire_conformance", f"jobwire-{version(unpacked)}.dist-info"}
    tops = {entry.name for entry in (unpacked / "jobwire" / "_data").iterdir()}
    assert tops == {*DATA, "traceability.json"}


def test_the_wheel_knows_what_cites_a_requirement(unpacked: Path) -> None:
    index = json.loads((unpacked / "jobwire" / "_data" / "traceability.json").read_text("utf-8"))
    assert index == cited(ROOT)
    assert index["RETRY-4"]["code"]


def test_an_installed_wheel_finds_its_own_data(unpacked: Path) -> None:
    program = "import sys; sys.path.insert(0, sys.argv[1]); from jobwire.connection import data\n"
    program += "print(*map(data.path, sys.argv[2:]), sep='\\n')"
    found = subprocess.run(
        [sys.executable, "-I", "-c", program, unpacked, *DATA],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert found.stdout.splitlines() == [str(unpacked / "jobwire" / "_data" / n) for n in DATA]


def version(unpacked: Path) -> str:
    (info,) = unpacked.glob("jobwire-*.dist-info")
    return info.name.removeprefix("jobwire-").removesuffix(".dist-info")
