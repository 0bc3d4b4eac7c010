"""The `jobwire` command and the development server, from the view of a user."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import redis

import jobwire as package
from harness.servers import Reaper, Server, wait_until
from jobwire.connection import embedded
from tests.server_fixtures import ServerFactory
from tests.workers import Workers, environment, jobwire

APP = "tests.apps.recording:app"


def test_help_and_version() -> None:
    """The help of every command, on standard output, with the names of the README."""
    assert "worker" in jobwire("--help").stdout
    for flag in ("--version", "-V"):
        assert jobwire(flag).stdout == f"jobwire, version {package.__version__}\n"
    for command, words in {
        "worker": ["MODULE:APP", "--queue", "--concurrency", "--timeout", "--redis", "TSTP"],
        "enqueue": ["CLASS", "--queue", "--in", "--at", "--retry", "JSON"],
        "dev": ["MODULE:APP", ".jobwire", "embedded"],
    }.items():
        for flag in ("--help", "-h"):
            ended = jobwire(command, flag)
            assert ended.returncode == 0, ended.stderr
            assert [word for word in words if word not in ended.stdout] == []
    text = jobwire("--help").stdout
    assert "Background jobs for Python over Redis: " in text
    parts = ["Commands:", " dev ", " config ", "Commands for the protocol:", " spec ", " bench "]
    assert sorted(map(text.index, parts)) == [*map(text.index, parts)]
    bare = jobwire()
    assert bare.returncode == 2
    assert "Commands:" in bare.stderr
    assert len(bare.stderr.splitlines()) > 10


@pytest.mark.parametrize(
    ("words", "meant", "group"),
    [
        ("wroker", "worker", "jobwire"),
        ("inspect qeues", "queues", "jobwire inspect"),
        ("conform chek", "check", "jobwire conform"),
        ("spec chekc", "check", "jobwire spec"),
    ],
)
def test_a_wrong_command_gets_a_suggestion(words: str, meant: str, group: str) -> None:
    ended = jobwire(*words.split())
    assert ended.returncode == (64 if "conform" in words else 2)
    (line,) = ended.stderr.splitlines()
    assert line.startswith("jobwire: ")
    assert f"did you mean {meant}?" in line.replace("'", "")
    assert line.endswith(f"(see {group} --help)")


def enqueue(url: str, *arguments: str) -> str:
    """Enqueue and return the jid, the only text on standard output."""
    ended = jobwire("enqueue", *arguments, REDIS_URL=url)
    assert ended.returncode == 0, ended.stderr
    (jid,) = ended.stdout.splitlines()
    assert len(jid) == 24
    assert "from REDIS_URL" in ended.stderr
    return jid


def test_enqueue_says_that_no_worker_serves_the_queue(server: Server) -> None:
    """INSP-1: a job in such a queue would wait without a word."""
    client = server.client()
    info = {"hostname": "h", "pid": 1, "concurrency": 5, "queues": ["default", "mail"]}
    client.sadd("processes", "web:1:a")
    client.hset("web:1:a", mapping={"info": json.dumps(info), "busy": 0, "beat": time.time()})

    def said(*arguments: str) -> str:
        ended = jobwire("enqueue", "X", *arguments, REDIS_URL=server.url)
        assert ended.returncode == 0, ended.stderr
        assert len(ended.stdout.split()) == 1
        return ended.stderr

    assert "no running worker" not in said()
    assert "no running worker" not in said("-q", "mail")
    words = "jobwire: no running worker serves the queue 'low': the job waits for one\n"
    assert said("-q", "low").endswith(words)
    client.sadd("jobwire:paused", "mail")
    assert "the queue 'mail' is paused: the job waits for 'jobwire inspect" in said("-q", "mail")
    client.hset("web:1:a", "quiet", "true")
    assert "serves the queue 'default'" in said()


def test_enqueue_writes_what_it_says(server: Server) -> None:
    """PUSH-1, PUSH-2, PUSH-6: class, JSON arguments, queue, retry."""
    jid = enqueue(
        server.url, "Shop::Mail", "42", '"text"', '{"a":[1.5,null]}', "-q", "low", "--retry", "3"
    )
    client = server.client()
    (text,) = client.lrange("queue:low", 0, -1)
    job = json.loads(text)
    assert job["class"] == "Shop::Mail"
    assert job["args"] == [42, "text", {"a": [1.5, None]}]
    assert (job["jid"], job["queue"], job["retry"]) == (jid, "low", 3)
    enqueue(server.url, "X", "--retry", "false", "--", "-5", '"-x"')
    (text,) = client.lrange("queue:default", 0, -1)
    job = json.loads(text)
    assert (job["args"], job["retry"]) == ([-5, "-x"], False)
    assert client.smembers("queues") == {b"low", b"default"}
    enqueue(server.url, "X", "--namespace", "shop:")
    assert client.llen("shop:queue:default") == 1


def test_a_bare_word_is_a_text(server: Server) -> None:
    enqueue(server.url, "X", "Ada", "007", "it's", "2", '"2"', "")
    (text,) = server.client().lrange("queue:default", 0, -1)
    assert json.loads(text)["args"] == ["Ada", "007", "it's", 2, "2", ""]


DEFINITIONS = """
from __future__ import annotations
import decimal
import jobwire

