"""Isolated jobs run in child processes, which crash, hang, and are reused."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from harness.servers import Server, wait_until
from jobwire import App, Job, Shutdown
from jobwire.cli.loading import load_app
from jobwire.errors import ConfigError, JobCrashed, JobFailed, JobTimeout
from jobwire.protocol.payload import decode, encode
from jobwire.worker.execute import isolation_parent as module
from jobwire.worker.execute.failure import describe
from jobwire.worker.execute.isolation_parent import Isolation
from tests.apps.isolated import app
from tests.apps.isolated_ends import app as ends_app
from tests.apps.isolated_ends import fail, nap, odd, seven, wait
from tests.fleet import gone
from tests.integration.clients import scored
from tests.workers import environment, running

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def isolation() -> Iterator[Isolation]:
    """Yield processes that all tests share, because each takes a second to start."""
    app.connect("redis://localhost:1/5")
    with Isolation(app.jobs.values(), size=2) as running:
        yield running


def job(name: str, *args: Any) -> Job:
    return decode(encode({"class": name, "jid": "j1", "args": list(args)}), "low")


def run(isolation: Isolation, name: str, *args: Any, timeout: float | None = None) -> None:
    isolation.run(job(name, *map(_plain, args)), app.jobs[name], timeout)


def _plain(value: object) -> object:
    return str(value) if isinstance(value, Path) else value


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


class Background:
    """A thread that calls `run`."""

    def __init__(self, isolation: Isolation, name: str, *args: Any) -> None:
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=[isolation, name, args])
        self._thread.start()

    def _run(self, isolation: Isolation, name: str, args: Any) -> None:
        try:
            run(isolation, name, *args)
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            self.error = error

    @property
    def ident(self) -> int:
        assert self._thread.ident is not None
        return self._thread.ident

    def end(self) -> BaseException | None:
        self._thread.join(60)
        assert not self._thread.is_alive()
        return self.error


@pytest.mark.parametrize("name", ["Who", "AsyncWho"])
def test_a_job_runs_elsewhere_with_all_it_may_ask_for(
    isolation: Isolation, tmp_path: Path, name: str
) -> None:
    """The job has the application's `around` and its Redis; the process is reused."""
    for _ in range(3):
        run(isolation, name, tmp_path / "out")
    pid, *rest = lines(tmp_path / "out")[0].split()
    assert int(pid) != os.getpid()
    assert rest == ["j1", "low", "j1", "redis://localhost:1/5"]
    assert len(set(lines(tmp_path / "out"))) == 1


def test_context_variables_do_not_reach_the_next_job(isolation: Isolation, tmp_path: Path) -> None:
    """EXEC-1: also if the next job runs in the same process."""
    for _ in range(3):
        run(isolation, "Remember", tmp_path / "out")
    (line,) = set(lines(tmp_path / "out"))
    assert line.split()[1] == "none"


@pytest.mark.parametrize("name", ["Typed", "AsyncTyped"])
def test_typed_arguments_arrive(isolation: Isolation, tmp_path: Path, name: str) -> None:
    """EXEC-1: the child process decodes them."""
    order = UUID("9f2c1b7a-4d3e-4f60-9182-93a4b5c6d7e8")
    run(isolation, name, tmp_path / "out", str(order), "1.50")
    assert lines(tmp_path / "out") == [repr((order, Decimal("1.50")))]
    with pytest.raises(JobFailed) as caught:
        run(isolation, name, tmp_path / "out", "abc", "1.50")
    assert caught.value.error_class == "jobwire.errors.InvalidArgument"
    assert caught.value.message.startswith(f"{name}: args[1]: 'abc' does not fit")


def test_arguments_of_every_kind_arrive(isolation: Isolation, tmp_path: Path) -> None:
    """EXEC-1: also numbers that other formats cut off, and arguments that middleware changed."""
    values: list[Any] = [2**70, -(2**64), 1e300, "é\U0001f600", None, [[{"a": []}]], "x" * 300_000]
    run(isolation, "Same", tmp_path / "out", *values)
    assert lines(tmp_path / "out") == [repr(tuple(values))]
    changed = job("Same", "before")
    changed.fields["args"] = [str(tmp_path / "changed"), 1]
    isolation.run(changed, app.jobs["Same"], None)
    assert lines(tmp_path / "changed") == ["(1,)"]
    changed.fields["args"] = [object()]
    with pytest.raises(TypeError, match="JSON values only"):
        isolation.run(changed, app.jobs["Same"], None)


