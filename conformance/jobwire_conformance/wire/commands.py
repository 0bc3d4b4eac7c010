"""The table of Redis commands: their purpose, their effect and their keys.

The suite has only this one table. A test compares it with `COMMAND INFO` and `COMMAND GETKEYS` of a
real server. Commands that are not in it, for example those of modules, count as writes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

__all__ = ["COMMANDS", "CommandSpec", "Effect", "Kind", "keys_of", "spec_of"]

Kind: TypeAlias = Literal[
    "read", "write", "script", "control", "session", "subscription", "stream", "unknown"
]
"""The purpose of a command.

- `read` and `write`: they work with keys
- `script`: runs code that can do anything
- `control`: says how other commands are executed: transactions, and the cache of scripts
- `session`: is about the connection or the server
- `subscription`: its answers are not replies, one for one
- `stream`: turns the connection into a stream without replies
"""

Effect: TypeAlias = Literal["", "puts", "takes", "removes"]
"""The effect of a write.

- `puts`: adds or changes data
- `takes`: removes or claims data and returns it
- `removes`: removes data and does not return it
"""


@dataclass(frozen=True, slots=True)
class CommandSpec:
    """One command.

    Attributes:
        name: In capitals.
        kind: Its purpose.
        effect: The effect of a write; empty for other commands.
        keys: The places of its keys, in the notation of `_ROWS`.
        blocks: True if it waits for data, or may wait if it has the argument `BLOCK`.
    """

    name: str
    kind: Kind
    effect: Effect = ""
    keys: str = ""
    blocks: bool = False

    @property
    def may_write(self) -> bool:
        """True if it can change data, and for scripts and unknown commands."""
        return self.kind in ("write", "script", "unknown")

    @property
    def may_take(self) -> bool:
        """True if it can remove data, so that it can be the fetch of a job."""
        return self.may_write and self.effect != "puts"

    @property
    def runs_script(self) -> bool:
        """True if it calls a script or a function, even one that only reads."""
        return self.name.startswith(("EVAL", "FCALL"))

    def blocks_with(self, words: Sequence[bytes]) -> bool:
        """Return whether a call with these words may wait for data."""
        if self.name in _BLOCK_BY_ARGUMENT:
            return any(word.upper() == b"BLOCK" for word in words)
        return self.blocks


# Keys, counted in words after the name:
#   1 2       these words                     1..-2     from the first to the last but one
#   1..-1/2   every second one                2#        the second says how many follow it
#   2#/2      the same, with a value each     STORE     the word after this word
#   KEYS..    all words after this word       STREAMS.. the first half of them
_ROWS: tuple[tuple[Kind, Effect, str, str], ...] = (
    (
        *("read", "", "1"),
        "BITCOUNT BITFIELD_RO BITPOS DIGEST DUMP EXPIRETIME GEODIST GEOHASH GEOPOS "
        "GEORADIUSBYMEMBER_RO GEORADIUS_RO GEOSEARCH GET GETBIT GETRANGE HEXISTS HEXPIRETIME HGET "
        "HGETALL HKEYS HLEN HMGET HPEXPIRETIME HPTTL HRANDFIELD HSCAN HSTRLEN HTTL HVALS LINDEX "
        "LLEN LPOS LRANGE PEXPIRETIME PTTL SCARD SISMEMBER SMEMBERS SMISMEMBER SORT_RO "
        "SRANDMEMBER SSCAN STRLEN SUBSTR TTL TYPE XLEN XPENDING XRANGE XREVRANGE ZCARD ZCOUNT "
        "ZLEXCOUNT ZMSCORE ZRANDMEMBER ZRANGE ZRANGEBYLEX ZRANGEBYSCORE ZRANK ZREVRANGE "
        "ZREVRANGEBYLEX ZREVRANGEBYSCORE ZREVRANK ZSCAN ZSCORE",
    ),
    ("read", "", "", "CLUSTERSCAN DBSIZE KEYS LOLWUT RANDOMKEY SCAN"),
    ("read", "", "2", "MEMORY OBJECT XINFO"),  # with a subcommand first
    ("read", "", "1 2", "LCS"),
    ("read", "", "1..-1", "EXISTS MGET PFCOUNT SDIFF SINTER SUNION TOUCH"),
    ("read", "", "1#", "SINTERCARD ZDIFF ZINTER ZINTERCARD ZUNION"),
    ("read", "", "2#", "EVALSHA_RO EVAL_RO FCALL_RO"),
    ("read", "", "STREAMS..", "XREAD"),
    (
        *("write", "puts", "1"),
        "APPEND BITFIELD DECR DECRBY EXPIRE EXPIREAT GEOADD GETEX GETSET HEXPIRE HEXPIREAT HGETEX "
        "HINCRBY HINCRBYFLOAT HMSET HPERSIST HPEXPIRE HPEXPIREAT HSET HSETEX HSETNX INCR INCRBY "
        "INCRBYFLOAT LINSERT LPUSH LPUSHX LSET PERSIST PEXPIRE PEXPIREAT PFADD PSETEX RESTORE "
        "RESTORE-ASKING RPUSH RPUSHX SADD SET SETBIT SETEX SETNX SETRANGE XADD XSETID ZADD "
        "ZINCRBY",
    ),
    ("write", "puts", "1 2", "COPY GEOSEARCHSTORE ZRANGESTORE"),
    ("write", "puts", "1 STORE", "SORT"),
    ("write", "puts", "1 STORE STOREDIST", "GEORADIUS GEORADIUSBYMEMBER"),
    ("write", "puts", "1 2#", "ZDIFFSTORE ZINTERSTORE ZUNIONSTORE"),
    ("write", "puts", "1#/2", "MSETEX"),
    ("write", "puts", "1..-1", "PFMERGE SDIFFSTORE SINTERSTORE SUNIONSTORE"),
    ("write", "puts", "1..-1/2", "MSET MSETNX"),
    ("write", "puts", "2", "PFDEBUG XGROUP"),  # with a subcommand first
    ("write", "puts", "2..-1", "BITOP"),
    (
        *("write", "takes", "1"),
        "GETDEL HGETDEL LPOP RPOP SPOP XAUTOCLAIM XCLAIM ZPOPMAX ZPOPMIN",
    ),
    ("write", "takes", "1 2", "BLMOVE BRPOPLPUSH LMOVE RPOPLPUSH"),
    ("write", "takes", "1..-2", "BLPOP BRPOP BZPOPMAX BZPOPMIN"),
    ("write", "takes", "1#", "LMPOP ZMPOP"),
    ("write", "takes", "2#", "BLMPOP BZMPOP"),
    ("write", "takes", "STREAMS..", "XREADGROUP"),
    (
        *("write", "removes", "1"),
        "DELEX DELIFEQ HDEL LREM LTRIM MOVE SREM XACK XACKDEL XDEL XDELEX XTRIM ZREM "
        "ZREMRANGEBYLEX ZREMRANGEBYRANK ZREMRANGEBYSCORE",
    ),
    ("write", "removes", "1 2", "RENAME RENAMENX SMOVE"),
    ("write", "removes", "1..-1", "DEL UNLINK"),
    ("write", "removes", "3 KEYS..", "MIGRATE"),
    ("write", "removes", "", "FLUSHALL FLUSHDB SWAPDB"),
    ("script", "", "2#", "EVAL EVALSHA FCALL"),
    ("control", "", "1..-1", "WATCH"),
    ("control", "", "", "DISCARD EXEC MULTI SCRIPT UNWATCH"),
    (
        *("session", "", ""),
        "AUTH CLIENT CLUSTER COMMAND CONFIG ECHO HELLO INFO LASTSAVE PING QUIT READONLY READWRITE "
        "RESET ROLE SELECT TIME WAIT WAITAOF",
    ),
    ("subscription", "", "", "PSUBSCRIBE PUNSUBSCRIBE SSUBSCRIBE SUBSCRIBE SUNSUBSCRIBE"),
    ("subscription", "", "", "UNSUBSCRIBE"),
    ("stream", "", "", "MONITOR PSYNC SYNC"),
)
_BLOCK_BY_ARGUMENT = {"XREAD", "XREADGROUP"}
_BLOCKING = {
    *_BLOCK_BY_ARGUMENT,
    *("BLMOVE", "BLMPOP", "BLPOP", "BRPOP", "BRPOPLPUSH", "BZMPOP", "BZPOPMAX", "BZPOPMIN"),
    *("WAIT", "WAITAOF"),
}

COMMANDS = {
    name: CommandSpec(name, kind, effect, keys, name in _BLOCKING)
    for kind, effect, keys, names in _ROWS
    for name in names.split()
}
"""The table, by the command's name in capitals."""

