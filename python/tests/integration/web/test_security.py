"""Protection of the web page: roles, foreign forms, headers, hosts, errors."""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any, get_args
from urllib.parse import parse_qs, urlsplit

import pytest
from starlette.requests import Request
from starlette.testclient import TestClient

from harness.servers import Server, wait_until
from jobwire.console.ops.changes import Change
from jobwire.console.web.context import RequestContext
from jobwire.console.web.guard import HEADERS, Guard
from jobwire.console.web.routes import ACTIONS, MENU, PAGES, Address
from jobwire.console.web.serving import on_loopback
from jobwire.inspect import Filter, PeriodicEntry, PeriodicJobs
from jobwire.ops import LOWEST_ROLE, ROLES, Action, Operations, Role, Selection
from jobwire.protocol.retry import encode_backtrace
from jobwire.web import Visitor, WebApp, hide_arguments
from tests.integration.inspector.entries import IDENTITY, payload, snapshot
from tests.integration.web.crawling import Form, Seen, crawl, parsed

SECRET = "s"
# Actions of the page that are not one action of the command layer: the action of a form.
COMBINED: dict[str, Callable[[Form], Action]] = {
    "bulk": lambda form: _asked(form, "act"),
    "stop-change": lambda form: "retry",  # the change that `world` starts
}
# Pages that no page links to with these parameters.
EXTRA = [
    "/bulk?place=retry&act=retry",
    "/bulk?place=retry&act=add_to_queue&class=A",
    "/bulk?place=retry&act=kill",
    "/bulk?place=dead&act=delete",
    "/bulk?place=queue%3Aq&act=clear",
    "/changes/running",
    *("/stats", "/stats/queues", "/stats/periodic", "/dashboard/stats", "/metrics", "/morgue"),
]


def _asked(form: Form, name: str) -> Any:
    query = {key: values[-1] for key, values in parse_qs(urlsplit(form.action).query).items()}
    return {**query, **dict(form.fields)}[name]


def needed(form: Form) -> Role:
    """Return the lowest role that may send a form; an action without a row fails."""
    if form.act in COMBINED:
        act = COMBINED[form.act](form)
        filtered = parse_qs(urlsplit(form.action).query).keys() - {"place", "act"}
        if form.act == "bulk" and act in ("delete", "kill") and not filtered:
            return "admin"
        return LOWEST_ROLE[act]
    assert form.act in get_args(Action), f"give the act {form.act!r} a row in COMBINED"
    return LOWEST_ROLE[form.act]  # type: ignore[index]


@contextmanager
def serving(
    server: Server, role: Role = "admin", **settings: Any
) -> Iterator[tuple[TestClient, WebApp]]:
    """Serve the page of a server to a visitor of a role."""
    authorize = lambda request: Visitor("ada", role)  # noqa: E731
    app = WebApp(server.url, authorize=authorize, secret=SECRET, **settings)
    with closing(app), TestClient(app, follow_redirects=False) as client:
        yield client, app


