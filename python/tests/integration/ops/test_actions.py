"""Actions: roles, the journal, and changes of many entries."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, get_args

import pytest

from harness.servers import Server
from jobwire.console.ops import bulk
from jobwire.errors import ConfigError, NoReply, NotPermitted, RedisRefused
from jobwire.inspect import Filter, Mark, PeriodicEntry, PeriodicJob
from jobwire.ops import LOWEST_ROLE, ROLES, Action, BulkState, Operations, Selection
from tests.integration.inspector.entries import IDENTITY, NOW, fill, payload, snapshot
from tests.integration.ops.hostile import HOSTILE
from tests.rows import over

NIGHTLY = PeriodicEntry(name="other", cron="0 3 * * * UTC", job="A")


def prepare(client: Any) -> None:
    for name, status in (("nightly", "enabled"), ("halted", "disabled")):
        client.sadd("cron_jobs:default", f"cron_job:default:{name}")
        client.hset(
            f"cron_job:default:{name}",
            mapping={"name": name, "cron": "0 3 * * * UTC", "klass": "A", "status": status},
        )
    client.sadd("cron_jobs", "cron_job:old")
    client.hset("cron_job:old", mapping={"name": "old", "cron": "@daily", "klass": "A"})
    client.zadd("retry", {payload(f"r{number}", retry_count=2): number for number in range(5)})
    client.lpush("queue:q", payload("q"))
    client.zadd("jobwire:parked", {payload("parked"): 1})
    client.set(f"jobwire:unique:{'a' * 64}", "q")
    client.hset("jobwire:batch:b", mapping={"state": "closed", "total": 1, "queue": "q"})
    client.sadd("jobwire:batch:b:open", "q")
    client.sadd("queues", "q")
    client.sadd("processes", IDENTITY)
    client.hset(IDENTITY, mapping={"info": '{"queues":["q"]}', "busy": 0, "beat": NOW})


def first(operations: Operations) -> Any:
    return next(operations.inspector.entries("retry"))


def entry(operations: Operations, name: str) -> PeriodicJob:
    found = operations.periodic().find(name)
    assert found is not None
    return found


CALLS: dict[Action, Callable[[Operations], Any]] = {
    "retry": lambda ops: ops.retry(first(ops)),
    "add_to_queue": lambda ops: ops.add_to_queue(first(ops)),
    "kill": lambda ops: ops.kill(first(ops)),
    "delete": lambda ops: ops.delete(first(ops)),
    "reschedule": lambda ops: ops.reschedule(first(ops), NOW + 60),
    "pause": lambda ops: ops.pause("q"),
    "unpause": lambda ops: (ops.inspector.pause("q"), ops.unpause("q")),
    "unpark": lambda ops: ops.unpark(),
    "unlock": lambda ops: ops.unlock(ops.inspector.locks().locks[0]),
    "cancel": lambda ops: ops.cancel("abc"),
    "mark_deploy": lambda ops: ops.mark_deploy("v1"),
    "quiet": lambda ops: ops.quiet(IDENTITY),
    "dump": lambda ops: ops.dump(IDENTITY),
    "undo": lambda ops: ops.undo(ops.acting_for("x", "admin").delete(first(ops)).undo),
    "clear": lambda ops: ops.clear("retry"),
    "stop": lambda ops: ops.stop(IDENTITY),
    "cancel_batch": lambda ops: ops.cancel_batch("b"),
    "enable_periodic": lambda ops: ops.periodic().enable(entry(ops, "halted")),
    "disable_periodic": lambda ops: ops.periodic().disable(entry(ops, "nightly")),
    "enqueue_periodic": lambda ops: ops.periodic().enqueue(entry(ops, "nightly")),
    "remove_periodic": lambda ops: ops.periodic().remove(entry(ops, "nightly")),
    "load_periodic": lambda ops: ops.periodic().load([NIGHTLY], schedule="shop"),
    "migrate_periodic": lambda ops: ops.periodic().migrate(),
}


def test_every_act_has_a_call_and_a_role() -> None:
    assert set(CALLS) == set(LOWEST_ROLE) == set(get_args(Action))
    assert set(LOWEST_ROLE.values()) == {"operator", "admin"}


@pytest.mark.parametrize("act", CALLS)
@pytest.mark.parametrize("role", ROLES)
def test_a_role_allows_an_act_or_nothing_changes(
    server: Server, client: Any, role: Any, act: Action
) -> None:
    prepare(client)
    with Operations(server.url, person="ada", role=role, clock=lambda: NOW) as operations:
        allowed = ROLES.index(role) >= ROLES.index(LOWEST_ROLE[act])
        assert operations.permits(act) == allowed
        if allowed:
            CALLS[act](operations)
            newest = operations.journal()[0]
            assert (newest.person, newest.act) == ("ada", act)
            return
        if act in ("unpause", "undo"):  # these calls prepare something
            CALLS["clear"](operations.acting_for("x", "admin"))
            CALLS["pause"](operations.acting_for("x", "admin"))
        before = snapshot(client, without=())
        direct: dict[str, Callable[[], Any]] = {
            "undo": lambda: operations.undo("x"),
            "unpause": lambda: operations.unpause("q"),
        }
        call = direct.get(act, lambda: CALLS[act](operations))
        needed = f"{act} needs the role {LOWEST_ROLE[act]}; the role here is {role}"
        with pytest.raises(NotPermitted, match=needed):
            call()
        assert snapshot(client, without=()) == before


@pytest.mark.parametrize("act", get_args(bulk.BulkAction))
def test_a_viewer_changes_nothing_in_bulk(server: Server, client: Any, act: Any) -> None:
    prepare(client)
    before = snapshot(client, without=())
    with Operations(server.url) as operations, pytest.raises(NotPermitted):
        operations.bulk(act, Selection(place="retry"))  # before the first batch
    assert snapshot(client, without=()) == before


@over(
    "given,unfiltered",
    [
        ({}, True),
        ({"class_name": "**"}, True),
        ({"class_name": "A*"}, False),
        ({"queue": "*"}, True),
        ({"queue": "q"}, False),
        ({"error": ": "}, True),
        ({"error": "E: "}, False),
        ({"text": '{"'}, True),
        ({"text": "x"}, False),
        ({"older_than": 0.0}, True),
        ({"older_than": 1.0}, False),
        ({"jid": "x"}, False),
        ({"tag": "x"}, False),
        ({"class_name": "*", "older_than": 0.0, "error": ""}, True),
    ],
)
def test_a_filter_that_spares_no_job_is_none(given: Any, unfiltered: bool) -> None:
    assert Selection(place="retry", only=Filter(**given)).unfiltered == unfiltered


def test_only_an_admin_deletes_or_kills_all(server: Server, client: Any) -> None:
    prepare(client)
    before = snapshot(client, without=())
    everything = Selection(place="retry", only=Filter(class_name="*"))
    with Operations(server.url, role="operator") as operations:
        for act in ("delete", "kill"):
            with pytest.raises(NotPermitted, match=f"{act} without a filter needs the role admin"):
                operations.bulk(act, everything)
        state = bulk.BulkState(id="0" * 16, act="delete", selection=everything, total=9)
        with pytest.raises(NotPermitted):
            operations.bulk("delete", resume=state)
        assert snapshot(client, without=()) == before
        *_, last = operations.bulk("retry", everything)
        assert last.done
        assert not Selection(place="queue:q", only=Filter(queue="p")).unfiltered
        assert Selection(place="queue:q", only=Filter(queue="q")).unfiltered


def test_reading_writes_nothing(server: Server, client: Any) -> None:
    """INSP-14: MONITOR would show no command that writes."""
    prepare(client)
    client.zadd("dead", {text: number for number, text in enumerate(HOSTILE)})
    client.lpush("queue:q", *HOSTILE)
    client.hset(f"jobwire:private:{IDENTITY}", mapping={f"{n}:q": t for n, t in enumerate(HOSTILE)})
    before = client.info("persistence")["rdb_changes_since_last_save"]
    with Operations(server.url) as operations:
        operations.groups()
        operations.explain("r1")
        operations.explain("nowhere")
        operations.doctor()
        operations.journal()
        operations.undo_record("x")
        operations.preview(Selection(place="retry", only=Filter(text="r")))
    assert client.info("persistence")["rdb_changes_since_last_save"] == before


def test_an_unknown_role_or_place_is_refused(operations: Operations, client: Any) -> None:
    with pytest.raises(ConfigError, match="role: 'root' is not one of viewer, operator, admin"):
        operations.acting_for("eve", "root")  # type: ignore[arg-type]
    for place in ("queue:", "queues", "", "work"):
        with pytest.raises(ConfigError, match="place: "):
            Selection(place=place)
        with pytest.raises(ConfigError, match="place: "):
            operations.clear(place)


# -- the journal


def test_the_journal_says_who_did_what_without_arguments(
    operations: Operations, client: Any
) -> None:
    """SEC-5: long and hostile texts fit into a field."""
    secret = "4111 1111 1111 1111"
    client.zadd("retry", {payload("a", args=[secret]): 1, payload("b", args=[secret]): 2})
    operations.retry(first(operations))
    other = operations.acting_for("eve\udcff" + "x" * 500, "operator")
    deleted = other.delete(first(operations))
    client.zadd("retry", {payload("c", args=[secret]): 3})
    wanted = Selection(place="retry", only=Filter(text=secret, class_name="A"))
    [*operations.bulk("kill", wanted)]
    entries = operations.journal()
    assert [(one.act, one.target, one.count, one.state) for one in entries] == [
        ("kill", "retry class_name=A text=…", 1, "ended"),
        ("kill", "retry class_name=A text=…", 0, "begun"),
        ("delete", "a in retry", 1, "ended"),
        ("delete", "a in retry", 0, "begun"),
        ("retry", "b in retry", 1, "done"),
    ]
    assert len({one.job for one in entries[:2]} | {""}) == 2
    assert [one.undo for one in entries] == ["", "", deleted.undo, deleted.undo, ""]
    assert entries[2].person.startswith("eve?xxx")
    assert len(entries[2].person) == 200
    assert abs(entries[0].at - client.time()[0]) < 60
    stored = str(client.xrange("jobwire:journal"))
    assert secret not in stored
    page = operations.journal(limit=2)
    assert page == entries[:2]
    assert operations.journal(limit=9, before=page[-1].id) == entries[2:]


def test_an_act_that_changed_nothing_leaves_no_entry(operations: Operations, client: Any) -> None:
    client.set("queue:bad", "no list")
    client.zadd("retry", {payload("a"): 1, payload("b", queue="bad"): 2, b"{": 3})
    gone = operations.inspector.find("retry", "a")
    stuck = operations.inspector.find("retry", "b")
    (broken,) = operations.inspector.fetch("retry", 3)
    assert gone is not None
    assert stuck is not None
    client.zrem("retry", gone.payload)
    for act in (operations.retry, operations.add_to_queue, operations.kill):
        assert not act(gone)
    assert not operations.reschedule(gone, NOW)
    assert not operations.unpause("q")
    with pytest.raises(RedisRefused):
        operations.retry(stuck)
    with pytest.raises(ValueError, match=r".+"):
        operations.retry(broken)
    with pytest.raises(ConfigError):
        operations.stop("nobody:1:2")
    assert operations.journal() == []


def test_nothing_is_changed_that_the_journal_cannot_hold(
    operations: Operations, client: Any
) -> None:
    client.set("jobwire:journal", "text")
    prepare(client)
    before = snapshot(client, without=())
    for act in ("retry", "delete", "kill", "clear", "pause", "stop", "reschedule"):
        with pytest.raises(RedisRefused, match="WRONGTYPE"):
            CALLS[act](operations)
    with pytest.raises(RedisRefused, match="WRONGTYPE"):
        operations.bulk("delete", Selection(place="retry"))
    assert snapshot(client, without=()) == before


@pytest.mark.process
def test_the_journal_is_capped_and_reads_foreign_entries(
    operations: Operations, client: Any
) -> None:
    """KEY-5: MAXLEN ~ 100,000."""
    client.xadd("jobwire:journal", {b"\xff": b"\xff", "count": "many"})
    (entry,) = operations.journal()
    assert (entry.person, entry.act, entry.count) == ("", "", 0)
    pipe = client.pipeline(transaction=False)
    for number in range(100_300):
        pipe.xadd("jobwire:journal", {"n": number})
    pipe.execute()
    operations.pause("q")
    assert 100_000 <= client.xlen("jobwire:journal") <= 100_200
    client.delete("jobwire:journal")
    assert operations.journal() == []


# -- many entries


@pytest.mark.full
def test_forty_thousand_of_a_hundred_thousand(operations: Operations, client: Any) -> None:
    """INSP-26, INSP-27: one step for each batch, progress after each, and the others stay."""
    for start in range(0, 100_000, 10_000):
        client.zadd(
            "retry",
            {
                payload(f"j{n:06}", retry_count=3, **{"class": "Pick" if n % 5 < 2 else "Leave"}): n
                for n in range(start, start + 10_000)
            },
        )
    chosen = Selection(place="retry", only=Filter(class_name="Pick"))
    preview = operations.preview(chosen)
    assert (preview.total, preview.seen, preview.matched) == (100_000, 100_000, 40_000)
    assert [one.jid for one in preview.sample[:3]] == ["j000000", "j000001", "j000005"]
    assert (len(preview.sample), preview.complete) == (10, True)
    partly = operations.preview(chosen, examine=1000)
    assert (partly.seen, partly.matched, partly.complete) == (1000, 400, False)
    client.config_resetstat()
    states = [*operations.bulk("retry", chosen)]
    stats = client.info("commandstats")
    assert stats["cmdstat_evalsha"]["calls"] <= 100_000 / bulk.BATCH_SIZE + 1
    of_each_job = ("cmdstat_lpush", "cmdstat_zrem", "cmdstat_zscore")  # in the scripts
    total = sum(one["calls"] for name, one in stats.items() if name not in of_each_job)
    assert total < 6 * 100_000 / bulk.BATCH_SIZE + 50
    assert [one.seen for one in states] == [*range(0, 100_001, bulk.BATCH_SIZE)]
    assert (states[-1].done, states[-1].matched, states[-1].finished) == (40_000, 40_000, True)
    assert (client.zcard("retry"), client.llen("queue:default")) == (60_000, 40_000)


@pytest.mark.parametrize("act", get_args(bulk.BulkAction))
def test_a_change_goes_on_in_another_process(
    server: Server, client: Any, act: bulk.BulkAction
) -> None:
    fill(client, "retry", 2600, lambda n: n // 900)  # many equal scores
    with Operations(server.url, role="operator", clock=lambda: NOW) as one:
        states = one.bulk(act, Selection(place="retry", only=Filter(text="retry_count")))
        for _ in range(3):
            state = next(states)
        states.close()
    assert (state.seen, state.done) == (1000, 1000)
    stored = json.loads(json.dumps(state.as_dict()))
    with Operations(server.url, role="operator", clock=lambda: NOW) as other:
        resumed = BulkState.from_dict(stored)
        assert resumed == state
        *_, last = other.bulk(act, resume=resumed)
        assert (last.seen, last.done, last.id) == (2600, 2600, state.id)
        assert client.zcard("retry") == 0
        if act == "delete":
            assert other.undo(last.undo).restored == 2600
        wrong: bulk.BulkAction = "kill" if act == "retry" else "retry"
        with pytest.raises(ConfigError, match=f"this state is of {act}"):
            other.bulk(wrong, resume=resumed)


@pytest.mark.parametrize("place", ["retry", "queue:q"])
def test_a_limit_takes_the_first_that_match(
    operations: Operations, client: Any, place: str
) -> None:
    """Also across batches, and if fewer jobs match."""
    if place == "retry":
        fill(client, "retry", 1500)
    else:
        client.rpush("queue:q", *(payload(f"j{number:06}") for number in range(1500)))
    third = Filter(text='7"')
    for only, limit, matched, first in ((third, 20, 20, "j000000"), (Filter(), 1200, 1200, "-")):
        chosen = Selection(place=place, only=only, limit=limit)
        preview = operations.preview(chosen)
        assert (preview.matched, preview.complete) == (matched, True)
        *_, last = operations.bulk("delete", chosen)
        assert (last.done, last.finished) == (matched, True)
        assert BulkState.from_dict(json.loads(json.dumps(last.as_dict()))) == last
        left = {one.jid for one in operations.page(place, count=1500, rising=True).entries}
        assert ("j000197" in left, "j000207" in left) == (False, only == third)
        assert first not in left or only == third
    assert len(left) == 280
    assert f"limit={limit}" in operations.journal()[0].target
    *_, last = operations.bulk("delete", Selection(place=place, limit=999))
    assert last.done == 280
    with pytest.raises(ConfigError, match="less than 1"):
        Selection(place=place, limit=0)


def test_a_state_that_was_not_saved_loses_no_record(operations: Operations, client: Any) -> None:
    """The program died after a batch of a deletion, before it saved the state."""
    fill(client, "dead", 1500)
    before = snapshot(client)
    states = operations.bulk("delete", Selection(place="dead"))
    early = next(states)
    next(states)
    states.close()
    *_, last = operations.bulk("delete", resume=early)
    assert last.done == 1000
    assert operations.undo(last.undo).restored == 1500
    assert snapshot(client) == before


def test_a_batch_without_a_reply_can_be_tried_again(
    operations: Operations, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ENV-5: the server did the batch; the next one writes another part of the record."""
    fill(client, "dead", 1200)
    before = snapshot(client)
    run = operations.inspector.redis.run
    cut = False

    def run_and_cut(op: Any) -> Any:
        nonlocal cut
        result = run(op)
        if isinstance(result, BulkState) and result.seen == 1000 and not cut:
            cut = True
            raise NoReply("cut")
        return result

    monkeypatch.setattr(operations.inspector.redis, "run", run_and_cut)
    states = operations.bulk("delete", Selection(place="dead"))
    state = next(states)
    state = next(states)
    with pytest.raises(NoReply):
        next(states)
    assert (state.seen, client.zcard("dead")) == (500, 200)
    *_, last = operations.bulk("delete", resume=state)
    assert client.zcard("dead") == 0
    assert operations.undo(last.undo).restored == 1200
    assert snapshot(client) == before


