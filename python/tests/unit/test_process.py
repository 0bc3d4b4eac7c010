"""jobwire.worker.process.process: the signal handlers."""

from __future__ import annotations

import logging
import signal
import sys
import threading
from pathlib import Path

import pytest

from jobwire import App
from jobwire.application.config import WorkerConfig
from jobwire.errors import NoReply, RedisRefused, RedisTrouble, RedisUnreachable
from jobwire.worker.process import process as process_module
from jobwire.worker.process.notify import Notifier
from jobwire.worker.process.process import _may_pass, _Process
from tests.rows import over


@pytest.fixture
def process() -> _Process:
    return _Process(App("redis://127.0.0.1:1/0"), WorkerConfig(), Notifier({}))


def test_a_signal_that_the_system_lacks_is_said(
    process: _Process, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """SIG-3: a system without TTIN still runs jobs."""
    caplog.set_level(logging.INFO)
    monkeypatch.delattr(signal, "SIGTTIN")
    process._trap("TTIN")
    assert caplog.messages == ["this system has no signal TTIN"]


def test_a_handler_only_passes_the_signal_on(
    process: _Process, caplog: pytest.LogCaptureFixture
) -> None:
    """SIG-2: it can run between any two bytecodes, so it takes no lock and does not log."""
    caplog.set_level(logging.DEBUG)
    process._on_signal(signal.SIGTSTP, None)
    assert caplog.messages == []
    assert process._signals.get_nowait().name == "TSTP"  # type: ignore[union-attr]


def test_only_four_signals_come_through_redis(
    process: _Process, caplog: pytest.LogCaptureFixture
) -> None:
    """SIG-6, SIG-10: HUP and USR2 are for the terminal and the supervisor."""
    for name in ("HUP", "USR2", "KILL", "term", "TERM", "INT", "TSTP", "TTIN"):
        process._on_redis_signal(name)
    received = [process._signals.get_nowait() for _ in range(4)]
    assert [each and each.name for each in received] == ["TERM", "INT", "TSTP", "TTIN"]
    assert process._signals.empty()
    assert [record.args for record in caplog.records] == [("HUP",), ("USR2",), ("KILL",), ("term",)]


def test_a_redis_that_does_not_answer_delays_no_stop(
    process: _Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIG-1: Ctrl-C ends a worker at once that waits for Redis; other signals stay for later."""
    answer = threading.Event()
    monkeypatch.setattr(process._launcher, "check_server", lambda: answer.wait(60))
    for name in ("TSTP", "INT"):
        process._on_signal(getattr(signal, f"SIG{name}"), None)
    try:
        assert process._wait_for_redis("") is False
    finally:
        answer.set()


def test_a_signal_during_the_search_for_redis_is_heeded_later(
    process: _Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIG-2: a worker that is quiet before it starts."""
    answer = threading.Event()
    monkeypatch.setattr(process._launcher, "check_server", lambda: answer.wait(60))
    process._on_signal(signal.SIGTSTP, None)
    threading.Timer(0.3, answer.set).start()
    assert process._wait_for_redis("") is True
    assert process._signals.get_nowait().name == "TSTP"  # type: ignore[union-attr]


def test_lines_that_a_job_prints_are_written_at_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Only in the process of the command; also to a file, where Python would keep them."""
    monkeypatch.setattr(process_module._Process, "run", lambda self, source: 0)
    with (tmp_path / "out").open("w") as out:
        monkeypatch.setattr(sys, "stdout", out)
        sys.stdout.write("before\n")  # as `print` does
        assert (tmp_path / "out").read_text() == ""
        process_module.run(App("redis://127.0.0.1:1/0"), WorkerConfig())
        sys.stdout.write("after\n")
        assert (tmp_path / "out").read_text() == "before\nafter\n"


@over(
    ("error", "passes"),
    [
        (RedisUnreachable("connection refused"), True),
        (NoReply("cut"), True),
        (RedisRefused("LOADING Redis is loading the dataset in memory"), True),
        (RedisRefused("OOM command not allowed"), True),
        (RedisRefused("NOREPLICAS Not enough good replicas to write."), True),
        (RedisRefused("READONLY You can't write against a read only replica."), True),
        (RedisRefused("NOPERM User x has no permissions"), False),
        (RedisRefused("WRONGTYPE processes is a string"), False),
    ],
)
def test_some_errors_pass_with_time(error: RedisTrouble, passes: bool) -> None:
    """ENV-6: a worker waits for a Redis that starts, and not for one that refuses it."""
    assert _may_pass(error) == passes
    error = RedisUnreachable("wrong password")
    error.refused = True
    assert not _may_pass(error)
