"""The scripts in lua/: true headers, declared keys, opaque payloads; and their place."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from jobwire.connection import resources
from jobwire.connection.resources import script
from jobwire.errors import JobwireError
from tests.rows import over

SCRIPTS = {
    path.stem: path.read_text("utf-8") for path in sorted(resources.path("lua").glob("*.lua"))
}
SPEC = resources.path("spec/reliable.md").read_text("utf-8")

# A name in prose, as in "1 is KEYS[3]", is not a declaration.
DECLARED = re.compile(r"(?:^|  )(KEYS|ARGV)\[(\d+)(\.\.)?\]  ", re.MULTILINE)
USED = re.compile(r"\b(KEYS|ARGV)\[([^\]]+)\]")
LENGTH = re.compile(r"(?:#|unpack\()(KEYS|ARGV)\b")
# The text after a command's name, up to the end of its first word of key or argument.
CALL = re.compile(r'redis\.p?call\(\s*("?\w+"?)\s*(?:,\s*([^,()]+(?:\[[^\]]*\])?))?')
LOCALS = re.compile(r"\blocal ([\w, ]+) = (.+)")


def split(source: str) -> tuple[str, str]:
    """Return a script's header, without the dashes, and its code, without comments and texts."""
    lines = source.splitlines()
    length = next(n for n, line in enumerate(lines) if not line.startswith("--"))
    header = "\n".join(line.removeprefix("--").strip() for line in lines[:length])
    code = "\n".join(re.sub(r"--.*", "", line) for line in lines[length:])
    return header, code


def declared(header: str) -> dict[str, tuple[set[int], int | None]]:
    """Return, for KEYS and ARGV, the single indices and the begin of an open range."""
    indices: dict[str, tuple[set[int], int | None]] = {"KEYS": (set(), None), "ARGV": (set(), None)}
    for table, index, is_open in DECLARED.findall(header):
        single, start = indices[table]
        if is_open:
            assert start is None, f"{table} has two open ends"
            indices[table] = (single, int(index))
        else:
            single.add(int(index))
    return indices


def header_faults(source: str) -> list[str]:
    """Return the differences between header and body in KEYS and ARGV."""
    header, code = split(source)
    faults = []
    for table, (single, start) in declared(header).items():
        numbers = {int(i) for t, i in USED.findall(code) if t == table and i.isdigit()}
        computed = {i for t, i in USED.findall(code) if t == table and not i.isdigit()}
        has_length = table in LENGTH.findall(code)
        top = start if start is not None else len(single) + 1
        if single != set(range(1, top)):
            faults.append(f"{table}: declared {sorted(single)}, which has gaps before {top}")
        if numbers - {start} != single:
            faults.append(f"{table}: declared {sorted(single)}, used {sorted(numbers)}")
        if (start is not None) != bool(computed or has_length):
            faults.append(f"{table}: open end {start}, but computed uses {sorted(computed)}")
    return faults


def key_faults(source: str) -> list[str]:
    """Return the calls whose key is not an element of KEYS. [LUA-2]"""
    _, code = split(source)
    keys = {
        name
        for names, values in LOCALS.findall(code)
        for name, value in zip(names.split(", "), values.split(", "), strict=False)
        if value.startswith("KEYS[")
    }
    faults = []
    for command, key in CALL.findall(code):
        if not command.startswith('"'):
            faults.append(f"computed command {command}")
        elif command == '"TIME"':
            continue
        elif key.strip() not in keys and not key.strip().startswith("KEYS["):
            faults.append(f"{command} touches {key.strip() or 'nothing'}")
    return faults


@over("name", SCRIPTS)
def test_header_is_true(name: str) -> None:
    """LUA-2: KEYS and ARGV of the header are exactly those that the body uses."""
    assert header_faults(SCRIPTS[name]) == []


@over("name", SCRIPTS)
def test_every_call_touches_a_declared_key(name: str) -> None:
    """LUA-2: no key is built inside a script."""
    assert key_faults(SCRIPTS[name]) == []


@over("name", SCRIPTS)
def test_payloads_are_opaque(name: str) -> None:
    """LUA-1: no function that could decode one; SEC-1: or run one."""
    _, code = split(SCRIPTS[name])
    words = set(re.findall(r"\w+", code))
    assert words & {"cjson", "cmsgpack", "struct", "loadstring", "load", "dofile", "json"} == set()


@over("name", SCRIPTS)
def test_a_script_is_deterministic(name: str) -> None:
    """LUA-1: effects depend on keys and arguments; the caller passes the time, except of limits."""
    _, code = split(SCRIPTS[name])
    used = re.findall(r'\bos\b|\bmath\.random|"(?:TIME|RANDOMKEY|KEYS|SCAN)"', code)
    assert used == (['"TIME"'] if name.startswith("limit_") else [])


@over("name", SCRIPTS)
def test_header_says_the_rest(name: str) -> None:
    header, _ = split(SCRIPTS[name])
    assert header.startswith(f"{name}.lua: ")
    assert "\nReturns " in header
    assert re.search(r"\[(X-)?[A-Z]+-\d+\]", header)


def test_the_specification_names_every_script() -> None:
    """LUA-2: the tables of sections 18 and 19; annexes have their own scripts."""
    ours = {name for name in SCRIPTS if not name.startswith(("periodic_", "limit_", "batch_"))}
    ours -= {"emit", "lock", "ruby_lock", "unlock"}
    assert ours
    assert set(re.findall(r"^\| `(\w+)` \| ", SPEC, re.MULTILINE)) >= ours


@over("name", SCRIPTS)
def test_the_loader_returns_the_bytes(name: str) -> None:
    """LUA-3: with the SHA-1 that Redis gives them."""
    loaded = script(name)
    assert loaded.source == SCRIPTS[name].encode()
    assert re.fullmatch(r"[0-9a-f]{40}", loaded.sha)


ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("name", ["SPEC.md", "schema", "lua", "fixtures"])
def test_a_checkout_uses_its_own_files(name: str) -> None:
    assert resources.path(name) == ROOT / name


def test_a_wheel_uses_the_files_packed_into_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "_data" / "lua").mkdir(parents=True)
    monkeypatch.setattr(resources, "_PACKED", tmp_path / "_data")
    assert resources.path("lua") == tmp_path / "_data" / "lua"


def test_a_missing_file_is_named() -> None:
    with pytest.raises(JobwireError, match=r"nonsense\.lua is missing: install jobwire again"):
        resources.path("lua/nonsense.lua")
