"""The table of all settings of the worker, from which flags, variables and docs are made."""

from __future__ import annotations

import os
from dataclasses import MISSING, dataclass, fields
from typing import Any

from jobwire.application.config import CapsuleConfig, WorkerConfig
from jobwire.settings import schedules, types
from jobwire.settings.types import Kind

__all__ = ["OTHER_VARIABLES", "SETTINGS", "Setting", "written"]


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: its names and its meaning."""

    name: str
    """Its name in files, in messages, and in `WorkerConfig` if it is a field of that."""
    kind: Kind
    flags: tuple[str, ...]
    help: str
    default: Any = None
    without: str = ""
    """Meaning of the default, if the default itself does not show it."""
    choices: tuple[str, ...] = ()

    @property
    def variable(self) -> str:
        """The environment variable that sets it."""
        return "JOBWIRE_REDIS_URL" if self.name == "redis" else f"JOBWIRE_{self.name.upper()}"

    @property
    def metavar(self) -> str:
        """The placeholder for the value in a command's help."""
        return "|".join(self.choices) or self.kind.metavar

    @property
    def shown_default(self) -> str:
        """The default, for people to read."""
        return self.without or written(self.default)


def written(value: Any) -> str:
    """Return a scalar in the notation of a variable or a file."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.15g}" if isinstance(value, float) else str(value)


_DEFAULTS = {
    field.name: field.default
    for config in (WorkerConfig, CapsuleConfig)
    for field in fields(config)
    if field.default is not MISSING
}


def _worker(
    name: str, kind: Kind, flags: str, help: str, without: str = "", *choices: str
) -> Setting:
    return Setting(name, kind, tuple(flags.split()), help, _DEFAULTS[name], without, choices)


SETTINGS: dict[str, Setting] = {
    setting.name: setting
    for setting in (
        Setting(
            "app",
            Kind("MODULE:APP", str),
            ("-r", "--require"),
            "Application to run, like shop.jobs:app; the same as the command's argument.",
            without="none",
        ),
        Setting(
            "redis",
            Kind("URL", str),
            ("--redis",),
            "Redis or Valkey, like redis://localhost:6379/0, or a name of App(redis=...).",
            without="REDIS_PROVIDER, REDIS_URL, or localhost",
        ),
        Setting(
            "queues",
            types.QUEUES,
            ("-q", "--queue"),
            "Queue to serve; repeatable, in order of preference. Without weights the order is "
            "strict, with weight 1 for all queues it is random. 'mail:*' is all queues that "
            "begin with mail: at the start.",
            CapsuleConfig().queues,
            "those of the jobs",
        ),
        _worker("concurrency", types.WHOLE, "-c --concurrency", "Jobs that run at a time."),
        Setting(
            "capsules",
            types.CAPSULES,
            ("--capsule",),
            "Another group of queues with N threads of its own; repeatable.",
            {},
            "none",
        ),
        _worker("processes", types.WHOLE, "-p --processes", "Worker processes to start."),
        _worker(
            "fetch",
            types.TEXT,
            "--fetch",
            "reliable survives kill -9; basic is BRPOP, as in Sidekiq.",
            "",
            *("reliable", "basic"),
        ),
        _worker(
            "timeout", types.SECONDS, "-t --timeout", "Seconds that running jobs get after TERM."
        ),
        _worker(
            "poll_interval",
            types.SECONDS_OR_NONE,
            "--poll-interval",
            "Average seconds between checks for due jobs, if they are not precise.",
            "by fleet size",
        ),
        _worker(
            "precise",
            types.BOOLEAN,
            "--precise/--no-precise",
            "Run due jobs at their time, not at the next check.",
        ),
        _worker(
            "periodic",
            types.BOOLEAN,
            "--periodic/--no-periodic",
            "Enqueue periodic jobs when they are due.",
        ),
        _worker(
            "schedule",
            schedules.kind(os.environ),
            "--schedule",
            "File with periodic jobs, such as a schedule.yml of sidekiq-cron.",
            "none",
        ),
        _worker("max_retries", types.WHOLE, "--max-retries", "Number of retries for retry: true."),
        _worker(
            "poison_limit",
            types.WHOLE,
            "--poison-limit",
            "Times that a job may end its process before it moves to the dead set.",
        ),
        _worker(
            "unknown_jobs",
            types.TEXT,
            "--unknown-jobs",
            "For a job of an unknown class: retry fails it; sidekiq also, but drops it if it has "
            "no retry option, as Sidekiq does; park hands it over to workers that have announced "
            "the class, or sets it aside until one does.",
            "",
            *("retry", "sidekiq", "park"),
        ),
        Setting(
            "foreign",
            types.FOREIGN,
            ("--foreign",),
            "For a job with encrypt, bid, expires_in, unique_for or overrated, or of the classes "
            "of delayed extensions (delayed): park sets it aside, run runs it, fail fails it, "
            "hand_over gives it to the queue that --hand-over names; repeatable.",
            WorkerConfig().foreign,
            " ".join(f"{feature}={policy}" for feature, policy in WorkerConfig().foreign.items()),
        ),
        Setting(
            "hand_over",
            types.HAND_OVER,
            ("--hand-over",),
            "Queue for jobs that cannot run here, because their class is not registered or for "
            "--foreign, if it matches the pattern, such as Reports::*=ruby; repeatable.",
            {},
            "none",
        ),
        _worker(
            "honour_paused",
            types.TEXT_OR_NONE,
            "--honour-paused",
            "pro: also leave out the queues that Sidekiq Pro has paused.",
            "none",
            "pro",
        ),
        _worker(
            "max_iteration_runtime",
            types.SECONDS_OR_NONE,
            "--max-iteration-runtime",
            "Seconds after which an iterable job gives way to other jobs.",
            "never",
        ),
        _worker(
            "memory_limit",
            types.WHOLE_OR_NONE,
            "--memory-limit",
            "MiB of memory above which a worker process is replaced.",
            "never",
        ),
        _worker(
            "dead_limit", types.WHOLE, "--dead-limit", "The dead set keeps one job less than this."
        ),
        _worker(
            "dead_max_age",
            types.SECONDS,
            "--dead-max-age",
            "Seconds after which dead jobs are deleted.",
            "15552000 (180 days)",
        ),
        _worker(
            "tag",
            types.TEXT,
            "-g --tag",
            "Text shown with the process in Sidekiq's web page.",
            "none",
        ),
        _worker(
            "labels",
            types.LABELS,
            "--label",
            "Label shown with the process in Sidekiq's web page; repeatable.",
            "none",
        ),
        _worker(
            "health_port",
            types.WHOLE_OR_NONE,
            "--health-port",
            "Port for probes (/live, /ready) and autoscalers (/queues).",
            "none",
        ),
        _worker(
            "metrics_port",
            types.WHOLE_OR_NONE,
            "--metrics-port",
            "Port for Prometheus (/metrics, /metrics/fleet); may be the same as --health-port.",
            "none",
        ),
        _worker(
            "listen_host",
            types.TEXT,
            "--listen-host",
            "Address of both ports. In a container, 0.0.0.0 lets probes and Prometheus reach them.",
        ),
        Setting(
            "log_format",
            types.TEXT,
            ("--log-format",),
            "human: one line per event; json: one JSON object per line.",
            "human",
            choices=("human", "json"),
        ),
        Setting(
            "log_level",
            types.TEXT,
            ("--log-level",),
            "Lowest level of events to log.",
            "info",
            choices=("debug", "info", "warning", "error"),
        ),
    )
}

# Variables that choose the settings to use, and are not settings themselves.
OTHER_VARIABLES = ("JOBWIRE_CONFIG", "JOBWIRE_ENV")
