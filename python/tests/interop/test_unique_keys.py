"""Programs in other languages find the keys of unique jobs that the vectors state. [X-UNIQ-1]"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
VECTORS = ROOT / "fixtures" / "vectors" / "unique-keys.json"


@pytest.mark.parametrize("command", ["node key.js", "go run key.go", "cargo run --quiet"])
def test_keys_in_another_language(command: str, tmp_path: Path) -> None:
    words = command.split()
    if shutil.which(words[0]) is None:
        pytest.skip(f"needs {words[0]}")
    shutil.copytree(ROOT / "examples" / "unique-keys", tmp_path, dirs_exist_ok=True)
    with VECTORS.open("rb") as vectors:
        output = subprocess.run(
            words,
            stdin=vectors,
            cwd=tmp_path,
            env={**os.environ, "CARGO_TARGET_DIR": str(tmp_path / "target")},
            check=True,
            capture_output=True,
            text=True,
            timeout=300,
        ).stdout
    assert output.split() == [vector["digest"] for vector in json.loads(VECTORS.read_bytes())]