def world(server: Server, app: WebApp) -> threading.Event:
    """Fill a server with one of each; return the event that ends the running change."""
    client = server.client()
    client.flushall()
    client.sadd("queues", "q")
    client.lpush("queue:q", payload("q1", queue="q"), payload("q2", queue="q"))
    failed = {"error_class": "E", "error_message": "broken", "retry_count": 1, "failed_at": 5}
    for name in ("retry", "schedule", "dead", "jobwire:unreadable"):
        client.zadd(name, {payload(f"{name}{n}", **failed): 2e9 + n for n in range(3)})
    client.sadd("processes", IDENTITY)
    info = '{"hostname":"web","pid":1,"queues":["q"],"concurrency":5,"identity":"%s"}'
    client.hset(
        IDENTITY, mapping={"info": info % IDENTITY, "busy": 1, "beat": 2e9, "quiet": "false"}
    )
    running = {"queue": "q", "run_at": 5, "payload": payload("walk").decode()}
    client.hset(f"{IDENTITY}:work", "t1", json.dumps(running))
    client.hset("it-walk", mapping={"ex": 1, "c": "7", "rt": "1.5"})
    client.sadd("queues", "paused")
    client.set(f"jobwire:unique:{'a' * 64}", "q1", ex=60)
    client.zadd("jobwire:parked", {payload("parked", queue="q"): 5.5})
    client.hset("jobwire:batch:b", mapping={"state": "closed", "total": 1, "queue": "q"})
    client.sadd("jobwire:batch:b:open", "q1")
    with PeriodicJobs(server.url) as jobs:
        for name in ("nightly", "halted"):
            jobs.save(PeriodicEntry(name=name, cron="0 3 * * *", job="A"))
        jobs.disable(next(job for job in jobs.all() if job.entry.name == "halted"))
    client.sadd("jobwire:paused", "paused")
    ended = threading.Event()
    app._sites[""].operations.acting_for("ada", "admin").clear("dead")
    client.zadd("dead", {payload("dead again", **failed): 2e9})

    def wait(change: Change) -> None:
        wait_until(lambda: ended.is_set() or change.status == "stopping")

    work = Change(
        id="running",
        act="retry",
        target="retry",
        person="ada",
        work=wait,
        at=5.0,
    )
    app._sites[""].changes.start(work)
    return ended


def all_forms(server: Server) -> tuple[Seen, dict[str, list[Form]]]:
    """Crawl as an admin; return one form of each kind, by act."""
    with serving(server) as (client, app):
        ended = world(server, app)
        seen = crawl(client, ["/", *EXTRA])
        ended.set()
    kinds: dict[tuple[Any, ...], Form] = {}
    for form in seen.forms:
        names = tuple(sorted(name for name, _ in form.fields))
        chosen = tuple(value for name, value in form.fields if name == "act")
        kinds.setdefault((form.act, needed(form), names, chosen, urlsplit(form.action).query), form)
    by_act: dict[str, list[Form]] = {}
    for form in kinds.values():
        by_act.setdefault(form.act, []).append(form)
    return seen, by_act


def send(client: TestClient, form: Form) -> Any:
    """Send a form with the token of this client."""
    client.get("/journal")
    token = Guard(SECRET).token(client.cookies["jobwire_session"], "ada")
    fields = {name: value for name, value in form.fields if name != "token"} | {"token": token}
    parts = urlsplit(form.action)
    return client.post(f"{parts.path}?{parts.query}", data=fields)


def check_form(server: Server, form: Form, role: Role) -> None:
    """Send a form in a role, and check the answer and the database."""
    database = server.client()
    may = ROLES.index(role) >= ROLES.index(needed(form))
    with serving(server, role) as (client, app):
        ended = world(server, app)
        if form.act == "undo":
            undo = app._sites[""].operations.journal()[0].undo
            form = Form(form.action, (*form.fields, ("undo", undo)))
        before = snapshot(database, without=())
        answer = send(client, form)
        told = (form, role, answer.text)
        assert answer.status_code == (303 if may else 403), told
        if not may:
            assert f"needs the role {needed(form)}" in answer.text
            assert snapshot(database, without=()) == before, told
        elif form.act == "stop-change":
            change = app._sites[""].changes.get("running")
            wait_until(lambda: change is not None and change.ended)
        else:
            app._sites[""].changes.close()  # so that no key comes and goes
            assert snapshot(database, without=()) != before, told
        ended.set()


@pytest.mark.process
@pytest.mark.parametrize("most", [1, pytest.param(None, marks=pytest.mark.full)])
def test_every_act_is_refused_below_its_role_and_done_in_it(
    server: Server, most: int | None
) -> None:
    """Role x every action x every form of it that any page has; in the gate its first form."""
    seen, by_act = all_forms(server)
    assert [path for path, text in seen.texts.items() if OLD_LABELS.search(text)] == []
    assert set(by_act) == {act.name for act in ACTIONS}, "acts without a form, or the reverse"
    for forms in by_act.values():
        for form in forms[:most]:
            for role in ROLES:
                check_form(server, form, role)


