"""`jobwire conform check`: the reference passes, mistakes are found, adapters are not trusted."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from jsonschema import Draft202012Validator

from harness.servers import valkey_program
from jobwire_conformance import config, data
from jobwire_conformance.cases import case as cases
from jobwire_conformance.cases import obligations
from jobwire_conformance.cases.case import Case
from jobwire_conformance.config import Config
from jobwire_conformance.errors import SuiteFault, Usage
from jobwire_conformance.mutation import mutants
from jobwire_conformance.run import run
from jobwire_conformance.run.verdicts import Deviation
from tests.conformance import suite
from tests.conformance.suite import REFERENCE, ROOT, Quiet, adapter

pytestmark = pytest.mark.usefixtures("own_python")

PHP = ROOT / "conformance" / "drivers" / "php"

NOBODY = "-".join(("PUSH", "999"))  # in two parts, so that it is not a citation of an unknown id


def reference(generation: config.Generation = "8.1") -> Config:
    return replace(config.load(REFERENCE), generation=generation)


def outcome_of(
    settings: Config,
    chosen: Sequence[Case],
    deviations: Sequence[Deviation] = (),
    *,
    sandboxes: int = 1,
    patience: float = 20.0,
    mutant: mutants.Mutant | None = None,
    trace: Path | None = None,
) -> run.Outcome:
    outcome = run.run(
        mutant.on(settings) if mutant else settings,
        run.chosen(chosen, settings.claims, settings.generation),
        deviations,
        watcher=Quiet(),
        sandboxes=sandboxes,
        patience=patience,
        program=valkey_program(),
        rewrites=mutant.rules if mutant else (),
        trace=trace,
    )
    problems = Draft202012Validator(data.schema("results")).iter_errors(outcome.as_data())
    assert [problem.message for problem in problems] == []
    return outcome


def bad(outcome: run.Outcome) -> dict[str, str]:
    return {
        f"{v.case}#{v.requirement}": v.finding.message or v.finding.blocked_by or ""
        for v in outcome.verdicts
        if v.status != "pass"
    }


def load(*names: str) -> list[Case]:
    return cases.load(names=names)


# -- mistakes


# A client that stops waiting and keeps using the connection: the next reply is an old one.
CARELESS = r"""
import json, os, socket, sys
from urllib.parse import urlsplit

url = urlsplit(os.environ["JOBWIRE_REDIS_URL"])
wire = socket.create_connection((url.hostname, url.port))
wire.settimeout(float(os.environ.get("JOBWIRE_TIMEOUT", "5")))
for line in sys.stdin:
    request = json.loads(line)
    said = {"ok": {"jid": "0" * 24}}
    if request["op"] == "hello":
        said = {"ok": {"driver": 1, "version": "1", "ops": ["push"]}}
    elif request["op"] == "push":
        job = request["job"]
        words = ["LPUSH", "queue:" + job.get("queue", "default"), json.dumps(job)]
        parts = [f"${len(word)}\r\n{word}\r\n" for word in words]
        wire.sendall(("*3\r\n" + "".join(parts)).encode())
        try:
            wire.recv(1000)
        except TimeoutError:
            said = {"error": {"kind": "unknown", "message": "no reply"}}
    print(json.dumps({"id": request["id"], **said}), flush=True)
"""


@pytest.mark.process
def test_a_connection_that_is_used_again_is_seen(tmp_path: Path) -> None:
    """[ENV-5]: a driver can make this mistake, a mutant of the traffic cannot."""
    settings = config.load(adapter(tmp_path, CARELESS))
    outcome = outcome_of(settings, load("push-late-reply"), patience=5)
    assert outcome.errors == []
    failed = bad(outcome)
    assert "no further use" in failed["push-late-reply#ENV-5"]


# A worker that fetches by RPOPLPUSH, with a delay between a job's fetch and its first report.
SLOW_TO_BEGIN = r"""
import json, os, signal, time
import redis

signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
wire = redis.from_url(os.environ["JOBWIRE_REDIS_URL"])
control = redis.from_url(os.environ["JOBWIRE_CONTROL_URL"])
name = "jw:" + os.environ["JOBWIRE_RUN"] + ":ev"
queue = "queue:" + os.environ["JOBWIRE_QUEUES"].split(",")[0]
while True:
    payload = wire.rpoplpush(queue, "mine")
    if payload is None:
        time.sleep(0.05)
        continue
    time.sleep(0.5)
    job = json.loads(payload)
    jid, args = job["jid"], job.get("args") or []
    control.rpush(name, json.dumps({"ev": "begin", "jid": jid, "args": args}))
    control.rpush(name, json.dumps({"ev": "end", "jid": jid, "ok": True}))
"""


@pytest.mark.process
def test_a_job_between_its_fetch_and_its_begin_is_waited_for(tmp_path: Path) -> None:
    """A popped job will run, so a worker that holds it is not at rest. [EXEC-1]"""
    settings = config.load(adapter(tmp_path, worker=SLOW_TO_BEGIN, timeout=60))
    outcome = outcome_of(settings, load("exec-arguments"), patience=20)
    assert outcome.errors == []
    ran = [v for v in outcome.verdicts if v.case == "exec-arguments"]
    assert {v.status for v in ran} == {"pass"}


# A worker that runs each payload with the text of its `args`, changed by the expression CHANGE.
RUNS_THE_TEXT = r"""
import json, os, re, signal
import redis

signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
wire = redis.from_url(os.environ["JOBWIRE_REDIS_URL"])
control = redis.from_url(os.environ["JOBWIRE_CONTROL_URL"])
events = "jw:" + os.environ["JOBWIRE_RUN"] + ":ev"
queue = "queue:" + os.environ["JOBWIRE_QUEUES"].split(",")[0]
while True:
    popped = wire.brpop(queue, 1)
    if popped is None:
        continue
    jid = json.loads(popped[1])["jid"]
    args = re.search(r'"args":(.*),"jid"', popped[1].decode())[1]
    args = CHANGE
    control.rpush(events, '{"ev":"begin","jid":"%s","args":%s}' % (jid, args))
    control.rpush(events, json.dumps({"ev": "end", "jid": jid, "ok": True}))
"""


@pytest.mark.process
@pytest.mark.parametrize(
    ("change", "status"),
    [
        ("args", {"PAY-23": "pass", "PAY-24": "pass"}),
        ("json.dumps(json.loads(args))", {"PAY-23": "fail", "PAY-24": "pass"}),
        (r"re.sub(r'\\u[0-9a-f]{4}', '?', args)", {"PAY-23": "pass", "PAY-24": "fail"}),
    ],
    ids=["exactly", "infinities", "question-marks"],
)
def test_a_worker_may_run_what_the_reference_buries(
    change: str, status: dict[str, str], tmp_path: Path
) -> None:
    """[PAY-23] [PAY-24]: either is right, and a job with another value is wrong."""
    worker = RUNS_THE_TEXT.replace("CHANGE", change)
    path = adapter(
        tmp_path, worker=worker, claims=("worker/core", "worker/core+robust"), timeout=60
    )
    outcome = outcome_of(
        config.load(path), load("exec-huge-numbers", "exec-half-pairs"), patience=20
    )
    assert outcome.errors == []
    judged = {v.requirement: v.status for v in outcome.verdicts if v.case.startswith("exec-")}
    assert judged == status


# A worker that writes HSETNX between its fetch and the end of the job, and survives a crash: it
# begins with the jobs that the crash left behind.
MARKS_WITH_HSETNX = r"""
import json, os, signal
import redis

signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
wire = redis.from_url(os.environ["JOBWIRE_REDIS_URL"])
control = redis.from_url(os.environ["JOBWIRE_CONTROL_URL"])
name = "jw:" + os.environ["JOBWIRE_RUN"] + ":ev"
queue = "queue:" + os.environ["JOBWIRE_QUEUES"].split(",")[0]
while wire.rpoplpush("jobwire:mine", queue):
    pass
while True:
    payload = wire.brpoplpush(queue, "jobwire:mine", 1)
    if payload is None:
        continue
    job = json.loads(payload)
    jid, args = job["jid"], job.get("args") or []
    wire.hsetnx("jobwire:seen", jid, 1)
    control.rpush(name, json.dumps({"ev": "begin", "jid": jid, "args": args}))
    control.rpush(name, json.dumps({"ev": "end", "jid": jid, "ok": True}))
    wire.lrem("jobwire:mine", 1, payload)
