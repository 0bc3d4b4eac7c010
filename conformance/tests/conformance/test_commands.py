"""The commands besides `check`: their output, their files and their exit status."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from jobwire_conformance import data
from jobwire_conformance.cases import case as cases
from jobwire_conformance.cli import COMMANDS
from jobwire_conformance.mutation import mutants
from jobwire_conformance.run import replay, sets
from tests.conformance.suite import GOOD, IGNORES_TERM, REFERENCE, ROOT, adapter, copied, run

pytestmark = pytest.mark.process


def reference(directory: Path, *, pushes: int | None = None) -> Path:
    """Copy the reference; with `pushes`, its driver stops after that many pushes."""
    copied(REFERENCE, directory)
    if pushes is not None:
        path = directory / "driver.py"
        tired = (
            "_answer, _pushes = answer, []\n"
            "def answer(request, *rest):\n"
            "    given = [each for each in (request, *rest) if isinstance(each, dict)][0]\n"
            "    if given['op'] == 'push':\n"
            "        _pushes.append(1)\n"
            f"        if len(_pushes) > {pushes}:\n"
            "            return {'error': {'kind': 'unknown', 'message': 'tired'}}\n"
            "    return _answer(request, *rest)\n"
        )
        main = 'if __name__ == "__main__":'
        path.write_text(path.read_text().replace(main, f"{tired}\n{main}"))
    return directory


def environment() -> dict[str, str]:
    return {"PYTHONPATH": f"{ROOT}/python:{ROOT}/conformance"}


# -- the group


def test_every_command_has_help() -> None:
    said = run("--help")
    assert said.status == 0
    for name in COMMANDS:
        assert f"\n  {name} " in said.out
    for name in COMMANDS:
        assert run(name, "--help").status == 0, name


# -- explain


def test_a_requirement_is_explained() -> None:
    said = run("explain", "push-1")
    assert said.status == 0
    assert "[PUSH-1] client/core, interop, generations 6.4, 7.3, 8.1, since 1.0" in said.out
    assert data.requirements()["PUSH-1"].text in said.out
    assert "Why: workers take from the tail" in said.out
    for each in ("push-head", "insert-at-tail", "  LPUSH queue:default"):
        assert each in said.out
    entry = json.loads(run("explain", "PUSH-2", "--json").out)
    assert entry["requirement"] == "PUSH-2"
    assert entry["seen_in"].startswith("6, 7 and 8 send")
    assert entry["mutants"] == [each.name for each in mutants.load() if "PUSH-2" in each.kills]
    checking = [each.name for each in cases.load() if "PUSH-2" in each.requirements]
    assert [each["case"] for each in entry["cases"]] == checking


def test_every_requirement_and_every_case_can_be_explained() -> None:
    from jobwire_conformance.reports.explain import explained, page

    for id_, rule in data.requirements().items():
        entry = explained(id_)
        # The obligations have to state their reason.
        assert entry["why"] or not rule.obliges, id_
        assert len([*page(entry)]) > 2
    for case in cases.load():
        assert f"{case.name}: {case.title}" in [*page(explained(case.name))]


def test_a_case_is_explained() -> None:
    said = run("explain", "reliable-crash")
    assert said.status == 0
    assert "one run for each effect of w1" in said.out
    assert "jobwire conform replay reliable-crash" in said.out


def test_what_is_neither_is_said() -> None:
    said = run("explain", "PSH-1")
    assert (said.status, "PUSH-1" in said.err) == (64, True)


# -- replay


def test_a_case_is_replayed_with_its_wire_log() -> None:
    said = run("replay", "push-head", "-n", "2", "-C", REFERENCE)
    assert said.status == 0, said.err
    assert "passed 2/2" in said.out
    assert "push-head#PUSH-1 passed in 2 of 2 runs" in said.out
    assert "LPUSH queue:default" in said.out
    assert "ms  driver 1." in said.out


def test_a_replay_leaves_out_polling_that_finds_nothing() -> None:
    def sent(seq: int, reply: str, *argv: str) -> dict[str, object]:
        return {"proc": "w1", "conn": 1, "seq": seq, "argv": argv, "reply": reply}

    nothing = "*0\r\n"
    trace = [
        sent(1, nothing, "ZRANGE", "retry", "-inf", "1"),
        sent(2, nothing, "ZRANGE", "schedule", "-inf", "1"),
        sent(3, nothing, "ZRANGE", "retry", "-inf", "2"),
        sent(4, "*1\r\n$1\r\na\r\n", "ZRANGE", "schedule", "-inf", "2"),
        sent(5, nothing, "ZRANGE", "schedule", "-inf", "3"),
        {**sent(6, nothing, "ZRANGE", "retry", "-inf", "3"), "fault": "cut"},
    ]
    lines = [*replay.wire(trace)]
    shown = [line.split()[3] for line in lines if "ZRANGE" in line]
    assert shown == ["1.1", "1.2", "1.4", "1.5", "1.6"]
    assert lines[-1].startswith("-- without 1 commands")
    assert len([*replay.wire(trace, idle=True)]) == 2 * len(trace)


def test_a_found_case_is_replayed_by_its_path(tmp_path: Path) -> None:
    """The claims in conformance.toml are ignored."""
    directory = reference(tmp_path, pushes=0)
    _, case = data.cases(data.cases_directory())["push-head"]
    path = directory / "found-1a2b3c.json"
    path.write_text(json.dumps({**case, "case": path.stem, "claims": ["client/core"]}))
    said = run("replay", path, "-n", "2", "-C", directory, env=environment())
    assert said.status == 1, said.err
    assert "passed 0/2" in said.out
    assert "found-1a2b3c#PUSH-1 passed in 0 of 2 runs" in said.out
    assert "(tired)" in said.out


# -- check


def test_what_holds_sometimes_is_flaky(tmp_path: Path) -> None:
    directory = reference(tmp_path, pushes=1)
    said = run(
        *("check", directory, "--case", "push-head", "--repeat", "3", "--json", "client/core"),
        env=environment(),
    )
    assert said.status == 1, said.err
    results = json.loads(said.out)
    (check,) = [each for each in results["checks"] if each["case"] == "push-head"]
    assert (check["status"], check["held"], check["runs"]) == ("flaky", 1, 3)
    assert "(passed in 1 of 3 runs)" in said.err
    assert results["claims"]["client/core"]["met"] is False


@pytest.mark.matrix
def test_the_seed_is_told_and_decides_the_order(tmp_path: Path) -> None:
    only = [word for name in ("push-p*", "push-h*", "push-o*") for word in ("--case", name)]
    orders = []
    for seed in ("1", "1", "2", "3", "4", "5", "6"):
        said = run("check", REFERENCE, *only, "--seed", seed, "--json", "client/core+robust")
        assert said.status == 0, said.err
        assert json.loads(said.out)["seed"] == int(seed)
        lines = [line.split()[1] for line in said.err.splitlines() if line.startswith("[")]
        orders.append(lines)
    assert orders[0] == orders[1]
    assert len({tuple(order) for order in orders}) > 1
    seeds = {
        json.loads(run("check", REFERENCE, "--case", "push-head", "--json").out)["seed"]
        for _ in range(2)
    }
    assert len(seeds) == 2


def test_less_can_be_said() -> None:
    only = ("check", REFERENCE, "--case", "push-head", "--case", "push-plain", "client/core")
    wrong = ("--mutant", "insert-at-tail")
    quiet = run(*only, "--quiet", *wrong)
    assert quiet.status == 1
    assert "push-head  FAIL" in quiet.err
    assert "] push-plain" not in quiet.err
    assert "client/core" in quiet.out
    summary = run(*only, "--summary", *wrong)
    assert summary.status == 1
    assert (summary.err, len(summary.out.splitlines())) == ("", 2)


# -- sets


def test_the_set_of_the_draft_is_up_to_date() -> None:
    now = sets.text(sets.current(cases.load()))
    path = sets.path_of(data.spec_version())
    assert path.read_text("utf-8") == now, (
        f"bring {path.relative_to(ROOT)} up to date: make conformance ARGS=--set"
    )
    assert run("trace", "--set").out == now


def test_checks_of_a_set_are_those_of_the_suite() -> None:
    """A frozen set may lack newer checks, and has no check that was removed.

    A draft or candidate that is over was never frozen.
    """
    now = sets.current(cases.load())
    for path in data.sets_directory().glob("*.json"):
        if "-" in path.stem and path.stem != data.spec_version():
            continue
        for claim, checks in sets.load(path.stem).claims.items():
            assert checks <= now.claims[claim], (path.name, claim)


def test_what_came_later_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = json.loads(sets.path_of(data.spec_version()).read_text())
    old["cases"]["push-head"]["client/core"].remove("PUSH-1")
    (tmp_path / "0.9.json").write_text(json.dumps({**old, "spec": "0.9"}))
    monkeypatch.setattr(data, "sets_directory", lambda: tmp_path)
    from jobwire_conformance import config
    from jobwire_conformance.run import run
    from tests.conformance.suite import Quiet

    monkeypatch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
    settings = config.load(adapter(tmp_path, GOOD, claims=("client/core",)))
    outcome = run.run(
        settings, cases.load(names=["push-head"]), [], watcher=Quiet(), frozen=sets.load("0.9")
    )
    assert [each.status for each in outcome.verdicts if each.case == "push-head"] == ["added-after"]
    assert (outcome.status, outcome.as_data()["spec"]) == (0, "0.9")
    everything = run.run(settings, cases.load(names=["push-head"]), [], watcher=Quiet())
    assert everything.status == 1


def test_a_version_without_a_set_is_wrong_usage() -> None:
    said = run("check", REFERENCE, "--spec", "0.3", "--case", "push-head")
    assert (said.status, data.spec_version() in said.err) == (64, True)


# -- baseline


def test_a_baseline_makes_the_next_failure_news(tmp_path: Path) -> None:
    settings = adapter(tmp_path, GOOD, claims=("client/bulk",))
    path = tmp_path / "jobwire.deviations.toml"
    said = run("baseline", settings)
    assert said.status == 0, said.err
    entries = tomllib.loads(path.read_text())["deviation"]
    assert {"BULK-1", "BULK-2"} <= {each["id"] for each in entries}
    assert all(each["reason"].startswith("TODO: write the reason. ") for each in entries)
    said = run("check", settings, "--summary")
    assert (said.status, "are still TODO" in said.err) == (2, True)
    path.write_text(path.read_text().replace("TODO: write the reason.", "There is none:"))
    assert run("check", settings, "--summary").status == 0
    before = path.read_text()
    said = run("baseline", settings)
    assert (said.status, "0 added, 0 removed" in said.out) == (0, True)
    assert path.read_text() == before
    path.unlink()
    assert run("baseline", settings, "--reason", "later").status == 0
    entries = tomllib.loads(path.read_text())["deviation"]
    assert {each["reason"] for each in entries} == {"later"}


@pytest.mark.matrix
def test_what_people_wrote_stays_and_what_passes_goes(tmp_path: Path) -> None:
    directory = reference(tmp_path)
    path = directory / "jobwire.deviations.toml"
    mine = '# about us\n\n[[deviation]]\nid = "PAY-3" # levels\nreason = "not counted"\n'
    stale = '[[deviation]]\nid = "bulk-many#BULK-2"\nreason = "no more"\n'
    unknown = '[[deviation]]\nid = "gone#PUSH-1"\nreason = "?"\n'
    several = (
        '[[deviation]]\nid = [ # two\n  "PAY-4",\n  "gone#PUSH-3",\n]\nreason = "no \'PAY-4\'"\n'
    )
    text = f"{mine}\n{stale}\n{unknown}\n{several}"
    path.write_text(text)
    said = run("baseline", directory, "client/bulk", "--dry-run", env=environment())
    assert (said.status, path.read_text()) == (0, text), said.err
    said = run("baseline", directory, "client/bulk", env=environment())
    assert said.status == 0, said.err
    assert "- bulk-many#BULK-2" in said.out
    assert "- gone#PUSH-1" in said.out
    assert "2 kept" in said.out
    assert path.read_text() == mine + "\n" + several.replace('\n  "gone#PUSH-3",', "")


def test_without_a_whole_run_no_baseline_is_written(tmp_path: Path) -> None:
    path = adapter(tmp_path, "raise SystemExit(7)", claims=("client/core",))
    said = run("baseline", path)
    assert (said.status, "Nothing was written" in said.err) == (3, True)
    assert not (tmp_path / "jobwire.deviations.toml").exists()
    (tmp_path / "jobwire.deviations.toml").write_text('deviation = [{id = "PUSH-1", reason="x"}]')
    adapter(tmp_path, GOOD, claims=("client/bulk",))
    said = run("baseline", path)
    assert (said.status, "begin each entry with a line [[deviation]]" in said.err) == (64, True), (
        said.err
    )
    said = run("baseline", path, "--reason", "TODO")
    assert (said.status, "--reason" in said.err) == (64, True)


# -- doctor


def test_the_reference_is_in_order() -> None:
    said = run("doctor", REFERENCE, "--json")
    assert said.status == 0, said.out
    states = {each["what"]: each["state"] for each in json.loads(said.out)}
    assert "bad" not in states.values()
    for what in (
        "driver starts and answers hello",
        "driver pushes",
        "driver ends after bye",
        "driver ends at the end of its input",
        "driver leaves no process",
        "worker starts and fetches",
        "worker runs JobwireSpawn",
        "worker obeys JOBWIRE_CONCURRENCY",
        "worker ends on SIGTERM",
        "worker leaves no process",
    ):
        assert states[what] == "ok", what


IGNORES = """
import os, signal, subprocess, sys
for name in ("SIGINT", "SIGTSTP"):
    signal.signal(getattr(signal, name), signal.SIG_IGN)