app = jobwire.App(namespace="shop:")

@app.job(queue="mail", retry=3, tags=["t"])
def greet(name: str, times: int = 1) -> None: ...

@app.job
def send(name: Unknown) -> None: ...

@app.job
def pay(amount: decimal.Decimal, rate: float, rows: dict[str, decimal.Decimal | None], *more): ...

two = jobwire.App()

@two.job
def charge(): ...

@app.iterable()
def walk(cursor: jobwire.Cursor, shop: int):
    yield shop
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(DEFINITIONS)
    (tmp_path / "jobwire.toml").write_text('app = "shop:app"')
    return tmp_path


def pushed(server: Server, project: Path, *words: str, **variables: str) -> dict[str, Any]:
    """Enqueue without a namespace; return the payload and remove it."""
    words = (*words, "--namespace", "")
    ended = jobwire("enqueue", *words, REDIS_URL=server.url, cwd=project, **variables)
    assert ended.returncode == 0, ended.stderr
    client = server.client()
    (queue,) = client.keys("queue:*")
    payload: Any = client.rpop(queue)
    return dict(json.loads(payload))


def test_enqueue_uses_the_definition(server: Server, project: Path) -> None:
    """PUSH-1: its options, which flags override; a parameter that is a text takes any word."""
    job = pushed(server, project, "greet", "Ada", "2")
    assert (job["args"], job["queue"], job["retry"], job["tags"]) == (["Ada", 2], "mail", 3, ["t"])
    job = pushed(server, project, "greet", "10115", "-q", "low", "--retry", "false")
    assert (job["args"], job["queue"], job["retry"]) == (["10115"], "low", False)
    assert pushed(server, project, "send", "x")["args"] == ["x"]  # an annotation without a meaning
    number = "12345678901234567.89"  # no float has as many digits
    job = pushed(server, project, "pay", number, "0.1", f'{{"a": {number}}}', number, "[0.5]")
    assert job["args"] == [number, 0.1, {"a": number}, float(number), [0.5]]
    for words in (["walk", "7"], ["greet", "A", "--in", "60"]):
        assert jobwire("enqueue", *words, REDIS_URL=server.url, cwd=project).returncode == 0
    client = server.client()
    assert (client.llen("shop:queue:default"), client.zcard("shop:schedule")) == (1, 1)


