"""Effective settings, each with its source."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

from jobwire.application.config import CapsuleConfig, WorkerConfig, check
from jobwire.application.redis_url import environment as named_environment
from jobwire.application.redis_url import redis_url
from jobwire.errors import ConfigError
from jobwire.settings import files, schedules
from jobwire.settings.files import File
from jobwire.settings.table import OTHER_VARIABLES, SETTINGS, Setting
from jobwire.settings.types import Entry, MisplacedError
from jobwire.settings.variables import fill
from jobwire.text import did_you_mean

__all__ = ["Settings", "Value", "resolve"]

_DEFAULT_ENVIRONMENT = "development"
Giver = Literal["flag", "variable", "file", "default"]


@dataclass(frozen=True, slots=True)
class Value:
    """The value of a setting, and its source."""

    value: Any
    giver: Giver
    source: str
    """`--timeout`, `JOBWIRE_TIMEOUT`, `jobwire.toml:3`, `default`..."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Every setting with its source."""

    values: Mapping[str, Value]
    environment: Value
    file: Value
    """The path as a string, or None."""
    notes: Sequence[str] = ()
    """Warnings about the settings."""

    def __getitem__(self, name: str) -> Any:
        return self.values[name].value

    def given(self, name: str) -> bool:
        """True if a flag, variable or file sets it."""
        return self.values[name].giver != "default"

    def otherwise(self, name: str, value: Any, source: str) -> Settings:
        """Return these settings with another default for one of them."""
        if self.given(name):
            return self
        return replace(self, values={**self.values, name: Value(value, "default", source)})

    def worker(self) -> WorkerConfig:
        """Return the settings of the worker.

        Raises:
            ConfigError: Two settings both define the capsule `default`.
        """
        capsules: Mapping[str, CapsuleConfig] = self["capsules"]
        for name in ("queues", "concurrency"):
            if "default" in capsules and self.given(name):
                raise ConfigError(
                    f"{self.values[name].source}: {name} and {self.values['capsules'].source} both "
                    "define the capsule 'default'; define it in one place only"
                )
        if self["queues"]:
            default = CapsuleConfig(queues=self["queues"], concurrency=self["concurrency"])
            capsules = {"default": default, **capsules}
        others = {f.name: self[f.name] for f in fields(WorkerConfig) if f.name != "capsules"}
        return WorkerConfig(capsules=capsules, **others)


def resolve(
    flags: Mapping[str, Any],
    environ: Mapping[str, str],
    directory: Path,
    *,
    file: str | None = None,
    environment: str | None = None,
    names: Iterable[str] = SETTINGS,
) -> Settings:
    """Return the effective settings.

    The first of these that sets a setting wins: flag, variable, section of the file, file, default.

    Args:
        flags: Setting to the string, boolean or strings of its flag; None or () if not given.
        environ: The environment variables.
        directory: Directory to search for a file if none is named.
        file: The file that a flag names.
        environment: The environment that a flag names.
        names: Names of the settings to return.

    Raises:
        ConfigError: A file, variable or flag is invalid; the text names it.
    """
    _refuse_misspelt(environ)
    chosen = _environment(environment, environ)
    path = _file(file, environ, directory)
    content = files.read(Path(path.value)) if path.value else None
    values: dict[str, Value] = {}
    for name in names:
        setting = SETTINGS[name]
        if name == "schedule":  # its file may have sections as well
            named = {} if chosen.giver == "default" else {"JOBWIRE_ENV": chosen.value}
            setting = replace(setting, kind=schedules.kind({**environ, **named}))
        values[name] = (
            _from_flag(setting, flags.get(name))
            or _from_variable(setting, environ)
            or _from_file(setting, content, chosen.value, environ)
            or Value(setting.default, "default", "default")
        )
    notes = _notes(content, chosen) if content else ()
    return Settings(values=values, environment=chosen, file=path, notes=notes)


