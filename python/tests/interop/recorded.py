"""Recordings in a normal form, in which two recordings of the same thing are equal.

Values that another recording may have different are replaced by their kind: times, dates and the
rest of a time to live; jids, identities, UUIDs of Active Job, addresses of Ruby objects, names of
threads; figures that a process measures of itself, durations and metrics; the jitter in scores,
and so the order by score. Everything else counts: keys, types, commands, the
order and spelling of JSON, the unit of times (seconds or milliseconds), and which jids are the
same.
"""

from __future__ import annotations

import ast
import base64
import json
import re
import zlib
from pathlib import Path
from typing import Any

# A running worker may or may not have counted yet.
RUNNING = ("promoted", "retry-count", "retries-exhausted")
COUNTED = re.compile(r"stat:")
# Metrics are by the minute, which may end at any time; and 7.3 loses the last ones when it stops.
METRICS = re.compile(r"[jh]\||\w+-\d+-\d+:\d+$")

# Fields that describe the machine or the moment.
MOMENTARY = {
    "rtt_us", "rss", "busy", "pid", "hostname", "started_at", "beat", "quiet",  # of a process
    "run_at", "rt", "cancelled", "cancel",  # of a running job
    "latency", "queue_latency", "stats_latency", "now",  # of an inspection
    "ms", "s", "hist",  # of metrics
}  # fmt: skip

SUBSTITUTES = (
    (re.compile(r"\b[\w.-]+:\d+:[0-9a-f]{12}\b"), "<identity>"),
    (re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"), "<uuid>"),
    (re.compile(r"0x[0-9a-f]{16}"), "<address>"),
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{9})?Z"), "<time>"),
    # Seconds and milliseconds of these years; the form, which tells the generations apart, stays.
    (re.compile(r"(?<![\w.])1[789]\d{8}\.\d+\b"), "<float seconds>"),
    (re.compile(r"(?<![\w.])1[789]\d{11}\.\d+"), "<float milliseconds>"),
    (re.compile(r"(?<![\w.])1[789]\d{11}(?![\w.])"), "<integer milliseconds>"),
    (re.compile(r"(?<![\w.])1[789]\d{8}(?![\w.])"), "<integer seconds>"),
    (re.compile(r"(?<![\w.])1[789]\d{5}\.\d+(?![\w.])"), "<seconds in milliseconds>"),
    (re.compile(r"\d{4}-\d\d-\d\d"), "<date>"),
    (re.compile(r"\b20\d{6}-marks"), "<date>-marks"),
)
JID = re.compile(r"\b[0-9a-f]{24}\b")

WORK = (":work", ":workers")
LIFETIMES = (60, 28_800, 259_200, 2_592_000, 7_776_000, 157_680_000)


