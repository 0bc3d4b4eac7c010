"""Settings: frozen values, checked once, errors that name value, rule and fix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from jobwire.errors import ConfigError

__all__ = [
    "DEFAULT_URL",
    "CapsuleConfig",
    "FetchMode",
    "WorkerConfig",
    "parse_capsule",
    "parse_queues",
    "redis_url",
]

DEFAULT_URL = "redis://localhost:6379/0"
LONGEST = 1e9  # seconds; far beyond that the operating system cannot wait
FetchMode = Literal["reliable", "basic"]


def redis_url(explicit: str | None, environ: Mapping[str, str]) -> tuple[str, str] | None:
    """Return the configured Redis URL and where it came from; None if there is none.

    Looks at `explicit`, then `JOBWIRE_REDIS_URL`, then the variable that `REDIS_PROVIDER`
    names, then `REDIS_URL`.
    """
    if explicit:
        return explicit, "as given"
    if url := environ.get("JOBWIRE_REDIS_URL"):
        return url, "from JOBWIRE_REDIS_URL"
    if provider := environ.get("REDIS_PROVIDER"):
        if ":" in provider:
            raise ConfigError(
                "REDIS_PROVIDER holds a URL, but it must hold the name of the variable that holds "
                "the URL; set REDIS_URL instead"
            )
        if url := environ.get(provider):
            return url, f"from {provider}, named by REDIS_PROVIDER"
    if url := environ.get("REDIS_URL"):
        return url, "from REDIS_URL"
    return None


def parse_queues(specs: Sequence[str]) -> dict[str, int]:
    """Return queue name to weight for texts like `critical` or `critical,3`. [FETCH-4]

    Raises:
        ConfigError: Empty name, bad weight, or a queue that is named twice.
    """
    queues: dict[str, int] = {}
    for spec in specs:
        name, comma, weight = spec.rpartition(",")
        if not comma:
            name, weight = spec, "0"
        if not name or name != name.strip():
            raise ConfigError(
                f"queue {spec!r} has no usable name; write NAME or NAME,WEIGHT, like critical,3"
            )
        if not (weight.isascii() and weight.isdigit()):
            raise ConfigError(
                f"queue {spec!r}: the weight {weight!r} is not a whole number from 0; "
                "write NAME,WEIGHT, like critical,3"
            )
        if name in queues:
            raise ConfigError(f"queue {name!r} is named twice; give it one weight instead")
        queues[name] = int(weight)
    return queues


@dataclass(frozen=True, slots=True, kw_only=True)
class CapsuleConfig:
    """What one capsule serves, and how hard."""

    queues: Mapping[str, int] = field(default_factory=lambda: {"default": 0})
    """Name to weight. All 0: strict order. All 1: random. Else weighted. [FETCH-4]"""
    concurrency: int = 5
    """Jobs at a time, at least 1."""

    def __post_init__(self) -> None:
        if not self.queues:
            raise ConfigError("queues: a capsule needs at least one; 'default' is the usual one")
        for name, weight in self.queues.items():
            if not name:
                raise ConfigError(f"queues: {name!r} is no queue name")
            if weight < 0:
                raise ConfigError(f"queues: weight {weight!r} of {name!r} is not a number from 0")
        if self.concurrency < 1:
            raise ConfigError(f"concurrency: {self.concurrency} is less than 1")


def parse_capsule(text: str) -> tuple[str, CapsuleConfig]:
    """Return name and settings for a text like `mail=2 mail,3 newsletter`.

    Raises:
        ConfigError: It does not read NAME=CONCURRENCY QUEUE[,WEIGHT]...
    """
    head, *specs = text.split() or [""]
    name, _, concurrency = head.partition("=")
    if not name or not (concurrency.isascii() and concurrency.isdigit()) or not specs:
        raise ConfigError(
            f"capsule {text!r} does not read NAME=CONCURRENCY QUEUE[,WEIGHT]..., "
            "like 'mail=2 mail,3 newsletter'"
        )
    return name, CapsuleConfig(queues=parse_queues(specs), concurrency=int(concurrency))


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerConfig:
    """How a worker process runs."""

    capsules: Mapping[str, CapsuleConfig] = field(
        default_factory=lambda: {"default": CapsuleConfig()}
    )
    """Name to capsule. They share the process, each with queues and threads of its own."""
    fetch: FetchMode = "reliable"
    """`reliable` survives kill -9; `basic` is BRPOP, as Sidekiq does it, and loses jobs then."""
    timeout: float = 25.0
    """Seconds that running jobs get after TERM before they are put back."""
    poll_interval: float | None = None
    """Average seconds between looks for due jobs; None: the fleet as a whole looks every 5 s."""
    max_retries: int = 25
    """What `retry: true` means."""
    dead_limit: int = 10_000
    """The dead set keeps one less than this. [DEAD-3]"""
    dead_max_age: float = 15_552_000.0
    """Seconds after which the dead are forgotten, at the next burial. [DEAD-2]"""
    tag: str = ""
    """Shown beside the process in Sidekiq's web page."""
    labels: Sequence[str] = ()
    """Shown beside the process in Sidekiq's web page."""

    def __post_init__(self) -> None:
        if not self.capsules:
            raise ConfigError("capsules: a worker needs at least one")
        if self.fetch not in ("reliable", "basic"):
            raise ConfigError(f"fetch: {self.fetch!r} is neither 'reliable' nor 'basic'")
        if not 0 <= self.timeout <= LONGEST:
            raise ConfigError(f"timeout: {self.timeout} is not a number of seconds from 0")
        if self.poll_interval is not None and not 0 < self.poll_interval <= LONGEST:
            raise ConfigError(f"poll_interval: {self.poll_interval} is not above 0 seconds")
        if self.max_retries < 0:
            raise ConfigError(f"max_retries: {self.max_retries} is below 0")
        if self.dead_limit < 1:
            raise ConfigError(f"dead_limit: {self.dead_limit} is less than 1")

    @property
    def concurrency(self) -> int:
        """Jobs at a time over all capsules."""
        return sum(capsule.concurrency for capsule in self.capsules.values())
