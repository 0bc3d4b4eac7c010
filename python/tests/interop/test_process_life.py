"""The end of a real Sidekiq process, its signals through Redis, and its pruning."""

from __future__ import annotations

import json
import signal

import pytest
import redis

from harness.servers import wait_until
from tests.interop.commands import commands
from tests.interop.driver import Driver, RubyError
from tests.interop.sidekiq import RealSidekiq, open_gate, results, started

pytestmark = pytest.mark.interop

BEAT = 30.0  # seconds in which two heartbeats come

EMBED = """
  $embedded = Sidekiq.configure_embed { |config| config.concurrency = 1 }
  $embedded.run
  Sidekiq::ProcessSet.new.map { |process| [process.identity, process.embedded?] }
"""


def test_the_last_commands_of_a_process(
    sidekiq: RealSidekiq, driver: Driver, client: redis.Redis
) -> None:
    """BEAT-7, BEAT-20, STAT-5, MET-12: 6 counts after it has left, 8 writes its metrics then."""
    with sidekiq.worker(poll=None) as worker:
        driver.perform_async("EchoJob")
        wait_until(lambda: results(client), 60, "the job")
        with commands(client) as seen:
            assert worker.stop() == 0
    names = [command[:2] for command in seen]
    left = names.index(["SREM", "processes"])
    work = f"{worker.identity}:{'workers' if sidekiq.generation == 6 else 'work'}"
    assert [name for name in names if name[1:] == [work]][-1][0] in ("UNLINK", "DEL")
    counted = names.index(["INCRBY", "stat:processed"])
    assert (counted > left) == (sidekiq.generation == 6)
    measured = [at for at, name in enumerate(names) if name[0] == "HINCRBY"]
    assert bool(measured) == (sidekiq.generation == 8)
    assert all(at > left for at in measured)
    assert client.get("stat:processed") == b"1"


def test_a_quiet_process(sidekiq: RealSidekiq, driver: Driver, client: redis.Redis) -> None:
    """SIG-2, SIG-8, SIG-9, BEAT-15, BEAT-16, BEAT-17: it beats on, and promotes no more."""
    jid = driver.perform_async("GateJob", "g")
    with sidekiq.worker(poll=0.2) as worker:
        wait_until(lambda: started(client) == [jid], 60, "the job's start")
        worker.signal(signal.SIGTSTP)
        wait_until(lambda: client.hget(worker.identity, "quiet") == b"true", BEAT, "the flag")
        assert client.hget(worker.identity, "busy") == b"1"
        suffix = "workers" if sidekiq.generation == 6 else "work"
        (record,) = client.hvals(f"{worker.identity}:{suffix}")
        assert json.loads(record).keys() == {"queue", "payload", "run_at"}
        client.zadd("schedule", {b'{"class":"EchoJob","args":[],"jid":"a","queue":"low"}': 1})
        client.hset(worker.identity, "beat", "1.5")
        wait_until(lambda: client.hget(worker.identity, "beat") != b"1.5", BEAT, "a heartbeat")
        assert client.zcard("schedule") == 1
        open_gate(client, "g")
        wait_until(lambda: [each["jid"] for each in results(client)] == [jid], 60, "its end")
        assert worker.running
        assert worker.stop() == 0


def test_any_name_is_a_signal(sidekiq: RealSidekiq, client: redis.Redis) -> None:
    """SIG-4, SIG-6, SIG-10: Sidekiq sends itself the signal of any name, one at each heartbeat."""
    with sidekiq.worker(poll=None) as worker:
        key = f"{worker.identity}-signals"
        client.lpush(key, "WAT", "TTIN", "KILL")
        wait_until(lambda: client.llen(key) == 2, BEAT, "the first")
        wait_until(lambda: client.llen(key) == 1, BEAT, "the second")
        assert worker.running
        assert worker.wait(within=BEAT) == -signal.SIGKILL


def test_an_embedded_process(sidekiq: RealSidekiq, driver: Driver, client: redis.Redis) -> None:
    """SIG-11, INSP-19: signals through Redis do nothing, and the API refuses to send them."""
    if sidekiq.generation == 6:
        with pytest.raises(RubyError, match="NoMethodError"):
            driver.eval(EMBED)
        return
    ((identity, embedded),) = driver.eval(EMBED)
    assert embedded is True
    for action in (driver.quiet, driver.stop):
        with pytest.raises(RubyError, match="embedded"):
            action(identity)
    client.lpush(f"{identity}-signals", "KILL")
    wait_until(lambda: not client.exists(f"{identity}-signals"), BEAT, "the next heartbeat")
    client.hset(identity, "beat", "1.5")
    wait_until(lambda: client.hget(identity, "beat") != b"1.5", BEAT, "a heartbeat")
    assert client.hget(identity, "quiet") == b"false"
    driver.eval("$embedded.stop; nil")


def test_a_member_whose_key_has_another_type(
    sidekiq: RealSidekiq, driver: Driver, client: redis.Redis
) -> None:
    """BEAT-8, BEAT-21, BEAT-22: it ends the scheduler of 7 and 8 for good."""
    client.set("odd:1:0123456789ab", "x")
    client.sadd("processes", "odd:1:0123456789ab", "gone:1:0123456789ab")
    member = {"class": "EchoJob", "args": [], "jid": "a" * 24, "queue": "default", "retry": True}
    with sidekiq.worker(poll=0.2) as worker:
        wait_until(lambda: "WRONGTYPE" in worker.log(), 60, "the error")
        client.delete("odd:1:0123456789ab")  # too late
        client.zadd("schedule", {json.dumps(member): 1})
        if sidekiq.generation == 6:
            wait_until(lambda: results(client), 60, "the promotion")
        else:
            client.hset(worker.identity, "beat", "1.5")
            wait_until(lambda: client.hget(worker.identity, "beat") != b"1.5", BEAT, "a heartbeat")
            assert client.zcard("schedule") == 1
            assert 0 < client.ttl("process_cleanup") <= 60


def test_the_names_of_two_lives(sidekiq: RealSidekiq) -> None:
    """BEAT-6, BEAT-18: the last part of an identity is drawn anew."""
    nonces = []
    for _ in range(2):
        with sidekiq.worker(poll=None) as worker:
            nonces.append(worker.identity.rpartition(":")[2])
    assert all(len(nonce) == 12 for nonce in nonces)
    assert nonces[0] != nonces[1]
