"""jobwire.cli.options: the choice of Redis, and the worker's options."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest

from jobwire import App
from jobwire.application.config import CapsuleConfig, WorkerConfig
from jobwire.application.redis_url import DEFAULT_URL
from jobwire.cli import options
from jobwire.cli.exits import report
from jobwire.cli.worker import worker
from jobwire.errors import ConfigError, InvalidJob, MaybeWritten, RedisRefused, RedisUnreachable
from jobwire.settings import OTHER_VARIABLES, SETTINGS, Settings

NAMES = ("REDIS_PROVIDER", "REDIS_URL", "SHOP_URL")


@pytest.fixture(autouse=True)
def _nothing_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ours = [setting.variable for setting in SETTINGS.values()]
    for name in (*NAMES, *ours, *OTHER_VARIABLES, "APP_ENV", "RAILS_ENV", "RACK_ENV"):
        monkeypatch.delenv(name, raising=False)


def test_the_nearest_word_on_redis_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The order is flag, application, three variables, default; the log names the source."""
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
        assert options.find_redis(None)[:3] == (url, source, "")
    assert options.find_redis("redis://flag")[:3] == ("redis://flag", "from --redis", "")


def test_a_file_names_redis_where_nobody_else_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file counts for every command, not only for the worker."""
    (tmp_path / "jobwire.toml").write_text("redis = 'redis://file'\n")
    assert options.find_redis(None)[:3] == ("redis://file", "from jobwire.toml:1", "")
    monkeypatch.setenv("REDIS_URL", "redis://r")
    assert options.find_redis(None)[:3] == ("redis://r", "from REDIS_URL", "")


def test_a_worker_prefers_its_application_to_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDIS_URL", "redis://r")
    plain, own = App(), App("redis://app")
    assert options.redis_of(plain, settings()) == ("redis://r", "from REDIS_URL")
    assert options.redis_of(own, settings()) == ("redis://app", "from the application")
    flagged = settings("--redis", "redis://flag")
    assert options.redis_of(own, flagged) == ("redis://flag", "from --redis")
    monkeypatch.delenv("REDIS_URL")
    assert options.redis_of(plain, settings()) is None


def settings(*arguments: str) -> Settings:
    """Return the settings that arguments of `jobwire worker` make."""
    context = worker.make_context("worker", [*arguments])
    return options.worker_settings(**context.params)


def test_the_defaults_are_sidekiqs() -> None:
    """FETCH-4: one strict queue, `default`."""
    plain = settings().worker()
    assert plain == WorkerConfig()
    assert plain.capsules["default"].queues == {"default": 0}
    assert (plain.concurrency, plain.timeout, plain.fetch) == (5, 25.0, "reliable")
    assert plain.poll_interval is None  # SCHED-8


def test_every_setting_has_a_flag() -> None:
    """Each flag reaches the worker."""
    long = {"queues": ("queue", "a,2"), "capsules": ("capsule", "x=1 y"), "labels": ("label", "l")}
    long |= {"foreign": ("foreign", "bid=run"), "hand_over": ("hand-over", "A=b")}
    words = {"app": "a:b", "fetch": "basic", "unknown_jobs": "sidekiq", "honour_paused": "pro"}
    words |= {"log_format": "json", "log_level": "error", "schedule": "x.toml"}
    Path("x.toml").write_text('[nightly]\ncron = "@daily"\nclass = "Nightly"\n')
    for name, setting in SETTINGS.items():
        flag, value = long.get(name, (name.replace("_", "-"), words.get(name, "7")))
        if name == "app":
            flag = "require"
        is_on = setting.default is True  # a flag that turns it off
        given = [f"--no-{flag}"] if is_on else [f"--{flag}", value]
        reached = settings(*given).values[name]
        assert (reached.giver, reached.source) == ("flag", f"--{flag}")
        assert reached.value != setting.default


def test_flags_are_sidekiqs() -> None:
    """CLI-1 to CLI-8 of Sidekiq, as far as they have a meaning for jobwire."""
    Path("x.toml").write_text("[staging]\npoison_limit = 9\n")
    chosen = settings(
        *("-C", "x.toml", "-e", "staging", "-c", "3", "-g", "shop", "-q", "a,2", "-q", "b"),
        *("-t", "4", "-v", "-r", "shop.jobs:app"),
    )
    assert (chosen["app"], chosen["log_level"]) == ("shop.jobs:app", "debug")
    assert chosen.worker() == WorkerConfig(
        capsules={"default": CapsuleConfig(queues={"a": 2, "b": 0}, concurrency=3)},
        tag="shop",
        timeout=4,
        poison_limit=9,
    )
    assert chosen.environment.source == "--environment"


def test_a_level_counts_more_than_v() -> None:
    assert settings("-v", "--log-level", "error")["log_level"] == "error"


def test_precise_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOBWIRE_PRECISE", "1")
    assert settings()["precise"] is True
    assert settings("--no-precise")["precise"] is False


def work() -> None: ...


def shop() -> App:
    """Return an application whose jobs name the queues default, low, mail and slow."""
    app = App()
    app.job(name="Plain")(work)
    app.job(name="Monthly", queue="low")(work)
    app.job(name="Send", queue="mail", retry_queue="slow")(work)
    app.job(name="Weekly", queue="low")(work)
    return app


def queues(*arguments: str) -> dict[str, dict[str, int]]:
    config = options.serve_all_queues(shop(), settings(*arguments)).worker()
    return {name: dict(capsule.queues) for name, capsule in config.capsules.items()}


def test_without_names_every_queue_of_the_jobs_is_served() -> None:
    """FETCH-4: with equal weights."""
    everything = {"default": 1, "low": 1, "mail": 1, "slow": 1}
    assert queues() == {"default": everything}
    assert queues("-q", "low,3") == {"default": {"low": 3}}
    assert queues("--capsule", "m=1 mail") == {
        "default": {"default": 1, "low": 1, "slow": 1},
        "m": {"mail": 0},
    }
    assert queues("--capsule", "m=1 mail low slow")["default"] == {"default": 0}
    assert queues("--capsule", "all=9 default low mail slow") == {
        "all": dict.fromkeys(everything, 0)
    }
    assert queues("--capsule", "default=1 mail") == {"default": {"mail": 0}}


def test_an_application_knows_its_queues() -> None:
    assert shop().queues == {
        "default": ["Plain"],
        "low": ["Monthly", "Weekly"],
        "mail": ["Send"],
        "slow": ["Send"],
    }
    assert App().queues == {"default": []}


def test_an_application_named_twice_is_refused() -> None:
    with pytest.raises(click.UsageError, match=r"named twice, as a:app and by --require"):
        settings("a:app", "-r", "b:app")


def test_queues_keep_order_and_weight() -> None:
    """FETCH-2, FETCH-4: names may also contain commas."""
    queues = settings("-q", "b", "-q", "a,3", "-q", "x,y,2")["queues"]
    assert list(queues.items()) == [("b", 0), ("a", 3), ("x,y", 2)]
    with pytest.raises(ConfigError, match="weight"):
        settings("-q", "a,b")


def test_capsules_are_added_to_the_one_of_q_and_c() -> None:
    """BEAT-4: each capsule has its own name."""
    both = settings("-q", "a", "-c", "2", "--capsule", "slow=3 b c,2").worker()
    assert list(both.capsules) == ["default", "slow"]
    assert both.concurrency == 5
    with pytest.raises(ConfigError, match="'default'; define it in one place"):
        settings("-q", "a", "--capsule", "default=1 b").worker()
    with pytest.raises(ConfigError, match="'slow' is named twice"):
        settings("--capsule", "slow=1 b", "--capsule", "slow=1 c")


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
    """PUSH-8: a push that may have been written has its own status."""
    assert report(error) == status
    err = capsys.readouterr().err
    assert err.startswith("jobwire: ")
    assert len(err.splitlines()) == 1
