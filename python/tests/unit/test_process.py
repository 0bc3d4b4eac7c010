"""jobwire.worker.process.process: the signal handlers."""

from __future__ import annotations

import logging
import signal

import pytest

from jobwire import App
from jobwire.application.config import WorkerConfig
from jobwire.errors import NoReply, RedisRefused, RedisTrouble, RedisUnreachable
from jobwire.worker.process.notify import Notifier
from jobwire.worker.process.process import _may_pass, _Process


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


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        (RedisUnreachable("connection refused"), True),
        (NoReply("cut"), True),
        (RedisRefused("LOADING Redis is loading the dataset in memory"), True),
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
