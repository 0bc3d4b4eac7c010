"""An application with shards: real servers that freeze, are killed and come back."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from harness.servers import Reaper, Server, wait_until
from jobwire import (
    App,
    ConfigError,
    InvalidJob,
    Launcher,
    Limit,
    MaybeWritten,
    PushBuffer,
    RedisUnreachable,
    Unique,
    WorkerConfig,
    chain,
    group,
)
from jobwire.application.jobtype import JobType
from tests.server_fixtures import ServerFactory
from tests.workers import Workers, brisk, environment, free_port, jobwire

pytestmark = pytest.mark.process  # each test has three servers

SHARDS = ("a", "b", "c")
JOBS = """
import time

from jobwire import App

app = App(shards={urls!r})


@app.periodic("* * * * * *")
@app.job(queue="ticks")
def tick(): ...


@app.job
def note(number, seconds=0.0):
    time.sleep(seconds)
    with open("ran", "a") as file:
        file.write(f"{{number}}\\n")


@app.job(isolated=True)
def carry_on(number):
    note.enqueue(number)
"""


@pytest.fixture
def servers(server_factory: ServerFactory) -> dict[str, Server]:
    return {name: server_factory(password="sesame") for name in SHARDS}


@pytest.fixture
def workers(_reaper: Reaper, tmp_path: Path) -> Iterator[Workers]:
    with Workers(_reaper, tmp_path) as started:
        yield started


@pytest.fixture
def make(servers: dict[str, Server]) -> Iterator[Callable[..., App]]:
    """Make applications with these shards."""
    made: list[App] = []

    def app(**settings: Any) -> App:
        urls = {name: server.url for name, server in servers.items()}
        made.append(App(shards=urls, **settings))
        return made[-1]

    yield app
    for each in made:
        each.close()


class Enqueue:
    """Enqueues jobs of a type, from a thread or from asyncio."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._loop = asyncio.new_event_loop()

    def __call__(self, job: JobType[..., Any], *args: Any) -> str | None:
        if self.kind == "sync":
            return job.enqueue(*args)
        return self._loop.run_until_complete(job.aenqueue(*args))

    def bulk(self, job: JobType[..., Any], args: Sequence[Sequence[Any]]) -> Any:
        if self.kind == "sync":
            return job.enqueue_bulk(args)
        return self._loop.run_until_complete(job.aenqueue_bulk(args))

    def run(self, call: Any, twin: Any) -> Any:
        return call() if self.kind == "sync" else self._loop.run_until_complete(twin())

    def close(self, app: App) -> None:
        self._loop.run_until_complete(app.aclose())


@pytest.fixture(params=["sync", "async"])
def enqueue(request: pytest.FixtureRequest) -> Iterator[Enqueue]:
    made = Enqueue(request.param)
    yield made
    made._loop.close()


@pytest.fixture
def app(make: Callable[..., App], enqueue: Enqueue) -> Iterator[App]:
    app = make()
    yield app
    enqueue.close(app)


def jids(servers: dict[str, Server], queue: str = "default") -> dict[str, list[str]]:
    """Return the ids of the jobs in a queue of each shard, next first."""
    return {
        name: [json.loads(text)["jid"] for text in server.client().lrange(f"queue:{queue}", 0, -1)][
            ::-1
        ]
        for name, server in servers.items()
        if server._group is not None
    }


def test_jobs_are_spread_and_found(app: App, servers: dict[str, Server], enqueue: Enqueue) -> None:
    @app.job
    def note(number: int) -> None: ...

    pushed = [enqueue(note, number) for number in range(60)]
    there = jids(servers)
    assert sorted(jid for ids in there.values() for jid in ids) == sorted(map(str, pushed))
    assert all(len(ids) > 5 for ids in there.values())
    for jid, *_ in there.values():
        cancelled = enqueue.run(partial(note.cancel, jid), partial(note.acancel, jid))
        assert cancelled.place == "queued"


def test_a_bulk_push_says_what_is_where(
    app: App, servers: dict[str, Server], enqueue: Enqueue
) -> None:
    @app.job
    def note(number: int) -> None: ...

    pushed = enqueue.bulk(note, [[number] for number in range(3000)])
    assert len(pushed) == len(set(pushed)) == 3000
    assert pushed.shards.keys() == set(SHARDS)
    assert {name: sorted(ids) for name, ids in jids(servers).items()} == {
        name: sorted(ids) for name, ids in pushed.shards.items()
    }


