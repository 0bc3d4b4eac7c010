"""`jobwire spec` and `jobwire validate` from the view of their users."""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import socket
import ssl
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import NoneType

import pytest

from harness.servers import Server
from jobwire_conformance.spec.document import parts
from tests.spec.sample import PAYLOAD
from tests.workers import environment, jobwire

pytestmark = pytest.mark.process

ROOT = Path(__file__).resolve().parents[3]
SPEC = "\n".join(parts(ROOT).values())


def test_the_whole_text_goes_through_a_pipe_unchanged() -> None:
    ended = jobwire("spec")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout == SPEC


def test_a_reader_that_has_enough_is_no_error() -> None:
    command = f'"{sys.executable}" -m jobwire spec | head -n 1'
    ended = subprocess.run(
        ["sh", "-c", command], env=environment(), capture_output=True, text=True, timeout=60
    )
    assert (ended.stdout, ended.stderr) == ("# The jobwire protocol\n", "")


def test_a_terminal_gets_pages() -> None:
    """Through the reader's own pager, as laid out text without link targets."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "jobwire", "spec"],
        env=environment(PAGER="sed s/^/PAGED/", TERM="xterm", COLUMNS="100"),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    text = b""
    while chunk := _read(ours):
        text += chunk
    os.close(ours)
    assert process.wait(timeout=60) == 0
    assert b"PAGED" in text
    assert b"The jobwire protocol" in text
    assert b"[PUSH-1]" in text
    assert b"(#" not in text
    assert b"\n# " not in text


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # the other end of the terminal is closed
        return b""


@pytest.mark.matrix
def test_one_requirement_with_all_that_cites_it() -> None:
    ended = jobwire("spec", "retry-4")
    assert (ended.returncode, ended.stderr) == (0, "")
    head = "RETRY-4 · worker/retry · interop · 6.4, 7.3, 8.1 · since 1.0 · test: state · SPEC.md:"
    assert ended.stdout.startswith(head)
    for words in (
        "The default delay **MUST** be",
        "\nWhy: ",
        "\nSeen in: ",
        "\ncode    python/jobwire/protocol/retry.py::retry_delay\n",
        "python/tests/unit/test_vectors.py::test_retry_delay_spans_the_interval\n",
    ):
        assert words in ended.stdout
    assert "REL-2" not in ended.stdout
    two = jobwire("spec", "RETRY-4", "REL-2").stdout
    assert two.startswith(ended.stdout)
    assert "\nscript  lua/" in two
    assert " lua/finish.lua\n" in two


@pytest.mark.matrix
def test_requirements_as_json() -> None:
    for arguments in (("RETRY-4", "--json"), ("--json", "RETRY-4")):
        one = json.loads(jobwire("spec", *arguments).stdout)
        assert (one["id"], one["keyword"], one["section"]) == ("RETRY-4", "MUST", "13")
        assert one["test"] == {"kind": "state", "reason": None}
        assert one["cited"]["code"] == ["python/jobwire/protocol/retry.py::retry_delay"]
        assert one["why"]
    two = json.loads(jobwire("spec", "RETRY-4", "REL-2", "--json").stdout)
    assert [one["id"] for one in two] == ["RETRY-4", "REL-2"]
    everything = json.loads(jobwire("spec", "--json").stdout)
    assert len(everything["requirements"]) > 100


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("RETRY-99", "; that area has RETRY-1 to RETRY-"),
        ("retry4", "; did you mean RETRY-4 or RETRY-"),
        ("PUSSH-4", "; did you mean PUSH-4"),
        ("chekc", "; did you mean check?"),
        ("zzz", "; 'jobwire spec' shows all requirements"),
    ],
)
def test_an_unknown_id_is_one_line_with_a_way_on(name: str, hint: str) -> None:
    ended = jobwire("spec", name)
    assert (ended.returncode, ended.stdout) == (2, "")
    (line,) = ended.stderr.splitlines()
    assert line.startswith(f"jobwire: there is no requirement or command {name}{hint}")


@pytest.fixture(scope="module")
def in_order(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the parts that the tools read, with fresh generated files."""
    root = tmp_path_factory.mktemp("checkout")
    suite = ("tests", "cases", "reports")
    tests = ("python/tests", *(f"conformance/{name}" for name in suite))
    for name in ("schema", "lua", "fixtures", "docs", "python/jobwire", *tests):
        shutil.copytree(
            ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__", "*.pyc")
        )
    shutil.copy(ROOT / "SPEC.md", root)
    shutil.copytree(ROOT / "spec", root / "spec")
    ended = jobwire("spec", "extract", "--write", cwd=root)
    assert ended.returncode == 0, ended.stderr
    return root


