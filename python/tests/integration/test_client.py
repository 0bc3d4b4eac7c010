"""The bytes that both clients leave in Redis: one set of cases for both."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from harness.servers import Server
from jobwire import App, InvalidJob, RedisRefused
from jobwire.application import producer
from jobwire.application.producer import ARGS_AT_ONCE, PART_S, Producer
from jobwire.connection import resources
from jobwire.connection.sync import SyncRedis
from jobwire.protocol.keys import Keys
from jobwire.protocol.normalize import JobFields, ReadyPayload
from jobwire.protocol.pushing import detect_generation, push, push_bulk
from jobwire.protocol.template import Template
from tests.integration.clients import KINDS, Connect, connecting, everything, listening


def fixture(version: str, name: str) -> dict[str, Any]:
    path = resources.path("fixtures") / f"sidekiq/{version}/payloads.json"
    [entry] = [entry for entry in json.loads(path.read_text("utf-8")) if entry["name"] == name]
    return dict(entry)


def timeless(text: bytes) -> bytes:
    """Return a payload with its job id dropped and its times replaced by their form."""
    text = re.sub(rb"(?<=_at\":)\d{10}\.\d+", b"<seconds>", text)
    return re.sub(rb"(?<=_at\":)\d{13}(?!\d)", b"<milliseconds>", text)


PLAIN = ("push-plain/queue:default/0", [("8.1.7", 8), ("7.3.2", 7), ("6.4.1", 7)])


@pytest.mark.parametrize(("version", "generation"), PLAIN[1])
def test_a_push_leaves_the_bytes_that_ruby_leaves(
    server: Server, connect: Connect, version: str, generation: int
) -> None:
    """PAY-2, PAY-11, PAY-12, GEN-1, GEN-2 and PUSH-1: text, order and form of times."""
    theirs = fixture(version, PLAIN[0])
    expect = theirs["expect"]
    client = connect(server.url, generation=generation)
    client.push(expect["class"], json.loads(expect["args_json"]), jid=expect["jid"])
    [ours] = server.client().lrange("queue:default", 0, -1)
    assert timeless(ours) == timeless(theirs["payload"].encode())
    assert everything(server) == {b"queues": {b"default"}, b"queue:default": [ours]}


@pytest.mark.parametrize(("version", "generation"), PLAIN[1])
def test_a_scheduled_push_leaves_the_bytes_that_ruby_leaves(
    server: Server, connect: Connect, version: str, generation: int
) -> None:
    """SCHED-12, SCHED-13, SCHED-14, KEY-8, GEN-4: a push, but without enqueued_at and `queues`.

    Score in seconds.
    """
    theirs = fixture(version, "perform-in-at/schedule/0")
    client = connect(server.url, generation=generation)
    before = time.time()
    jid = client.push_in(60, "EchoJob", ["in 60"], jid=theirs["expect"]["jid"])
    assert jid == theirs["expect"]["jid"]
    [(ours, score)] = server.client().zrange("schedule", 0, -1, withscores=True)
    assert timeless(ours) == timeless(theirs["payload"].encode())
    assert before + 60 <= score <= time.time() + 60
    assert everything(server) == {b"schedule": [(ours, score)]}


def deep(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels - 1):
        value = [value]
    return value


INVALID: dict[str, Callable[[Any], Any]] = {
    "no class": lambda c: c.push(""),
    "class": lambda c: c.push(5),
    "args": lambda c: c.push("A", "abc"),
    "args of bulk": lambda c: c.push_bulk("A", [[1], "abc"]),
    "queue": lambda c: c.push("A", queue=""),
    "null queue": lambda c: c.push("A", queue=None),
    "retry": lambda c: c.push("A", retry=-1),
    "retry_for": lambda c: c.push("A", retry_for=1_000_000_001),
    "backtrace": lambda c: c.push("A", backtrace=-1),
    "tags": lambda c: c.push("A", tags="billing"),
    "tags as field": lambda c: c.push("A", fields={"tags": "billing"}),
    "at as text": lambda c: c.push("A", at="60"),
    "at as boolean": lambda c: c.push("A", at=True),
    "at in milliseconds": lambda c: c.push("A", at=1795192067250),
    "push_in None": lambda c: c.push_in(None, "A"),
    "at is naive": lambda c: c.push("A", at=datetime(2099, 1, 1)),
    "date": lambda c: c.push("A", [datetime(2026, 1, 1, tzinfo=UTC)]),
    "tuple": lambda c: c.push("A", [(1, 2)]),
    "number as key": lambda c: c.push("A", [{1: 2}]),
    "NaN": lambda c: c.push("A", [float("nan")]),
    "infinity in a field": lambda c: c.push("A", fields={"x": [float("inf")]}),
    "too deep": lambda c: c.push("A", [deep(99)]),
    "surrogate": lambda c: c.push("A", ["\ud800"]),
    "jid for several": lambda c: c.push_bulk("A", [[1], [2]], jid="abc"),
    "jid as field for several": lambda c: c.push_bulk("A", [[1], [2]], fields={"jid": "abc"}),
    "too few times": lambda c: c.push_bulk("A", [[1], [2]], at=[5.0]),
    "spread": lambda c: c.push_bulk("A", [[1]], spread_interval=0),
    "spread and at": lambda c: c.push_bulk("A", [[1]], spread_interval=5, at=5.0),
    "last of many": lambda c: c.push_bulk("A", [[1]] * 1_500 + [[{2}]]),
    "queue among the fields": lambda c: c.push("A", fields={"queue": "low"}),
    "jid that is not a text": lambda c: c.push("A", jid=5),
    "created_at that is not a time": lambda c: c.push("A", fields={"created_at": "today"}),
    "no text for a field": lambda c: c.push("A", fields={5: 5}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_an_invalid_job_is_refused_and_nothing_is_written(server: Server, kind: Any) -> None:
    """PUSH-4, PUSH-5, PAY-3, PAY-4, PAY-12, PAY-22, PAY-30, SCHED-4 of single pushes.

    BULK-10, BULK-11, BULK-12, BULK-13 of bulk pushes.
    """
    accepted = []
    with connecting(kind) as make:
        client = make(server.url, generation=8)
        for name, attempt in INVALID.items():
            try:
                attempt(client)
            except InvalidJob:
                continue
            accepted.append(name)
        assert accepted == []
        assert server.client().dbsize() == 0
        client.push("A", [deep(98)])  # the deepest that is valid
    assert server.client().llen("queue:default") == 1


RELATIVE = [
    (60, 60),
    (0.5, 0.5),
    (timedelta(hours=1), 3_600),
    (999_999_999, 999_999_999),
]


@pytest.mark.parametrize(("when", "seconds"), RELATIVE)
def test_delays_count_from_now(server: Server, connect: Connect, when: Any, seconds: float) -> None:
    """SCHED-2: a number below 1,000,000,000 and a timedelta."""
    before = time.time()
    connect(server.url, generation=8).push_in(when, "A")
    [(_, score)] = server.client().zrange("schedule", 0, -1, withscores=True)
    assert before + seconds <= score <= time.time() + seconds


@pytest.mark.parametrize(
    "when", [4_000_000_000, 4_000_000_000.0, datetime(2096, 10, 2, 7, 6, 40, tzinfo=UTC)]
)
def test_times_are_absolute(server: Server, connect: Connect, when: Any) -> None:
    """SCHED-2: any other number and an aware datetime, also as `at`."""
    client = connect(server.url, generation=8)
    client.push_in(when, "A")
    client.push("A", at=when)
    scores = [score for _, score in server.client().zrange("schedule", 0, -1, withscores=True)]
    assert scores == [4e9, 4e9]


# -- Bulk pushes of both clients: order, slices, times, and pauses for other tasks. [BULK-1]


def test_bulk_errors_name_the_job(server: Server, connect: Connect) -> None:
    """PUSH-12: the error holds the number of the job, the path and the value."""
    with pytest.raises(
        InvalidJob, match=r"^A: job 1: args\[0\]\['when'\]: .* is set, for which JSON"
    ):
        connect(server.url, generation=8).push_bulk("A", [[1], [{"when": {5}}]])


def test_bulk_goes_out_in_slices(server: Server, connect: Connect) -> None:
    """BULK-1 and PUSH-2: at most 1,000 jobs in a transaction, in the order given."""
    client = connect(server.url, generation=8)
    with listening(server) as heard:
        jids = client.push_bulk("A", [[n] for n in range(2_500)])
        lines = heard()
    assert [line.name for line in lines] == ["MULTI", "SADD", "LPUSH", "EXEC"] * 3
    assert [len(line.words) - 2 for line in lines if line.name == "LPUSH"] == [1_000, 1_000, 500]
    stored = [json.loads(text) for text in reversed(server.client().lrange("queue:default", 0, -1))]
    assert [job["args"] for job in stored] == [[n] for n in range(2_500)]
    assert [job["jid"] for job in stored] == jids


def test_bulk_of_large_jobs_goes_out_in_slices_of_bytes(server: Server, connect: Connect) -> None:
    """BULK-1: at most 1 MiB in a transaction, but at least one job."""
    client = connect(server.url, generation=8)
    with listening(server) as heard:
        client.push_bulk("A", [["x" * size] for size in (400_000,) * 5 + (2_000_000, 5)])
        lines = heard()
    assert [len(line.words) - 2 for line in lines if line.name == "LPUSH"] == [2, 2, 1, 1, 1]


JOBS = 5_000
STEP_S = 0.001  # that the clock advances whenever it is read
JOBS_PER_PART = int(PART_S / STEP_S) + 1


class Clock:
    """It advances when it is read, so that the parts do not depend on the machine."""

    def __init__(self) -> None:
        self.now = 1.7e9

    def __call__(self) -> float:
        self.now += STEP_S
        return self.now


class Work:
    """Counts the work of a push, and notes the count whenever another task can run."""

    def __init__(self) -> None:
        self.done = 0
        self.seen = [0]

    def args_list(self) -> Iterator[list[int]]:
        for number in range(JOBS):
            self.done += 1
            yield [number]

    def middleware(self, item: JobFields, call_next: Callable[[], Any]) -> Any:
        self.done += 1
        return call_next()

    async def watch(self) -> None:
        while True:
            self.seen.append(self.done)
            await asyncio.sleep(0)

    def run(self, server: Server, app: App, args_list: Any) -> list[int]:
        """Push; return the amounts of work between two turns of the other task."""

        @app.job
        def sample(number: int) -> None: ...

        async def main() -> None:
            app.aclient._producer._clock = Clock()
            watching = asyncio.create_task(self.watch())
            await sample.aenqueue_bulk(args_list)
            self.seen.append(self.done)
            watching.cancel()
            await asyncio.wait([watching])
            await app.aclose()

        app.connect(server.url)
        asyncio.run(main())
        assert self.done == JOBS
        assert server.client().llen("queue:default") == JOBS
        return [after - before for before, after in pairwise(self.seen)]


@pytest.mark.parametrize(("bytes_at_once", "together"), [(1, 1), (65_536, ARGS_AT_ONCE)])
def test_payloads_are_made_in_parts(
    server: Server, monkeypatch: pytest.MonkeyPatch, bytes_at_once: int, together: int
) -> None:
    """Small jobs are made a hundred at a time, large ones one by one."""
    work = Work()
    make = Template.jobs

    def count(template: Template, many: Any, *args: Any) -> list[ReadyPayload] | None:
        work.done += len(many)
        return make(template, many, *args)

    monkeypatch.setattr(Template, "jobs", count)
    monkeypatch.setattr(producer, "BYTES_AT_ONCE", bytes_at_once)
    work.done = 1  # the first job becomes the template
    parts = work.run(server, App(generation=8), [[number] for number in range(JOBS)])
    assert max(parts) <= JOBS_PER_PART * together


def test_middleware_runs_in_parts(server: Server) -> None:
    """PUSH-7: it makes each job slower, so that a part has fewer jobs."""
    work = Work()
    parts = work.run(
        server,
        App(generation=8, client_middleware=[work.middleware]),
        [[number] for number in range(JOBS)],
    )
    assert max(parts) <= JOBS_PER_PART


def test_arguments_are_read_in_parts(server: Server) -> None:
    """A generator may take its time for each job."""
    work = Work()
    parts = work.run(server, App(generation=8), work.args_list())
    assert max(parts) <= ARGS_AT_ONCE * JOBS_PER_PART


@pytest.mark.parametrize("seconds", [-3600.0, 3600.0])
def test_a_clock_that_is_set_does_not_stop_the_pauses(server: Server, seconds: float) -> None:
    work = Work()
    app = App(generation=8, client_middleware=[work.middleware])

    @app.client_middleware.add
    def set_clock(item: JobFields, call_next: Callable[[], Any]) -> Any:
        if item["args"] == [JOBS // 2]:
            clock = app.aclient._producer._clock
            assert isinstance(clock, Clock)
            clock.now += seconds
        return call_next()

    parts = work.run(server, app, [[number] for number in range(JOBS)])
    assert max(parts) <= JOBS_PER_PART


# -- The operations that both clients share, tested directly

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


def test_a_process_that_is_not_old_is_read_once(server: Server, shell: SyncRedis) -> None:
    """GEN-5: old, unknown and damaged processes are read again; the memory does not grow."""
    plain, read = server.client(), set[bytes]()

    def ask() -> int:
        return int(shell.run(detect_generation(KEYS, read)))

    for name, info in (("new", '{"version":"8.1.7"}'), ("bad", "{"), ("own", '{"version":"j 1"}')):
        plain.sadd("n:processes", name)
        plain.hset(f"n:{name}", "info", info)
    assert ask() == 8
    assert read == {b"new", b"own"}
    plain.sadd("n:processes", "old")
    plain.hset("n:old", "info", '{"version":"7.3.2"}')
    with listening(server) as heard:
        assert [ask(), ask()] == [7, 7]
        hashes = [line.words[1] for line in heard() if line.name == "HGET"]
        assert hashes == [b"n:bad", b"n:old"] * 2
    plain.delete("n:old")  # killed, and not removed from the set yet
    plain.srem("n:processes", "new", "bad")
    assert ask() == 8
    assert read == {b"own"}


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
