"""jobwire.protocol: rare branches; the other branches are in the module of their subject."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from jobwire.errors import InvalidJob, NoReply
from jobwire.protocol import gitlab, permissions, progress
from jobwire.protocol.arguments import check_args
from jobwire.protocol.classes import hand_over
from jobwire.protocol.expiry import EXPIRES_AT, is_late
from jobwire.protocol.foreign import announces, park, why_field
from jobwire.protocol.iteration import Call, Cursor, Run, State, load, save
from jobwire.protocol.keys import Keys
from jobwire.protocol.limits import Limit, described
from jobwire.protocol.metrics import ThreadMetrics
from jobwire.protocol.normalize import build
from jobwire.protocol.outcome import Outcome, ending
from jobwire.protocol.payload import Job, decode
from jobwire.protocol.periodic import latest_taken
from jobwire.protocol.periodic_entry import StoredEntry
from jobwire.protocol.placement import ShardState, read_states
from jobwire.protocol.reliable import reclaim, recover, resign, script_finish
from jobwire.protocol.results import keep_seconds, value_members
from jobwire.protocol.retry import Discard, Failure, after_failure
from jobwire.protocol.template import Template
from jobwire.protocol.wire import (
    Batch,
    Confirm,
    ErrorReply,
    Message,
    Op,
    Script,
    Step,
    command,
    dialogue,
)
from jobwire.text import counted
from tests.unit.test_wire import ABORTED, READONLY, converse, one, scripts

KEYS = Keys()
REFUSED = ErrorReply("NOPERM User has no permissions to run this command")
WRITE = Batch([command("LPUSH", "queue:a", b"{}")], atomic=True, confirm=Confirm(2, 0.5))


def steps_of(op: Op[Any], *replies: Any) -> tuple[Any, list[Step]]:
    """Give these replies to the steps of an operation; return its result and the steps."""
    steps: list[Step] = []
    waiting = list(replies)
    try:
        step = next(op)
        while True:
            steps.append(step)
            step = op.send(waiting.pop(0))
    except StopIteration as done:
        assert waiting == []
        return done.value, steps


@pytest.mark.parametrize(
    "args", [[[1], math.nan], [{"a": 1}, math.nan], [[[1], {"a": 1}], math.inf]]
)
def test_sound_arguments_before_the_unsound_one_are_passed(args: list[Any]) -> None:
    """PAY-4: the error names the wrong argument."""
    with pytest.raises(InvalidJob) as caught:
        check_args(args)
    assert caught.value.field == "args[1]"


def test_a_number_that_cannot_be_written_is_refused() -> None:
    """PAY-5: Python limits the digits of an integer that it converts to text."""
    template = Template(build("A", [], {}, now=1.0, jid="j", generation=8), now=1.0, generation=8)
    with pytest.raises(InvalidJob, match="cannot be written"):
        template.job([10**5000], "j", template.tail(1.0), at=None, strict="raise")


@pytest.mark.parametrize("args", [[10**5000], "text", [math.nan], [(1,)], [Path("a")]])
def test_a_job_that_needs_a_closer_look_stops_making_many_at_once(args: Any) -> None:
    """PUSH-5, PUSH-12: `job` then refuses or converts it, and names its place."""
    template = Template(build("A", [], {}, now=1.0, jid="j", generation=8), now=1.0, generation=8)
    assert template.jobs([[1], args], ["a", "b"], [None, None], template.tail(1.0)) is None


def test_a_state_is_read_from_either_form_of_hgetall() -> None:
    """ITER-1: RESP3 returns a map, RESP2 a list."""
    (listed, _) = steps_of(load(KEYS, "j"), [b"ex", b"2", b"c", b"5"])
    (mapped, _) = steps_of(load(KEYS, "j"), {b"ex": b"2", b"c": b"5"})
    assert listed == mapped == State(executions=2, cursor=b"5")


def test_a_total_is_written_where_it_is_known() -> None:
    """ITER-8."""
    for total in (None, 7):
        _, (batch,) = steps_of(save(KEYS, "j", State(total=total)), [0, 0, None])
        assert isinstance(batch, Batch)
        (first, *_) = batch.steps
        assert ("jw_total" in first.args) is (total is not None)


def test_an_iteration_without_a_state_fails_without_saving() -> None:
    """ITER-10: `job.perform` in a test has no id, so it sends no command."""
    run = Run(None, clock=lambda: 0.0).steps()
    begin = next(run)
    assert isinstance(getattr(begin, "cursor", None), Cursor)
    assert isinstance(run.send(None), Call)
    with pytest.raises(ValueError, match="boom"):
        run.throw(ValueError("boom"))


def test_a_text_that_is_no_object_has_a_place_of_its_own() -> None:
    """EXEC-4: it is not put among the dead jobs."""
    assert Outcome("unreadable", b"[]", 1.0).key(Keys("n:"), "q") == "n:jobwire:unreadable"


def test_tallies_are_added_up() -> None:
    """Counts of another thread are added, for the same class and for others."""
    one_, other = ThreadMetrics(), ThreadMetrics()
    one_.record("A", 5.0, failed=False)
    other.record("A", 7.0, failed=True)
    other.record("B", 1.0, failed=False)
    one_.add(other)
    both = ThreadMetrics()
    both.record("A", 5.0, failed=False)
    both.record("A", 7.0, failed=True)
    both.record("B", 1.0, failed=False)
    assert one_.numbers() == both.numbers()


@pytest.mark.parametrize(("text", "attempt"), [(b"{}", 1), (b'{"retry_count":0}', 2)])
def test_the_attempt_counts_from_one(text: bytes, attempt: int) -> None:
    assert decode(text, "q").attempt == attempt


def test_a_failure_can_be_discarded_by_choice() -> None:
    """RETRY-5: the job's own handler decides; nothing is stored."""
    job = decode(json.dumps({"class": "A", "args": [], "jid": "j", "retry": True}).encode(), "q")
    failure = Failure("ValueError", "m", [])
    outcome = after_failure(
        job, failure, now=1.0, jitter=0.0, generation=8, choose=lambda count: "discard"
    )
    assert isinstance(outcome, Discard)


