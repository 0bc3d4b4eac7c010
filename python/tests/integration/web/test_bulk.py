"""Changes of many jobs: dry run, progress, stop, undo, and the view of other processes."""

from __future__ import annotations

import itertools
import re
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from html import unescape
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.testclient import TestClient

from harness.servers import Server, wait_until
from jobwire.console.ops.changes import AT_A_TIME, MAX_ENDED, Change, Changes, Progress, batches
from jobwire.console.web.pages import bulk
from jobwire.errors import ConfigError
from jobwire.inspect import PeriodicEntry, PeriodicJobs
from jobwire.ops import Operations, Role, Selection
from jobwire.web import Visitor, WebApp, hide_arguments
from tests.integration.inspector.entries import payload, snapshot
from tests.integration.ops.hostile import HOSTILE
from tests.integration.web.crawling import Form, parsed


class Browser:
    """A visitor of one application."""

    def __init__(self, app: WebApp, client: TestClient) -> None:
        self.app = app
        self.client = client
        self.site = app._sites[""]

    def text(self, path: str, status: int = 200) -> str:
        """Return the text of a page between tags."""
        answer = self.client.get(path)
        assert answer.status_code == status, answer.text
        return words(answer.text)

    def forms(self, path: str, act: str) -> list[Form]:
        """Return the forms of an action on a page."""
        answer = self.client.get(path)
        assert answer.status_code == 200, answer.text
        return [form for form in parsed(answer.text, path)[1] if form.act == act]

    def send(self, form: Form) -> Any:
        """Send a form and follow the redirect."""
        return self.client.post(form.action, data=dict(form.fields))

    def confirm(self, path: str) -> str:
        """Confirm a dry run; return the path of the change."""
        (form,) = self.forms(path, "bulk")
        answer = self.send(form)
        assert answer.status_code == 200, answer.text
        return str(answer.url.path)

    def ended(self, path: str) -> Change:
        """Return the change of a page when it has ended."""
        change = self.site.changes.get(path.rpartition("/")[2])
        assert change is not None
        assert change.wait(120)
        return change


