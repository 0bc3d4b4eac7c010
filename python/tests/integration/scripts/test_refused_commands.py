"""Each script, for a user who may not run one of its commands: no job is lost."""

from __future__ import annotations

import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from harness.servers import Server
from jobwire import App, RedisRefused
from jobwire.connection import resources
from jobwire.connection.sync import SyncRedis
from jobwire.ops import Operations
from jobwire.periodic.schedule import load, set_enabled
from jobwire.protocol import groups, periodic, permissions
from jobwire.protocol.batches import EVENTS, Membership, script_end, script_open
from jobwire.protocol.cancelling import cancel
from jobwire.protocol.dead_set import DeadSetLimits
from jobwire.protocol.limits import LimitOfJob, script_free, script_take
from jobwire.protocol.normalize import ReadyPayload
from jobwire.protocol.outcome import NextJob, Outcome
from jobwire.protocol.periodic import Tick
from jobwire.protocol.periodic_entry import PeriodicEntry, StoredEntry
from jobwire.protocol.promotion import promote_batch
from jobwire.protocol.pushing import push, push_members
from jobwire.protocol.reliable import fetch, put_back, recover
from jobwire.protocol.results import ResultToStore
from jobwire.protocol.unique import Lock, script_kill, script_unlock
from jobwire.protocol.wire import Op, Script
from tests.integration.scripts.shell import (
    FINISHES,
    KEYS,
    ME,
    NOW,
    OUTCOMES,
    Shell,
    finish,
    one,
    outcome,
)
from tests.workers import running

JOB = b'{"class":"A","args":[],"jid":"9f2c1b7a4d3e5f60718293a4","queue":"q"}'
LOCK = Lock("a" * 64, "until_done", 60)
ONE = LimitOfJob("api", at_once=1)
LIMITS = DeadSetLimits(NOW)
AROUND = Membership("o", "after")
IN_BATCH = Membership("b", "after", AROUND)
CALL = re.compile(r'redis\.p?call\("([A-Z]+)"')
OLD = StoredEntry("cron_job:old", None, {"name": "old", "klass": "A", "cron": "* * * * * UTC"})


def held(make: Callable[[str], Op[Any]]) -> Callable[[Shell], Op[Any]]:
    return lambda shell: make(shell.hold(JOB)[0])


def a_fetch(shell: Shell) -> Op[Any]:
    shell.live()
    shell.push("q", JOB)
    return fetch(KEYS, ME, ["q"], count=1, sequence=1)


def a_finish(field: str) -> Op[Any]:
    kept = ResultToStore("9f2c1b7a4d3e5f60718293a4", 60, b"{}")
    return one(finish((field, Outcome("dead", b"{}", cancelled="j", result=kept))))


def a_next_job(field: str) -> Op[Any]:
    return one(finish((field, Outcome(next=NextJob("next", b"{}")))))


def a_recovery(shell: Shell) -> Op[Any]:
    shell.hold(JOB)
    shell.plain.delete(KEYS.process(ME))
    return recover(KEYS, own="other", now=NOW)


def a_promotion(member: bytes) -> Callable[[Shell], Op[Any]]:
    def make(shell: Shell) -> Op[Any]:
        shell.plain.zadd(KEYS.schedule, {member: 1})
        return promote_batch(KEYS, KEYS.schedule, now=NOW, generation=8, dead_limits=LIMITS)

    return make


def a_cancellation(shell: Shell) -> Op[Any]:
    shell.push("q", JOB)
    shell.plain.sadd(KEYS.queues, "q")
    return cancel(KEYS, "9f2c1b7a4d3e5f60718293a4", now=NOW)


def loaded(shell: Shell) -> StoredEntry:
    shell.run(
        load(
            KEYS,
            [PeriodicEntry(name="p", cron="* * * * * UTC", job="A", overlap="skip")],
            schedule="s",
        )
    )
    return shell.run(periodic.read_entries(KEYS))[0]


