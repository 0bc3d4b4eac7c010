"""The operations that both clients share, tested directly."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from harness.servers import Server
from jobwire import RedisRefused
from jobwire.application.producer import Producer
from jobwire.connection.sync import SyncRedis
from jobwire.protocol.keys import Keys
from jobwire.protocol.normalize import ReadyPayload
from jobwire.protocol.pushing import detect_generation, push, push_bulk
from tests.integration.clients import everything, listening

KEYS = Keys("n:")


def ready(
    count: int, *, queue: str = "q", at: float | None = None, first: int = 0
) -> list[ReadyPayload]:
    numbers = range(first, first + count)
    return [ReadyPayload(f"{n}", queue, at, b'{"n":%d}' % n) for n in numbers]


def test_a_push_of_all_kinds_at_once(server: Server, shell: SyncRedis) -> None:
    """BULK-5, BULK-15, PUSH-2 and KEY-4: each job to its place, in one transaction."""
    jobs = [
        *ready(2, queue="a"),
        *ready(1, queue="b", first=2),
        *ready(2, at=5.25, first=3),
        *ready(1, queue="a", first=5),
    ]
    with listening(server) as heard:
        shell.run(push(KEYS, jobs))
        names = [line.name for line in heard()]
    assert names == ["MULTI", "SADD", "LPUSH", "LPUSH", "ZADD", "EXEC"]
    assert everything(server) == {
        b"n:queues": {b"a", b"b"},
        b"n:queue:a": [b'{"n":5}', b'{"n":1}', b'{"n":0}'],
        b"n:queue:b": [b'{"n":2}'],
        b"n:schedule": [(b'{"n":3}', 5.25), (b'{"n":4}', 5.25)],
    }


def test_any_bytes_are_pushed(server: Server, shell: SyncRedis) -> None:
    """KEY-2: no layer changes payload or name."""
    text = bytes(range(256)) + b"\r\n"
    shell.run(push(KEYS, [ReadyPayload("1", "a b\r\n*", None, text)]))
    assert server.client().lrange("n:queue:a b\r\n*", 0, -1) == [text]
    assert server.client().smembers("n:queues") == {b"a b\r\n*"}


def test_mixed_slices(server: Server, shell: SyncRedis) -> None:
    """BULK-7: a slice with scheduled jobs has at most 100 jobs, and the order is kept."""
    jobs = ready(950) + ready(120, at=4e9, first=950) + ready(1_500, first=1_070)
    with listening(server) as heard:
        shell.run(push_bulk(KEYS, jobs))
        lines = heard()
    slices: list[Counter[str]] = []
    inside = False
    for line in lines:
        if not inside:
            slices.append(Counter())
        inside = line.name != "EXEC" if inside else line.name == "MULTI"
        slices[-1]["jobs"] += sum(b'{"n":' in word for word in line.words)
        slices[-1][line.name] += 1
    assert all(each["jobs"] <= (100 if each["ZADD"] else 1_000) for each in slices)
    assert sum(each["jobs"] for each in slices) == 2_570
    queue = [json.loads(text)["n"] for text in server.client().lrange("n:queue:q", 0, -1)]
    assert queue == [*range(2_569, 1_069, -1), *range(949, -1, -1)]
    assert server.client().zcard("n:schedule") == 120


@pytest.mark.parametrize("broken", ["a", "b"])
def test_a_transaction_that_fails_in_part_says_so(
    server: Server, shell: SyncRedis, broken: str
) -> None:
    """PUSH-8: Redis does not roll back; `written` names the jobs that exist."""
    server.client().set(f"n:queue:{broken}", "in the way")
    jobs = [*ready(2, queue="a"), *ready(2, queue="b", first=2), *ready(1, at=5.0, first=4)]
    with pytest.raises(RedisRefused) as caught:
        shell.run(push(KEYS, jobs))
    assert str(caught.value).endswith(f": n:queue:{broken}")
    lost = {"a": {"0", "1"}, "b": {"2", "3"}}[broken]
    assert set(caught.value.written) == {"0", "1", "2", "3", "4"} - lost
    assert server.client().zcard("n:schedule") == 1


def test_a_broken_schedule_is_named(server: Server, shell: SyncRedis) -> None:
    """SRV-1: the error names the key, also if no transaction was needed."""
    server.client().set("n:schedule", "in the way")
    with pytest.raises(RedisRefused, match=r"WRONGTYPE .*: n:schedule$") as caught:
        shell.run(push(KEYS, ready(1, at=5.0)))
    assert caught.value.written == ()


def test_a_broken_register_refuses_nothing_else(server: Server, shell: SyncRedis) -> None:
    """PUSH-8: the job is in its queue, although inspectors will not find that queue."""
    server.client().set("n:queues", "in the way")
    with pytest.raises(RedisRefused, match=r"WRONGTYPE .*: n:queues$") as caught:
        shell.run(push(KEYS, ready(1)))
    assert caught.value.written == ("0",)
    assert server.client().llen("n:queue:q") == 1


def test_the_generation_is_that_of_this_namespace(server: Server, shell: SyncRedis) -> None:
    """GEN-5 and KEY-4: processes of other namespaces do not count."""
    plain = server.client()
    plain.sadd("processes", "old")
    plain.hset("old", "info", '{"version":"6.4.1"}')
    assert shell.run(detect_generation(KEYS)) == 8
    plain.sadd("n:processes", "old")
    assert shell.run(detect_generation(KEYS)) == 8  # the hash is outside of the namespace
    plain.hset("n:old", "info", '{"version":"6.4.1"}')
    assert shell.run(detect_generation(KEYS)) == 7


def test_asking_many_processes_is_two_round_trips(server: Server, shell: SyncRedis) -> None:
    """GEN-5: for any number of processes."""
    plain = server.client()
    for number in range(50):
        plain.sadd("n:processes", f"p{number}")
        plain.hset(f"n:p{number}", "info", '{"version":"8.1.7"}')
    with listening(server) as heard:
        assert shell.run(detect_generation(KEYS)) == 8
        assert [line.name for line in heard()] == ["SMEMBERS"] + ["HGET"] * 50


def test_the_generation_is_asked_for_once_a_minute(server: Server, shell: SyncRedis) -> None:
    """GEN-7: a fleet changes, so the answer expires, also if the clock is set back."""
    clock = [1_000.0]
    producer = Producer(
        KEYS,
        generation="auto",
        strict_args="raise",
        middleware=(),
        clock=lambda: clock[0],
        new_jid=lambda: "0" * 24,
        draw=lambda: 0.5,
    )
    plain = server.client()
    assert shell.run(producer.generation()) == 8
    plain.sadd("n:processes", "old")
    plain.hset("n:old", "info", '{"version":"7.3.2"}')
    answers = []
    for clock[0] in (1_000.0, 1_059.9, 1_060.0, 1_060.5):
        answers.append(shell.run(producer.generation()))
    assert answers == [8, 8, 7, 7]
    plain.delete("n:old")
    clock[0] = 500.0
    assert shell.run(producer.generation()) == 8