@pytest.mark.parametrize(
    ("act", "place"),
    [("retry", "queue:q"), ("kill", "dead"), ("kill", "unreadable"), ("nope", "retry")],
)
def test_an_impossible_act_is_refused(operations: Operations, act: Any, place: str) -> None:
    with pytest.raises((ConfigError, KeyError)):
        operations.bulk(act, Selection(place=place))


@pytest.mark.parametrize("stored", [{}, {"selection": {}}, {"selection": None}, {"x": 1}])
def test_a_stored_state_that_is_none_is_refused(stored: Any) -> None:
    with pytest.raises(ConfigError, match="state: "):
        BulkState.from_dict(stored)


def test_a_change_ends_if_jobs_fail_again(operations: Operations, client: Any) -> None:
    """INSP-26: an entry that returns with a later score is not changed twice for ever."""
    fill(client, "retry", 1000)
    seen: list[int] = []
    for state in operations.bulk("retry", Selection(place="retry")):
        fill(client, "retry", 1000, lambda n: n + 5000 + len(seen))
        seen.append(state.seen)
        assert len(seen) < 10
    assert seen[-1] == 1000


def test_hostile_payloads_in_bulk(operations: Operations, client: Any) -> None:
    """INSP-3, INSP-23: entries that cannot be pushed stay, and are counted."""
    client.zadd("retry", {text: number for number, text in enumerate(HOSTILE)})
    chosen = Selection(place="retry", only=Filter(text=""))
    assert operations.preview(chosen).matched == len(HOSTILE)
    *_, last = operations.bulk("retry", chosen)
    assert last.done + last.left == len(HOSTILE) == last.matched
    assert last.left > 50
    *_, killed = operations.bulk("kill", chosen)
    assert killed.done == last.left