def words(html: str) -> str:
    """Return the text of the content of a page."""
    content = html.partition("<main")[2]
    return re.sub(r"\s+", " ", unescape(re.sub("<[^>]+>", " ", content)))


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the request of an undo wait for its end, however busy the machine is."""
    monkeypatch.setattr("jobwire.console.web.pages.changes.WAIT_S", 60)


@contextmanager
def visiting(server: Server, role: Role = "operator", **settings: Any) -> Iterator[Browser]:
    """Yield a visitor."""
    app = WebApp(server.url, authorize=lambda request: Visitor("ada", role), **settings)
    with closing(app), TestClient(app) as client:
        yield Browser(app, client)


def fill(server: Server, count: int, name: str = "retry") -> None:
    """Add failed jobs, of which every third is of class B."""
    client = server.client()
    for start in range(0, count, 5000):
        members = {
            payload(
                f"j{n:07}",
                **{"class": "AAB"[n % 3], "error_class": "E", "error_message": f"broken {n}"},
            ): float(n)
            for n in range(start, min(start + 5000, count))
        }
        client.zadd(name, members)


# -- dry run


def test_the_dry_run_counts_shows_and_changes_nothing(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "TIME_S", 60)  # a busy machine examines 30 jobs in it as well
    fill(server, 30)
    before = snapshot(server.client(), without=())
    with visiting(server) as browser:
        text = browser.text("/bulk?place=retry&act=delete&class=B&error=broken")
        (form,) = browser.forms("/bulk?place=retry&act=delete&class=B&error=broken", "bulk")
    assert "10 jobs of 30" in text
    assert "Delete 10 jobs" in text
    assert "can be undone for 24 hours" in text
    assert "j0000002" in text
    assert "j0000001" not in text
    assert "class=B" in form.action
    assert snapshot(server.client(), without=()) == before


@pytest.mark.parametrize(
    ("query", "status", "reason"),
    [
        ("place=retry&act=explode", 400, "not one of"),
        ("place=nowhere&act=retry", 400, "not one of"),
        ("place=&act=retry", 400, "not one of"),
        ("place=queue:q&act=retry", 400, "run anyway"),
        ("place=dead&act=kill", 400, "already dead"),
        ("place=retry&act=retry&older=soon", 400, "time span"),
        ("place=retry&act=clear", 403, "needs the role admin"),
        ("place=retry", 400, "not one of"),
    ],
)
def test_an_impossible_dry_run_says_why(
    server: Server, query: str, status: int, reason: str
) -> None:
    with visiting(server) as browser:
        assert reason in browser.text(f"/bulk?{query}", status)


def test_the_first_of_all_that_match(server: Server) -> None:
    fill(server, 30)
    with visiting(server) as browser:
        assert "Retry all…" in browser.text("/retries")
        assert "Kill all" not in browser.text("/retries")  # an operator could lose jobs
        assert "Retry all that match…" in browser.text("/retries?class=A")
        text = browser.text("/bulk?place=retry&act=retry&class=B&limit=4")
        assert "4 jobs of 30" in text
        assert "Only the first 4" in text
        path = browser.confirm("/bulk?place=retry&act=retry&class=B&limit=4")
        assert browser.ended(path).progress.done == 4
        assert "only the first 4" in browser.client.get(path).text
        for limit in ("x", "-1", "0", "9" * 20, "1.5"):
            browser.text(f"/bulk?place=retry&act=retry&limit={limit}", 400)
    assert server.client().zcard("retry") == 26
    with visiting(server, "admin") as browser:
        text = browser.text("/retries")
        assert "Retry all… Kill all… Delete all…" in text
        text = browser.text("/retries?class=A")  # a filter holds for each button
        assert "Delete all that match…" in text
        assert "Delete all…" not in text


def test_only_a_whole_place_can_be_cleared(server: Server) -> None:
    fill(server, 3)
    with visiting(server, "admin") as browser:
        assert "leave the filter out" in browser.text("/bulk?place=retry&act=clear&class=A", 400)
        assert "Delete all in one step" in browser.text("/bulk?place=retry&act=delete")
        path = browser.confirm("/bulk?place=retry&act=clear")
        assert server.client().zcard("retry") == 0
        (undo,) = browser.forms(path, "undo")
        browser.send(undo)
    assert server.client().zcard("retry") == 3
    with visiting(server) as browser:
        refused = browser.text("/bulk?place=retry&act=delete&class=*", 403)
        assert "delete without a filter needs the role admin" in refused


def test_a_dry_run_without_a_match_has_no_button(server: Server) -> None:
    fill(server, 3)
    with visiting(server) as browser:
        assert "nothing to do" in browser.text("/bulk?place=retry&act=retry&class=None")
        assert browser.forms("/bulk?place=retry&act=retry&class=None", "bulk") == []
        assert browser.forms("/bulk?place=dead&act=retry", "bulk") == []


@pytest.mark.process
def test_the_dry_run_of_many_jobs_is_short(server: Server) -> None:
    fill(server, 100_000)
    with visiting(server) as browser:
        text = browser.text("/bulk?place=retry&act=retry&class=B")
        found = re.search(r"among the first ([0-9,]+) that were examined, of 100,000", text)
        assert found
        assert int(found[1].replace(",", "")) <= 20_000
        assert "Retry all that match" in text
        path = browser.confirm("/bulk?place=retry&act=delete&class=B")
        assert browser.ended(path).progress.done == 33_333


def test_large_payloads_end_the_dry_run_early(server: Server) -> None:
    client = server.client()
    for n in range(300):
        client.zadd("dead", {payload(f"j{n:03}", args=["x" * 300_000]): n})
    with visiting(server) as browser:
        text = browser.text("/bulk?place=dead&act=retry&class=A")
    found = re.search(r"among the first ([0-9,]+) that were examined, of 300", text)
    assert found
    assert int(found[1]) < 300
    assert len(text) < 20_000


@pytest.mark.process
def test_hostile_payloads_are_shown_as_text(server: Server) -> None:
    server.client().zadd("retry", dict.fromkeys(HOSTILE, 5))
    with visiting(server) as browser:
        for start in range(len(HOSTILE)):
            html = browser.client.get("/bulk?place=retry&act=delete").text
            assert "<script>\u202e" not in html
            assert "\x1b" not in html
            server.client().zrem("retry", HOSTILE[start])


@pytest.mark.parametrize("queue", ["mails", "\udcff\n<b>&=%2F", "a/b?c#d"])
def test_any_name_of_a_queue_reaches_the_change(server: Server, queue: str) -> None:
    client = server.client()
    raw = queue.encode("utf-8", "surrogateescape")
    client.lpush(b"queue:" + raw, payload("a"), payload("b"))
    client.lpush("queue:other", payload("c"))
    with visiting(server) as browser:
        place = "queue%3A" + "".join(f"%{byte:02x}" for byte in raw)
        path = browser.confirm(f"/bulk?place={place}&act=delete&jid=a")
        assert browser.ended(path).progress.done == 1
    assert client.lrange(b"queue:" + raw, 0, -1) == [payload("b")]
    assert client.llen("queue:other") == 1


def test_a_redaction_holds_for_the_sample(server: Server) -> None:
    server.client().zadd(
        "retry", {payload("a", args=["secret"], error_class="E", error_message="of secret"): 5}
    )
    server.client().zadd("retry", {b'{"class":"A","args":"secret': 6})

    def hide(visitor: Visitor, fields: Any) -> Any:
        return hide_arguments(Visitor(visitor.person), fields)

    with visiting(server, redact=hide) as browser:
        html = browser.client.get("/bulk?place=retry&act=retry").text
        assert "secret" not in html
        assert "[hidden]" in html
        for name in ("text", "error"):
            refused = browser.text(f"/bulk?place=retry&act=retry&{name}=*secret*", 400)
            assert "not searched here" in refused
        assert "selected>error" not in browser.client.get("/search?in=error&q=x").text
    with visiting(server, redact=hide_arguments) as browser:
        assert "secret" in browser.client.get("/bulk?place=retry&act=retry").text


# -- numbers that visitors share


def test_the_page_after_an_act_shows_its_result(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a value that was read before the action, as if no time passed for the caches."""
    ticks = itertools.count()
    clock = SimpleNamespace(monotonic=lambda: next(ticks) * 1e-6)
    monkeypatch.setattr("jobwire.console.web.site.time", clock)
    fill(server, 30)
    server.client().lpush("queue:video", payload("v"))
    server.client().sadd("queues", "video")
    with PeriodicJobs(server.url) as jobs:
        jobs.save(PeriodicEntry(name="nightly", cron="0 3 * * *", job="A"))
    with visiting(server, "admin") as browser:

        def press(path: str, act: str, then: str) -> None:
            assert then not in browser.text(path)
            form = browser.forms(path, act)[0]
            assert then in words(browser.send(form).text), act

        press("/queues", "pause", "Paused")
        press("/queues", "unpause", "served again")
        assert "Paused" not in browser.text("/queues")
        press("/periodic", "disable_periodic", "Disabled")
        press("/periodic/nightly", "enable_periodic", "Enabled")
        assert "Retries 30" in browser.text("/")
        press("/retries", "delete", "1 job deleted")
        assert "Retries 29" in browser.text("/")
        change = browser.confirm("/bulk?place=retry&act=delete&class=B")
        browser.ended(change)
        wait_until(lambda: "Retries 19" in browser.text("/"))


