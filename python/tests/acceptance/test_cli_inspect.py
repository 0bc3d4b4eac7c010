"""`jobwire inspect` from the view of a user: in a pipe, for a program, on a terminal."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from contextlib import closing, redirect_stderr, redirect_stdout
from io import StringIO
from typing import Any
from unittest.mock import patch

import pytest

from harness.servers import Server, wait_until
from jobwire import App
from jobwire.cli import main, output
from jobwire.connection.sync import SyncRedis
from jobwire.ops import Operations
from jobwire.protocol import metrics
from jobwire.protocol import output as emitted
from jobwire.protocol.keys import Keys
from jobwire.protocol.limits import LimitOfJob
from jobwire.protocol.wire import once
from tests.rows import over
from tests.workers import environment, jobwire


@pytest.fixture
def client(server: Server) -> Any:
    """Return a connection to a server with data of every kind."""
    client = server.client()
    now = time.time()
    client.sadd("queues", "default", "low")
    for number in range(3):
        client.lpush("queue:default", payload(f"q{number}"))
    for number in range(120):
        name = "HardJob" if number % 2 else "SoftJob"
        text = payload(
            f"r{number:03}", name, retry_count=1, error_class="E", error_message="boom\x1b"
        )
        client.zadd("retry", {text: now + 1000 + number})
    client.zadd("retry", {"{broken": now + 5000})
    client.zadd("schedule", {payload("s"): now + 100})
    client.zadd("dead", {payload("d"): now - 100})
    info = {"hostname": "h", "pid": 1, "concurrency": 5, "queues": ["default"], "started_at": now}
    client.sadd("processes", "web:1:a")
    client.hset("web:1:a", mapping={"info": json.dumps(info), "busy": 1, "beat": now})
    record = {"queue": "default", "payload": payload("w").decode(), "run_at": int(now)}
    client.hset("web:1:a:work", "t1", json.dumps(record))
    client.hset("it-w", mapping={"ex": 1, "c": "7", "rt": 1})
    return client


def payload(jid: str, class_name: str = "HardJob", **fields: Any) -> bytes:
    made = {"class": class_name, "args": [1, "x"], "jid": jid, "queue": "default"}
    return json.dumps(made | {"retry": True, "created_at": time.time()} | fields).encode()


def command(
    server: Server,
    *words: str,
    status: int = 0,
    out: StringIO | None = None,
    err: StringIO | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run the command in this process, because starting Python many times is slow."""
    out, err = out or StringIO(), err or StringIO()
    arguments = ["jobwire", *words, "--redis", server.url]
    with (
        patch.object(sys, "argv", arguments),
        patch.object(sys, "stdin", StringIO()),
        redirect_stdout(out),
        redirect_stderr(err),
        pytest.raises(SystemExit) as ended,
    ):
        main()
    assert (ended.value.code, words) == (status, words), (out.getvalue(), err.getvalue())
    return subprocess.CompletedProcess(arguments, status, out.getvalue(), err.getvalue())


def run(server: Server, *words: str, **more: Any) -> subprocess.CompletedProcess[str]:
    return command(server, "inspect", *words, **more)


def records(server: Server, *words: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run(server, *words, "--json").stdout.splitlines()]


