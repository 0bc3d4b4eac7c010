"""Pages with a subject of their own: journal, failures, doctor, sizes of queues."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest
from starlette.testclient import TestClient

from harness.servers import Server, wait_until
from jobwire.connection.sync import SyncRedis
from jobwire.errors import RedisUnreachable
from jobwire.ops import Finding, Operations
from jobwire.protocol.keys import Keys
from jobwire.protocol.metrics import Metrics
from jobwire.web import Visitor, WebApp
from tests.integration.inspector.entries import NOW, payload
from tests.integration.web.served import Events, served
from tests.integration.web.test_bulk import visiting


def act(server: Server, person: str, *names: str) -> None:
    """Pause queues in the name of a person."""
    with Operations(server.url, person=person, role="admin") as operations:
        for name in names:
            operations.pause(name)


def test_an_empty_journal_says_so(server: Server) -> None:
    with visiting(server) as browser:
        assert "No person has changed anything" in browser.text("/journal")


def test_pages_by_id_show_each_entry_once(server: Server) -> None:
    names = [f"q{number:03}." for number in range(250)]
    act(server, "ada", *names)
    shown: list[str] = []
    with visiting(server) as browser:
        path, pages = "/journal", 0
        while path:
            text = browser.text(path)
            shown += [name for name in reversed(names) if name in text]
            pages += 1
            html = browser.client.get(path).text
            older = [part for part in html.split('href="') if ">Older<" in part]
            path = older[0].partition('"')[0].replace("&amp;", "&") if older else ""
    assert pages == 3
    assert shown == list(reversed(names))


def test_filters_by_person_and_act(server: Server) -> None:
    act(server, "ada", "q1.")
    act(server, "Grace <b>", *(f"g{number:03}." for number in range(150)))
    with visiting(server) as browser:
        assert "q1." not in browser.text("/journal")
        assert "q1." in browser.text("/journal?person=ADA")
        assert "g001." not in browser.text("/journal?person=ADA")
        assert "1 of the 151 entries" in browser.text("/journal?person=ada")
        assert "q1." in browser.text("/journal?act=pause")
        assert "No such entry" in browser.text("/journal?act=retry")
        assert "<b>" not in browser.client.get("/journal?person=<b>").text


@pytest.mark.parametrize("before", ["x", "5-", "-", "(5", "5-5-5", "+", "9" * 30])
def test_an_id_that_is_none_is_refused(server: Server, before: str) -> None:
    with visiting(server) as browser:
        answer = browser.client.get("/journal", params={"before": before})
    assert answer.status_code == 400
    assert "is not the id of an entry" in answer.text


def test_a_deletion_has_one_button_until_it_is_undone(server: Server) -> None:
    client = server.client()
    client.zadd("dead", {payload("a"): 5})
    client.lpush("queue:q", payload("b"))
    with Operations(server.url, role="admin") as operations:
        operations.clear("dead")
        operations.clear("queue:q")
    with visiting(server) as browser:
        text = browser.text("/journal")  # one row of each, not its start and its end
        assert (text.count(" done "), text.count("started")) == (2, 0)
        newest, oldest = browser.forms("/journal", "undo")
        browser.send(oldest)
        assert client.zcard("dead") == 1
        assert client.exists("queue:q") == 0
        assert browser.forms("/journal", "undo") == [newest]
    with visiting(server, "viewer") as browser:
        assert browser.forms("/journal", "undo") == []
        assert "possible" in browser.text("/journal")


def test_entries_of_another_program_are_shown(server: Server) -> None:
    client = server.client()
    client.xadd("jobwire:journal", {"who": b"\xff<script>", "act": "\u202e", "count": "many"})
    client.xadd("jobwire:journal", {"undo": "nothing", "job": "a/../b"})
    with visiting(server) as browser:
        html = browser.client.get("/journal").text
    assert "<script>\u202e" not in html
    assert "\\u202e" in html
    assert "&lt;script&gt;" in html
    assert "/changes/a%2F..%2Fb" in html


def test_a_key_of_another_type_is_named(server: Server) -> None:
    server.client().set("jobwire:journal", "x")
    with visiting(server) as browser:
        assert "WRONGTYPE" in browser.text("/journal", 503)


LABEL = "abc123 <b>\u202e"


@pytest.mark.parametrize("form", ["ours", "old", "odd", "another type"])
def test_a_job_has_its_status_of_sidekiq_status(server: Server, form: str) -> None:
    """X-ADDON-19: on its page, also after its end; its arguments there stay hidden."""
    client: Any = server.client()
    key = "sidekiq:status:j"
    fields: dict[str, Any] = {"status": "complete", "args": '["secret"]', "ended_at": "1700000000"}
    if form == "another type":
        client.set(key, "x")
        client.sadd("queues", "q")
        client.lpush("queue:q", payload("j"))
    elif form == "odd":
        odd = {"at": "9" * 5000, "total": "-1", "message": b"\xff", "started_at": "nan"}
        client.hset(key, mapping={"status": "<b>" * 100, **odd})
    else:
        changed = "updated_at" if form == "ours" else "update_time"
        far = {"at": "3", "total": "10", "message": "rows", "stop": "true", changed: "1700000000"}
        client.hset(key, mapping={**fields, **far})
    with visiting(server) as browser:
        answer = browser.client.get("/jobs/j")
    assert answer.status_code == 200
    assert ("Status of sidekiq-status" in answer.text) == (form != "another type")
    assert "secret" not in answer.text
    assert "<b>" not in answer.text
    if form in ("ours", "old"):
        assert "complete, asked to stop" in answer.text
        assert "3 of 10 (30 %): rows" in answer.text
        assert "Ended" in answer.text


def test_a_job_far_back_in_its_queue_is_found_by_a_button(server: Server) -> None:
    client = server.client()
    client.sadd("queues", "q")
    client.lpush("queue:q", *(payload(f"j{number}", queue="q") for number in range(1_200)))
    with visiting(server) as browser:
        quick = browser.client.get("/jobs/j1100").text
        assert "/jobs/j1100?all=1" in quick
        assert "--examine" not in quick
        assert "Jobs before it" in browser.text("/jobs/j1100?all=1")


def test_a_group_shows_the_deployment_before_it(server: Server) -> None:
    minute = NOW // 60 * 60
    with Operations(server.url, person="ada", role="admin", clock=lambda: minute) as operations:
        operations.mark_deploy(LABEL)
    error = {"error_message": "no", "retry_count": 0}
    early, late = (
        payload(name, error_class=name, failed_at=round((minute + seconds) * 1000), **error)
        for name, seconds in (("Early", -1), ("Late", 720))
    )
    server.client().zadd("retry", {early: 5, late: 6})
    app = WebApp(
        server.url, authorize=lambda request: Visitor("ada", "viewer"), clock=lambda: NOW + 3600
    )
    with closing(app), TestClient(app) as page:
        html = page.get("/failures").text
    rows = {
        name: html.partition(f"<strong>{name}")[2].partition("</tr>")[0]
        for name in ("Early", "Late")
    }
    assert "deployment" not in rows["Early"]
    assert "12 min after deployment <strong" in rows["Late"]
    assert ">abc123 &lt;b&gt;\\u202e</strong>" in rows["Late"]


class Doctor:
    """Findings of the test, counted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *findings: Any) -> None:
        self.calls = 0
        self.go_on = threading.Event()
        self.go_on.set()
        self.findings = findings
        monkeypatch.setattr(Operations, "doctor", lambda operations: self())

    def __call__(self) -> list[Finding]:
        self.calls += 1
        self.go_on.wait(30)
        for one in self.findings:
            if isinstance(one, Exception):
                raise one
        return list(self.findings)