# -- changes


@pytest.mark.parametrize(
    ("act", "left", "where"),
    [
        ("retry", 20, "queue:default"),
        ("add_to_queue", 20, "queue:default"),
        ("kill", 20, "dead"),
        ("delete", 20, None),
    ],
)
def test_a_change_does_what_the_dry_run_showed(
    server: Server, act: str, left: int, where: str | None
) -> None:
    fill(server, 30)
    client = server.client()
    with visiting(server) as browser:
        path = browser.confirm(f"/bulk?place=retry&act={act}&class=B")
        change = browser.ended(path)
        assert (change.progress.matched, change.progress.done) == (10, 10)
        assert "Ended: 10 jobs" in browser.text(path)
        assert "Ended" not in browser.text("/bulk?place=retry&act=retry")
        assert "ended" in browser.text("/changes")
        with_undo = browser.forms(path, "undo")
    assert client.zcard("retry") == left
    if where is not None:
        counts = client.llen if where.startswith("queue:") else client.zcard
        assert counts(where) == 10
    assert len(with_undo) == (act == "delete")
    with Operations(server.url) as operations:
        entries = operations.journal()
    assert [(one.person, one.act, one.state) for one in entries] == [
        ("ada", act, "ended"),
        ("ada", act, "begun"),
    ]