class Normal:
    """Texts, values and databases with a placeholder for everything that varies.

    Jids become numbers in the order of their first use, so that equal jids stay equal and
    different jids stay different.
    """

    def __init__(self) -> None:
        self._jids: dict[str, str] = {}

    def database(
        self, keys: list[dict[str, Any]] | None, *, running: bool, ordered: bool
    ) -> list[Any] | None:
        if keys is None:
            return None
        if not ordered:  # nor is it certain that there was a beat with the jobs
            keys = [
                key | {"value": sorted(key["value"], key=_arguments)}
                if key["type"] == "list"
                else key
                for key in keys
                if not key["key"].endswith(WORK)
            ]
        return sorted(
            [
                [self.text(key["key"]), key["type"], _ttl(key["ttl"]), self._stored(key)]
                for key in keys
                if not METRICS.match(key["key"])
                if not (running and COUNTED.match(key["key"]))
            ],
            key=json.dumps,
        )

    def value(self, value: Any, name: str = "") -> Any:
        if name in MOMENTARY:
            return f"<{name}: {type(value).__name__}>"
        if name == "error_backtrace":
            return self.value(json.loads(zlib.decompress(base64.b64decode(value))))
        if isinstance(value, dict):
            return {
                self.text(each): self.value(inner, each) for each, inner in sorted(value.items())
            }
        if isinstance(value, list):
            return [self.value(inner) for inner in value]
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return self.text(json.dumps(value))
        return value

    def text(self, text: str) -> Any:
        if text.startswith("{"):
            try:
                fields = json.loads(text)
            except ValueError:
                return text
            # Order and spelling count as well: the skeleton of the text is compared with it.
            return [list(fields), self.value(fields), _spelling(text)]
        for pattern, substitute in SUBSTITUTES:
            text = pattern.sub(substitute, text)
        return JID.sub(self._jid, text)

    def _stored(self, key: dict[str, Any]) -> Any:
        if key["type"] == "zset":
            # Sorted by their arguments where jitter has made the order.
            members = sorted(
                key["value"], key=lambda pair: (_due(pair[1]) == "", _arguments(pair[0]))
            )
            return [[self.value(member), _due(score)] for member, score in members]
        if key["key"].endswith(WORK):  # the fields are names of threads
            return sorted((self.value(record) for record in key["value"].values()), key=json.dumps)
        return self.value(key["value"])

    def _jid(self, match: re.Match[str]) -> str:
        if len(set(match[0])) == 1 or match[0].startswith(("0123456789", "0" * 16)):
            return match[0]  # a jid of the script
        return self._jids.setdefault(match[0], f"<jid {len(self._jids)}>")


def state(entry: dict[str, Any]) -> dict[str, Any]:
    """Return an entry of states.json in the normal form."""
    normal = Normal()
    how = {"running": entry["name"].startswith(RUNNING), "ordered": entry["name"] not in UNORDERED}
    return {
        "emitted": normal.value(entry.get("emitted")),
        "pushed": normal.value(entry.get("pushed")),
        "before": normal.database(entry.get("before"), **how),
        "redis": normal.database(entry["redis"], **how),
    }


def states(root: Path, version: str) -> dict[str, dict[str, Any]]:
    path = root / "fixtures" / "sidekiq" / version / "states.json"
    return {entry["name"]: entry for entry in json.loads(path.read_text("utf-8"))}


# Parts of a transcript

COMMAND = re.compile(r"\d+\.\d+ \[\d+ (c\d+|lua)\] (.*)")
ARGUMENT = re.compile(r'"(?:[^"\\]|\\.)*"')
MINUTE = re.compile(r"^(j\|)\d+\|\d+:\d+$|^((?:h\|)?\w+-)\d+-\d+:\d+$")
DICE = re.compile(r"^-?\d+\.\d+$")
WHICH = re.compile(r"\br[0-7]\b")  # of eight retries; the first due one is random

# Commands of one client, from beginning to end: every command counts, in its order.
ONE_CLIENT = ("push", "push-bulk", "api")
# Commands that a worker repeats, more or less often: their presence counts.
IDLE = re.compile(r'"(brpop|ping|scard|sscan|SSCAN)"|"process_cleanup"')
POLLER = re.compile(
    r'(?i)"(script|evalsha)"|"byscore"|"zrangebyscore" "(retry|schedule)"|"hget" ".*" "info"'
)
MEASURED = re.compile(r'"([jh]\||\w+-\d+-\d+:)')
LEFT_OUT = {
    "poller-promote": (IDLE,),
    # When it stops, 7.3 may lose the last metrics.
    "iterable": (IDLE, POLLER, MEASURED),
    "shutdown-graceful": (IDLE, POLLER, MEASURED),
    "shutdown-hard": (IDLE, POLLER, MEASURED),
}
# Of a heartbeat: presence, statistics, metrics.
BEAT = re.compile(
    r'"sadd" "processes"|"(incrby|expire)" "stat:|" "[^"]*:\d+:[0-9a-f]{12}[^" ]*"|'
    r'"([jh]\||\w+-\d+-\d+:)'
)
# Two workers, or two threads, run in any order.
NUMBERED = re.compile(r"<jid \d+>")
UNORDERED = ("process-stopped-by-api", "shutdown-hard-requeued")


