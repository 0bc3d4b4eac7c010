"""The golden data is well formed, complete and agrees with its own derivation.

Other modules test jobwire against the data; this one imports nothing from jobwire.
"""

from __future__ import annotations

import base64
import functools
import importlib.util
import json
import math
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

from jobwire.connection import resources
from jobwire.errors import MalformedPayload
from jobwire.protocol import times
from jobwire.protocol.keys import Keys
from jobwire.protocol.payload import decode, edit
from jobwire.protocol.pushing import detect_generation
from jobwire.protocol.retry import Discard, Failure, after_failure
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


RUN_FIXTURES = resources.path("fixtures")
RUN_FILES = [
    line["file"]
    for line in json.loads((RUN_FIXTURES / "index.json").read_text("utf-8"))
    if line["kind"] in ("payloads", "invalid")
]
TIMES = ("created_at", "enqueued_at", "failed_at", "retried_at")
NOW = 1_795_192_067.25


def run_entries(file: str) -> list[dict[str, Any]]:
    loaded: list[dict[str, Any]] = json.loads(Path(RUN_FIXTURES / file).read_text("utf-8"))
    return loaded


def payload(entry: dict[str, Any]) -> bytes:
    if "payload" in entry:
        return str(entry["payload"]).encode()
    return base64.b64decode(entry["payload_base64"])


def observed(text: bytes) -> dict[str, Any]:
    """Return the outcome in a worker that knows every class, in the form of `expect`."""
    try:
        job = decode(text, "default")
    except MalformedPayload as error:
        return {"outcome": "bury", "rule": error.rule}
    if not job.class_name:
        return {"outcome": "fail", "reason": "no-class"}
    try:
        args = job.args
    except TypeError:
        return {"outcome": "fail", "reason": "args-not-an-array"}
    seen: dict[str, Any] = {
        "outcome": "run",
        "class": job.class_name,
        "args": exact(args),
        "jid": job.jid,
    }
    for name in TIMES:
        seconds = times.read(job.get(name))
        seen[name] = None if seconds is None else round(seconds * 1000)
    return seen


def exact(value: Any) -> Any:
    """Return a value in which 1, 1.0 and -0.0 compare as different."""
    if isinstance(value, list):
        return [exact(item) for item in value]
    if isinstance(value, dict):
        return [(name, exact(item)) for name, item in sorted(value.items())]
    return (type(value).__name__, repr(value))


def wanted(expect: dict[str, Any]) -> dict[str, Any]:
    if expect["outcome"] == "bury":
        rule = {"not-an-object": "EXEC-4", "too-deep": "PAY-3"}.get(expect["reason"], "EXEC-3")
        return {"outcome": "bury", "rule": rule}
    if expect["outcome"] == "fail":
        return {"outcome": "fail", "reason": expect["reason"]}
    known = {name: expect[name] for name in ("class", "jid", *TIMES)}
    return {"outcome": "run", "args": exact(json.loads(expect["args_json"]))} | known


def differences(entry: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the differences from the expectation: name to (seen, expected)."""
    seen = observed(payload(entry))
    if entry["expect"]["outcome"] == "run-or-bury" and seen["outcome"] == "bury":
        return {}
    expected = wanted(entry["expect"])
    wrong = {}
    for name in sorted(seen.keys() | expected.keys()):
        ours, theirs = seen.get(name), expected.get(name)
        if name in TIMES and ours is not None and theirs is not None:
            if abs(ours - theirs) > 1:  # cut or rounded
                wrong[name] = (ours, theirs)
        elif ours != theirs:
            wrong[name] = (ours, theirs)
    return wrong


@pytest.mark.parametrize("file", RUN_FILES)
def test_every_payload_is_run_failed_or_buried_as_expected(file: str) -> None:
    """EXEC-1, EXEC-3, EXEC-4, EXEC-7, EXEC-9, GEN-3, PAY-1, PAY-3, PAY-5, PAY-6, SEC-1."""
    listed = run_entries(file)
    assert listed
    assert {e["name"]: wrong for e in listed if (wrong := differences(e))} == {}


@pytest.mark.parametrize("file", RUN_FILES)
def test_every_payload_survives_an_edit(file: str) -> None:
    """PAY-7: fields that a transition does not own keep their exact values."""
    for entry in run_entries(file):
        text = payload(entry)
        if observed(text)["outcome"] == "bury":
            continue
        before = json.loads(text)
        after = json.loads(edit(text, {"retried_at": 5}))
        assert exact(after) == exact(before | {"retried_at": 5}), entry["name"]


@pytest.mark.parametrize("file", RUN_FILES)
def test_every_payload_can_fail(file: str) -> None:
    """RETRY-1 and RETRY-9: every payload has an outcome after a failure, and stays a payload."""
    for entry in run_entries(file):
        text = payload(entry)
        if observed(text)["outcome"] == "bury":
            continue
        for generation in (7, 8):
            outcome = after_failure(
                decode(text, "default"),
                Failure("E", "m"),
                now=NOW,
                jitter=0.5,
                generation=generation,
                default_retry=True,
            )
            if not isinstance(outcome, Discard):
                assert decode(outcome.text, "default").get("error_class") == "E", entry["name"]
                assert math.isfinite(getattr(outcome, "at", 0.0))


@pytest.mark.parametrize(("version", "generation"), [("6.4.1", 7), ("7.3.2", 7), ("8.1.7", 8)])
def test_real_processes_tell_their_generation(version: str, generation: int) -> None:
    """GEN-5: detected from the records of real processes of three versions."""
    asked = 0
    for entry in run_entries(f"sidekiq/{version}/processes.json"):
        op = detect_generation(Keys())
        next(op)
        infos = [identity["fields"]["info"].encode() for identity in entry["identities"].values()]
        if not infos:
            continue
        op.send([name.encode() for name in entry["identities"]])
        with pytest.raises(StopIteration) as done:
            op.send(infos)
        assert done.value.value == generation, entry["name"]
        asked += 1
    assert asked
