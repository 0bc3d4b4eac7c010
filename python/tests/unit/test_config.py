"""Settings and options are checked once, and errors name value, rule and fix."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import click
import pytest

from jobwire import App
from jobwire.application.config import CapsuleConfig, WorkerConfig, parse_queues
from jobwire.application.redis_url import DEFAULT_URL, redis_url
from jobwire.cli import options
from jobwire.cli.exits import report
from jobwire.cli.worker import worker
from jobwire.connection.connect import check_url, safe_url
from jobwire.errors import ConfigError, InvalidJob, MaybeWritten, RedisRefused, RedisUnreachable
from jobwire.protocol.ordering import expand
from jobwire.settings import OTHER_VARIABLES, SETTINGS, Settings
from tests.rows import over

ALL = {
    "JOBWIRE_REDIS_URL": "redis://ours",
    "REDIS_PROVIDER": "SOME_URL",
    "SOME_URL": "redis://provided",
    "REDIS_URL": "redis://common",
}


def without(*names: str) -> dict[str, str]:
    return {name: value for name, value in ALL.items() if name not in names}


@over(
    ("explicit", "environ", "found"),
    [
        ("redis://given", ALL, ("redis://given", "as given")),
        (None, ALL, ("redis://ours", "from JOBWIRE_REDIS_URL")),
        (
            None,
            without("JOBWIRE_REDIS_URL"),
            ("redis://provided", "from SOME_URL, named by REDIS_PROVIDER"),
        ),
        (
            None,
            without("JOBWIRE_REDIS_URL", "REDIS_PROVIDER"),
            ("redis://common", "from REDIS_URL"),
        ),
        (None, without("JOBWIRE_REDIS_URL", "SOME_URL"), ("redis://common", "from REDIS_URL")),
        ("", {}, None),
        (None, {"REDIS_URL": ""}, None),
    ],
)
def test_redis_url(
    explicit: str | None, environ: dict[str, str], found: tuple[str, str] | None
) -> None:
    assert redis_url(explicit, environ) == found


def test_a_provider_that_is_a_url_is_explained() -> None:
    with pytest.raises(ConfigError, match=r"REDIS_PROVIDER holds a URL.*set REDIS_URL instead"):
        redis_url(None, {"REDIS_PROVIDER": "redis://user:secret@host"})


@over(
    ("specs", "queues"),
    [
        ([], {}),
        (["critical", "default"], {"critical": 0, "default": 0}),
        (["critical,3", "low,1"], {"critical": 3, "low": 1}),
        (["a,b,2"], {"a,b": 2}),
        (["a:b|c,0"], {"a:b|c": 0}),
    ],
)
def test_parse_queues(specs: list[str], queues: dict[str, int]) -> None:
    """FETCH-4: a missing weight is the weight 0."""
    assert parse_queues(specs) == queues
    assert list(parse_queues(specs)) == list(queues)


@over(
    ("specs", "problem"),
    [
        ([""], "has no valid name"),
        ([",3"], "has no valid name"),
        ([" low"], "has no valid name"),
        (["low,"], "weight '' is not a whole number"),
        (["low,x"], "weight 'x' is not a whole number"),
        (["low,-1"], "weight '-1' is not a whole number"),
        (["low,1.5"], "weight '1.5' is not a whole number"),
        (["low,²"], "weight '²' is not a whole number"),
        (["low", "low,2"], "'low' is named twice"),
    ],
)
def test_parse_queues_refuses(specs: list[str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        parse_queues(specs)


def test_patterns_become_the_known_queues() -> None:
    """In their place, alphabetical, with their weight; a named queue keeps its own weight."""
    known = {"mail:b", "mail:a", "mail:fast", "mailbox", "low", "mail:"}
    weights = {"high": 3, "mail:*": 2, "mail:fast": 5, "none:*": 1}
    assert list(expand(weights, known, weights).items()) == [
        ("high", 3),
        ("mail:", 2),
        ("mail:a", 2),
        ("mail:b", 2),
        ("mail:fast", 5),
        ("none:*", 1),
    ]
    assert expand({"*": 0, "l*": 0}, known) == dict.fromkeys([*sorted(known), "l*"], 0)


@over(
    ("settings", "problem"),
    [
        ({"queues": {}}, "at least one"),
        ({"queues": {"": 0}}, "'' is not a queue name"),
        ({"queues": {"a": -1}}, "weight -1 of 'a'"),
        ({"queues": {"a": True}}, "weight True of 'a'"),
        ({"queues": {True: 1}}, "queues: True is not a string; put it in quotes"),
        ({"queues": ["a"]}, "queues: .* is not a mapping of queue names to weights"),
        ({"concurrency": 0}, "concurrency: 0 is less than 1"),
        ({"concurrency": True}, "concurrency: True is not a whole number"),
        ({"concurrency": "5"}, "concurrency: '5' is not a whole number"),
    ],
)
def test_capsule_refuses(settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        CapsuleConfig(**settings)


@over(
    ("settings", "problem"),
    [
        ({"capsules": {}}, "at least one"),
        ({"fetch": "quick"}, "'quick' is not one of 'reliable', 'basic'"),
        ({"timeout": -1}, "timeout: -1"),
        ({"timeout": math.nan}, "timeout: nan"),
        ({"timeout": math.inf}, "timeout: inf"),
        ({"poll_interval": 0}, "poll_interval: 0"),
        ({"poll_interval": math.nan}, "poll_interval: nan"),
        ({"max_retries": -1}, "max_retries: -1"),
        ({"dead_limit": 0}, "dead_limit: 0"),
        ({"dead_max_age": -1}, "dead_max_age: -1"),
        ({"timeout": "25"}, "timeout: '25' is not a number of seconds"),
        ({"tag": 5}, "tag: 5 is not a string"),
        ({"labels": "one"}, "labels: 'one' is not a list"),
        ({"labels": [1]}, "labels: 1 is not a string"),
        ({"processes": 0}, "processes: 0 is less than 1"),
        ({"memory_limit": 0}, "memory_limit: 0 is less than 1"),
        ({"memory_limit": 1.5}, "memory_limit: 1.5 is not a whole number"),
        ({"health_port": 0}, r"health_port: 0 is not a port number \(1 to 65535\)"),
        ({"metrics_port": 65_536}, "metrics_port: 65536 is not a port number"),
        ({"metrics_port": "http"}, "metrics_port: 'http' is not a port number"),
        ({"health_port": True}, "health_port: True is not a port number"),
        ({"listen_host": ""}, "listen_host: '' is not an address"),
        ({"listen_host": "a b"}, "listen_host: 'a b' is not an address"),
        ({"poison_limit": 0}, "poison_limit: 0 is less than 1"),
        ({"precise": 1}, "precise: 1 is not true or false"),
        ({"max_iteration_runtime": 0}, "max_iteration_runtime: 0 is not above 0 seconds"),
    ],
)
def test_worker_refuses(settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        WorkerConfig(**settings)


def test_defaults_are_sidekiqs() -> None:
    """DEAD-2 and DEAD-3: 180 days and 10,000; five threads on "default"; 25 retries."""
    config = WorkerConfig()
    assert config.capsules == {"default": CapsuleConfig(queues={"default": 0}, concurrency=5)}
    assert (config.timeout, config.max_retries) == (25.0, 25)
    assert (config.dead_limit, config.dead_max_age) == (10_000, 180 * 86_400)
    assert config.fetch == "reliable"


def test_concurrency_is_the_sum_over_capsules() -> None:
    config = WorkerConfig(capsules={"a": CapsuleConfig(), "b": CapsuleConfig(concurrency=2)})
    assert config.concurrency == 7


def test_settings_cannot_change_later() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        WorkerConfig().timeout = 1  # type: ignore[misc]


@over(
    "url",
    [
        "redis://localhost:6379/0",
        "redis://",
        "redis://[::1]:7000/15",
        "rediss://user:secret@host:6380",
        "unix:///run/redis.sock?db=3",
        "valkey://localhost:6379/0",
        "valkeys+sentinel://one,two/mymaster/0?ssl_ca_certs=ca.crt",
        "rediss+cluster://user:secret@one:7000,two/s0?ssl_ca_certs=ca.crt",
    ],
)
def test_urls_of_a_server(url: str) -> None:
    assert check_url(url) == url


@over(
    ("url", "problem"),
    [
        ("localhost:6379", "must begin with redis://"),
        ("http://localhost", "must begin with redis://"),
        ("", "must begin with redis://"),
        ("redis://localhost:99999", "a port is a number up to 65535"),
        ("redis://localhost:0", "port 0 cannot be connected to"),
        ("redis://localhost:x", "a port is a number up to 65535"),
        ("redis://localhost/cache", "'/cache' is not a database number"),
        ("unix://", "names no socket"),
        ("redis://[::1", "no readable host"),
        ("unix://run/redis.sock", "must have /// before the path"),
        ("redis://host#1", "has a # or an @ after the host"),
        ("redis://ho\tst", "control character"),
        ("redis+sentinel:///mymaster", "must name sentinels"),
        ("redis+sentinel://one,two", "must name sentinels"),
        ("redis+sentinel://one,,two/mymaster", "must name sentinels"),
        ("redis+sentinel://one:0/mymaster", "port 0 cannot be connected to"),
        ("redis+sentinel://one:99999/mymaster", "a port is a number up to 65535"),
        ("redis+sentinel://one/mymaster/cache", "is not a database number"),
        ("redis+cluster://one:7000,two", "must name nodes of a cluster and the hash tag"),
        ("redis+cluster://one:7000?shards=4", r"App\(shards='redis\+cluster://"),
        ("redis+cluster://one,,two/s0", "must name nodes"),
        ("redis+cluster://one/{s0}", "must name nodes"),
        ("redis+cluster://one:0/s0", "port 0 cannot be connected to"),
        ("redis+cluster://one/s0?db=1", "unknown option 'db'"),
        ("redis://host?max_conections=5", "unknown option 'max_conections'; known: client_name"),
        ("redis://host?decode_responses=true", "unknown option 'decode_responses'"),
        ("redis://host?sentinel_password=x", "unknown option 'sentinel_password'"),
        ("redis://host?protocol=4", "protocol '4' is not 2 or 3"),
        ("redis://host?db=x", "db 'x' is not a number"),
        ("redis://host?ssl_ca_certs=ca.crt", "write rediss:// instead"),
        ("valkey+sentinel://a/m?ssl_ca_certs=b", r"write valkeys\+sentinel:// instead of valkey\+"),
        ("unix:///a.sock?ssl_ca_certs=ca.crt", "ssl_ca_certs is for TLS; remove it"),
        ("rediss://host?ssl_cert_reqs=CERT_NONE", "write none, optional or required"),
    ],
)
def test_other_urls_are_refused(url: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        check_url(url)


@over(
    ("url", "shown"),
    [
        ("redis://host:1/0", "redis://host:1/0"),
        ("redis://:secret@host:1/0", "redis://:***@host:1/0"),
        ("redis://me:secret@host", "redis://me:***@host"),
        ("redis://me:se@cret@host", "redis://me:***@host"),
        ("unix://me:secret@/run/redis.sock", "unix://me:***@/run/redis.sock"),
        ("redis://host/0?password=secret", "redis://host/0?password=***"),
        (
            "redis+sentinel://me:secret@one,two/m/0?sentinel_password=secret&db=1",
            "redis+sentinel://me:***@one,two/m/0?sentinel_password=***&db=1",
        ),
        ("redis://host/0?db=1&password=secret&x=2", "redis://host/0?db=1&password=***&x=***"),
        ("unix:///run/a@b/redis.sock", "unix:///run/a@b/redis.sock"),
        ("redis://[::1", "redis://[:***"),
        ("valkeys://me:secret@host", "valkeys://me:***@host"),
    ],
)
def test_passwords_are_not_shown(url: str, shown: str) -> None:
    """SEC-2."""
    assert safe_url(url) == shown


ENCODE, SCHEME, QUOTES = "%23 for #", "must begin with redis://", "is in quotes; remove them"


@over(
    ("url", "rule"),
    [
        ("http://me:secret@host", SCHEME),
        ("redis://me:secret@host/x", "is not a database number"),
        ("unix://me:secret@", "names no socket"),
        *((f"redis://:{begin}{mark}secret@host", ENCODE) for begin in ("a", "1") for mark in "#?/"),
        ("redis://:secret#1@host", ENCODE),
        ("redis://:se[cret@host", ENCODE),
        ("redis://:1?x=secret@host", ENCODE),
        ("redis://:secret", ENCODE),
        ("unix://:secret/x@/run/redis.sock", ENCODE),
        ("redis+sentinel://:a#secret@one,two/m", ENCODE),
        ('"redis://:secret@host"', QUOTES),
        ("'redis://:secret@host'", QUOTES),
        *((f"{begin}:secret@host", SCHEME) for begin in ("REDIS_URL=redis://", "", "://")),
        *((f"{begin}:secret@host", SCHEME) for begin in ("redis//", "redis:://", "REDIS://")),
        ("redis://host?passwort=secret", "unknown option 'passwort'"),
        ("redis://host?secret", "must have options like db=1"),
        ("redis://:secret\n@host", "control character"),
    ],
)
def test_passwords_are_not_in_errors(url: str, rule: str) -> None:
    """SEC-2: of URLs as people type them, with passwords as programs make them."""
    with pytest.raises(ConfigError) as caught:
        check_url(url)
    assert "secret" not in str(caught.value) + safe_url(url)
    assert rule in str(caught.value)


def test_blanks_around_a_url_are_left_out() -> None:
    """ENV-7."""
    assert check_url(" redis://:x@host\n") == "redis://:x@host"
    assert safe_url(" redis://:x@host\n") == "redis://:***@host"


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
