"""Sections 4 to 9 of the specification: values that real Sidekiq writes, refuses and runs."""

from __future__ import annotations

import json
import re
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, cast
from urllib.parse import urlsplit

import pytest
import redis

from harness.chroots import CHROOTS
from harness.servers import Server, wait_until
from tests.interop.driver import Driver, RubyError
from tests.interop.sidekiq import RealSidekiq

pytestmark = pytest.mark.interop

CONTROL = "".join(map(chr, range(32))) + '"\\'
SPELT = {8: r"\b", 9: r"\t", 10: r"\n", 12: r"\f", 13: r"\r"}
OTHERS = "/\x7f\u2028\u2029<>&'é😀"
JOB: dict[str, Any] = {"class": "EchoJob", "args": []}


def pushed(client: redis.Redis, queue: str = "default") -> list[bytes]:
    """Return the payloads of a queue, in the order in which they were pushed."""
    return cast("list[bytes]", client.lrange(f"queue:{queue}", 0, -1))[::-1]


def only(client: redis.Redis, queue: str = "default") -> dict[str, Any]:
    """Return the one payload of a queue."""
    (text,) = pushed(client, queue)
    job: dict[str, Any] = json.loads(text)
    return job


def raw(job: str, name: str, args: str, *, front: str = "", more: str = "") -> str:
    """Return a payload whose text is given in parts, with its name as its jid."""
    fields = f'"class":"{job}","args":[{args}],"jid":"{name}","queue":"default","retry":1'
    return f"{{{front}{fields}{more}}}"


def nested(levels: int) -> str:
    """Return an argument that makes a payload of this many levels."""
    return "[" * (levels - 2) + "]" * (levels - 2)


def reports(client: redis.Redis) -> bytes:
    """Return the texts that jobs reported."""
    return b"".join(cast("list[bytes]", client.lrange("app:results", 0, -1)))


def fates(sidekiq: RealSidekiq, client: redis.Redis, texts: Mapping[str, str]) -> dict[str, str]:
    """Run payloads, by name; return whether each one ran, is in `dead` or `retry`, or is gone."""
    for text in texts.values():
        client.lpush("queue:default", text)
    client.lpush("queue:default", raw("EchoJob", "end", '"end"'))
    with sidekiq.worker(concurrency=1, poll=100):
        wait_until(lambda: b'"end"' in reports(client), 60)
    reported = reports(client)
    begun = {jid.decode() for jid in cast("list[bytes]", client.lrange("app:started", 0, -1))}
    kept = {key: cast("list[bytes]", client.zrange(key, 0, -1)) for key in ("dead", "retry")}
    seen = {}
    for name, text in texts.items():
        mark = f'"{name}"'.encode()
        places = ["ran"] if mark in reported or name in begun else []
        if text.encode() in kept["dead"]:
            places.append("dead")
        places += ["retry" for member in kept["retry"] if mark in member]
        seen[name] = " ".join(places) or "gone"
    return seen


def refusal(error: pytest.ExceptionInfo[RubyError]) -> str:
    """Return the class of a Ruby error."""
    return error.value.error


def test_a_push_escapes_what_json_requires(driver: Driver, client: redis.Redis) -> None:
    """PAY-20, PAY-21: one spelling of escapes, and no others."""
    driver.push(JOB | {"args": [CONTROL]})
    driver.push(JOB | {"args": [OTHERS]})
    control, others = pushed(client)
    spelt = "".join(SPELT.get(code, f"\\u{code:04x}") for code in range(32)) + r"\"\\"
    assert f'"args":["{spelt}"]'.encode() in control
    assert f'"args":["{OTHERS}"]'.encode() in others


def test_a_push_writes_floats(driver: Driver, client: redis.Redis) -> None:
    """PAY-6, PAY-25, PAY-26: whole floats and minus zero keep their form."""
    driver.push(JOB | {"args": [1.0, -0.0, 0.1, 1795192067.0]})
    assert b'"args":[1.0,-0.0,0.1,1795192067.0]' in pushed(client)[0]