def test_a_killed_shard_is_left_out_and_comes_back(
    app: App, servers: dict[str, Server], enqueue: Enqueue
) -> None:
    """No push fails, and none tries the dead shard again."""

    @app.job
    def note(number: int) -> None: ...

    enqueue(note, 0)
    servers["b"].kill()
    pushed = [enqueue(note, number) for number in range(100)]
    there = jids(servers)
    assert len({*pushed} & {jid for ids in there.values() for jid in ids}) == 100
    servers["b"].start()

    def back() -> bool:
        enqueue(note, 1)
        return bool(jids(servers)["b"])

    wait_until(back, what="a job on the shard that is back")


def test_a_frozen_shard_stops_no_other_push(
    make: Callable[..., App], servers: dict[str, Server]
) -> None:
    """PUSH-8: the push that was under way is unsure, names its shard, and shows no password."""
    app = make()

    @app.job
    def note(number: int) -> None: ...

    for number in range(30):  # a connection to each
        note.enqueue(number)
    servers["b"].pause()
    unsure: list[MaybeWritten] = []
    took: list[float] = []
    for number in range(500):
        began = time.monotonic()
        try:
            note.enqueue(number)
        except MaybeWritten as error:
            unsure.append(error)
        took.append(time.monotonic() - began)
    assert len(unsure) == 1
    assert "shard 'b'" in str(unsure[0])
    assert "sesame" not in str(unsure[0])
    # Only the push that was under way waited for a reply.
    assert sum(seconds > max(took) / 2 for seconds in took) == 1
    servers["b"].resume()
    wait_until(lambda: note.enqueue(0) in jids(servers)["b"], what="a job on the shard")
    assert len(jids(servers)["b"]) == len({*jids(servers)["b"]})


def test_what_shares_a_key_is_on_one_shard(
    app: App, servers: dict[str, Server], enqueue: Enqueue
) -> None:
    """Locks and limits. A shard that is away gets no job of another's key."""

    @app.job(unique=Unique(60, duplicate="drop"))
    def once(number: int) -> None: ...

    @app.job(queue="limited", limit=Limit("api", at_once=2, by=[0]))
    def limited(customer: int) -> None: ...

    for number in range(30):
        assert enqueue(once, number)
        assert enqueue(once, number) is None
    places = [{enqueue(limited, customer) for _ in range(3)} for customer in range(30)]
    there = {name: {*ids} for name, ids in jids(servers, "limited").items()}
    assert all(any(ids <= shard for shard in there.values()) for ids in places)
    assert all(there.values())
    servers["a"].kill()
    for customer in range(30):
        if places[customer] <= there["a"]:
            with pytest.raises(RedisUnreachable, match="shard 'a'"):
                enqueue(limited, customer)
        else:
            assert enqueue(limited, customer)


def test_a_buffer_keeps_jobs_for_their_shard(
    make: Callable[..., App], servers: dict[str, Server], tmp_path: Path
) -> None:
    """X-LIMIT-1: the jobs with a key wait in the spool, the others go to other shards."""
    app = make(buffer=PushBuffer(spool=tmp_path))

    @app.job(limit=Limit("api", at_once=2))
    def limited(number: int) -> None: ...

    @app.job
    def note(number: int) -> None: ...

    limited.enqueue(0)
    (shard,) = (name for name, ids in jids(servers).items() if ids)
    servers[shard].kill()
    kept = [limited.enqueue(number) for number in range(5)]
    free = {note.enqueue(number) for number in range(20)}
    assert app.client.pending is not None
    assert app.client.pending.jobs == 5
    assert [path.name for path in tmp_path.iterdir() if any(path.iterdir())] == [shard]
    assert free <= {jid for ids in jids(servers).values() for jid in ids}
    servers[shard].start()
    wait_until(lambda: jids(servers)[shard][:5] == kept, what="the kept jobs")


