"""One sidekiq.yml: Sidekiq and jobwire read the same settings from it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest
import redis

from harness.servers import Server
from tests.interop.python_worker import worker_process
from tests.interop.sidekiq import RUBY, RealSidekiq
from tests.workers import jobwire

pytestmark = pytest.mark.interop

FILE = RUBY / "sidekiq.yml"


def shown(client: redis.Redis, identity: str) -> dict[str, Any]:
    """Return the settings that a process publishes."""
    info = json.loads(cast("bytes", client.hget(identity, "info")))
    capsules = info.get("capsules", {}).values()
    return {
        "tag": info["tag"],
        "labels": info["labels"],
        "weights": info.get("weights"),
        "concurrency": info.get("concurrency") or sum(each["concurrency"] for each in capsules),
        "queues": sorted(set(info["queues"])),
    }


@pytest.mark.parametrize(
    ("environment", "tag", "labels"),
    [
        ("development", "shop", ["blue", "eu"]),
        ("staging", "staged", ["green"]),
        ("strict", "shop", ["blue", "eu"]),
    ],
)
def test_the_same_file_means_the_same(
    sidekiq: RealSidekiq,
    client: redis.Redis,
    server: Server,
    environment: str,
    tag: str,
    labels: list[str],
) -> None:
    """FETCH-4, BEAT-4: symbols, ERB, aliases, sections, capsules. Sidekiq 6 has no capsules."""
    options = ["-e", environment, "-c", "2"]
    with sidekiq.worker(queues=(), concurrency=2, options=[*options, "-C", FILE.name]) as worker:
        theirs = shown(client, worker.identity)
    with worker_process(server.url, *options, "-C", str(FILE)) as python:
        ours = shown(client, python.identity)
    assert (ours["tag"], ours["labels"]) == (tag, labels)
    assert ours["concurrency"] == 4
    assert ours["weights"][1] == {"mailers": 1, "newsletter": 4}
    if sidekiq.generation >= 7:
        assert ours == theirs
        assert list(ours["weights"][0]) == list(theirs["weights"][0])
    else:
        assert theirs["queues"] == sorted(ours["weights"][0])
        assert (theirs["tag"], theirs["labels"]) == (tag, labels)


def test_a_written_list_of_queues(
    sidekiq: RealSidekiq, client: redis.Redis, server: Server, tmp_path: Path
) -> None:
    """FETCH-4: both serve the queues of an application, none of which waits for the others."""
    names = ["low", "Grüße: 1", "7", "no", ":sym", "default"]
    (tmp_path / "shop.py").write_text(
        "import jobwire\napp = jobwire.App()\n"
        f"for at, name in enumerate({names}):\n"
        "    app.job(lambda: None, name=f'Job{at}', queue=name)\n"
    )
    path = RUBY / f"queues-{sidekiq.version}.yml"  # where Sidekiq can read it
    try:
        ended = jobwire("queues", "shop:app", "--write", str(path), cwd=tmp_path)
        assert ended.returncode == 0, ended.stderr
        with sidekiq.worker(queues=(), options=["-C", path.name]) as worker:
            theirs = shown(client, worker.identity)
        with worker_process(server.url, "-C", str(path)) as python:
            ours = shown(client, python.identity)
    finally:
        path.unlink(missing_ok=True)
    assert theirs["queues"] == ours["queues"] == sorted(names)
    for weights in (ours["weights"], theirs["weights"] or ours["weights"]):
        assert set(weights[0].values()) == {1}