def test_a_group_is_a_selection(operations: Operations, client: Any) -> None:
    for number in range(700):
        error = {"error_class": "E", "error_message": f"user {number} not found"}
        if number % 7 == 0:
            error = {"error_class": "F", "error_message": "no"}
        client.zadd("dead", {payload(f"j{number}", **error): number})
    large, small = operations.groups(["dead"]).groups
    assert (large.error_class, large.count, small.count) == ("E", 600, 100)
    *_, last = operations.bulk("delete", Selection(place="dead", group=large.key))
    assert last.done == 600
    (left,) = operations.groups().groups
    assert left.key == small.key


def mark(server: Server, at: float, label: str) -> None:
    with Operations(server.url, person="ada", role="admin", clock=lambda: at) as operations:
        assert operations.mark_deploy(label)


def test_a_group_names_the_deployment_before_its_first_failure(
    server: Server, operations: Operations, client: Any
) -> None:
    """MET-5: of many groups, the marks are read once."""
    day = 86_400.0
    for back, label in ((20 * day, "v1"), (3600.0, "v2"), (60.0, "v3")):
        mark(server, NOW - back, label)
    client.hset(f"{datetime.fromtimestamp(NOW, UTC):%Y%m%d}-marks", "no minute", "v4")
    firsts = {"A": 21 * day, "B": day, "C": 3600.0, "D": 1800.0, "E": 10.0, "F": None}
    for name, first_back in firsts.items():
        failed = {} if first_back is None else {"failed_at": round((NOW - first_back) * 1000)}
        error = {"error_class": name, "error_message": "no", "retry_count": 0}
        client.zadd("retry", {payload(name, **error, **failed): NOW + 5})
    found = {group.error_class: group.deployed for group in operations.groups().groups}
    labels = {name: one.label if one else None for name, one in found.items()}
    assert labels == {"A": None, "B": "v1", "C": "v2", "D": "v2", "E": "v3", "F": None}
    minute = (NOW - 3600) // 60 * 60
    assert found["D"] == Mark(minute, "v2", minute)


