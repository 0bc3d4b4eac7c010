"""Errors outside of the checks: the party at fault, the exit status, and no leftovers."""

from __future__ import annotations

import json
import signal
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from xml.etree import ElementTree

import pytest
import redis

from harness.servers import Reaper, Server, valkey_program
from tests.conformance.suite import (
    DRIVERS,
    FORKS,
    GOOD,
    IGNORES_TERM,
    REFERENCE,
    USES_A_KEY_AND_ENDS,
    WORKERS,
    Marked,
    adapter,
    copied,
    run,
    start,
)

pytestmark = pytest.mark.process

needs_proc = pytest.mark.skipif(
    not Path("/proc/self/environ").exists(), reason="looks for processes in /proc"
)


@pytest.fixture
def marked() -> Iterator[Marked]:
    """Yield the marked processes of the test; all of them must have ended after it."""
    processes = Marked()
    yield processes
    processes.gone()


@pytest.fixture(scope="module")
def reaper() -> Iterator[Reaper]:
    started = Reaper()
    yield started
    started.close()


@pytest.fixture
def server(reaper: Reaper) -> Iterator[Server]:
    started = Server(reaper, valkey_program())
    yield started
    started.close()


# -- the adapter


@needs_proc
@pytest.mark.parametrize("how", DRIVERS)
def test_a_driver_that_breaks_the_rules(how: str, marked: Marked, tmp_path: Path) -> None:
    program, says = DRIVERS[how]
    # A flood takes a busy machine longer than a driver may be silent.
    path = adapter(tmp_path, program, timeout=60 if how == "floods standard output" else 2)
    said = run("check", path, "--case", "push-plain", env=marked.environment)
    assert said.status == 3, said.err
    assert "the driver of the implementation is at fault: " in said.err
    assert "Remedy: " in said.err
    assert says in said.err
    assert len(said.err) < 20_000


@needs_proc
@pytest.mark.parametrize("how", WORKERS)
def test_a_worker_that_breaks_the_rules(how: str, marked: Marked, tmp_path: Path) -> None:
    program, says = WORKERS[how]
    path = adapter(tmp_path, GOOD, program)
    said = run("check", path, "--case", "exec-order", env=marked.environment)
    assert said.status == 3, said.err
    assert "the worker of the implementation is at fault: " in said.err
    assert "Remedy: " in said.err
    assert says in said.err


@needs_proc
def test_a_worker_that_uses_a_key_and_ends_gets_a_verdict(marked: Marked, tmp_path: Path) -> None:
    path = adapter(tmp_path, GOOD, USES_A_KEY_AND_ENDS)
    said = run("check", path, "--case", "exec-order", "--patience", "2", env=marked.environment)
    assert said.status == 1, said.err
    assert "w1 ended without a signal, exit status 1" in said.err
    assert "no such member" in said.err


@pytest.mark.parametrize("case", ["push-plain", "exec-order"])
def test_a_program_that_is_not_there(case: str, tmp_path: Path) -> None:
    path = adapter(tmp_path)
    lines = path.read_text().splitlines()
    lines = ['command = ["./nowhere"]' if line.startswith("command") else line for line in lines]
    path.write_text("\n".join(lines))
    said = run("check", path, "--case", case)
    assert said.status == 3
    assert "cannot be started" in said.err
    assert str(tmp_path) in said.err


_SOME = ("push-plain", "push-head", "push-options", "push-keys", "push-depth")
_FAULTS = {
    "dies": ("os._exit(9)", "exit status 9"),
    "prints rubbish": ("print('Welcome!', flush=True); input()", "is not JSON"),
    "hangs": ("import time; time.sleep(600)", "no answer to 'push' within 10 s"),
}


def _some() -> list[str]:
    return [word for name in _SOME for word in ("--case", name)]