@pytest.mark.parametrize("text", ["out of paper", "", "\ud800", "é" * 100_000])
def test_what_a_job_raises_comes_back_as_text(isolation: Isolation, text: str) -> None:
    """RETRY-3, RETRY-8: class, message and backtrace of the process that ran the job."""
    task = job("Raise", "")
    if text == "\ud800":
        task.fields["args"] = ["\\ud800"]
        text = "\\ud800"
    else:
        task.fields["args"] = [text]
    with pytest.raises(JobFailed) as caught:
        isolation.run(task, app.jobs["Raise"], None)
    failure = describe(caught.value)
    assert failure.error_class == "tests.apps.isolated.BrokenError"
    assert failure.message == text
    assert "apps/isolated.py" in failure.backtrace[0]
    assert failure.backtrace[0].endswith("in 'fail'")


def test_an_exit_is_the_jobs_own(isolation: Isolation, tmp_path: Path) -> None:
    """EXEC-7: the process lives on."""
    with pytest.raises(JobFailed, match="SystemExit: 4"):
        run(isolation, "Leave", 4)
    run(isolation, "Who", tmp_path / "out")


@pytest.mark.parametrize(
    ("name", "args", "says"),
    [
        ("Vanish", [0], "ended with exit status 0"),
        ("Crash", [], r"was killed by signal 11 \(SIGSEGV\)"),
    ],
)
def test_a_crash_fails_its_job_and_no_other(
    isolation: Isolation, tmp_path: Path, name: str, args: list[int], says: str
) -> None:
    """RETRY-1: an ordinary failure; the next job gets another process."""
    with pytest.raises(JobCrashed, match=says):
        run(isolation, name, *args)
    run(isolation, "Who", tmp_path / "out")
    assert lines(tmp_path / "out")


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ("ffffffff", "its process sent a frame of 4294967295 bytes; the limit is 67108864"),
        ("00000100", "its process sent only a part of a frame"),
        ("", "its process ended with exit status 1"),
    ],
    ids=["too long", "partial", "closed"],
)
def test_a_job_that_breaks_the_channel_fails(
    isolation: Isolation,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    data: str,
    says: str,
) -> None:
    """RETRY-1: it keeps its slot no longer, and its process ends."""
    monkeypatch.setattr(module, "FRAME_TIMEOUT_S", 0.5, raising=False)
    with pytest.raises(JobCrashed, match=says):
        run(isolation, "Channel", data)
    run(isolation, "Who", tmp_path / "out")


def test_a_crash_is_noticed_while_a_forked_process_lives(
    isolation: Isolation, tmp_path: Path
) -> None:
    """The fork keeps the pipe open; the fork ends with the process that made it."""
    with pytest.raises(JobCrashed, match=r"SIGKILL.*out of memory"):
        run(isolation, "ForkAndCrash", tmp_path / "out")
    wait_until(lambda: gone(int(lines(tmp_path / "out")[0])))


def test_time_is_up_for_a_job_that_hears_nothing(isolation: Isolation, tmp_path: Path) -> None:
    """The process is killed, and so is the program that it started."""
    began = time.monotonic()
    with pytest.raises(JobTimeout, match="still running after 1 s"):
        run(isolation, "Hang", tmp_path / "out", timeout=1.0)
    assert time.monotonic() - began < 50  # it sleeps for 60 s
    for pid in lines(tmp_path / "out")[0].split():
        wait_until(lambda pid=pid: gone(int(pid)))  # type: ignore[misc]
    run(isolation, "Who", tmp_path / "next", timeout=30)


