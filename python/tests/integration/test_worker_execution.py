"""Payloads in a running worker: arguments, middleware, payloads that are not jobs."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
import time
import zlib
from collections.abc import Callable
from hashlib import sha1
from typing import Any

import pytest

import jobwire
from harness.servers import Server, wait_until
from jobwire import App, current_job
from jobwire.application.config import FetchMode, UnknownJobs
from jobwire.errors import Shutdown
from jobwire.inspect import Filter
from jobwire.ops import Operations
from jobwire.protocol.foreign import FEATURES, Feature, ForeignPolicy
from jobwire.protocol.payload import Job
from tests.apps import isolated_ends
from tests.workers import running

FETCH = pytest.mark.parametrize("fetch", ["reliable", "basic"])
# Each way to fetch, and each kind of job, but not all pairs: neither knows of the other.
WAYS = pytest.mark.parametrize(("fetch", "kind"), [("reliable", "sync"), ("basic", "async")])


def push(server: Server, *texts: str | bytes, queue: str = "default") -> None:
    server.client().lpush(f"queue:{queue}", *texts)


def members(server: Server, key: str) -> list[bytes]:
    found: Any = server.client().zrange(key, 0, -1)
    return list(found)


def stat(server: Server, kind: str) -> int:
    return int(server.client().get(f"stat:{kind}") or 0)


def settled(server: Server) -> bool:
    """True if no job waits or is held."""
    client = server.client()
    return not client.keys("queue:*") and not client.keys("jobwire:private:*")


@FETCH
def test_encoded_arguments_fail_the_job_unless_middleware_decodes_them(
    server: Server, fetch: FetchMode
) -> None:
    """EXEC-13: the retry has the payload as fetched."""

    def decoding(job: Job, call_next: Callable[[], Any]) -> Any:
        if job.fields.get("encrypt") == "middleware knows":
            del job.fields["encrypt"]
            job.fields["args"] = ["decoded"]
        return call_next()

    app = App(server_middleware=[decoding])
    ran: list[Any] = []
    app.job(name="One")(lambda one: ran.append(one))
    marks = ['"encrypt":true', '"compressed":true', '"compressed":0', '"encrypt":"x"']
    push(server, *(f'{{"class":"One","jid":"j","retry":true,"args":["x"],{m}}}' for m in marks))
    with running(app, server, fetch=fetch):
        wait_until(lambda: len(members(server, "retry")) == len(marks))
        push(server, '{"class":"One","args":["x"],"encrypt":"middleware knows"}')
        wait_until(lambda: ran)
        push(server, '{"class":"One","args":["plain"],"compressed":false,"encrypt":null}')
        wait_until(lambda: len(ran) == 2)
    stored = [json.loads(text) for text in members(server, "retry")]
    assert [each["args"] for each in stored] == [["x"]] * len(marks)
    assert {(each["error_class"], "compressed" in each) for each in stored} == {
        ("TypeError", False),
        ("jobwire.errors.InvalidArgument", True),
    }
    assert ran == ["decoded", "plain"]


@pytest.mark.process
@FETCH
def test_a_payload_that_cannot_be_set_aside_is_put_back(server: Server, fetch: FetchMode) -> None:
    """EXEC-3, FETCH-6, SIG-5: at a stop, if the dead set refuses it."""
    client = server.client()
    client.set("dead", "not a sorted set")
    push(server, "not JSON")
    before = threading.active_count()
    with running(App(), server, fetch=fetch, timeout=0.2):
        wait_until(lambda: not client.exists("queue:default"))
    assert client.lrange("queue:default", 0, -1) == [b"not JSON"]
    wait_until(lambda: threading.active_count() <= before)  # no thread tries it again


@pytest.mark.parametrize(
    "error",
    [SystemExit(0), KeyboardInterrupt(), GeneratorExit(), StopIteration(1), Shutdown()],
    ids=lambda error: type(error).__name__,
)
def test_no_error_of_a_job_ends_the_worker(server: Server, error: BaseException) -> None:
    """EXEC-14, RETRY-2, RETRY-10: they are failures, even Shutdown outside of a shutdown."""
    app = App()
    ran: list[str] = []

    @app.job(name="Raise")
    def throw() -> None:
        raise error

    app.job(name="Take")(lambda: ran.append("alive"))
    push(server, '{"class":"Raise","retry":true}', '{"class":"Take"}')
    with running(app, server, concurrency=1):
        wait_until(lambda: ran and members(server, "retry"))
        wait_until(lambda: stat(server, "processed") == 2)
    (text,) = members(server, "retry")
    assert json.loads(text)["error_class"].endswith(type(error).__name__)


@WAYS
@pytest.mark.parametrize("ends", ["raises", "chained", "returns"])
def test_what_a_shutdown_leads_to_is_no_failure(
    server: Server, fetch: FetchMode, kind: str, ends: str
) -> None:
    """RETRY-10, SIG-5: also if the job raises another error or one with this cause, or returns."""
    app = App()
    started = threading.Event()
    heard: list[Any] = []
    app.on_error(lambda job, error: heard.append(error))

    def end(error: BaseException) -> None:
        if ends == "raises":
            raise ValueError("connection closed")
        if ends == "chained":
            raise RuntimeError("query failed") from error

    def wait() -> None:
        try:
            started.set()
            while True:
                time.sleep(0.01)
        except Shutdown as error:
            end(error)

    async def await_() -> None:
        try:
            started.set()
            await asyncio.sleep(60)
        except asyncio.CancelledError as error:
            end(error)

    app.job(name="Wait")(wait if kind == "sync" else await_)
    text = b'{ "class":"Wait","args":[],"retry":true}'
    push(server, text)
    with running(app, server, concurrency=1, timeout=0.1, fetch=fetch):
        assert started.wait(60)
    client = server.client()
    assert client.lrange("queue:default", 0, -1) == [text]
    assert not client.exists("retry", "dead")
    assert stat(server, "failed") == 0
    assert heard == []


def test_an_error_of_middleware_fails_the_job(server: Server) -> None:
    """EXEC-6, RETRY-3: and middleware may turn a failure into a success."""

    def refuse(job: Job, call_next: Callable[[], Any]) -> Any:
        if job["jid"] == "refused":
            raise PermissionError("not you")
        try:
            return call_next()
        except ZeroDivisionError:
            return None

    app = App(server_middleware=[refuse])
    app.job(name="Take")(lambda: 1 / 0)
    push(
        server,
        '{"class":"Take","retry":true,"jid":"refused"}',
        '{"class":"Take","retry":true,"jid":"rescued"}',
    )
    with running(app, server):
        wait_until(lambda: stat(server, "processed") == 2)
    (text,) = members(server, "retry")
    assert json.loads(text)["jid"] == "refused"
    assert json.loads(text)["error_message"] == "not you"


def test_jobs_enqueue_jobs(server: Server) -> None:
    """PUSH-1: through the application, which uses the worker's Redis."""
    app = App()
    done = threading.Event()

    @app.job(name="Leaf")
    def leaf(number: int) -> None:
        if number == 3:
            done.set()

    @app.job(name="Tree")
    def tree(number: int) -> None:
        if number < 3:
            tree.enqueue(number + 1)
        leaf.enqueue(number)

    @app.job(name="AsyncTree")
    async def async_tree() -> None:
        await tree.aenqueue(0)

    app.connect(server.url)
    async_tree.enqueue()
    with running(app, server):
        assert done.wait(60)
        wait_until(lambda: stat(server, "processed") == 9)
    assert members(server, "retry") == []