def test_a_fetch_without_an_answer_is_reclaimed_by_its_numbers() -> None:
    """REL-8."""
    held = [b"3:a", b"9:a", b"no number"]
    count, steps = steps_of(reclaim(KEYS, "me", [range(2, 5)]), held, 1)
    assert count == 1
    (script,) = [step for step in steps if isinstance(step, Script)]
    assert b"3:a" in script.args or "3:a" in script.args


def test_who_resigns_gives_up_the_lease_before_the_ownership() -> None:
    """REL-4: others need not wait for the end of the lease, and a late fetch takes nothing."""
    left, steps = steps_of(resign(KEYS, "me", now=1.0), [], 1, 0, 2)
    assert left == 2
    _, ends_lease, ends_ownership, counts = steps
    assert ends_lease == command("UNLINK", KEYS.process("me"))
    assert isinstance(ends_ownership, Script)
    assert ends_ownership.name == "recover"
    assert counts == command("HLEN", KEYS.private("me"))


def test_a_recovery_ends_where_the_owner_is_alive_again() -> None:
    """REL-5: the script refuses, so the owner keeps the other jobs."""
    answers: dict[str, Any] = {"SMEMBERS": [b"dead"], "HKEYS": [b"1:a"], "recover": -1}
    asked: list[str] = []

    def recovered() -> Any:
        op = recover(KEYS, own="me", now=1.0, ended=["dead"])
        reply: Any = None
        while True:
            try:
                step = op.send(reply)
            except StopIteration as done:
                return done.value
            name = step.name if isinstance(step, Script) else str(getattr(step, "args", "?")[0])
            asked.append(name)
            reply = [0] * len(step.steps) if isinstance(step, Batch) else answers.get(name, 0)

    assert recovered() == {}
    assert asked.count("recover") == 1