def test_a_push_writes_these_keys_and_fields(driver: Driver, client: redis.Redis) -> None:
    """KEY-0, KEY-7, KEY-8, KEY-9, KEY-10, PAY-0, PAY-28, PAY-30, PAY-31, PUSH-11."""
    jids = {driver.push(JOB | {"queue": "queue:x"}), driver.push(JOB | {"queue": "queue:x"})}
    driver.push(JOB | {"at": 4e9})
    types = {key: client.type(key) for key in cast("list[bytes]", client.keys("*"))}
    assert types == {b"queues": b"set", b"queue:queue:x": b"list", b"schedule": b"zset"}
    assert {client.ttl(key) for key in types} == {-1}
    assert client.zrange("schedule", 0, -1, withscores=True)[0][1] == 4e9
    first, second = (json.loads(text) for text in pushed(client, "queue:x"))
    assert {first["jid"], second["jid"]} == jids
    assert len(jids) == 2
    for job in (first, second):
        assert re.fullmatch("[0-9a-f]{24}", job["jid"])
        kinds = {name: type(value) for name, value in job.items()}
        time = kinds.pop("created_at")
        assert kinds.pop("enqueued_at") is time in (int, float)
        assert kinds == {"retry": bool, "queue": str, "class": str, "args": list, "jid": str}
        assert job["queue"] == "queue:x"


def test_null_values_of_the_caller(driver: Driver, client: redis.Redis) -> None:
    """PUSH-4, PUSH-20, PUSH-21: of jid and created_at absent; of at, args and queue refused."""
    driver.push(JOB | {"jid": None, "created_at": None, "enqueued_at": None})
    job = only(client)
    assert re.fullmatch("[0-9a-f]{24}", job["jid"])
    assert job["created_at"]
    assert job["enqueued_at"]
    for field in ("at", "args", "queue"):
        with pytest.raises(RubyError) as error:
            driver.push(JOB | {field: None})
        assert refusal(error) == "ArgumentError"
    assert client.llen("queue:default") == 1
    for jid in ("", 5, ["x"]):
        client.flushdb()
        driver.push(JOB | {"jid": jid})
        assert only(client)["jid"] == jid


def test_fractions_of_retry_for(sidekiq: RealSidekiq, driver: Driver, client: redis.Redis) -> None:
    """PUSH-4, PAY-0: 6 keeps the fraction, 7 and 8 cut it off."""
    driver.push(JOB | {"retry_for": 90.5})
    assert only(client)["retry_for"] == (90.5 if sidekiq.generation == 6 else 90)


def test_values_that_the_caller_gives(driver: Driver, client: redis.Redis) -> None:
    """PUSH-11, PUSH-13, PUSH-19, PAY-14: kept, of any value."""
    given: dict[str, Any] = {
        "jid": "abcdef012345",
        "created_at": 1700000000.5,
        "retry": None,
        "tags": None,
        "retry_count": 3,
    }
    driver.push(JOB | given)
    job = only(client)
    assert {name: job[name] for name in given} == given


def test_classes_that_begin_with_colons(
    sidekiq: RealSidekiq, driver: Driver, client: redis.Redis
) -> None:
    """PAY-12: `::EchoJob` is carried as it is and runs."""
    driver.push(JOB | {"class": "::EchoJob", "args": ["colons"]})
    assert only(client)["class"] == "::EchoJob"
    client.flushdb()
    texts = {"colons": raw("::EchoJob", "colons", "")}
    assert fates(sidekiq, client, texts) == {"colons": "ran"}