def test_current_job_is_there_only_while_it_runs(server: Server) -> None:
    """PAY-10, PAY-7: with any jid and with all its fields."""
    app = App()
    seen: list[Any] = []

    def layer(job: Job, call_next: Callable[[], Any]) -> Any:
        seen.append(current_job() is job)
        return call_next()

    app.server_middleware.append(layer)

    @app.job(name="Who")
    def who() -> None:
        job = current_job()
        assert job is not None
        seen.append((job.jid, job.queue, job["extra"]))

    push(server, '{"class":"Who","jid":"other-form","extra":{"a":1},"queue":"lie"}')
    with running(app, server, concurrency=1):
        wait_until(lambda: stat(server, "processed") == 1)
    assert seen == [True, ("other-form", "default", {"a": 1})]
    assert current_job() is None
    assert jobwire.current_job is current_job


# -- features of other products

# Each field of another product that may change the meaning of a job, and two kinds of classes: the
# special members of the payload, and the fate of the job by default and with each policy.
FATES: dict[str, tuple[str, str]] = {
    "bid": ('"bid":"b"', "park run park fail hand_over"),
    "encrypt": ('"encrypt":true', "fail fail park fail hand_over"),  # `run` is refused
    "expires_in": ('"expires_in":0', "park run park fail hand_over"),
    "unique_for": ('"unique_for":60', "run run park fail hand_over"),
    "unique_until": ('"unique_until":"start"', "run run run run run"),
    "overrated": ('"overrated":1', "run run park fail hand_over"),
    "interrupted_count": ('"interrupted_count":1', "run run run run run"),
    "size_limiter": ('"size_limiter":"validated"', "run run run run run"),
    "compressed": (  # X-ZIP-1
        '"args":["eF6LNtQziAUAA9cBSA=="],"compressed":true,"original_job_size_bytes":5',
        "run run run run run",
    ),
    "delayed": (
        '"class":"Sidekiq::Extensions::DelayedModel"',
        "park park park fail hand_over",  # `run` is refused
    ),
    "unknown": ('"class":"New"', "fail fail park fail hand_over"),
}
COLUMNS = ("default", "run", "park", "fail", "hand_over")


