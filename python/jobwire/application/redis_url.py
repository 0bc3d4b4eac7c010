"""The URL of Redis: as given, as the environment names it, of the server of this directory."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from jobwire.errors import ConfigError

__all__ = [
    "DEFAULT_URL",
    "ENVIRONMENTS",
    "RedisAddress",
    "development_url",
    "environment",
    "find_address",
    "redis_url",
    "unnamed_address",
]

DEFAULT_URL = "redis://localhost:6379/0"
ENVIRONMENTS = ("JOBWIRE_ENV", "APP_ENV", "RAILS_ENV", "RACK_ENV")
_AS_GIVEN = "as given"
_DEFAULT = "the default"
_DEVELOPMENT = "the server of 'jobwire dev' in this directory"


@dataclass(frozen=True, slots=True)
class RedisAddress:
    """A URL of Redis and its source, such as `from REDIS_URL`."""

    url: str
    source: str

    def advice(self) -> str:
        """Return the fix for a server that cannot be reached; "" if the caller gave the URL."""
        if self.source == _AS_GIVEN:
            return ""
        running = development_url()
        if running and running != self.url:
            if self.source in (_DEFAULT, _DEVELOPMENT):
                return f"'jobwire dev' runs here at {running} now: restart this program"
            return f"this URL is {self.source}; 'jobwire dev' runs here at {running}"
        if self.source == _DEFAULT and _is_production():
            return "no URL is given: set REDIS_URL"
        if self.source == _DEFAULT:
            return "no URL is given: start a server with 'jobwire dev', or set REDIS_URL"
        if self.source == _DEVELOPMENT:
            return "'jobwire dev' has stopped: start it again"
        return f"this URL is {self.source}: check the host, or start the server"


def environment(environ: Mapping[str, str]) -> tuple[str, str] | None:
    """Return the environment, such as `production`, and the variable that names it, or None."""
    return next(((environ[name], name) for name in ENVIRONMENTS if environ.get(name)), None)


def redis_url(explicit: str | None, environ: Mapping[str, str]) -> tuple[str, str] | None:
    """Return the configured Redis URL and its source; None if no URL is configured.

    Uses `explicit`, otherwise `JOBWIRE_REDIS_URL`, otherwise the variable that `REDIS_PROVIDER`
    names, otherwise `REDIS_URL`.

    Raises:
        ConfigError: `REDIS_PROVIDER` holds a URL.
    """
    if explicit:
        return explicit, _AS_GIVEN
    if url := environ.get("JOBWIRE_REDIS_URL"):
        return url, "from JOBWIRE_REDIS_URL"
    if provider := environ.get("REDIS_PROVIDER"):
        if ":" in provider:
            raise ConfigError(
                "REDIS_PROVIDER holds a URL, but must hold the name of the variable with the URL; "
                "set REDIS_URL instead"
            )
        if url := environ.get(provider):
            return url, f"from {provider}, named by REDIS_PROVIDER"
    if url := environ.get("REDIS_URL"):
        return url, "from REDIS_URL"
    return None


def find_address(explicit: str | None) -> RedisAddress:
    """Return the Redis to use: `explicit`, or one that the environment names, or an unnamed one.

    Raises:
        ConfigError: `REDIS_PROVIDER` holds a URL.
    """
    named = redis_url(explicit, os.environ)
    return RedisAddress(*named) if named else unnamed_address()


def unnamed_address(environment_name: str | None = None) -> RedisAddress:
    """Return the Redis to use if none is named: the server of `jobwire dev`, or the default.

    Args:
        environment_name: The environment; None: the one that the environment variables name.
    """
    running = development_url(environment_name)
    return RedisAddress(running, _DEVELOPMENT) if running else RedisAddress(DEFAULT_URL, _DEFAULT)


def development_url(environment_name: str | None = None) -> str | None:
    """Return the URL of the server that `jobwire dev` runs here; None in production.

    Args:
        environment_name: As for `unnamed_address`.
    """
    if _is_production(environment_name):
        return None
    from jobwire.connection import embedded  # not needed by a program that names its Redis

    return embedded.find(Path.cwd())


def _is_production(environment_name: str | None = None) -> bool:
    named = environment(os.environ)
    return (environment_name or (named[0] if named else "")) == "production"