"""


@pytest.mark.matrix
def test_the_crash_matrix_cuts_at_every_command_that_writes(tmp_path: Path) -> None:
    """[REL-2]: HSETNX was once missing in the matrix's own list."""
    path = adapter(
        tmp_path, worker=MARKS_WITH_HSETNX, claims=("worker/core", "worker/reliable"), timeout=60
    )
    outcome = outcome_of(config.load(path), load("reliable-crash"), patience=20)
    assert outcome.errors == []
    cut = {(loss.point, loss.side): loss.outcome for loss in outcome.losses}
    points = ("BRPOPLPUSH#1", "HSETNX#1", "LREM#1")
    assert {*cut} == {(point, side) for point in points for side in ("before", "after")}
    # A worker that is killed after its last report runs that job twice.
    twice = {("LREM#1", "before")}
    assert {at for at, fate in cut.items() if fate != "kept"} <= twice


# A worker that waits before it sends a script again that the server has forgotten. The
# report and the next fetch travel together, so the fetch is answered before the report is stored.
SLOW_TO_REPEAT = r"""
import json, os, signal, time
import redis

signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
wire = redis.from_url(os.environ["JOBWIRE_REDIS_URL"])
control = redis.from_url(os.environ["JOBWIRE_CONTROL_URL"])
events = "jw:" + os.environ["JOBWIRE_RUN"] + ":ev"
queue = "queue:" + os.environ["JOBWIRE_QUEUES"].split(",")[0]
REMOVE = "return redis.call('LREM', KEYS[1], 1, ARGV[1])"
sha = wire.script_load(REMOVE)
done = None
while True:
    pipe = wire.pipeline(transaction=False)
    if done is not None:
        pipe.evalsha(sha, 1, "mine", done)
    pipe.rpoplpush(queue, "mine")
    *refused, payload = pipe.execute(raise_on_error=False)
    if refused and isinstance(refused[0], redis.exceptions.NoScriptError):
        time.sleep(0.5)
        wire.eval(REMOVE, 1, "mine", done)
    done = payload
    if payload is None:
        time.sleep(0.05)
        continue
    job = json.loads(payload)
    jid, args = job["jid"], job.get("args") or []
    control.rpush(events, json.dumps({"ev": "begin", "jid": jid, "args": args}))
    control.rpush(events, json.dumps({"ev": "end", "jid": jid, "ok": True}))
"""


@pytest.mark.process
def test_a_report_that_the_server_refused_for_want_of_a_script_is_waited_for(
    tmp_path: Path,
) -> None:
    """A worker that got NOSCRIPT will send the script, so it is not at rest. [LUA-3]"""
    claims = ("client/core", "worker/core", "worker/reliable")
    settings = config.load(adapter(tmp_path, worker=SLOW_TO_REPEAT, claims=claims, timeout=60))
    (case,) = load("reliable-scripts")
    outcome = outcome_of(settings, [replace(case, steps=case.steps[:8])])  # this worker only ends
    assert outcome.errors == []
    ran = [v for v in outcome.verdicts if (v.case, v.requirement) == ("reliable-scripts", "LUA-3")]
    assert {v.status for v in ran} == {"pass"}, bad(outcome)


# -- the command


def said(*arguments: str | Path) -> tuple[int, str, str]:
    done = suite.run(*arguments, "--server", valkey_program())
    return done.status, done.out, done.err