def test_ways_to_name_the_application(server: Server, project: Path) -> None:
    (project / "jobwire.toml").unlink()
    assert pushed(server, project, "greet", "A", "-r", "shop:app")["queue"] == "mail"
    assert pushed(server, project, "greet", "A", JOBWIRE_APP="shop.py:app")["queue"] == "mail"
    assert pushed(server, project, "greet", "A")["queue"] == "default"  # none is named


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["gret", "Ada"], "no job 'gret'; did you mean 'greet'? --any-class pushes it anyway"),
        (["Shop::Mail"], "no job 'Shop::Mail'; import its module: App(imports=[...]); --any-class"),
        (["greet"], "missing a required argument: 'name'; it is greet(name: str, times: int = 1)"),
        (["greet", "a", "1", "2"], "too many positional arguments; it is greet(name: str, "),
        (["walk", "1", "2"], "too many positional arguments; it is walk(shop: "),
        (["greet", "[1"], "'[1' looks like JSON and is not"),
        (["greet", "Ada", "two"], "'two' does not fit parameter 'times: int': Expected `int`"),
        (["pay", "1", "true"], "True does not fit parameter 'rate: float'"),
        (["charge"], "no job 'charge'; shop:two defines it: -r shop:two; --any-class pushes"),
    ],
)
def test_enqueue_refuses_what_would_fail(
    server: Server, project: Path, words: list[str], reason: str
) -> None:
    """PUSH-4: before anything is written."""
    ended = jobwire("enqueue", *words, REDIS_URL=server.url, cwd=project)
    assert ended.returncode == 2, ended.stderr
    (line,) = ended.stderr.splitlines()
    assert reason in line
    assert server.client().dbsize() == 0


def test_enqueue_pushes_any_class_on_request(server: Server, project: Path) -> None:
    ended = jobwire("enqueue", "Shop::Mail", "1", "--any-class", REDIS_URL=server.url, cwd=project)
    assert ended.returncode == 0, ended.stderr
    assert ", not checked: the application does not define this job\n" in ended.stderr
    (project / "jobwire.toml").unlink()
    ended = jobwire("enqueue", "greeet", "Ada", REDIS_URL=server.url, cwd=project)
    assert ", not checked: no application is named (-r)\n" in ended.stderr
    assert server.client().llen("shop:queue:default") == 1


def test_enqueue_schedules(server: Server) -> None:
    """SCHED-1, SCHED-2, SCHED-3: a delay, a date with its zone, epoch seconds; the past is now."""
    before = time.time()
    jids = [
        enqueue(server.url, "X", "--in", "1m"),
        enqueue(server.url, "X", "--at", "2033-05-18T05:33:20+02:00"),
        enqueue(server.url, "X", "--at", "2000000000.5"),
    ]
    found: Any = server.client().zrange("schedule", 0, -1, withscores=True)
    scores = {json.loads(text)["jid"]: score for text, score in found}
    assert before + 60 <= scores[jids[0]] <= time.time() + 60
    assert scores[jids[1]] == 2_000_000_000
    assert scores[jids[2]] == 2_000_000_000.5
    enqueue(server.url, "X", "--at", "2001-09-09T01:46:41Z")
    assert server.client().llen("queue:default") == 1


def test_enqueued_jobs_are_run(server: Server, workers: Workers) -> None:
    """EXEC-1: a job of one command runs in the other."""
    workers.start(APP, "--redis", server.url, "--poll-interval", "0.1", "-q", "default")
    jid = enqueue(server.url, "WhoAmI")
    enqueue(server.url, "Note", '{"ü":[1]}', "--in", "0.5")
    client = server.client()
    wait_until(lambda: client.llen("test:ran") == 2, timeout=60)
    found: Any = client.lrange("test:ran", 0, -1)
    assert [json.loads(text) for text in found] == [["WhoAmI", [jid]], ["Note", [{"ü": [1]}]]]


SHARDED = """
from jobwire import App

app = App({url!r}, redis={{"mail": {mail!r}}})


@app.periodic("* * * * * *")
@app.job(redis="mail", queue="mailers")
def tick(): ...


@app.job(redis="mail", queue="mailers")
def mail(name):
    resize.enqueue(name)


@app.job
def resize(name):
    print(name)
"""


