"""An error gets one line that names value, rule and fix, and a documented exit status."""

from __future__ import annotations

import logging
import re
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from harness.servers import Server, wait_until
from jobwire.cli import __doc__ as cli_doc
from jobwire.cli import main
from tests.server_fixtures import ServerFactory
from tests.workers import Workers, jobwire

APP = "tests.apps.recording:app"
NOWHERE = "redis://127.0.0.1:1/0"  # port 1 is never listened on
USAGE, NO_APP, NO_REDIS = 2, 3, 4


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a directory with modules that cannot be used."""
    for name, text in {
        "jobs": "import jobwire\napp = jobwire.App()\nother = jobwire.App()\n"
        "@app.job\ndef work() -> None: ...\n",
        "wants": "import not_installed_here\n",
        "leaves": "import sys\nsys.exit('set SHOP_KEY first')\n",
        "raises": "raise RuntimeError('two\\nlines')\n",
        "twice": "import jobwire\napp = jobwire.App()\n"
        "app.job(name='X')(print)\napp.job(name='X')(repr)\n",
    }.items():
        (tmp_path / f"{name}.py").write_text(text)
    return tmp_path


@pytest.fixture
def command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Callable[..., str]]:
    """Run a command in this process, which is faster, and return its one line."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    monkeypatch.setattr(sys, "path", sys.path[:])

    def run(status: int, *arguments: str, url: str) -> str:
        monkeypatch.setenv("JOBWIRE_REDIS_URL", url)
        monkeypatch.setattr(sys, "argv", ["jobwire", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        assert ended.value.code == status, err
        return one_line(out, err)

    yield run
    root.handlers[:], root.level = handlers, level
    for name, module in list(sys.modules.items()):
        if Path(getattr(module, "__file__", None) or "").parent == tmp_path:
            del sys.modules[name]


def one_line(out: str, err: str) -> str:
    assert out == ""
    lines = err.splitlines()
    assert len(lines) == 1, err
    assert lines[0].startswith("jobwire: ")
    return lines[0]


def refused(status: int, *arguments: str, cwd: Path | None = None, **env: str) -> str:
    """Return the single line of output of a command."""
    ended = jobwire(*arguments, cwd=cwd, **env)
    assert ended.returncode == status, ended.stderr
    return one_line(ended.stdout, ended.stderr)


def test_every_status_is_documented() -> None:
    """The command's own help and its module list all exit statuses."""
    text = jobwire("--help").stdout
    for status in (USAGE, NO_APP, NO_REDIS):
        assert re.search(rf"\b{status} [A-Za-z]", " ".join(text.split()))
        assert f"{status} " in (cli_doc or "")


WORKER: dict[str, tuple[int, list[str], list[str]]] = {
    "flag": (USAGE, ["jobs:app", "--bogus"], ["--bogus", "worker --help"]),
    "no app": (USAGE, [], ["MODULE:APP", "worker --help"]),
    "weight": (USAGE, ["jobs:app", "-q", "a,x"], ["'a,x'", "'x'", "NAME,WEIGHT"]),
    "concurrency": (USAGE, ["jobs:app", "-c", "0"], ["0 is less than 1"]),
    "no number": (USAGE, ["jobs:app", "-c", "many"], ["-c", "'many'"]),
    "timeout": (USAGE, ["jobs:app", "-t", "-1"], ["timeout", "-1", "0 or more"]),
    "fetch": (USAGE, ["jobs:app", "--fetch", "fast"], ["'fast'", "'reliable', 'basic'"]),
    "scheme": (USAGE, ["jobs:app", "--redis", "http://x"], ["http://x", "redis://"]),
    "module": (NO_APP, ["nope:app"], ["'nope'", "PYTHONPATH"]),
    "name": (NO_APP, ["jobs:nope"], ["'nope'", "app, other"]),
    "which": (NO_APP, ["jobs"], ["2 applications", "app and other", "jobs:NAME"]),
    "no jobs": (NO_APP, ["jobs:other"], ["'jobs:other'", "no jobs", "imports=", "autodiscover"]),
    "import": (NO_APP, ["wants:app"], ["wants.py:1", "not_installed_here"]),
    "error": (NO_APP, ["raises.py:app"], ["raises.py:1", "RuntimeError: two lines"]),
    "exit": (NO_APP, ["leaves:app"], ["'leaves'", "set SHOP_KEY first"]),
    "job twice": (NO_APP, ["twice:app"], ["'X'", "name='...'"]),
}


@pytest.mark.parametrize("case", WORKER)
def test_worker(
    project: Path, command: Callable[..., str], monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    """ENV-1, FETCH-4: before the worker connects."""
    status, arguments, words = WORKER[case]
    monkeypatch.chdir(project)
    line = command(status, "worker", *arguments, url=NOWHERE)
    for word in words:
        assert word in line


ENQUEUE: dict[str, tuple[list[str], list[str]]] = {
    "flag": (["X", "--bogus"], ["--bogus"]),
    "text": (["X", "[hello"], ["argument 1", "'[hello'", "quotes", "'\"[hello\"'"]),
    "second": (["X", "1", "{'a':1}"], ["argument 2", "{'a':1}"]),
    "NaN": (["X", "NaN"], ["argument 1", "NaN"]),
    "Infinity": (["X", "--", "-Infinity"], ["argument 1", "Infinity"]),
    "beyond a double": (["X", "[1e999]"], ["args[0][0]", "inf"]),
    "lone surrogate": (["X", '"\\ud800"'], ["args[0]"]),
    "too deep": (["X", "[" * 99 + "]" * 99], ["args[0]", "100 levels"]),
    "class": ([""], ["class", "''", "HardJob"]),
    "negative retry": (["X", "--retry", "-1"], ["retry", "-1", "0 or more"]),
    "retry": (["X", "--retry", "often"], ["--retry", "'often'", "true, false or a number"]),
    "empty queue": (["X", "-q", ""], ["queue", "''"]),
    "naive": (["X", "--at", "2030-12-24T18:00"], ["2030-12-24T18:00", "time zone", "18:00Z"]),
    "no time": (["X", "--at", "tomorrow"], ["'tomorrow'", "2026-12-24T18:00:00Z"]),
    "milliseconds": (["X", "--at", "1795192067000"], ["1795192067000", "milliseconds"]),
    "when NaN": (["X", "--in", "nan"], ["nan"]),
    "negative": (["X", "1", "-55"], ["'-5'", "put -- before"]),
    "both": (["X", "--in", "1", "--at", "2"], ["--in", "--at"]),
    "namespace": (["X", "--namespace", "a b"], ["'a b'", "app:"]),
    "scheme": (["X", "--redis", "localhost:6379"], ["localhost:6379", "redis://"]),
}


@pytest.mark.parametrize("case", ENQUEUE)
def test_enqueue(server: Server, command: Callable[..., str], case: str) -> None:
    """PUSH-4, PUSH-5, PAY-3, PAY-4, SCHED-4: nothing is written."""
    arguments, words = ENQUEUE[case]
    line = command(USAGE, "enqueue", *arguments, url=server.url)
    for word in words:
        assert word in line
    assert server.client().keys("*") == []


@pytest.mark.parametrize(
    ("old", "new", "advice"),
    [
        ("redis://", "redis://:s3cret@", "; this server has no password: leave out the one"),
        ("/0", "/99999", "; lower the number at the end of the URL"),
    ],
)
def test_a_redis_that_refuses_the_url(server: Server, old: str, new: str, advice: str) -> None:
    """SEC-2: the advice fits the reason, and the password is not shown."""
    url = server.url.rpartition("/")[0] + "/0"
    line = refused(NO_REDIS, "enqueue", "X", "--redis", url.replace(old, new))
    assert advice in line
    assert "s3cret" not in line


def test_no_redis() -> None:
    """ENV-1: host, port, reason, and advice; the password is not shown. A worker waits instead."""
    command = ["enqueue", "X"]
    line = refused(NO_REDIS, *command, "--redis", "redis://:s3cret@127.0.0.1:1/0")
    for word in ("127.0.0.1:1", "refused", "; check the host of this URL, or start the server"):
        assert word in line
    assert "s3cret" not in line
    line = refused(NO_REDIS, *command, REDIS_URL="redis://127.0.0.1:1/0")
    assert line.endswith("; this URL is from REDIS_URL: check the host, or start the server")
    line = refused(NO_REDIS, *command, "--redis", "unix:///nowhere/redis.sock")
    assert "/nowhere/redis.sock" in line
    assert "No such file" in line


@pytest.mark.parametrize("command", [["worker", APP], ["enqueue", "X"]])
def test_wrong_password(server_factory: ServerFactory, command: list[str]) -> None:
    """ENV-1, SEC-2: a wrong or missing password is refused at once and not shown."""
    server = server_factory(password="right")
    address = f"127.0.0.1:{server.port}"
    began = time.monotonic()
    line = refused(NO_REDIS, *command, "--redis", f"redis://:wr0ng@{address}/0")
    assert time.monotonic() - began < 30
    assert address in line
    assert "password" in line
    assert "wr0ng" not in line
    line = refused(NO_REDIS, *command, "--redis", f"redis://{address}/0")
    assert "Authentication required" in line
    assert "redis://USER:PASSWORD@HOST:PORT/0" in line


@contextmanager
def stub(version: str) -> Iterator[str]:
    """Answer INFO like a server of that version; such an old one cannot be installed here."""
    info = f"# Server\r\nredis_version:{version}\r\n"

    def serve(listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection, connection.makefile("rb") as lines:
                for line in lines:
                    if line.strip().upper() == b"INFO":
                        connection.sendall(f"${len(info)}\r\n{info}\r\n".encode())
                    elif line.strip().upper() in (b"CLIENT", b"SELECT"):
                        connection.sendall(b"+OK\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, args=(listener,), daemon=True).start()
        try:
            yield f"redis://127.0.0.1:{listener.getsockname()[1]}/0"
        finally:
            listener.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("version", ["6.0.16", "5.0.14", "2.8"])
def test_a_server_that_is_too_old(version: str) -> None:
    """ENV-1: the version found, and the supported ones."""
    with stub(version) as url:
        line = refused(NO_REDIS, "worker", APP, "--redis", url)
    for word in (version, "6.2", "7.2"):
        assert word in line


def test_a_cluster_without_a_hash_tag(server_factory: ServerFactory, tmp_path: Path) -> None:
    """ENV-8, KEY-4: Sidekiq's names cannot be spread over slots."""
    server = server_factory("--cluster-enabled", "yes")
    line = refused(NO_REDIS, "worker", APP, "--redis", server.url)
    for word in ("cluster", "{shard-01}:"):
        assert word in line


def test_an_eviction_policy_is_only_warned_of(
    server_factory: ServerFactory, workers: Workers
) -> None:
    """ENV-2: the worker runs; a server with noeviction causes no warning."""
    for policy, warned in (("allkeys-lru", True), ("noeviction", False)):
        server = server_factory("--maxmemory-policy", policy)
        client = server.client()
        worker = workers.start(APP, "--redis", server.url)
        client.lpush("queue:default", '{"class":"Note","args":[]}')
        wait_until(partial(client.exists, "test:ran"))
        found = worker.logged("maxmemory-policy")
        assert [line["lvl"] for line in found] == (["WARNING"] if warned else [])
        assert all("allkeys-lru" in each["msg"] and "noeviction" in each["msg"] for each in found)
