"""jobwire.application.redis_url: programs find the server of `jobwire dev`, and errors name it."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jobwire import App, AsyncClient, Client, RedisUnreachable
from jobwire.application import redis_url
from jobwire.application.redis_url import ENVIRONMENTS, find_address
from jobwire.connection import embedded
from jobwire.connection.embedded import EmbeddedServer
from jobwire.inspect import Inspector

NOWHERE = "redis://127.0.0.1:1/0"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(redis_url, "DEFAULT_URL", NOWHERE)
    for name in ENVIRONMENTS:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def dev(tmp_path: Path) -> Iterator[EmbeddedServer]:
    """Run the server of the directory, as `jobwire dev` does."""
    with embedded.start(tmp_path) as server:
        yield server


def failure(push: Callable[[], object]) -> str:
    """Return the error of a push, which must be a single one, as Python prints it."""
    with pytest.raises(RedisUnreachable) as caught:
        push()
    text = "".join(traceback.format_exception(caught.value))
    assert "During handling" not in text
    assert "direct cause" not in text
    return str(caught.value)


def enqueue(url: str | None = None) -> None:
    app = App(url)

    @app.job
    def greet(name: str) -> None: ...

    try:
        greet.enqueue("Ada")
    finally:
        app.close()


def test_an_application_finds_the_server_of_its_directory(
    dev: EmbeddedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also from a directory below, and so does every other kind of client."""
    enqueue()
    (tmp_path / "shop").mkdir()
    monkeypatch.chdir(tmp_path / "shop")
    enqueue()
    with Inspector() as inspector, Client() as client:
        assert inspector.stats().enqueued == 2
        assert client.url == AsyncClient().url == dev.url


def test_a_named_server_counts_more(dev: EmbeddedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_address("redis://given").url == "redis://given"
    monkeypatch.setenv("REDIS_URL", NOWHERE)
    assert find_address(None).url == NOWHERE
    said = failure(enqueue)
    assert f"this URL is from REDIS_URL; 'jobwire dev' runs here at {dev.url}" in said


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_in_production_no_server_is_searched(
    dev: EmbeddedServer, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "production")
    assert find_address(None).url == NOWHERE
    said = failure(enqueue)
    assert said.endswith("; no URL is given: set REDIS_URL")
    monkeypatch.setenv(name, "staging")
    assert find_address(None).url == dev.url


def test_an_error_says_what_to_do(tmp_path: Path) -> None:
    app = App()
    job = app.job(enqueue)
    said = failure(lambda: job.enqueue())
    assert said.startswith(f"cannot use Redis at {NOWHERE}: ")
    assert said.endswith("; no URL is given: start a server with 'jobwire dev', or set REDIS_URL")
    with embedded.start(tmp_path) as server:
        said = failure(lambda: job.enqueue())
        assert said.endswith(f"; 'jobwire dev' runs here at {server.url} now: restart this program")
        app.close()
        job.enqueue()
    assert failure(lambda: job.enqueue()).endswith("; 'jobwire dev' has stopped: start it again")


def test_an_error_names_no_password(monkeypatch: pytest.MonkeyPatch) -> None:
    """SEC-2: of a URL from a variable, and of one that the caller gives."""
    url = "redis://me:secret@127.0.0.1:1/0"
    assert failure(lambda: enqueue(url)).endswith("Connection refused")
    monkeypatch.setenv("REDIS_URL", url)
    said = failure(enqueue)
    assert "redis://me:***@127.0.0.1:1/0" in said
    assert "secret" not in said