def test_a_worker_of_a_named_redis(server: Server, tmp_path: Path, workers: Workers) -> None:
    """It runs the jobs of that Redis, and they can enqueue jobs of the default one."""
    mail = f"{server.url.rsplit('/', 1)[0]}/5"
    (tmp_path / "sharded.py").write_text(SHARDED.format(url=server.url, mail=mail))
    ended = jobwire("enqueue", "-r", "sharded:app", "mail", "Ada", cwd=tmp_path)
    assert "pushed to redis" in ended.stderr
    assert "/5 ('mail' of the application)" in ended.stderr
    there = redis.Redis.from_url(mail)
    assert (server.client().dbsize(), there.llen("queue:mailers")) == (0, 1)
    workers.start("sharded:app", "--redis", "mail", "--processes", "2")
    wait_until(lambda: server.client().llen("queue:default") == 1, timeout=60)
    wait_until(lambda: there.exists("cron_jobs:default"), timeout=60)
    assert server.client().exists("cron_jobs:default", "processes") == 0
    workers.start("sharded:app")
    wait_until(lambda: server.client().get("stat:processed") == b"1", timeout=60)
    assert server.client().exists("cron_jobs:default") == 0
    there.close()
    ended = jobwire("worker", "sharded:app", "--redis", "mial", cwd=tmp_path)
    assert ended.returncode == 2
    assert "redis 'mial' is neither a URL nor a name of this application" in ended.stderr


def test_a_password_with_every_separator(server_factory: ServerFactory, workers: Workers) -> None:
    """ENV-7, SEC-2: percent-encoded in the URL, never shown."""
    server = server_factory(password="p+/%@:?# x")
    worker = workers.start(APP, "--redis", server.url)
    ended = jobwire("enqueue", "Note", REDIS_URL=server.url)
    assert ended.returncode == 0, ended.stderr
    wait_until(lambda: server.client().exists("test:ran") and worker.logged("jobwire "))
    for text in (ended.stderr, worker.log.read_text()):
        assert quote("p+/%@:?# x", safe="") not in text
        assert "p+/%@" not in text
        assert f":***@127.0.0.1:{server.port}" in text


def test_a_unix_socket(server_factory: ServerFactory, tmp_path: Path, workers: Workers) -> None:
    """ENV-4: for enqueueing and for work, wakeup included."""
    path = tmp_path / "redis.sock"
    server = server_factory("--unixsocket", str(path))
    workers.start(APP, "--redis", f"unix://{path}")
    enqueue(f"unix://{path}", "Note", "1")
    wait_until(lambda: server.client().exists("test:ran"))


def test_variables_name_the_redis(server: Server) -> None:
    """REDIS_PROVIDER names the application's own variable; JOBWIRE_REDIS_URL has precedence."""
    ended = jobwire("enqueue", "X", REDIS_PROVIDER="SHOP_URL", SHOP_URL=server.url)
    assert "from SHOP_URL" in ended.stderr
    ended = jobwire("enqueue", "X", JOBWIRE_REDIS_URL=server.url, REDIS_URL="redis://nowhere:1")
    assert "from JOBWIRE_REDIS_URL" in ended.stderr
    assert server.client().llen("queue:default") == 2
    ended = jobwire("enqueue", "X", REDIS_PROVIDER=server.url)
    assert ended.returncode == 2
    assert "REDIS_PROVIDER" in ended.stderr


PROJECT = """
import pathlib
import jobwire

app = jobwire.App()

@app.job(queue="mail")
def touch(name):
    pathlib.Path(name).write_text("done")
"""


class Dev:
    """`jobwire dev` in a directory, in one process."""

    def __init__(self, reaper: Reaper, directory: Path) -> None:
        self._reaper = reaper
        self.log = directory / "dev.log"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "jobwire", "dev", "jobs:app", "--no-reload", "--no-web"],
                cwd=directory,
                env=environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        reaper.watch(self.process.pid)
        url = wait_until(lambda: embedded.find(directory), what="the server")
        self.client = redis.Redis.from_url(url or "")
        mine = f":{self.process.pid}:".encode()
        wait_until(lambda: any(mine in each for each in self._processes()), what="the worker")

    def _processes(self) -> set[bytes]:
        found: Any = self.client.smembers("processes")
        return set(found)

    @property
    def server(self) -> int:
        """The process of the development server."""
        info: Any = self.client.info("server")
        return int(info["process_id"])

    def end(self, how: signal.Signals) -> int:
        self.process.send_signal(how)
        return self.process.wait(60)

    def close(self) -> None:
        self.client.close()
        if self.process.poll() is None:
            self.end(signal.SIGKILL)
        self._reaper.release(self.process.pid)


