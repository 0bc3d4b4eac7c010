"""The golden data is well formed, complete and agrees with its own derivation.

Other modules test jobwire against the data; this one imports nothing from jobwire.
"""

from __future__ import annotations

import base64
import functools
import importlib.util
import json
import re
import shutil
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from tests.rows import over

pytestmark = pytest.mark.process

REPOSITORY = Path(__file__).resolve().parents[3]
FIXTURES = REPOSITORY / "fixtures"
INDEX: list[dict[str, Any]] = json.loads((FIXTURES / "index.json").read_text("utf-8"))
TRANSCRIPTS = [line for line in INDEX if line["kind"] == "transcript"]
LISTS = [line for line in INDEX if line["kind"] != "transcript"]
FILES = [line["file"] for line in LISTS]
PAYLOAD_FILES = [line["file"] for line in INDEX if line["kind"] in ("payloads", "invalid")]
PROCESS_FILES = [line["file"] for line in INDEX if line["kind"] == "processes"]
STATE_FILES = [line["file"] for line in INDEX if line["kind"] == "states"]
SELF_COVERING = [line for line in LISTS if line["kind"] not in ("payloads", "processes")]
SIZE_LIMIT = 3_000_000  # bytes, because every wheel contains the fixtures


@functools.cache
def entries(file: str) -> list[dict[str, Any]]:
    loaded: list[dict[str, Any]] = json.loads((FIXTURES / file).read_text("utf-8"))
    return loaded


@functools.cache
def validator(kind: str) -> Draft202012Validator:
    schema = json.loads((REPOSITORY / "schema" / "fixture.json").read_text("utf-8"))
    del schema["anyOf"]
    return Draft202012Validator(schema | {"$ref": f"#/$defs/{kind}"})


