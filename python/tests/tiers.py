"""Tiers of the tests: a pytest plugin that chooses them, and records what each test did.

A test belongs to the first tier whose rule it keeps; its markers say which:

- no marker: in this process, or with one server; no bound in wall time; below 2 s of CPU
- `process`: starts a process of ours, takes over a second, reads all of our texts or data, or is of
  the web page, whose tests cost a sixth of all and are seldom what a change breaks
- any other of `RELEASE`: only in the release check

Some markers are set here. `tests.gate` reads the record and judges by it.
"""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

import pytest

from tests.calls import hear

__all__ = ["GATE", "RELEASE", "note_start", "tier_of"]

GATE = "test", "check"
RELEASE = "interop", "browser", "full", "timing", "real_time", "matrix", "random"

# Directories whose tests all have a marker.
_BY_DIRECTORY = {
    "acceptance": "process",
    "browser": "browser",
    "chaos": "guarantee",
    "faults": "guarantee",
    "integration/scripts": "guarantee",
    "integration/web": "process",
    "interop": "interop",
}
_GUARANTEE = re.compile(r"\b(?:REL|GUAR)-[0-9]")
_ROOT = Path(__file__).parent


def tier_of(markers: set[str]) -> str:
    """Return the tier of a test with these markers."""
    for name in RELEASE:
        if name in markers:
            return name
    return "check" if "process" in markers else "test"


def _is_chosen(tier: str, markers: set[str]) -> bool:
    own = tier_of(markers)
    if tier == "check":
        return own in GATE
    if tier == "random":  # the property tests of the gate, with new examples
        return own == "random" or ("hypothesis" in markers and own in GATE)
    return own == tier


def _place(path: Path) -> str:
    """Return a path below `python/tests`; `""` for one in another directory."""
    return path.relative_to(_ROOT).as_posix() if path.is_relative_to(_ROOT) else ""


_unread: Counter[str] = Counter()
_MARKED = re.compile(r"^pytestmark = pytest\.mark\.(\w+)\b", re.M)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not even import a directory or file whose tests all belong to another tier."""
    tier = config.getoption("--tier")
    if not tier:
        return None
    name = _place(collection_path)
    marker, what = _BY_DIRECTORY.get(name, ""), f"`python/tests/{name}`"
    text = collection_path.read_text() if collection_path.suffix == ".py" else ""
    if mark := _MARKED.search(text):
        marker = mark[1]
        what = f"files of `{marker}`"
    if marker not in (*RELEASE, "process") or _is_chosen(tier, {marker}):
        return None
    # Tests in it may have the marker of a tier of the release check as well.
    if (marker == "process" and tier != "test") or f"mark.{tier}" in text:
        return None
    _unread[what] += 1
    return True


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("tiers")
    group.addoption("--tier", choices=(*GATE, *RELEASE), help="run the tests of this tier only")
    group.addoption("--record", metavar="FILE", help="write what each test did as lines of JSON")


def _set_markers(item: pytest.Item) -> None:
    where = _place(item.path)
    for directory, marker in _BY_DIRECTORY.items():
        if where.startswith(f"{directory}/"):
            item.add_marker(marker)
    function = getattr(item, "function", None)
    if getattr(function, "is_hypothesis_test", False):  # Hypothesis itself adds it later
        item.add_marker("hypothesis")
    text = getattr(function, "__doc__", None) or ""
    if _GUARANTEE.search(text):
        item.add_marker("guarantee")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    tier = config.getoption("--tier")
    chosen: list[pytest.Item] = []
    left_out: list[pytest.Item] = []
    for item in items:
        _set_markers(item)
        markers = {marker.name for marker in item.iter_markers()}
        (chosen if tier is None or _is_chosen(tier, markers) else left_out).append(item)
    if left_out:
        items[:] = chosen
        config.hook.pytest_deselected(items=left_out)
    if hasattr(config, "workeroutput"):
        tiers = Counter(tier_of({mark.name for mark in item.iter_markers()}) for item in left_out)
        config.workeroutput["left_out"] = [
            *(name if name.startswith("`") else f"{n} {name}" for name, n in _unread.items()),
            *(f"{n} tests of `{name}`" for name, n in tiers.items()),
        ]


_started: list[str] = []  # Python programs that the running test started
_listening = False


def note_start(args: Any, executable: Any = None) -> None:
    """Record that the running test starts a program, if it is one in Python."""
    if _listening:
        words = [os.fsdecode(word) for word in ([args] if isinstance(args, str | bytes) else args)]
        name = os.path.basename(os.fsdecode(executable or words[0]))
        is_reaper = words[1:3] == ["-I", "-S"]  # the harness's own, which is small
        if name.startswith(("python", "jobwire")) and not is_reaper:
            _started.append(" ".join(" ".join(words).split())[:100])


def _hear(_: object, args: Any, *__: object, executable: Any = None, **___: object) -> None:
    note_start(args, executable)


hear(subprocess.Popen, "__init__", _hear)


def _cpu_seconds() -> float:
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


_CPU = pytest.StashKey[float]()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    item.stash[_CPU] = _cpu_seconds()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    global _listening
    _started.clear()
    _listening = True
    try:
        return (yield)
    finally:
        _listening = False
        item.user_properties.append(("started", list(_started)))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    try:
        return (yield)
    finally:
        markers = {marker.name for marker in item.iter_markers()}
        item.user_properties.append(("cpu", _cpu_seconds() - item.stash.get(_CPU, 0.0)))
        item.user_properties.append(("tier", tier_of(markers)))
        item.user_properties.append(("guarantee", "guarantee" in markers))


class Recorder:
    """Writes what each test did; lives in the process that hears of all of them."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._left_out: list[str] = []

    def _write(self, **record: Any) -> None:
        self._file.write(json.dumps(record) + "\n")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        record: dict[str, Any] = {"test": report.nodeid, "when": report.when}
        record |= {"outcome": report.outcome, "seconds": report.duration}
        if report.failed:
            record["text"] = report.longreprtext
        if report.skipped and isinstance(report.longrepr, tuple):
            record["reason"] = report.longrepr[2].removeprefix("Skipped: ")
        self._write(**record, **dict(report.user_properties))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._write(
                test=report.nodeid, when="collect", outcome="failed", text=report.longreprtext
            )

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        """Keep how a worker of xdist ended, and which tests it says it was not asked to run."""
        self._left_out = getattr(node, "workeroutput", {}).get("left_out") or self._left_out
        if error:
            # xdist reports the test that ran, but not the exit status.
            process = node.gateway._io.popen
            with suppress(subprocess.TimeoutExpired):
                process.wait(10)
            self._write(crashed=node.gateway.id, status=process.returncode)

    def pytest_sessionfinish(self) -> None:
        self._write(left_out=self._left_out)
        self._file.flush()


def pytest_configure(config: pytest.Config) -> None:
    path = config.getoption("--record")
    if path and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder(open(path, "w", encoding="utf-8")))  # noqa: SIM115