@pytest.mark.process
def test_the_command_reports_in_every_form(tmp_path: Path) -> None:
    (tmp_path / "conformance.toml").write_text((REFERENCE / "conformance.toml").read_text())
    for name in ("driver.py", "worker.py"):
        (tmp_path / name).write_text((REFERENCE / name).read_text())
    deviations = tmp_path / "jobwire.deviations.toml"
    only = ("--case", "push-plain", "--case", "push-head", "client/core")
    there = tmp_path / "report"
    deviations.write_text('[[deviation]]\nid = "PUSH-1"\nreason = "we like stacks"\n')
    status, out, err = said(
        "check", tmp_path, *only, "--report", there, "--mutant", "insert-at-tail"
    )
    assert status == 0, err
    assert "2 deviation" in out
    results = json.loads((there / "results.json").read_text())
    assert results["claims"]["client/core"]["met"] is False
    reasons = [check.get("reason") for check in results["checks"]]
    assert "we like stacks" in reasons
    trace = [json.loads(line) for line in (there / "trace.jsonl").read_text().splitlines()]
    assert {line["proc"] for line in trace} == {"driver"}
    assert any(line.get("argv", [""])[0] == "RPUSH" for line in trace)
    requests = [line["text"] for line in trace if line.get("kind") == "request"]
    assert any('"op":"push"' in text for text in requests)
    assert len([*ElementTree.parse(there / "junit.xml").getroot()]) == len(results["checks"])
    assert "we like stacks" in (there / "summary.md").read_text()
    # Without the mistake, a deviation may still serve other cases; one for a case is stale.
    status, out, _ = said("check", tmp_path, *only)
    assert (status, "stale:" in out) == (0, False)
    deviations.write_text('[[deviation]]\nid = "push-head#PUSH-1"\nreason = "we like stacks"\n')
    status, out, _ = said("check", tmp_path, *only)
    assert (status, "stale: push-head#PUSH-1" in out) == (2, True)
    deviations.write_text(f'[[deviation]]\nid = "{NOBODY}"\nreason = "?"\n')
    status, _, err = said("check", tmp_path, *only)
    assert (status, NOBODY in err) == (2, True)
    deviations.write_text('[[deviation]]\nid = "PUSH-1"\n')
    assert said("check", tmp_path, *only)[0] == 64


@pytest.mark.process
def test_a_failure_is_explained() -> None:
    status, _, err = said("check", REFERENCE, "--case", "push-head", "--mutant", "insert-at-tail")
    assert status == 1
    assert data.requirements()["PUSH-1"].text.split("`")[0] in err
    assert 'expected "JobwireEcho", seen "Older"' in err
    assert " ms  driver 1." in err
    assert "RPUSH queue:default" in err
    assert "again: jobwire conform replay -C conformance/drivers/python/conformance.toml " in err
    assert " push-head\n" in err


@pytest.mark.process
@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        (["check", "/nowhere/conformance.toml"], 64, "does not exist"),
        (["check", "client/cores"], 64, "client/cores"),
        (["check", str(PHP), "inspector/read"], 64, "claims does not list inspector/read"),
        (["check", str(REFERENCE), "--case", "nothing"], 64, "no case"),
        (["check", str(REFERENCE), "--mutant", "nothing"], 64, "unknown mutant"),
        (["check", "--nonsense"], 64, "nonsense"),
    ],
)
def test_wrong_usage_has_a_status_of_its_own(arguments: list[str], status: int, says: str) -> None:
    exited, _, err = said(*arguments)
    assert (exited, says in err) == (status, True), err


@pytest.mark.process
def test_without_a_server_it_is_the_environment() -> None:
    done = suite.run("check", REFERENCE, "--server", "no-such-server")
    assert (done.status, "no-such-server" in done.err) == (4, True)


@pytest.mark.process
def test_the_list_of_what_is_checked_names_the_rest() -> None:
    done = suite.run("trace", "--json")
    results = json.loads(done.out)
    assert "PUSH-1" in results["checks"]
    assert done.status == (1 if any(results["uncovered"].values()) else 0)
    assert "PUSH-1" not in results["uncovered"]["client/core"]


# -- settings and case files


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("name = ", "conformance.toml"),
        ("", "section is missing"),
        ('[implementation]\nname = "x"\nclaims = ["client/cor"]', "did you mean 'client/core'"),
        ('[implementation]\nname = "x"\nclaims = []', "a list of texts that is not empty"),
        ('[implementation]\nname = "x"\nclaims = ["client/core"]', r"section \[driver\]"),
        ('[implementation]\nname = "x"\nclaims = ["worker/core"]', r"section \[worker\]"),
        (
            '[implementation]\nname = "x"\nclaims = ["client/core"]\ngeneration = 6',
            "expected one of '6.4', '7.3', '8.1'",
        ),
        (
            '[implementation]\nname = "x"\nclaims = ["client/core"]\n[driver]\ncomand = ["x"]',
            "command",
        ),
        (
            '[implementation]\nname = "x"\nclaims = ["client/core"]\noffers = ["hook"]\n'
            '[driver]\ncommand = ["x"]',
            "did you mean 'hooks'",
        ),
        (
            '[implementation]\nname = "x"\nclaims = ["worker/core"]\n[worker]\ncommand = ["x"]\n'
            "fixed = { poll = -1 }",
            "above 0",
        ),
        (
            '[implementation]\nname = "x"\nclaims = ["client/core"]\nlanguag = "c"\n'
            '[driver]\ncommand = ["x"]',
            "did you mean 'language'",
        ),
    ],
)
def test_a_mistake_in_the_settings_is_named(text: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "conformance.toml").write_text(text)
    with pytest.raises(Usage, match=says):
        config.load(tmp_path)


