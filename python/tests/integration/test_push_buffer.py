"""The buffer of a client while a real server is killed and comes back."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from harness.servers import Server, wait_until
from jobwire import App, AsyncClient, Client, MaybeWritten, PushBuffer
from jobwire.inspect import Inspector
from tests.integration.clients import Connect
from tests.server_fixtures import ServerFactory
from tests.workers import environment


def numbers(server: Server, queue: str = "default") -> list[int]:
    """Return the first argument of each job in a queue, next first."""
    stored = server.client().lrange(f"queue:{queue}", 0, -1)
    return [json.loads(text)["args"][0] for text in reversed(stored)]


def written(server: Server, count: int) -> None:
    wait_until(lambda: server.client().llen("queue:default") >= count, what=f"{count} jobs")


def test_jobs_are_there_once_and_in_order(server: Server, connect: Connect) -> None:
    """PUSH-9: pushed before, during and after an absence."""
    client = connect(server.url, buffer=PushBuffer())
    client.push("A", [0])
    server.kill()
    for number in range(1, 300):
        client.push("A", [number])
        client.push("B", [number], queue="other")
    client.push_in(3600, "A", ["later"])
    server.start()
    written(server, 299)
    client.push("A", [300])
    written(server, 300)
    # The first was lost with the server, which has no persistence.
    assert numbers(server) == [*range(1, 301)]
    assert numbers(server, "other") == [*range(1, 300)]
    assert server.client().zcard("schedule") == 1


def test_a_generation_that_cannot_be_asked_is_7(server: Server, connect: Connect) -> None:
    """GEN-5: times that every Sidekiq reads."""
    client = connect(server.url, buffer=PushBuffer())
    server.kill()
    client.push("A", [1])
    server.start()
    written(server, 1)
    (text,) = server.client().lrange("queue:default", 0, -1)
    assert isinstance(json.loads(text)["created_at"], float)


def test_threads_keep_their_own_order(server: Server) -> None:
    with Client(server.url, buffer=PushBuffer(max_jobs=10_000)) as client:
        client.push("A", [-1])
        back = threading.Event()

        def run(thread: int) -> None:
            number = 0
            while not back.is_set() or number < 50:
                client.push("A", [number], queue=f"q{thread}")
                number += 1
                time.sleep(0.002)

        threads = [threading.Thread(target=run, args=[each]) for each in range(4)]
        server.kill()
        for thread in threads:
            thread.start()
        wait_until(lambda: (client.pending and client.pending.jobs) or 0 >= 200, what="kept jobs")
        server.start()
        wait_until(lambda: client.pending and not client.pending.jobs, what="the end of the buffer")
        back.set()
        for thread in threads:
            thread.join()
    for each in range(4):
        found = numbers(server, f"q{each}")
        assert found == [*range(len(found))]
        assert len(found) >= 50


def test_pending_says_what_waits(server: Server) -> None:
    async def run() -> None:
        async with AsyncClient(server.url) as plain:
            assert plain.pending is None
        async with AsyncClient(server.url, buffer=PushBuffer()) as client:
            server.kill()
            before = time.time()
            await client.push("A", [1])
            waiting = client.pending
            assert waiting is not None
            assert waiting.jobs == 1
            assert waiting.bytes > 100
            assert waiting.since is not None
            assert before <= waiting.since <= time.time()
            server.start()
        assert client.pending is not None
        assert client.pending.jobs == 0  # closing has written it

    asyncio.run(run())
    assert numbers(server) == [1]


def test_an_application_has_a_buffer(server: Server) -> None:
    app = App(server.url, buffer=PushBuffer())

    @app.job
    def add(number: int) -> None: ...

    server.kill()
    add.enqueue(7)
    server.start()
    app.close()
    assert numbers(server) == [7]


# -- the end of a process

PROGRAM = """\
import os, sys
from jobwire import Client, PushBuffer
client = Client(sys.argv[1], timeout=1, buffer=PushBuffer(spool=sys.argv[2] or None))
for number in range(int(sys.argv[3])):
    client.push("A", [number])
