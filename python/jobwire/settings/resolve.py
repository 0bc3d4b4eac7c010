"""The settings that count, each with who said so."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

from jobwire.application.config import CapsuleConfig, WorkerConfig, check, redis_url
from jobwire.errors import ConfigError
from jobwire.settings import files
from jobwire.settings.files import File
from jobwire.settings.table import OTHER_VARIABLES, SETTINGS, Setting
from jobwire.settings.types import Entry, MisplacedError, did_you_mean
from jobwire.settings.variables import fill

__all__ = ["Settings", "Value", "resolve"]

_ENVIRONMENTS = ("JOBWIRE_ENV", "APP_ENV", "RAILS_ENV", "RACK_ENV")
_USUAL = "development"
Giver = Literal["flag", "variable", "file", "default"]


@dataclass(frozen=True, slots=True)
class Value:
    """What a setting is, and why."""

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
    """The path as text, None if there is none."""
    notes: Sequence[str] = ()
    """What somebody should hear, though it is no error."""

    def __getitem__(self, name: str) -> Any:
        return self.values[name].value

    def given(self, name: str) -> bool:
        """Whether anybody said what it is."""
        return self.values[name].giver != "default"

    def otherwise(self, name: str, value: Any, source: str) -> Settings:
        """Return settings where this one has another default."""
        if self.given(name):
            return self
        return replace(self, values={**self.values, name: Value(value, "default", source)})

    def worker(self) -> WorkerConfig:
        """Return how the worker has to run.

        Raises:
            ConfigError: The capsules do not go together.
        """
        capsules: Mapping[str, CapsuleConfig] = self["capsules"]
        for name in ("queues", "concurrency"):
            if "default" in capsules and self.given(name):
                raise ConfigError(
                    f"{self.values[name].source}: {name} and {self.values['capsules'].source} both "
                    "make the capsule 'default'; it is named twice, give it one place"
                )
        default = CapsuleConfig(queues=self["queues"], concurrency=self["concurrency"])
        every = {"default": default, **capsules}
        rest = {f.name: self[f.name] for f in fields(WorkerConfig) if f.name != "capsules"}
        return WorkerConfig(capsules=every, **rest)


def resolve(
    flags: Mapping[str, Any],
    environ: Mapping[str, str],
    directory: Path,
    *,
    file: str | None = None,
    environment: str | None = None,
    names: Iterable[str] = SETTINGS,
) -> Settings:
    """Return what counts: flag, variable, the file's section, the file, the default.

    Args:
        flags: Setting to the text, the boolean or the texts of its flag; None, or none: not given.
        environ: The environment variables.
        directory: Where to look for a file if none is named.
        file: The file that a flag names.
        environment: The environment that a flag names.
        names: Which settings are wanted.

    Raises:
        ConfigError: A file, variable or flag is wrong; the text says which.
    """
    _refuse_misspelt(environ)
    chosen = _environment(environment, environ)
    where = _file(file, environ, directory)
    read = files.read(Path(where.value)) if where.value else None
    values: dict[str, Value] = {}
    for name in names:
        setting = SETTINGS[name]
        values[name] = (
            _from_flag(setting, flags.get(name))
            or _from_variable(setting, environ)
            or _from_file(setting, read, chosen.value, environ)
            or Value(setting.default, "default", "default")
        )
    return Settings(
        values=values, environment=chosen, file=where, notes=_notes(read, chosen) if read else ()
    )


def _environment(flag: str | None, environ: Mapping[str, str]) -> Value:
    if flag:
        return Value(flag, "flag", "--environment")
    for name in _ENVIRONMENTS:
        if environ.get(name):
            return Value(environ[name], "variable", name)
    return Value(_USUAL, "default", "default")


def _file(flag: str | None, environ: Mapping[str, str], directory: Path) -> Value:
    if flag:
        return Value(flag, "flag", "--config")
    if named := environ.get("JOBWIRE_CONFIG"):
        return Value(named, "variable", "JOBWIRE_CONFIG")
    if found := files.find(directory):
        return Value(found.name, "default", "found in the working directory")
    return Value(None, "default", "default")


def _from_flag(setting: Setting, given: Any) -> Value | None:
    if given is None or given == ():
        return None
    flag = setting.flags[-1].partition("/")[0]
    read = setting.kind.read if not isinstance(given, bool) else bool
    return Value(_judged(setting, lambda: read(given), flag), "flag", flag)


def _from_variable(setting: Setting, environ: Mapping[str, str]) -> Value | None:
    if setting.name == "redis":
        found = redis_url(None, environ)
        return Value(found[0], "variable", found[1].removeprefix("from ")) if found else None
    text = environ.get(setting.variable)
    if not text:
        return None
    value = _judged(setting, lambda: setting.kind.from_text(text), setting.variable)
    return Value(value, "variable", setting.variable)


def _from_file(
    setting: Setting, file: File | None, environment: str, environ: Mapping[str, str]
) -> Value | None:
    if file is None:
        return None
    section = file.sections.get(environment)
    if section and (found := _entry(setting, file, section.value, f" [{environment}]", environ)):
        return found
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
    where = f"{file.name}:{entry.line}" if entry.line else file.name
    try:
        raw = fill(entry.value, environ, file.tags, entry.line)
        if raw == "":
            return None if setting.name != "tag" else Value("", "file", where + section)
        value = _judged(setting, lambda: setting.kind.from_file(raw), where)
    except MisplacedError as error:
        line = f"{file.name}:{error.line}" if error.line else file.name
        raise ConfigError(f"{line}: {error}") from None
    return Value(value, "file", where + section)


def _judged(setting: Setting, read: Callable[[], Any], source: str) -> Any:
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
    rest = {name.removeprefix("JOBWIRE_"): name for name in known}
    for name in sorted(environ):
        if not name.startswith("JOBWIRE_") or name in known:
            continue
        if near := did_you_mean(name.removeprefix("JOBWIRE_"), rest, cutoff=0.7):
            raise ConfigError(f"{name}: no such variable; did you mean {rest[near]}?")


def _notes(file: File, environment: Value) -> list[str]:
    notes = [
        f"{file.name}:{line}: {name} means nothing here; ignored" for name, line in file.ignored
    ]
    if environment.value not in {_USUAL, *file.sections} and file.sections:
        known = ", ".join(file.sections)
        notes.append(
            f"{file.name}: no section for the environment {environment.value!r} "
            f"({environment.source}); there are {known}"
        )
    return notes