def a_tick(shell: Shell) -> Op[Any]:
    entry = loaded(shell)
    payload = entry.payload(jid="0" * 24, now=NOW, generation=8, job_id="j")
    return one(periodic.script_tick(KEYS, entry, [Tick(int(NOW) // 60 * 60, payload)], now=NOW))


def a_load(shell: Shell) -> Op[Any]:
    loaded(shell)
    new = PeriodicEntry(name="new", cron="* * * * * UTC", job="A")
    return load(KEYS, [new], schedule="s")


def a_switch(shell: Shell) -> Op[Any]:
    entry = loaded(shell)
    shell.run(set_enabled(KEYS, entry, enabled=False))
    return set_enabled(KEYS, entry, enabled=True)


def a_move(shell: Shell) -> Op[Any]:
    shell.plain.sadd(KEYS.cron_entries(None), "cron_job:old")
    shell.plain.hset(KEYS.cron_entry("cron_job:old"), mapping=OLD.fields)
    return periodic.migrate(KEYS, [OLD], "default")


def a_unique_push(shell: Shell) -> Op[Any]:
    return push(KEYS, [ReadyPayload("9f2c1b7a4d3e5f60718293a4", "q", None, JOB, LOCK)])


def a_unique_deletion(shell: Shell) -> Op[Any]:
    shell.run(a_unique_push(shell))
    jid, place = "9f2c1b7a4d3e5f60718293a4", KEYS.queue("q")
    return one(script_unlock(KEYS, LOCK.digest, jid, place=place, text=JOB))


def members(shell: Shell) -> ReadyPayload:
    for batch in (AROUND, IN_BATCH):
        shell.run(one(opened(batch)))
    return ReadyPayload("j", "q", None, JOB)


def opened(batch: Membership) -> Script:
    callback = ReadyPayload("c", "after", None, b'{"class":"A","args":[]}')
    return script_open(KEYS, batch, dict.fromkeys(EVENTS, callback), description="", now=NOW)


def a_batch(shell: Shell) -> Op[Any]:
    shell.run(one(opened(AROUND)))
    return one(opened(IN_BATCH))


def a_member(shell: Shell) -> Op[Any]:
    return push_members(KEYS, IN_BATCH, [members(shell)])


def a_group(shell: Shell) -> Op[Any]:
    text = (
        b'{"class":"Jobwire::Group","jid":"g","queue":"after","args":[],"jw_group":['
        b'{"class":"A","jid":"j","queue":"q","args":[]},{"class":"A","jid":"k","queue":"r"}]}'
    )
    return one(groups.script_start(KEYS, groups.start(text, "after", now=NOW, generation=8), NOW))


def a_member_deleted(shell: Shell) -> Op[Any]:
    shell.run(push_members(KEYS, IN_BATCH, [members(shell)]))
    for batch in (IN_BATCH, AROUND):
        shell.run(one(script_end(KEYS, batch, "closed", at="1")))
    place = KEYS.queue("q")
    return one(script_end(KEYS, IN_BATCH, "dropped", at="1", jid="j", place=place, text=JOB))


def a_kill(shell: Shell) -> Op[Any]:
    shell.plain.zadd(KEYS.retry, {JOB: 5})
    return one(
        script_kill(
            KEYS, LOCK.digest, "j", place=KEYS.retry, text=JOB, dead=KEYS.dead, dead_limits=LIMITS
        )
    )


def a_member_killed(shell: Shell) -> Op[Any]:
    shell.run(push_members(KEYS, IN_BATCH, [members(shell)]))
    shell.plain.delete(KEYS.queue("q"))
    shell.plain.zadd(KEYS.retry, {JOB: 5})
    step = script_end(
        *(KEYS, IN_BATCH, "dead"),
        at="1",
        jid="j",
        place=KEYS.retry,
        text=JOB,
        lock=LOCK.digest,
        dead=KEYS.dead,
        dead_limits=LIMITS,
    )
    return one(step)


def a_freed_slot(shell: Shell) -> Op[Any]:
    shell.plain.zadd(KEYS.schedule, {JOB: 4e9})
    for jid in "12":
        shell.run(one(script_take(KEYS, ONE, jid, "t")))
    shell.run(one(script_free(KEYS, ONE, "q", jid="2", text=JOB)))
    return one(script_free(KEYS, ONE, "q", slot="1:1:t"))


ACTS: dict[str, Callable[[Shell], Op[Any]]] = {
    **{name: held(lambda field, n=name: one(outcome(n, field))) for name in OUTCOMES},  # type: ignore[misc]
    "fetch": a_fetch,
    "finish": held(a_finish),
    "next": held(a_next_job),
    "put_back": held(lambda field: put_back(KEYS, ME, [field], started=True, now=NOW)),
    "recover": a_recovery,
    "promote": a_promotion(JOB),
    "kill_due": a_promotion(b"[1]"),
    "cancel": a_cancellation,
    "lock": a_unique_push,
    "unlock": a_unique_deletion,
    "batch_add": a_member,
    "batch_open": a_batch,
    "batch_start": a_group,
    "batch_end": a_member_deleted,
    "kill": a_kill,
    "kill_member": a_member_killed,
    "limit_free": a_freed_slot,
    "periodic_tick": a_tick,
    "periodic_load": a_load,
    "periodic_status": a_switch,
    "periodic_migrate": a_move,
}
# These only read, or change no place of a job.
WITHOUT_JOBS = {
    *("emit", "forget", "limit_rate", "limit_take", "limit_window", "ruby_lock"),
    *("periodic_due", "periodic_look"),
}
SCRIPTS = {path.stem: path.read_text("utf-8") for path in resources.path("lua").glob("*.lua")}
SCRIPT_OF = {"kill": "unlock", "kill_member": "batch_end"}  # others: finish
CASES = [
    (name, command)
    for name in sorted({*SCRIPTS, *FINISHES, "next", "kill", "kill_member"} - WITHOUT_JOBS)
    for command in sorted(
        set(CALL.findall(SCRIPTS.get(name, SCRIPTS[SCRIPT_OF.get(name, "finish")])))
    )
]


def places(shell: Shell) -> dict[str, Any]:
    """Return all jobs by their places, and the periodic entries with their statuses."""
    found: dict[str, Any] = {}
    for key in sorted(shell.plain.keys()):
        name = key.decode()
        kind = shell.plain.type(key)
        if kind == b"list" and name.startswith("queue:"):
            found[name] = shell.plain.lrange(key, 0, -1)
        elif kind == b"zset" and name in ("retry", "schedule", "dead", KEYS.unreadable):
            found[name] = [member for member, _ in shell.plain.zrange(key, 0, -1, withscores=True)]
        elif kind == b"hash" and name.startswith("jobwire:private:"):
            found[name] = shell.plain.hgetall(key)
    for entry in shell.run(periodic.read_entries(KEYS)):
        found[f"entry {entry.member} {entry.layout_namespace}"] = entry.fields.get("status")
    return found


@pytest.mark.parametrize(("name", "command"), CASES)
def test_a_refused_command_loses_no_job(server: Server, name: str, command: str) -> None:
    """REL-2, SCHED-5: the job stays and the error names the rule, or the outcome is whole."""
    shell = Shell(server)
    shell.run(ACTS[name](shell))
    after = places(shell)
    shell.plain.flushall()
    act = ACTS[name](shell)
    before = places(shell)
    rules = ["reset", "on", "nopass", "~*", "+@all", f"-{command}"]
    shell.plain.execute_command("ACL", "SETUSER", "app", *rules)
    limited = SyncRedis(shell.server.url.replace("redis://", "redis://app:x@"))
    refused = ""
    try:
        limited.run(act)
    except RedisRefused as error:
        refused = str(error)
    finally:
        limited.close()
    found = places(shell)
    shell.redis.close()
    if refused:
        assert f"'{command.lower()}' command" in refused
        assert f"the rule +{command.lower()} " in refused
        # Saved entries stay if others cannot be removed; a second call ends it.
        assert found == before or (name == "periodic_load" and before.items() <= found.items())
    else:  # a command that the script only tries, or did not reach
        assert found in (before, after)


def test_the_check_tries_every_command_of_the_scripts() -> None:
    """SEC-3: the worker at its start, and the doctor, try the commands that the scripts call."""
    calls: set[str] = set()
    for path in resources.path("lua").glob("*.lua"):
        if not path.stem.startswith(
            ("periodic_", "limit_", "ruby_", "batch_end", "cancel", "emit", "unlock")
        ):
            calls.update(CALL.findall(path.read_text("utf-8")))
    tried = {step.args[0] for step in permissions.of_scripts(KEYS, ME, "q")}
    # Results and outputs are those of annexes.
    assert tried - {"EVALSHA"} == calls - {"SET", "XADD", "XREVRANGE"}


def test_a_worker_names_the_rules_that_it_lacks(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """SEC-3: at its start, not by the first job that fails; so does the doctor."""
    rules = ["reset", "on", "nopass", "~*", "+@all", "-zadd"]
    server.client().execute_command("ACL", "SETUSER", "app", *rules)
    limited: Any = SimpleNamespace(url=server.url.replace("redis://", "redis://app:x@"))
    with running(App(), limited, fetch="reliable", periodic=False):
        pass
    assert "add the rule +zadd" in caplog.text
    with Operations(limited.url) as operations:
        findings = {each.code: each for each in operations.doctor()}
    assert "ZADD" in findings["commands-refused"].evidence


def test_a_tick_stays_if_the_history_has_another_type(server: Server) -> None:
    """X-CRON-18: `overlap=skip` reads it before it takes the tick; the error names the key."""
    shell = Shell(server)
    act = a_tick(shell)
    history = KEYS.cron_history(loaded(shell).member)
    shell.plain.set(history, "x")
    before = shell.plain.keys()
    with pytest.raises(RedisRefused, match=f"WRONGTYPE {history} is a string, not a list"):
        shell.run(act)
    assert sorted(shell.plain.keys()) == sorted(before)
    shell.redis.close()
