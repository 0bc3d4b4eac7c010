"""What sidekiq.yml says, in our words."""

from __future__ import annotations

from jobwire.settings.table import SETTINGS
from jobwire.settings.types import Entry, did_you_mean

__all__ = ["NAMES", "translate"]

NAMES = {
    "dead_max_jobs": "dead_limit",
    "dead_timeout_in_seconds": "dead_max_age",
    "poll_interval_average": "poll_interval",
}
# Sidekiq's own that have no meaning here: never a misspelt setting.
_RUBYS = {
    *("require", "strict", "pidfile", "logfile", "daemon", "index", "environment", "scheduler"),
    *("average_scheduled_poll_interval", "on_complex_arguments", "redis_idle_timeout", "schedule"),
    *("logged_job_attributes", "namespace"),
}


def translate(entries: dict[str, Entry]) -> tuple[dict[str, Entry], list[tuple[str, int]]]:
    """Return the entries that mean something here, and name and line of the others.

    Sidekiq keeps every key for whoever asks, and gems have theirs there, so an unknown one is no
    error; one that is nearly a setting stays, to be refused.
    """
    ours: dict[str, Entry] = {}
    others: list[tuple[str, int]] = []
    for name, entry in entries.items():
        if name in NAMES:
            ours[NAMES[name]] = entry
        elif name == "verbose":
            if entry.value is True:
                ours["log_level"] = Entry("debug", entry.line)
        elif name in SETTINGS or _misspelt(name):
            ours[name] = entry
        else:
            others.append((name, entry.line))
    return ours, others


def _misspelt(name: str) -> bool:
    return name not in _RUBYS and bool(did_you_mean(name, [*SETTINGS, *NAMES], cutoff=0.8))
