"""A worker runs what the clients of docs/how-to/implementing.md push, argument for argument."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from harness.servers import Server, wait_until
from jobwire import App
from tests.workers import running

DOCS = Path(__file__).resolve().parents[3] / "docs"
GUIDE = (DOCS / "how-to" / "implementing.md").read_text(encoding="utf-8")
CLIENTS = DOCS / "how-to" / "clients"

# Replaces redis-cli where none is installed: same arguments, same output, same exit status.
STAND_IN = """
import sys, redis
assert sys.argv[1] == "-u"
try:
    print(redis.Redis.from_url(sys.argv[2]).execute_command(*sys.argv[3:]))
except redis.ConnectionError:
    sys.exit("Could not connect")
except redis.ResponseError as error:
    print(error)
"""
FENCE = re.compile(r"^```redis-cli\n(.*?)^```$", re.MULTILINE | re.DOTALL)
Pushed = TypeVar("Pushed")
MILLISECONDS = re.compile(rb'"(?:created_at|enqueued_at)":(\d{13})[,}]')


def received(server: Server, push: Callable[[], object], *, queue: str = "default") -> list[Any]:
    """Return the arguments with which a worker runs the pushed job, as Python writes them."""
    got: list[Any] = []
    app = App()
    for name in ("Take", "HardJob"):
        app.job(name=name)(lambda *args: got.append(list(args)))
    with running(app, server, queues={queue: 0}):
        push()
        wait_until(lambda: got)
    return got


def pushed(server: Server, push: Callable[[], Pushed]) -> tuple[bytes, Pushed]:
    """Return the pushed payload and the result, checking that the payload is at the head."""
    client = server.client()
    client.lpush("queue:default", "older")
    result = push()
    text, older = client.lrange("queue:default", 0, -1)
    assert older == b"older"
    assert client.smembers("queues") == {b"default"}
    return text, result


def check_first_push(text: bytes, printed: str) -> None:
    """Check the other fields, and that the jid was printed."""
    job = json.loads(text)
    assert printed == job["jid"] + "\n"
    now = time.time() * 1000
    times = [int(found) for found in MILLISECONDS.findall(text)]
    assert len(times) == 2
    assert all(now - 30_000 < stamp <= now for stamp in times)
    assert re.fullmatch("[0-9a-f]{24}", job["jid"])
    assert job["retry"] is True
    assert "retry_count" not in job
    assert list(job) == ["retry", "queue", "args", "class", "jid", "created_at", "enqueued_at"]
    assert text.decode() == json.dumps(job, ensure_ascii=False, separators=(",", ":"))


# -- POSIX shell

Shell = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def shell(server: Server, tmp_path: Path) -> Shell:
    """Run push.sh against the server."""
    program = shutil.which("redis-cli") or shutil.which("valkey-cli")
    if program is None:
        stand_in = tmp_path / "redis_cli.py"
        stand_in.write_text(STAND_IN, encoding="utf-8")
        program = f"{sys.executable} {stand_in}"

    def run(*arguments: str, url: str = server.url) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["sh", str(CLIENTS / "push.sh"), *arguments],
            env={"PATH": "/usr/bin:/bin", "REDIS_CLI": f"{program} -u {url}"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return run


def test_shell_client_passes_arguments_exactly(server: Server, shell: Shell) -> None:
    """PUSH-1, PUSH-6, PAY-5: any value that a JSON array can hold."""
    text = r'[1,1.0,-0.0,9007199254740993,"it'
    text += r"""'s \"quoted\" \\ $HOME `x` ü\n",null,true,[],{"k":[{}]}]"""
    expected = json.loads(text)
    got = received(server, lambda: shell("Take", text, "low"), queue="low")
    assert repr(got) == repr([expected])  # repr: 1 is not 1.0


def test_shell_client_writes_a_first_push(server: Server, shell: Shell) -> None:
    """KEY-1, PAY-2, PAY-9, PAY-11, GEN-2, PUSH-3: like any other client."""
    text, done = pushed(server, lambda: shell("Take", '[1,"ü"]'))
    assert (done.returncode, done.stderr) == (0, "")
    check_first_push(text, done.stdout)


def test_shell_client_schedules(server: Server, shell: Shell) -> None:
    """SCHED-1: without `at` and `enqueued_at`, and in no queue."""
    assert shell("Take", "[1]", "low", "1798761600").returncode == 0
    ((text, score),) = server.client().zrange("schedule", 0, -1, withscores=True)
    assert score == 1798761600
    assert json.loads(text).keys() == {"retry", "queue", "args", "class", "jid", "created_at"}
    assert server.client().keys() == [b"schedule"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["", "[]"],
        ["Take", '{"a":1}'],
        ["Take"],
        ["Take", "[]", ""],
        ["Take", "[]", 'a"b'],
        ["Take", "[]", "low", "1798761600000"],
        ["Take", "[]", "low", "tomorrow"],
    ],
)
def test_shell_client_refuses(server: Server, shell: Shell, arguments: list[str]) -> None:
    """PUSH-4, SCHED-4: and writes nothing."""
    done = shell(*arguments)
    assert done.returncode == 2
    assert "not written" in done.stderr
    assert server.client().dbsize() == 0


def test_shell_client_tells_the_outcome(server: Server, shell: Shell) -> None:
    """PUSH-8: refused by the server, or unknown."""
    server.client().set("queue:default", "no list")
    refused = shell("Take", "[]")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "WRONGTYPE" in refused.stderr
    unknown = shell("Take", "[]", url="redis://127.0.0.1:1/0")
    assert (unknown.returncode, unknown.stdout) == (1, "")


# -- JavaScript