def test_arguments_that_are_not_text(driver: Driver, client: redis.Redis) -> None:
    """PAY-4, PAY-22: infinities and texts that are not UTF-8 are refused, nothing is written."""
    for value in (r'"\xED\xA0\x80"', "Float::INFINITY", "Float::NAN"):
        with pytest.raises(RubyError):
            driver.eval(f'Sidekiq::Client.push("class" => "EchoJob", "args" => [{value}])')
    assert client.llen("queue:default") == 0


ANY_JID = {
    "uuid": '"4A6F0E3C-9a55-4b43-a1e5-0f5d4c3b2a19"',
    "short": '"abcdef012345"',
    "number": "5",
    "null": "null",
    "list": '["list"]',
    "empty": '""',
}


def test_jobs_with_any_jid_run(sidekiq: RealSidekiq, client: redis.Redis) -> None:
    """PAY-29: also those whose jid is not a string, or absent."""
    texts = {
        name: f'{{"class":"EchoJob","args":["{name}"],"jid":{jid},"queue":"default"}}'
        for name, jid in ANY_JID.items()
    }
    texts["absent"] = '{"class":"EchoJob","args":["absent"],"queue":"default"}'
    assert fates(sidekiq, client, texts) == dict.fromkeys(texts, "ran")


RUNS: dict[str, tuple[str, str, str, str]] = {
    # payload, and its fate in 6.4.1, 7.3.2 and 8.1.7
    "100 levels": (raw("SleepJob", "100 levels", f"0,{nested(100)}"), "ran", "ran", "ran"),
    "101 levels": (raw("SleepJob", "101 levels", f"0,{nested(101)}"), "dead", "dead", "ran"),
    "102 levels": (raw("SleepJob", "102 levels", f"0,{nested(102)}"), "dead", "dead", "dead"),
    "comment": (raw("EchoJob", "comment", "1", front="/* c */"), "ran", "ran", "dead"),
    "repeated": (raw("EchoJob", "repeated", "1", more=',"x":1,"x":2'), "ran", "ran", "dead"),
    "low half": (raw("SleepJob", "low half", r'0,"\udc00"'), "ran", "ran", "dead"),
    "high half": (raw("SleepJob", "high half", r'0,"\ud800"'), "dead", "dead", "dead"),
    "1e400": (raw("EchoJob", "1e400", "1", more=',"x":1e400'), "ran", "ran", "ran"),
    "long integer": (raw("EchoJob", "long integer", "9" * 5_000), "ran", "ran", "ran"),
    "failing 1e400": (
        raw("FailJob", "failing 1e400", '"m"', more=',"x":1e400'),
        *("gone", "gone", "gone"),
    ),
    "failing low half": (
        raw("FailJob", "failing low half", r'"m"', more=r',"x":"\udc00"'),
        *("gone", "gone", "dead"),
    ),
    "failing comment": (
        raw("FailJob", "failing comment", '"m"', front="/**/"),
        *("retry", "retry", "dead"),
    ),
    "encoded": (raw("EchoJob", "encoded", '"x"', more=',"encrypt":true'), "ran", "ran", "ran"),
}


def test_texts_at_the_limits_of_json(sidekiq: RealSidekiq, client: redis.Redis) -> None:
    """PAY-1, PAY-3, PAY-17, PAY-23, PAY-24: payloads that run, are dead, or are lost."""
    column = sidekiq.generation - 5
    expected = {name: row[column] for name, row in RUNS.items()}
    assert fates(sidekiq, client, {name: row[0] for name, row in RUNS.items()}) == expected


DROP = """
class ChangeJob
  def call(_class, job, _queue, _pool)
    Array(job.delete("drop")).each { |field| job.delete(field) }
    job.merge!(job.delete("set") || {})
    yield unless job.delete("stop")
  end
end
Sidekiq.configure_client { |config| config.client_middleware { |chain| chain.add ChangeJob } }
nil
"""


