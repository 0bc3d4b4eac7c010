"""jobwire.worker.background.lifelock: only processes that have certainly ended. [REL-11]"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.servers import wait_until
from jobwire.worker.background import lifelock
from jobwire.worker.background.lifelock import LifeLock

PROGRAM = """
import os, sys
from pathlib import Path
from jobwire.worker.background.lifelock import LifeLock
lock = LifeLock(sys.argv[1], scope=sys.argv[2], directory=Path(sys.argv[3]))
lock.hold()
if sys.argv[4:] and os.fork() == 0:
    sys.stdin.read()
    os._exit(0)
print("held", flush=True)
sys.stdin.read()
lock.release()
"""
ODD = "a/../b ü:7:0123456789ab"

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "locks"


@pytest.fixture
def mine(directory: Path) -> Iterator[LifeLock]:
    lock = LifeLock("me:1:0123456789ab", scope="here", directory=directory)
    lock.hold()
    yield lock
    lock.release()


@pytest.fixture
def start(directory: Path) -> Iterator[Start]:
    """Start a process that holds a lock; it ends in good order at the end of its input."""
    running: list[subprocess.Popen[str]] = []

    def starter(identity: str = ODD, scope: str = "here", *more: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, identity, scope, str(directory), *more],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            text=True,
        )
        running.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        return process

    yield starter
    for process in running:
        with process:
            process.kill()


@pytest.mark.process
def test_a_killed_process_has_ended_and_a_stopped_one_has_not(mine: LifeLock, start: Start) -> None:
    """REL-11: with any name; each dead process is reported until it is forgotten."""
    process = start()
    assert mine.ended() == []
    process.send_signal(signal.SIGSTOP)
    assert mine.ended() == []
    process.kill()
    process.wait(60)
    assert mine.ended() == mine.ended() == [ODD]
    mine.forget(ODD)
    assert mine.ended() == []


@pytest.mark.process
def test_an_orderly_end_leaves_nothing(mine: LifeLock, start: Start, directory: Path) -> None:
    """REL-11: such a process has returned its jobs itself."""
    process = start()
    process.communicate("", timeout=60)
    assert mine.ended() == []
    assert len(list(directory.iterdir())) == 1


@pytest.mark.process
def test_what_a_fork_may_still_do_counts(mine: LifeLock, start: Start) -> None:
    """REL-11: a child that continues the job keeps the lock of its parent."""
    process = start(ODD, "here", "fork")
    os.kill(process.pid, signal.SIGKILL)
    process.wait(60)
    assert mine.ended() == []
    assert process.stdin is not None
    process.stdin.close()  # the child ends
    wait_until(lambda: mine.ended() == [ODD], 60)


@pytest.mark.process
def test_others_are_not_judged(mine: LifeLock, start: Start, directory: Path) -> None:
    """REL-11: locks for another Redis or of another kernel, and files that are not locks."""
    process = start("other:1:0", "elsewhere")
    process.kill()
    process.wait(60)
    foreign = LifeLock(
        "foreign:1:0", scope="here", directory=directory, boot_id=directory / "no such file"
    )
    foreign.hold()
    assert mine.ended() == foreign.ended() == []
    (directory / f"{mine._prefix}link").symlink_to(directory / "nowhere")
    assert mine.ended() == []
    foreign.release()


def test_an_unborn_process_is_not_judged(mine: LifeLock, directory: Path) -> None:
    """REL-11: a file gets its name after it is locked, not before."""
    (directory / f".{mine._prefix}new").touch()
    assert mine.ended() == []


@pytest.mark.parametrize("what", ["open to all", "a link", "a file"])
def test_a_directory_that_others_could_use_is_not_used(
    directory: Path, tmp_path: Path, what: str
) -> None:
    """REL-11: otherwise any user could claim that a process has ended."""
    if what == "open to all":
        directory.mkdir()
        directory.chmod(0o777)
    elif what == "a link":
        (tmp_path / "real").mkdir(mode=0o700)
        directory.symlink_to(tmp_path / "real")
    else:
        directory.touch()
    lock = LifeLock(ODD, scope="here", directory=directory)
    lock.hold()
    assert lock.ended() == []
    lock.forget("nobody:1:0")
    lock.release()
    if directory.is_dir():
        assert list(directory.iterdir()) == []


def test_what_is_left_does_not_pile_up(mine: LifeLock, directory: Path) -> None:
    """REL-11: old files without a lock are removed, locked files stay."""
    old, new = directory / "0123456789abcdef-old", directory / "0123456789abcdef-new"
    for path in (old, new):
        path.touch()
    for path in (old, directory / mine._name):
        os.utime(path, (0, time.time() - lifelock.KEEP_S - 60))
    another = LifeLock(ODD, scope="here", directory=directory)
    another.hold()
    assert {path.name for path in directory.iterdir()} == {new.name, mine._name, another._name}
    another.release()