def test_findings_of_a_real_server_have_remedy_and_evidence(server: Server) -> None:
    server.client().sadd("queues", "q")
    server.client().lpush("queue:q", "x")
    with visiting(server, "viewer") as browser:
        text = wait_until(lambda: _ready(browser.text("/doctor")))
    assert "served by no process: q" in text
    assert "Error: jobs are lost or do not run" in text
    assert "Remedy: start workers" in text
    assert "Evidence" in text


def test_a_process_that_hangs_says_what_to_do(server: Server) -> None:
    """A process that hangs stops its heartbeat, and 60 s later its hash is gone."""
    client = server.client()
    for name, age, lease in (("works", 5, 55), ("hangs", 35, 25), ("gone", 90, 0)):
        client.sadd("processes", f"{name}:1:0123456789ab")
        beat = {"info": "{}", "busy": 0, "beat": time.time() - age, "quiet": "false"}
        if lease:
            client.hset(f"{name}:1:0123456789ab", mapping=beat)
            client.expire(f"{name}:1:0123456789ab", lease)
    with visiting(server, "viewer") as browser:
        text = browser.text("/busy")
        findings = wait_until(lambda: _ready(browser.text("/doctor")))
    advice = "Other workers take its jobs 60 s after the last one"
    assert text.count(advice) == 1
    assert text.index("hangs:1") < text.index(advice) < text.index("works:1")
    assert "gone:1:0123456789ab has sent no heartbeat for more than 60 s" in text
    assert findings.count("its log says which part is stuck: end it") == 1
    assert "one that hangs says which part is stuck" in findings