def test_a_deletion_is_undone_to_the_same_bytes(server: Server) -> None:
    fill(server, 30)
    client = server.client()
    before = snapshot(client)
    with visiting(server) as browser:
        path = browser.confirm("/bulk?place=retry&act=delete&class=B")
        browser.ended(path)
        (undo,) = browser.forms(path, "undo")
        assert "Put back 10 jobs" in words(browser.send(undo).text)
        assert snapshot(client) == before
        assert browser.forms(path, "undo") == []
        assert "no such deletion to undo" in words(browser.send(undo).text)


@pytest.mark.process
def test_a_long_undo_has_a_page_with_its_progress(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(server, 5000)
    before = snapshot(server.client())
    monkeypatch.setattr("jobwire.console.web.pages.changes.WAIT_S", 0)
    with visiting(server) as browser:
        path = browser.confirm("/bulk?place=retry&act=delete&class=B")
        browser.ended(path)
        (undo,) = browser.forms(path, "undo")
        answer = browser.send(undo)
        assert answer.url.path == f"/changes/undo-{path.rpartition('/')[2]}"
        assert browser.ended(answer.url.path).progress.done == 1666
        text = browser.text(answer.url.path)
        assert "Ended: 1,666 jobs put back" in text
        assert "Stop this change" not in text
    assert snapshot(server.client()) == before


class Held:
    """Work that waits for the test, and reports as often as it is let."""

    def __init__(self) -> None:
        self.began = threading.Event()
        self.go_on = threading.Event()

    def __call__(self, change: Change) -> None:
        change.check()
        self.began.set()
        change.report(Progress(total=10, seen=1))
        wait_until(lambda: self.go_on.is_set() or change.status == "stopping")
        change.report(Progress(total=10, seen=2))
        change.report(Progress(total=10, seen=10))


def held(name: str, work: Any) -> Change:
    return Change(id=name, act="retry", target="retry", person="ada", work=work, at=5.0)


def test_a_change_is_stopped_after_its_batch(server: Server) -> None:
    fill(server, 5)
    work = Held()
    with visiting(server) as browser:
        browser.site.changes.start(held("slow", work))
        wait_until(work.began.is_set)
        assert "At work" in browser.text("/changes/slow")
        (stop,) = browser.forms("/changes/slow", "stop-change")
        assert "stops after its batch" in words(browser.send(stop).text)
        change = browser.ended("/changes/slow")
        assert change.stopped
        assert change.progress.seen == 2
        assert "It was stopped" in browser.text("/changes/slow")
        assert "had ended" in words(browser.send(stop).text)


def test_a_viewer_sees_a_change_and_cannot_stop_it(server: Server) -> None:
    work = Held()
    with visiting(server, "viewer") as browser:
        browser.site.changes.start(held("slow", work))
        wait_until(work.began.is_set)
        assert "At work" in browser.text("/changes/slow")
        assert browser.forms("/changes/slow", "stop-change") == []


def test_four_changes_work_at_a_time_and_others_wait(server: Server) -> None:
    fill(server, 30)
    works = [Held() for _ in range(AT_A_TIME)]
    with visiting(server) as browser:
        for number, work in enumerate(works):
            browser.site.changes.start(held(f"slow{number}", work))
        for work in works:
            wait_until(work.began.is_set)
        path = browser.confirm("/bulk?place=retry&act=retry&class=B")
        assert "It waits in line" in browser.text(path)
        stopped = browser.confirm("/bulk?place=retry&act=retry&class=A")
        (stop,) = browser.forms(stopped, "stop-change")
        browser.send(stop)
        assert browser.ended(stopped).stopped
        works[0].go_on.set()
        assert browser.ended(path).progress.done == 10
        assert browser.ended(stopped).progress.done == 0
        text = browser.text("/journal")
    # The end of a change that never began is in the journal as well.
    assert (text.count(" done "), text.count("started")) == (2, 0)


def test_the_memory_for_changes_is_bounded() -> None:
    changes = Changes()
    for number in range(MAX_ENDED + 50):
        change = held(str(number), lambda change: None)
        changes.start(change)
        assert change.wait(60)
    assert len(changes.all()) <= MAX_ENDED + 1
    assert changes.all()[0].id == str(MAX_ENDED + 49)
    works = [Held() for _ in range(AT_A_TIME)]
    for number, work in enumerate(works):
        changes.start(held(f"slow{number}", work))
    wait_until(lambda: all(work.began.is_set() for work in works))
    with pytest.raises(ConfigError, match="is at work"):
        changes.start(held("slow0", works[0]))
    for number in range(100):
        changes.start(held(f"waiting{number}", lambda change: None))
    with pytest.raises(ConfigError, match="100 changes wait"):
        changes.start(held("one more", lambda change: None))
    changes.close()
    assert all(change.ended for change in changes.all())
    with pytest.raises(ConfigError, match="ends"):
        changes.start(held("late", lambda change: None))


def test_another_process_shows_what_the_journal_knows(server: Server) -> None:
    fill(server, 30)
    with visiting(server) as browser:
        path = browser.confirm("/bulk?place=retry&act=delete&class=B")
        browser.ended(path)
    with visiting(server) as browser:
        text = browser.text(path)
        assert "the journal says" in text
        assert "ended" in text
        (undo,) = browser.forms(path, "undo")
        browser.send(undo)
        assert "no change 'nothing' is known: this server does not do it" in browser.text(
            "/changes/nothing", 404
        )
        assert "is known" in browser.text("/changes/undo-", 404)
    assert server.client().zcard("retry") == 30


def test_a_change_that_fails_says_why(server: Server) -> None:
    fill(server, 3)
    with visiting(server) as browser:

        def fail(change: Change) -> None:
            raise ConfigError("the reason")

        def break_down(change: Change) -> None:
            raise RuntimeError("the inside")

        browser.site.changes.start(held("fails", fail))
        browser.site.changes.start(held("breaks", break_down))
        browser.ended("/changes/fails")
        browser.ended("/changes/breaks")
        assert "It failed: the reason" in browser.text("/changes/fails")
        assert "the log of the server has it" in browser.text("/changes/breaks")
        assert "inside" not in browser.text("/changes/breaks")


def test_a_change_ends_when_redis_goes_away(server: Server) -> None:
    fill(server, 30)
    with Operations(server.url, person="ada", role="operator") as operations:
        states = operations.bulk("retry", Selection(place="retry"))
        next(states)
        change = held("lost", batches(states))
        server.stop()
        change.run()
    assert change.ended
    assert "connect" in change.error.lower() or "reach" in change.error.lower()
