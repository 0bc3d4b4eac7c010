"""Files as Ruby teams have them: read, or refused with file, line and remedy."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from jobwire import ConfigError
from jobwire.settings import resolve
from jobwire.settings.schedules import from_file

SECTIONS = """\
default: &default
  SearchJob:
    cron: "*/10 * * * *"
development:
  <<: *default
production:
  <<: *default
  CleanJob: {cron: "0 3 * * *", queue: low}
staging:
"""
# File, text, variables, and the settings or periodic jobs (name: line, class) that are read.
READ: dict[str, tuple[str, dict[str, str], dict[str, Any]]] = {
    "sidekiq.yml, of a first day": (
        ":concurrency: 10\n:queues:\n  - default\n  - mailers\n",
        {},
        {"concurrency": 10, "queues": {"default": 0, "mailers": 0}},
    ),
    "sidekiq.yml, with weights in brackets and in lists": (
        "---\n:verbose: false\n:queues:\n  - [critical, 5]\n  -\n    - low\n    - 1\n",
        {},
        {"queues": {"critical": 5, "low": 1}},
    ),
    "sidekiq.yml, with a block and its conversion": (
        ':concurrency: <%= ENV.fetch("RAILS_MAX_THREADS") { 5 }.to_i %>\n',
        {"RAILS_MAX_THREADS": "9"},
        {"concurrency": 9},
    ),
    "sidekiq.yml, with an alternative in parentheses": (
        'concurrency: <%= (ENV["X"] || 5).to_i %>\ntimeout: <%= Integer(ENV.fetch("Y", 8)) -%>\n',
        {},
        {"concurrency": 5, "timeout": 8},
    ),
    "sidekiq.yml, with sections and an alias": (
        "base: &base\n  :concurrency: 2\nproduction:\n  <<: *base\n  :timeout: 60\n",
        {"RAILS_ENV": "production"},
        {"concurrency": 2, "timeout": 60},
    ),
    "sidekiq.yml, with names of queues from a variable": (
        ":queues:\n  - <%= ENV.fetch('PREFIX', 'shop') %>_default\n  - [\"<%= ENV['Q'] %>\", 2]\n",
        {"Q": "mail"},
        {"queues": {"shop_default": 0, "mail": 2}},
    ),
    "sidekiq.yml, with a capsule and the limits of Redis": (
        ":max_retries: 3\n:capsules:\n  single:\n    :concurrency: 1\n    :queues: [one]\n"
        ":dead_max_jobs: 500\n",
        {},
        {"max_retries": 3, "dead_limit": 500},
    ),
    "sidekiq.yml, with a schedule whose class is its name": (
        ':schedule:\n  HeartbeatJob:\n    every: "5m"\n',
        {},
        {"HeartbeatJob": ("every 5 minutes", "HeartbeatJob")},
    ),
    "sidekiq.yml, with the schedule of sidekiq-scheduler 5": (
        ":scheduler:\n  :dynamic: true\n  :schedule:\n    report:\n"
        "      every: ['1h', first_in: 9s]\n      class: Reports::Hourly\n    nightly:\n"
        "      cron: '0 0 3 * * * Europe/Berlin'\n      class: Nightly\n"
        "      include_metadata: false\n",
        {},
        {
            "report": ("every 1 hours", "Reports::Hourly"),
            "nightly": ("0 0 3 * * * Europe/Berlin", "Nightly"),
        },
    ),
    "sidekiq.yml, with a scheduler that is switched off": (
        ":scheduler:\n  :enabled: <%= ENV['CRON'] || false %>\n  :schedule:\n"
        "    A: {interval: 120 seconds}\n",
        {},
        {"A": ("every 2 minutes", "A", False)},
    ),
    "sidekiq.yml, with a schedule for each environment": (
        "concurrency: 2\nproduction:\n  :schedule:\n    Shop::Job: {cron: ['0 9 * * *']}\n",
        {"JOBWIRE_ENV": "production"},
        {"concurrency": 2, "Shop::Job": ("0 9 * * *", "Shop::Job")},
    ),
    "sidekiq.yml, with a schedule for another environment": (
        "concurrency: 2\nstaging:\n  timeout: 3\nproduction:\n  :schedule:\n    A: {every: 1h}\n",
        {"JOBWIRE_ENV": "staging"},
        {"concurrency": 2, "timeout": 3},
    ),
    "sidekiq.yml, with an empty schedule": (
        ":concurrency: 2\n:scheduler:\n  :schedule:\n",
        {},
        {"concurrency": 2},
    ),
    "schedule.yml, of sidekiq-cron": (
        'first:\n  cron: "*/5 * * * *"\n  class: "HardJob"\n  queue: low\n  args: [1]\n',
        {},
        {"first": ("*/5 * * * *", "HardJob")},
    ),
    "schedule.yml, with a switch from a variable": (
        "a:\n  every: 1d\n  class: A\n  enabled: <%= ENV.fetch('CRON', false) %>\n",
        {"CRON": "true"},
        {"a": ("every day", "A", True)},
    ),
    "schedule.yml, with numbers from a variable": (
        'a:\n  cron: "<%= ENV["M"] || 5 %> * * * *"\n  class: A\n  retry: <%= ENV["R"] || 3 %>\n',
        {},
        {"a": ("5 * * * *", "A")},
    ),
    "schedule.yml, with a section for production": (
        SECTIONS,
        {"JOBWIRE_ENV": "production"},
        {"SearchJob": ("*/10 * * * *", "SearchJob"), "CleanJob": ("0 3 * * *", "CleanJob")},
    ),
    "schedule.yml, with an empty section": (SECTIONS, {"RAILS_ENV": "staging"}, {}),
    "schedule.yml, as a list with symbols": (
        "# of the shop\n\n- :name: a\n  :cron: '@daily'\n  :klass: A\n  :status: disabled\n",
        {},
        {"a": ("@daily", "A", False)},
    ),
}
# File and text, variables, the line, and the remedy in the error.
REFUSED: dict[str, tuple[str, dict[str, str], int, str]] = {
    "sidekiq.yml, with a calculation": (
        ":queues: [a]\n:concurrency: <%= Etc.nprocessors * 2 %>\n",
        {},
        2,
        r"Ruby code, which is never run; write \${NAME}",
    ),
    "sidekiq.yml, with a condition": (
        ":queues: [a]\n<% if ENV['X'] %>\n:concurrency: 2\n<% end %>\n",
        {},
        2,
        "Ruby code, which is never run; remove it, or write one file for each environment",
    ),
    "sidekiq.yml, with a variable that is not set": (
        ":concurrency: 1\n:timeout: <%= ENV.fetch('WAIT').to_i %>\n",
        {},
        2,
        r"ENV.fetch\('WAIT'\): the variable is not set",
    ),
    "sidekiq.yml, with a misspelt key": (":concurency: 5\n", {}, 1, "did you mean concurrency?"),
    "sidekiq.yml, with schedules in sections and no environment": (
        "concurrency: 2\nproduction:\n  :schedule:\n    A: {every: 1h}\n",
        {},
        2,
        "a section for each of production, and no environment is named; set JOBWIRE_ENV",
    ),
    "schedule.yml, with code in a switch": (
        "a:\n  cron: '0 3 * * *'\n  enabled: <%= Rails.env.production? %>\n  class: A\n",
        {},
        3,
        r"Ruby code, which is never run; write \${NAME}",
    ),
    "schedule.yml, with a switch that is none": (
        "# nightly\na:\n  cron: '0 3 * * *'\n  enabled: <%= ENV['X'] || 'maybe' %>\n  class: A\n",
        {},
        2,
        "a: enabled: 'maybe' is not true or false",
    ),
    "schedule.yml, with a run in a while": (
        "a:\n  in: 5m\n  class: A\n",
        {},
        1,
        "a: in: '5m' .* runs once; enqueue the job with enqueue_at or enqueue_in",
    ),
    "schedule.yml, with a run at a time": (
        "b: {every: 1h, class: B}\na: {at: '3001/01/01', class: A}\n",
        {},
        2,
        "a: at: '3001/01/01' .* enqueue the job with enqueue_at",
    ),
    "schedule.yml, with an uneven interval": (
        "a: {every: 1h30m, class: A}\n",
        {},
        1,
        "90 does not divide an? hour; write the fields",
    ),
    "schedule.yml, with an interval in words": (
        "a: {every: fortnight, class: A}\n",
        {},
        1,
        "every: 'fortnight' of sidekiq-scheduler has no cron line; write cron: ...",
    ),
    "schedule.yml, without a class": (
        "nightly: {cron: '0 3 * * *'}\n",
        {},
        1,
        "nightly: it needs a cron line and a class, .* like cron: '0 3",
    ),
    "schedule.yml, with the time as an argument": (
        "A:\n  every: 1h\n  include_metadata: true\n",
        {},
        1,
        "include_metadata: not supported; remove it",
    ),
    "schedule.yml, with sections and no environment": (
        SECTIONS,
        {},
        1,
        "a section for each of default, development, production, and no environment is named; "
        "set JOBWIRE_ENV, for example to production",
    ),
    "schedule.yml, without a section for the environment": (
        SECTIONS,
        {"APP_ENV": "qa"},
        1,
        "none for the environment qa; set JOBWIRE_ENV",
    ),
    "schedule.yml, with a misspelt option": (
        "- name: b\n  every: 1h\n  class: B\n- name: a\n  every: 1h\n  clas: A\n",
        {},
        4,
        "a: clas: no such option; did you mean class?",
    ),
}


def write(directory: Path, title: str, text: str) -> Path:
    path = directory / title.partition(",")[0]
    path.write_text(text)
    return path


@pytest.mark.parametrize("title", READ)
def test_files_that_are_read(title: str, tmp_path: Path) -> None:
    text, environ, expected = READ[title]
    path = write(tmp_path, title, text)
    found: dict[str, Any] = {}
    if "schedule" in text or path.name == "schedule.yml":
        for entry in from_file(str(path), environ=environ):
            switch = () if entry.enabled is None else (entry.enabled,)
            found[entry.name] = (entry.cron, entry.job, *switch)
    if path.name == "sidekiq.yml":
        settings = resolve({}, environ, tmp_path, file=str(path))
        found |= {name: settings[name] for name in settings.values if settings.given(name)}
    capsules = found.pop("capsules", {})
    assert found == expected
    assert [*capsules] == (["single"] if "capsules" in text else [])


@pytest.mark.parametrize("title", REFUSED)
def test_files_that_are_refused(title: str, tmp_path: Path) -> None:
    text, environ, line, remedy = REFUSED[title]
    path = write(tmp_path, title, text)
    flag = {"schedule": str(path)} if "schedule" in title else {}
    file = None if flag else str(path)
    with pytest.raises(ConfigError) as raised:
        resolve(flag, environ, tmp_path, file=file)
    assert re.search(rf"{path.name}:{line}: .*{remedy}", str(raised.value)), str(raised.value)
