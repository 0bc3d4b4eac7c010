"""Names and passwords of the web page."""

from __future__ import annotations

import asyncio
import base64
import hmac
import logging
from collections.abc import Iterator
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from starlette.testclient import TestClient

from harness.servers import Server
from jobwire.console.web import access
from jobwire.console.web.access import Passwords, Visitor, read_accounts
from jobwire.console.web.attempts import FREE, MAX_ADDRESSES, MAX_WAITING, Attempts, address_of
from jobwire.errors import ConfigError
from jobwire.web import WebApp

USERS = "ada:admin:pass:word olga:operator:geheim-ü viktor:viewer:seen"


def basic(name: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()


@pytest.fixture
def client(server: Server) -> Iterator[TestClient]:
    accounts = read_accounts({"JOBWIRE_WEB_USERS": USERS})
    app = WebApp(server.url, authorize=Passwords(accounts))
    with closing(app), TestClient(app) as made:
        yield made


@pytest.mark.parametrize(
    ("name", "password", "role"),
    [
        ("ada", "pass:word", "admin"),
        ("olga", "geheim-ü", "operator"),
        ("viktor", "seen", "viewer"),
    ],
)
def test_each_person_has_a_role(client: TestClient, name: str, password: str, role: str) -> None:
    answer = client.get("/journal", headers={"authorization": basic(name, password)})
    assert answer.status_code == 200
    assert f'{name} <span class="role">{role}</span>' in answer.text


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "Basic",
        "Basic !!!",
        "Basic " + base64.b64encode(b"\xff:\xff").decode(),
        "Basic " + base64.b64encode(b"ada").decode(),
        basic("ada", ""),
        basic("ada", "seen"),
        basic("ada", "pass:wor"),
        basic("Ada", "pass:word"),
        basic("", "pass:word"),
        basic("*", "pass:word"),
        basic("eve", ""),
        "Bearer pass:word",
        "Bearer",
        "Digest ada",
    ],
)
def test_others_are_asked_for_name_and_password(client: TestClient, header: str | None) -> None:
    headers = {} if header is None else {"authorization": header}
    for answer in (
        client.get("/journal", headers=headers),
        client.get("/journal", headers=headers | {"accept": "text/event-stream"}),
        client.post("/acts/undo", headers=headers),
    ):
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"] == 'Basic realm="jobwire", charset="UTF-8"'
        assert answer.headers["content-security-policy"]
        assert "password" in answer.text


