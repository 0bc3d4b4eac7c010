"""The setting JOBWIRE of a Django project: a dict, its defaults and its mistakes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, NamedTuple, get_type_hints

from django.conf import settings
from django.utils.module_loading import import_string

from jobwire.application.app import App
from jobwire.application.push_buffer import PushBuffer
from jobwire.errors import ConfigError
from jobwire.protocol.normalize import Options

__all__ = ["Problem", "ProjectSettings", "find_problems", "read_settings"]

_EXAMPLE = 'JOBWIRE = {"URL": "redis://localhost:6379/0", "OPTIONS": {"retry": 5}}'


class Problem(NamedTuple):
    """A mistake in the setting: its id in Django's list of checks, its text and a remedy."""

    identifier: str
    text: str
    hint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectSettings:
    """The values of JOBWIRE; each field is a key in capital letters.

    Attributes:
        url: URL of Redis; None for that of the environment, as `Client` says.
        namespace: Prefix of every key. [KEY-4]
        generation: 7 or 8 to write times in the form of that Sidekiq; `auto` asks Redis. [GEN-5]
        strict_args: Treatment of arguments for which JSON has no type.
        client_middleware: Client middleware, or dotted paths to it, outermost first. [PUSH-7]
        server_middleware: The same for the worker. [EXEC-6]
        wait_replicas: Number of replicas that must confirm a job.
        max_payload_bytes: Size of the largest payload to write; None for no limit. [PUSH-10]
        buffer: Keeps pushes while Redis is away: the arguments of `PushBuffer`, such as
            `{"spool": BASE_DIR / "spool"}`, or `{}`; None for no buffer.
        redis: Further Redis servers, name to URL; see `App`.
        shards: Redis servers that share the jobs, instead of `url`; see `App`.
        placement: The shard of a job without a key; see `App`.
        options: Options of every job, such as `retry`; see `Options`.
        on_commit: False to write jobs at once even inside a database transaction.
        page: Path or URL of the web page, to which the admin then has a link; None for that of
            `jobwire.django.urls`, if the project has included it.
    """

    url: str | None = None
    namespace: str = ""
    generation: Any = "auto"
    strict_args: Any = "raise"
    client_middleware: Sequence[Any] = ()
    server_middleware: Sequence[Any] = ()
    wait_replicas: int = 0
    max_payload_bytes: int | None = 8 * 1024 * 1024
    buffer: Mapping[str, Any] | None = None
    redis: Mapping[str, str] | None = None
    shards: Any = None
    placement: Any = "spread"
    options: Mapping[str, Any] | None = None
    on_commit: bool = True
    page: str | None = None

    def make_app(self) -> App:
        """Return an application with these settings.

        Raises:
            ConfigError: A value is invalid.
            ImportError: A middleware does not exist.
        """
        app = App(
            self.url,
            namespace=self.namespace,
            generation=self.generation,
            strict_args=self.strict_args,
            client_middleware=map(_load, self.client_middleware),
            server_middleware=map(_load, self.server_middleware),
            wait_replicas=self.wait_replicas,
            max_payload_bytes=self.max_payload_bytes,
            buffer=None if self.buffer is None else _buffer(self.buffer),
            redis=self.redis,
            shards=self.shards,
            placement=self.placement,
            **(self.options or {}),
        )
        _ = app.client  # checks the settings of clients, and opens no connection
        return app


def _buffer(given: Mapping[str, Any]) -> PushBuffer:
    known = PushBuffer.__slots__
    if unknown := given.keys() - set(known):
        raise ConfigError(
            f"BUFFER has the unknown key {min(unknown, key=str)!r}; the keys are {', '.join(known)}"
        )
    return PushBuffer(**given)


def read_settings() -> ProjectSettings:
    """Return the setting JOBWIRE; call `find_problems` first."""
    given: Mapping[str, Any] = getattr(settings, "JOBWIRE", {})
    return ProjectSettings(**{key.lower(): value for key, value in given.items()})


def find_problems() -> Iterator[Problem]:
    """Yield the mistakes of the setting JOBWIRE."""
    given = getattr(settings, "JOBWIRE", {})
    if not isinstance(given, Mapping):
        yield Problem("E001", f"JOBWIRE is {given!r}, not a dict", f"Write {_EXAMPLE}.")
        return
    known = {name.upper(): name for name in ProjectSettings.__slots__}
    for key in given:
        if key not in known:
            near = get_close_matches(str(key).upper(), known, n=1)
            meant = f"Did you mean {near[0]!r}? " if near else ""
            yield Problem(
                "E002",
                f"JOBWIRE has the unknown key {key!r}",
                f"{meant}The keys are {', '.join(sorted(known))}.",
            )
    types = get_type_hints(ProjectSettings)
    wrong = [key for key in given if key in known and not _fits(given[key], types[known[key]])]
    for key in wrong:
        yield Problem(
            "E003",
            f"JOBWIRE[{key!r}] is {given[key]!r}, not {_WORDS[known[key]]}",
            f"Write, for example, {_EXAMPLE}.",
        )
    if wrong or not known.keys() >= given.keys():
        return
    if unknown := (given.get("OPTIONS") or {}).keys() - Options.__annotations__.keys():
        yield Problem(
            "E002",
            f"JOBWIRE['OPTIONS'] has the unknown key {min(unknown, key=str)!r}",
            f"The keys are {', '.join(sorted(Options.__annotations__))}.",
        )
        return
    try:
        read_settings().make_app()
    except ConfigError as error:
        yield Problem("E003", f"JOBWIRE: {error}", f"Write, for example, {_EXAMPLE}.")
    except ImportError as error:
        yield Problem("E004", f"JOBWIRE: {error}", "Middleware is named by its dotted path.")


_WORDS = {
    "url": "a URL",
    "namespace": "a text",
    "client_middleware": "a list",
    "server_middleware": "a list",
    "wait_replicas": "a number",
    "max_payload_bytes": "a number or None",
    "buffer": "a dict or None",
    "redis": "a dict or None",
    "options": "a dict",
    "on_commit": "True or False",
    "page": "a path or URL",
}


def _fits(value: Any, kind: Any) -> bool:
    if kind is Any:  # the application checks it
        return True
    if kind == Sequence[Any]:
        return isinstance(value, Sequence) and not isinstance(value, str)
    if kind in (Mapping[str, Any] | None, Mapping[str, str] | None):
        return value is None or isinstance(value, Mapping)
    return isinstance(value, kind) and (kind is bool or not isinstance(value, bool))


def _load(middleware: Any) -> Any:
    return import_string(middleware) if isinstance(middleware, str) else middleware