def test_middleware_decides(driver: Driver, client: redis.Redis) -> None:
    """PUSH-7, PUSH-15, PUSH-16: a stopped job is not written, and the id is null."""
    driver.eval(DROP)
    assert driver.push(JOB | {"stop": True}) is None
    assert client.dbsize() == 0
    assert driver.push(JOB | {"set": {"queue": "other"}})
    assert only(client, "other")["queue"] == "other"


@pytest.mark.parametrize("field", ["jid", "class", "args", "retry", "created_at"])
def test_fields_that_middleware_removed(field: str, driver: Driver, client: redis.Redis) -> None:
    """PUSH-11, PUSH-18: the payload is written without them."""
    driver.eval(DROP)
    driver.push(JOB | {"drop": [field]})
    assert field not in only(client)


def test_a_queue_that_middleware_removed(
    sidekiq: RealSidekiq, driver: Driver, client: redis.Redis
) -> None:
    """PUSH-18: 6 pushes to a queue without a name, 7 and 8 raise an error."""
    driver.eval(DROP)
    if sidekiq.generation == 6:
        driver.push(JOB | {"drop": ["queue"]})
        assert client.keys("queue:*") == [b"queue:"]
        return
    with pytest.raises(RubyError):
        driver.push(JOB | {"drop": ["queue"]})
    assert client.dbsize() == 0


def test_a_bulk_is_pushed_in_order(driver: Driver, client: redis.Redis) -> None:
    """BULK-8, BULK-16: over all slices."""
    jids = driver.push_bulk({"class": "EchoJob", "args": [[number] for number in range(2_500)]})
    jobs = [json.loads(text) for text in pushed(client)]
    assert [job["args"] for job in jobs] == [[number] for number in range(2_500)]
    assert [job["jid"] for job in jobs] == jids


def test_a_bulk_of_no_jobs(driver: Driver, client: redis.Redis) -> None:
    """BULK-9: success without a write."""
    assert driver.push_bulk({"class": "EchoJob", "args": []}) == []
    assert client.dbsize() == 0


BAD_BULKS: list[dict[str, Any]] = [
    {"args": [1, 2]},
    {"args": [[1], 2]},
    {"args": [[1], None]},
    {"args": [[1], "x"]},
    {"args": [[1], {"a": 1}]},
    {"args": [[1], [2]], "at": [4e9]},
    {"args": [[1], [2]], "at": [4e9, None]},
    {"args": [[1], [2]], "at": "tomorrow"},
]


@pytest.mark.parametrize("items", BAD_BULKS, ids=str)
def test_bulks_that_are_refused(items: dict[str, Any], driver: Driver, client: redis.Redis) -> None:
    """BULK-3, BULK-10, BULK-12: elements that are not arrays; times that do not match."""
    with pytest.raises(RubyError) as error:
        driver.push_bulk({"class": "EchoJob"} | items)
    assert refusal(error) == "ArgumentError"
    assert client.dbsize() == 0


def test_a_jid_of_a_bulk(sidekiq: RealSidekiq, driver: Driver, client: redis.Redis) -> None:
    """BULK-2, BULK-11: replaced for one job; refused for several, except by 6."""
    driver.push_bulk({"class": "EchoJob", "args": [[1]], "jid": "mine"})
    assert re.fullmatch("[0-9a-f]{24}", only(client)["jid"])
    client.flushdb()
    several = {"class": "EchoJob", "args": [[1], [2]], "jid": "mine"}
    if sidekiq.generation == 6:
        assert len(set(driver.push_bulk(several))) == 2
        return
    with pytest.raises(RubyError) as error:
        driver.push_bulk(several)
    assert refusal(error) == "ArgumentError"
    assert client.dbsize() == 0


def test_stopped_jobs_of_a_bulk(sidekiq: RealSidekiq, driver: Driver, client: redis.Redis) -> None:
    """BULK-19: null in place of the id; 6 leaves the place out."""
    driver.eval(DROP.replace('yield unless job.delete("stop")', 'yield unless job["args"] == [2]'))
    jids = driver.push_bulk({"class": "EchoJob", "args": [[1], [2], [3]]})
    expected = [False, False] if sidekiq.generation == 6 else [False, True, False]
    assert [jid is None for jid in jids] == expected
    assert [json.loads(text)["args"] for text in pushed(client)] == [[1], [3]]


