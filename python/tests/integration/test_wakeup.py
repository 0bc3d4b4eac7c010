"""jobwire.worker.fetch.wakeup: an idle worker notices a push at once and does not poll."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest

from harness.servers import Server, wait_until
from jobwire import App
from jobwire.connection.sync import SyncRedis
from jobwire.connection.watch import Watch
from jobwire.errors import RedisRefused
from jobwire.protocol.keys import Keys
from jobwire.protocol.wire import Command
from jobwire.worker.base.timings import DEFAULT_TIMINGS
from jobwire.worker.fetch.doorbell import PLACES, Doorbell, group_of
from jobwire.worker.fetch.wakeup import Wakeup
from tests.workers import Gate, brisk, running

KEYS = Keys()

FAR_LONGER = 60.0  # seconds: more than any step takes on a busy machine
TOO_LONG = 120.0  # seconds: a wait that ends only with its time fails its test


@pytest.fixture
def stop() -> threading.Event:
    return threading.Event()


@pytest.fixture
def wakeup(any_server: Server, stop: threading.Event) -> Iterator[Wakeup]:
    wakeup = Wakeup(any_server.url, stop)
    yield wakeup
    wakeup.close()


class Waiting:
    """A wait for empty lists in a thread of its own.

    The constructor returns after the server has answered the question that the wait begins with:
    from then on every push to one of the lists sends a notice.
    """

    def __init__(self, wakeup: Wakeup, server: Server, keys: list[str], timeout: float) -> None:
        client = server.client()
        before = asked(client)
        self.noticed = 0
        self._thread = threading.Thread(
            target=wakeup.wait,
            args=(keys, timeout),
            kwargs={"noticed": self._notice},
            daemon=True,
        )
        self._thread.start()
        wait_until(lambda: asked(client) > before)

    def end(self) -> None:
        """Wait for the end of the wait, with far more time than it needs."""
        self._thread.join(FAR_LONGER)
        assert not self._thread.is_alive(), f"no wake-up within {FAR_LONGER} s"

    def _notice(self) -> None:
        self.noticed += 1

    @property
    def waits(self) -> bool:
        return self._thread.is_alive()


def nothing() -> None:
    pass


def asked(client: Any) -> int:
    """Return the number of EXISTS that the server has answered; tests send none directly."""
    return int(client.info("commandstats").get("cmdstat_exists", {"calls": 0})["calls"])


def test_a_push_to_any_of_the_lists_ends_the_wait(any_server: Server, wakeup: Wakeup) -> None:
    """REL-1: without taking the job, also for a list that did not exist; again and again."""
    client = any_server.client()
    for name in ("a", "b", "a", "c"):
        waiting = Waiting(wakeup, any_server, ["queue:a", "queue:b", "queue:c"], TOO_LONG)
        assert waiting.waits
        client.lpush(f"queue:{name}", "x")
        waiting.end()
        assert waiting.noticed == 1
        assert client.llen(f"queue:{name}") == 1
        client.delete(f"queue:{name}")


def test_a_change_of_another_key_ends_it(any_server: Server, wakeup: Wakeup) -> None:
    """REL-9: a paused queue continues; the worker waits with any value of the key."""
    client = any_server.client()
    client.sadd("jobwire:paused", "a")
    client.lpush("queue:a", "x")

    def wait(keys: list[str], timeout: float) -> None:
        wakeup.wait(keys, timeout, noticed=nothing, changes=["jobwire:paused"])

    for keys in (["queue:b"], []):
        began = time.monotonic()
        wait(keys, TOO_LONG)  # ends at once: the key was not read since it is watched
        assert time.monotonic() - began < FAR_LONGER
        thread = threading.Thread(target=wait, args=(keys, TOO_LONG), daemon=True)
        before = asked(client)
        thread.start()
        wait_until(partial(lambda before: asked(client) > before, before))
        assert thread.is_alive()
        client.srem("jobwire:paused", "elsewhere", "a")
        thread.join(FAR_LONGER)
        assert not thread.is_alive()
        client.sadd("jobwire:paused", "a")


def test_no_notice_is_lost_among_the_answers(any_server: Server, stop: threading.Event) -> None:
    """REL-9 and SCHED-11: keys changed before the answers, and keys changed after them."""
    client = any_server.client()
    watch = Watch(any_server.url, stop, stop_check_interval=0.25)
    assert watch.ask([("EXISTS", "a"), ("GET", "b")]) == [0, None]
    watch.wait(0.05)
    assert (watch.missed, watch.noticed) == (set(), set())
    client.set("a", 1)
    client.set("b", 2)
    client.set("c", 3)
    watch.wait(FAR_LONGER)
    assert watch.noticed == {b"a"}
    assert watch.ask([("EXISTS", "a"), ("GET", "b")]) == [1, b"2"]
    assert (watch.missed, watch.noticed) == ({b"b"}, set())
    watch.ask([("EXISTS", "a"), ("GET", "b")])
    client.flushall()
    watch.wait(FAR_LONGER)
    assert {b"a", b"b"} <= watch.noticed
    client.set("a", 1)
    with pytest.raises(RedisRefused, match="WRONGTYPE"):
        watch.ask([("LLEN", "a"), ("EXISTS", "b")])
    assert watch.ask([("EXISTS", "a"), ("ZRANGE", "z", 0, -1, "WITHSCORES")]) == [1, []]
    watch.close()


def test_jobs_that_are_there_already_end_it_at_once(any_server: Server, wakeup: Wakeup) -> None:
    """REL-1: no push is lost between a fetch that found nothing and the wait."""
    any_server.client().lpush("queue:b", "x")
    began = time.monotonic()
    wakeup.wait(["queue:a", "queue:b"], TOO_LONG, noticed=nothing)
    assert time.monotonic() - began < FAR_LONGER


def test_it_ends_after_its_time_and_when_told_to(
    any_server: Server, wakeup: Wakeup, stop: threading.Event
) -> None:
    """FETCH-5: a quiet worker does not wait for the next job."""
    began = time.monotonic()
    wakeup.wait(["queue:a"], 0.1, noticed=nothing)
    assert 0.09 < time.monotonic() - began < FAR_LONGER
    waiting = Waiting(wakeup, any_server, ["queue:b"], TOO_LONG)
    stop.set()
    waiting.end()


def test_a_lost_connection_ends_it_and_the_next_wait_has_another(
    any_server: Server, wakeup: Wakeup
) -> None:
    """ENV-5: the connection is not used again."""
    client = any_server.client()
    waiting = Waiting(wakeup, any_server, ["queue:a"], TOO_LONG)
    client.client_kill_filter(_type="normal", skipme=True)
    waiting.end()
    again = Waiting(wakeup, any_server, ["queue:a"], TOO_LONG)
    client.lpush("queue:a", "x")
    again.end()
    assert again.noticed == 1


def test_without_tracking_it_polls(any_server: Server, stop: threading.Event) -> None:
    """ENV-9: proxies and ACLs may forbid tracking; the wait is short then, without commands."""
    client = any_server.client()
    client.acl_setuser(
        "app", enabled=True, nopass=True, keys=["*"], commands=["+@all", "-client|tracking"]
    )
    url = any_server.url.replace("redis://", "redis://app:x@")
    wakeup = Wakeup(url, stop)
    began = time.monotonic()
    for _ in range(3):
        wakeup.wait(["queue:a"], TOO_LONG, noticed=nothing)
    assert time.monotonic() - began < FAR_LONGER
    assert asked(client) == 0
    wakeup.close()


GROUP = group_of(["default"])
PLACE_KEYS = [KEYS.idle(GROUP, place) for place in PLACES]
RINGS = KEYS.idle(GROUP, "bell")


class Crowd:
    """Idle workers of one queue, each with a thread that waits once and reports."""

    def __init__(self, server: Server, count: int) -> None:
        self._server = server
        self.client = server.client()
        self.stops = [threading.Event() for _ in range(count)]
        self.wakeups = [Wakeup(server.url, stop, brisk()) for stop in self.stops]
        self.woken: list[int] = []
        self._threads: dict[int, threading.Thread] = {}
        for number in range(count):
            self.wait(number)

    def wait(self, number: int, *, busy: bool = False) -> None:
        """Have one of them wait; if not busy, until it is a guard or waits at the doorbell."""
        blocked, looks = self.blocked, asked(self.client)
        self._threads[number] = threading.Thread(
            target=self._wait, args=(number, busy), daemon=True
        )
        self._threads[number].start()
        # The look for dead guards, before a wait at the doorbell, is also an EXISTS.
        wait_until(
            lambda: (
                busy
                or self.blocked > blocked
                or (number in self.guards and asked(self.client) > looks)
            )
        )

    def leave(self, number: int) -> list[Command]:
        """End the wait of one, as a stop does: its connection belongs to the thread that waits."""
        self.stops[number].set()
        self._threads[number].join(FAR_LONGER)
        return self.wakeups[number].leave()

    def _wait(self, number: int, busy: bool) -> None:
        bell = Doorbell(KEYS, f"worker-{number}", GROUP)
        self.client.hset(f"worker-{number}", "info", "{}")
        wake = partial(self.woken.append, number)
        self.wakeups[number].wait(["queue:default"], TOO_LONG, noticed=wake, bell=bell, busy=busy)

    @property
    def blocked(self) -> int:
        return int(self.client.info("clients")["blocked_clients"])

    @property
    def guards(self) -> list[int]:
        owners: Any = self.client.mget(PLACE_KEYS)
        return sorted(int(name.decode().partition("-")[2]) for name in owners if name)

    def close(self) -> None:
        for stop in self.stops:
            stop.set()
        for number in range(len(self.wakeups)):
            self.leave(number)


@pytest.fixture
def crowd(any_server: Server) -> Iterator[Crowd]:
    crowd = Crowd(any_server, 6)
    yield crowd
    crowd.close()


def test_a_push_wakes_the_guards_only(crowd: Crowd) -> None:
    """REL-30: two of six watch; the others wait at the doorbell."""
    assert crowd.guards == [0, 1]
    assert crowd.blocked == 4
    crowd.client.lpush("queue:default", "x")
    wait_until(lambda: sorted(crowd.woken) == [0, 1])
    assert crowd.blocked == 4


def test_a_guard_that_is_full_wakes_those_that_wait_longest(crowd: Crowd) -> None:
    """REL-30: one for its only job, two for more, and two more by each of these."""
    crowd.client.lpush("queue:default", "x")
    wait_until(lambda: sorted(crowd.woken) == [0, 1])
    crowd.client.delete("queue:default")
    crowd.wakeups[0].fetched(1, wanted=2, free=2)  # has a free thread left
    crowd.wakeups[0].fetched(1, wanted=1, free=1)
    wait_until(lambda: crowd.woken[2:] == [2])
    assert crowd.guards == [1]
    crowd.wakeups[2].fetched(1, wanted=1, free=1)
    wait_until(lambda: sorted(crowd.woken[3:]) == [3, 4])
    crowd.wakeups[3].fetched(0, wanted=1, free=1)
    crowd.wait(3)
    assert crowd.guards == [1, 3]
    assert crowd.blocked == 1


def test_a_busy_guard_gives_its_place_to_one_that_waits(crowd: Crowd) -> None:
    """REL-30: the place is handed over in one step, and stays if no process waits."""
    crowd.client.lpush("queue:default", "x")
    wait_until(lambda: sorted(crowd.woken) == [0, 1])
    crowd.client.delete("queue:default")
    crowd.wait(0, busy=True)
    wait_until(lambda: crowd.guards == [1, 2])
    wait_until(lambda: crowd.blocked == 4)
    assert not crowd.client.exists(RINGS)
    alone = Wakeup(crowd._server.url, threading.Event(), brisk())
    bell = Doorbell(KEYS, "worker-9", group_of(["other"]))
    for _ in range(2):
        alone.wait(["queue:other"], 0.05, noticed=nothing, bell=bell, busy=False)
    alone.wait(["queue:other"], 0.05, noticed=nothing, bell=bell, busy=True)
    assert crowd.client.get(KEYS.idle(bell.group, "0")) == b"worker-9"
    assert not crowd.client.exists(bell.key)
    alone.leave()


def test_a_guard_that_leaves_frees_its_place(crowd: Crowd) -> None:
    """REL-30: a stop in order; and rings that no process waits for do not grow in number."""
    for step in crowd.leave(1):
        crowd.client.execute_command(*step.args)
    wait_until(lambda: crowd.woken == [2])
    crowd.client.lpush("queue:default", "x")
    wait_until(lambda: sorted(crowd.woken) == [0, 2])
    bell = Doorbell(KEYS, "worker-9", group_of(["other"]))
    for _ in range(3):
        for step in bell.ring(2, None):
            crowd.client.execute_command(*step.args)
    assert crowd.client.lrange(bell.key, 0, -1) == [b"-", b"-"]
    assert 0 < crowd.client.ttl(bell.key) <= 15


def test_a_place_of_another_process_is_not_kept(any_server: Server, stop: threading.Event) -> None:
    """REL-30: after a loss of the keys, or of the time that the server gives it."""
    client = any_server.client()
    wakeup = Wakeup(any_server.url, stop, brisk())
    bell = Doorbell(KEYS, "me", GROUP)
    wait = partial(wakeup.wait, ["queue:default"], 0.05, noticed=nothing, bell=bell)
    wait()
    assert client.mget(PLACE_KEYS) == [b"me", None]
    client.set(PLACE_KEYS[0], "another", ex=30)
    client.hset("another", "info", "{}")
    wakeup.close()  # a lost connection: whether the place is still its own is not known
    wait()
    assert client.mget(PLACE_KEYS) == [b"another", b"me"]
    client.flushall()
    wakeup.close()
    wait()
    assert client.mget(PLACE_KEYS) == [b"me", None]
    wakeup.leave()


def test_a_change_is_not_lost_while_a_place_is_renewed(
    any_server: Server, stop: threading.Event
) -> None:
    """REL-9 and REL-30: a notice between two waits comes with another reply."""
    client = any_server.client()
    wakeup = Wakeup(any_server.url, stop, brisk())
    bell = Doorbell(KEYS, "me", GROUP)
    keys = ["queue:default"]
    wait = partial(wakeup.wait, keys, noticed=nothing, changes=["jobwire:paused"], bell=bell)
    wait(0.05)
    wait(0.05)
    client.sadd("jobwire:paused", "a")
    began = time.monotonic()
    wait(TOO_LONG, busy=True)  # also claims a place before it asks for the lists
    assert time.monotonic() - began < FAR_LONGER
    wakeup.leave()


def test_without_the_doorbell_it_watches(any_server: Server, stop: threading.Event) -> None:
    """ENV-9 and REL-30: rules of an ACL from before the doorbell, or a key of another type."""
    client = any_server.client()
    client.acl_setuser("app", enabled=True, nopass=True, keys=["*"], commands=["+@all", "-brpop"])
    for place in PLACE_KEYS:
        client.set(place, "others", ex=30)
    wakeup = Wakeup(any_server.url.replace("redis://", "redis://app:x@"), stop, brisk())
    bell = Doorbell(KEYS, "me", GROUP)
    thread = threading.Thread(
        target=lambda: wakeup.wait(["queue:default"], TOO_LONG, noticed=nothing, bell=bell),
        daemon=True,
    )
    thread.start()
    wait_until(lambda: asked(client) > 0)
    client.lpush("queue:default", "x")
    thread.join(FAR_LONGER)
    assert not thread.is_alive()  # by a notice, or because it saw the job when it asked again
    wakeup.leave()


@pytest.mark.process
def test_jobs_spread_over_idle_workers(any_server: Server) -> None:
    """REL-30: while one process runs a job, others are the guards."""
    gates: dict[bytes, Gate] = {}
    client = any_server.client()

    def idle_guards() -> bool:
        guards = set(client.mget(PLACE_KEYS))
        return len(guards) == 2 and all(
            name in gates and not gates[name].entered for name in guards
        )

    with ExitStack() as stack:
        for _ in range(5):
            gate = Gate()
            worker = stack.enter_context(running(gate.app, any_server, concurrency=4))
            stack.callback(gate.open.set)
            gates[worker.identity.encode()] = gate
        for number in range(4):
            wait_until(idle_guards)
            push(client, number)
            wait_until(lambda: sum(len(gate.entered) for gate in gates.values()) > number)  # noqa: B023
        assert sorted(len(gate.entered) for gate in gates.values()) == [0, 1, 1, 1, 1]


@pytest.mark.process
def test_no_push_is_lost_among_idle_workers(any_server: Server) -> None:
    """REL-30: pushes at any moment of a wait; each job starts long before the safety net."""
    app = App()
    ran: list[int] = []
    app.job(name="Take")(ran.append)
    client = any_server.client()
    slowest = 0.0
    with ExitStack() as stack:
        for concurrency in (1, 1, 2, 1):
            stack.enter_context(running(app, any_server, concurrency=concurrency))
        for number in range(400):
            began = time.monotonic()
            push(client, number)
            wait_until(partial(lambda n: len(ran) > n, number))
            slowest = max(slowest, time.monotonic() - began)
            time.sleep(random.random() * 0.003)
    assert sorted(ran) == list(range(400))
    assert slowest < DEFAULT_TIMINGS.fetch_safety_interval / 2


def test_workers_with_dead_guards_take_jobs_at_their_next_look(any_server: Server) -> None:
    """REL-30: the guards were killed; workers of other queues do not watch these."""
    gate = Gate()
    gate.open.set()
    client = any_server.client()
    client.hset("dead", "info", "{}")  # its lease is not over yet
    for place in PLACE_KEYS:
        client.set(place, "dead", ex=30)
    with (
        running(gate.app, any_server, timings=brisk(fetch_safety_interval=1.0)),
        running(gate.app, any_server, queues={"other": 0}),
    ):
        wait_until(lambda: client.info("clients")["blocked_clients"] == 1)
        wait_until(lambda: client.exists(KEYS.idle(group_of(["other"]), "0")))
        push(client, 1)
        wait_until(lambda: gate.entered == [1])


def test_a_new_worker_takes_the_place_of_a_dead_guard(
    any_server: Server, stop: threading.Event
) -> None:
    """REL-30: after two crashes in half a minute, no push waits for the end of a place."""
    client = any_server.client()
    client.hset("lives", "info", "{}")
    client.mset(dict(zip(PLACE_KEYS, ("lives", "dead"), strict=True)))
    wakeup = Wakeup(any_server.url, stop, brisk())
    bell = Doorbell(KEYS, "me", GROUP)
    wakeup.wait(["queue:default"], 0.05, noticed=nothing, bell=bell)
    assert client.mget(PLACE_KEYS) == [b"lives", b"me"]
    wakeup.leave()


def test_a_wait_without_a_ring_is_followed_by_one_message(
    any_server: Server, stop: threading.Event
) -> None:
    """REL-30: it claims a place, looks for jobs and waits again; with a place it watches."""
    client = any_server.client()
    client.mset(dict.fromkeys(PLACE_KEYS, "another"))
    wakeup = Wakeup(any_server.url, stop, brisk())
    wakeup._young_until = 0.0
    bell = Doorbell(KEYS, "me", GROUP)
    wait = partial(wakeup.wait, ["queue:default"], noticed=nothing, bell=bell)
    wait(0.05)
    sent = messages(client)
    for _ in range(3):
        assert not wait(0.05)
    assert messages(client) == sent + 3 + 1  # and the question itself
    client.unlink(*PLACE_KEYS)
    assert not wait(0.2)
    assert client.mget(PLACE_KEYS) == [b"me", None]
    sent = messages(client)
    for _ in range(3):
        assert not wait(0.05)
    assert messages(client) == sent + 1  # notices still come
    client.lpush(RINGS, "-")
    client.lpush("queue:default", "x")
    assert wait(TOO_LONG)
    assert client.llen(RINGS) == 1  # the wait that it gave up took no ring
    wakeup.leave()


@pytest.mark.parametrize("lost", ["place", "notice"])
def test_a_look_with_a_heartbeat_ends_the_wait(
    any_server: Server, stop: threading.Event, lost: str
) -> None:
    """REL-30: a guard does nothing itself while heartbeats look for it and renew its place."""
    client, redis = any_server.client(), SyncRedis(any_server.url)
    wakeup = Wakeup(any_server.url, stop, brisk())
    bell = Doorbell(KEYS, "me", GROUP)
    noticed = threading.Event()
    wait = partial(wakeup.wait, ["queue:default"], noticed=noticed.set, bell=bell)
    redis.run(wakeup.look())  # nothing waits yet
    thread = threading.Thread(target=wait, args=(TOO_LONG,), daemon=True)
    thread.start()
    wait_until(lambda: wakeup._armed)
    client.expire(PLACE_KEYS[0], 5)
    sent = messages(client)
    redis.run(wakeup.look())
    assert client.ttl(PLACE_KEYS[0]) > 5
    assert thread.is_alive()
    assert messages(client) == sent + 4  # the look, and the questions of this test
    if lost == "place":
        client.set(PLACE_KEYS[0], "another")
    else:
        wakeup._armed = (("queue:unwatched",), ())
        client.lpush("queue:unwatched", "x")
    redis.run(wakeup.look())
    assert noticed.wait(FAR_LONGER)
    thread.join(FAR_LONGER)
    assert not wait(0.05)
    owned = [client.get(key) for key in PLACE_KEYS]
    assert owned == ([b"another", b"me"] if lost == "place" else [b"me", None])
    wakeup.leave()
    redis.close()


def messages(client: Any) -> int:
    return int(client.info("stats")["total_reads_processed"])


def push(client: Any, number: int) -> None:
    client.lpush("queue:default", f'{{"class":"Take","args":[{number}],"jid":"{number:024}"}}')
