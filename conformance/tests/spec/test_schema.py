"""The JSON Schemas are sound, and fit what real Sidekiq wrote."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from jobwire_conformance import data
from tests.rows import over
from tests.schemas import GENERATIONS, ROOT, load, problems

SCHEMAS = [p for p in sorted((ROOT / "schema").glob("*.json")) if p.stem != "registry"]
# schema/fixture.json describes files of the repository; the others have the SPEC's version.
VERSIONED = [path for path in SCHEMAS if path.stem != "fixture"]
# Schemas of the conformance suite, not of data in Redis: the specification requires only some
# of their fields.
SUITE = {
    *("driver", "case", "kills", "mutant", "portable-case", "results", "source-mutants", "summary"),
    *("variant", "requirements.schema", "registry.schema"),
}
ON_THE_WIRE = [path for path in VERSIONED if path.stem not in SUITE]
DIALECT = "https://json-schema.org/draft/2020-12/schema"
VERSION = data.spec_version()
CITED = re.compile(r"\[(?:X-)?[A-Z]+-\d+\]")


def property_schemas(schema: object, path: str = "#") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every schema of a property, with its path."""
    if isinstance(schema, dict):
        for keyword in ("properties", "patternProperties"):
            for name, inner in schema.get(keyword, {}).items():
                yield f"{path}/{keyword}/{name}", inner
        if isinstance(schema.get("additionalProperties"), dict):
            yield f"{path}/additionalProperties", schema["additionalProperties"]
        for name, inner in schema.items():
            yield from property_schemas(inner, f"{path}/{name}")
    elif isinstance(schema, list):
        for index, inner in enumerate(schema):
            yield from property_schemas(inner, f"{path}/{index}")


def described(field: Mapping[str, Any]) -> bool:
    """True if a field has a description, in place or in its definition."""
    return bool(field.get("description") or field.get("$ref"))


def nodes(schema: object, path: str = "#") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every object in a schema, except data and parts that do not reject alone."""
    if isinstance(schema, dict):
        yield path, schema
        for name, inner in schema.items():
            if name not in ("examples", "const", "enum", "not", "if"):
                yield from nodes(inner, f"{path}/{name}")
    elif isinstance(schema, list):
        for index, inner in enumerate(schema):
            yield from nodes(inner, f"{path}/{index}")


def constrains(node: Mapping[str, Any]) -> bool:
    """True if a schema rejects more than a wrong type."""
    keywords = {"minimum", "maximum", "pattern", "enum", "minLength", "maxLength", "uniqueItems"}
    return bool(keywords & set(node)) or isinstance(node.get("required"), list)


@pytest.mark.parametrize("path", SCHEMAS, ids=lambda p: p.stem)
def test_schema_is_valid_itself(path: Path) -> None:
    schema = load(path)
    assert schema["$schema"] == DIALECT
    Draft202012Validator.check_schema(schema)


@pytest.mark.parametrize("path", VERSIONED, ids=lambda p: p.stem)
class TestVersionedSchema:
    def test_id_names_file_and_specification(self, path: Path) -> None:
        assert load(path)["$id"] == f"urn:jobwire:schema:{VERSION}:{path.stem}"

    def test_every_field_is_described(self, path: Path) -> None:
        fields = list(property_schemas(load(path)))
        assert fields or path.stem == "signals"  # a list of names
        assert [place for place, field in fields if not described(field)] == []

    def test_examples_are_valid(self, path: Path) -> None:
        whole = load(path)
        for example in whole.get("examples", []):
            assert problems(path.stem, None, example) == []
        assert whole.get("examples") or path.stem in {"payload", "process-info", "work-record"}

    def test_the_readme_lists_it(self, path: Path) -> None:
        assert f"`{path.name}`" in (ROOT / "schema" / "README.md").read_text("utf-8")


def test_data_made_from_the_specification_has_its_form() -> None:
    assert problems("registry.schema", None, load(ROOT / "schema" / "registry.json")) == []
    assert problems("requirements.schema", None, data.record(ROOT)) == []


@over("path", ON_THE_WIRE, ids=lambda p: p.stem)
def test_every_constraint_on_the_wire_names_a_requirement(path: Path) -> None:
    """A field names it in its own annotation, other constraints in that of their schema."""
    whole = load(path)
    assert [
        place
        for place, field in property_schemas(whole)
        if not CITED.match(field.get("$comment", ""))
    ] == []
    assert [
        place
        for place, node in nodes(whole)
        if constrains(node) and not CITED.search(node.get("$comment", ""))
    ] == []


def keys_of(version: str) -> Iterator[tuple[str, Any]]:
    """Yield every key of every captured state, with its value."""
    for state in load(ROOT / "fixtures" / "sidekiq" / version / "states.json"):
        for key in state.get("before", []) + state["redis"]:
            yield key["key"], key["value"]


@pytest.mark.parametrize("version", GENERATIONS)
class TestRealStates:
    def test_iteration_states(self, version: str) -> None:
        """ITER-1, ITER-7: Sidekiq has iteration since 7.3."""
        states = [value for key, value in keys_of(version) if key.startswith("it-")]
        assert bool(states) == (version != "6.4.1")
        for state in states:
            parts = ["written"] if "c" in state else []
            parts += ["cancelled"] if "cancelled" in state else []
            assert parts
            for part in parts:
                assert problems("iteration-state", part, state) == []

    def test_metrics(self, version: str) -> None:
        """MET-1, MET-2: the names of the keys are those of Sidekiq 8, the fields are older."""
        buckets = {key: value for key, value in keys_of(version) if key.startswith("j|")}
        histograms = [key for key, _ in keys_of(version) if key.startswith("h|")]
        assert bool(buckets) == (version != "6.4.1")
        assert bool(histograms) == (version == "8.1.7")
        for key, fields in buckets.items():
            assert problems("metrics-bucket", "written", fields) == []
            names = [
                part
                for part in ("minute-key", "ten-minute-key")
                if problems("metrics-bucket", part, key) == []
            ]
            assert len(names) == (version == "8.1.7")
        for key in histograms:
            assert problems("metrics-bucket", "histogram-key", key) == []


def test_names_of_metrics_keys() -> None:
    """MET-1, MET-2: only minute, month and day have a leading zero in a name."""
    for part, key in [
        ("minute-key", "j|250214|8:04"),
        ("ten-minute-key", "j|250214|0:4"),
        ("histogram-key", "h|Reports::NestedJob-1-0:4"),
    ]:
        assert problems("metrics-bucket", part, key) == []