def test_the_old_name_of_the_settings_is_refused(tmp_path: Path) -> None:
    """jobwire.toml holds the settings of a worker."""
    old = tmp_path / "jobwire.toml"
    old.write_text('[implementation]\nname = "x"\nclaims = ["client/core"]')
    for path in (tmp_path, old):
        with pytest.raises(
            Usage, match=r"rename.*jobwire\.toml is the name of a worker's settings"
        ):
            config.load(path)
    old.write_text("tag = 'x'")
    with pytest.raises(Usage, match=r"conformance\.toml does not exist; .*conform init"):
        config.load(tmp_path)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"check": NOBODY, "list": "x", "len": 1}, f"SPEC.md has no requirement {NOBODY}"),
        ({"check": "FETCH-1", "list": "x", "len": 1}, "the case has none of these profiles"),
        ({"check": "GEN-1", "list": "x", "len": 1}, "GEN-1 belongs to 6.4, 7.3; the case runs for"),
        ({"chekc": "PUSH-1"}, "planted"),
        ({"push_bulk": {"class": "x"}, "args": []}, "asks client/core for client/bulk: put that"),
        ({"check": "PUSH-1", "list": "x", "len": {"$": "rnage"}}, "planted"),
    ],
)
def test_a_mistake_in_a_case_is_named(change: dict[str, object], says: str, tmp_path: Path) -> None:
    path = tmp_path / "planted.json"
    case = {"case": "planted", "title": "x", "claims": ["client/core"], "since": "1.0"}
    path.write_text(json.dumps({**case, "generations": ["8.1"], "steps": [change]}))
    with pytest.raises(SuiteFault, match=says):
        cases.load_file(path)


@pytest.mark.process
@pytest.mark.parametrize("area", sorted(data.cases_directory().iterdir()), ids=lambda a: a.name)
def test_the_suites_own_cases_have_no_mistake(area: Path) -> None:
    """A run does not examine them again."""
    assert cases.load(area)


def test_every_obligation_that_can_be_seen_is_checked() -> None:
    """Each has its own case; the traffic of other cases does not count."""
    assert obligations.uncovered(cases.load(), data.CLAIMS) == []


@pytest.mark.process
def test_cases_that_only_wait_run_beside_the_others() -> None:
    """Otherwise they take a place for 20 s each, while the processors are idle."""
    chosen = cases.load(names=["reliable-late-fetch", "sched-fleet", "retry-first", "retry-dead"])
    most, now = 0, set[str]()

    class Watcher(Quiet):
        def waiting(self, case: Case, event: str) -> None:
            nonlocal most
            now.add(case.name)
            most = max(most, len(now))

        def finished(self, case: Case, *rest: object) -> None:
            now.discard(case.name)

    outcome = run.run(reference(), chosen, (), watcher=Watcher(), sandboxes=2)
    assert bad(outcome) == {}
    assert most == 4


def test_the_settings_at_the_root_are_the_samples() -> None:
    """Therefore `jobwire conform check` needs no argument at the root."""
    here, sample = config.load(ROOT), config.load(REFERENCE)
    assert here.driver is not None
    assert here.worker is not None
    assert sample.worker is not None
    for command_ in (here.driver.command, here.worker.command):
        assert command_[-2] == ".venv/bin/python"
        assert (ROOT / command_[-1]).parent == REFERENCE
    same = replace(here, path=sample.path, driver=sample.driver, worker=sample.worker)
    assert same == sample
    assert here.worker == replace(sample.worker, command=here.worker.command)
