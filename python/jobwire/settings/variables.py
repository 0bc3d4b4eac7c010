"""Environment variables in files: `${NAME}`, and simple ERB tags. No Ruby code is ever run."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jobwire.errors import ConfigError
from jobwire.settings.ruby import Unknown, text_of
from jobwire.settings.types import Bare, Entry, MisplacedError, Text

__all__ = ["Tag", "fill", "hide_tags"]

_NAME = r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)"
_TAG = re.compile(r"<%([=#%]?)(.*?)(?:-?%>|\Z)", re.DOTALL)
# The mark for a tag in the YAML text: private-use characters, which have no meaning in YAML.
_MARK = "\ue000{}\ue001"
_HOLE = re.compile(
    rf"\ue000(?P<tag>\d+)\ue001|\$\$\{{|\$\{{{_NAME}(?P<default>:-[^}}]*)?\}}|\$\{{[^}}]*\}}?"
)
_FIX = 'write ${NAME} or ${NAME:-default}, or <%= ENV["NAME"] || "default" %>'


@dataclass(frozen=True, slots=True)
class Tag:
    """One tag `<%= ... %>` of a file."""

    code: str
    line: int


def hide_tags(text: str, file: str) -> tuple[str, list[Tag]]:
    """Return the text with a mark in place of each tag, so that it is YAML, and the tags.

    An unknown tag is an error only if a setting uses it. In a comment it does no harm.

    Raises:
        ConfigError: A tag is not of the form `<%= ... %>`, so it may change the rest of the file.
    """
    tags: list[Tag] = []

    def hide(tag: re.Match[str]) -> str:
        kind, code = tag[1], tag[2]
        start = tag.start()
        line = text.count("\n", 0, start) + 1
        if kind == "=" and tag[0].endswith("%>"):
            tags.append(Tag(code.strip(), line))
            return _MARK.format(len(tags) - 1)
        in_comment = text[:start].rpartition("\n")[2].lstrip().startswith("#")
        if kind == "#" or in_comment:
            return "\n" * tag[0].count("\n")
        raise ConfigError(
            f"{file}:{line}: the tag {tag[0].strip()[:60]!r} is Ruby code, which is never run; "
            "remove it, or write one file for each environment"
        )

    return _TAG.sub(hide, text), tags


def fill(value: Any, environ: Mapping[str, str], tags: Sequence[Tag], line: int) -> Any:
    """Return a value of a file with its variables filled in; a changed string is a `Text`.

    Raises:
        MisplacedError: A variable has no value, or a tag is unknown.
    """
    if isinstance(value, list):
        return [fill(item, environ, tags, line) for item in value]
    if isinstance(value, dict):
        return {
            name: Entry(fill(entry.value, environ, tags, entry.line), entry.line)
            for name, entry in value.items()
        }
    if not isinstance(value, str):
        return value
    if not _HOLE.search(value):
        return str(value)

    def variable(hole: re.Match[str]) -> str:
        if hole["tag"] is not None:
            return _ruby(tags[int(hole["tag"])], environ)
        if hole[0] == "$${":
            return "${"
        name, default = hole["name"], hole["default"]
        if name is None:
            raise MisplacedError(f"{hole[0]!r} names no variable; {_FIX}", line)
        if given := environ.get(name):
            return given
        if default is None:
            raise MisplacedError(
                f"${{{name}}}: the variable is not set; set it, or write ${{{name}:-default}}", line
            )
        return default.removeprefix(":-")

    text = Text(_HOLE.sub(variable, value))
    text.bare = isinstance(value, Bare)
    return text


def _ruby(tag: Tag, environ: Mapping[str, str]) -> str:
    """Return the text that Ruby would put in place of the tag."""
    try:
        return text_of(tag.code, environ)
    except Unknown:
        problem = f"the tag '<%= {tag.code[:60]} %>' is Ruby code, which is never run; {_FIX}"
    except ConfigError as error:
        problem = str(error)
    raise MisplacedError(problem, tag.line)
