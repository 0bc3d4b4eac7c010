"""Logs and inspection show no text that steers a terminal, deceives a reader or forges a line."""

from __future__ import annotations

import json
import random
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.servers import Reaper, Server, wait_until
from tests.acceptance.test_cli_inspect import Terminal, run
from tests.workers import Workers, jobwire

JOBS = """
import json, sys
from jobwire import App
app = App()

@app.job(name="Fail")
def fail(text, *_):
    raise ValueError(json.loads(text))

@app.job(name="Say", isolated=True)
def say(text, *_):
    for stream in (sys.stdout, sys.stderr):
        stream.buffer.write(json.loads(text).encode("utf-8", "surrogatepass") + b"\\n")
        stream.buffer.flush()
"""
TIME = "2026-11-20T16:27:47.500Z"
FRAGMENTS = [
    *map(chr, (*range(32), *range(0x7F, 0xA0), *range(0x200B, 0x2010), *range(0x2028, 0x202F))),
    *map(chr, (*range(0x2060, 0x2070), 0xFEFF, 0x61C, 0xE0001, 0xE0041, 0xD800, 0xDFFF)),
    *("\x1b[2J", "\x1b]0;title\x07", "\x9b31m", "word", " ", "é😀漢", '"', "\\", "'", "%s", "]["),
    f"\n{TIME} INFO    FAKE forged\n",
    f'"}}\n{{"ts":"{TIME}","pid":1,"tid":"FAKE","lvl":"INFO","msg":"forged"}}\n',
]
DRAW = random.Random(12)
STRINGS = [
    *FRAGMENTS,
    *("".join(DRAW.choices(FRAGMENTS, k=DRAW.randint(2, 20))) for _ in range(497 - len(FRAGMENTS))),
    *("\u202e" + char * 100_000 for char in "a\n\x9b"),
]
LINE = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]{12}Z [A-Z]+ +(?!FAKE)\S+ ")


@pytest.fixture
def workers(_reaper: Reaper, tmp_path: Path) -> Iterator[Workers]:
    (tmp_path / "hostile.py").write_text(JOBS)
    with Workers(_reaper, tmp_path) as running:
        yield running


def payloads() -> Iterator[str]:
    """Yield each string as the class, as an error and as output; with lone surrogates no job."""
    for text in STRINGS:
        fields = {"jid": text, "tags": [text], "queue": "default", "retry": True}
        yield json.dumps({"class": text, "args": [text], **fields})
        whole = text.encode("utf-8", "replace").decode()
        fields |= {"jid": whole, "tags": [whole], "args": [json.dumps(text), whole]}
        yield json.dumps({"class": "Fail", **fields})
        yield json.dumps({"class": "Say", **fields})


@pytest.mark.parametrize("log_format", ["human", "json"])
@pytest.mark.full
def test_500_strings(server: Server, workers: Workers, log_format: str) -> None:
    """SEC-5, SEC-6: in class, jid, arguments, errors, tags, output; through log and inspection."""
    assert len(STRINGS) == 500
    client = server.client()
    texts = [*payloads()]
    client.rpush("queue:default", *texts)
    worker = workers.start(
        "hostile:app", "--redis", server.url, "--log-format", log_format, "--log-level", "debug"
    )
    unreadable = sum(bool(re.search(r"[\ud800-\udfff]", text)) for text in STRINGS)
    # A slow machine also runs the first retries.
    wait_until(lambda: int(client.get("stat:processed") or 0) >= len(texts) - unreadable, 120)
    worker.send(signal.SIGTERM)
    assert worker.wait(60) == 0
    lines = worker.log.read_bytes().decode().removesuffix("\n").split("\n")
    assert [line for line in lines if not line.isprintable()] == []
    if log_format == "human":
        assert [line for line in lines if not LINE.match(line) and line[:2] != "  "] == []
        assert sum("forged" in line for line in lines) > 100
    else:
        entries = [json.loads(line) for line in lines]
        assert [entry for entry in entries if entry["tid"] == "FAKE"] == []
        jids = {entry["ctx"]["jid"] for entry in entries if "ctx" in entry}
        assert jids >= {text for text in STRINGS if text.isascii()}
    if log_format == "json":
        return
    for view, count in (("retries", client.zcard("retry")), ("dead", client.zcard("dead"))):
        shown = run(server, view).stdout.removesuffix("\n").split("\n")
        assert len(shown) == 1 + int(count)
        assert {line.count("\t") for line in shown} == {5}
        assert all(line.replace("\t", "").isprintable() for line in shown)
        records = run(server, view, "--json").stdout.removesuffix("\n").split("\n")
        assert len([json.loads(line) for line in records]) == int(count)
        assert all(line.isprintable() for line in records)
        terminal = Terminal(server, view, "-n", "0")
        assert terminal.end() == 0
        table = re.sub(r"\x1b\[[\d;]*m", "", terminal.seen).split("\r\n")
        assert all(line.isprintable() for line in table)
        assert not any(line.startswith(TIME) for line in table)


@pytest.mark.parametrize(
    "command", [["config"], ["inspect", "stats"], ["enqueue", "Note"], ["worker", "hostile:app"]]
)
def test_a_password_that_is_not_encoded(
    command: list[str], workers: Workers, tmp_path: Path
) -> None:
    """SEC-2, ENV-7: one line with the rule, from every command that connects."""
    ended = jobwire(*command, cwd=tmp_path, REDIS_URL="redis://:a#secret@host")
    assert ended.returncode == 2
    assert len(ended.stderr.splitlines()) == 1
    assert "%23 for #" in ended.stderr
    assert "secret" not in ended.stdout + ended.stderr
    ended = jobwire(*command, cwd=tmp_path, REDIS_URL='"redis://:secret@host"')
    assert "is in quotes; remove them" in ended.stderr
    assert "secret" not in ended.stdout + ended.stderr
