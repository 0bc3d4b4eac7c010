"""Payloads made from the constraints of `schema/payload.json`, and from nothing else."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.schemas import schema

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
NUMBERS = (
    st.sampled_from([0, -1, 2**53 + 1, 2**63 - 1, 2**64, 10**300, 0.0, -0.0, 1e16, 5e-324])
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
TYPES: dict[str, st.SearchStrategy[Any]] = {
    "null": st.none(),
    "boolean": st.booleans(),
    "object": st.dictionaries(TEXT, VALUES, max_size=3),
}


def text(payload: Mapping[str, Any]) -> bytes:
    """Return a payload as a compact writer other than ours spells it. [PAY-2]"""
    return json.dumps(payload, ensure_ascii=False, separators=(",", ":")).encode()


@dataclass
class Shape:
    """All constraints of the schemas that apply to one object."""

    fields: dict[str, list[Mapping[str, Any]]] = field(default_factory=dict)
    required: set[str] = field(default_factory=set)
    needs: list[tuple[str, Sequence[str]]] = field(default_factory=list)
    conditions: list[tuple[Mapping[str, Any], Sequence[str]]] = field(default_factory=list)

    def add(self, node: Mapping[str, Any]) -> None:
        if "$ref" in node:
            self.add(schema("payload")["$defs"][node["$ref"].removeprefix("#/$defs/")])
        for inner in node.get("allOf", ()):
            self.add(inner)
        for name, constraint in node.get("properties", {}).items():
            self.fields.setdefault(name, []).extend([constraint, *constraint.get("allOf", ())])
        self.required |= set(node.get("required", ()))
        self.needs += node.get("dependentRequired", {}).items()
        if "if" in node:
            self.conditions.append((node["if"]["properties"], node["then"]["required"]))

    def values(self) -> dict[str, st.SearchStrategy[Any]]:
        """Return a strategy for each allowed field."""
        allowed = {
            name: constraints
            for name, constraints in self.fields.items()
            if not any(each.get("not") == {} for each in constraints)
        }
        return {name: value(constraints) for name, constraints in allowed.items()}

    def complete(self, names: set[str]) -> set[str]:
        """Return the names and all fields that they require."""
        while (
            missing := {
                needed for name, all_needed in self.needs if name in names for needed in all_needed
            }
            - names
        ):
            names = names | missing
        return names


@cache
def shape_of(part: str) -> tuple[Shape, dict[str, st.SearchStrategy[Any]]]:
    """Return the shape of a part of the schema, with a strategy for each field."""
    shape = Shape()
    shape.add({"$ref": f"#/$defs/{part}"})
    return shape, shape.values()


def value(constraints: Sequence[Mapping[str, Any]]) -> st.SearchStrategy[Any]:
    """Return a strategy for values that all these schemas accept."""
    kinds: set[str] | None = None
    excluded: list[Any] = []
    merged: dict[str, Any] = {}
    for each in constraints:
        if "enum" in each:
            return st.sampled_from(each["enum"])
        if "type" in each:
            named = {each["type"]} if isinstance(each["type"], str) else set(each["type"])
            kinds = named if kinds is None else kinds & named
        excluded += each.get("not", {}).get("enum", [])
        for keyword in ("minimum", "exclusiveMinimum", "minLength"):
            if keyword in each:
                merged[keyword] = max(each[keyword], merged.get(keyword, each[keyword]))
        for keyword in (
            *("maximum", "exclusiveMaximum", "maxLength", "pattern", "items"),
            *("properties", "required", "oneOf"),
        ):
            if keyword in each:
                assert merged.setdefault(keyword, each[keyword]) == each[keyword]
    if kinds is None:
        return VALUES.filter(lambda v: v not in excluded)
    strategies = [_typed(kind, merged) for kind in sorted(kinds)]
    # `in` would treat 0 as False.
    return st.one_of(strategies).filter(lambda v: not any(v is bad for bad in excluded))


def _typed(kind: str, limits: Mapping[str, Any]) -> st.SearchStrategy[Any]:
    if kind == "integer":
        least, most = limits.get("minimum"), limits.get("maximum")
        return st.integers(least, most)
    if kind == "number":
        return st.floats(
            limits.get("minimum", limits.get("exclusiveMinimum")),
            limits.get("maximum", limits.get("exclusiveMaximum")),
            exclude_min="exclusiveMinimum" in limits,
            exclude_max="exclusiveMaximum" in limits,
            allow_nan=False,
            allow_infinity=False,
        )
    if kind == "array":
        return st.lists(value([limits["items"]]) if "items" in limits else VALUES, max_size=4)
    if kind == "object" and "required" in limits:
        of = limits["properties"]
        choices = limits.get("oneOf", [{"required": ()}])
        alternatives = [
            {name: value([of.get(name, {})]) for name in (*limits["required"], *one["required"])}
            for one in choices
        ]
        return st.one_of([st.fixed_dictionaries(one) for one in alternatives])
    if kind != "string":
        return TYPES[kind]
    if "pattern" in limits:
        return st.from_regex(limits["pattern"].replace("$", r"\Z"))
    length = {"min_size": limits.get("minLength", 0)}
    return st.text(st.characters(exclude_categories=["Cs"]), max_size=12, **length)


@st.composite
def payloads(draw: st.DrawFn, part: str, fixed: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Draw a payload of a part of the schema; the fields of `fixed` have those values."""
    shape, values = shape_of(part)
    values = {**values, **{name: st.just(each) for name, each in (fixed or {}).items()}}
    optional = draw(st.sets(st.sampled_from(sorted(values))))
    names = shape.complete(shape.required | set(fixed or {}) | optional)
    payload = {name: draw(values[name]) for name in sorted(names)}
    for condition, required in shape.conditions:
        if all(payload.get(name, 0) >= limit["minimum"] for name, limit in condition.items()):
            payload |= {name: draw(values[name]) for name in required}
    unknown = st.dictionaries(TEXT.map("x_{}".format), VALUES, max_size=2)
    return {**payload, **draw(unknown)}


def sample(strategy: st.SearchStrategy[Any], count: int) -> list[Any]:
    """Return `count` examples, the same ones at every call."""
    drawn: list[Any] = []

    @settings(
        max_examples=count,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def collect(example: Any) -> None:
        drawn.append(example)

    collect()
    assert len(drawn) >= count
    return drawn[:count]
