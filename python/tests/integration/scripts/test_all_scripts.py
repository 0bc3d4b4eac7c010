"""All scripts: their keys, their bytes, and the servers that they run on."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from harness.debian_servers import SERVERS, DebianServer
from harness.servers import wait_until
from jobwire import RedisRefused
from jobwire.connection import resources
from jobwire.connection.resources import script
from jobwire.periodic.schedule import load, set_enabled
from jobwire.protocol import periodic
from jobwire.protocol.batches import EVENTS, Ended, Membership, script_end, script_open
from jobwire.protocol.cancelling import cancel
from jobwire.protocol.dead_set import DeadSetLimits
from jobwire.protocol.groups import Start, script_start
from jobwire.protocol.keys import Keys
from jobwire.protocol.limits import LimitOfJob, script_free, script_rate, script_take, script_window
from jobwire.protocol.normalize import ReadyPayload
from jobwire.protocol.outcome import NextJob, Outcome
from jobwire.protocol.output import script_emit, script_tell
from jobwire.protocol.periodic import Tick, script_tick
from jobwire.protocol.periodic_entry import PeriodicEntry, StoredEntry
from jobwire.protocol.promotion import promote_batch
from jobwire.protocol.pushing import push, push_members
from jobwire.protocol.reliable import (
    fetch,
    put_back,
    recover,
    script_done,
)
from jobwire.protocol.results import ResultToStore
from jobwire.protocol.ruby_locks import RubyLock, script_ruby_take, script_ruby_tidy
from jobwire.protocol.unique import Lock, script_unlock
from tests.integration.clients import listening
from tests.integration.scripts.shell import DAY, KEYS, ME, NOW, Shell, finish, one
from tests.server_fixtures import ServerFactory

KEPT = ResultToStore("9f2c1b7a4d3e5f60718293a4", 60, b'{"outcome":"retry","at":1.5}')


def life(shell: Shell, keys: Keys) -> None:
    """Run jobs through every script, with odd names of queues."""
    shell.live(ME, keys)
    queues = ["a:b", "c|d"]
    for name in queues:
        shell.plain.lpush(keys.queue(name), *(b"%d" % n for n in range(6)))
    held = shell.run(fetch(keys, ME, queues, count=12, sequence=1)).jobs
    fields = [each.field for each in held]
    steps = [
        script_done(keys, ME, fields[:2], failed=True, day=DAY),
        finish((fields[9], Outcome("queue", b"{}")), keys=keys),
        finish((fields[2], Outcome("retry", b"{}", NOW)), keys=keys),
        finish((fields[3], Outcome("dead", b"{}", counted="failed")), keys=keys),
        finish(
            (
                fields[10],
                Outcome(
                    counted="expired", cancelled="gone", result=KEPT, next=NextJob("next", b"{}")
                ),
            ),
            keys=keys,
        ),
    ]
    for step in steps:
        shell.run(one(step))
    shell.run(put_back(keys, ME, fields[4:9], started=True, now=NOW))
    shell.run(fetch(keys, ME, queues, count=1, sequence=50))
    assert shell.run(cancel(keys, "gone", now=NOW)).place == "unknown"
    shell.plain.lpush(keys.queue("c|d"), b'{"class":"A","args":[],"jid":"here"}')
    shell.plain.sadd(keys.queues, *queues)
    assert shell.run(cancel(keys, "here", now=NOW)).place == "queued"
    shell.plain.delete(keys.process(ME))
    assert shell.run(recover(keys, own="other", now=NOW)) == {ME: 2}
    shell.plain.zadd(keys.schedule, {b'{"queue":"a:b"}': 1, b"\xff": 1, b'{"queue":"new"}': 1})
    for zset in (keys.retry, keys.schedule):
        shell.run(promote_batch(keys, zset, now=NOW, generation=8, dead_limits=DeadSetLimits(NOW)))
    assert shell.plain.zcard(keys.schedule) == 0
    unique_life(shell, keys)
    limit_life(shell, keys)
    batch_life(shell, keys)
    periodic_life(shell, keys)


def unique_life(shell: Shell, keys: Keys) -> None:
    """Push unique jobs, a duplicate among them, and remove one with its lock."""
    lock = Lock("a" * 64, "until_done", 60)
    first = ReadyPayload("1", "a:b", None, b"one", lock)
    later = ReadyPayload("2", "a:b", 4e9, b"two", Lock("b" * 64, "until_done", 60))
    jobs = [first, ReadyPayload("3", "a:b", None, b"three", lock), later]
    assert shell.run(push(keys, jobs)) == {"3": "1"}
    assert shell.run(push(keys, [first])) == {}
    place = keys.queue("a:b")
    assert shell.run(one(script_unlock(keys, lock.digest, "1", place=place, text=b"one"))) == 1
    assert shell.run(one(script_unlock(keys, "b" * 64, "2"))) == 1
    assert not shell.plain.exists(keys.unique(lock.digest), keys.unique("b" * 64))
    ruby = RubyLock(f"uniquejobs:{'c' * 32}", "while_executing", 1, 5000)
    assert [shell.run(one(script_ruby_take(keys, ruby, jid, NOW))) for jid in "112"] == [1, 1, 0]
    assert shell.run(one(script_unlock(keys, ruby.needed, "1"))) == 1
    assert shell.run(one(script_ruby_tidy(keys, ruby.needed))) == 0
    assert not shell.plain.exists(keys.ruby_digests, *keys.ruby_lock(ruby.needed)[:3])


def limit_life(shell: Shell, keys: Keys) -> None:
    """Take a slot, wait for it, get it; wait in another queue and in none; keep rate and window."""
    limit = LimitOfJob("api", at_once=1)
    waiting: dict[str | bytes, float] = {b"two": 4e9, b"three": 4e9}
    shell.plain.zadd(keys.schedule, waiting)
    got = [shell.run(one(script_take(keys, limit, str(jid), "t"))) for jid in (1, 2, 3, 4)]
    assert got == [1, 0, 0, 0]
    assert shell.run(one(script_take(keys, limit, "1", "t", renew=True))) == 1
    for jid, text, queue in (("2", b"two", "a:b"), ("3", b"three", "c|d"), ("4", b"four", "c|d")):
        assert shell.run(one(script_free(keys, limit, queue, jid=jid, text=text))) == 0
    assert shell.run(one(script_free(keys, limit, "a:b", slot="1:1:t"))) == 1
    assert shell.plain.lindex(keys.queue("a:b"), -1) == b"two"
    assert shell.run(one(script_take(keys, limit, "2", "u"))) == 1
    assert shell.run(one(script_free(keys, limit, "a:b", slot="1:2:u"))) == 1
    assert 0 < (shell.plain.zscore(keys.schedule, b"three") or 0) < 4e9
    shell.plain.hset(keys.limit("api", "jobs"), "4:missed", "1")
    assert shell.run(one(script_free(keys, limit, "a:b", slot="1:3:"))) == 0
    assert not shell.plain.exists(keys.limit("api", "line"), keys.limit("api", "jobs"))
    rate = LimitOfJob("api", rate=1, burst=1)
    assert shell.run(one(script_rate(keys, rate, "1"))) == 0
    first, again, second = (shell.run(one(script_rate(keys, rate, jid))) for jid in "223")
    assert 0 < again < first <= 1_000_000 < second <= 2_000_000
    shell.plain.zadd(keys.limit("api", "line"), {"2": time.time() * 1e6 - 1})
    assert shell.run(one(script_rate(keys, rate, "2"))) == 0
    window = LimitOfJob("bank", window=1)
    assert shell.run(one(script_window(keys, window, "1"))) == 0
    first, again, second = (shell.run(one(script_window(keys, window, jid))) for jid in "223")
    assert 0 < again <= first <= 1_000_000 < second <= 2_000_000
    line = keys.limit("bank", "line")
    shell.plain.zadd(line, {"2": 5})  # it was deleted long ago
    assert 0 < shell.run(one(script_window(keys, window, "3"))) <= 2_000_000
    shell.plain.delete(keys.schedule, keys.limits, line, keys.limit("bank", "starts"))


def batch_life(shell: Shell, keys: Keys) -> None:
    """Make a batch in another, add members, end one as it runs, one as it waits; start a group."""
    outer = Membership("o", "c|d")
    member = Membership("b", "a:b", outer)
    callback = ReadyPayload("c", "a:b", None, b'{"class":"A","args":[]}')
    events = dict.fromkeys(EVENTS, callback)
    for batch in (outer, member):
        step = script_open(keys, batch, events, description="", now=NOW)
        assert shell.run(one(step)) == b"open"
    jobs = [ReadyPayload(str(n), "c|d", None, b"%d" % n) for n in range(3)]
    shell.run(push_members(keys, member, jobs))
    shell.live(ME, keys)
    (held,) = shell.run(fetch(keys, ME, ["c|d"], count=1, sequence=100)).jobs
    ended = Ended(member, held.text.decode(), "done", "1")
    shell.run(one(finish((held.field, Outcome(ended=ended)), keys=keys)))
    place = keys.queue("c|d")
    result = ResultToStore("1", 60, b"{}")
    step = script_end(
        *(keys, member, "dropped"), at="1", jid="1", place=place, text=b"1", result=result
    )
    assert shell.run(one(step)) == 1
    shell.plain.zadd(keys.retry, {b"2": 5})
    kill = script_end(
        *(keys, member, "dead"),
        at="1",
        jid="2",
        place=keys.retry,
        text=b"2",
        lock="a" * 64,
        dead=keys.dead,
        dead_limits=DeadSetLimits(NOW),
    )
    assert shell.run(one(kill)) == 1
    assert shell.plain.zscore(keys.dead, b"2") == NOW
    assert shell.run(one(kill)) == 0
    shell.plain.delete(keys.dead)
    assert shell.run(one(script_end(keys, member, "closed", at="1"))) == 1
    assert shell.run(one(script_end(keys, member, "cancelled", at="1"))) == 1
    group = Start("g", NextJob("a:b", b"end"), [("m", NextJob("c|d", b"member"))])
    assert [shell.run(one(script_start(keys, group, NOW))) for _ in range(2)] == [1, 0]
    shell.plain.delete(keys.process(ME), keys.queue("c|d"))


def periodic_life(shell: Shell, keys: Keys) -> None:
    """Load entries, take a tick, disable and enable one, and move one to the other layout."""
    new = [PeriodicEntry(name=name, cron="* * * * * UTC", job="A") for name in ("a:b", "c|d")]
    shell.run(load(keys, new, schedule="s"))
    first = next(each for each in shell.run(periodic.read_entries(keys)) if each.name == "a:b")
    at = int(NOW) // 60 * 60
    payload = first.payload(jid="0" * 24, now=NOW, generation=8, job_id="j")
    assert shell.run(periodic.free_ticks(keys, [(first, at)])) == [0]
    assert shell.run(one(script_tick(keys, first, [Tick(at, payload)], now=NOW))) == [1]
    for enabled in (False, True):
        assert shell.run(set_enabled(keys, first, enabled=enabled))
    shell.run(one(script_emit(keys, "9", "run", [b"1"], keep=60, now=1_800_000_000)))
    shell.run(one(script_tell(keys, "9", "done", now=1_800_000_000)))
    fields = {"name": "old", "klass": "A", "cron": "* * * * * UTC"}
    shell.plain.sadd(keys.cron_entries(None), "cron_job:old")
    shell.plain.hset(keys.cron_entry("cron_job:old"), mapping=fields)
    old = StoredEntry("cron_job:old", None, fields)
    assert shell.run(periodic.migrate(keys, [old], "default")) == 1
    assert len(shell.run(periodic.read_entries(keys))) == 3
    shell.run(load(keys, [], schedule="s"))


SCRIPTS = {path.stem for path in resources.path("lua").glob("*.lua")}


def test_scripts_touch_declared_keys_only(shell: Shell) -> None:
    """LUA-2: as the server sees every script. KEY-5: our own keys carry our name."""
    with listening(shell.server) as heard:
        life(shell, KEYS)
        lines = heard()
    declared: set[bytes] = set()
    calls = 0
    for line in lines:
        if line.name == "EVALSHA":
            declared = set(line.words[3 : 3 + int(line.words[2])])
        elif line.by_script and line.name != "TIME":
            calls += 1
            assert line.words[1] in declared, line
    assert calls > 50
    own = shell.plain.keys("*jobwire*")
    assert own
    assert all(key.startswith(b"jobwire:") for key in own)


def test_every_script_has_been_tried(shell: Shell) -> None:
    """LUA-2: otherwise the test above would prove nothing."""
    with listening(shell.server) as heard:
        life(shell, KEYS)
        called = {line.words[1].decode() for line in heard() if line.name == "EVALSHA"}
    assert called == {script(name).sha for name in SCRIPTS}


@pytest.mark.process
def test_all_scripts_run_on_a_cluster(program: str, server_factory: ServerFactory) -> None:
    """LUA-2 and KEY-4: a cluster refuses undeclared keys and keys of other slots."""
    server = server_factory("--cluster-enabled", "yes", program=program)
    shell = Shell(server)
    shell.plain.execute_command("CLUSTER", "ADDSLOTS", *range(16_384))  # Redis 6.2 takes no range
    wait_until(lambda: b"cluster_state:ok" in shell.plain.execute_command("CLUSTER", "INFO"))
    life(shell, Keys("{shard-03}:"))
    shell.live(ME, KEYS)
    assert set(shell.plain.keys()) - set(shell.plain.keys("{shard-03}:*")) == {ME.encode()}
    with pytest.raises(RedisRefused, match="CROSSSLOT"):
        shell.run(fetch(KEYS, ME, ["a", "b"], count=1, sequence=1))
    shell.redis.close()


def test_bytes_are_json_that_ruby_would_read(shell: Shell) -> None:
    """LUA-1: bytes that Lua's own JSON would change pass unchanged through every transition."""
    text = b'{"retry":true,"queue":"q","args":[[],{},9007199254740993,1.0],"class":"A"}'
    [field] = shell.hold(text)
    shell.step(finish((field, Outcome("retry", text, 1))))
    shell.run(
        promote_batch(KEYS, KEYS.retry, now=NOW, generation=8, dead_limits=DeadSetLimits(NOW))
    )
    [promoted] = shell.queue("q")
    assert promoted.startswith(text[:-1])
    assert json.loads(promoted)["args"] == [[], {}, 9007199254740993, 1.0]


@pytest.mark.interop
@pytest.mark.parametrize("debian", SERVERS, ids=lambda debian: debian.name)
def test_the_servers_are_those_of_their_names(
    debian: DebianServer, server_factory: ServerFactory, tmp_path: Path
) -> None:
    """LUA-2: the scripts were tried on Redis 7.0 and 8, on Valkey 8 and 9."""
    info = server_factory(program=debian.launcher(tmp_path)).client().info("server")
    assert info[f"{debian.kind}_version"].startswith(debian.version)