def _faulty(directory: Path, what: str) -> Path:
    """Copy the reference; its driver runs the given code after the push of case push-plain."""
    copied(REFERENCE, directory)
    driver = directory / "driver.py"
    end = '            return {"ok": push(client, request)}\n'
    odd = f"            if 'é/' in str(request['job']):\n                {what}\n"
    here = f"            said = push(client, request)\n{odd}            return {{'ok': said}}\n"
    driver.write_text(driver.read_text().replace(end, here))
    settings = directory / "conformance.toml"
    settings.write_text(settings.read_text().replace("[driver]", "[driver]\ntimeout = 10"))
    return settings


@needs_proc
@pytest.mark.parametrize(
    ("how", "sandboxes"), [("dies", "1"), ("dies", "2"), ("prints rubbish", "1"), ("hangs", "2")]
)
def test_a_fault_in_one_case_ends_that_case_only(
    how: str, sandboxes: str, marked: Marked, tmp_path: Path
) -> None:
    """[PUSH-1] The other cases run with a new driver, and pass."""
    what, says = _FAULTS[how]
    path = _faulty(tmp_path, what)
    there = tmp_path / "report"
    said = run(
        *(
            "check",
            str(path),
            "client/core",
            *_some(),
            "--sandboxes",
            sandboxes,
            "--report",
            str(there),
        ),
        env=marked.environment,
    )
    assert said.status == 3, said.err
    assert "jobwire: in case push-plain: the driver of the implementation is at fault: " in said.err
    assert says in said.err
    results = json.loads((there / "results.json").read_text())
    ended = [check for check in results["checks"] if check["case"] == "push-plain"]
    assert {check["requirement"] for check in ended} >= {"KEY-1", "PAY-9", "PUSH-3"}
    for check in ended:
        assert (check["status"], check["by"], check["trace"][0] >= 0) == (
            "blocked",
            "adapter",
            True,
        )
        assert says in check["blocked_by"]
        assert "\n" not in check["blocked_by"]
    others = [check for check in results["checks"] if check["case"] != "push-plain"]
    assert {check["case"] for check in others} == {*_SOME, "traffic"} - {"push-plain"}
    assert {check["status"] for check in others} == {"pass"}
    [error] = results["errors"]
    assert (error["status"], error["case"]) == (3, "push-plain")
    assert "Remedy: " in error["message"]
    assert (results["status"], results["implementation"]["version"]) == (3, version("jobwire"))
    assert results["claims"]["client/core"]["met"] is False
    assert (
        "An adapter fault ended case push-plain: the driver" in (there / "summary.md").read_text()
    )
    page = (there / "report.html").read_text()
    assert "An adapter fault ended case push-plain" in page
    assert "An error ended the run" not in page
    suite = ElementTree.parse(there / "junit.xml").getroot()
    tests = [test for test in suite if test.find("error") is not None]
    assert [test.get("name") for test in tests] == ["push-plain"]
    assert suite.get("failures") == str(len(ended))


@needs_proc
def test_a_worker_that_cannot_be_started_in_one_case(marked: Marked, tmp_path: Path) -> None:
    """[PUSH-1] Checks that need no worker are judged."""
    path = _faulty(tmp_path, "pass")
    head = path.read_text().partition("[worker]")[0]
    path.write_text(f'{head}[worker]\ncommand = ["./nowhere"]\n')
    said = run(
        *("check", str(path), "client/core", "worker/core"),
        *(*_some(), "--case", "exec-order", "--json"),
        env=marked.environment,
    )
    assert said.status == 3, said.err
    assert said.err.count("the worker cannot be started") == 2  # when it happens, and at the end
    statuses = {check["case"]: check["status"] for check in json.loads(said.out)["checks"]}
    assert statuses == {**dict.fromkeys([*_SOME, "traffic"], "pass"), "exec-order": "blocked"}


def test_a_driver_that_always_dies_ends_the_run_after_three_cases(tmp_path: Path) -> None:
    path = adapter(tmp_path, DRIVERS["dies later"][0], claims=("client/core",))
    said = run("check", path, "--json", "--summary")
    assert said.status == 3
    results = json.loads(said.out)
    *ended, stopped = results["errors"]
    names = [error["case"] for error in ended]
    assert len({*names}) == 3
    assert {check["case"] for check in results["checks"]} == {*names}
    assert "case" not in stopped
    assert f"adapter faults ended 3 consecutive cases: {', '.join(names)}; " in stopped["message"]
    assert stopped["message"] in said.err
    # A message that all of them have is printed once.
    assert said.err.count("exit status 9") == 1
    assert f"jobwire: in case {', '.join(names)}: the driver" in said.err


