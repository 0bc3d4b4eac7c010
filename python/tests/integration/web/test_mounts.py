"""The web page inside other applications: links, acts, cookies and updates under a prefix."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any, cast
from wsgiref.simple_server import WSGIRequestHandler, make_server

import httpx
import pytest
from a2wsgi import ASGIMiddleware
from starlette.applications import Starlette
from starlette.routing import Mount

from harness.servers import Server, wait_until
from jobwire.console.web.serving import behind
from jobwire.errors import ConfigError
from jobwire.web import Visitor, WebApp
from tests.integration.inspector.entries import payload
from tests.integration.web.crawling import crawl, parsed
from tests.integration.web.served import Events, served

pytestmark = pytest.mark.process

Host = Callable[[WebApp], Any]


def starlette(app: WebApp) -> Any:
    return Starlette(routes=[Mount("/jobs", app)])


def starlette_twice(app: WebApp) -> Any:
    return Starlette(routes=[Mount("/admin", Starlette(routes=[Mount("/jobs", app)]))])


def fastapi(app: WebApp) -> Any:
    from fastapi import FastAPI

    host = FastAPI()
    host.mount("/jobs", app)
    return host


def django(app: WebApp) -> Any:
    """Dispatch by the path in asgi.py."""
    import django as package
    from django.conf import settings
    from django.core.asgi import get_asgi_application

    if not settings.configured:
        settings.configure(ALLOWED_HOSTS=["*"], ROOT_URLCONF=(), SECRET_KEY="x")
        package.setup()
    others = get_asgi_application()
    jobs = behind("/jobs", app)

    async def application(scope: Any, receive: Any, send: Any) -> None:
        inside = scope["type"] == "http" and f"{scope['path']}/".startswith("/jobs/")
        await (jobs if inside else others)(scope, receive, send)

    return application


def prefix_kept(app: WebApp) -> Any:
    return behind("/jobs", app)


def prefix_left_out(app: WebApp) -> Any:
    """A proxy that leaves the prefix out."""
    inner = behind("/jobs", app)

    async def proxy(scope: Any, receive: Any, send: Any) -> None:
        path = scope["path"].removeprefix("/jobs")
        raw = scope["raw_path"].removeprefix(b"/jobs")
        await inner({**scope, "path": path, "raw_path": raw}, receive, send)

    return proxy


HOSTS: dict[str, tuple[str, Host]] = {
    "starlette": ("/jobs", starlette),
    "starlette twice": ("/admin/jobs", starlette_twice),
    "fastapi": ("/jobs", fastapi),
    "django": ("/jobs", django),
    "prefix kept": ("/jobs", prefix_kept),
    "prefix left out": ("/jobs", prefix_left_out),
}


def web_app(server: Server, **settings: Any) -> WebApp:
    return WebApp(
        server.url, authorize=lambda request: Visitor("ada", "admin"), refresh=0.05, **settings
    )


def check_links_acts_and_cookies(url: str, prefix: str, server: Server, *, reach: str = "") -> None:
    """Crawl, delete and undo over HTTP; no link may lead out of `reach`, by default the prefix."""
    client = server.client()
    client.zadd("dead", {payload("a"): 5})
    with httpx.Client(base_url=url, follow_redirects=True, timeout=10) as browser:
        first = browser.get(prefix)
        assert first.status_code == 200
        assert first.url.path in (prefix, f"{prefix}/")
        cookie = browser.get(f"{prefix}/journal").request.headers["cookie"]
        assert "jobwire_session" in cookie
        (jar,) = list(browser.cookies.jar)
        assert jar.path == f"{prefix}/"
        seen = crawl(browser, [f"{prefix}/", f"{prefix}/changes"], prefix=reach or prefix)  # type: ignore[arg-type]
        assert seen.pages[f"{prefix}/journal"] == 200
        assert seen.pages[f"{prefix}/doctor"] == 200
        for part in first.text.split('"'):
            if "?v=" in part:
                asset = browser.get(part.replace("&amp;", "&"))
                assert (part.startswith(f"{prefix}/static/"), asset.status_code) == (True, 200)
        dry_run = browser.get(f"{prefix}/bulk?place=dead&act=clear")
        (form,) = parsed(dry_run.text, f"{url}{prefix}/bulk")[1]
        done = browser.post(form.action, data=dict(form.fields))
        assert done.status_code == 200
        assert "Deleted 1 job" in done.text  # the notice came by a cookie
        assert done.url.path.startswith(f"{prefix}/changes/")
        assert client.exists("dead") == 0
        (undo,) = parsed(done.text, f"{url}{prefix}/changes/x")[1]
        back = browser.post(undo.action, data=dict(undo.fields))
        assert back.url.path == done.url.path
        assert "Put back 1 job" in back.text
        assert client.zcard("dead") == 1


@pytest.mark.parametrize("host", HOSTS)
def test_links_acts_cookies_and_updates_under_a_prefix(server: Server, host: str) -> None:
    prefix, make = HOSTS[host]
    app = web_app(server)
    with closing(app), served(make(app)) as url:
        check_links_acts_and_cookies(url, prefix, server)
        with closing(Events(f"{url}{prefix}/changes")) as page:
            assert f'href="{prefix}/journal"' in page.next()["menu"]
            server.client().zadd("retry", {payload(str(n)): n for n in range(7)})
            page.until("menu", '<span class="count">7</span>')


class _Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def wsgi(app: Any) -> Iterator[str]:
    """Serve an application of WSGI in one thread: each request waits for the one before it."""
    server = make_server("127.0.0.1", 0, app, handler_class=_Quiet)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join(30)
        server.server_close()


def test_a_wsgi_application_mounts_it_without_updates(server: Server) -> None:
    """Flask: its only thread must not be occupied by an open page."""
    from flask import Flask
    from werkzeug.middleware.dispatcher import DispatcherMiddleware

    app = web_app(server)
    flask = Flask("host")
    host: Any = flask
    adapter: Any = ASGIMiddleware(cast("Any", app))
    host.wsgi_app = DispatcherMiddleware(flask.wsgi_app, {"/jobs": adapter})
    try:
        with closing(app), wsgi(host) as url:
            check_links_acts_and_cookies(url, "/jobs", server)
            with closing(Events(f"{url}/jobs/changes")) as page:
                assert page.answer.status_code == 204
            assert httpx.get(f"{url}/jobs/journal").status_code == 200
            name = httpx.get(f"{url}/jobs/changes/a%3Fc%25d")
            assert "a?c%d" in name.text
    finally:
        adapter.loop.call_soon_threadsafe(adapter.loop.stop)
        wait_until(lambda: not adapter.loop.is_running())
        adapter.loop.close()


@pytest.mark.process
def test_several_redis_in_one_page(server: Server, server_factory: Any) -> None:
    other = server_factory()
    other.client().zadd("dead", {payload("b"): 5})
    app = WebApp(
        {"main": server.url, "eu": other.url},
        authorize=lambda request: Visitor("ada", "admin"),
        refresh=0.05,
    )
    with closing(app), served(starlette(app)) as url:
        with httpx.Client(base_url=url, follow_redirects=True) as browser:
            every = browser.get("/jobs/")
            assert every.url.path == "/jobs/"
            assert 'href="/jobs/eu/"' in every.text
            assert 'href="/jobs/" aria-current="true"' in every.text
            assert (
                'jobwire_set_jobs{set="dead",shard="eu"} 1.0' in browser.get("/jobs/metrics").text
            )
            first = browser.get("/jobs/eu/journal")
            assert 'href="/jobs/main/"' in first.text
            assert 'href="/jobs/eu/" aria-current="true"' in first.text
            assert browser.get("/jobs/us/").status_code == 404
        check_links_acts_and_cookies(url, "/jobs/main", server, reach="/jobs")
        with closing(Events(f"{url}/jobs/")) as page:
            assert ">eu</a>" in page.next()["live"]
        with closing(Events(f"{url}/jobs/eu/changes")) as page:
            assert '<span class="count">1</span>' in page.next()["menu"]
        assert other.client().exists("jobwire:journal") == 0


@pytest.mark.parametrize("name", ["", "a/b", "a b", "ü", "..", "a?b"])
def test_a_name_that_is_not_a_part_of_a_path_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="cannot be part of a path"):
        WebApp({name: "redis://localhost"}, authorize=lambda request: None)


@pytest.mark.parametrize("name", ["static", "acts"])
def test_a_redis_may_have_the_name_of_a_part_of_the_page(server: Server, name: str) -> None:
    app = WebApp({name: server.url}, authorize=lambda request: Visitor("ada", "admin"))
    with closing(app), served(starlette(app)) as url:
        check_links_acts_and_cookies(url, f"/jobs/{name}", server, reach="/jobs")


@pytest.mark.parametrize("host", ["starlette", "django", "prefix left out"])
def test_a_name_with_odd_characters_survives_every_host(server: Server, host: str) -> None:
    prefix, make = HOSTS[host]
    app = web_app(server)
    with closing(app), served(make(app)) as url:
        answer = httpx.get(f"{url}{prefix}/changes/a%3Fc%25d")
        assert answer.status_code == 404
        assert "a?c%d" in answer.text
