"""The judge of `jobwire conform watch`: claims, namespaces, versions and ends of processes."""

from __future__ import annotations

from jobwire_conformance.data import requirements
from jobwire_conformance.judge import VISIBLE
from tests.conformance.traffic import (
    DROP,
    FAILED,
    INFO,
    JOB,
    NOW,
    SCHEDULED,
    fetch,
    found,
    heartbeat,
    judged,
    multi,
    push,
    say,
    text,
)


def test_keys_are_judged_where_nothing_else_has_any() -> None:
    """[KEY-5] [KEY-6]: an application may have other keys in the same database."""
    lines = [say("SET", "cache:1", "x"), say("SADD", "batches", "x", reply=1)]
    lines += [say("SADD", "jobwire:own", "x", reply=1), say("DEL", "queue:a", "unique:b", reply=2)]
    judge = judged(lines, alone=True)
    broken = {rule: tally.broken for rule, tally in judge.ledger.tallies.items() if tally.broken}
    assert (broken["KEY-5"], broken["KEY-6"]) == (1, 2)
    assert judge.ledger.tallies["KEY-5"].seen == 3
    assert "KEY-5" not in found(judged(lines))


def test_a_namespace_is_before_every_key() -> None:
    """KEY-4: two instances would share a key that is outside the namespace."""
    inside = multi(
        say("SADD", "app:queues", "default"), say("LPUSH", "app:queue:default", text(JOB))
    )
    assert found(judged(inside, namespace="app:")) == {}
    assert judged(inside, namespace="app:").ledger.tallies["PUSH-1"].seen == 1
    assert found(judged(push(), namespace="app:")) == {"KEY-4": "violation"}


def test_who_ended_in_good_order_sends_nothing_more() -> None:
    """KEY-1: the judge stops waiting for it; a killed process could have sent more."""
    unregistered = [say("LPUSH", "queue:default", text(JOB), reply=1)]
    ended = judged(unregistered, cleanly=True, later=0.1)
    assert found(ended) == {"KEY-1": "violation", "PUSH-2": "note"}
    assert found(judged(unregistered, later=0.1)) == {"PUSH-2": "note"}


def test_a_process_that_stays_registered_is_noted() -> None:
    """BEAT-7: the traffic does not show how the process ended, so it is a note."""
    assert found(judged(heartbeat(), cleanly=True)) == {"BEAT-7": "note"}
    assert found(judged(heartbeat())) == {}


def test_claims_turn_notes_into_violations() -> None:
    """PUSH-2 is required of clients that claim client/faults; others get a note."""
    apart = [say("SADD", "queues", "default"), say("LPUSH", "queue:default", text(JOB))]
    assert found(judged(apart)) == {"PUSH-2": "note"}
    assert found(judged(apart, claims=["client/faults"])) == {"PUSH-2": "violation"}


def test_genuine_sidekiq_is_excused_where_the_specification_says_so() -> None:
    """It does not meet robust requirements."""
    zincrby = say("ZINCRBY", "retry", 5, text(FAILED), reply=b"5")
    info = {**INFO, "version": "8.1.7", "concurrency": DROP}
    judge = judged([*heartbeat(info=info), zincrby])
    assert (found(judge), judge.ledger.sidekiq) == ({"INSP-8": "deviation"}, {8})
    assert found(judged([*heartbeat(), zincrby])) == {"INSP-8": "violation"}
    named = say("CLIENT", "SETINFO", "LIB-NAME", "redis-client(sidekiq_v8.1.7)")
    assert found(judged([named, zincrby])) == {"INSP-8": "deviation"}


def test_a_release_is_excused_for_what_that_release_does() -> None:
    """These metrics keys belong to generation 8.1: Sidekiq 7 has other names."""
    wrong = say("HINCRBY", "j|250220|8:04", "HardJob|x", 1, reply=1)
    expire = say("EXPIRE", "j|250220|8:04", 28800, reply=1)
    for version, grade in (("7.3.2", "deviation"), ("8.1.7", "violation")):
        lines = [*heartbeat(info={**INFO, "version": version}), wrong, expire]
        assert found(judged(lines)) == {"MET-1": grade}


def test_a_payload_without_times_is_of_no_generation() -> None:
    """[GEN-1] [PUSH-3] [PUSH-11]: a missing time is not also a change of generation."""
    seconds = push(text(JOB, created_at=1795192067.5, enqueued_at=1795192067.5))
    timeless = push(text(JOB, created_at=DROP, enqueued_at=DROP))
    for lines in ([*seconds, *timeless], [*timeless, *seconds], [*seconds, *timeless, *seconds]):
        verdict = found(judged(lines))
        assert verdict == {"PUSH-3": "violation", "PUSH-11": "violation"}, verdict
    # Without created_at, the other time still tells the generation.
    of_seconds = push(text(JOB, created_at=DROP, enqueued_at=1795192067.5))
    assert "GEN-1" not in found(judged([*of_seconds, *seconds]))
    assert found(judged([*of_seconds, *push()])).get("GEN-1") == "violation"


def test_a_push_that_its_fetch_overtakes_is_a_first_push_all_the_same() -> None:
    """PAY-9: answers of two connections come in any order; the push was sent first."""
    late = say("LPUSH", "queue:default", text(JOB), reply=1, seconds=1.0)
    judge = judged([say("SADD", "queues", "default", reply=1), fetch(), late])
    assert judge.ledger.tallies["PAY-9"].seen == 1


def test_a_jid_of_the_caller_is_lawful_where_one_can_be_given() -> None:
    """[PAY-9] [PUSH-19]: a bad generator is found in a case whose requests give no jid."""
    own = push(text(JOB, jid="order-7"))
    later = [say("ZADD", "schedule", NOW + 60, text(SCHEDULED, jid="order-8"), reply=1)]
    for lines in (own, later):
        assert found(judged(lines)) == {"PAY-9": "note"}
        assert found(judged(lines, generated=True)) == {"PAY-9": "violation"}
    assert found(judged(push(), generated=True)) == {}


def test_every_finding_names_a_requirement_of_the_specification() -> None:
    assert {*VISIBLE} <= {*requirements()}