def test_a_bulk_that_is_spread(sidekiq: RealSidekiq, driver: Driver, client: redis.Redis) -> None:
    """BULK-13, BULK-14: 8 only; a short interval is raised to 5 s."""
    if sidekiq.generation < 8:
        pytest.skip("no spread_interval")
    push = "Sidekiq::Client.push_bulk('class' => 'EchoJob', 'args' => [[1]] * 60, **with)"
    driver.eval(push.replace("**with", "spread_interval: 0.001"))
    members = cast("list[tuple[bytes, float]]", client.zrange("schedule", 0, -1, withscores=True))
    scores = [score for _, score in members]
    assert 2 < max(scores) - min(scores) < 5
    for wrong in ("spread_interval: 0", "spread_interval: -5", "spread_interval: 60, 'at' => 4e9"):
        with pytest.raises(RubyError) as error:
            driver.eval(push.replace("**with", wrong))
        assert refusal(error) == "ArgumentError"
    assert client.zcard("schedule") == 60


class LossyProxy:
    """Forwards to a server. The first push to the queue `lost` gets no byte of its reply.

    Attributes:
        port: The port to connect to.
        seen: How often that push arrived.
    """

    def __init__(self, server: Server) -> None:
        parts = urlsplit(server.url)
        self._address = (str(parts.hostname), int(parts.port or 6379))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.seen = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, socket.create_connection(self._address) as server:
            silent = False
            while request := client.recv(1 << 16):
                server.sendall(request)
                reply = server.recv(1 << 16)
                silent = silent or (self.seen == 0 and b"lost" in request)
                if b"queue:lost" in request:
                    self.seen += 1
                    if silent:
                        return
                if not silent:
                    client.sendall(reply)


@contextmanager
def lossy(server: Server) -> Iterator[LossyProxy]:
    """Run a proxy that loses one reply."""
    proxy = LossyProxy(server)
    try:
        yield proxy
    finally:
        proxy.close()


def test_a_lost_reply_doubles_the_job(
    sidekiq_version: str, server: Server, client: redis.Redis
) -> None:
    """PUSH-14: the library of Redis sends the push again by itself; both jobs have one jid."""
    with lossy(server) as proxy:
        url = f"redis://127.0.0.1:{proxy.port}/0"
        with RealSidekiq(sidekiq_version, CHROOTS / sidekiq_version, url).driver() as driver:
            jid = driver.push(JOB | {"queue": "lost"})
    assert [json.loads(text)["jid"] for text in pushed(client, "lost")] == [jid, jid]
    assert proxy.seen == 2


def test_a_server_that_lost_its_role(
    sidekiq_version: str, server: Server, client: redis.Redis
) -> None:
    """PUSH-9, PUSH-17: after READONLY the push is repeated, on a new connection."""
    client.config_set("min-replicas-to-write", 1)
    with RealSidekiq(sidekiq_version, CHROOTS / sidekiq_version, server.url).driver() as driver:
        received = client.info("stats")["total_connections_received"]
        with pytest.raises(RubyError, match="NOREPLICAS"):
            driver.push(JOB)
        assert client.info("stats")["total_connections_received"] == received + 2


def test_a_server_that_stays_a_replica(
    sidekiq: RealSidekiq, driver: Driver, client: redis.Redis
) -> None:
    """PUSH-22, PUSH-9: 6 tries twice, 7 and 8 four times."""
    client.replicaof("127.0.0.1", 1)
    client.config_resetstat()
    with pytest.raises(RubyError, match="READONLY"):
        driver.push(JOB)
    stats = client.info("commandstats")["cmdstat_lpush"]
    client.replicaof("NO", "ONE")
    assert stats["rejected_calls"] == (2 if sidekiq.generation == 6 else 4)