@pytest.fixture
def checkout(in_order: Path, tmp_path: Path) -> Path:
    """A copy that a test may change."""
    return Path(shutil.copytree(in_order, tmp_path / "checkout"))


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text("utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), "utf-8")


@pytest.mark.matrix
def test_check_finds_nothing_in_this_checkout(checkout: Path) -> None:
    """The check makes no files: `make lint` checks that the committed ones are up to date."""
    ended = jobwire("spec", "check", cwd=checkout)
    assert (ended.returncode, ended.stdout) == (0, "")
    assert ended.stderr.endswith(" requirements, no faults\n")
    ended = jobwire("spec", "check", "--json", "--root", str(checkout))
    assert (ended.returncode, json.loads(ended.stdout)) == (0, [])


@pytest.mark.matrix
def test_check_finds_a_planted_fault(checkout: Path) -> None:
    edit(checkout / "SPEC.md", "Why: workers take from the tail", "Workers take from the tail")
    ended = jobwire("spec", "check", cwd=checkout)
    assert ended.returncode == 1
    assert "(why)" in ended.stdout
    assert "Traceback" not in ended.stderr


@pytest.mark.matrix
def test_out_of_date_files_are_repaired_as_the_check_says(checkout: Path) -> None:
    edit(checkout / "lua/fetch.lua", "[REL-1]", "")
    assert jobwire("spec", "check", cwd=checkout).returncode == 1
    ended = jobwire("spec", "extract", "--write", cwd=checkout)
    assert ended.stderr == "wrote lua/README.md\n"
    assert jobwire("spec", "check", cwd=checkout).returncode == 0


def test_changes_between_two_texts(checkout: Path, tmp_path: Path) -> None:
    edit(checkout / "SPEC.md", "at the head (left", "at the front (left")
    ended = jobwire("spec", "changes", str(ROOT), str(checkout))
    assert ended.stdout.endswith("| --- | --- | --- |\n| PUSH-1 | changed | text |\n")
    (tmp_path / "block.md").write_text("> no block\n", "utf-8")
    ended = jobwire("spec", "changes", str(ROOT), str(tmp_path / "block.md"))
    assert ended.returncode == 2
    assert "is not a specification: block.md:1: not the first line of a block" in ended.stderr


def test_outside_of_a_checkout_is_one_line(tmp_path: Path) -> None:
    for command in ("check", "extract", "trace"):
        ended = jobwire("spec", command, cwd=tmp_path)
        assert (ended.returncode, ended.stdout) == (2, "")
        assert "SPEC.md does not exist; run this in a checkout" in ended.stderr
        assert len(ended.stderr.splitlines()) == 1


def validate(
    text: str | bytes, *arguments: str, tmp_path: Path
) -> subprocess.CompletedProcess[str]:
    file = tmp_path / "payload"
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    return jobwire("validate", str(file), *arguments)


def test_a_valid_payload(tmp_path: Path) -> None:
    for arguments in ((), ("--generation", "8.1", "--in", "queue"), ("--as", "reader")):
        ended = validate(PAYLOAD + "\n", *arguments, tmp_path=tmp_path)
        assert (ended.returncode, ended.stderr) == (0, "")
        assert ended.stdout.startswith("valid\n  kept   ")
        assert " PAY-3 " in ended.stdout


@pytest.mark.parametrize(
    ("text", "arguments", "words"),
    [
        (PAYLOAD, ["--generation", "7.3"], "GEN-1     $.created_at  1786960000123; expected"),
        (PAYLOAD.replace("[1]", "{}"), [], "EXEC-7    $.args"),
        (PAYLOAD.replace("[1]", "[NaN]"), [], "PAY-4, PAY-1 $  NaN; expected no NaN"),
        (PAYLOAD.replace("[1]", '[{"a":1,"a":2}]'), ["--generation", "8.1"], "PAY-8     $.args[0]"),
        (PAYLOAD.replace("[1]", "[" * 5000), [], "PAY-3     $"),
        (
            b'{"class":"\xff"}',
            [],
            "PAY-1     $  bytes that are not UTF-8, at byte 10; expected UTF-8",
        ),
        ("hello", [], "PAY-1     $  text that is not JSON"),
        ("[1]", [], "PAY-1     $  an array: b'[1]'; expected an object"),
        (PAYLOAD, ["--as", "writer", "--in", "retry"], "RETRY-2   $  no field failed_at; expected"),
        (
            PAYLOAD.replace("[1]", r'["\u000a"]'),
            ["--as", "writer"],
            r"PAY-20    $  the escape \u000a at byte 40; expected the escape \n",
        ),
    ],
)
def test_an_invalid_payload_names_rule_and_path(
    text: str | bytes, arguments: list[str], words: str, tmp_path: Path
) -> None:
    ended = validate(text, *arguments, tmp_path=tmp_path)
    assert (ended.returncode, ended.stderr) == (1, "")
    assert ended.stdout.startswith("invalid\n  broken ")
    assert words in ended.stdout


def test_payloads_one_a_line(tmp_path: Path) -> None:
    """As LRANGE prints them; a broken one does not hide the others."""
    text = f"{PAYLOAD}\nhello\r\n\n{PAYLOAD}\r\n"
    ended = validate(text, "--json", "--lines", tmp_path=tmp_path)
    assert ended.returncode == 1
    found = [json.loads(line) for line in ended.stdout.splitlines()]
    assert [(one["name"], one["valid"]) for one in found] == [
        *(("line 1", True), ("line 2", False), ("line 4", True)),
    ]
    assert found[1]["verdicts"][0]["rule"] == "PAY-1"
    kept = {"rule": "PAY-3", "verdict": "kept", "path": "$", "seen": None, "expected": None}
    assert kept in found[0]["verdicts"]
    assert (found[0]["schema"], found[0]["as"], found[0]["in"]) == ("payload", "reader", None)
    ended = validate(text, "--lines", tmp_path=tmp_path)
    assert ended.stderr == "3 objects, 1 invalid\n"
    assert validate(text, tmp_path=tmp_path).returncode == 1  # one text that is not JSON


def test_several_files(tmp_path: Path) -> None:
    good, bad = tmp_path / "good", tmp_path / "bad"
    good.write_text(PAYLOAD)
    bad.write_text("{")
    ended = jobwire("validate", str(good), str(bad))
    assert ended.returncode == 1
    assert f"{good}: valid\n" in ended.stdout
    assert f"{bad}: invalid\n" in ended.stdout
    assert ended.stderr == "2 objects, 1 invalid\n"


def test_a_rule_of_the_level_robust_counts_only_if_it_is_asked_for(tmp_path: Path) -> None:
    """PUSH-4: Sidekiq writes such a payload."""
    text = PAYLOAD.replace("true", "-1")
    ended = validate(text, "--as", "writer", tmp_path=tmp_path)
    assert ended.returncode == 0
    assert "\n  robust PUSH-4    $.retry  -1; expected" in ended.stdout
    ended = validate(text, "--as", "writer", "--level", "robust", tmp_path=tmp_path)
    assert ended.returncode == 1
    assert "\n  broken PUSH-4    $.retry  -1; expected" in ended.stdout


def test_a_job_that_was_on_a_queue_is_a_note_in_schedule(tmp_path: Path) -> None:
    """SCHED-13: a client adds no `enqueued_at`, and a caller or a second scheduling may."""
    ended = validate(PAYLOAD, "--as", "writer", "--in", "schedule", tmp_path=tmp_path)
    assert ended.returncode == 0
    assert "\n  note   SCHED-13  $.enqueued_at  1786960000124, which is usually" in ended.stdout


def test_a_limit_of_a_parser_is_a_note(tmp_path: Path) -> None:
    """PAY-1: a reader accepts every number of RFC 8259."""
    ended = validate(PAYLOAD.replace("[1]", "[1e400]"), tmp_path=tmp_path)
    assert ended.returncode == 0
    assert "note             $  1e400 at byte 40: not every parser can read it" in ended.stdout


@pytest.mark.parametrize(
    ("schema", "text", "status", "words"),
    [
        ("signals", '["TERM"]', 0, "valid"),
        ("signals", '["KILL"]', 1, 'INSP-13   $[0]  "KILL"; expected one of "TSTP", "TERM"'),
        ("iteration", '{"cancelled":"1795191608"}', 0, "valid"),
        ("iteration", '{"ex":"1","rt":"0"}', 1, "ITER-1, ITER-3 $  no field c"),
        ("work", '{"queue":"a","payload":"[","run_at":1}', 1, "BEAT-17   $.payload"),
        ("metrics", "{", 1, "MET-1     $  text that is not JSON"),
    ],
)
def test_other_objects(schema: str, text: str, status: int, words: str, tmp_path: Path) -> None:
    ended = validate(text, "--schema", schema, "--as", "writer", tmp_path=tmp_path)
    assert (ended.returncode, ended.stderr) == (status, "")
    assert words in ended.stdout


def test_objects_in_a_server(server: Server) -> None:
    """KEY-2, KEY-3, BEAT-3, BEAT-17, ITER-1, SIG-4: found by their keys, and left as they are."""
    with server.client() as client:
        identity = "app:1:0a1b2c3d4e5f"
        client.lpush("queue:a", PAYLOAD, PAYLOAD, PAYLOAD.replace("[1]", "{}"))
        client.zadd("retry", {PAYLOAD.replace('"default"', "7"): 1})
        client.zadd("dead", {b"\xff": 1, "[1]": 2})
        client.set("schedule", "x")
        client.hset(identity, mapping={"info": "{}", "busy": "0"})
        client.hset(f"{identity}:work", mapping={"t": "{"})
        client.lpush(f"{identity}-signals", "TERM")
        client.hset("it-1", mapping={"c": "null", "ex": "0"})
        client.hset("it-2", mapping={"c": "null", "ex": "1", "rt": "0"})
        client.hset("other", mapping={"x": "1"})
        before = {key: client.dump(key) for key in client.scan_iter()}
        ended = jobwire("validate", "--redis", server.url)
        assert ended.returncode == 1
        broken = re.findall(r"^(.+): invalid\n  broken ([A-Z]+-\d+)", ended.stdout, re.MULTILINE)
        assert sorted(broken) == [
            ("app:1:0a1b2c3d4e5f:work t", "BEAT-17"),
            ("dead 1", "EXEC-4"),
            ("queue:a 0", "EXEC-7"),
            ("retry 0", "SCHED-9"),
            ("schedule", "KEY-3"),
        ]
        assert ended.stderr == "12 objects, 5 invalid\n"
        assert {key: client.dump(key) for key in client.scan_iter()} == before
        ended = jobwire(
            "validate", "--redis", server.url, "--as", "writer", "--json", "--limit", "2"
        )
        found = {one["name"]: one for one in map(json.loads, ended.stdout.splitlines())}
        assert "queue:a 2" not in found
        assert found[identity]["valid"] is False
        assert found["it-2"]["verdicts"][0]["seen"].startswith("left out: 3 fields")
        assert found["queue:a 0"]["in"] == "queue"


def test_a_server_that_is_away_is_one_line() -> None:
    ended = jobwire("validate", "--redis", "valkey://localhost:1")
    assert (ended.returncode, ended.stdout) == (4, "")
    assert re.fullmatch(r"jobwire: cannot connect to .*: Connection refused\n", ended.stderr)


def test_a_server_that_refuses_is_one_line(server: Server) -> None:
    ended = jobwire("validate", "--redis", server.url.replace("//", "//:wrong@"))
    assert (ended.returncode, ended.stdout) == (4, "")
    assert re.fullmatch(r"jobwire: the server of --redis, .* refused AUTH: .*\n", ended.stderr)


def test_a_server_with_tls(server: Server, tmp_path: Path) -> None:
    """The system, or SSL_CERT_FILE, must have the authority of its certificate."""
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", "key")
    name = ("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-out", "crt")
    subprocess.run(
        ["openssl", "req", "-x509", *key, *name], cwd=tmp_path, check=True, capture_output=True
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "crt", tmp_path / "key")
    server.client().lpush("queue:a", PAYLOAD)

    def relay() -> None:
        theirs = context.wrap_socket(listener.accept()[0], server_side=True)
        with theirs, socket.create_connection(("127.0.0.1", server.port)) as ours:
            while request := theirs.recv(65_536):
                ours.sendall(request)
                theirs.sendall(ours.recv(65_536))

    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor() as threads:
        url = f"rediss://localhost:{listener.getsockname()[1]}/0"
        for trust, status, words in (
            ("/dev/null", 4, "CERTIFICATE_VERIFY_FAILED"),
            (str(tmp_path / "crt"), 0, "1 object, 0 invalid\n"),
        ):
            relayed = threads.submit(relay)
            ended = jobwire("validate", "--redis", url, SSL_CERT_FILE=trust)
            assert (ended.returncode, words in ended.stderr) == (status, True), ended.stderr
            assert isinstance(relayed.exception(60), ssl.SSLError if status else NoneType)


def test_standard_input() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "jobwire", "validate", "-"],
        input=PAYLOAD,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (ended.returncode, ended.stdout.splitlines()[0]) == (0, "valid")


