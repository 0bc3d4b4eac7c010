"""jobwire.protocol.promotion: payloads of due jobs, and the times of the polls."""

from __future__ import annotations

from typing import Any

import pytest

from jobwire.errors import MalformedPayload
from jobwire.protocol.dead_set import DeadSetLimits
from jobwire.protocol.keys import Keys
from jobwire.protocol.promotion import first_wait, next_wait, promote_batch, promoted
from jobwire.protocol.times import Generation
from jobwire.protocol.wire import Command, Script, Step
from tests.rows import over

NOW = 1_795_192_067.25

SCHEDULED = (
    b'{"retry":true,"queue":"low","class":"A","args":[1.50,12345678901234567890],'
    b'"jid":"j","created_at":1795191268274}'
)
RETRIED = (
    b'{"retry":true,"queue":"low","args":[],"class":"A","jid":"j","created_at":1795190000.5,'
    b'"enqueued_at":1795190001.5,"error_message":"m","error_class":"E","failed_at":1795190002.5,'
    b'"retry_count":0,"bid":{"x":[]}}'
)


@over(
    ("text", "generation", "queue", "moved"),
    [
        (SCHEDULED, 8, "low", SCHEDULED[:-1] + b',"enqueued_at":1795192067250}'),
        (SCHEDULED, 7, "low", SCHEDULED[:-1] + b',"enqueued_at":1795192067.25}'),
        (RETRIED, 8, "low", RETRIED.replace(b"1795190001.5", b"1795192067250")),
        (
            b'{"class":"A","x":1}',
            8,
            "default",
            b'{"retry":true,"queue":"default","class":"A","x":1,'
            b'"created_at":1795192067250,"enqueued_at":1795192067250}',
        ),
        (
            b'{"queue":"a:b|c","retry":null,"created_at":null,"at":5,"class":"A"}',
            7,
            "a:b|c",
            b'{"queue":"a:b|c","retry":null,"created_at":null,"class":"A","enqueued_at":1795192067.25}',
        ),
        (
            b'{"retry":false,"queue":"q","created_at":1}',
            8,
            "q",
            b'{"retry":false,"queue":"q","created_at":1,"enqueued_at":1795192067250}',
        ),
    ],
)
def test_promoted(text: bytes, generation: Generation, queue: str, moved: bytes) -> None:
    """SCHED-6, SCHED-17, SCHED-18, SCHED-19, PUSH-3: new enqueued_at, defaults, no at; PAY-7."""
    assert promoted(text, now=NOW, generation=generation) == (queue, moved)


@over(
    ("text", "rule"),
    [
        (b"", "EXEC-3"),
        (b"{not json", "EXEC-3"),
        (b"[1]", "EXEC-4"),
        (b'{"queue":""}', "SCHED-9"),
        (b'{"queue":null}', "SCHED-9"),
        (b'{"queue":5}', "SCHED-9"),
        (b'{"queue":["a"]}', "SCHED-9"),
    ],
)
def test_what_has_no_queue_cannot_be_promoted(text: bytes, rule: str) -> None:
    """SCHED-9: not decodable, not an object, or without a usable queue name."""
    with pytest.raises(MalformedPayload) as caught:
        promoted(text, now=NOW, generation=8)
    assert caught.value.rule == rule


def run(due: list[bytes], *replies: Any) -> tuple[list[Step], Any]:
    """Let `promote_batch` find these members; return its steps and its result."""
    op = promote_batch(
        Keys("n:"),
        "n:retry",
        now=NOW,
        generation=8,
        dead_limits=DeadSetLimits(NOW, limit=5),
        limit=7,
    )
    steps: list[Step] = [next(op)]
    waiting = [due, *replies]
    try:
        while True:
            steps.append(op.send(waiting.pop(0)))
    except StopIteration as done:
        assert waiting == []
        return steps, done.value


def test_a_batch_without_due_members_is_one_question() -> None:
    steps, result = run([])
    assert steps == [
        Command(("ZRANGE", "n:retry", "-inf", NOW, "BYSCORE", "LIMIT", 0, 7)),
    ]
    assert (result.seen, result.moved, list(result.killed)) == (0, 0, [])


def test_a_batch_moves_all_in_one_script() -> None:
    """SCHED-5: old and new bytes. LUA-2: every queue once among the keys."""
    due = [b'{"queue":"a","created_at":1}', b'{"queue":"b","created_at":1}']
    due.append(due[0].replace(b"1", b"2"))
    steps, result = run(due, [1, 1])
    script = steps[1]
    assert isinstance(script, Script)
    assert script.name == "promote"
    assert list(script.keys) == ["n:retry", "n:queues", "n:queue:a", "n:queue:b"]
    assert list(script.args[0::4]) == due
    assert list(script.args[1::4]) == [1, 2, 1]
    assert list(script.args[2::4]) == ["a", "b", "a"]
    assert (result.seen, result.moved, list(result.killed)) == (3, 1, [])
    assert (result.stuck, result.taken) == (1, 1)


def test_a_bad_member_does_not_keep_the_others() -> None:
    """SCHED-9: its own script kills it with its exact bytes; only the call that did it reports it.

    EXEC-4: JSON that is not an object goes to a separate set.
    """
    good = b'{"queue":"a"}'
    steps, result = run([b"\xff", good, b"{", b"[]"], [1, 0], [b"\xff"], [])
    scripts = [step for step in steps if isinstance(step, Script)]
    assert [step.name for step in scripts] == ["promote", "kill_due", "kill_due"]
    assert [list(step.keys) for step in scripts[1:]] == [
        ["n:retry", "n:dead"],
        ["n:retry", "n:jobwire:unreadable"],
    ]
    trim = (NOW, NOW - 15_552_000, 5)
    assert [list(step.args) for step in scripts[1:]] == [[*trim, b"\xff", b"{"], [*trim, b"[]"]]
    assert (result.seen, result.moved, result.stuck, result.taken) == (4, 1, 0, 2)
    assert [member for member, _ in result.killed] == [b"\xff"]


@over(
    ("interval", "jitter", "seconds"),
    [(None, 0.0, 10.0), (None, 0.5, 12.5), (3.0, 0.0, 0.0), (3.0, 0.5, 1.5), (60.0, 0.5, 2.5)],
)
def test_first_wait(interval: float | None, jitter: float, seconds: float) -> None:
    """SCHED-23: 10 s + 5 s * u, or at most 5 s if the average is configured."""
    assert first_wait(interval, jitter=jitter) == seconds


@over(
    ("interval", "processes", "jitter", "seconds"),
    [
        (None, 0, 0.0, 2.5),
        (None, 1, 0.0, 2.5),
        (None, 1, 0.5, 5.0),
        (None, 9, 0.0, 22.5),
        (None, 9, 0.5, 45.0),
        (None, 10, 0.0, 0.0),
        (None, 10, 0.5, 50.0),
        (None, 100, 0.25, 250.0),
        (2.0, 1, 0.0, 1.0),
        (2.0, 1, 0.5, 2.0),
        (2.0, 10, 0.5, 2.0),
        (2.0, 10, 0.75, 3.0),
    ],
)
def test_next_wait(interval: float | None, processes: int, jitter: float, seconds: float) -> None:
    """SCHED-8, SCHED-22: A*u + A/2 below ten processes, 2*A*u from ten on.

    A is 5 s * N or configured.
    """
    assert next_wait(interval, processes=processes, jitter=jitter) == seconds
