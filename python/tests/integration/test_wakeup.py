"""jobwire.worker.fetch.wakeup: an idle worker notices a push at once and does not poll."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from harness.servers import Server, wait_until
from jobwire.connection.watch import Watch
from jobwire.errors import RedisRefused
from jobwire.worker.fetch.wakeup import Wakeup

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
        wait(keys, 0.1)
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
    waiting = Waiting(wakeup, any_server, ["queue:a"], TOO_LONG)
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
