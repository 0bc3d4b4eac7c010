"""Fields of a payload stay, through failure, promotion, second failure and death."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
import redis

from harness.servers import Server, wait_until
from jobwire import Client
from jobwire.connection import resources
from tests.interop.driver import Driver
from tests.interop.python_worker import worker_process, worker_threads
from tests.interop.shapes import SEED, Shapes, differences, spelled_alike
from tests.interop.sidekiq import RealSidekiq, results

pytestmark = pytest.mark.interop

JOBS = 30
# Fields that a failure and a promotion write; the others belong to other writers. [PAY-7]
WORDS = {"error_message": ""}
WRITTEN = {"error_message", "error_class", "retry_count", "failed_at", "retried_at", "enqueued_at"}


def members(client: redis.Redis, key: str) -> list[bytes]:
    """Return the payloads in a list or sorted set."""
    if client.type(key) == b"list":
        return cast("list[bytes]", client.lrange(key, 0, -1))
    return cast("list[bytes]", client.zrange(key, 0, -1))


def texts(payloads: list[bytes]) -> dict[str, dict[str, str]]:
    """Return jid to field to the exact JSON text, of the fields that no process may change."""
    found = {}
    for payload in payloads:
        raw = msgspec.json.decode(payload, type=dict[str, msgspec.Raw])
        fields = {name: bytes(text).decode() for name, text in raw.items() if name not in WRITTEN}
        found[json.loads(fields["jid"])] = fields
    return found


def values(payloads: list[bytes], fields: dict[str, Any]) -> dict[str, Any]:
    """Return jid to the values of these fields."""
    found = [json.loads(payload) for payload in payloads]
    return {each["jid"]: {name: each[name] for name in fields if name in each} for each in found}


def make_due(client: redis.Redis) -> None:
    """Make every retry due now."""
    client.zunionstore("retry", {"retry": 0.0})


def wait_for(client: redis.Redis, key: str, count: int) -> list[bytes]:
    """Wait for this many payloads in a sorted set; return them."""
    wait_until(lambda: client.zcard(key) == count, 60, f"{count} members of {key}, seed {SEED}")
    return members(client, key)


def test_python_keeps_the_exact_text_of_ruby(
    driver: Driver, client: redis.Redis, server: Server
) -> None:
    """PAY-7, RETRY-2, SCHED-6, DEAD-1: fails in Python, is promoted, fails again, dies.

    Sidekiq's API also finds such a member, because it looks for the bytes that its own JSON
    library writes, exponents (1.0e+22, 1e+22) included.
    """
    shapes = Shapes()
    for number in range(JOBS):
        item = {"class": "FailJob", "args": [str(number), "RuntimeError", shapes.value()]}
        driver.push({**item, "retry": 1, "tags": ["é"], **shapes.fields(20)})
    pushed = texts(members(client, "queue:default"))
    with worker_threads(server.url, poll=0.1):
        assert differences(pushed, texts(wait_for(client, "retry", JOBS))) == []
        for record in driver.set_list("retry"):
            driver.reschedule("retry", str(record.jid), 4e9)
        assert client.zcard("retry") == JOBS
        assert client.zcount("retry", "-inf", 3.99e9) == 0
        make_due(client)
        assert differences(pushed, texts(wait_for(client, "dead", JOBS))) == []
    record = driver.set_list("dead")[0]
    assert record.raised == {}
    assert (record.item["retry_count"], record.item["retried_at"] > 0) == (1, True)


def test_ruby_keeps_the_values_of_python(
    sidekiq: RealSidekiq, client: redis.Redis, server: Server
) -> None:
    """PAY-2, PAY-6, PAY-7: fails in Ruby, is promoted there, fails again, dies."""
    shapes = Shapes(SEED + 1)
    pushed = {}
    with Client(server.url) as python:
        for _ in range(JOBS):
            fields = shapes.fields(20)
            pushed[str(python.push("FailJob", retry=1, fields=fields))] = fields
    with sidekiq.worker(poll=0.1):
        assert differences(pushed, values(wait_for(client, "retry", JOBS), fields)) == []
        make_due(client)
        assert differences(pushed, values(wait_for(client, "dead", JOBS), fields)) == []


def test_both_in_turn(sidekiq: RealSidekiq, client: redis.Redis, server: Server) -> None:
    """PAY-7: pushed by Python, fails in Ruby, Python, Ruby; each failing side promotes it.

    RETRY-2, RETRY-5: each side continues the count of the other.
    """
    shapes = Shapes(SEED + 2)
    unknown = {**shapes.fields(50), "edges": shapes.edges()[:-2]}
    with Client(server.url) as python:
        jid = python.push("FailJob", retry=2, fields=unknown)
    with sidekiq.worker():
        wait_for(client, "retry", 1)
    make_due(client)
    with worker_threads(server.url, poll=0.1):
        wait_until(lambda: b'"retry_count":1' in b"".join(members(client, "retry")), 60)
    make_due(client)
    with sidekiq.worker(poll=0.1):
        (payload,) = wait_for(client, "dead", 1)
    assert differences({str(jid): unknown}, values([payload], unknown)) == []
    assert json.loads(payload)["retry_count"] == 2


def test_active_job_and_current_attributes(
    sidekiq: RealSidekiq, driver: Driver, client: redis.Redis, server: Server
) -> None:
    """PAY-7, EXEC-2: fields of Active Job and of Sidekiq's own middleware survive a failure.

    The payloads are recorded ones of this generation; Python knows none of their classes.
    """
    recorded = json.loads(
        resources.path(f"fixtures/sidekiq/{sidekiq.version}/payloads.json").read_text()
    )
    payloads = {
        entry["payload"]
        for entry in recorded
        if entry["scenario"].startswith(("activejob", "cattr"))
        and entry["place"].startswith("queue:")
    }
    assert len(payloads) > 15
    client.sadd("queues", "default")
    client.lpush("queue:default", *payloads)
    before = texts(members(client, "queue:default"))
    shown = {each.jid: (each.display_class, each.display_args) for each in driver.queue_list()}
    with worker_threads(server.url):
        retried = wait_for(client, "retry", len(payloads))
    after = texts(retried)
    for fields in (*before.values(), *after.values()):
        fields.pop("error_backtrace", None)
        fields.pop("queue")  # the test uses another queue than the recording
    assert after == before
    records = driver.set_list("retry")
    assert {each.jid: (each.display_class, each.display_args) for each in records} == shown
    assert [each.raised for each in records] == [{}] * len(records)


def test_members_that_python_wrote_are_found_by_their_bytes(
    driver: Driver, client: redis.Redis, server: Server
) -> None:
    """PAY-2, PAY-6: `reschedule` finds them by encoding them again, and adds no second member."""
    shapes = Shapes(floats=spelled_alike)
    with Client(server.url) as python:
        for args in [*([edge] for edge in shapes.edges()), *shapes.arguments(100)]:
            python.push("NoSuchJob", args, fields=shapes.fields(3))
    count = driver.queue_size()
    with worker_threads(server.url):
        wait_for(client, "retry", count)
    for record in driver.set_list("retry"):
        driver.reschedule("retry", str(record.jid), 4e9)
    assert client.zcard("retry") == count
    assert client.zcount("retry", "-inf", 3.99e9) == 0


# As the size limiter of GitLab does it: each job with arguments that are padded to a size.
COMPRESSED_PUSH = """
require "zlib"
require "base64"
with.map do |name, args, size|
  text = JSON.generate([*args, "x" * [0, size - JSON.generate([*args, ""]).bytesize].max])
  item = {"class" => name, "args" => JSON.parse(text), "retry" => true}
  if text.bytesize >= 100_000
    packed = Base64.strict_encode64(Zlib::Deflate.deflate(text, 5))
    size = {"compressed" => true, "original_job_size_bytes" => text.bytesize}
    item.update("args" => [packed], **size)
  end
  [Sidekiq::Client.push(item), text]