def test_looking(server: Server, client: Any) -> None:
    """INSP-1, INSP-11, INSP-12, INSP-14: every view, for programs and in a pipe."""
    before = client.info("persistence")["rdb_changes_since_last_save"]
    (stats,) = records(server, "stats")
    assert (stats["retries"], stats["busy"], stats["queues"]) == (121, 1, {"default": 3, "low": 0})
    queues = [(each["name"], each["workers"]) for each in records(server, "queues")]
    assert queues == [("default", 1), ("low", 0)]
    assert [each["jid"] for each in records(server, "queue", "default")] == ["q2", "q1", "q0"]
    retries = records(server, "retries")
    assert len(retries) == 121  # a pipe gets all rows
    assert [retries[0]["jid"], retries[1]["jid"]] == ["r000", "r001"]  # the next one due first
    assert retries[-1]["problem"]
    assert retries[-1]["payload"] == "{broken"
    assert len(records(server, "retries", "--class", "Hard*", "--error", "boom")) == 60
    assert len(records(server, "retries", "--scan", "SoftJob", "-n", "5")) == 5
    assert records(server, "dead", "--older-than", "1h") == []
    assert [each["jid"] for each in records(server, "dead", "--older-than", "50s")] == ["d"]
    (process,) = records(server, "processes")
    assert (process["identity"], process["concurrency"]) == ("web:1:a", 5)
    assert [each["job"]["jid"] for each in records(server, "works")] == ["w"]
    assert [each["cursor"] for each in records(server, "iterations")] == [7]
    assert records(server, "job", "r001")[0]["place"] == "retry"
    lines = run(server, "retries", "-n", "2").stdout.splitlines()
    assert lines[0].split("\t") == ["due", "class", "arguments", "job id", "queue", "error"]
    assert lines[1].split("\t")[3] == "r000"
    assert len(lines) == 3
    for view in ("stats", "history", "scheduled", "unreadable", "metrics", "holdings"):
        run(server, view)
    assert client.info("persistence")["rdb_changes_since_last_save"] == before


@over(
    "stored,shown",
    [
        ({"outcome": "done", "value": [1, "é"]}, 'value\t[1, "é"]'),
        ({"outcome": "done", "value": None}, "value\tnull"),
        ({"outcome": "done", "problem": "too large"}, "no value\ttoo large"),
        ({"outcome": "retry", "error_class": "E", "error_message": "no"}, "error\tE: no"),
    ],
)
def test_a_stored_result(server: Server, client: Any, stored: Any, shown: str) -> None:
    client.set("jobwire:result:r1", json.dumps({"at": 5, **stored}), ex=3600)
    text = run(server, "result", "r1").stdout
    assert shown in text
    assert f"outcome\t{stored['outcome']}" in text
    (record,) = records(server, "result", "r1")
    assert record["result"]["value"] == stored.get("value")
    assert 3500 < record["expires_in"] <= 3600
    for odd in ("x", '{"outcome":"odd"}'):
        client.set("jobwire:result:r1", odd)
        assert "is not a job with a stored result" in run(server, "result", "r1", status=1).stderr
    client.delete("jobwire:result:r1")
    client.rpush("jobwire:result:r1", "x")
    run(server, "result", "r1", status=1)
    client.delete("jobwire:result:r1")


def test_failures_are_counted_from_one(server: Server, client: Any) -> None:
    """RETRY-2: a list and the view of a job say the same; `--json` has the field, from 0."""
    text = payload("f", retry_count=0, error_class="E", error_message="no", failed_at=time.time())
    client.zadd("retry", {text: time.time()})
    assert run(server, "retries", "-n", "1").stdout.splitlines()[1].endswith("\t#1 E: no")
    facts = dict(line.split("\t", 1) for line in run(server, "job", "f").stdout.splitlines())
    assert facts["failures counted"] == "1"
    assert records(server, "job", "f")[0]["retry_count"] == 0


def test_orders(server: Server, client: Any) -> None:
    """The job that is due next comes first, and the job that died last."""
    now = time.time()
    client.zadd("schedule", {payload("later"): now + 900, payload("soon"): now + 5})
    client.zadd("dead", {payload("old"): now - 9000})
    assert [each["jid"] for each in records(server, "scheduled")] == ["soon", "s", "later"]
    assert [each["jid"] for each in records(server, "dead")] == ["d", "old"]