print("kept", client.pending.jobs, flush=True)
"""
KILL = "os.kill(os.getpid(), 9)"


def start(
    server: Server, ending: str, *, spool: Any = "", count: int = 3, kept: int | None = None
) -> Any:
    """Start a process that pushes while the server is away, and then does what `ending` says."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM + ending, server.url, str(spool), str(count)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    assert process.stdout
    said = process.stdout.readline()
    assert said == f"kept {kept or count}\n", process.communicate()[1]
    return process


@pytest.mark.process
def test_the_end_of_a_process_writes_what_is_kept(server: Server) -> None:
    server.kill()
    process = start(server, "sys.stdin.read()")
    server.start()
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert numbers(server) == [0, 1, 2]


@pytest.mark.process
def test_a_process_that_is_asked_to_end_writes_what_is_kept(server: Server) -> None:
    """SIGTERM, in a program that ends in order upon it, as servers of web applications do."""
    server.kill()
    ending = "import signal\nsignal.signal(15, lambda *_: sys.exit(0))\n"
    process = start(server, ending + "print('ready', flush=True)\nsignal.pause()")
    assert process.stdout.readline() == "ready\n"
    server.start()
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert numbers(server) == [0, 1, 2]


@pytest.mark.process
def test_a_child_begins_with_nothing(server: Server) -> None:
    """Of a fork: the jobs are the parent's, or they would be written twice."""
    server.kill()
    ending = """
child = os.fork()
if not child:
    print("child", client.pending.jobs, flush=True)
    client.push("A", ["child"])
sys.stdin.read()
if child:
    os.waitpid(child, 0)
"""
    process = start(server, ending)
    assert process.stdout.readline() == "child 0\n"
    server.start()
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert sorted(map(str, numbers(server))) == ["0", "1", "2", "child"]


@pytest.mark.process
def test_a_spool_survives_a_kill(server: Server, tmp_path: Path) -> None:
    """`kill -9`, twice: the second process takes the jobs of the first and dies as well."""
    server.kill()
    for kept in (500, 1_000):
        process = start(server, KILL, spool=tmp_path, count=500, kept=kept)
        process.communicate(timeout=60)
        assert process.returncode == -signal.SIGKILL
    server.start()
    with Client(server.url, buffer=PushBuffer(spool=tmp_path)) as client:
        client.push("A", [500])
        written(server, 1_001)
        wait_until(lambda: not any(tmp_path.iterdir()), what="the end of the spool")
    found = numbers(server)
    assert sorted(found) == sorted([*range(500)] * 2 + [500])
    assert found[:500] == [*range(500)]
    assert (
        len({json.loads(text)["jid"] for text in server.client().lrange("queue:default", 0, -1)})
        == 1_001
    )


@pytest.mark.process
def test_each_redis_of_an_application_has_a_spool_of_its_own(
    server: Server, tmp_path: Path
) -> None:
    """Jobs that a killed process left go to their Redis, whichever is asked first."""
    urls = [f"{server.url.rpartition('/')[0]}/{db}" for db in range(4)]
    named = {"mail": urls[1], "../a": urls[2]}
    places = ["", *named, urls[3]]
    spool = str(tmp_path / "spool")
    program = f"""
import os
from jobwire import App, PushBuffer
app = App({urls[0]!r}, redis={named}, buffer=PushBuffer(spool={spool!r}))
for number, place in enumerate({places}):
    app.client_of(place).push("A", [number])
os.kill(os.getpid(), 9)
"""
    server.kill()
    ended = subprocess.run([sys.executable, "-c", program], env=environment(), check=False)
    assert ended.returncode == -signal.SIGKILL
    server.start()
    app = App(urls[0], redis=named, buffer=PushBuffer(spool=spool))
    for number, place in enumerate(places):
        app.client_of(place).push("A", [10 + number])
    app.close()
    for number, url in enumerate(urls):
        with Inspector(url) as inspector:
            found = [job.fields["args"] for job in inspector.jobs("default")]
        assert sorted(found) == [[number], [10 + number]]
    assert [path.name for path in tmp_path.iterdir()] == ["spool"]