def foreign(field: str, number: int, class_name: str) -> bytes:
    """Return a job with a field of another product, whose spelling is not ours."""
    special = FATES[field][0]
    known = {"class": f'"{class_name}"', "args": "[1.0]"}
    rest = "".join(
        f'"{name}":{text},' for name, text in known.items() if f'"{name}"' not in special
    )
    jid = f'"jid":"{field}-{number}"'
    return f'{{ {jid},"queue":"default","retry":true,{rest}{special}}}'.encode()


@pytest.mark.parametrize(
    ("fetch", "kind"),
    [
        *(("reliable", "Sync"), ("basic", "Async")),
        pytest.param("reliable", "Echo", marks=pytest.mark.process),
    ],
)
@pytest.mark.parametrize("policy", COLUMNS)
def test_the_policy_of_a_foreign_feature_decides_what_becomes_of_its_jobs(
    server: Server, caplog: pytest.LogCaptureFixture, policy: str, kind: str, fetch: FetchMode
) -> None:
    """X-PARK-1 to X-PARK-4: exact bytes, the reason, nothing counted, one line a kind.

    With X-CLASS-4 for the policy `hand_over`, X-ZIP-1 and EXEC-13.
    """
    app = isolated_ends.app if kind == "Echo" else App()
    if kind == "Sync":
        app.job(name=kind, keep_result=60)(lambda one: one)
    elif kind == "Async":

        @app.job(name=kind, keep_result=60)
        async def run(one: Any) -> Any:
            return one

    features: dict[Feature, ForeignPolicy] = {}
    for feature in FEATURES:
        if policy != "default" and not (policy == "run" and feature in ("encrypt", "delayed")):
            features[feature] = policy  # type: ignore[assignment]
    expected: dict[str, list[tuple[str, bytes]]] = {fate: [] for fate in COLUMNS[1:]}
    for field, (_, fates) in FATES.items():
        fate = fates.split()[COLUMNS.index(policy)]
        expected[fate] += [(field, foreign(field, number, kind)) for number in (1, 2)]
    push(server, *(text for jobs in expected.values() for _, text in jobs))
    parked = {text: field for field, text in expected["park"]}
    client: Any = server.client()
    settings: dict[str, Any] = {"unknown_jobs": "park" if policy == "park" else "retry"}
    if policy == "hand_over":
        settings["hand_over"] = {"*": "ruby"}
    with running(app, server, fetch=fetch, foreign=features, **settings):
        wait_until(lambda: len(members(server, "retry")) == len(expected["fail"]))
        wait_until(lambda: client.llen("queue:ruby") == len(expected["hand_over"]))
        wait_until(lambda: client.hlen("jobwire:parked:why") == len(parked))
        wait_until(lambda: not client.exists("queue:default"))
        wait_until(lambda: not client.keys("jobwire:private:*"))
    assert {*members(server, "jobwire:parked")} == {*parked}
    why = {sha1(text).hexdigest().encode(): field.encode() for text, field in parked.items()}
    assert client.hgetall("jobwire:parked:why") == why
    handed_over = client.lrange("queue:ruby", 0, -1)
    assert sorted(handed_over) == sorted(text for _, text in expected["hand_over"])
    stored = {json.loads(text)["jid"]: text for text in members(server, "retry")}
    for _, text in expected["fail"]:
        failed = stored.pop(json.loads(text)["jid"])
        assert failed.startswith(b"{" + text[2:-1] + b","), failed  # each member as it was
        new = {*json.loads(failed)} - {*json.loads(text)}
        assert new == {"error_class", "error_message", "failed_at", "retry_count"}
    with jobwire.Client(server.url) as reader:
        for _, text in expected["run"]:
            result = reader.result(json.loads(text)["jid"])
            assert result is not None
            assert (result.outcome, result.value) == ("done", 1.0)
    assert not client.exists("dead", "schedule", "jobwire:unreadable")
    assert stat(server, "failed") == len(expected["fail"])
    assert stat(server, "processed") == len(expected["fail"]) + len(expected["run"])
    told = [record.getMessage() for record in caplog.records if record.msg.startswith("%s ")]
    silent = {"encrypt"} if policy in ("default", "run", "fail") else set()  # it fails by itself
    silent |= {"delayed"} if policy == "fail" else set()
    assert len(told) == len({*told}) == len({*FEATURES} - silent)
    unknown_kind = [record for record in caplog.records if "announced them" in record.msg]
    assert len(unknown_kind) == (policy == "park")


