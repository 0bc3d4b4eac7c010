"""Checks of a Redis server: version, eviction, cluster mode.

[ENV-1] [ENV-2] [ENV-8] [ENV-9] [ENV-10] [ENV-15]
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from jobwire.errors import ConfigError, RedisRefused
from jobwire.protocol.heartbeat import LEASE_S
from jobwire.protocol.keys import Keys
from jobwire.protocol.wire import Op, command

__all__ = ["ServerInfo", "UnfitServer", "check_server", "parse_info"]

OLDEST_REDIS = (6, 2)  # the scripts need RPOP with a count and ZRANGE with BYSCORE


class UnfitServer(ConfigError):
    """The server answers, but jobwire cannot keep jobs in it."""


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """Product and version of the server, and warnings about its settings.

    Attributes:
        product: Redis or Valkey.
        version: Its version.
        warnings: Sentences about its settings.
        restored: True if it started less than a lease ago and loaded keys, of which leases may have
            ended while it was away.
    """

    product: str
    version: str
    warnings: tuple[str, ...] = ()
    restored: bool = False


def check_server(keys: Keys) -> Op[ServerInfo]:
    """Return product, version and warnings, from the reply to INFO.

    Raises:
        UnfitServer: The server is too old, or a cluster and the namespace has no hash tag.
        RedisRefused: The server still loads its data; it answers INFO, but no other command.
    """
    try:
        text: bytes = yield command("INFO")
    except RedisRefused as error:
        return ServerInfo("Redis", "?", (f"cannot check the server, INFO was refused: {error}",))
    return parse_info(_fields(text.decode("utf-8", "replace")), keys)


def parse_info(fields: Mapping[str, str], keys: Keys) -> ServerInfo:
    """Check the fields of INFO; see `check_server`."""
    if fields.get("loading") == "1":
        raise RedisRefused("LOADING the server still loads its data")
    version = fields.get("redis_version", "")
    valkey = fields.get("valkey_version")
    product = "Valkey" if valkey else "Redis"
    if version and _numbers(version) < OLDEST_REDIS:
        raise UnfitServer(
            f"{product} {version} is too old: jobwire needs Redis 6.2 or Valkey 7.2, or newer"
        )
    if fields.get("cluster_enabled") == "1" and not keys.one_slot:
        raise UnfitServer(
            "the server is a cluster, and keys would fall into different slots: namespace "
            f"{keys.namespace!r} has no hash tag; use one like '{{shard-01}}:', or a URL like "
            "redis+cluster://host1:7000,host2:7000/s0"
        )
    warnings = []
    policy = fields.get("maxmemory_policy", "")
    if policy not in ("", "noeviction"):
        warnings.append(
            f"maxmemory-policy is {policy}, so the server may delete jobs when memory runs low; "
            "set it to noeviction"
        )
    restored = int(fields.get("uptime_in_seconds", LEASE_S)) < LEASE_S and (
        fields.get("rdb_last_load_keys_loaded", "0") != "0"
    )
    return ServerInfo(product, valkey or version or "?", tuple(warnings), restored)


def _fields(text: str) -> dict[str, str]:
    pairs = (line.partition(":") for line in text.splitlines() if not line.startswith("#"))
    return {name: value for name, _, value in pairs}


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
