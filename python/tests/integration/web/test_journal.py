"""The page of the journal: pages by id, filters, undo."""

from __future__ import annotations

import pytest

from harness.servers import Server
from jobwire.ops import Operations
from tests.integration.inspector.entries import payload
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