@pytest.mark.parametrize("name", ["Wait", "AsyncWait"])
def test_an_interrupted_job_cleans_up(isolation: Isolation, tmp_path: Path, name: str) -> None:
    """SIG-5: `Shutdown`, or a cancelled task; the process can run the next job."""
    started = Background(isolation, name, tmp_path / "out")
    pid = wait_until(lambda: lines(tmp_path / "out"))[0]
    assert isolation.interrupt(started.ident)
    assert isinstance(started.end(), Shutdown)
    assert lines(tmp_path / "out") == [pid, "interrupted"]
    assert not isolation.interrupt(started.ident)
    run(isolation, "Who", tmp_path / "next")
    assert lines(tmp_path / "next")[0].split()[0] == pid


def test_an_interrupted_job_that_hears_nothing_is_killed(tmp_path: Path) -> None:
    """SIG-5: the process is killed after a grace period."""
    with Isolation(app.jobs.values(), size=2, interrupt_grace=0.3) as isolation:
        started = Background(isolation, "Hang", tmp_path / "out")
        pid = int(wait_until(lambda: lines(tmp_path / "out"))[0].split()[0])
        isolation.interrupt(started.ident)
        assert isinstance(started.end(), Shutdown)
        wait_until(lambda: gone(pid))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_to_everybody_leave_jobs_alone(
    isolation: Isolation, tmp_path: Path, number: signal.Signals
) -> None:
    """SIG-1: service managers may signal every process of a unit, but running jobs have time."""
    started = Background(isolation, "Wait", tmp_path / "out")
    pid = int(wait_until(lambda: lines(tmp_path / "out"))[0])
    os.kill(pid, number)
    run(isolation, "Who", tmp_path / "other")
    assert not gone(pid)
    isolation.interrupt(started.ident)
    assert isinstance(started.end(), Shutdown)
    assert lines(tmp_path / "out")[1:] == ["interrupted"]


def test_more_threads_than_processes_wait_for_their_turn(tmp_path: Path) -> None:
    with Isolation(app.jobs.values(), size=1) as isolation:
        threads = [Background(isolation, "Who", tmp_path / "out") for _ in range(5)]
        assert [thread.end() for thread in threads] == [None] * 5
    assert len(lines(tmp_path / "out")) == 5
    assert len(set(lines(tmp_path / "out"))) == 1


def test_who_waits_for_a_process_can_be_interrupted(tmp_path: Path) -> None:
    with Isolation(app.jobs.values(), size=1) as isolation:
        first = Background(isolation, "Wait", tmp_path / "out")
        wait_until(lambda: lines(tmp_path / "out"))
        second = Background(isolation, "Wait", tmp_path / "out")
        wait_until(lambda: isolation.interrupt(second.ident))
        assert isinstance(second.end(), Shutdown)
        isolation.interrupt(first.ident)
        assert isinstance(first.end(), Shutdown)


def test_a_process_that_died_while_idle_is_not_used(isolation: Isolation, tmp_path: Path) -> None:
    run(isolation, "Who", tmp_path / "out")
    pid = int(lines(tmp_path / "out")[0].split()[0])
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: gone(pid))
    run(isolation, "Who", tmp_path / "out")


def test_processes_end_when_idle_and_at_the_end(tmp_path: Path) -> None:
    """One process is kept, so that the next job need not wait."""
    with Isolation(app.jobs.values(), size=3, idle_limit=0.2) as isolation:
        waiting = [Background(isolation, "Wait", tmp_path / "out") for _ in range(3)]
        pids = [int(pid) for pid in wait_until(lambda: _three(tmp_path / "out"))]
        for each in waiting:
            isolation.interrupt(each.ident)
            assert isinstance(each.end(), Shutdown)
        wait_until(lambda: sum(map(gone, pids)) == 2)
        run(isolation, "Who", tmp_path / "next")
        assert int(lines(tmp_path / "next")[0].split()[0]) in pids
    assert all(map(gone, pids))


def _three(path: Path) -> list[str]:
    found = lines(path)
    return found if len(found) == 3 else []


def test_closing_ends_running_jobs_too(tmp_path: Path) -> None:
    isolation = Isolation(app.jobs.values(), size=1)
    started = Background(isolation, "Hang", tmp_path / "out")
    pids = wait_until(lambda: lines(tmp_path / "out"))[0].split()
    isolation.close()
    isolation.close()
    assert isinstance(started.end(), Shutdown)
    for pid in pids:
        wait_until(lambda pid=pid: gone(int(pid)))  # type: ignore[misc]