def _environment(flag: str | None, environ: Mapping[str, str]) -> Value:
    if flag:
        return Value(flag, "flag", "--environment")
    if named := named_environment(environ):
        return Value(named[0], "variable", named[1])
    return Value(_DEFAULT_ENVIRONMENT, "default", "default")


def _file(flag: str | None, environ: Mapping[str, str], directory: Path) -> Value:
    if flag:
        return Value(flag, "flag", "--config")
    if named := environ.get("JOBWIRE_CONFIG"):
        return Value(named, "variable", "JOBWIRE_CONFIG")
    if path := files.find(directory):
        return Value(path.name, "default", "found in the working directory")
    return Value(None, "default", "default")


def _from_flag(setting: Setting, given: Any) -> Value | None:
    if given is None or given == ():
        return None
    flag = setting.flags[-1].partition("/")[0]
    read = setting.kind.read if not isinstance(given, bool) else bool
    return Value(_checked(setting, lambda: read(given), flag), "flag", flag)


def _from_variable(setting: Setting, environ: Mapping[str, str]) -> Value | None:
    if setting.name == "redis":
        named = redis_url(None, environ)
        return Value(named[0], "variable", named[1].removeprefix("from ")) if named else None
    text = environ.get(setting.variable)
    if not text:
        return None
    value = _checked(setting, lambda: setting.kind.from_text(text), setting.variable)
    return Value(value, "variable", setting.variable)


def _from_file(
    setting: Setting, file: File | None, environment: str, environ: Mapping[str, str]
) -> Value | None:
    if file is None:
        return None
    section = file.sections.get(environment)
    if section and (value := _entry(setting, file, section.value, f" [{environment}]", environ)):
        return value
    return _entry(setting, file, file.entries, "", environ)


def _entry(
    setting: Setting,
    file: File,
    entries: Mapping[str, Entry],
    section: str,
    environ: Mapping[str, str],
) -> Value | None:
    entry = entries.get(setting.name)
    if entry is None or entry.value is None:
        return None
    position = f"{file.name}:{entry.line}" if entry.line else file.name
    try:
        raw = fill(entry.value, environ, file.tags, entry.line)
        if raw == "":
            return None if setting.name != "tag" else Value("", "file", position + section)
        value = _checked(setting, lambda: setting.kind.from_file(raw), position)
    except MisplacedError as error:
        line = f"{file.name}:{error.line}" if error.line else file.name
        raise ConfigError(f"{line}: {error}") from None
    return Value(value, "file", position + section)


def _checked(setting: Setting, read: Callable[[], Any], source: str) -> Any:
    try:
        value = read()
        check(setting.name, value)
    except MisplacedError:
        raise
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from None
    return value


def _refuse_misspelt(environ: Mapping[str, str]) -> None:
    known = {*(setting.variable for setting in SETTINGS.values()), *OTHER_VARIABLES}
    by_suffix = {name.removeprefix("JOBWIRE_"): name for name in known}
    for name in sorted(environ):
        if not name.startswith("JOBWIRE_") or name in known:
            continue
        if near := did_you_mean(name.removeprefix("JOBWIRE_"), by_suffix, cutoff=0.7):
            raise ConfigError(f"{name}: no such variable; did you mean {by_suffix[near]}?")


def _fate(name: str, file: File) -> str:
    if name.rpartition(".")[2] in ("schedule", "scheduler"):
        return f"has periodic jobs, which only --schedule {file.name} reads"
    return "has no meaning for jobwire; ignored"


def _notes(file: File, environment: Value) -> list[str]:
    notes = [f"{file.name}:{line}: {name} {_fate(name, file)}" for name, line in file.ignored]
    if environment.value not in {_DEFAULT_ENVIRONMENT, *file.sections} and file.sections:
        known = ", ".join(file.sections)
        notes.append(
            f"{file.name}: no section for the environment {environment.value!r} "
            f"({environment.source}); its sections are {known}"
        )
    return notes