@pytest.fixture
def dev(_reaper: Reaper, tmp_path: Path) -> Iterator[Callable[[], Dev]]:
    """Start `jobwire dev` for an application in the test's directory."""
    (tmp_path / "jobs.py").write_text(PROJECT)
    with ExitStack() as running:

        def start() -> Dev:
            started = Dev(_reaper, tmp_path)
            running.callback(started.close)
            return started

        yield start
    if embedded.find(tmp_path):  # true only after a failure
        embedded.start(tmp_path).close()


def test_dev_brings_its_own_server(dev: Callable[[], Dev], tmp_path: Path) -> None:
    """EXEC-1: enqueue in the same directory finds it; data survives; no process stays."""
    first = dev()
    pid = first.server
    ended = jobwire("enqueue", "touch", '"one"', "-q", "mail", cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert "jobwire dev" in ended.stderr
    wait_until(lambda: (tmp_path / "one").exists())
    ended = jobwire("enqueue", "touch", cwd=tmp_path, REDIS_URL="redis://127.0.0.1:1/0")
    assert ended.returncode == 4
    assert f"'jobwire dev' runs here at {embedded.find(tmp_path)}" in ended.stderr
    jobwire("enqueue", "touch", '"two"', "-q", "other", cwd=tmp_path)
    assert first.end(signal.SIGTERM) == 0
    assert "Valkey at redis://127.0.0.1:" in first.log.read_text()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert embedded.find(tmp_path) is None
    tops = {path.name for path in tmp_path.iterdir()} - {"__pycache__"}
    assert tops == {"jobs.py", "dev.log", "one", ".jobwire"}

    second = dev()
    assert second.client.llen("queue:other") == 1
    assert second.client.get("stat:processed") == b"1"
    assert second.end(signal.SIGINT) == 0
    assert embedded.find(tmp_path) is None


def test_enqueue_uses_the_application_of_dev(dev: Callable[[], Dev], tmp_path: Path) -> None:
    """Also from a directory below; not if another Redis is named, nor after its end."""
    running = dev()
    (tmp_path / "below").mkdir()
    ended = jobwire("enqueue", "tuch", "x", cwd=tmp_path / "below")
    assert ended.returncode == 2
    assert "did you mean 'touch'?" in ended.stderr
    ended = jobwire("enqueue", "touch", "one", cwd=tmp_path / "below")
    assert ended.returncode == 0, ended.stderr
    wait_until(lambda: (tmp_path / "one").exists(), what="the job of the queue `mail`")
    other = embedded.find(tmp_path) or ""
    assert jobwire("enqueue", "tuch", "--redis", other, cwd=tmp_path).returncode == 0

    (tmp_path / "jobs.py").write_text("1/0")
    ended = jobwire("enqueue", "touch", "x", cwd=tmp_path)
    assert ended.returncode == 3
    assert "the application of 'jobwire dev', 'jobs:app': importing 'jobs' failed" in ended.stderr
    assert jobwire("enqueue", "touch", "x", "--any-class", cwd=tmp_path).returncode == 0
    assert running.end(signal.SIGTERM) == 0
    assert embedded.noted_app(tmp_path) is None


def test_dev_survives_its_own_kill(dev: Callable[[], Dev], tmp_path: Path) -> None:
    """REL-4: after kill -9 the next `dev` joins the server that is left, and ends it."""
    killed = dev()
    assert killed.end(signal.SIGKILL) == -signal.SIGKILL
    again = dev()
    assert again.server == killed.server
    assert again.end(signal.SIGTERM) == 0
    assert embedded.find(tmp_path) is None


def test_nothing_there_says_what_to_do(tmp_path: Path) -> None:
    """The test is skipped if the default address is in use on a developer's machine."""
    with socket.socket() as probe:
        if probe.connect_ex(("localhost", 6379)) == 0:
            pytest.skip("something listens on the default port")
    ended = jobwire("enqueue", "X", cwd=tmp_path)
    assert ended.returncode == 4
    for word in ("localhost:6379", "--redis", "REDIS_URL", "jobwire dev"):
        assert word in ended.stderr
    (tmp_path / ".jobwire").mkdir()
    ended = jobwire("enqueue", "X", cwd=tmp_path)
    assert "'jobwire dev' of this directory is not running: start it, or" in ended.stderr