def test_the_deployments_of_groups_cost_one_round_trip(
    server: Server, operations: Operations, client: Any
) -> None:
    def commands(failures: int) -> int:
        client.delete("retry")
        for number in range(failures):
            error = {"error_class": f"E{number}", "error_message": "no", "failed_at": NOW - 5}
            client.zadd("retry", {payload(f"j{number}", **error): NOW})
        client.config_resetstat()
        assert len(operations.groups().groups) == failures
        return int(client.info("commandstats")["cmdstat_hgetall"]["calls"])

    mark(server, NOW - 60, "v1")
    assert commands(1) == commands(200) == 91  # a day each

    client.delete("retry")
    client.config_resetstat()
    assert operations.groups().groups == []
    assert "cmdstat_hgetall" not in client.info("commandstats")


def test_an_act_on_many_entries_needs_a_selection(operations: Operations, client: Any) -> None:
    prepare(client)
    with pytest.raises(ConfigError, match="delete: name the entries with a selection"):
        operations.bulk("delete")
    assert client.zcard("retry") == 5
    assert operations.journal() == []


def test_a_refused_cancel_leaves_no_entry(operations: Operations, client: Any) -> None:
    client.set("it-abc", "not a hash")
    with pytest.raises(RedisRefused):
        operations.cancel("abc")
    assert operations.journal() == []
