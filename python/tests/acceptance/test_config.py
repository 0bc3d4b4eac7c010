"""Settings from files, from the view of a user: `jobwire config`, and `jobwire worker` alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.servers import Reaper, Server, wait_until
from jobwire.settings import SETTINGS
from tests.workers import Workers, jobwire

TOML = """\
app = "shop:app"
redis = "redis://me:${SHOP_PASSWORD:-secret}@somewhere/0"
queues = ["critical,3", "low"]
concurrency = 2
tag = "[red]shop"

[capsules.mail]
queues = ["mail"]
concurrency = 1

[production]
concurrency = 20
"""


SHOP = """
import jobwire

app = jobwire.App()

@app.job(queue="reports")
def report():
    pass
"""


@pytest.fixture
def workers(_reaper: Reaper, tmp_path: Path) -> Iterator[Workers]:
    with Workers(_reaper, tmp_path) as running:
        yield running


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    (tmp_path / "jobwire.toml").write_text(TOML)
    (tmp_path / "shop.py").write_text(SHOP)
    return tmp_path


def lines(text: str) -> dict[str, list[str]]:
    """Return the words of a table, by setting."""
    rows = (line.split() for line in text.splitlines())
    return {name: words for name, *words in rows}


def test_config_says_what_counts_and_why(shop: Path) -> None:
    """SEC-2: and passwords are hidden."""
    ended = jobwire("config", "-t", "4", cwd=shop, APP_ENV="production", JOBWIRE_LABELS="a b")
    assert (ended.returncode, ended.stderr) == (0, "")
    shown = lines(ended.stdout)
    assert [*SETTINGS] == [name for name in shown if name in SETTINGS]
    for name, words in {
        "environment": "production APP_ENV",
        "file": "jobwire.toml found in the working directory",
        "app": "shop:app jobwire.toml:1",
        "redis": "redis://me:***@somewhere/0 jobwire.toml:2",
        "queues": "critical,3 low jobwire.toml:3",
        "concurrency": "20 jobwire.toml:12 [production]",
        "capsules": "mail=1 mail jobwire.toml:7",
        "tag": "[red]shop jobwire.toml:5",
        "labels": "a b JOBWIRE_LABELS",
        "timeout": "4 --timeout",
        "poll_interval": "by fleet size default",
    }.items():
        assert " ".join(shown[name]) == words


def test_config_as_json(shop: Path) -> None:
    """SEC-2: for programs, with values as JSON types."""
    ended = jobwire("config", "--json", cwd=shop)
    assert (ended.returncode, ended.stderr) == (0, "")
    found = json.loads(ended.stdout)
    assert found["file"]["value"] == "jobwire.toml"
    settings = found["settings"]
    assert [*settings] == [*SETTINGS]
    assert settings["concurrency"] == {"value": 2, "source": "jobwire.toml:4"}
    assert settings["capsules"]["value"] == {"mail": {"queues": {"mail": 0}, "concurrency": 1}}
    assert settings["queues"]["value"] == {"critical": 3, "low": 0}
    assert settings["poll_interval"] == {"value": None, "source": "default"}
    assert "secret" not in ended.stdout


@pytest.mark.parametrize(
    ("arguments", "environ", "status", "words"),
    [
        (["-c", "0"], {}, 2, "--concurrency: concurrency: 0 is less than 1"),
        ([], {"JOBWIRE_TIMEOUT": "soon"}, 2, "JOBWIRE_TIMEOUT: timeout: 'soon'"),
        (["--redis", "http://x"], {}, 2, "must begin with redis://"),
        (["-C", "gone.yml"], {}, 2, "gone.yml: cannot be read: No such file"),
        (["-C", "typo.yml"], {}, 2, "typo.yml:1: concurency: no such setting; did you mean conc"),
        (["-C", "jobwire.toml", "shop:nope"], {}, 3, "'shop' has no 'nope'"),
    ],
)
def test_what_the_worker_refuses_config_refuses(
    shop: Path, arguments: list[str], environ: dict[str, str], status: int, words: str
) -> None:
    """Both print the same single line and end with the same status."""
    (shop / "typo.yml").write_text("concurency: 5\n")
    for command in ("config", "worker"):
        ended = jobwire(command, *arguments, cwd=shop, **environ)
        assert ended.returncode == status, ended.stderr
        assert ended.stdout == ""
        line = ended.stderr.splitlines()[-1]
        assert line.startswith("jobwire: ")
        assert words in line


def test_a_worker_needs_no_arguments(server: Server, workers: Workers, tmp_path: Path) -> None:
    """BEAT-4, EXEC-1: application, Redis and queues from sidekiq.yml, as its process shows."""
    (tmp_path / "sidekiq.yml").write_text(
        f"app: tests.apps.recording:app\nredis: {server.url}\n"
        ":queues:\n  - [critical, 3]\n  - default\n:concurrency: <%= ENV['ABSENT'] || 3 %>\n"
        ":require: ./app.rb\nstaging:\n  :tag: shop\n  :labels: [slow]\n"
        ":capsules:\n  :mail:\n    :queues: [mail]\n    :concurrency: 1\n"
    )
    worker = workers.start("--config=sidekiq.yml", "-e", "staging")
    client = server.client()
    identity = worker.identity(client)
    text: Any = client.hget(identity, "info")
    info = json.loads(text)
    assert (info["tag"], info["labels"]) == ("shop", ["slow"])
    assert {name: capsule["weights"] for name, capsule in info["capsules"].items()} == {
        "default": {"critical": 3, "default": 0},
        "mail": {"mail": 0},
    }
    assert [capsule["concurrency"] for capsule in info["capsules"].values()] == [3, 1]
    wait_until(lambda: worker.logged("(from sidekiq.yml:2)"))
    assert worker.logged("sidekiq.yml:7: require has no meaning for jobwire; ignored")
    ended = jobwire("enqueue", "Note", "1", "-q", "critical", REDIS_URL=server.url)
    assert ended.returncode == 0, ended.stderr
    wait_until(lambda: client.llen("test:ran") == 1, timeout=60)
