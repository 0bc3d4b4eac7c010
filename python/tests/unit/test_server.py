"""jobwire.protocol.server: the reply to INFO decides if a worker starts."""

from __future__ import annotations

import pytest

from jobwire.errors import RedisRefused
from jobwire.protocol.keys import Keys
from jobwire.protocol.server import UnfitServer, check_server, parse_info
from jobwire.protocol.wire import command
from tests.rows import over


def check(fields: dict[str, str], namespace: str = "") -> tuple[str, str, int]:
    info = parse_info(fields, Keys(namespace))
    return info.product, info.version, len(info.warnings)


@over("version", ["6.2.0", "6.2", "7.0.15", "8.1.7", "10.0.0", "255.255.255"])
def test_new_enough(version: str) -> None:
    """ENV-1."""
    assert check({"redis_version": version}) == ("Redis", version, 0)


@over("version", ["6.0.16", "6.1.9", "5.0", "4.0.9", "2.8.24", "0.1"])
def test_too_old(version: str) -> None:
    """ENV-10: the message names the version found and the versions needed."""
    with pytest.raises(UnfitServer, match=rf"Redis {version} .*Redis 6\.2 or Valkey 7\.2"):
        check({"redis_version": version})


def test_valkey_has_a_version_of_its_own() -> None:
    """ENV-1: its redis_version is for compatibility only."""
    fields = {"redis_version": "7.2.4", "valkey_version": "9.1.2"}
    assert check(fields) == ("Valkey", "9.1.2", 0)


def test_a_server_that_loads_its_data_is_not_usable_yet() -> None:
    """ENV-6: it answers INFO, and refuses every other command."""
    with pytest.raises(RedisRefused, match="LOADING"):
        check({"redis_version": "7.0.15", "loading": "1"})
    assert check({"redis_version": "7.0.15", "loading": "0"}) == ("Redis", "7.0.15", 0)


def test_a_server_that_tells_nothing_is_given_a_try() -> None:
    """ENV-1, ENV-2, ENV-9: proxies and managed servers hide their version."""
    assert check({}) == ("Redis", "?", 0)


@pytest.mark.parametrize(
    ("policy", "warnings"), [("noeviction", 0), ("", 0), ("allkeys-lru", 1), ("volatile-ttl", 1)]
)
def test_eviction(policy: str, warnings: int) -> None:
    """ENV-2: an unknown policy is not an error."""
    fields = {"redis_version": "7.0.0", "maxmemory_policy": policy}
    assert check(fields) == ("Redis", "7.0.0", warnings)
    texts = parse_info(fields, Keys()).warnings
    assert all(policy in warning and "noeviction" in warning for warning in texts)


@over(
    ("namespace", "fits"),
    [
        *((name, False) for name in ("", "app:", "{}:", "}x{", "{}{a}:", "{a", "a}")),
        *((name, True) for name in ("{s-1}:", "a{b}{}:", "}{a}", "{{}")),
    ],
)
def test_a_cluster_needs_a_hash_tag(namespace: str, fits: bool) -> None:
    """ENV-8, KEY-4, LUA-2: all keys have to be in one slot."""
    fields = {"redis_version": "7.0.0", "cluster_enabled": "1"}
    if fits:
        check(fields, namespace)
    else:
        with pytest.raises(UnfitServer, match="hash tag"):
            check(fields, namespace)
    assert check({**fields, "cluster_enabled": "0"}, namespace)


def test_it_asks_once_and_reads_the_text() -> None:
    """ENV-1, ENV-2: comments, empty lines and odd bytes do not matter."""
    asking = check_server(Keys())
    assert next(asking) == command("INFO")
    text = b"# Server\r\nredis_version:7.0.1\r\n\r\n"
    text += b"# Memory\r\nmaxmemory_policy:volatile-lru\r\nx:\xff"
    with pytest.raises(StopIteration) as ended:
        asking.send(text)
    info = ended.value.value
    assert (info.version, len(info.warnings)) == ("7.0.1", 1)


def test_a_refused_info_is_a_warning() -> None:
    """ENV-9, ENV-15: an ACL may forbid INFO, which is a warning; other commands may still work."""
    asking = check_server(Keys())
    next(asking)
    with pytest.raises(StopIteration) as ended:
        asking.throw(RedisRefused("NOPERM no permission to run 'info'"))
    assert "NOPERM" in ended.value.value.warnings[0]
