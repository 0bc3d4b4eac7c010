"""Recording the fixtures again changes nothing but times, ids, names of hosts and the like.

What is recorded here is a part of what `make fixtures` records: one or two scenarios of each plan.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).resolve().parents[3]
FIXTURES = REPOSITORY / "fixtures"

# Quick ones, and one for each thing that becomes of a job. (Which of two retries is due first is a
# matter of dice, so the API is shown on dead ones.)
SCENARIOS = (
    "push-plain", "push-client-api", "push-bulk-at-array", "perform-in-at", "push-invalid",
    "retry-first-backtrace-3", "dead-set-trimmed", "promoted-scheduled",
    "api-dead-retry", "api-queue-delete-job",
)  # fmt: skip

# A worker that is still running may or may not have counted yet.
RUNNING = ("promoted", "retry-count", "retries-exhausted")
COUNTED = re.compile(r"stat:")
# Metrics are by the minute, which may end at any time; and 7.3 loses the last ones when it stops.
METRICS = re.compile(r"[jh]\||\w+-\d+-\d+:\d+$")

# Fields that describe the machine or the moment.
MOMENTARY = {
    "rtt_us", "rss", "busy", "pid", "hostname", "started_at", "beat", "quiet",  # of a process
    "run_at", "rt", "cancelled", "cancel",  # of a running job
}  # fmt: skip

SUBSTITUTES = (
    (re.compile(r"\b[\w.-]+:\d+:[0-9a-f]{12}\b"), "<identity>"),
    # Seconds and milliseconds of these years; the form, which tells the generations apart, stays.
    (re.compile(r"(?<![\d.])1[789]\d{8}\.\d+"), "<float seconds>"),
    (re.compile(r"(?<![\d.])1[789]\d{11}(?![\d.])"), "<integer milliseconds>"),
    (re.compile(r"\d{4}-\d\d-\d\d"), "<date>"),
)
JID = re.compile(r"\b[0-9a-f]{24}\b")


class Normal:
    """A state with everything replaced that is another one at every recording.

    Jids become numbers in the order in which they are met, so that it shows when two that were the
    same no longer are.
    """

    def __init__(self, entry: dict[str, Any], *, running: bool) -> None:
        self._jids: dict[str, str] = {}
        self._running = running
        self.emitted = self._value(entry.get("emitted"))
        self.before = self._database(entry.get("before"))
        self.redis = self._database(entry["redis"])

    def _database(self, keys: list[dict[str, Any]] | None) -> list[Any] | None:
        if keys is None:
            return None
        return sorted(
            [
                [
                    self._text(key["key"]),
                    key["type"],
                    self._ttl(key["ttl"]),
                    self._stored(key),
                ]
                for key in keys
                if not METRICS.match(key["key"])
                if not (self._running and COUNTED.match(key["key"]))
            ],
            key=json.dumps,
        )

    def _stored(self, key: dict[str, Any]) -> Any:
        if key["type"] == "zset":
            return self._scored(key["value"])
        if key["key"].endswith((":work", ":workers")):  # the names are those of threads
            return sorted((self._value(record) for record in key["value"].values()), key=json.dumps)
        return self._value(key["value"])

    def _scored(self, members: list[Any]) -> list[Any]:
        """Scores as numbers: servers spell them in several ways, and ZINCRBY rounds."""
        return [
            [
                self._value(member),
                "<now>" if 1.7e9 < float(score) < 2e9 else round(float(score), 3),
            ]
            for member, score in members
        ]

    def _ttl(self, seconds: int) -> str:
        """Return which of the protocol's lifetimes this is the rest of."""
        lifetimes = (60, 28_800, 259_200, 2_592_000, 157_680_000)
        if seconds == -1:
            return "none"
        [lifetime] = [each for each in lifetimes if each - 30 <= seconds <= each]
        return f"{lifetime} s"

    def _value(self, value: Any, name: str = "") -> Any:
        if name in MOMENTARY:
            return f"<{name}: {type(value).__name__}>"
        if name == "error_backtrace":
            return self._value(json.loads(zlib.decompress(base64.b64decode(value))))
        if isinstance(value, dict):
            return {
                self._text(each): self._value(inner, each) for each, inner in sorted(value.items())
            }
        if isinstance(value, list):
            return [self._value(inner) for inner in value]
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return self._text(json.dumps(value))
        return value

    def _text(self, text: str) -> Any:
        if text.startswith("{"):
            try:
                fields = json.loads(text)
            except ValueError:
                return text
            # Order and spelling count as well: the skeleton of the text is compared beside it.
            return [list(fields), self._value(fields), _spelling(text)]
        for pattern, substitute in SUBSTITUTES:
            text = pattern.sub(substitute, text)
        return JID.sub(self._jid, text)

    def _jid(self, match: re.Match[str]) -> str:
        if len(set(match[0])) == 1 or match[0].startswith("0123456789"):
            return match[0]  # one that the script gave
        return self._jids.setdefault(match[0], f"<jid {len(self._jids)}>")


