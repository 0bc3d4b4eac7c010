"""A cluster whose shards share the jobs: primaries are killed and slots move while jobs run."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from harness.servers import Reaper, wait_until
from jobwire import App, Client, ConfigError, RedisTrouble, RedisUnreachable
from jobwire.connection.cluster import Nodes, Refused, expand, keys_at
from jobwire.protocol.wire import ErrorReply
from tests.clusters import Cluster, cluster
from tests.workers import Workers, jobwire

pytestmark = pytest.mark.process

SHARDS = 3  # at two primaries
JOBS = """
from jobwire import App

app = App(shards={url!r}, wait_replicas=1)


@app.job
def note(number):
    with open("ran", "a") as file:
        file.write(f"{{number}}\\n")


@app.job(keep_result=60)
def double(number):
    return 2 * number
"""


@pytest.fixture(scope="module")
def nodes(_reaper: Reaper) -> Iterator[Cluster]:
    with cluster(_reaper) as started:
        yield started


@pytest.fixture
def shop(nodes: Cluster, tmp_path: Path) -> Iterator[App]:
    """Return the application; its module is in the directory of the test."""
    for node in nodes.nodes:
        if nodes.is_primary(node):
            nodes.ask(node, "FLUSHALL")
    (tmp_path / "shop.py").write_text(JOBS.format(url=nodes.url(f"?shards={SHARDS}")))
    app = App(shards=nodes.url(f"?shards={SHARDS}"), wait_replicas=1)
    yield app
    app.close()


def finished(directory: Path) -> Counter[int]:
    file = directory / "ran"
    return Counter(map(int, file.read_text().split())) if file.exists() else Counter()


class Pushing:
    """Pushes numbers, each until it is acknowledged, to one shard after the other."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._stop = threading.Event()
        self.pushed = 0
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        for number in count():
            while not self._push(number):
                self._stop.wait(0.02)
            self.pushed = number + 1
            if self._stop.wait(0.002):
                return

    def _push(self, number: int) -> bool:
        try:
            with self._app.via(f"s{number % SHARDS}"):
                self._app.client.push("note", [number])
        except RedisTrouble:
            return False
        return True

    def end(self) -> int:
        """Return how many jobs were pushed."""
        self._stop.set()
        self._thread.join(60)
        return self.pushed


def test_jobs_are_spread_over_the_slots(
    shop: App, nodes: Cluster, tmp_path: Path, workers: Workers
) -> None:
    """KEY-4: every key of a shard has its hash tag, from threads and from asyncio."""
    workers.start("shop:app", "--concurrency", "2")
    shop.client.push_bulk("note", [[number] for number in range(100)])

    async def push() -> None:
        for number in range(100, 120):
            await shop.aclient.push("note", [number])
        jid = await shop.aclient.push("double", [21], keep_result=60)
        assert jid is not None
        result = await shop.aclient.result(jid, timeout=60)
        assert result is not None
        assert result.value == 42
        await shop.aclose()

    asyncio.run(push())
    wait_until(lambda: {*finished(tmp_path)} == {*range(120)}, what="all jobs")
    jid = shop.client.push("double", [4], keep_result=60)
    assert jid is not None
    result = shop.client.result(jid, timeout=60)
    assert result is not None
    assert result.value == 8
    keys = [key for node in nodes.nodes for key in nodes.ask(node, "KEYS", "*")]
    assert {key.partition(b":")[0] for key in keys} == {b"{s%d}" % each for each in range(SHARDS)}
    shown = jobwire("inspect", "stats", "-r", "shop:app", "--json", cwd=tmp_path)
    lines = [json.loads(line) for line in shown.stdout.splitlines()]
    assert [line["shard"] for line in lines] == ["s0", "s1", "s2", "(all)"]
    assert lines[-1]["processed"] == 122
    assert jobwire("shards", "drain", "shop:app", "s1", cwd=tmp_path).returncode == 0
    states = {
        name: nodes.ask(nodes.node_of(name), "HGET", f"{{{name}}}:jobwire:shards", "s1")
        for name in shop.shards
    }
    assert {*states.values()} == {b"1 draining"}


