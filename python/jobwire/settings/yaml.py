"""Settings in YAML, written for Python or for Ruby. Needs PyYAML."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from jobwire.errors import ConfigError
from jobwire.settings.types import TOO_DEEP, Bare, Entry

__all__ = ["read", "scalar"]

MAX_VALUES = 100_000


def read(text: str, file: str, *, of_list: str = "") -> dict[str, Entry]:
    """Return the entries of a document; an empty document has none.

    If the document is a list, it is the value of the one entry `of_list`, if that is given.

    An unquoted word with a colon in front is a symbol in Ruby. Keys and values lose that colon.

    Raises:
        ConfigError: PyYAML is missing, the text is not YAML, is nested too deeply or expands to
            too many values, or the document is not a mapping.
    """
    try:
        import yaml
    except ImportError:
        raise ConfigError(
            f"{file}: reading YAML needs PyYAML: pip install 'jobwire[yaml]', or use TOML"
        ) from None
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        if node is None:
            return {}
        if _size(yaml, node, {}) > MAX_VALUES:
            raise ConfigError(
                f"{file}: its aliases expand to more than {MAX_VALUES:,} values; write fewer"
            )
        entry = _Reader(yaml, loader, file).entry(node)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f":{mark.line + 1}" if mark else ""
        raise ConfigError(f"{file}{line}: not YAML: {error.problem}") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{file}: not YAML: {error}") from None
    except RecursionError:
        raise ConfigError(f"{file}: {TOO_DEEP}") from None
    if entry.value is None:
        return {}
    if of_list and isinstance(entry.value, list):
        return {of_list: entry}
    if not isinstance(entry.value, dict):
        raise ConfigError(
            f"{file}:{entry.line}: the file is not a mapping; write lines like concurrency: 5"
        )
    return entry.value


def scalar(text: str) -> Any:
    """Return the value of a text without quotes: a number, true, a string..."""
    import yaml  # which has read the file

    loader: Any = yaml.SafeLoader("")
    tag = loader.resolve(yaml.ScalarNode, text, (True, False))
    with suppress(ValueError):  # PyYAML raises it for 2001-13-45
        value = loader.construct_object(yaml.ScalarNode(tag, str(text)))
        return _without_colon(value) if isinstance(value, str) else value
    return str(text)


def _size(yaml: Any, node: Any, sizes: dict[int, int]) -> int:
    """Return the number of values of a node after its aliases are expanded."""
    if id(node) not in sizes:
        sizes[id(node)] = 0  # while it is counted, because an alias may name its own parent
        inner = node.value if isinstance(node, yaml.CollectionNode) else []
        if isinstance(node, yaml.MappingNode):
            inner = [each for pair in inner for each in pair]
        sizes[id(node)] = 1 + sum(_size(yaml, each, sizes) for each in inner)
    return sizes[id(node)]


class _Reader:
    """Makes entries from PyYAML's nodes, which have line numbers."""

    def __init__(self, yaml: Any, loader: Any, file: str) -> None:
        self._yaml = yaml
        self._loader = loader
        self._file = file
        self._inside: set[int] = set()  # ids of nodes, because an alias may name its own parent

    def entry(self, node: Any) -> Entry:
        line = node.start_mark.line + 1
        if id(node) in self._inside:
            raise ConfigError(f"{self._file}:{line}: an alias contains itself")
        self._inside.add(id(node))
        try:
            return Entry(self._value(node), line)
        finally:
            self._inside.discard(id(node))

    def _value(self, node: Any) -> Any:
        match node:
            case self._yaml.MappingNode():
                return self._mapping(node)
            case self._yaml.SequenceNode():
                return [self.entry(item).value for item in node.value]
        try:
            value = self._loader.construct_object(node)
        except (AttributeError, LookupError, ValueError):  # PyYAML raises these for 2001-13-45
            line = node.start_mark.line + 1
            raise ConfigError(
                f"{self._file}:{line}: {node.value!r} is not a YAML value; put it in quotes"
            ) from None
        if isinstance(value, str) and node.style is None:
            return Bare(_without_colon(value))
        return value

    def _mapping(self, node: Any) -> dict[str, Entry]:
        seen: dict[str, int] = {}
        for key, _ in node.value:
            if key.tag == "tag:yaml.org,2002:merge":
                continue
            line = key.start_mark.line + 1
            name = self.entry(key).value
            if not isinstance(name, str):
                raise ConfigError(f"{self._file}:{line}: the key {key.value!r} is not a string")
            if name in seen:
                raise ConfigError(
                    f"{self._file}:{line}: {name} is already on line {seen[name]}; keep one"
                )
            seen[name] = line
        self._loader.flatten_mapping(node)  # puts the keys from << before those of the node
        entries: dict[str, Entry] = {}
        for key, value in node.value:
            inner = self.entry(value)
            entries[str(self.entry(key).value)] = Entry(inner.value, key.start_mark.line + 1)
        return entries


def _without_colon(word: str) -> str:
    name = word.removeprefix(":")
    return name if name[:1].isalpha() or name[:1] == "_" else word