def _spelling(text: str) -> str:
    """Return a JSON text with its strings and numbers emptied: white space, literals, types."""
    return re.sub(
        r'"(?:[^"\\]|\\.)*"|-?\d[\d.eE+-]*', lambda match: '""' if match[0][0] == '"' else "0", text
    )


def states(root: Path, version: str) -> dict[str, dict[str, Any]]:
    path = root / "fixtures" / "sidekiq" / version / "states.json"
    return {entry["name"]: entry for entry in json.loads(path.read_text("utf-8"))}


def compared(entry: dict[str, Any]) -> dict[str, Any]:
    made = Normal(entry, running=entry["name"].startswith(RUNNING))
    return {"emitted": made.emitted, "before": made.before, "redis": made.redis}


@pytest.mark.interop
def test_recording_again_changes_nothing_else(sidekiq_version: str, tmp_path: Path) -> None:
    """[PAY-11] [PUSH-1] [SCHED-1] [RETRY-2] [DEAD-3] What the fixtures show, it shows again."""
    shutil.copytree(FIXTURES, tmp_path / "fixtures")
    shutil.copy(REPOSITORY / "SPEC.md", tmp_path)
    record = tmp_path / "fixtures" / "capture" / "record.py"
    subprocess.run(
        [sys.executable, record, "--version", sidekiq_version, *SCENARIOS],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY / "python")},
        check=True,
        timeout=120,
    )
    before, after = states(REPOSITORY, sidekiq_version), states(tmp_path, sidekiq_version)
    assert list(after) == list(before)
    for name, entry in after.items():
        if name in SCENARIOS:
            assert entry["captured_at"] > before[name]["captured_at"]
            assert compared(entry) == compared(before[name]), name
        else:
            assert entry == before[name]
    index = json.loads((tmp_path / "fixtures" / "index.json").read_text("utf-8"))
    renewed = {line["file"] for line in index if "rerecorded" in line["provenance"]}
    assert {f"sidekiq/{sidekiq_version}/{file}.json" for file in ("states", "payloads")} <= renewed


@pytest.mark.interop
def test_recording_that_differs_would_show(sidekiq_version: str) -> None:
    """The normal form keeps what the protocol says."""
    entry = states(REPOSITORY, sidekiq_version)["push-plain"]
    text = json.dumps(entry)
    for old, new in (
        ("queue:default", "queue:other"),
        (r"\[1,", "[1.0,"),
        (r"\[1,", "[1 ,"),
        (r"\[1,", r'[\\"1\\",'),
        (r'\\"retry\\":true,(\\"queue\\":\\"default\\"),', r'\1,\\"retry\\":true,'),
        (r'(\\"jid\\":\\")', r"\g<1>0"),
        (r'(\\"created_at\\":)[\d.]+', r"\g<1>1795191459"),
        (r'"emitted": {"jid": "', '"emitted": {"jid": "0'),
        (r'"ttl": -1', '"ttl": 60'),
    ):
        changed, number = re.subn(old, new, text)
        assert number, old
        assert compared(json.loads(changed)) != compared(entry), new
