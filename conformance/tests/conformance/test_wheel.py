"""The wheel of the suite carries its own files, byte for byte, and both wheels find them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import jobwire
import jobwire_conformance
from jobwire_conformance.spec import checks, record
from jobwire_conformance.spec.citations import cited
from tests.wheels import ROOT, built, check_index_page, project, tree

pytestmark = pytest.mark.process

SHARED = ["SPEC.md", "spec", "schema", "lua", "fixtures"]
OWN = ["cases", "mutants", "drivers", "sets"]


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the content of the wheel that `pip install jobwire` installs."""
    return built(ROOT, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the content of the wheel of `jobwire[conformance]`."""
    return built(ROOT / "conformance", tmp_path_factory.mktemp("wheel"))


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
    names = {line.partition(">")[0] for line in shared} & {"click", "hiredis", "rich"}
    assert {line for line in shared if line.partition(">")[0] in names} <= {*suite["dependencies"]}


def test_the_page_of_the_package_index(suite: Path) -> None:
    check_index_page(suite)