_KEYS = re.compile(r"(?P<first>\d+)(?P<kind>#|\.\.(?P<last>-\d+))?(?:/(?P<step>\d))?")


def spec_of(name: bytes | str) -> CommandSpec:
    """Return the row of a command, or a row of kind `unknown`. The case of its name is ignored."""
    text = name.decode("utf-8", "replace") if isinstance(name, bytes) else name
    text = text.upper()
    return COMMANDS.get(text) or CommandSpec(text, "unknown")


def keys_of(words: Sequence[bytes]) -> list[bytes]:
    """Return the keys of a command; of one that is not in the table, every word that may be one.

    A script's keys are those that it declares. A command with too few words has only those keys
    that it names.
    """
    spec = spec_of(words[0]) if words else CommandSpec("", "session")
    if spec.kind == "unknown":
        return [*words[1:]]
    return [key for place in spec.keys.split() for key in _at(place, words)]


def _at(place: str, words: Sequence[bytes]) -> Iterator[bytes]:
    """Return the keys at one place, in the notation of `_ROWS`."""
    numbered = _KEYS.fullmatch(place)
    if numbered is None:
        keyword, every, _ = place.partition("..")
        upper = [word.upper() for word in words]
        if keyword.encode() in upper[1:]:
            after = words[upper.index(keyword.encode(), 1) + 1 :]
            count = 1 if not every else len(after) // 2 if keyword == "STREAMS" else len(after)
            yield from after[:count]
        return
    first, step = int(numbered["first"]), int(numbered["step"] or 1)
    if numbered["kind"] == "#":
        count_word = words[first] if len(words) > first else b""
        end = first + 1 + (int(count_word) * step if count_word.isdigit() else 0)
        first += 1
    elif numbered["last"]:
        end = len(words) + 1 + int(numbered["last"])
    else:
        end = first + 1
    yield from words[first:end:step]