@pytest.mark.process
def test_processes_that_share_a_spool_write_each_job_once(server: Server, tmp_path: Path) -> None:
    """Ten processes are killed; three others start at the same moment and share what is left."""
    server.kill()
    for before in range(10):
        process = start(server, KILL, spool=tmp_path, count=20, kept=20 * before + 20)
        process.communicate(timeout=60)
    server.start()
    heirs = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, server.url, str(tmp_path), "1"],
            stdout=subprocess.DEVNULL,
            env=environment(),
        )
        for _ in range(3)
    ]
    for heir in heirs:
        assert heir.wait(60) == 0
    stored = server.client().lrange("queue:default", 0, -1)
    assert len(stored) == len({json.loads(text)["jid"] for text in stored}) == 203


STORM = """\
import itertools, sys, time
from jobwire import Client, MaybeWritten, PushBuffer
client = Client(sys.argv[1], timeout=1, buffer=PushBuffer(spool=sys.argv[2] or None))
for number in itertools.count():
    try:
        client.push("A", [number], queue=sys.argv[3])
        print("pushed", flush=True)
    except MaybeWritten:
        print("unsure", flush=True)
    time.sleep(0.04)
"""
EACH = 1_000  # pushes of each thread, each task and each process
PACE_S = 0.07  # between two pushes: all of the minute without Redis is in them


@pytest.mark.full
def test_a_minute_without_redis_loses_what_a_killed_process_kept_in_memory(
    server_factory: ServerFactory, tmp_path: Path
) -> None:
    """10,000 pushes of threads, of tasks, and of two processes that are killed meanwhile."""
    server = server_factory("--appendonly", "yes", "--appendfsync", "always")
    names = [f"{kind}-{each}" for kind in ("thread", "task") for each in range(4)]
    # Pushes whose answer was lost with the server.
    unsure: dict[str, set[int]] = {name: set() for name in (*names, "memory", "spool")}

    def run(client: Client, queue: str) -> None:
        for number in range(EACH):
            try:
                client.push("A", [number], queue=queue)
            except MaybeWritten:
                unsure[queue].add(number)
            time.sleep(PACE_S)

    async def run_tasks() -> None:
        async def push(client: AsyncClient, queue: str) -> None:
            for number in range(EACH):
                try:
                    await client.push("A", [number], queue=queue)
                except MaybeWritten:
                    unsure[queue].add(number)
                await asyncio.sleep(PACE_S)

        async with AsyncClient(server.url, buffer=PushBuffer(max_jobs=10_000)) as client:
            await asyncio.gather(*(push(client, name) for name in names[4:]))

    spools = {"memory": "", "spool": str(tmp_path)}
    processes = {
        name: subprocess.Popen(
            [sys.executable, "-c", STORM, server.url, spool, name],
            stdout=subprocess.PIPE,
            text=True,
            env=environment(),
        )
        for name, spool in spools.items()
    }
    with Client(server.url, buffer=PushBuffer(max_jobs=10_000)) as client:
        threads = [threading.Thread(target=run, args=[client, name]) for name in names[:4]]
        threads.append(threading.Thread(target=lambda: asyncio.run(run_tasks())))
        for thread in threads:
            thread.start()
        time.sleep(5)
        server.kill()
        away = time.monotonic()
        for name, process in processes.items():
            assert process.stdout
            for number in range(EACH):
                said = process.stdout.readline()
                assert said in ("pushed\n", "unsure\n")
                if said == "unsure\n":
                    unsure[name].add(number)
            process.kill()
            process.communicate()
        assert time.monotonic() < away + 60, "the processes were not killed during the outage"
        time.sleep(away + 60 - time.monotonic())
        server.start()
        for thread in threads:
            thread.join()
    with Client(server.url, buffer=PushBuffer(spool=tmp_path)) as heir:
        heir.push("A", [0])
    lost = {}
    for name in (*names, "memory", "spool"):
        found = [number for number in numbers(server, name) if number < EACH]
        assert found == sorted(set(found)), name  # once, and in order
        missing = set(range(EACH)) - set(found)
        if name == "memory":  # the jobs after the last one that Redis took
            missing -= {*range(found[-1] + 1, EACH)}
        assert missing <= unsure[name], name
        lost[name] = EACH - len(found)
    assert 0 < lost["memory"] < EACH
    figures = f"{10 * EACH:,} pushes; lost {lost}; without an answer {unsure}"
    logging.getLogger(__name__).info(figures)  # shown by -o log_cli=true -o log_cli_level=INFO
