"""Schedules in files: our tables, and those of sidekiq-cron and sidekiq-scheduler.

A file of YAML keeps its lines as they are, because Ruby reads the same file. A table of TOML gets a
zone at the end of each line that has none.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import msgspec

from jobwire.errors import ConfigError
from jobwire.periodic.schedule import check
from jobwire.protocol.normalize import Options
from jobwire.protocol.periodic_entry import PeriodicEntry
from jobwire.settings import toml, yaml
from jobwire.settings.types import Entry, did_you_mean
from jobwire.settings.variables import fill, hide_tags

__all__ = ["from_file", "from_table"]

_OPTIONS = ("queue", "retry", "retry_for", "retry_queue", "dead", "backtrace", "tags", "log_level")
_TEXTS = ("description", "namespace", "catch_up", "overlap")
_RUBY_TEXTS = ("queue_name_prefix", "queue_name_delimiter")
_FLAGS = ("date_as_argument", "active_job", "symbolize_args")
_KNOWN = {
    *("cron", "job", "class", "klass", "args", "tz", "enabled", "status", "name", "source"),
    *(*_OPTIONS, *_TEXTS, *_RUBY_TEXTS, *_FLAGS),
}
_SCHEDULERS = ("every", "at", "in", "interval", "include_metadata")
_EVERY = re.compile(r"(\d+)\s*(s|m|h|seconds?|minutes?|hours?)")


def from_file(path: str) -> list[PeriodicEntry]:
    """Return the entries of a file: `.yml` or `.yaml` of Ruby, or `.toml`.

    Raises:
        ConfigError: The file cannot be read, or an entry is invalid; the text names it.
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
        return from_table(table["schedule"].value if "schedule" in table else table, file=name)
    if not path.endswith((".yml", ".yaml", ".yml.erb", ".yaml.erb")):
        raise ConfigError(f"{path}: its name must end in .yml, .yaml or .toml")
    text, tags = hide_tags(text, name)
    if re.match(r"(?:\s*(?:#.*)?\n)*-(?!--)", text):  # a list, which is a value and not a file
        text = "schedule:\n" + text
    entries = {
        key: Entry(fill(entry.value, os.environ, tags, entry.line), entry.line)
        for key, entry in yaml.read(text, name).items()
    }
    given, place = _schedule_of(entries)
    return [
        _entry(key, _plain(value), f"{name}{place}: {key}", zone_needed=False)
        for key, value in _named(given, name)
    ]


def from_table(value: Any, *, file: str = "schedule") -> list[PeriodicEntry]:
    """Return the entries of a table, name to options; or those of the file that a string names."""
    if isinstance(value, str):
        return from_file(str(value))
    if not isinstance(value, Mapping):
        raise ConfigError(
            f"{file}: {value!r} is not a table of periodic jobs, or the name of a file"
        )
    return [
        _entry(name, _plain(entry), f"{file}: {name}", zone_needed=True)
        for name, entry in value.items()
    ]


def _schedule_of(entries: Mapping[str, Entry]) -> tuple[Any, str]:
    """Return the part of a file that holds its entries, and the name of that part."""
    scheduler = entries.get("scheduler")
    if scheduler is not None and isinstance(scheduler.value, Mapping):
        inner = scheduler.value.get("schedule")
        if inner is not None:
            return inner.value, " scheduler"
    if "schedule" in entries and "cron" not in _keys(entries["schedule"].value):
        return entries["schedule"].value, ""
    return entries, ""


def _keys(value: Any) -> Iterable[str]:
    return value if isinstance(value, Mapping) else ()


def _named(given: Any, file: str) -> Iterable[tuple[str, Any]]:
    if isinstance(given, Mapping):
        return given.items()
    if isinstance(given, list):
        pairs = []
        for number, each in enumerate(given, start=1):
            name = _plain(each).get("name") if isinstance(each, Mapping) else None
            if not isinstance(name, str):
                raise ConfigError(f"{file}: entry {number} of the list has no name; add name: ...")
            pairs.append((name, each))
        return pairs
    raise ConfigError(f"{file}: it has no periodic jobs; write NAME: {{cron: ..., class: ...}}")


def _plain(value: Any) -> Any:
    """Return a value of a file without its line numbers."""
    if isinstance(value, Entry):
        return _plain(value.value)
    if isinstance(value, Mapping):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    return str(value) if isinstance(value, str) else value


def _entry(name: str, given: Any, place: str, *, zone_needed: bool) -> PeriodicEntry:
    if not isinstance(given, dict):
        raise ConfigError(f"{place}: {given!r} is not of the form {{cron: ..., class: ...}}")
    options = dict(given)
    cron = options.pop("cron", None)
    for key in _SCHEDULERS:
        if key in options:
            cron = _of_scheduler(key, options.pop(key), place)
    for key in options:
        if key not in _KNOWN:
            near = did_you_mean(key, _KNOWN)
            raise ConfigError(
                f"{place}: {key}: no such option; "
                + (f"did you mean {near}?" if near else f"known: {', '.join(sorted(_KNOWN))}")
            )
    job = options.get("class", options.get("klass", options.get("job")))
    if not isinstance(cron, str) or not isinstance(job, str):
        raise ConfigError(f"{place}: it needs a cron line and a class; both are strings")
    more: dict[str, Any] = {
        **{key: str(options[key] or "") for key in (*_TEXTS, *_RUBY_TEXTS) if key in options},
        **{key: options[key] in (True, 1, "true", "1") for key in _FLAGS if key in options},
    }
    try:
        entry = PeriodicEntry(
            name=name,
            cron=cron,
            job=job,
            args=_args(options.get("args")),
            enabled=_enabled(options, place),
            options=cast("Options", {key: options[key] for key in _OPTIONS if key in options}),
            **more,
        )
        if zone_needed or options.get("tz"):
            return check(entry, tz=options.get("tz"))
        check(entry)
    except ConfigError as error:
        raise ConfigError(f"{place}: {error}") from None
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


def _enabled(options: Mapping[str, Any], place: str) -> bool | None:
    if "enabled" in options:
        if not isinstance(options["enabled"], bool):
            raise ConfigError(f"{place}: enabled: {options['enabled']!r} is not true or false")
        return options["enabled"]
    if "status" not in options:
        return None
    if options["status"] not in ("enabled", "disabled"):
        raise ConfigError(f"{place}: status: {options['status']!r} is not 'enabled' or 'disabled'")
    return bool(options["status"] == "enabled")


def _of_scheduler(key: str, value: Any, place: str) -> str:
    """Return the cron line of a rule of sidekiq-scheduler, if one has the same ticks."""
    text = value[0] if isinstance(value, list) and value else value
    match = (
        _EVERY.fullmatch(text) if key in ("every", "interval") and isinstance(text, str) else None
    )
    if match is None:
        raise ConfigError(
            f"{place}: {key}: {value!r} of sidekiq-scheduler has no cron line; write cron: ..."
        )
    unit = {"s": "seconds", "m": "minutes", "h": "hours"}[match[2][0]]
    return f"every {match[1]} {unit}"