PROGRAM = """
import os, sys, threading
from contextlib import suppress
from jobwire.errors import JobCrashed
from jobwire.protocol.payload import decode
from jobwire.worker.execute.isolation_parent import Isolation
from jobwire.worker.execute.joblog import set_up
from tests.apps.isolated import app

set_up(sys.argv[1], "info")
isolation = Isolation(app.jobs.values(), size=2)
isolation.start()
def run(name, path):
    text = '{"class":"%s","jid":"j1","args":["%s"]}' % (name, path)
    isolation.run(decode(text.encode(), "low"), app.jobs[name], None)
run("Say", "hello")
if sys.argv[1:] == ["json"]:
    run("Print", "aloud")
    with suppress(JobCrashed):
        run("PrintAndDie", "last")
if len(sys.argv) > 2:
    thread = threading.Thread(target=run, args=["Hang", sys.argv[2]])
    thread.start()
    thread.join()
else:
    isolation.close()
"""


def program(*arguments: str, **options: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *arguments],
        env=environment(),
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def test_no_process_outlives_a_worker_that_is_killed(tmp_path: Path) -> None:
    """SIG-5: a busy process, an idle one and a process that a job started all end."""
    with program("human", str(tmp_path / "out")) as worker:
        pids = wait_until(lambda: lines(tmp_path / "out"), 60)[0].split()
        children = Path(f"/proc/{worker.pid}/task/{worker.pid}/children").read_text().split()
        worker.kill()
        worker.wait(60)
    for pid in {*pids[:1], *children}:
        wait_until(lambda pid=pid: gone(int(pid)))  # type: ignore[misc]
    if not gone(int(pids[1])):  # the kernel may kill it before its parent does
        os.kill(int(pids[1]), signal.SIGKILL)


def test_a_jobs_log_lines_are_the_workers(tmp_path: Path) -> None:
    """Format, level, thread and job are those of the worker; the pid is that of the process."""
    with program("json") as worker:
        _, said = worker.communicate(timeout=60)
    line, *printed = map(json.loads, said.splitlines())
    assert line["msg"] == "hello"
    assert line["pid"] != worker.pid
    assert line["tid"] == "MainThread"  # this program calls it there
    assert line["ctx"] == {"class": "Say", "jid": "j1", "queue": "low"}
    # The output of a job and of its programs is in lines of the log, with the job.
    assert [(line["msg"], line["ctx"]["class"]) for line in printed] == [
        ("out aloud", "Print"),
        ("err aloud", "Print"),
        ("\x1b[2Jprogram \\xff", "Print"),
        ("no end of line", "Print"),
        ("last", "PrintAndDie"),
    ]


# -- jobs that another process cannot find


def test_a_job_inside_of_a_function_is_refused() -> None:
    local = App()

    @local.job(isolated=True)
    def hidden() -> None: ...

    with pytest.raises(ConfigError, match=r"isolated job 'hidden'.*top level"):
        Isolation([hidden], size=1)


LOOSE = """
import sys
from jobwire import App
app = App()
@app.job(isolated=True)
def note(path):
    open(path, "w").write("there")
"""


def load(directory: Path, source: str) -> App:
    """Load a file as `jobwire worker path/to/file.py:app` does."""
    path = directory / "loose_jobs.py"
    path.write_text(source)
    return load_app(f"{path}:app")


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "code").mkdir()
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "loose_jobs", raising=False)
    return tmp_path


