"""The rules of each role in the table of SEC-3: they are enough, and none can be left out."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness import servers
from harness.servers import Server, wait_until
from jobwire import App, Client
from jobwire.application.producer import make_producer
from jobwire.connection.sync import SyncRedis
from jobwire.errors import JobwireError
from jobwire.inspect import Inspector
from jobwire.protocol.dead_set import DeadSetLimits
from jobwire.protocol.heartbeat import prune
from jobwire.protocol.keys import Keys
from jobwire.worker.background.poller import Poller
from tests.workers import brisk, running

ROOT = Path(__file__).resolve().parents[3]
SPEC = (ROOT / "spec" / "robust.md").read_text("utf-8")
ROW = re.compile(r"^> \| ([a-z, ]+) \| `(resetchannels [^`]+)` \|$", re.MULTILINE)
ROLES: Mapping[str, str] = {role: rules.replace("\\|", "|") for role, rules in ROW.findall(SPEC)}
# Commands that a server may forbid [ENV-9], and those of a login, which no rule can forbid.
OPTIONAL = {"client", "info", "hello", "auth", "config", "command"}
JOBS = '{"class":"Take","args":[%d],"jid":"%024d","queue":"default","retry":true}'


def as_user(server: Server, rules: str) -> Any:
    """Return the server as a user with these rules sees it."""
    admin: Any = server.client()
    admin.execute_command("ACL", "SETUSER", "app", "reset", "on", "nopass", *rules.split())
    admin.execute_command("ACL", "LOG", "RESET")
    admin.config_resetstat()
    return SimpleNamespace(url=server.url.replace("redis://", "redis://app:x@"))


def denied(server: Server) -> set[str]:
    """Return the commands and keys that the server has denied."""
    entries: Any = server.client().execute_command("ACL", "LOG")
    found = {(entry["reason"], entry["object"]) for entry in map(as_text, entries)}
    return {f"{reason} {name}" for reason, name in found if name.partition("|")[0] not in OPTIONAL}


def as_text(entry: Any) -> dict[str, str]:
    pairs = entry.items() if isinstance(entry, dict) else zip(entry[::2], entry[1::2], strict=True)
    texts = {}
    for name, value in pairs:
        value = value.decode() if isinstance(value, bytes) else str(value)
        texts[name.decode() if isinstance(name, bytes) else name] = value
    return texts


def push(server: Any) -> None:
    """Push, in bulk and for later."""
    with Client(server.url) as client:
        client.push("Take", [1])
        client.push_bulk("Take", [[2], [3]])
        client.push("Take", [4], at=time.time() + 3600)


def work(fetch: Any, server: Any, admin: Any) -> None:
    """Run jobs that succeed, fail and die; recover jobs; iterate; stop while a job runs."""
    app = App()
    app.job(name="Take")(lambda number: None)

    def fail(number: int) -> None:
        raise ValueError(number)

    app.job(name="Fail")(fail)
    held: list[bool] = []

    def hold(number: int) -> None:
        held.append(True)
        wait_until(lambda: not held)

    app.job(name="Hold")(hold)
    due: Any = {JOBS % (8, 8): time.time() - 5, "[1]": time.time() - 5}
    admin.zadd("schedule", due)
    admin.hset("jobwire:private:gone:1:0123456789ab", "1:default", JOBS % (9, 9))
    admin.sadd("jobwire:owners", "gone:1:0123456789ab")
    # An old process: the metrics go to the keys of 7.3 as well [GEN-5].
    admin.sadd("processes", "gone:1:0123456789ab", "old:1:0123456789ab")
    admin.hset("old:1:0123456789ab", "info", '{"hostname":"old"}')
    admin.zadd("jobwire:returned_at", {"0" * 40: 1})
    admin.hset("jobwire:returned", "0" * 40, 1)
    admin.sadd("jobwire:paused", "paused")
    jobs = [JOBS % (1, 1), "[2]", "{", (JOBS % (3, 3)).replace("Take", "Fail")]
    jobs += [(JOBS % (4, 4)).replace("Take", "Fail").replace("true", "0")]
    jobs += [(JOBS % (5, 5)).replace("Take", "Hold")]
    admin.lpush("queue:default", *jobs)
    timings = brisk(heartbeat_interval=0.2, first_poll_wait=lambda _, jitter: 0.0)
    queues = {"default": 0, "paused": 0}
    settings: Any = {"fetch": fetch, "poll_interval": 0.1, "timeout": 0.2, "concurrency": 4}
    settings["periodic"] = False  # an annex, whose keys SEC-3 does not have
    with running(app, server, queues=queues, timings=timings, **settings) as worker:
        wait_until(lambda: held and admin.zcard("retry") and admin.zcard("dead"))
        wait_until(lambda: int(admin.get("stat:processed") or 0) >= 4)
        wait_until(lambda: not admin.zcard("schedule"))
        if fetch == "reliable":
            wait_until(lambda: not admin.exists("jobwire:private:gone:1:0123456789ab"))
        admin.lpush(f"{worker.identity}-signals", "TTIN")
        wait_until(lambda: not admin.exists(f"{worker.identity}-signals"))
        wait_until(lambda: [*admin.scan_iter("Take-*")] and [*admin.scan_iter("h|Take-*")])
        with Inspector(server.url) as inspector:  # as a worker that marks its deployment [MET-5]
            inspector.mark_deploy("v1")
            inspector.mark_deploy("v1")
    held.clear()


def promote(server: Any, admin: Any) -> None:
    """Prune processes, promote due jobs, and kill members that are not jobs."""
    old = "old:1:0123456789ab"
    admin.sadd("processes", "gone:1:0123456789ab", old)
    admin.hset(old, "info", '{"hostname":"old"}')
    due: Any = {JOBS % (1, 1): 1, "[2]": 1, "{": 1}
    admin.zadd("schedule", due)
    admin.zadd("retry", {JOBS % (2, 2): 1})
    shell = SyncRedis(server.url)
    shell.run(prune(Keys()))
    wait_until(lambda: not admin.sismember("processes", "gone:1:0123456789ab"))  # [BEAT-8]
    producer = make_producer(Keys(), "auto", "raise", ())
    poller = Poller(
        shell,
        Keys(),
        interval=None,
        generation=lambda: shell.run(producer.generation()),  # [GEN-5]
        dead_limits=lambda: DeadSetLimits(time.time()),
        timings=brisk(first_poll_wait=lambda _, jitter: 0.0),
    )
    poller.start()
    try:
        wait_until(lambda: not admin.exists("schedule", "retry"))
        wait_until(lambda: "cmdstat_scard" in admin.info("commandstats"))
    finally:
        poller.close(10)
        shell.close()


def read(server: Any, admin: Any) -> None:
    """Call every method of an inspector that only reads."""
    with Inspector(server.url) as inspector:
        inspector.stats()
        inspector.history()
        inspector.queues()
        inspector.queue("default")
        list(inspector.jobs("default"))
        inspector.find_job("default", "0" * 24)
        list(inspector.entries("retry"))
        list(inspector.entries("retry", rising=True))
        list(inspector.scan("retry", "*"))
        inspector.find("retry", "0" * 24)
        inspector.processes()
        inspector.works()
        inspector.holdings()
        inspector.recoveries()
        inspector.iterations(["0" * 24])
        list(inspector.all_iterations())
        inspector.activity()
        inspector.job_activity("Take")
        walk = iter(inspector.entries("retry"))
        next(walk)
        admin.delete("retry")
        assert list(walk) == []


def write(server: Any, admin: Any) -> None:
    """Call the methods of an inspector that write."""
    with Inspector(server.url) as inspector:
        for action in ("retry", "add_to_queue", "kill", "delete"):
            admin.delete("retry")
            admin.zadd("retry", {JOBS % (1, 1): 1})
            (entry,) = inspector.entries("retry")
            getattr(inspector, action)(entry)
            admin.zadd("retry", {JOBS % (2, 2): 1})
            inspector.sweep("retry", action)
        admin.delete("retry")
        admin.zadd("retry", {JOBS % (1, 1): 1})
        (entry,) = inspector.entries("retry")
        inspector.reschedule(entry, time.time() + 3600)
        job = next(iter(inspector.jobs("default")))
        inspector.delete(job)
        inspector.pause("default")
        inspector.unpause("default")
        inspector.quiet("a:1:0123456789ab")
        inspector.cancel("0" * 24)
        inspector.mark_deploy("v1")
        admin.sadd("processes", "gone:1:0123456789ab")
        inspector.prune()
        inspector.clear("dead")
        inspector.clear_queue("default")


def seeded(admin: Any) -> None:
    """Leave a process, jobs and counters for a reader."""
    info = '{"hostname":"h","started_at":1.5,"pid":1,"queues":[],"labels":[],"tag":""}'
    admin.sadd("processes", "a:1:0123456789ab")
    admin.hset("a:1:0123456789ab", mapping={"info": info, "busy": 0, "beat": "1.5", "quiet": ""})
    admin.sadd("queues", "default")
    admin.lpush("queue:default", JOBS % (1, 1), JOBS % (2, 2))
    admin.zadd("retry", {JOBS % (3, 3): 1})
    admin.sadd("jobwire:owners", "a:1:0123456789ab")
    admin.hset("jobwire:private:a:1:0123456789ab", "1:default", JOBS % (9, 9))
    admin.hset("it-" + "0" * 24, mapping={"ex": 1, "c": "1", "rt": "0"})


def play(role: str, server: Any, admin: Any) -> None:
    """Do the work of a role."""
    match role:
        case "client":
            admin.sadd("processes", "a:1:0123456789ab")
            push(server)
        case "worker core":
            work("basic", server, admin)
        case "worker reliable":
            work("reliable", server, admin)
        case "scheduler":
            promote(server, admin)
        case "inspector read":
            seeded(admin)
            read(server, admin)
        case "inspector write":
            seeded(admin)
            write(server, admin)


def rules_of(role: str) -> str:
    """Return the rules of a role; a worker is also a scheduler, a writer also a reader."""
    if role.startswith("worker"):
        return f"{ROLES[role]} {ROLES['scheduler']}"
    if role == "inspector write":
        return f"{ROLES[role]} {ROLES['inspector read']}"
    return ROLES[role]


def commands_of(rules: str) -> list[str]:
    return [rule.removeprefix("+") for rule in rules.split() if rule.startswith("+")]


def test_the_table_has_every_role() -> None:
    """SEC-3: six lines."""
    assert [*ROLES] == [
        *("client", "worker core", "worker reliable", "scheduler"),
        *("inspector read", "inspector write"),
    ]


@pytest.mark.parametrize("role", ROLES)
def test_the_rules_of_a_role_are_enough(server: Server, role: str) -> None:
    """SEC-3: the whole work of a role, without one denied command or key; each rule is used."""
    user = as_user(server, rules_of(role))
    admin: Any = server.client()
    stats = server.client()
    try:
        play(role, user, admin)
    finally:
        assert denied(server) == set()
    admin.execute_command("ACL", "DELUSER", "app")
    used = {name.removeprefix("cmdstat_").lower() for name in stats.info("commandstats")}
    used |= {name.replace("script|load", "script") for name in used}
    for name in commands_of(ROLES[role]):
        assert name in used or name.partition("|")[0] in used, name


# One command of each role is tried in `make test`, all in `make check`.
QUICK = {
    *(("client", "lpush"), ("worker core", "brpop"), ("worker reliable", "rpop")),
    *(("scheduler", "evalsha"), ("inspector read", "llen"), ("inspector write", "zrem")),
}
SPARE = {("inspector write", "hset")}  # no method of our inspector sends it


def left_out() -> Iterator[Any]:
    """Yield each role with each of its commands."""
    for role, rules in ROLES.items():
        for name in commands_of(rules):
            if (role, name) not in SPARE:
                marks = () if (role, name) in QUICK else pytest.mark.matrix
                yield pytest.param(role, name, marks=marks)


@pytest.mark.parametrize(("role", "name"), [*left_out()])
def test_no_rule_of_a_role_can_be_left_out(
    server: Server, role: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SEC-3: without the command, the server denies a part of the work."""
    user = as_user(server, f"{rules_of(role)} -{name}")
    admin: Any = server.client()

    def is_denied() -> bool:
        return f"command {name}" in denied(server)

    def until_denied(condition: Callable[[], Any]) -> None:
        servers.wait_until(lambda: is_denied() or condition())

    # A path of names can lead to a second copy of this module.
    monkeypatch.setitem(play.__globals__, "wait_until", until_denied)
    with suppress(JobwireError, ExceptionGroup, StopIteration, ValueError):
        play(role, user, admin)
    monkeypatch.undo()
    wait_until(is_denied)