def test_the_digits_of_a_float(sidekiq: RealSidekiq, driver: Driver, client: redis.Redis) -> None:
    """PAY-33, PAY-6: the same double; 8 writes more digits than 1e23 needs."""
    driver.push({"class": "EchoJob", "args": [1e23]})
    (text,) = pushed(client, "default")
    assert json.loads(text)["args"] == [1e23]
    needless = b"9.999999999999999e+22"
    assert (needless in text) is (sidekiq.generation == 8)


def test_a_payload_without_class(driver: Driver, client: redis.Redis) -> None:
    """PAY-12, PUSH-4: an empty class is written, another type is refused."""
    driver.push({"class": "", "args": []})
    assert json.loads(pushed(client, "default")[0])["class"] == ""
    with pytest.raises(RubyError, match="ArgumentError"):
        driver.push({"class": 5, "args": []})


def test_delayed_extensions(sidekiq: RealSidekiq, driver: Driver) -> None:
    """SEC-1: only 6 has them, and only an application that switches them on has their classes."""
    asked = "defined?(Sidekiq::Extensions::DelayedClass).inspect"
    assert driver.eval(asked) == "nil"
    if sidekiq.generation == 6:
        driver.eval("Sidekiq::Extensions.enable_delay!; nil")
        assert driver.eval(asked) != "nil"


@pytest.mark.parametrize(("password", "text"), [("p w", "p+w"), ("p+w", "p%2Bw")])
def test_passwords_in_a_url(
    password: str, text: str, sidekiq_version: str, server: Server, client: redis.Redis
) -> None:
    """ENV-7, ENV-13: a password is decoded, and "+" in it is read as a space."""
    client.acl_setuser(
        "jw", enabled=True, passwords=[f"+{password}"], keys=["*"], categories=["+@all"]
    )
    url = server.url.replace("redis://", f"redis://jw:{text}@")
    with RealSidekiq(sidekiq_version, CHROOTS / sidekiq_version, url).driver() as driver:
        assert driver.push(JOB)


def test_backtraces_and_times_of_others(
    sidekiq: RealSidekiq, driver: Driver, client: redis.Redis
) -> None:
    """PAY-18, PAY-32, GEN-8: arrays, texts without base64, float milliseconds."""
    fields = '"class":"EchoJob","args":[],"queue":"default","created_at":1700000000250.0'
    stored = {"array": '["a.rb:1"]', "text": '"!!!"'}
    for jid, value in stored.items():
        client.zadd("retry", {f'{{{fields},"jid":"{jid}","error_backtrace":{value}}}': 1})
    array, text = driver.find("retry", "array"), driver.find("retry", "text")
    assert array.error_backtrace == (["a.rb:1"] if sidekiq.generation == 6 else None)
    assert "error_backtrace" in text.raised
    assert array.created_at == 1700000000250.0


def test_the_error_of_an_argument(sidekiq: RealSidekiq, driver: Driver) -> None:
    """PUSH-12: 7 and 8 name the value, and not its place."""
    push = "EchoJob.perform_async('a', :symbol)"
    if sidekiq.generation == 6:
        assert driver.eval(push)
        return
    with pytest.raises(RubyError, match="symbol") as error:
        driver.eval(push)
    assert not re.search(r"\b[12]\b", error.value.message)


def test_the_first_job_of_a_bulk_decides(driver: Driver, client: redis.Redis) -> None:
    """BULK-15: a time that middleware gives to the second job only does not count."""
    change = 'job["at"] = 4e9 if job["args"] == [2]; yield'
    driver.eval(DROP.replace('yield unless job.delete("stop")', change))
    driver.push_bulk({"class": "EchoJob", "args": [[1], [2]]})
    assert client.zcard("schedule") == 0
    assert client.llen("queue:default") == 2
