"""Translation of sidekiq.yml into the settings of jobwire."""

from __future__ import annotations

from jobwire.settings.table import SETTINGS
from jobwire.settings.types import Entry
from jobwire.text import did_you_mean

__all__ = ["NAMES", "translate"]

NAMES = {
    "dead_max_jobs": "dead_limit",
    "dead_timeout_in_seconds": "dead_max_age",
    "poll_interval_average": "poll_interval",
}
# Settings of Sidekiq that have no meaning here. They are never taken for a misspelt setting.
_RUBYS = {
    *("require", "strict", "pidfile", "logfile", "daemon", "index", "environment", "scheduler"),
    *("average_scheduled_poll_interval", "on_complex_arguments", "redis_idle_timeout", "schedule"),
    *("logged_job_attributes", "namespace"),
}


def translate(entries: dict[str, Entry]) -> tuple[dict[str, Entry], list[tuple[str, int]]]:
    """Return the entries that are settings here, and the names and lines of the others.

    An unknown key is not an error, because sidekiq.yml also holds keys of gems. A key that is
    almost the name of a setting stays among the entries, so that it is refused later.
    """
    ours: dict[str, Entry] = {}
    others: list[tuple[str, int]] = []
    for name, entry in entries.items():
        if name in NAMES:
            ours[NAMES[name]] = entry
        elif name == "verbose":
            if entry.value is True:
                ours["log_level"] = Entry("debug", entry.line)
        elif name == "schedule":  # of sidekiq-scheduler; `--schedule` reads it
            others.append((name, entry.line))
        elif name in SETTINGS or _misspelt(name):
            ours[name] = entry
        else:
            others.append((name, entry.line))
    return ours, others


def _misspelt(name: str) -> bool:
    return name not in _RUBYS and bool(did_you_mean(name, [*SETTINGS, *NAMES], cutoff=0.8))