def test_many_wrong_passwords_wait_and_lock_no_person_out(
    server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    app = WebApp(server.url, authorize=Passwords(read_accounts({"JOBWIRE_WEB_USERS": USERS})))

    def asks(host: str = "10.0.0.1") -> httpx.AsyncClient:
        transport = httpx.ASGITransport(app, client=(host, 1))
        return httpx.AsyncClient(transport=transport, base_url="http://x")

    async def status(client: httpx.AsyncClient, password: str) -> int:
        answer = await client.get("/journal", headers={"authorization": basic("ada", password)})
        return answer.status_code

    async def attack() -> None:
        over, slept = asyncio.Event(), []

        async def sleep(seconds: float) -> None:
            slept.append(seconds)
            await over.wait()

        monkeypatch.setattr(access, "anyio", SimpleNamespace(sleep=sleep))
        async with asks() as browser, asks() as thief, asks() as stranger, asks("10.0.0.2") as away:
            for _ in range(2):  # the second time with its session
                assert await status(browser, "pass:word") == 200
            assert {await status(thief, f"guess{n}") for n in range(FREE)} == {401}
            assert not slept
            new = asyncio.create_task(status(stranger, "pass:word"))
            guesses = [asyncio.create_task(status(thief, f"g{n}")) for n in range(MAX_WAITING + 5)]
            assert await status(browser, "pass:word") == 200
            assert await status(away, "pass:word") == 200
            assert await status(thief, "") == 401  # no attempt
            while len(slept) < MAX_WAITING:
                await asyncio.sleep(0)
            over.set()
            assert sorted(await asyncio.gather(*guesses)) == [401] * (MAX_WAITING - 1) + [429] * 6
            assert await new == 200

    with closing(app), caplog.at_level(logging.WARNING):
        asyncio.run(attack())
    lines = [record.message for record in caplog.records if "wrong password" in record.message]
    assert [line.partition(" from 10.0.0.1, ")[0] for line in lines] == [
        "web page: 1 wrong password",
        "web page: 10 wrong passwords",
        "web page: 100 wrong passwords",
    ]
    assert "guess9" not in caplog.text


def test_wrong_passwords_take_bounded_memory_and_are_forgotten() -> None:
    attempts = Attempts()
    for number in range(MAX_ADDRESSES + 5):
        attempts.wrong(f"10.{number}", "ada", 0.0)
    assert len(attempts._addresses) == MAX_ADDRESSES
    for _ in range(FREE):
        attempts.wrong("a", "ada", 0.0)
    assert attempts.pause("a", 599.0) == 2.0
    assert attempts.pause("a", 601.0) == 0.0
    hosts = ("2001:db8::1", "2001:db8::ffff", "::ffff:10.0.0.1", "10.0.0.1", "testclient", "")
    assert [address_of(host) for host in hosts] == [
        *("2001:db8::/64", "2001:db8::/64", "10.0.0.1", "10.0.0.1", "testclient", "")
    ]


def test_a_token_is_for_every_name_and_for_programs(server: Server) -> None:
    environment = {"JOBWIRE_WEB_TOKEN": "t0ken", "JOBWIRE_WEB_ROLE": "operator"}
    app = WebApp(server.url, authorize=Passwords(read_accounts(environment)))
    with closing(app), TestClient(app) as client:
        for header, person in ((basic("grace", "t0ken"), "grace"), ("Bearer t0ken", "token")):
            answer = client.get("/journal", headers={"authorization": header})
            assert f'{person} <span class="role">operator</span>' in answer.text
        for header in (basic("", "t0ken"), basic("*", "t0ken"), "Bearer t0ke", "Bearer *"):
            assert client.get("/", headers={"authorization": header}).status_code == 401


def test_a_person_of_a_name_does_not_enter_by_the_token(server: Server) -> None:
    environment = {"JOBWIRE_WEB_TOKEN": "t0ken", "JOBWIRE_WEB_USERS": "viktor:viewer:seen"}
    app = WebApp(server.url, authorize=Passwords(read_accounts(environment)))
    with closing(app), TestClient(app) as client:
        wrong = client.get("/journal", headers={"authorization": basic("viktor", "t0ken")})
        assert wrong.status_code == 401


def test_every_answer_compares_in_constant_time(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Known and unknown names cost one comparison of texts of equal length."""
    compared: list[tuple[int, int]] = []
    original = hmac.compare_digest

    def compare(one: Any, other: Any) -> bool:
        compared.append((len(one), len(other)))
        return original(one, other)

    client.get("/")
    monkeypatch.setattr(access, "hmac", SimpleNamespace(compare_digest=compare))
    for header in (basic("ada", "x"), basic("eve", "x"), basic("ada", "x" * 500), "Bearer x"):
        client.get("/", headers={"authorization": header})
    assert compared == [(32, 32)] * 4


@pytest.mark.parametrize(
    ("environment", "problem"),
    [
        ({"JOBWIRE_WEB_USERS": "ada"}, "not name:role:password"),
        ({"JOBWIRE_WEB_USERS": "ada:admin:"}, "not name:role:password"),
        ({"JOBWIRE_WEB_USERS": ":admin:x"}, "(no name)"),
        ({"JOBWIRE_WEB_USERS": "*:admin:x"}, "not name:role:password"),
        ({"JOBWIRE_WEB_USERS": "ada:root:secret"}, "'root' is not one of"),
        ({"JOBWIRE_WEB_TOKEN": "secret", "JOBWIRE_WEB_ROLE": "root"}, "JOBWIRE_WEB_ROLE"),
        ({"JOBWIRE_WEB_USERS": "ada:admin:secret ada:viewer:secret"}, "twice"),
    ],
)
def test_a_wrong_account_is_refused_without_its_password(
    environment: dict[str, str], problem: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        read_accounts(environment)
    assert problem in str(caught.value)
    assert "secret" not in str(caught.value)


def test_the_repr_of_an_account_has_no_password() -> None:
    assert "pass:word" not in repr(read_accounts({"JOBWIRE_WEB_USERS": USERS}))


def test_a_visitor_has_one_of_the_roles() -> None:
    with pytest.raises(ConfigError, match="'root' is not one of"):
        Visitor("ada", "root")  # type: ignore[arg-type]