def test_replicas_are_asked_right_behind_the_write() -> None:
    """PUSH-9."""
    reply, sent = converse(one(WRITE), [b"OK", b"QUEUED", [1], 2])
    assert reply == [1]
    assert list(sent[0].commands)[-1] == ("WAIT", 2, 500)


def test_too_few_replicas_are_no_reply() -> None:
    """PUSH-9: the write may be lost with the primary."""
    with pytest.raises(NoReply, match="2 replicas"):
        converse(one(WRITE), [b"OK", b"QUEUED", [1], 1])


def test_a_write_that_was_refused_needs_no_replicas() -> None:
    """PUSH-9: the refusal is the error."""
    talk = dialogue(one(WRITE), scripts)
    next(talk)
    with pytest.raises(Exception, match="EXECABORT"):
        talk.send([b"OK", ABORTED, ABORTED, 0])


@pytest.mark.parametrize(
    ("number", "noun", "text"),
    [(0, "job", "0 jobs"), (1, "job class", "1 job class"), (2_000, "process", "2,000 processes")],
)
def test_a_number_has_its_noun(number: int, noun: str, text: str) -> None:
    assert counted(number, noun) == text


def test_an_entry_without_a_name_takes_no_ticks() -> None:
    """X-CRON-28: the reason is named."""
    stored = StoredEntry("cron_job:t", None, {"klass": "A", "cron": "* * * * *"})
    assert stored.problem == "name is missing"


def test_an_entry_whose_message_is_not_an_object_is_not_pushed() -> None:
    """X-CRON-28: the field is named."""
    fields = {"name": "t", "klass": "A", "cron": "* * * * *", "message": "[1]"}
    stored = StoredEntry("cron_job:t", None, fields)
    with pytest.raises(InvalidJob) as caught:
        stored.payload(jid="j", now=1.0, generation=8)
    assert caught.value.field == "message"


def test_an_active_job_without_a_prefix_keeps_its_queue() -> None:
    """X-CRON-32: the queue is that of the entry."""
    fields = {"name": "t", "klass": "A", "cron": "* * * * *", "active_job": "1", "queue": "low"}
    ready = StoredEntry("cron_job:t", None, fields).payload(jid="j", now=1.0, generation=8)
    assert ready.queue == "low"
    assert json.loads(ready.text)["args"][0]["queue_name"] == "low"


def test_members_of_a_result_that_are_ready_stay() -> None:
    """X-RESULT-5: an isolated job has made them in its own process."""
    ready = value_members(1)
    assert value_members(ready) is ready


@pytest.mark.parametrize("value", ["60", True, None, [], math.nan, math.inf])
def test_a_time_of_another_form_counts_as_none(value: object) -> None:
    """X-RESULT-1, X-TIME-2: the result is not kept, and the job is not late."""
    assert keep_seconds(value) == 0
    assert not is_late(Job(b"", {EXPIRES_AT: value}, "q"), now=5)


def test_a_time_to_keep_may_be_null() -> None:
    """X-RESULT-1: null counts as none."""
    item = build("A", [], {"keep_result": None}, now=1.0, jid="j", generation=8)
    assert item.get("jw_keep") is None


@pytest.mark.parametrize(
    ("reply", "latest"), [([b"x", b"5.5"], 5.5), ([[b"x", b"5.5"]], 5.5), ([], None)]
)
def test_the_latest_tick_is_read_from_either_protocol(reply: Any, latest: float | None) -> None:
    """ENV-4: RESP3 puts a member and its score into a list of their own."""
    entry = StoredEntry("cron_job:t", None, {})
    assert steps_of(latest_taken(KEYS, [entry]), [reply])[0] == [latest]


@pytest.mark.parametrize(
    ("replies", "name"),
    [([[REFUSED]], "EXEC"), ([[ErrorReply("ERR EXEC without MULTI")], [REFUSED, b""]], "MULTI")],
)
def test_nothing_is_tried_without_a_transaction(replies: list[Any], name: str) -> None:
    """SEC-3: a user who may not begin one, or not end one, learns that name only."""
    found, _ = steps_of(permissions.refused([command("ZADD", "retry", 0, "x")]), *replies)
    assert found == {name: REFUSED}