def test_all_shards_are_away(make: Callable[..., App], servers: dict[str, Server]) -> None:
    app, keeping = make(generation=8), make(generation=8, buffer=PushBuffer())
    for server in servers.values():
        server.kill()
    with pytest.raises(RedisUnreachable, match=r"shard '.'"):
        app.client.push("Note", [])
    with pytest.raises(RedisUnreachable, match=r"shard '.' is away, so nothing was written"):
        app.client.push("Note", [])
    with pytest.raises(RedisUnreachable, match="shard 'a'"):
        app.client.result("0" * 24)
    jid = keeping.client.push("Note", [])
    for server in servers.values():
        server.start()
    wait_until(lambda: [jid] in jids(servers).values(), what="the kept job")
    wait_until(lambda: _pushes(app), what="a push to shards that are back")


def _pushes(app: App) -> bool:
    try:
        return app.client.push("Note", []) is not None
    except RedisUnreachable:
        return False


def test_a_bulk_push_with_a_dead_shard(
    make: Callable[..., App], servers: dict[str, Server]
) -> None:
    """BULK-6: `written` has the ids of all shards."""
    app = make(placement="queue")
    queues = [f"queue-{number}" for number in range(20)]

    @app.job
    def note(number: int) -> None: ...

    note.enqueue(0)
    servers["c"].kill()
    calls = [note.options(queue=queue).s(1) for queue in queues]
    with pytest.raises(RedisUnreachable, match="shard 'c'") as caught:
        app.client.push_many(calls)
    left = {name: server for name, server in servers.items() if name != "c"}
    there = [jid for queue in queues for ids in jids(left, queue).values() for jid in ids]
    assert sorted(there) == sorted(caught.value.written)
    assert 0 < len(there) < len(queues)


def test_a_chain_is_on_one_shard(app: App, servers: dict[str, Server], enqueue: Enqueue) -> None:
    """X-FLOW-1: with the key that its jobs have; several keys are refused."""

    @app.job
    def note(number: int = 0) -> None: ...

    @app.job(limit=Limit("api", at_once=1))
    def limited(number: int = 0) -> None: ...

    @app.job(limit=Limit("other", at_once=1))
    def other(number: int = 0) -> None: ...

    enqueue(limited)
    (home,) = (name for name, ids in jids(servers).items() if ids)
    for steps in (chain(note.s(), limited.s()), chain(note.s(), group(limited.s(), note.s()))):
        run = enqueue.run(steps.enqueue, steps.aenqueue)
        assert run.jids[0] in jids(servers)[home]
        states = enqueue.run(run.states, run.astates)
        assert states == ["open", "later"]
        assert enqueue.run(run.cancel, run.acancel).place == "queued"
    mixed = chain(other.s(), limited.s())
    with pytest.raises(InvalidJob, match=r"several keys \(limit api, limit other\)"):
        enqueue.run(mixed.enqueue, mixed.aenqueue)


def test_a_batch_is_on_one_shard(make: Callable[..., App], servers: dict[str, Server]) -> None:
    """X-BATCH-1: and is found by its id. A member with a key needs a shard."""
    app = make()

    @app.job
    def note(number: int) -> None: ...

    @app.job(redis="b", limit=Limit("api", at_once=1))
    def here(number: int) -> None: ...

    @app.job(limit=Limit("api", at_once=1))
    def anywhere(number: int) -> None: ...

    for _ in range(5):
        with app.batch() as batch:
            added = batch.add_all(note.s(number) for number in range(10))
        assert any({*added} <= {*ids} for ids in jids(servers).values())
        found = app.find_batch(batch.id)
        assert found is not None
        status = found.status()
        assert status is not None
        assert status.total == 10
    assert app.find_batch("0" * 24) is None
    with app.via("b"), app.batch() as batch:
        batch.add(here.s(1))
        with pytest.raises(InvalidJob, match="a key has a shard of its own"):
            batch.add(anywhere.s(1))


def test_a_result_is_found(make: Callable[..., App], servers: dict[str, Server]) -> None:
    """X-RESULT-7: wherever the job is; not with a shard that cannot be asked."""
    app = make()
    result = json.dumps({"outcome": "done", "at": 1, "value": 7})
    for name, server in servers.items():
        server.client().set(f"jobwire:result:{name}", result)
        found = app.client.result(name, timeout=5)
        assert found is not None
        assert found.value == 7
    assert app.client.result("nowhere", timeout=0.1) is None
    servers["c"].kill()
    with pytest.raises(RedisUnreachable, match="shard 'c'"):
        app.client.result("nowhere")
    assert app.client.result("a") is not None


