"""jobwire.settings.schedules: schedules in files."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobwire import ConfigError
from jobwire.settings.schedules import from_file

CRON = """\
# of sidekiq-cron
my_first_job:
  cron: "*/5 * * * *"
  class: "HardWorker"
  queue: hard_worker
  status: disabled
:second:
  cron: "30 2 * * * Europe/Berlin"
  class: Other
  args:
    hello: [1, "<%= ENV['UNSET'] || 'd' %>"]
  retry: 3
  active_job: true
"""
SCHEDULER = """\
:concurrency: 5
:scheduler:
  :schedule:
    hello_world:
      cron: '0 * * * * *'
      class: HelloWorld
      queue: low
    each:
      every: '10m'
      class: Each
"""
LIST = """\
- name: a
  cron: "@daily"
  class: A
  args: '[1, 2]'
- {name: b, cron: every 5 minutes, class: B, args: text}
"""


def write(directory: Path, name: str, text: str) -> str:
    (directory / name).write_text(text)
    return str(directory / name)


def test_a_file_of_sidekiq_cron(tmp_path: Path) -> None:
    """X-CRON-13: its lines stay as they are, because Ruby reads the same file."""
    first, second = from_file(write(tmp_path, "schedule.yml", CRON))
    assert (first.name, first.cron, first.job) == ("my_first_job", "*/5 * * * *", "HardWorker")
    assert (first.options, first.enabled) == ({"queue": "hard_worker"}, False)
    assert (second.name, second.args, second.enabled) == ("second", [{"hello": [1, "d"]}], None)
    assert (second.options, second.active_job) == ({"retry": 3}, True)


def test_a_file_of_sidekiq_scheduler(tmp_path: Path) -> None:
    first, second = from_file(write(tmp_path, "sidekiq.yml", SCHEDULER))
    assert (first.cron, first.options) == ("0 * * * * *", {"queue": "low"})
    assert second.cron == "every 10 minutes"


def test_a_list_of_entries(tmp_path: Path) -> None:
    first, second = from_file(write(tmp_path, "schedule.yaml", LIST))
    assert (first.name, first.args, second.args) == ("a", [1, 2], ["text"])


def test_a_table_gets_a_zone(tmp_path: Path) -> None:
    """X-CRON-13: from tz, or UTC; in a settings file it is below [schedule]."""
    text = '[schedule.a]\ncron = "0 3 * * *"\ntz = "Asia/Tokyo"\nclass = "A"\ncatch_up = "last"\n'
    (entry,) = from_file(write(tmp_path, "jobwire.toml", text))
    assert (entry.cron, entry.catch_up) == ("0 3 * * * Asia/Tokyo", "last")
    (entry,) = from_file(write(tmp_path, "a.toml", '[b]\ncron = "@daily"\nclass = "B"\n'))
    assert entry.cron == "@daily UTC"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: {class: A}", "a: it needs a cron line and a class"),
        ("a: {cron: '* * * *', class: A}", "it has 4 fields"),
        ("a: {cron: '* * * * *', class: A, qeue: b}", "qeue: no such option; did you mean queue"),
        ("a: {cron: '* * * * *', class: A, status: off}", "status"),
        ("a: {at: '3001/01/01', class: A}", "at: '3001/01/01' of sidekiq-scheduler has no cron"),
        ("a: {every: 7m, class: A}", "7 does not divide"),
        ("a: {cron: '* * * * *', class: A, retry: many}", "retry"),
        ("a: text", "not of the form"),
        ("- {cron: '* * * * *', class: A}", "entry 1 of the list has no name"),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, text: str, problem: str) -> None:
    """X-CRON-43: with the file and the entry."""
    with pytest.raises(ConfigError, match=problem) as raised:
        from_file(write(tmp_path, "schedule.yml", text))
    assert "schedule.yml" in str(raised.value)


def test_a_file_that_is_not_a_schedule(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        from_file(str(tmp_path / "none.yml"))
    with pytest.raises(ConfigError, match="must end in"):
        from_file(write(tmp_path, "a.txt", ""))
