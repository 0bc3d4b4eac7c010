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


def test_arguments_that_are_not_text(driver: Driver, client: redis.Redis) -> None:
    """PAY-4, PAY-22: infinities and texts that are not UTF-8 are refused, nothing is written."""
    for value in (r'"\xED\xA0\x80"', "Float::INFINITY", "Float::NAN"):
        with pytest.raises(RubyError):
            driver.eval(f'Sidekiq::Client.push("class" => "EchoJob", "args" => [{value}])')
    assert client.llen("queue:default") == 0


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