def test_invalid_settings() -> None:
    for wrong in ("redis://localhost", ["localhost"], {"a b": "redis://x"}, {"a": "secret"}):
        with pytest.raises(ConfigError, match="shards") as caught:
            App(shards=wrong)
        assert "secret" not in str(caught.value)
    with pytest.raises(ConfigError, match="take the place of url"):
        App("redis://localhost", shards=["redis://a"])
    with pytest.raises(ConfigError, match="have the same URL"):
        App(shards=["redis://a", "redis://a"])
    with pytest.raises(ConfigError, match="is also a name of redis"):
        App(shards={"a": "redis://a"}, redis={"a": "redis://b"})
    with pytest.raises(ConfigError, match="'random' is not one of 'spread', 'queue'"):
        App(shards=["redis://a"], placement="random")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="has no shards"):
        App().shard_of("x")
    app = App(shards=["redis://a", "redis://b"])
    assert app.shards == ("shard-1", "shard-2")
    with pytest.raises(ConfigError, match=r"'jobwire worker' starts a process for each"):
        _ = app.served_url
    with pytest.raises(ConfigError, match="this is for one Redis"):
        app.client.redis.run(_ping())


def _ping() -> Any:
    from jobwire.protocol.wire import command, once

    return once(command("PING"))


def answer(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=30) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def has_run(directory: Path, numbers: Iterable[int]) -> bool:
    file = directory / "ran"
    ran = {int(line) for line in file.read_text().split()} if file.exists() else set()
    return ran >= {*numbers}


@pytest.fixture
def jobs(make: Callable[..., App], servers: dict[str, Server], tmp_path: Path) -> App:
    """Write a module with jobs, and return an application that enqueues them."""
    urls = {name: server.url for name, server in servers.items()}
    (tmp_path / "shop.py").write_text(JOBS.format(urls=urls))
    return make(generation=8)


def test_a_worker_of_all_shards(
    jobs: App, servers: dict[str, Server], tmp_path: Path, workers: Workers
) -> None:
    """A frozen shard stops nothing on the others, from the start and later."""
    servers["b"].pause()
    port = free_port()
    worker = workers.start("shop:app", "--health-port", str(port), "--concurrency", "2")
    for name, first in (("a", 0), ("c", 50)):
        with jobs.via(name):
            jobs.client.push_bulk("note", [[first + number] for number in range(50)])
    wait_until(lambda: has_run(tmp_path, range(100)), what="the jobs of two shards")
    assert answer(f"http://127.0.0.1:{port}/live") == (200, "ok\n")
    waiting = (503, "2 of 3 processes ready; starting\n")
    wait_until(lambda: answer(f"http://127.0.0.1:{port}/ready") == waiting, what=waiting)

    def queues() -> Any:
        return json.loads(answer(f"http://127.0.0.1:{port}/queues")[1])

    wait_until(lambda: queues().get("unreachable") == ["b"], what="the numbers of two shards")
    assert queues()["queues"]["default"] == {
        "size": 0,
        "latency": 0.0,
        "paused": False,
        "processes": 2,
    }
    servers["b"].resume()
    with jobs.via("b"):
        jobs.client.push("carry_on", [100])
    wait_until(lambda: not queues()["unreachable"], what="the numbers of all shards")
    wait_until(lambda: has_run(tmp_path, [100]), what="an isolated job that enqueues")
    wait_until(lambda: answer(f"http://127.0.0.1:{port}/ready")[0] == 200, what="readiness")
    servers["a"].pause()
    with jobs.via("c"):
        jobs.client.push_bulk("note", [[number] for number in range(200, 300)])
    with jobs.via("b"):
        jobs.client.push_bulk("note", [[number] for number in range(300, 400)])
    wait_until(lambda: has_run(tmp_path, range(200, 400)), what="the jobs of two shards")
    assert answer(f"http://127.0.0.1:{port}/live") == (200, "ok\n")
    servers["a"].resume()
    ticking = [name for name in SHARDS if servers[name].client().exists("cron_jobs:default")]
    assert len(ticking) == 1
    worker.send(signal.SIGTERM)
    assert worker.wait(120) == 0, worker.log.read_text()


