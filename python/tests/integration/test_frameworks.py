"""jobwire.asgi and jobwire.flask: lifespan, a worker inside, dependency, app context, command."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import flask
import httpx
import pytest
import uvicorn
from fastapi import Depends, FastAPI
from fastapi.testclient import TestClient
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from harness.servers import Server, wait_until
from jobwire import App, AsyncClient, ConfigError, Inspector, Job, testing
from jobwire.asgi import client_of, lifespan, running
from jobwire.flask import Jobs
from tests import workers


@contextmanager
def served(web: Any) -> Iterator[str]:
    """Serve an application with its lifespan, by uvicorn in a thread."""
    config = uvicorn.Config(web, port=0, lifespan="on", log_level="critical")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        wait_until(lambda: server.started)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(60)
    assert not thread.is_alive()


@pytest.mark.process
def test_a_worker_inside_runs_jobs_and_ends_with_the_web_server(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    app = App(server.url)
    started, ran = threading.Event(), []

    @app.job
    def note(word: str) -> None:
        ran.append(word)

    @app.job
    def hold() -> None:
        started.set()
        threading.Event().wait()

    async def enqueue(request: Request) -> PlainTextResponse:
        await note.aenqueue(request.query_params["word"])
        return PlainTextResponse("ok")

    web = Starlette(
        routes=[Route("/", enqueue)], lifespan=lifespan(app, concurrency=1, timeout=0.2)
    )
    caplog.set_level("INFO", "jobwire")
    with served(web) as url, Inspector(server.url) as inspector:
        assert httpx.get(url, params={"word": "tea"}).text == "ok"
        wait_until(lambda: ran == ["tea"])
        assert [process.concurrency for process in inspector.processes()] == [1]
        assert "ready: 1 thread for default" in caplog.messages
        hold.enqueue()
        assert started.wait(30)
    with Inspector(server.url) as inspector:
        assert [*inspector.processes()] == []
        assert [job.class_name for job in inspector.jobs("default")] == ["hold"]  # put back
    app.close()


def test_without_a_worker_only_the_connections_are_closed(server: Server) -> None:
    app = App(server.url)

    @app.job
    async def note() -> None: ...

    web = FastAPI(lifespan=lifespan(app))

    @web.post("/")
    async def enqueue() -> str | None:
        return await note.aenqueue()

    with served(web) as url, Inspector(server.url) as inspector:
        jid = httpx.post(url).json()
        assert [job.jid for job in inspector.jobs("default")] == [jid]
        assert [*inspector.processes()] == []


RUBY = App()  # of the module, so that the annotation of a route finds it


def test_a_dependency_gives_the_client() -> None:
    web = FastAPI(lifespan=lifespan(RUBY))

    @web.post("/")
    async def report(jobs: Annotated[AsyncClient, Depends(client_of(RUBY))]) -> str | None:
        return await jobs.push("Reports::Monthly", [2026], queue="low")

    with testing.fake(RUBY) as jobs, TestClient(web) as client:
        jid = client.post("/").json()
    assert [(job.jid, job.class_name, job.args) for job in jobs] == [
        (jid, "Reports::Monthly", [2026])
    ]


@pytest.mark.matrix
def test_litestar_runs_a_worker_and_has_the_client(server: Server) -> None:
    """In the step litestar of the release check, which installs it."""
    litestar: Any = pytest.importorskip("litestar", reason="run .ci/release-check litestar")
    di: Any = pytest.importorskip("litestar.di")
    app, ran = App(server.url), threading.Event()

    @app.job
    async def note() -> None:
        ran.set()

    async def enqueue(jobs: AsyncClient) -> str | None:
        return await jobs.push("note")

    enqueue.__annotations__["jobs"] = di.NamedDependency[AsyncClient]
    web = litestar.Litestar(
        [litestar.post("/")(enqueue)],
        lifespan=[lifespan(app, concurrency=1)],
        dependencies={"jobs": di.Provide(client_of(app))},
    )
    with served(web) as url, Inspector(server.url) as inspector:
        assert len(httpx.post(url).text) == 24
        assert ran.wait(30)
        assert [process.concurrency for process in inspector.processes()] == [1]
    with Inspector(server.url) as inspector:
        assert [*inspector.processes()] == []


def test_wrong_settings_end_the_start() -> None:
    async def run(**settings: Any) -> None:
        async with running(App(), concurrency=1, **settings):
            pass

    with pytest.raises(ConfigError, match="timeout"):
        asyncio.run(run(timeout=-1))


# -- Flask


def make_web(name: str = "web") -> flask.Flask:
    web = flask.Flask(name)
    web.config["SHOP"] = "tea"
    return web


def test_each_job_has_the_app_context_and_so_has_middleware(server: Server) -> None:
    seen: list[tuple[str, str]] = []

    def watch(job: Job, call_next: Any) -> Any:
        seen.append(("middleware", flask.current_app.config["SHOP"]))
        return call_next()

    app = App(server_middleware=[watch])

    @app.job
    def note() -> None:
        seen.append(("job", flask.current_app.config["SHOP"]))

    jobs = Jobs(app)
    web = make_web()
    web.config["JOBWIRE_REDIS_URL"] = server.url
    jobs.init_app(web)
    assert app.url == server.url
    assert web.extensions["jobwire"] is jobs
    with workers.running(app, server) as launcher:
        note.enqueue()
        wait_until(lambda: len(seen) == 2 and not launcher.busy)
    assert seen == [("middleware", "tea"), ("job", "tea")]
    assert not flask.has_app_context()
    app.close()


def test_a_view_enqueues() -> None:
    app = App()

    @app.job
    def note(word: str) -> None: ...

    web = make_web()
    Jobs(app, web)

    @web.post("/")
    def enqueue() -> str:
        return note.enqueue("x") or ""

    with testing.fake(app) as jobs:
        jid = web.test_client().post("/").text
        assert [job.jid for job in jobs] == [jid]


def test_a_job_without_a_flask_application_says_how_to_start_the_worker() -> None:
    app = App()

    @app.job
    def note() -> None: ...

    Jobs(app)
    with testing.inline(app), pytest.raises(ConfigError, match="flask jobwire worker"):
        note.enqueue()


WEB = """
import flask
from jobwire import App
from jobwire.flask import Jobs

app = App()
web = flask.Flask("web")
Jobs(app, web)

@app.job(queue="mail")
def note() -> None: ...
"""


@pytest.mark.process
def test_flask_jobwire_takes_the_words_of_jobwire(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(WEB)
    shown = subprocess.run(
        [sys.executable, "-m", "flask", "--app", "shop:web", "jobwire", "config"],
        cwd=tmp_path,
        env=workers.environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert "shop:app" in shown.stdout
    assert "default,1 mail,1" in shown.stdout