OLD_LABELS = re.compile(r">\s*(?:In flight|Held|Go on|Act)\s*<")  # which no reader understood
FOREIGN: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "no token": ({}, {"token": ""}),
    "not ASCII": ({}, {"token": "ü"}),
    "token of another session": ({}, {"token": Guard(SECRET).token("0" * 32, "ada")}),
    "token of another person": ({}, {"token": "that of eve"}),
    "foreign origin": ({"origin": "https://evil.example"}, {}),
    "origin with another port": ({"origin": "http://testserver:81"}, {}),
    "opaque origin": ({"origin": "null"}, {}),
    "broken origin": ({"origin": "http://["}, {}),
    "another site": ({"sec-fetch-site": "cross-site"}, {}),
    "neighbouring site": ({"sec-fetch-site": "same-site"}, {}),
    "no site": ({"sec-fetch-site": "none"}, {}),
    "other type of form": ({"content-type": "text/plain"}, {}),
    "multipart": ({"content-type": "multipart/form-data; boundary=x"}, {}),
}


@pytest.mark.parametrize("case", FOREIGN)
def test_foreign_forms_are_refused_for_every_act(server: Server, case: str) -> None:
    headers, changed = FOREIGN[case]
    with serving(server) as (client, _):
        client.get("/journal")
        session = client.cookies["jobwire_session"]
        fields = {"token": Guard(SECRET).token(session, "ada"), "back": "/journal"} | changed
        if fields["token"] == "that of eve":
            fields["token"] = Guard(SECRET).token(session, "eve")
        for act in ACTIONS:
            answer = client.post(f"/acts/{act.name}", data=fields, headers=headers)
            assert answer.status_code == 403, act.name
            assert "form" in answer.text
    assert server.client().dbsize() == 0


def test_a_form_of_this_page_is_not_refused(server: Server) -> None:
    """The control of the test above: a form with our token is looked at."""
    with serving(server) as (client, _):
        client.get("/journal")
        token = Guard(SECRET).token(client.cookies["jobwire_session"], "ada")
        for headers in (
            {},
            {"origin": "http://testserver"},
            {"origin": "http://testserver:80", "sec-fetch-site": "same-origin"},
        ):
            answer = client.post("/acts/undo", data={"token": token}, headers=headers)
            assert answer.status_code == 400
            assert "undo: missing in the form" in answer.text


def test_a_form_without_the_cookie_is_refused(server: Server) -> None:
    with serving(server) as (client, _):
        token = Guard(SECRET).token("", "ada")
        assert client.post("/acts/undo", data={"token": token}).status_code == 403


def test_a_long_form_is_refused(server: Server) -> None:
    with serving(server) as (client, _):
        answer = client.post("/acts/undo", data={"token": "x" * 1_100_000})
        assert answer.status_code == 403
        assert "longer than" in answer.text
        assert (
            client.post("/acts/undo", data={str(n): "" for n in range(30_000)}).status_code == 403
        )


def test_a_viewer_writes_nothing(server: Server) -> None:
    """MONITOR shows no write while a viewer visits every page and every link."""
    with serving(server) as (client, app):
        ended = world(server, app)
        ended.set()
    watcher = server.client()
    writes = _write_commands(watcher)
    assert {"ZADD", "XADD", "DEL", "EVALSHA"} <= writes
    seen_commands: list[str] = []
    with watcher.monitor() as monitor, serving(server, "viewer") as (client, _):
        before = snapshot(server.client(), without=())
        seen = crawl(client, ["/", *EXTRA])
        visited = {urlsplit(path).path for path in seen.pages}
        paths = {page.path for page in PAGES if "{" not in page.path}
        assert paths - visited == set(), "no link leads a viewer there"
        server.client().echo("the end")
        for one in monitor.listen():
            words = one["command"].split()
            if words[:1] == ["ECHO"]:
                break
            seen_commands.append(words[0].upper())
        assert snapshot(server.client(), without=()) == before
    assert len(seen_commands) > 20
    assert set(seen_commands) & writes == set()
    assert seen.forms == []
    absent = {f"/{item.path}" for item in MENU} - paths  # the menu may be ahead of the pages
    odd = {urlsplit(path).path for path, status in seen.pages.items() if status != 200}
    leading = {"/morgue", "/dashboard/stats"}
    assert odd - absent - leading <= {"/bulk", "/changes/running"}, seen.pages