os.execv(sys.executable, [sys.executable, "real.py"])
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads /proc")
def test_signals_that_a_worker_ignores_are_named(tmp_path: Path) -> None:
    """[SIG-1] A JVM, for example, keeps a signal ignored that it inherits so."""
    path = adapter(tmp_path, GOOD, IGNORES, claims=("worker/core",))
    (tmp_path / "real.py").write_text(IGNORES_TERM.rpartition("signal.signal")[0] + "fetch()")
    said = run("doctor", path, "--patience", "1")
    assert "note worker can receive the signals: it ignores INT, TSTP" in said.out, said.out


def test_an_adapter_that_is_not_filled_in_hears_what_to_do(tmp_path: Path) -> None:
    made = run("init", tmp_path, "--language", "python", "--claim", "client/core")
    assert made.status == 0
    said = run("doctor", "-C", tmp_path)
    assert said.status == 3
    assert "BAD  driver pushes: the answer was unsupported" in said.out
    assert "remedy: fill in `push`" in said.out
    assert "-    worker: no claim in conformance.toml needs it" in said.out


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            "os.environ['JOBWIRE_CONTROL_URL'] = os.environ['JOBWIRE_REDIS_URL']",
            "its jobs report to JOBWIRE_REDIS_URL",
        ),
        ("os.environ['JOBWIRE_RUN'] = 'x'", "its jobs report to the key jw:x:ev"),
        ("sys.exit(255)", "remedy: the program failed; see its output"),
    ],
)
def test_a_worker_whose_reports_get_lost_is_told_so(change: str, says: str, tmp_path: Path) -> None:
    program = ROOT / "conformance" / "drivers" / "python" / "worker.py"
    start = f"os.execv(sys.executable, [sys.executable, {str(program)!r}])"
    worker = f"import os, sys\n{change}\n{start}\n"
    path = adapter(tmp_path, GOOD, worker, claims=("worker/core",), timeout=30)
    said = run("doctor", path, "--patience", "3")
    assert (said.status, says in said.out) == (3, True), said.out


def test_a_driver_that_cannot_connect_is_told_so(tmp_path: Path) -> None:
    refused = "error={'kind': 'unknown', 'message': 'connection refused'}"
    pushes = GOOD.replace("unsupported=True", refused)
    said = run("doctor", adapter(tmp_path, pushes, claims=("client/core",)))
    assert "remedy: no command reached Redis: connect to JOBWIRE_REDIS_URL" in said.out, said.out


def test_a_driver_at_another_redis_is_told_so(tmp_path: Path) -> None:
    pushed = "**({'ok': {'jid': '0' * 24}} if op == 'push' else {'unsupported': True})"
    pushes = GOOD.replace("unsupported=True", pushed)
    said = run("doctor", adapter(tmp_path, pushes, claims=("client/core", "client/bulk")))
    assert said.status == 3
    assert "BAD  driver uses JOBWIRE_REDIS_URL: no command reached" in said.out
    assert "BAD  driver has the operations: hello lists push" in said.out
