"""Finds a place in Python source by function and syntax, and puts other syntax there.

Layout, comments and the names of local variables do not matter, so the source may change in these
ways without a change of the pattern.
"""

from __future__ import annotations

import ast
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from jobwire_conformance.errors import SuiteFault

__all__ = ["Place", "place", "replaced"]

_NAMES = {(ast.Name, "id"), (ast.arg, "arg"), (ast.ExceptHandler, "name")}
_IGNORED = frozenset(["ctx", "kind", "type_comment"])
# CPython 3.11 counts its recursion wrongly while two threads parse: SystemError.
_parsing = threading.Lock()


@dataclass(slots=True)
class _Match:
    """Names of the pattern with those of the source, and the statements for its `...`."""

    local: frozenset[str]
    names: dict[str, str] = field(default_factory=dict)
    rest: list[Any] = field(default_factory=list)

    def same(self, pattern: Any, found: Any) -> bool:
        if isinstance(pattern, list):
            if pattern and _is_rest(pattern[-1]) and isinstance(found, list):
                pattern, count = pattern[:-1], len(pattern) - 1
                found, self.rest = found[:count], found[count:]
            return (
                isinstance(found, list)
                and len(found) == len(pattern)
                and all(map(self.same, pattern, found))
            )
        if type(pattern) is not type(found):
            return False
        if not isinstance(pattern, ast.AST):
            return bool(pattern == found)
        return all(
            self.same_name(value, getattr(found, name))
            if (type(pattern), name) in _NAMES
            else self.same(value, getattr(found, name))
            for name, value in ast.iter_fields(pattern)
            if name not in _IGNORED
        )

    def same_name(self, pattern: str | None, found: str | None) -> bool:
        if pattern is None or found is None or found not in self.local:
            return pattern == found
        other = self.names.setdefault(pattern, found)
        return other == found and [*self.names.values()].count(found) == 1


class _Renamed(ast.NodeTransformer):
    """Gives the new syntax the names of the source, and the statements for its `...`."""

    def __init__(self, match: _Match) -> None:
        self._match = match

    def generic_visit(self, node: ast.AST) -> ast.AST:
        for name, value in ast.iter_fields(node):
            if (type(node), name) in _NAMES:
                setattr(node, name, self._match.names.get(value, value))
        return super().generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> Any:
        return self._match.rest if _is_rest(node) else self.generic_visit(node)


@dataclass(frozen=True, slots=True)
class Place:
    """A place in a tree, and the syntax to put there."""

    parent: ast.AST
    field: str
    span: slice
    new: list[Any]

    def fill(self) -> None:
        """Change the tree."""
        value = getattr(self.parent, self.field)
        if isinstance(value, list):
            value[self.span] = self.new
            if not value:
                value.append(ast.Pass())
        else:
            setattr(self.parent, self.field, self.new[0])


def replaced(source: str, function: str, find: str, put: str) -> str:
    """Return the source of a module with `put` in the place that `place` finds."""
    with _parsing:
        tree = ast.parse(source)
        place(tree, function, find, put).fill()
        return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


def place(tree: ast.Module, function: str, find: str, put: str) -> Place:
    """Return the only place of `function` that is like `find`.

    Args:
        tree: A module.
        function: Qualified name of a function or class; empty for the whole module.
        find: An expression or statements. Local variables may have any names. A last statement
            `...` of a block stands for all that follow in the block.
        put: An expression or statements with the names of `find`, and its `...`.

    Raises:
        SuiteFault: No place or more than one is like `find`, or `put` has a local name of its own.
    """
    scope, local = _scope(tree, function)
    old: list[Any] = ast.parse(find).body
    new: list[Any] = ast.parse(put).body
    if all(len(part) == 1 and isinstance(part[0], ast.Expr) for part in (old, new)):
        old, new = [old[0].value], [new[0].value]
    places = [*_places(scope, old, local)]
    if len(places) != 1:
        raise SuiteFault(f"{function} has {len(places)} times, not once: {find!r}".lstrip())
    parent, name, span, match = places[0]
    used = {node.id for part in new for node in ast.walk(part) if isinstance(node, ast.Name)}
    if unbound := sorted((used & local) - match.names.keys()):
        raise SuiteFault(f"{function}: {', '.join(unbound)} must be in {find!r} as well")
    body = _Renamed(match).visit(ast.Module(new, [])).body
    return Place(parent, name, span, body)


def _places(
    scope: ast.AST, pattern: list[Any], local: frozenset[str]
) -> Iterator[tuple[ast.AST, str, slice, _Match]]:
    for parent in ast.walk(scope):
        for name, value in ast.iter_fields(parent):
            nodes = value if isinstance(value, list) else [value]
            for start, node in enumerate(nodes):
                if type(node) is type(pattern[0]):
                    span = slice(start, None if _is_rest(pattern[-1]) else start + len(pattern))
                    match = _Match(local)
                    if match.same(pattern, nodes[span]):
                        yield parent, name, span, match


def _scope(tree: ast.Module, function: str) -> tuple[ast.AST, frozenset[str]]:
    """Return the definition with a qualified name, and the names that are local to it."""
    scope: ast.AST = tree
    outermost: ast.AST | None = None
    for part in filter(None, function.split(".")):
        found = [node for node in _definitions(scope) if node.name == part]
        if not found:
            raise SuiteFault(f"has no {function}")
        scope = found[-1]  # the last: overloads come before the function
        if outermost is None and not isinstance(scope, ast.ClassDef):
            outermost = scope
    return scope, frozenset(_local(outermost) if outermost else ())


def _definitions(
    scope: ast.AST,
) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    for node in ast.iter_child_nodes(scope):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node
        elif isinstance(node, ast.stmt | ast.ExceptHandler):
            yield from _definitions(node)


def _local(function: ast.AST) -> Iterator[str]:
    for node in ast.walk(function):
        if isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            yield node.id
        elif isinstance(node, ast.ExceptHandler) and node.name:
            yield node.name


def _is_rest(node: Any) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and node.value.value is ...
    )