@pytest.mark.process
def test_no_page_has_a_hidden_part_or_its_digest(server: Server) -> None:
    """A viewer sees neither what is hidden nor a digest by which guesses of it can be tried."""
    client = server.client()
    with serving(server) as (_, app):
        world(server, app).set()
    hidden = {
        "args": ["SECRET"],
        "cattr": {"user": "SECRET"},
        "lock_args": ["SECRET"],  # an extension's copy
        "error_message": "no such card SECRET",
        "error_backtrace": encode_backtrace(["/app/SECRET.py:1:in `SECRET'"]),
    }
    payloads = []
    for name in ("retry", "schedule", "dead", "jobwire:unreadable"):
        payloads.append(payload(f"s-{name}", error_class="E", retry_count=1, failed_at=5, **hidden))
        client.zadd(name, {payloads[-1]: 2e9 - 1})
    client.zadd("jobwire:unreadable", {b'{"class":"A","args":["SECRET"': 2e9})
    payloads.append(payload("s-q", queue="q", **hidden))
    client.lpush("queue:q", payloads[-1])
    running = {"queue": "q", "run_at": 5, "payload": payload("s-walk", **hidden).decode()}
    client.hset(f"{IDENTITY}:work", "t2", json.dumps(running))
    result = {"outcome": "done", "at": 5, "value": "SECRET"}
    client.set("jobwire:result:s-dead", json.dumps(result), ex=600)
    client.set("jobwire:result:s-ended", json.dumps(result), ex=600)
    client.hset("it-s-walk", mapping={"ex": 1, "c": '"SECRET"', "rt": "1.5"})
    with PeriodicJobs(server.url) as jobs:
        jobs.save(PeriodicEntry(name="hourly", cron="0 * * * *", job="A", args=["SECRET"]))
    with Operations(server.url, person="ada", role="admin") as operations:
        groups = operations.groups().groups
        (key,) = [one.key for one in groups if "SECRET" in one.message]
        for only, group in ((Filter(error="SECRET"), None), (Filter(text="SECRET"), key)):
            [*operations.bulk("kill", Selection(place="retry", only=only, group=group))]
        client.zadd("retry", {payloads[0]: 2e9 - 1})
        operations.add_to_queue(next(operations.inspector.entries("schedule")))
    names = [key] + [
        digest(one).hexdigest()
        for digest in (hashlib.md5, hashlib.sha1, hashlib.sha256)
        for one in payloads
    ]
    names += [hmac.new(b"", one, hashlib.sha256).hexdigest()[:40] for one in payloads]
    with serving(server, "viewer", redact=hide_arguments) as (page, _):
        seen = crawl(page, ["/", "/jobs/s-ended", *EXTRA])
        assert "[hidden]" in seen.texts["/failures"]
        assert "Kept for</dt><dd>9 min" in seen.texts["/jobs/s-ended"]
        assert "error=…" in seen.texts["/journal"]
        for path, told in seen.texts.items():
            found = [word for word in ("SECRET", *names) if word in path + told]
            assert not found, (path, found)
    with serving(server) as (page, _):  # the control: the same pages have it all
        texts = crawl(page, ["/", *EXTRA]).texts.items()
        shown = {urlsplit(path).path.split("/")[1] for path, text in texts if "SECRET" in text}
    assert shown >= {"failures", "retries", "dead", "unreadable", "busy", "iterations", "periodic"}
    assert shown >= {"queues", "jobs", "journal"}