@pytest.fixture(scope="module")
def derivation() -> ModuleType:
    """Return the capture directory's outcome.py, a script outside of any package."""
    path = FIXTURES / "capture" / "outcome.py"
    spec = importlib.util.spec_from_file_location("fixture_outcome", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def payload_of(entry: dict[str, Any]) -> bytes:
    if "payload" in entry:
        return str(entry["payload"]).encode("utf-8")
    return base64.b64decode(entry["payload_base64"], validate=True)


def test_index_lists_every_file() -> None:
    present = {
        path.relative_to(FIXTURES).as_posix()
        for suffix in ("json", "txt")
        for path in FIXTURES.rglob(f"*.{suffix}")
    }
    assert sorted(line["file"] for line in INDEX) == sorted(present - {"index.json"})


@pytest.mark.process
def test_index_is_what_its_script_makes(tmp_path: Path) -> None:
    """Counts, coverage and order are generated, so a manual change fails."""
    copy = tmp_path / "fixtures"
    shutil.copytree(FIXTURES, copy)
    shutil.copy(REPOSITORY / "SPEC.md", tmp_path)
    shutil.copytree(REPOSITORY / "spec", tmp_path / "spec")
    subprocess.run([sys.executable, copy / "capture" / "index.py"], check=True)
    assert json.loads((copy / "index.json").read_text("utf-8")) == INDEX


def test_what_no_script_records_says_why() -> None:
    """The script records all data that comes from Sidekiq."""
    for line in INDEX:
        reason = line["provenance"].get("not_recorded", "")
        assert bool(reason) == (line["provenance"]["script"] != "fixtures/capture/record.py")
        assert not (reason and line["file"].startswith(("sidekiq/", "invalid/"))), line["file"]


def test_index_follows_the_schema() -> None:
    validator("index").validate(INDEX)


@pytest.mark.parametrize("line", LISTS, ids=FILES)
def test_file_follows_the_schema(line: dict[str, Any]) -> None:
    validator(line["kind"]).validate(entries(line["file"]))


@over(
    "spoilt",
    [
        {"outcome": "skip"},
        {"reason": "not-json"},
        {"class": ""},
        {"created_at": 1795191459.5},
        {"unheard": 1},
    ],
    ids=lambda change: next(iter(change)),
)
def test_schema_refuses_a_spoilt_expectation(spoilt: dict[str, Any]) -> None:
    [sound] = [
        e for e in entries("sidekiq/8.1.7/payloads.json") if e["name"] == "retry-first/retry/0"
    ]
    assert validator("payloads").is_valid([sound])
    assert not validator("payloads").is_valid([sound | {"expect": sound["expect"] | spoilt}])


@over("line", LISTS, ids=FILES)
def test_index_counts_entries_and_their_names_are_unique(line: dict[str, Any]) -> None:
    names = [entry["name"] for entry in entries(line["file"])]
    assert line["count"] == len(names) == len(set(names))


@over("file", [*FILES, "index.json"])
def test_file_has_one_entry_a_line(file: str) -> None:
    text = (FIXTURES / file).read_bytes().decode("utf-8")
    opening, *lines, closing, rest = text.split("\n")
    assert (opening, closing, rest) == ("[", "]", "")
    assert [json.loads(line.removesuffix(",")) for line in lines] == json.loads(text)
    assert text.replace("\n", "").isprintable()


@pytest.mark.parametrize("file", PAYLOAD_FILES)
def test_payload_is_base64_only_if_it_is_not_utf8(file: str) -> None:
    for entry in entries(file):
        if "payload_base64" in entry:
            with pytest.raises(UnicodeDecodeError):
                payload_of(entry).decode("utf-8")


@pytest.mark.parametrize("file", PAYLOAD_FILES)
def test_expectation_follows_from_the_bytes(file: str, derivation: ModuleType) -> None:
    for entry in entries(file):
        stated = {name: value for name, value in entry["expect"].items() if name != "sidekiq"}
        if stated["outcome"] == "run-or-bury":  # libraries differ; the derivation keeps the digits
            stated["outcome"] = "run"
            del stated["reason"]
        assert derivation.expect(payload_of(entry)) == stated, entry["name"]


@pytest.mark.parametrize("file", PAYLOAD_FILES)
def test_expectation_agrees_with_a_plain_parser(file: str) -> None:
    """A plain parser confirms the values that the derivation read from the text."""
    for entry in entries(file):
        expect = entry["expect"]
        if expect["outcome"] == "run":
            job = json.loads(payload_of(entry))
            assert job["class"] == expect["class"], entry["name"]
            assert job.get("jid") == expect["jid"], entry["name"]
            assert repr(job.get("args") or []) == repr(json.loads(expect["args_json"]))


@over("line", SELF_COVERING, ids=lambda line: line["file"])
def test_entries_cover_what_the_index_says(line: dict[str, Any]) -> None:
    named = {
        identifier
        for entry in entries(line["file"])
        for identifier in (*entry.get("breaks", []), *entry["covers"])
    }
    assert named == set(line["covers"])


def test_invalid_entries_show_every_outcome_and_every_generation() -> None:
    seen = {entry["expect"]["outcome"] for entry in entries("invalid/payloads.json")}
    assert seen == {"run", "fail", "bury", "run-or-bury"}
    captured = {Path(file).parent.name for file in FILES if file.startswith("sidekiq/")}
    for entry in entries("invalid/payloads.json"):
        assert set(entry["expect"]["sidekiq"]) == captured, entry["name"]


@pytest.mark.parametrize("file", PROCESS_FILES)
def test_processes_are_described_as_stored(file: str) -> None:
    for entry in entries(file):
        described = {process["identity"]: process for process in entry["expect"]}
        assert set(described) == set(entry["identities"]), entry["name"]
        for identity, process in described.items():
            info = json.loads(entry["identities"][identity]["fields"]["info"])
            assert info["identity"] == identity
            assert process["queues"] == info["queues"]
            assert process["alive"] == (identity in entry["processes"])
            records = {
                tid
                for key, work in entry["work"].items()
                if key in (f"{identity}:work", f"{identity}:workers")
                for tid in work["fields"]
            }
            assert {record["tid"] for record in process["work"]} == records


@pytest.mark.parametrize("file", STATE_FILES)
def test_states_are_sorted_and_whole(file: str) -> None:
    for entry in entries(file):
        for part in ("before", "redis"):
            keys = [key["key"] for key in entry.get(part, [])]
            assert keys == sorted(set(keys), key=str.encode), entry["name"]
            for key in entry.get(part, []):
                if key["type"] == "zset":
                    scores = [float(score) for _, score in key["value"]]
                    assert scores == sorted(scores), entry["name"]


@pytest.mark.parametrize("file", STATE_FILES)
def test_payloads_of_states_are_in_payloads_json(file: str) -> None:
    """The two files of one capture agree."""
    known: dict[str, set[tuple[str, str]]] = {}
    for entry in entries(file.replace("states", "payloads")):
        text = entry.get("payload", entry.get("payload_base64", ""))
        known.setdefault(entry["scenario"], set()).add((entry["place"], text))
    for entry in entries(file):
        for key in (*entry.get("before", []), *entry["redis"]):
            if key["type"] == "zset":
                members = [member for member, _ in key["value"]]
            else:
                members = key["value"] if key["key"].startswith("queue:") else []
            assert {(key["key"], member) for member in members} <= known.get(entry["name"], set())


@over("line", TRANSCRIPTS, ids=lambda line: line["file"])
def test_transcript_is_commands_and_marks(line: dict[str, Any]) -> None:
    heading, *rest = (FIXTURES / line["file"]).read_text("utf-8").splitlines()
    version = line["file"].split("/")[1]
    assert heading.startswith(f"# Sidekiq {version}, redis-server MONITOR: ")
    commands = [text for text in rest if not text.startswith("#")]
    assert len(commands) == line["count"]
    for command in commands:
        assert re.fullmatch(r'\d+\.\d{6} \[\d+ (c\d+|lua)\] "\w+"( "([^"\\]|\\.)*")*', command)


@over("line", TRANSCRIPTS, ids=lambda line: line["file"])
def test_transcript_holds_no_text_of_a_script(line: dict[str, Any]) -> None:
    """Foreign scripts appear only by their SHA-1."""
    text = (FIXTURES / line["file"]).read_text("utf-8")
    assert not re.search(r"redis\.p?call|\bKEYS\[|\bARGV\[", text)
    loads = re.findall(r'(?i)"script" "load" "(.*)"$', text, re.MULTILINE)
    assert all(re.fullmatch(r"<script text left out, sha1 [0-9a-f]{40}>", load) for load in loads)
    assert not re.search(r'(?i)\] "eval"', text)


def test_fixtures_stay_small() -> None:
    assert sum(path.stat().st_size for path in FIXTURES.rglob("*") if path.is_file()) < SIZE_LIMIT


def test_the_derivation_reads_times_as_the_vectors_say(derivation: ModuleType) -> None:
    """The rule has two tests: for single values, and for whole payloads."""
    for vector in entries("vectors/times.json"):
        if "beyond-every-double" not in vector["name"]:  # the derivation has no doubles
            value = json.loads(vector["json"], parse_float=Decimal, parse_int=Decimal)
            assert derivation.milliseconds(value) == vector["ms"], vector["name"]


def test_nothing_of_jobwire_is_used() -> None:
    """The expectations would prove nothing if the code under test had made them."""
    for script in sorted((FIXTURES / "capture").glob("*.py")):
        assert "jobwire" not in {
            word
            for line in script.read_text("utf-8").splitlines()
            if line.lstrip().startswith(("import ", "from "))
            for word in line.replace(".", " ").split()
        }, script.name
