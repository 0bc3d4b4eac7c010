"""Settings of a worker: frozen values, checked once. Errors name the value, rule and fix."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from jobwire.errors import ConfigError
from jobwire.protocol.foreign import FATES, FEATURES, POLICIES, Feature, ForeignPolicy
from jobwire.protocol.periodic_entry import PeriodicEntry

__all__ = [
    "CapsuleConfig",
    "FetchMode",
    "UnknownJobs",
    "WorkerConfig",
    "check",
    "parse_capsule",
    "parse_queues",
]

MAX_WAIT_S = 1e9  # the operating system cannot wait much longer
FetchMode = Literal["reliable", "basic"]
UnknownJobs = Literal["retry", "sidekiq", "park"]


def parse_queues(specs: Sequence[str]) -> dict[str, int]:
    """Return queue name to weight for strings like `critical` or `critical,3`. [FETCH-4]

    Raises:
        ConfigError: A name is empty, a weight is invalid, or a queue occurs twice.
    """
    queues: dict[str, int] = {}
    for spec in specs:
        name, comma, weight = spec.rpartition(",")
        if not comma:
            name, weight = spec, "0"
        if not name or name != name.strip():
            raise ConfigError(
                f"queue {spec!r} has no valid name; write NAME or NAME,WEIGHT, like critical,3"
            )
        if not (weight.isascii() and weight.isdigit()):
            raise ConfigError(
                f"queue {spec!r}: the weight {weight!r} is not a whole number of 0 or more; "
                "write NAME,WEIGHT, like critical,3"
            )
        if name in queues:
            raise ConfigError(f"queue {name!r} is named twice; name it once, with one weight")
        queues[name] = int(weight)
    return queues


@dataclass(frozen=True, slots=True, kw_only=True)
class CapsuleConfig:
    """Queues and concurrency of one capsule."""

    queues: Mapping[str, int] = field(default_factory=lambda: {"default": 0})
    """Name to weight. All 0: strict order. All 1: random. Otherwise weighted. [FETCH-4]"""
    concurrency: int = 5
    """Number of jobs that run at the same time, at least 1."""

    def __post_init__(self) -> None:
        check("queues", self.queues)
        check("concurrency", self.concurrency)


def parse_capsule(text: str) -> tuple[str, CapsuleConfig]:
    """Return name and settings for a string like `mail=2 mail,3 newsletter`.

    Raises:
        ConfigError: The string is not of the form NAME=CONCURRENCY QUEUE[,WEIGHT]...
    """
    head, *specs = text.split() or [""]
    name, _, concurrency = head.partition("=")
    if not name or not (concurrency.isascii() and concurrency.isdigit()) or not specs:
        raise ConfigError(
            f"capsule {text!r} is not of the form NAME=CONCURRENCY QUEUE[,WEIGHT]..., "
            "like 'mail=2 mail,3 newsletter'"
        )
    return name, CapsuleConfig(queues=parse_queues(specs), concurrency=int(concurrency))


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerConfig:
    """Settings of a worker process."""

    capsules: Mapping[str, CapsuleConfig] = field(
        default_factory=lambda: {"default": CapsuleConfig()}
    )
    """Name to capsule. Capsules share the process; each has its own queues and threads."""
    fetch: FetchMode = "reliable"
    """`reliable` loses no job in a crash; `basic` is BRPOP, as in Sidekiq, and may lose jobs."""
    timeout: float = 25.0
    """Seconds that running jobs get after TERM before they are put back."""
    poll_interval: float | None = None
    """Average seconds between polls for due jobs, if they are not precise; None: all processes
    together poll every 5 s."""
    max_retries: int = 25
    """Number of retries that `retry: true` stands for."""
    dead_limit: int = 10_000
    """Limit of the dead set, which keeps one job less than this. [DEAD-3]"""
    dead_max_age: float = 15_552_000.0
    """Seconds after which the next kill removes a job from the dead set. [DEAD-2]"""
    tag: str = ""
    """Text shown with the process in Sidekiq's web page."""
    labels: Sequence[str] = ()
    """Labels shown with the process in Sidekiq's web page."""
    processes: int = 1
    """Number of worker processes that the command starts, each with all capsules."""
    memory_limit: int | None = None
    """MiB of memory above which a new process replaces a worker process; None: no limit."""
    poison_limit: int = 3
    """Number of times that a job may crash its process before it goes to the dead set."""
    unknown_jobs: UnknownJobs = "retry"
    """Fate of a job of an unknown class: `retry` fails it like a job of a known class; `sidekiq`
    also, but drops it if it has no `retry`, as Sidekiq does; `park` hands it over to workers that
    have announced the class, or sets it aside until one does. [RETRY-1] [X-PARK-2] [X-CLASS-3]"""
    hand_over: Mapping[str, str] = field(default_factory=dict)
    """Pattern of classes, such as `Reports::*`, to the queue whose workers run them if they are not
    registered here, or have a feature with the policy `hand_over`. For workers that do not announce
    classes, such as Sidekiq's. [X-CLASS-4]"""
    foreign: Mapping[Feature, ForeignPolicy] = field(default_factory=lambda: dict(POLICIES))
    """Feature of another product to the fate of its jobs: `park`, `run`, `fail`, or `hand_over` to
    the queue that `hand_over` names. Features that are left out keep their default. [X-PARK-1]"""
    honour_paused: Literal["pro"] | None = None
    """`pro`: also fetch no jobs from the queues in the set `paused` of Sidekiq Pro. [KEY-6]"""
    precise: bool = True
    """Run due jobs at their time, not at the next poll. It needs a server that tracks keys, and one
    connection more."""
    periodic: bool = True
    """Take the ticks of periodic jobs. It needs the extra `periodic`; without it and without such
    jobs in the application, none are taken."""
    schedule: Sequence[PeriodicEntry] = ()
    """Periodic jobs besides those of the application, in the same schedule."""
    max_iteration_runtime: float | None = None
    """Seconds after which an iterable job gives way to other jobs; None: no limit."""
    health_port: int | None = None
    """Port on which the command answers probes, `/live` and `/ready`, and `/queues` for
    autoscalers; None: no port."""
    metrics_port: int | None = None
    """Port on which the command serves `/metrics` for Prometheus; None: no port."""
    listen_host: str = "127.0.0.1"
    """Address on which both ports listen."""

    def __post_init__(self) -> None:
        for setting in fields(self):
            check(setting.name, getattr(self, setting.name))
        for pattern, queue in self.hand_over.items():
            if any(queue in capsule.queues for capsule in self.capsules.values()):
                raise ConfigError(
                    f"hand_over: queue {queue!r} of {pattern} is served by this worker itself; "
                    "name a queue that only workers with these classes serve"
                )
        for feature, policy in self.foreign.items():
            if policy == "hand_over" and not self.hand_over:
                raise ConfigError(
                    f"foreign: {feature} is handed over, and no queue is named; name one that "
                    "another worker serves, as hand_over *=ruby"
                )

    @property
    def concurrency(self) -> int:
        """Number of jobs that all capsules together run at the same time."""
        return sum(capsule.concurrency for capsule in self.capsules.values())