def test_arguments_that_inflate_to_too_much_are_parked(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """X-ZIP-3, X-PARK-3: for a worker that allows more, also if a failure would drop the job."""
    zeros = base64.b64encode(zlib.compress(b"[%b1]" % (b"0," * (17 << 20)), 1)).decode()
    text = f'{{ "class":"One","args":["{zeros}"],"compressed":true}}'.encode()
    app = App()
    ran: list[Any] = []
    app.job(name="One")(ran.append)
    push(server, text)
    client: Any = server.client()
    with running(app, server):
        wait_until(lambda: members(server, "jobwire:parked") == [text])
        wait_until(lambda: client.hvals("jobwire:parked:why") == [b"size"])
    assert not client.exists("retry", "dead", "stat:failed", "stat:processed")
    assert not ran
    assert "inflate to more than 33554432 bytes are parked" in caplog.text


@WAYS
@pytest.mark.parametrize("unknown", ["park", "retry"])
def test_a_job_of_a_newer_version_waits_for_newer_code(
    server: Server,
    caplog: pytest.LogCaptureFixture,
    unknown: UnknownJobs,
    kind: str,
    fetch: FetchMode,
) -> None:
    """X-PARK-2, X-PARK-4: older versions run it never; newer ones run every version."""
    ran: list[Any] = []

    def made(version: int) -> App:
        app = App(server.url)

        def note(text: str) -> None:
            job = current_job()
            assert job is not None
            ran.append((version, text, job.version))

        if kind == "sync":
            app.job(name="Note", version=version)(note)
        else:

            @app.job(name="Note", version=version)
            async def anote(text: str) -> None:
                note(text)

        return app

    old, new = made(1), made(3)
    old.jobs["Note"].enqueue("old")
    new.jobs["Note"].enqueue("new")
    odd = b'{"class":"Note","args":["odd"],"queue":"default","jw_version":"9"}'
    push(server, odd)
    client: Any = server.client()
    queued = [json.loads(text) for text in client.lrange("queue:default", 0, -1)]
    assert sorted(str(fields.get("jw_version")) for fields in queued) == ["3", "9", "None"]
    with running(old, server, fetch=fetch, unknown_jobs=unknown):
        wait_until(lambda: len(ran) == 2)
        place = "jobwire:parked" if unknown == "park" else "retry"
        wait_until(lambda: len(members(server, place)) == 1)
        if unknown == "park":
            wait_until(lambda: client.hvals("jobwire:parked:why") == [b"version"])
    assert sorted(ran) == [(1, "odd", 1), (1, "old", 1)]
    (waiting,) = members(server, place)
    fields = json.loads(waiting)
    assert fields["jw_version"] == 3
    if unknown == "park":
        assert "retry_count" not in fields
        with Operations(server.url, person="ada", role="operator") as operations:
            assert operations.unpark(reason="version") == (1, 0)
    else:
        assert fields["error_message"].startswith("job Note was enqueued by its version 3, and")
        client.zadd("retry", {waiting: 0})
    ran.clear()
    old.jobs["Note"].enqueue("old")
    old.close()
    with running(new, server, fetch=fetch):
        wait_until(lambda: len(ran) == 2)
    assert sorted(ran) == [(3, "new", 3), (3, "old", 1)]


def test_parked_jobs_go_back_to_their_queues_as_they_were(server: Server) -> None:
    """X-PARK-5: by reason, by class and by number."""
    fields = ("bid", "expires_in", "delayed", "unknown")
    texts = {field: foreign(field, 1, "One") for field in fields}
    push(server, *texts.values(), b'{"class":"Two","args":[],"bid":"b"}')
    with running(App(), server, unknown_jobs="park"):
        wait_until(lambda: server.client().hlen("jobwire:parked:why") == 5)
    client: Any = server.client()
    with Operations(server.url, person="ada", role="operator") as operations:
        assert {job.reason for job in operations.parked()} == {*texts}
        assert texts["bid"] in [job.entry.payload for job in operations.parked(reason="bid")]
        assert operations.unpark(reason="expires_in") == (1, 0)
        assert client.lrange("queue:default", 0, -1) == [texts["expires_in"]]
        assert client.smembers("queues") == {b"default"}
        assert operations.unpark(only=Filter(class_name="New*"), reason="bid") == (0, 0)
        assert operations.unpark(only=Filter(class_name="New*"), limit=1) == (1, 0)
        assert operations.unpark() == (2, 1)  # one names no queue
        assert [job.entry.class_name for job in operations.parked()] == ["Two"]
        assert client.hlen("jobwire:parked:why") == 1
        client.delete("jobwire:parked:why")
        assert [job.reason for job in operations.parked()] == [""]
        acts = [entry.act for entry in operations.journal() if entry.state == "ended"]
        assert acts == ["unpark"] * 3
    assert sorted(client.lrange("queue:default", 0, -1)) == sorted(texts.values())


def new(number: int) -> bytes:
    return b'{ "class":"New","jid":"n%d","queue":"default","retry":true,"args":[%d]}' % (
        number,
        number,
    )


@pytest.mark.process
@FETCH
def test_jobs_go_to_the_workers_that_know_their_classes(server: Server, fetch: FetchMode) -> None:
    """X-CLASS-3, X-CLASS-5, X-CLASS-6: parked, unparked at announcing, then handed over at once."""
    ran: list[Any] = []
    old, both = App(), App()
    old.job(name="Old")(ran.append)
    both.job(name="Old")(ran.append)

    @both.job(name="New")
    def run_new(number: int) -> None:
        job = current_job()
        assert job is not None
        ran.append((number, job.fields.get("retry_count")))

    client = server.client()
    numbers = range(30)
    push(server, *map(new, numbers))
    push(server, new(100).replace(b'"default"', b'"other"'))
    with running(old, server, fetch=fetch, unknown_jobs="park") as launcher:
        wait_until(lambda: client.hlen("jobwire:parked:why") == 31)
        with running(both, server, fetch=fetch, concurrency=1):
            wait_until(lambda: len(ran) == 30)
            wait_until(lambda: len(members(server, "jobwire:parked")) == 1)
            if fetch == "reliable":
                push(server, *map(new, range(30, 130)))
                wait_until(lambda: len(ran) + len(members(server, "jobwire:parked")) == 131)
                assert int(client.get("jobwire:stat:handed_over") or 0) > 0
            assert client.smembers(f"jobwire:classes:{launcher.identity}") == {b"Old"}
        assert not client.exists("retry", "dead")
    assert {retries for _, retries in ran} == {None}
    # It names a queue that no worker serves; others only wait for the next beat of `both`.
    assert new(100).replace(b'"default"', b'"other"') in members(server, "jobwire:parked")
    assert not client.keys("jobwire:classes:*")


@pytest.mark.process
def test_a_hand_over_that_no_worker_takes_comes_to_an_end(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """X-CLASS-5, X-CLASS-7: the job is parked with its exact bytes, and counted."""
    client = server.client()
    client.sadd("processes", "silent", "odd", "elsewhere", b"\xff")
    client.hset("silent", "info", '{"queues":["default"]}')
    client.hset("elsewhere", "info", '{"queues":["other"]}')
    client.hset("odd", "info", "[]")
    for name in ("silent", "odd", "elsewhere"):
        client.sadd(f"jobwire:classes:{name}", "New", *(["Far"] if name != "silent" else []))
    far = b'{"class":"Far","args":[],"jid":"f"}'
    push(server, new(1), far)
    with running(App(), server, unknown_jobs="park", concurrency=1):
        wait_until(lambda: client.hlen("jobwire:parked:why") == 2)
    assert sorted(members(server, "jobwire:parked")) == sorted([new(1), far])
    assert client.get("jobwire:stat:handed_over") == b"20"
    assert [r.args for r in caplog.records if r.msg.startswith("handed over %d")] == [
        (20, "default", "New")
    ]
    assert settled(server)


@FETCH
def test_unknown_classes_go_to_the_queue_that_the_settings_name(
    server: Server, caplog: pytest.LogCaptureFixture, fetch: FetchMode
) -> None:
    """X-CLASS-4: with the exact bytes, also while other unknown jobs are retried."""
    texts = [b'{"class":"Reports::%s", "queue":"default","args":[1.0]}' % c for c in (b"A", b"B")]
    push(server, *texts, b'{"class":"Other","args":[],"jid":"o","retry":true}')
    client: Any = server.client()
    with running(App(), server, fetch=fetch, hand_over={"Reports::*": "ruby"}):
        wait_until(lambda: client.llen("queue:ruby") == 2 and client.zcard("retry") == 1)
        wait_until(lambda: client.get("jobwire:stat:handed_over") == b"2")
    assert sorted(client.lrange("queue:ruby", 0, -1)) == texts
    assert b"ruby" in client.smembers("queues")
    assert len([r for r in caplog.records if "as hand_over says" in r.msg]) == 1
    assert (stat(server, "processed"), stat(server, "failed")) == (1, 1)


@pytest.mark.process
@FETCH
def test_pauses_of_sidekiq_pro_are_honoured_if_the_settings_say_so(
    server: Server, fetch: FetchMode
) -> None:
    """KEY-6: the set is only read. REL-9 has the pauses of jobwire."""
    ran: list[Any] = []
    app = App()
    app.job(name="Note")(ran.append)
    client: Any = server.client()
    client.sadd("paused", "default")

    def note(number: int, queue: str) -> None:
        push(server, json.dumps({"class": "Note", "args": [number]}), queue=queue)

    note(1, "default")
    queues = {"default": 0, "other": 0}
    with running(app, server, fetch=fetch, queues=queues, honour_paused="pro"):
        note(2, "other")
        wait_until(lambda: ran == [2])
        client.srem("paused", "default")
        wait_until(lambda: ran == [2, 1])

        def waits() -> bool:
            note(6, "other")
            time.sleep(0.5)
            return bool(client.exists("queue:other"))

        client.sadd("paused", "other")  # while the worker waits for jobs
        wait_until(waits)
        client.delete("paused")
        wait_until(lambda: not client.exists("queue:other"))
    ran[:] = [1, 2]
    client.sadd("paused", "default", "other")
    note(3, "default")
    note(4, "other")
    with running(app, server, fetch=fetch, queues=queues, honour_paused="pro"):
        client.delete("paused")
        wait_until(lambda: sorted(ran) == [1, 2, 3, 4])
    client.sadd("paused", "default")
    note(5, "default")
    with running(app, server, fetch=fetch):
        wait_until(lambda: 5 in ran)
    assert client.smembers("paused") == {b"default"}