def test_fixture_files_that_are_what_they_say() -> None:
    ended = jobwire("validate", str(ROOT / "fixtures/invalid/payloads.json"))
    assert (ended.returncode, ended.stdout) == (0, "")
    assert ", 0 that differ from their description\n" in ended.stderr


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('"breaks":["PAY-8"]', '"breaks":["PAY-4"]', "says to break PAY-4, and does not"),
        ('"breaks":["PAY-12"]', '"breakz":["PAY-12"]', "schema/fixture.json"),
    ],
)
def test_fixture_files_that_are_not(old: str, new: str, words: str, tmp_path: Path) -> None:
    text = (ROOT / "fixtures/invalid/payloads.json").read_text("utf-8")
    assert old in text
    ended = validate(text.replace(old, new, 1), tmp_path=tmp_path)
    assert ended.returncode == 1
    assert words in ended.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere.json"], "cannot read nowhere.json: No such file or directory"),
        (["."], "cannot read .: Is a directory"),
        (["/dev/null"], "/dev/null is empty"),
        ([], "give either a FILE, - for standard input, or --redis URL"),
        (["x", "--redis", "redis://localhost:1"], "give either a FILE"),
        (["--redis", "redis://localhost:1", "--in", "retry"], "--redis finds kinds and places"),
        (["--redis", "nowhere"], "HOST[:PORT][/DATABASE]; or rediss:// for TLS"),
        (["x", "--generation", "6"], "is not one of"),
        (["x", "--schema", "work", "--in", "retry"], "--in is for payloads"),
        (["x", "--schema", "iteration", "--generation", "6.4"], "6.4 has no object iteration"),
    ],
)
def test_wrong_usage_is_one_line(arguments: list[str], words: str) -> None:
    ended = jobwire("validate", *arguments)
    assert (ended.returncode, ended.stdout) == (2, "")
    (line,) = ended.stderr.splitlines()
    assert words in line


@pytest.mark.parametrize(
    ("absent", "words"),
    [
        ("sys.modules['jsonschema'] = None", ["validate", "-"]),
        *(
            ("metadata.entry_points = lambda **of: ()", words)
            for words in (["validate", "-"], ["spec"], ["conform", "--help"])
        ),
    ],
)
def test_without_the_extra_it_says_what_to_install(absent: str, words: list[str]) -> None:
    program = (
        f"import sys; from importlib import metadata; {absent}\n"
        f"from jobwire.cli import main; sys.argv = ['jobwire', *{words}]; main()"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program],
        stdin=subprocess.DEVNULL,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.returncode == 2
    (line,) = ended.stderr.splitlines()
    assert "pip install 'jobwire[conformance]'" in line