def transcript(name: str, text: str) -> list[Any]:
    """Return the commands of each section, in the normal form.

    Workers do many things at the same time. Each of their commands counts once in a section, and
    those of heartbeats once in all. The number of looks for jobs and for due jobs counts only in
    the transcript about it.
    """
    normal = Normal()
    sections: list[tuple[str, list[Any]]] = []
    beats: list[Any] = []
    multi: dict[str, Any] = {}  # by connection, until it shows what is in the transaction
    last: dict[str, list[Any]] = {}
    for line in text.splitlines():
        if line.startswith("#"):
            sections.append((line, []))
            continue
        connection, command = _command(line, normal)
        if name in ONE_CLIENT:
            sections[-1][1].append(command)
        elif not any(left_out.search(line) for left_out in LEFT_OUT.get(name, (IDLE, POLLER))):
            if command[1].lower() == "multi":
                multi[connection] = command
                continue
            part = beats if BEAT.search(line) else sections[-1][1]
            if command[1].lower() == "exec":
                part = last.get(connection, part)
            part += [multi.pop(connection), command] if connection in multi else [command]
            last[connection] = part
    if name in ONE_CLIENT:
        return sections
    return [(mark, _each_once(commands)) for mark, commands in [*sections, ("beats", beats)]]


def _each_once(commands: list[Any]) -> list[str]:
    return sorted({NUMBERED.sub("<jid>", json.dumps(command)) for command in commands})


def _command(line: str, normal: Normal) -> tuple[str, list[Any]]:
    """Return the connection, and caller, name and arguments of a command."""
    match = COMMAND.fullmatch(line)
    assert match, line
    caller = "lua" if match[1] == "lua" else "client"
    words = [ast.literal_eval(f"b{word}").decode() for word in ARGUMENT.findall(match[2])]
    name, *arguments = words
    made: list[Any] = [normal.text(MINUTE.sub(r"\1\2<minute>", word)) for word in arguments]
    if name in ("hset", "hmset") and arguments[0].endswith(WORK):
        made[1::2] = ["<thread>"] * len(made[1::2])
    elif name in ("hset", "hmset"):
        for at in range(1, len(arguments) - 1, 2):
            made[at + 1] = normal.value(arguments[at + 1], arguments[at])
    elif name in ("incrby", "hincrby"):
        made[-1] = "<count>"
    elif name == "bitfield":
        made[-2] = "<bucket>"  # duration of a job
    elif name == "rpush":
        made[1:] = sorted(made[1:], key=json.dumps)
    text = json.dumps(
        [DICE.sub("<decimal>", word) if isinstance(word, str) else word for word in made]
    )
    return match[1], [caller, name, json.loads(WHICH.sub("r?", text))]


def _due(score: str) -> str:
    """A score as a number: servers spell them in several ways, and ZINCRBY rounds. `""`: random."""
    return "" if 1.7e9 < float(score) < 2e9 else f"{float(score):.3f}"


def _arguments(member: Any) -> str:
    try:
        return json.dumps(json.loads(member)["args"])
    except (ValueError, TypeError, KeyError):
        return str(member)


def _ttl(seconds: int) -> str:
    """Return the lifetime of the protocol of which this is the rest."""
    if seconds == -1:
        return "none"
    [lifetime] = [each for each in LIFETIMES if each - 60 <= seconds <= each]
    return f"{lifetime} s"


def _spelling(text: str) -> str:
    """Return a JSON text with its strings and numbers emptied: white space, literals, types."""
    return re.sub(
        r'"(?:[^"\\]|\\.)*"|-?\d[\d.eE+-]*', lambda match: '""' if match[0][0] == '"' else "0", text
    )