end
"""
BOMB = """
require "zlib"
require "base64"
zlib = Zlib::Deflate.new(5)
bytes = zlib << '["'
1024.times { bytes = zlib << "x" * (1 << 20) }
bytes << '"]'
Sidekiq::Client.push("class" => "EchoJob", "args" => [Base64.strict_encode64(zlib.finish)],
  "compressed" => true, "original_job_size_bytes" => 4 + (1 << 30))
"""


def test_arguments_that_ruby_compressed(
    driver: Driver, client: redis.Redis, server: Server
) -> None:
    """X-ZIP-1, X-ZIP-6: equal to the last digit; a retry differs in fields of a failure only."""
    shapes = Shapes()
    sizes = [99_999, 100_000, 100_001, *range(100_002, 110_000, 102)]
    jobs = [("EchoJob", [shapes.value()], size) for size in sizes]
    pushed = driver.eval(COMPRESSED_PUSH, jobs)
    failing = [("FailJob", [str(number), "RuntimeError"], 100_000) for number in range(100)]
    failed = driver.eval(COMPRESSED_PUSH, failing)
    payloads = [text for text in members(client, "queue:default") if b'"compressed":true' in text]
    assert len(payloads) == len(sizes) - 1 + len(failing) > 190
    before = texts([text for text in payloads if b'"FailJob"' in text])
    with worker_threads(server.url):
        retried = wait_for(client, "retry", len(failing))
        wait_until(lambda: client.llen("app:results") == len(sizes), 60, f"all runs, seed {SEED}")
    ran = {each["jid"]: each["args"] for each in results(client)}
    assert differences({jid: json.loads(text) for jid, text in pushed}, ran) == []
    assert differences(before, texts(retried)) == []
    told = {jid: entry["error_message"] for jid, entry in values(retried, WORDS).items()}
    assert told == {jid: json.loads(text)[0] for jid, text in failed}


def test_a_bomb_of_ruby_needs_little_memory(
    driver: Driver, client: redis.Redis, server: Server
) -> None:
    """X-ZIP-3: arguments of 1 GiB park the job as it is; the process grows by 64 MiB at most."""
    with worker_process(server.url) as python:
        driver.perform_async("EchoJob", 1)
        wait_until(lambda: client.llen("app:results") == 1, 60, "the first job")
        before = most_memory(python.pid)
        jid = driver.eval(BOMB)
        [entry] = wait_for(client, "jobwire:parked", 1)
        wait_until(lambda: client.hvals("jobwire:parked:why") == [b"size"], 60, "the reason")
        grown = most_memory(python.pid) - before
    assert json.loads(entry)["jid"] == jid
    assert b"error_class" not in entry
    assert not client.exists("retry", "dead")
    assert grown < 64 << 20, grown


def most_memory(pid: int) -> int:
    """Return the most bytes of memory that a process has had."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) << 10