def check(name: str, value: object) -> None:
    """Check the value of one setting by the rule for its name.

    Raises:
        ConfigError: The text begins with the name, and tells the value and the rule.
    """
    if problem := _RULES[name](value):
        raise ConfigError(f"{name}: {problem}")


Rule = Callable[[Any], str | None]  # returns the problem, or None


def _whole(least: int) -> Rule:
    def judge(value: Any) -> str | None:
        if not isinstance(value, int) or isinstance(value, bool):
            return f"{value!r} is not a whole number"
        return f"{value} is less than {least}" if value < least else None

    return judge


def _seconds(*, above: bool) -> Rule:
    rule = "above 0 seconds" if above else "a number of seconds (0 or more)"

    def judge(value: Any) -> str | None:
        if not isinstance(value, int | float) or isinstance(value, bool):
            return f"{value!r} is not {rule}"
        # Written so that NaN also fails, because every comparison with it is false.
        is_valid = 0 <= value <= MAX_WAIT_S and not (above and value == 0)
        return None if is_valid else f"{value} is not {rule}"

    return judge


def _port(value: Any) -> str | None:
    if not isinstance(value, int) or isinstance(value, bool):
        return f"{value!r} is not a port number"
    return None if 1 <= value <= 65_535 else f"{value} is not a port number (1 to 65535)"


