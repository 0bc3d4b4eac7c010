"""Schedules in files: our tables, and those of sidekiq-cron and sidekiq-scheduler.

A file of YAML keeps its lines as they are, because Ruby reads the same file. A table of TOML gets a
zone at the end of each line that has none.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import msgspec

from jobwire.application.redis_url import environment
from jobwire.errors import ConfigError
from jobwire.periodic.schedule import check
from jobwire.protocol.normalize import Options
from jobwire.protocol.periodic_entry import PeriodicEntry
from jobwire.settings import toml, yaml
from jobwire.settings.types import (
    Entry,
    Kind,
    MisplacedError,
    Text,
)
from jobwire.settings.variables import Tag, fill, hide_tags
from jobwire.text import did_you_mean

__all__ = ["from_file", "from_table", "kind"]

_OPTIONS = ("queue", "retry", "retry_for", "retry_queue", "dead", "backtrace", "tags", "log_level")
_TEXTS = ("description", "namespace", "catch_up", "overlap")
_RUBY_TEXTS = ("queue_name_prefix", "queue_name_delimiter")
_FLAGS = ("date_as_argument", "active_job", "symbolize_args")
_KNOWN = {
    *("cron", "job", "class", "klass", "args", "tz", "enabled", "status", "name", "source"),
    *(*_OPTIONS, *_TEXTS, *_RUBY_TEXTS, *_FLAGS),
}
_SCHEDULERS = ("every", "at", "in", "interval")
_PART = re.compile(r"(\d+)\s*(s|m|h|d|w|seconds?|minutes?|hours?|days?|weeks?)")
_DURATION = re.compile(rf"(?:{_PART.pattern}\s*)+")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_CONSTANT = re.compile(r"[A-Z]\w*(?:::[A-Z]\w*)*")


def kind(environ: Mapping[str, str]) -> Kind:
    """Return the notation of schedules: the name of a file, or a table in the settings file."""
    return Kind("FILE", partial(from_file, environ=environ), partial(_from_value, environ=environ))


def from_file(path: str, *, environ: Mapping[str, str] = os.environ) -> list[PeriodicEntry]:
    """Return the entries of a file: `.yml` or `.yaml` of Ruby, or `.toml`.

    Args:
        path: The file. If it has a section for each environment, one of them counts.
        environ: The variables, which fill in tags and name the environment.

    Raises:
        ConfigError: The file cannot be read, or an entry is invalid; the text names its line.
    """
    name = Path(path).name
    try:
        text = Path(path).read_text("utf-8-sig")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 at byte {error.start}; save it as UTF-8") from None
    if path.endswith(".toml"):
        table = toml.read(text, name) or {}
        try:
            return from_table(table["schedule"].value if "schedule" in table else table)
        except MisplacedError as error:
            raise _found_in(name, error) from None
    if not path.endswith((".yml", ".yaml", ".yml.erb", ".yaml.erb")):
        raise ConfigError(f"{path}: its name must end in .yml, .yaml or .toml")
    text, tags = hide_tags(text, name)
    try:
        given, runs = _schedule_of(yaml.read(text, name, of_list="schedule"), environ, tags)
        entries = _entries(_named(fill(given, environ, tags, 0)), zone_needed=False)
    except MisplacedError as error:
        raise _found_in(name, error) from None
    return entries if runs else [replace(entry, enabled=False) for entry in entries]


def _from_value(value: Any, environ: Mapping[str, str]) -> list[PeriodicEntry]:
    return from_file(value, environ=environ) if isinstance(value, str) else from_table(value)


def from_table(value: Any) -> list[PeriodicEntry]:
    """Return the entries of a table, name to options."""
    if not isinstance(value, Mapping):
        raise ConfigError(
            f"schedule: {value!r} is not a table of periodic jobs, or the name of a file"
        )
    return _entries(value.items(), zone_needed=True)


def _found_in(file: str, error: MisplacedError) -> ConfigError:
    return ConfigError(f"{file}:{error.line}: {error}" if error.line else f"{file}: {error}")


def _entries(named: Iterable[tuple[str, Any]], *, zone_needed: bool) -> list[PeriodicEntry]:
    entries = []
    for name, given in named:
        try:
            entries.append(_entry(name, _plain(given), zone_needed=zone_needed))
        except ConfigError as error:
            raise MisplacedError(f"{name}: {error}", _line(given)) from None
    return entries


def _line(given: Any) -> int:
    """Return the line of an entry; in a list, that of its first key."""
    inner = given.values() if isinstance(given, Mapping) else [given]
    return next((each.line for each in inner if isinstance(each, Entry)), 0)


def _schedule_of(
    entries: Mapping[str, Entry], environ: Mapping[str, str], tags: Sequence[Tag]
) -> tuple[Any, bool]:
    """Return the part of a file that holds its entries, and if they are to run."""
    named = environment(environ)
    section = entries.get(named[0]) if named else None
    if section is not None and _has_schedule(section):
        return _schedule_of(section.value, environ, tags)
    scheduler = entries.get("scheduler")
    given = entries
    if scheduler is not None and "schedule" in _keys(scheduler):
        given = scheduler.value
    if "schedule" in given and not _is_entry(given["schedule"]):
        switch = given.get("enabled", Entry(True, 0))
        runs = _plain(fill(switch.value, environ, tags, switch.line)) is not False
        return given["schedule"].value or {}, runs
    inside = [name for name, entry in entries.items() if _has_schedule(entry)]
    sections = inside or [name for name, entry in entries.items() if _is_section(entry)]
    others = [name for name in entries if name not in sections and entries[name].value]
    if not sections or (others and not inside):
        return entries, True
    if section is None:
        raise MisplacedError(
            f"it has a section for each of {', '.join(sections)}, and "
            + (f"none for the environment {named[0]}" if named else "no environment is named")
            + f"; set JOBWIRE_ENV, for example to {sections[-1]}",
            entries[sections[0]].line,
        )
    return {} if inside else section.value or {}, True


def _keys(entry: Entry) -> Iterable[str]:
    return entry.value if isinstance(entry.value, Mapping) else ()


def _has_schedule(entry: Entry) -> bool:
    return not {"schedule", "scheduler"}.isdisjoint(_keys(entry))


def _is_entry(entry: Entry) -> bool:
    return not {"cron", "class", "klass", "job", *_SCHEDULERS}.isdisjoint(_keys(entry))


def _is_section(entry: Entry) -> bool:
    """True for a mapping whose values are entries, and which is none itself."""
    inner = entry.value.values() if isinstance(entry.value, Mapping) else ()
    return not _is_entry(entry) and any(map(_is_entry, inner))


def _named(given: Any) -> Iterable[tuple[str, Any]]:
    if isinstance(given, Mapping):
        return given.items()
    if not isinstance(given, list):
        raise MisplacedError("it has no periodic jobs; write NAME: {cron: ..., class: ...}", 0)
    pairs = []
    for number, each in enumerate(given, start=1):
        name = _plain(each).get("name") if isinstance(each, Mapping) else None
        if not isinstance(name, str):
            problem = f"entry {number} of the list has no name; add name: ..."
            raise MisplacedError(problem, _line(each))
        pairs.append((name, each))
    return pairs


def _plain(value: Any) -> Any:
    """Return a value of a file without its line numbers."""
    if isinstance(value, Entry):
        return _plain(value.value)
    if isinstance(value, Mapping):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    if isinstance(value, Text):
        return yaml.scalar(value) if value.bare else str(value)
    return value


def _entry(name: str, options: Any, *, zone_needed: bool) -> PeriodicEntry:
    if not isinstance(options, dict):
        raise ConfigError(f"{options!r} is not of the form {{cron: ..., class: ...}}")
    cron = options.pop("cron", None)
    if isinstance(cron, list) and cron:  # sidekiq-scheduler allows options behind the line
        cron = cron[0]
    if options.pop("include_metadata", False):
        raise ConfigError(
            "include_metadata: not supported; remove it, and let the job take no time as its last "
            "argument"
        )
    for key in _SCHEDULERS:
        if key in options:
            cron = _of_scheduler(key, options.pop(key))
    for key in options:
        if key not in _KNOWN:
            near = did_you_mean(key, _KNOWN)
            raise ConfigError(
                f"{key}: no such option; "
                + (f"did you mean {near}?" if near else f"known: {', '.join(sorted(_KNOWN))}")
            )
    job = options.get("class", options.get("klass", options.get("job")))
    if job is None and _CONSTANT.fullmatch(name):  # as in sidekiq-scheduler
        job = name
    if not isinstance(cron, str) or not isinstance(job, str):
        raise ConfigError(
            "it needs a cron line and a class, as strings, like cron: '0 3 * * *' and "
            "class: HardJob"
        )
    more: dict[str, Any] = {
        **{key: str(options[key] or "") for key in (*_TEXTS, *_RUBY_TEXTS) if key in options},
        **{key: options[key] in (True, 1, "true", "1") for key in _FLAGS if key in options},
    }
    entry = PeriodicEntry(
        name=name,
        cron=cron,
        job=job,
        args=_args(options.get("args")),
        enabled=_enabled(options),
        options=cast("Options", {key: options[key] for key in _OPTIONS if key in options}),
        **more,
    )
    if zone_needed or options.get("tz"):
        return check(entry, tz=options.get("tz"))
    check(entry)
    return replace(entry, cron=" ".join(cron.split()) if "\n" in cron else cron)


def _args(value: Any) -> list[Any]:
    """Return the arguments as sidekiq-cron reads them from a file."""
    if value is None:
        return []
    if isinstance(value, str):
        try:
            value = msgspec.json.decode(value)
        except msgspec.DecodeError:
            return [value]
    return value if isinstance(value, list) else [value]


def _enabled(options: Mapping[str, Any]) -> bool | None:
    if "enabled" in options:
        if not isinstance(options["enabled"], bool):
            raise ConfigError(f"enabled: {options['enabled']!r} is not true or false")
        return options["enabled"]
    if "status" not in options:
        return None
    if options["status"] not in ("enabled", "disabled"):
        raise ConfigError(f"status: {options['status']!r} is not 'enabled' or 'disabled'")
    return bool(options["status"] == "enabled")


def _of_scheduler(key: str, value: Any) -> str:
    """Return the cron line of a rule of sidekiq-scheduler, if one has the same ticks."""
    given = value[0] if isinstance(value, list) and value else value
    if key in ("at", "in"):
        raise ConfigError(
            f"{key}: {given!r} of sidekiq-scheduler has no cron line, because it runs "
            "once; enqueue the job with enqueue_at or enqueue_in"
        )
    text = f"{given}s" if type(given) is int else str(given)
    if not _DURATION.fullmatch(text):
        raise ConfigError(
            f"{key}: {given!r} of sidekiq-scheduler has no cron line; write cron: ..."
        )
    seconds = sum(int(count) * _SECONDS[unit[0]] for count, unit in _PART.findall(text))
    if seconds == 86_400:
        return "every day"
    unit, size = next(
        (unit, size)
        for unit, size in (("hour", 3600), ("minute", 60), ("second", 1))
        if seconds % size == 0
    )
    return f"every {seconds // size} {unit}s"
