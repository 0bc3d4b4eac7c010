"""The page of the doctor."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from harness.servers import Server, wait_until
from jobwire.errors import RedisUnreachable
from jobwire.ops import Finding, Operations
from tests.integration.web.test_bulk import visiting


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
