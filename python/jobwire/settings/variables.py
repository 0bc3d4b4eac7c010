"""Environment variables inside files: `${NAME}`, and the plainest tags of ERB. Nothing is run."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jobwire.errors import ConfigError
from jobwire.settings.types import Entry, MisplacedError, Text

__all__ = ["Tag", "fill", "hide_tags"]

_NAME = r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)"
_KEY = rf"""(["']){_NAME}\1"""
_LITERAL = (
    r"""(?:"(?P<double>[^"\\#]*)"|'(?P<single>[^'\\]*)'|(?P<bare>-?\d+(?:\.\d+)?|true|false))"""
)
_FORMS = (
    re.compile(rf"ENV\[{_KEY}\](?:\s*\|\|\s*{_LITERAL})?"),
    re.compile(rf"ENV\.fetch\(\s*{_KEY}\s*(?:,\s*{_LITERAL}\s*)?\)"),
    re.compile(rf"ENV\.fetch\(\s*{_KEY}\s*\)\s*\{{\s*{_LITERAL}\s*\}}"),
)
_TAG = re.compile(r"<%([=#%]?)(.*?)(?:-?%>|\Z)", re.DOTALL)
# A tag's place in the YAML text: characters for private use, which mean nothing to YAML.
_MARK = "\ue000{}\ue001"
_HOLE = re.compile(
    rf"\ue000(?P<tag>\d+)\ue001|\$\$\{{|\$\{{{_NAME}(?P<default>:-[^}}]*)?\}}|\$\{{[^}}]*\}}?"
)
_FIX = 'write ${NAME} or ${NAME:-default}, or <%= ENV["NAME"] || "default" %>'


@dataclass(frozen=True, slots=True)
class Tag:
    """One `<%= ... %>` of a file."""

    code: str
    line: int


def hide_tags(text: str, file: str) -> tuple[str, list[Tag]]:
    """Return the text with a mark for each tag, so that it is YAML, and the tags.

    A tag that cannot be understood is no error before something uses it: in a comment it may stay.

    Raises:
        ConfigError: A tag that is not `<%= ... %>`; those decide what the rest of the file is.
    """
    tags: list[Tag] = []

    def hide(found: re.Match[str]) -> str:
        kind, code = found[1], found[2]
        start = found.start()
        line = text.count("\n", 0, start) + 1
        if kind == "=" and found[0].endswith("%>"):
            tags.append(Tag(code.strip(), line))
            return _MARK.format(len(tags) - 1)
        in_comment = text[:start].rpartition("\n")[2].lstrip().startswith("#")
        if kind == "#" or in_comment:
            return "\n" * found[0].count("\n")
        raise ConfigError(
            f"{file}:{line}: the tag {found[0].strip()[:60]!r} is Ruby code, which is never run; "
            "write the file without it, or a file per environment"
        )

    return _TAG.sub(hide, text), tags


def fill(value: Any, environ: Mapping[str, str], tags: Sequence[Tag], line: int) -> Any:
    """Return a file's value with its variables filled in; what that changed is a `Text`.

    Raises:
        MisplacedError: A variable without a value, or a tag that is not understood.
    """
    if isinstance(value, list):
        return [fill(item, environ, tags, line) for item in value]
    if isinstance(value, dict):
        return {
            name: Entry(fill(entry.value, environ, tags, entry.line), entry.line)
            for name, entry in value.items()
        }
    if not isinstance(value, str) or not _HOLE.search(value):
        return value

    def variable(found: re.Match[str]) -> str:
        if found["tag"] is not None:
            return _ruby(tags[int(found["tag"])], environ)
        if found[0] == "$${":
            return "${"
        name, default = found["name"], found["default"]
        if name is None:
            raise MisplacedError(f"{found[0]!r} names no variable; {_FIX}", line)
        if given := environ.get(name):
            return given
        if default is None:
            raise MisplacedError(
                f"${{{name}}}: the variable is not set; set it, or write ${{{name}:-default}}", line
            )
        return default.removeprefix(":-")

    return Text(_HOLE.sub(variable, value))


def _ruby(tag: Tag, environ: Mapping[str, str]) -> str:
    """Return what Ruby would put in the tag's place."""
    for form in _FORMS:
        if found := form.fullmatch(tag.code):
            break
    else:
        raise MisplacedError(
            f"the tag '<%= {tag.code[:60]} %>' is Ruby code, which is never run; {_FIX}", tag.line
        )
    name = found["name"]
    if name in environ:
        return environ[name]
    parts = found.groupdict()
    default = next(
        (parts[p] for p in ("double", "single", "bare") if parts.get(p) is not None), None
    )
    if default is None and tag.code.startswith("ENV.fetch"):
        raise MisplacedError(f"ENV.fetch({name!r}): the variable is not set", tag.line)
    return default or ""
