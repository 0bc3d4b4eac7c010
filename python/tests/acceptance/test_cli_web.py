"""`jobwire web`: a real process, its address, its end, and its errors."""

from __future__ import annotations

import base64
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import httpx
import pytest

from harness.servers import Reaper, Server, wait_until
from jobwire.ops import Operations
from tests.integration.inspector.entries import payload
from tests.integration.web.crawling import parsed
from tests.integration.web.served import Events
from tests.workers import environment, heeding_hup, jobwire


class Page:
    """A process of `jobwire web`."""

    def __init__(self, reaper: Reaper, log: Path, *arguments: str, **variables: str) -> None:
        self.log = log
        self._reaper = reaper
        with log.open("wb") as output, heeding_hup():
            self.process = subprocess.Popen(
                [sys.executable, "-m", "jobwire", "web", "--port", "0", *arguments],
                env=environment(**variables),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=output,
            )
        reaper.watch(self.process.pid)

    @property
    def url(self) -> str:
        """The address that it says, without a slash at its end."""

        def said() -> str:
            assert self.process.poll() is None, self.log.read_text()
            found = re.search(r"http://\S+", self.log.read_text())
            return found[0].rstrip("/") if found else ""

        return wait_until(said)

    def end(self, number: int) -> tuple[int, float]:
        """Send a signal; return the exit status, and the seconds until the end."""
        start = time.monotonic()
        self.process.send_signal(number)
        return self.process.wait(30), time.monotonic() - start

    def close(self) -> None:
        """Kill it."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(60)
        self._reaper.release(self.process.pid)


class Start:
    """Starts processes, and leaves none behind."""

    def __init__(self, reaper: Reaper, directory: Path, stack: ExitStack) -> None:
        self._reaper = reaper
        self._directory = directory
        self._stack = stack
        self._count = 0

    def __call__(self, server: Server, *arguments: str, **variables: str) -> Page:
        self._count += 1
        log = self._directory / f"web-{self._count}.log"
        page = Page(self._reaper, log, "--redis", server.url, *arguments, **variables)
        self._stack.callback(page.close)
        return page


@pytest.fixture
def start(_reaper: Reaper, tmp_path: Path) -> Iterator[Start]:
    with ExitStack() as stack:
        yield Start(_reaper, tmp_path, stack)


def test_it_says_its_address_and_serves_the_page(server: Server, start: Start) -> None:
    page = start(server)
    url = page.url
    assert url.startswith("http://127.0.0.1:")
    assert f"for {server.url}" in page.log.read_text()
    answer = httpx.get(url)
    assert answer.status_code == 200
    assert "server" not in answer.headers
    assert ">admin<" in answer.text
    assert httpx.get(url, headers={"host": "evil.example"}).status_code == 403
    assert page.end(signal.SIGTERM)[0] == 0
    assert len(page.log.read_text().splitlines()) == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_it_ends_soon_with_an_open_page(server: Server, start: Start, number: int) -> None:
    """An open page keeps its connection for minutes; the end does not wait for it."""
    page = start(server)
    with closing(Events(f"{page.url}/changes")) as events:
        events.next()
        status, seconds = page.end(number)
    assert status == 0
    assert seconds < 20  # a busy machine delays it
    assert len(page.log.read_text().splitlines()) == 1, "no traceback"


def test_with_nohup_a_hangup_does_not_end_it(server: Server, tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGHUP)
    log = tmp_path / "nohup.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [
                *("nohup", sys.executable, "-m", "jobwire"),
                *("web", "--port", "0", "--redis", server.url),
            ],
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=output,
        )
    try:
        (url,) = wait_until(lambda: re.findall(r"http://[^/]+", log.read_text()))
        process.send_signal(signal.SIGHUP)
        assert httpx.get(url).status_code == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(30)
    assert signal.getsignal(signal.SIGHUP) is before


def test_a_change_at_work_ends_after_its_batch(server: Server, start: Start) -> None:
    client = server.client()
    for first in range(0, 60_000, 5000):
        client.zadd("retry", {payload(f"j{n}"): n for n in range(first, first + 5000)})
    page = start(server)
    with httpx.Client(base_url=page.url) as browser:
        dry_run = browser.get("/bulk?place=retry&act=delete")
        (form,) = parsed(dry_run.text, "/bulk")[1]
        assert browser.post(form.action, data=dict(form.fields)).status_code == 303
    wait_until(lambda: client.zcard("retry") < 60_000)
    assert page.end(signal.SIGTERM)[0] == 0
    left = client.zcard("retry")
    assert 0 < left < 60_000
    with Operations(server.url, role="admin") as operations:
        (ended, begun) = operations.journal()
        assert (begun.state, ended.state, ended.count) == ("begun", "ended", 60_000 - left)
        operations.undo(ended.undo)
    assert client.zcard("retry") == 60_000


def test_options_of_the_page(server: Server, start: Start, server_factory: object) -> None:
    page = start(server, "--prefix", "/jobs/", "--read-only", "--also", f"eu={server.url}")
    url = page.url
    assert url.endswith("/jobs")
    root = url.removesuffix("/jobs")
    # A proxy keeps the prefix, or leaves it out.
    for path in ("/jobs/main/journal", "/main/journal"):
        answer = httpx.get(root + path)
        assert answer.status_code == 200
        assert 'href="/jobs/eu/"' in answer.text
        assert 'href="/jobs/main/doctor"' in answer.text
        assert ">viewer<" in answer.text
        assert "path=/jobs/main/" in answer.headers["set-cookie"].lower()
    for path in ("/jobs/", "/"):
        answer = httpx.get(root + path)
        assert answer.status_code == 200
        assert 'href="/jobs/main/"' in answer.text
        assert 'href="/jobs/main/static/page.css' in answer.text


def test_passwords_from_the_environment(server: Server, start: Start) -> None:
    page = start(
        server,
        *("--host", "0.0.0.0"),
        JOBWIRE_WEB_USERS="ada:operator:geheim",
        JOBWIRE_WEB_TOKEN="t0ken",
        JOBWIRE_WEB_ROLE="viewer",
    )
    url = page.url.replace("0.0.0.0", "127.0.0.1")
    assert httpx.get(url).status_code == 401
    basic = base64.b64encode(b"ada:geheim").decode()
    for header, role in ((f"Basic {basic}", "operator"), ("Bearer t0ken", "viewer")):
        answer = httpx.get(url, headers={"authorization": header, "host": "jobs.example"})
        assert f">{role}<" in answer.text
    assert "geheim" not in page.log.read_text()


# -- errors


def refused(*arguments: str, **variables: str) -> str:
    """Run a command that must be refused; return its message."""
    done = jobwire("web", *arguments, cwd=None, **variables)
    assert done.returncode == 2, done
    assert "Traceback" not in done.stderr
    return str(done.stderr)


@pytest.mark.parametrize(
    ("arguments", "variables", "told"),
    [
        (["--host", "0.0.0.0"], {}, "set JOBWIRE_WEB_TOKEN or JOBWIRE_WEB_USERS"),
        (["--prefix", "/a b"], {}, "is not a path like /jobs"),
        (["--also", "eu"], {}, "is not NAME=URL"),
        (["--also", "a=redis://x", "--also", "a=redis://y"], {}, "of the name 'a'"),
        (["--also", "a/b=redis://x"], {}, "cannot be part of a path"),
        (["--also", "a=http://x"], {}, "http"),
        ([], {"JOBWIRE_WEB_USERS": "ada:root:geheim"}, "'root' is not one of"),
        (["--host", "192.0.2.1"], {"JOBWIRE_WEB_TOKEN": "geheim"}, "cannot listen on 192.0.2.1"),
    ],
)
def test_wrong_usage_says_what_to_do(
    arguments: list[str], variables: dict[str, str], told: str
) -> None:
    message = refused("--redis", "redis://127.0.0.1:1", *arguments, **variables)
    assert told in message
    assert "geheim" not in message


def test_a_busy_port_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        message = refused("--redis", "redis://127.0.0.1:1", "--port", str(port))
    assert f"cannot listen on 127.0.0.1 port {port}" in message


def test_a_missing_extra_is_named(tmp_path: Path) -> None:
    program = (
        "import sys; sys.modules['uvicorn'] = None; sys.modules['jinja2'] = None;"
        "from jobwire.cli import main; sys.argv[1:] = ['web']; sys.exit(main())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment(),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2
    assert "needs jinja2, uvicorn: pip install 'jobwire[web]'" in done.stderr
    assert os.listdir(tmp_path) == []