def test_a_group_of_failures_is_acted_on_by_a_name_of_this_page(server: Server) -> None:
    """With its bare key, a hidden message could be guessed: does such a group exist?"""
    client = server.client()
    client.zadd("retry", {payload("a", error_class="E", error_message="no", retry_count=1): 5})
    with Operations(server.url) as operations:
        (group,) = operations.groups().groups
    with serving(server, "operator", redact=hide_arguments) as (page, _):
        html = page.get("/failures").text
        named = f"{group.key}-"
        signed = named + html.partition(named)[2].partition('"')[0]
        for name, status in ((signed, 200), (group.key, 400), (signed[:-1], 400)):
            answer = page.get("/bulk", params={"place": "retry", "act": "kill", "group": name})
            assert answer.status_code == status, name


def test_a_restart_keeps_links_and_servers_with_one_secret_share_forms(server: Server) -> None:
    client = server.client()
    client.zadd("retry", {payload("a"): 5})

    def entry_of(html: str) -> tuple[str, str]:
        link = next(each for each in parsed(html, "http://x/")[0] if "digest=" in each)
        return link.removeprefix("http://x"), dict(parsed(html, "/")[1][0].fields)["entry"]

    with serving(server) as (page, _):
        link, entry = entry_of(page.get("/retries").text)
    with serving(server) as (page, _):
        assert entry_of(page.get("/retries").text) == (link, entry)
    app = WebApp(server.url, authorize=lambda request: Visitor("ada", "admin"))
    with closing(app), TestClient(app) as page:
        assert entry_of(page.get("/retries").text)[1] != entry
        assert page.get(link).status_code == 200


def _write_commands(client: Any) -> set[str]:
    names = client.execute_command("COMMAND LIST", "FILTERBY", "ACLCAT", "write")
    scripts = client.execute_command("COMMAND LIST", "FILTERBY", "ACLCAT", "scripting")
    return {name.decode().upper() for name in (*names, *scripts)}


def test_every_answer_has_the_headers(server: Server) -> None:
    with serving(server) as (client, _):
        asset = parsed_assets(client.get("/").text)
        answers = [
            *(client.get(page.path.replace("{id}", "x")) for page in PAGES),
            client.get("/nothing"),
            client.get("/journal/"),
            client.get("/journal?before=x"),
            client.get("/static/nothing.js"),
            client.get("/static/page.css"),
            client.get(asset),
            client.get(asset, headers={"if-none-match": client.get(asset).headers["etag"]}),
            client.head("/journal"),
            client.options("/journal"),
            client.post("/journal"),
            client.get("/acts/undo"),
            client.post("/acts/undo"),
            client.request("TRACE", "/"),
        ]
    statuses = {answer.status_code for answer in answers}
    assert statuses >= {200, 304, 307, 400, 403, 404, 405}
    for answer in answers:
        for name, value in HEADERS.items():
            if name != "Cache-Control":
                assert answer.headers.get(name) == value, (answer.url, name)
            else:
                assert name in answer.headers
    policy = HEADERS["Content-Security-Policy"]
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy


def parsed_assets(html: str) -> str:
    return html.partition('href="')[2].partition('"')[0].replace("&amp;", "&")


def test_only_a_file_of_this_version_is_kept_by_browsers(server: Server) -> None:
    with serving(server) as (client, _):
        asset = parsed_assets(client.get("/").text)
        kept = {
            path: client.get(path).headers["cache-control"]
            for path in (asset, "/static/page.css", f"{asset}0", "/journal", "/doctor")
        }
    assert kept == {
        asset: "max-age=31536000, immutable",
        "/static/page.css": "no-cache",
        f"{asset}0": "no-cache",
        "/journal": "no-store",
        "/doctor": "no-store",
    }


