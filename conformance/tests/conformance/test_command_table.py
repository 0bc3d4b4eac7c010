"""The suite's table of Redis commands agrees with a real server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from harness.servers import Server
from jobwire_conformance.errors import EnvironmentFault
from jobwire_conformance.wire.commands import COMMANDS, keys_of, spec_of
from jobwire_conformance.wire.link import Link
from tests.rows import over

# A call of each command whose keys depend on a count, a keyword or a subcommand.
CALLS = [
    *("BLMPOP 0 2 a b LEFT", "BZMPOP 0 2 a b MIN", "LMPOP 2 a b LEFT", "ZMPOP 1 a MIN"),
    *("EVAL x 2 a b c", "EVALSHA x 0 c", "FCALL f 1 a b", "EVAL_RO x 1 a b"),
    *("EVALSHA_RO x 2 a b", "FCALL_RO f 1 a b", "SORT a BY b", "SORT a STORE b", "SORT_RO a BY b"),
    *(
        "GEORADIUS a 1 1 1 m",
        "GEORADIUS a 1 1 1 m STORE b",
        "GEORADIUSBYMEMBER a x 1 m STOREDIST b",
    ),
    *("SINTERCARD 2 a b LIMIT 1", "ZDIFF 2 a b", "ZINTER 2 a b", "ZUNION 2 a b"),
    *("ZINTERCARD 2 a b", "ZDIFFSTORE a 2 b c", "ZINTERSTORE a 2 b c", "ZUNIONSTORE a 1 b"),
    *("MIGRATE host 1 a 0 1", "MSETEX 2 a 1 b 2 EX 5", "XREAD COUNT 1 STREAMS a b 0 0"),
    *("XREADGROUP GROUP g me STREAMS a b 0 0", "XGROUP CREATE a g 0", "XINFO STREAM a"),
    *("OBJECT ENCODING a", "MEMORY USAGE a", "PFDEBUG GETREG a"),
]
DECIDED_BY_ARGUMENTS = {call.split()[0] for call in CALLS}


@pytest.fixture
def link(any_server: Server) -> Iterator[Link]:
    opened = Link(any_server.port)
    yield opened
    opened.close()


@pytest.fixture
def rows(link: Link) -> dict[str, list[Any]]:
    """Return the server's description of each command, by its name in capitals."""
    return {row[0].decode().upper(): row for row in link.call("COMMAND")}


def flags_of(row: list[Any]) -> set[bytes]:
    """Return the flags of a command and of its subcommands that access a key."""
    subcommands = row[9] if len(row) > 9 else []
    return {*row[2]}.union(*(sub[2] for sub in subcommands if sub[3]))


def keys_said(link: Link, words: list[bytes]) -> list[bytes]:
    """Return the keys that the server finds."""
    try:
        said: list[bytes] = link.call("COMMAND", "GETKEYS", *words)
    except EnvironmentFault as error:
        if "no key arguments" not in str(error):
            raise
        return []
    return said


def test_every_command_reads_writes_and_blocks_as_the_server_says(
    rows: dict[str, list[Any]],
) -> None:
    assert len(rows) > 200
    for name, row in rows.items():
        if name not in COMMANDS:
            continue
        spec, flags = COMMANDS[name], flags_of(row)
        said = "write" if b"write" in flags else "read" if b"readonly" in flags else "neither"
        ours = spec.kind if spec.kind in ("read", "write") else "neither"
        assert (name, ours) == (name, said)
        # Redis 7.0 does not flag WAIT as blocking.
        assert (name, spec.blocks) == (name, b"blocking" in flags or name == "WAIT")
        assert (name, bool(spec.effect)) == (name, said == "write")


def test_no_command_that_works_with_keys_is_missing(rows: dict[str, list[Any]], link: Link) -> None:
    """HSETNX was once missing. Newer servers than the bundled one may have more commands."""
    if b"server_name:valkey" not in link.call("INFO", "server"):
        pytest.skip("only the bundled server is the reference")
    worked = {
        name for name, row in rows.items() if flags_of(row) & {b"write", b"readonly", b"blocking"}
    }
    assert worked - {*COMMANDS} == set()


def test_keys_are_where_the_server_finds_them(rows: dict[str, list[Any]], link: Link) -> None:
    calls = [call.encode().split() for call in CALLS if call.split()[0] in rows]
    containers = {name for name, row in rows.items() if row[9:10] and row[9]}
    for name in sorted({*COMMANDS} & {*rows} - DECIDED_BY_ARGUMENTS - containers):
        for more in (1, 2):
            count = abs(rows[name][1]) - 1 + (more if rows[name][1] < 0 else 0)
            calls.append([name.encode(), *(b"word-%d" % at for at in range(1, count + 1))])
    assert len(calls) > 400
    for words in calls:
        if len(words) == 1:  # Redis 7.0 rejects this request
            assert keys_of(words) == []
            continue
        assert (words, sorted(keys_of(words))) == (words, sorted(keys_said(link, words)))


def test_a_call_of_a_stream_command_blocks_if_it_says_so() -> None:
    for name in ("XREAD", "XREADGROUP"):
        spec = spec_of(name)
        assert not spec.blocks_with(f"{name} STREAMS a 0".encode().split())
        assert spec.blocks_with(f"{name} block 0 STREAMS a 0".encode().split())


def test_an_unknown_command_counts_as_a_write_with_any_key() -> None:
    spec = spec_of(b"\xffJSON.SET")
    assert (spec.kind, spec.may_write, spec.may_take) == ("unknown", True, True)
    assert keys_of([b"json.set", b"a", b"b"]) == [b"a", b"b"]
    assert keys_of([]) == []


@over("words", ["ZUNIONSTORE a x b", "EVAL x", "LMOVE a", "XREAD STREAMS", "GET"])
def test_a_command_that_the_server_refuses_has_the_keys_that_it_names(words: str) -> None:
    named = [word for word in words.encode().split()[1:] if word == b"a"]
    assert keys_of(words.encode().split()) == named
