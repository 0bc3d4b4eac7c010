"""`jobwire periodic` from the view of a user."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from harness.servers import Server
from tests.acceptance.test_cli_inspect import command

SCHEDULE = """\
nightly:
  cron: "0 3 * * * Europe/Berlin"
  class: Nightly
  args: [1]
weekly: {cron: "@weekly UTC", class: Weekly, queue: low}
"""
APP = """\
from jobwire import App

app = App(schedule="shop")


@app.periodic("0 * * * *", name="hourly", catch_up="last")
@app.job(name="Hourly")
def hourly() -> None: ...
"""


def run(server: Server, *words: str, status: int = 0) -> tuple[str, str]:
    """Return the output of the command and its messages."""
    ended = command(server, "periodic", *words, status=status)
    return ended.stdout, ended.stderr


def records(server: Server, *words: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run(server, *words, "--json")[0].splitlines()]


@pytest.fixture
def schedule(tmp_path: Path) -> str:
    (tmp_path / "schedule.yml").write_text(SCHEDULE)
    return str(tmp_path / "schedule.yml")


def test_a_schedule_from_load_to_remove(server: Server, schedule: str) -> None:
    """X-CRON-39, X-CRON-41, X-CRON-44: every command, in a pipe and for programs."""
    (found,) = records(server, "diff", schedule)
    assert (found["added"], server.client().keys()) == (["nightly", "weekly"], [])
    assert "add\tnightly" in run(server, "load", schedule)[0]
    assert "nothing" not in run(server, "diff", schedule)[0]
    nightly, weekly = records(server, "list")
    assert (nightly["name"], nightly["cron"]) == ("nightly", "0 3 * * * Europe/Berlin")
    assert (nightly["args"], nightly["schedule"], nightly["layout"]) == ([1], "jobwire", 2)
    assert weekly["next_at"] is not None
    ticks = [each["at"] for each in records(server, "next", "weekly", "-n", "3")]
    assert [after - before for before, after in itertools.pairwise(ticks)] == [*(604_800, 604_800)]
    run(server, "disable", "nightly")
    assert "was disabled already" in run(server, "disable", "nightly")[0]
    assert records(server, "list")[0]["enabled"] is False
    jid = run(server, "run", "nightly")[0].strip()
    assert [each["jid"] for each in records(server, "history", "nightly")] == [jid]
    run(server, "enable", "nightly")
    client = server.client(decode_responses=True)
    client.hset("cron_job:default:weekly", "cron", "every so often")
    out, err = run(server, "list")
    assert "not read" in out
    assert "the phrase 'every so often' is not supported" in err
    run(server, "remove", "weekly", status=2)  # it asks, and there is no terminal
    run(server, "remove", "weekly", "nightly", "--yes")
    assert client.keys("cron*") == []


def test_a_name_that_does_not_exist(server: Server, schedule: str) -> None:
    run(server, "load", schedule)
    err = run(server, "next", "nigthly", status=1)[1]
    assert "there is no periodic job 'nigthly'; did you mean 'nightly'?" in err


def test_the_schedule_of_an_application(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """X-CRON-38: it has the name that the application gives it."""
    (tmp_path / "periodic_shop.py").write_text(APP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    run(server, "load", "periodic_shop:app")
    (entry,) = records(server, "list")
    assert (entry["name"], entry["schedule"], entry["cron"]) == (
        *("hourly", "shop", "0 * * * * UTC"),
    )
    assert entry["fields"]["jw_catch_up"] == "last"


def test_migration(server: Server) -> None:
    """X-CRON-3: only when asked for."""
    client = server.client(decode_responses=True)
    client.sadd("cron_jobs", "cron_job:old")
    client.hset("cron_job:old", mapping={"name": "old", "klass": "A", "cron": "@daily"})
    assert [each["layout"] for each in records(server, "list")] == [1]
    run(server, "migrate", status=2)
    assert "moved 1 periodic job" in run(server, "migrate", "--yes")[0]
    assert [each["layout"] for each in records(server, "list")] == [2]


def test_a_schedule_with_a_mistake_changes_nothing(server: Server, tmp_path: Path) -> None:
    """X-CRON-43: status 2, and the file and the entry are named."""
    (tmp_path / "schedule.yml").write_text(SCHEDULE + "bad: {cron: '* *', class: A}\n")
    err = run(server, "load", str(tmp_path / "schedule.yml"), status=2)[1]
    assert "schedule.yml:6: bad: " in err
    assert server.client().keys() == []