@pytest.mark.parametrize(
    ("number", "alike"),
    [
        (1e22, ()),  # ours; 1.0e+22 in 6 and 7, 1e+22 in 8
        (1e15, ()),  # ours is 1000000000000000.0
        (5e-324, (8,)),
        (1e-5, (8,)),
        (6033.563130719122, (6, 7)),  # 8 writes 6033.5631307191215, which is the same double
    ],
)
def test_but_not_every_float(
    sidekiq: RealSidekiq,
    driver: Driver,
    client: redis.Redis,
    server: Server,
    number: float,
    alike: tuple[int, ...],
) -> None:
    """PAY-6's exceptions: no spelling is common to all generations.

    Sidekiq's `reschedule` then keeps the member and adds another one, due in 1970. It does the same
    with members of another generation of Sidekiq. If this test fails, the trap is gone.
    """
    with Client(server.url) as python:
        jid = str(python.push("NoSuchJob", [number], at=4e9))
    driver.reschedule("schedule", jid, 4e9 + 600)
    found = cast("list[tuple[bytes, float]]", client.zrange("schedule", 0, -1, withscores=True))
    expected = [4e9 + 600] if sidekiq.generation in alike else [600, 4e9]
    assert [score for _, score in found] == expected
    assert [json.loads(payload)["args"] for payload, _ in found] == [[number]] * len(expected)