def test_a_pipe_gets_times_that_stay_true(server: Server, client: Any) -> None:
    """INSP-1: absolute times, and no drawings."""
    for number in range(9):
        client.lpush("queue:low", payload(f"l{number}"))
        client.set(f"stat:processed:{time.strftime('%Y-%m-%d', time.gmtime())}", 7)
    at = re.compile(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
    for view in ("scheduled", "retries", "dead", "works", "processes", "job s", "queue default"):
        text = run(server, *view.split()).stdout
        assert view == "queue default" or at.search(text), text
        assert " ago" not in text
        assert not re.search(r"\bin \d", text)
    for view in ("queues", "history", "metrics"):
        header, *lines = run(server, view).stdout.splitlines()
        assert header.split("\t")[-1] not in ("", "over time")
        assert {len(line.split("\t")) for line in lines} <= {len(header.split("\t"))}
        assert not re.search("[\u2500-\u25ff]", "".join(lines))


def test_a_queue_that_does_not_exist(server: Server, client: Any) -> None:
    for words in (["queue", "defualt"], ["clear", "queue:defualt", "-y"]):
        ended = run(server, *words, status=1)
        assert ended.stdout == ""
        assert ended.stderr == ("jobwire: there is no queue 'defualt'; did you mean 'default'?\n")
    assert run(server, "queue", "low").stdout.splitlines()[1:] == []  # registered, and empty
    client.lpush("queue:unregistered", payload("u"))
    assert [each["jid"] for each in records(server, "queue", "unregistered")] == ["u"]


def test_a_queue_without_a_worker(server: Server, client: Any) -> None:
    """INSP-1: jobs in it would wait for ever."""
    client.lpush("queue:low", payload("l"))
    assert [each["workers"] for each in records(server, "queues")] == [1, 0]
    states = [line.split("\t")[3] for line in run(server, "queues").stdout.splitlines()]
    assert states == ["state", "", "no worker"]
    client.sadd("jobwire:paused", "low")
    assert run(server, "queues").stdout.splitlines()[2].endswith("\tpaused, no worker")


class Screen(StringIO):
    """Standard output that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_a_terminal_without_rich(
    server: Server, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """INSP-1: every view has aligned columns of plain text."""
    monkeypatch.setattr(output, "find_spec", lambda name: None)
    monkeypatch.setitem(sys.modules, "rich", None)  # an import would fail
    client.hset("j|26", "x", 1)
    for view in (
        *("stats", "history", "queues", "queue default", "scheduled", "retries -n 3", "dead"),
        *("unreadable", "job s", "processes", "works", "holdings", "iterations", "metrics"),
    ):
        text = run(server, *view.split(), out=Screen()).stdout
        assert "\x1b" not in text, view
        assert len(text.splitlines()) >= 2, view
    lines = run(server, "retries", "-n", "3", out=Screen()).stdout.splitlines()
    assert lines[0] == "Jobs to be retried"
    assert lines[1].index("job id") == lines[2].index("r000") == lines[3].index("r001")
    assert lines[-1] == "the first 3; --limit 0 shows all"
    assert run(server, "kill", "--all", "-y", err=Screen()).stdout == "killed 121\n"


def test_locks_are_shown_and_released(server: Server, client: Any) -> None:
    """X-UNIQ-3: a lock is named by its digits, and released once, with a line in the journal."""
    digest = "a" * 64
    client.set(f"jobwire:unique:{digest}", "s", ex=600)
    client.set(f"jobwire:unique:{'b' * 64}", "gone", ex=600)
    gone, held = records(server, "unique")
    assert (held["digest"], held["jid"], held["place"]) == (digest, "s", "schedule")
    assert held["class"]
    assert held["queue"]
    assert 0 < held["expires_at"] - time.time() <= 601
    assert (gone["class"], gone["place"]) == (None, None)
    assert len(run(server, "unique").stdout.splitlines()) == 3  # the first one names the columns
    assert "there may be more locks" in run(server, "unique", "--limit", "1").stderr
    ended = run(server, "unlock", digest, digest, status=1)
    assert ended.stdout == f"released {digest} of job s\n"
    assert f"{digest} is not a lock; 'jobwire inspect unique' shows the locks" in ended.stderr
    with Operations(server.url) as operations:
        assert operations.journal()[0].target == f"lock {digest} of s"


def test_batches_are_shown(server: Server) -> None:
    """X-BATCH-1: the newest first, in their states; other keys do not count."""
    app = App()
    app.connect(server.url)
    work = app.job(name="Work")(lambda: None)
    with app.batch(on_success=work.s(), description="first") as first:
        first.add(work.s(), work.s())
    with app.batch() as second:
        second.add(work.s())
        second.cancel()
    client: Any = server.client()
    client.hset("jobwire:batch:other", "x", "y")
    newest, oldest = records(server, "batches")
    assert (newest["id"], newest["state"], newest["open"]) == (second.id, "cancelled", 1)
    assert (oldest["id"], oldest["total"], oldest["waiting"]) == (first.id, 2, ["on_success"])
    assert len(run(server, "batches").stdout.splitlines()) == 3  # the first one names the columns
    one = run(server, "batches", "-n", "1")
    assert second.id in one.stdout
    assert first.id not in one.stdout
    assert "there may be more batches: use a higher --limit or --examine" in one.stderr
    app.close()


def test_missing_members_of_a_batch(server: Server, client: Any) -> None:
    """X-BATCH-6: only what is in no place; a search that ends early says so."""
    client.flushall()
    places = {"dead": "dead", "parked": "jobwire:parked", "retry": "retry", "due": "schedule"}
    for jid, key in places.items():
        client.zadd(key, {payload(jid): 1})
    client.sadd("queues", "q")
    client.lpush("queue:q", payload("queued"))
    client.sadd("jobwire:owners", "a")
    client.hset("jobwire:private:a", "1:q", payload("held"))
    client.hset("jobwire:batch:b", mapping={"state": "closed", "total": 9})
    members = [*places, "queued", "held", "lost"]
    client.sadd("jobwire:batch:b:open", *members)
    before = client.info("persistence")["rdb_changes_since_last_save"]
    shown = run(server, "batch", "b", "--missing")
    assert "lost" in shown.stdout
    assert "queued" not in shown.stdout
    assert shown.stderr == ""
    told = json.loads(run(server, "batch", "b", "--missing", "--json").stdout)
    assert told["missing"] == {"jids": ["lost"], "complete": True}
    assert told["batch"]["open"] == 7
    assert json.loads(run(server, "batch", "b", "--json").stdout)["missing"] is None
    few = run(server, "batch", "b", "--missing", "--examine", "1")
    assert "not all was examined: use a higher --examine" in few.stderr
    assert "x is not a batch; 'jobwire inspect" in run(server, "batch", "x", status=1).stderr
    assert client.info("persistence")["rdb_changes_since_last_save"] == before


def test_batches_are_cancelled(server: Server, client: Any) -> None:
    """X-BATCH-7: after a question, with a line in the journal; one that has ended stays."""
    for name, state in (("b", "closed"), ("c", "complete")):
        client.hset(f"jobwire:batch:{name}", mapping={"state": state, "on_complete": "{}"})
    client.sadd("jobwire:batch:b:open", "1", "2")
    asked = run(server, "cancel-batch", "b", status=2)
    assert "Cancel 1 batch with 2 open members?" in asked.stderr
    ended = run(server, "cancel-batch", "b", "c", "-y", status=1)
    assert ended.stdout == "cancelled b\n"
    assert "c is not a batch that has not ended; 'jobwire inspect batches'" in ended.stderr
    assert client.hgetall("jobwire:batch:b") == {b"state": b"cancelled"}
    assert client.hget("jobwire:batch:c", "state") == b"complete"
    with Operations(server.url) as operations:
        assert [one.target for one in operations.journal()] == ["batch b"]


def test_limits_are_shown(server: Server, client: Any) -> None:
    """X-LIMIT-3: of both kinds, with the slots and tokens in use, waiting jobs and free time."""
    keys, lines = Keys(), ["jobwire:limit:api:[1]:line", "jobwire:limit:calls:line"]
    now = time.time()
    slots = LimitOfJob("api", "[1]", at_once=3)
    rate = LimitOfJob("calls", rate=2, per=60, burst=2)
    used = {slots.text(): now, rate.text(): now, LimitOfJob("idle", at_once=1).text(): now, b"x": 0}
    client.zadd(keys.limits, used)
    held = {"2:a:t": now * 1000 + 9_000, "1:b:": now * 1000 + 9_000, "1:old:t": now * 1000 - 1}
    client.zadd(keys.limit(slots.ident, "held"), held)
    for line in lines:
        client.zadd(line, {"c": 1, "d": 2})
    client.set(keys.limit("calls", "full"), int(now * 1e6) + 120_000_000)
    api, calls, idle = records(server, "limits")
    assert (api["name"], api["key"], api["in_use"], api["waiting"]) == ("api", "[1]", 3, 2)
    assert (api["at_once"], api["free_in"]) == (3, None)
    assert (calls["rate"], calls["per"], calls["in_use"], calls["waiting"]) == (2, 60, 2, 2)
    assert 60 < calls["free_in"] <= 90
    assert (idle["in_use"], idle["waiting"], idle["free_in"]) == (0, 0, 0)
    text = run(server, "limits", "-n", "3").stdout
    assert text.count("\n") == 4
    assert "2 in 1m 00s, 2 together" in text


def test_changing(server: Server, client: Any) -> None:
    """INSP-4 to INSP-9, INSP-13: named jobs are changed, and missing ones are reported."""
    ended = run(server, "retry", "r001", "absent", status=1)
    assert ended.stdout == "enqueued r001\n"
    assert ended.stderr == (
        "jobwire: absent is not in retry or dead; jobwire inspect job absent searches all places\n"
    )
    assert json.loads(client.lindex("queue:default", 0))["retry_count"] == 0
    run(server, "kill", "r002")
    run(server, "delete", "r003")
    run(server, "reschedule", "s", "--in", "2h")
    assert client.zrange("schedule", 0, 0, withscores=True)[0][1] > time.time() + 7000
    run(server, "add-to-queue", "s")
    assert (client.zcard("dead"), client.zcard("schedule"), client.zcard("retry")) == (2, 0, 118)
    ended = run(server, "retry", "--class", "SoftJob", "--yes")
    assert ended.stdout == "enqueued 59\n"
    ended = run(server, "retry", "--all", "-y")
    assert ended.stdout == "enqueued 58\n"
    assert ended.stderr == (
        "jobwire: 1 stay in retry: they name no queue, or the key of their queue is not a list\n"
    )
    run(server, "delete", "--from", "queue:default", "q0")
    assert run(server, "clear", "queue:default", "-y").stdout == "deleted 121\n"
    run(server, "clear", "dead", "-y")
    assert client.exists("dead", "queue:default") == 0
    run(server, "pause", "low")
    assert [each["paused"] for each in records(server, "queues")] == [True]
    run(server, "unpause", "low")
    run(server, "unpause", "low", status=1)
    run(server, "quiet", "web:1:a")
    run(server, "stop", "--all", "--yes")
    run(server, "dump", "absent", status=1)
    assert client.lrange("web:1:a-signals", 0, -1) == [b"TERM", b"TSTP"]
    run(server, "cancel", "w")
    run(server, "mark-deploy", "v1.2")
    assert client.hexists("it-w", "cancelled")
    assert client.exists("deploylock-v1.2")


def test_a_job_in_another_place(server: Server, client: Any) -> None:
    """INSP-6: a dead job is retried, and other commands say where the job is."""
    assert run(server, "retry", "d").stdout == "enqueued d\n"
    assert client.zcard("dead") == 0
    assert json.loads(client.lindex("queue:default", 0))["jid"] == "d"
    client.zadd("dead", {payload("d2"): time.time()})
    for words, message in (
        ("retry s", "s is not in retry or dead; it is in schedule: jobwire inspect retry --from"),
        ("retry --from retries d2", "d2 is not in retry; it is in dead: jobwire inspect retry"),
        ("delete d2", "it is in dead: jobwire inspect delete --from dead d2"),
        ("kill d2", "d2 is not in retry; it is in dead\n"),
        ("add-to-queue r001", "it is in retry: jobwire inspect add-to-queue --from retry r001"),
        ("reschedule r001 --in 5", "jobwire inspect reschedule --from retry r001"),
        ("reschedule d2 --in 5", "d2 is not in schedule; it is in dead\n"),
    ):
        ended = run(server, *words.split(), status=1)
        assert ended.stdout == ""
        assert message in ended.stderr, words
    assert client.zcard("dead") == 1


def test_times_of_executions_have_units(server: Server, client: Any) -> None:
    """MET-1: a class may have failed each time, or took less than a millisecond."""
    now = time.time()
    for name, count, failed, ms in (
        ("Slow", 3, 1, 5_000),
        ("Quick", 1_000, 0, 0),
        ("Brief", 10, 0, 120),
        ("Bad", 2, 2, 0),
    ):
        fields = {f"{name}|p": count, f"{name}|f": failed, f"{name}|ms": ms}
        client.hset(metrics.minute_key(Keys(), now), mapping=fields)
    header, *lines = run(server, "metrics").stdout.splitlines()
    assert header.split("\t") == ["class", "executed", "failed", "mean time", "total time"]
    assert {line.split("\t")[0]: line.split("\t")[1:] for line in lines} == {
        "Slow": ["3", "1", "2.5s", "5.0s"],
        "Quick": ["1,000", "0", "< 1 ms", "< 1.0s"],
        "Brief": ["10", "0", "12 ms", "120 ms"],
        "Bad": ["2", "2", "-", "-"],
    }


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["kill", "--all"], "add --yes to confirm"),
        (["clear", "dead"], "add --yes to confirm"),
        (["stop", "--all"], "add --yes to confirm"),
        (["delete"], "--all, --limit or a filter"),
        (["retry", "r001", "--all"], "--all, --limit or a filter"),
        (["retry", "--from", "queue:low", "--all"], "run anyway"),
        (["kill", "--from", "dead", "--all", "-y"], "already dead"),
        (["retry", "--from", "nowhere", "x"], "'nowhere' is not one of"),
        (["retries", "--older-than", "soon"], "write 90, 15m, 2h or 30d"),
        (["reschedule", "s"], "either --in or --at"),
        (["reschedule", "s", "--from", "dead", "--in", "5"], "become due"),
        (["stats", "--watch", "1"], "needs a terminal"),
        (["quiet"], "--all"),
        (["metrics", "--hours", "3", "--minutes", "3"], "cannot be combined"),
    ],
)
def test_wrong_usage_changes_nothing(
    server: Server, client: Any, words: list[str], reason: str
) -> None:
    """INSP-4: the command refuses in one line with advice."""
    before = client.info("persistence")["rdb_changes_since_last_save"]
    ended = run(server, *words, status=2)
    assert ended.stdout == ""
    assert len(ended.stderr.splitlines()) == 1
    assert reason in ended.stderr
    assert client.info("persistence")["rdb_changes_since_last_save"] == before


def test_no_redis() -> None:
    """ENV-7: status 4, as for every command."""
    ended = jobwire("inspect", "stats", "--redis", "redis://127.0.0.1:1/0")
    assert ended.returncode == 4
    assert ended.stderr.startswith("jobwire: cannot use Redis")


class Terminal:
    """`jobwire inspect` on a pseudo-terminal."""

    def __init__(self, server: Server, *words: str, columns: int = 100) -> None:
        self._ours, theirs = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "jobwire", "inspect", *words, "--redis", server.url],
            env=environment(TERM="xterm", COLUMNS=str(columns), LINES="30"),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        self.seen = ""

    def read(self) -> bool:
        """Read the available output; return False at its end."""
        ready, _, _ = select.select([self._ours], [], [], 0.05)
        try:
            more = os.read(self._ours, 65_536) if ready else b" "
        except OSError:  # the other end is closed
            more = b""
        self.seen += more.decode("utf-8", "replace") if ready else ""
        return bool(more)

    def until(self, text: str) -> None:
        def there() -> bool:
            self.read()
            return text in self.seen

        wait_until(there, 60, what=f"{text!r} in {self.seen!r}")

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def end(self) -> int:
        wait_until(lambda: not self.read(), 60, what="the end of the command")
        os.close(self._ours)
        return self.process.wait(60)


def test_a_table_on_a_terminal(server: Server, client: Any) -> None:
    """SEC-5: in colours, cut to the width, and without control characters of the data."""
    screen = Terminal(server, "retries")
    assert screen.end() == 0
    assert "Jobs to be retried" in screen.seen
    assert "the first 50; --limit 0 shows all" in screen.seen
    assert "\x1b[1;36m" in screen.seen
    assert "boom\\x1b" in screen.seen
    screen = Terminal(server, "job", "r001", columns=60)
    assert screen.end() == 0, screen.seen


@pytest.mark.parametrize(("answer", "status", "left"), [("y", 0, 0), ("n", 1, 121)])
def test_being_asked(server: Server, client: Any, answer: str, status: int, left: int) -> None:
    """INSP-4: the command asks a person before it changes many jobs."""
    screen = Terminal(server, "kill", "--all")
    screen.until("Kill all 121 jobs of retry? [y/N]:")
    assert client.zcard("retry") == 121
    screen.type(f"{answer}\n")
    assert screen.end() == status
    assert client.zcard("retry") == left
    assert ("killed 121" in screen.seen) is (status == 0)
    assert ("nothing was changed" in screen.seen) is (status == 1)


def test_being_asked_about_jobs_that_match(server: Server, client: Any) -> None:
    """INSP-4: the question names the number of the jobs that would change."""
    ended = run(server, "kill", "--class", "SoftJob", status=2)
    assert "Kill 60 of the 121 jobs in retry? " in ended.stderr
    ended = run(server, "delete", "--from", "queue:default", "--jid", "q1", status=2)
    assert "Delete 1 of the 3 jobs in queue:default? " in ended.stderr


def test_watching(server: Server, client: Any) -> None:
    """INSP-1: the same view again and again, until Ctrl-C."""
    screen = Terminal(server, "queues", "--watch", "0.1")
    screen.until("every 0.1 s; Ctrl-C ends")
    client.sadd("queues", "brandnew")
    screen.until("brandnew")
    screen.process.send_signal(signal.SIGINT)
    assert screen.end() == 0


def test_the_output_of_a_job_is_printed_and_followed(server: Server) -> None:
    """X-STEP-12, X-STEP-15: text as it is, other items as JSON; a gap goes to stderr."""
    with closing(SyncRedis(server.url)) as one:
        items = [b'"a\\u001b[1m"', b'{"n":2}', b"3"]
        one.run(once(emitted.script_emit(Keys(""), "j", "r", items, keep=60, now=1.0)))
        assert run(server, "output", "j").stdout.splitlines()[1:] == ['{"n": 2}', "3"]
        assert "\x1b" not in run(server, "output", "j").stdout
        last = records(server, "output", "j", "--after", "1000-2")
        assert last == [{"position": "1000-3", "value": 3, "run": "r"}]
        one.run(once(emitted.script_tell(Keys(""), "j", "dead", now=1.0)))
    assert run(server, "output", "j", "--follow").stdout.splitlines()[1:] == ['{"n": 2}', "3"]
    server.client().xtrim("jobwire:out:j", maxlen=2, approximate=False)
    gap = run(server, "output", "j")
    assert (gap.stdout, gap.returncode) == ("3\n", 0)
    assert "2 items have been removed before they were read" in gap.stderr
    assert run(server, "output", "none", status=1).stdout == ""
