"""jobwire.cli.options: which Redis, and what the worker's options mean."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jobwire.cli import options
from jobwire.cli.exits import report
from jobwire.config import DEFAULT_URL
from jobwire.errors import ConfigError, InvalidJob, MaybeWritten, RedisRefused, RedisUnreachable

NAMES = ("JOBWIRE_REDIS_URL", "REDIS_PROVIDER", "REDIS_URL", "SHOP_URL")


@pytest.fixture(autouse=True)
def _nothing_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)


def test_the_nearest_word_on_redis_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Flag, application, three variables, the default; and the log says which it was."""
    steps: list[tuple[dict[str, str], str, str]] = [
        ({}, DEFAULT_URL, "the default"),
        ({"REDIS_URL": "redis://r"}, "redis://r", "from REDIS_URL"),
        (
            {"REDIS_PROVIDER": "SHOP_URL", "SHOP_URL": "redis://s"},
            "redis://s",
            "from SHOP_URL, named by REDIS_PROVIDER",
        ),
        ({"JOBWIRE_REDIS_URL": "redis://j"}, "redis://j", "from JOBWIRE_REDIS_URL"),
    ]
    for env, url, source in steps:
        for name, value in env.items():
            monkeypatch.setenv(name, value)
        assert options.find_redis(None) == (url, source)
    assert options.find_redis(None, "redis://app") == ("redis://app", "from the application")
    assert options.find_redis("redis://flag", "redis://app") == ("redis://flag", "from --redis")


def config(**more: Any) -> Any:
    given: dict[str, Any] = {
        "queues": (),
        "capsules": (),
        "concurrency": 5,
        "timeout": 25.0,
        "fetch": "reliable",
        "poll_interval": None,
        "tag": "",
        "labels": (),
    }
    return options.worker_config(**{**given, **more})


def test_the_defaults_are_sidekiqs() -> None:
    """FETCH-4: one strict queue, `default`."""
    plain = config()
    assert plain.capsules["default"].queues == {"default": 0}
    assert (plain.concurrency, plain.timeout, plain.fetch) == (5, 25.0, "reliable")
    assert plain.poll_interval is None  # SCHED-8


def test_queues_keep_order_and_weight() -> None:
    """FETCH-2, FETCH-4: and names may hold commas."""
    queues = config(queues=("b", "a,3", "x,y,2")).capsules["default"].queues
    assert list(queues.items()) == [("b", 0), ("a", 3), ("x,y", 2)]
    with pytest.raises(ConfigError, match="weight"):
        config(queues=("a,b",))


def test_capsules_are_added_to_the_one_of_q_and_c() -> None:
    """BEAT-4: each with a name of its own."""
    both = config(queues=("a",), concurrency=2, capsules=("slow=3 b c,2",))
    assert list(both.capsules) == ["default", "slow"]
    assert both.concurrency == 5
    with pytest.raises(ConfigError, match="'default' is named twice"):
        config(capsules=("default=1 b",))


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ConfigError("x"), 2),
        (InvalidJob("PUSH-4", "queue", "x"), 2),
        (RedisUnreachable("x"), 4),
        (RedisRefused("OOM x"), 4),
        (MaybeWritten("x"), 5),
    ],
)
def test_errors_are_one_line_and_have_a_status(
    error: Any, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """PUSH-8: a push that may have been written is told apart."""
    assert report(error) == status
    err = capsys.readouterr().err
    assert err.startswith("jobwire: ")
    assert len(err.splitlines()) == 1
