"""The two wheels: each carries its own files, byte for byte, and finds them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path
from typing import Any

import pytest

import jobwire
import jobwire_conformance
from jobwire_conformance.spec import checks, record
from jobwire_conformance.spec.citations import cited

ROOT = Path(__file__).resolve().parents[3]
SHARED = ["SPEC.md", "schema", "lua", "fixtures"]
OWN = ["cases", "mutants", "drivers", "sets"]


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


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the content of the wheel that `pip install jobwire` installs."""
    return built(ROOT, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the content of the wheel of `jobwire[conformance]`."""
    return built(ROOT / "conformance", tmp_path_factory.mktemp("wheel"))


def tree(root: Path, *names: str) -> dict[str, bytes]:
    """Return the files below `names`, without files that Python and editors leave behind."""
    files = (file for name in names for file in [root / name, *(root / name).rglob("*")])
    return {
        str(file.relative_to(root)): file.read_bytes()
        for file in files
        if file.is_file() and file.suffix != ".pyc"
    }


def test_the_package_has_its_code_and_the_scripts(package: Path) -> None:
    packed = tree(package, "jobwire")
    code = {name: text for name, text in packed.items() if not name.startswith("jobwire/_data/")}
    assert code == tree(ROOT / "python", "jobwire")
    assert "jobwire/py.typed" in code
    assert not [name for name, text in code.items() if b"jobwire_conformance" in text]
    assert tree(package / "jobwire" / "_data", ".") == tree(ROOT, "lua")
    tops = {entry.name for entry in package.iterdir()}
    assert tops == {"jobwire", f"jobwire-{jobwire.__version__}.dist-info"}


def test_the_suite_has_everything_else(suite: Path) -> None:
    packed = tree(suite, "jobwire_conformance")
    code = {name: text for name, text in packed.items() if "/_data/" not in name}
    assert code.pop("jobwire_conformance/LICENSE") == (ROOT / "LICENSE").read_bytes()
    assert code == tree(ROOT / "conformance", "jobwire_conformance")
    assert "jobwire_conformance/py.typed" in code
    data = suite / "jobwire_conformance" / "_data"
    specification = tree(data, *SHARED)
    made = record.render(record.of_checkout(ROOT, checks.cases(ROOT)))
    assert specification.pop("schema/requirements.json") == made.encode()
    assert specification == tree(ROOT, *SHARED)
    for name in OWN:
        assert tree(data, name), name
        assert tree(data, name) == tree(ROOT / "conformance", name)
    assert {entry.name for entry in data.iterdir()} == {*SHARED, *OWN, "traceability.json"}
    index = json.loads((data / "traceability.json").read_text("utf-8"))
    assert index == cited(ROOT)
    assert index["RETRY-4"]["code"]
    version = jobwire_conformance.__version__
    tops = {entry.name for entry in suite.iterdir()}
    assert tops == {"jobwire_conformance", f"jobwire_conformance-{version}.dist-info"}


def test_installed_wheels_find_their_data(package: Path, suite: Path) -> None:
    """Also if they are in different directories."""
    program = "import sys; sys.path[:0] = sys.argv[1].split()\n"
    program += "from jobwire.connection.resources import path\n"
    program += "from jobwire_conformance.data import shared_file\n"
    program += "print(path('lua'), *map(shared_file, sys.argv[2:]), sep='\\n')"
    # Without `.pth` files, which would find the checkout.
    lines = subprocess.run(
        [sys.executable, "-S", "-c", program, f"{package} {suite}", *SHARED],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    ).stdout.splitlines()
    data = suite / "jobwire_conformance" / "_data"
    assert lines == [str(package / "jobwire/_data/lua"), *(str(data / name) for name in SHARED)]


def project(directory: Path) -> dict[str, Any]:
    table: dict[str, Any] = tomllib.loads((directory / "pyproject.toml").read_text())["project"]
    return table


def test_versions_and_limits_agree() -> None:
    """The suite and the command come together, with the same lower limits."""
    package, suite = project(ROOT), project(ROOT / "conformance")
    assert package["version"] == suite["version"] == jobwire.__version__
    assert jobwire_conformance.__version__ == jobwire.__version__
    extras = package["optional-dependencies"]
    found = re.fullmatch(r"(\d+)\.(\d+)\..+", jobwire.__version__)
    assert found is not None
    limits = f">={found[1]}.{found[2]},<{found[1]}.{int(found[2]) + 1}"
    assert extras["conformance"] == [f"jobwire-conformance{limits}"]
    assert not [line for line in suite["dependencies"] if line.startswith("jobwire")]
    shared = {*package["dependencies"], *extras["cli"]}
    names = {line.partition(">")[0] for line in shared} & {"click", "hiredis", "redis", "rich"}
    assert {line for line in shared if line.partition(">")[0] in names} <= {*suite["dependencies"]}


def test_the_base_install_is_small() -> None:
    names = {line.partition(">")[0] for line in project(ROOT)["dependencies"]}
    assert names == {"click", "hiredis", "msgspec", "redis"}
    locked = (ROOT / ".ci" / "requirements" / "run.txt").read_text("utf-8")
    pins = re.findall(r"^([\w-]+)==\S+(?! ; python_full_version) --hash", locked, re.MULTILINE)
    assert set(pins) == names


@pytest.mark.parametrize("name", ["package", "suite"])
def test_the_page_of_the_package_index(name: str, request: pytest.FixtureRequest) -> None:
    """Its links are absolute, because the page is not in the repository."""
    (metadata,) = request.getfixturevalue(name).glob("*.dist-info/METADATA")
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