def test_a_failover_carries_out_nothing_that_was_tried() -> None:
    """SEC-3: alone, the repeated command would take a job from its queue."""
    tried = [command("RPOP", "queue:a", 1), command("GET", "x")]
    begun, ended, queued = ErrorReply("ERR EXEC without MULTI"), ABORTED, b"QUEUED"
    found, sent = converse(
        permissions.refused(tried),
        [begun],
        [b"OK", []],
        [b"OK", ErrorReply("ERR wrong number of arguments"), READONLY, queued, ended],
        [b"OK", ErrorReply("ERR wrong number of arguments"), queued, REFUSED, ended],
    )
    assert found == {"GET": REFUSED}
    assert sent[3] == Message(sent[2].commands, fresh=True)


@pytest.mark.parametrize(("value", "there"), [(None, False), (False, False), (0, True), ("", True)])
def test_a_field_announces_a_feature_if_ruby_takes_it_as_true(value: Any, there: bool) -> None:
    """X-PARK-1."""
    assert announces({"bid": value, "x": 1}, "bid") is there
    assert not announces({}, "bid")


def test_a_parked_job_keeps_its_bytes_and_its_reason() -> None:
    """X-PARK-3, X-PARK-4: in the namespace."""
    keys = Keys("a:")
    parked = park(keys, b"{ }", "bid", 5.5)
    assert (parked.key(keys, "q"), parked.text, parked.at) == ("a:jobwire:parked", b"{ }", 5.5)
    assert (parked.counted, parked.trims) == ("", False)
    left = hand_over(keys, b"{ }", "other")
    assert (left.key(keys, "q"), left.text, left.counted) == ("a:queue:other", b"{ }", "")
    finish = script_finish(keys, "me", [("7:q", left)], day="2026-11-29")
    assert finish.keys[1] == "a:queue:other"
    assert parked.beside == (command("HSET", "a:jobwire:parked:why", why_field(b"{ }"), "bid"),)
    assert why_field(b"") == "da39a3ee5e6b4b0d3255bfef95601890afd80709"


def test_a_progress_without_total_has_no_member_for_it() -> None:
    """[X-PROG-1] [X-PROG-2]"""
    one = progress.checked(3, None, "rows", at=5.5)
    assert progress.writes(KEYS, {"j1": one}) == [
        command("SET", "jobwire:progress:j1", b'{"done":3,"at":5.5,"note":"rows"}', "EX", 86_400)
    ]
    assert progress.read(b'{"done":3,"at":5.5,"note":"rows"}') == one


def test_keys_that_a_payload_names_in_another_form_are_left_alone() -> None:
    """X-ADDON-1, X-ADDON-11."""
    fields = {
        "idempotency_key": "queue:default",
        "lock": "until_executed",
        "lock_digest": "queue:q",
    }
    starts, steps = steps_of(gitlab.starts(KEYS, fields, "j1"), [0])
    assert (starts, steps) == (True, [Batch([command("EXISTS", KEYS.gitlab_cancel("j1"))])])
    job = decode(json.dumps({"class": "A", "args": [], "jid": "j1", **fields}).encode(), "q")
    assert ending(KEYS, Outcome(), job, 5.5, 8) == Outcome()


def test_the_field_of_a_window() -> None:
    """X-LIMIT-1."""
    field = described({"class": "A", "args": []}, Limit("bank", window=3, per=2))
    assert field == {"name": "bank", "window": 3, "per": 2}


def test_states_of_shards_are_read_in_both_versions_of_the_wire() -> None:
    """Those in another form are left out."""
    found = {"a": ShardState(2, "used")}
    assert steps_of(read_states(KEYS), {b"a": b"2 used", b"b": b"used"})[0] == found
    assert steps_of(read_states(KEYS), [b"a", b"2 used", b"b", b"used"])[0] == found
