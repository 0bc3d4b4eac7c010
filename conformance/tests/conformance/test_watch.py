"""`jobwire conform watch` as a process that runs applications."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from harness.servers import Server, wait_until
from jobwire_conformance.wire import resp
from tests.fleet import gone
from tests.server_fixtures import ServerFactory
from tests.workers import environment

pytestmark = pytest.mark.process

ROOT = Path(__file__).resolve().parents[3]
APP = """
import os, time
from jobwire import App

app = App()
app.connect(os.environ["REDIS_URL"])


@app.job
def echo(*args):
    pass


@app.job(retry=3, backtrace=True)
def fail(message):
    raise ValueError(message)


@app.job(retry=0)
def die():
    raise ValueError("dead at once")


@app.job
def sleep(seconds):
    time.sleep(seconds)
"""
PUSHES = """
from shop import die, echo, fail, sleep

for n in range(20):
    echo.enqueue(n, "é", 2**60, [1.5, None])
echo.enqueue_bulk([[n] for n in range(50)])
fail.enqueue("boom")
die.enqueue()
echo.enqueue_in(0.1, "later")
sleep.enqueue(60)
"""


def env(**more: str) -> dict[str, str]:
    path = os.pathsep.join([environment()["PYTHONPATH"], str(ROOT / "conformance")])
    return {**environment(), "PYTHONPATH": path, **more}


def watch_command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "jobwire", "conform", "watch", *arguments]


def watch(
    *arguments: str, cwd: Path | None = None, **more: str
) -> subprocess.CompletedProcess[str]:
    """Run `jobwire conform watch` to its end."""
    return subprocess.run(
        watch_command(*arguments),
        cwd=cwd,
        env=env(**more),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )


class Listening:
    """`watch --listen` in front of a server."""

    def __init__(self, server: Server, results: Path) -> None:
        self._results = results
        self.process = subprocess.Popen(
            watch_command("--redis", server.url, "--listen", "0", "--json", str(results)),
            env=env(),
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stderr is not None
        line = self.process.stderr.readline()
        self.url = next(word for word in line.split() if word.startswith("redis://"))
        self.port = int(self.url.rpartition(":")[2].partition("/")[0])

    def end(self) -> dict[str, Any]:
        self.process.send_signal(signal.SIGINT)
        self.process.communicate(timeout=60)
        results: dict[str, Any] = json.loads(self._results.read_text())
        return results


@pytest.fixture
def listening(server: Server, tmp_path: Path) -> Iterator[Listening]:
    listening = Listening(server, tmp_path / "results.json")
    yield listening
    listening.process.kill()
    listening.process.communicate()


def violations(results: dict[str, Any]) -> dict[str, Any]:
    requirements = results["requirements"].items()
    return {rule: each["findings"] for rule, each in requirements if each["violation"]}


# -- our own


@pytest.mark.parametrize("fetch", ["reliable", pytest.param("basic", marks=pytest.mark.matrix)])
def test_our_client_and_worker_break_nothing(fetch: str, server: Server, tmp_path: Path) -> None:
    """Push, retry, death, promotion, a hard stop, a clean end. [PUSH-2] [RETRY-2] [DEAD-3]"""
    (tmp_path / "shop.py").write_text(APP)
    (tmp_path / "pushes.py").write_text(PUSHES)
    (tmp_path / "run.sh").write_text(
        f'"$PYTHON" pushes.py && exec "$PYTHON" -m jobwire worker shop:app --fetch {fetch} '
        "--timeout 1 --poll-interval 0.3"
    )
    results = tmp_path / "results.json"
    arguments = ["--redis", server.url, "--json", str(results), "--claim", "client/faults"]
    process = subprocess.Popen(
        watch_command(*arguments, "--", "sh", "run.sh"),
        cwd=tmp_path,
        env=env(PYTHON=sys.executable),
        stderr=subprocess.PIPE,
        text=True,
    )
    with server.client() as client:
        try:
            wait_until(lambda: client.zcard("retry") and client.zcard("dead"), 60, "two failures")
            wait_until(lambda: not client.zcard("schedule"), 60, "the promotion")
            wait_until(lambda: not client.llen("queue:default"), 60, "all to be taken")
            process.send_signal(signal.SIGTERM)
            said = process.communicate(timeout=60)[1]
        finally:
            process.kill()
            process.communicate()
        # The sleeping job was put back, and perhaps jobs that were fetched but not started.
        assert b'"class":"sleep"' in client.lindex("queue:default", -1)
    result = json.loads(results.read_text())
    assert (violations(result), result["counts"]["warning"]) == ({}, 0), said
    assert (process.returncode, result["status"]) == (0, 0), said
    seen = result["requirements"]
    for rule in ("PUSH-2", "KEY-1", "GEN-2", "RETRY-2", "RETRY-8", "DEAD-3", "BEAT-1", "BEAT-20"):
        assert seen[rule]["seen"], rule


# -- verdicts and exit statuses


def test_a_wrong_application_is_told_what_is_wrong(tmp_path: Path) -> None:
    """On a server that the command starts; with the text of the requirement. [PUSH-1]"""
    code = (
        "import os, redis\n"
        "r = redis.Redis.from_url(os.environ['MY_REDIS'])\n"
        """r.rpush('queue:default', '{"class":"HardJob","args":[]}')\n"""
    )
    done = watch("--env", "MY_REDIS", "--json", "-", "--", sys.executable, "-c", code)
    assert done.returncode == 1, done.stderr
    result = json.loads(done.stdout)
    assert [*violations(result)] == ["PUSH-1"]
    [finding] = result["requirements"]["PUSH-1"]["findings"]
    assert finding["wire"][:2] == ["RPUSH", "queue:default"]
    assert "A client MUST insert the payload at the head" in done.stderr
    assert result["command"][0] == sys.executable


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        ((), 64, "name the COMMAND"),
        (("--listen", "99999"), 64, "--listen"),
        (("--redis", "rediss://127.0.0.1", "--", "true"), 64, "expected redis://"),
        (("--redis", "redis://127.0.0.1:1", "--", "true"), 4, "no Redis at 127.0.0.1:1"),
        (("--", "/no/such/program"), 3, "cannot be started"),
        (("--", "true"), 3, "never connected"),
    ],
)
def test_what_cannot_be_watched_is_explained(
    arguments: tuple[str, ...], status: int, message: str
) -> None:
    done = watch(*arguments)
    assert (done.returncode, message in done.stderr) == (status, True), done.stderr
    assert "Traceback" not in done.stderr


def test_a_taken_port_is_explained(server: Server) -> None:
    done = watch("--redis", server.url, "--listen", str(server.port), "--", "true")
    assert (done.returncode, "cannot listen on port" in done.stderr) == (4, True)


def test_a_password_and_a_database_go_along(server_factory: ServerFactory) -> None:
    """The application authenticates through the proxy."""
    server = server_factory(password="p@ss w")
    code = "import os, redis; redis.Redis.from_url(os.environ['REDIS_URL']).set('there', 1)"
    url = server.url.removesuffix("/0") + "/3"
    done = watch("--redis", url, "--", sys.executable, "-c", code)
    assert done.returncode == 0, done.stderr
    with redis.Redis.from_url(url) as client:
        assert client.get("there") == b"1"


# -- signals and leftovers


def test_signals_are_passed_on(tmp_path: Path) -> None:
    code = (
        "import os, redis, signal, sys, time\n"
        "redis.Redis.from_url(os.environ['REDIS_URL']).ping()\n"
        "signal.signal(signal.SIGUSR1, lambda *_: os.write(1, b'got USR1\\n'))\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))\n"
        "os.write(1, b'ready\\n')\n"  # one print() must not interrupt another
        "time.sleep(60)\ntime.sleep(60)\n"
    )
    process = subprocess.Popen(
        watch_command("--", sys.executable, "-c", code),
        env=env(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGUSR1)
    assert process.stdout.readline() == "got USR1\n"
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=60)
    assert (process.returncode, "ended with status 7" in said) == (0, True), said


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_is_left_behind(number: signal.Signals) -> None:
    """The server, the application and the application's children all end."""
    code = (
        "import os, redis, subprocess, time\n"
        "r = redis.Redis.from_url(os.environ['REDIS_URL'])\n"
        "child = subprocess.Popen(['sleep', '60'])\n"
        "print(os.getpid(), child.pid, r.info('server')['process_id'], flush=True)\n"
        "time.sleep(60)\n"
    )
    process = subprocess.Popen(
        watch_command("--", sys.executable, "-c", code),
        env=env(),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    pids = [int(word) for word in process.stdout.readline().split()]
    assert len(pids) == 3
    process.send_signal(number)
    process.wait(60)
    process.stdout.close()
    wait_until(lambda: all(map(gone, pids)), 60, f"the end of {pids}")


# -- odd clients


def test_odd_clients_are_understood(listening: Listening) -> None:
    """RESP3, inline commands, pipelines, MULTI, and large payloads are parsed. [ENV-4]"""
    job = (
        '{"retry":true,"queue":"default","args":["%s"],"class":"HardJob","jid":"%024x",'
        '"created_at":%d,"enqueued_at":%d}'
    )

    def text(number: int, argument: str = "x") -> str:
        now = int(time.time() * 1000)
        return job % (argument, number, now, now)

    with redis.Redis.from_url(listening.url, protocol=3) as client:
        with client.pipeline(transaction=True) as batch:
            batch.sadd("queues", "default")
            batch.lpush("queue:default", text(1))
            batch.execute()
        with client.pipeline(transaction=False) as batch:
            batch.sadd("queues", "default")
            for number in range(2, 500):
                batch.lpush("queue:default", text(number))
            batch.execute()
        client.lpush("queue:default", text(500, "m" * 5_000_000))
        assert client.llen("queue:default") == 500
        popped: Any = client.brpop(["queue:default"], 1)
        client.rpush("queue:default", popped[1])
        client.publish("news", "x")
        listener = client.pubsub()
        listener.subscribe("news")
        assert listener.get_message(timeout=5) is not None
        listener.close()
    with socket.create_connection(("127.0.0.1", listening.port), 10) as inline:
        inline.sendall(b"PING\r\nRPUSH queue:default oops\r\n*0\r\n\r\n" + resp.command("QUIT"))
        heard = b""
        while data := inline.recv(100):
            heard += data
        assert heard == b"+PONG\r\n:501\r\n+OK\r\n"
    result = listening.end()
    assert [*violations(result)] == ["PUSH-1"]
    assert result["requirements"]["PUSH-1"]["violation"] == 1
    assert result["requirements"]["PAY-9"]["seen"] == 500
    assert result["requirements"]["FETCH-6"]["seen"] == 1


def test_listening_ends_with_a_verdict(listening: Listening) -> None:
    with redis.Redis.from_url(listening.url) as client:
        client.set("x", 1)
    assert listening.end()["commands"] >= 1
    assert listening.process.returncode == 0