def test_head_answers_like_get_and_opens_no_updates(server: Server) -> None:
    with serving(server) as (client, app):
        for page in PAGES:
            path = page.path.replace("{id}", "x")
            answer = client.head(path, headers={"accept": "text/event-stream"})
            assert answer.status_code == client.get(path).status_code
        assert app._streams.open == 0


def test_an_unexpected_exception_is_logged_and_not_shown(
    server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(context: RequestContext) -> Any:
        raise RuntimeError("the inside")

    monkeypatch.setattr("jobwire.console.web.app.PAGES", (Address("/", fail),))
    with caplog.at_level(logging.ERROR), serving(server) as (client, _):
        answer = client.get("/")
    assert answer.status_code == 500
    assert answer.headers["content-security-policy"]
    assert "The log of the server has it" in answer.text
    assert "the inside" not in answer.text
    assert "Traceback" not in answer.text
    assert "the inside" in caplog.text


@pytest.mark.parametrize("wrong", [RuntimeError("the inside"), True])
def test_an_authorize_that_fails_lets_no_visitor_in(
    server: Server, caplog: pytest.LogCaptureFixture, wrong: Any
) -> None:
    def authorize(request: Request) -> Any:
        if isinstance(wrong, Exception):
            raise wrong
        return wrong

    app = WebApp(server.url, authorize=authorize)
    with closing(app), TestClient(app) as client:
        answers = [client.get("/"), client.post("/acts/undo")]
    for answer in answers:
        assert answer.status_code == 500
        assert answer.headers["content-security-policy"]
        assert "inside" not in answer.text
    assert (
        "the inside" if isinstance(wrong, Exception) else "authorize returned True"
    ) in caplog.text


def test_authorize_decides_for_pages_acts_and_updates(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    async def authorize(request: Request) -> Visitor | None:
        return Visitor("ada", "admin") if request.headers.get("x-user") == "ada" else None

    app = WebApp(server.url, authorize=authorize)
    with closing(app), TestClient(app) as client:
        for page in PAGES:
            path = page.path.replace("{id}", "x")
            assert client.get(path).status_code == 403
            assert client.get(path, headers={"accept": "text/event-stream"}).status_code == 403
        for act in ACTIONS:
            assert client.post(f"/acts/{act.name}").status_code == 403
            assert f"POST /acts/{act.name} refused: authorize returned no visitor" in caplog.text
        assert client.get("/", headers={"x-user": "ada"}).status_code == 200


def test_read_only_makes_everyone_a_viewer(server: Server) -> None:
    with serving(server, read_only=True) as (client, _):
        assert ">viewer<" in client.get("/journal").text
        token = Guard(SECRET).token(client.cookies["jobwire_session"], "ada")
        answer = client.post("/acts/bulk?place=retry&act=retry", data={"token": token})
    assert answer.status_code == 403
    assert "read-only" in answer.text


@pytest.mark.parametrize(
    ("scheme", "secure"), [("http", False), ("https", True)], ids=["http", "https"]
)
def test_cookies_are_for_this_page_only(server: Server, scheme: str, secure: bool) -> None:
    app = WebApp(server.url, authorize=lambda request: Visitor("ada", "admin"))
    with (
        closing(app),
        TestClient(app, base_url=f"{scheme}://testserver", root_path="/jobs") as client,
    ):
        (cookie,) = client.get("/jobs/journal").headers.get_list("set-cookie")
    attributes = {part.strip().lower() for part in cookie.split(";")[1:]}
    assert attributes == {"httponly", "path=/jobs/", "samesite=strict"} | {"secure"} & (
        {"secure"} if secure else set()
    )


@pytest.mark.parametrize("cookie", ["ü", "x.ü", "eA==.00", "." * 3000])
def test_a_foreign_cookie_does_no_harm(server: Server, cookie: str) -> None:
    with serving(server) as (client, _):
        raw = b"jobwire_notice=" + cookie.encode() + b"; jobwire_session=" + cookie.encode()
        answer = client.get("/journal", headers={"cookie": raw})
        assert answer.status_code == 200
        assert 'role="status"' not in answer.text
        assert "jobwire_session=" in answer.headers["set-cookie"]


@pytest.mark.parametrize(
    ("back", "ours"),
    [
        ("/jobs/retries?page=2", True),
        ("/jobs/", True),
        ("https://evil.example/", False),
        ("//evil.example/", False),
        ("/\\evil.example/", False),
        ("/jobs/\\evil", False),
        ("/jobs/../admin", False),
        ("/jobs/%2e%2e/admin", False),
        ("/jobs/%2E./admin", False),
        ("/jobsite/", False),
        ("/jobs", False),
        ("/other", False),
        ("javascript:alert(1)", False),
        ("/jobs/\r\nSet-Cookie: a=b", False),
        ("", False),
    ],
)
def test_an_act_returns_to_a_page_of_ours(
    server: Server, back: str, ours: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A slow one leads to its progress.
    monkeypatch.setattr("jobwire.console.web.pages.changes.WAIT_S", 60)
    client_of = server.client()
    client_of.zadd("dead", {payload("a"): 5})
    app = WebApp(server.url, authorize=lambda request: Visitor("ada", "admin"), secret=SECRET)
    with (
        closing(app),
        TestClient(app, root_path="/jobs", follow_redirects=False) as client,
    ):
        undo = app._sites[""].operations.acting_for("ada", "admin").clear("dead").undo
        client.get("/jobs/journal")
        token = Guard(SECRET).token(client.cookies["jobwire_session"], "ada")
        form = {"token": token, "undo": undo, "back": back}
        answer = client.post("/jobs/acts/undo", data=form)
    assert answer.status_code == 303
    assert answer.headers["location"] == (back if ours else "/jobs/")


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:9928", 200),
        ("LOCALHOST", 200),
        ("127.0.0.1:9928", 200),
        ("127.9.9.9", 200),
        ("[::1]:9928", 200),
        ("evil.example", 403),
        ("127.0.0.1.evil.example", 403),
        ("localhost.evil.example:9928", 403),
        ("192.168.1.1", 403),
        ("[::1", 403),
        ("user@evil.example", 403),
        ("", 403),
    ],
)
def test_without_a_password_only_this_machine_is_served(
    server: Server, host: str, status: int
) -> None:
    app = WebApp(server.url, authorize=lambda request: Visitor("ada", "admin"))
    with closing(app), TestClient(on_loopback(app)) as client:
        answer = client.get("/journal", headers={"host": host})
    assert answer.status_code == status
    assert answer.headers["content-security-policy"] == HEADERS["Content-Security-Policy"]
    if status == 403:
        assert "JOBWIRE_WEB_TOKEN" in answer.text


def test_a_parked_job_is_put_back_by_its_exact_bytes(server: Server) -> None:
    """X-PARK-5: with its reason, once, with a line in the journal; arguments stay hidden."""
    client = server.client()
    client.flushall()
    text = payload("one", queue="q", args=["secret"])
    client.zadd("jobwire:parked", {text: 5.25, payload("other", queue="q"): 6, b"[": 7})
    client.hset("jobwire:parked:why", hashlib.sha1(text).hexdigest(), "bid")
    with serving(server, "operator") as (page, _):
        shown = page.get("/parked").text
        assert "bid" in shown
        assert "secret" in shown
        form, *_ = [one for one in parsed(shown, "/parked")[1] if one.act == "unpark"]
        sent = send(page, form)
        assert "one is back in its queue" in page.get(sent.headers["location"]).text
        assert client.zrange("jobwire:parked", 0, -1) == [payload("other", queue="q"), b"["]
        assert client.lrange("queue:q", 0, -1) == [text]
        again = page.get(send(page, form).headers["location"]).text
        assert "not parked any more" in again
        assert "unpark" in page.get("/journal").text
    with serving(server, "viewer", redact=hide_arguments) as (page, _):
        shown = page.get("/parked").text
        assert "other" in shown
        assert "secret" not in shown
        assert "Put" not in shown