def test_killed_processes_lose_nothing(
    jobs: App, servers: dict[str, Server], tmp_path: Path, workers: Workers
) -> None:
    """REL-12: the process of each shard, one after the other; then the supervisor."""
    worker = workers.start("shop:app", "--concurrency", "5")
    for number in range(150):
        jobs.client.push("note", [number, 0.05])
    for server in servers.values():
        client = server.client()
        wait_until(lambda client=client: client.smembers("processes"), what="a process")  # type: ignore[misc]
        for identity in client.smembers("processes"):
            os.kill(int(identity.decode().split(":")[-2]), signal.SIGKILL)
    worker.kill()
    workers.start("shop:app", "--concurrency", "5")
    wait_until(lambda: has_run(tmp_path, range(150)), what="all jobs")
    for server in servers.values():
        wait_until(lambda server=server: not server.client().llen("queue:default"))  # type: ignore[misc]


def test_commands_of_an_application_with_shards(
    jobs: App, servers: dict[str, Server], tmp_path: Path
) -> None:
    """Each shows all shards, or says which to choose."""
    jobs.client.push_bulk("note", [[number] for number in range(30)])
    shown = jobwire("inspect", "stats", "-r", "shop:app", "--json", cwd=tmp_path)
    lines = [json.loads(line) for line in shown.stdout.splitlines()]
    assert [line["shard"] for line in lines] == [*SHARDS, "(all)"]
    assert sum(line["enqueued"] for line in lines[:3]) == lines[3]["enqueued"] == 30
    shown = jobwire("inspect", "queues", "-r", "shop:app", cwd=tmp_path)
    assert shown.returncode == 2
    assert "has the shards a, b, c" in shown.stderr
    assert "--redis a" in shown.stderr
    shown = jobwire("inspect", "queues", "-r", "shop:app", "--redis", "b", cwd=tmp_path)
    assert shown.returncode == 0, shown.stderr
    pushed = jobwire("enqueue", "-r", "shop:app", "note", "77", cwd=tmp_path)
    assert "pushed to one of the shards a, b, c" in pushed.stderr
    assert pushed.stdout.strip() in {jid for ids in jids(servers).values() for jid in ids}
    shown = jobwire("config", "shop:app", cwd=tmp_path)
    assert "shards a, b, c" in shown.stdout
    servers["c"].kill()
    shown = jobwire("inspect", "stats", "-r", "shop:app", cwd=tmp_path)
    assert "c\t?\t" in shown.stdout
    assert "shard c: " in shown.stderr
    assert "sesame" not in shown.stderr
    ended = jobwire("dev", "shop:app", "--no-reload", "--no-web", cwd=tmp_path)
    assert "runs one server" in ended.stderr


def test_pages_and_numbers_of_all_shards(
    jobs: App, servers: dict[str, Server], tmp_path: Path, workers: Workers
) -> None:
    """The page and the exporter show the sums and each shard, also while one is frozen."""
    jobs.client.push_bulk("note", [[number] for number in range(30)])
    sizes = {name: len(ids) for name, ids in jids(servers).items()}
    ports = {command: free_port() for command in ("web", "exporter")}
    started = [
        workers.start("-rshop:app", "--port", str(port), command=command, log_format=None)
        for command, port in ports.items()
    ]
    page, numbers = (f"http://127.0.0.1:{port}" for port in ports.values())
    wait_until(lambda: has_port(ports["web"]) and has_port(ports["exporter"]), what="both ports")
    status, shown = answer(f"{page}/")
    assert status == 200, shown
    assert rows(shown) == {**sizes, "All": 30}
    for name in SHARDS:
        assert answer(f"{page}/{name}/queues/default")[0] == 200
    assert samples(numbers) == samples(page) == sizes
    told = json.loads(answer(f"{numbers}/queues/default")[1])
    assert (told["size"], told["unreachable"]) == (30, [])

    servers["c"].pause()
    rest = {name: size for name, size in sizes.items() if name != "c"}
    without = {**rest, "c": None, "All": sum(rest.values())}
    wait_until(lambda: rows(answer(f"{page}/")[1]) == without, what="the page without a shard")
    wait_until(lambda: samples(numbers) == rest, what="the numbers without a shard")
    began = time.monotonic()
    assert rows(answer(f"{page}/")[1]) == without
    assert samples(numbers) == samples(page) == rest
    told = json.loads(answer(f"{numbers}/queues")[1])
    assert (told["enqueued"], told["unreachable"]) == (sum(rest.values()), ["c"])
    assert time.monotonic() - began < 10  # four requests, each of which waits for a second
    listed = jobwire("inspect", "stats", "-r", "shop:app", cwd=tmp_path)
    assert "shard c: no reply within 1 s" in listed.stderr
    servers["c"].resume()
    wait_until(lambda: rows(answer(f"{page}/")[1]) == {**sizes, "All": 30}, what="all shards")
    for each in started:
        each.send(signal.SIGTERM)
        assert each.wait(60) == 0, each.log.read_text()