def _ready(text: str) -> str:
    return "" if "takes longer than a moment" in text else text


def test_one_examination_serves_all_visitors(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    doctor = Doctor(monkeypatch)
    with visiting(server) as browser, ThreadPoolExecutor(8) as threads:
        texts = list(threads.map(lambda _: browser.text("/doctor"), range(24)))
        assert doctor.calls == 1
        assert all("Nothing is wrong" in text for text in texts)
        browser.site._background["doctor"].next_at = 0
        browser.text("/doctor")
        assert doctor.calls == 2


def test_a_long_examination_does_not_hold_the_page(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    doctor = Doctor(monkeypatch, Finding("x", "note", "A sentence.", "a remedy"))
    doctor.go_on.clear()
    with visiting(server) as browser:
        assert "takes longer than a moment" in browser.text("/doctor")
        assert "takes longer than a moment" in browser.text("/doctor")
        assert doctor.calls == 1
        doctor.go_on.set()
        assert "A sentence." in wait_until(lambda: _ready(browser.text("/doctor")))


def test_an_examination_that_fails_keeps_the_last_findings(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    doctor = Doctor(monkeypatch, Finding("x", "note", "A sentence.", "a remedy"))
    with visiting(server) as browser:
        browser.text("/doctor")
        for error, told in (
            (RedisUnreachable("no connection"), "no connection"),
            (RuntimeError("the inside"), "the log of the server has it"),
        ):
            doctor.findings = (error,)
            browser.site._background["doctor"].next_at = 0
            # A page does not wait long for an examination.
            texts: list[str] = []
            while not texts or (told not in texts[-1] and len(texts) < 1000):
                texts.append(browser.text("/doctor"))
            assert told in texts[-1]
            assert "A sentence." in texts[-1]
            assert "the inside" not in texts[-1]


def test_evidence_is_text(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    evidence = {"a_name": ["\udcff", "<b>"], "long": "x" * 10_000, "odd": {1, 2}, "number": 5}
    Doctor(monkeypatch, Finding("x", "error", "<i>\u202e", "<u>", evidence))
    with visiting(server) as browser:
        html = browser.client.get("/doctor").text
    assert all(tag not in html for tag in ("<b>", "<i>", "<u>", "\u202e"))
    assert "a name" in html
    assert len(html) < 10_000


class Clock:
    """A clock that stands still until it is told otherwise; then no number is fresh any more."""

    def __init__(self) -> None:
        self.now = NOW
        self.app: WebApp | None = None

    def __call__(self) -> float:
        return self.now

    def forward(self, seconds: float) -> None:
        """Set the clock, and have the numbers read again."""
        self.now += seconds
        assert self.app is not None
        self.app._sites[""]._shared.clear()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def app(server: Server, clock: Clock) -> Iterator[WebApp]:
    made = WebApp(
        server.url, authorize=lambda request: Visitor("ada", "viewer"), refresh=0.05, clock=clock
    )
    clock.app = made
    with closing(made):
        yield made


def push(server: Server, queue: str, count: int) -> None:
    client = server.client()
    client.sadd("queues", queue)
    client.lpush(f"queue:{queue}", *(payload(str(n), queue=queue) for n in range(count)))


def test_every_page_takes_samples_and_the_pages_of_queues_show_them(
    server: Server, app: WebApp, clock: Clock
) -> None:
    push(server, "mails", 3)
    with TestClient(app) as page:
        assert page.get("/stats").status_code == 200
        assert 'aria-label="Size in the only sample so far: 3"' in page.get("/queues").text
        push(server, "mails", 1_200)
        clock.forward(300)
        page.get("/retries")  # any page reads the sizes, for its menu
        server.client().ltrim("queue:mails", 0, 39)
        clock.forward(420)
        words = "Size in the last 12 min: from 3 to 40, most 1,203"
        listed = page.get("/queues").text
        assert f'aria-label="{words}"' in listed
        assert "since 16:27:47 UTC" in listed
        shown = page.get("/queues/mails").text
        assert f'aria-label="{words}"' in shown
        assert f"<p>{words}.</p>" in shown
        assert shown.count("<polyline") == 3  # two gaps of some minutes without a page
        assert "There is no sample of this queue" in page.get("/queues/other").text


def test_the_overview_has_the_rate_and_the_waiting_times(
    server: Server, app: WebApp, clock: Clock
) -> None:
    counted = Metrics()
    thread = counted.for_thread()
    redis = SyncRedis(server.url)
    with TestClient(app) as page, closing(redis):
        assert "No worker of jobwire has started a job." in page.get("/").text
        for seconds in (0.1, 2, 2, 2_000):
            thread.record("A", 10, failed=False)
            thread.began(clock.now, clock.now - seconds)
        redis.run(counted.flush(Keys(), now=clock.now))
        clock.forward(60)
        text = page.get("/?period=1h").text
        assert "<dt>Executions a minute</dt>" in text
        assert re.search(r'<dd title="[0-9:]+ UTC, the last whole minute">4</dd>', text)
        half = "half of the jobs waited at most 1.5 s, 95 % at most 31 min 27 s"
        assert half in text
        assert '<td class="number">1.5 s</td><td class="number">31 min 27 s</td>' in text
        assert "They are kept for three days." in page.get("/?period=90d").text
        assert half in page.get("/?period=1d").text


def test_the_sizes_of_an_open_page_are_updated(server: Server, app: WebApp, clock: Clock) -> None:
    push(server, "mails", 3)
    with served(app) as url:
        for path in ("/queues", "/queues/mails", "/queues/mails?class=A"):
            with closing(Events(f"{url}{path}")) as page:
                size = server.client().llen("queue:mails")
                page.until("live", f"to {size}, most" if clock.now > NOW else f"far: {size}")
                push(server, "mails", 2)
                clock.forward(60)
                part = page.until("live", f"from 3 to {size + 2}, most {size + 2}")
                assert "<polyline" in part
                assert "<form" not in part  # which a visitor may be filling in


def test_updates_of_a_queue_do_not_read_its_jobs(server: Server, app: WebApp) -> None:
    push(server, "mails", 3)
    client = server.client()
    with served(app) as url, closing(Events(f"{url}/queues/mails?error=x")) as page:
        page.next()
        client.config_resetstat()
        push(server, "mails", 2)
        page.until("live", "<dd>5</dd>")
        calls = client.info("commandstats")
    assert "cmdstat_lrange" not in calls
    assert calls["cmdstat_llen"]["calls"] < 60


def test_a_sample_writes_nothing(server: Server, app: WebApp, clock: Clock) -> None:
    push(server, "mails", 3)
    client = server.client()
    keys = {key: client.dump(key) for key in client.scan_iter()}
    with TestClient(app) as page:
        for _ in range(5):
            clock.forward(10)
            page.get("/queues")
    assert {key: client.dump(key) for key in client.scan_iter()} == keys
    line = app._sites[""].sizes.of("mails")
    assert line is not None
    assert line.sizes == (3, 3, 3, 3, 3)