def node(script: str, *arguments: object) -> str:
    """Run a module that has `push` and `port`; return what it prints."""
    program = shutil.which("node")
    if program is None:
        pytest.skip("no node on PATH")
    version = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    if int(version.stdout[1:].partition(".")[0]) < 20:
        pytest.skip("needs Node 20")  # String.prototype.isWellFormed
    module = (CLIENTS / "push.mjs").as_uri()
    done = subprocess.run(
        [
            *(program, "--input-type=module", "-e"),
            f"import {{ push }} from '{module}'; const port = +process.argv[1]; {script}",
            *map(str, arguments),
        ],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_javascript_client_passes_arguments_exactly(server: Server) -> None:
    """PUSH-1, PUSH-6, PAY-5, PAY-6: also values that JSON.stringify would change."""
    script = r"""await push('Take', [1, 1.5, -0, 5e-324, 9007199254740993n, -(2n ** 70n), 1e-7,
        'it\'s "quoted" \\ / \n \u0000 \u2028 \u{1F600} ü', null, true, [], { k: [{}], 'ü': 2 }],
        { queue: 'low', port })"""
    got = received(server, lambda: node(script, server.port), queue="low")
    odd = 'it\'s "quoted" \\ / \n \0 \u2028 \U0001f600 ü'
    numbers = [1, 1.5, -0.0, 5e-324, 9007199254740993, -(2**70), 1e-7]
    expected: list[Any] = [*numbers, odd, None, True, [], {"k": [{}], "ü": 2}]
    assert repr(got) == repr([expected])


def test_javascript_client_writes_a_first_push(server: Server) -> None:
    """KEY-1, PAY-2, PAY-9, PAY-11, GEN-2, PUSH-3: like any other client."""
    script = "console.log(await push('Take', [1, 'ü/'], { port }))"
    check_first_push(*pushed(server, lambda: node(script, server.port)))


def test_javascript_client_schedules(server: Server) -> None:
    """SCHED-1: without `at` and `enqueued_at`, and in no queue."""
    node("await push('Take', [1], { queue: 'low', at: 1798761600.5, port })", server.port)
    ((text, score),) = server.client().zrange("schedule", 0, -1, withscores=True)
    assert score == 1798761600.5
    assert json.loads(text).keys() == {"retry", "queue", "args", "class", "jid", "created_at"}
    assert server.client().keys() == [b"schedule"]


def test_javascript_client_refuses(server: Server) -> None:
    """PUSH-4, PUSH-5, PAY-3, PAY-4, SCHED-4: and writes nothing."""
    wrong = """
        ['Take', [{ at: [NaN] }]], ['Take', [Infinity]], ['Take', [2 ** 53]],
        ['Take', [new Date()]], ['Take', [undefined]], ['Take', [new Map()]], ['Take', ['\\ud800']],
        ['Take', [, 1]], ['Take', [() => 1]], ['Take', [deep(99)]], ['Take', [loop]],
        ['Take', 'text'], ['', []],
        ['Take', [], { queue: '' }], ['Take', [], { at: Date.now() }], ['Take', [], { at: '1' }],
        ['Take', [], { at: NaN }], ['Take', [], { at: -1 }], ['Take', [], { retry: -1 }]"""
    printed = node(
        f"""const deep = (n) => n ? [deep(n - 1)] : 0
        const loop = []; loop.push(loop)
        for (const [name, args, options] of [{wrong}]) {{
          try {{ console.log('pushed', name, await push(name, args, {{ port, ...options }})) }}
          catch (error) {{ console.log(`${{error.name}}: ${{error.message}}`) }}
        }}
        await push('Take', [deep(98)], {{ port }})""",
        server.port,
    )
    lines = printed.splitlines()
    assert len(lines) == 19
    assert [line for line in lines if not line.startswith("TypeError: ")] == []
    assert lines[0] == 'TypeError: args[0]["at"][0]: NaN is not a JSON number'
    assert server.client().llen("queue:default") == 1  # the job of the greatest valid depth


def test_javascript_client_tells_the_outcome(server: Server) -> None:
    """PUSH-8: refused by the server, not reached, or no answer."""
    server.client().set("queue:default", "no list")
    script = "await push('Take', [], { port }).catch((error) => console.log(error.message))"
    assert node(script, server.port).startswith("not written: -WRONGTYPE")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    assert node(script, port).startswith("not written (connect ECONNREFUSED")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(30)
        answer = threading.Thread(target=hang_up, args=(listener,))
        answer.start()
        said = node(script, listener.getsockname()[1])
        answer.join(60)
    assert re.match("may have been written: [0-9a-f]{24} ", said)


def hang_up(listener: socket.socket) -> None:
    """Take a command and close without an answer."""
    connection, _ = listener.accept()
    with connection:
        connection.recv(1)
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(65536):
            pass


# -- redis-cli


def test_commands_of_the_guide_can_be_pasted(server: Server) -> None:
    """PUSH-1, KEY-1, SCHED-1: every line runs, and a worker runs the job."""
    (first, *more) = FENCE.findall(GUIDE)
    assert more, "the guide has a client and a worker in redis-cli"
    client = server.client()
    connection = client.connection_pool.get_connection()

    def send(lines: str) -> None:
        for line in lines.splitlines():
            if words := shlex.split(line, comments=True):
                connection.send_command(*words)
                connection.read_response()  # raises if the server refuses

    assert received(server, lambda: send(first)) == [[1, "two"]]
    assert client.zcard("schedule") == 1
    client.flushall()
    for lines in more:
        send(lines)
    connection.disconnect()
    assert client.zcard("retry") == 1
    assert client.keys("queue:*") == []
