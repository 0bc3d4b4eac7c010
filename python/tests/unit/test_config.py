"""jobwire.application.config: settings are checked once, and errors name value, rule and fix."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest

from jobwire.application.config import CapsuleConfig, WorkerConfig, parse_queues
from jobwire.application.redis_url import redis_url
from jobwire.connection.connect import check_url, safe_url
from jobwire.errors import ConfigError
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
        ("redis://host?max_conections=5", "unknown option 'max_conections'; known: client_name"),
        ("redis://host?decode_responses=true", "unknown option 'decode_responses'"),
        ("redis://host?sentinel_password=x", "unknown option 'sentinel_password'"),
        ("redis://host?protocol=4", "protocol '4' is not 2 or 3"),
        ("redis://host?db=x", "db"),
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