def test_faults_that_are_not_in_a_row_do_not_end_the_run(tmp_path: Path) -> None:
    """Every third case is answered, so the run goes on to its end."""
    turn = (
        "    with open('turns', 'a+') as file:\n"
        "        file.seek(0)\n"
        "        turn = len(file.read())\n"
        "        file.write('x')\n"
        "    if turn % 3 < 2:\n"
        "        raise SystemExit(9)\n"
    )
    start = GOOD.rpartition("    say(")[0]
    path = adapter(tmp_path, f"{start}{turn}    say(id, unsupported=True)\n")
    said = run("check", path, "client/core", *_some(), "--json", "--quiet")
    assert said.status == 3, said.err
    results = json.loads(said.out)
    assert {check["case"] for check in results["checks"]} == {*_SOME}
    ended = [error.get("case") for error in results["errors"]]
    assert len(ended) == 4
    assert {*ended} < {*_SOME}


def test_a_fault_in_one_of_several_runs_of_a_case(tmp_path: Path) -> None:
    """[PUSH-1] The check passed before, so it is flaky; the adapter is still blamed."""
    path = _faulty(
        tmp_path, "p = open('once', 'a'); p.tell() and os._exit(9); p.write('x'); p.close()"
    )
    only = ("--case", "push-plain", "--repeat", "3")
    said = run("check", path, "client/core", *only, "--json")
    assert said.status == 3, said.err
    checks = [c for c in json.loads(said.out)["checks"] if c["case"] == "push-plain"]
    outcomes = {(c["status"], c.get("by"), c["held"], c["runs"]) for c in checks}
    assert outcomes == {("flaky", "adapter", 1, 2)}


def test_a_baseline_does_not_declare_what_the_adapter_ended(tmp_path: Path) -> None:
    path = _faulty(tmp_path, "os._exit(9)")
    text = path.read_text()
    said = run("baseline", path, "client/bulk")
    assert said.status == 0, said.err
    said = run("baseline", path, "client/core", "--sandboxes", "2")
    assert (said.status, "Nothing was written" in said.err) == (3, True), said.err
    assert (path.read_text(), [*tmp_path.glob("*deviations*")]) == (text, [])


def test_a_driver_that_only_talks_too_much_on_standard_error(tmp_path: Path) -> None:
    """[PUSH-8] The driver answers, so it is judged; its log does not fill a pipe."""
    noise = "import sys, threading\ndef noise():\n  while True: sys.stderr.write('y' * 65536)\n"
    threaded = noise + "threading.Thread(target=noise, daemon=True).start()\n"
    path = adapter(tmp_path, threaded + GOOD)
    said = run("check", path, "--case", "push-plain")
    assert said.status == 1, said.err
    assert "blocked by an earlier failure: the answer to push was 'unsupported'" in said.err


@needs_proc
def test_a_worker_that_ignores_term_fails_and_is_killed(marked: Marked, tmp_path: Path) -> None:
    """[SIG-1] The implementation fails, not the adapter."""
    path = adapter(tmp_path, GOOD, IGNORES_TERM)
    said = run("check", path, "--case", "stop-idle", "--patience", "2", env=marked.environment)
    assert said.status == 1, said.err
    assert 'exit status of w1: expected 0, seen "running"' in said.err
    assert "w1 signal TERM" in said.err


@needs_proc
@pytest.mark.parametrize("command", ["check", "doctor"])
def test_what_a_worker_forks_ends_too(command: str, marked: Marked, tmp_path: Path) -> None:
    """In the worker's process group, in a new group, and in a new session."""
    path = adapter(tmp_path, GOOD, FORKS, claims=("worker/core", "worker/signals"), timeout=60)
    more = ["--case", "stop-idle"] if command == "check" else []
    said = run(command, path, "--patience", "2", *more, env=marked.environment)
    # `doctor` reports it; `check` does not, because the protocol has no rule about it.
    assert ("still running after its end" in said.out) == (command == "doctor")
    assert said.status == (3 if command == "doctor" else 1), said.err