def has_port(port: int) -> bool:
    with socket.socket() as tried:
        return not tried.connect_ex(("127.0.0.1", port))


def rows(page: str) -> dict[str, int | None]:
    """Return the jobs in the queues by line of the first table; None if it is unreachable."""
    table = page.partition("<tbody>")[2].partition("</tbody>")[0]
    lines = [re.sub(r"<[^>]*>", " ", line).split() for line in table.split("<tr>")[1:]]
    return {name: int(first) if first.isdigit() else None for name, first, *_ in lines}


def samples(url: str) -> dict[str, int]:
    """Return the jobs in the queues of each shard, as Prometheus reads them."""
    text = answer(f"{url}/metrics")[1]
    found = re.findall(r'jobwire_jobs_enqueued\{shard="(\w)"\} (\d+)', text)
    up = re.findall(r'jobwire_redis_up\{shard="(\w)"\} 1', text)
    assert up == [name for name, _ in found]
    return {name: int(size) for name, size in found}


def states(servers: dict[str, Server]) -> dict[str, dict[str, str]]:
    """Return the copy of the states on each shard."""
    return {
        name: {
            shard.decode(): state.decode()
            for shard, state in server.client().hgetall("jobwire:shards").items()
        }
        for name, server in servers.items()
    }


def shards(directory: Path, *words: str) -> Any:
    """Run a command of `jobwire shards` that must succeed."""
    done = jobwire("shards", words[0], "shop:app", *words[1:], cwd=directory)
    assert done.returncode == 0, done.stderr
    return done


def test_a_shard_is_drained_removed_and_added_live(
    jobs: App, servers: dict[str, Server], tmp_path: Path, workers: Workers
) -> None:
    """A program and a worker follow without a restart; a killed process loses nothing."""
    port = free_port()
    worker = workers.start("shop:app", "--health-port", str(port), "--concurrency", "2")
    wait_until(lambda: has_port(port), what="the port")
    wait_until(lambda: answer(f"http://127.0.0.1:{port}/ready")[0] == 200, what="readiness")
    ticking = next(name for name in SHARDS if servers[name].client().exists("cron_jobs:default"))
    gone = servers[ticking].client()
    with jobs.via(ticking):
        jobs.client.push_bulk("note", [[number, 0.2] for number in range(30)])
        later = jobs.client.push("note", [100], at=time.time() + 3_600)
    pushed = [100]

    def push() -> str:
        pushed.append(len(pushed) + 1_000)
        jid = str(jobs.client.push("note", [pushed[-1]], queue="new"))
        return next(name for name, ids in jids(servers, "new").items() if jid in ids)

    assert {push() for _ in range(60)} == {*SHARDS}
    shards(tmp_path, "drain", ticking)
    rest = {name for name in SHARDS if name != ticking}
    wait_until(lambda: {push() for _ in range(20)} == rest, what="the program to follow")
    (identity,) = gone.smembers("processes")
    os.kill(int(identity.decode().split(":")[-2]), signal.SIGKILL)
    for name in SHARDS:  # no worker serves this queue
        client = servers[name].client()
        while client.lmove("queue:new", "queue:default", "RIGHT", "LEFT"):
            pass
    wait_until(lambda: has_run(tmp_path, [*range(30), *pushed[1:]]), what="all jobs")
    refused = jobwire("shards", "remove", "shop:app", ticking, cwd=tmp_path)
    assert refused.returncode == 2
    assert "is not empty (" in refused.stderr
    assert "scheduled: 1" in refused.stderr
    elsewhere = next(iter(rest))
    ticks = [servers[name].client() for name in rest]
    wait_until(lambda: any(each.exists("cron_jobs:default") for each in ticks), what="its ticks")
    gone.zadd("schedule", {gone.zrange("schedule", 0, 0)[0]: time.time()})
    wait_until(lambda: has_run(tmp_path, [100]), what=f"the scheduled job {later}")

    def left() -> Any:
        told = shards(tmp_path, "status", "--json").stdout.splitlines()
        return next(one for one in map(json.loads, told) if one["shard"] == ticking)["left"]

    wait_until(lambda: left() == {}, what="an empty shard")
    shards(tmp_path, "remove", ticking)
    wait_until(lambda: not gone.smembers("processes"), what="the end of its process")
    assert answer(f"http://127.0.0.1:{port}/ready") == (200, "ok\n")
    assert f"shard {ticking} is removed" in worker.log.read_text()
    servers[ticking].kill()
    assert push() in rest
    assert jobs.shard_of("x") in rest
    servers[ticking].start()
    shards(tmp_path, "add", ticking)
    wait_until(lambda: ticking in {push() for _ in range(20)}, what="the program to follow")
    wait_until(lambda: servers[ticking].client().smembers("processes"), what="a new process")
    assert {*states(servers)[elsewhere]} == {*SHARDS}
    worker.send(signal.SIGTERM)
    assert worker.wait(120) == 0, worker.log.read_text()


