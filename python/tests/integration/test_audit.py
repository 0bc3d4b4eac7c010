"""Jobs that a living process does not know of, and owners of private hashes. [REL-8]"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, Self

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.servers import Server, wait_until
from jobwire import App, RedisRefused
from jobwire.connection.resources import script
from jobwire.inspect import Inspector
from jobwire.protocol.keys import Keys
from jobwire.protocol.server import parse_info
from jobwire.worker.background.audit import Known, Suspects, gather
from tests.server_fixtures import ServerFactory
from tests.workers import brisk, running

JOBS = 5
OFTEN = brisk(heartbeat_interval=0.3)


class Gate:
    """Jobs that run until the gate opens; then `Fail` fails and `Fine` ends."""

    def __init__(self) -> None:
        self.app = App()
        self.entered: list[str] = []
        self.open = threading.Event()
        self.app.job(name="Fail")(self._fail)
        self.app.job(name="Fine")(lambda: self._wait("Fine"))

    def _wait(self, name: str) -> None:
        self.entered.append(name)
        while not self.open.wait(0.01):
            pass

    def _fail(self) -> None:
        self._wait("Fail")
        raise ValueError


class Contents:
    """As text, the contents of a server at the moment when the text is made.

    Args:
        server: The server.
        about: Objects to show as well.
    """

    def __init__(self, server: Server, *about: object) -> None:
        self._server = server
        self._about = about

    def __str__(self) -> str:
        client: Any = self._server.client()
        readers = {
            b"hash": client.hgetall,
            b"list": lambda key: client.lrange(key, 0, -1),
            b"set": client.smembers,
            b"string": client.get,
            b"zset": lambda key: client.zrange(key, 0, -1, withscores=True),
        }
        found = {key: readers[client.type(key)](key) for key in client.keys("*")}
        return f"{found}, {[repr(each) for each in self._about]}, {client.client_list()}"


def push(server: Server, *names: str) -> None:
    texts = [f'{{"class":"{name}","args":[],"retry":true,"n":{n}}}' for n, name in enumerate(names)]
    server.client().lpush("queue:default", *texts)


def forget_by_snapshot(primary: Server, _: Server) -> Callable[[], None]:
    """Save; return a function that restarts the server with the saved data."""
    primary.client().save()

    def forget() -> None:
        primary.kill()
        primary.start()

    return forget


def forget_by_promotion(primary: Server, replica: Server) -> Callable[[], None]:
    """Promote a replica, which gets no more writes; return a function that gives it the address."""
    promoted: Any = replica.client()
    promoted.replicaof("127.0.0.1", primary.port)
    wait_until(lambda: promoted.exists("processes") and primary.client().wait(1, 100))
    promoted.replicaof("NO", "ONE")
    promoted.save()

    def forget() -> None:
        primary.kill()
        replica.kill()
        replica.port = primary.port
        replica.start()

    return forget


@pytest.mark.parametrize(
    "lapse",
    [forget_by_snapshot, pytest.param(forget_by_promotion, marks=pytest.mark.process)],
)
def test_outcomes_that_the_server_forgets(
    server_factory: ServerFactory,
    lapse: Callable[[Server, Server], Callable[[], None]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """REL-8: acknowledged, then lost by a restart or a failover: the jobs run again."""
    server, replica = server_factory(), server_factory()
    gate = Gate()
    with running(gate.app, server, concurrency=JOBS + 1, timings=OFTEN) as worker:
        push(server, *["Fail"] * JOBS, "Fine")
        wait_until(lambda: len(gate.entered) == JOBS + 1)
        wait_until(lambda: server.client().hlen(f"jobwire:private:{worker.identity}") == JOBS + 1)
        forget = lapse(server, replica)
        gate.open.set()
        wait_until(lambda: server.client().zcard("retry") == JOBS)
        wait_until(lambda: server.client().get("stat:processed") == b"%d" % (JOBS + 1))
        gate.entered.clear()
        forget()
        wait_until(lambda: sorted(gate.entered) == ["Fail"] * JOBS + ["Fine"])
        client = (replica if lapse is forget_by_promotion else server).client()
        wait_until(lambda: client.zcard("retry") == JOBS)
        wait_until(lambda: not client.exists(f"jobwire:private:{worker.identity}"))
    assert not client.exists("queue:default", "jobwire:returned")
    warnings = [r.getMessage() for r in caplog.records if "unknown to every thread" in r.message]
    assert f"put back {JOBS + 1} of {JOBS + 1} jobs" in " ".join(warnings)


class Relay:
    """A way to the server that can hold a fetch, also after the client has closed.

    Attributes:
        holds: Set to hold the next message with a fetch.
        held: Set when it is held.
        release: Set to send it at last.
    """

    def __init__(self, server: Server) -> None:
        self.holds, self.held, self.release = (threading.Event() for _ in range(3))
        self._server = server
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"redis://127.0.0.1:{self._listener.getsockname()[1]}/0"
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client = self._listener.accept()[0]
                server = socket.create_connection(("127.0.0.1", self._server.port))
                for ends in ((client, server), (server, client)):
                    threading.Thread(target=self._pump, args=ends, daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        # With its command, because the reply to SCRIPT LOAD has the digest as well.
        fetch = b"EVALSHA\r\n$40\r\n" + script("fetch").sha.encode()
        with source, suppress(OSError):
            while data := source.recv(1 << 16):
                if self.holds.is_set() and fetch in data:
                    self.holds.clear()
                    self.held.set()
                    self.release.wait(120)
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)


def test_a_fetch_that_arrives_after_the_search_for_it_has_ended(server: Server) -> None:
    """REL-8: something on the way held it for longer than a lease, and the beats took others."""
    gate = Gate()
    gate.app.job(name="First")(lambda: gate.entered.append("First"))
    timings = brisk(
        heartbeat_interval=0.3, redis_timeout=0.5, reclaim_interval=0.05, reclaim_for=0.2
    )
    client: Any = server.client()
    with Relay(server) as way:
        place: Any = SimpleNamespace(url=way.url)
        with running(gate.app, place, concurrency=1, timings=timings) as worker:
            fetches: Any = worker._capsules[0]._source
            way.holds.set()
            push(server, "First")
            assert way.held.wait(60)
            wait_until(lambda: gate.entered == ["First"])
            # Its numbers are open until its reply counts as lost.
            wait_until(lambda: not fetches.open_numbers())
            wait_until(lambda: not fetches._in_flight.any_unanswered)
            push(server, "Fine")
            wait_until(lambda: gate.entered == ["First", "Fine"])
            # The only slot is in use. A fetch ahead may take some jobs, and returns them.
            push(server, *["Fine"] * 20)
            way.release.set()
            # The late fetch takes one, and the audit returns it.
            state = Contents(server, fetches._in_flight.__dict__, way.__dict__)
            wait_until(lambda: client.hlen("jobwire:returned") == 1, 60, state)
            gate.open.set()
            wait_until(lambda: gate.entered == ["First", *["Fine"] * 21])
            wait_until(lambda: not client.exists(f"jobwire:private:{worker.identity}"))
    assert client.get("stat:processed") == b"22"


def test_tasks_that_are_cancelled_before_their_first_step(server: Server) -> None:
    """REL-8: such a task runs nothing of ours, so it stores no outcome."""
    app = App()
    ran: set[int] = set()
    cancelled = threading.Event()

    @app.job(name="Cancel")
    async def cancel(number: int) -> None:
        if not cancelled.is_set():
            cancelled.set()
            for task in asyncio.all_tasks():
                task.cancel()
        ran.add(number)

    texts = [f'{{"class":"Cancel","args":[{n}],"retry":true,"retry_for":1}}' for n in range(60)]
    client: Any = server.client()
    client.lpush("queue:default", *texts)
    with running(app, server, concurrency=20, timings=OFTEN) as worker:
        wait_until(lambda: len(ran) + client.zcard("retry") >= 60)
        wait_until(lambda: not client.exists(f"jobwire:private:{worker.identity}"))
    assert client.llen("queue:default") == 0


def test_nothing_is_put_back_while_all_is_well(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """REL-8: threads, tasks, prefetched jobs and outcomes under way, looked at all the time."""
    app = App()
    ran: list[int] = []
    app.job(name="Sync")(ran.append)

    @app.job(name="Async")
    async def task(number: int) -> None:
        await asyncio.sleep(0)
        ran.append(number)

    texts = [
        f'{{"class":"{("Sync", "Async")[n % 3 == 0]}","args":[{n}],"retry":true}}'
        for n in range(6_000)
    ]
    timings = brisk(heartbeat_interval=0.01)
    with running(app, server, concurrency=8, timings=timings):
        for start in range(0, 6_000, 200):
            server.client().lpush("queue:default", *texts[start : start + 200])
        wait_until(lambda: len(ran) >= 6_000)
        wait_until(lambda: server.client().get("stat:processed") == b"6000")
    assert sorted(ran) == list(range(6_000))
    assert not server.client().exists("jobwire:returned", "jobwire:stat:lost")
    assert caplog.records == []


fields = st.builds("{}:{}".format, st.integers(1, 12), st.sampled_from(["a", "b:c"]))
spans = st.builds(lambda first, count: range(first, first + count), st.integers(1, 12), st.just(2))
knowns = st.builds(Known, st.lists(spans, max_size=2), st.sets(fields, max_size=6))


@given(st.lists(st.tuples(st.sets(fields, max_size=8), knowns), max_size=6))
def test_a_field_goes_back_if_two_looks_in_a_row_do_not_know_it(
    looks: list[tuple[set[str], Known]],
) -> None:
    """REL-8: never after one look, and never a job of which the process knows."""
    suspects = Suspects()
    before: set[str] = set()
    for held, known in looks:
        numbers = {number for span in known.numbers for number in span}
        unknown = {
            field
            for field in held
            if field not in known.fields and int(field.partition(":")[0]) not in numbers
        }
        assert set(suspects.look(held, known)) == unknown & before
        before = unknown


class Path:
    """The places of jobs: fetch, buffer, threads, outbox. Jobs move on before each is read."""

    def __init__(self, moves: list[list[int]]) -> None:
        self.places: list[list[int]] = [[1, 2, 3], [4, 5], [6, 7], [8, 9]]
        self._moves = iter(moves)
        self.open_numbers = lambda: [range(n, n + 1) for n in self.read(0)]
        self.waiting = lambda: self.fields(1)
        self.taken = lambda: self.fields(2)
        self.outbox: Any = SimpleNamespace(fields=lambda: self.fields(3))

    def read(self, place: int) -> list[int]:
        for source in next(self._moves):
            if self.places[source]:
                number = self.places[source].pop(0)
                if source < 3:  # else it is stored
                    self.places[source + 1].append(number)
        return list(self.places[place])

    def fields(self, place: int) -> list[str]:
        return [f"{number}:a" for number in self.read(place)]


@given(st.lists(st.lists(st.integers(0, 3), max_size=9), min_size=5, max_size=5))
def test_a_job_that_moves_on_is_seen(moves: list[list[int]]) -> None:
    """REL-8: the places are read in the order in which jobs move."""
    path: Any = Path(moves)
    known = gather([path], path.taken, path.outbox)
    path.read(0)
    assert all(f"{number}:a" in known for place in path.places for number in place)


OFTEN_ENOUGH = brisk(heartbeat_interval=0.1)


def orphan(client: Any, identity: str, *, named: bool = True) -> None:
    """Leave a job of a dead process."""
    client.hset(f"jobwire:private:{identity}", "1:lost", '{"class":"A","args":[],"jid":"j"}')
    if named:
        client.sadd("jobwire:owners", identity)


def test_jobs_of_an_owner_without_a_name(server: Server) -> None:
    """REL-18: inspection shows them, and a worker that starts puts them back."""
    client = server.client()
    orphan(client, "h:1:x", named=False)
    with Inspector(server.url) as inspector:
        (holder,) = inspector.holdings()
    assert (holder.identity, holder.alive, holder.size) == ("h:1:x", False, 1)
    with running(App(), server):
        wait_until(lambda: client.llen("queue:lost") == 1)
    assert client.smembers("queues") == {b"lost"}


@pytest.mark.parametrize("key", ["processes", "jobwire:owners"])
def test_a_worker_does_not_start_with_a_key_of_another_type(server: Server, key: str) -> None:
    """REL-26, BEAT-1: the error names the key."""
    server.client().set(key, "in the way")
    problem = f"{key} is a string, not a set: delete or rename it"
    with pytest.raises(RedisRefused, match=problem), running(App(), server):
        pass


def test_recovery_goes_on_while_other_duties_fail(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """REL-17: without the set of processes, and with callbacks and statistics that fail."""
    client = server.client()
    app = App()
    with running(app, server, timings=OFTEN_ENOUGH) as worker:
        client.delete("processes")
        client.set("processes", "in the way")
        client.set("process_cleanup", "free")
        orphan(client, "h:1:x")
        wait_until(lambda: client.llen("queue:lost") == 1)
        wait_until(lambda: "processes is a string, not a set: delete or rename it" in caplog.text)
        assert client.ttl(worker.identity) > 50  # the lease is renewed
        client.delete("processes", "process_cleanup")
        wait_until(lambda: client.exists("processes"))
    assert "bug" not in caplog.text


def test_jobs_of_the_living_stay_after_an_outage(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """REL-17: a worker whose own lease ended does not recover the jobs of others at once."""
    client: Any = server.client()
    with running(App(), server, fetch="reliable", timings=OFTEN_ENOUGH) as worker:
        client.delete(worker.identity)
        wait_until(lambda: "the lease of this process had ended" in caplog.text)
        orphan(client, "b:2:0123456789ab")
        beats = {client.hget(worker.identity, "beat")}
        wait_until(lambda: len(beats | {client.hget(worker.identity, "beat")}) > len(beats))
        beats.add(client.hget(worker.identity, "beat"))
        wait_until(lambda: len(beats | {client.hget(worker.identity, "beat")}) > len(beats))
        assert client.hlen("jobwire:private:b:2:0123456789ab") == 1
        worker._heartbeat._leases_count_from = 0.0  # as after a lease
        wait_until(lambda: client.hlen("jobwire:private:b:2:0123456789ab") == 0)


@pytest.mark.parametrize(
    ("uptime", "loaded", "restored"), [(5, 3, True), (5, 0, False), (99, 3, False)]
)
def test_a_server_that_has_loaded_keys(uptime: int, loaded: int, restored: bool) -> None:
    """REL-17: leases in them may have ended while it was away; an empty server has none."""
    fields = {"uptime_in_seconds": str(uptime), "rdb_last_load_keys_loaded": str(loaded)}
    assert parse_info(fields, Keys()).restored == restored