def test_a_file_that_is_not_on_the_import_path_is_found(elsewhere: Path) -> None:
    loose = load(elsewhere / "code", LOOSE)
    with Isolation(loose.jobs.values(), size=1) as isolation:
        isolation.run(job("note", "out"), loose.jobs["note"], None)
    assert (elsewhere / "work" / "out").read_text() == "there"
    del sys.modules["loose_jobs"]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("sys.exit(5)", "SystemExit: 5"),
        ("import os; os._exit(7)", "ended with exit status 7"),
        ("app.jobs.clear(); del note", "module loose_jobs defines no job 'note'"),
    ],
)
def test_a_module_that_cannot_be_imported_twice_is_refused(
    elsewhere: Path, line: str, says: str
) -> None:
    loose = load(elsewhere / "code", LOOSE)
    file = elsewhere / "code" / "loose_jobs.py"
    file.write_text(f"{LOOSE}\n{line}\n")
    with pytest.raises(ConfigError, match=says), Isolation(loose.jobs.values(), size=1):
        pass
    del sys.modules["loose_jobs"]


STAGED = {  # the layout of docs/how-to/modules.md, "Use Django"
    "background.py": "from jobwire import App\napp = App()\n",
    "worker.py": """
import staged.framework as framework
framework.ready = True
from staged.background import app
app.autodiscover("staged")
""",
    "framework.py": "ready = False\n",
    "jobs.py": """
import staged.framework as framework
from staged.background import app
if not framework.ready:
    raise RuntimeError("the framework is not set up")
@app.job(isolated=True)
def note(path):
    open(path, "w").write("there")
""",
}


@pytest.mark.parametrize("target", ["staged.worker:app", "staged/worker.py:app"])
def test_a_process_first_imports_the_module_that_the_worker_loaded(
    elsewhere: Path, target: str
) -> None:
    (elsewhere / "work" / "staged").mkdir()
    for name, source in STAGED.items():
        (elsewhere / "work" / "staged" / name).write_text(source)
    before = set(sys.modules)
    try:
        staged = load_app(target)
        with Isolation(staged.jobs.values(), size=1, entry=staged.entry) as isolation:
            isolation.run(job("note", "out"), staged.jobs["note"], None)
        assert (elsewhere / "work" / "out").read_text() == "there"
        with (  # as in a program that does not use the command line
            pytest.raises(ConfigError, match="the framework is not set up"),
            Isolation(staged.jobs.values(), size=1),
        ):
            pass
    finally:
        for name in set(sys.modules) - before:
            del sys.modules[name]


def test_results_come_out_of_the_process(server: Server) -> None:
    """X-RESULT-4, X-RESULT-5: a value, a value that JSON has not, and a failure."""
    with running(ends_app, server):
        jids = [job.enqueue() or "" for job in (seven, odd, fail)]
        value, problem, failure = (ends_app.client.result(jid, timeout=30) for jid in jids)
    assert value is not None
    assert value.get() == 7
    assert problem is not None
    assert problem.outcome == "done"
    assert problem.problem is not None
    assert "set" in problem.problem
    assert failure is not None
    assert (failure.outcome, failure.error_class, failure.error_message) == (
        "dead",
        "ValueError",
        "seven",
    )


def test_a_job_in_a_process_puts_itself_off(server: Server) -> None:
    """X-TIME-4, X-TIME-5: it waits in the schedule, and has not failed."""
    client: Any = server.client()
    with running(ends_app, server):
        nap.enqueue()
        wait_until(lambda: client.zcard("schedule"))
    ((fields, at),) = scored(server, "schedule")
    assert 3500 < at - time.time() < 3700
    assert (fields["class"], fields["jw_snoozes"]) == ("Nap", 1)
    assert "retry_count" not in fields
    assert int(client.get("stat:failed") or 0) == 0


def test_a_job_in_a_process_is_cancelled(server: Server) -> None:
    """X-CANCEL-6, X-CANCEL-7: it is interrupted where it is, and has not failed."""
    client: Any = server.client()
    with running(ends_app, server):
        jid = wait.enqueue("x") or ""
        wait_until(lambda: client.llen("queue:begun"))
        asked = time.monotonic()
        assert wait.cancel(jid).place == "running"
        result = wait.result(jid, timeout=30)
        took = time.monotonic() - asked
    assert result is not None
    assert result.outcome == "cancelled"
    assert took < 20  # the job itself takes 60 s
    assert not client.exists("retry", "dead", "jobwire:cancelled")
    assert int(client.get("stat:failed") or 0) == 0
    assert json.loads(client.lindex("queue:begun", 0))["args"] == ["x"]