def test_a_killed_primary_loses_no_job(
    shop: App, nodes: Cluster, tmp_path: Path, workers: Workers
) -> None:
    """ENV-6, REL-12: jobs that a replica has confirmed run, after the replica took over."""
    worker = workers.start("shop:app", "--concurrency", "2")
    pushing = Pushing(shop)
    wait_until(lambda: pushing.pushed > 50, what="some jobs")
    killed = nodes.promote_replica_of("s0")
    worker.kill()
    killed.start()  # pushes need a replica that confirms
    before = pushing.pushed
    wait_until(lambda: pushing.pushed > before + 50, what="jobs after the failover")
    wait_until(nodes.is_whole, what="the killed node to follow")
    workers.start("shop:app", "--concurrency", "2")
    pushed = pushing.end()
    wait_until(lambda: {*finished(tmp_path)} >= {*range(pushed)}, what="all jobs")


def test_a_slot_moves_while_jobs_run(
    shop: App, nodes: Cluster, tmp_path: Path, workers: Workers
) -> None:
    """SRV-1, SRV-2: every job runs once, as every script finds all its keys at one node."""
    workers.start("shop:app", "--concurrency", "2")
    pushing = Pushing(shop)
    for classic in (False, True, None):
        before = pushing.pushed
        wait_until(lambda before=before: pushing.pushed > before + 50, what="some jobs")  # type: ignore[misc]
        if classic is not None:
            nodes.move("s0", nodes.other_primary("s0"), classic=classic)
    pushed = pushing.end()
    wait_until(lambda: {*finished(tmp_path)} >= {*range(pushed)}, what="all jobs")
    assert {*finished(tmp_path).values()} == {1}


def test_a_restricted_user_finds_its_node(nodes: Cluster) -> None:
    """SEC-3: the rules of a client, with the hash tag, are enough."""
    for node in nodes.nodes:
        rules = "on >x resetchannels ~{s1}:* +multi +exec +sadd +lpush +zadd +smembers +hget"
        nodes.ask(node, "ACL", "SETUSER", "app", "reset", *rules.split())
    others = [node for node in nodes.nodes if node is not nodes.node_of("s1")]
    url = nodes.url("/s1", nodes=others[:1]).replace("://", "://app:x@")
    with Client(url) as client:
        client.push("Job", jid="a" * 24)
    with (
        Client(url.replace(":x@", ":wrong@")) as client,
        pytest.raises(RedisUnreachable, match="invalid username") as caught,
    ):
        client.push("Job")
    assert caught.value.login_refused


def test_the_search_follows_redirections() -> None:
    """KEY-4: the search for the node of a slot, without a socket."""
    nodes = Nodes("s0", [("a", 1), ("b", 2)])
    dead = ConnectionError("refused")
    search = nodes.search()
    assert search.next() == ("a", 1)
    assert not search.ends(ErrorReply("MOVED 3 c:3"))
    assert search.next() == ("c", 3)
    assert not search.ends(dead)
    assert search.next() == ("b", 2)
    assert not search.ends(ErrorReply("MOVED 3 c:3"))  # it has not heard of the death yet
    with pytest.raises(ConnectionError, match="refused"):
        search.next()

    search = nodes.search()
    assert search.next() == ("a", 1)
    assert not search.ends(ErrorReply("MOVED 3 :4"))  # at the same host
    assert search.next() == ("a", 4)
    assert search.ends(ErrorReply("ASK 3 b:2"))
    search = nodes.search()
    assert search.next() == ("a", 4), "the node of the last time comes first"
    assert not search.ends(ErrorReply("CLUSTERDOWN The cluster is down"))
    assert search.next() == ("a", 1)
    assert search.ends(ErrorReply("NOPERM no permissions"))
    with pytest.raises(Refused):
        nodes.search().ends(Refused("WRONGPASS"))


def test_urls_of_shards() -> None:
    url = "rediss+cluster://me:p%2Fw@one:7000,two?shards=2&ssl_ca_certs=a.crt"
    made = expand(url)
    assert made == {
        "s0": "rediss+cluster://me:p%2Fw@one:7000,two/s0?ssl_ca_certs=a.crt",
        "s1": "rediss+cluster://me:p%2Fw@one:7000,two/s1?ssl_ca_certs=a.crt",
    }
    assert App(shards=url).redis == made
    assert keys_at(made["s1"], "app:").queues == "{s1}:app:queues"
    assert keys_at("redis://one/0", "app:").queues == "app:queues"
    for wrong, why in (
        ("redis+cluster://one", "a number of shards"),
        ("redis+cluster://one?shards=0", "a number of shards"),
        ("redis+cluster://one/s0?shards=2", "leave one of both out"),
    ):
        with pytest.raises(ConfigError, match=why):
            App(shards=wrong)