KILLED = """
import os, signal, sys
from jobwire.cli import main
from jobwire.inspect import shards
write = shards.write_states
def killed(*args, **more):
    yield from write(*args, **more)
    os.kill(os.getpid(), signal.SIGKILL)
shards.write_states = killed
shards.SETTLE_S = 0.0
sys.argv = ["jobwire", *sys.argv[1:]]
main()
"""


def kill_after_one_shard(what: str, name: str, directory: Path) -> None:
    """Kill a command when it has told the first shard."""
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, "shards", what, "shop:app", name],
        cwd=directory,
        env=environment(),
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL


def test_a_command_that_is_killed_between_two_shards_is_repeated(
    jobs: App, servers: dict[str, Server], tmp_path: Path
) -> None:
    """The next command mends the copies, whichever it is; no shard gets lost in between."""
    for count, words in enumerate((("drain", "c"), ("drain", "b"), ("add", "c")), start=1):
        before = states(servers)
        kill_after_one_shard(*words, tmp_path)
        after = states(servers)
        assert sum(after[name] != before[name] for name in SHARDS) == 1, count
        lines = [*map(json.loads, shards(tmp_path, "status", "--json").stdout.splitlines())]
        assert sorted({name for line in lines for name in line["not_told"]}) == ["b", "c"]
        if words[0] == "drain":
            continue  # the next command writes what this one left
        shards(tmp_path, *words)
    expected = {"a": "1 used", "b": "2 draining", "c": "3 used"}
    assert all(copy == expected for copy in states(servers).values())
    servers["b"].kill()
    told = jobwire("shards", "drain", "shop:app", "c", cwd=tmp_path)
    assert told.returncode == 4
    assert "shard 'b' was not told" in told.stderr
    servers["b"].start()
    told = jobwire("shards", "drain", "shop:app", "a", cwd=tmp_path)
    assert told.returncode == 2
    assert "no shard would get jobs" in told.stderr
    told = jobwire("shards", "remove", "shop:app", "a", cwd=tmp_path)
    assert "is not draining" in told.stderr
    assert states(servers)["b"]["c"] == "4 draining"
    kill_after_one_shard("remove", "c", tmp_path)
    assert Counter(copy["c"] for copy in states(servers).values()) == {
        "5 removed": 1,
        "4 draining": 2,
    }
    shards(tmp_path, "add", "c")
    assert {copy["c"] for copy in states(servers).values()} == {"6 used"}
    told = jobwire("shards", "drain", "shop:app", "d", cwd=tmp_path)
    assert "has no shard 'd', only a, b, c" in told.stderr


def test_a_worker_that_may_not_read_the_states_works_on(servers: dict[str, Server]) -> None:
    """STAT-1, MET-4: its beats write their counts."""
    client = servers["a"].client()
    rules = ("on", ">secret", "~*", "&*", "+@all", "-hgetall")
    client.execute_command("ACL", "SETUSER", "one", *rules)
    app = App(shards={"a": f"redis://one:secret@127.0.0.1:{servers['a'].port}"})
    done: list[int] = []
    app.job(name="Done")(done.append)
    app.serve("a")
    launcher = Launcher(app, WorkerConfig(), timings=brisk())
    launcher.start()
    try:
        app.jobs["Done"].enqueue(1)
        wait_until(lambda: client.keys("j|*"))
        assert done == [1]
    finally:
        launcher.stop()
        app.close()
