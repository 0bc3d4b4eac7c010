"""The values of short Ruby expressions about environment variables. No Ruby code is ever run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from jobwire.errors import ConfigError

__all__ = ["Unknown", "text_of"]

_TOKEN = re.compile(
    r"""\s*(?:"(?P<double>[^"\\#]*)"|'(?P<single>[^'\\]*)'|(?P<number>-?\d+(?:_\d+)*(?:\.\d+)?)"""
    r"""|(?P<word>[A-Za-z_]\w*)|(?P<mark>\|\||[][(){}.,]))"""
)
_INTEGER = re.compile(r"\s*[+-]?\d+(?:_\d+)*")
_FLOAT = re.compile(rf"{_INTEGER.pattern}(?:\.\d+)?(?:[eE][+-]?\d+)?")
_WORDS: Mapping[str, bool | None] = {"true": True, "false": False, "nil": None}


class Unknown(Exception):
    """The code is not one of the forms that are understood."""


@dataclass(frozen=True, slots=True)
class _Failure:
    """Takes the place of a value that Ruby would raise an error for, if it needs the value."""

    message: str


_Value = str | int | float | bool | None | _Failure


def text_of(code: str, environ: Mapping[str, str]) -> str:
    """Return the text that Ruby would put in place of a tag with this code.

    The forms are `ENV["A"]` and `ENV.fetch("A")` with a default in each notation, literals, `||`,
    parentheses, `Integer()` and `Float()`, `.to_i`, `.to_f`, `.to_s` and `.presence`.

    Raises:
        Unknown: The code has another form.
        ConfigError: Ruby would raise an error as well, for example because a variable is not set.
    """
    tokens: list[tuple[str, str]] = []
    position, end = 0, len(code.rstrip())
    while position < end:
        match = _TOKEN.match(code, position)
        if match is None or match.lastgroup is None:
            raise Unknown(code)
        tokens.append((match.lastgroup, match[match.lastgroup]))
        position = match.end()
    reader = _Reader(tokens, environ)
    value = reader.expression()
    if reader.left:
        raise Unknown(code)
    if isinstance(value, _Failure):
        raise ConfigError(value.message)
    return _text(value)


class _Reader:
    def __init__(self, tokens: list[tuple[str, str]], environ: Mapping[str, str]) -> None:
        self.left = tokens[::-1]
        self._environ = environ

    def expression(self) -> _Value:
        value = self._operand()
        while self._takes("||"):
            other = self._operand()
            if value is None or value is False:
                value = other
        return value

    def _operand(self) -> _Value:
        value = self._primary()
        while self._takes("."):
            value = _converted(self._any()[1], value)
        return value

    def _primary(self) -> _Value:
        kind, text = self._any()
        if kind in ("double", "single"):
            return text
        if kind == "number":
            return float(text) if "." in text else int(text)
        if text == "(":
            return self._until(")")
        if text in _WORDS:
            return _WORDS[text]
        if text in ("Integer", "Float"):
            self._expect("(")
            return _converted(text, self._until(")"))
        if text == "ENV":
            return self._variable()
        raise Unknown(text)

    def _variable(self) -> _Value:
        if self._takes("["):
            name = self._name()
            self._expect("]")
            return self._environ.get(name)
        for word in (".", "fetch", "("):
            self._expect(word)
        name = self._name()
        otherwise: _Value = _Failure(f"ENV.fetch({name!r}): the variable is not set")
        if self._takes(","):
            otherwise = self.expression()
        self._expect(")")
        if self._takes("{"):
            otherwise = self._until("}")
        elif self._takes("do"):
            otherwise = self._until("end")
        return self._environ.get(name, otherwise)

    def _name(self) -> str:
        kind, text = self._any()
        if kind not in ("double", "single"):
            raise Unknown(text)
        return text

    def _until(self, end: str) -> _Value:
        value = self.expression()
        self._expect(end)
        return value

    def _takes(self, text: str) -> bool:
        if self.left and self.left[-1][0] in ("mark", "word") and self.left[-1][1] == text:
            self.left.pop()
            return True
        return False

    def _expect(self, text: str) -> None:
        if not self._takes(text):
            raise Unknown(text)

    def _any(self) -> tuple[str, str]:
        if not self.left:
            raise Unknown
        return self.left.pop()


def _converted(method: str, value: _Value) -> _Value:
    """Return what a method of Ruby makes of a value: `to_i` reads the digits in front of a text."""
    if isinstance(value, _Failure):
        return value
    text = _text(value)
    match method:
        case "to_s":
            return text
        case "presence":
            return value if text.strip() and value is not False else None
        case "to_i" | "to_f" if isinstance(value, bool):
            raise Unknown(method)
        case "to_i":
            found = _INTEGER.match(text)
            return int(found[0]) if found else 0
        case "to_f":
            found = _FLOAT.match(text)
            return float(found[0]) if found else 0.0
        case "Integer" | "Float":
            if isinstance(value, int | float) and not isinstance(value, bool):
                return int(value) if method == "Integer" else float(value)
            form = _INTEGER if method == "Integer" else _FLOAT
            if isinstance(value, str) and form.fullmatch(text.strip()):
                return int(text) if method == "Integer" else float(text)
            return _Failure(f"{method}({text!r}): the value is not a number")
    raise Unknown(method)


def _text(value: str | float | bool | None) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)