# -- Redis


def test_a_server_that_is_not_empty_is_left_alone(server: Server) -> None:
    client = server.client()
    client.set("precious", "1")
    said = run("check", REFERENCE, "--case", "push-plain", "--redis", server.url)
    assert said.status == 4
    assert "is not empty: it has 1 keys" in said.err
    assert client.keys("*") == [b"precious"]
    # The next database, which reports would use, is not used either.
    client.flushall()
    client.execute_command("SELECT", "1")
    client.set("precious", "1")
    said = run("check", REFERENCE, "--case", "push-plain", "--redis", server.url)
    assert (said.status, "database 1 of" in said.err) == (4, True)
    assert client.get("precious") == b"1"


def test_a_server_that_is_not_there() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    said = run("check", REFERENCE, "--case", "push-plain", "--redis", f"redis://127.0.0.1:{port}")
    assert (said.status, f"at 127.0.0.1:{port}: " in said.err) == (4, True)


@contextmanager
def stranger(greeting: bytes) -> Iterator[int]:
    """Run a server that answers every request with the same bytes; yield its port."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(4096)
                    connection.sendall(greeting)

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)
        thread.join(60)


@pytest.mark.parametrize(
    ("greeting", "says"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "does not speak the protocol of Redis"),
        (b"$x\r\n", "does not speak the protocol of Redis"),
        (b"", "does not answer"),
    ],
)
def test_somebody_who_is_no_redis(greeting: bytes, says: str) -> None:
    with stranger(greeting) as port:
        url = f"redis://127.0.0.1:{port}"
        said = run("check", REFERENCE, "--case", "push-plain", "--redis", url)
    assert (said.status, says in said.err) == (4, True), said.err


def test_a_server_with_a_password(reaper: Reaper, tmp_path: Path) -> None:
    """[SEC-2] The adapter needs no password, and no report contains it."""
    server = Server(reaper, valkey_program(), password="open sesame")
    try:
        bare = f"redis://127.0.0.1:{server.port}"
        only = ("--case", "push-plain", "--case", "exec-order")
        said = run("check", REFERENCE, *only, "--redis", bare)
        assert (said.status, "put the password" in said.err) == (4, True)
        said = run("check", REFERENCE, *only, "--redis", bare.replace("//", "//:wrong@"))
        assert (said.status, "refused AUTH" in said.err) == (4, True)
        assert "wrong@" not in said.err
        said = run("check", REFERENCE, *only, "--redis", server.url, "--report", tmp_path)
        assert said.status == 0, said.err
        for path in tmp_path.iterdir():
            assert "sesame" not in path.read_text("utf-8", "replace"), path.name
        assert server.client().dbsize() == 0
    finally:
        server.close()


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("rediss://127.0.0.1", "expected redis://"),
        ("127.0.0.1:6379", "expected redis://"),
        ("redis://127.0.0.1:port", "not a URL of a server"),
        ("redis://127.0.0.1/queue", "not a URL of a server"),
        ("redis://:secret@127.0.0.1/x", "'redis://...@127.0.0.1/x'"),
    ],
)
def test_a_url_that_cannot_be_used(url: str, says: str) -> None:
    said = run("check", REFERENCE, "--redis", url)
    assert (said.status, says in said.err) == (64, True), said.err
    assert "secret" not in said.err


def test_a_server_of_theirs_has_room_for_one_sandbox() -> None:
    said = run("check", REFERENCE, "--redis", "redis://127.0.0.1", "--sandboxes", "2")
    assert (said.status, "one sandbox" in said.err) == (64, True)


def test_a_server_of_theirs_is_left_as_it_was_found(server: Server) -> None:
    """[PUSH-1] [EXEC-1] Client and worker use databases other than the first ones."""
    client = server.client()
    client.set("precious", "1")
    url = server.url.replace("/0", "/3")
    only = ("push-plain", "exec-order", "retry-first", "sched-promote")
    names = [word for name in only for word in ("--case", name)]
    said = run("check", REFERENCE, *names, "--redis", url, "--quiet")
    assert said.status == 0, said.err
    assert client.keys("*") == [b"precious"]
    assert set(client.info("keyspace")) == {"db0"}


# -- files


def planted(directory: Path, **changes: object) -> Path:
    case = {
        "case": "found-1a2b",
        "title": "x",
        "claims": ["client/core"],
        "since": "1.0",
        "steps": [
            {"push": {"class": "JobwireEcho", "args": []}},
            {"check": "PUSH-1", "list": "queue:default", "len": 1},
        ],
    }
    path = directory / "found-1a2b.json"
    path.write_text(json.dumps({**case, **changes}))
    return path


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"stepps": []}, "stepps"),
        ({"steps": [{"chekc": "PUSH-1"}]}, "steps/0"),
        ({"case": "other"}, "must be in other.json"),
        ({"claims": ["worker/core"]}, "the case has none of these profiles"),
    ],
)
def test_a_case_with_a_mistake_is_its_authors(
    changes: dict[str, object], says: str, tmp_path: Path
) -> None:
    said = run("replay", planted(tmp_path, **changes), "-C", REFERENCE)
    assert (said.status, says in said.err) == (64, True), said.err


def test_a_case_that_is_no_json_or_not_there(tmp_path: Path) -> None:
    path = tmp_path / "found-1.json"
    assert run("replay", path).status == 64
    path.write_text("{")
    assert run("replay", path).status == 64
    said = run("replay", "push-haed")
    assert (said.status, "unknown case 'push-haed'" in said.err) == (64, True)


NOBODY = "-".join(("PUSH", "999"))  # in two parts, so that it is not a citation of an unknown id


@pytest.mark.parametrize(
    ("text", "status", "says"),
    [
        (f'[[deviation]]\nid = "{NOBODY}"\nreason = "x"', 2, "SPEC.md has no requirement"),
        ('[[deviation]]\nid = "PUSH-*"\nreason = "x"', 2, "without wildcards"),
        ('[[deviation]]\nid = "push-haed#PUSH-1"\nreason = "x"', 2, "its cases: push-head"),
        ('[[deviation]]\nid = "push-head#PUSH-1"\nreason = "x"', 2, "stale: push-head#PUSH-1"),
        ('[[deviation]]\nid = "push-head#PUSH-1"\nreason = "x"\nsometimes = true', 0, "1 pass"),
        ('[[deviation]]\nid = "PUSH-1"\nreason = "x"\nsometimes = 3', 64, "true or false"),
        ('[[deviation]]\nid = "PAY-3"\nreason = "TODO: later"', 2, "still TODO"),
        ('[[deviation]]\nid = ["PAY-3", "push-head#PUSH-1"]\nreason = "x"', 2, "push-head#PUSH-1"),
        ('[[deviation]]\nid = ["PAY-3", "PAY-3"]\nreason = "x"', 64, "PAY-3 occurs twice"),
        ('[[deviation]]\nid = []\nreason = "x"', 64, "id is missing"),
        ('[[deviation]]\nid = ["PAY-3", 5]\nreason = "x"', 64, "id is missing"),
        ('[[deviation]]\nid = "PUSH-1"', 64, "reason is missing"),
        ('[[deviation]]\nid = "PUSH-1"\nreason = " "', 64, "reason is missing"),
        ('[[deviation]]\nid = "PUSH-1"\nreason = "x"\nexpect = 3', 64, "expected a text"),
        ('[[deviation]]\nid = "PUSH-1"\nreason = "x"\nreasn = "x"', 64, "unknown key reasn"),
        ('[[deviations]]\nid = "PUSH-1"\nreason = "x"', 64, "deviations"),
        ('[deviation]\nid = "PUSH-1"\nreason = "x"', 64, "[[deviation]]"),
        ('[[deviation]]\nid = "PUSH-1"\nreason = "x"\n' * 2, 64, "occurs twice"),
        ("[[deviation]", 64, "jobwire.deviations.toml"),
    ],
)
def test_a_mistake_in_the_deviations(text: str, status: int, says: str, tmp_path: Path) -> None:
    copied(REFERENCE, tmp_path)
    (tmp_path / "jobwire.deviations.toml").write_text(text)
    said = run("check", tmp_path, "--case", "push-head", env={"PYTHONPATH": _paths()})
    assert said.status == status, said.err
    assert says in said.out + said.err


@pytest.mark.parametrize(
    "only",
    [("--case", "bulk-scheduled"), pytest.param(("client/scheduled",), marks=pytest.mark.matrix)],
)
def test_a_deviation_is_not_stale_before_all_that_it_is_about_has_run(
    only: Sequence[str], tmp_path: Path
) -> None:
    """[SCHED-12] [BULK-1] A pass in some cases proves nothing about the others."""
    copied(REFERENCE, tmp_path)
    settings = tmp_path / "conformance.toml"
    head, _, tail = settings.read_text().partition('  "client/core+robust",')
    rest = tail[tail.index("]") :]
    settings.write_text(f'{head}  "client/core", "client/bulk", "client/scheduled",\n{rest}')
    deviations = tmp_path / "jobwire.deviations.toml"
    ids = ("traffic#SCHED-12", "traffic#BULK-1", "SCHED-12")
    deviations.write_text("".join(f'[[deviation]]\nid = "{i}"\nreason = "x"\n' for i in ids))
    said = run("check", tmp_path, *only)
    assert (said.status, "stale:" in said.out) == (0, False), said.out
    said = run("check", tmp_path, "--sandboxes", "2")
    stale = {line.split()[1] for line in said.out.splitlines() if line.startswith("stale:")}
    assert (said.status, stale) == (2, {*ids}), said.err


def _paths() -> str:
    root = REFERENCE.parents[2]
    return f"{root}/python:{root}/conformance"


# -- signals to the suite itself

_HANG = "import time; time.sleep(598)"
_ENDS = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGKILL: -9}


@needs_proc
@pytest.mark.parametrize(
    ("command", "how", "status"),
    [
        *(("check", how, status) for how, status in _ENDS.items()),
        ("baseline", signal.SIGINT, 130),
        ("replay", signal.SIGTERM, 143),
        ("doctor", signal.SIGTERM, 143),
        ("doctor", signal.SIGKILL, -9),
    ],
)
def test_nothing_is_left_when_the_suite_ends(
    command: str, how: signal.Signals, status: int, tmp_path: Path
) -> None:
    """The signal comes while the suite waits for the first fetch of a worker with children."""
    worker = FORKS.replace("fetch()", _HANG).replace("def " + _HANG, "def fetch()")
    path = adapter(tmp_path, GOOD, worker, claims=("worker/core",), timeout=300)
    arguments: dict[str, list[str | Path]] = {
        "check": ["check", path, "--case", "exec-order"],
        "baseline": ["baseline", path],
        "replay": ["replay", "exec-order", "-C", path],
        "doctor": ["doctor", path],
    }
    marked = Marked()
    said = marked.end(start(*arguments[command], env=marked.environment), how, "sleep(599)")
    assert said.status == status, said.err
    if how != signal.SIGKILL:
        assert "Traceback" not in said.err


@needs_proc
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_server_of_theirs_is_clean_when_the_suite_ends(
    how: signal.Signals, server: Server, tmp_path: Path
) -> None:
    worker = FORKS.replace("fetch()", _HANG).replace("def " + _HANG, "def fetch()")
    path = adapter(tmp_path, GOOD, worker, claims=("worker/core",), timeout=300)
    marked = Marked()
    process = start(
        *("check", path, "--case", "exec-order", "--redis", server.url), env=marked.environment
    )
    client: redis.Redis = server.client()
    marked.end(process, how, "sleep(599)")
    assert client.info("keyspace") == {}
