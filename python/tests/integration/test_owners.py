"""Owners of private hashes: they stay known although operators and other programs make mistakes."""

from __future__ import annotations

from typing import Any

import pytest

from harness.servers import Server, wait_until
from jobwire import App, RedisRefused
from jobwire.inspect import Inspector
from jobwire.protocol.keys import Keys
from jobwire.protocol.server import parse_info
from tests.workers import brisk, running

OFTEN = brisk(heartbeat_interval=0.1)


def orphan(client: Any, identity: str, *, named: bool = True) -> None:
    """Leave a job of a dead process."""
    client.hset(f"jobwire:private:{identity}", "1:lost", '{"class":"A","args":[],"jid":"j"}')
    if named:
        client.sadd("jobwire:owners", identity)


def test_each_beat_names_the_owner(server: Server) -> None:
    """REL-5: also one that has taken nothing since the set was deleted."""
    client = server.client()
    with running(App(), server, timings=OFTEN) as worker:
        client.delete("jobwire:owners")
        wait_until(lambda: client.smembers("jobwire:owners") == {worker.identity.encode()})
    assert not client.exists("jobwire:owners")
    with running(App(), server, timings=OFTEN, fetch="basic") as worker:
        beat = client.hget(worker.identity, "beat")
        wait_until(lambda: client.hget(worker.identity, "beat") != beat)
    assert not client.exists("jobwire:owners")


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
    with running(app, server, timings=OFTEN) as worker:
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
    with running(App(), server, fetch="reliable", timings=OFTEN) as worker:
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
