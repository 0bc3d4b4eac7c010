"""The settings file: its choice and its content."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from jobwire.errors import ConfigError
from jobwire.settings import sidekiq, toml, yaml
from jobwire.settings.table import SETTINGS
from jobwire.settings.types import Entry
from jobwire.settings.variables import Tag, hide_tags
from jobwire.text import did_you_mean

__all__ = ["OURS", "File", "find", "read"]

OURS = ("jobwire.toml", "jobwire.yml", "jobwire.yaml", "pyproject.toml")
_TABLE = ("tool", "jobwire")
_CONFORMANCE = ("implementation",)  # a table of conformance.toml, which was called jobwire.toml
_KINDS = ".toml, .yml, .yaml, .yml.erb or .yaml.erb"


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """The content of a settings file, before variables are filled in."""

    name: str
    entries: Mapping[str, Entry]
    sections: Mapping[str, Entry]
    """Settings for one environment only, by its name."""
    tags: list[Tag]
    ignored: list[tuple[str, int]]
    """Keys of sidekiq.yml that are not settings here, with their lines."""


def find(directory: Path) -> Path | None:
    """Return the settings file to use if none is named.

    It is never sidekiq.yml, because that names the queues of Ruby workers, whose jobs would fail
    here.

    Raises:
        ConfigError: The directory has two of them.
    """
    paths = [path for name in OURS if _counts(path := directory / name)]
    if len(paths) > 1:
        names = " and ".join(path.name for path in paths)
        raise ConfigError(f"{names} both have settings; keep one, or name one with -C")
    return paths[0] if paths else None


def _counts(path: Path) -> bool:
    """True if it has settings; a pyproject.toml may have none."""
    if path.suffix != ".toml" or not path.is_file():
        return path.is_file()
    if path.name != "pyproject.toml":
        return True
    text = path.read_text("utf-8-sig", errors="replace")
    return "jobwire" in text and toml.read(text, path.name, _TABLE) is not None


def _is_conformance(text: str, name: str) -> bool:
    """True if a file describes an implementation to the conformance suite."""
    table = _CONFORMANCE
    return table[0] in text and toml.read(text, name, table) is not None


def read(path: Path) -> File:
    """Read a settings file.

    Raises:
        ConfigError: The file cannot be read, or has unknown settings.
    """
    shown = str(path)
    try:
        text = path.read_text("utf-8-sig")
    except OSError as error:
        raise ConfigError(f"{shown}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{shown}: not UTF-8 at byte {error.start}; save it as UTF-8") from None
    tags: list[Tag] = []
    suffixes = path.suffixes[:-1] if path.suffix == ".erb" else path.suffixes
    match suffixes[-1:]:
        case [".toml"]:
            if _is_conformance(text, shown):
                raise ConfigError(
                    f"{shown}: is for the conformance suite, as its [implementation] says; "
                    "rename it to conformance.toml"
                )
            table = _TABLE if path.name == "pyproject.toml" else ()
            in_table = toml.read(text, shown, table)
            if in_table is None:
                raise ConfigError(f"{shown}: has no table [tool.jobwire]")
            entries = in_table
        case [".yml" | ".yaml"]:
            text, tags = hide_tags(text, shown)
            entries = yaml.read(text, shown)
        case _:
            raise ConfigError(f"{shown}: its name must end in {_KINDS}")
    return _sort(shown, entries, tags, lenient=path.name.startswith("sidekiq."))


def _sort(name: str, entries: dict[str, Entry], tags: list[Tag], *, lenient: bool) -> File:
    sections: dict[str, Entry] = {}
    ignored: list[tuple[str, int]] = []
    settings: dict[str, Entry] = {}
    for key, entry in entries.items():
        section = isinstance(entry.value, dict) and key not in SETTINGS
        if section and (lenient or not did_you_mean(key, SETTINGS, cutoff=0.8)):
            sections[key] = entry
        else:
            settings[key] = entry
    if lenient:
        settings, ignored = sidekiq.translate(settings)
        for key, entry in list(sections.items()):
            inner, others = sidekiq.translate(entry.value)
            if inner or not others:
                sections[key] = Entry(inner, entry.line)
                ignored += [(f"{key}.{other}", line) for other, line in others]
            else:  # the key of a gem, not the name of an environment
                del sections[key]
                ignored.append((key, entry.line))
    for keys in (settings, *(section.value for section in sections.values())):
        _refuse_unknown(name, keys)
    return File(name=name, entries=settings, sections=sections, tags=tags, ignored=ignored)


def _refuse_unknown(file: str, entries: Mapping[str, Entry]) -> None:
    for key, entry in entries.items():
        if key in SETTINGS:
            continue
        position = f"{file}:{entry.line}" if entry.line else file
        if key in sidekiq.NAMES:
            fix = f"Sidekiq's {key} is {sidekiq.NAMES[key]} here"
        elif near := did_you_mean(key, SETTINGS):
            fix = f"did you mean {near}?"
        else:
            fix = f"expected one of {', '.join(SETTINGS)}"
        raise ConfigError(f"{position}: {key}: no such setting; {fix}")