def _host(value: Any) -> str | None:
    if not isinstance(value, str) or not value or any(char.isspace() for char in value):
        return f"{value!r} is not an address, such as '127.0.0.1' or '0.0.0.0'"
    return None


def _one_of(*words: str) -> Rule:
    known = ", ".join(map(repr, words))
    return lambda value: None if value in words else f"{value!r} is not one of {known}"


def _or_none(rule: Rule) -> Rule:
    return lambda value: None if value is None else rule(value)


def _boolean(value: Any) -> str | None:
    return None if isinstance(value, bool) else f"{value!r} is not true or false"


def _text(value: Any) -> str | None:
    return None if isinstance(value, str) else f"{value!r} is not a string; put it in quotes"


def _texts(value: Any) -> str | None:
    if isinstance(value, str) or not isinstance(value, Sequence):
        return f"{value!r} is not a list of strings"
    return next(filter(None, map(_text, value)), None)


def _entries(value: Any) -> str | None:
    if isinstance(value, str) or not isinstance(value, Sequence):
        return f"{value!r} is not a list of periodic jobs"
    wrong = next((each for each in value if not isinstance(each, PeriodicEntry)), None)
    return None if wrong is None else f"{wrong!r} is not a periodic job"


def _queues(value: Any) -> str | None:
    if not isinstance(value, Mapping):
        return f"{value!r} is not a mapping of queue names to weights"
    if not value:
        return "a capsule needs at least one queue, such as 'default'"
    for name, weight in value.items():
        if problem := _text(name):
            return problem
        if not name:
            return f"{name!r} is not a queue name"
        if not isinstance(weight, int) or isinstance(weight, bool) or weight < 0:
            return f"weight {weight!r} of {name!r} is not a whole number of 0 or more"
    return None


def _foreign(value: Any) -> str | None:
    if not isinstance(value, Mapping):
        return f"{value!r} is not a mapping of features to {', '.join(FATES)}"
    for feature, policy in value.items():
        if feature not in FEATURES:
            return f"{feature!r} is not one of {', '.join(FEATURES)}"
        if policy not in FATES:
            return f"{policy!r} of {feature} is not one of {', '.join(FATES)}"
        if policy == "run" and feature in ("encrypt", "delayed"):
            return (
                f"{feature} cannot run: its arguments are written for other code; park or fail it"
            )
    return None


def _hand_over(value: Any) -> str | None:
    if not isinstance(value, Mapping):
        return f"{value!r} is not a mapping of class patterns to queues, as Reports::*=ruby"
    for text in (*value.keys(), *value.values()):
        if problem := _text(text):
            return problem
        if not text:
            return "a pattern of classes or a queue is empty; write it as Reports::*=ruby"
    return None


def _capsules(value: Any) -> str | None:
    if not isinstance(value, Mapping):
        return f"{value!r} is not a mapping of names to capsules"
    return None if value else "a worker needs at least one capsule"


_RULES: Mapping[str, Rule] = {
    "queues": _queues,
    "concurrency": _whole(1),
    "capsules": _capsules,
    "fetch": _one_of("reliable", "basic"),
    "timeout": _seconds(above=False),
    "poll_interval": _or_none(_seconds(above=True)),
    "max_retries": _whole(0),
    "dead_limit": _whole(1),
    "dead_max_age": _seconds(above=False),
    "tag": _text,
    "labels": _texts,
    "processes": _whole(1),
    "memory_limit": _or_none(_whole(1)),
    "poison_limit": _whole(1),
    "unknown_jobs": _one_of("retry", "sidekiq", "park"),
    "foreign": _foreign,
    "hand_over": _hand_over,
    "honour_paused": _or_none(_one_of("pro")),
    "precise": _boolean,
    "schedule": _entries,
    "periodic": _boolean,
    "max_iteration_runtime": _or_none(_seconds(above=True)),
    "health_port": _or_none(_port),
    "metrics_port": _or_none(_port),
    "listen_host": _host,
    # Settings of the command, not of the worker:
    "app": _or_none(_text),
    "redis": _or_none(_text),
    "log_format": _one_of("human", "json"),
    "log_level": _one_of("debug", "info", "warning", "error"),
}
